/** Why OpenSSL does not trust a server's certificate. */
const untrusted = new Set([
  "CERT_CHAIN_TOO_LONG",
  "CERT_HAS_EXPIRED",
  "CERT_NOT_YET_VALID",
  "CERT_REJECTED",
  "CERT_REVOKED",
  "CERT_SIGNATURE_FAILURE",
  "CERT_UNTRUSTED",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "ERR_TLS_CERT_ALTNAME_INVALID",
  "HOSTNAME_MISMATCH",
  "INVALID_CA",
  "INVALID_PURPOSE",
  "PATH_LENGTH_EXCEEDED",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
]);

/** The TLS alerts of a server that does not trust the client's certificate. */
const alerts =
  /alert (bad certificate|unsupported certificate|certificate revoked|certificate expired|certificate unknown|unknown ca|access denied|certificate required)/i;

/** Returns whether a connection failed because one side does not trust the other's certificate. */
export function isAboutCertificates(error: Error): boolean {
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  // An alert is in the code, as ERR_SSL_TLSV1_ALERT_UNKNOWN_CA, or only in the message, if it came during a write.
  return untrusted.has(code) || alerts.test(`${code.replaceAll("_", " ")} ${error.message}`);
}
