package io.snowmint.driver;

import io.snowmint.client.ClientStats;
import io.snowmint.client.ErrorKind;
import io.snowmint.client.IdSource;
import io.snowmint.client.SnowmintClient;
import io.snowmint.client.SnowmintException;
import io.snowmint.client.TextIdSource;

import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalLong;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/** Runs commands, and makes their answers. */
final class Answers {
    private Answers() {}

    static Map<String, Object> of(SnowmintClient client, Command command) {
        try {
            return run(client, command);
        } catch (SnowmintException e) {
            return Map.of("error", error(e));
        } catch (IOException | InterruptedException e) {
            return Map.of("error", Map.of("kind", "Driver", "message", e.toString()));
        }
    }

    private static Map<String, Object> run(SnowmintClient client, Command command)
            throws IOException, InterruptedException {
        String name = command.has("namespace") ? command.text("namespace") : "";
        if (command.isForTexts()) {
            return run(client.texts(name), command);
        }
        IdSource ids = client.namespace(name);
        return switch (command.op()) {
            case "next" ->
                    command.has("count")
                            ? ids(ids.next(command.number("count", 0)))
                            : ids(ids.next());
            case "try_next" -> {
                OptionalLong id = ids.tryNext();
                yield id.isPresent() ? ids(id.getAsLong()) : ids();
            }
            case "buffered" -> Map.of("buffered", ids.buffered());
            case "discard_buffered" -> {
                ids.discardBuffered();
                yield Map.of();
            }
            case "stats" -> stats(client.stats());
            case "store" -> nullable("store", client.store().orElse(null));
            case "fork" -> Map.of("unsupported", true);
            case "draw" -> Draw.run(ids, command);
            case "bench" -> Bench.run(ids, command);
            default -> throw new IOException("unknown command " + command.op());
        };
    }

    private static Map<String, Object> run(TextIdSource ids, Command command) throws IOException {
        return switch (command.op()) {
            case "next" ->
                    Map.of(
                            "ids",
                            command.has("count")
                                    ? ids.next(command.number("count", 0))
                                    : List.of(ids.next()));
            case "try_next" -> Map.of("ids", ids.tryNext().stream().toList());
            case "buffered" -> Map.of("buffered", ids.buffered());
            case "discard_buffered" -> {
                ids.discardBuffered();
                yield Map.of();
            }
            case "fork" -> Map.of("unsupported", true);
            default -> throw new IOException("unknown command " + command.op() + " for texts");
        };
    }

    private static Map<String, Object> ids(long... ids) {
        List<String> texts = LongStream.of(ids).mapToObj(Long::toString).toList();
        return Map.of("ids", texts);
    }

    private static Map<String, Object> stats(ClientStats stats) {
        return Map.of(
                "requests", stats.requests(), "hedged", stats.hedged(), "failed", stats.failed());
    }

    private static Map<String, Object> nullable(String name, Object value) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put(name, value);
        return answer;
    }

    /** Returns an error as the kit reads it. */
    static Map<String, Object> error(SnowmintException e) {
        Map<String, Object> error = new LinkedHashMap<>();
        error.put("kind", name(e.kind()));
        error.put("temporary", e.isTemporary());
        error.put("server", e.server().orElse(null));
        error.put("status", e.status().isPresent() ? e.status().getAsInt() : null);
        error.put("retry_after_ms", e.retryAfter().map(Duration::toMillis).orElse(null));
        error.put("message", e.getMessage());
        return error;
    }

    /** Returns the name of a kind in SPEC.md: UnknownNamespace of UNKNOWN_NAMESPACE. */
    private static String name(ErrorKind kind) {
        return Arrays.stream(kind.name().split("_"))
                .map(word -> word.charAt(0) + word.substring(1).toLowerCase(Locale.ROOT))
                .collect(Collectors.joining());
    }
}
