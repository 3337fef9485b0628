//! The credentials of a client of a node: its token and its certificate, and the authorities that it trusts.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, RootCertStore};
use snowmint_server::http_client::trusting;
use tokio_rustls::TlsConnector;

use crate::error::Failure;

/// Returns the token in a file, or else the given one.
pub(crate) fn token(file: Option<&Path>, given: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(file) = file else {
        let checked = given.map(|given| check_token(given).map(str::to_owned)).transpose();
        return checked.map_err(|why| Failure::flag("--token", format!("{why}; check SNOWMINT_TOKEN too")));
    };
    let fail = |why: &str| Failure::flag("--token-file", format!("{}: {why}", file.display()));
    let read = std::fs::read_to_string(file);
    let text = read
        .map_err(|error| Failure::flag("--token-file", format!("cannot read {}: {error}", file.display())))?;
    check_token(&text).map(|token| Some(token.to_owned())).map_err(|why| fail(&why))
}

/// Returns the token in a text, without the whitespace around it. An error does not show it.
fn check_token(text: &str) -> Result<&str, String> {
    let token = text.trim();
    let what = if token.is_empty() {
        "empty"
    } else if token.contains(char::is_whitespace) {
        "more than a token (the file of `serve --tokens-file` holds digests, not tokens)"
    } else if !token.starts_with("smt_") || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        "not a token"
    } else {
        return Ok(token);
    };
    Err(format!("{what}: expected the text that `snowmint token create` printed, which begins with smt_"))
}

/// Returns whether a host is this machine, so that nothing crosses a network.
pub(crate) fn is_this_machine(host: &str) -> bool {
    let address: Option<std::net::IpAddr> = host.parse().ok();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

/// The files that flags name, all PEM.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TlsFiles<'a> {
    /// The authorities to trust; default: those of this system.
    pub(crate) ca: Option<&'a Path>,
    /// The client certificate and its key.
    pub(crate) identity: Option<(&'a Path, &'a Path)>,
}

/// Returns a TLS client that trusts the given authorities, or those of the system.
pub(crate) fn tls(TlsFiles { ca, identity }: TlsFiles<'_>) -> Result<TlsConnector, Failure> {
    let config = trusting(ca.map(authorities).transpose()?);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some((certificate, key_file)) => {
            let chain = certificates("--server-cert", certificate)?;
            let key = PrivateKeyDer::from_pem_file(key_file)
                .map_err(|error| bad_file("--server-key", key_file, &error))?;
            config
                .with_client_auth_cert(chain, key)
                .map_err(|error| bad_file("--server-cert", certificate, &error))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Returns why a TLS connection failed, and what to do.
pub(crate) fn tls_failure(error: &std::io::Error) -> String {
    let advice = match error.get_ref().and_then(|why| why.downcast_ref()) {
        // The latter: of another authority with the same name.
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "; --server-ca FILE names the authority that issued it",
        // A node answers TLS on a port without it by this alert.
        Some(
            rustls::Error::InvalidMessage(_)
            | rustls::Error::AlertReceived(AlertDescription::ProtocolVersion),
        ) => "; the port may serve no TLS: try it without",
        _ => "",
    };
    format!("{error}{advice}")
}

/// Reads the authorities of `--server-ca`.
fn authorities(file: &Path) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("--server-ca", file)? {
        roots.add(certificate).map_err(|error| bad_file("--server-ca", file, &error))?;
    }
    Ok(roots)
}

/// Returns the failure for a file that a flag names.
fn bad_file(flag: &str, file: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::flag(flag, format!("cannot use {}: {why}", file.display()))
}

/// Reads the certificates of a file that a flag names.
fn certificates(flag: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|error| bad_file(flag, file, &error))?;
    if certificates.is_empty() {
        return Err(bad_file(flag, file, &"expected certificates in PEM"));
    }
    Ok(certificates)
}
