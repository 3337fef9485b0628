package io.snowmint.client;

import java.net.URI;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Requests ids from several servers: from one after the other, or from a second one while the first
 * is slow. Each answer is used once; if nobody awaits it any more, its ids are lost.
 */
final class Fetcher {
    /**
     * The timeout of one request to one server; shorter if the caller's timeout is, so that there
     * is time for another server.
     */
    private static final Duration LONGEST_ATTEMPT = Duration.ofSeconds(2);

    final AtomicLong requests = new AtomicLong();
    final AtomicLong hedged = new AtomicLong();
    final AtomicLong failed = new AtomicLong();

    private final List<URI> servers;
    private final Transport transport;
    private final Token token;
    private final ServerChoice choice;
    private final StoreCheck storeCheck;
    private final Workers workers;
    private final Duration timeout;
    private final long hedgeAfter;

    Fetcher(
            List<URI> servers,
            Transport transport,
            Token token,
            ServerChoice choice,
            StoreCheck storeCheck,
            Workers workers,
            Duration timeout,
            Duration hedgeAfter) {
        this.servers = List.copyOf(servers);
        this.transport = transport;
        this.token = token;
        this.choice = choice;
        this.storeCheck = storeCheck;
        this.workers = workers;
        this.timeout = timeout;
        this.hedgeAfter = Texts.nanos(hedgeAfter);
    }

    List<URI> servers() {
        return servers;
    }

    Transport transport() {
        return transport;
    }

    Token token() {
        return token;
    }

    ServerChoice choice() {
        return choice;
    }

    StoreCheck storeCheck() {
        return storeCheck;
    }

    Workers workers() {
        return workers;
    }

    Duration timeout() {
        return timeout;
    }

    /** Returns the time after which a request is hedged, in ns. */
    long hedgeAfter() {
        return hedgeAfter;
    }

    /** Returns the timeout of one request to one server, in ns. */
    long attemptTimeout() {
        return Math.min(LONGEST_ATTEMPT.toNanos(), timeout.toNanos() / 2);
    }

    Optional<String> store() {
        return storeCheck.store();
    }

    ClientStats stats(long buffered) {
        return new ClientStats(requests.get(), hedged.get(), failed.get(), buffered);
    }

    void close() {
        transport.close();
    }

    /**
     * Requests ids until a server returns them, a server rejects the request, or the timeout
     * passes.
     */
    Fetched fetch(Namespace namespace, long count) throws InterruptedException {
        // The first time it takes a while, which is not the server's.
        if (!transport.open()) {
            return Fetched.nothing();
        }
        long deadline = Clock.SYSTEM.nanos() + timeout.toNanos();
        for (int round = 0; ; round++) {
            Fetched fetched = new Round(this, namespace, count, deadline).run();
            if (fetched.result() != Fetched.Result.NOTHING) {
                return fetched;
            }
            long now = Clock.SYSTEM.nanos();
            long closed = choice.closedFor(namespace.health, now);
            if (now < deadline && closed > deadline - now) {
                return Fetched.without(Fetched.Result.POSTPONED, closed(namespace, closed));
            }
            long pause = choice.pause(namespace.health, round, now);
            TimeUnit.NANOSECONDS.sleep(Math.min(pause, deadline - now));
            if (pause >= deadline - now) {
                return Fetched.without(Fetched.Result.LATE, late(namespace));
            }
        }
    }

    private Failure closed(Namespace namespace, long closed) {
        Failure last = namespace.lastFailure();
        if (last == null || last.after() == null) {
            last = Failure.unavailable(first(), "server asked to retry later (Retry-After)");
        }
        return last.withAfter(Duration.ofNanos(closed));
    }

    private Failure late(Namespace namespace) {
        Failure last = namespace.lastFailure();
        return last == null
                ? Failure.unavailable(first(), "no answer within " + Texts.duration(timeout))
                : last;
    }

    private String first() {
        return servers.get(0).toString();
    }
}
