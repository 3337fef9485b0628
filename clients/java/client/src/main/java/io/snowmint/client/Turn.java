package io.snowmint.client;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * The span from which callers draw at present. Callers move its cursor with an atomic addition, so
 * each index goes to one of them. An index beyond the span means that it is used up.
 */
final class Turn {
    /** An index beyond each span. Indexes grow from it without overflow. */
    private static final long DRAWN_OUT = 1L << 62;

    private static final VarHandle CURSOR;

    static {
        try {
            CURSOR = MethodHandles.lookup().findVarHandle(Turn.class, "cursor", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    final Span span;
    final long first;
    final long step;
    final long count;
    final Moment until;

    /** The index whose draw reports that few ids are left. */
    final long mark;

    @SuppressWarnings("unused") // by CURSOR
    private volatile long cursor;

    Turn(Span span, long mark) {
        this.span = span;
        this.first = span.first();
        this.step = span.step();
        this.count = span.count();
        this.until = span.until();
        this.mark = mark;
    }

    /** Takes as many indexes and returns the first. */
    long take(long many) {
        return (long) CURSOR.getAndAdd(this, many);
    }

    /** Returns whether the ids may still be returned. Without a maximum age it reads no clock. */
    boolean isYoung(Clock clock) {
        return until == Moment.FOREVER || !until.isOver(clock);
    }

    /** Makes the remaining ids impossible to draw, and returns their number. */
    long end() {
        return leftFrom((long) CURSOR.getAndSet(this, DRAWN_OUT));
    }

    long left() {
        return leftFrom(cursor);
    }

    private long leftFrom(long index) {
        return Math.max(0, count - index);
    }
}
