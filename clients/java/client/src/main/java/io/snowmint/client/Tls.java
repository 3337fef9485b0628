package io.snowmint.client;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.PublicKey;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Collection;

import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/** Makes the TLS context of the PEM files of a client. */
final class Tls {
    private static final char[] NO_PASSWORD = {};

    private Tls() {}

    /** Returns the context. Without files it trusts the authorities of the JDK. */
    static SSLContext of(Options options) {
        TrustManager[] trusted = options.caFile == null ? null : authorities(options.caFile);
        if (trusted == null && !options.usesTls()) {
            // The JDK would read its authorities, which takes longer than a request.
            trusted = new TrustManager[0];
        }
        KeyManager[] own =
                options.certificate == null ? null : own(options.certificate, options.key);
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(own, trusted, null);
            return context;
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("no TLS in this JDK", e);
        }
    }

    private static TrustManager[] authorities(Path file) {
        try {
            KeyStore store = emptyStore();
            int number = 0;
            for (Certificate authority : certificates("caFile", file)) {
                store.setCertificateEntry("ca-" + number++, authority);
            }
            TrustManagerFactory factory =
                    TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            factory.init(store);
            return factory.getTrustManagers();
        } catch (IOException | GeneralSecurityException e) {
            throw Options.invalidFile("caFile", file, Texts.reason(e), e);
        }
    }

    private static KeyManager[] own(Path certificate, Path key) {
        Certificate[] chain =
                certificates("clientCertificate", certificate).toArray(Certificate[]::new);
        PrivateKey secret = PemKey.read(key);
        if (!isPair(chain[0].getPublicKey(), secret)) {
            throw Options.invalidFile(
                    "clientCertificate", key, "the key is not that of " + certificate, null);
        }
        try {
            KeyStore store = emptyStore();
            store.setKeyEntry("client", secret, NO_PASSWORD, chain);
            KeyManagerFactory factory =
                    KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            factory.init(store, NO_PASSWORD);
            return factory.getKeyManagers();
        } catch (IOException | GeneralSecurityException e) {
            throw Options.invalidFile("clientCertificate", certificate, Texts.reason(e), e);
        }
    }

    /** Returns whether what one key signs is verified by the other. */
    private static boolean isPair(PublicKey key, PrivateKey secret) {
        String algorithm =
                switch (secret.getAlgorithm()) {
                    case "RSA" -> "SHA256withRSA";
                    case "EC" -> "SHA256withECDSA";
                    default -> secret.getAlgorithm();
                };
        try {
            Signature signature = Signature.getInstance(algorithm);
            signature.initSign(secret);
            byte[] signed = signature.sign();
            signature.initVerify(key);
            return signature.verify(signed);
        } catch (GeneralSecurityException e) {
            return false;
        }
    }

    private static KeyStore emptyStore() throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, NO_PASSWORD);
        return store;
    }

    private static Collection<? extends Certificate> certificates(String option, Path file) {
        Collection<? extends Certificate> certificates;
        try (InputStream input = Files.newInputStream(file)) {
            certificates = CertificateFactory.getInstance("X.509").generateCertificates(input);
        } catch (IOException | GeneralSecurityException e) {
            throw Options.invalidFile(option, file, Texts.reason(e), e);
        }
        if (certificates.isEmpty()) {
            throw Options.invalidFile(option, file, "the file has no certificate", null);
        }
        return certificates;
    }
}
