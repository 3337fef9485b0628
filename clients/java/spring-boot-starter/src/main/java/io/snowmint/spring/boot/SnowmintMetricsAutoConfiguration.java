package io.snowmint.spring.boot;

import io.micrometer.core.instrument.binder.MeterBinder;
import io.snowmint.client.SnowmintClient;

import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.context.annotation.Bean;

/** Configures the meters of the client where Micrometer is present. */
@AutoConfiguration(after = SnowmintAutoConfiguration.class)
@ConditionalOnClass(MeterBinder.class)
@ConditionalOnSingleCandidate(SnowmintClient.class)
public class SnowmintMetricsAutoConfiguration {
    /** Creates the configuration. */
    public SnowmintMetricsAutoConfiguration() {}

    /** Returns the meters, which Actuator binds to each registry. */
    @Bean
    @ConditionalOnMissingBean
    SnowmintMetrics snowmintMetrics(SnowmintClient client) {
        return new SnowmintMetrics(client);
    }
}
