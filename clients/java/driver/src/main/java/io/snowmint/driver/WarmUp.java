package io.snowmint.driver;

import io.snowmint.client.SnowmintClient;
import io.snowmint.client.SnowmintException;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/**
 * Sends a request before the first command. The first one of a JVM loads a thousand classes. On a
 * busy machine that takes longer than scenarios allow.
 */
final class WarmUp {
    private static final byte[] ANSWER =
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".getBytes(StandardCharsets.UTF_8);

    private WarmUp() {}

    static void run() throws IOException {
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                SnowmintClient client =
                        SnowmintClient.builder()
                                .server("http://127.0.0.1:" + server.getLocalPort())
                                .build()) {
            Thread answering = new Thread(() -> answer(server));
            answering.setDaemon(true);
            answering.start();
            client.namespace("warm-up").next();
        } catch (SnowmintException e) {
            // There are no ids.
        }
    }

    private static void answer(ServerSocket server) {
        try (Socket connection = server.accept()) {
            connection.getInputStream().read(new byte[1000]);
            connection.getOutputStream().write(ANSWER);
        } catch (IOException e) {
            // The client has left.
        }
    }
}
