package io.snowmint.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.concurrent.TimeUnit;

class TargetTest {
    private static final long MS = TimeUnit.MILLISECONDS.toNanos(1);
    private static final long SECOND = TimeUnit.SECONDS.toNanos(1);

    private static Target target(long maxAge) {
        return new Target(0, 1_000_000, maxAge, Target.MAX_REQUEST);
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
        "1000000000, 9000000000000, 1000000"
    })
    void steadyUseIsKeptForHalfTheAge(long perSecond, long maxAgeMs, long size) {
        Target target = target(maxAgeMs * MS);
        steady(target, perSecond, 50);
        assertEquals(size, target.size(), 1);
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 1000, 9_000_000_000_000L})
    void aBurstIsNotTakenForARate(long maxAgeMs) {
        Target target = target(maxAgeMs * MS);
        target.adapt(0, 0, true);
        target.adapt(10_000, 100, true);
        assertEquals(1600, target.size());
    }

    @Test
    void afterARestOnlyTheUseCounts() {
        Target target = target(SECOND);
        target.adapt(0, 0, true);
        target.adapt(MS, 1_000_000, true);
        target.adapt(500 * MS, 1_000_000, false);
        assertEquals(500_000, target.size());
        target.adapt(1000 * MS, 1_000_030, true);
        assertEquals(30, target.size());
        assertEquals(31, target.request(1, 0));
    }

    @Test
    void noMoreTextsAreKeptThanOneAnswerHas() {
        Target target = new Target(0, 1_000_000, Long.MAX_VALUE, Target.MAX_TEXTS);
        steady(target, 1_000_000_000, 50);
        assertEquals(100_000, target.size());
        assertEquals(100_000, target.request(500_000, 0));
        target.fitted();
        assertEquals(100_000, target.request(500_000, 0));
        target = new Target(500_000, 500_000, SECOND, Target.MAX_TEXTS);
        assertEquals(100_000, target.size());
    }

    @Test
    void rareUseKeepsNothing() {
        Target target = target(SECOND);
        for (long minute = 0; minute < 10; minute++) {
            target.adapt(minute * 60 * SECOND, minute, true);
        }
        assertEquals(1, target.request(1, 0));
        assertEquals(0, target.low());
    }

    @Test
    void aBufferThatRunsDryGrows() {
        Target target = target(SECOND);
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
        Target target = new Target(0, 0, SECOND, Target.MAX_REQUEST);
        steady(target, 1000, 3);
        assertEquals(1, target.request(1, 0));
        assertEquals(500, target.request(500, 0));
        assertEquals(0, target.low());
    }

    @Test
    void theBoundsHold() {
        Target target = new Target(50, 60, Long.MAX_VALUE, Target.MAX_REQUEST);
        assertEquals(50, target.size());
        steady(target, 1_000_000, 10);
        assertEquals(60, target.size());
        target.adapt(3600 * SECOND, 1_000_000, false);
        target.adapt(7200 * SECOND, 1_000_000, false);
        assertEquals(50, target.size());
    }

    @Test
    void aSlowLayoutIsAskedForFewer() {
        Target target = target(SECOND);
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
