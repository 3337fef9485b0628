package io.snowmint.mybatisplus;

import org.springframework.boot.context.properties.ConfigurationProperties;

/**
 * The properties {@code snowmint.mybatis-plus.*}.
 *
 * @param namespace Namespace of entities for which no NamespaceMapper names one. Default: the
 *     default namespace of Snowmint.
 */
@ConfigurationProperties("snowmint.mybatis-plus")
public record SnowmintMybatisPlusProperties(String namespace) {}
