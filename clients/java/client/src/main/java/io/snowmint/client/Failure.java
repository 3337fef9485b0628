package io.snowmint.client;

import java.time.Duration;

/**
 * One failed request.
 *
 * @param kind what the caller gets if no later request succeeds
 * @param status 0 if there was no answer
 * @param after the server's Retry-After, at most 1 min; null without one
 */
record Failure(
        String server,
        ErrorKind kind,
        int status,
        String detail,
        Retry retry,
        Duration after,
        Scope scope) {

    static Failure of(String server, ErrorKind kind, String detail, Retry retry) {
        return new Failure(server, kind, 0, detail, retry, null, Scope.SERVER);
    }

    static Failure unavailable(String server, String detail) {
        return of(server, ErrorKind.UNAVAILABLE, detail, Retry.ELSEWHERE);
    }

    Failure withAfter(Duration time) {
        return new Failure(server, kind, status, detail, retry, time, scope);
    }

    /** Returns the failure without the token, which a server or proxy may repeat anywhere. */
    Failure without(String token) {
        String cleaned = detail.replace(token, "(token)");
        return new Failure(server, kind, status, cleaned, retry, after, scope);
    }

    /** Returns the failure as the error of a call. */
    CallError error(String namespace) {
        return new CallError(kind, namespace, server, status, after, server + ": " + detail, null);
    }
}
