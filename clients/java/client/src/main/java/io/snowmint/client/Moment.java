package io.snowmint.client;

import java.util.concurrent.TimeUnit;

/** A reading of both clocks. */
record Moment(long nanos, long millis) {
    /** When ids without a maximum age become too old. */
    static final Moment FOREVER = new Moment(Long.MAX_VALUE, Long.MAX_VALUE);

    /** Returns the moment at which ids of this moment reach an age in ns. */
    Moment after(long age) {
        if (age == Long.MAX_VALUE) {
            return FOREVER;
        }
        return new Moment(sum(nanos, age), sum(millis, TimeUnit.NANOSECONDS.toMillis(age)));
    }

    private static long sum(long at, long age) {
        return at > Long.MAX_VALUE - age ? Long.MAX_VALUE : at + age;
    }

    /** Returns whether one of the clocks has reached this moment. */
    boolean isOver(Clock clock) {
        return nanos <= clock.nanos() || millis <= clock.millis();
    }

    boolean isOver(Moment now) {
        return nanos <= now.nanos || millis <= now.millis;
    }
}
