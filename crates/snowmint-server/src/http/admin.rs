//! The admin API: `/v1/admin/...`. It does what `snowmint ns`, `workers`, `doctor` and `audit` do, on the store of this node.
//!
//! Every request needs a token with the right `admin`: for the namespace that it names, or for all namespaces if it concerns the
//! whole store or this node. Nothing about a request is reported before the token is checked.

use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use snowmint::error::Snippet;
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::registry::Required;

use crate::access::{BearerCache, Identity};
use crate::admin::AdminError;
use crate::admin::namespaces::{self, Addition, Change, Settings, StartOver};
use crate::admin::workers::Force;
use crate::http::Serving;
use crate::http::request::{check_host, decode, parameters};
use crate::http::response::{Body, Problem, json};
use crate::http::{cors, fleet};
use crate::limits::admin::{MAX_BODY, MAX_CHANGES};
use crate::mint::MintError;
use crate::nearest::unknown_name;
use crate::operator::{ChangedHere, Drain, Operator, Scope, authorize, only_with_store};
use crate::request_record::RequestRecord;
use crate::status::ErrorKind;

const PREFIX: &str = "/v1/admin/";
/// The paths of the API, for errors.
pub(super) const PATHS: &str = "/v1/admin/namespaces, /v1/admin/namespaces/{namespace}, /v1/admin/workers, \
                     /v1/admin/workers/{worker}/release, /v1/admin/doctor, /v1/admin/drain, /v1/admin/log-level, \
                     /v1/admin/audit, /v1/admin/fleet, /v1/admin/events";
/// A field of an addition besides the settings.
const START_OVER: &str = "start_over";
/// A field of a change besides the settings.
const ABOVE: &str = "above";
/// The default number of changes in a list of the audit log.
const CHANGES: usize = 50;

/// What a request is about.
#[derive(Debug, PartialEq, Eq)]
enum Resource {
    Namespaces,
    Namespace(NamespaceName),
    Workers,
    Release(u32),
    Doctor(Vec<String>),
    Drain,
    LogLevel,
    Audit { limit: usize, namespace: Option<NamespaceName> },
    Fleet,
    Events,
}

/// Returns `true` for the paths of the admin API.
pub(super) fn is_admin(path: &str) -> bool {
    path.starts_with(PREFIX)
}

/// Answers a request to the admin API. `of` and `record` receive the identity of the client once it is known.
pub(super) async fn answer<B>(
    serving: &Serving<'_>,
    request: Request<B>,
    of: &mut Option<Identity>,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Problem>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let server = serving.server;
    check_host(server.hosts_of(serving.peer.admission), &serving.known_host, &request)?;
    serving.check_admission()?;
    cors::check_admin_site(&request)?;
    let (parts, body) = request.into_parts();
    let resource = Resource::of(parts.uri.path(), parts.uri.query());
    let identity = &*of.insert(BearerCache::new(server.settings.access.as_ref()).identity(&parts.headers)?);
    record.sent_by(identity);
    authorize(identity, resource.as_ref().map_or(Scope::Everything, Resource::scope))?;
    let resource = resource.or_else(|problem| {
        // A method that the path never takes is reported before an invalid query.
        check_method(&parts.method, Resource::of(parts.uri.path(), None)?.methods())?;
        Err(problem)
    })?;
    check_method(&parts.method, resource.methods())?;
    let from = serving.address.map_or_else(|| "unix socket".to_owned(), |address| address.ip().to_string());
    let operator = Operator::new(server, identity, from)?;
    Call { serving, operator, parts: &parts, within: server.settings.timeouts.request }
        .run(resource, body)
        .await
}

impl Resource {
    fn of(path: &str, query: Option<&str>) -> Result<Self, Problem> {
        let unknown = || {
            Problem::new(ErrorKind::Unknown, format!("unknown path {}: expected {PATHS}", Snippet::of(path)))
        };
        let rest = path.strip_prefix(PREFIX).ok_or_else(unknown)?;
        let resource = match rest.split('/').collect::<Vec<_>>()[..] {
            ["namespaces"] => Self::Namespaces,
            ["namespaces", name] => Self::Namespace(namespace(&decode(name)?)?),
            ["workers"] => Self::Workers,
            ["workers", worker, "release"] => {
                let number = worker.parse().map_err(|_| {
                    let detail = format!("invalid worker {}: expected a number", Snippet::of(worker));
                    Problem::new(ErrorKind::BadRequest, detail)
                })?;
                Self::Release(number)
            }
            ["doctor"] => {
                let [nodes] = parameters(query, ["nodes"], "/v1/admin/doctor")?;
                let nodes = nodes.map(text).transpose()?.unwrap_or_default();
                let nodes = nodes.split(',').filter(|node| !node.is_empty()).map(str::to_owned);
                return Ok(Self::Doctor(nodes.collect()));
            }
            ["drain"] => Self::Drain,
            ["log-level"] => Self::LogLevel,
            ["fleet"] => Self::Fleet,
            ["events"] => Self::Events,
            ["audit"] => {
                let [limit, of] = parameters(query, ["limit", "namespace"], "/v1/admin/audit")?;
                return Ok(Self::Audit {
                    limit: limit.as_deref().map_or(Ok(CHANGES), parse_limit)?,
                    namespace: of.as_deref().map(namespace).transpose()?,
                });
            }
            _ => return Err(unknown()),
        };
        // A misspelt parameter would otherwise be ignored.
        let [] = parameters(query, [], path)?;
        Ok(resource)
    }

    const fn scope(&self) -> Scope<'_> {
        match self {
            Self::Namespaces => Scope::Own,
            Self::Namespace(name) | Self::Audit { namespace: Some(name), .. } => Scope::Namespace(name),
            _ => Scope::Everything,
        }
    }

    const fn methods(&self) -> &'static str {
        match self {
            Self::Namespaces
            | Self::Workers
            | Self::Doctor(_)
            | Self::Audit { .. }
            | Self::Fleet
            | Self::Events => "GET, HEAD",
            Self::Namespace(_) => "GET, HEAD, PUT, PATCH, DELETE",
            Self::Release(_) => "POST",
            Self::Drain => "GET, HEAD, POST, DELETE",
            Self::LogLevel => "GET, HEAD, PUT, DELETE",
        }
    }
}

fn check_method(method: &Method, allowed: &'static str) -> Result<(), Problem> {
    if allowed.split(", ").any(|allowed| allowed == method.as_str()) {
        return Ok(());
    }
    Err(Problem::bad_method(method, allowed))
}

fn namespace(name: &[u8]) -> Result<NamespaceName, Problem> {
    let name = String::from_utf8_lossy(name);
    NamespaceName::new(&name).map_err(|_| MintError::BadNamespace { name: Snippet::of(&name) }.into())
}

fn text(bytes: Cow<'_, [u8]>) -> Result<String, Problem> {
    String::from_utf8(bytes.into_owned())
        .map_err(|_| Problem::new(ErrorKind::BadRequest, "invalid query: expected UTF-8".to_owned()))
}

fn parse_limit(text: &[u8]) -> Result<usize, Problem> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|number| (1..=MAX_CHANGES).contains(number)).ok_or_else(|| {
        let text = Snippet::of(&String::from_utf8_lossy(text));
        let detail = format!("invalid limit {text}: expected 1 to {MAX_CHANGES}");
        Problem::new(ErrorKind::BadRequest, detail)
    })
}

/// The body of a release.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ReleaseRequest {
    pool: Option<String>,
    force: bool,
    holder: Option<String>,
}

/// The body of a new log level.
#[derive(Deserialize)]
struct LogLevelRequest {
    level: String,
}

/// An authorized request.
struct Call<'a> {
    serving: &'a Serving<'a>,
    operator: Operator<'a>,
    parts: &'a Parts,
    /// How long the body may take to arrive.
    within: Duration,
}

impl Call<'_> {
    async fn run<B>(self, resource: Resource, body: B) -> Result<Response<Body>, Problem>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let (operator, method) = (&self.operator, &self.parts.method);
        match resource {
            Resource::Namespaces => json(&operator.namespaces().await?),
            Resource::Namespace(name) if *method == Method::PUT => {
                let required = self.required()?;
                let addition = addition(self.object(body).await?, required)?;
                changed(&operator.add(name, addition).await?)
            }
            Resource::Namespace(name) if *method == Method::PATCH => {
                let required = self.required()?;
                let change = change(self.object(body).await?, required)?;
                changed(&operator.set(name, change).await?)
            }
            Resource::Namespace(name) if *method == Method::DELETE => {
                changed(&operator.drop_namespace(name, self.required()?).await?)
            }
            Resource::Namespace(name) => {
                let (view, edition) = operator.namespace(name).await?;
                Ok(with_edition(json(&view)?, edition))
            }
            Resource::Workers => json(&operator.workers().await?),
            Resource::Release(worker) => {
                let object = self.object(body).await?;
                known(&object, &["pool", "force", "holder"])?;
                let ReleaseRequest { pool, force, holder } = read(object)?;
                let force = Force::requested(force, holder)?;
                json(&operator.release(worker, pool, force).await?)
            }
            Resource::Doctor(nodes) => json(&operator.doctor(nodes).await?),
            Resource::Audit { limit, namespace } => json(&operator.audit(limit, namespace).await?),
            Resource::Drain if *method == Method::POST => json(&operator.drain(Drain::Begin).await),
            Resource::Drain if *method == Method::DELETE => json(&operator.drain(Drain::End).await),
            Resource::Drain => json(&operator.drained()),
            Resource::LogLevel if *method == Method::PUT => {
                let object = self.object(body).await?;
                known(&object, &["level"])?;
                let LogLevelRequest { level } = read(object)?;
                json(&operator.set_log_level(Some(&level)).await?)
            }
            Resource::LogLevel if *method == Method::DELETE => json(&operator.set_log_level(None).await?),
            Resource::LogLevel => json(&operator.log_level()?),
            Resource::Fleet => {
                fleet::once(&self.serving.services.fleet, self.serving.server, operator.node(), method).await
            }
            Resource::Events => {
                let (identity, answers) = (operator.identity().clone(), &self.serving.peer.answers);
                fleet::events(
                    &self.serving.services.fleet,
                    self.serving.server,
                    operator.node(),
                    identity,
                    answers,
                    method,
                )
            }
        }
    }

    /// Returns the condition on the record that the headers set.
    fn required(&self) -> Result<Required, Problem> {
        required(&self.parts.headers, &self.parts.method)
    }

    /// Reads the body: a JSON object.
    async fn object<B>(&self, body: B) -> Result<Settings, Problem>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let kind =
            self.parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_patch = self.parts.method == Method::PATCH && kind == "application/merge-patch+json";
        if kind != "application/json" && !is_patch {
            let detail = format!("invalid Content-Type {}: expected application/json", Snippet::of(&kind));
            return Err(Problem::new(ErrorKind::BadMediaType, detail));
        }
        let within = self.within;
        let bytes = tokio::time::timeout(within, collect(body)).await.unwrap_or_else(|_| {
            Err(Problem::new(ErrorKind::BadRequest, format!("incomplete request after {within:?}")))
        })?;
        let object: Object = serde_json::from_slice(&bytes).map_err(|error| {
            Problem::new(ErrorKind::BadRequest, format!("invalid body: expected a JSON object: {error}"))
        })?;
        Ok(object.0)
    }
}

/// A JSON object without repeated names, of which serde would use the last one: two readers may disagree about it.
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
async fn collect<B>(mut body: B) -> Result<Vec<u8>, Problem>
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
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
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

/// Reads an addition.
fn addition(mut object: Settings, required: Required) -> Result<Addition, Problem> {
    let start_over = object.remove(START_OVER);
    namespaces::check_names(&object, &[START_OVER])?;
    let start_over = match start_over {
        None | Some(Value::Null) => None,
        Some(Value::Object(fields)) => {
            known(&fields, &["nodes"])?;
            Some(read::<StartOver>(fields)?)
        }
        Some(_) => {
            let why = "expected an object with the nodes that must not serve it, such as \
                       {\"nodes\": [\"http://n1:8080\"]}";
            return Err(AdminError::setting(START_OVER, why).into());
        }
    };
    Ok(Addition { settings: object, start_over, required, ..Addition::default() })
}

/// Reads a change.
fn change(mut object: Settings, required: Required) -> Result<Change, Problem> {
    let above = object.remove(ABOVE);
    namespaces::check_names(&object, &[ABOVE])?;
    if above.is_some() {
        // Rejected whatever its value: it belongs to sources.
        return Err(only_with_store(ABOVE).into());
    }
    Ok(Change { settings: object, required, ..Change::default() })
}

/// Checks that every field is known.
fn known(object: &Settings, known: &[&str]) -> Result<(), Problem> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            Err(AdminError::Request(unknown_name("field", unknown, known.iter().copied())).into())
        }
    }
}

fn read<T: for<'de> Deserialize<'de>>(object: Settings) -> Result<T, Problem> {
    serde_json::from_value(Value::Object(object))
        .map_err(|error| AdminError::Request(format!("invalid body: {error}")).into())
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

fn changed(changed: &ChangedHere) -> Result<Response<Body>, Problem> {
    Ok(with_edition(json(changed)?, Some(changed.changed.edition)))
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
        let mut problem = Self::new(error.kind(), error.answer());
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

    /// Goal: a precondition holds for every method that changes a namespace, and none is ignored. Method: each header and method.
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
