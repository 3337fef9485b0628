//! The connections to all servers, with and without TLS. They are opened on demand.

#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::error::BuildError;

#[cfg(feature = "tls")]
pub(crate) use tls::connections;

/// The timeout for connecting to one address of a server, before TLS.
const CONNECT: Duration = Duration::from_secs(1);
/// How long an idle connection is kept; shorter than the server's limit.
const KEPT_IDLE: Duration = Duration::from_mins(1);

#[cfg(feature = "tls")]
type Connector = hyper_rustls::HttpsConnector<HttpConnector>;
#[cfg(not(feature = "tls"))]
type Connector = HttpConnector;

/// The connections to all servers.
pub(crate) type Connections = Client<Connector, Empty<Bytes>>;

fn connector() -> HttpConnector {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(Some(CONNECT));
    http.set_nodelay(true);
    http
}

fn client(connector: Connector) -> Connections {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(KEPT_IDLE)
        .build(connector)
}

/// The TLS files; none without the feature `tls`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientTlsFiles {
    #[cfg(feature = "tls")]
    pub(crate) authority: Option<PathBuf>,
    /// The client's certificate, and its key.
    #[cfg(feature = "tls")]
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

/// Returns connections, or an error if a server needs TLS: `https` is the URL of the first such server.
#[cfg(not(feature = "tls"))]
pub(crate) fn connections(https: Option<&str>, _: &ClientTlsFiles) -> Result<Connections, BuildError> {
    match https {
        Some(url) => Err(BuildError::NoTls { url: url.to_owned() }),
        None => Ok(client(connector())),
    }
}

#[cfg(feature = "tls")]
mod tls {
    use std::error::Error;
    use std::path::Path;
    use std::sync::Arc;

    use hyper_rustls::{ConfigBuilderExt, HttpsConnectorBuilder};
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, RootCertStore};

    use super::{BuildError, ClientTlsFiles, Connections, client, connector};

    /// Returns connections. It reads the system's certificate authorities only if a server uses TLS: `https`
    /// is the URL of the first such server.
    pub(crate) fn connections(
        https: Option<&str>,
        files: &ClientTlsFiles,
    ) -> Result<Connections, BuildError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| BuildError::Tls(error.into()))?;
        let builder = match &files.authority {
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| file_error(path, error))?;
                }
                builder.with_root_certificates(roots)
            }
            None if https.is_some() => {
                builder.with_native_roots().map_err(|error| BuildError::Tls(error.into()))?
            }
            None => builder.with_root_certificates(RootCertStore::empty()),
        };
        let config = match &files.client {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| file_error(key, error))?;
                let with_client = builder.with_client_auth_cert(certificates(certificate)?, secret);
                with_client.map_err(|error| file_error(certificate, error))?
            }
        };
        let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
        Ok(client(https.wrap_connector(connector())))
    }

    fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BuildError> {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        match read {
            Ok(found) if !found.is_empty() => Ok(found),
            Ok(_) => Err(file_error(path, "the file has no certificate")),
            Err(error) => Err(file_error(path, error)),
        }
    }

    fn file_error(path: &Path, why: impl Into<Box<dyn Error + Send + Sync>>) -> BuildError {
        BuildError::File { path: path.to_owned(), source: why.into() }
    }
}
