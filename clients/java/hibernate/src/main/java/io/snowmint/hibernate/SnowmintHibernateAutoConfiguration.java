package io.snowmint.hibernate;

import io.snowmint.client.SnowmintClient;

import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.autoconfigure.orm.jpa.HibernatePropertiesCustomizer;
import org.springframework.context.annotation.Bean;

/** Gives Hibernate the client of Spring Boot, unless {@link SnowmintSettings#CLIENT} is set. */
@AutoConfiguration(afterName = "io.snowmint.spring.boot.SnowmintAutoConfiguration")
@ConditionalOnClass(HibernatePropertiesCustomizer.class)
@ConditionalOnSingleCandidate(SnowmintClient.class)
public class SnowmintHibernateAutoConfiguration {
    /** Creates the configuration. */
    public SnowmintHibernateAutoConfiguration() {}

    /** Returns what sets {@link SnowmintSettings#CLIENT}. */
    @Bean
    HibernatePropertiesCustomizer snowmintHibernatePropertiesCustomizer(SnowmintClient client) {
        return properties -> properties.putIfAbsent(SnowmintSettings.CLIENT, client);
    }
}
