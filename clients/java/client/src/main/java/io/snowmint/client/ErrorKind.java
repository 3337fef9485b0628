package io.snowmint.client;

/** The kind of a {@link SnowmintException}, which says what to do about it. */
public enum ErrorKind {
    /**
     * No server returned ids within the timeout. Retry later; check that a server runs and can be
     * reached.
     */
    UNAVAILABLE("check that a server runs and can be reached"),
    /** The token has used up its quota of ids. Retry later, or raise the quota. */
    OVER_QUOTA("retry later, or raise the quota of the token"),
    /** The server requires a token, or rejected the given one (401). Do not retry. */
    UNAUTHORIZED("set a valid token with token() or tokenFile()"),
    /** The token does not allow this namespace (403). Do not retry. */
    FORBIDDEN("use a token with the right `mint` for this namespace"),
    /**
     * The server does not have this namespace (404). Its text says how to create it. Do not retry.
     */
    UNKNOWN_NAMESPACE(""),
    /**
     * The client trusts no server's certificate, or the servers rejected the client's. Do not
     * retry.
     */
    INVALID_CERTIFICATE(
            "check the certificates of the servers, and caFile() and clientCertificate()"),
    /**
     * The ids of the server are of another store than those before, or than the store that was set.
     * Together they may have duplicates, so they were dropped. Correct the servers. Do not retry.
     */
    ANOTHER_STORE("its ids were dropped: correct the list of servers, or the store of that server"),
    /**
     * The server rejected the request for another reason, for instance because the ids of the
     * namespace have a text form. Do not retry.
     */
    REJECTED("do not retry"),
    /** The name of the namespace is invalid. */
    INVALID_NAMESPACE(""),
    /** The count is not 1 to 1,000,000. */
    INVALID_COUNT(""),
    /** The client cannot use an option. */
    INVALID_OPTION(""),
    /** The client was closed. */
    CLOSED("create a new client"),
    /**
     * The thread was interrupted while it waited for ids, or before. It is still interrupted, so a
     * retry fails too unless ids are in memory. Only the Java client has this kind.
     */
    INTERRUPTED("end the thread's work, or clear its interrupt status");

    private final String advice;

    ErrorKind(String advice) {
        this.advice = advice;
    }

    /** Returns what to do about it; empty if the detail says it all. */
    String advice() {
        return advice;
    }
}
