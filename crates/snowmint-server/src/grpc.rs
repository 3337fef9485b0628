//! gRPC: the calls of `snowmint.v1.Snowmint` and `snowmint.v1.Admin`, health and reflection. `http2` runs a connection, `message`
//! reads and writes messages, `draw` asks the mint, `stream` answers the calls of a stream, `line` logs and traces them, `health`
//! says whether ids can be made.
//!
//! The calls of this service do not go through tonic: a response of 100,000 ids is made while it is sent, and holds little
//! memory for a client that reads slowly. tonic would make it whole. Health and reflection are tonic's.

mod admin;
mod draw;
mod health;
mod line;
pub mod message;
mod stream;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use prost::Message;
use snowmint::error::Snippet;
use snowmint::inspect::{Candidate, Inspection, Value};
use snowmint_cluster::namespace::Scheme;
use tokio::time::{Instant, timeout_at};
use tonic::codegen::{BoxFuture, Service as _};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::Builder as Reflection;

use crate::accept::Admission;
use crate::access::{BearerCache, Identity, Right};
use crate::delivery::Delivery;
use crate::http2::{self, Ended, Peer};
use crate::limits::admin::MAX_BODY;
use crate::limits::grpc::{MAX_MESSAGE, MAX_NAMESPACES};
use crate::metrics::Protocol;
use crate::mint::{ConnectionState, InspectBy, MintError, Namespace};
use crate::shutdown::ShutdownListener;
use crate::state::ServerState;
use crate::status::ErrorKind;
use crate::tls::Accepted;
use crate::turns::Turn;
use admin::AdminMethod;
use health::NodeHealth;
use line::CallLine;
use message::{Answer, FrameError, MessageReader};
use messages::inspect_request::By;
use stream::StreamCall;

/// The messages of `snowmint.proto`, as the compiler wrote them.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]
pub mod messages {
    include!(concat!(env!("OUT_DIR"), "/snowmint.v1.rs"));
}

/// The description of the service, for reflection.
const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/snowmint.v1.bin"));
/// The path of every call of the service starts with it.
const SERVICE: &str = "/snowmint.v1.Snowmint/";
const HEALTH: &str = "/grpc.health.v1.Health/";
/// The trailer with the kind of a failure, as in the metrics.
const KIND: &str = "snowmint-error";
/// The trailers with the time after which a retry helps: one for people and programs, one that client libraries obey.
const RETRY_AFTER: [&str; 2] = ["retry-after-ms", "grpc-retry-pushback-ms"];
const CONTENT: HeaderValue = HeaderValue::from_static("application/grpc");

/// A service of tonic.
type TonicService = Box<
    dyn Fn(Request<Incoming>) -> BoxFuture<Response<tonic::body::Body>, Infallible> + Send + Sync + 'static,
>;

/// What all gRPC connections share.
pub(crate) struct Services {
    health: HealthServer<NodeHealth>,
    /// Each version with the start of its paths.
    reflection: [(&'static str, TonicService); 2],
}

impl Services {
    pub(crate) fn new(server: &Arc<ServerState>, shutdown: ShutdownListener) -> Self {
        let health = HealthServer::new(NodeHealth::new(Arc::clone(server), shutdown));
        let described = || {
            let health = tonic_health::pb::FILE_DESCRIPTOR_SET;
            Reflection::configure()
                .register_encoded_file_descriptor_set(DESCRIPTION)
                .register_encoded_file_descriptor_set(health)
        };
        // Both descriptions are compiled in; a test reads them.
        let none = || -> TonicService { Box::new(|_| Box::pin(async { Ok(failed(&Failure::method(""))) })) };
        let v1 = described().build_v1().map_or_else(
            |_| none(),
            |service| {
                let service = service.max_decoding_message_size(MAX_MESSAGE);
                Box::new(move |request| service.clone().call(request))
            },
        );
        let v1alpha = described().build_v1alpha().map_or_else(
            |_| none(),
            |service| {
                let service = service.max_decoding_message_size(MAX_MESSAGE);
                Box::new(move |request| service.clone().call(request))
            },
        );
        Self {
            health: health.max_decoding_message_size(MAX_MESSAGE),
            reflection: [
                ("/grpc.reflection.v1.ServerReflection/", v1),
                ("/grpc.reflection.v1alpha.ServerReflection/", v1alpha),
            ],
        }
    }
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    text: String,
    retry_after: Option<Duration>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), retry_after: None }
    }

    fn method(path: &str) -> Self {
        let text = format!(
            "unknown method {}: expected {SERVICE} with Next, Stream, Inspect, TimeBounds or Namespaces",
            Snippet::of(path)
        );
        Self::new(ErrorKind::Unknown, text)
    }

    fn expired() -> Self {
        Self::new(ErrorKind::Expired, "the deadline of the call has passed: retry with a longer one")
    }

    fn ending() -> Self {
        Self::new(ErrorKind::NotReady, "this node is shutting down: send new requests to other nodes")
    }

    fn status(&self) -> tonic::Status {
        let row = self.kind.status();
        let mut metadata = MetadataMap::new();
        metadata.insert(KIND, MetadataValue::from_static(row.name));
        if let Some(after) = self.retry_after {
            let ms = MetadataValue::from(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
            for name in RETRY_AFTER {
                metadata.insert(name, ms.clone());
            }
        }
        tonic::Status::with_metadata(row.grpc, &self.text, metadata)
    }

    fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        if let Err(status) = self.status().add_header(&mut trailers) {
            // Texts are encoded, so every one can be sent.
            tracing::debug!(%status, "cannot write the error of a call");
        }
        trailers
    }
}

impl From<MintError> for Failure {
    fn from(error: MintError) -> Self {
        Self { kind: error.kind(), retry_after: error.retry_after(), text: error.to_string() }
    }
}

impl From<FrameError> for Failure {
    fn from(error: FrameError) -> Self {
        let kind =
            if matches!(error, FrameError::Compressed) { ErrorKind::Unknown } else { ErrorKind::BadRequest };
        Self::new(kind, error.to_string())
    }
}

/// The time until which a client waits for an answer.
#[derive(Clone, Copy, Debug)]
struct Deadline(Option<Instant>);

impl Deadline {
    /// Reads the header `grpc-timeout`: up to eight digits and a unit.
    fn of(headers: &HeaderMap, began: Instant) -> Result<Self, Failure> {
        let Some(value) = headers.get("grpc-timeout") else { return Ok(Self(None)) };
        let timeout = value.to_str().ok().and_then(read_timeout).ok_or_else(|| {
            let text = String::from_utf8_lossy(value.as_bytes());
            let text = format!(
                "invalid grpc-timeout {}: expected 1 to 8 digits and H, M, S, m, u or n",
                Snippet::of(&text)
            );
            Failure::new(ErrorKind::BadRequest, text)
        })?;
        Ok(Self(Some(began + timeout)))
    }

    /// Fails if the deadline has passed.
    fn check(self, now: Instant) -> Result<(), Failure> {
        if self.0.is_some_and(|at| at <= now) { Err(Failure::expired()) } else { Ok(()) }
    }

    /// Waits until the deadline at most.
    async fn bound<T>(self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        match self.0 {
            None => work.await,
            Some(at) => timeout_at(at, work).await.unwrap_or_else(|_| Err(Failure::expired())),
        }
    }

    /// Returns once the deadline has passed.
    async fn passed(self) {
        match self.0 {
            None => std::future::pending().await,
            Some(at) => tokio::time::sleep_until(at).await,
        }
    }
}

/// Parses `100m` as 100 ms.
fn read_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_hours(number)),
        "M" => Some(Duration::from_mins(number)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// Serves one connection until the client leaves, a time limit passes, or the service ends.
pub(crate) async fn serve(
    server: Arc<ServerState>,
    accepted: Accepted,
    admission: Admission,
    shutdown: ShutdownListener,
    services: Arc<Services>,
) {
    let Some(mut stream) = accepted.establish(&server, &shutdown).await else { return };
    let turn = Turn::default();
    let peer = Peer::new(&turn, server.timeouts, shutdown, admission);
    let serving = async {
        let Some(preface) = http2::wait_for_bytes(&mut stream, &peer).await else {
            return stream.close().await;
        };
        let session = Session::new(&server, &services, &peer);
        let answer = |request, delivery| Arc::clone(&session).call(request, delivery);
        // Boxed, since it is much larger than a client that is silent.
        if Box::pin(http2::serve(stream, preface, &peer, answer)).await == Ended::Broken {
            server.refused(Protocol::Grpc, ErrorKind::BadRequest);
        }
    };
    server.turns.take(&turn, pin!(serving)).await;
}

/// One connection: what its calls share.
pub(crate) struct Session {
    server: Arc<ServerState>,
    services: Arc<Services>,
    shutdown: ShutdownListener,
    admission: Admission,
    bearer: BearerCache,
    /// The states that no call uses now. Calls that follow each other get the same one, so that their ids increase.
    states: Mutex<Vec<ConnectionState>>,
}

/// A connection state that returns to its session.
struct StateLease {
    session: Arc<Session>,
    /// `None` only while it is dropped.
    state: Option<ConnectionState>,
}

impl StateLease {
    fn of(session: &Arc<Session>) -> Self {
        // Each change is one push or pop, so a panic elsewhere leaves the list consistent.
        let free = session.states.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let state = free.unwrap_or_else(|| session.server.mint.connection_state());
        Self { session: Arc::clone(session), state: Some(state) }
    }

    fn get(&mut self) -> &mut ConnectionState {
        self.state.get_or_insert_with(|| self.session.server.mint.connection_state())
    }
}

impl Drop for StateLease {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            self.session.states.lock().unwrap_or_else(PoisonError::into_inner).push(state);
        }
    }
}

impl Session {
    pub(crate) fn new(server: &Arc<ServerState>, services: &Arc<Services>, peer: &Peer<'_>) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(server),
            services: Arc::clone(services),
            shutdown: peer.shutdown.clone(),
            admission: peer.admission,
            bearer: BearerCache::new(server.access.as_ref()),
            states: Mutex::default(),
        })
    }

    /// Answers one call.
    pub(crate) async fn call(
        self: Arc<Self>,
        request: Request<Incoming>,
        delivery: Arc<Delivery>,
    ) -> Response<Body> {
        let began = Instant::now();
        let mut line = self.line(&request, began);
        if request.method() != Method::POST || !is_grpc(request.headers()) {
            self.server.metrics.failed(self.protocol(), ErrorKind::BadRequest);
            line.end(Some(ErrorKind::BadRequest));
            return not_grpc();
        }
        // Health checks and reflection need no token.
        let path = request.uri().path();
        let is_open = !path.starts_with(SERVICE) && !path.starts_with(admin::SERVICE);
        let identity =
            if is_open { Ok(self.server.anonymous()) } else { self.bearer.identity(request.headers()) };
        let usage = identity.as_ref().ok().and_then(Identity::usage).cloned();
        match self.try_call(request, began, delivery, identity, &mut line).await {
            Ok(Called { response, kind }) => {
                match kind {
                    CallKind::Unary { failed } => line.end(failed),
                    // Each of its requests has a line; the call has the span.
                    CallKind::Stream => line.omit(),
                }
                response
            }
            Err(failure) => {
                if let Some(usage) = usage {
                    usage.failed(failure.kind);
                }
                self.refuse(&failure, line)
            }
        }
    }

    /// Refuses a call that may not reach the service.
    pub(crate) fn reject(&self, request: &Request<Incoming>, failure: &Failure) -> Response<Body> {
        self.refuse(failure, self.line(request, Instant::now()))
    }

    fn refuse(&self, failure: &Failure, line: CallLine) -> Response<Body> {
        self.server.metrics.took(self.protocol(), 1, line.began.elapsed());
        self.server.metrics.failed(self.protocol(), failure.kind);
        line.end(Some(failure.kind));
        failed(failure)
    }

    fn line(&self, request: &Request<Incoming>, began: Instant) -> CallLine {
        let line = CallLine::of(self.protocol(), began, || request.uri().path().to_owned());
        #[cfg(feature = "otlp")]
        if let Some(tracer) = &self.server.tracer
            && let Some(span) = tracer.begin(request.headers(), began)
        {
            return line.traced(span, self.protocol(), request.uri().path());
        }
        line
    }

    /// The protocol under which the calls of this connection count.
    fn protocol(&self) -> Protocol {
        self.admission.protocol(Protocol::Grpc)
    }

    async fn try_call(
        self: &Arc<Self>,
        request: Request<Incoming>,
        began: Instant,
        delivery: Arc<Delivery>,
        identity: Result<Identity, MintError>,
        line: &mut CallLine,
    ) -> Result<Called, Failure> {
        let path = request.uri().path();
        if path.starts_with(HEALTH) {
            let ends = path.ends_with("/Watch").then(|| self.shutdown.clone());
            if ends.is_some() {
                delivery.goes_on();
            }
            // A watch may last for ever, and tonic waits as long for the message of a call: neither keeps the connection busy.
            delivery.wait();
            let answered = self.arrived(self.services.health.clone().call(request)).await?;
            return Ok(self.tonic(answered, ends, began));
        }
        match self.admission {
            Admission::Client => {}
            Admission::Reserved => {
                let limit = self.server.max_connections;
                let text = format!(
                    "connection limit ({limit}) reached: retry later, or raise --max-connections on the server"
                );
                let retry_after = Some(Duration::from_secs(1));
                return Err(Failure { retry_after, ..Failure::new(ErrorKind::TooManyClients, text) });
            }
            Admission::Probe => {
                let text = "this port serves health checks: call others at the port of --http or --grpc";
                return Err(Failure::new(ErrorKind::Unknown, text));
            }
        }
        if let Some((_, service)) = self.services.reflection.iter().find(|(at, _)| path.starts_with(at)) {
            delivery.goes_on();
            delivery.wait();
            let answered = service(request).await;
            return Ok(self.tonic(answered, Some(self.shutdown.clone()), began));
        }
        if let Some(name) = path.strip_prefix(admin::SERVICE) {
            // Boxed, since most calls are others.
            let method = AdminMethod::of(name)?;
            return Box::pin(self.administer(method, request, identity?, began)).await;
        }
        let Some(method) = path.strip_prefix(SERVICE).and_then(CallMethod::of) else {
            return Err(Failure::method(path));
        };
        let identity = identity?;
        let deadline = Deadline::of(request.headers(), began)?;
        check_encoding(request.headers())?;
        let mut reader = MessageReader::new(request.into_body(), MAX_MESSAGE);
        if method == CallMethod::Stream {
            let call = line.of_stream();
            let call = StreamCall::new(Arc::clone(self), identity, reader, deadline, delivery, call);
            return Ok(Called { response: response(Body::Stream(Box::new(call))), kind: CallKind::Stream });
        }
        let message = deadline.bound(self.read_one(&mut reader)).await?;
        if method == CallMethod::Next {
            line.draws(&message);
        }
        let answer = self.answer(method, &identity, &message, deadline).await?;
        Ok(self.succeeded(&identity, began, answer))
    }

    /// Answers a call of the admin service.
    async fn administer(
        &self,
        method: AdminMethod,
        request: Request<Incoming>,
        identity: Identity,
        began: Instant,
    ) -> Result<Called, Failure> {
        admin::check(&identity)?;
        let deadline = Deadline::of(request.headers(), began)?;
        check_encoding(request.headers())?;
        let mut reader = MessageReader::new(request.into_body(), MAX_BODY);
        let message = deadline.bound(self.read_one(&mut reader)).await?;
        let answer = admin::answer(&self.server, method, &identity, &message, deadline).await?;
        Ok(self.succeeded(&identity, began, answer))
    }

    fn succeeded(&self, identity: &Identity, began: Instant, answer: Answer) -> Called {
        self.server.metrics.succeeded(Protocol::Grpc, 1);
        if let Some(usage) = identity.usage() {
            usage.succeeded(1);
        }
        self.server.metrics.took(Protocol::Grpc, 1, began.elapsed());
        let response = response(Body::Answer { answer, trailers: Trailers::Due });
        Called { response, kind: CallKind::Unary { failed: None } }
    }

    /// Reads the one message of a call.
    async fn read_one(&self, reader: &mut MessageReader) -> Result<Bytes, Failure> {
        let one = |what| Failure::new(ErrorKind::BadRequest, format!("{what}: expected one message"));
        let reading = async {
            let message = poll_fn(|cx| reader.poll_next(cx)).await?.ok_or_else(|| one("no message"))?;
            match poll_fn(|cx| reader.poll_next(cx)).await? {
                None => Ok(message),
                Some(_) => Err(one("more than one message")),
            }
        };
        self.arrived(reading).await?
    }

    /// Waits for what needs only the client's message, for the time limit of a request at most.
    async fn arrived<T>(&self, arriving: impl Future<Output = T>) -> Result<T, Failure> {
        let within = self.server.timeouts.request;
        let late = |_| Failure::new(ErrorKind::BadRequest, format!("incomplete request after {within:?}"));
        tokio::time::timeout(within, arriving).await.map_err(late)
    }

    async fn answer(
        self: &Arc<Self>,
        method: CallMethod,
        identity: &Identity,
        message: &Bytes,
        deadline: Deadline,
    ) -> Result<Answer, Failure> {
        match method {
            // A stream was answered before.
            CallMethod::Next | CallMethod::Stream => {
                let request: messages::NextRequest = decode(message)?;
                deadline.check(Instant::now())?;
                let mut state = StateLease::of(self);
                match draw::try_draw(&self.server, identity, state.get(), &request)? {
                    draw::Drawn::Done(answer) => Ok(answer),
                    // Boxed, since most calls need not wait.
                    drawn => {
                        let finish =
                            Box::pin(draw::finish(&self.server, identity, state.get(), &request, drawn));
                        deadline.bound(finish).await
                    }
                }
            }
            CallMethod::Inspect => {
                let request: messages::InspectRequest = decode(message)?;
                let by = match &request.by {
                    None => InspectBy::Anything,
                    Some(By::Namespace(name)) => InspectBy::Namespace(name.as_bytes()),
                    Some(By::Layout(layout)) => InspectBy::Layout(layout.as_bytes()),
                };
                let inspection = identity.inspect(&self.server.mint, request.id.as_bytes(), by)?;
                Ok(Answer::of_message(&inspected(&inspection)))
            }
            CallMethod::TimeBounds => {
                let request: messages::TimeBoundsRequest = decode(message)?;
                let messages::TimeBoundsRequest { namespace, from_unix_ms, until_unix_ms } = &request;
                let range = *from_unix_ms..*until_unix_ms;
                let bounds = identity.time_bounds(&self.server.mint, namespace.as_bytes(), range)?;
                let (first, last) = (bounds.start().get(), bounds.end().get());
                Ok(Answer::of_message(&messages::TimeBoundsResponse { first, last }))
            }
            CallMethod::Namespaces => {
                let request: messages::NamespacesRequest = decode(message)?;
                identity.may_somewhere(Right::Inspect)?;
                Ok(Answer::of_message(&self.namespaces(identity, &request)?))
            }
        }
    }

    fn namespaces(
        &self,
        identity: &Identity,
        request: &messages::NamespacesRequest,
    ) -> Result<messages::NamespacesResponse, Failure> {
        let size = match usize::try_from(request.page_size) {
            Ok(0) => MAX_NAMESPACES,
            Ok(size @ 1..=MAX_NAMESPACES) => size,
            _ => {
                let text = format!("invalid page size {}: expected 1 to {MAX_NAMESPACES}", request.page_size);
                return Err(Failure::new(ErrorKind::BadRequest, text));
            }
        };
        let table = self.server.mint.table();
        let sees = |namespace: &&Arc<Namespace>| identity.sees(namespace.name().as_str().as_bytes());
        let all: Vec<_> = table.namespaces().iter().filter(sees).collect();
        // A token is the last name of the page before, which may have been dropped since.
        let after = request.page_token.as_str();
        let start = all.partition_point(|namespace| namespace.name().as_str() <= after);
        let page = &all[start..all.len().min(start + size)];
        let is_last = start + page.len() == all.len();
        let next = page.last().filter(|_| !is_last).map_or("", |last| last.name().as_str());
        Ok(messages::NamespacesResponse {
            namespaces: page.iter().map(|namespace| described(namespace)).collect(),
            next_page_token: next.to_owned(),
        })
    }

    /// Passes on the answer of a service of tonic. `ends` ends its stream at shutdown.
    fn tonic(
        &self,
        answered: Result<Response<tonic::body::Body>, Infallible>,
        ends: Option<ShutdownListener>,
        began: Instant,
    ) -> Called {
        let Ok(response) = answered;
        let failed = failure_of_tonic(response.headers());
        match failed {
            None => self.server.metrics.succeeded(self.protocol(), 1),
            Some(kind) => self.server.metrics.failed(self.protocol(), kind),
        }
        self.server.metrics.took(self.protocol(), 1, began.elapsed());
        let ends =
            ends.map(|shutdown| Box::pin(shutdown.ended()) as Pin<Box<dyn Future<Output = ()> + Send>>);
        let response = response.map(|body| Body::Tonic { body, ends, trailers: Trailers::Due });
        Called { response, kind: CallKind::Unary { failed } }
    }
}

/// A call with its answer.
struct Called {
    response: Response<Body>,
    kind: CallKind,
}

/// What is left of a call when its answer begins.
enum CallKind {
    /// Nothing. `failed` is what the answer reports.
    Unary { failed: Option<ErrorKind> },
    /// Its requests, each of which counts.
    Stream,
}

/// Returns the kind of a failure that a service of tonic has answered.
fn failure_of_tonic(headers: &HeaderMap) -> Option<ErrorKind> {
    match headers.get("grpc-status")?.as_bytes() {
        b"0" => None,
        // Not found, and unimplemented.
        b"5" | b"12" => Some(ErrorKind::Unknown),
        _ => Some(ErrorKind::BadRequest),
    }
}

/// The calls of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallMethod {
    Next,
    Stream,
    Inspect,
    TimeBounds,
    Namespaces,
}

impl CallMethod {
    fn of(name: &str) -> Option<Self> {
        match name {
            "Next" => Some(Self::Next),
            "Stream" => Some(Self::Stream),
            "Inspect" => Some(Self::Inspect),
            "TimeBounds" => Some(Self::TimeBounds),
            "Namespaces" => Some(Self::Namespaces),
            _ => None,
        }
    }
}

/// Checks that the messages of a call are not compressed.
fn check_encoding(headers: &HeaderMap) -> Result<(), Failure> {
    let encoding = headers.get("grpc-encoding");
    if encoding.is_some_and(|encoding| encoding != "identity") {
        return Err(FrameError::Compressed.into());
    }
    Ok(())
}

fn decode<M: Message + Default>(message: &Bytes) -> Result<M, Failure> {
    M::decode(message.as_ref())
        .map_err(|error| Failure::new(ErrorKind::BadRequest, format!("invalid message: {error}")))
}

/// Returns `true` for the content type of gRPC with protobuf.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest, b"" | b"+proto" | [b';', ..]))
}

fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, CONTENT);
    response
}

/// The answer to what is not gRPC: an HTTP status, as the protocol wants it.
fn not_grpc() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

/// The answer of a failed call: its trailers are its headers.
fn failed<B: Default>(failure: &Failure) -> Response<B> {
    let mut response = Response::new(B::default());
    response.headers_mut().insert(CONTENT_TYPE, CONTENT);
    response.headers_mut().extend(failure.trailers());
    response
}

fn described(namespace: &Arc<Namespace>) -> messages::Namespace {
    let definition = namespace.definition();
    let layout = match &definition.scheme {
        Scheme::Snowflake { layout, .. } => layout.to_string(),
        _ => String::new(),
    };
    messages::Namespace {
        name: namespace.name().as_str().to_owned(),
        scheme: definition.scheme.name().to_owned(),
        layout,
        text: definition.text.as_ref().map(ToString::to_string).unwrap_or_default(),
        numbers: definition.is_plain_number(),
        description: definition.about.description.clone().unwrap_or_default(),
        owner: definition.about.owner.clone().unwrap_or_default(),
    }
}

fn inspected(inspection: &Inspection) -> messages::InspectResponse {
    let likeliest = inspection.likeliest();
    let field = |(name, value): (&'static str, Value)| {
        use messages::field::Value as Shown;
        let value = match value {
            Value::Number(number) => Shown::Number(number),
            Value::Text(text) => Shown::Text(text),
            Value::Real(real) => Shown::Text(real.to_string()),
            Value::Texts(texts) => Shown::Text(texts.join(" ")),
            // The guesses, which have a field of their own.
            Value::List(_) => return None,
        };
        Some(messages::Field { name: name.to_owned(), value: Some(value) })
    };
    let guess = |candidate: &Candidate| messages::Guess {
        name: candidate.decoded.name().into_owned(),
        form: candidate.form.to_owned(),
        unix_ms: candidate.decoded.unix_ms(),
        likelihood: candidate.likelihood,
        namespaces: candidate.namespaces.clone(),
    };
    messages::InspectResponse {
        name: likeliest.decoded.name().into_owned(),
        form: likeliest.form.to_owned(),
        unix_ms: likeliest.decoded.unix_ms(),
        fields: inspection.values().into_iter().filter_map(field).collect(),
        guesses: inspection.candidates().iter().map(guess).collect(),
    }
}

/// Whether the trailers of a call have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trailers {
    Due,
    Sent,
}

/// The body of an answer.
#[derive(Default)]
pub(crate) enum Body {
    #[default]
    Empty,
    Answer {
        answer: Answer,
        trailers: Trailers,
    },
    Stream(Box<StreamCall>),
    Tonic {
        body: tonic::body::Body,
        ends: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
        trailers: Trailers,
    },
}

/// The trailers of a call that succeeded.
fn succeeded() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}

type BodyFrame = Option<Result<Frame<Bytes>, tonic::Status>>;

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BodyFrame> {
        match &mut *self {
            Self::Empty | Self::Tonic { trailers: Trailers::Sent, .. } => Poll::Ready(None),
            Self::Answer { answer, trailers } => {
                let mut chunk = Vec::new();
                if let Err(cut) = answer.write(&mut chunk) {
                    return Poll::Ready(Some(Err(cut)));
                }
                let frame = match (chunk.is_empty(), &trailers) {
                    (false, _) => Frame::data(chunk.into()),
                    (true, Trailers::Due) => {
                        *trailers = Trailers::Sent;
                        Frame::trailers(succeeded())
                    }
                    (true, Trailers::Sent) => return Poll::Ready(None),
                };
                Poll::Ready(Some(Ok(frame)))
            }
            Self::Stream(call) => call.poll_frame(cx),
            Self::Tonic { body, ends, trailers, .. } => {
                if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
                    return Poll::Ready(frame);
                }
                let Some(ends) = ends else { return Poll::Pending };
                ready!(ends.as_mut().poll(cx));
                *trailers = Trailers::Sent;
                Poll::Ready(Some(Ok(Frame::trailers(Failure::ending().trailers()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Tonic { body, .. } => body.is_end_stream(),
            Self::Answer { .. } | Self::Stream(_) => false,
        }
    }
}
