package io.snowmint.shardingsphere;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.snowmint.properties.FakeServer;

import org.apache.shardingsphere.infra.algorithm.core.context.AlgorithmSQLContext;
import org.apache.shardingsphere.infra.algorithm.keygen.core.KeyGenerateAlgorithm;
import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.ServiceLoader;
import java.util.Set;

class SnowmintKeyGenerateAlgorithmTest {
    private static final AlgorithmSQLContext CONTEXT =
            new AlgorithmSQLContext("db", "public", "orders", "id");

    @Test
    void shardingSphereFindsItAndEachInsertGetsItsKeysInOneRequest() throws Exception {
        try (FakeServer server = new FakeServer()) {
            KeyGenerateAlgorithm algorithm =
                    ServiceLoader.load(KeyGenerateAlgorithm.class).findFirst().orElseThrow();
            assertEquals("SNOWMINT", algorithm.getType());
            assertTrue(algorithm.isSupportAutoIncrement());
            algorithm.init(properties(server.url(), "orders"));
            assertEquals(List.of(), keys(algorithm, 0));
            List<Long> keys = keys(algorithm, 3);
            keys.addAll(keys(algorithm, 1));
            assertEquals(4, Set.copyOf(keys).size());
            keys.forEach(key -> assertEquals("orders", server.namespaceOf(key)));
            assertEquals(
                    List.of(
                            new FakeServer.Request("orders", 3, null),
                            new FakeServer.Request("orders", 1, null)),
                    server.requests());
        }
    }

    @Test
    void generatorsOfTheSameServersShareAClient() throws Exception {
        try (FakeServer server = new FakeServer()) {
            Properties buffered = properties(server.url(), "orders");
            buffered.put("buffer-max", 3);
            buffered.put("buffer-min", 3);
            buffered.put("max-age", "unlimited");
            KeyGenerateAlgorithm first = new SnowmintKeyGenerateAlgorithm();
            first.init(buffered);
            KeyGenerateAlgorithm second = new SnowmintKeyGenerateAlgorithm();
            second.init(buffered);
            long key = keys(first, 1).get(0);
            int requests = server.count();
            // The client has more ids in memory; another one would need a request.
            assertEquals(List.of(key + 1), keys(second, 1));
            assertEquals(requests, server.count());
        }
    }

    @Test
    void missingAndUnknownPropertiesAreNamed() {
        assertEquals(
                "key generator SNOWMINT: set the properties servers and namespace",
                assertThrows(
                                IllegalArgumentException.class,
                                () -> new SnowmintKeyGenerateAlgorithm().init(new Properties()))
                        .getMessage());
        Properties unknown = properties("http://127.0.0.1:1", "orders");
        unknown.put("worker-id", 1);
        assertTrue(
                assertThrows(
                                IllegalArgumentException.class,
                                () -> new SnowmintKeyGenerateAlgorithm().init(unknown))
                        .getMessage()
                        .contains("worker-id"));
    }

    private static List<Long> keys(KeyGenerateAlgorithm algorithm, int count) {
        List<Long> keys = new ArrayList<>();
        algorithm.generateKeys(CONTEXT, count).forEach(key -> keys.add((Long) key));
        return keys;
    }

    private static Properties properties(String server, String namespace) {
        Properties properties = new Properties();
        properties.put("servers", server);
        properties.put("namespace", namespace);
        properties.put("timeout", "1m");
        // ShardingSphere passes the numbers of YAML as numbers.
        properties.put("buffer-max", 0);
        return properties;
    }
}
