package io.snowmint.client;

/**
 * A part of one range of an answer: ids that increase by one step each, or indexes of texts.
 *
 * @param texts the texts of an answer, if its ids have a text form; else null
 * @param until when the ids become too old to return
 */
record Span(long first, long step, long count, String[] texts, Moment until) {
    static Span numbers(long first, long step, long count) {
        return new Span(first, step, count, null, Moment.FOREVER);
    }

    static Span texts(String[] texts) {
        return new Span(0, 1, texts.length, texts, Moment.FOREVER);
    }

    /** Returns {@code count} ids from an index on. */
    Span part(long index, long count) {
        return new Span(first + index * step, step, count, texts, until);
    }

    Span until(Moment moment) {
        return new Span(first, step, count, texts, moment);
    }
}
