package io.snowmint.leaf;

import com.sankuai.inf.leaf.IDGen;
import com.sankuai.inf.leaf.common.Result;
import com.sankuai.inf.leaf.common.Status;

import io.snowmint.client.SnowmintClient;
import io.snowmint.client.SnowmintException;

import java.util.Objects;

/**
 * A generator for callers of Leaf's {@link IDGen}, in segment and in snowflake mode. A key is the
 * name of a namespace.
 *
 * <p>It replaces {@code SegmentIDGenImpl} and {@code SnowflakeIDGenImpl} where they are created.
 * Set {@link SnowmintClient.Builder#namespaceMaxAge} to unlimited for keys of segment mode.
 */
public final class SnowmintIDGen implements IDGen {
    /** Leaf's codes of errors. */
    private static final long FAILED = -1;

    private static final long NO_SUCH_KEY = -2;
    private static final long NOT_READY = -3;

    private static final System.Logger LOGGER = System.getLogger(SnowmintIDGen.class.getName());

    private final SnowmintClient client;

    /**
     * Creates a generator. The caller closes the client.
     *
     * @param client the client
     */
    public SnowmintIDGen(SnowmintClient client) {
        this.client = Objects.requireNonNull(client, "client");
    }

    /**
     * Returns the next id of a namespace. Leaf's codes stand for errors: -2 if there is no such
     * namespace, -3 if no ids can be had at present, otherwise -1. The reason is logged.
     *
     * @param key name of the namespace
     * @return the id, or the code of an error
     */
    @Override
    public Result get(String key) {
        try {
            return new Result(client.namespace(key).next(), Status.SUCCESS);
        } catch (SnowmintException e) {
            LOGGER.log(System.Logger.Level.WARNING, e.getMessage());
            return new Result(code(e), Status.EXCEPTION);
        }
    }

    private static long code(SnowmintException e) {
        return switch (e.kind()) {
            case UNKNOWN_NAMESPACE, INVALID_NAMESPACE -> NO_SUCH_KEY;
            case UNAVAILABLE, OVER_QUOTA -> NOT_READY;
            default -> FAILED;
        };
    }

    /**
     * Returns true: the client connects with the first call.
     *
     * @return true
     */
    @Override
    public boolean init() {
        return true;
    }
}
