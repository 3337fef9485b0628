//! The service as a whole: opens ports, accepts connections on all protocols, and shuts down.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::accept::Acceptor;
use crate::metrics::Protocol;
use crate::mint::Mint;
use crate::settings::Settings;
use crate::shutdown::Shutdown;
use crate::state::ServerState;
use crate::thrift::ThriftListener;
use crate::{http, resp, thrift};

/// The open ports. A protocol without a port is off.
#[derive(Debug, Default)]
pub struct Listeners {
    /// HTTP/1.1 and HTTP/2.
    pub http: Option<TcpListener>,
    /// RESP2 and RESP3.
    pub resp: Option<TcpListener>,
    /// Twitter's Snowflake service over Apache Thrift.
    pub thrift: Option<ThriftListener>,
}

/// The outcome of [`serve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// The number of connections that did not finish within [`Settings::drain`] and were closed.
    pub cut: usize,
}

/// Serves until `ends` completes, then shuts down. The lease may be released once this returns.
///
/// Shutdown has two phases. For [`Settings::drain_delay`] the service still answers all requests, but `/readyz` answers
/// 503. Then it accepts no more connections, finishes the requests in flight, closes idle connections, and returns within
/// [`Settings::drain`].
///
/// # Cancel safety
///
/// Dropping the future closes every connection at once.
pub async fn serve(
    mint: Arc<Mint>,
    listeners: Listeners,
    settings: Settings,
    ends: impl Future<Output = ()>,
) -> Ended {
    let server = Arc::new(ServerState::new(mint, &settings));
    let shutdown = Shutdown::new();
    let permits = Arc::new(Semaphore::new(settings.max_connections.min(Semaphore::MAX_PERMITS)));
    let acceptor = |protocol| Acceptor {
        protocol,
        metrics: &server.metrics,
        memory: &server.memory,
        permits: Arc::clone(&permits),
        reserved: settings.reserved_connections,
        write_timeout: settings.timeouts.write,
        shutdown: shutdown.listener(),
        drain: settings.drain,
    };
    let http = async {
        let Some(listener) = listeners.http else { return 0 };
        let connection =
            |stream, admission| http::serve(Arc::clone(&server), stream, admission, shutdown.listener());
        acceptor(Protocol::Http).run(listener, connection).await
    };
    let resp = async {
        let Some(listener) = listeners.resp else { return 0 };
        let connection =
            |stream, admission| resp::serve(Arc::clone(&server), stream, admission, shutdown.listener());
        acceptor(Protocol::Resp).run(listener, connection).await
    };
    let thrift = async {
        let Some(ThriftListener { listener, namespace, exceptions }) = listeners.thrift else { return 0 };
        let namespace = Arc::new(namespace);
        let connection = |stream, admission| {
            let (server, namespace) = (Arc::clone(&server), Arc::clone(&namespace));
            thrift::serve(server, stream, admission, shutdown.listener(), namespace, exceptions)
        };
        acceptor(Protocol::Thrift).run(listener, connection).await
    };
    let ending = async {
        ends.await;
        if !settings.drain_delay.is_zero() {
            tracing::info!(delay = ?settings.drain_delay, "shutdown requested; /readyz answers 503, requests are still served");
            shutdown.leave();
            tokio::time::sleep(settings.drain_delay).await;
        }
        tracing::info!("shutting down; finishing the requests in flight");
        shutdown.begin();
    };
    let serving = async { tokio::join!(http, resp, thrift, ending) };
    let (http_cut, resp_cut, thrift_cut, ()) = tokio::select! {
        ended = serving => ended,
        never = server.memory.run() => never,
    };
    let cut = http_cut + resp_cut + thrift_cut;
    if cut > 0 {
        tracing::warn!(cut, within = ?settings.drain, "connections closed; they did not finish in time");
    }
    Ended { cut }
}

/// A port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({flag}): {}", self.reason())]
pub struct BindError {
    /// The requested address.
    pub address: String,
    /// The flag with the address.
    pub flag: &'static str,
    /// The error of the system.
    pub source: io::Error,
}

/// Opens a port. `address` is the `host:port` given with the flag `flag`; port 0 takes any free port.
///
/// # Errors
///
/// [`BindError`] names the address, the flag, the cause and a remedy.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let taken = snowmint_server::bind("127.0.0.1:0", "--http").await?;
/// let address = taken.local_addr()?.to_string();
/// let error = snowmint_server::bind(&address, "--http").await.unwrap_err();
/// assert!(error.to_string().contains("(--http): another program uses this port"));
/// # Ok(())
/// # }
/// ```
pub async fn bind(address: &str, flag: &'static str) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| BindError { address: address.to_owned(), flag, source })
}

impl BindError {
    fn reason(&self) -> String {
        let Self { source, flag, .. } = self;
        match source.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another program uses this port; stop it, or choose another port with {flag} (port 0 takes a free one)"
            ),
            io::ErrorKind::PermissionDenied => {
                format!(
                    "permission denied; ports below 1024 need privileges, choose a higher port with {flag}"
                )
            }
            io::ErrorKind::AddrNotAvailable => format!(
                "no network interface has this address; use an address of this machine, or 0.0.0.0 for all, with {flag}"
            ),
            io::ErrorKind::InvalidInput => format!("invalid address; expected {flag} HOST:PORT"),
            _ => format!("{source}; use an address of this machine with {flag} HOST:PORT"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_cause_has_its_remedy() {
        for (address, wanted) in [
            ("192.0.2.1:80", "no network interface has this address"),
            ("127.0.0.1", "invalid address; expected --resp HOST:PORT"),
            ("127.0.0.1:x", "--resp HOST:PORT"),
        ] {
            let error = bind(address, "--resp").await.unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot listen on {address} (--resp): ")), "{error}");
            assert!(error.contains(wanted), "{error}");
        }
    }
}
