package io.snowmint.client;

import java.util.Deque;
import java.util.List;
import java.util.concurrent.locks.Condition;

/** A call that waits for ids. The lock of the source guards it. */
final class Waiter {
    /** When it fails, on the monotonic clock. */
    final long deadline;

    /** Signalled when the answer is there. */
    final Condition answered;

    /** The ids so far, and the number of those that are missing. */
    private final List<Span> got;

    private long missing;

    /**
     * Whether ids that became too old while the call waited were dropped. Only once, because a call
     * whose answers take longer than the maximum age would never end.
     */
    private boolean isRenewed;

    private CallError error;

    Waiter(List<Span> got, long missing, long deadline, Condition answered) {
        this.got = got;
        this.missing = missing;
        this.deadline = deadline;
        this.answered = answered;
    }

    long missing() {
        return missing;
    }

    boolean isAnswered() {
        return error != null || missing == 0;
    }

    void fail(CallError why) {
        error = why;
        answered.signal();
    }

    /** Takes ids from the front of a queue, as many as are missing. */
    void take(Deque<Span> spans) {
        while (missing > 0 && !spans.isEmpty()) {
            Span part = spans.poll();
            if (part.count() > missing) {
                spans.addFirst(part.part(missing, part.count() - missing));
                part = part.part(0, missing);
            }
            missing -= part.count();
            got.add(part);
        }
        if (missing == 0) {
            answered.signal();
        }
    }

    /** Drops ids that are too old. */
    void dropOld(Moment now) {
        if (!isRenewed && got.removeIf(span -> drops(span, now))) {
            isRenewed = true;
        }
    }

    private boolean drops(Span span, Moment now) {
        boolean isOld = span.until().isOver(now);
        missing += isOld ? span.count() : 0;
        return isOld;
    }

    /** Drops all ids. */
    void dropAll() {
        got.forEach(span -> missing += span.count());
        got.clear();
    }

    /** Returns the ids, or throws why there are none. Call it if it is answered. */
    List<Span> result() {
        if (error != null) {
            throw error.exception();
        }
        return got;
    }
}
