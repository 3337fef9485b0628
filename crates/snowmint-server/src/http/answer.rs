//! A request to its answer: the mint is asked, the form chosen, the outcome counted.
//! HEAD answers as GET would, without a body and without taking ids that nobody would see.

use std::sync::Arc;

use hyper::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde::Serialize;
use snowmint::utc::Utc;
use snowmint_cluster::LeaseStatus;
use tokio::time::Instant;

use crate::accept::Place;
use crate::http::accept::{Exposition, Form, exposition, form};
use crate::http::body::Body;
use crate::http::hosts::check_host;
use crate::http::leaf::{self, LeafFailure};
use crate::http::problem::Problem;
use crate::http::request::{Route, route};
use crate::limits::parse_count;
use crate::metrics::Protocol;
use crate::mint::{Caller, MintError, Namespace};
use crate::server::Server;
use crate::shutdown::Draining;
use crate::status::Kind;

const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Where browsers say which site a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What `/readyz` says when ids can be made.
#[derive(Serialize)]
struct Readiness {
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    leases: Vec<LeaseHeld>,
    /// Why the lease is not being renewed (ids go on to its end, and no further), and which records the store has lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

#[derive(Serialize)]
struct LeaseHeld {
    worker: u32,
    until: String,
}

/// Answers one request.
pub(super) async fn answer<B: hyper::body::Body>(
    server: &Server,
    caller: &mut Caller,
    draining: &Draining,
    place: Place,
    request: &Request<B>,
) -> Response<Body> {
    let began = Instant::now();
    let mut response = match try_answer(server, caller, draining, place, request).await {
        Ok(response) => {
            server.metrics.succeeded(Protocol::Http, 1);
            response
        }
        Err(Failure::Problem(problem)) => {
            server.metrics.failed(Protocol::Http, problem.kind);
            problem.response()
        }
        Err(Failure::Leaf(failure)) => {
            server.metrics.failed(Protocol::Http, failure.kind());
            failure.response()
        }
    };
    server.metrics.took(Protocol::Http, 1, began.elapsed());
    if draining.is_leaving() || place == Place::Reserved {
        // The client's next request goes to another node, rather than to a connection that is being closed.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A failure, in the form of the path that was asked for.
enum Failure {
    Problem(Problem),
    Leaf(LeafFailure),
}

impl<P: Into<Problem>> From<P> for Failure {
    fn from(problem: P) -> Self {
        Self::Problem(problem.into())
    }
}

async fn try_answer<B: hyper::body::Body>(
    server: &Server,
    caller: &mut Caller,
    draining: &Draining,
    place: Place,
    request: &Request<B>,
) -> Result<Response<Body>, Failure> {
    check_host(&server.allowed_hosts, request)?;
    let route = route(request.uri().path(), request.uri().query())?;
    if place == Place::Reserved && !matches!(route, Route::Health | Route::Ready | Route::Metrics) {
        return Err(Problem::too_many_clients(server.max_connections).into());
    }
    let head = request.method() == Method::HEAD;
    check_method(&route, request)?;
    if route.draws() {
        check_site(request.headers())?;
    }
    match route {
        Route::Ids { namespace, count } => {
            let count = parse_count(&count);
            let namespace = find(server, caller, &namespace, count.is_ok() && !head).await?;
            let count = count?;
            let form = form(request.headers());
            let kind = if form == Form::Json { JSON } else { TEXT };
            if head {
                return Ok(ok(kind, Body::whole("")));
            }
            let ids = namespace.take(caller.callers(), count).await?;
            namespace.add_issued(ids.len() as u64);
            Ok(ok(kind, Body::ids(ids, form).map_err(|error| failure(&error))?))
        }
        Route::Leaf { mode, key } => {
            leaf::answer(server, caller, mode, &key, request).await.map_err(Failure::Leaf)
        }
        Route::Inspect { id, by } => Ok(json(&server.mint.inspect(&id, by.as_ref())?)?),
        Route::Health => Ok(ok(TEXT, Body::whole("ok\n"))),
        Route::Ready => Ok(ready(server, draining)?),
        Route::Metrics => {
            let exposition = exposition(request.headers());
            let kind = if exposition == Exposition::OpenMetrics { OPENMETRICS } else { PROMETHEUS };
            match server.metrics.text(exposition) {
                Ok(text) => Ok(ok(kind, Body::whole(text))),
                Err(error) => Err(failure(&error).into()),
            }
        }
    }
}

/// Paths are read; those that draw ids take POST as well, as many prefer for what changes something.
fn check_method<B: hyper::body::Body>(route: &Route<'_>, request: &Request<B>) -> Result<(), Problem> {
    match *request.method() {
        Method::GET | Method::HEAD => Ok(()),
        Method::POST if route.draws() => {
            // Not read: a count in it would be passed over, and the answer be to another request.
            if request.body().is_end_stream() {
                return Ok(());
            }
            let detail = "this path takes no body: give the count in the query, as in ?count=5";
            Err(Problem::new(Kind::BadRequest, detail.to_owned()))
        }
        ref method => {
            Err(Problem::bad_method(method, if route.draws() { "GET, HEAD, POST" } else { "GET, HEAD" }))
        }
    }
}

/// A page of another site can make a browser ask here, with nobody's intent and without reading the answer: it must use up
/// no ids.
fn check_site(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get_all(FETCH_SITE).iter().any(|site| site.as_bytes() == b"cross-site") {
        let detail =
            "ids are not given to pages of other web sites: ask from a page of this site, or from a server";
        return Err(Problem::new(Kind::CrossSite, detail.to_owned()));
    }
    Ok(())
}

/// The namespace of a name, made where unknown ones may be and this request is one that would use it.
pub(super) async fn find(
    server: &Server,
    caller: &mut Caller,
    name: &[u8],
    may_create: bool,
) -> Result<Arc<Namespace>, MintError> {
    let unknown = match caller.find(name) {
        Ok((namespace, _)) => return Ok(Arc::clone(namespace)),
        Err(error) => error,
    };
    if !may_create {
        return Err(unknown);
    }
    server.mint.create(name, unknown).await?;
    caller.find(name).map(|(namespace, _)| Arc::clone(namespace))
}

/// Ready means that ids can be made now, and that the service is not about to end.
fn ready(server: &Server, draining: &Draining) -> Result<Response<Body>, Problem> {
    if draining.is_leaving() {
        let why =
            "this node is shutting down: send new requests to other nodes; until it ends it still serves";
        return Err(Problem::new(Kind::NotReady, why.to_owned()));
    }
    server.mint.check_ready()?;
    let status = server.mint.status();
    let held = |lease: LeaseStatus| {
        Some(LeaseHeld { worker: lease.worker?.0, until: Utc(lease.until_unix_ms?).to_string() })
    };
    json(&Readiness {
        ready: true,
        worker: status.worker.map(|worker| worker.0),
        until: status.until_unix_ms.map(|until| Utc(until).to_string()),
        leases: server.mint.leases().into_iter().filter_map(held).collect(),
        trouble: server.mint.trouble(),
    })
}

fn json(value: &impl Serialize) -> Result<Response<Body>, Problem> {
    let body = serde_json::to_vec(value).map_err(|error| failure(&error))?;
    Ok(ok(JSON, Body::whole(body)))
}

/// Writing into memory does not fail; were it to, the client would hear of it rather than get half an answer.
#[cold]
fn failure(error: &dyn std::error::Error) -> Problem {
    Problem::new(Kind::NotReady, format!("the answer cannot be written: {error}"))
}

pub(super) fn ok(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
