/** Configures Snowmint in Spring Boot: a client, a bean for each namespace, health and metrics. */
package io.snowmint.spring.boot;
