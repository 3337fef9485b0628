//! The service as a whole: accepts connections on all protocols, and shuts down.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::accept::{Acceptor, Capacity};
#[cfg(feature = "otlp")]
use crate::limits::LINGER;
use crate::listener::Listener;
use crate::mint::Mint;
use crate::noeqd::{Noeqd, NoeqdListener};
use crate::protocol::Protocol;
use crate::settings::Settings;
use crate::state::ServerState;
use crate::thrift::{Thrift, ThriftListener};
use crate::{connection, grpc, http, peer_stores, resp};

/// The open ports. A protocol without a port is off.
#[derive(Debug, Default)]
pub struct Listeners {
    /// HTTP/1.1 and HTTP/2, and gRPC over HTTP/2.
    pub http: Option<Listener>,
    /// RESP2 and RESP3.
    pub resp: Option<Listener>,
    /// Twitter's Snowflake service over Apache Thrift.
    pub thrift: Option<ThriftListener>,
    /// `snowmint.v1`, health and reflection over gRPC.
    pub grpc: Option<Listener>,
    /// noeqd's one-byte protocol.
    pub noeqd: Option<NoeqdListener>,
    /// `/healthz`, `/readyz`, `/metrics` and health checks of gRPC, without TLS or tokens: for probes and Prometheus.
    pub probe: Option<Listener>,
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
// Not an `async fn`: it would be compiled by the crate that awaits it, and optimised as that crate is.
pub fn serve(
    mint: Arc<Mint>,
    listeners: Listeners,
    settings: Settings,
    ends: BoxFuture<'static, ()>,
) -> BoxFuture<'static, Ended> {
    Box::pin(async move {
        let mut server = ServerState::new(mint, settings.clone());
        server.resp = listeners.resp.as_ref().map(Listener::address);
        let server = Arc::new(server);
        let shutdown = &server.shutdown;
        // Without one, a client beyond the limit would wait forever for a place, and so would all clients after it.
        let reserved = settings.reserved_connections.max(1);
        let permits = Arc::new(Semaphore::new(settings.max_connections.min(Semaphore::MAX_PERMITS)));
        let acceptor = |protocol| Acceptor {
            protocol,
            metrics: &server.metrics,
            memory: &server.memory,
            capacity: Capacity::Shared { permits: Arc::clone(&permits), reserved },
            write_timeout: settings.timeouts.write,
            tls: settings.tls.clone(),
            shutdown: shutdown.listener(),
            drain: settings.drain,
        };
        let grpc_services = Arc::new(grpc::Services::new(&server, shutdown.listener()));
        let http_services = Arc::new(http::Services::new(Arc::clone(&grpc_services)));
        let http = async {
            let Some(listener) = listeners.http else { return 0 };
            let connection = |accepted, admission| {
                let (server, services) = (Arc::clone(&server), Arc::clone(&http_services));
                http::serve(server, accepted, admission, shutdown.listener(), services)
            };
            acceptor(Protocol::Http).run(listener, connection).await
        };
        let resp = async {
            let Some(listener) = listeners.resp else { return 0 };
            let connection = |accepted, admission| {
                resp::serve(Arc::clone(&server), accepted, admission, shutdown.listener())
            };
            acceptor(Protocol::Resp).run(listener, connection).await
        };
        let thrift = async {
            let Some(ThriftListener { listener, namespace, exceptions, token }) = listeners.thrift else {
                return 0;
            };
            let namespace = Arc::new(namespace);
            let connection = |accepted, admission| {
                let (server, namespace) = (Arc::clone(&server), Arc::clone(&namespace));
                let identity = server.identity_of(token.as_ref());
                let dialogue = Thrift::new(namespace, exceptions, token.clone(), identity);
                connection::serve(server, accepted, admission, shutdown.listener(), dialogue)
            };
            acceptor(Protocol::Thrift).run(listener, connection).await
        };
        let grpc = async {
            let Some(listener) = listeners.grpc else { return 0 };
            let connection = |accepted, admission| {
                let (server, services) = (Arc::clone(&server), Arc::clone(&grpc_services));
                grpc::serve(server, accepted, admission, shutdown.listener(), services)
            };
            acceptor(Protocol::Grpc).run(listener, connection).await
        };
        let noeqd = async {
            let Some(NoeqdListener { listener, namespace }) = listeners.noeqd else { return 0 };
            let namespace = Arc::new(namespace);
            let connection = |accepted, admission| {
                let dialogue = Noeqd::new(Arc::clone(&namespace), server.anonymous());
                connection::serve(Arc::clone(&server), accepted, admission, shutdown.listener(), dialogue)
            };
            acceptor(Protocol::Noeqd).run(listener, connection).await
        };
        let probe = async {
            let Some(listener) = listeners.probe else { return 0 };
            let connection = |accepted, admission| {
                let (server, services) = (Arc::clone(&server), Arc::clone(&http_services));
                http::serve(server, accepted, admission, shutdown.listener(), services)
            };
            // No load of other clients keeps probes out.
            let capacity = Capacity::Own(reserved);
            Acceptor { capacity, tls: None, ..acceptor(Protocol::Probe) }.run(listener, connection).await
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
        let serving = async { tokio::join!(http, resp, thrift, grpc, noeqd, probe, ending) };
        let (http_cut, resp_cut, thrift_cut, grpc_cut, noeqd_cut, probe_cut, ()) = tokio::select! {
            ended = serving => ended,
            never = server.memory.run() => never,
            never = peer_stores::compare(Arc::clone(&server)) => match never {},
        };
        #[cfg(feature = "otlp")]
        if let Some(tracer) = &server.tracer {
            tracer.flush(LINGER).await;
        }
        let cut = http_cut + resp_cut + thrift_cut + grpc_cut + noeqd_cut + probe_cut;
        if cut > 0 {
            tracing::warn!(cut, within = ?settings.drain, "connections closed; they did not finish in time");
        }
        Ended { cut }
    })
}
