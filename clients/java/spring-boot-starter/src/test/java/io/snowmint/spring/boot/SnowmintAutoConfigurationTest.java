package io.snowmint.spring.boot;

import static org.assertj.core.api.Assertions.assertThat;

import io.snowmint.client.ErrorKind;
import io.snowmint.client.IdSource;
import io.snowmint.client.SnowmintClient;
import io.snowmint.client.SnowmintException;
import io.snowmint.client.TextIdSource;
import io.snowmint.properties.FakeServer;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;

class SnowmintAutoConfigurationTest {
    private final ApplicationContextRunner runner =
            TestContext.runner(SnowmintAutoConfiguration.class)
                    .withPropertyValues("snowmint.servers=http://127.0.0.1:1");

    @Test
    void noServerNamesTheProperty() {
        TestContext.runner(SnowmintAutoConfiguration.class)
                .run(
                        context ->
                                assertThat(context)
                                        .getFailure()
                                        .rootCause()
                                        .hasMessageContaining("snowmint.servers"));
    }

    @Test
    void anApplicationsOwnClientIsUsed() {
        try (SnowmintClient own = SnowmintClient.builder().server("http://127.0.0.1:1").build()) {
            TestContext.runner(SnowmintAutoConfiguration.class)
                    .withPropertyValues("snowmint.namespaces.orders=")
                    .withBean("own", SnowmintClient.class, () -> own)
                    .run(
                            context -> {
                                assertThat(context.getBean(SnowmintClient.class)).isSameAs(own);
                                assertThat(context.getBean(IdSource.class))
                                        .isSameAs(own.namespace("orders"));
                            });
        }
    }

    @Test
    void theOnlyNamespaceIsInjectedWithoutAQualifier() {
        runner.withPropertyValues("snowmint.namespaces.orders.max-age=unlimited")
                .withBean(Sources.One.class)
                .run(
                        context ->
                                assertThat(context.getBean(Sources.One.class).ids.namespace())
                                        .isEqualTo("orders"));
    }

    @Test
    void theDefaultNamespaceIsInjectedWithoutAQualifierAndOthersWithOne() {
        runner.withPropertyValues(
                        "snowmint.namespaces.orders.max-age=unlimited",
                        "snowmint.namespaces[team_a.Lines].max-age=2s",
                        "snowmint.namespaces.tickets.text=true",
                        "snowmint.default-namespace=default")
                .withBean(Sources.Several.class)
                .run(
                        context -> {
                            Sources.Several sources = context.getBean(Sources.Several.class);
                            assertThat(sources.primary.namespace()).isEqualTo("default");
                            assertThat(sources.orders.namespace()).isEqualTo("orders");
                            assertThat(sources.lines.namespace()).isEqualTo("team_a.Lines");
                            assertThat(sources.tickets.namespace()).isEqualTo("tickets");
                            assertThat(context)
                                    .hasBean("ordersIdSource")
                                    .hasBean("ticketsTextIdSource");
                        });
    }

    @Test
    void severalNamespacesWithoutADefaultOneNeedAQualifier() {
        runner.withPropertyValues("snowmint.namespaces.a=", "snowmint.namespaces.b=")
                .run(
                        context -> {
                            assertThat(context.getBeansOfType(IdSource.class)).hasSize(2);
                            assertThat(context.getBeanProvider(IdSource.class).getIfUnique())
                                    .isNull();
                        });
    }

    @Test
    void theClientUsesThePropertiesAndIsClosedWithTheContext() throws Exception {
        try (FakeServer server = new FakeServer()) {
            SnowmintClient[] closed = new SnowmintClient[1];
            TestContext.runner(SnowmintAutoConfiguration.class)
                    .withPropertyValues(
                            "snowmint.servers[0]=" + server.url(),
                            "snowmint.token=secret",
                            "snowmint.timeout=1m",
                            "snowmint.buffer.min=7",
                            "snowmint.buffer.max=7",
                            "snowmint.namespaces.orders=")
                    .run(
                            context -> {
                                assertThat(
                                                server.namespaceOf(
                                                        context.getBean(IdSource.class).next()))
                                        .isEqualTo("orders");
                                closed[0] = context.getBean(SnowmintClient.class);
                            });
            assertThat(server.requests())
                    .containsExactly(new FakeServer.Request("orders", 8, "Bearer secret"));
            assertThat(kind(() -> closed[0].namespace("orders").next()))
                    .isEqualTo(ErrorKind.CLOSED);
        }
    }

    /** Values that the client itself rejects, so each option reaches it. */
    @ParameterizedTest
    @ValueSource(
            strings = {
                "timeout=2h",
                "hedge-after=0s",
                "max-age=0ms",
                "namespaces.orders.max-age=0m",
                "buffer.min=1000001",
                "buffer.max=-1",
                "store=x",
                "token-file=/nowhere;token=x",
                "ca-file=/nowhere/ca.pem",
                "client-certificate.certificate=/nowhere/c;client-certificate.key=/nowhere/k"
            })
    void invalidOptionsAreRejectedByTheClient(String properties) {
        runner.withPropertyValues(("snowmint." + properties.replace(";", ";snowmint.")).split(";"))
                .run(
                        context ->
                                assertThat(context)
                                        .getFailure()
                                        .rootCause()
                                        .satisfiesAnyOf(
                                                e -> assertThat(invalidOption(e)).isTrue(),
                                                e ->
                                                        assertThat(e)
                                                                .hasMessageContaining("/nowhere")));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {"max-age=forever", "namespaces.orders=x", "client-certificate.key=/nowhere"})
    void invalidTextsFailTheStart(String property) {
        runner.withPropertyValues("snowmint." + property)
                .run(
                        context ->
                                assertThat(context)
                                        .getFailure()
                                        .rootCause()
                                        .hasMessageMatching(
                                                "(?s).*(expected|Set both certificate and key).*"));
    }

    @Test
    void emptyTextsAreNoOptions() {
        runner.withPropertyValues("snowmint.token=", "snowmint.store=", "snowmint.ca-file=")
                .run(context -> assertThat(context).hasSingleBean(SnowmintClient.class));
    }

    @Test
    void customizersComeAfterTheProperties() throws Exception {
        try (FakeServer server = new FakeServer()) {
            runner.withBean(
                            SnowmintClientBuilderCustomizer.class,
                            () -> builder -> builder.server(server.url()).buffer(0, 0))
                    .run(
                            context ->
                                    context.getBean(SnowmintClient.class)
                                            .namespace("orders")
                                            .next());
            assertThat(server.requests())
                    .containsExactly(new FakeServer.Request("orders", 1, null));
        }
    }

    @Test
    void theTokenIsNotShown() {
        runner.withPropertyValues("snowmint.token=secret")
                .run(
                        context ->
                                assertThat(context.getBean(SnowmintProperties.class).toString())
                                        .contains("token=(set)")
                                        .doesNotContain("secret"));
    }

    private static boolean invalidOption(Throwable error) {
        return error instanceof SnowmintException e && e.kind() == ErrorKind.INVALID_OPTION;
    }

    private static ErrorKind kind(Runnable call) {
        try {
            call.run();
            return null;
        } catch (SnowmintException e) {
            return e.kind();
        }
    }

    /** What an application injects. */
    static final class Sources {
        static final class One {
            private final IdSource ids;

            One(IdSource ids) {
                this.ids = ids;
            }
        }

        static final class Several {
            private final IdSource primary;
            private final IdSource orders;
            private final IdSource lines;
            private final TextIdSource tickets;

            Several(
                    IdSource primary,
                    @Qualifier("orders") IdSource orders,
                    @Qualifier("team_a.Lines") IdSource lines,
                    TextIdSource tickets) {
                this.primary = primary;
                this.orders = orders;
                this.lines = lines;
                this.tickets = tickets;
            }
        }
    }
}
