//! A session with one server over one connection. It is never resumed, nor moved to another server: when the
//! connection breaks, or the server is unresponsive, all its calls fail and it has ended.
//!
//! Calls are pipelined, and the server answers the calls of a session in their order. A task owns the
//! connection, so a call whose caller is gone disturbs no other: its answer is read and dropped.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use super::error::ZooKeeperFailure;
use super::wire::{self, ErrorCode, Header, InvalidAnswer, Owner, Stat};
use crate::StoreErrorKind;
use crate::error::chain;
use crate::net::url::{Host, Login};
use crate::net::{HostRefusal, trust};

/// How long one server may be unresponsive before its connection is dropped.
pub(super) const SILENCE: Duration = Duration::from_secs(2);
/// How long a session outlives its connection; nothing depends on it.
const SESSION: Duration = Duration::from_secs(6);
/// A session that was idle for this long is probed, so that it notices that its server is gone before a write
/// is lost there. A server may grant sessions so short that they need it earlier.
const PROBE: Duration = Duration::from_secs(1);
/// The bytes to read at once.
const CHUNK: usize = 16 << 10;

/// A connection to a server, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A request that waits to be sent, and where its answer goes.
struct Call {
    request: Vec<u8>,
    answer: oneshot::Sender<Result<Vec<u8>, ZooKeeperFailure>>,
}

/// A handle of a session. The session is closed when all its handles are dropped.
#[derive(Clone)]
pub(super) struct Session {
    calls: mpsc::UnboundedSender<Call>,
}

impl Session {
    /// Opens a session with a server.
    pub(super) async fn open(
        host: &Host,
        tls: Option<&TlsConnector>,
        login: Option<&Login>,
    ) -> Result<Self, HostRefusal> {
        let (reader, mut writer) = tokio::io::split(connect(host, tls).await?);
        let mut frames = Frames { reader, received: Vec::new(), read: 0 };
        let ended = |why: String| {
            let reason = if tls.is_some() {
                "requires a client certificate (cert= and key=)"
            } else {
                "accepts only TLS (zookeepers://)"
            };
            unavailable(format!("{why} before a session began: the server has no quorum, or {reason}"))
        };
        send(&mut writer, &wire::connect(SESSION)).await.map_err(|error| ended(chain(&error)))?;
        let frame = frames.next().await.map_err(ended)?;
        let granted = wire::session_timeout(&frame).map_err(|invalid| ended(invalid.to_string()))?;
        let granted = granted.ok_or_else(|| unavailable("the server refused a session".to_owned()))?;
        if let Some(login) = login {
            log_in(login, &mut frames, &mut writer).await?;
        }
        Ok(Self::start(frames, writer, granted))
    }

    /// Starts the task of a session that a server has granted for a time without a connection.
    fn start(frames: Frames, writer: WriteHalf<Box<dyn Stream>>, granted: Duration) -> Self {
        let (calls, waiting_calls) = mpsc::unbounded_channel();
        let now = Instant::now();
        let connection = Connection {
            frames,
            calls: waiting_calls,
            waiting: VecDeque::new(),
            last: 0,
            probed: None,
            sent: now,
            heard: now,
            probe_after: PROBE.min(granted / 3),
        };
        tokio::spawn(connection.run(writer));
        Self { calls }
    }

    /// Returns whether the session has not ended, as far as this client knows.
    pub(super) fn is_open(&self) -> bool {
        !self.calls.is_closed()
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.calls.same_channel(&other.calls)
    }

    /// Creates a persistent znode.
    pub(super) async fn create(
        &self,
        path: &str,
        value: &[u8],
        owner: Owner,
    ) -> Result<Stat, ZooKeeperFailure> {
        self.call(wire::create(path, value, owner), wire::created).await
    }

    /// Creates an empty znode and its missing parents; other nodes may do the same at the same instant.
    pub(super) async fn create_with_parents(&self, path: &str, owner: Owner) -> Result<(), ZooKeeperFailure> {
        let mut missing = vec![path];
        // From the deepest one on: a user may have no rights above the path.
        while let Some(path) = missing.last() {
            match self.create(path, b"", owner).await {
                Ok(_) | Err(ZooKeeperFailure::Refused(ErrorCode::NodeExists)) => {
                    missing.pop();
                }
                Err(failure @ ZooKeeperFailure::Refused(ErrorCode::NoNode)) => match path.rsplit_once('/') {
                    Some((parent, _)) if !parent.is_empty() => missing.push(parent),
                    _ => return Err(failure),
                },
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    pub(super) async fn exists(&self, path: &str) -> Result<Stat, ZooKeeperFailure> {
        self.call(wire::exists(path), wire::stat).await
    }

    pub(super) async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat), ZooKeeperFailure> {
        self.call(wire::get_data(path), wire::value_and_stat).await
    }

    /// Writes a znode that has this version; [`ANY_VERSION`](super::ANY_VERSION) means any.
    pub(super) async fn set_data(
        &self,
        path: &str,
        value: &[u8],
        version: i32,
    ) -> Result<Stat, ZooKeeperFailure> {
        self.call(wire::set_data(path, value, version), wire::stat).await
    }

    pub(super) async fn get_children(&self, path: &str) -> Result<Vec<String>, ZooKeeperFailure> {
        self.call(wire::get_children(path), wire::names).await
    }

    async fn call<T>(
        &self,
        request: Vec<u8>,
        parse: fn(&[u8]) -> Result<T, InvalidAnswer>,
    ) -> Result<T, ZooKeeperFailure> {
        let (answer, answered) = oneshot::channel();
        self.calls.send(Call { request, answer }).map_err(|_| ZooKeeperFailure::NotSent)?;
        let lost = |_| Err(ZooKeeperFailure::Lost("the session ended".to_owned()));
        let fields = answered.await.unwrap_or_else(lost)?;
        parse(&fields).map_err(|invalid| ZooKeeperFailure::Lost(invalid.to_string()))
    }
}

fn unavailable(text: String) -> HostRefusal {
    HostRefusal::new(StoreErrorKind::Unavailable, text)
}

async fn log_in(
    login: &Login,
    frames: &mut Frames,
    writer: &mut WriteHalf<Box<dyn Stream>>,
) -> Result<(), HostRefusal> {
    let password = login.password().map_err(|error| unavailable(error.to_string()))?;
    let request = wire::framed(wire::AUTH, &wire::auth(&login.user, password.expose()));
    send(writer, &request).await.map_err(|error| unavailable(chain(&error)))?;
    let frame = frames.next().await.map_err(unavailable)?;
    match wire::header(&frame) {
        Ok((Header { xid: wire::AUTH, refused: None }, _)) => Ok(()),
        Ok((Header { xid: wire::AUTH, refused: Some(code) }, _)) => {
            let text = format!("ZooKeeper says \"{code}\"; check user and password");
            Err(HostRefusal::new(StoreErrorKind::Other, text))
        }
        Ok((Header { xid, .. }, _)) => Err(unavailable(InvalidAnswer::Order(xid).to_string())),
        Err(invalid) => Err(unavailable(invalid.to_string())),
    }
}

async fn connect(host: &Host, tls: Option<&TlsConnector>) -> Result<Box<dyn Stream>, HostRefusal> {
    let connected = TcpStream::connect((host.name(), host.port())).await;
    let stream = connected.and_then(|it| it.set_nodelay(true).map(|()| it));
    let stream = stream.map_err(|error| unavailable(chain(&error)))?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.name().to_owned());
    let name = name.map_err(|error| HostRefusal::new(StoreErrorKind::Other, chain(&error)))?;
    match tls.connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => {
            let text = chain(&error);
            Err(match trust::untrusted(&text, "ca") {
                Some(text) => HostRefusal::new(StoreErrorKind::Other, text),
                None => unavailable(format!(
                    "no TLS: {text}: the port accepts none (zookeeper://), or requires a client certificate (cert= and key=)"
                )),
            })
        }
    }
}

async fn send(writer: &mut WriteHalf<Box<dyn Stream>>, frame: &[u8]) -> io::Result<()> {
    writer.write_all(frame).await?;
    writer.flush().await
}

/// Sends frames until the sender of the channel is dropped; returns why it could not.
async fn send_all(
    mut writer: WriteHalf<Box<dyn Stream>>,
    mut frames: mpsc::UnboundedReceiver<Vec<u8>>,
) -> String {
    while let Some(frame) = frames.recv().await {
        if let Err(error) = send(&mut writer, &frame).await {
            return chain(&error);
        }
    }
    String::new()
}

/// The frames that a server sends.
struct Frames {
    reader: ReadHalf<Box<dyn Stream>>,
    received: Vec<u8>,
    /// Number of bytes of frames that were returned.
    read: usize,
}

impl Frames {
    /// Returns the next frame, or why there is none. A dropped call loses nothing.
    async fn next(&mut self) -> Result<Vec<u8>, String> {
        loop {
            let unread = &self.received[self.read..];
            if let Some(frame) = wire::first_frame(unread).map_err(|invalid| invalid.to_string())? {
                self.read += size_of::<i32>() + frame.len();
                return Ok(frame.to_vec());
            }
            if self.read > 0 {
                self.received.drain(..self.read);
                self.read = 0;
                // A long list is rare.
                self.received.shrink_to(CHUNK);
            }
            self.received.reserve(CHUNK);
            match self.reader.read_buf(&mut self.received).await {
                Ok(0) => return Err("the server closed the connection".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(chain(&error)),
            }
        }
    }
}

/// Why a connection is no longer used.
enum End {
    /// Nobody has a handle of the session any more.
    Closed,
    Lost(String),
}

/// The task of a session.
struct Connection {
    frames: Frames,
    calls: mpsc::UnboundedReceiver<Call>,
    /// The calls that were sent, in this order, and have no answer.
    waiting: VecDeque<WaitingCall>,
    /// The identifier of the last call.
    last: i32,
    /// When a probe was sent that has no answer.
    probed: Option<Instant>,
    /// When something was sent last, and received.
    sent: Instant,
    heard: Instant,
    probe_after: Duration,
}

struct WaitingCall {
    xid: i32,
    sent: Instant,
    answer: oneshot::Sender<Result<Vec<u8>, ZooKeeperFailure>>,
}

impl Connection {
    async fn run(mut self, writer: WriteHalf<Box<dyn Stream>>) {
        let (outgoing, frames) = mpsc::unbounded_channel();
        // Beside the reader: a server that reads nothing may still answer.
        let mut sending = pin!(send_all(writer, frames));
        let end = select! {
            why = &mut sending => End::Lost(why),
            end = self.serve(&outgoing) => end,
        };
        match end {
            End::Closed => {
                // So that the server forgets the session at once.
                outgoing.send(wire::framed(0, &wire::close())).ok();
                drop(outgoing);
                timeout(SILENCE, sending).await.ok();
            }
            End::Lost(why) => {
                for call in self.waiting {
                    call.answer.send(Err(ZooKeeperFailure::Lost(why.clone()))).ok();
                }
                self.calls.close();
                // Also of a caller that is sending one right now.
                while let Some(call) = self.calls.recv().await {
                    call.answer.send(Err(ZooKeeperFailure::NotSent)).ok();
                }
            }
        }
    }

    async fn serve(&mut self, outgoing: &mpsc::UnboundedSender<Vec<u8>>) -> End {
        loop {
            let unanswered = self.unanswered_since();
            let until = unanswered.map_or(self.sent + self.probe_after, |since| since + SILENCE);
            // What has arrived counts before the time that has passed.
            select! {
                biased;
                frame = self.frames.next() => {
                    let settled = frame.and_then(|it| self.settle(it).map_err(|invalid| invalid.to_string()));
                    if let Err(why) = settled {
                        return End::Lost(why);
                    }
                }
                call = self.calls.recv() => {
                    let Some(Call { request, answer }) = call else { return End::Closed };
                    // Identifiers are positive.
                    self.last = self.last % i32::MAX + 1;
                    self.sent = Instant::now();
                    self.waiting.push_back(WaitingCall { xid: self.last, sent: self.sent, answer });
                    // The end of the other side is noticed above.
                    outgoing.send(wire::framed(self.last, &request)).ok();
                }
                () = sleep_until(until) => {
                    if unanswered.is_some() {
                        return End::Lost(format!("no answer within {} s", SILENCE.as_secs()));
                    }
                    self.sent = Instant::now();
                    self.probed = Some(self.sent);
                    outgoing.send(wire::framed(wire::PING, &wire::ping())).ok();
                }
            }
        }
    }

    /// Returns since when the server is silent although something waits for its answer. A later call does not
    /// give it more time.
    fn unanswered_since(&self) -> Option<Instant> {
        let calls = self.waiting.front().map(|call| call.sent);
        calls.into_iter().chain(self.probed).min().map(|sent| sent.max(self.heard))
    }

    fn settle(&mut self, mut frame: Vec<u8>) -> Result<(), InvalidAnswer> {
        self.heard = Instant::now();
        let (header, fields) = wire::header(&frame)?;
        match header.xid {
            wire::PING => self.probed = None,
            // The store sets no watches, but a server may send its state.
            wire::NOTIFICATION => {}
            xid => {
                let call = self.waiting.pop_front_if(|it| it.xid == xid).ok_or(InvalidAnswer::Order(xid))?;
                let header_length = frame.len() - fields.len();
                let answer = match header.refused {
                    Some(code) => Err(ZooKeeperFailure::Refused(code)),
                    None => Ok(frame.split_off(header_length)),
                };
                // The caller may be gone.
                call.answer.send(answer).ok();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a server that is silent is left after the same time, whatever waits for it, and what was not sent is
    /// known as such. Method: a call in the last moment of a probe without an answer.
    #[tokio::test(start_paused = true)]
    async fn a_call_gives_a_silent_server_no_more_time() {
        let (near, _far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(Box::new(near) as Box<dyn Stream>);
        let frames = Frames { reader, received: Vec::new(), read: 0 };
        let session = Session::start(frames, writer, SESSION);
        let began = Instant::now();
        tokio::time::sleep(PROBE + SILENCE * 199 / 200).await;
        assert!(session.is_open());
        let failure = session.exists("/a").await.unwrap_err();
        assert!(matches!(failure, ZooKeeperFailure::Lost(_)), "{failure:?}");
        assert!(began.elapsed() < PROBE + SILENCE + Duration::from_millis(10), "{:?}", began.elapsed());
        let failure = session.exists("/a").await.unwrap_err();
        assert!(matches!(failure, ZooKeeperFailure::NotSent), "{failure:?}");
    }
}
