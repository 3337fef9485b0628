//! Draws from a server over HTTP, gRPC or the Redis protocol, one request after the other on each connection.

mod grpc;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufStream,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Args, Lane, Run, present};
use crate::client_credentials::{TlsFiles, is_this_machine, tls, tls_failure, token};
use crate::error::Failure;
use grpc::GrpcLink;

/// The limit for an answer, and for opening a connection with its TLS and its token.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause after a failed request, so that a server in trouble is not flooded.
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum bytes of a line or a text in the Redis protocol.
const MAX_LINE: usize = 64 * 1024;

/// A protocol for drawing ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    Grpc,
    Resp,
}

/// A server, and the request to send to it.
pub(super) struct Target {
    url: String,
    protocol: Protocol,
    host: String,
    port: u16,
    authority: String,
    tls: Option<TlsConnector>,
    token: Option<String>,
    /// The path of an HTTP request, the namespace of a gRPC call, or the command of the Redis protocol.
    request: String,
    batch: usize,
}

impl Target {
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
        let shown = crate::open_store::without_credentials(&args.target);
        let invalid = || {
            Failure::usage(format!(
                "invalid URL {shown:?}: expected http://HOST:PORT, https://HOST, grpc://HOST:PORT, grpcs://HOST, \
                 redis://HOST:PORT or rediss://HOST"
            ))
        };
        let uri: Uri = args.target.parse().map_err(|_| invalid())?;
        let authority = uri.authority().filter(|it| !it.as_str().contains('@')).ok_or_else(invalid)?;
        if uri.path_and_query().is_some_and(|path| path != "/") {
            return Err(invalid());
        }
        let (protocol, is_tls, port) = match uri.scheme_str() {
            Some("http") => (Protocol::Http, false, 8080),
            Some("https") => (Protocol::Http, true, 443),
            // The HTTP port also answers gRPC; a separate gRPC port has no default.
            Some("grpc") => (Protocol::Grpc, false, 8080),
            Some("grpcs") => (Protocol::Grpc, true, 443),
            Some("redis") => (Protocol::Resp, false, 6380),
            Some("rediss") => (Protocol::Resp, true, 6380),
            _ => return Err(invalid()),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let token = token(args.token_file.as_deref(), args.token.as_deref())?;
        if token.is_some() && !is_tls && !is_this_machine(&host) {
            return Err(Failure::usage(format!(
                "the token would cross the network to {host} in plain text: use https://, grpcs:// or rediss://"
            )));
        }
        let request = match protocol {
            Protocol::Http => format!("/v1/ids/{}?count={}", args.namespace, args.batch),
            Protocol::Grpc => args.namespace.to_string(),
            Protocol::Resp => {
                command(&["ID.NEXT", args.namespace.as_str(), "COUNT", &args.batch.to_string()])
            }
        };
        Ok(Self {
            url: shown,
            protocol,
            host,
            port: uri.port_u16().unwrap_or(port),
            authority: authority.as_str().to_owned(),
            tls: is_tls
                .then(|| tls(TlsFiles { ca: args.server_ca.as_deref(), identity: None }))
                .transpose()?,
            token,
            request,
            batch: args.batch,
        })
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

/// A command of the Redis protocol.
fn command(words: &[&str]) -> String {
    let texts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), texts.collect::<String>())
}

/// Draws over some connections until the run is over.
pub(super) fn draw(target: &Arc<Target>, connections: usize, run: &Run) -> Result<Vec<Lane>, Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::runtime)?;
    runtime.block_on(async {
        let lanes: Vec<_> = (0..connections)
            .map(|_| tokio::spawn(lane(Arc::clone(target), connections, run.clone())))
            .collect();
        let mut ended = Vec::with_capacity(connections);
        for lane in lanes {
            ended.push(lane.await.map_err(Failure::runtime)??);
        }
        Ok(ended)
    })
}

/// Draws on one connection, which is reopened after it breaks.
async fn lane(target: Arc<Target>, connections: usize, run: Run) -> Result<Lane, Failure> {
    let mut lane = Lane::new(connections)?;
    let mut link = Some(Link::open(&target, PATIENCE).await.map_err(|error| error.failure(&target))?);
    while !run.is_over() {
        let mut open = match link.take() {
            Some(open) => open,
            None => match Link::open(&target, PATIENCE).await {
                Ok(open) => open,
                Err(error) => {
                    lane.failed(&error.kind, &error.why);
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        let begin = present();
        let drawn = tokio::time::timeout(PATIENCE, open.draw(&target, &mut lane)).await;
        lane.requests += 1;
        match drawn {
            Ok(Ok(ids)) => {
                lane.took(begin.elapsed());
                lane.ids += ids;
                run.add(ids);
                link = Some(open);
            }
            Ok(Err(error)) => {
                lane.failed(&error.kind, &error.why);
                link = Some(open).filter(|_| !error.is_broken);
                tokio::time::sleep(PAUSE).await;
            }
            Err(_) => {
                let NoIds { kind, why, .. } = NoIds::silent(PATIENCE);
                lane.failed(&kind, &why);
            }
        }
    }
    Ok(lane)
}

/// The reason why a request returned no ids.
struct NoIds {
    /// The code of the error, as in `snowmint explain`, or a word for an error without an answer.
    kind: String,
    why: String,
    /// The connection cannot be used again.
    is_broken: bool,
}

impl NoIds {
    fn broken(why: impl std::fmt::Display) -> Self {
        Self { kind: "connection".to_owned(), why: why.to_string(), is_broken: true }
    }

    fn silent(patience: Duration) -> Self {
        let why = format!("no answer within {patience:?}");
        Self { kind: "no-answer".to_owned(), why, is_broken: true }
    }

    fn unexpected(what: impl std::fmt::Display) -> Self {
        let why = format!("unexpected answer: {what}; expected a Snowmint node");
        Self { kind: "answer".to_owned(), why, is_broken: true }
    }

    fn failure(&self, target: &Target) -> Failure {
        Failure::runtime(format!("cannot draw from {}: {}", target.url, self.why))
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

enum Link {
    Http(SendRequest<Empty<Bytes>>),
    Grpc(GrpcLink),
    Resp(BufStream<Box<dyn Stream>>),
}

/// Ids over HTTP.
#[derive(Deserialize)]
struct Ids {
    ids: Vec<String>,
}

/// The body of an error over HTTP (RFC 9457).
#[derive(Deserialize)]
struct Problem {
    r#type: String,
    detail: String,
}

impl Link {
    async fn open(target: &Target, patience: Duration) -> Result<Self, NoIds> {
        let opened = tokio::time::timeout(patience, Self::connect(target)).await;
        opened.unwrap_or_else(|_| Err(NoIds::silent(patience)))
    }

    async fn connect(target: &Target) -> Result<Self, NoIds> {
        let connected = TcpStream::connect((target.host.as_str(), target.port)).await;
        let stream = connected.map_err(NoIds::broken)?;
        stream.set_nodelay(true).map_err(NoIds::broken)?;
        let stream: Box<dyn Stream> = match &target.tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = ServerName::try_from(target.host.clone()).map_err(NoIds::broken)?;
                let connected = match target.protocol {
                    // A server may require this ALPN protocol for gRPC.
                    Protocol::Grpc => tls.with_alpn(vec![b"h2".to_vec()]).connect(name, stream).await,
                    Protocol::Http | Protocol::Resp => tls.connect(name, stream).await,
                };
                Box::new(connected.map_err(|error| NoIds::broken(tls_failure(&error)))?)
            }
        };
        match target.protocol {
            Protocol::Http => {
                let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
                let (sender, connection) = shaken.map_err(NoIds::broken)?;
                // The task ends when the sender is dropped.
                tokio::spawn(connection);
                Ok(Self::Http(sender))
            }
            Protocol::Grpc => Ok(Self::Grpc(GrpcLink::open(stream, target).await?)),
            Protocol::Resp => {
                let mut stream = BufStream::new(stream);
                if let Some(token) = &target.token {
                    let auth = command(&["AUTH", token]);
                    stream.write_all(auth.as_bytes()).await.map_err(NoIds::broken)?;
                    stream.flush().await.map_err(NoIds::broken)?;
                    let answer = line(&mut stream).await?;
                    if let Some(why) = answer.strip_prefix('-') {
                        return Err(refused(why));
                    }
                }
                Ok(Self::Resp(stream))
            }
        }
    }

    /// Draws one batch, and returns the number of ids.
    async fn draw(&mut self, target: &Target, lane: &mut Lane) -> Result<u64, NoIds> {
        let drawn = match self {
            Self::Http(sender) => over_http(sender, target, lane).await?,
            Self::Grpc(link) => link.draw(target, lane).await?,
            Self::Resp(stream) => over_resp(stream, target, lane).await?,
        };
        if drawn != target.batch as u64 {
            return Err(NoIds::unexpected(format!("{drawn} ids instead of {}", target.batch)));
        }
        Ok(drawn)
    }
}

async fn over_http(
    sender: &mut SendRequest<Empty<Bytes>>,
    target: &Target,
    lane: &mut Lane,
) -> Result<u64, NoIds> {
    let mut request = Request::get(&target.request).header(HOST, &target.authority);
    if let Some(token) = &target.token {
        let header = HeaderValue::try_from(format!("Bearer {token}")).map_err(NoIds::broken)?;
        request = request.header(AUTHORIZATION, header);
    }
    let request = request.body(Empty::new()).map_err(NoIds::broken)?;
    sender.ready().await.map_err(NoIds::broken)?;
    let answer = sender.send_request(request).await.map_err(NoIds::broken)?;
    let status = answer.status();
    let body = answer.into_body().collect().await.map_err(NoIds::broken)?.to_bytes();
    if !status.is_success() {
        let problem: Problem = serde_json::from_slice(&body)
            .map_err(|_| NoIds::unexpected(format!("HTTP status {}", status.as_u16())))?;
        let kind = problem.r#type.rsplit(':').next().unwrap_or_default().to_owned();
        return Err(NoIds { kind, why: problem.detail, is_broken: false });
    }
    let Ids { ids } = serde_json::from_slice(&body).map_err(NoIds::unexpected)?;
    for id in &ids {
        lane.keep(key(id));
    }
    Ok(ids.len() as u64)
}

async fn over_resp(
    stream: &mut BufStream<Box<dyn Stream>>,
    target: &Target,
    lane: &mut Lane,
) -> Result<u64, NoIds> {
    stream.write_all(target.request.as_bytes()).await.map_err(NoIds::broken)?;
    stream.flush().await.map_err(NoIds::broken)?;
    let answer = line(stream).await?;
    if let Some(why) = answer.strip_prefix('-') {
        return Err(refused(why));
    }
    let count: u64 = answer
        .strip_prefix('*')
        .and_then(|count| count.parse().ok())
        .ok_or_else(|| NoIds::unexpected(&answer))?;
    for _ in 0..count {
        let answer = line(stream).await?;
        let id = if let Some(number) = answer.strip_prefix(':') {
            number.to_owned()
        } else {
            let len = answer.strip_prefix('$').and_then(|len| len.parse::<usize>().ok());
            let len = len.filter(|len| *len <= MAX_LINE).ok_or_else(|| NoIds::unexpected(&answer))?;
            let mut text = vec![0; len + 2];
            stream.read_exact(&mut text).await.map_err(NoIds::broken)?;
            text.truncate(len);
            String::from_utf8(text).map_err(NoIds::unexpected)?
        };
        lane.keep(key(&id));
    }
    Ok(count)
}

/// Reads a line of the Redis protocol.
async fn line(stream: &mut BufStream<Box<dyn Stream>>) -> Result<String, NoIds> {
    let mut line = String::new();
    let read = stream.take(MAX_LINE as u64).read_line(&mut line).await.map_err(NoIds::broken)?;
    if read == 0 {
        return Err(NoIds::broken("the server closed the connection"));
    }
    match line.strip_suffix("\r\n") {
        Some(text) => Ok(text.to_owned()),
        None => Err(NoIds::unexpected(line.chars().take(40).collect::<String>())),
    }
}

/// Parses an error of the Redis protocol: a word, and the reason.
fn refused(answer: &str) -> NoIds {
    let (kind, why) = answer.split_once(' ').unwrap_or((answer, ""));
    NoIds { kind: kind.to_owned(), why: why.to_owned(), is_broken: false }
}

/// Returns an id as a number. A text that is not a decimal number counts by its hash, which is above all
/// decimal numbers.
fn key(id: &str) -> u64 {
    if let Ok(number) = id.parse::<u64>()
        && number >> 63 == 0
        && !id.starts_with(['0', '+'])
    {
        return number;
    }
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish() | 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_have_keys_of_their_own() {
        assert_eq!(key("1541815603606036480"), 1_541_815_603_606_036_480);
        for text in ["0042", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "ORD-1", "18446744073709551615", "+5"] {
            assert!(key(text) >> 63 == 1, "{text}");
        }
        assert_ne!(key("042"), key("42"));
    }

    /// Goal: a server that accepts connections but never answers ends the run. Method: nobody accepts, and
    /// AUTH waits.
    #[test]
    fn a_silent_server_is_not_waited_for() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target {
            url: String::new(),
            protocol: Protocol::Resp,
            host: "127.0.0.1".to_owned(),
            port: silent.local_addr().unwrap().port(),
            authority: String::new(),
            tls: None,
            token: Some("token".to_owned()),
            request: String::new(),
            batch: 1,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let opened = runtime.block_on(Link::open(&target, Duration::from_millis(50)));
        assert_eq!(opened.err().map(|error| error.kind), Some("no-answer".to_owned()));
    }

    #[test]
    fn a_command_has_its_lengths() {
        assert_eq!(command(&["ID.NEXT", "a"]), "*2\r\n$7\r\nID.NEXT\r\n$1\r\na\r\n");
    }
}
