package io.snowmint.examples.shardingsphere;

import org.postgresql.ds.PGSimpleDataSource;

import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Stores orders in two PostgreSQL databases by ShardingSphere-JDBC, with ids from Snowmint, and
 * checks that no id came twice and that both databases got rows.
 *
 * <p>SNOWMINT_SERVERS has the URLs of the servers, separated by commas; DATABASE_URL and
 * DATABASE_URL_2 are postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with the same user.
 */
public final class Application {
    private static final String SHARDED =
            "jdbc:shardingsphere:classpath:sharding.yaml?placeholder-type=system_props";
    private static final int THREADS = 8;
    private static final int INSERTS = 10;
    private static final int ROWS = 50;

    private Application() {}

    /** Fills the table, prints the numbers of rows and distinct ids, and exits. */
    public static void main(String[] args) throws Exception {
        List<PGSimpleDataSource> databases =
                List.of(
                        configure(0, variable("DATABASE_URL")),
                        configure(1, variable("DATABASE_URL_2")));
        System.setProperty("app.servers", variable("SNOWMINT_SERVERS"));
        // ShardingSphere reads the metadata of tables when it starts.
        for (PGSimpleDataSource database : databases) {
            try (Connection connection = database.getConnection();
                    Statement statement = connection.createStatement()) {
                statement.execute("DROP TABLE IF EXISTS orders");
                statement.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, item TEXT)");
            }
        }
        fill();
        System.out.println(check(databases));
        // The pools of ShardingSphere have threads that keep the process alive.
        System.exit(0);
    }

    private static String variable(String name) {
        return Objects.requireNonNull(System.getenv(name), "set the variable " + name);
    }

    /** Sets what the YAML file needs of a database, and returns the way around ShardingSphere. */
    private static PGSimpleDataSource configure(int number, String url) {
        URI uri = URI.create(url);
        String[] user = uri.getUserInfo().split(":", 2);
        String password = user.length == 2 ? user[1] : "";
        PGSimpleDataSource database = new PGSimpleDataSource();
        database.setUrl("jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + uri.getPath());
        database.setUser(user[0]);
        database.setPassword(password);
        System.setProperty("app.database." + number, database.getUrl());
        System.setProperty("app.user", user[0]);
        System.setProperty("app.password", password);
        return database;
    }

    /** Inserts rows by several threads, some with each statement. */
    private static void fill() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        try {
            List<Future<?>> tasks = new ArrayList<>();
            for (int insert = 0; insert < THREADS * INSERTS; insert++) {
                tasks.add(
                        threads.submit(
                                () -> {
                                    insert();
                                    return null;
                                }));
            }
            for (Future<?> task : tasks) {
                task.get();
            }
        } finally {
            threads.shutdownNow();
        }
    }

    private static void insert() throws SQLException {
        String sql = "INSERT INTO orders (item) VALUES (?)" + ", (?)".repeat(ROWS - 1);
        try (Connection connection = DriverManager.getConnection(SHARDED);
                PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int row = 1; row <= ROWS; row++) {
                statement.setString(row, "book");
            }
            statement.executeUpdate();
        }
    }

    private static String check(List<PGSimpleDataSource> databases) throws SQLException {
        int rows = 0;
        Set<Long> distinct = new HashSet<>();
        for (PGSimpleDataSource database : databases) {
            int before = rows;
            try (Connection connection = database.getConnection();
                    Statement statement = connection.createStatement();
                    ResultSet ids = statement.executeQuery("SELECT id FROM orders")) {
                while (ids.next()) {
                    rows++;
                    distinct.add(ids.getLong(1));
                }
            }
            if (rows == before) {
                throw new IllegalStateException(database.getUrl() + " got no rows");
            }
        }
        String result = String.format("{\"rows\":%d,\"distinct\":%d}", rows, distinct.size());
        int expected = THREADS * INSERTS * ROWS;
        if (rows != expected || distinct.size() != expected) {
            throw new IllegalStateException(
                    result + ": expected " + expected + " rows with distinct ids");
        }
        return result;
    }
}
