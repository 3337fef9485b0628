package io.snowmint.client;

import java.util.concurrent.Executor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The threads of a client: those that fill buffers, and those of its connections. They start on
 * demand, end when idle, and do not keep the JVM from its end.
 */
final class Workers implements Executor {
    private static final long KEPT_IDLE_SECONDS = 10;

    private final AtomicInteger started = new AtomicInteger();
    private final ThreadPoolExecutor pool =
            new ThreadPoolExecutor(
                    0,
                    Integer.MAX_VALUE,
                    KEPT_IDLE_SECONDS,
                    TimeUnit.SECONDS,
                    new SynchronousQueue<>(),
                    this::thread);

    private Thread thread(Runnable work) {
        String name = "snowmint-" + started.incrementAndGet();
        // A thread outlives the call that starts it, so it keeps nothing of the caller alive.
        Thread thread = new Thread(null, work, name, 0, false);
        thread.setContextClassLoader(null);
        thread.setDaemon(true);
        return thread;
    }

    /** Ends threads as soon as they are idle. What runs goes on, and may start more. */
    void close() {
        pool.setKeepAliveTime(0, TimeUnit.SECONDS);
    }

    @Override
    public void execute(Runnable work) {
        pool.execute(work);
    }
}
