package io.snowmint.properties;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.snowmint.client.ErrorKind;
import io.snowmint.client.SnowmintClient;
import io.snowmint.client.SnowmintException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

class ClientPropertiesTest {
    @Test
    void theClientUsesTheProperties() throws Exception {
        try (FakeServer server = new FakeServer();
                SnowmintClient client =
                        ClientProperties.builder(
                                        Map.of(
                                                "servers", " " + server.url() + " ,",
                                                "token", "secret",
                                                "max-age.orders", "unlimited",
                                                "hedge-after", "unlimited",
                                                "timeout", "1m",
                                                "buffer-min", "7",
                                                "buffer-max", "7"))
                                .build()) {
            assertEquals("orders", server.namespaceOf(client.namespace("orders").next()));
            assertEquals(
                    List.of(new FakeServer.Request("orders", 8, "Bearer secret")),
                    server.requests());
        }
    }

    @Test
    void asListedBeginsWithTheFirstServer() throws Exception {
        try (FakeServer first = new FakeServer();
                FakeServer second = new FakeServer()) {
            for (int n = 0; n < 16; n++) {
                try (SnowmintClient client =
                        ClientProperties.builder(
                                        Map.of(
                                                "servers", first.url() + "," + second.url(),
                                                "order", "as-listed",
                                                "hedge-after", "unlimited",
                                                "buffer-max", "0"))
                                .build()) {
                    client.namespace("orders").next();
                }
            }
            assertTrue(first.count() >= 16, "requests to the first server: " + first.count());
        }
    }

    /** Values that the client itself rejects, so each option reaches it. */
    @ParameterizedTest
    @ValueSource(
            strings = {
                "timeout=2h",
                "hedge-after=0s",
                "max-age=0ms",
                "max-age.orders=0m",
                "buffer-min=1000001",
                "buffer-max=-1",
                "store=x",
                "token-file=/nowhere;token=x",
                "ca-file=/nowhere/ca.pem",
                "client-certificate=/nowhere/c.pem;client-key=/nowhere/k.pem"
            })
    void invalidOptionsAreRejectedByTheClient(String properties) {
        Map<String, String> all = new HashMap<>(Map.of("servers", "http://127.0.0.1:1"));
        for (String property : properties.split(";")) {
            String[] parts = property.split("=");
            all.put(parts[0], parts[1]);
        }
        SnowmintClient.Builder builder = ClientProperties.builder(all);
        SnowmintException error = assertThrows(SnowmintException.class, builder::build);
        assertEquals(ErrorKind.INVALID_OPTION, error.kind());
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "timeout | 5 | a duration such as 500ms",
                "hedge-after | off | a duration such as 500ms",
                "max-age.orders | forever | a duration such as 500ms",
                "order | random | shuffled or as-listed",
                "buffer-max | many | a number of ids"
            })
    void invalidValuesNameThePropertyAndWhatIsAllowed(String name, String value, String expected) {
        Exception error =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> ClientProperties.builder(Map.of(name, value)));
        assertTrue(
                error.getMessage()
                        .startsWith(
                                "invalid property "
                                        + name
                                        + " \""
                                        + value
                                        + "\": expected "
                                        + expected),
                error.getMessage());
    }

    @ParameterizedTest
    @ValueSource(strings = {"server", "max-ages", "client-certificate", "client-key"})
    void unknownAndIncompletePropertiesAreRejected(String name) {
        Exception error =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> ClientProperties.builder(Map.of(name, "x")));
        assertTrue(error.getMessage().contains(name), error.getMessage());
    }
}
