package io.snowmint.client;

import java.util.OptionalLong;

/**
 * The ids of one namespace, from {@link SnowmintClient#namespace}. Any number of threads may use
 * it, virtual ones too. All handles of a namespace share their ids.
 */
public interface IdSource {
    /**
     * Returns the next id, from 0 to 2<sup>63</sup> - 1.
     *
     * <p>It takes nanoseconds while ids are in memory. Otherwise it waits for a server, up to
     * {@link SnowmintClient.Builder#timeout}.
     *
     * @return the id
     * @throws SnowmintException if no server returned ids; {@link SnowmintException#isTemporary}
     *     says whether to retry. If the thread is interrupted while it waits, the kind is {@link
     *     ErrorKind#INTERRUPTED}, and the thread stays interrupted
     */
    long next();

    /**
     * Returns several ids: first those in memory, the rest from the servers.
     *
     * @param count number of ids, 1 to 1,000,000
     * @return the ids
     * @throws SnowmintException as for {@link #next()}, and of the kind {@link
     *     ErrorKind#INVALID_COUNT}. Ids drawn before an error are lost
     */
    long[] next(int count);

    /**
     * Returns the next id if one is in memory. It never waits: if there is none, it starts a
     * request in the background. With a buffer of 0 it never returns an id.
     *
     * @return the id, or nothing
     * @throws SnowmintException if the client is closed or the name of the namespace is invalid
     */
    OptionalLong tryNext();

    /**
     * Returns the number of ids in memory.
     *
     * @return the number of ids
     */
    int buffered();

    /**
     * Drops the ids in memory and those on their way. Nothing is requested until the next call.
     *
     * <p>Call it before a snapshot of the machine or process that may be started more than once:
     * otherwise each copy returns the same ids. No other call may be in progress.
     */
    void discardBuffered();

    /**
     * Returns the name of the namespace.
     *
     * @return the name
     */
    String namespace();
}
