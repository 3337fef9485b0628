package io.snowmint.client;

import java.util.List;
import java.util.Optional;

/**
 * The ids of one namespace with a text form, such as {@code ORD-000017}, from {@link
 * SnowmintClient#texts}. Any number of threads may use it, virtual ones too.
 */
public interface TextIdSource {
    /**
     * Returns the next id as {@link IdSource#next()} does.
     *
     * @return the id
     * @throws SnowmintException as for {@link IdSource#next()}
     */
    String next();

    /**
     * Returns several ids as {@link IdSource#next(int)} does.
     *
     * @param count number of ids, 1 to 1,000,000
     * @return the ids, a list that cannot be changed
     * @throws SnowmintException as for {@link IdSource#next(int)}
     */
    List<String> next(int count);

    /**
     * Returns the next id if one is in memory, as {@link IdSource#tryNext} does.
     *
     * @return the id, or nothing
     * @throws SnowmintException if the client is closed or the name of the namespace is invalid
     */
    Optional<String> tryNext();

    /**
     * Returns the number of ids in memory.
     *
     * @return the number of ids
     */
    int buffered();

    /** Drops the ids in memory and those on their way, as {@link IdSource#discardBuffered} does. */
    void discardBuffered();

    /**
     * Returns the name of the namespace.
     *
     * @return the name
     */
    String namespace();
}
