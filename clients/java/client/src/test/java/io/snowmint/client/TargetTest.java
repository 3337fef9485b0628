package io.snowmint.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.util.concurrent.TimeUnit;

class TargetTest {
    private static final long MS = TimeUnit.MILLISECONDS.toNanos(1);
    private static final long SECOND = TimeUnit.SECONDS.toNanos(1);

    private static Target upTo100000(long maxAge) {
        return new Target(0, 100_000, maxAge);
    }

    /** Adapts to a steady rate: each time, half of the target was used. */
    private static void steady(Target target, long perSecond, int requests) {
        long now = 0;
        long drawn = 0;
        for (int i = 0; i < requests; i++) {
            target.adapt(now, drawn, false);
            long used = Math.max(1, target.size() / 2);
            now += used * SECOND / perSecond;
            drawn += used;
        }
    }

    @ParameterizedTest
    @CsvSource({
        "2000, 1000, 1000",
        "2000, 100, 100",
        "500, 60000, 500",
        "10, 1000, 5",
        "1000000000, 9000000000000, 100000"
    })
    void steadyUseIsKeptForHalfTheAge(long perSecond, long maxAgeMs, long size) {
        Target target = upTo100000(maxAgeMs * MS);
        steady(target, perSecond, 50);
        assertEquals(size, target.size(), 1);
    }

    @Test
    void rareUseKeepsNothing() {
        Target target = upTo100000(SECOND);
        for (long minute = 0; minute < 10; minute++) {
            target.adapt(minute * 60 * SECOND, minute, true);
        }
        assertEquals(1, target.request(1, 0));
        assertEquals(0, target.low());
    }

    @Test
    void aBufferThatRunsDryGrows() {
        Target target = upTo100000(SECOND);
        long[] drawn = {0, 16, 48, 112};
        for (int i = 0; i < drawn.length; i++) {
            target.adapt(400 * MS * i, drawn[i], true);
        }
        assertEquals(128, target.size());
        target.adapt(1201 * MS, 112, true);
        assertEquals(64, target.size(), "servers that fail must not make it grow");
    }

    @Test
    void withoutABufferOnlyWhatIsWantedIsRequested() {
        Target target = new Target(0, 0, SECOND);
        steady(target, 1000, 3);
        assertEquals(1, target.request(1, 0));
        assertEquals(500, target.request(500, 0));
        assertEquals(0, target.low());
    }

    @Test
    void theBoundsHold() {
        Target target = new Target(50, 60, Long.MAX_VALUE);
        assertEquals(50, target.size());
        steady(target, 1_000_000, 10);
        assertEquals(60, target.size());
        target.adapt(3600 * SECOND, 1_000_000, false);
        target.adapt(7200 * SECOND, 1_000_000, false);
        assertEquals(50, target.size());
    }

    @Test
    void aSlowLayoutIsAskedForFewer() {
        Target target = upTo100000(SECOND);
        long many = Long.MAX_VALUE / 2;
        assertEquals(1_000_000, target.request(many, 0));
        target.tooMany(1_000_000);
        target.tooMany(250_000);
        assertEquals(62_500, target.request(many, 0));
        target.fitted();
        assertEquals(125_000, target.request(many, 0));
        target.tooMany(1);
        assertEquals(1, target.request(many, 0));
    }
}
