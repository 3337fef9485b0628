package io.snowmint.spring.boot;

import io.snowmint.client.Order;

import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * The properties {@code snowmint.*}.
 *
 * @param servers URLs of the nodes of one service, such as http://HOST:PORT.
 * @param order Which server gets a request first.
 * @param token Token of the service. Over http, anyone on the network path can read it.
 * @param tokenFile File that has the token. It is read for each request.
 * @param caFile PEM file of the certificate authorities to trust, instead of those of the system.
 * @param clientCertificate Certificate of this client, for servers that require one.
 * @param store Identity of the store of the servers, as `snowmint doctor` shows it.
 * @param timeout How long a call waits for ids, 1 ms to 1 h.
 * @param hedgeAfter How long a server may take before a second one gets the same request;
 *     `unlimited` turns it off.
 * @param maxAge Maximum age of an id from memory, or `unlimited`.
 * @param buffer Number of ids in memory, for each namespace.
 * @param defaultNamespace Namespace of the primary IdSource bean. With one namespace below
 *     `snowmint.namespaces`, that one.
 * @param namespaces Namespaces that get a bean, by name.
 */
@ConfigurationProperties("snowmint")
public record SnowmintProperties(
        @DefaultValue List<String> servers,
        @DefaultValue("shuffled") Order order,
        String token,
        Path tokenFile,
        Path caFile,
        ClientCertificate clientCertificate,
        String store,
        @DefaultValue("5s") Duration timeout,
        @DefaultValue("50ms") DurationLimit hedgeAfter,
        @DefaultValue("1s") DurationLimit maxAge,
        @DefaultValue Buffer buffer,
        String defaultNamespace,
        @DefaultValue Map<String, Namespace> namespaces) {

    /**
     * The PEM files of the client's certificate.
     *
     * @param certificate PEM file of the certificate.
     * @param key PEM file of its key.
     */
    public record ClientCertificate(Path certificate, Path key) {}

    /**
     * Bounds of the number of ids in memory, for each namespace.
     *
     * @param min Minimum number of ids in memory, for each namespace.
     * @param max Maximum number of ids in memory, for each namespace. 0 keeps none.
     */
    public record Buffer(@DefaultValue("0") int min, @DefaultValue("1000000") int max) {}

    /**
     * The options of one namespace.
     *
     * @param maxAge Maximum age of an id from memory, or `unlimited` for the numbers of a segment.
     * @param text Whether the ids have a text form. The bean is a TextIdSource then.
     */
    public record Namespace(DurationLimit maxAge, @DefaultValue("false") boolean text) {
        /**
         * Returns the defaults, for a namespace that is listed without options: {@code
         * snowmint.namespaces.orders=}.
         *
         * @param empty an empty text
         * @return the defaults
         * @throws IllegalArgumentException if the text is not empty
         */
        public static Namespace valueOf(String empty) {
            if (!empty.isBlank()) {
                throw new IllegalArgumentException(
                        "invalid namespace options \"" + empty + "\": expected none here");
            }
            return new Namespace(null, false);
        }
    }

    /**
     * Returns the name of the primary namespace.
     *
     * @return the name; null if there are several and {@code snowmint.default-namespace} is not set
     */
    public String primaryNamespace() {
        if (defaultNamespace != null || namespaces.size() != 1) {
            return defaultNamespace;
        }
        return namespaces.keySet().iterator().next();
    }

    /**
     * Returns the maximum age of the ids of a namespace.
     *
     * @param name the namespace
     * @return its own maximum age, or the general one
     */
    public Duration maxAgeOf(String name) {
        Namespace namespace = namespaces.get(name);
        return namespace == null || namespace.maxAge() == null
                ? maxAge.duration()
                : namespace.maxAge().duration();
    }

    /** Returns all options but the token. */
    @Override
    public String toString() {
        return "SnowmintProperties[servers="
                + servers
                + ", token="
                + (token == null ? "none" : "(set)")
                + ", namespaces="
                + namespaces
                + "]";
    }
}
