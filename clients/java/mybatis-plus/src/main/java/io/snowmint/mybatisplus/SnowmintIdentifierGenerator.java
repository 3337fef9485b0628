package io.snowmint.mybatisplus;

import com.baomidou.mybatisplus.core.incrementer.IdentifierGenerator;
import com.baomidou.mybatisplus.core.metadata.TableInfo;
import com.baomidou.mybatisplus.core.metadata.TableInfoHelper;

import io.snowmint.client.IdSource;
import io.snowmint.client.SnowmintClient;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;

/**
 * Generates the ids of entities with {@code @TableId(type = IdType.ASSIGN_ID)}, the default type.
 *
 * <p>The property is a {@code Long}, or a {@code String} that gets the digits. A {@code long} is
 * never null, so MyBatis-Plus does not fill it. An {@code ASSIGN_UUID} does not come from Snowmint.
 */
public class SnowmintIdentifierGenerator implements IdentifierGenerator {
    private final ConcurrentMap<Class<?>, IdSource> sources = new ConcurrentHashMap<>();
    private final SnowmintClient client;
    private final NamespaceMapper mapper;
    private final String defaultNamespace;

    /**
     * Creates a generator.
     *
     * @param client the client to draw from
     * @param mapper names the namespace of an entity
     * @param defaultNamespace the namespace where the mapper returns null; null for an error then
     */
    public SnowmintIdentifierGenerator(
            SnowmintClient client, NamespaceMapper mapper, String defaultNamespace) {
        this.client = client;
        this.mapper = mapper;
        this.defaultNamespace = defaultNamespace;
    }

    /**
     * Creates a generator of one namespace.
     *
     * @param client the client to draw from
     * @param namespace the namespace of all entities
     */
    public SnowmintIdentifierGenerator(SnowmintClient client, String namespace) {
        this(client, (entity, table) -> null, namespace);
    }

    @Override
    public Number nextId(Object entity) {
        Class<?> type = entity == null ? Object.class : entity.getClass();
        IdSource source = sources.get(type);
        if (source == null) {
            source = sources.computeIfAbsent(type, this::source);
        }
        return source.next();
    }

    private IdSource source(Class<?> entity) {
        TableInfo info = TableInfoHelper.getTableInfo(entity);
        String table = info == null ? null : info.getTableName();
        String namespace = mapper.namespace(entity, table);
        if (namespace == null) {
            namespace = defaultNamespace;
        }
        if (namespace == null) {
            throw new IllegalStateException(
                    "no Snowmint namespace of "
                            + entity.getName()
                            + ": set snowmint.mybatis-plus.namespace, or define a NamespaceMapper");
        }
        return client.namespace(namespace);
    }
}
