package io.snowmint.spring.boot;

import static org.assertj.core.api.Assertions.assertThat;

import io.snowmint.client.IdSource;
import io.snowmint.properties.FakeServer;

import org.junit.jupiter.api.Test;
import org.springframework.boot.actuate.health.Health;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.actuate.health.Status;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;

import java.util.List;
import java.util.Map;

class SnowmintHealthTest {
    private final ApplicationContextRunner runner =
            TestContext.runner(
                            SnowmintAutoConfiguration.class, SnowmintHealthAutoConfiguration.class)
                    .withPropertyValues(
                            "snowmint.servers=http://127.0.0.1:1",
                            "snowmint.timeout=1m",
                            "snowmint.namespaces.orders.max-age=unlimited");

    @Test
    void idsInMemoryAreProofAndAnEmptyMemoryIsTriedOnce() throws Exception {
        try (FakeServer server = new FakeServer()) {
            runner.withPropertyValues(
                            "snowmint.servers=" + server.url(),
                            "snowmint.buffer.min=3",
                            "snowmint.buffer.max=3",
                            "snowmint.namespaces.tickets.text=true",
                            "snowmint.namespaces.tickets.max-age=unlimited")
                    .run(
                            context -> {
                                HealthIndicator indicator = context.getBean(HealthIndicator.class);
                                Health first = indicator.health();
                                assertThat(first.getStatus()).isEqualTo(Status.UP);
                                assertThat(first.getDetails())
                                        .containsEntry("orders", Map.of("buffered", 0, "drawn", 1))
                                        .containsEntry(
                                                "tickets", Map.of("buffered", 0, "drawn", 1));
                                Health second = indicator.health();
                                assertThat(second.getStatus()).isEqualTo(Status.UP);
                                assertThat(second.getDetails())
                                        .containsEntry("orders", Map.of("buffered", 3))
                                        .containsEntry("tickets", Map.of("buffered", 3));
                                assertThat(context.getBean(IdSource.class).buffered()).isEqualTo(3);
                            });
        }
    }

    @Test
    void idsThatAgeProveNothing() throws Exception {
        try (FakeServer server = new FakeServer()) {
            // Long enough for the test, so that the ids are still in memory.
            runner.withPropertyValues(
                            "snowmint.servers=" + server.url(),
                            "snowmint.buffer.min=3",
                            "snowmint.buffer.max=3",
                            "snowmint.namespaces.orders.max-age=1h")
                    .run(
                            context -> {
                                HealthIndicator indicator = context.getBean(HealthIndicator.class);
                                indicator.health();
                                assertThat(indicator.health().getDetails())
                                        .containsEntry("orders", Map.of("buffered", 3, "drawn", 1));
                            });
        }
    }

    @Test
    void anErrorIsDown() throws Exception {
        try (FakeServer server = new FakeServer()) {
            server.forbid();
            runner.withPropertyValues("snowmint.servers=" + server.url())
                    .run(
                            context -> {
                                Health health = context.getBean(HealthIndicator.class).health();
                                assertThat(health.getStatus()).isEqualTo(Status.DOWN);
                                assertThat(health.getDetails())
                                        .containsEntry("namespace", "orders");
                                assertThat(health.getDetails().get("error").toString())
                                        .contains(server.url());
                            });
        }
    }

    @Test
    void withoutPermissionToDrawAnEmptyMemoryIsUnknown() {
        runner.withPropertyValues("management.health.snowmint.draw=false")
                .run(
                        context -> {
                            Health health = context.getBean(HealthIndicator.class).health();
                            assertThat(health.getStatus()).isEqualTo(Status.UNKNOWN);
                            assertThat(health.getDetails())
                                    .containsEntry("orders", Map.of("buffered", 0));
                        });
    }

    @Test
    void noNamespaceIsUnknown() {
        Health health =
                new SnowmintHealthIndicator(List.of(), List.of(), name -> true, true).health();
        assertThat(health.getStatus()).isEqualTo(Status.UNKNOWN);
    }

    @Test
    void itCanBeTurnedOff() {
        runner.withPropertyValues("management.health.snowmint.enabled=false")
                .run(context -> assertThat(context).doesNotHaveBean(HealthIndicator.class));
    }
}
