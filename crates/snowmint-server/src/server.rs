//! The service as a whole: accepts connections on all protocols, and shuts down.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::fleet::{peer_stores, recorder};
#[cfg(feature = "otlp")]
use crate::limits::LINGER;
use crate::mint::Mint;
use crate::protocol::Protocol;
use crate::settings::Settings;
use crate::state::ServerState;
use crate::thrift::{Thrift, ThriftListener};
use crate::wire::accept::{Acceptor, Capacity};
use crate::wire::listener::Listener;
use crate::{grpc, http, resp, wire};

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
    /// `/healthz`, `/readyz`, `/metrics` and health checks of gRPC, without TLS or tokens: for probes and
    /// Prometheus.
    pub probe: Option<Listener>,
}

impl Listeners {
    /// Returns the protocols that have a port. That of HTTP also speaks gRPC.
    fn protocols(&self) -> impl Iterator<Item = Protocol> {
        let Self { http, resp, thrift, grpc, probe } = self;
        let ports = [
            (Protocol::Http, http.is_some()),
            (Protocol::Resp, resp.is_some()),
            (Protocol::Thrift, thrift.is_some()),
            (Protocol::Grpc, grpc.is_some() || http.is_some()),
            (Protocol::Probe, probe.is_some()),
        ];
        ports.into_iter().filter(|(_, is_on)| *is_on).map(|(protocol, _)| protocol)
    }
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
/// Shutdown has two phases. For [`Settings::drain_delay`] the service still answers all requests, but
/// `/readyz` gives the status 503. Then it accepts no more connections, finishes the requests in flight,
/// closes idle connections, and returns within [`Settings::drain`].
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
        let mut server = ServerState::new(mint, settings);
        server.resp = listeners.resp.as_ref().map(Listener::address);
        let server = Arc::new(server);
        for protocol in listeners.protocols() {
            server.metrics.serves(protocol);
        }
        let ports = Ports::new(&server);
        let grpc = Arc::new(grpc::Services::new(&server, server.shutdown.listener()));
        let http = Arc::new(http::Services::new(Arc::clone(&grpc)));
        // No load of other clients keeps probes out.
        let capacity = Capacity::Own(ports.reserved);
        let probe = Acceptor { capacity, tls: None, ..ports.acceptor(Protocol::Probe) };
        let serving = async {
            tokio::join!(
                ports.http(listeners.http, ports.acceptor(Protocol::Http), &http),
                ports.resp(listeners.resp),
                ports.thrift(listeners.thrift),
                ports.grpc(listeners.grpc, &grpc),
                ports.http(listeners.probe, probe, &http),
                shut_down(&server, ends),
            )
        };
        let (http_cut, resp_cut, thrift_cut, grpc_cut, probe_cut, ()) = tokio::select! {
            ended = serving => ended,
            never = server.memory.run() => never,
            never = peer_stores::compare(Arc::clone(&server)) => match never {},
            never = recorder::record(Arc::clone(&server)) => match never {},
        };
        #[cfg(feature = "otlp")]
        if let Some(tracer) = &server.tracer {
            tracer.flush(LINGER).await;
        }
        let cut = http_cut + resp_cut + thrift_cut + grpc_cut + probe_cut;
        if cut > 0 {
            tracing::warn!(cut, within = ?server.settings.drain, "connections closed; they did not finish in time");
        }
        Ended { cut }
    })
}

async fn shut_down(server: &ServerState, ends: BoxFuture<'static, ()>) {
    ends.await;
    let delay = server.settings.drain_delay;
    if !delay.is_zero() {
        tracing::info!(?delay, "shutdown requested; /readyz answers 503, requests are still served");
        server.shutdown.leave();
        tokio::time::sleep(delay).await;
    }
    tracing::info!("shutting down; finishing the requests in flight");
    server.shutdown.begin();
}

/// What the ports of the service share. Serving one returns the number of connections that had to be closed.
struct Ports<'a> {
    server: &'a Arc<ServerState>,
    permits: Arc<Semaphore>,
    reserved: usize,
}

impl<'a> Ports<'a> {
    fn new(server: &'a Arc<ServerState>) -> Self {
        let max = server.settings.max_connections.min(Semaphore::MAX_PERMITS);
        // Without a reserved one, a client beyond the limit would wait forever for a place, and so would all
        // clients after it.
        let reserved = server.settings.reserved_connections.max(1);
        Self { server, permits: Arc::new(Semaphore::new(max)), reserved }
    }

    fn acceptor(&self, protocol: Protocol) -> Acceptor<'a> {
        let settings = &self.server.settings;
        Acceptor {
            protocol,
            metrics: &self.server.metrics,
            memory: &self.server.memory,
            capacity: Capacity::Shared { permits: Arc::clone(&self.permits), reserved: self.reserved },
            write_timeout: settings.timeouts.write,
            tls: settings.tls.clone(),
            shutdown: self.server.shutdown.listener(),
            drain: settings.drain,
        }
    }

    async fn http(
        &self,
        listener: Option<Listener>,
        acceptor: Acceptor<'_>,
        services: &Arc<http::Services>,
    ) -> usize {
        let Some(listener) = listener else { return 0 };
        let connection = |accepted, admission| {
            let (server, services) = (Arc::clone(self.server), Arc::clone(services));
            http::serve(server, accepted, admission, self.server.shutdown.listener(), services)
        };
        acceptor.run(listener, connection).await
    }

    async fn resp(&self, listener: Option<Listener>) -> usize {
        let Some(listener) = listener else { return 0 };
        let connection = |accepted, admission| {
            let (server, shutdown) = (Arc::clone(self.server), self.server.shutdown.listener());
            wire::serve(server, accepted, admission, shutdown, resp::Connection::new)
        };
        self.acceptor(Protocol::Resp).run(listener, connection).await
    }

    async fn thrift(&self, listener: Option<ThriftListener>) -> usize {
        let Some(ThriftListener { listener, namespace, exceptions, token }) = listener else { return 0 };
        let namespace = Arc::new(namespace);
        let connection = |accepted, admission| {
            let (server, namespace) = (Arc::clone(self.server), Arc::clone(&namespace));
            let identity = server.identity_of(token.as_ref());
            let token = token.clone();
            let dialogue = move |wire| Thrift::new(wire, namespace, exceptions, token, identity);
            wire::serve(server, accepted, admission, self.server.shutdown.listener(), dialogue)
        };
        self.acceptor(Protocol::Thrift).run(listener, connection).await
    }

    async fn grpc(&self, listener: Option<Listener>, services: &Arc<grpc::Services>) -> usize {
        let Some(listener) = listener else { return 0 };
        let connection = |accepted, admission| {
            let (server, services) = (Arc::clone(self.server), Arc::clone(services));
            grpc::serve(server, accepted, admission, self.server.shutdown.listener(), services)
        };
        self.acceptor(Protocol::Grpc).run(listener, connection).await
    }
}
