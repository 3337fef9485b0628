package io.snowmint.driver;

import io.snowmint.client.Order;
import io.snowmint.client.SnowmintClient;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** One line of the kit. */
record Command(Map<?, ?> members) {
    static Command read(String line) {
        return new Command((Map<?, ?>) Json.read(line));
    }

    long id() {
        return number("id", 0);
    }

    String op() {
        return text("op");
    }

    String text(String name) {
        return (String) members.get(name);
    }

    boolean has(String name) {
        return members.get(name) != null;
    }

    /** Returns whether the namespace has a text form. */
    boolean isForTexts() {
        return Boolean.TRUE.equals(members.get("texts"));
    }

    /** Returns a number. */
    int number(String name, int absent) {
        return members.get(name) instanceof Long number ? Math.toIntExact(number) : absent;
    }

    /** Opens a client with the options of the command. */
    SnowmintClient open() {
        SnowmintClient.Builder builder = SnowmintClient.builder();
        Map<?, ?> options = (Map<?, ?>) members.get("options");
        set(options, "servers", it -> strings(it).forEach(builder::server));
        set(
                options,
                "order",
                it -> builder.order(it.equals("as_listed") ? Order.AS_LISTED : Order.SHUFFLED));
        set(options, "token", it -> builder.token((String) it));
        set(options, "token_file", it -> builder.tokenFile(Path.of((String) it)));
        set(options, "ca_file", it -> builder.caFile(Path.of((String) it)));
        set(
                options,
                "client_certificate",
                it -> {
                    List<String> files = strings(it);
                    builder.clientCertificate(Path.of(files.get(0)), Path.of(files.get(1)));
                });
        set(options, "store", it -> builder.store((String) it));
        set(options, "timeout_ms", it -> builder.timeout(time(it)));
        set(options, "hedge_after_ms", it -> builder.hedgeAfter(time(it)));
        set(options, "max_age_ms", it -> builder.maxAge(time(it)));
        set(
                options,
                "namespace_max_age_ms",
                it ->
                        ((Map<?, ?>) it)
                                .forEach(
                                        (name, age) ->
                                                builder.namespaceMaxAge((String) name, time(age))));
        set(
                options,
                "buffer",
                it -> {
                    List<?> bounds = (List<?>) it;
                    builder.buffer(
                            ((Long) bounds.get(0)).intValue(), ((Long) bounds.get(1)).intValue());
                });
        return builder.build();
    }

    private static void set(Map<?, ?> options, String name, Consumer<Object> option) {
        if (options != null && options.containsKey(name)) {
            option.accept(options.get(name));
        }
    }

    private static List<String> strings(Object list) {
        return ((List<?>) list).stream().map(String.class::cast).toList();
    }

    /** Returns a time in ms; null is unlimited. */
    private static Duration time(Object ms) {
        return ms == null ? SnowmintClient.UNLIMITED : Duration.ofMillis((Long) ms);
    }
}
