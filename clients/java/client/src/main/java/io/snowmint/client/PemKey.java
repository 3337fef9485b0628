package io.snowmint.client;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.PrivateKey;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads the private key of a PEM file: PKCS#8, PKCS#1 or SEC 1. */
final class PemKey {
    private static final Pattern BLOCK =
            Pattern.compile(
                    "-----BEGIN ([A-Z ]*PRIVATE KEY)-----(.*?)-----END \\1-----", Pattern.DOTALL);

    private static final List<String> ALGORITHMS = List.of("RSA", "EC", "EdDSA");

    private PemKey() {}

    static PrivateKey read(Path file) {
        String text;
        try {
            text = Files.readString(file);
        } catch (IOException e) {
            throw invalid(file, Texts.reason(e), e);
        }
        Matcher block = BLOCK.matcher(text);
        if (!block.find()) {
            throw invalid(file, "the file has no private key", null);
        }
        String type = block.group(1);
        if (type.startsWith("ENCRYPTED") || block.group(2).contains("ENCRYPTED")) {
            throw invalid(file, "the key is encrypted: decrypt it with `openssl pkey`", null);
        }
        try {
            byte[] der = Base64.getMimeDecoder().decode(block.group(2));
            return key(
                    switch (type) {
                        case "PRIVATE KEY" -> der;
                        case "RSA PRIVATE KEY" -> Der.pkcs8OfPkcs1(der);
                        case "EC PRIVATE KEY" -> Der.pkcs8OfSec1(der);
                        default -> throw new GeneralSecurityException("unknown type " + type);
                    });
        } catch (IllegalArgumentException | GeneralSecurityException e) {
            throw invalid(file, Texts.reason(e), e);
        }
    }

    private static PrivateKey key(byte[] pkcs8) throws GeneralSecurityException {
        GeneralSecurityException last = null;
        for (String algorithm : ALGORITHMS) {
            try {
                return KeyFactory.getInstance(algorithm)
                        .generatePrivate(new PKCS8EncodedKeySpec(pkcs8));
            } catch (GeneralSecurityException e) {
                last = e;
            }
        }
        throw new GeneralSecurityException("expected a key of RSA, EC or EdDSA", last);
    }

    private static SnowmintException invalid(Path file, String why, Throwable cause) {
        return Options.invalidFile("clientCertificate", file, why, cause);
    }
}
