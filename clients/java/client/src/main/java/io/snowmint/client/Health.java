package io.snowmint.client;

/** The state of a server, or of a namespace at a server. Times are of the monotonic clock. */
final class Health {
    int failures;

    /** Until then, other servers are tried first. */
    long leftOutUntil;

    /** Until then, the server gets no requests (Retry-After). */
    long notBefore;

    static Health[] of(int servers) {
        Health[] all = new Health[servers];
        for (int i = 0; i < servers; i++) {
            all[i] = new Health();
        }
        return all;
    }

    void recover() {
        failures = 0;
        leftOutUntil = 0;
        notBefore = 0;
    }
}
