package io.snowmint.mybatisplus;

/** Names the namespace of an entity. In Spring Boot, define it as a bean. */
@FunctionalInterface
public interface NamespaceMapper {
    /**
     * Returns the namespace of an entity. It is called once for each class.
     *
     * @param entity the class of the entity
     * @param table its table; null if MyBatis-Plus does not know the class
     * @return the namespace; null for the default one
     */
    String namespace(Class<?> entity, String table);
}
