package io.snowmint.client;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Sends one request to each server at most, until one returns ids. One thread runs it. It also
 * watches the deadlines of the requests, so that nothing else needs a timer.
 */
final class Round {
    private static final long NEVER = Long.MAX_VALUE;

    private final Fetcher fetcher;
    private final Namespace namespace;
    private final long count;
    private final long deadline;

    /** Attempts that have ended. Those that end after the round are read by nobody. */
    private final BlockingQueue<Attempt> ended = new LinkedBlockingQueue<>();

    private final List<Attempt> waiting = new ArrayList<>();

    /**
     * Servers whose quota may have fewer ids left. They get the next request only if no other
     * server returns ids.
     */
    private final List<Spent> spent = new ArrayList<>();

    /** Whether fewer ids may be had. */
    private boolean isOverQuota;

    /** Number of servers whose certificate or store is another one. */
    private int distrusted;

    Round(Fetcher fetcher, Namespace namespace, long count, long deadline) {
        this.fetcher = fetcher;
        this.namespace = namespace;
        this.count = count;
        this.deadline = deadline;
    }

    Fetched run() throws InterruptedException {
        boolean hasEnded = false;
        try {
            Fetched fetched = ask();
            hasEnded = true;
            return fetched;
        } finally {
            abandon(hasEnded);
        }
    }

    private Fetched ask() throws InterruptedException {
        List<Integer> order = fetcher.choice().order(namespace.health, now());
        if (!order.isEmpty()) {
            fetcher.choice().requested();
        }
        Iterator<Integer> next = order.iterator();
        long hedgeAt = NEVER;
        boolean isNextDue = true;
        while (true) {
            if (isNextDue && next.hasNext()) {
                start(next.next());
                hedgeAt = next.hasNext() ? sum(now(), fetcher.hedgeAfter()) : NEVER;
            } else if (waiting.isEmpty()) {
                boolean isFewer = isOverQuota && count > 1;
                return isFewer ? Fetched.without(Fetched.Result.TOO_MANY, null) : Fetched.nothing();
            }
            isNextDue = false;
            Attempt attempt = await(hedgeAt);
            if (attempt != null) {
                Fetched fetched = settle(attempt);
                if (fetched.result() != Fetched.Result.NOTHING) {
                    return fetched;
                }
                isNextDue = now() < deadline;
            } else if (now() >= hedgeAt) {
                hedgeAt = NEVER;
                isNextDue = fetcher.choice().mayHedge();
                if (isNextDue) {
                    fetcher.hedged.incrementAndGet();
                }
            }
        }
    }

    private void start(int server) {
        Attempt attempt = new Attempt(fetcher, server, namespace, count, deadline);
        waiting.add(attempt);
        attempt.start(ended::add);
    }

    /** Returns an attempt that has ended, with an answer or at its deadline; null at a time. */
    private Attempt await(long until) throws InterruptedException {
        long at = until;
        for (Attempt attempt : waiting) {
            at = Math.min(at, attempt.deadline);
        }
        Attempt attempt = ended.poll(at - now(), TimeUnit.NANOSECONDS);
        if (attempt != null) {
            // If not, it was given up at its deadline.
            return waiting.contains(attempt) ? attempt : null;
        }
        for (Attempt late : waiting) {
            if (now() >= late.deadline) {
                return late;
            }
        }
        return null;
    }

    /** Takes what a server answered. The result is NOTHING if another server may return ids. */
    private Fetched settle(Attempt attempt) {
        waiting.remove(attempt);
        attempt.cancel();
        Attempt.Settled settled = attempt.settle();
        Failure failure = settled.failure();
        if (failure == null) {
            spent.forEach(it -> fail(it.server(), it.failure()));
            fetcher.choice().succeeded(namespace.health, attempt.server);
            return new Fetched(Fetched.Result.FILLED, settled.spans(), attempt.sent, null);
        }
        fetcher.failed.incrementAndGet();
        boolean isBeyond = failure.after() != null && failure.after().toNanos() > deadline - now();
        if (count > 1 && failure.kind() == ErrorKind.OVER_QUOTA && isBeyond) {
            spent.add(new Spent(attempt.server, failure));
        } else {
            fail(attempt.server, failure);
        }
        return refused(failure);
    }

    private Fetched refused(Failure failure) {
        switch (failure.retry()) {
            case NEVER:
                return Fetched.without(Fetched.Result.REJECTED, failure);
            case FEWER:
                if (count > 1) {
                    return Fetched.without(Fetched.Result.TOO_MANY, null);
                }
                break;
            case AFTER_REPAIR:
                // No retry within the caller's timeout will help.
                if (++distrusted == fetcher.servers().size()) {
                    return Fetched.without(Fetched.Result.REJECTED, failure);
                }
                break;
            default:
        }
        isOverQuota |= failure.kind() == ErrorKind.OVER_QUOTA;
        namespace.noteFailure(failure);
        return Fetched.nothing();
    }

    private void fail(int server, Failure failure) {
        // After the others, the server is healthy.
        if (failure.retry() == Retry.ELSEWHERE || failure.retry() == Retry.AFTER_REPAIR) {
            long after = failure.after() == null ? 0 : failure.after().toNanos();
            fetcher.choice().failed(namespace.health, server, failure.scope(), now(), after);
        }
    }

    /**
     * Gives up the servers that have not answered. Those that had enough time count as failed,
     * unless an interrupt ended the round.
     */
    private void abandon(boolean hasEnded) {
        for (Attempt attempt : waiting) {
            attempt.cancel();
            fetcher.failed.incrementAndGet();
            long waited = now() - attempt.sent.nanos();
            if (hasEnded && waited >= Math.min(fetcher.hedgeAfter(), fetcher.attemptTimeout())) {
                fetcher.choice().failed(namespace.health, attempt.server, Scope.SERVER, now(), 0);
            }
        }
    }

    private static long now() {
        return Clock.SYSTEM.nanos();
    }

    private static long sum(long at, long time) {
        return at > NEVER - time ? NEVER : at + time;
    }

    private record Spent(int server, Failure failure) {}
}
