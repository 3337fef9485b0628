//! A running service on loopback ports, and clients that send raw bytes.
//! A test always waits for an event, never for a time.

use std::net::SocketAddr;
use std::sync::Arc;

use snowmint::{Layout, ManualClock};
use snowmint_server::{Ended, Listener, Listeners, Mint, Settings, bind, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::test_source::{START_UNIX_MS, TestSource, mint_of};

/// A running service.
pub(crate) struct Running {
    pub(crate) http: SocketAddr,
    pub(crate) resp: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) source: TestSource,
    ends: oneshot::Sender<()>,
    task: JoinHandle<Ended>,
}

/// Returns settings with the test clock.
pub(crate) fn settings() -> Settings {
    Settings { clock: Arc::new(ManualClock::at_unix_ms(START_UNIX_MS)), ..Settings::default() }
}

impl Running {
    pub(crate) async fn start() -> Self {
        Self::with(settings()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let source = TestSource::new(Layout::TWITTER);
        let mint = mint_of(source.clone(), Layout::TWITTER);
        Self::serving(mint.into(), source, settings).await
    }

    pub(crate) async fn serving(mint: Arc<Mint>, source: TestSource, settings: Settings) -> Self {
        let listeners = Listeners {
            http: Some(bind("127.0.0.1:0", "--http").await.unwrap()),
            resp: Some(bind("127.0.0.1:0", "--resp").await.unwrap()),
            grpc: Some(bind("127.0.0.1:0", "--grpc").await.unwrap()),
            ..Listeners::default()
        };
        let address =
            |listener: &Option<Listener>| listener.as_ref().unwrap().address().parse::<SocketAddr>().unwrap();
        let (http, resp) = (address(&listeners.http), address(&listeners.resp));
        let grpc = address(&listeners.grpc);
        let (ends, ended) = oneshot::channel::<()>();
        let until_ended = Box::pin(async move {
            let _ = ended.await;
        });
        let task = tokio::spawn(serve(mint, listeners, settings, until_ended));
        Self { http, resp, grpc, source, ends, task }
    }

    /// Shuts the service down; the task returns the outcome.
    pub(crate) fn end(self) -> JoinHandle<Ended> {
        self.ends.send(()).unwrap();
        self.task
    }

    pub(crate) async fn resp(&self) -> Client {
        Client::at(self.resp).await
    }

    pub(crate) async fn http(&self) -> Client {
        Client::at(self.http).await
    }

    /// Sends one HTTP request on its own connection; returns status line and headers, then the body.
    pub(crate) async fn request(&self, head: &str) -> (String, Vec<u8>) {
        let mut client = self.http().await;
        client.send(format!("{head}\r\nhost: test\r\nconnection: close\r\n\r\n").as_bytes()).await;
        split(&client.rest().await)
    }

    pub(crate) async fn get(&self, path: &str) -> (String, String) {
        let (head, body) = self.request(&format!("GET {path} HTTP/1.1")).await;
        (head, String::from_utf8(body).unwrap())
    }
}

/// Splits an HTTP answer into head and body, and joins chunks.
pub(crate) fn split(answer: &[u8]) -> (String, Vec<u8>) {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("an answer has a head");
    let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_ascii_lowercase();
    let mut body = answer[end + 4..].to_vec();
    if head.contains("transfer-encoding: chunked") {
        let (mut rest, mut whole) = (&body[..], Vec::new());
        loop {
            let line = rest.windows(2).position(|bytes| bytes == b"\r\n").unwrap();
            let len = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            whole.extend_from_slice(&rest[line + 2..line + 2 + len]);
            rest = &rest[line + 4 + len..];
            if len == 0 {
                break;
            }
        }
        body = whole;
    }
    (head, body)
}

fn lines_of(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').count() - 1
}

/// A connection of raw bytes.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn at(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Returns whether the node is ready.
    pub(crate) async fn probe(mut self) -> bool {
        self.send(b"GET /readyz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
        split(&self.rest().await).0.starts_with("http/1.1 200 ")
    }

    /// Reads until the server closes.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        self.stream.read_to_end(&mut self.buffer).await.unwrap();
        std::mem::take(&mut self.buffer)
    }

    /// Reads the next line, without its end.
    pub(crate) async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|bytes| bytes == b"\r\n") {
                let line = String::from_utf8(self.buffer[..end].to_vec()).unwrap();
                self.buffer.drain(..end + 2);
                return line;
            }
            assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0, "closed within a line");
        }
    }

    /// Reads this many bytes.
    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0, "closed within an answer");
        }
        self.buffer.drain(..count).collect()
    }

    /// Sends an inline command and reads a reply of one line.
    pub(crate) async fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes()).await;
        self.line().await
    }

    /// Reads `count` ids: bulk strings of two lines each.
    pub(crate) async fn ids(&mut self, count: usize) -> Vec<u64> {
        let mut bytes = std::mem::take(&mut self.buffer);
        let mut lines = lines_of(&bytes);
        while lines < 2 * count {
            let known = bytes.len();
            assert!(self.stream.read_buf(&mut bytes).await.unwrap() > 0, "closed within ids");
            lines += lines_of(&bytes[known..]);
        }
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<_> = text.split_inclusive("\r\n").collect();
        self.buffer = lines[2 * count..].concat().into_bytes();
        let id = |lines: &[&str]| {
            let (len, digits) = (lines[0].trim_end().strip_prefix('$').unwrap(), lines[1].trim_end());
            assert_eq!(len.parse(), Ok(digits.len()));
            digits.parse().unwrap()
        };
        lines[..2 * count].chunks(2).map(id).collect()
    }
}
