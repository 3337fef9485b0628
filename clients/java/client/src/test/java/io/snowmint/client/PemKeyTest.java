package io.snowmint.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyPairGenerator;
import java.security.PrivateKey;
import java.security.interfaces.ECPrivateKey;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;

class PemKeyTest {
    /** One key for this test, as OpenSSL writes it in both forms. */
    private static final String SEC1 =
            """
            MHcCAQEEIPYkFfO5Z0uU7a1/fDvRZRQlfQG18w+849CeU8k8zX/+oAoGCCqGSM49
            AwEHoUQDQgAEOI6lKNrFKyCzFcw8/DdMrfH88kztqNtVeAiZ9Ld6ERlb7QhJBPpq
            7EjvJFm9lXdfgFnUjVmF0fUm7U3k9e+KsQ==
            """;

    private static final String PKCS8 =
            """
            MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg9iQV87lnS5TtrX98
            O9FlFCV9AbXzD7zj0J5TyTzNf/6hRANCAAQ4jqUo2sUrILMVzDz8N0yt8fzyTO2o
            21V4CJn0t3oRGVvtCEkE+mrsSO8kWb2Vd1+AWdSNWYXR9SbtTeT174qx
            """;

    @TempDir Path folder;

    private PrivateKey read(String type, String base64) throws IOException {
        Path file = folder.resolve("key.pem");
        Files.writeString(
                file,
                "Some text\n-----BEGIN %s-----\n%s-----END %s-----\n"
                        .formatted(type, base64, type));
        return PemKey.read(file);
    }

    private static String base64(byte[] der) {
        return Base64.getMimeEncoder().encodeToString(der) + "\n";
    }

    @Test
    void sec1IsTheSameKeyAsPkcs8() throws IOException {
        ECPrivateKey one = (ECPrivateKey) read("EC PRIVATE KEY", SEC1);
        ECPrivateKey other = (ECPrivateKey) read("PRIVATE KEY", PKCS8);
        assertEquals(other.getS(), one.getS());
        assertEquals(other.getParams().getCurve(), one.getParams().getCurve());
    }

    @ParameterizedTest
    @ValueSource(ints = {1024, 2048})
    void pkcs1(int bits) throws IOException, GeneralSecurityException {
        byte[] pkcs8 = newKey("RSA", bits);
        // PKCS#8 is 26 bytes, then PKCS#1.
        byte[] pkcs1 = Arrays.copyOfRange(pkcs8, 26, pkcs8.length);
        assertArrayEquals(pkcs8, read("RSA PRIVATE KEY", base64(pkcs1)).getEncoded());
    }

    private static byte[] newKey(String algorithm, int bits) throws GeneralSecurityException {
        KeyPairGenerator generator = KeyPairGenerator.getInstance(algorithm);
        generator.initialize(bits);
        return generator.generateKeyPair().getPrivate().getEncoded();
    }

    @Test
    void edwardsCurves() throws IOException, GeneralSecurityException {
        byte[] key = newKey("Ed25519", 255);
        assertArrayEquals(key, read("PRIVATE KEY", base64(key)).getEncoded());
    }

    @Test
    void keysThatCannotBeRead() {
        byte[] sec1 = Base64.getMimeDecoder().decode(SEC1);
        for (List<String> key :
                List.of(
                        List.of("ENCRYPTED PRIVATE KEY", PKCS8, "the key is encrypted"),
                        List.of(
                                "RSA PRIVATE KEY",
                                "Proc-Type: 4,ENCRYPTED\n\n" + SEC1,
                                "the key is encrypted"),
                        List.of("PUBLIC KEY", PKCS8, "no private key"),
                        List.of("DSA PRIVATE KEY", PKCS8, "unknown type DSA PRIVATE KEY"),
                        List.of("PRIVATE KEY", SEC1, "expected a key of RSA, EC or EdDSA"),
                        List.of("PRIVATE KEY", "=A", "cannot use clientCertificate"),
                        List.of(
                                "EC PRIVATE KEY",
                                base64(Arrays.copyOf(sec1, 60)),
                                "the key is cut off"),
                        List.of(
                                "EC PRIVATE KEY",
                                base64(new byte[] {0x30, 3, 2, 1, 1}),
                                "does not name its curve"))) {
            SnowmintException e =
                    assertThrows(SnowmintException.class, () -> read(key.get(0), key.get(1)));
            assertTrue(e.getMessage().contains(key.get(2)), e.getMessage());
        }
    }
}
