//! The calls themselves: HTTP/1.1 over TLS, with a token that is read anew for each.
//! Keeps apart what failed before it was sent from what failed after: a write of the second kind may have happened.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use tokio::time::timeout;

use super::answer::Answer;
use super::cause::Failure;
use crate::effect::chain;

/// How long it may take to reach the server, up to its TLS.
const CONNECT: Duration = Duration::from_millis(1500);
/// How long one try of a read may take; a page of a list may be large.
const READ: Duration = Duration::from_secs(3);
/// How long a write waits for its answer.
const WRITE: Duration = Duration::from_secs(5);
/// The most bytes of one answer: a page of records of 64 KiB, in base64 and with what the server adds.
const LARGEST_ANSWER: usize = 96 << 20;

/// The way to an API server.
pub(super) struct Link {
    server: String,
    token_file: Option<PathBuf>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Link {
    /// `server` is `https://HOST:PORT`, with nothing after it.
    pub(super) fn new(server: String, token_file: Option<PathBuf>, tls: rustls::ClientConfig) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT));
        http.set_nodelay(true);
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(https.wrap_connector(http));
        Self { server, token_file, client }
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Reads, and again where the connection broke: it may have been an old one.
    pub(super) async fn read(&self, path_and_query: &str) -> Result<Answer, Failure> {
        match self.call(READ, Method::GET, path_and_query, None).await {
            Err(Failure::NoAnswer(_) | Failure::Broken(_)) => {
                self.call(READ, Method::GET, path_and_query, None).await
            }
            settled => settled,
        }
    }

    /// Sends a write, once.
    pub(super) async fn write(&self, method: Method, path: &str, body: &Value) -> Result<Answer, Failure> {
        self.call(WRITE, method, path, Some(body)).await
    }

    async fn call(
        &self,
        limit: Duration,
        method: Method,
        path_and_query: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Failure> {
        let request = self.request(method, path_and_query, body)?;
        let answered = timeout(limit, async {
            let response = match self.client.request(request).await {
                Ok(response) => response,
                Err(error) if error.is_connect() => return Err(Failure::NotSent(chain(&error))),
                Err(error) => return Err(Failure::Broken(chain(&error))),
            };
            let status = response.status().as_u16();
            let date = response.headers().get(DATE).and_then(|it| it.to_str().ok()).map(ToOwned::to_owned);
            let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
            let body = body.map_err(|error| Failure::Broken(chain(&*error)))?.to_bytes();
            Ok(Answer { status, date, body })
        });
        answered.await.unwrap_or(Err(Failure::NoAnswer(limit)))
    }

    fn request(
        &self,
        method: Method,
        path_and_query: &str,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, Failure> {
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
        request.body(body).map_err(|error| Failure::NotSent(error.to_string()))
    }
}

/// The header with the token of now: Kubernetes replaces it every hour or so. The file is small and in memory.
fn token(path: &Path) -> Result<HeaderValue, Failure> {
    let refuse = |why: &dyn fmt::Display| Failure::NotSent(format!("token_file {}: {why}", path.display()));
    let token = std::fs::read_to_string(path).map_err(|error| refuse(&error))?;
    let mut header = HeaderValue::try_from(format!("Bearer {}", token.trim()))
        .map_err(|_| refuse(&"it holds no token"))?;
    header.set_sensitive(true);
    Ok(header)
}
