package io.snowmint.client;

import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpResponse.ResponseInfo;

/**
 * Reads an answer up to its limit, and remembers its head: the status counts even if the body does
 * not arrive.
 */
final class Reply implements BodyHandler<byte[]> {
    static final int OK = 200;

    /** Limits in bytes: an answer without its ids, one id, an error. */
    private static final long LONGEST_FRAME = 1024;

    private static final long LONGEST_ID = 128;
    private static final long LONGEST_ERROR = 16 * 1024;

    private final long limit;
    private final String id = RequestId.next();
    private final Runnable onForeign;
    private volatile ResponseInfo head;
    private volatile boolean isForeign;

    /**
     * Creates a reader of one answer.
     *
     * @param count number of ids requested
     * @param onForeign gives the request up if the answer belongs to another one, so that its
     *     connection is closed
     */
    Reply(long count, Runnable onForeign) {
        limit = count * LONGEST_ID + LONGEST_FRAME;
        this.onForeign = onForeign;
    }

    /** Returns the id of the request. */
    String id() {
        return id;
    }

    @Override
    public BodySubscriber<byte[]> apply(ResponseInfo info) {
        String answered = header(info, RequestId.HEADER);
        // A proxy may have removed it.
        if (answered != null && !answered.equals(id)) {
            isForeign = true;
            onForeign.run();
        }
        head = info;
        return new LimitedBody(info.statusCode() == OK ? limit : LONGEST_ERROR);
    }

    /** Returns the status and headers; null if none have arrived. */
    ResponseInfo head() {
        return head;
    }

    /** Returns whether the answer belongs to another request. */
    boolean isForeign() {
        return isForeign;
    }

    /** Returns whether the server refused the request. */
    boolean isRefusal() {
        ResponseInfo info = head;
        return info != null && info.statusCode() != OK;
    }

    /** Returns the maximum number of bytes of an answer with ids. */
    long limit() {
        return limit;
    }

    /** Returns the first value of a header; null without one, or if it is empty. */
    static String header(ResponseInfo head, String name) {
        return head.headers().firstValue(name).filter(value -> !value.isEmpty()).orElse(null);
    }
}
