package io.snowmint.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.net.http.HttpHeaders;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.List;
import java.util.Map;

class RefusalTest {
    private static final String NOON = "Sun, 06 Nov 1994 12:00:00 GMT";

    private static Duration retryAfter(String text, String date) {
        return Refusal.retryAfter(
                HttpHeaders.of(
                        Map.of("Retry-After", List.of(text), "Date", List.of(date)),
                        (name, value) -> !value.isEmpty()));
    }

    @ParameterizedTest
    @CsvSource({
        "'30', 30",
        "' 0 ', 0",
        "'61', 60",
        "'18446744073709551616', 60",
        "'', ",
        "'soon', ",
        "'-3', ",
        "'1.5', ",
        "'\u0663', ",
        "'Sun, 06 Nov 1994 12:00:40 GMT', 40",
        "'Sun, 06 Nov 1994 11:00:00 GMT', 0",
        "'Mon, 01 Jan 2300 00:00:00 GMT', 60"
    })
    void retryAfter(String text, Long seconds) {
        Duration expected = seconds == null ? null : Duration.ofSeconds(seconds);
        assertEquals(expected, retryAfter(text, NOON));
    }

    @Test
    void withoutADateOfTheAnswerItCountsFromNow() {
        String soon =
                DateTimeFormatter.RFC_1123_DATE_TIME.format(
                        Instant.now().plusSeconds(40).atOffset(ZoneOffset.UTC));
        Duration after = retryAfter(soon, "");
        assertTrue(after.compareTo(Duration.ofSeconds(40)) <= 0 && !after.isZero(), soon);
        assertEquals(Duration.ZERO, retryAfter(NOON, "no date"));
    }
}
