package io.snowmint.client;

/** Which server gets a request first. */
public enum Order {
    /** A random one for each client, so that clients share the load. */
    SHUFFLED,
    /** The first in the list while it works, then the next; for servers at different distances. */
    AS_LISTED
}
