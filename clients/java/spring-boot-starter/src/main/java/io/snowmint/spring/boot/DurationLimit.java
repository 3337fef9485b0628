package io.snowmint.spring.boot;

import io.snowmint.client.SnowmintClient;

import org.springframework.boot.convert.DurationStyle;

import java.time.Duration;

/**
 * A duration of the configuration that may be {@code unlimited}.
 *
 * @param duration the duration, or {@link SnowmintClient#UNLIMITED}
 */
public record DurationLimit(Duration duration) {
    /**
     * Reads a duration such as {@code 500ms}, {@code 10s} or {@code PT10S}, or {@code unlimited}.
     * Spring calls it to bind properties.
     *
     * @param text the text
     * @return the duration
     * @throws IllegalArgumentException if the text is neither
     */
    public static DurationLimit valueOf(String text) {
        if (text.strip().equalsIgnoreCase("unlimited")) {
            return new DurationLimit(SnowmintClient.UNLIMITED);
        }
        try {
            return new DurationLimit(DurationStyle.detectAndParse(text.strip()));
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException(
                    "invalid duration \"" + text + "\": expected one such as 10s, or unlimited");
        }
    }
}
