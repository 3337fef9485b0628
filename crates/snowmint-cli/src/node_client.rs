//! A client of the admin API of a running node.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::http::uri::Scheme;
use hyper::{Method, Request, Response, Uri};
use serde_json::Value;
use snowmint_admin::operations::Operation;
use snowmint_admin::url_without_credentials::masked;
use snowmint_server::http_client::{HttpServer, SendError};

use crate::admin_failure::AdminProblem;
use crate::client_credentials::{TlsFiles, is_this_machine, tls, tls_failure};
use crate::error::Failure;

/// Time limit for a node's answer: it waits for its store, and a check asks other nodes.
const PATIENCE: Duration = Duration::from_mins(1);
/// Time limit for a change by a node: it also waits until the change has settled, up to 5 min (`may_lose`).
const CHANGE_PATIENCE: Duration = Duration::from_mins(7);
/// Maximum bytes of an answer.
const MAX_ANSWER: usize = 64 << 20;

/// A client of the admin API of a node.
pub(crate) struct NodeClient {
    url: String,
    server: HttpServer,
    authorization: Option<HeaderValue>,
}

impl NodeClient {
    pub(crate) fn new(
        url: &str,
        token: Option<String>,
        files: TlsFiles<'_>,
        insecure: bool,
    ) -> Result<Self, Failure> {
        let invalid = || {
            let shown = masked(url);
            Failure::flag(
                "--server",
                format!("invalid URL {shown:?}: expected https://HOST:PORT or http://HOST:PORT"),
            )
        };
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let is_whole = uri.path_and_query().is_none_or(|path| path == "/");
        let authority =
            uri.authority().filter(|it| is_whole && !it.as_str().contains('@')).ok_or_else(invalid)?;
        let is_https = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(invalid()),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let needs_tls = [("--server-ca", files.ca.is_some()), ("--server-cert", files.identity.is_some())];
        if let Some((flag, _)) = needs_tls.iter().find(|(_, is_set)| *is_set && !is_https) {
            return Err(Failure::flag(flag, "belongs to https://: omit it, or use TLS"));
        }
        if !is_https && token.is_some() && !insecure && !is_this_machine(&host) {
            let why = format!(
                "the token would cross the network to {host} in plain text: use https://, or add --insecure if only you can \
                 read that network"
            );
            return Err(Failure::flag("--server", why));
        }
        let authorization = match token {
            None => None,
            Some(token) => {
                let mut header = HeaderValue::try_from(format!("Bearer {token}"))
                    .map_err(|_| Failure::flag("--token", "invalid token: expected visible characters"))?;
                header.set_sensitive(true);
                Some(header)
            }
        };
        let tls = is_https.then(|| tls(files)).transpose()?;
        Ok(Self {
            url: format!("{}://{authority}", uri.scheme_str().unwrap_or_default()),
            server: HttpServer { host, port, tls },
            authorization,
        })
    }

    /// Returns a node whose paths need no token.
    pub(crate) fn without_token(url: &str, files: TlsFiles<'_>) -> Result<Self, Failure> {
        Self::new(url, None, files, false)
    }

    /// Returns the status and body of the answer to a GET.
    pub(crate) async fn get(&self, path: &str, patience: Duration) -> Result<(u16, Bytes), Failure> {
        self.answer(Method::GET, path, None, patience).await
    }

    /// Sends an operation. Returns its result, or the problem with which the node refused it.
    pub(crate) async fn ask<O: Operation>(
        &self,
        operation: &O,
    ) -> Result<Result<O::Answer, AdminProblem>, Failure> {
        let (route, message) = (O::ROUTE, operation.message());
        let method = Method::from_bytes(route.method.as_bytes()).map_err(Failure::runtime)?;
        let patience = if method == Method::GET { PATIENCE } else { CHANGE_PATIENCE };
        let path = route.target(&message);
        let body = route.has_body.then_some(Value::Object(message.body));
        let (status, answer) = self.answer(method, &path, body, patience).await?;
        let unexpected = |why: &dyn std::fmt::Display| {
            Failure::runtime(format!("unexpected answer of {} with status {status}: {why}", self.url))
        };
        if (200..300).contains(&status) {
            return serde_json::from_slice(&answer).map(Ok).map_err(|error| unexpected(&error));
        }
        let mut problem: AdminProblem = serde_json::from_slice(&answer)
            .map_err(|_| unexpected(&"expected the HTTP address of a Snowmint node"))?;
        problem.status = status;
        Ok(Err(problem))
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        patience: Duration,
    ) -> Result<(u16, Bytes), Failure> {
        match tokio::time::timeout(patience, self.send(method, path, body)).await {
            Ok(answered) => {
                answered.map_err(|why| Failure::runtime(format!("no answer from {}: {why}", self.url)))
            }
            Err(_) => Err(Failure::runtime(format!("no answer from {} within {patience:?}", self.url))),
        }
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<(u16, Bytes), String> {
        let read = async |answer: Response<Incoming>| {
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
        };
        match self.server.send(self.request(method, path, body)?, read).await {
            Ok(read) => read,
            Err(SendError::Tls(error)) => Err(tls_failure(&error)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Request<Full<Bytes>>, String> {
        let host = self.url.split_once("://").map_or("", |(_, authority)| authority);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, host)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("snowmint/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let body = match body {
            None => Full::default(),
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Full::new(Bytes::from(body.to_string()))
            }
        };
        request.body(body).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str, token: Option<&str>, insecure: bool) -> Result<NodeClient, String> {
        NodeClient::new(url, token.map(str::to_owned), TlsFiles::default(), insecure).map_err(|failure| {
            match failure {
                Failure::Usage(why) => why,
                other => format!("{other:?}"),
            }
        })
    }

    #[test]
    fn a_token_does_not_cross_a_network_in_plain_text() {
        for (url, insecure, is_sent) in [
            ("http://127.0.0.1:8080", false, true),
            ("http://localhost:8080/", false, true),
            ("http://[::1]:8080", false, true),
            ("http://10.0.0.5:8080", false, false),
            ("http://10.0.0.5:8080", true, true),
            ("http://localhost.example:8080", false, false),
            ("https://ids.example.com", false, true),
        ] {
            let made = server(url, Some("smt_x"), insecure);
            assert_eq!(made.is_ok(), is_sent, "{url}");
            assert!(made.is_ok() || made.err().is_some_and(|why| why.contains("--insecure")), "{url}");
            assert!(server(url, None, false).is_ok(), "{url}");
        }
    }

    #[test]
    fn a_url_that_is_no_address_is_rejected_without_its_password() {
        for url in ["ids:8080", "ftp://a", "http://", "https://u:hunter2@h", "http://a/v1", "http://a?x=1"] {
            let why = server(url, None, false).err().unwrap_or_default();
            assert!(why.contains("expected https://HOST:PORT") && !why.contains("hunter2"), "{url}: {why}");
        }
    }
}
