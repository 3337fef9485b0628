package io.snowmint.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicInteger;

class BufferTest {
    private final TestClock clock = new TestClock();
    private final AtomicInteger lows = new AtomicInteger();
    private final Buffer buffer = new Buffer(clock, lows::incrementAndGet);

    private static Span numbers(long first, long count, long step) {
        return Span.numbers(first, step, count);
    }

    /** Draws, {@code count} ids at a time, until the buffer is empty. */
    private List<Long> drawAll(long count) {
        List<Long> ids = new ArrayList<>();
        while (true) {
            Span drawn = buffer.draw(count);
            if (drawn != null) {
                for (long i = 0; i < drawn.count(); i++) {
                    ids.add(drawn.first() + i * drawn.step());
                }
            } else if (!buffer.advance()) {
                return ids;
            }
        }
    }

    /** Goal: each id comes out once, in the order of the ranges, whatever the size of the draws. */
    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 100})
    void idsComeOnceAndInOrder(long count) {
        buffer.add(List.of(numbers(10, 3, 1), numbers(20, 4, 5)));
        assertEquals(List.of(10L, 11L, 12L, 20L, 25L, 30L, 35L), drawAll(count));
        buffer.add(List.of(numbers(50, 1, 0)));
        assertEquals(List.of(50L), drawAll(count));
        assertEquals(new Buffer.Level(0, 8), buffer.level());
    }

    /** Goal: the last ids of 63 bits come out, and nothing wraps behind them. */
    @Test
    void theLargestIds() {
        buffer.add(List.of(numbers(Long.MAX_VALUE - 2, 3, 1)));
        buffer.advance();
        assertEquals(Long.MAX_VALUE - 2, buffer.drawOne());
        assertEquals(List.of(Long.MAX_VALUE - 1, Long.MAX_VALUE), drawAll(1));
        assertEquals(Buffer.NONE, buffer.drawOne());
    }

    /**
     * Goal: ids are dropped at their age by either clock: after a suspension, which only the wall
     * clock sees, and after the wall clock was set back.
     */
    @ParameterizedTest
    @CsvSource({"PT1S, PT1S", "PT0.001S, PT1S", "PT1S, PT-1H"})
    void oldIdsAreDropped(Duration mono, Duration wall) {
        Moment sent = clock.now();
        Duration second = Duration.ofSeconds(1);
        buffer.add(
                List.of(
                        numbers(1, 2, 1).until(sent.after(second.toNanos())),
                        numbers(20, 2, 1).until(sent.after(second.multipliedBy(3).toNanos()))));
        buffer.advance();
        clock.advance(second.minusMillis(1), second.minusMillis(1));
        assertEquals(1, buffer.drawOne());
        clock.advance(mono, wall);
        assertEquals(Buffer.NONE, buffer.drawOne());
        assertNull(buffer.draw(1));
        assertEquals(new Buffer.Level(2, 1), buffer.level());
        assertEquals(List.of(20L, 21L), drawAll(1));
    }

    @Test
    void anAgeNearTheLimitDoesNotOverflow() {
        Moment late = new Moment(5, 6).after(Long.MAX_VALUE - 1);
        assertEquals(Long.MAX_VALUE, late.nanos());
        assertFalse(late.isOver(new Moment(Long.MAX_VALUE - 1, 6)));
    }

    /** Goal: after clear, nothing of before comes out, and the counts are right. */
    @Test
    void clearDropsEveryId() {
        buffer.add(List.of(numbers(1, 5, 1), numbers(10, 5, 1)));
        buffer.advance();
        buffer.draw(2);
        buffer.clear();
        assertEquals(List.of(), drawAll(1));
        assertEquals(new Buffer.Level(0, 2), buffer.level());
        buffer.add(List.of(numbers(20, 1, 1)));
        assertEquals(List.of(20L), drawAll(1));
    }

    /**
     * Goal: exactly one draw of a turn reports that few ids are left: the one that takes the buffer
     * below the mark.
     */
    @ParameterizedTest
    @ValueSource(longs = {1, 3, 7})
    void theLowMark(long count) {
        buffer.setLow(10);
        buffer.add(List.of(numbers(0, 15, 1), numbers(15, 5, 1)));
        buffer.advance();
        long left = 20;
        while (lows.get() == 0) {
            left -= buffer.draw(count).count();
        }
        assertTrue(left < 10 && left >= 10 - count, "low with " + left + " left");
        while (buffer.draw(count) != null) {
            assertEquals(1, lows.get());
        }
    }

    @Test
    void aDrawOfOneReportsTheLowMarkToo() {
        buffer.setLow(2);
        buffer.add(List.of(numbers(0, 3, 1)));
        buffer.advance();
        buffer.drawOne();
        assertEquals(0, lows.get());
        buffer.drawOne();
        assertEquals(1, lows.get());
    }

    /**
     * Goal: threads that draw at the same time never get the same id, within a turn and while turns
     * begin and end.
     */
    @Test
    void concurrentDraws() throws Exception {
        int threads = 4;
        int sum = 0;
        // Many from one turn, because draws collide rarely, and many short turns.
        for (int count : new int[] {4_000_000, 1, 2, 7}) {
            for (int i = 0; i < Math.min(2000, 4_000_000 / count); i++) {
                buffer.add(List.of(numbers(sum, count, 1)));
                sum += count;
            }
        }
        CountDownLatch begin = new CountDownLatch(threads);
        List<FutureTask<BitSet>> draws = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            FutureTask<BitSet> draw = new FutureTask<>(() -> drawWith(begin));
            draws.add(draw);
            new Thread(draw).start();
        }
        BitSet all = new BitSet();
        for (FutureTask<BitSet> draw : draws) {
            BitSet drawn = draw.get();
            assertFalse(all.intersects(drawn), "two threads got the same id");
            all.or(drawn);
        }
        assertEquals(sum, all.cardinality());
    }

    private BitSet drawWith(CountDownLatch others) throws InterruptedException {
        others.countDown();
        others.await();
        BitSet drawn = new BitSet();
        while (true) {
            long id = buffer.drawOne();
            if (id != Buffer.NONE) {
                assertFalse(drawn.get((int) id), "a thread got an id twice");
                drawn.set((int) id);
                continue;
            }
            synchronized (this) {
                if (!buffer.advance()) {
                    return drawn;
                }
            }
        }
    }

    @Test
    void textsKeepTheirOrder() {
        String[] texts = {"A", "B", "C"};
        buffer.add(List.of(Span.texts(texts)));
        buffer.advance();
        assertEquals("A", texts[(int) buffer.draw(1).first()]);
        Span rest = buffer.draw(5);
        assertEquals(1, rest.first());
        assertEquals(2, rest.count());
        assertArrayEquals(texts, rest.texts());
    }
}
