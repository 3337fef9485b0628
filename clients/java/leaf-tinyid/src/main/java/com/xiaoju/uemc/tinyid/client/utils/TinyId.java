package com.xiaoju.uemc.tinyid.client.utils;

import com.xiaoju.uemc.tinyid.base.exception.TinyIdSysException;

import io.snowmint.client.IdSource;
import io.snowmint.client.SnowmintClient;
import io.snowmint.client.SnowmintException;

import java.util.ArrayList;
import java.util.List;

/**
 * TinyID's calls. They read the file {@code tinyid_client.properties} of the class path with the
 * first call. A type is the name of a namespace.
 */
public final class TinyId {
    private static final int LARGEST_CALL = 1_000_000;

    /** The client of the whole program, created by the first call that finds a valid file. */
    private static volatile SnowmintClient shared;

    private TinyId() {}

    private static SnowmintClient client() {
        SnowmintClient known = shared;
        return known != null ? known : create();
    }

    private static synchronized SnowmintClient create() {
        if (shared == null) {
            shared = TinyIdProperties.load().client();
        }
        return shared;
    }

    /**
     * Returns the next id.
     *
     * @param bizType name of the namespace
     * @return the id
     * @throws IllegalArgumentException if the type is null, or the file is missing or invalid
     * @throws TinyIdSysException if no server returned an id
     */
    public static Long nextId(String bizType) {
        try {
            return source(bizType).next();
        } catch (SnowmintException e) {
            throw new TinyIdSysException(e.getMessage(), e);
        }
    }

    /**
     * Returns several ids.
     *
     * @param bizType name of the namespace
     * @param batchSize number of ids; null is 1, and 0 or less gives none
     * @return the ids
     * @throws IllegalArgumentException if the type is null, or the file is missing or invalid
     * @throws TinyIdSysException if no server returned the ids
     */
    public static List<Long> nextId(String bizType, Integer batchSize) {
        List<Long> ids = new ArrayList<>();
        int left = batchSize == null ? 1 : batchSize;
        try {
            IdSource source = source(bizType);
            for (; left > 0; left -= LARGEST_CALL) {
                for (long id : source.next(Math.min(left, LARGEST_CALL))) {
                    ids.add(id);
                }
            }
            return ids;
        } catch (SnowmintException e) {
            throw new TinyIdSysException(e.getMessage(), e);
        }
    }

    private static IdSource source(String bizType) {
        if (bizType == null) {
            throw new IllegalArgumentException("bizType is null: expected the name of a namespace");
        }
        return client().namespace(bizType);
    }
}
