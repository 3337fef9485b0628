//! HTTP/1.1, HTTP/2 and gRPC on one port: serves one connection with hyper. `routes` and `request` parse,
//! `handler` asks the mint through `crate::access::mint_access`, `response` writes; `cors` admits web pages,
//! `idempotency` keeps answers. Time limits are in `wire::http_timeouts`, the answers of HTTP/2 in
//! `wire::http2`, those of gRPC in `grpc`.
//!
//! A client of HTTP/2 begins with a fixed preface, with or without TLS. So the first bytes decide, and no
//! upgrade is needed.

mod admin;
mod console;
mod console_data;
mod cors;
mod fleet;
mod handler;
mod idempotency;
mod leaf;
mod operator;
mod request;
mod response;
mod routes;
mod tinyid;

use std::convert::Infallible;
use std::error::Error;
use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use crate::access::BearerCache;
use crate::access::mint_access::MintAccess;
use crate::fleet::watch::FleetWatch;
use crate::grpc;
use crate::http::idempotency::KeptAnswers;
use crate::http::request::{KnownHost, check_host};
use crate::http::response::{Body, Problem};
use crate::limits::http::{MAX_HEAD, MAX_HEADERS};
use crate::load::fairness::Turn;
use crate::protocol::{Admission, Protocol};
use crate::state::ServerState;
use crate::state::shutdown::ShutdownListener;
use crate::status::ErrorKind;
use crate::telemetry::access_log;
use crate::wire::accept::Accepted;
use crate::wire::http_timeouts::{DeliveredBody, Delivery, Making, Pause};
use crate::wire::http2::{self, Ended, Peer, PeerStream, Preface, Prefaced};
use crate::wire::stream::Stream;

/// Returns `true` if path and query parse as a route, for fuzzing.
#[doc(hidden)]
pub fn reads_route(path: &str, query: Option<&str>) -> bool {
    routes::PathSpec::find(path).is_some_and(|spec| spec.route(&Method::GET, path, query).is_ok())
}

/// Serves one connection until the client leaves, a time limit passes, or the service ends.
pub(crate) async fn serve(
    server: Arc<ServerState>,
    accepted: Accepted,
    admission: Admission,
    shutdown: ShutdownListener,
    services: Arc<Services>,
) {
    let Some(stream) = accepted.establish(&server, &shutdown).await else { return };
    let turn = Turn::default();
    let peer = Peer::new(&turn, server.settings.timeouts, shutdown, admission, server.answers.connection());
    let client = Arc::new(MintAccess::new(&server.mint));
    let (address, is_tls) = (stream.peer(), stream.is_tls());
    let bearer = BearerCache::new(server.settings.access.as_ref());
    let known_host = KnownHost::default();
    let serving = Serving { server: &server, services, peer, client, address, is_tls, bearer, known_host };
    server.turns.take(&turn, pin!(serving.run(stream))).await;
}

/// What all HTTP connections share besides the state of the server.
pub(crate) struct Services {
    grpc: Arc<grpc::Services>,
    kept_answers: KeptAnswers,
    fleet: Arc<FleetWatch>,
}

impl Services {
    pub(crate) fn new(grpc: Arc<grpc::Services>) -> Self {
        Self { grpc, kept_answers: KeptAnswers::default(), fleet: Arc::default() }
    }
}

/// Everything that the requests of one connection share.
struct Serving<'a> {
    server: &'a Arc<ServerState>,
    services: Arc<Services>,
    peer: Peer<'a>,
    client: Arc<MintAccess>,
    /// The address of the client; `None` over a Unix socket.
    address: Option<SocketAddr>,
    is_tls: bool,
    bearer: BearerCache,
    known_host: KnownHost,
}

impl Serving<'_> {
    async fn run(&self, mut stream: Stream) {
        // Bytes that were already read and belong to the next request.
        let mut input = Bytes::new();
        loop {
            if input.is_empty() {
                let Some(preface) = http2::wait_for_bytes(&mut stream, &self.peer).await else { break };
                // Boxed, since both are much larger than the state of a silent client.
                if preface.is_http2() && self.peer.timer.is_fresh() {
                    return Box::pin(self.serve_http2(stream, preface)).await;
                }
                input = Bytes::copy_from_slice(preface.bytes());
            }
            let is_new = self.peer.timer.is_fresh();
            match Box::pin(self.serve_http1(Prefaced { first: input, stream })).await {
                Some(rests) => (input, stream) = (rests.first, rests.stream),
                None => return,
            }
            // The next new client reuses the memory that a new client has freed.
            if !is_new {
                self.server.memory.rested();
            }
        }
        stream.close().await;
    }

    async fn serve_http2(&self, stream: Stream, preface: Preface) {
        // Most connections have no gRPC call.
        let session = OnceLock::new();
        let answer = |request: Request<Incoming>, delivery| {
            let session = grpc::is_grpc(request.headers()).then(|| {
                Arc::clone(session.get_or_init(|| {
                    grpc::Session::new(self.server, &self.services.grpc, &self.peer, Arc::clone(&self.client))
                }))
            });
            async move {
                match session {
                    None => handler::handle(self, request, Instant::now()).await.0.map(Http2Body::Http),
                    Some(session) => self.call(session, request, delivery).await.map(Http2Body::Grpc),
                }
            }
        };
        if http2::serve(stream, preface, &self.peer, answer).await == Ended::Broken {
            self.server.refused(self.protocol(), ErrorKind::BadRequest);
        }
    }

    /// The protocol under which the requests of this connection count.
    fn protocol(&self) -> Protocol {
        self.peer.admission.protocol(Protocol::Http)
    }

    /// Checks that this connection may send more than probes.
    fn check_admission(&self) -> Result<(), Problem> {
        match self.peer.admission {
            Admission::Client => Ok(()),
            Admission::Reserved => Err(Problem::too_many_clients(self.server.settings.max_connections)),
            Admission::Probe => {
                let detail =
                    "this port serves /healthz, /readyz and /metrics: request ids from the port of --http";
                Err(Problem::new(ErrorKind::Unknown, detail.to_owned()))
            }
        }
    }

    /// Answers a gRPC call, which a web page may have sent.
    async fn call(
        &self,
        session: Arc<grpc::Session>,
        request: Request<Incoming>,
        delivery: Arc<Delivery>,
    ) -> Response<grpc::Body> {
        let checked = check_host(self.server.hosts_of(self.peer.admission), &self.known_host, &request)
            .and_then(|()| cors::check_site(&self.server.settings.cors_origins, &request));
        match checked {
            Ok(()) => session.call(request, delivery).await,
            Err(problem) => session.reject(&request, &grpc::Failure::new(problem.kind, problem.detail)),
        }
    }

    /// Counts and logs a request that hyper could not read.
    #[cold]
    fn unreadable(&self, outcome: &str) {
        self.server.metrics.failed(self.protocol(), ErrorKind::BadRequest);
        access_log::refused(self.protocol(), outcome);
    }

    /// Answers one request of HTTP/1.1.
    async fn answer(
        &self,
        request: Request<Incoming>,
        delivery: &Arc<Delivery>,
    ) -> Result<Response<DeliveredBody<Body>>, Infallible> {
        let timer = &self.peer.timer;
        timer.received(false);
        timer.requested();
        let making = Making::of(delivery);
        let (response, made) = handler::handle(self, request, timer.arrival()).await;
        if response.body().is_whole() {
            timer.made(made);
        }
        // A body that came in packets of its own belongs to this request, not to the next one.
        timer.received(false);
        Ok(response.map(|body| DeliveredBody::new(body, making)))
    }

    #[cold]
    fn failed(&self, error: &hyper::Error) {
        tracing::debug!(%error, "HTTP connection failed");
        if error.is_parse() {
            self.unreadable(if error.is_parse_too_large() { "431" } else { "400" });
        }
    }

    /// Serves a client until it leaves or rests. Returns the stream of a client that rests, since hyper would
    /// keep its buffers.
    async fn serve_http1(&self, stream: Prefaced<Stream>) -> Option<Prefaced<Stream>> {
        let timer = &self.peer.timer;
        let has_write_limit = stream.stream.has_write_limit();
        // HTTP/1.1 has one answer at a time.
        let delivery = if has_write_limit {
            Delivery::limited_by_the_system(timer.clone())
        } else {
            Delivery::new(timer.clone())
        };
        let stalled = async {
            // Boxed, since most connections do not need it.
            if has_write_limit { pending().await } else { Box::pin(delivery.stalled()).await }
        };
        let mut connection = http1::Builder::new()
            // This limit would apply to idle connections too: `ClientTimer` has one for each.
            .header_read_timeout(None)
            .max_buf_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            // No `pipeline_flush`: with it, hyper holds back all answers while requests are queued.
            .serve_connection(
                TokioIo::new(PeerStream::http1(stream, &self.peer)),
                service_fn(|request| self.answer(request, &delivery)),
            );
        let served = async {
            tokio::select! {
                biased;
                ended = &mut connection => return ended,
                () = self.peer.ended() => {}
            }
            // Finishes the request in flight, or closes an idle connection.
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        };
        let pause = tokio::select! {
            biased;
            ended = served => {
                ended.unwrap_or_else(|error| self.failed(&error));
                return None;
            }
            pause = timer.pauses() => pause,
            () = stalled => {
                tracing::debug!("HTTP client disconnected; it reads nothing");
                return None;
            }
        };
        if pause == Pause::Exceeded {
            tracing::debug!("HTTP client disconnected; time limit exceeded");
            if timer.is_within_request() {
                self.unreadable(ErrorKind::BadRequest.status().name);
            }
            return None;
        }
        // An idle connection ends at once, and the socket stays open.
        timer.keep_socket(true);
        Pin::new(&mut connection).graceful_shutdown();
        let is_idle = poll_fn(|cx| Poll::Ready(Pin::new(&mut connection).poll(cx))).await;
        timer.keep_socket(false);
        if !matches!(is_idle, Poll::Ready(Ok(()))) {
            tracing::debug!("HTTP client disconnected; incomplete request");
            return None;
        }
        let parts = connection.into_parts();
        let Prefaced { first, stream } = parts.io.into_inner().into_inner();
        // If requests were sent together, hyper may have read a part of the next one.
        Some(Prefaced { first: Bytes::from([parts.read_buf, first].concat()), stream })
    }
}

/// The body of an answer over HTTP/2.
enum Http2Body {
    Http(Body),
    Grpc(grpc::Body),
}

impl hyper::body::Body for Http2Body {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Http(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Grpc(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http(body) => body.is_end_stream(),
            Self::Grpc(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http(body) => body.size_hint(),
            Self::Grpc(body) => body.size_hint(),
        }
    }
}
