//! A request to its answer: the mint is asked, the form chosen, the outcome counted.
//! HEAD answers as GET would, without a body and without taking ids that nobody would see.

use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use snowmint::utc::Utc;

use crate::http::accept::{Form, form};
use crate::http::body::Body;
use crate::http::problem::Problem;
use crate::http::request::{Route, route};
use crate::limits::parse_count;
use crate::metrics::Protocol;
use crate::mint::{MintError, Source};
use crate::server::Server;
use crate::shutdown::Draining;
use crate::status::Kind;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What `/readyz` says when ids can be made.
#[derive(Serialize)]
struct Readiness {
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

/// Answers one request.
pub(super) async fn answer<S: Source, B>(
    server: &Server<S>,
    draining: &Draining,
    request: &Request<B>,
) -> Response<Body> {
    match try_answer(server, draining, request).await {
        Ok(response) => {
            server.metrics.succeeded(Protocol::Http, 1);
            response
        }
        Err(problem) => {
            server.metrics.failed(Protocol::Http, problem.kind);
            problem.response()
        }
    }
}

async fn try_answer<S: Source, B>(
    server: &Server<S>,
    draining: &Draining,
    request: &Request<B>,
) -> Result<Response<Body>, Problem> {
    let route = route(request.uri().path(), request.uri().query())?;
    let head = request.method() == Method::HEAD;
    if !head && request.method() != Method::GET {
        let detail = format!("this path answers GET and HEAD, not {}", request.method());
        return Err(Problem::new(Kind::BadMethod, detail));
    }
    match route {
        Route::Ids { namespace, count } => {
            let namespace = server.mint.namespace(&namespace)?;
            let count = parse_count(&count)?;
            let form = form(request.headers());
            let kind = if form == Form::Json { JSON } else { TEXT };
            if head {
                return Ok(ok(kind, Body::whole("")));
            }
            let ids = server.mint.take(namespace, count).await?;
            server.metrics.issued(namespace, ids.len() as u64);
            Ok(ok(kind, Body::ids(ids, form)))
        }
        Route::Inspect { id } => json(&server.mint.inspect(&id)?),
        Route::Health => Ok(ok(TEXT, Body::whole("ok\n"))),
        Route::Ready => ready(server, draining),
        Route::Metrics => match server.metrics.text() {
            Ok(text) => Ok(ok(OPENMETRICS, Body::whole(text))),
            Err(error) => Err(failure(&error)),
        },
    }
}

/// Ready means that ids can be made now, and that the service is not about to end.
fn ready<S: Source>(server: &Server<S>, draining: &Draining) -> Result<Response<Body>, Problem> {
    if draining.has_begun() {
        return Err(MintError::NotReady { why: "the service is shutting down".to_owned() }.into());
    }
    server.mint.check_ready()?;
    let status = server.mint.status();
    json(&Readiness {
        ready: true,
        worker: status.worker.map(|worker| worker.0),
        until: status.until_unix_ms.map(|until| Utc(until).to_string()),
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

fn ok(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
