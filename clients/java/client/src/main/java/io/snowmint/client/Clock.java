package io.snowmint.client;

/**
 * Two clocks. The monotonic one never goes back, but may stop while the machine is suspended. The
 * wall clock includes suspended time, but may be set back. An age is the larger of both.
 */
interface Clock {
    Clock SYSTEM =
            new Clock() {
                private static final long START = System.nanoTime();

                @Override
                public long nanos() {
                    return System.nanoTime() - START;
                }

                @Override
                public long millis() {
                    return System.currentTimeMillis();
                }
            };

    /** Returns the monotonic clock in ns. It begins near 0, so sums do not overflow. */
    long nanos();

    /** Returns the wall clock in ms. */
    long millis();

    /** Returns the current moment. */
    default Moment now() {
        return new Moment(nanos(), millis());
    }
}
