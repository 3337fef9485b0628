package io.snowmint.client;

/** What the handles of numbers and of texts have in common. */
abstract class SourceHandle {
    final Source source;

    SourceHandle(Source source) {
        this.source = source;
    }

    public final int buffered() {
        return Math.toIntExact(source.buffered());
    }

    public final void discardBuffered() {
        source.discard();
    }

    public final String namespace() {
        return source.name();
    }
}
