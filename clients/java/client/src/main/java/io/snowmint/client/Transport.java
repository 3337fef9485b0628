package io.snowmint.client;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;

/**
 * The connections to all servers. They are opened on demand, by HTTP/1.1: over HTTP/2 the JDK may
 * send a request twice.
 */
final class Transport {
    /** The timeout of connecting to a server, before TLS. */
    private static final Duration CONNECT_TIMEOUT = Duration.ofSeconds(1);

    private static final String USER_AGENT = "snowmint-java/0.1.0";

    /** With this property the JDK repeats requests whose connection was closed, even a POST. */
    private static final String REPEATS = "jdk.httpclient.enableAllMethodRetry";

    private final SSLContext tls;
    private final Executor executor;
    private HttpClient http;
    private boolean isClosed;

    /** Creates a transport. It starts no thread before {@link #open}. */
    Transport(SSLContext tls, Executor executor) {
        String repeats = System.getProperty(REPEATS);
        if (repeats != null && (repeats.isEmpty() || Boolean.parseBoolean(repeats))) {
            throw Options.invalid(
                    "system property " + REPEATS,
                    '"' + repeats + '"',
                    "none, because the JDK would repeat requests for ids");
        }
        this.tls = tls;
        this.executor = executor;
    }

    /**
     * Sends a POST without a body.
     *
     * @param token the token, or null
     * @throws IllegalStateException if the transport is closed
     */
    CompletableFuture<HttpResponse<byte[]>> post(URI uri, String token, Reply reply) {
        HttpRequest.Builder request =
                HttpRequest.newBuilder(uri)
                        .POST(HttpRequest.BodyPublishers.noBody())
                        .header("User-Agent", USER_AGENT)
                        .header(RequestId.HEADER, reply.id());
        if (token != null) {
            request.header("Authorization", "Bearer " + token);
        }
        return http().sendAsync(request.build(), reply);
    }

    /**
     * Creates the JDK's client, which starts a thread.
     *
     * @return false if the transport is closed
     */
    synchronized boolean open() {
        if (http == null && !isClosed) {
            SSLParameters parameters = new SSLParameters();
            parameters.setProtocols(new String[] {"TLSv1.3", "TLSv1.2"});
            http =
                    HttpClient.newBuilder()
                            .version(HttpClient.Version.HTTP_1_1)
                            .followRedirects(HttpClient.Redirect.NEVER)
                            .proxy(HttpClient.Builder.NO_PROXY)
                            .connectTimeout(CONNECT_TIMEOUT)
                            .sslContext(tls)
                            .sslParameters(parameters)
                            .executor(executor)
                            .build();
        }
        return !isClosed;
    }

    private synchronized HttpClient http() {
        if (!open()) {
            throw new IllegalStateException("the client is closed");
        }
        return http;
    }

    /** Closes all connections. A JDK before 21 cannot: it does so once its client is garbage. */
    synchronized void close() {
        isClosed = true;
        if (http != null && Runtime.version().feature() >= 21) {
            shutDown(http);
        }
        http = null;
    }

    private static void shutDown(HttpClient http) {
        try {
            MethodHandles.publicLookup()
                    .findVirtual(HttpClient.class, "shutdownNow", MethodType.methodType(void.class))
                    .invoke(http);
        } catch (Throwable e) {
            // The garbage collector will do it.
            if (e instanceof Error error) {
                throw error;
            }
        }
    }
}
