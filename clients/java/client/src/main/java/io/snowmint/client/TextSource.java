package io.snowmint.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;

/** The texts of a source. */
final class TextSource extends SourceHandle implements TextIdSource {
    TextSource(Source source) {
        super(source);
    }

    @Override
    public String next() {
        return text(source.take(1).get(0));
    }

    @Override
    public List<String> next(int count) {
        List<Span> spans = source.takeChecked(count);
        List<String> ids = new ArrayList<>(count);
        for (Span span : spans) {
            for (int i = 0; i < span.count(); i++) {
                ids.add(span.texts()[Math.toIntExact(span.first()) + i]);
            }
        }
        return Collections.unmodifiableList(ids);
    }

    @Override
    public Optional<String> tryNext() {
        return source.tryTake().map(TextSource::text);
    }

    private static String text(Span span) {
        return span.texts()[Math.toIntExact(span.first())];
    }

    @Override
    public String toString() {
        return "TextIdSource[" + source.name() + "]";
    }
}
