package io.snowmint.client;

/** Which requests a failure affects. */
enum Scope {
    /** Requests for every namespace. */
    SERVER,
    /** Requests for this namespace only. */
    NAMESPACE
}
