package io.snowmint.client;

import java.util.List;

/**
 * How a fetch ended.
 *
 * @param spans the ids, if the result is {@link Result#FILLED}
 * @param sent when the ids were requested; none is older
 * @param failure set for {@link Result#REJECTED}, {@link Result#LATE} and {@link Result#POSTPONED}
 */
record Fetched(Result result, List<Span> spans, Moment sent, Failure failure) {
    enum Result {
        /** With ids. */
        FILLED,
        /** No server returned ids in this round. */
        NOTHING,
        /** A server rejected the request. */
        REJECTED,
        /** No server returns this many ids at once. */
        TOO_MANY,
        /** The deadline has passed. */
        LATE,
        /** Every server asked to retry later than the deadline. */
        POSTPONED
    }

    static Fetched nothing() {
        return without(Result.NOTHING, null);
    }

    static Fetched without(Result result, Failure failure) {
        return new Fetched(result, List.of(), null, failure);
    }
}
