package io.snowmint.client;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.random.RandomGenerator;

/**
 * Decides which server is tried next. Servers are tried in the order of the list; those that failed
 * come last for a while. Its monitor guards the health of each namespace too. Times are of the
 * monotonic clock, in ns.
 */
final class ServerChoice {
    /** How long a server is tried last after its first failure; doubled after each further one. */
    private static final long LEFT_OUT = TimeUnit.MILLISECONDS.toNanos(100);

    private static final long LONGEST_LEFT_OUT = TimeUnit.SECONDS.toNanos(10);

    /** The pause after every server failed; doubled after each further round. */
    private static final long FIRST_PAUSE = TimeUnit.MILLISECONDS.toNanos(20);

    private static final long LONGEST_PAUSE = TimeUnit.SECONDS.toNanos(1);

    /**
     * How many hedged requests may follow each other. Each {@code REQUESTS_PER_HEDGE} requests
     * allow one more, so that hedging does not double the load when all servers are slow.
     */
    private static final int HEDGES = 10;

    private static final int REQUESTS_PER_HEDGE = 10;

    private final Health[] servers;
    private final RandomGenerator random;

    /** The credit for hedged requests, in requests. */
    private int credit = HEDGES * REQUESTS_PER_HEDGE;

    ServerChoice(int servers, RandomGenerator random) {
        this.servers = Health.of(servers);
        this.random = random;
    }

    /**
     * Returns the servers in the order in which to try them: those that work, then those left out,
     * by when they return. Servers that asked for a later retry are missing.
     *
     * @param own the health of the namespace at each server
     */
    synchronized List<Integer> order(Health[] own, long now) {
        List<Integer> order = new ArrayList<>();
        for (int server = 0; server < servers.length; server++) {
            if (notBefore(own, server) <= now) {
                order.add(server);
            }
        }
        order.sort(Comparator.comparingLong(server -> leftOut(own, server, now)));
        return order;
    }

    private long leftOut(Health[] own, int server, long now) {
        long until = Math.max(servers[server].leftOutUntil, own[server].leftOutUntil);
        return Math.max(0, until - now);
    }

    /** Records that a server returned ids of a namespace. */
    synchronized void succeeded(Health[] own, int server) {
        servers[server].recover();
        own[server].recover();
    }

    /** Records a failure, and how long the server gets no request. */
    synchronized void failed(Health[] own, int server, Scope scope, long now, long retryAfter) {
        Health health = scope == Scope.NAMESPACE ? own[server] : servers[server];
        health.leftOutUntil = now + jitter(doubled(LEFT_OUT, health.failures, LONGEST_LEFT_OUT));
        health.notBefore = now + retryAfter;
        health.failures++;
    }

    /** Returns how long to pause after a round, the first one is 0, without ids. */
    synchronized long pause(Health[] own, int round, long now) {
        return Math.max(jitter(doubled(FIRST_PAUSE, round, LONGEST_PAUSE)), closedFor(own, now));
    }

    /** Returns how long it takes until some server accepts requests for the namespace again. */
    synchronized long closedFor(Health[] own, long now) {
        long first = Long.MAX_VALUE;
        for (int server = 0; server < servers.length; server++) {
            first = Math.min(first, notBefore(own, server));
        }
        return Math.max(0, first - now);
    }

    private long notBefore(Health[] own, int server) {
        return Math.max(servers[server].notBefore, own[server].notBefore);
    }

    /** Records a request that is not hedged. */
    synchronized void requested() {
        credit = Math.min(HEDGES * REQUESTS_PER_HEDGE, credit + 1);
    }

    /** Returns whether one more hedged request may be sent now, and records it. */
    synchronized boolean mayHedge() {
        if (credit < REQUESTS_PER_HEDGE) {
            return false;
        }
        credit -= REQUESTS_PER_HEDGE;
        return true;
    }

    /**
     * Returns a time between half of {@code most} and it, so that clients do not return at once.
     */
    private long jitter(long most) {
        return most / 2 + random.nextLong(most / 2 + 1);
    }

    private static long doubled(long first, int times, long most) {
        long doubled = first;
        for (int i = 0; i < times && doubled < most; i++) {
            doubled *= 2;
        }
        return Math.min(doubled, most);
    }
}
