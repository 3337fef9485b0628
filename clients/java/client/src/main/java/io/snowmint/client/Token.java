package io.snowmint.client;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/** Authorizes a client. A token is fixed, or read from a file for each request. */
final class Token {
    /** Limit of the file in bytes, so that a wrong one, such as a device, does not fill memory. */
    private static final int LONGEST_FILE = 64 * 1024;

    private final String fixed;
    private final Path file;

    /**
     * Held during a read of the file: if the file system hangs, one thread waits for it, not one
     * for each request.
     */
    private final Semaphore reading = new Semaphore(1);

    private Token(String fixed, Path file) {
        this.fixed = fixed;
        this.file = file;
    }

    static Token of(Options options) {
        return new Token(options.token == null ? null : options.token.strip(), options.tokenFile);
    }

    /** Returns whether a header can contain a token. */
    static boolean isValid(String text) {
        return !text.isEmpty() && text.chars().allMatch(sign -> sign > ' ' && sign <= '~');
    }

    /** Returns whether {@link #read} reads a file. */
    boolean isOfFile() {
        return file != null;
    }

    /** Returns what is wrong if a read takes too long. */
    String late() {
        return "token file " + file + ": not read in time";
    }

    /**
     * Returns the token; null without one.
     *
     * @param within how long to wait for another read of the file, in ns
     */
    String read(long within) throws IOException, InterruptedException {
        if (file == null) {
            return fixed;
        }
        if (!reading.tryAcquire(within, TimeUnit.NANOSECONDS)) {
            throw new IOException(late());
        }
        String text;
        try {
            text = content().strip();
        } catch (IOException e) {
            throw new IOException("token file " + file + ": " + Texts.reason(e), e);
        } finally {
            reading.release();
        }
        if (!isValid(text)) {
            throw new IOException(
                    "token file " + file + ": expected one token of visible ASCII characters");
        }
        return text;
    }

    private String content() throws IOException {
        byte[] content;
        try (InputStream input = Files.newInputStream(file)) {
            content = input.readNBytes(LONGEST_FILE + 1);
        }
        if (content.length > LONGEST_FILE) {
            throw new IOException("expected at most " + LONGEST_FILE + " bytes");
        }
        return new String(content, StandardCharsets.UTF_8);
    }
}
