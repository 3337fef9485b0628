package io.snowmint.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyPairGenerator;
import java.security.KeyStore;
import java.time.Duration;
import java.util.Base64;

import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.TrustManagerFactory;

@Timeout(60)
class TlsTest {
    private static final char[] PASSWORD = "password".toCharArray();

    @TempDir static Path folder;
    private static KeyStore server;
    private static KeyStore client;

    @BeforeAll
    static void makeCertificates() throws Exception {
        server = newCertificate("server");
        client = newCertificate("client");
    }

    /** Makes a certificate that certifies itself, and its PEM files. */
    private static KeyStore newCertificate(String name) throws Exception {
        Path file = folder.resolve(name + ".p12");
        Process keytool =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin", "keytool")
                                        .toString(),
                                "-J-XX:TieredStopAtLevel=1",
                                "-genkeypair",
                                "-keystore",
                                file.toString(),
                                "-storepass",
                                String.valueOf(PASSWORD),
                                "-alias",
                                name,
                                "-keyalg",
                                "EC",
                                "-dname",
                                "CN=" + name,
                                "-ext",
                                "san=ip:127.0.0.1")
                        .inheritIO()
                        .start();
        assertEquals(0, keytool.waitFor());
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream input = Files.newInputStream(file)) {
            store.load(input, PASSWORD);
        }
        writePem(pem(name), "CERTIFICATE", store.getCertificate(name).getEncoded());
        writePem(key(name), "PRIVATE KEY", store.getKey(name, PASSWORD).getEncoded());
        return store;
    }

    private static Path pem(String name) {
        return folder.resolve(name + ".pem");
    }

    private static Path key(String name) {
        return folder.resolve(name + ".key");
    }

    private static void writePem(Path file, String type, byte[] der) throws IOException {
        String base64 = Base64.getMimeEncoder().encodeToString(der);
        Files.writeString(
                file, "-----BEGIN %s-----\n%s\n-----END %s-----\n".formatted(type, base64, type));
    }

    /** Starts a server that requires a client certificate. */
    private static TestServer start(String protocol, KeyStore trusted)
            throws IOException, GeneralSecurityException {
        KeyManagerFactory own = KeyManagerFactory.getInstance("SunX509");
        own.init(server, PASSWORD);
        KeyStore authorities = KeyStore.getInstance("PKCS12");
        authorities.load(null, null);
        String alias = trusted.aliases().nextElement();
        authorities.setCertificateEntry(alias, trusted.getCertificate(alias));
        TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
        trust.init(authorities);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(own.getKeyManagers(), trust.getTrustManagers(), null);
        SSLServerSocket listener =
                (SSLServerSocket)
                        context.getServerSocketFactory()
                                .createServerSocket(0, 50, InetAddress.getLoopbackAddress());
        listener.setNeedClientAuth(true);
        listener.setEnabledProtocols(new String[] {protocol});
        return new TestServer(listener);
    }

    private static SnowmintClient.Builder builder(TestServer server) {
        return SnowmintClient.builder()
                .server(server.url().replace("http:", "https:"))
                .timeout(Duration.ofMinutes(1))
                .withoutHedging()
                .buffer(0, 0);
    }

    /**
     * Goal: the client sends its certificate to a server that requires one. A server that does not
     * trust it is an error of the kind INVALID_CERTIFICATE, over each version of TLS.
     */
    @ParameterizedTest
    @CsvSource({"TLSv1.3, true", "TLSv1.3, false", "TLSv1.2, true", "TLSv1.2, false"})
    void clientCertificates(String protocol, boolean isTrusted) throws Exception {
        try (TestServer tls = start(protocol, isTrusted ? client : server);
                SnowmintClient own =
                        builder(tls)
                                .caFile(pem("server"))
                                .clientCertificate(pem("client"), key("client"))
                                .build()) {
            IdSource ids = own.namespace("orders");
            if (isTrusted) {
                assertTrue(ids.next() >= 1);
            } else {
                assertEquals(ErrorKind.INVALID_CERTIFICATE, kindOf(ids));
            }
        }
    }

    private static ErrorKind kindOf(IdSource ids) {
        return assertThrows(SnowmintException.class, ids::next).kind();
    }

    /** Goal: without a certificate, the server's demand for one is said. */
    @Test
    void aMissingClientCertificate() throws Exception {
        try (TestServer tls = start("TLSv1.3", client);
                SnowmintClient none = builder(tls).caFile(pem("server")).build()) {
            assertEquals(ErrorKind.INVALID_CERTIFICATE, kindOf(none.namespace("orders")));
        }
    }

    /** Goal: neither an unknown authority nor another host name is trusted. */
    @Test
    void serversThatAreNotTrusted() throws Exception {
        try (TestServer tls = start("TLSv1.3", client);
                SnowmintClient other = builder(tls).caFile(pem("client")).build();
                SnowmintClient jdk = builder(tls).build();
                SnowmintClient otherHost =
                        SnowmintClient.builder()
                                .server(tls.url().replace("http://127.0.0.1", "https://localhost"))
                                .caFile(pem("server"))
                                .build()) {
            assertEquals(ErrorKind.INVALID_CERTIFICATE, kindOf(other.namespace("orders")));
            assertEquals(ErrorKind.INVALID_CERTIFICATE, kindOf(jdk.namespace("orders")));
            assertEquals(ErrorKind.INVALID_CERTIFICATE, kindOf(otherHost.namespace("orders")));
            assertTrue(tls.requests.isEmpty());
        }
    }

    /** Goal: an http server behind an https URL is no question of certificates. */
    @Test
    void aServerWithoutTls() throws Exception {
        try (TestServer plain = new TestServer();
                SnowmintClient tls = builder(plain).timeout(Duration.ofMillis(200)).build()) {
            assertEquals(ErrorKind.UNAVAILABLE, kindOf(tls.namespace("orders")));
        }
    }

    @Test
    void aKeyOfAnotherCertificate() throws Exception {
        Path rsa = folder.resolve("rsa.key");
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(1024);
        writePem(rsa, "PRIVATE KEY", generator.generateKeyPair().getPrivate().getEncoded());
        for (Path key : new Path[] {rsa, key("server")}) {
            SnowmintException e =
                    assertThrows(
                            SnowmintException.class,
                            () ->
                                    SnowmintClient.builder()
                                            .server("https://localhost")
                                            .clientCertificate(pem("client"), key)
                                            .build());
            assertEquals(ErrorKind.INVALID_OPTION, e.kind());
            assertTrue(e.getMessage().contains("the key is not that of"), e.getMessage());
        }
    }
}
