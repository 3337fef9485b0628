package io.snowmint.hibernate;

/**
 * The settings of Hibernate that say where {@link SnowmintId} gets its client.
 *
 * <ol>
 *   <li>{@link #CLIENT}, which Spring Boot sets to its bean
 *   <li>otherwise the properties {@code hibernate.snowmint.servers}, {@code
 *       hibernate.snowmint.token} and so on, with the names of {@link
 *       io.snowmint.properties.ClientProperties}
 * </ol>
 */
public final class SnowmintSettings {
    /** What all settings begin with. */
    public static final String PREFIX = "hibernate.snowmint.";

    /**
     * A {@link io.snowmint.client.SnowmintClient}, or a {@link java.util.function.Supplier} of one.
     * Hibernate does not close it.
     */
    public static final String CLIENT = PREFIX + "client";

    private SnowmintSettings() {}
}
