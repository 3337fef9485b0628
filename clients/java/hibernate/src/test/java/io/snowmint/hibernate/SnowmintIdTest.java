package io.snowmint.hibernate;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.snowmint.client.ErrorKind;
import io.snowmint.client.SnowmintClient;
import io.snowmint.client.SnowmintException;
import io.snowmint.properties.FakeServer;

import org.hibernate.SessionFactory;
import org.hibernate.StatelessSession;
import org.hibernate.boot.MetadataSources;
import org.hibernate.boot.registry.StandardServiceRegistry;
import org.hibernate.boot.registry.StandardServiceRegistryBuilder;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import java.util.List;
import java.util.Map;
import java.util.function.Supplier;

class SnowmintIdTest {
    private FakeServer server;

    @BeforeEach
    void start() throws Exception {
        server = new FakeServer();
    }

    @AfterEach
    void stop() {
        server.close();
    }

    @Test
    void eachTypeOfIdIsFilled() {
        try (SessionFactory factory =
                factory(
                        Map.of(
                                "hibernate.snowmint.servers",
                                server.url(),
                                "hibernate.snowmint.timeout",
                                "1m"),
                        Entities.Boxed.class,
                        Entities.Plain.class,
                        Entities.Text.class,
                        Entities.Getter.class,
                        Entities.Inherited.class)) {
            Entities.Boxed boxed = new Entities.Boxed();
            Entities.Plain plain = new Entities.Plain();
            Entities.Text text = new Entities.Text();
            Entities.Getter getter = new Entities.Getter();
            Entities.Inherited inherited = new Entities.Inherited();
            factory.inTransaction(
                    session -> {
                        session.persist(boxed);
                        session.persist(plain);
                        session.persist(text);
                        session.persist(getter);
                        session.persist(inherited);
                    });
            assertThat(List.of(boxed.id, plain.id, getter.getId()))
                    .doesNotHaveDuplicates()
                    .allSatisfy(id -> assertThat(server.namespaceOf(id)).isEqualTo("orders"));
            assertThat(text.id).startsWith("tickets-");
            assertThat(inherited.id).startsWith("tickets-").isNotEqualTo(text.id);
            factory.inSession(
                    session -> assertThat(session.get(Entities.Plain.class, plain.id)).isNotNull());
        }
    }

    @Test
    void statelessSessionsTooGetIds() {
        try (SessionFactory factory =
                        factory(
                                Map.of("hibernate.snowmint.servers", server.url()),
                                Entities.Boxed.class);
                StatelessSession session = factory.openStatelessSession()) {
            long id = (long) session.insert(new Entities.Boxed());
            assertThat(server.namespaceOf(id)).isEqualTo("orders");
        }
    }

    @Test
    void aClientOfTheApplicationIsUsedAndNotClosed() {
        try (SnowmintClient client = SnowmintClient.builder().server(server.url()).build()) {
            try (SessionFactory factory =
                    factory(Map.of(SnowmintSettings.CLIENT, client), Entities.Boxed.class)) {
                factory.inTransaction(session -> session.persist(new Entities.Boxed()));
            }
            Supplier<SnowmintClient> supplier = () -> client;
            try (SessionFactory factory =
                    factory(Map.of(SnowmintSettings.CLIENT, supplier), Entities.Boxed.class)) {
                factory.inTransaction(session -> session.persist(new Entities.Boxed()));
            }
            assertThat(server.namespaceOf(client.namespace("orders").next())).isEqualTo("orders");
        }
    }

    @Test
    void aClientOfItsOwnIsClosedWithTheFactory() {
        StandardServiceRegistry registry =
                registry(Map.of("hibernate.snowmint.servers", server.url()));
        SnowmintClient client = registry.requireService(SnowmintClientService.class).client();
        StandardServiceRegistryBuilder.destroy(registry);
        assertThatThrownBy(() -> client.namespace("orders").next())
                .isInstanceOfSatisfying(
                        SnowmintException.class,
                        e -> assertThat(e.kind()).isEqualTo(ErrorKind.CLOSED));
    }

    @Test
    void aMissingClientNamesTheSettings() {
        assertThatThrownBy(() -> factory(Map.of(), Entities.Boxed.class))
                .hasStackTraceContaining("set hibernate.snowmint.servers");
        assertThatThrownBy(
                        () -> factory(Map.of(SnowmintSettings.CLIENT, "x"), Entities.Boxed.class))
                .hasStackTraceContaining(
                        "invalid hibernate.snowmint.client of the type java.lang.String");
    }

    @Test
    void otherTypesAreRejectedAtTheStart() {
        assertThatThrownBy(
                        () ->
                                factory(
                                        Map.of("hibernate.snowmint.servers", server.url()),
                                        Entities.Wrong.class))
                .hasStackTraceContaining(
                        "Entities$Wrong.id: unsupported type java.lang.Integer: expected long,"
                                + " Long or String");
    }

    private static StandardServiceRegistry registry(Map<String, Object> settings) {
        return new StandardServiceRegistryBuilder()
                .applySetting("hibernate.connection.url", "jdbc:h2:mem:" + System.nanoTime())
                .applySetting("hibernate.hbm2ddl.auto", "create-drop")
                .applySettings(settings)
                .build();
    }

    private static SessionFactory factory(Map<String, Object> settings, Class<?>... entities) {
        StandardServiceRegistry registry = registry(settings);
        try {
            MetadataSources sources = new MetadataSources(registry);
            for (Class<?> entity : entities) {
                sources.addAnnotatedClass(entity);
            }
            return sources.buildMetadata().buildSessionFactory();
        } catch (RuntimeException e) {
            StandardServiceRegistryBuilder.destroy(registry);
            throw e;
        }
    }
}
