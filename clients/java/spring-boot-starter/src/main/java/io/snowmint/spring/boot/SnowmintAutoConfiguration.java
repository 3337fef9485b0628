package io.snowmint.spring.boot;

import io.snowmint.client.SnowmintClient;
import io.snowmint.spring.boot.SnowmintProperties.ClientCertificate;

import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.context.properties.PropertyMapper;
import org.springframework.boot.context.properties.source.InvalidConfigurationPropertyValueException;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Import;

/** Configures a {@link SnowmintClient}, and a bean for each namespace of the configuration. */
@AutoConfiguration
@EnableConfigurationProperties(SnowmintProperties.class)
@Import(IdSourceRegistrar.class)
public class SnowmintAutoConfiguration {
    /** Creates the configuration. */
    public SnowmintAutoConfiguration() {}

    /** Returns the client. It sends no request before the first id is drawn. */
    @Bean
    @ConditionalOnMissingBean
    SnowmintClient snowmintClient(
            SnowmintProperties properties,
            ObjectProvider<SnowmintClientBuilderCustomizer> customizers) {
        SnowmintClient.Builder builder = builder(properties);
        customizers.orderedStream().forEach(customizer -> customizer.customize(builder));
        return builder.build();
    }

    private static SnowmintClient.Builder builder(SnowmintProperties properties) {
        if (properties.servers().isEmpty()) {
            throw new InvalidConfigurationPropertyValueException(
                    "snowmint.servers", null, "Name a server, such as http://localhost:8080.");
        }
        SnowmintClient.Builder builder =
                SnowmintClient.builder()
                        .servers(properties.servers())
                        .order(properties.order())
                        .timeout(properties.timeout())
                        .hedgeAfter(properties.hedgeAfter().duration())
                        .maxAge(properties.maxAge().duration())
                        .buffer(properties.buffer().min(), properties.buffer().max());
        // An empty text is no option, so that a placeholder may have an empty default.
        PropertyMapper map = PropertyMapper.get().alwaysApplyingWhenNonNull();
        map.from(properties::token).whenHasText().to(builder::token);
        map.from(properties::tokenFile).to(builder::tokenFile);
        map.from(properties::caFile).to(builder::caFile);
        map.from(properties::clientCertificate).to(pair -> certificate(pair, builder));
        map.from(properties::store).whenHasText().to(builder::store);
        properties
                .namespaces()
                .forEach(
                        (name, namespace) ->
                                map.from(namespace::maxAge)
                                        .as(DurationLimit::duration)
                                        .to(age -> builder.namespaceMaxAge(name, age)));
        return builder;
    }

    private static void certificate(ClientCertificate pair, SnowmintClient.Builder builder) {
        if (pair.certificate() == null || pair.key() == null) {
            throw new InvalidConfigurationPropertyValueException(
                    "snowmint.client-certificate", null, "Set both certificate and key.");
        }
        builder.clientCertificate(pair.certificate(), pair.key());
    }
}
