package io.snowmint.spring.boot;

import io.snowmint.client.IdSource;
import io.snowmint.client.SnowmintException;
import io.snowmint.client.TextIdSource;

import org.springframework.boot.actuate.health.AbstractHealthIndicator;
import org.springframework.boot.actuate.health.Health;

import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Predicate;

/**
 * Shows whether ids can be had of each namespace that has a bean.
 *
 * <p>Ids in memory that do not age prove it. Any other namespace is checked by a call for one id,
 * which is lost: its details have {@code drawn: 1}. The call waits up to {@code snowmint.timeout}.
 * Without permission to draw, the status is {@code UNKNOWN}. The check ends at the first namespace
 * that fails.
 */
public class SnowmintHealthIndicator extends AbstractHealthIndicator {
    private final Collection<IdSource> numbers;
    private final Collection<TextIdSource> texts;
    private final Predicate<String> ages;
    private final boolean draw;

    /**
     * Creates an indicator.
     *
     * @param numbers the namespaces to check
     * @param texts the namespaces with a text form to check
     * @param ages whether the ids of a namespace age
     * @param draw whether it may draw an id
     */
    public SnowmintHealthIndicator(
            Collection<IdSource> numbers,
            Collection<TextIdSource> texts,
            Predicate<String> ages,
            boolean draw) {
        super("Snowmint health check failed");
        this.numbers = numbers;
        this.texts = texts;
        this.ages = ages;
        this.draw = draw;
    }

    @Override
    protected void doHealthCheck(Health.Builder builder) {
        if (numbers.isEmpty() && texts.isEmpty()) {
            builder.unknown().withDetail("reason", "no namespace: set snowmint.namespaces");
            return;
        }
        builder.up();
        for (IdSource source : numbers) {
            check(builder, source.namespace(), source.buffered(), source::next);
        }
        for (TextIdSource source : texts) {
            check(builder, source.namespace(), source.buffered(), source::next);
        }
    }

    /** Checks one namespace. An exception of the draw is the status down, with its message. */
    private void check(Health.Builder builder, String namespace, int buffered, Runnable next) {
        Map<String, Integer> details = new LinkedHashMap<>();
        details.put("buffered", buffered);
        // Ids that age may be too old, and count nevertheless.
        boolean proven = buffered > 0 && !ages.test(namespace);
        if (!proven && draw) {
            try {
                next.run();
            } catch (SnowmintException e) {
                builder.withDetail("namespace", namespace);
                throw e;
            }
            details.put("drawn", 1);
        } else if (!proven) {
            builder.unknown();
        }
        builder.withDetail(namespace, details);
    }
}
