package io.snowmint.spring.boot;

import io.snowmint.client.IdSource;
import io.snowmint.client.SnowmintClient;
import io.snowmint.client.TextIdSource;

import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.actuate.autoconfigure.health.ConditionalOnEnabledHealthIndicator;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;

/** Configures the health indicator {@code snowmint} where Actuator is present. */
@AutoConfiguration(after = SnowmintAutoConfiguration.class)
@ConditionalOnClass({HealthIndicator.class, ConditionalOnEnabledHealthIndicator.class})
@ConditionalOnBean(SnowmintClient.class)
@ConditionalOnEnabledHealthIndicator("snowmint")
@EnableConfigurationProperties(SnowmintHealthProperties.class)
public class SnowmintHealthAutoConfiguration {
    /** Creates the configuration. */
    public SnowmintHealthAutoConfiguration() {}

    /** Returns the indicator of all namespaces that have a bean. */
    @Bean
    @ConditionalOnMissingBean(name = "snowmintHealthIndicator")
    SnowmintHealthIndicator snowmintHealthIndicator(
            SnowmintHealthProperties properties,
            SnowmintProperties snowmint,
            ObjectProvider<IdSource> numbers,
            ObjectProvider<TextIdSource> texts) {
        return new SnowmintHealthIndicator(
                numbers.stream().toList(),
                texts.stream().toList(),
                name -> !snowmint.maxAgeOf(name).equals(SnowmintClient.UNLIMITED),
                properties.draw());
    }
}
