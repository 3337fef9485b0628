package io.snowmint.spring.boot;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.micrometer.core.instrument.Meter;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.snowmint.client.SnowmintClient;
import io.snowmint.properties.FakeServer;

import org.junit.jupiter.api.Test;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;

class SnowmintMetricsTest {
    private final ApplicationContextRunner runner =
            TestContext.runner(
                    SnowmintAutoConfiguration.class, SnowmintMetricsAutoConfiguration.class);

    @Test
    void theMetersHaveTheCountsOfTheClient() throws Exception {
        try (FakeServer server = new FakeServer()) {
            runner.withPropertyValues(
                            "snowmint.servers=" + server.url(),
                            "snowmint.hedge-after=unlimited",
                            "snowmint.timeout=1m",
                            "snowmint.max-age=unlimited",
                            "snowmint.buffer.min=5",
                            "snowmint.buffer.max=5")
                    .run(
                            context -> {
                                SimpleMeterRegistry registry = new SimpleMeterRegistry();
                                context.getBean(SnowmintMetrics.class).bindTo(registry);
                                context.getBean(SnowmintClient.class).namespace("orders").next();
                                assertThat(value(registry, "requests")).isPositive();
                                assertThat(value(registry, "buffered")).isEqualTo(5);
                                assertThat(value(registry, "hedged")).isZero();
                                server.forbid();
                                assertThatThrownBy(
                                        () ->
                                                context.getBean(SnowmintClient.class)
                                                        .namespace("lines")
                                                        .next());
                                double failed = value(registry, "failed");
                                assertThat(failed).isPositive();
                                assertThat(value(registry, "requests")).isGreaterThan(failed);
                            });
        }
    }

    @Test
    void applicationsWithoutMicrometerStart() {
        runner.withPropertyValues("snowmint.servers=http://127.0.0.1:1")
                .withClassLoader(new FilteredClassLoader("io.micrometer"))
                .run(
                        context ->
                                assertThat(context)
                                        .hasNotFailed()
                                        .doesNotHaveBean("snowmintMetrics"));
    }

    private static double value(SimpleMeterRegistry registry, String name) {
        Meter meter = registry.get("snowmint.client." + name).meter();
        return meter.measure().iterator().next().getValue();
    }
}
