package io.snowmint.client;

import java.time.Duration;

/**
 * Why a call fails. Each caller makes an exception of it, so that each has its own stack trace.
 *
 * @param namespace null for an invalid option
 * @param server null if unknown
 * @param status 0 if there was no answer
 * @param retryAfter null if no server named a time
 * @param cause null if there is none
 */
record CallError(
        ErrorKind kind,
        String namespace,
        String server,
        int status,
        Duration retryAfter,
        String detail,
        Throwable cause) {

    CallError(ErrorKind kind, String namespace, String detail) {
        this(kind, namespace, null, 0, null, detail, null);
    }

    static CallError invalidNamespace(String name) {
        return new CallError(
                ErrorKind.INVALID_NAMESPACE,
                name,
                "invalid namespace name \""
                        + Texts.shown(name, Texts.LONGEST_NAME)
                        + "\": expected 1 to 64 letters, digits, '.', '_', '-' or ':'");
    }

    static CallError invalidCount(String namespace, int count) {
        return new CallError(
                ErrorKind.INVALID_COUNT,
                namespace,
                "invalid count " + count + ": expected 1 to " + Target.MAX_REQUEST);
    }

    static CallError closed(String namespace) {
        return new CallError(ErrorKind.CLOSED, namespace, "the client is closed");
    }

    /** Returns the error of a call whose thread was interrupted. */
    static CallError interrupted(String namespace, InterruptedException cause) {
        String detail = "no ids of namespace \"" + namespace + "\": the thread was interrupted";
        return new CallError(ErrorKind.INTERRUPTED, namespace, null, 0, null, detail, cause);
    }

    /** Returns the error of a call that got no ids in time. */
    static CallError timedOut(String namespace, Duration timeout, Failure last) {
        CallError error =
                last == null
                        ? new CallError(ErrorKind.UNAVAILABLE, namespace, "no server has answered")
                        : last.error(namespace);
        return error.withDetail(
                "no ids of namespace \""
                        + namespace
                        + "\" within "
                        + Texts.duration(timeout)
                        + ": "
                        + error.detail);
    }

    /** Returns the error of a call for which no thread can be started. */
    static CallError noThread(String namespace, Throwable cause) {
        String detail = "cannot start a thread: " + Texts.reason(cause);
        return new CallError(ErrorKind.UNAVAILABLE, namespace, null, 0, null, detail, cause);
    }

    /** Returns the error of the calls that waited when the client failed. */
    static CallError internal(String namespace, Throwable cause) {
        String detail = "the client failed: " + cause;
        return new CallError(ErrorKind.UNAVAILABLE, namespace, null, 0, null, detail, cause);
    }

    private CallError withDetail(String other) {
        return new CallError(kind, namespace, server, status, retryAfter, other, cause);
    }

    SnowmintException exception() {
        return new SnowmintException(this);
    }

    String message() {
        return kind.advice().isEmpty() ? detail : detail + "; " + kind.advice();
    }
}
