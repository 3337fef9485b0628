package io.snowmint.spring.boot;

import io.snowmint.client.IdSource;
import io.snowmint.client.SnowmintClient;
import io.snowmint.client.TextIdSource;

/**
 * Creates the beans of namespaces. Bean definitions name its methods, as those of the registrar.
 */
class IdSourceFactory {
    private final SnowmintClient client;

    IdSourceFactory(SnowmintClient client) {
        this.client = client;
    }

    IdSource numbers(String namespace) {
        return client.namespace(namespace);
    }

    TextIdSource texts(String namespace) {
        return client.texts(namespace);
    }
}
