//! An HTTP client that sends each request over a connection of its own. It is for what a node and its command
//! ask other programs now and then.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A server to send requests to.
pub struct HttpServer {
    /// Its name or address, as TLS checks it.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How to connect by TLS; `None` for plain text.
    pub tls: Option<TlsConnector>,
}

/// Returns settings of TLS that trust these authorities; `None` for those of the system.
pub fn trusting(authorities: Option<RootCertStore>) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let roots = authorities.unwrap_or_else(|| {
        let mut roots = RootCertStore::empty();
        // Systems contain a few certificates that nobody can parse.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    });
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        // The provider has the protocols that rustls was built with.
        .unwrap_or_else(|error| unreachable!("{error}"))
        .with_root_certificates(roots)
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No connection.
    #[error(transparent)]
    Connect(io::Error),
    /// The host is no name that a certificate can have.
    #[error(transparent)]
    Name(#[from] InvalidDnsNameError),
    /// The TLS handshake failed.
    #[error(transparent)]
    Tls(io::Error),
    /// The connection ended, or the answer is not HTTP.
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

impl HttpServer {
    /// Sends a request, and reads the answer by `read`. Waits without a limit.
    ///
    /// # Errors
    ///
    /// [`SendError`] if there is no head of an answer.
    pub async fn send<T, F: Future<Output = T>>(
        &self,
        request: Request<Full<Bytes>>,
        read: impl FnOnce(Response<Incoming>) -> F,
    ) -> Result<T, SendError> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(SendError::Connect)?;
        let Some(tls) = &self.tls else { return exchange(stream, request, read).await };
        let name = ServerName::try_from(self.host.clone())?;
        exchange(tls.connect(name, stream).await.map_err(SendError::Tls)?, request, read).await
    }
}

async fn exchange<T, F: Future<Output = T>>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Full<Bytes>>,
    read: impl FnOnce(Response<Incoming>) -> F,
) -> Result<T, SendError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut answered = pin!(async { Ok(read(sender.send_request(request).await?).await) });
    tokio::select! {
        biased;
        answered = &mut answered => answered,
        // A server that answers and closes ends the connection in the step that receives its answer. Without
        // an answer, the request has the error.
        _ = connection => answered.await,
    }
}
