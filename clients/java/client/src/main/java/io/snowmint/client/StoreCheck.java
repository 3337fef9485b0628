package io.snowmint.client;

import java.util.Optional;

/**
 * Rejects ids of another store. The first store that an answer names is the client's, unless one
 * was set.
 */
final class StoreCheck {
    private static final int OK = 200;

    private String store;

    /** The server that named the store first; null if an option did. */
    private String storeOf;

    /**
     * Creates a check.
     *
     * @param store the store that was set, or null
     */
    StoreCheck(String store) {
        this.store = store;
    }

    /**
     * Returns why ids must not be used; null if they may be.
     *
     * @param named the store that the answer names, or null
     */
    synchronized Failure check(String server, String named) {
        if (store == null) {
            if (named != null) {
                store = named;
                storeOf = server;
            }
            return null;
        }
        // Without a name, it is a server behind a proxy that removes headers.
        if (store.equals(named) || named == null && storeOf != null) {
            return null;
        }
        String own =
                storeOf == null
                        ? store + ", as set with store()"
                        : store + ", the store of " + storeOf;
        String detail =
                named == null
                        ? "the answer names no store: expected " + own
                        : "the ids are of another store, "
                                + Texts.shown(named, Texts.LONGEST_NAME)
                                + ": expected "
                                + own;
        return new Failure(
                server,
                ErrorKind.ANOTHER_STORE,
                OK,
                detail,
                Retry.AFTER_REPAIR,
                null,
                Scope.SERVER);
    }

    synchronized Optional<String> store() {
        return Optional.ofNullable(store);
    }
}
