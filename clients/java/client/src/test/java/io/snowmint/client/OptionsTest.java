package io.snowmint.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.function.UnaryOperator;

class OptionsTest {
    private static SnowmintException invalid(SnowmintClient.Builder builder) {
        SnowmintException e = assertThrows(SnowmintException.class, builder::build);
        assertEquals(ErrorKind.INVALID_OPTION, e.kind());
        assertFalse(e.toString().contains("hunter2"), e.toString());
        return e;
    }

    private static void expect(String says, UnaryOperator<SnowmintClient.Builder> option) {
        SnowmintException e =
                invalid(option.apply(SnowmintClient.builder().server("http://localhost:1")));
        assertTrue(e.getMessage().contains(says), e.getMessage());
    }

    /** Goal: an invalid option is an error that names it, without a token or a password. */
    @Test
    void invalidOptions() {
        assertTrue(invalid(SnowmintClient.builder()).getMessage().contains("server()"));
        expect("either token() or tokenFile()", it -> it.token("hunter2").tokenFile(Path.of("f")));
        expect("expected visible ASCII", it -> it.token("hunter2 x"));
        expect("expected visible ASCII", it -> it.token(" "));
        expect("invalid store \"prod\": expected smst_", it -> it.store("prod"));
        expect("smst_", it -> it.store("smst_" + "A".repeat(26)));
        expect("invalid timeout 3601 s: expected 1 ms to 1 h", it -> it.timeout(seconds(3601)));
        expect("invalid timeout 0.5 ms", it -> it.timeout(Duration.ofNanos(500_000)));
        expect("invalid timeout unlimited", it -> it.timeout(SnowmintClient.UNLIMITED));
        expect("invalid hedgeAfter 0 ms: expected more than 0", it -> it.hedgeAfter(seconds(0)));
        expect("invalid maxAge -1 s: expected at least 1 ms", it -> it.maxAge(seconds(-1)));
        expect("namespaceMaxAge of \"a\" 0 ms", it -> it.namespaceMaxAge("a", seconds(0)));
        expect("invalid buffer 5 to 4: expected 0 <= min", it -> it.buffer(5, 4));
        expect("invalid buffer -1 to 4", it -> it.buffer(-1, 4));
        expect("<= 1000000", it -> it.buffer(0, 1_000_001));
    }

    private static Duration seconds(long seconds) {
        return Duration.ofSeconds(seconds);
    }

    @Test
    void invalidServers() {
        for (String server :
                List.of(
                        "localhost:8080",
                        "redis://h:1",
                        "http://",
                        "http://:1",
                        "",
                        "http://h:0",
                        "http://h:65536",
                        "http://h:x")) {
            expect("expected http://HOST:PORT", it -> it.server(server));
        }
        expect("expected no query", it -> it.server("http://h:1/?a=b"));
        expect("expected no query", it -> it.server("http://h:1/#a"));
        expect("expected no user", it -> it.server("http://u:hunter2@h:1"));
        expect("expected no user", it -> it.server("http://u:hunter2@h:x"));
        expect("expected http", it -> it.server("http://u:hunter2 @h"));
        expect("expected http", it -> it.server("http:u:hunter2@h"));
        expect("expected http", it -> it.server("http:///u:hunter2@h"));
        expect("expected http", it -> it.server("h:1?password=hunter2"));
        expect("expected no query", it -> it.server("http://h:1/?password=hunter2"));
        expect("expected no query", it -> it.server("http://h:1/#hunter2"));
    }

    @Test
    void validServers() {
        for (String server :
                List.of("http://localhost:8080", "https://[::1]:8080/", "HTTP://10.0.0.1/base//")) {
            assertEquals(server.replaceFirst("/+$", ""), Options.serverUri(server).toString());
        }
    }

    @Test
    void filesThatCannotBeUsed(@TempDir Path folder) throws IOException {
        Path absent = folder.resolve("absent.pem");
        Path empty = Files.createFile(folder.resolve("empty.pem"));
        expect("cannot use caFile " + absent, it -> it.caFile(absent));
        expect("the file has no certificate", it -> it.caFile(empty));
        expect("cannot use clientCertificate", it -> it.clientCertificate(empty, empty));
        expect("absent.pem", it -> it.clientCertificate(absent, empty));
    }

    @Test
    void timesAreShownInTheirUnit() {
        assertEquals("1.5 s", Texts.duration(Duration.ofMillis(1500)));
        assertEquals("3600 s", Texts.duration(Duration.ofHours(1)));
        assertEquals("50 ms", Texts.duration(Duration.ofMillis(50)));
        assertEquals("0.000001 ms", Texts.duration(Duration.ofNanos(1)));
        assertEquals("unlimited", Texts.duration(SnowmintClient.UNLIMITED));
        assertEquals(Long.MAX_VALUE, Texts.nanos(SnowmintClient.UNLIMITED));
        assertEquals(1_000_000, Texts.nanos(Duration.ofMillis(1)));
    }
}
