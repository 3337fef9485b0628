package io.snowmint.hibernate;

import static org.assertj.core.api.Assertions.assertThat;

import io.snowmint.client.SnowmintClient;
import io.snowmint.spring.boot.SnowmintAutoConfiguration;

import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.autoconfigure.orm.jpa.HibernatePropertiesCustomizer;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.core.env.StandardEnvironment;

import java.util.HashMap;
import java.util.Map;

class SnowmintHibernateAutoConfigurationTest {
    private final ApplicationContextRunner runner =
            new ApplicationContextRunner()
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
                                    SnowmintHibernateAutoConfiguration.class,
                                    SnowmintAutoConfiguration.class))
                    .withPropertyValues("snowmint.servers=http://127.0.0.1:1");

    @Test
    void hibernateGetsTheClientOfTheContextUnlessOneIsSet() {
        runner.run(
                context -> {
                    HibernatePropertiesCustomizer customizer =
                            context.getBean(HibernatePropertiesCustomizer.class);
                    Map<String, Object> empty = new HashMap<>();
                    customizer.customize(empty);
                    assertThat(empty)
                            .containsExactly(
                                    Map.entry(
                                            "hibernate.snowmint.client",
                                            context.getBean(SnowmintClient.class)));
                    Map<String, Object> set =
                            new HashMap<>(Map.of("hibernate.snowmint.client", "own"));
                    customizer.customize(set);
                    assertThat(set).containsEntry("hibernate.snowmint.client", "own");
                });
    }

    @Test
    void withoutAClientNothingIsSet() {
        new ApplicationContextRunner()
                .withConfiguration(AutoConfigurations.of(SnowmintHibernateAutoConfiguration.class))
                .run(
                        context ->
                                assertThat(context)
                                        .hasNotFailed()
                                        .doesNotHaveBean(HibernatePropertiesCustomizer.class));
    }
}
