package io.snowmint.client;

import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The options of a client, and what is valid. Nothing prints them, because of the token. */
final class Options {
    private static final Duration MILLISECOND = Duration.ofMillis(1);

    final List<String> servers = new ArrayList<>();
    Order order = Order.SHUFFLED;
    String token;
    Path tokenFile;
    Path caFile;
    Path certificate;
    Path key;
    String store;
    Duration timeout = Duration.ofSeconds(5);
    Duration hedgeAfter = Duration.ofMillis(50);
    Duration maxAge = Duration.ofSeconds(1);
    final Map<String, Duration> namespaceMaxAge = new HashMap<>();
    int bufferMin;
    int bufferMax = Target.MAX_REQUEST;

    /** Checks all options but the files. */
    void check() {
        if (servers.isEmpty()) {
            throw invalid("no server: name one with server(), such as http://localhost:8080");
        }
        servers.forEach(Options::serverUri);
        if (token != null && tokenFile != null) {
            throw invalid("invalid token: expected either token() or tokenFile(), not both");
        }
        if (token != null && !Token.isValid(token.strip())) {
            throw invalid("invalid token: expected visible ASCII characters");
        }
        if (store != null && !store.matches("smst_[0-9a-z]{26}")) {
            throw invalid(
                    "store",
                    quoted(store),
                    "smst_ and 26 digits or small letters, as `snowmint doctor` shows it");
        }
        if (isOutside(timeout, MILLISECOND, Duration.ofHours(1))) {
            throw invalid("timeout", Texts.duration(timeout), "1 ms to 1 h");
        }
        if (hedgeAfter.isNegative() || hedgeAfter.isZero()) {
            throw invalid("hedgeAfter", Texts.duration(hedgeAfter), "more than 0");
        }
        if (maxAge.compareTo(MILLISECOND) < 0) {
            throw invalid("maxAge", Texts.duration(maxAge), "at least 1 ms");
        }
        namespaceMaxAge.forEach(
                (name, age) -> {
                    if (age.compareTo(MILLISECOND) < 0) {
                        throw invalid(
                                "namespaceMaxAge of " + quoted(name),
                                Texts.duration(age),
                                "at least 1 ms");
                    }
                });
        if (bufferMin < 0 || bufferMin > bufferMax || bufferMax > Target.MAX_REQUEST) {
            throw invalid(
                    "buffer",
                    bufferMin + " to " + bufferMax,
                    "0 <= min <= max <= " + Target.MAX_REQUEST);
        }
    }

    /** Returns whether a server is reached over TLS. */
    boolean usesTls() {
        return servers.stream().anyMatch(it -> "https".equalsIgnoreCase(serverUri(it).getScheme()));
    }

    private static boolean isOutside(Duration time, Duration least, Duration most) {
        return time.compareTo(least) < 0 || time.compareTo(most) > 0;
    }

    /** Returns the URL of a server without a slash at its end. */
    static URI serverUri(String text) {
        URI uri;
        try {
            uri = new URI(text.replaceFirst("/+$", ""));
        } catch (URISyntaxException e) {
            // The text may contain a password.
            throw invalid("server", "URL", "http://HOST:PORT or https://HOST:PORT");
        }
        if (uri.getRawAuthority() != null && uri.getRawAuthority().contains("@")) {
            throw invalid("server", "URL", "no user and password: set a token with token()");
        }
        boolean isHttp = "http".equalsIgnoreCase(uri.getScheme());
        boolean isHttps = "https".equalsIgnoreCase(uri.getScheme());
        if (!isHttp && !isHttps
                || uri.getHost() == null
                || uri.getPort() == 0
                || uri.getPort() > 65_535) {
            throw invalid("server", shown(text), "http://HOST:PORT or https://HOST:PORT");
        }
        if (uri.getRawQuery() != null || uri.getRawFragment() != null) {
            throw invalid("server", shown(text), "no query");
        }
        return uri;
    }

    /** Returns a URL, unless a part of it may be a password. */
    private static String shown(String url) {
        return url.chars().anyMatch(sign -> "@?#".indexOf(sign) >= 0) ? "URL" : quoted(url);
    }

    private static String quoted(String text) {
        return '"' + Texts.shown(text, Texts.LONGEST_NAME) + '"';
    }

    static SnowmintException invalid(String option, String value, String expected) {
        return invalid("invalid " + option + " " + value + ": expected " + expected);
    }

    static SnowmintException invalid(String detail) {
        return new CallError(ErrorKind.INVALID_OPTION, null, detail).exception();
    }

    /** Returns the error of a file that cannot be used. */
    static SnowmintException invalidFile(String option, Path file, String why, Throwable cause) {
        String detail = "cannot use " + option + " " + file + ": " + why;
        return new CallError(ErrorKind.INVALID_OPTION, null, null, 0, null, detail, cause)
                .exception();
    }
}
