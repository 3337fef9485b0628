package io.snowmint.client;

/** Whether and where to retry a failed request. */
enum Retry {
    /** Every server would answer the same. */
    NEVER,
    /** At another server, or later at the same one. */
    ELSEWHERE,
    /**
     * Like elsewhere, but the same error returns until somebody replaces a certificate, or corrects
     * a store.
     */
    AFTER_REPAIR,
    /** With fewer ids. */
    FEWER
}
