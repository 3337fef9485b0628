package io.snowmint.spring.boot;

import io.snowmint.client.SnowmintClient;
import io.snowmint.spring.boot.SnowmintProperties.Buffer;
import io.snowmint.spring.boot.SnowmintProperties.ClientCertificate;

import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
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
                        .maxAge(properties.maxAge().duration());
        Buffer buffer = properties.buffer();
        builder.buffer(buffer.min(), buffer.max());
        if (properties.token() != null) {
            builder.token(properties.token());
        }
        if (properties.tokenFile() != null) {
            builder.tokenFile(properties.tokenFile());
        }
        if (properties.caFile() != null) {
            builder.caFile(properties.caFile());
        }
        ClientCertificate certificate = properties.clientCertificate();
        if (certificate != null) {
            if (certificate.certificate() == null || certificate.key() == null) {
                throw new InvalidConfigurationPropertyValueException(
                        "snowmint.client-certificate", null, "Set both certificate and key.");
            }
            builder.clientCertificate(certificate.certificate(), certificate.key());
        }
        if (properties.store() != null) {
            builder.store(properties.store());
        }
        properties
                .namespaces()
                .forEach(
                        (name, namespace) -> {
                            if (namespace.maxAge() != null) {
                                builder.namespaceMaxAge(name, namespace.maxAge().duration());
                            }
                        });
        return builder;
    }
}
