package io.snowmint.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/** Tests against a server, with a time limit that only a call that hangs reaches. */
@Timeout(60)
class SnowmintClientTest {
    private TestServer server;
    private SnowmintClient client;

    /**
     * The first request of a JVM loads many classes. On a busy machine it may take longer than an
     * attempt, and the client would draw again.
     */
    @BeforeAll
    static void warmUp() throws IOException {
        try (TestServer server = new TestServer();
                SnowmintClient client = SnowmintClient.builder().server(server.url()).build()) {
            client.texts("a").next();
            client.namespace("a").next();
        }
    }

    @BeforeEach
    void startServer() throws IOException {
        server = new TestServer();
    }

    @AfterEach
    void close() throws IOException {
        if (client != null) {
            client.close();
        }
        server.close();
    }

    /** Returns options without what depends on time. */
    private SnowmintClient.Builder timeless() {
        return SnowmintClient.builder()
                .server(server.url())
                .timeout(Duration.ofMinutes(1))
                .maxAge(SnowmintClient.UNLIMITED)
                .withoutHedging();
    }

    private IdSource open(SnowmintClient.Builder builder) {
        client = builder.build();
        return client.namespace("orders");
    }

    private static <T> FutureTask<T> start(Callable<T> call) {
        FutureTask<T> task = new FutureTask<>(call);
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    /** Returns the error of a call in another thread. */
    private static SnowmintException errorOf(FutureTask<?> call) {
        ExecutionException e = assertThrows(ExecutionException.class, call::get);
        return assertInstanceOf(SnowmintException.class, e.getCause());
    }

    /** Returns the threads of clients that were not there before. */
    private static List<Thread> ownThreads(Set<Thread> before) {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("snowmint-"))
                .filter(thread -> !before.contains(thread))
                .toList();
    }

    private static void until(BooleanSupplier condition) throws InterruptedException {
        while (!condition.getAsBoolean()) {
            Thread.sleep(1);
        }
    }

    /**
     * Goal: threads that draw one or several ids at the same time, and are interrupted at any
     * moment, never get an id twice.
     */
    @Test
    void concurrentCallsGetEachIdOnce() throws Exception {
        IdSource ids = open(timeless());
        AtomicBoolean isDone = new AtomicBoolean();
        List<Thread> threads = new ArrayList<>();
        List<FutureTask<List<Long>>> draws = new ArrayList<>();
        for (int t = 0; t < 8; t++) {
            int own = t;
            FutureTask<List<Long>> draw = new FutureTask<>(() -> drawSeveral(ids, own));
            draws.add(draw);
            threads.add(new Thread(draw));
        }
        threads.forEach(Thread::start);
        Thread interrupter =
                new Thread(
                        () -> {
                            for (int i = 0; !isDone.get(); i++) {
                                threads.get(i % threads.size()).interrupt();
                                LockSupport.parkNanos(200_000);
                            }
                        });
        interrupter.start();
        BitSet seen = new BitSet();
        for (FutureTask<List<Long>> draw : draws) {
            for (long id : draw.get()) {
                assertTrue(id >= 1 && id <= server.last(), id + " was not given");
                assertFalse(seen.get((int) id), id + " came out twice");
                seen.set((int) id);
            }
        }
        isDone.set(true);
        interrupter.join();
        assertTrue(seen.cardinality() > 10_000, "only " + seen.cardinality() + " ids were drawn");
    }

    private static List<Long> drawSeveral(IdSource ids, int own) {
        List<Long> drawn = new ArrayList<>();
        for (int n = 1; n <= 300; n++) {
            try {
                switch ((n + own) % 3) {
                    case 0 -> {
                        for (long id : ids.next(n)) {
                            drawn.add(id);
                        }
                    }
                    case 1 -> drawn.add(ids.next());
                    default -> ids.tryNext().ifPresent(drawn::add);
                }
            } catch (SnowmintException e) {
                assertEquals(ErrorKind.INTERRUPTED, e.kind());
                assertTrue(Thread.interrupted(), "the thread is not interrupted any more");
            }
        }
        return drawn;
    }

    /** Goal: an interrupt ends the wait, the error says so, and the ids go to the next call. */
    @Test
    void anInterruptEndsTheWait() throws Exception {
        server.held();
        IdSource ids = open(timeless().buffer(0, 0));
        Source source = ((NumberSource) ids).source;
        FutureTask<Boolean> interrupted =
                new FutureTask<>(
                        () -> {
                            SnowmintException e =
                                    assertThrows(SnowmintException.class, () -> ids.next(2));
                            assertEquals(ErrorKind.INTERRUPTED, e.kind());
                            assertInstanceOf(InterruptedException.class, e.getCause());
                            assertFalse(e.isTemporary());
                            assertEquals(Optional.of("orders"), e.namespace());
                            return Thread.currentThread().isInterrupted();
                        });
        Thread thread = new Thread(interrupted);
        thread.start();
        server.requests.take();
        thread.interrupt();
        assertTrue(interrupted.get(), "the thread must stay interrupted");
        assertEquals(0, source.waiting(), "a call that has left is kept");
        FutureTask<Long> next = start(ids::next);
        until(() -> source.waiting() == 1);
        server.mayAnswer.release();
        assertEquals(1, next.get());
    }

    @Test
    void anInterruptedThreadGetsIdsOfMemoryAndRequestsNone() {
        IdSource ids = open(timeless());
        ids.next();
        Thread.currentThread().interrupt();
        try {
            for (int i = 0; i < 8; i++) {
                ids.next();
            }
            SnowmintException e =
                    assertThrows(SnowmintException.class, () -> client.namespace("others").next());
            assertEquals(ErrorKind.INTERRUPTED, e.kind());
        } finally {
            assertTrue(Thread.interrupted());
        }
        assertEquals(1, server.requests.size());
    }

    @Test
    void texts() {
        open(timeless().buffer(4, 4));
        TextIdSource texts = client.texts("tickets");
        assertEquals("A-1", texts.next());
        assertEquals(4, texts.buffered());
        assertEquals(List.of("A-2", "A-3", "A-4", "A-5", "A-6", "A-7"), texts.next(6));
        assertTrue(server.requests.remove().path().startsWith("/v1/ids/tickets?"));
        texts.discardBuffered();
        assertEquals(0, texts.buffered());
        assertThrows(UnsupportedOperationException.class, () -> texts.next(2).add("B"));
        client.close();
        assertEquals(
                ErrorKind.CLOSED, assertThrows(SnowmintException.class, texts::tryNext).kind());
        TextIdSource late = client.texts("others");
        assertEquals(ErrorKind.CLOSED, assertThrows(SnowmintException.class, late::next).kind());
    }

    @Test
    void handlesOfANameAreTheSame() {
        IdSource ids = open(timeless());
        assertSame(ids, client.namespace("orders"));
        assertSame(client.texts("orders"), client.texts("orders"));
        assertNotSame(ids, client.namespace("others"));
        assertEquals("orders", ids.namespace());
        assertEquals(OptionalLong.empty(), ids.tryNext());
    }

    /** Goal: a request has what a proxy and the server expect, and goes out only once. */
    @Test
    void requests() throws InterruptedException {
        open(timeless().token(" sm_secret\n")).next();
        TestServer.Request request = server.requests.take();
        assertEquals("POST /v1/ranges/orders?count=17&wait=1.600 HTTP/1.1", request.line());
        assertEquals("Bearer sm_secret", request.headers().get("authorization"));
        assertTrue(request.headers().get("user-agent").startsWith("snowmint-java/"));
        assertEquals("0", request.headers().get("content-length"));
        assertFalse(request.headers().containsKey("upgrade"));
    }

    /** Goal: a proxy that empties a header does not name a store. */
    @Test
    void aStoreWithoutAName() {
        server.answering(
                request ->
                        TestServer.response(
                                200,
                                "snowmint-store:\r\n",
                                "{\"ranges\":[{\"first\":\"5\",\"count\":17,\"step\":\"1\"}]}"));
        assertEquals(5, open(timeless()).next());
        assertEquals(Optional.empty(), client.store());
    }

    /** Goal: an answer to another request is dropped, and nothing more is read behind it. */
    @ParameterizedTest
    @CsvSource({"200, 17", "403, 0"})
    void anAnswerToAnotherRequest(int status, int length) throws Exception {
        server.answering(
                request ->
                        TestServer.response(
                                status, "snowmint-request: another\r\n", "x".repeat(length)));
        IdSource ids = open(timeless().timeout(Duration.ofMillis(200)));
        SnowmintException e = assertThrows(SnowmintException.class, ids::next);
        assertEquals(ErrorKind.UNAVAILABLE, e.kind());
        assertTrue(e.getMessage().contains("belongs to another request"), e.getMessage());
        until(() -> server.connections() == 0);
    }

    /** Goal: the second copy of an answer is not the answer to the next request. */
    @Test
    void anAnswerThatComesTwice() {
        List<String> answers = new ArrayList<>();
        server.answering(
                request -> {
                    int number = answers.size() + 1;
                    answers.add(
                            TestServer.response(
                                    200,
                                    "snowmint-request: "
                                            + request.headers().get("snowmint-request")
                                            + "\r\n",
                                    "{\"ids\":[\"A-" + number + "\"]}"));
                    // Before its second answer and each second one after it, the one before.
                    return number % 2 == 0
                            ? answers.get(number - 2) + answers.get(number - 1)
                            : answers.get(number - 1);
                });
        open(timeless().buffer(0, 0));
        TextIdSource texts = client.texts("a");
        Set<String> drawn = new HashSet<>();
        for (int i = 0; i < 10; i++) {
            String id = texts.next();
            assertTrue(drawn.add(id), id + " came out twice");
        }
    }

    /** Goal: each request has an id of its own, and an answer that repeats it counts. */
    @Test
    void requestIds() throws InterruptedException {
        server.answering(
                request ->
                        TestServer.response(
                                200,
                                "Snowmint-Request: "
                                        + request.headers().get("snowmint-request")
                                        + "\r\n",
                                "{\"ids\":[\"A\"]}"));
        open(timeless().buffer(0, 0));
        client.texts("a").next();
        client.texts("a").next();
        String first = server.requests.take().headers().get("snowmint-request");
        String second = server.requests.take().headers().get("snowmint-request");
        assertTrue(first.matches("[0-9a-f]{16}-[0-9]+"), first);
        assertFalse(first.equals(second), second);
    }

    /** Goal: callers get an error of their own, with the trace of their own thread. */
    @Test
    void eachCallerGetsItsOwnError() throws Exception {
        server.held()
                .answering(
                        request ->
                                TestServer.response(
                                        404, "", "{\"type\":\"urn:snowmint:unknown-namespace\"}"));
        IdSource ids = open(timeless());
        FutureTask<Long> first = start(ids::next);
        FutureTask<Long> second = start(ids::next);
        until(() -> ((NumberSource) ids).source.waiting() == 2);
        server.mayAnswer.release();
        SnowmintException one = errorOf(first);
        SnowmintException other = errorOf(second);
        assertNotSame(one, other);
        assertEquals(ErrorKind.UNKNOWN_NAMESPACE, one.kind());
        assertEquals(OptionalInt.of(404), one.status());
        assertEquals(Optional.of(server.url()), one.server());
        assertEquals(Optional.empty(), one.retryAfter());
        assertEquals(server.url() + ": status 404", one.getMessage());
    }

    /** Goal: the server's text shows neither the token, nor signs that control a terminal. */
    @Test
    void textOfServers() {
        server.answering(
                request ->
                        TestServer.response(
                                403,
                                "",
                                "{\"detail\":\"no %s\\u001b[31m\\u202ered %s\"}"
                                        .formatted(
                                                request.headers().get("authorization"),
                                                "x".repeat(5000))));
        IdSource ids = open(timeless().token("sm_hunter2"));
        SnowmintException e = assertThrows(SnowmintException.class, ids::next);
        assertEquals(ErrorKind.FORBIDDEN, e.kind());
        assertFalse(e.toString().contains("hunter2"), e.toString());
        assertTrue(e.detail().contains("no Bearer (token)\\u{1b}[31m\\u{202e}red xx"), e.detail());
        assertTrue(e.getMessage().length() < 4500, e.getMessage());
    }

    @Test
    void statsCountTheIdsInMemory() {
        open(timeless());
        assertEquals(new ClientStats(0, 0, 0, 0), client.stats());
        client.namespace("a").next();
        client.texts("b").next();
        assertEquals(new ClientStats(2, 0, 0, 32), client.stats());
    }

    /** Goal: close ends the wait of callers and the thread that fills, also during a refill. */
    @Test
    void closeDuringARefill() throws Exception {
        Set<Thread> before = Thread.getAllStackTraces().keySet();
        IdSource ids = open(timeless());
        ids.next();
        server.held();
        server.requests.clear();
        FutureTask<long[]> call = start(() -> ids.next(100));
        server.requests.take();
        client.close();
        assertEquals(ErrorKind.CLOSED, errorOf(call).kind());
        assertEquals(ErrorKind.CLOSED, assertThrows(SnowmintException.class, ids::next).kind());
        assertEquals(0, ids.buffered());
        Source source = ((NumberSource) ids).source;
        until(() -> !source.isFilling());
        // The request was given up, so the server finds its connection closed.
        server.mayAnswer.release(2);
        until(() -> server.connections() == 0);
        client.close();
        // Idle threads end with the client.
        until(() -> ownThreads(before).isEmpty());
        assertTrue(server.requests.isEmpty(), "no further ids are requested");
    }

    /** Goal: a client starts no thread before the first call. */
    @Test
    void aNewClientStartsNoThread() {
        Set<Thread> before = Thread.getAllStackTraces().keySet();
        open(timeless());
        client.namespace("a");
        client.texts("b");
        assertEquals(List.of(), ownThreads(before));
    }

    /** Goal: no option of the JVM makes the JDK repeat requests. */
    @Test
    void aJdkThatRepeatsRequestsIsRefused() {
        String property = "jdk.httpclient.enableAllMethodRetry";
        System.setProperty(property, "true");
        try {
            SnowmintException e = assertThrows(SnowmintException.class, () -> open(timeless()));
            assertEquals(ErrorKind.INVALID_OPTION, e.kind());
            assertTrue(e.getMessage().contains(property), e.getMessage());
        } finally {
            System.clearProperty(property);
        }
    }

    /** Goal: an answer that was discarded on its way is not used. */
    @Test
    void discardDuringARequest() throws Exception {
        server.held();
        IdSource ids = open(timeless());
        FutureTask<Long> call = start(ids::next);
        server.requests.take();
        until(() -> ((NumberSource) ids).source.waiting() == 1);
        ids.discardBuffered();
        server.mayAnswer.release(2);
        assertEquals(18, call.get(30, TimeUnit.SECONDS));
    }

    /** Goal: a discard ends retries that no call waits for; a later call begins again. */
    @Test
    void discardDuringRetries() throws Exception {
        server.answering(request -> TestServer.response(503, "", ""));
        IdSource ids = open(timeless());
        Source source = ((NumberSource) ids).source;
        assertEquals(OptionalLong.empty(), ids.tryNext());
        server.requests.take();
        ids.discardBuffered();
        until(() -> !source.isFilling());
        server.requests.clear();
        server.answering(server::ids);
        assertEquals(OptionalLong.empty(), ids.tryNext());
        until(() -> ids.buffered() > 0);
        assertEquals(1, server.requests.size());
    }

    /** Goal: a Retry-After after the first call's deadline does not fail a later call. */
    @Test
    void retryAfterBetweenTwoDeadlines() throws Exception {
        server.held()
                .answering(
                        request -> {
                            if (server.requests.size() == 1) {
                                return TestServer.response(503, "Retry-After: 1\r\n", "");
                            }
                            return TestServer.response(
                                    200,
                                    "",
                                    "{\"ranges\":[{\"first\":\"7\",\"count\":1,\"step\":\"1\"}]}");
                        });
        IdSource ids = open(timeless().timeout(Duration.ofMillis(1500)).buffer(0, 0));
        FutureTask<Long> first = start(ids::next);
        Thread.sleep(650);
        FutureTask<Long> second = start(ids::next);
        until(() -> ((NumberSource) ids).source.waiting() == 2);
        server.mayAnswer.release(2);
        assertEquals(Optional.of(true), errorOf(first).retryAfter().map(it -> !it.isZero()));
        assertEquals(7, second.get());
    }

    /** Goal: a server that repeats the token in an invalid answer does not reveal it. */
    @ParameterizedTest
    @CsvSource({
        "'HTTP/1.1 200 OK', '{\"ranges\":[{\"first\":\"hunter2\",\"count\":1,\"step\":\"1\"}]}'",
        "'HTTP/1.1 hunter2', ''",
        "'HTTP/1.1 503 OK', '{\"detail\":\"hunter2\"}'"
    })
    void aTokenInAnAnswer(String status, String body) {
        server.answering(
                request -> status + "\r\nContent-Length: " + body.length() + "\r\n\r\n" + body);
        IdSource ids =
                open(timeless().timeout(Duration.ofMillis(300)).buffer(0, 0).token("hunter2"));
        SnowmintException e = assertThrows(SnowmintException.class, ids::next);
        assertEquals(ErrorKind.UNAVAILABLE, e.kind());
        assertTrue(e.getMessage().contains("(token)"), e.getMessage());
        assertFalse(e.getMessage().contains("hunter2"), e.getMessage());
    }

    /** Goal: a token file without an end does not fill the memory. */
    @Test
    void aTokenFileWithoutEnd() {
        IdSource ids = open(timeless().tokenFile(Path.of("/dev/zero")));
        SnowmintException e = assertThrows(SnowmintException.class, ids::next);
        assertEquals(ErrorKind.UNAUTHORIZED, e.kind());
        assertTrue(e.getMessage().contains("at most 65536 bytes"), e.getMessage());
    }

    @Test
    void aBrokenTokenFileIsAnError() throws Exception {
        Path file = Path.of("target", "no such token");
        client =
                SnowmintClient.builder()
                        .server(server.url())
                        .tokenFile(file)
                        .withoutHedging()
                        .build();
        SnowmintException e =
                assertThrows(SnowmintException.class, () -> client.namespace("orders").next());
        assertEquals(ErrorKind.UNAUTHORIZED, e.kind());
        assertTrue(e.getMessage().contains("no such token"), e.getMessage());
        assertTrue(server.requests.isEmpty());
    }

    /** Goal: a file system that hangs is an error that names the file. */
    @Test
    void aTokenFileThatHangs(@TempDir Path folder) throws Exception {
        Path pipe = folder.resolve("token");
        assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
        client =
                SnowmintClient.builder()
                        .server(server.url())
                        .tokenFile(pipe)
                        .timeout(Duration.ofMillis(200))
                        .withoutHedging()
                        .build();
        for (String name : List.of("a", "b")) {
            SnowmintException e =
                    assertThrows(SnowmintException.class, () -> client.namespace(name).next());
            assertEquals(ErrorKind.UNAVAILABLE, e.kind());
            assertTrue(e.getMessage().contains("not read in time"), e.getMessage());
        }
        assertTrue(server.requests.isEmpty());
    }

    @Test
    void manyIdsInOneCall() {
        IdSource ids = open(timeless());
        long[] drawn = ids.next(1_000_000);
        for (int i = 0; i < drawn.length; i++) {
            assertEquals(i + 1, drawn[i]);
        }
        assertEquals(
                ErrorKind.INVALID_COUNT,
                assertThrows(SnowmintException.class, () -> ids.next(0)).kind());
    }
}
