package io.snowmint.bench;

import java.util.Arrays;
import java.util.concurrent.TimeUnit;

/**
 * A generator.
 *
 * @param isPaced whether the latency of a call is measured at 100,000 calls a second too
 */
record Row(String name, boolean isPaced, Loop loop) {
    private static final int RUNS = 5;

    /** About how long a run takes, and how long the JVM warms up before the first. */
    private static final long RUN_TIME = TimeUnit.MILLISECONDS.toNanos(300);

    private static final long WARM_UP = TimeUnit.SECONDS.toNanos(1);

    /** Number of calls at a steady rate, for p99.9. */
    private static final int PACED_CALLS = 100_000;

    private static final long PACE = TimeUnit.MICROSECONDS.toNanos(10);

    /** Keeps the JVM from leaving calls out whose ids nobody uses. */
    private static volatile long sink;

    /** Draws ids, one a call, and returns the last. */
    interface Loop {
        long draw(int calls);
    }

    /** Returns a line of JSON. */
    String measure() {
        StringBuilder line = new StringBuilder("{\"row\":\"" + name + "\",\"ns\":");
        line.append(rounded(nanoseconds()));
        if (isPaced) {
            double best = Double.MAX_VALUE;
            for (int i = 0; i < RUNS; i++) {
                best = Math.min(best, p999());
            }
            line.append(",\"p999_us\":").append(rounded(best));
        }
        return line.append('}').toString();
    }

    private static double rounded(double number) {
        return Math.round(number * 100) / 100.0;
    }

    /** Returns the time of a call in the best run. */
    private double nanoseconds() {
        int calls = 100;
        long warm = System.nanoTime() + WARM_UP;
        while (System.nanoTime() < warm || time(calls) < RUN_TIME / 2) {
            if (time(calls) < RUN_TIME / 2) {
                calls *= 2;
            }
        }
        double best = Double.MAX_VALUE;
        for (int i = 0; i < RUNS; i++) {
            best = Math.min(best, (double) time(calls) / calls);
        }
        return best;
    }

    private long time(int calls) {
        long began = System.nanoTime();
        sink = loop.draw(calls);
        return System.nanoTime() - began;
    }

    /** Returns the p99.9 of a call in µs, at a steady rate. */
    private double p999() {
        long[] latencies = new long[PACED_CALLS];
        long due = System.nanoTime();
        for (int i = 0; i < PACED_CALLS; i++) {
            due += PACE;
            // A sleep would be longer than the pace.
            while (System.nanoTime() - due < 0) {
                Thread.onSpinWait();
            }
            latencies[i] = time(1);
        }
        Arrays.sort(latencies);
        return latencies[PACED_CALLS / 1000 * 999] / 1000.0;
    }
}
