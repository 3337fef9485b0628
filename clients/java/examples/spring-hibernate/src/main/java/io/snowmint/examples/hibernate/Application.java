package io.snowmint.examples.hibernate;

import static java.util.Objects.requireNonNull;

import io.snowmint.examples.hibernate.PurchaseOrders.Totals;

import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;

/**
 * Stores orders in PostgreSQL by Spring Boot and Hibernate, with ids from Snowmint, and checks that
 * no id came twice.
 *
 * <p>SNOWMINT_SERVERS has the URLs of the servers, separated by commas; DATABASE_URL is
 * postgresql://USER:PASSWORD@HOST:PORT/DATABASE.
 */
@SpringBootApplication
public class Application {
    private static final int THREADS = 8;
    private static final int BATCHES = 5;
    private static final int BATCH = 50;
    private static final int ORDERS = THREADS * BATCHES * BATCH;

    /** Fills the tables, prints the numbers of rows and distinct ids, and exits. */
    public static void main(String[] args) throws Exception {
        URI database =
                URI.create(requireNonNull(System.getenv("DATABASE_URL"), "set DATABASE_URL"));
        String[] user = database.getUserInfo().split(":", 2);
        try (ConfigurableApplicationContext context =
                new SpringApplicationBuilder(Application.class)
                        .properties(
                                "spring.datasource.url=jdbc:postgresql://"
                                        + database.getHost()
                                        + ":"
                                        + database.getPort()
                                        + database.getPath(),
                                "spring.datasource.username=" + user[0],
                                "spring.datasource.password=" + (user.length == 2 ? user[1] : ""))
                        .run(args)) {
            PurchaseOrders orders = context.getBean(PurchaseOrders.class);
            fill(orders);
            System.out.println(check(orders.totals()));
        }
    }

    /** Stores orders by several threads, each batch in a transaction. */
    private static void fill(PurchaseOrders orders)
            throws InterruptedException, ExecutionException {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        try {
            List<Future<?>> tasks = new ArrayList<>();
            for (int batch = 0; batch < THREADS * BATCHES; batch++) {
                tasks.add(
                        threads.submit(
                                () ->
                                        orders.saveAll(
                                                IntStream.range(0, BATCH)
                                                        .mapToObj(n -> new PurchaseOrder("book", n))
                                                        .toList())));
            }
            for (Future<?> task : tasks) {
                task.get();
            }
        } finally {
            threads.shutdownNow();
        }
    }

    private static String check(Totals totals) {
        String result =
                String.format(
                        "{\"rows\":%d,\"distinct\":%d}",
                        totals.getTotal(), totals.getDistinctIds());
        if (totals.getTotal() != 2 * ORDERS
                || totals.getDistinctIds() != 2 * ORDERS
                || totals.getWithLine() != ORDERS) {
            throw new IllegalStateException(
                    result
                            + ": expected "
                            + 2 * ORDERS
                            + " rows with distinct ids, and each order with a line");
        }
        return result;
    }
}
