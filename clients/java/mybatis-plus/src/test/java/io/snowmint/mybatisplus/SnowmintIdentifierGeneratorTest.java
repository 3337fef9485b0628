package io.snowmint.mybatisplus;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.baomidou.mybatisplus.annotation.TableName;
import com.baomidou.mybatisplus.core.MybatisConfiguration;
import com.baomidou.mybatisplus.core.incrementer.IdentifierGenerator;
import com.baomidou.mybatisplus.core.metadata.TableInfoHelper;

import io.snowmint.client.SnowmintClient;
import io.snowmint.properties.FakeServer;
import io.snowmint.spring.boot.SnowmintAutoConfiguration;

import org.apache.ibatis.builder.MapperBuilderAssistant;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.core.env.StandardEnvironment;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

class SnowmintIdentifierGeneratorTest {
    private FakeServer server;
    private SnowmintClient client;

    @TableName("orders")
    static class PurchaseOrder {
        Long id;
    }

    @BeforeEach
    void start() throws Exception {
        server = new FakeServer();
        client =
                SnowmintClient.builder()
                        .server(server.url())
                        .buffer(0, 0)
                        .timeout(Duration.ofMinutes(1))
                        .build();
    }

    @AfterEach
    void stop() {
        client.close();
        server.close();
    }

    @Test
    void theMapperGetsClassAndTableOnce() {
        TableInfoHelper.initTableInfo(
                new MapperBuilderAssistant(new MybatisConfiguration(), ""), PurchaseOrder.class);
        List<String> asked = new ArrayList<>();
        IdentifierGenerator generator =
                new SnowmintIdentifierGenerator(
                        client,
                        (entity, table) -> {
                            asked.add(entity.getSimpleName() + " " + table);
                            return table;
                        },
                        "default");
        long first = (long) generator.nextId(new PurchaseOrder());
        assertThat(server.namespaceOf(first)).isEqualTo("orders");
        assertThat(generator.nextId(new PurchaseOrder())).isNotEqualTo(first);
        assertThat(server.namespaceOf((long) generator.nextId("not an entity")))
                .isEqualTo("default");
        assertThat(server.namespaceOf((long) generator.nextId(null))).isEqualTo("default");
        assertThat(asked).containsExactly("PurchaseOrder orders", "String null", "Object null");
    }

    @Test
    void noNamespaceNamesTheEntityAndTheProperty() {
        IdentifierGenerator generator = new SnowmintIdentifierGenerator(client, null);
        assertThatThrownBy(() -> generator.nextId("x"))
                .hasMessageContaining("java.lang.String")
                .hasMessageContaining("snowmint.mybatis-plus.namespace");
    }

    @Test
    void thePropertyWinsOverTheDefaultNamespaceOfSnowmint() {
        runner().withPropertyValues("snowmint.default-namespace=general")
                .run(context -> context.getBean(IdentifierGenerator.class).nextId("x"));
        runner().withPropertyValues(
                        "snowmint.default-namespace=general", "snowmint.mybatis-plus.namespace=own")
                .run(context -> context.getBean(IdentifierGenerator.class).nextId("x"));
        runner().withPropertyValues("snowmint.mybatis-plus.namespace=own")
                .withBean(NamespaceMapper.class, () -> (entity, table) -> "mapped")
                .run(context -> context.getBean(IdentifierGenerator.class).nextId("x"));
        assertThat(server.requests())
                .extracting(FakeServer.Request::namespace)
                .containsExactly("general", "own", "mapped");
    }

    @Test
    void anotherGeneratorStays() {
        IdentifierGenerator own = entity -> 7;
        runner().withBean(IdentifierGenerator.class, () -> own)
                .run(
                        context ->
                                assertThat(context.getBean(IdentifierGenerator.class))
                                        .isSameAs(own));
    }

    private ApplicationContextRunner runner() {
        return new ApplicationContextRunner()
                .withInitializer(
                        // SNOWMINT_TIMEOUT would be a property, and SNOWMINT all of them.
                        context ->
                                context.getEnvironment()
                                        .getPropertySources()
                                        .remove(
                                                StandardEnvironment
                                                        .SYSTEM_ENVIRONMENT_PROPERTY_SOURCE_NAME))
                .withConfiguration(
                        AutoConfigurations.of(
                                SnowmintMybatisPlusAutoConfiguration.class,
                                SnowmintAutoConfiguration.class))
                .withPropertyValues(
                        "snowmint.servers=" + server.url(),
                        "snowmint.buffer.max=0",
                        "snowmint.timeout=1m");
    }
}
