package io.snowmint.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.net.URI;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;

/** Tests what happens when the JVM fails: a call must not hang, and the next one must work. */
@Timeout(60)
class SourceTest {
    private final Workers workers = new Workers();
    private TestServer server;
    private Throwable failure;
    private int left;

    @BeforeAll
    static void warmUp() throws IOException {
        SnowmintClientTest.warmUp();
    }

    @BeforeEach
    void startServer() throws IOException {
        server = new TestServer();
    }

    @AfterEach
    void close() throws IOException {
        workers.close();
        server.close();
    }

    private IdSource source(Executor executor, Clock clock) {
        Fetcher fetcher =
                new Fetcher(
                        List.of(URI.create(server.url())),
                        new Transport(Tls.of(new Options()), workers),
                        Token.of(new Options()),
                        new ServerChoice(1, new Random(1)),
                        new StoreCheck(null),
                        workers,
                        Duration.ofMinutes(1),
                        SnowmintClient.UNLIMITED);
        return new NumberSource(
                new Source(
                        new Namespace("orders", false, 1),
                        fetcher,
                        executor,
                        Long.MAX_VALUE,
                        true,
                        new Target(0, 100, Long.MAX_VALUE, Target.MAX_REQUEST),
                        clock));
    }

    private void fail() {
        if (left > 0) {
            left--;
            if (failure instanceof Error error) {
                throw error;
            }
            throw (RuntimeException) failure;
        }
    }

    @Test
    void aThreadThatCannotStart() {
        Executor broken =
                work -> {
                    fail();
                    workers.execute(work);
                };
        IdSource ids = source(broken, Clock.SYSTEM);
        for (Throwable each :
                List.of(
                        new OutOfMemoryError("unable to create native thread"),
                        new RejectedExecutionException("no"))) {
            failure = each;
            left = 1;
            SnowmintException e = assertThrows(SnowmintException.class, () -> ids.next(200));
            assertEquals(ErrorKind.UNAVAILABLE, e.kind());
            assertEquals(each, e.getCause());
        }
        assertEquals(1, ids.next());
        while (((NumberSource) ids).source.isFilling()) {
            Thread.onSpinWait();
        }
        // A draw that only starts a refill does not fail.
        left = 1;
        for (int i = 2; i <= 17; i++) {
            assertEquals(i, ids.next());
        }
        assertEquals(0, left);
        assertEquals(18, ids.next());
    }

    @Test
    void aFillerThatFails() {
        Clock broken =
                new Clock() {
                    @Override
                    public long nanos() {
                        if (Thread.currentThread().getName().startsWith("snowmint-")) {
                            fail();
                        }
                        return Clock.SYSTEM.nanos();
                    }

                    @Override
                    public long millis() {
                        return Clock.SYSTEM.millis();
                    }
                };
        failure = new IllegalStateException("planted");
        left = 1;
        IdSource ids = source(workers, broken);
        SnowmintException e = assertThrows(SnowmintException.class, ids::next);
        assertEquals(ErrorKind.UNAVAILABLE, e.kind());
        assertEquals(failure, e.getCause());
        assertEquals(1, ids.next());
    }
}
