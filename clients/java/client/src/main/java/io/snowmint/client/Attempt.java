package io.snowmint.client;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** One request to one server. */
final class Attempt {
    /** The part of its time, in percent, that the server may spend on making ids. */
    private static final long PERCENT_TO_MAKE = 80;

    final int server;

    /** When it began. Its ids are not older. */
    final Moment sent;

    /** When it ends without an answer, on the monotonic clock. */
    final long deadline;

    private final Fetcher fetcher;
    private final Namespace namespace;
    private final long count;
    private final long limit;
    private final Reply reply;

    /** The request, once it is on its way. */
    private CompletableFuture<HttpResponse<byte[]>> request;

    private boolean isCancelled;
    private String token;

    /** The outcome: a body, or why there is none. */
    private volatile byte[] body;

    private volatile Throwable error;

    Attempt(Fetcher fetcher, int server, Namespace namespace, long count, long deadline) {
        this.fetcher = fetcher;
        this.server = server;
        this.namespace = namespace;
        this.count = count;
        this.sent = Clock.SYSTEM.now();
        this.limit = Math.min(fetcher.attemptTimeout(), Math.max(0, deadline - sent.nanos()));
        this.deadline = sent.nanos() + limit;
        this.reply = new Reply(count, this::cancel);
    }

    private URI server() {
        return fetcher.servers().get(server);
    }

    /**
     * Sends the request.
     *
     * @param onEnd gets this attempt once, when it has ended
     */
    void start(Consumer<Attempt> onEnd) {
        fetcher.requests.incrementAndGet();
        if (!fetcher.token().isOfFile()) {
            readTokenAndSend(onEnd);
            return;
        }
        try {
            // A file system may hang.
            fetcher.workers().execute(() -> readTokenAndSend(onEnd));
        } catch (RejectedExecutionException | OutOfMemoryError e) {
            end(null, e, onEnd);
        }
    }

    private void readTokenAndSend(Consumer<Attempt> onEnd) {
        try {
            send(fetcher.token().read(limit), onEnd);
        } catch (IOException e) {
            end(null, new TokenFileException(e.getMessage()), onEnd);
        } catch (InterruptedException | RuntimeException | OutOfMemoryError e) {
            end(null, e, onEnd);
        }
    }

    private synchronized void send(String ownToken, Consumer<Attempt> onEnd) {
        if (isCancelled) {
            return;
        }
        token = ownToken;
        request = fetcher.transport().post(uri(), ownToken, reply);
        request.whenComplete(
                (response, failed) -> end(failed == null ? response.body() : null, failed, onEnd));
    }

    private URI uri() {
        long wait = limitMillis() * PERCENT_TO_MAKE / 100;
        return URI.create(
                server()
                        + namespace.path()
                        + "?count="
                        + count
                        + "&wait="
                        + wait / 1000
                        + "."
                        + String.valueOf(1000 + wait % 1000).substring(1));
    }

    private void end(byte[] ownBody, Throwable failed, Consumer<Attempt> onEnd) {
        body = ownBody;
        error = failed;
        onEnd.accept(this);
    }

    /** Gives the request up, and closes its connection. */
    synchronized void cancel() {
        isCancelled = true;
        if (request != null) {
            request.cancel(true);
        }
    }

    /** Returns what came of the request, after its end or deadline. */
    Settled settle() {
        Settled settled = outcome();
        String secret = token();
        return settled.failure() == null || secret == null
                ? settled
                : Settled.failed(settled.failure().without(secret));
    }

    private Settled outcome() {
        String name = server().toString();
        if (reply.isForeign()) {
            return Settled.failed(
                    Failure.unavailable(name, "invalid answer: it belongs to another request"));
        }
        if (reply.isRefusal()) {
            return Settled.failed(Refusal.read(name, reply.head(), body, token()));
        }
        if (Clock.SYSTEM.nanos() >= deadline || error instanceof CancellationException) {
            return Settled.failed(noAnswer());
        }
        Throwable failed = error;
        if (failed instanceof TokenFileException) {
            return Settled.failed(
                    Failure.of(name, ErrorKind.UNAUTHORIZED, failed.getMessage(), Retry.NEVER));
        }
        if (isTooLong(failed)) {
            return Settled.failed(
                    Failure.unavailable(
                            name, "invalid answer: more than " + reply.limit() + " bytes"));
        }
        if (failed != null) {
            return Settled.failed(ConnectionFailure.read(name, failed));
        }
        return read(name);
    }

    private Settled read(String name) {
        List<Span> spans;
        try {
            spans = Answer.read(body, namespace.isText, count);
        } catch (InvalidAnswerException e) {
            return Settled.failed(Failure.unavailable(name, "invalid answer: " + e.getMessage()));
        }
        // A1 and A2: it must have arrived whole in time.
        if (Clock.SYSTEM.nanos() >= deadline) {
            return Settled.failed(noAnswer());
        }
        Failure another =
                fetcher.storeCheck().check(name, Reply.header(reply.head(), "Snowmint-Store"));
        return new Settled(spans, another);
    }

    private synchronized String token() {
        return token;
    }

    private static boolean isTooLong(Throwable failed) {
        for (Throwable each = failed; each != null; each = each.getCause()) {
            if (each instanceof LimitedBody.TooLongException) {
                return true;
            }
        }
        return false;
    }

    private synchronized Failure noAnswer() {
        String detail =
                request == null && fetcher.token().isOfFile()
                        ? fetcher.token().late()
                        : "no answer within " + Texts.duration(Duration.ofMillis(limitMillis()));
        return Failure.unavailable(server().toString(), detail);
    }

    private long limitMillis() {
        return TimeUnit.NANOSECONDS.toMillis(limit);
    }

    /**
     * What came of a request.
     *
     * @param failure null if the ids may be used
     */
    record Settled(List<Span> spans, Failure failure) {
        static Settled failed(Failure failure) {
            return new Settled(List.of(), failure);
        }
    }

    /** The token file cannot be used. */
    private static final class TokenFileException extends IOException {
        private static final long serialVersionUID = 1;

        TokenFileException(String message) {
            super(message);
        }
    }
}
