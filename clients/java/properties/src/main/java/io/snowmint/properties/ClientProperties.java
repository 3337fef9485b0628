package io.snowmint.properties;

import io.snowmint.client.Order;
import io.snowmint.client.SnowmintClient;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Builds clients from properties of text.
 *
 * <table>
 * <caption>The properties</caption>
 * <tr><th>name</th><th>value</th></tr>
 * <tr><td>{@code servers}</td><td>URLs, separated by commas</td></tr>
 * <tr><td>{@code order}</td><td>{@code shuffled} or {@code as-listed}</td></tr>
 * <tr><td>{@code token}, {@code token-file}</td><td>the token, or the file that has it</td></tr>
 * <tr><td>{@code ca-file}</td><td>a PEM file</td></tr>
 * <tr><td>{@code client-certificate}, {@code client-key}</td><td>PEM files, both or none</td></tr>
 * <tr><td>{@code store}</td><td>identity of the store</td></tr>
 * <tr><td>{@code timeout}</td><td>a duration such as {@code 500ms}, {@code 5s}, {@code 2m} or {@code 1h}</td></tr>
 * <tr><td>{@code hedge-after}</td><td>a duration, or {@code unlimited} to turn it off</td></tr>
 * <tr><td>{@code max-age}, {@code max-age.NAMESPACE}</td><td>a duration, or {@code unlimited}</td></tr>
 * <tr><td>{@code buffer-min}, {@code buffer-max}</td><td>numbers of ids</td></tr>
 * </table>
 *
 * <p>Properties that are absent have the defaults of {@link SnowmintClient.Builder}.
 */
public final class ClientProperties {
    private static final String NAMESPACE_MAX_AGE = "max-age.";
    private static final Pattern DURATION = Pattern.compile("(\\d{1,15})\\s*(ms|s|m|h)");
    private static final int DEFAULT_BUFFER_MIN = 0;
    private static final int DEFAULT_BUFFER_MAX = 1_000_000;

    private final Map<String, String> properties;
    private final SnowmintClient.Builder builder = SnowmintClient.builder();

    private ClientProperties(Map<String, String> properties) {
        this.properties = new TreeMap<>(properties);
    }

    /**
     * Returns a builder with the options that the properties name.
     *
     * @param properties the properties of the table above, and no others
     * @return the builder
     * @throws IllegalArgumentException if a name is unknown or a value is invalid
     */
    public static SnowmintClient.Builder builder(Map<String, String> properties) {
        return new ClientProperties(properties).apply();
    }

    private SnowmintClient.Builder apply() {
        String certificate = properties.get("client-certificate");
        String key = properties.get("client-key");
        if ((certificate == null) != (key == null)) {
            throw new IllegalArgumentException(
                    "properties client-certificate and client-key: expected both or none");
        }
        if (certificate != null) {
            builder.clientCertificate(Path.of(certificate), Path.of(key));
        }
        if (properties.containsKey("buffer-min") || properties.containsKey("buffer-max")) {
            builder.buffer(
                    number("buffer-min", DEFAULT_BUFFER_MIN),
                    number("buffer-max", DEFAULT_BUFFER_MAX));
        }
        properties.forEach(this::apply);
        return builder;
    }

    private void apply(String name, String value) {
        switch (name) {
            case "servers" -> builder.servers(list(value));
            case "order" -> builder.order(order(value));
            case "token" -> builder.token(value);
            case "token-file" -> builder.tokenFile(Path.of(value));
            case "ca-file" -> builder.caFile(Path.of(value));
            case "store" -> builder.store(value);
            case "timeout" -> builder.timeout(duration(name, value));
            case "hedge-after" -> builder.hedgeAfter(limit(name, value));
            case "max-age" -> builder.maxAge(limit(name, value));
            case "client-certificate", "client-key", "buffer-min", "buffer-max" -> {
                // Pairs, which apply() has set.
            }
            default -> {
                if (!name.startsWith(NAMESPACE_MAX_AGE)) {
                    throw new IllegalArgumentException(
                            "unknown property \"" + name + "\": see " + ClientProperties.class);
                }
                String namespace = name.substring(NAMESPACE_MAX_AGE.length());
                builder.namespaceMaxAge(namespace, limit(name, value));
            }
        }
    }

    private static List<String> list(String value) {
        List<String> parts = new ArrayList<>(Arrays.asList(value.split(",")));
        parts.replaceAll(String::strip);
        parts.removeIf(String::isEmpty);
        return parts;
    }

    private static Order order(String value) {
        return switch (value.strip().toLowerCase(Locale.ROOT).replace('_', '-')) {
            case "shuffled" -> Order.SHUFFLED;
            case "as-listed" -> Order.AS_LISTED;
            default -> throw invalid("order", value, "shuffled or as-listed");
        };
    }

    private int number(String name, int absent) {
        String value = properties.get(name);
        try {
            return value == null ? absent : Integer.parseInt(value.strip());
        } catch (NumberFormatException e) {
            throw invalid(name, value, "a number of ids");
        }
    }

    private static Duration limit(String name, String value) {
        return value.strip().equalsIgnoreCase("unlimited")
                ? SnowmintClient.UNLIMITED
                : duration(name, value);
    }

    private static Duration duration(String name, String value) {
        Matcher matcher = DURATION.matcher(value.strip());
        if (!matcher.matches()) {
            throw invalid(name, value, "a duration such as 500ms, 5s, 2m or 1h");
        }
        long amount = Long.parseLong(matcher.group(1));
        return switch (matcher.group(2)) {
            case "ms" -> Duration.ofMillis(amount);
            case "s" -> Duration.ofSeconds(amount);
            case "m" -> Duration.ofMinutes(amount);
            default -> Duration.ofHours(amount);
        };
    }

    private static IllegalArgumentException invalid(String name, String value, String expected) {
        return new IllegalArgumentException(
                "invalid property " + name + " \"" + value + "\": expected " + expected);
    }
}
