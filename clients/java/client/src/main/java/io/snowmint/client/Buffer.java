package io.snowmint.client;

import java.util.ArrayDeque;

/**
 * Keeps ids in memory. Any number of threads draw without a lock; the other methods need the lock
 * of the source.
 */
final class Buffer {
    /** What {@link #drawOne} returns if there is no id. */
    static final long NONE = -1;

    private final Clock clock;
    private final Runnable onLow;
    private volatile Turn turn = new Turn(Span.numbers(0, 1, 0), 0);

    /** The spans after the current turn, and the number of their ids. */
    private final ArrayDeque<Span> stock = new ArrayDeque<>();

    private long inStock;

    /** Number of ids below which the buffer needs a refill. */
    private long low;

    /** Number of ids added so far, and of those dropped without a draw. */
    private long added;

    private long dropped;

    /**
     * Creates an empty buffer.
     *
     * @param onLow runs in each draw that takes the buffer below its low mark
     */
    Buffer(Clock clock, Runnable onLow) {
        this.clock = clock;
        this.onLow = onLow;
    }

    /** Draws the first id, a number or the index of a text. */
    long drawOne() {
        Turn current = turn;
        if (!current.isYoung(clock)) {
            return NONE;
        }
        long index = current.take(1);
        if (index >= current.count) {
            return NONE;
        }
        if (index == current.mark) {
            onLow.run();
        }
        return current.first + index * current.step;
    }

    /** Draws up to {@code count} ids of the current turn; null if it has none. */
    Span draw(long count) {
        Turn current = turn;
        if (!current.isYoung(clock)) {
            return null;
        }
        long index = current.take(count);
        if (index >= current.count) {
            return null;
        }
        long drawn = Math.min(count, current.count - index);
        if (index <= current.mark && current.mark < index + drawn) {
            onLow.run();
        }
        return current.span.part(index, drawn);
    }

    /**
     * Begins the next turn if the current one has no ids.
     *
     * @return whether there are ids now
     */
    boolean advance() {
        Turn current = turn;
        if (current.left() > 0 && current.isYoung(clock)) {
            return true;
        }
        dropped += current.end();
        dropOld(clock.now());
        Span next = stock.poll();
        if (next == null) {
            return false;
        }
        inStock -= next.count();
        turn = new Turn(next, Math.max(0, next.count() + inStock - low));
        return true;
    }

    /** Adds ids behind all others. */
    void add(Iterable<Span> spans) {
        for (Span span : spans) {
            stock.add(span);
            inStock += span.count();
            added += span.count();
        }
    }

    /** Drops every id. */
    void clear() {
        dropped += turn.end() + inStock;
        stock.clear();
        inStock = 0;
    }

    /** Returns the number of ids left, and of ids drawn so far. */
    Level level() {
        Moment now = clock.now();
        dropOld(now);
        Turn current = turn;
        long inTurn = current.left();
        long drawn = added - dropped - inStock - inTurn;
        return new Level(inStock + (current.until.isOver(now) ? 0 : inTurn), drawn);
    }

    long low() {
        return low;
    }

    /** Sets the low mark of the turns that begin later. */
    void setLow(long low) {
        this.low = low;
    }

    private void dropOld(Moment now) {
        while (!stock.isEmpty() && stock.peek().until().isOver(now)) {
            long count = stock.poll().count();
            inStock -= count;
            dropped += count;
        }
    }

    /** The number of ids left, and of ids drawn so far. */
    record Level(long left, long drawn) {}
}
