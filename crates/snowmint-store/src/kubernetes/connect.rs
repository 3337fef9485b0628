//! Parses `kubernetes:NAMESPACE?...`, or reads the environment of a pod, and sends calls to the API server.
//! Distinguishes failures before a call was sent from later ones: a write that fails later may have happened.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{Method, Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ClientConfig;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::error::{ApiAnswer, KubernetesFailure, ServerState};
use super::lease_object::LONGEST_PREFIX;
use crate::UrlError;
use crate::error::chain;
use crate::net::https::{self, HttpsClient};
use crate::net::tls::{self, DefaultRoots};
use crate::net::url::StoreUrl;

/// The limit for connecting to the server, without TLS.
const CONNECT: Duration = Duration::from_millis(1500);
/// The limit for one try of a read; a page of a list may be large.
const READ: Duration = Duration::from_secs(3);
/// The limit for the answer to a write.
const WRITE: Duration = Duration::from_secs(5);
/// The least wait before a call is sent again, also if the server names a shorter one.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
/// The path of the server's readiness.
const READY: &str = "/readyz";
/// The maximum bytes of one answer: a page of records of 64 KiB, in base64 and with the fields that the
/// server adds.
const LARGEST_ANSWER: usize = 96 << 20;

/// A client of an API server.
pub(super) struct KubernetesClient {
    server: String,
    token_file: Option<PathBuf>,
    client: HttpsClient,
}

impl fmt::Debug for KubernetesClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesClient").field("server", &self.server).finish_non_exhaustive()
    }
}

impl KubernetesClient {
    /// `server` is `https://HOST:PORT`, with nothing after it.
    pub(super) fn new(server: String, token_file: Option<PathBuf>, tls: ClientConfig) -> Self {
        let client = https::client(tls, CONNECT);
        Self { server, token_file, client }
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Sends a read, and retries once if the connection broke: a pooled connection may have been closed.
    pub(super) async fn read(&self, path_and_query: &str) -> Result<ApiAnswer, KubernetesFailure> {
        match self.call(READ, Method::GET, path_and_query, None).await {
            Err(KubernetesFailure::NoAnswer(_) | KubernetesFailure::Broken(_)) => {
                self.call(READ, Method::GET, path_and_query, None).await
            }
            settled => settled,
        }
    }

    /// Sends a write, and never again if it may have happened.
    pub(super) async fn write(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<ApiAnswer, KubernetesFailure> {
        self.call(WRITE, method, path, Some(body)).await
    }

    /// Sends a call, and sends it again if the server refused it for the moment. Such a call had no effect.
    async fn call(
        &self,
        limit: Duration,
        method: Method,
        path_and_query: &str,
        body: Option<&Value>,
    ) -> Result<ApiAnswer, KubernetesFailure> {
        let end = Instant::now() + limit;
        let mut known_to_be_ready = false;
        loop {
            let request = self.request(method.clone(), path_and_query, body)?;
            let answered = timeout_at(end, self.send(request)).await;
            let mut answer = answered.unwrap_or(Err(KubernetesFailure::NoAnswer(limit)))?;
            match (answer.status, answer.retry_after) {
                // Flow control.
                (429, Some(pause)) if pause < end.saturating_duration_since(Instant::now()) => {
                    sleep(pause.max(LEAST_PAUSE)).await;
                }
                // A server that starts refuses accounts whose token or rights it has not read yet. Once it is
                // ready, its refusal counts.
                (401 | 403, _) if !known_to_be_ready => {
                    if !timeout_at(end, self.is_ready()).await.unwrap_or(false) {
                        answer.server = ServerState::Starting;
                        return Ok(answer);
                    }
                    known_to_be_ready = true;
                }
                _ => return Ok(answer),
            }
        }
    }

    /// Returns whether the server has started. By default it tells everybody; before it has read any rights,
    /// it refuses that too.
    async fn is_ready(&self) -> bool {
        // Without the token, which may be the one that is refused.
        match self.ask_readiness(None).await {
            // The server may tell accounts only.
            Some(403) => match self.token_file.as_deref().map(token) {
                Some(Ok(token)) => self.ask_readiness(Some(token)).await.is_some_and(|it| it < 400),
                _ => false,
            },
            status => status.is_some_and(|it| it < 500),
        }
    }

    /// Returns the status of the server's readiness; `None` without an answer.
    async fn ask_readiness(&self, token: Option<HeaderValue>) -> Option<u16> {
        let mut request = Request::get(format!("{}{READY}", self.server)).body(Full::default()).ok()?;
        if let Some(token) = token {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        Some(self.send(request).await.ok()?.status)
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<ApiAnswer, KubernetesFailure> {
        let response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Err(KubernetesFailure::NotSent(chain(&error))),
            Err(error) => return Err(KubernetesFailure::Broken(chain(&error))),
        };
        let status = response.status().as_u16();
        let text = |name: HeaderName| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let date = text(DATE);
        let retry_after = text(RETRY_AFTER).and_then(|it| it.parse().ok()).map(Duration::from_secs);
        let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
        let body = body.map_err(|error| KubernetesFailure::Broken(chain(&*error)))?.to_bytes();
        Ok(ApiAnswer { status, date, retry_after, body, server: ServerState::Unknown })
    }

    fn request(
        &self,
        method: Method,
        path_and_query: &str,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, KubernetesFailure> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path_and_query}", self.server))
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("snowmint/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &self.token_file {
            request = request.header(AUTHORIZATION, token(path)?);
        }
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, kind);
                Full::new(Bytes::from(body.to_string()))
            }
            None => Full::default(),
        };
        request.body(body).map_err(|error| KubernetesFailure::NotSent(error.to_string()))
    }
}

/// Returns the header with the current token, which Kubernetes replaces about every hour. The file is small
/// and in memory.
fn token(path: &Path) -> Result<HeaderValue, KubernetesFailure> {
    let refuse =
        |why: &dyn fmt::Display| KubernetesFailure::NotSent(format!("token_file {}: {why}", path.display()));
    let token = std::fs::read_to_string(path).map_err(|error| refuse(&error))?;
    let mut header =
        HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| refuse(&"expected a token"))?;
    header.set_sensitive(true);
    Ok(header)
}

const PREFIX: &str = "snowmint";
const PARAMETERS: &str = "server, token_file, ca, cert, key and prefix";
/// The characters to escape in the value of a query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The directory in which a pod finds its namespace, its token and the certificate authority of the server.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

pub(super) struct KubernetesSettings {
    pub(super) link: KubernetesClient,
    pub(super) namespace: String,
    pub(super) prefix: String,
}

/// Parses the URL: the namespace, if it has one, and the parameters.
pub(super) fn location(url: &str) -> Result<(Option<String>, StoreUrl), UrlError> {
    let (_, rest) = url.split_once(':').unwrap_or((url, ""));
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (namespace, query) = rest.split_once('?').unwrap_or((rest, ""));
    // The host of a URL with a user would be taken for a namespace.
    let location = StoreUrl::parse("kubernetes", &format!("//?{query}"), 443)?;
    if namespace.is_empty() {
        return Ok((None, location));
    }
    if !is_label(namespace, 63) {
        return Err(location.malformed(
            "invalid namespace: expected 1 to 63 of `a-z`, `0-9` and `-`, without `-` at either end",
        ));
    }
    Ok((Some(namespace.to_owned()), location))
}

/// Returns the prefix of the object names.
pub(super) fn prefix(location: &mut StoreUrl) -> Result<String, UrlError> {
    let prefix = location.take("prefix").unwrap_or_else(|| PREFIX.to_owned());
    if is_label(&prefix, LONGEST_PREFIX) {
        return Ok(prefix);
    }
    let allowed = format!(
        "invalid prefix: expected 1 to {LONGEST_PREFIX} of `a-z`, `0-9` and `-`, without `-` at either end"
    );
    Err(location.malformed(&allowed))
}

pub(super) fn settings(url: &str) -> Result<KubernetesSettings, UrlError> {
    let (namespace, mut location) = location(url)?;
    let prefix = prefix(&mut location)?;
    let (mut token_file, mut ca) = (location.take_path("token_file"), None);
    let server = if let Some(server) = location.take("server") {
        check_server(&server).ok_or_else(|| {
            location
                .malformed("invalid server: expected https://HOST:PORT or http://HOST:PORT, without a path")
        })?
    } else {
        token_file.get_or_insert_with(|| Path::new(ACCOUNT).join("token"));
        ca = Some(Path::new(ACCOUNT).join("ca.crt"));
        server_around_pod().ok_or_else(|| {
            location.malformed("not in a pod: add ?server=https://HOST:PORT and token_file=PATH")
        })?
    };
    let namespace = match namespace {
        Some(namespace) => namespace,
        None => std::fs::read_to_string(Path::new(ACCOUNT).join("namespace"))
            .map(|it| it.trim().to_owned())
            .map_err(|_| {
                location.malformed("missing namespace: expected kubernetes:NAMESPACE outside of a pod")
            })?,
    };
    let (tls, _) = tls::take(&mut location, ca, DefaultRoots::System)?;
    location.finish(PARAMETERS)?;
    Ok(KubernetesSettings { link: KubernetesClient::new(server, token_file, tls), namespace, prefix })
}

/// Returns the server that the environment variables of every pod name.
fn server_around_pod() -> Option<String> {
    let host = env::var("KUBERNETES_SERVICE_HOST").ok()?;
    let port = env::var("KUBERNETES_SERVICE_PORT").ok()?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    check_server(&format!("https://{host}:{port}"))
}

fn check_server(text: &str) -> Option<String> {
    let text = text.trim_end_matches('/');
    let uri: Uri = text.parse().ok()?;
    let plain =
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.path() == "/" && uri.query().is_none();
    plain.then(|| text.to_owned())
}

fn is_label(text: &str, longest: usize) -> bool {
    let ends_well = !text.starts_with('-') && !text.ends_with('-');
    let allowed = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    (1..=longest).contains(&text.len()) && ends_well && text.bytes().all(allowed)
}

/// Escapes a text for the value of a query.
pub(super) fn escape(text: &str) -> impl fmt::Display {
    utf8_percent_encode(text, ESCAPED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_url_gives_a_namespace_and_a_server() {
        let found = settings("kubernetes:team-a?server=https://[::1]:6443/&prefix=ids").unwrap();
        assert_eq!((&*found.namespace, &*found.prefix), ("team-a", "ids"));
        assert_eq!(found.link.server(), "https://[::1]:6443");
        assert_eq!(settings("kubernetes://a?server=http://h:1").unwrap().namespace, "a");
        assert_eq!(escape("a/b+c==").to_string(), "a%2Fb%2Bc%3D%3D");
    }

    #[test]
    fn a_mistake_in_a_url_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "").unwrap();
        let empty = format!("kubernetes:a?server=https://h&ca={}", empty.display());
        let cases = [
            ("kubernetes:", "not in a pod"),
            ("kubernetes:?server=https://h", "missing namespace"),
            ("kubernetes:Team?server=https://h", "invalid namespace"),
            ("kubernetes:a/b?server=https://h", "invalid namespace"),
            ("kubernetes:a?server=ftp://h", "invalid server"),
            ("kubernetes:a?server=https://h/path", "invalid server"),
            ("kubernetes:a?server=https://h&prefix=A", "invalid prefix"),
            ("kubernetes:a?server=https://h&toke=x", "unknown parameter `toke`"),
            ("kubernetes:a?server=https://h&cert=x", "cert= and key= require each other"),
            ("kubernetes:a?server=https://h&ca=/nowhere", "ca=/nowhere: No such file"),
            (&empty, "has no certificate"),
            ("kubernetes://u:hunter2@h", "invalid namespace"),
        ];
        for (url, wanted) in cases {
            let error = settings(url).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
