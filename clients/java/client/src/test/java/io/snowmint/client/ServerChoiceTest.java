package io.snowmint.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;

class ServerChoiceTest {
    private static final long MS = TimeUnit.MILLISECONDS.toNanos(1);
    private static final long NOW = 3_600_000 * MS;

    private final ServerChoice choice = new ServerChoice(3, new Random(7));
    private final ServerChoice longest = new ServerChoice(3, new Longest());
    private final Health[] own = Health.of(3);

    private void failed(int server, Scope scope, long now, long retryAfter) {
        choice.failed(own, server, scope, now, retryAfter);
    }

    private List<Integer> order(long now) {
        return choice.order(own, now);
    }

    /** Goal: a server that failed is tried last for 100 ms, whatever the failure concerns. */
    @ParameterizedTest
    @EnumSource
    void theFirstServerThatWorksIsAsked(Scope scope) {
        assertEquals(List.of(0, 1, 2), longest.order(own, NOW));
        longest.failed(own, 0, scope, NOW, 0);
        assertEquals(List.of(1, 2, 0), longest.order(own, NOW));
        longest.failed(own, 1, scope, NOW + 60 * MS, 0);
        assertEquals(List.of(2, 0, 1), longest.order(own, NOW + 99 * MS));
        assertEquals(List.of(0, 2, 1), longest.order(own, NOW + 100 * MS));
        assertEquals(List.of(0, 1, 2), longest.order(own, NOW + 160 * MS));
        longest.succeeded(own, 1);
        assertEquals(List.of(1, 2, 0), longest.order(own, NOW + 61 * MS));
    }

    @Test
    void aServerThatKeepsFailingIsLeftOutLonger() {
        long most = 100 * MS;
        for (int failures = 0; failures < 40; failures++) {
            failed(0, Scope.NAMESPACE, NOW, 0);
            long leftOut = own[0].leftOutUntil - NOW;
            assertTrue(leftOut >= most / 2 && leftOut <= most, failures + ": " + leftOut);
            most = Math.min(2 * most, 10_000 * MS);
        }
    }

    /** Goal: a server gets no request before its Retry-After; the later one counts. */
    @Test
    void retryAfterOfServers() {
        failed(0, Scope.SERVER, NOW, 2000 * MS);
        failed(0, Scope.NAMESPACE, NOW, 1000 * MS);
        failed(1, Scope.NAMESPACE, NOW, 3000 * MS);
        failed(2, Scope.SERVER, NOW, 4000 * MS);
        assertEquals(List.of(), order(NOW + 1999 * MS));
        assertTrue(choice.pause(own, 0, NOW + 1000 * MS) >= 1000 * MS);
        assertEquals(1500 * MS, choice.closedFor(own, NOW + 500 * MS));
        assertEquals(List.of(0), order(NOW + 2000 * MS));
        assertEquals(List.of(0, 1), order(NOW + 3000 * MS));
        // Another namespace waits only for the servers.
        assertEquals(List.of(1), choice.order(Health.of(3), NOW));
    }

    @Test
    void pausesGrow() {
        long most = 20 * MS;
        for (int round = 0; round < 40; round++) {
            long pause = choice.pause(own, round, NOW);
            assertTrue(pause >= most / 2 && pause <= most, round + ": " + pause);
            most = Math.min(2 * most, 1000 * MS);
        }
    }

    @Test
    void hedgesAreATenthOfTheRequests() {
        assertEquals(10, hedged(50, false));
        assertEquals(100, hedged(1000, true));
    }

    /** Makes each time the longest one. */
    private static final class Longest extends Random {
        private static final long serialVersionUID = 1;

        @Override
        public long nextLong(long bound) {
            return bound - 1;
        }
    }

    private int hedged(int requests, boolean isCounted) {
        int hedged = 0;
        for (int i = 0; i < requests; i++) {
            if (isCounted) {
                choice.requested();
            }
            hedged += choice.mayHedge() ? 1 : 0;
        }
        return hedged;
    }
}
