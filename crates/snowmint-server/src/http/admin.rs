//! The admin API: `/v1/admin/...`. It does what `snowmint ns`, `workers`, `doctor` and `audit` do, on the store of this node.
//!
//! Every request needs a token with the right `admin`: for the namespace that it names, or for all namespaces if it concerns
//! the whole store or this node. Nothing about a request is said before that was checked.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderValue, IF_MATCH};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use snowmint::error::Snippet;
use snowmint_cluster::NamespaceName;
use snowmint_cluster::audit::{Action, this_host};
use snowmint_store::Store;

use crate::access::{BearerCache, Right};
use crate::admin::namespaces::{self, Addition, Change, Changed, Settings, StartOver};
use crate::admin::node::{self, boxed};
use crate::admin::workers::{self, Force, Released};
use crate::admin::{AdminError, Author, NodeAdmin, audit, doctor, unknown_name};
use crate::http::Serving;
use crate::http::cors;
use crate::http::handler::check_admission;
use crate::http::request::{check_host, decode, parameters};
use crate::http::response::{Body, Problem, json};
use crate::limits::admin::{MAX_BODY, MAX_CHANGES};
use crate::mint::{Backend, MintError};
use crate::settings::CorsOrigins;
use crate::status::ErrorKind;

const PREFIX: &str = "/v1/admin/";
/// The paths below it, for errors.
const PATHS: &str = "/v1/admin/namespaces, /v1/admin/namespaces/{namespace}, /v1/admin/workers, \
                     /v1/admin/workers/{worker}/release, /v1/admin/doctor, /v1/admin/drain, /v1/admin/audit";
/// A field of an addition besides the settings.
const START_OVER: &str = "start_over";
/// A field of a change besides the settings.
const ABOVE: &str = "above";
const SOURCES: &str = "sources";
/// The settings of a hide key.
const HIDE: [&str; 2] = ["hide", "hide_check"];
/// Changes that a list of the audit log has by default.
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
    Audit { limit: usize, namespace: Option<NamespaceName> },
}

/// Returns `true` for the paths of the admin API.
pub(super) fn is_admin(path: &str) -> bool {
    path.starts_with(PREFIX)
}

/// Answers a request to the admin API.
pub(super) async fn answer<B>(serving: &Serving<'_>, request: Request<B>) -> Result<Response<Body>, Problem>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let server = serving.server;
    check_host(server.hosts_of(serving.peer.admission), &request)?;
    check_admission(serving)?;
    // Also of origins that may take ids.
    cors::check_site(&CorsOrigins::default(), request.headers())?;
    let (parts, body) = request.into_parts();
    let resource = Resource::of(parts.uri.path(), parts.uri.query());
    let identity = BearerCache::new(server.access.as_ref()).identity(&parts.headers)?;
    match &resource {
        Ok(Resource::Namespaces) => identity.may_somewhere(Right::Admin)?,
        Ok(Resource::Namespace(name) | Resource::Audit { namespace: Some(name), .. }) => {
            identity.may(Right::Admin, name.as_str().as_bytes())?;
        }
        _ => identity.may_everywhere(Right::Admin)?,
    }
    let resource = resource?;
    check_method(&parts.method, resource.methods())?;
    let call = Call {
        serving,
        node: server.admin.as_ref().ok_or_else(no_store)?,
        may_everywhere: identity.may_everywhere(Right::Admin),
        sees: &|name: &str| identity.sees(name.as_bytes()),
        author: Author {
            who: format!("token {}", identity.name().unwrap_or_default()),
            from: serving
                .address
                .map_or_else(|| "unix socket".to_owned(), |address| address.ip().to_string()),
        },
        parts: &parts,
    };
    call.run(resource, body).await
}

fn no_store() -> Problem {
    Problem::new(ErrorKind::NotReady, "this server has no store to administer".to_owned())
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

    const fn methods(&self) -> &'static str {
        match self {
            Self::Namespaces | Self::Workers | Self::Doctor(_) | Self::Audit { .. } => "GET, HEAD",
            Self::Namespace(_) => "GET, HEAD, PUT, PATCH, DELETE",
            Self::Release(_) => "POST",
            Self::Drain => "GET, HEAD, POST, DELETE",
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

/// A change, and whether this node serves the namespace now. Other nodes follow within their `--namespaces-poll`.
#[derive(Serialize)]
struct ChangeAnswer {
    #[serde(flatten)]
    changed: Changed,
    served_here: bool,
}

/// The outcome of a release with its warnings.
#[derive(Serialize)]
struct ReleaseAnswer {
    #[serde(flatten)]
    released: Released,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Whether an operator has drained this node.
#[derive(Serialize)]
struct Drained {
    drained: bool,
}

/// The body of a release.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ReleaseRequest {
    pool: Option<String>,
    force: bool,
}

/// A request that may do what it asks for.
struct Call<'a> {
    serving: &'a Serving<'a>,
    node: &'a NodeAdmin,
    may_everywhere: Result<(), MintError>,
    sees: &'a (dyn Fn(&str) -> bool + Sync),
    author: Author,
    parts: &'a Parts,
}

impl Call<'_> {
    async fn run<B>(self, resource: Resource, body: B) -> Result<Response<Body>, Problem>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let method = &self.parts.method;
        match resource {
            Resource::Namespaces => {
                let mut all =
                    self.node.read(|store| boxed(async move { namespaces::list(&*store).await })).await?;
                all.namespaces.retain(|namespace| (self.sees)(&namespace.name));
                json(&all)
            }
            Resource::Namespace(name) if *method == Method::PUT => {
                self.no_precondition()?;
                let addition = addition(self.object(body).await?, &self.may_everywhere)?;
                let author = self.author.clone();
                let added = move |store: Arc<dyn Store>| {
                    boxed(async move { namespaces::add(&*store, &author, &name, &addition).await })
                };
                self.changed(self.node.change(added).await?)
            }
            Resource::Namespace(name) if *method == Method::PATCH => {
                let change = change(self.object(body).await?, &self.parts.headers, &self.may_everywhere)?;
                let author = self.author.clone();
                let set = move |store: Arc<dyn Store>| {
                    boxed(async move { namespaces::set(&*store, &author, &name, &change).await })
                };
                self.changed(self.node.change(set).await?)
            }
            Resource::Namespace(name) if *method == Method::DELETE => {
                self.no_precondition()?;
                let author = self.author.clone();
                let dropped = move |store: Arc<dyn Store>| {
                    boxed(async move { namespaces::drop_namespace(&*store, &author, &name).await })
                };
                self.changed(self.node.change(dropped).await?)
            }
            Resource::Namespace(name) => {
                let got =
                    move |store: Arc<dyn Store>| boxed(async move { namespaces::get(&*store, &name).await });
                let (view, edition) = self.node.read(got).await?;
                Ok(with_edition(json(&view)?, edition))
            }
            Resource::Workers => {
                json(&self.node.read(|store| boxed(async move { workers::list(&*store).await })).await?)
            }
            Resource::Release(worker) => {
                let object = self.object(body).await?;
                known(&object, &["pool", "force"])?;
                let ReleaseRequest { pool, force } = read(object)?;
                let force = if force { Force::Take } else { Force::Refuse };
                let author = self.author.clone();
                let release = move |store: Arc<dyn Store>| {
                    boxed(
                        async move { workers::release(&*store, &author, worker, pool.as_deref(), force).await },
                    )
                };
                let (released, warnings) = self.node.change(release).await?;
                json(&ReleaseAnswer { released, warnings })
            }
            Resource::Doctor(nodes) => json(
                &self.node.read(|store| boxed(async move { doctor::examine(&*store, &nodes).await })).await?,
            ),
            Resource::Audit { limit, namespace } => {
                let list = move |store: Arc<dyn Store>| {
                    boxed(async move { audit::list(&*store, limit, namespace.as_ref()).await })
                };
                json(&self.node.read(list).await?)
            }
            Resource::Drain => self.drain().await,
        }
    }

    /// Makes this node not ready, or ready again. It serves all requests meanwhile.
    async fn drain(self) -> Result<Response<Body>, Problem> {
        let shutdown = &self.serving.server.shutdown;
        let method = &self.parts.method;
        if *method == Method::POST || *method == Method::DELETE {
            let details = if *method == Method::POST { "begin" } else { "end" };
            let Author { who, from } = self.author.clone();
            if *method == Method::POST {
                shutdown.drain();
            } else {
                shutdown.end_drain();
            }
            tracing::info!(by = who, from, "drain: {details}");
            let author = self.author.clone();
            let recorded = move |store: Arc<dyn Store>| {
                boxed(async move {
                    let nothing = async { Ok::<_, AdminError>(()) };
                    author.record(&*store, Action::NodeDrain, this_host(), details, nothing).await?
                })
            };
            // A node whose store is down must be drainable too.
            if let Err(error) = self.node.read(recorded).await {
                tracing::warn!(%error, "the drain is not in the audit log");
            }
        }
        json(&Drained { drained: shutdown.is_drained() })
    }

    fn changed(&self, changed: Changed) -> Result<Response<Body>, Problem> {
        let table = self.serving.server.mint.table();
        let served = table.find(changed.namespace.name.as_bytes()).ok();
        let served_here = served.is_some_and(|it| !matches!(it.backend(), Backend::Unavailable(_)));
        let edition = Some(changed.edition);
        Ok(with_edition(json(&ChangeAnswer { changed, served_here })?, edition))
    }

    fn no_precondition(&self) -> Result<(), Problem> {
        if self.parts.headers.contains_key(IF_MATCH) {
            let detail = "unexpected If-Match: only PATCH takes it".to_owned();
            return Err(Problem::new(ErrorKind::BadRequest, detail));
        }
        Ok(())
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
        let within = self.serving.server.timeouts.request;
        let bytes = tokio::time::timeout(within, collect(body)).await.unwrap_or_else(|_| {
            Err(Problem::new(ErrorKind::BadRequest, format!("incomplete request after {within:?}")))
        })?;
        serde_json::from_slice(&bytes).map_err(|error| {
            Problem::new(ErrorKind::BadRequest, format!("invalid body: expected a JSON object: {error}"))
        })
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
fn addition(mut object: Settings, may_everywhere: &Result<(), MintError>) -> Result<Addition, Problem> {
    let start_over = object.remove(START_OVER);
    namespaces::check_names(&object, &[START_OVER])?;
    no_sources(&object)?;
    check_hide(&object, may_everywhere)?;
    let start_over = match start_over {
        None | Some(Value::Null) => None,
        Some(Value::Object(fields)) => {
            known(&fields, &["nodes"])?;
            // It repeats ids, and this node then asks the given ones.
            needs_all(START_OVER, may_everywhere)?;
            Some(read::<StartOver>(fields)?)
        }
        Some(_) => {
            let why = "expected an object with the nodes that must not serve it, such as \
                       {\"nodes\": [\"http://n1:8080\"]}";
            return Err(AdminError::setting(START_OVER, why).into());
        }
    };
    Ok(Addition { settings: object, start_over })
}

/// Reads a change.
fn change(
    mut object: Settings,
    headers: &HeaderMap,
    may_everywhere: &Result<(), MintError>,
) -> Result<Change, Problem> {
    let above = object.remove(ABOVE);
    namespaces::check_names(&object, &[ABOVE])?;
    no_sources(&object)?;
    check_hide(&object, may_everywhere)?;
    if above.is_some() {
        return Err(only_with_store(ABOVE));
    }
    Ok(Change { settings: object, above: None, edition: required_edition(headers)? })
}

/// Rejects a hide key of a token that is not for all namespaces: a client with a namespace under a key can reveal the ids of every
/// other namespace with that key.
fn check_hide(settings: &Settings, may_everywhere: &Result<(), MintError>) -> Result<(), Problem> {
    let is_set = |name: &&str| settings.get(*name).is_some_and(|value| !value.is_null());
    HIDE.into_iter().find(is_set).map_or(Ok(()), |setting| needs_all(setting, may_everywhere))
}

/// Rejects a setting that only a token for all namespaces may use.
fn needs_all(setting: &'static str, may_everywhere: &Result<(), MintError>) -> Result<(), Problem> {
    may_everywhere.as_ref().map_err(|error| {
        let mut problem = Problem::new(error.kind(), format!("{setting}: {error}"));
        problem.setting = Some(setting);
        problem
    })?;
    Ok(())
}

/// Rejects sources: their URLs name files that this node would read and send, and hosts that get its passwords.
fn no_sources(settings: &Settings) -> Result<(), Problem> {
    if settings.get(SOURCES).is_some_and(|sources| !sources.is_null()) {
        return Err(only_with_store(SOURCES));
    }
    Ok(())
}

fn only_with_store(setting: &'static str) -> Problem {
    let why = "not through a node, which would open any file and host that a source names: use `snowmint ns` with --store";
    let mut problem = Problem::from(AdminError::setting(setting, why));
    problem.kind = ErrorKind::Forbidden;
    problem
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

/// Returns the edition that `If-Match` requires.
fn required_edition(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let mut values = headers.get_all(IF_MATCH).iter();
    let (value, more) = (values.next(), values.next());
    let Some(value) = value else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let edition = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')?.parse().ok());
    match (text, edition, more) {
        ("*", _, None) => Ok(None),
        (_, Some(edition), None) => Ok(Some(edition)),
        _ => {
            let detail =
                format!("invalid If-Match {}: expected one ETag of this namespace, or *", Snippet::of(text));
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
        let mut problem = Self::new(error.kind(), error.to_string());
        if error.kind() == ErrorKind::NotReady {
            problem.retry_after = Some(node::RETRY_AFTER);
        }
        if let AdminError::Setting { setting, .. } = error {
            problem.setting = Some(setting);
        }
        problem
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Settings {
        match value {
            Value::Object(object) => object,
            other => panic!("no object: {other}"),
        }
    }

    /// Goal: a token for some namespaces cannot put a hide key of others on its own ones, where it could reveal their ids.
    #[test]
    fn a_hide_key_needs_a_token_for_all_namespaces() {
        let refused = Err(MintError::Forbidden { why: "token team-a has no right admin for *".to_owned() });
        for (setting, body) in [
            ("hide", json!({"scheme": "segment", "hide": "billing"})),
            ("hide", json!({"hide": "billing", "hide_check": "0011223344556677"})),
            ("hide_check", json!({"hide_check": "0011223344556677"})),
        ] {
            let headers = HeaderMap::new();
            for problem in [
                addition(object(body.clone()), &refused).unwrap_err(),
                change(object(body.clone()), &headers, &refused).unwrap_err(),
            ] {
                assert_eq!((problem.kind, problem.setting), (ErrorKind::Forbidden, Some(setting)), "{body}");
                assert!(
                    problem.detail.starts_with(&format!("{setting}: token team-a")),
                    "{}",
                    problem.detail
                );
            }
            addition(object(body.clone()), &Ok(())).unwrap();
            change(object(body), &headers, &Ok(())).unwrap();
        }
        // A client may name every setting.
        addition(object(json!({"scheme": "segment", "hide": null})), &refused).unwrap();
    }
}
