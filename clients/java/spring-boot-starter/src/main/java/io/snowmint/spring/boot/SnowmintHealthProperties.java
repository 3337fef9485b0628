package io.snowmint.spring.boot;

import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code management.health.snowmint.*}.
 *
 * @param draw Whether the health check may draw an id, where the ids in memory prove nothing.
 */
@ConfigurationProperties("management.health.snowmint")
public record SnowmintHealthProperties(@DefaultValue("true") boolean draw) {}
