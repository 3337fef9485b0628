//! The admin API: `/v1/admin/...`, as the table [`OPERATIONS`] has it. It does what `snowmint ns`, `workers`,
//! `doctor` and `audit` do, on the store of this node.
//!
//! Every request needs a token with the right `admin`: for the namespace that it names, or for all namespaces
//! if it concerns the whole store or this node. Nothing about a request is reported before the token is
//! checked.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::{HeaderMap, Method, Request, Response};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use snowmint::error::Snippet;
use snowmint_admin::AdminError;
use snowmint_admin::namespaces::Settings;
use snowmint_admin::operations::{Message, OPERATIONS, OperationEffect, OperationEntry, PREFIX};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::registry::Required;

use crate::access::{BearerCache, Identity};
use crate::http::Serving;
use crate::http::operator::{AdminScope, Operator, authorize};
use crate::http::request::{check_host, decode, parameter_map};
use crate::http::response::{Body, Problem, failure, json_text};
use crate::http::{cors, fleet};
use crate::limits::admin::MAX_BODY;
use crate::mint::MintError;
use crate::request_record::RequestRecord;
use crate::status::ErrorKind;

/// The paths of the API, for errors.
pub(super) static PATHS: LazyLock<String> = LazyLock::new(|| {
    let mut paths: Vec<_> = OPERATIONS.iter().map(|it| format!("{PREFIX}{}", it.route.path)).collect();
    paths.dedup();
    paths.join(", ")
});
/// The methods of each path, for errors.
static METHODS: LazyLock<BTreeMap<&'static str, String>> = LazyLock::new(|| {
    let mut methods: BTreeMap<_, String> = BTreeMap::new();
    for OperationEntry { route, .. } in OPERATIONS {
        let all = methods.entry(route.path).or_default();
        let separator = if all.is_empty() { "" } else { ", " };
        let method = if route.method == "GET" { "GET, HEAD" } else { route.method };
        all.extend([separator, method]);
    }
    methods
});

/// Returns `true` for the paths of the admin API.
pub(super) fn is_admin(path: &str) -> bool {
    path.starts_with(PREFIX)
}

/// Answers a request to the admin API. `of` and `record` receive the identity of the client once it is known.
pub(super) async fn answer<B>(
    serving: &Serving<'_>,
    request: &mut Request<B>,
    of: &mut Option<Identity>,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Problem>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let server = serving.server;
    check_host(server.hosts_of(serving.peer.admission), &serving.known_host, request)?;
    serving.check_admission()?;
    cors::check_admin_site(request)?;
    let place = AdminPath::of(request.uri().path(), request.uri().query());
    let identity =
        &*of.insert(BearerCache::new(server.settings.access.as_ref()).identity(request.headers())?);
    record.sent_by(identity);
    authorize(identity, place.as_ref().map_or(AdminScope::Everything, AdminPath::scope))?;
    let place = place.or_else(|problem| {
        // A method that the path never takes is reported before an invalid query.
        AdminPath::of(request.uri().path(), None)?.entry(request.method())?;
        Err(problem)
    })?;
    let entry = place.entry(request.method())?;
    let from = serving.address.map_or_else(|| "unix socket".to_owned(), |address| address.ip().to_string());
    let operator = Operator::new(server, identity, from)?;
    let Some(read) = entry.read else {
        return fleet::answer(serving, &operator, request.method(), place.path).await;
    };
    let (route, mut message) = (entry.route, place.message);
    if route.effect == OperationEffect::ChangesStore && message.namespace.is_some() {
        message.required = required(request.headers(), request.method())?;
    }
    if route.has_body {
        message.body = object(request, server.settings.timeouts.request).await?;
    }
    let limits = operator.limits();
    let run = read(message, &limits)?;
    let complete = operator.run(route.effect, limits, run).await?;
    let answer = complete(&**server);
    let json = answer.json.map_err(|error| failure(&error))?;
    Ok(with_edition(json_text(json), answer.edition))
}

/// The path of a request, with its parameters.
#[derive(Debug)]
struct AdminPath {
    path: &'static str,
    message: Message,
}

impl AdminPath {
    fn of(path: &str, query: Option<&str>) -> Result<Self, Problem> {
        let rest = path.strip_prefix(PREFIX).unwrap_or_default();
        let found =
            OPERATIONS.iter().find_map(|OperationEntry { route, .. }| Some((route, route.matches(rest)?)));
        let (route, parameter) = found.ok_or_else(|| {
            let detail = format!("unknown path {}: expected {}", Snippet::of(path), *PATHS);
            Problem::new(ErrorKind::Unknown, detail)
        })?;
        let mut message = Message::default();
        match parameter {
            ("{namespace}", name) => message.namespace = Some(namespace(&decode(name)?)?),
            ("{worker}", worker) => {
                message.worker = Some(worker.parse().map_err(|_| {
                    let detail = format!("invalid worker {}: expected a number", Snippet::of(worker));
                    Problem::new(ErrorKind::BadRequest, detail)
                })?);
            }
            _ => {}
        }
        // A misspelt parameter would otherwise be ignored.
        for (name, value) in parameter_map(query, route.query, path)? {
            if name == "namespace" {
                message.namespace = Some(namespace(&value)?);
            } else {
                message.query.insert(name, text(value)?);
            }
        }
        Ok(Self { path: route.path, message })
    }

    fn scope(&self) -> AdminScope<'_> {
        match &self.message.namespace {
            Some(name) => AdminScope::Namespace(name),
            None if self.path == "namespaces" => AdminScope::Own,
            None => AdminScope::Everything,
        }
    }

    /// Returns the operation of a method at this path.
    fn entry(&self, method: &Method) -> Result<&'static OperationEntry, Problem> {
        let wanted = if *method == Method::HEAD { "GET" } else { method.as_str() };
        let found = OPERATIONS.iter().find(|it| it.route.path == self.path && it.route.method == wanted);
        found.ok_or_else(|| Problem::bad_method(method, METHODS.get(self.path).map_or("", String::as_str)))
    }
}

fn namespace(name: &[u8]) -> Result<NamespaceName, Problem> {
    let name = String::from_utf8_lossy(name);
    NamespaceName::new(&name).map_err(|_| MintError::BadNamespace { name: Snippet::of(&name) }.into())
}

fn text(bytes: Cow<'_, [u8]>) -> Result<String, Problem> {
    String::from_utf8(bytes.into_owned())
        .map_err(|_| Problem::new(ErrorKind::BadRequest, "invalid query: expected UTF-8".to_owned()))
}

/// Reads the body of a request: a JSON object that arrives `within` a time.
async fn object<B>(request: &mut Request<B>, within: Duration) -> Result<Settings, Problem>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_patch = *request.method() == Method::PATCH && kind == "application/merge-patch+json";
    if kind != "application/json" && !is_patch {
        let detail = format!("invalid Content-Type {}: expected application/json", Snippet::of(&kind));
        return Err(Problem::new(ErrorKind::BadMediaType, detail));
    }
    let bytes = tokio::time::timeout(within, collect(request.body_mut())).await.unwrap_or_else(|_| {
        Err(Problem::new(ErrorKind::BadRequest, format!("incomplete request after {within:?}")))
    })?;
    let object: Object = serde_json::from_slice(&bytes).map_err(|error| {
        Problem::new(ErrorKind::BadRequest, format!("invalid body: expected a JSON object: {error}"))
    })?;
    Ok(object.0)
}

/// A JSON object without repeated names, of which serde would use the last one: two readers may disagree
/// about it.
struct Object(Settings);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut object = Settings::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    let shown = Snippet::of(&name);
                    if object.insert(name, value).is_some() {
                        return Err(de::Error::custom(format_args!("repeated name {shown}: send it once")));
                    }
                }
                Ok(Object(object))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Reads a body of limited size.
async fn collect<B>(body: &mut B) -> Result<Vec<u8>, Problem>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let too_large = || {
        let detail = format!("body too large: expected up to {MAX_BODY} bytes");
        Problem::new(ErrorKind::TooLarge, detail)
    };
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
        let broken = |_| Problem::new(ErrorKind::BadRequest, "incomplete body".to_owned());
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            if bytes.len() + data.len() > MAX_BODY {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

/// Returns the condition on the record that `If-Match` and `If-None-Match` set.
fn required(headers: &HeaderMap, method: &Method) -> Result<Required, Problem> {
    let matching = condition(headers, &IF_MATCH)?;
    match (matching, condition(headers, &IF_NONE_MATCH)?) {
        (None, None) => Ok(Required::Any),
        (Some(required), None) => Ok(required),
        (None, Some(Required::Present)) if *method == Method::PUT => Ok(Required::Absent),
        (_, Some(_)) => {
            let detail = "invalid If-None-Match: expected *, with PUT and without If-Match".to_owned();
            Err(Problem::new(ErrorKind::BadRequest, detail))
        }
    }
}

/// Returns what a header names: any record, or that of an `ETag`.
fn condition(headers: &HeaderMap, header: &HeaderName) -> Result<Option<Required>, Problem> {
    let mut values = headers.get_all(header).iter();
    let (value, more) = (values.next(), values.next());
    let Some(value) = value else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let edition = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')?.parse().ok());
    match (text, edition, more) {
        ("*", _, None) => Ok(Some(Required::Present)),
        (_, Some(edition), None) => Ok(Some(Required::Edition(edition))),
        _ => {
            let detail =
                format!("invalid {header} {}: expected one ETag of this namespace, or *", Snippet::of(text));
            Err(Problem::new(ErrorKind::BadRequest, detail))
        }
    }
}

fn with_edition(mut response: Response<Body>, edition: Option<u64>) -> Response<Body> {
    let tag = edition.and_then(|edition| HeaderValue::try_from(format!("\"{edition}\"")).ok());
    if let Some(tag) = tag {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

impl From<AdminError> for Problem {
    fn from(error: AdminError) -> Self {
        let mut problem = Self::new(error.kind().into(), error.answer());
        problem.retry_after = error.retry_after();
        problem.setting = error.setting_name();
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a body with a repeated name is rejected with the name.
    #[test]
    fn a_name_is_sent_once() {
        let read = |body: &str| serde_json::from_str::<Object>(body).map(|it| it.0.len());
        assert_eq!(read(r#"{"maximum": 1, "owner": null}"#).unwrap(), 2);
        assert_eq!(read("{}").unwrap(), 0);
        for (body, words) in [
            (r#"{"maximum": 1, "owner": "a", "maximum": 2}"#, "repeated name `maximum`"),
            ("[]", "expected a map"),
        ] {
            let error = read(body).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    /// Goal: a precondition holds for every method that changes a namespace, and none is ignored. Method:
    /// each header and method.
    #[test]
    fn preconditions_name_a_record() {
        for (name, value, method, wanted) in [
            ("if-match", "\"7\"", Method::PUT, Some(Required::Edition(7))),
            ("if-match", "\"7\"", Method::DELETE, Some(Required::Edition(7))),
            ("if-match", "*", Method::PATCH, Some(Required::Present)),
            ("if-none-match", "*", Method::PUT, Some(Required::Absent)),
            ("if-none-match", "*", Method::PATCH, None),
            ("if-none-match", "\"7\"", Method::PUT, None),
            ("if-match", "7", Method::PUT, None),
            ("if-match", "W/\"7\"", Method::PUT, None),
            ("x", "*", Method::PUT, Some(Required::Any)),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(name, HeaderValue::from_static(value));
            assert_eq!(required(&headers, &method).ok(), wanted, "{name}: {value} {method}");
            headers.append(name, HeaderValue::from_static(value));
            assert!(name == "x" || required(&headers, &method).is_err(), "twice {name}: {value}");
        }
    }
}
