package io.snowmint.spring.boot;

import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.core.env.StandardEnvironment;

/** Makes contexts of applications. */
final class TestContext {
    private TestContext() {}

    /**
     * Returns a runner that reads no variables of the environment: {@code SNOWMINT_TIMEOUT} would
     * be a property, and {@code SNOWMINT} all of them.
     */
    static ApplicationContextRunner runner(Class<?>... configurations) {
        return new ApplicationContextRunner()
                .withInitializer(
                        context ->
                                context.getEnvironment()
                                        .getPropertySources()
                                        .remove(
                                                StandardEnvironment
                                                        .SYSTEM_ENVIRONMENT_PROPERTY_SOURCE_NAME))
                .withConfiguration(AutoConfigurations.of(configurations));
    }
}
