package io.snowmint.client;

import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;

/** The numbers of a source. */
final class NumberSource extends SourceHandle implements IdSource {
    NumberSource(Source source) {
        super(source);
    }

    @Override
    public long next() {
        long id = source.drawOne();
        return id != Buffer.NONE ? id : source.take(1).get(0).first();
    }

    @Override
    public long[] next(int count) {
        List<Span> spans = source.takeChecked(count);
        long[] ids = new long[count];
        int at = 0;
        for (Span span : spans) {
            long id = span.first();
            for (long left = span.count(); left > 0; left--) {
                ids[at++] = id;
                id += span.step();
            }
        }
        return ids;
    }

    @Override
    public OptionalLong tryNext() {
        Optional<Span> drawn = source.tryTake();
        return drawn.isPresent() ? OptionalLong.of(drawn.get().first()) : OptionalLong.empty();
    }

    @Override
    public String toString() {
        return "IdSource[" + source.name() + "]";
    }
}
