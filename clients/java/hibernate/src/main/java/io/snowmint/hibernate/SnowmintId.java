package io.snowmint.hibernate;

import org.hibernate.annotations.IdGeneratorType;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Takes the id of an entity from Snowmint when it becomes persistent.
 *
 * <pre>{@code
 * @Id
 * @SnowmintId("orders")
 * private Long id;
 * }</pre>
 *
 * <p>The id is a {@code long}, a {@code Long} or a {@code String}. A {@code String} has the text
 * form of the namespace, or digits if it has none. Hibernate draws the id before the insert, so
 * inserts can be batched. {@link SnowmintSettings} says where the client comes from.
 */
@IdGeneratorType(SnowmintIdGenerator.class)
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.FIELD, ElementType.METHOD})
public @interface SnowmintId {
    /**
     * Returns the namespace.
     *
     * @return the namespace
     */
    String value();
}
