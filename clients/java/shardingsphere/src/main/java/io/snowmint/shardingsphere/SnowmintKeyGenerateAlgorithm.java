package io.snowmint.shardingsphere;

import io.snowmint.client.IdSource;
import io.snowmint.client.SnowmintClient;
import io.snowmint.properties.ClientProperties;

import org.apache.shardingsphere.infra.algorithm.core.context.AlgorithmSQLContext;
import org.apache.shardingsphere.infra.algorithm.keygen.core.KeyGenerateAlgorithm;

import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;

/**
 * The key generator {@code SNOWMINT}. ShardingSphere finds it by {@code META-INF/services}.
 *
 * <pre>{@code
 * keyGenerators:
 *   snowmint:
 *     type: SNOWMINT
 *     props:
 *       servers: http://10.0.0.1:8080,http://10.0.0.2:8080
 *       namespace: orders
 * }</pre>
 *
 * <p>Its properties are {@code namespace} and those of {@link ClientProperties}. The rows of one
 * insert get their keys in one call.
 */
public final class SnowmintKeyGenerateAlgorithm implements KeyGenerateAlgorithm {
    /**
     * The clients, by their properties. Generators with the same ones share a client. None is
     * closed: ShardingSphere does not say when it drops a generator, and an unused client sends
     * nothing.
     */
    private static final ConcurrentMap<Map<String, String>, SnowmintClient> CLIENTS =
            new ConcurrentHashMap<>();

    private IdSource ids;

    /** Creates a generator for {@link #init}. */
    public SnowmintKeyGenerateAlgorithm() {}

    @Override
    public void init(Properties props) {
        Map<String, String> properties = new TreeMap<>();
        // YAML has numbers too, which getProperty() does not return.
        props.forEach((name, value) -> properties.put(name.toString(), value.toString()));
        String namespace = properties.remove("namespace");
        if (namespace == null || !properties.containsKey("servers")) {
            throw new IllegalArgumentException(
                    "key generator SNOWMINT: set the properties servers and namespace");
        }
        ids =
                CLIENTS.computeIfAbsent(
                                properties, options -> ClientProperties.builder(options).build())
                        .namespace(namespace);
    }

    @Override
    public Collection<Long> generateKeys(AlgorithmSQLContext context, int keyGenerateCount) {
        if (keyGenerateCount == 0) {
            return List.of();
        }
        return Arrays.stream(ids.next(keyGenerateCount)).boxed().toList();
    }

    @Override
    public boolean isSupportAutoIncrement() {
        return true;
    }

    @Override
    public String getType() {
        return "SNOWMINT";
    }
}
