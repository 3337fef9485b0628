package io.snowmint.client;

import java.time.Duration;

/** A clock that is set by hand. */
final class TestClock implements Clock {
    private long nanos = 1_000_000_000;
    private long millis = 1_800_000_000_000L;

    @Override
    public synchronized long nanos() {
        return nanos;
    }

    @Override
    public synchronized long millis() {
        return millis;
    }

    synchronized void advance(Duration mono, Duration wall) {
        nanos += mono.toNanos();
        millis += wall.toMillis();
    }
}
