//! Handles a request: checks it, asks the mint, chooses the format, and counts the outcome.
//! HEAD is answered like GET, but without a body, and takes no ids.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body as _;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HeaderValue};
use hyper::{Method, Request, Response, Version};
use serde::Serialize;
use snowmint::utc::Utc;
use snowmint_cluster::LeaseStatus;
use tokio::time::{Instant, timeout};

use crate::access::{Identity, Right};
use crate::access_log::OK;
use crate::http::Serving;
use crate::http::idempotency::{self, Caller, KeyedRequest};
use crate::http::leaf::{self, LeafFailure};
use crate::http::request::{OPENAPI, Route, check_host, exposition, ids_format, route};
use crate::http::request_log;
use crate::http::response::{Body, IdsFormat, JSON, Problem, Refusal, TEXT, failure, json, ok};
use crate::http::tinyid::{self, TinyIdFailure};
use crate::http::{admin, console, console_data, cors};
use crate::limits::unread::LONG;
use crate::metrics::Exposition;
use crate::mint::{Namespace, parse_count, parse_range_count};
use crate::protocol::Admission;
use crate::request_record::RequestRecord;
use crate::shutdown::ShutdownListener;
use crate::state::ServerState;
use crate::status::ErrorKind;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The answer of `/readyz` when the node can make ids.
#[derive(Serialize)]
struct Readiness {
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    leases: Vec<LeaseHeld>,
    /// The identity of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    instance: String,
    /// Problems that need attention, such as a lease that is not being renewed or records that the store has lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

#[derive(Serialize)]
struct LeaseHeld {
    worker: u32,
    pool: String,
    until: String,
}

/// Answers one request, which began to arrive at `began`. Also returns when the answer was made.
pub(super) async fn handle<B>(
    serving: &Serving<'_>,
    mut request: Request<B>,
    began: Instant,
) -> (Response<Body>, Instant)
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let version = request.version();
    let method = request.method().clone();
    let is_head = method == Method::HEAD;
    let mut record = request_log::begin(serving, &request, began);
    let (mut response, made) = if admin::is_admin(request.uri().path()) {
        // Boxed, since few requests are admin requests.
        let mut identity = None;
        let action = format!("{} {}", request.method(), request.uri().path());
        let answered = Box::pin(admin::answer(serving, request, &mut identity, &mut record)).await;
        if let Err(problem) = &answered {
            serving.server.admin_refusals.failed(identity.as_ref(), &action, problem.kind, &problem.detail);
        }
        let answered = answered.and_then(|response| bounded(serving, &method, response));
        counted(serving, identity.as_ref(), began, answered.map_err(Failure::Problem))
    } else {
        let mut identity = None;
        let is_open = *request.method() == Method::POST && !request.body().is_end_stream();
        let body = if is_open {
            let within = serving.server.settings.timeouts.request;
            // Boxed, since most clients say at once that there is no body.
            Box::pin(expect_no_bytes(request.body_mut(), within)).await
        } else {
            Ok(())
        };
        let answered = try_handle(serving, &request, body, &mut identity, &mut record).await;
        let answered = match answered {
            Ok(response) => bounded(serving, &method, response).map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        let (mut response, made) = counted(serving, identity.as_ref(), began, answered);
        cors::mark(&serving.server.settings.cors_origins, request.headers(), &mut response);
        (response, made)
    };
    serving.server.store.mark(response.headers_mut());
    let status = response.status();
    record.ended_with(if status.is_success() { OK } else { status.as_str() }, status.as_u16().into());
    // Over HTTP/1.1, hyper leaves the body out.
    if is_head && version == Version::HTTP_2 {
        remove_body(&mut response);
    }
    // HTTP/2 has a frame for it, which its connection sends.
    if serving.peer.is_leaving() && version < Version::HTTP_2 {
        // So that the client's next request goes to another node, not to a connection that is being closed.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    (response, made)
}

/// Returns the answer with memory for its bytes, which it holds until the client has read them.
fn bounded(
    serving: &Serving<'_>,
    method: &Method,
    response: Response<Body>,
) -> Result<Response<Body>, Problem> {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let refusal = if is_read { Refusal::Possible } else { Refusal::TooLate };
    let (parts, body) = response.into_parts();
    Ok(Response::from_parts(parts, body.bounded(&serving.peer.answers, refusal)?))
}

/// Removes the body of an answer and keeps its length.
fn remove_body(response: &mut Response<Body>) {
    let len = std::mem::replace(response.body_mut(), Body::whole("")).size_hint().exact();
    if let Some(len) = len.filter(|len| *len > 0) {
        response.headers_mut().insert(CONTENT_LENGTH, len.into());
    }
}

/// Returns the answer and the current time, and counts the outcome, also for the token of the request.
fn counted(
    serving: &Serving<'_>,
    identity: Option<&Identity>,
    began: Instant,
    answered: Result<Response<Body>, Failure>,
) -> (Response<Body>, Instant) {
    let (metrics, protocol) = (&serving.server.metrics, serving.protocol());
    let response = match answered {
        Ok(response) => {
            metrics.succeeded(protocol, 1);
            if let Some(usage) = identity.and_then(Identity::usage) {
                usage.succeeded(1);
            }
            response
        }
        Err(failure) => {
            let (kind, response) = match failure {
                Failure::Problem(problem) => (problem.kind, problem.response()),
                Failure::Leaf(failure) => (failure.kind(), failure.response()),
                Failure::TinyId(failure) => (failure.kind(), failure.response()),
            };
            metrics.failed(protocol, kind);
            if let Some(usage) = identity.and_then(Identity::usage) {
                usage.failed(kind);
            }
            response
        }
    };
    let now = Instant::now();
    metrics.took(protocol, 1, now - began);
    (response, now)
}

/// A failure, in the format of the requested path.
enum Failure {
    Problem(Problem),
    Leaf(LeafFailure),
    TinyId(TinyIdFailure),
}

impl<P: Into<Problem>> From<P> for Failure {
    fn from(problem: P) -> Self {
        Self::Problem(problem.into())
    }
}

/// Answers a request. `body` says whether its body may be ignored. `identity` and `record` receive the identity
/// of the client once it is known.
async fn try_handle<B>(
    serving: &Serving<'_>,
    request: &Request<B>,
    body: Result<(), Problem>,
    identity: &mut Option<Identity>,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let Serving { server, client, .. } = serving;
    check_host(server.hosts_of(serving.peer.admission), &serving.known_host, request)?;
    if let Some(answer) = console::answer(serving, request) {
        return Ok(answer?);
    }
    let (path, query) = (request.uri().path(), request.uri().query());
    let route = route(path, query).or_else(|problem| {
        // A method that the path never takes is reported before an invalid query.
        check_method(&route(path, None)?, request.method())?;
        Err(problem)
    })?;
    if !matches!(route, Route::Health | Route::Ready | Route::Metrics) {
        check_admission(serving)?;
    }
    if let Some(answer) = cors::preflight(&server.settings.cors_origins, request) {
        return Ok(answer?);
    }
    let head = request.method() == Method::HEAD;
    check_method(&route, request.method())?;
    let mut key = None;
    if route.takes_ids() {
        body?;
        cors::check_site(&server.settings.cors_origins, request)?;
        key = idempotency::key(request, &route)?;
    }
    let identity = match route {
        // Probes and scrapers have no token.
        Route::Health | Route::Ready | Route::Metrics | Route::OpenApi => identity.insert(server.anonymous()),
        Route::TinyId { form, token: Some(ref token), .. }
            if !request.headers().contains_key(AUTHORIZATION) =>
        {
            let found = serving.bearer.identity_of_text(token);
            identity.insert(found.map_err(|error| Failure::TinyId(TinyIdFailure::of(form, &error)))?)
        }
        _ => identity.insert(serving.bearer.identity(request.headers())?),
    };
    record.sent_by(identity);
    match route {
        Route::Ids { namespace, count, format, wait } => {
            let count = parse_count(&count);
            let may_create = count.is_ok() && !head;
            let namespace = client.find_or_create(&server.mint, identity, &namespace, may_create).await?;
            let count = count?;
            let format = format.unwrap_or_else(|| ids_format(request.headers()));
            if head {
                return Ok(ok(format.media_type(), Body::whole("")));
            }
            let keyed = keyed(serving, identity, &namespace, key, count, format)?;
            let held_bytes = Body::hold_ids(&serving.peer.answers, &namespace, count, keyed.as_ref())?;
            // Borrowed: if it were moved, this future would reserve room for it twice.
            let draw = pin!(client.take(identity, &namespace, count, wait, Namespace::try_take));
            Ok(idempotency::answer(serving, keyed, format, draw).await?.map(|body| body.counted(held_bytes)))
        }
        Route::Ranges { namespace, count, wait } => {
            let count = parse_range_count(&count);
            let may_create = count.is_ok() && !head;
            let namespace = client.find_or_create(&server.mint, identity, &namespace, may_create).await?;
            let count = count?;
            if head {
                return Ok(ok(JSON, Body::whole("")));
            }
            let format = IdsFormat::Ranges;
            let keyed = keyed(serving, identity, &namespace, key, count, format)?;
            let held_bytes = Some(serving.peer.answers.hold(LONG)?);
            // Borrowed, as above.
            let draw = pin!(client.take(identity, &namespace, count, wait, Namespace::try_take_ranges));
            Ok(idempotency::answer(serving, keyed, format, draw).await?.map(|body| body.counted(held_bytes)))
        }
        Route::TinyId { form, namespace, count, .. } => {
            let answer = tinyid::answer(serving, identity, form, &namespace, count.as_deref(), head);
            answer.await.map_err(Failure::TinyId)
        }
        Route::LeafDecode { id } => {
            identity.may_somewhere(Right::Inspect)?;
            Ok(leaf::decoded(&server.mint, &id)?)
        }
        Route::Leaf { mode, key } => {
            // Leaf has no tokens, and so no answer for a wrong one.
            identity.may(Right::Mint, &key)?;
            leaf::answer(server, client, identity, mode, &key, request).await.map_err(Failure::Leaf)
        }
        Route::Inspect { id, by } => Ok(json(&identity.inspect(&server.mint, &id, by.as_ref())?)?),
        Route::Readings { id, by } => {
            let inspection = identity.inspect(&server.mint, &id, by.as_ref())?;
            Ok(console_data::readings(&id, &inspection)?)
        }
        Route::Layouts => Ok(console_data::layouts(identity)?),
        Route::Layout { spec } => Ok(console_data::layout(identity, spec.as_deref())?),
        Route::Server { namespace } => Ok(console_data::server(server, identity, namespace.as_deref())?),
        Route::OpenApi => Ok(ok(JSON, Body::constant(OPENAPI))),
        Route::Health => Ok(ok(TEXT, Body::whole("ok\n"))),
        Route::Ready => Ok(ready(server, &serving.peer.shutdown)?),
        Route::Metrics => {
            let exposition = exposition(request.headers());
            let kind = if exposition == Exposition::OpenMetrics { OPENMETRICS } else { PROMETHEUS };
            match server.metrics.rendering(exposition).await {
                Ok(rendering) => Ok(ok(kind, Body::metrics(rendering, &serving.peer.answers)?)),
                Err(error) => Err(failure(&error).into()),
            }
        }
    }
}

fn keyed(
    serving: &Serving<'_>,
    identity: &Identity,
    namespace: &Namespace,
    key: Option<&[u8]>,
    count: usize,
    format: IdsFormat,
) -> Result<Option<KeyedRequest>, Problem> {
    let Some(key) = key else { return Ok(None) };
    let address = serving.address.map(|address| address.ip());
    let caller = Caller { address, token: identity.token_name() };
    KeyedRequest::new(caller, namespace.name().as_str(), namespace.definition(), key, count, format).map(Some)
}

/// Checks that a connection may send more than probes.
pub(super) fn check_admission(serving: &Serving<'_>) -> Result<(), Problem> {
    match serving.peer.admission {
        Admission::Client => Ok(()),
        Admission::Reserved => Err(Problem::too_many_clients(serving.server.settings.max_connections)),
        Admission::Probe => {
            let detail =
                "this port serves /healthz, /readyz and /metrics: request ids from the port of --http";
            Err(Problem::new(ErrorKind::Unknown, detail.to_owned()))
        }
    }
}

/// Checks the method: GET and HEAD for all paths, and POST for paths that take ids.
fn check_method(route: &Route<'_>, method: &Method) -> Result<(), Problem> {
    match *method {
        Method::GET | Method::HEAD => Ok(()),
        Method::POST if route.takes_ids() => Ok(()),
        ref method => {
            Err(Problem::bad_method(method, if route.takes_ids() { "GET, HEAD, POST" } else { "GET, HEAD" }))
        }
    }
}

/// Checks that a body has no bytes: a count in it would be ignored. Over HTTP/2, and in chunks, a client may
/// begin a body that ends without any.
async fn expect_no_bytes<B>(body: &mut B, within: Duration) -> Result<(), Problem>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let bad = |detail: String| Problem::new(ErrorKind::BadRequest, detail);
    let unexpected = || bad("unexpected body: give the count in the query, such as ?count=5".to_owned());
    if body.size_hint().lower() > 0 {
        return Err(unexpected());
    }
    let ended = async {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            let frame = frame.map_err(|_| bad("incomplete body".to_owned()))?;
            if frame.data_ref().is_some_and(|data| !data.is_empty()) {
                return Err(unexpected());
            }
        }
        Ok(())
    };
    timeout(within, ended).await.unwrap_or_else(|_| Err(bad(format!("incomplete request after {within:?}"))))
}

/// Answers `/readyz`: ready if the node can make ids and is not shutting down.
fn ready(server: &ServerState, shutdown: &ShutdownListener) -> Result<Response<Body>, Problem> {
    if shutdown.is_drained() {
        let why = "an operator has drained this node: send new requests to other nodes; DELETE /v1/admin/drain ends it";
        return Err(Problem::new(ErrorKind::NotReady, why.to_owned()));
    }
    if shutdown.is_leaving() {
        let why = "this node is shutting down: send new requests to other nodes";
        return Err(Problem::new(ErrorKind::NotReady, why.to_owned()));
    }
    server.mint.check_ready().map_err(|error| {
        let mut problem = Problem::from(error);
        // Probes expect 503, whatever the reason is.
        if problem.kind.status().http != 503 {
            problem.kind = ErrorKind::NotReady;
        }
        problem
    })?;
    let status = server.mint.status();
    let now_unix_ms = server.settings.clock.unix_ms();
    let held = |lease: LeaseStatus| {
        let (worker, until_unix_ms) = lease.held_at(now_unix_ms)?;
        Some(LeaseHeld { worker: worker.0, until: Utc(until_unix_ms).to_string(), pool: lease.pool })
    };
    let trouble: Vec<String> = server.store.troubles().into_iter().chain(server.mint.trouble()).collect();
    // A worker that was set by hand has no end.
    let has_ended = status.until_unix_ms.is_some_and(|until| until <= now_unix_ms);
    json(&Readiness {
        ready: true,
        worker: status.worker.filter(|_| !has_ended).map(|worker| worker.0),
        until: status.until_unix_ms.filter(|_| !has_ended).map(|until| Utc(until).to_string()),
        leases: server.mint.leases().into_iter().filter_map(held).collect(),
        store: server.store.text().map(str::to_owned),
        instance: server.instance.clone(),
        trouble: (!trouble.is_empty()).then(|| trouble.join("; ")),
    })
}
