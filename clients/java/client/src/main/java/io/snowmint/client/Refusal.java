package io.snowmint.client;

import java.net.http.HttpHeaders;
import java.net.http.HttpResponse.ResponseInfo;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;

/**
 * Reads why a server returned no ids. The type of its problem document decides, then the status.
 */
final class Refusal {
    /** The longest Retry-After that is honoured. */
    private static final Duration LONGEST_RETRY_AFTER = Duration.ofMinutes(1);

    private static final String TYPE = "urn:snowmint:";

    private Refusal() {}

    /**
     * Returns the failure.
     *
     * @param body the body; null if it did not arrive
     * @param token the token of the request, which the server may repeat; or null
     */
    static Failure read(String server, ResponseInfo head, byte[] body, String token) {
        Problem problem = Problem.read(body);
        int status = head.statusCode();
        String detail = problem.detail();
        if (token != null) {
            detail = detail.replace(token, "(token)");
        }
        String text = "status " + status;
        if (!detail.isEmpty()) {
            text += ": " + Texts.shown(detail, Texts.LONGEST_MESSAGE);
        }
        String name =
                problem.type().startsWith(TYPE) ? problem.type().substring(TYPE.length()) : "";
        Meaning meaning = Meaning.of(status, name);
        Duration after = meaning.retry() == Retry.ELSEWHERE ? retryAfter(head.headers()) : null;
        return new Failure(
                server, meaning.kind(), status, text, meaning.retry(), after, scope(status, name));
    }

    private static Scope scope(int status, String name) {
        // An unknown problem of a later server counts for the namespace: if it concerns the server,
        // each namespace finds out with its own request. The opposite mistake would stop namespaces
        // that work.
        boolean isOfNamespace =
                status >= 500 && !name.isEmpty() && !name.equals("too-many-clients");
        return isOfNamespace ? Scope.NAMESPACE : Scope.SERVER;
    }

    /**
     * Returns the server's Retry-After: a number of seconds, or a date, which proxies send. A date
     * counts from the Date of the answer, so the clocks need not agree.
     *
     * @return the time, at most 1 min; null without a valid one
     */
    static Duration retryAfter(HttpHeaders headers) {
        String text = headers.firstValue("Retry-After").orElse("").strip();
        if (!text.isEmpty() && text.chars().allMatch(sign -> sign >= '0' && sign <= '9')) {
            // 10 digits are more than a minute.
            return text.length() > 9 ? LONGEST_RETRY_AFTER : atMost(Long.parseLong(text));
        }
        Instant at = date(text);
        if (at == null) {
            return null;
        }
        Instant now = date(headers.firstValue("Date").orElse(""));
        long seconds = at.getEpochSecond() - (now == null ? Instant.now() : now).getEpochSecond();
        return atMost(Math.max(0, seconds));
    }

    private static Duration atMost(long seconds) {
        return Duration.ofSeconds(Math.min(seconds, LONGEST_RETRY_AFTER.toSeconds()));
    }

    private static Instant date(String text) {
        try {
            return ZonedDateTime.parse(text.strip(), DateTimeFormatter.RFC_1123_DATE_TIME)
                    .toInstant();
        } catch (DateTimeException e) {
            return null;
        }
    }

    /** What an error answer means. */
    private record Meaning(ErrorKind kind, Retry retry) {
        /**
         * Returns the meaning.
         *
         * @param name last part of the problem's type; empty without one
         */
        static Meaning of(int status, String name) {
            switch (name) {
                case "busy":
                    return new Meaning(ErrorKind.UNAVAILABLE, Retry.FEWER);
                case "layout-ended", "numbers-ended", "too-many-namespaces", "cross-site":
                    return new Meaning(ErrorKind.REJECTED, Retry.NEVER);
                default:
                    return of(status, name.equals("bad-count"), name.equals("unknown-namespace"));
            }
        }

        private static Meaning of(int status, boolean isCount, boolean isUnknown) {
            if (status == 400 && isCount) {
                // The count exceeds the token's quota.
                return new Meaning(ErrorKind.REJECTED, Retry.FEWER);
            }
            if (status == 404 && isUnknown) {
                return new Meaning(ErrorKind.UNKNOWN_NAMESPACE, Retry.NEVER);
            }
            return switch (status) {
                case 401 -> new Meaning(ErrorKind.UNAUTHORIZED, Retry.NEVER);
                case 403 -> new Meaning(ErrorKind.FORBIDDEN, Retry.NEVER);
                case 408 -> new Meaning(ErrorKind.UNAVAILABLE, Retry.ELSEWHERE);
                case 429 -> new Meaning(ErrorKind.OVER_QUOTA, Retry.ELSEWHERE);
                default ->
                        status >= 500 && status <= 599
                                ? new Meaning(ErrorKind.UNAVAILABLE, Retry.ELSEWHERE)
                                : new Meaning(ErrorKind.REJECTED, Retry.NEVER);
            };
        }
    }

    /** The type and detail of a problem document (RFC 9457), empty if it has none. */
    private record Problem(String type, String detail) {
        private static final Problem NONE = new Problem("", "");

        static Problem read(byte[] body) {
            if (body == null) {
                return NONE;
            }
            try {
                return read(new JsonReader(Answer.decoded(body)));
            } catch (InvalidAnswerException e) {
                // Without a document, the status alone is the error.
                return NONE;
            }
        }

        private static Problem read(JsonReader json) throws InvalidAnswerException {
            String type = "";
            String detail = "";
            json.enter('{');
            while (json.hasNext('}')) {
                switch (json.name()) {
                    case "type" -> type = json.string();
                    case "detail" -> detail = json.string();
                    default -> json.skip();
                }
            }
            json.end();
            return new Problem(type, detail);
        }
    }
}
