package io.snowmint.examples.mybatisplus;

import static java.util.Objects.requireNonNull;

import io.snowmint.mybatisplus.NamespaceMapper;

import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.jdbc.core.JdbcTemplate;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Stores orders in PostgreSQL by Spring Boot and MyBatis-Plus, with ids from Snowmint, and checks
 * that no id came twice.
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

    /** Orders have numbers of the segment {@code orders}, other tables the default namespace. */
    @Bean
    NamespaceMapper namespaces() {
        return (entity, table) -> "orders".equals(table) ? "orders" : null;
    }

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
            fill(context.getBean(Store.class));
            System.out.println(check(context.getBean(JdbcTemplate.class)));
        }
    }

    /** Stores orders by several threads, each batch in a transaction. */
    private static void fill(Store store) throws InterruptedException, ExecutionException {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        try {
            List<Future<?>> tasks = new ArrayList<>();
            for (int batch = 0; batch < THREADS * BATCHES; batch++) {
                tasks.add(threads.submit(() -> store.create(BATCH)));
            }
            for (Future<?> task : tasks) {
                task.get();
            }
        } finally {
            threads.shutdownNow();
        }
    }

    private static String check(JdbcTemplate database) {
        Map<String, Object> found =
                database.queryForMap(
                        """
                        WITH ids AS (SELECT id::TEXT FROM orders UNION ALL SELECT id FROM lines)
                        SELECT count(*) AS total, count(DISTINCT id) AS distinct_ids,
                            (SELECT count(DISTINCT order_id) FROM lines) AS with_line FROM ids""");
        String result =
                String.format(
                        "{\"rows\":%s,\"distinct\":%s}",
                        found.get("total"), found.get("distinct_ids"));
        if (!result.equals(String.format("{\"rows\":%d,\"distinct\":%1$d}", 2 * ORDERS))
                || !found.get("with_line").equals((long) ORDERS)) {
            throw new IllegalStateException(
                    found
                            + ": expected "
                            + 2 * ORDERS
                            + " rows with distinct ids, and each order with a line");
        }
        return result;
    }
}
