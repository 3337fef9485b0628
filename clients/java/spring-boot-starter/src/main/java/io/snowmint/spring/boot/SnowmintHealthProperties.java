package io.snowmint.spring.boot;

import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code management.health.snowmint.*}.
 *
 * @param draw Whether the health check may draw one id of a namespace that has none in memory.
 */
@ConfigurationProperties("management.health.snowmint")
public record SnowmintHealthProperties(@DefaultValue("true") boolean draw) {}
