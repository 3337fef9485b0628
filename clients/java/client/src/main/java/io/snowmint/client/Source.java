package io.snowmint.client;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The ids of one namespace: those in memory, the callers that wait for more, and the thread that
 * requests them. It runs only while there is something to request, and sends one request at a time.
 */
final class Source {
    /** The time after a final error in which ids are requested only for waiting callers, in ns. */
    private static final long REST_AFTER_REJECTION = TimeUnit.SECONDS.toNanos(1);

    private final Namespace namespace;
    private final Fetcher fetcher;
    private final Executor workers;

    /** Maximum age of an id in ns. */
    private final long maxAge;

    private final boolean keeps;
    private final Clock clock;
    private final Buffer buffer;

    private final ReentrantLock lock = new ReentrantLock();
    private final Target target;

    /** In the order of their calls. */
    private final Deque<Waiter> waiters = new ArrayDeque<>();

    /** Whether a call that does not wait found no id. */
    private boolean wasEmpty;

    /**
     * Counts how often the ids were discarded. Answers to requests of an earlier generation are
     * dropped.
     */
    private long generation;

    /**
     * The generation of the last call that found no id. Ids are requested ahead of calls only in
     * this generation.
     */
    private long drawnIn = -1;

    /** Until then, the buffer is not refilled without a waiting caller. */
    private long restsUntil;

    /** The thread that fills the buffer, and whether one was started or still has work. */
    private Thread filler;

    private boolean isFilling;

    /** Why no id is ever returned: the client is closed, or the name is invalid. */
    private CallError stopped;

    Source(
            Namespace namespace,
            Fetcher fetcher,
            Executor workers,
            long maxAge,
            boolean keeps,
            Target target,
            Clock clock) {
        this.namespace = namespace;
        this.fetcher = fetcher;
        this.workers = workers;
        this.maxAge = maxAge;
        this.keeps = keeps;
        this.target = target;
        this.clock = clock;
        this.buffer = new Buffer(clock, this::refill);
    }

    String name() {
        return namespace.name;
    }

    /** Draws an id from memory; {@link Buffer#NONE} if it has none. */
    long drawOne() {
        return buffer.drawOne();
    }

    /** Returns as many ids as {@link #take}, if a caller may ask for so many. */
    List<Span> takeChecked(int count) {
        if (count < 1 || count > Target.MAX_REQUEST) {
            throw CallError.invalidCount(name(), count).exception();
        }
        return take(count);
    }

    /** Returns as many ids, and waits for those that are not in memory. */
    List<Span> take(long count) {
        List<Span> got = new ArrayList<>();
        long missing = count;
        // Ids that become too old during the call are replaced by the filler, if it has to wait for
        // others.
        while (missing > 0) {
            Span drawn = buffer.draw(missing);
            if (drawn != null) {
                got.add(drawn);
                missing -= drawn.count();
                continue;
            }
            List<Span> awaited = await(got, missing);
            if (awaited != null) {
                return awaited;
            }
        }
        return got;
    }

    /** Waits for ids until the timeout. Returns null if there are ids in memory after all. */
    private List<Span> await(List<Span> got, long missing) {
        lock.lock();
        try {
            if (stopped != null) {
                throw stopped.exception();
            }
            if (buffer.advance()) {
                return null;
            }
            if (Thread.currentThread().isInterrupted()) {
                throw CallError.interrupted(name(), null).exception();
            }
            startFilling();
            long deadline = clock.nanos() + fetcher.timeout().toNanos();
            Waiter waiter = new Waiter(got, missing, deadline, lock.newCondition());
            waiters.add(waiter);
            drawnIn = generation;
            await(waiter);
            return waiter.result();
        } finally {
            lock.unlock();
        }
    }

    private void await(Waiter waiter) {
        while (!waiter.isAnswered()) {
            long left = waiter.deadline - clock.nanos();
            if (left <= 0) {
                waiters.remove(waiter);
                throw timedOut(namespace.lastFailure()).exception();
            }
            try {
                waiter.answered.awaitNanos(left);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                if (!waiter.isAnswered()) {
                    waiters.remove(waiter);
                    throw CallError.interrupted(name(), e).exception();
                }
            }
        }
    }

    private CallError timedOut(Failure last) {
        return CallError.timedOut(name(), fetcher.timeout(), last);
    }

    /** Returns one id from memory, and never waits. It requests ids if there are none. */
    Optional<Span> tryTake() {
        while (true) {
            Span drawn = buffer.draw(1);
            if (drawn != null) {
                return Optional.of(drawn);
            }
            if (!advanceOrRequest()) {
                return Optional.empty();
            }
        }
    }

    private boolean advanceOrRequest() {
        lock.lock();
        try {
            if (stopped != null) {
                throw stopped.exception();
            }
            if (buffer.advance()) {
                return true;
            }
            if (keeps) {
                startFilling();
                wasEmpty = true;
                drawnIn = generation;
            }
            return false;
        } finally {
            lock.unlock();
        }
    }

    /** Returns the number of calls in the queue; for tests. */
    int waiting() {
        lock.lock();
        try {
            return waiters.size();
        } finally {
            lock.unlock();
        }
    }

    /** Returns whether the filler runs; for tests. */
    boolean isFilling() {
        lock.lock();
        try {
            return isFilling;
        } finally {
            lock.unlock();
        }
    }

    long buffered() {
        lock.lock();
        try {
            return buffer.level().left();
        } finally {
            lock.unlock();
        }
    }

    void discard() {
        lock.lock();
        try {
            generation++;
            wasEmpty = false;
            waiters.forEach(Waiter::dropAll);
            buffer.clear();
            // A call that waits needs the retries; deliver() drops the answer.
            if (waiters.isEmpty()) {
                endFetch();
            }
        } finally {
            lock.unlock();
        }
    }

    /** Drops all ids. Calls that wait and all later calls get the error. */
    void stop(CallError why) {
        lock.lock();
        try {
            if (stopped == null) {
                stopped = why;
            }
            buffer.clear();
            failWaiters(stopped);
            endFetch();
        } finally {
            lock.unlock();
        }
    }

    /** Ends a request on its way and its retries: nobody awaits their ids any more. */
    private void endFetch() {
        if (filler != null) {
            filler.interrupt();
        }
    }

    private void failWaiters(CallError why) {
        waiters.forEach(waiter -> waiter.fail(why));
        waiters.clear();
    }

    /** Requests ids because few are left. The draw that found out does not fail. */
    private void refill() {
        lock.lock();
        try {
            startFilling();
        } catch (SnowmintException e) {
            // The call that finds no id reports it.
        } finally {
            lock.unlock();
        }
    }

    /**
     * Starts the filler unless it runs. It looks for work again before it ends, so no wake-up is
     * lost.
     */
    private void startFilling() {
        if (isFilling || stopped != null) {
            return;
        }
        try {
            workers.execute(this::fill);
            isFilling = true;
        } catch (RejectedExecutionException | OutOfMemoryError e) {
            throw CallError.noThread(name(), e).exception();
        }
    }

    /** Fills the buffer and serves the waiting calls, until nothing is to be requested. */
    private void fill() {
        begin();
        try {
            Request request = nextRequest();
            while (request != null && settle(request, fetch(request))) {
                request = nextRequest();
            }
        } catch (RuntimeException | Error e) {
            giveUp(e);
            throw e;
        } finally {
            end();
        }
    }

    private void begin() {
        lock.lock();
        try {
            filler = Thread.currentThread();
        } finally {
            lock.unlock();
        }
    }

    private Fetched fetch(Request request) {
        try {
            return fetcher.fetch(namespace, request.count());
        } catch (InterruptedException e) {
            // The ids were discarded, or the client was closed.
            return Fetched.nothing();
        }
    }

    private void giveUp(Throwable e) {
        lock.lock();
        try {
            isFilling = false;
            failWaiters(CallError.internal(name(), e));
        } finally {
            lock.unlock();
        }
    }

    private void end() {
        lock.lock();
        try {
            // Another thread may have begun since this one found nothing to request.
            if (filler == Thread.currentThread()) {
                filler = null;
            }
        } finally {
            lock.unlock();
            // The thread may have other work later.
            Thread.interrupted();
        }
    }

    /** Returns what to request now. Without anything, it ends the filler and returns null. */
    private Request nextRequest() {
        lock.lock();
        try {
            Moment now = clock.now();
            serveFromBuffer(now);
            long wanted = wanted(now);
            Buffer.Level level = buffer.level();
            boolean isEmpty = level.left() == 0 && wasEmpty;
            wasEmpty &= level.left() > 0;
            boolean isLow = level.left() < buffer.low() && drawnIn == generation;
            boolean rests = now.nanos() < restsUntil;
            if (stopped != null || wanted == 0 && (rests || !isLow && !isEmpty)) {
                isFilling = false;
                return null;
            }
            target.adapt(now.nanos(), level.drawn(), wanted > 0);
            buffer.setLow(target.low());
            return new Request(target.request(wanted, level.left()), generation);
        } finally {
            lock.unlock();
        }
    }

    /** Settles the outcome of a request. Returns false if the filler has to end. */
    private boolean settle(Request request, Fetched fetched) {
        lock.lock();
        try {
            switch (fetched.result()) {
                case FILLED -> {
                    target.fitted();
                    restsUntil = 0;
                    namespace.forgetFailure();
                    deliver(request, fetched);
                }
                case TOO_MANY -> target.tooMany(request.count());
                case REJECTED -> {
                    restsUntil = clock.nanos() + REST_AFTER_REJECTION;
                    failWaiters(fetched.failure().error(name()));
                }
                case POSTPONED -> {
                    // Calls that came during the request have more time left.
                    failBefore(fetched.failure().after().toNanos(), fetched.failure());
                    // Without a call, the next one starts it again.
                    isFilling = !waiters.isEmpty();
                }
                case LATE -> {
                    namespace.noteFailure(fetched.failure());
                    failLate(fetched.failure());
                    isFilling = !waiters.isEmpty();
                }
                case NOTHING -> {
                    // What was requested since decides.
                }
            }
            return isFilling;
        } finally {
            lock.unlock();
        }
    }

    /** Returns an error to each call whose deadline has passed. */
    private void failLate(Failure why) {
        long now = clock.nanos();
        while (!waiters.isEmpty() && waiters.peek().deadline <= now) {
            waiters.poll().fail(timedOut(why));
        }
    }

    /** Returns an error to each call whose deadline is before a retry after so many ns. */
    private void failBefore(long retryAfter, Failure why) {
        long retry = clock.nanos() + retryAfter;
        while (!waiters.isEmpty() && waiters.peek().deadline < retry) {
            waiters.poll().fail(why.error(name()));
        }
    }

    /**
     * Hands ids to the waiting calls, and the rest to the buffer. If the ids were discarded since
     * their request, they are dropped.
     */
    private void deliver(Request request, Fetched fetched) {
        if (request.generation() != generation || stopped != null) {
            return;
        }
        Moment until = fetched.sent().after(maxAge);
        Deque<Span> spans = new ArrayDeque<>();
        fetched.spans().forEach(span -> spans.add(span.until(until)));
        serve(spans, clock.now());
        if (keeps) {
            buffer.add(spans);
        }
    }

    /** Moves ids to the waiting calls. */
    private void serve(Deque<Span> spans, Moment now) {
        while (!waiters.isEmpty()) {
            Waiter waiter = waiters.peek();
            // Only ids of earlier answers: this one is used however long it took, because the call
            // had to wait for it.
            waiter.dropOld(now);
            waiter.take(spans);
            if (!waiter.isAnswered()) {
                return;
            }
            waiters.poll();
        }
    }

    /** Serves calls that found the buffer empty just before it was filled. */
    private void serveFromBuffer(Moment now) {
        Deque<Span> spans = new ArrayDeque<>();
        long missing = wanted(now);
        while (missing > 0) {
            Span drawn = buffer.draw(missing);
            if (drawn != null) {
                missing -= drawn.count();
                spans.add(drawn);
            } else if (!buffer.advance()) {
                break;
            }
        }
        serve(spans, now);
    }

    /** Returns how many ids the calls wait for. */
    private long wanted(Moment now) {
        waiters.forEach(waiter -> waiter.dropOld(now));
        return waiters.stream().mapToLong(Waiter::missing).sum();
    }

    private record Request(long count, long generation) {}
}
