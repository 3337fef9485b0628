//! Handles a request: checks it, asks the mint, chooses the format, and counts the outcome.
//! HEAD is answered like GET, but without a body, and takes no ids.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body as _;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, Version};
use serde::Serialize;
use snowmint::utc::Utc;
use snowmint_cluster::{Holder, LeaseStatus};
use tokio::time::{Instant, timeout};

use crate::access::mint_access::TryTake;
use crate::access::{Identity, Right};
use crate::http::Serving;
use crate::http::idempotency::{self, Caller, KeyedRequest};
use crate::http::request::{check_host, exposition, ids_format};
use crate::http::response::{Body, Failure, IdsFormat, JSON, Problem, Refusal, TEXT, failure, json, ok};
use crate::http::routes::{OPENAPI, PathSpec, Route};
use crate::http::{admin, console, console_data, cors, leaf, routes, tinyid};
use crate::limits::unread::LONG;
use crate::metrics::Exposition;
use crate::mint::{Namespace, parse_count, parse_range_count};
use crate::request_record::{RequestKind, RequestRecord};
use crate::state::ServerState;
use crate::state::shutdown::ShutdownListener;
use crate::status::ErrorKind;
use crate::telemetry::access_log::OK;
use crate::telemetry::caller::CallerNames;

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
    /// The name of the node in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    version: &'static str,
    /// Ids given to clients since the start.
    issued: u64,
    /// Problems that need attention, such as a lease that is not being renewed or records that the store has
    /// lost.
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
    let spec = PathSpec::find(request.uri().path());
    let mut record = begin_record(serving, &request, spec, began);
    let names = CallerNames::of(request.headers());
    record.named(&names);
    let mut identity = None;
    let is_admin = admin::is_admin(request.uri().path());
    let answered = if is_admin {
        // Boxed, since few requests are admin requests.
        let action = format!("{} {}", request.method(), request.uri().path());
        let answered = Box::pin(admin::answer(serving, &mut request, &mut identity, &mut record)).await;
        if let Err(problem) = &answered {
            serving.server.admin_refusals.failed(identity.as_ref(), &action, problem.kind, &problem.detail);
        }
        answered.map_err(Failure::from)
    } else {
        let is_open = method == Method::POST && !request.body().is_end_stream();
        let body = if is_open {
            let within = serving.server.settings.timeouts.request;
            // Boxed, since most clients say at once that there is no body.
            Box::pin(expect_no_bytes(request.body_mut(), within)).await
        } else {
            Ok(())
        };
        try_handle(serving, &request, spec, body, &mut identity, &mut record).await
    };
    let answered = answered.and_then(|response| Ok(bounded(serving, &method, response)?));
    let (mut response, made) = counted(serving, identity.as_ref(), began, answered);
    if !is_admin {
        cors::mark(&serving.server.settings.cors_origins, request.headers(), &mut response);
    }
    serving.server.store.mark(response.headers_mut());
    names.mark(response.headers_mut());
    let status = response.status();
    let outcome =
        if status.is_success() { Cow::Borrowed(OK) } else { Cow::Owned(status.as_str().to_owned()) };
    record.ended_with(outcome, status.as_u16().into());
    // Over HTTP/1.1, hyper leaves the body out.
    if is_head && version == Version::HTTP_2 {
        remove_body(&mut response);
    }
    // HTTP/2 has a frame for it, which its connection sends.
    if serving.peer.is_leaving() && version < Version::HTTP_2 {
        // So that the client's next request goes to another node, not to a connection that is being closed.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if !request.body().is_end_stream() && !request.headers().contains_key(EXPECT) {
        Box::pin(discard(request.body_mut())).await;
    }
    (response, made)
}

/// Begins the record of a request. The query stays out, since it may have a token.
fn begin_record<B>(
    serving: &Serving<'_>,
    request: &Request<B>,
    spec: Option<&PathSpec>,
    began: Instant,
) -> RequestRecord {
    let path = request.uri().path();
    let what = || {
        let others = if admin::is_admin(path) { "/v1/admin" } else { "" };
        let route = spec.map_or(others, |spec| spec.pattern);
        (RequestKind::Http(route), format!("{} {path}", request.method()))
    };
    let (server, protocol) = (serving.server, serving.protocol());
    let mut record = RequestRecord::begin(server, protocol, request.headers(), began, what);
    record.addressed_to(request, if serving.is_tls { "https" } else { "http" });
    if let Some(spec) = spec.filter(|_| !record.is_empty()) {
        let (namespace, count) = spec.drawn(request.uri());
        record.asks(namespace, count);
    }
    record
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
            metrics.failed(protocol, failure.kind);
            if let Some(usage) = identity.and_then(Identity::usage) {
                usage.failed(failure.kind);
            }
            *failure.response
        }
    };
    let now = Instant::now();
    metrics.took(protocol, 1, now - began);
    (response, now)
}

/// Answers a request. `body` says whether its body may be ignored. `identity` and `record` receive the
/// identity of the client once it is known.
async fn try_handle<B>(
    serving: &Serving<'_>,
    request: &Request<B>,
    spec: Option<&PathSpec>,
    body: Result<(), Problem>,
    identity: &mut Option<Identity>,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let server = serving.server;
    check_host(server.hosts_of(serving.peer.admission), &serving.known_host, request)?;
    if let Some(answer) = console::answer(serving, request) {
        return Ok(answer?);
    }
    let (path, method) = (request.uri().path(), request.method());
    let spec = spec.ok_or_else(|| routes::unknown(path))?;
    let route = spec.route(method, path, request.uri().query())?;
    if !matches!(route, Route::Health | Route::Ready | Route::Metrics) {
        serving.check_admission()?;
    }
    if let Some(answer) = cors::preflight(&server.settings.cors_origins, request) {
        return Ok(answer?);
    }
    spec.check_method(method)?;
    let mut key = None;
    if spec.takes_ids() {
        body?;
        cors::check_site(&server.settings.cors_origins, request)?;
        key = idempotency::key(request, &route)?;
    }
    let identity = identity.insert(identify(serving, request.headers(), &route)?);
    record.sent_by(identity);
    answer(serving, request, route, key, identity).await
}

/// Returns the identity of the client.
fn identify(serving: &Serving<'_>, headers: &HeaderMap, route: &Route<'_>) -> Result<Identity, Failure> {
    match route {
        // Probes and scrapers have no token.
        Route::Health | Route::Ready | Route::Metrics | Route::OpenApi => Ok(serving.server.anonymous()),
        Route::TinyId { form, token: Some(token), .. } if !headers.contains_key(AUTHORIZATION) => {
            let found = serving.bearer.identity_of_text(token);
            found.map_err(|error| tinyid::failure(*form, error.kind(), &error.answer()))
        }
        _ => Ok(serving.bearer.identity(headers)?),
    }
}

/// Answers a request that is valid so far.
async fn answer<B>(
    serving: &Serving<'_>,
    request: &Request<B>,
    route: Route<'_>,
    key: Option<&[u8]>,
    identity: &Identity,
) -> Result<Response<Body>, Failure> {
    let Serving { server, client, .. } = serving;
    match route {
        Route::Ids { namespace, count, format, wait } => {
            let format = format.unwrap_or_else(|| ids_format(request.headers()));
            let draw = Draw { namespace: &namespace, count: &count, format, wait, key };
            Ok(draw.answer(serving, identity, request.method()).await?)
        }
        Route::TinyId { form, namespace, count, .. } => {
            let is_head = request.method() == Method::HEAD;
            tinyid::answer(serving, identity, form, &namespace, count.as_deref(), is_head).await
        }
        Route::LeafDecode { id } => {
            identity.may_somewhere(Right::Inspect)?;
            Ok(leaf::decoded(&server.mint, &id)?)
        }
        Route::Leaf { mode, key } => {
            // Leaf has no tokens, and so no answer for a wrong one.
            identity.may(Right::Mint, &key)?;
            leaf::answer(server, client, identity, mode, &key, request).await
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

/// A request for ids or ranges.
struct Draw<'a> {
    namespace: &'a [u8],
    count: &'a [u8],
    format: IdsFormat,
    wait: Duration,
    /// The `Idempotency-Key`.
    key: Option<&'a [u8]>,
}

impl Draw<'_> {
    async fn answer(
        self,
        serving: &Serving<'_>,
        identity: &Identity,
        method: &Method,
    ) -> Result<Response<Body>, Problem> {
        let Self { format, wait, .. } = self;
        let (client, answers) = (&serving.client, &serving.peer.answers);
        let is_ranges = format == IdsFormat::Ranges;
        let (count, try_take): (_, TryTake) = if is_ranges {
            (parse_range_count(self.count), Namespace::try_take_ranges)
        } else {
            (parse_count(self.count), Namespace::try_take)
        };
        let may_create = count.is_ok() && *method != Method::HEAD;
        let namespace =
            client.find_or_create(&serving.server.mint, identity, self.namespace, may_create).await?;
        let count = count?;
        if *method == Method::HEAD {
            return Ok(ok(format.media_type(), Body::whole("")));
        }
        let keyed = self.keyed(serving, identity, &namespace, count)?;
        let held_bytes = match keyed {
            _ if is_ranges => Some(answers.hold(LONG)?),
            // Its answer is made at once, so that it can be kept.
            Some(_) => Body::hold_all_ids(answers, &namespace, count)?,
            None => Body::hold_ids(answers, &namespace, count)?,
        };
        // Borrowed: if it were moved, this future would reserve room for it twice.
        let draw = pin!(client.take(identity, &namespace, count, wait, try_take));
        Ok(idempotency::answer(serving, keyed, format, draw).await?.map(|body| body.holding(held_bytes)))
    }

    fn keyed(
        &self,
        serving: &Serving<'_>,
        identity: &Identity,
        namespace: &Namespace,
        count: usize,
    ) -> Result<Option<KeyedRequest>, Problem> {
        let Some(key) = self.key else { return Ok(None) };
        let address = serving.address.map(|address| address.ip());
        let caller = Caller { address, token: identity.token_name() };
        let (name, definition) = (namespace.name().as_str(), namespace.definition());
        KeyedRequest::new(caller, name, definition, key, count, self.format).map(Some)
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

/// Reads and drops the rest of a body whose answer is known, since clients that still send may lose an answer
/// that comes first: curl 7.88 does over HTTP/2. Not for a client that waits to be asked for its body
/// (`Expect`).
async fn discard<B>(body: &mut B)
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    // What a client may send over HTTP/2 before it is asked for more.
    const MAX_BYTES: usize = 65_535;
    // A body that is on its way comes at once; one that is not must not delay the answer much.
    const WITHIN: Duration = Duration::from_secs(2);
    if body.size_hint().lower() > MAX_BYTES as u64 {
        return;
    }
    let mut bytes = 0;
    let rest = async {
        while bytes < MAX_BYTES
            && let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
        {
            bytes += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    // A slower body stays unread.
    let _ = timeout(WITHIN, rest).await;
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
        name: server.settings.holder.as_ref().map(Holder::to_string),
        version: env!("CARGO_PKG_VERSION"),
        issued: server.mint.table().namespaces().iter().map(|it| it.issued()).sum(),
        trouble: (!trouble.is_empty()).then(|| trouble.join("; ")),
    })
}
