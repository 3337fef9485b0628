package io.snowmint.spring.boot;

import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.binder.MeterBinder;
import io.snowmint.client.ClientStats;
import io.snowmint.client.SnowmintClient;

import java.util.function.ToDoubleFunction;

/**
 * Meters of a client: {@code snowmint.client.requests}, {@code hedged}, {@code failed}, {@code
 * buffered}.
 */
public class SnowmintMetrics implements MeterBinder {
    private final SnowmintClient client;

    /**
     * Creates the meters of a client.
     *
     * @param client the client
     */
    public SnowmintMetrics(SnowmintClient client) {
        this.client = client;
    }

    @Override
    public void bindTo(MeterRegistry registry) {
        counter(registry, "requests", "Requests sent to servers", ClientStats::requests);
        counter(
                registry,
                "hedged",
                "Requests sent to a second server because the first had not answered yet",
                ClientStats::hedged);
        counter(
                registry,
                "failed",
                "Requests that failed, were rejected, or were abandoned",
                ClientStats::failed);
        Gauge.builder("snowmint.client.buffered", client, c -> c.stats().buffered())
                .description("Ids in memory, of all namespaces")
                .register(registry);
    }

    private void counter(
            MeterRegistry registry,
            String name,
            String description,
            ToDoubleFunction<ClientStats> count) {
        FunctionCounter.builder(
                        "snowmint.client." + name, client, c -> count.applyAsDouble(c.stats()))
                .description(description)
                .register(registry);
    }
}
