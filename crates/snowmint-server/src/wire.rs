//! The sockets: `listener` opens ports, `accept` accepts connections, and each is a `stream` of TCP, TLS or a
//! Unix socket. `http2` runs a connection of HTTP/2, `http_timeouts` has the time limits of HTTP clients.
//!
//! Connections that do not speak HTTP share this file: time limits of a client, sending to a client that may
//! not read, and counts that are not added up yet. [`serve`] runs a connection of Thrift; RESP runs its own.

pub(crate) mod accept;
pub(crate) mod http2;
pub(crate) mod http_timeouts;
pub(crate) mod listener;
pub(crate) mod stream;

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};

use crate::access::Usage;
use crate::limits::{FLUSH_AT, LAST_REQUESTS, READ_ROOM, REST};
use crate::load::fairness::Turn;
use crate::metrics::Metrics;
use crate::mint::{ConnectionState, Namespace};
use crate::protocol::{Admission, Protocol};
use crate::settings::Timeouts;
use crate::state::ServerState;
use crate::state::shutdown::ShutdownListener;
use crate::status::ErrorKind;
use crate::telemetry::access_log;
use crate::wire::accept::{Accepted, reply_and_close};
use crate::wire::stream::Stream;

/// A protocol that reads its requests from a buffer and answers them in order.
pub(crate) trait Dialogue: Send {
    const PROTOCOL: Protocol;

    /// Answers every complete request of the input and removes it. Returns their number, or why the
    /// connection ends. The outer error is that of the connection.
    fn answer(
        &mut self,
        wire: &mut Wire,
        input: &mut Vec<u8>,
    ) -> impl Future<Output = io::Result<Result<u64, Broken>>> + Send;
}

/// A request after which the connection ends: nothing after it can be answered. The function that returns
/// this has logged the request.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) kind: ErrorKind,
    pub(crate) why: String,
}

/// A connection to a client, with the state that its answers need.
pub(crate) struct Wire {
    pub(crate) server: Arc<ServerState>,
    pub(crate) state: ConnectionState,
    pub(crate) counts: PendingCounts,
    pub(crate) out: Vec<u8>,
    /// The requests that were logged since output was sent.
    pub(crate) logged: u64,
    stream: Stream,
    turn: Arc<Turn>,
}

impl Wire {
    /// Sends the output, and adds up the counts.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        self.counts.add_up(&self.server.metrics);
        let sent = send(&mut self.stream, &self.out, self.server.settings.timeouts.write).await;
        let logged = std::mem::take(&mut self.logged);
        if sent.is_err() {
            // The token is that of the lines before.
            access_log::unsent(self.counts.protocol, None, logged);
        }
        self.turn.spend(sent?);
        self.out.clear();
        Ok(())
    }

    /// Sends a full buffer, and lets other connections run if the turn is over.
    pub(crate) async fn flush_full(&mut self) -> io::Result<()> {
        if self.out.len() >= FLUSH_AT {
            self.flush().await?;
            self.turn.pass().await;
        }
        Ok(())
    }
}

#[cfg(test)]
#[cfg(unix)]
impl Wire {
    /// Returns the connection of a client, and its end.
    pub(crate) fn for_tests(server: ServerState, protocol: Protocol) -> (Self, tokio::net::UnixStream) {
        let (stream, client) = tokio::net::UnixStream::pair().unwrap();
        let wire = Self {
            state: server.mint.connection_state(),
            counts: PendingCounts::new(protocol),
            out: Vec::new(),
            logged: 0,
            turn: Arc::default(),
            server: Arc::new(server),
            stream: Stream::Unix(stream),
        };
        (wire, client)
    }

    /// Takes all ids of `default` that are there without a wait.
    pub(crate) fn exhaust(&mut self) {
        let (namespace, handles) = self.state.find(b"default").unwrap();
        while namespace.try_one(handles).unwrap().is_some() {}
    }
}

/// How a connection ends if it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Close at once.
    Quiet,
    /// Close once the client has had time to read the answers; it may still be sending.
    AfterReply,
}

/// Serves one connection until the client leaves, breaks the protocol or exceeds a time limit, or the service
/// ends.
pub(crate) async fn serve<D: Dialogue>(
    server: Arc<ServerState>,
    accepted: Accepted,
    admission: Admission,
    shutdown: ShutdownListener,
    mut dialogue: D,
) {
    let Some(stream) = accepted.establish(&server, &shutdown).await else { return };
    if admission == Admission::Reserved {
        server.refused(D::PROTOCOL, ErrorKind::TooManyClients);
        // An answer needs a request: these protocols have no greeting.
        return reply_and_close(stream, b"").await;
    }
    let mut wire = Wire {
        state: server.mint.connection_state(),
        counts: PendingCounts::new(D::PROTOCOL),
        out: Vec::new(),
        logged: 0,
        turn: Arc::default(),
        server,
        stream,
    };
    let (server, turn) = (Arc::clone(&wire.server), Arc::clone(&wire.turn));
    let ended = server.turns.take(&turn, pin!(run(&mut wire, &mut dialogue, shutdown))).await;
    wire.counts.add_up(&server.metrics);
    match ended {
        Ok(End::Quiet) => wire.stream.close().await,
        // Closing with unread input would discard the answers.
        Ok(End::AfterReply) => reply_and_close(wire.stream, b"").await,
        Err(error) => tracing::debug!(protocol = D::PROTOCOL.name(), %error, "connection failed"),
    }
}

async fn run<D: Dialogue>(wire: &mut Wire, dialogue: &mut D, shutdown: ShutdownListener) -> io::Result<End> {
    let protocol = D::PROTOCOL.name();
    let mut ends = pin!(shutdown.clone().ended());
    // The first request of a client that was just accepted may be on its way.
    let (mut ending, mut is_last_chance) = (None, false);
    let mut input = Vec::new();
    let mut pace = ClientTimer::new(wire.server.settings.timeouts);
    let mut timer = pin!(sleep_until(pace.next()));
    loop {
        let reading = async {
            if pace.rests {
                // An idle connection has no buffers.
                wire.stream.readable().await?;
                return Ok(None);
            }
            input.reserve(READ_ROOM);
            wire.stream.read_buf(&mut input).await.map(Some)
        };
        let read = tokio::select! {
            // Requests that have arrived are answered even at shutdown: only an idle connection is closed.
            biased;
            read = reading => read?,
            () = &mut ends, if !is_last_chance => {
                if !pace.fresh {
                    // After an answer the client may be sending more; closing with unread input would discard
                    // the answer.
                    return Ok(if ending.is_some() { End::AfterReply } else { End::Quiet });
                }
                is_last_chance = true;
                timer.as_mut().reset(Instant::now() + LAST_REQUESTS);
                continue;
            }
            () = &mut timer => match pace.look() {
                _ if is_last_chance && pace.fresh => return Ok(End::Quiet),
                TimerAction::Early => {
                    timer.as_mut().reset(pace.next());
                    continue;
                }
                TimerAction::Rest => {
                    if input.is_empty() {
                        (input, wire.out) = (Vec::new(), Vec::new());
                        wire.server.memory.rested();
                    }
                    timer.as_mut().reset(pace.next());
                    continue;
                }
                TimerAction::Idle => {
                    tracing::debug!(protocol, "client disconnected; idle");
                    return Ok(End::Quiet);
                }
                TimerAction::Late => {
                    tracing::debug!(protocol, "client disconnected; incomplete request");
                    wire.counts.failed(&wire.server.metrics, ErrorKind::BadRequest);
                    access_log::refused(D::PROTOCOL, ErrorKind::BadRequest.status().name);
                    return Ok(End::Quiet);
                }
            },
        };
        let Some(read) = read else {
            pace.rests = false;
            continue;
        };
        if read == 0 {
            return Ok(End::Quiet);
        }
        let came = Instant::now();
        wire.turn.spend(read);
        wire.state.read_more();
        let answered = dialogue.answer(wire, &mut input).await?;
        wire.flush().await?;
        let requests = match answered {
            Ok(requests) => requests,
            Err(Broken { kind, why }) => {
                tracing::debug!(protocol, error = why, "client disconnected");
                wire.counts.failed(&wire.server.metrics, kind);
                return Ok(End::AfterReply);
            }
        };
        let now = Instant::now();
        wire.server.metrics.took(D::PROTOCOL, requests, now - came);
        if shutdown.is_ending() {
            let since = now - *ending.get_or_insert(now);
            if since > LAST_REQUESTS || (is_last_chance && requests > 0) {
                return Ok(End::AfterReply);
            }
        }
        pace.answered(now, requests > 0, !input.is_empty());
        if wire.out.capacity() > 4 * READ_ROOM {
            wire.out = Vec::new();
        }
        if input.is_empty() && input.capacity() > READ_ROOM {
            input = Vec::new();
        }
        if pace.next() < timer.deadline() {
            timer.as_mut().reset(pace.next());
        }
        wire.turn.pass().await;
    }
}

/// Sends all of `out`. Returns the number of bytes.
///
/// # Errors
///
/// The connection failed, or the client read nothing `within` this time.
pub(crate) async fn send(stream: &mut Stream, out: &[u8], within: Duration) -> io::Result<usize> {
    let mut sent = 0;
    while sent < out.len() {
        let rest = &out[sent..];
        sent += match stream.try_write(rest) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Only a client that does not read needs the timer.
                timeout(within, stream.write(rest)).await.map_err(|_| stalled(within))??
            }
            Err(error) => return Err(error),
        };
    }
    if stream.needs_flush() {
        timeout(within, stream.flush()).await.map_err(|_| stalled(within))??;
    }
    Ok(sent)
}

#[cold]
fn stalled(within: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the client read nothing for {within:?}"))
}

/// The time limits of a client. One timer sleeps from deadline to deadline, so that a command needs none of
/// its own.
pub(crate) struct ClientTimer {
    timeouts: Timeouts,
    /// When the last command was answered.
    answered: Instant,
    /// When the incomplete command began.
    begun: Option<Instant>,
    /// Whether nothing has arrived yet.
    pub(crate) fresh: bool,
    /// Whether the buffers were freed.
    pub(crate) rests: bool,
}

/// What to do when the timer fires.
pub(crate) enum TimerAction {
    /// Nothing yet.
    Early,
    /// Free the buffers.
    Rest,
    /// Close: the client was idle for too long.
    Idle,
    /// Fail: the command takes too long to arrive.
    Late,
}

impl ClientTimer {
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        Self { timeouts, answered: Instant::now(), begun: None, fresh: true, rests: true }
    }

    /// Records that input arrived: `any` complete command, and `part` of another one.
    pub(crate) fn answered(&mut self, now: Instant, any: bool, part: bool) {
        (self.fresh, self.rests, self.answered) = (false, false, now);
        self.begun = match self.begun.filter(|_| !any) {
            Some(begun) => Some(begun),
            None => part.then_some(now),
        };
    }

    /// Returns when to check next.
    pub(crate) fn next(&self) -> Instant {
        /// Far enough in the future for a timer that is never needed.
        const NEVER: Duration = Duration::from_hours(24 * 365);
        match (self.begun, self.rests) {
            (Some(begun), _) => begun + self.timeouts.request,
            (None, false) => self.answered + REST,
            (None, true) => self.answered + self.timeouts.idle.unwrap_or(NEVER),
        }
    }

    pub(crate) fn look(&mut self) -> TimerAction {
        let now = Instant::now();
        if let Some(begun) = self.begun {
            return if now >= begun + self.timeouts.request { TimerAction::Late } else { TimerAction::Early };
        }
        if self.timeouts.idle.is_some_and(|idle| now >= self.answered + idle) {
            return TimerAction::Idle;
        }
        if !self.rests && now >= self.answered + REST {
            self.rests = true;
            return TimerAction::Rest;
        }
        TimerAction::Early
    }
}

/// The counts of a connection since its last write. Adding them up for every request would cost more than
/// parsing it.
#[derive(Debug)]
pub(crate) struct PendingCounts {
    protocol: Protocol,
    /// The successful requests.
    pub(crate) succeeded: u64,
    issued: u64,
    /// The namespace of the ids.
    namespace: Option<Arc<Namespace>>,
    /// The usage of the client's token.
    usage: Option<Arc<Usage>>,
}

impl PendingCounts {
    pub(crate) const fn new(protocol: Protocol) -> Self {
        Self { protocol, succeeded: 0, issued: 0, namespace: None, usage: None }
    }

    /// Counts for another token, or for none, from now on.
    pub(crate) fn count_for(&mut self, metrics: &Metrics, usage: Option<&Arc<Usage>>) {
        self.add_up(metrics);
        self.usage = usage.cloned();
    }

    /// Counts a failed request.
    #[cold]
    pub(crate) fn failed(&self, metrics: &Metrics, kind: ErrorKind) {
        metrics.failed(self.protocol, kind);
        if let Some(usage) = &self.usage {
            usage.failed(kind);
        }
    }

    /// Counts a successful request for ids.
    #[inline]
    pub(crate) fn issued(&mut self, metrics: &Metrics, namespace: &Arc<Namespace>, ids: u64) {
        self.issued_by(metrics, namespace, ids, 1);
    }

    /// Counts successful requests for one id each.
    pub(crate) fn issued_one_each(&mut self, metrics: &Metrics, namespace: &Arc<Namespace>, requests: u64) {
        self.issued_by(metrics, namespace, requests, requests);
    }

    #[inline]
    fn issued_by(&mut self, metrics: &Metrics, namespace: &Arc<Namespace>, ids: u64, requests: u64) {
        if self.namespace.as_ref().is_none_or(|last| !Arc::ptr_eq(last, namespace)) {
            self.add_up(metrics);
            self.namespace = Some(Arc::clone(namespace));
        }
        self.issued += ids;
        self.succeeded += requests;
    }

    pub(crate) fn add_up(&mut self, metrics: &Metrics) {
        if let Some(usage) = &self.usage {
            usage.succeeded(self.succeeded);
            usage.issued(self.issued);
        }
        if self.succeeded > 0 {
            metrics.succeeded(self.protocol, std::mem::take(&mut self.succeeded));
        }
        if let (1.., Some(namespace)) = (self.issued, &self.namespace) {
            namespace.add_issued(std::mem::take(&mut self.issued));
        }
    }
}
