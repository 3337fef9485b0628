package io.snowmint.client;

import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Makes texts that no other request has, of this process or another one: a proxy that sends an
 * answer twice would otherwise answer the next request with it.
 */
final class RequestId {
    static final String HEADER = "Snowmint-Request";

    private static final String PROCESS = HexFormat.of().toHexDigits(new SecureRandom().nextLong());
    private static final AtomicLong SENT = new AtomicLong();

    private RequestId() {}

    static String next() {
        return PROCESS + "-" + SENT.incrementAndGet();
    }
}
