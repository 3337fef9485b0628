//! The target of the operator commands: a store, or the admin API of a running node (`--server`).
//! Both give the same output, exit codes and errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::http::uri::Scheme;
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use snowmint_cluster::NamespaceName;
use snowmint_server::admin::AdminError;
use snowmint_server::admin::audit::Log;
use snowmint_server::admin::doctor::Findings;
use snowmint_server::admin::namespaces::{Addition, Change, Changed, Namespaces};
use snowmint_server::admin::workers::{Force, Released, Workers};
use snowmint_server::url_without_credentials::masked;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::argv;
use crate::error::{Failure, report};
use crate::open_store::StoreArgs;

/// Time limit for a node's answer: it waits for its store, and a check asks other nodes.
const PATIENCE: Duration = Duration::from_mins(1);
/// Time limit for a change by a node: it also waits until the change has settled, up to 5 min (`may_lose`).
const CHANGE_PATIENCE: Duration = Duration::from_mins(7);
/// Maximum bytes of an answer.
const MAX_ANSWER: usize = 64 << 20;
/// Request fields other than the settings of a namespace, and their flags. Messages name them in backticks.
const FLAGS: [(&str, &str); 6] = [
    ("above", "--above N"),
    ("force", "--force"),
    ("level", "LEVEL"),
    ("nodes", "--nodes"),
    ("pool", "--pool"),
    ("start_over", "--start-over"),
];
/// Settings of a namespace that messages name in backticks, and their flags.
const SETTINGS: [(&str, &str); 10] = [
    ("hide", "--hide"),
    ("maximum", "--maximum"),
    ("mode", "--mode"),
    ("reset", "--reset"),
    ("scheme", "--scheme"),
    ("size_max", "--size-max"),
    ("size_min", "--size-min"),
    ("sources", "--source"),
    ("start", "--start"),
    ("stripe", "--stripe"),
];

/// The flags that name a store, or a node to work through.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Node instead of a store")]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// The flags that name a running node.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Work through a running node instead of a store: its HTTP address, as https://HOST:PORT. It needs a token with the right
    /// admin
    #[arg(long, value_name = "URL", global = true)]
    server: Option<String>,
    /// Token for --server. Other users of this machine can see flags: prefer the variable or --token-file
    #[arg(long, value_name = "TOKEN", env = "SNOWMINT_TOKEN", hide_env_values = true, global = true)]
    token: Option<String>,
    /// File that holds the token for --server
    #[arg(long, value_name = "FILE", requires = "server", global = true)]
    token_file: Option<PathBuf>,
    /// Authorities that --server may have its certificate from (PEM); default: those of this system
    #[arg(long, value_name = "FILE", requires = "server", global = true)]
    server_ca: Option<PathBuf>,
    /// Certificate that --server may require of its clients, with its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "server_key", global = true)]
    server_cert: Option<PathBuf>,
    /// Private key of --server-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "server_cert", global = true)]
    server_key: Option<PathBuf>,
    /// Send the token to another machine over http://, where others on the way can read it
    #[arg(long, requires = "server", global = true)]
    insecure: bool,
}

/// The place where a command works.
pub(crate) enum Target<'a> {
    Store(&'a StoreArgs),
    Server(Box<Server>),
}

impl TargetArgs {
    /// Returns the target, without connecting.
    pub(crate) fn open(&self) -> Result<Target<'_>, Failure> {
        let Some(server) = self.server.open()? else { return Ok(Target::Store(&self.store)) };
        // An environment variable may name the store for other commands.
        for flag in ["--store", "--data"] {
            if argv::has_flag(flag) {
                let why = format!("the node works on its own store: omit {flag}");
                return Err(Failure::flag("--server", why));
            }
        }
        Ok(Target::Server(Box::new(server)))
    }
}

impl ServerArgs {
    /// Returns the node, without connecting; `None` if the flags name none.
    pub(crate) fn open(&self) -> Result<Option<Server>, Failure> {
        let Some(url) = &self.server else {
            // The variable may hold a token for other commands. The flag means a node: without this check, the command would
            // change the local store.
            if argv::has_flag("--token") {
                let why = "belongs to --server: add --server URL to work through a node, or omit it";
                return Err(Failure::flag("--token", why));
            }
            return match &self.server_cert {
                Some(_) => {
                    Err(Failure::flag("--server-cert", "belongs to --server: name the node, or omit it"))
                }
                None => Ok(None),
            };
        };
        let token = token(self.token_file.as_deref(), self.token.as_deref())?;
        let identity = self.server_cert.as_deref().zip(self.server_key.as_deref());
        let files = TlsFiles { ca: self.server_ca.as_deref(), identity };
        Server::new(url, token, files, self.insecure).map(Some)
    }
}

/// The files for a TLS client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TlsFiles<'a> {
    pub(crate) ca: Option<&'a Path>,
    /// The client certificate and its key.
    pub(crate) identity: Option<(&'a Path, &'a Path)>,
}

/// The log level of a node.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct LogLevel {
    pub(crate) level: String,
    pub(crate) configured: String,
    /// That the change is not in the audit log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// Returns the token in a file, or else the given one.
pub(crate) fn token(file: Option<&Path>, given: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(file) = file else {
        let checked = given.map(|given| check_token(given).map(str::to_owned)).transpose();
        return checked.map_err(|why| Failure::flag("--token", format!("{why}; check SNOWMINT_TOKEN too")));
    };
    let fail = |why: &str| Failure::flag("--token-file", format!("{}: {why}", file.display()));
    let read = std::fs::read_to_string(file);
    let text = read
        .map_err(|error| Failure::flag("--token-file", format!("cannot read {}: {error}", file.display())))?;
    check_token(&text).map(|token| Some(token.to_owned())).map_err(|why| fail(&why))
}

/// Returns the token in a text, without the whitespace around it. An error does not show it.
fn check_token(text: &str) -> Result<&str, String> {
    let token = text.trim();
    let what = if token.is_empty() {
        "empty"
    } else if token.contains(char::is_whitespace) {
        "more than a token (the file of `serve --tokens-file` holds digests, not tokens)"
    } else if !token.starts_with("smt_") || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        "not a token"
    } else {
        return Ok(token);
    };
    Err(format!("{what}: expected the text that `snowmint token create` printed, which begins with smt_"))
}

/// The admin API of a node.
pub(crate) struct Server {
    url: String,
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    authorization: Option<HeaderValue>,
}

impl Server {
    fn new(url: &str, token: Option<String>, files: TlsFiles<'_>, insecure: bool) -> Result<Self, Failure> {
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
            host,
            port,
            tls,
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

    pub(crate) async fn namespaces(&self) -> Result<Namespaces, Failure> {
        self.call(Method::GET, "namespaces", None).await
    }

    pub(crate) async fn add(&self, name: &NamespaceName, addition: &Addition) -> Result<Changed, Failure> {
        let mut body = addition.settings.clone();
        if let Some(start_over) = &addition.start_over {
            body.insert("start_over".to_owned(), json!(start_over));
        }
        self.call(Method::PUT, &format!("namespaces/{name}"), Some(Value::Object(body))).await
    }

    pub(crate) async fn set(&self, name: &NamespaceName, change: &Change) -> Result<Changed, Failure> {
        let mut body = change.settings.clone();
        if let Some(above) = change.above {
            body.insert("above".to_owned(), above.into());
        }
        self.call(Method::PATCH, &format!("namespaces/{name}"), Some(Value::Object(body))).await
    }

    pub(crate) async fn drop_namespace(&self, name: &NamespaceName) -> Result<Changed, Failure> {
        self.call(Method::DELETE, &format!("namespaces/{name}"), None).await
    }

    pub(crate) async fn workers(&self) -> Result<Workers, Failure> {
        self.call(Method::GET, "workers", None).await
    }

    pub(crate) async fn release(
        &self,
        worker: u32,
        pool: Option<&str>,
        force: Force,
    ) -> Result<(Released, Vec<String>), Failure> {
        /// The outcome of an operation, with its warnings.
        #[derive(Deserialize)]
        struct Answer {
            #[serde(flatten)]
            released: Released,
            #[serde(default)]
            warnings: Vec<String>,
        }
        let mut body = json!({ "force": force == Force::Take });
        if let Some(pool) = pool {
            body["pool"] = pool.into();
        }
        let path = format!("workers/{worker}/release");
        let Answer { released, warnings } = self.call(Method::POST, &path, Some(body)).await?;
        Ok((released, warnings))
    }

    pub(crate) async fn doctor(&self, nodes: &[String]) -> Result<Findings, Failure> {
        let query = if nodes.is_empty() {
            String::new()
        } else {
            format!("?nodes={}", utf8_percent_encode(&nodes.join(","), NON_ALPHANUMERIC))
        };
        self.call(Method::GET, &format!("doctor{query}"), None).await
    }

    pub(crate) async fn audit(
        &self,
        limit: usize,
        namespace: Option<&NamespaceName>,
    ) -> Result<Log, Failure> {
        let of = namespace.map_or(String::new(), |name| {
            format!("&namespace={}", utf8_percent_encode(name.as_str(), NON_ALPHANUMERIC))
        });
        match self.ask(Method::GET, &format!("audit?limit={limit}{of}"), None).await? {
            // A token for some namespaces may read their changes.
            Err((status, problem)) if problem.token_namespaces.as_deref() == Some("*") => {
                Err(problem.advising("or show one namespace: add --namespace NAME").failure(status))
            }
            answered => answered.map_err(|(status, problem)| problem.failure(status)),
        }
    }

    pub(crate) async fn log_level(&self) -> Result<LogLevel, Failure> {
        self.call(Method::GET, "log-level", None).await
    }

    pub(crate) async fn set_log_level(&self, level: &str) -> Result<LogLevel, Failure> {
        self.call(Method::PUT, "log-level", Some(json!({ "level": level }))).await
    }

    /// Returns to the configured level.
    pub(crate) async fn reset_log_level(&self) -> Result<LogLevel, Failure> {
        self.call(Method::DELETE, "log-level", None).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, Failure> {
        let answered = self.ask(method, path, body).await?;
        answered.map_err(|(status, problem)| problem.failure(status))
    }

    /// Returns the answer to a request, or the status and the problem with which the node refused it.
    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Result<T, (u16, Problem)>, Failure> {
        let patience = if method == Method::GET { PATIENCE } else { CHANGE_PATIENCE };
        let (status, answer) = self.answer(method, &format!("/v1/admin/{path}"), body, patience).await?;
        let unexpected = |why: &dyn std::fmt::Display| {
            Failure::runtime(format!("unexpected answer of {} with status {status}: {why}", self.url))
        };
        if (200..300).contains(&status) {
            return serde_json::from_slice(&answer).map(Ok).map_err(|error| unexpected(&error));
        }
        let problem: Problem = serde_json::from_slice(&answer)
            .map_err(|_| unexpected(&"expected the HTTP address of a Snowmint node"))?;
        Ok(Err((status, problem)))
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
        let stream =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| error.to_string())?;
        let request = self.request(method, path, body)?;
        match &self.tls {
            None => exchange(stream, request).await,
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
                let stream = tls.connect(name, stream).await.map_err(|error| tls_failure(&error))?;
                exchange(stream, request).await
            }
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

/// Returns why a TLS connection failed, and what to do.
pub(crate) fn tls_failure(error: &std::io::Error) -> String {
    let advice = match error.get_ref().and_then(|why| why.downcast_ref()) {
        // The latter: of another authority with the same name.
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "; --server-ca FILE names the authority that issued it",
        // A node answers TLS on a port without it by this alert.
        Some(
            rustls::Error::InvalidMessage(_)
            | rustls::Error::AlertReceived(AlertDescription::ProtocolVersion),
        ) => "; the port may serve no TLS: try it without",
        _ => "",
    };
    format!("{error}{advice}")
}

/// Sends a request over a new connection.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(u16, Bytes), String> {
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
    // The connection stays open after the answer, so do not wait for its end.
    let connection = tokio::spawn(connection);
    let answered = async {
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    let answered = answered.await;
    connection.abort();
    answered
}

/// Returns whether a host is this machine, so that nothing crosses a network.
pub(crate) fn is_this_machine(host: &str) -> bool {
    let address: Option<std::net::IpAddr> = host.parse().ok();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

/// Returns the failure for a file that a flag names.
fn bad_file(flag: &str, file: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::flag(flag, format!("cannot use {}: {why}", file.display()))
}

/// Reads the certificates of a file that a flag names.
fn certificates(flag: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|error| bad_file(flag, file, &error))?;
    if certificates.is_empty() {
        return Err(bad_file(flag, file, &"expected certificates in PEM"));
    }
    Ok(certificates)
}

/// Returns a TLS client that trusts the given authorities, or those of the system.
pub(crate) fn tls(TlsFiles { ca, identity }: TlsFiles<'_>) -> Result<TlsConnector, Failure> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(file) => {
            for certificate in certificates("--server-ca", file)? {
                roots.add(certificate).map_err(|error| bad_file("--server-ca", file, &error))?;
            }
        }
        None => {
            let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Failure::runtime)?
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some((certificate, key_file)) => {
            let chain = certificates("--server-cert", certificate)?;
            let key = PrivateKeyDer::from_pem_file(key_file)
                .map_err(|error| bad_file("--server-key", key_file, &error))?;
            config
                .with_client_auth_cert(chain, key)
                .map_err(|error| bad_file("--server-cert", certificate, &error))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A problem document of a node.
#[derive(Deserialize)]
struct Problem {
    r#type: String,
    detail: String,
    setting: Option<String>,
    /// The namespaces that the token would have to cover.
    token_namespaces: Option<String>,
}

impl Problem {
    /// Adds advice that only the command line can give.
    fn advising(self, advice: &str) -> Self {
        Self { detail: format!("{}; {advice}", self.detail), ..self }
    }

    fn failure(&self, status: u16) -> Failure {
        let kind = self.r#type.rsplit(':').next().unwrap_or_default();
        failure(status, kind, &self.detail, self.setting.as_deref())
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        let status = error.kind().status();
        let setting = if let AdminError::Setting { setting, .. } = &error { Some(*setting) } else { None };
        failure(status.http, status.name, &error.answer(), setting)
    }
}

/// Returns the failure of an operation, with flags instead of the settings that it names.
fn failure(status: u16, kind: &str, detail: &str, setting: Option<&str>) -> Failure {
    let text = match setting.and_then(|setting| Some((setting, detail.strip_prefix(setting)?))) {
        Some((setting, why)) => {
            let known = FLAGS.iter().chain(&SETTINGS).find(|(name, _)| *name == setting);
            let flag = known.and_then(|(_, flag)| flag.split(' ').next()).map(ToOwned::to_owned);
            let flag = flag.unwrap_or_else(|| format!("--{}", setting.replace('_', "-")));
            format!("{flag}{}", in_flags(why, Some(setting)))
        }
        None => in_flags(detail, None),
    };
    // These are temporary: the same command may succeed later.
    if (400..500).contains(&status) && !["changed", "in-use", "over-quota"].contains(&kind) {
        Failure::usage(text)
    } else {
        Failure::runtime(text)
    }
}

/// Returns a text with flags instead of the fields that it names in backticks, and instead of settings if it is about one.
pub(crate) fn in_flags(text: &str, setting: Option<&str>) -> String {
    let settings = if setting.is_some() { &SETTINGS[..] } else { &[] };
    FLAGS
        .iter()
        .chain(settings)
        .fold(text.to_owned(), |text, (name, flag)| text.replace(&format!("`{name}`"), flag))
}

/// Reports the warnings of an operation.
pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings {
        report("warning", &in_flags(warning, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str, token: Option<&str>, insecure: bool) -> Result<Server, String> {
        Server::new(url, token.map(str::to_owned), TlsFiles::default(), insecure).map_err(|failure| {
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

    /// Goal: the failure text from a node equals that from a store. Method: one error, both ways.
    #[test]
    fn errors_name_flags() {
        let error =
            AdminError::Setting { setting: "sources", why: "set `above`, or omit `stripe`".to_owned() };
        let problem = Problem {
            r#type: "urn:snowmint:bad-request".to_owned(),
            detail: error.to_string(),
            setting: Some("sources".to_owned()),
            token_namespaces: None,
        };
        for failure in [Failure::from(error), problem.failure(400)] {
            let Failure::Usage(text) = failure else { panic!("{failure:?}") };
            assert_eq!(text, "--source: set --above N, or omit --stripe");
        }
        let held = AdminError::Held { worker: 7, holder: "a".to_owned(), until: "now".to_owned() };
        let Failure::Runtime(text) = Failure::from(held) else { panic!("a held worker is free later") };
        assert!(text.contains("add --force to stop"), "{text}");
        assert_eq!(
            in_flags("invalid setting `start` for scheme ulid", None),
            "invalid setting `start` for scheme ulid"
        );
    }
}
