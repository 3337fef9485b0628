//! The Snowmint service: one [`Mint`] behind HTTP and the Redis protocol.
//!
//! Each protocol only translates: parse, ask the mint, write. What may be asked and held is bounded in one
//! place, [`limits`]; how a failure is said in each protocol is one table, [`status`].
//!
//! ```text
//! HTTP   GET /v1/ids/{namespace}?count=1   {"ids":["…"]}, or one a line with Accept: text/plain
//!        GET /v1/inspect/{id}              the fields of an id, with ?namespace= or ?layout= by that
//!        GET /api/segment/get/{key}        as Leaf answers; /api/snowflake/get/{key} too
//!        GET /healthz /readyz /metrics     for probes and Prometheus
//! RESP   ID.NEXT namespace [COUNT n] [INTEGER]   an id as text; with COUNT an array of them
//!        INCR namespace, INCRBY namespace n   numbers of a segment namespace, as Redis answers
//!        ID.INSPECT id [NAMESPACE name | LAYOUT spec]   the fields of an id
//!        and what Redis clients send when they connect
//! ```
//!
//! # Examples
//!
//! ```no_run
//! # async fn run(leases: snowmint_cluster::Keepers, layout: snowmint::Layout) -> Result<(), Box<dyn std::error::Error>> {
//! use snowmint_server::{Listeners, Mint, Settings, bind, serve};
//! let namespace = snowmint_cluster::NamespaceName::new("default")?;
//! let mint = Mint::new([namespace], leases, layout, snowmint::DatacenterId(0));
//! let listeners = Listeners {
//!     http: Some(bind("127.0.0.1:8080", "--http").await?),
//!     resp: Some(bind("127.0.0.1:6380", "--resp").await?),
//! };
//! let ends = async { /* a signal */ };
//! serve(mint.into(), listeners, Settings::default(), ends).await;
//! # Ok(()) }
//! ```

mod accept;
mod bind;
pub mod forecast;
mod http;
pub mod limits;
mod memory;
mod metrics;
pub mod mint;
pub mod registrar;
mod resp;
mod server;
mod settings;
mod shutdown;
pub mod status;
mod turns;

#[cfg(test)]
extern crate self as snowmint_server;
#[cfg(test)]
mod testing;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod testing_source;

use std::future::Future;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub use bind::{BindError, bind};
pub use http::{AllowedHosts, HostError};
pub use mint::{IdHandle, IdSource, Mint, MintError};
pub use registrar::Registrar;
pub use settings::{Settings, SharedClock, Timeouts};

/// The parser of the Redis protocol, for fuzzing.
#[doc(hidden)]
pub use resp::codec as resp_codec;

/// Whether path and query of a request are read as a route, for fuzzing.
#[doc(hidden)]
pub use http::reads_route as http_reads_route;

use accept::Acceptor;
use metrics::Protocol;
use server::Server;
use shutdown::Shutdown;

/// The ports that are served; a protocol without one is off.
#[derive(Debug, Default)]
pub struct Listeners {
    /// HTTP/1.1.
    pub http: Option<TcpListener>,
    /// RESP2 and RESP3.
    pub resp: Option<TcpListener>,
}

/// How the service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// Connections that did not finish within [`Settings::drain`] and were cut.
    pub cut: usize,
}

/// Serves until `ends` completes; goes on for [`Settings::drain_delay`], not ready; then accepts no more, lets requests in flight finish, closes idle
/// connections, and returns within [`Settings::drain`]. The lease may be released after that.
///
/// # Cancel safety
///
/// Dropping it closes every connection at once.
pub async fn serve(
    mint: Arc<Mint>,
    listeners: Listeners,
    settings: Settings,
    ends: impl Future<Output = ()>,
) -> Ended {
    let server = Arc::new(Server::new(mint, &settings));
    let shutdown = Shutdown::new();
    let places = Arc::new(Semaphore::new(settings.max_connections.min(Semaphore::MAX_PERMITS)));
    let acceptor = |protocol| Acceptor {
        protocol,
        metrics: &server.metrics,
        crowd: &server.crowd,
        places: Arc::clone(&places),
        reserved: settings.reserved_connections,
        write_timeout: settings.timeouts.write,
        draining: shutdown.listener(),
        drain: settings.drain,
    };
    let http = async {
        let Some(listener) = listeners.http else { return 0 };
        let connection = |stream, place| http::serve(Arc::clone(&server), stream, place, shutdown.listener());
        acceptor(Protocol::Http).run(listener, connection).await
    };
    let resp = async {
        let Some(listener) = listeners.resp else { return 0 };
        let connection = |stream, place| resp::serve(Arc::clone(&server), stream, place, shutdown.listener());
        acceptor(Protocol::Resp).run(listener, connection).await
    };
    let ending = async {
        ends.await;
        if !settings.drain_delay.is_zero() {
            tracing::info!(delay = ?settings.drain_delay, "leaving: /readyz says 503, requests are still served");
            shutdown.leave();
            tokio::time::sleep(settings.drain_delay).await;
        }
        tracing::info!("shutting down: no new connections, requests in flight are finished");
        shutdown.begin();
    };
    let serving = async { tokio::join!(http, resp, ending) };
    let (http_cut, resp_cut, ()) = tokio::select! {
        ended = serving => ended,
        never = server.crowd.tidy_up_after() => never,
    };
    let cut = http_cut + resp_cut;
    if cut > 0 {
        tracing::warn!(cut, within = ?settings.drain, "connections did not finish in time and were cut");
    }
    Ended { cut }
}
