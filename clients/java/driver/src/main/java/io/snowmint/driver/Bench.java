package io.snowmint.driver;

import io.snowmint.client.IdSource;

import java.util.Arrays;
import java.util.Map;

/** Measures calls for one id in one thread. */
final class Bench {
    private static final int TIMED_CALLS = 100_000;

    private Bench() {}

    static Map<String, Object> run(IdSource ids, Command command) {
        int count = Math.max(1, command.number("count", 1_000_000));
        // The buffer grows with the use, and the JVM compiles.
        for (int i = 0; i < count; i++) {
            ids.next();
        }
        long began = System.nanoTime();
        for (int i = 0; i < count; i++) {
            ids.next();
        }
        long took = System.nanoTime() - began;
        long[] each = new long[Math.min(count, TIMED_CALLS)];
        for (int i = 0; i < each.length; i++) {
            long before = System.nanoTime();
            ids.next();
            each[i] = System.nanoTime() - before;
        }
        Arrays.sort(each);
        double p999 = each[(int) (each.length * 999L / 1000)] / 1000.0;
        return Map.of("ns_each", (double) took / count, "p999_us", p999);
    }
}
