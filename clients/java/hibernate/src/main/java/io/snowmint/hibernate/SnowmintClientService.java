package io.snowmint.hibernate;

import io.snowmint.client.SnowmintClient;
import io.snowmint.properties.ClientProperties;

import org.hibernate.HibernateException;
import org.hibernate.service.Service;
import org.hibernate.service.spi.Stoppable;

import java.util.HashMap;
import java.util.Map;
import java.util.function.Supplier;

/** The client of one service registry. It closes a client that it built itself. */
final class SnowmintClientService implements Service, Stoppable {
    private static final long serialVersionUID = 1;

    private final transient SnowmintClient client;
    private final boolean own;

    private SnowmintClientService(SnowmintClient client, boolean own) {
        this.client = client;
        this.own = own;
    }

    static SnowmintClientService of(Map<String, Object> settings) {
        Object given = settings.get(SnowmintSettings.CLIENT);
        if (given instanceof Supplier<?> supplier) {
            given = supplier.get();
        }
        if (given instanceof SnowmintClient client) {
            return new SnowmintClientService(client, false);
        }
        if (given != null) {
            throw new HibernateException(
                    "invalid "
                            + SnowmintSettings.CLIENT
                            + " of the type "
                            + given.getClass().getName()
                            + ": expected a SnowmintClient or a Supplier of one");
        }
        return new SnowmintClientService(build(settings), true);
    }

    private static SnowmintClient build(Map<String, Object> settings) {
        Map<String, String> properties = new HashMap<>();
        settings.forEach(
                (name, value) -> {
                    if (name.startsWith(SnowmintSettings.PREFIX) && value != null) {
                        properties.put(
                                name.substring(SnowmintSettings.PREFIX.length()), value.toString());
                    }
                });
        if (!properties.containsKey("servers")) {
            throw new HibernateException(
                    "no Snowmint client: set hibernate.snowmint.servers, or"
                            + " hibernate.snowmint.client to a client");
        }
        return ClientProperties.builder(properties).build();
    }

    SnowmintClient client() {
        return client;
    }

    @Override
    public void stop() {
        if (own) {
            client.close();
        }
    }
}
