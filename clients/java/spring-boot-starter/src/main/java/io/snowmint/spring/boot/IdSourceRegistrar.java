package io.snowmint.spring.boot;

import io.snowmint.client.IdSource;
import io.snowmint.client.TextIdSource;
import io.snowmint.spring.boot.SnowmintProperties.Namespace;

import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.beans.factory.config.ConstructorArgumentValues;
import org.springframework.beans.factory.support.AbstractBeanDefinition;
import org.springframework.beans.factory.support.AutowireCandidateQualifier;
import org.springframework.beans.factory.support.BeanDefinitionRegistry;
import org.springframework.beans.factory.support.RootBeanDefinition;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.context.EnvironmentAware;
import org.springframework.context.annotation.ImportBeanDefinitionRegistrar;
import org.springframework.core.env.Environment;
import org.springframework.core.type.AnnotationMetadata;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Registers a bean for each namespace of the configuration: {@code ordersIdSource} with the
 * qualifier {@code orders}, so that its name does not collide with other beans.
 */
class IdSourceRegistrar implements ImportBeanDefinitionRegistrar, EnvironmentAware {
    private static final String FACTORY = "snowmintIdSourceFactory";

    private Environment environment;

    @Override
    public void setEnvironment(Environment environment) {
        this.environment = environment;
    }

    @Override
    public void registerBeanDefinitions(
            AnnotationMetadata importing, BeanDefinitionRegistry registry) {
        SnowmintProperties properties =
                Binder.get(environment).bindOrCreate("snowmint", SnowmintProperties.class);
        RootBeanDefinition factory = new RootBeanDefinition(IdSourceFactory.class);
        factory.setAutowireMode(AbstractBeanDefinition.AUTOWIRE_CONSTRUCTOR);
        factory.setAutowireCandidate(false);
        registry.registerBeanDefinition(FACTORY, factory);

        Map<String, Namespace> namespaces = new LinkedHashMap<>(properties.namespaces());
        String primary = properties.primaryNamespace();
        if (primary != null) {
            namespaces.putIfAbsent(primary, new Namespace(null, false));
        }
        namespaces.forEach(
                (name, namespace) -> {
                    String bean = name + (namespace.text() ? "TextIdSource" : "IdSource");
                    if (!registry.containsBeanDefinition(bean)) {
                        registry.registerBeanDefinition(
                                bean, definition(name, namespace, name.equals(primary)));
                    }
                });
    }

    private static RootBeanDefinition definition(
            String name, Namespace namespace, boolean primary) {
        RootBeanDefinition definition = new RootBeanDefinition();
        definition.setTargetType(namespace.text() ? TextIdSource.class : IdSource.class);
        definition.setFactoryBeanName(FACTORY);
        definition.setFactoryMethodName(namespace.text() ? "texts" : "numbers");
        ConstructorArgumentValues arguments = new ConstructorArgumentValues();
        arguments.addIndexedArgumentValue(0, name);
        definition.setConstructorArgumentValues(arguments);
        definition.addQualifier(new AutowireCandidateQualifier(Qualifier.class, name));
        definition.setPrimary(primary);
        return definition;
    }
}
