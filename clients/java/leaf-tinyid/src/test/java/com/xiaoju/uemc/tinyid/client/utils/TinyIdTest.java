package com.xiaoju.uemc.tinyid.client.utils;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.xiaoju.uemc.tinyid.base.exception.TinyIdSysException;

import io.snowmint.client.ErrorKind;
import io.snowmint.client.SnowmintClient;
import io.snowmint.client.SnowmintException;
import io.snowmint.leaf.FakeServer;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;

class TinyIdTest {
    private static TinyIdProperties properties(String... entries) {
        Properties properties = new Properties();
        for (String entry : entries) {
            String[] parts = entry.split("=", 2);
            properties.setProperty(parts[0], parts[1]);
        }
        return new TinyIdProperties(properties);
    }

    /** Goal: the calls of TinyID's client work with its file, found as it finds it. */
    @Test
    void idsOfTheServersInTheFile(@TempDir Path folder) throws IOException {
        try (FakeServer server = new FakeServer()) {
            Files.writeString(
                    folder.resolve("tinyid_client.properties"),
                    "tinyid.server=%s\ntinyid.token=abc\ntinyid.readTimeout=60000\n"
                            .formatted(server.url().replace("http://", "")));
            // Without the file, each call says so; with it, the next one works.
            for (int i = 0; i < 2; i++) {
                IllegalArgumentException e =
                        assertThrows(IllegalArgumentException.class, () -> TinyId.nextId("order"));
                assertTrue(e.getMessage().contains("no tinyid_client.properties"));
            }
            long first;
            Thread thread = Thread.currentThread();
            ClassLoader before = thread.getContextClassLoader();
            try (URLClassLoader loader =
                    new URLClassLoader(new URL[] {folder.toUri().toURL()}, before)) {
                thread.setContextClassLoader(loader);
                first = TinyId.nextId("order");
            } finally {
                thread.setContextClassLoader(before);
            }
            assertEquals(List.of(first + 1, first + 2, first + 3), TinyId.nextId("order", 3));
            assertEquals(List.of(first + 4), TinyId.nextId("order", null));
            assertEquals(List.of(), TinyId.nextId("order", 0));
            assertThrows(IllegalArgumentException.class, () -> TinyId.nextId(null));
            TinyIdSysException failed =
                    assertThrows(TinyIdSysException.class, () -> TinyId.nextId("404"));
            SnowmintException cause = (SnowmintException) failed.getCause();
            assertEquals(ErrorKind.UNKNOWN_NAMESPACE, cause.kind());
        }
    }

    @Test
    void aBrokenFileSaysWhatIsMissing() {
        expect("no tinyid.server", properties("tinyid.token=a"));
        expect("no tinyid.server", properties("tinyid.server= "));
        expect(
                "invalid tinyid.readTimeout \"5s\"",
                properties("tinyid.server=h:1", "tinyid.readTimeout=5s"));
    }

    private static void expect(String says, TinyIdProperties properties) {
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, properties::client);
        assertTrue(e.getMessage().contains(says), e.getMessage());
    }

    @Test
    void severalServersAndUrls() {
        try (SnowmintClient client =
                properties("tinyid.server=a:1, https://b:2/base ,c:3").client()) {
            assertEquals(0, client.stats().requests());
        }
    }
}
