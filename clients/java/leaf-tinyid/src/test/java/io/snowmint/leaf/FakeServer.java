package io.snowmint.leaf;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicLong;

/** A server that gives each id once. A namespace whose name is a status gets that status. */
public final class FakeServer implements AutoCloseable {
    private final AtomicLong last = new AtomicLong();
    private final HttpServer server;

    /**
     * Starts a server.
     *
     * @throws IOException if there is no port
     */
    public FakeServer() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 50);
        server.createContext("/v1/ranges/", this::answer);
        server.start();
    }

    /**
     * Returns its URL.
     *
     * @return the URL
     */
    public String url() {
        return "http://127.0.0.1:" + server.getAddress().getPort();
    }

    private void answer(HttpExchange exchange) throws IOException {
        String name = exchange.getRequestURI().getPath().replaceFirst(".*/", "");
        int status = name.matches("[0-9]+") ? Integer.parseInt(name) : 200;
        String body = "{\"type\":\"urn:snowmint:unknown-namespace\"}";
        if (status == 200) {
            String query = exchange.getRequestURI().getQuery();
            long count = Long.parseLong(query.replaceFirst("count=([0-9]+).*", "$1"));
            body =
                    "{\"ranges\":[{\"first\":\"%d\",\"count\":%d,\"step\":\"1\"}]}"
                            .formatted(last.getAndAdd(count) + 1, count);
        }
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    @Override
    public void close() {
        server.stop(0);
    }
}
