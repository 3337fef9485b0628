package io.snowmint.properties;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/**
 * A server for tests. Each namespace has a million numbers of its own, or texts such as {@code
 * tickets-17}. Tests compare no exact ids: on a slow machine a request may be repeated.
 */
public final class FakeServer implements AutoCloseable {
    private static final long MILLION = 1_000_000;

    private final HttpServer http;
    private final Map<String, AtomicLong> used = new ConcurrentHashMap<>();
    private final AtomicLong unused = new AtomicLong(MILLION);
    private final List<Request> requests = new CopyOnWriteArrayList<>();
    private volatile boolean forbids;

    /** A request that the server got. */
    public record Request(String namespace, int count, String authorization) {}

    public FakeServer() throws IOException {
        http = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        http.createContext("/v1/ranges/", this::answer);
        http.createContext("/v1/ids/", this::answer);
        http.start();
    }

    /** Returns the URL of the server. */
    public String url() {
        return "http://127.0.0.1:" + http.getAddress().getPort();
    }

    /** Returns the requests until now, without repetitions. */
    public List<Request> requests() {
        return requests.stream().distinct().toList();
    }

    /** Returns the number of requests until now. */
    public int count() {
        return requests.size();
    }

    /** Returns the namespace that an id belongs to. */
    public String namespaceOf(long id) {
        return used.entrySet().stream()
                .filter(entry -> entry.getValue().get() / MILLION == id / MILLION)
                .map(Map.Entry::getKey)
                .findAny()
                .orElse("none");
    }

    /** Rejects all later requests with the status 403, so that calls fail without a retry. */
    public void forbid() {
        forbids = true;
    }

    private void answer(HttpExchange exchange) throws IOException {
        String[] path = exchange.getRequestURI().getPath().split("/");
        int count =
                Integer.parseInt(
                        exchange.getRequestURI().getQuery().replaceAll(".*count=(\\d+).*", "$1"));
        String namespace = path[path.length - 1];
        requests.add(
                new Request(
                        namespace, count, exchange.getRequestHeaders().getFirst("Authorization")));
        if (forbids) {
            exchange.sendResponseHeaders(403, -1);
            exchange.close();
            return;
        }
        long first =
                used.computeIfAbsent(namespace, name -> new AtomicLong(unused.getAndAdd(MILLION)))
                        .getAndAdd(count);
        String body =
                path[2].equals("ranges")
                        ? String.format(
                                "{\"ranges\":[{\"first\":\"%d\",\"count\":%d,\"step\":\"1\"}]}",
                                first, count)
                        : LongStream.range(first, first + count)
                                .mapToObj(n -> "\"" + namespace + "-" + n + "\"")
                                .collect(Collectors.joining(",", "{\"ids\":[", "]}"));
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(200, bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    @Override
    public void close() {
        http.stop(0);
    }
}
