//! A small API server for the Lease objects of Kubernetes, with the semantics of `resourceVersion` that the
//! store relies on or must beware of, from k8s.io/apiserver (`registry/generic/registry/store.go`,
//! `handlers/patch.go`, `storage/etcd3/store.go`) and `pkg/registry/coordination/lease/strategy.go`:
//!
//! - one counter for all objects gives each write its `resourceVersion`;
//! - POST of a name that exists is 409 `AlreadyExists`, with a `resourceVersion` 400;
//! - PUT and PATCH with another `resourceVersion` are 409 `Conflict`;
//! - PUT of a name that does not exist *creates* it, whatever `resourceVersion` it names; PATCH of one is
//!   404;
//! - a write that changes nothing is not made and leaves the `resourceVersion` as it was;
//! - a server that starts refuses accounts whose token or rights it has not read yet, and is not ready;
//! - pages of a list show one instant, and a `continue` that is too old is 410 `Expired`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

const GROUP: &str = "/apis/coordination.k8s.io/v1/namespaces/";
/// The limit for all annotations of an object together.
const ANNOTATIONS: usize = 256 * 1024;

/// The data that etcd would keep, and the faults that a test requests.
#[derive(Default)]
pub(crate) struct State {
    version: u64,
    /// By namespace and name.
    leases: BTreeMap<(String, String), Value>,
    /// The remaining pages of lists that were begun.
    pages: BTreeMap<String, Vec<Value>>,
    pub(crate) token: Option<String>,
    /// Answer writes with this status instead of their result.
    pub(crate) after_write: Option<u16>,
    /// Number of calls to reject with 429, which asks to wait for a second.
    pub(crate) busy: usize,
    /// Refuse all accounts with the first status, and say with the second one that it is not ready.
    pub(crate) starting: Option<(u16, u16)>,
    /// Tell only accounts whether it is ready.
    pub(crate) refuse_anonymous: bool,
    /// Refuse writes with this status and text.
    pub(crate) refuse_writes: Option<(u16, &'static str)>,
    /// Number of pages to answer with 410.
    pub(crate) expire: usize,
}

/// The server, on a port that stays the same across restarts.
pub(crate) struct ApiServer {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    running: Mutex<Option<JoinSet<()>>>,
}

impl ApiServer {
    pub(crate) async fn start(tls: Option<TlsAcceptor>) -> Self {
        let state = Arc::new(Mutex::new(State { version: 1000, ..State::default() }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self { state, address, tls, running: Mutex::new(None) };
        server.serve(listener);
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Closes all connections at once, and drops answers in flight; written data stays.
    pub(crate) async fn kill(&self) {
        let running = self.running.lock().unwrap().take();
        running.unwrap().shutdown().await;
    }

    pub(crate) async fn restart(&self) {
        self.serve(TcpListener::bind(self.address).await.unwrap());
    }

    fn serve(&self, listener: TcpListener) {
        let (state, tls) = (Arc::clone(&self.state), self.tls.clone());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (state, tls) = (Arc::clone(&state), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => talk(stream, state).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                talk(stream, state).await;
                            }
                        }
                    }
                });
            }
        });
        *self.running.lock().unwrap() = Some(accepting);
    }
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, state: Arc<Mutex<State>>) {
    let service = service_fn(async |request: Request<Incoming>| {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return Ok::<_, Infallible>(Response::new(Full::default()));
        };
        let (status, answer) = state.lock().unwrap().answer(&parts, &body.to_bytes());
        let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
        *response.status_mut() = status.try_into().unwrap();
        if status == 429 {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        Ok(response)
    });
    // A client may disconnect at any time.
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}

type Answered = (u16, Value);

fn failure(status: u16, reason: &str, message: &str, details: &Value) -> Answered {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": status,
    });
    (status, body)
}

fn of_lease(status: u16, reason: &str, name: &str, message: &str) -> Answered {
    let message = format!("leases.coordination.k8s.io \"{name}\" {message}");
    failure(
        status,
        reason,
        &message,
        &json!({"name": name, "group": "coordination.k8s.io", "kind": "leases"}),
    )
}

fn conflict(name: &str) -> Answered {
    of_lease(
        409,
        "Conflict",
        name,
        "cannot be fulfilled: the object has been modified; please apply your changes to \
                                     the latest version and try again",
    )
}

impl State {
    fn answer(&mut self, request: &hyper::http::request::Parts, body: &[u8]) -> Answered {
        let ready = request.uri.path() == "/readyz";
        match self.starting {
            Some((_, status)) if ready => return failure(status, "", "readyz check failed", &Value::Null),
            Some((status, _)) => return failure(status, "", "not yet", &Value::Null),
            None => {}
        }
        let token =
            request.headers.get("authorization").and_then(|it| it.to_str().ok()?.strip_prefix("Bearer "));
        let is_known = self.token.is_none() || self.token.as_deref() == token;
        if ready {
            return match token {
                None if self.refuse_anonymous => failure(403, "Forbidden", "cannot get path", &Value::Null),
                Some(_) if !is_known => failure(401, "Unauthorized", "Unauthorized", &Value::Null),
                _ => (200, json!("ok")),
            };
        }
        if self.busy > 0 {
            self.busy -= 1;
            return failure(429, "TooManyRequests", "too many requests, please try again later", &json!({}));
        }
        if !is_known {
            return failure(401, "Unauthorized", "Unauthorized", &Value::Null);
        }
        let unknown =
            || failure(404, "NotFound", "the server could not find the requested resource", &json!({}));
        let Some((namespace, rest)) =
            request.uri.path().strip_prefix(GROUP).and_then(|it| it.split_once('/'))
        else {
            return unknown();
        };
        let (namespace, name) =
            (namespace.to_owned(), rest.strip_prefix("leases").map(|it| it.trim_start_matches('/')));
        let Some(name) = name else { return unknown() };
        match (&request.method, name) {
            (&Method::GET, "") => self.list(&namespace, request.uri.query().unwrap_or_default()),
            (&Method::GET, name) => match self.leases.get(&(namespace, name.to_owned())) {
                Some(lease) => (200, lease.clone()),
                None => of_lease(404, "NotFound", name, "not found"),
            },
            _ => self.write(request, &namespace, name, body),
        }
    }

    fn write(
        &mut self,
        request: &hyper::http::request::Parts,
        namespace: &str,
        name: &str,
        body: &[u8],
    ) -> Answered {
        if let Some((status, message)) = self.refuse_writes {
            return failure(status, "", message, &json!({"kind": "resourcequotas", "name": "small"}));
        }
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return failure(400, "BadRequest", "not JSON", &Value::Null);
        };
        let kind = request.headers.get("content-type").map(|it| it.to_str().unwrap());
        let answered = match request.method {
            Method::POST if name.is_empty() => self.create(namespace, body),
            Method::PUT => self.replace(namespace, name, body),
            Method::PATCH if kind == Some("application/merge-patch+json") => {
                self.patch(namespace, name, &body)
            }
            Method::PATCH => failure(415, "UnsupportedMediaType", "unsupported patch", &Value::Null),
            _ => failure(405, "MethodNotAllowed", "the server does not allow this method", &Value::Null),
        };
        match self.after_write {
            Some(status) => {
                failure(status, "Timeout", "request did not complete within the allotted timeout", &json!({}))
            }
            None => answered,
        }
    }

    fn create(&mut self, namespace: &str, mut lease: Value) -> Answered {
        let name = lease["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if namespace == "missing" {
            let details = json!({"name": namespace, "kind": "namespaces"});
            return failure(404, "NotFound", "namespaces \"missing\" not found", &details);
        }
        if version(&lease).is_some() {
            return failure(
                400,
                "BadRequest",
                "resourceVersion should not be set on objects to be created",
                &Value::Null,
            );
        }
        if self.leases.contains_key(&(namespace.to_owned(), name.clone())) {
            return of_lease(409, "AlreadyExists", &name, "already exists");
        }
        lease["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        lease["metadata"]["namespace"] = json!(namespace);
        let (status, lease) = self.keep(namespace, &name, lease);
        (if status == 200 { 201 } else { status }, lease)
    }

    fn replace(&mut self, namespace: &str, name: &str, mut lease: Value) -> Answered {
        let Some(now) = self.leases.get(&(namespace.to_owned(), name.to_owned())) else {
            lease["metadata"]["resourceVersion"] = Value::Null;
            return self.create(namespace, lease);
        };
        match version(&lease) {
            None => of_lease(
                422,
                "Invalid",
                name,
                "is invalid: metadata.resourceVersion: must be specified for an update",
            ),
            wanted if wanted != version(now) => conflict(name),
            _ => self.keep(namespace, name, lease),
        }
    }

    fn patch(&mut self, namespace: &str, name: &str, patch: &Value) -> Answered {
        let Some(now) = self.leases.get(&(namespace.to_owned(), name.to_owned())) else {
            return of_lease(404, "NotFound", name, "not found");
        };
        let mut patched = now.clone();
        merge(&mut patched, patch);
        if version(&patched) != version(now) {
            return conflict(name);
        }
        self.keep(namespace, name, patched)
    }

    fn keep(&mut self, namespace: &str, name: &str, mut lease: Value) -> Answered {
        decode(&mut lease);
        if let Some(why) = invalid(name, &lease) {
            return of_lease(422, "Invalid", name, &format!("is invalid: {why}"));
        }
        let place = (namespace.to_owned(), name.to_owned());
        if self.leases.get(&place) != Some(&lease) {
            self.version += 1;
            lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.leases.insert(place, lease.clone());
        }
        (200, lease)
    }

    fn list(&mut self, namespace: &str, query: &str) -> Answered {
        let parameters: BTreeMap<&str, String> = query
            .split('&')
            .filter_map(|it| it.split_once('='))
            .map(|(name, value)| (name, unescape(value)))
            .collect();
        let mut left = match parameters.get("continue") {
            Some(_) if self.expire > 0 => {
                self.expire -= 1;
                return failure(410, "Expired", "The provided continue parameter is too old", &Value::Null);
            }
            Some(token) => self.pages.remove(token).unwrap(),
            None => {
                let selector = parameters.get("labelSelector").and_then(|it| it.split_once('='));
                let fits = |lease: &&Value| {
                    selector.is_none_or(|(name, value)| lease["metadata"]["labels"][name] == json!(value))
                };
                let of_namespace =
                    self.leases.iter().filter(|((it, _), _)| it == namespace).map(|(_, lease)| lease);
                of_namespace.filter(fits).cloned().collect()
            }
        };
        let limit = parameters.get("limit").map_or(usize::MAX, |it| it.parse().unwrap());
        let rest = left.split_off(limit.min(left.len()));
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if !rest.is_empty() {
            // As opaque as the real one, with every character that needs escaping.
            let token = format!("page/{}+{}==", self.pages.len(), rest.len());
            metadata["continue"] = json!(token);
            self.pages.insert(token, rest);
        }
        (
            200,
            json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "items": left}),
        )
    }
}

/// The `resourceVersion`, with "" and "0" as none, as in the real server.
fn version(lease: &Value) -> Option<u64> {
    let version = lease["metadata"]["resourceVersion"].as_str()?.parse().ok()?;
    (version != 0).then_some(version)
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}

/// Decodes as the real server, which is in Go: a null in a map of strings is an empty string, and any other
/// field that is null counts as missing.
fn decode(value: &mut Value) {
    let Value::Object(fields) = value else { return };
    fields.retain(|_, it| !it.is_null());
    for (name, value) in fields {
        match value {
            Value::Object(map) if matches!(&**name, "labels" | "annotations") => {
                map.values_mut().filter(|it| it.is_null()).for_each(|it| *it = json!(""));
            }
            value => decode(value),
        }
    }
}

fn invalid(name: &str, lease: &Value) -> Option<&'static str> {
    let allowed = |it: u8| matches!(it, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let at_end = |it: Option<u8>| it.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    if name.len() > 253
        || !name.bytes().all(allowed)
        || !at_end(name.bytes().next())
        || !at_end(name.bytes().last())
    {
        return Some("metadata.name: a lowercase RFC 1123 subdomain is needed");
    }
    let strings = |it: &Value| it.as_object().is_none_or(|it| it.values().all(Value::is_string));
    let (labels, annotations) = (&lease["metadata"]["labels"], &lease["metadata"]["annotations"]);
    if !strings(labels) || !strings(annotations) {
        return Some("metadata: labels and annotations are strings");
    }
    let bytes = |(name, value): (&String, &Value)| name.len() + value.as_str().unwrap().len();
    if annotations.as_object().is_some_and(|it| it.iter().map(bytes).sum::<usize>() > ANNOTATIONS) {
        return Some("metadata.annotations: Too long: must have at most 262144 bytes");
    }
    match &lease["spec"]["holderIdentity"] {
        Value::Null => None,
        Value::String(holder) if !holder.is_empty() => None,
        _ => Some("spec.holderIdentity: must not be empty"),
    }
}

fn unescape(text: &str) -> String {
    let mut parts = text.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let byte = u8::from_str_radix(&part[..2], 16).unwrap();
        format!("{text}{}{}", char::from(byte), &part[2..])
    })
}
