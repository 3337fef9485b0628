package io.snowmint.client;

import java.time.Duration;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * Says why a call returned no ids, or why a client cannot use its options. It never contains a
 * token or a password.
 */
public final class SnowmintException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The kind. */
    private final ErrorKind kind;

    /** The namespace; null if an option is invalid. */
    private final String namespace;

    /** The URL of the server; null if unknown. */
    private final String server;

    /** The HTTP status; 0 if there was no answer. */
    private final int status;

    /** How long to wait; null if no server named a time. */
    private final Duration retryAfter;

    /** What happened. */
    private final String detail;

    SnowmintException(CallError error) {
        super(error.message(), error.cause());
        kind = error.kind();
        namespace = error.namespace();
        server = error.server();
        status = error.status();
        retryAfter = error.retryAfter();
        detail = error.detail();
    }

    /**
     * Returns the kind of the error.
     *
     * @return the kind
     */
    public ErrorKind kind() {
        return kind;
    }

    /**
     * Returns the name of the namespace, unless an option is invalid.
     *
     * @return the name
     */
    public Optional<String> namespace() {
        return Optional.ofNullable(namespace);
    }

    /**
     * Returns the URL of the server that rejected the request, or that failed last.
     *
     * @return the URL, or nothing if no server is known
     */
    public Optional<String> server() {
        return Optional.ofNullable(server);
    }

    /**
     * Returns the HTTP status of the server's answer.
     *
     * @return the status, or nothing if there was no answer
     */
    public OptionalInt status() {
        return status == 0 ? OptionalInt.empty() : OptionalInt.of(status);
    }

    /**
     * Returns how long to wait before a retry, at most 1 min.
     *
     * @return the time, or nothing if no server named one
     */
    public Optional<Duration> retryAfter() {
        return Optional.ofNullable(retryAfter);
    }

    /**
     * Returns what happened, without the advice of the message.
     *
     * @return the detail
     */
    public String detail() {
        return detail;
    }

    /**
     * Returns whether the same call may succeed later: the kind is {@link ErrorKind#UNAVAILABLE} or
     * {@link ErrorKind#OVER_QUOTA}.
     *
     * @return whether a retry makes sense
     */
    public boolean isTemporary() {
        return kind == ErrorKind.UNAVAILABLE || kind == ErrorKind.OVER_QUOTA;
    }
}
