package io.snowmint.hibernate;

import org.hibernate.boot.registry.StandardServiceInitiator;
import org.hibernate.boot.registry.StandardServiceRegistryBuilder;
import org.hibernate.service.spi.ServiceContributor;
import org.hibernate.service.spi.ServiceRegistryImplementor;

import java.util.Map;

/** Adds the client to Hibernate's services. Hibernate finds it by {@code META-INF/services}. */
public class SnowmintServiceContributor implements ServiceContributor {
    /** Creates the contributor. */
    public SnowmintServiceContributor() {}

    @Override
    public void contribute(StandardServiceRegistryBuilder builder) {
        builder.addInitiator(new Initiator());
    }

    private static final class Initiator
            implements StandardServiceInitiator<SnowmintClientService> {
        @Override
        public SnowmintClientService initiateService(
                Map<String, Object> settings, ServiceRegistryImplementor registry) {
            return SnowmintClientService.of(settings);
        }

        @Override
        public Class<SnowmintClientService> getServiceInitiated() {
            return SnowmintClientService.class;
        }
    }
}
