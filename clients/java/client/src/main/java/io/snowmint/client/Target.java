package io.snowmint.client;

import java.util.concurrent.TimeUnit;

/**
 * Decides how many ids to keep in memory: the use in half of the maximum age. It grows immediately
 * and shrinks by half at most, so that a burst is served from memory and an idle program soon keeps
 * nothing.
 */
final class Target {
    /** Maximum number of ids in one request, the same as the server's. */
    static final int MAX_REQUEST = 1_000_000;

    /** The target before the use is known. */
    private static final long FIRST = 16;

    /** The use that the buffer covers at most. */
    private static final long LONGEST_HORIZON = TimeUnit.SECONDS.toNanos(1);

    /** Minimum time to measure the use by: a shorter one says little about the rate. */
    private static final long SHORTEST_USE = TimeUnit.MILLISECONDS.toNanos(1);

    private final long min;
    private final long max;
    private final long horizon;
    private long size;

    /** Maximum count of one request. It shrinks when no server returns that many. */
    private long most = MAX_REQUEST;

    /** Whether ids were requested before; if so when, and how many ids had been drawn. */
    private boolean isMeasuring;

    private long then;
    private long drawnThen;

    Target(long min, long max, long maxAge) {
        this.min = min;
        this.max = max;
        this.horizon = Math.min(maxAge / 2, LONGEST_HORIZON);
        this.size = within(FIRST);
    }

    private long within(long wanted) {
        return Math.max(min, Math.min(max, wanted));
    }

    /**
     * Adapts to the use.
     *
     * @param now monotonic time in ns
     * @param drawn number of ids drawn so far
     * @param ranDry whether callers wait
     */
    void adapt(long now, long drawn, boolean ranDry) {
        if (isMeasuring) {
            long since = Math.max(now - then, SHORTEST_USE);
            long used = drawn - drawnThen;
            long wanted = (long) ((double) used * horizon / since);
            // If nothing was drawn, callers wait because servers fail.
            if (ranDry && used > 0 && since < horizon) {
                wanted = Math.max(wanted, 2 * size);
            }
            size = within(Math.max(wanted, size / 2));
        }
        isMeasuring = true;
        then = now;
        drawnThen = drawn;
    }

    long size() {
        return size;
    }

    /** Returns the number of ids below which the buffer is refilled. */
    long low() {
        return size / 2;
    }

    /** Returns the number of ids to request: those that callers wait for, and what is missing. */
    long request(long wanted, long left) {
        return Math.max(1, Math.min(most, wanted + Math.max(0, size - left)));
    }

    /** Records that a server returned as many ids as requested. */
    void fitted() {
        most = Math.min(MAX_REQUEST, most * 2);
    }

    /** Records that no server returns this many ids. */
    void tooMany(long requested) {
        most = Math.max(1, requested / 4);
    }
}
