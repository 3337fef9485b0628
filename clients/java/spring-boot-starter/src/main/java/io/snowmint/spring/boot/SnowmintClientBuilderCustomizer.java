package io.snowmint.spring.boot;

import io.snowmint.client.SnowmintClient;

/** Changes the builder of the client after the properties were applied. Define it as a bean. */
@FunctionalInterface
public interface SnowmintClientBuilderCustomizer {
    /**
     * Changes the builder.
     *
     * @param builder the builder
     */
    void customize(SnowmintClient.Builder builder);
}
