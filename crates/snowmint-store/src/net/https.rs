//! The HTTP client of the stores that answer HTTP: its TLS, and the time in their answers.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::url::TlsFiles;

/// How far the middle of a second is from any instant in it: a `Date` has whole seconds.
pub(crate) const DATE_ERROR: Duration = Duration::from_millis(500);

/// A client for `http://` and `https://`, with a pool of connections.
pub(crate) type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Makes a client. `connect_within` limits connecting, without TLS.
pub(crate) fn client(tls: ClientConfig, connect_within: Duration) -> HttpsClient {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(Some(connect_within));
    http.set_nodelay(true);
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .build(https.wrap_connector(http))
}

/// The certificate authorities to trust if a URL names none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DefaultRoots {
    /// None: for connections without TLS.
    Nobody,
    /// Those of the system.
    System,
}

/// What to do on a system without authorities, such as a minimal container. The library's own text lists the
/// folders in which it looked.
const NO_ROOTS: &str = "this system has no certificates of authorities: install its ca-certificates, or name an authority with ca=";

/// What is wrong with a setting of TLS.
#[derive(Debug)]
pub(crate) struct TlsFault {
    /// The parameter of the URL: `ca`, `cert` or `key`; `None` if it is none of them.
    pub(crate) parameter: Option<&'static str>,
    pub(crate) text: String,
}

impl TlsFault {
    fn of(parameter: &'static str) -> impl Fn(&dyn fmt::Display) -> Self {
        move |error| Self { parameter: Some(parameter), text: error.to_string() }
    }
}

/// Builds the settings of TLS from the files of a URL.
pub(crate) fn tls(files: &TlsFiles, default: DefaultRoots) -> Result<ClientConfig, TlsFault> {
    let general = |error: &dyn fmt::Display| TlsFault { parameter: None, text: error.to_string() };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| general(&error))?;
    let builder = match (&files.ca, default) {
        (Some(ca), _) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("ca", &ca.pem)? {
                roots.add(certificate).map_err(|error| TlsFault::of("ca")(&error))?;
            }
            builder.with_root_certificates(roots)
        }
        (None, DefaultRoots::System) => builder.with_native_roots().map_err(|_| general(&NO_ROOTS))?,
        (None, DefaultRoots::Nobody) => builder.with_root_certificates(RootCertStore::empty()),
    };
    let Some((cert, key)) = &files.client else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates("cert", &cert.pem)?;
    let secret = PrivateKeyDer::from_pem_slice(&key.pem).map_err(|error| TlsFault::of("key")(&error))?;
    builder.with_client_auth_cert(chain, secret).map_err(|error| TlsFault::of("cert")(&error))
}

fn certificates(parameter: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let fault = TlsFault::of(parameter);
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(fault(&"the file has no certificate")),
        Err(error) => Err(fault(&error)),
    }
}

/// Returns the time of a `Date` in Unix milliseconds: the middle of its second, which is at most
/// [`DATE_ERROR`] off.
pub(crate) fn date_unix_ms(date: &str) -> Option<u64> {
    let since = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs() * 1000 + 500)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::url::PemFile;
    use super::*;

    #[test]
    fn a_date_is_taken_in_the_middle_of_its_second() {
        assert_eq!(date_unix_ms("Thu, 01 Jan 1970 00:00:07 GMT"), Some(7500));
        assert_eq!(date_unix_ms("soon"), None);
    }

    #[test]
    fn a_fault_names_its_parameter() {
        let empty = || PemFile { path: PathBuf::from("empty.pem"), pem: Vec::new() };
        let fault = |ca, client| tls(&TlsFiles { ca, client }, DefaultRoots::System).unwrap_err();
        assert_eq!(fault(Some(empty()), None).parameter, Some("ca"));
        assert_eq!(fault(Some(empty()), None).text, "the file has no certificate");
        assert_eq!(fault(None, Some((empty(), empty()))).parameter, Some("cert"));
    }
}
