package io.snowmint.client;

import static java.util.Objects.requireNonNull;

import java.net.URI;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A client of one or more Snowmint servers that share a store. Create one with {@link #builder} and
 * share it: any number of threads may use it, virtual ones too.
 */
public final class SnowmintClient implements AutoCloseable {
    /** The longest duration. As a maximum age, ids never become too old. */
    public static final Duration UNLIMITED = Duration.ofSeconds(Long.MAX_VALUE, 999_999_999);

    private final Duration maxAge;
    private final Map<String, Duration> namespaceMaxAge;
    private final int bufferMin;
    private final int bufferMax;
    private final Workers workers = new Workers();
    private final Fetcher fetcher;

    /** Guards the creation of sources, so that none is missed by {@link #close}. */
    private final Object creation = new Object();

    private final Map<String, NumberSource> numbers = new ConcurrentHashMap<>();
    private final Map<String, TextSource> texts = new ConcurrentHashMap<>();
    private boolean isClosed;

    private SnowmintClient(Options options) {
        options.check();
        maxAge = options.maxAge;
        namespaceMaxAge = Map.copyOf(options.namespaceMaxAge);
        bufferMin = options.bufferMin;
        bufferMax = options.bufferMax;
        List<URI> servers = new ArrayList<>();
        options.servers.forEach(server -> servers.add(Options.serverUri(server)));
        Random random = new Random();
        if (options.order == Order.SHUFFLED) {
            Collections.shuffle(servers, random);
        }
        fetcher =
                new Fetcher(
                        servers,
                        new Transport(Tls.of(options), workers),
                        Token.of(options),
                        new ServerChoice(servers.size(), random),
                        new StoreCheck(options.store),
                        workers,
                        options.timeout,
                        options.hedgeAfter);
    }

    /**
     * Returns the options of a new client, all but the servers with their defaults.
     *
     * @return the options
     */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * Returns a handle for the ids of a namespace: plain numbers, of a snowflake layout or a
     * segment. It sends no request. An invalid name is the error of each call of the handle. The
     * client keeps the handle and its ids until it is closed.
     *
     * @param name name of the namespace: 1 to 64 letters, digits, {@code .}, {@code _}, {@code -}
     *     or {@code :}
     * @return the handle, always the same for a name
     */
    public IdSource namespace(String name) {
        NumberSource known = numbers.get(requireNonNull(name, "name"));
        if (known != null) {
            return known;
        }
        synchronized (creation) {
            if (!canCreate(name)) {
                return new NumberSource(stopped(name));
            }
            return numbers.computeIfAbsent(name, it -> new NumberSource(source(it, false)));
        }
    }

    /**
     * Returns a handle for the ids of a namespace with a text form. Otherwise it is like {@link
     * #namespace}.
     *
     * @param name name of the namespace
     * @return the handle, always the same for a name
     */
    public TextIdSource texts(String name) {
        TextSource known = texts.get(requireNonNull(name, "name"));
        if (known != null) {
            return known;
        }
        synchronized (creation) {
            if (!canCreate(name)) {
                return new TextSource(stopped(name));
            }
            return texts.computeIfAbsent(name, it -> new TextSource(source(it, true)));
        }
    }

    private boolean canCreate(String name) {
        return !isClosed && Namespace.isValid(name);
    }

    /** Returns a source whose calls all fail. */
    private Source stopped(String name) {
        Source source = source(name, false);
        source.stop(
                Namespace.isValid(name)
                        ? CallError.closed(name)
                        : CallError.invalidNamespace(name));
        return source;
    }

    private Source source(String name, boolean isText) {
        long age = Texts.nanos(namespaceMaxAge.getOrDefault(name, maxAge));
        Namespace namespace = new Namespace(name, isText, fetcher.servers().size());
        return new Source(
                namespace,
                fetcher,
                workers,
                age,
                bufferMax > 0,
                new Target(
                        bufferMin, bufferMax, age, isText ? Target.MAX_TEXTS : Target.MAX_REQUEST),
                Clock.SYSTEM);
    }

    /**
     * Returns the identity of the store whose ids this client returns: the one that was set, or
     * that the first answer named.
     *
     * @return the identity, or nothing before the first answer
     */
    public Optional<String> store() {
        return fetcher.store();
    }

    /**
     * Returns counts for metrics.
     *
     * @return the counts since the client was created
     */
    public ClientStats stats() {
        long buffered = sources().stream().mapToLong(Source::buffered).sum();
        return fetcher.stats(buffered);
    }

    /**
     * Drops all ids and closes the connections. Calls that wait and all later calls get an error of
     * the kind {@link ErrorKind#CLOSED}.
     */
    @Override
    public void close() {
        List<Source> open;
        synchronized (creation) {
            isClosed = true;
            open = sources();
        }
        open.forEach(source -> source.stop(CallError.closed(source.name())));
        fetcher.close();
        workers.close();
    }

    private List<Source> sources() {
        List<Source> sources = new ArrayList<>();
        numbers.values().forEach(it -> sources.add(it.source));
        texts.values().forEach(it -> sources.add(it.source));
        return sources;
    }

    /** The options of a client. Only {@link #server} is required. */
    public static final class Builder {
        private final Options options = new Options();

        private Builder() {}

        /**
         * Adds a node of the service.
         *
         * @param url {@code http://HOST:PORT} or {@code https://…}, with a path if a proxy needs it
         * @return this
         */
        public Builder server(String url) {
            options.servers.add(requireNonNull(url, "url"));
            return this;
        }

        /**
         * Adds nodes of one service. All must share one store.
         *
         * @param urls URLs, as for {@link #server}
         * @return this
         */
        public Builder servers(Collection<String> urls) {
            urls.forEach(this::server);
            return this;
        }

        /**
         * Sets which server gets a request first. Default: {@link Order#SHUFFLED}.
         *
         * @param order the order
         * @return this
         */
        public Builder order(Order order) {
            options.order = requireNonNull(order, "order");
            return this;
        }

        /**
         * Sets the token, sent to every server as {@code Authorization: Bearer}. Over http, anyone
         * on the network path can read it.
         *
         * @param token the token; white space around it is ignored
         * @return this
         */
        public Builder token(String token) {
            options.token = requireNonNull(token, "token");
            return this;
        }

        /**
         * Sets a file with the token. It is read for each request, so a new token takes effect
         * immediately.
         *
         * @param file the file
         * @return this
         */
        public Builder tokenFile(Path file) {
            options.tokenFile = requireNonNull(file, "file");
            return this;
        }

        /**
         * Sets a PEM file with the certificate authorities to trust. Default: those of the JDK.
         *
         * @param file the file
         * @return this
         */
        public Builder caFile(Path file) {
            options.caFile = requireNonNull(file, "file");
            return this;
        }

        /**
         * Sets the client's certificate, for servers that require one.
         *
         * @param certificate PEM file with the certificate, and those of authorities between
         * @param key PEM file with its key, not encrypted: PKCS#8, or PKCS#1 or SEC 1 as OpenSSL
         *     writes them
         * @return this
         */
        public Builder clientCertificate(Path certificate, Path key) {
            options.certificate = requireNonNull(certificate, "certificate");
            options.key = requireNonNull(key, "key");
            return this;
        }

        /**
         * Sets the identity of the store of the servers, as {@code snowmint doctor} shows it. Ids
         * of any other store are dropped, and ids without a store too. Default: the store of the
         * first answer.
         *
         * @param store {@code smst_} and 26 digits or small letters
         * @return this
         */
        public Builder store(String store) {
            options.store = requireNonNull(store, "store");
            return this;
        }

        /**
         * Sets how long a call waits for ids. Default: 5 s.
         *
         * @param timeout 1 ms to 1 h
         * @return this
         */
        public Builder timeout(Duration timeout) {
            options.timeout = requireNonNull(timeout, "timeout");
            return this;
        }

        /**
         * Sets how long a server may take before a second one gets the same request. Default: 50
         * ms.
         *
         * @param time more than 0
         * @return this
         */
        public Builder hedgeAfter(Duration time) {
            options.hedgeAfter = requireNonNull(time, "time");
            return this;
        }

        /**
         * Turns hedging off: the second server gets a request when the first has failed.
         *
         * @return this
         */
        public Builder withoutHedging() {
            return hedgeAfter(UNLIMITED);
        }

        /**
         * Sets the maximum age of an id from memory, counted from its request. Default: 1 s. Ids of
         * two clients sort by time only up to this age. A call that waits may return ids that are
         * older by its waiting time.
         *
         * @param age at least 1 ms, or {@link #UNLIMITED}
         * @return this
         */
        public Builder maxAge(Duration age) {
            options.maxAge = requireNonNull(age, "age");
            return this;
        }

        /**
         * Sets the maximum age for one namespace. Use {@link #UNLIMITED} for numbers of a segment,
         * so that none are dropped.
         *
         * @param namespace name of the namespace
         * @param age at least 1 ms, or {@link #UNLIMITED}
         * @return this
         */
        public Builder namespaceMaxAge(String namespace, Duration age) {
            options.namespaceMaxAge.put(
                    requireNonNull(namespace, "namespace"), requireNonNull(age, "age"));
            return this;
        }

        /**
         * Sets how many ids each namespace keeps in memory. Within its bounds the number follows
         * the use. Default: 0 to 1,000,000. Of texts at most 100,000 are kept. With 0 to 0 nothing
         * is kept, and each call is a request.
         *
         * @param min minimum number of ids, 0 or more
         * @param max maximum number of ids, up to 1,000,000
         * @return this
         */
        public Builder buffer(int min, int max) {
            options.bufferMin = min;
            options.bufferMax = max;
            return this;
        }

        /**
         * Creates the client. It sends no request, and starts no thread.
         *
         * @return the client
         * @throws SnowmintException of the kind {@link ErrorKind#INVALID_OPTION}
         */
        public SnowmintClient build() {
            return new SnowmintClient(options);
        }
    }
}
