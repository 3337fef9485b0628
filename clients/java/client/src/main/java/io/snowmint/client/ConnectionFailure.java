package io.snowmint.client;

import java.net.ConnectException;
import java.nio.channels.UnresolvedAddressException;
import java.security.cert.CertPathBuilderException;
import java.security.cert.CertPathValidatorException;
import java.security.cert.CertificateException;
import java.util.List;
import java.util.concurrent.CompletionException;

import javax.net.ssl.SSLException;
import javax.net.ssl.SSLPeerUnverifiedException;

/** Reads why a connection or a request broke. */
final class ConnectionFailure {
    /** The TLS alerts of a server that does not trust the client's certificate. */
    private static final List<String> CERTIFICATE_ALERTS =
            List.of(
                    "bad_certificate",
                    "unsupported_certificate",
                    "certificate_revoked",
                    "certificate_expired",
                    "certificate_unknown",
                    "unknown_ca",
                    "access_denied",
                    "certificate_required");

    private ConnectionFailure() {}

    static Failure read(String server, Throwable error) {
        Throwable cause = error;
        while (cause instanceof CompletionException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        for (Throwable each = cause; each != null; each = each.getCause()) {
            if (isAboutCertificates(each)) {
                return Failure.of(
                        server,
                        ErrorKind.INVALID_CERTIFICATE,
                        Texts.reason(each),
                        Retry.AFTER_REPAIR);
            }
        }
        return Failure.unavailable(server, text(cause));
    }

    /** Returns whether one side does not trust the other's certificate. */
    private static boolean isAboutCertificates(Throwable error) {
        if (error instanceof CertificateException
                || error instanceof CertPathValidatorException
                || error instanceof CertPathBuilderException
                || error instanceof SSLPeerUnverifiedException) {
            return true;
        }
        // The JDK has no type for an alert.
        return error instanceof SSLException
                && error.getMessage() != null
                && error.getMessage().contains("Received fatal alert")
                && CERTIFICATE_ALERTS.stream().anyMatch(error.getMessage()::endsWith);
    }

    private static String text(Throwable error) {
        if (error instanceof ConnectException) {
            for (Throwable each = error; each != null; each = each.getCause()) {
                if (each instanceof UnresolvedAddressException) {
                    return "unknown host";
                }
            }
            // The JDK leaves the reason out.
            return error.getMessage() == null ? "cannot connect" : Texts.reason(error);
        }
        return Texts.reason(error);
    }
}
