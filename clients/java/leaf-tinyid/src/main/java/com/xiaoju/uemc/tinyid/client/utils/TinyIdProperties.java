package com.xiaoju.uemc.tinyid.client.utils;

import io.snowmint.client.SnowmintClient;

import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import java.util.Properties;

/** The file {@code tinyid_client.properties}. */
final class TinyIdProperties {
    private static final String FILE = "tinyid_client.properties";

    private final Properties properties;

    TinyIdProperties(Properties properties) {
        this.properties = properties;
    }

    /** Reads the file of the class path: that of the program, or of this library. */
    static TinyIdProperties load() {
        ClassLoader ofProgram = Thread.currentThread().getContextClassLoader();
        ClassLoader loader = ofProgram == null ? TinyId.class.getClassLoader() : ofProgram;
        Properties properties = new Properties();
        try (InputStream input = loader.getResourceAsStream(FILE)) {
            if (input == null) {
                throw new IllegalArgumentException("no " + FILE + " in the class path: add one");
            }
            properties.load(input);
        } catch (IOException e) {
            throw new IllegalArgumentException("cannot read " + FILE + ": " + e.getMessage(), e);
        }
        return new TinyIdProperties(properties);
    }

    /** Returns a client with these options. Numbers do not age, so memory keeps them. */
    SnowmintClient client() {
        SnowmintClient.Builder builder = SnowmintClient.builder().maxAge(SnowmintClient.UNLIMITED);
        String servers = value("tinyid.server");
        if (servers.isEmpty()) {
            throw new IllegalArgumentException(
                    "no tinyid.server in " + FILE + ": expected HOST:PORT, several with commas");
        }
        for (String server : servers.split(",")) {
            String address = server.strip();
            builder.server(address.contains("://") ? address : "http://" + address);
        }
        if (!value("tinyid.token").isEmpty()) {
            builder.token(value("tinyid.token"));
        }
        if (!value("tinyid.readTimeout").isEmpty()) {
            builder.timeout(Duration.ofMillis(milliseconds("tinyid.readTimeout")));
        }
        return builder.build();
    }

    private long milliseconds(String name) {
        try {
            return Long.parseLong(value(name));
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException(
                    "invalid " + name + " \"" + value(name) + "\": expected a number of ms", e);
        }
    }

    private String value(String name) {
        return properties.getProperty(name, "").strip();
    }
}
