package io.snowmint.client;

import java.util.concurrent.TimeUnit;

/**
 * Decides how many ids to keep in memory: the use in half of the maximum age, the horizon. It grows
 * immediately, so that a burst is served from memory, but to 16 times the ids of the burst at most.
 * It shrinks by half at most until it has covered a whole horizon, so that the first call after a
 * rest requests only what it needs.
 */
final class Target {
    /**
     * Maximum number of ids in one request, the same as the server's. It is also that of ids in
     * memory.
     */
    static final int MAX_REQUEST = 1_000_000;

    /** The same for a namespace with a text form. */
    static final int MAX_TEXTS = 100_000;

    /** The target before the use is known. */
    private static final long FIRST = 16;

    /** The use that the buffer covers at most. */
    private static final long LONGEST_HORIZON = TimeUnit.SECONDS.toNanos(1);

    /**
     * The part of the horizon over which the use is measured at least: a shorter time says little
     * about the rate.
     */
    private static final int SHORTEST_PART = 16;

    private final long min;
    private final long max;
    private final long horizon;

    /** The server's maximum count of one request. */
    private final long limit;

    private long size;

    /** The present maximum. It shrinks when no server returns that many. */
    private long most;

    /** Whether ids were requested before; if so when, and how many ids had been drawn. */
    private boolean isMeasuring;

    private long then;
    private long drawnThen;

    Target(long min, long max, long maxAge, long limit) {
        this.min = Math.min(min, limit);
        this.max = Math.min(max, limit);
        this.limit = limit;
        this.most = limit;
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
            long since = Math.max(now - then, horizon / SHORTEST_PART);
            boolean isPart = since < horizon;
            long used = drawn - drawnThen;
            long wanted = (long) ((double) used * horizon / since);
            // If nothing was drawn, callers wait because servers fail.
            if (isPart && ranDry && used > 0) {
                wanted = Math.max(wanted, 2 * size);
            }
            size = within(isPart ? Math.max(wanted, size / 2) : wanted);
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
        most = Math.min(limit, most * 2);
    }

    /** Records that no server returns this many ids. */
    void tooMany(long requested) {
        most = Math.max(1, requested / 4);
    }
}
