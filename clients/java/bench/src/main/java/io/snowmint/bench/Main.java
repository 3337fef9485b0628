package io.snowmint.bench;

import cn.hutool.core.lang.Snowflake;
import cn.hutool.core.util.IdUtil;

import com.github.yitter.contract.IdGeneratorOptions;
import com.github.yitter.idgen.YitIdHelper;

import io.snowmint.client.IdSource;
import io.snowmint.client.SnowmintClient;

import me.ahoo.cosid.segment.IdSegmentDistributor;
import me.ahoo.cosid.segment.SegmentChainId;
import me.ahoo.cosid.snowflake.MillisecondSnowflakeId;

import java.util.List;
import java.util.UUID;

/**
 * Measures calls for one id: of Snowmint, and of generators that run in the process. It prints one
 * line of JSON a row, with the best of several runs.
 *
 * <p>{@code SNOWMINT_SERVER} is the URL of a server with the namespaces {@code orders} (a segment,
 * numbers) and {@code default} (a snowflake layout).
 */
public final class Main {
    private static final String SERVER = "SNOWMINT_SERVER";

    /** Number of ids in a segment of CosId, as many as Snowmint keeps at most. */
    private static final int SEGMENT = 1_000_000;

    private Main() {}

    /** Runs the benchmark. */
    public static void main(String[] args) {
        String server = System.getenv(SERVER);
        if (server == null) {
            System.err.println("bench: " + SERVER + " is not set: expected the URL of a server");
            System.exit(2);
        }
        try (SnowmintClient client =
                SnowmintClient.builder()
                        .server(server)
                        .namespaceMaxAge("orders", SnowmintClient.UNLIMITED)
                        .build()) {
            for (Row row : rows(client)) {
                System.out.println(row.measure());
            }
        }
        // CosId's threads would keep it.
        System.exit(0);
    }

    private static List<Row> rows(SnowmintClient client) {
        IdSource orders = client.namespace("orders");
        IdSource ids = client.namespace("default");
        SegmentChainId chain = new SegmentChainId(new IdSegmentDistributor.Atomic(SEGMENT));
        MillisecondSnowflakeId cosid = new MillisecondSnowflakeId(1);
        Snowflake hutool = IdUtil.getSnowflake(1, 1);
        YitIdHelper.setIdGenerator(new IdGeneratorOptions((short) 1));
        // Each has a loop of its own, so that the JVM compiles each call as in a program that uses
        // only this one.
        return List.of(
                new Row(
                        "snowmint next(), numbers",
                        true,
                        calls -> {
                            long last = 0;
                            for (int i = 0; i < calls; i++) {
                                last = orders.next();
                            }
                            return last;
                        }),
                new Row(
                        "snowmint next(), snowflake",
                        true,
                        calls -> {
                            long last = 0;
                            for (int i = 0; i < calls; i++) {
                                last = ids.next();
                            }
                            return last;
                        }),
                new Row(
                        "java.util.UUID.randomUUID()",
                        false,
                        calls -> {
                            long last = 0;
                            for (int i = 0; i < calls; i++) {
                                last = UUID.randomUUID().getLeastSignificantBits();
                            }
                            return last;
                        }),
                new Row(
                        "CosId SegmentChainId",
                        false,
                        calls -> {
                            long last = 0;
                            for (int i = 0; i < calls; i++) {
                                last = chain.generate();
                            }
                            return last;
                        }),
                new Row(
                        "CosId MillisecondSnowflakeId",
                        false,
                        calls -> {
                            long last = 0;
                            for (int i = 0; i < calls; i++) {
                                last = cosid.generate();
                            }
                            return last;
                        }),
                new Row(
                        "Hutool Snowflake",
                        false,
                        calls -> {
                            long last = 0;
                            for (int i = 0; i < calls; i++) {
                                last = hutool.nextId();
                            }
                            return last;
                        }),
                new Row(
                        "Yitter YitIdHelper",
                        false,
                        calls -> {
                            long last = 0;
                            for (int i = 0; i < calls; i++) {
                                last = YitIdHelper.nextId();
                            }
                            return last;
                        }));
    }
}
