//! Cross-origin requests of web pages (CORS), which only the origins of `--cors-origin` may send. Off by
//! default. A page sends no cookies here: it has a token of its own, or the service has no tokens.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderName,
    HeaderValue, ORIGIN, UPGRADE, VARY,
};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use snowmint::error::Snippet;

use crate::http::response::{Body, Problem};
use crate::settings::CorsOrigins;
use crate::status::ErrorKind;

/// The header in which browsers say whether a page of another origin sent the request. They omit it in
/// WebSocket handshakes, and on plain HTTP except on loopback: there, any page can use up the ids of a
/// service without tokens.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Rejects requests for ids that a page of another origin made a browser send. The page may be unable to read
/// the answer, but would use up ids. A page of the same site, such as another port of this machine, is no
/// exception.
pub(super) fn check_site<B>(origins: &CorsOrigins, request: &Request<B>) -> Result<(), Problem> {
    if is_of_other_origin(request) && allowed(origins, request.headers()).is_none() {
        let detail = "pages of other web sites get no ids: send the request from a page of this site, or from a server, or add the \
                      origin of the page to --cors-origin";
        return Err(Problem::new(ErrorKind::CrossSite, detail.to_owned()));
    }
    check_upgrade(request.headers())
}

/// Rejects requests to the admin API that a page of another origin made a browser send. Pages that may take
/// ids may not administer.
pub(super) fn check_admin_site<B>(request: &Request<B>) -> Result<(), Problem> {
    if is_of_other_origin(request) {
        let detail = "pages of other web sites may not administer: use the console of this node, or send the request from a server";
        return Err(Problem::new(ErrorKind::CrossSite, detail.to_owned()));
    }
    check_upgrade(request.headers())
}

/// Rejects WebSocket handshakes. Clients of HTTP/2 may offer `h2c`, which no page can do; they get the answer
/// over HTTP/1.1.
fn check_upgrade(headers: &HeaderMap) -> Result<(), Problem> {
    let mut offered =
        headers.get_all(UPGRADE).iter().flat_map(|it| it.as_bytes().split(|byte| *byte == b','));
    if offered.all(|protocol| matches!(protocol.trim_ascii().to_ascii_lowercase().as_slice(), b"" | b"h2c")) {
        return Ok(());
    }
    let detail = "this server speaks no WebSocket: send the request without the Upgrade header";
    Err(Problem::new(ErrorKind::CrossSite, detail.to_owned()))
}

fn is_of_other_origin<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    if headers.contains_key(FETCH_SITE) {
        return headers
            .get_all(FETCH_SITE)
            .iter()
            .any(|site| matches!(site.as_bytes(), b"cross-site" | b"same-site"));
    }
    // `Origin` alone: a page may send neither, such as for an image, but not for POST or for a WebSocket.
    let own = request
        .uri()
        .authority()
        .map(Authority::as_str)
        .or_else(|| headers.get(HOST).and_then(|host| host.to_str().ok()));
    let is_own = |origin: &HeaderValue| {
        let host = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
        host.zip(own).is_some_and(|(host, own)| host.eq_ignore_ascii_case(own))
    };
    !headers.get_all(ORIGIN).iter().all(is_own)
}

/// Answers a browser that asks whether a page may send a request (preflight); `None` for other requests.
pub(super) fn preflight<B>(
    origins: &CorsOrigins,
    request: &Request<B>,
) -> Option<Result<Response<Body>, Problem>> {
    let headers = request.headers();
    let is_preflight =
        request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    if origins.is_empty() || !is_preflight {
        return None;
    }
    if allowed(origins, headers).is_none() {
        let origin = headers.get(ORIGIN).map_or(&b""[..], HeaderValue::as_bytes);
        let origin = Snippet::of(&String::from_utf8_lossy(origin));
        let detail = format!("origin {origin} not allowed: add it to --cors-origin");
        return Some(Err(Problem::new(ErrorKind::CrossSite, detail)));
    }
    let mut response = Response::new(Body::whole(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type, idempotency-key"),
        (ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Some(Ok(response))
}

/// Lets the page that sent a request read the answer, if its origin is allowed.
pub(super) fn mark(origins: &CorsOrigins, headers: &HeaderMap, response: &mut Response<Body>) {
    if origins.is_empty() {
        return;
    }
    response.headers_mut().append(VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = allowed(origins, headers) {
        let exposed =
            HeaderValue::from_static("retry-after, idempotency-replayed, snowmint-store, x-request-id");
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        response.headers_mut().insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
}

/// Returns the origin of the page that sent a request, if it is allowed.
fn allowed<'h>(origins: &CorsOrigins, headers: &'h HeaderMap) -> Option<&'h HeaderValue> {
    let mut sent = headers.get_all(ORIGIN).iter();
    let origin = sent.next().filter(|_| sent.next().is_none())?;
    origins.allow(origin.to_str().ok()?).then_some(origin)
}
