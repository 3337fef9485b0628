package io.snowmint.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/** A server that gives each id once, from 1 on, and each answer when it may. */
final class TestServer implements AutoCloseable {
    /** The requests that arrived. */
    final BlockingQueue<Request> requests = new LinkedBlockingQueue<>();

    /** A permit for each answer. */
    final Semaphore mayAnswer = new Semaphore(Integer.MAX_VALUE);

    private final AtomicLong last = new AtomicLong();
    private final ServerSocket listener;
    private final Set<Socket> connections = ConcurrentHashMap.newKeySet();
    private volatile Function<Request, String> answer = this::ids;

    TestServer() throws IOException {
        this(new ServerSocket(0, 50, InetAddress.getLoopbackAddress()));
    }

    TestServer(ServerSocket listener) {
        this.listener = listener;
        start(this::accept);
    }

    /** Holds all answers back until {@link #mayAnswer} has permits. */
    TestServer held() {
        mayAnswer.drainPermits();
        return this;
    }

    /** Sets what it answers: a whole response. */
    TestServer answering(Function<Request, String> other) {
        answer = other;
        return this;
    }

    String url() {
        return "http://127.0.0.1:" + listener.getLocalPort();
    }

    /** Returns the last id that it gave. */
    long last() {
        return last.get();
    }

    /** Returns the number of open connections. */
    int connections() {
        return connections.size();
    }

    static String response(int status, String headers, String body) {
        int length = body.getBytes(StandardCharsets.UTF_8).length;
        return "HTTP/1.1 "
                + status
                + " Status\r\ncontent-length: "
                + length
                + "\r\n"
                + headers
                + "\r\n"
                + body;
    }

    /** Answers with ids. */
    String ids(Request request) {
        long first = last.getAndAdd(request.count()) + 1;
        if (request.path().startsWith("/v1/ids/")) {
            String texts =
                    LongStream.range(first, first + request.count())
                            .mapToObj(id -> "\"A-" + id + '"')
                            .collect(Collectors.joining(","));
            return response(200, "", "{\"ids\":[" + texts + "]}");
        }
        return response(
                200,
                "",
                "{\"ranges\":[{\"first\":\"%d\",\"count\":%d,\"step\":\"1\"}]}"
                        .formatted(first, request.count()));
    }

    private void accept() {
        while (!listener.isClosed()) {
            try {
                Socket connection = listener.accept();
                connections.add(connection);
                start(() -> serve(connection));
            } catch (IOException e) {
                // It was closed.
            }
        }
    }

    private static void start(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    private void serve(Socket connection) {
        try (connection) {
            BufferedReader input =
                    new BufferedReader(
                            new InputStreamReader(
                                    connection.getInputStream(), StandardCharsets.UTF_8));
            for (Request request = read(input); request != null; request = read(input)) {
                requests.add(request);
                mayAnswer.acquire();
                String response = answer.apply(request);
                if (response == null) {
                    return;
                }
                connection.getOutputStream().write(response.getBytes(StandardCharsets.UTF_8));
                connection.getOutputStream().flush();
            }
        } catch (IOException | InterruptedException e) {
            // The client has left.
        } finally {
            connections.remove(connection);
        }
    }

    private static Request read(BufferedReader input) throws IOException {
        String line = input.readLine();
        if (line == null) {
            return null;
        }
        Map<String, String> headers = new HashMap<>();
        for (String header = input.readLine();
                header != null && !header.isEmpty();
                header = input.readLine()) {
            int colon = header.indexOf(':');
            if (colon < 0) {
                return null;
            }
            String name = header.substring(0, colon).toLowerCase(Locale.ROOT);
            headers.put(name, header.substring(colon + 1).strip());
        }
        return new Request(line, headers);
    }

    @Override
    public void close() throws IOException {
        listener.close();
        for (Socket connection : connections) {
            connection.close();
        }
    }

    /** A request: its first line and its headers, whose names are in small letters. */
    record Request(String line, Map<String, String> headers) {
        String path() {
            return line.split(" ")[1];
        }

        long count() {
            return Long.parseLong(path().replaceFirst(".*[?&]count=([0-9]+).*", "$1"));
        }
    }
}
