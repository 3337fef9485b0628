package io.snowmint.driver;

import io.snowmint.client.SnowmintClient;
import io.snowmint.client.SnowmintException;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Drives the client for the conformance kit: it reads commands from standard input, and writes
 * answers to standard output.
 */
public final class Main {
    private static final PrintStream OUTPUT = new PrintStream(System.out, true);

    /** The kit expects a client to be there before the first one is opened: a closed one. */
    private SnowmintClient client = SnowmintClient.builder().server("http://localhost").build();

    private Main() {
        client.close();
    }

    /**
     * Runs the driver.
     *
     * @param args none
     */
    public static void main(String[] args) throws IOException {
        WarmUp.run();
        Main main = new Main();
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            main.run(Command.read(line));
        }
        // Calls that still wait do not keep it.
        System.exit(0);
    }

    private void run(Command command) {
        switch (command.op()) {
            case "open" -> reply(command, open(command));
            case "close" -> {
                client.close();
                reply(command, Map.of());
            }
            default -> {
                SnowmintClient current = client;
                new Thread(() -> reply(command, Answers.of(current, command))).start();
            }
        }
    }

    private Map<String, Object> open(Command command) {
        try {
            client = command.open();
            return Map.of();
        } catch (SnowmintException e) {
            return Map.of("error", Answers.error(e));
        }
    }

    private static void reply(Command command, Map<String, Object> answer) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("id", command.id());
        line.putAll(answer);
        // One write a line, so that answers do not mix.
        OUTPUT.println(Json.write(line));
    }
}
