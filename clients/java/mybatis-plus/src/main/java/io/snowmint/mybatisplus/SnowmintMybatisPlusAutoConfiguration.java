package io.snowmint.mybatisplus;

import com.baomidou.mybatisplus.core.incrementer.IdentifierGenerator;

import io.snowmint.client.SnowmintClient;
import io.snowmint.spring.boot.SnowmintProperties;

import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;

/** Gives MyBatis-Plus ids of Snowmint, unless there is another {@link IdentifierGenerator} bean. */
@AutoConfiguration(
        afterName = "io.snowmint.spring.boot.SnowmintAutoConfiguration",
        // It has a generator of its own, for applications without one.
        beforeName = "com.baomidou.mybatisplus.autoconfigure.IdentifierGeneratorAutoConfiguration")
@ConditionalOnClass(SnowmintProperties.class)
@ConditionalOnSingleCandidate(SnowmintClient.class)
@EnableConfigurationProperties(SnowmintMybatisPlusProperties.class)
public class SnowmintMybatisPlusAutoConfiguration {
    /** Creates the configuration. */
    public SnowmintMybatisPlusAutoConfiguration() {}

    /** Returns the generator, which MyBatis-Plus takes from the context. */
    @Bean
    @ConditionalOnMissingBean(IdentifierGenerator.class)
    SnowmintIdentifierGenerator snowmintIdentifierGenerator(
            SnowmintClient client,
            SnowmintProperties snowmint,
            SnowmintMybatisPlusProperties properties,
            ObjectProvider<NamespaceMapper> mapper) {
        String namespace = properties.namespace();
        return new SnowmintIdentifierGenerator(
                client,
                mapper.getIfUnique(() -> (entity, table) -> null),
                namespace == null ? snowmint.primaryNamespace() : namespace);
    }
}
