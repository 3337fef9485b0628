//! The sockets: `listener` opens ports, `accept` accepts connections, and each is a `stream` of TCP, TLS or a
//! Unix socket. `http2` runs a connection of HTTP/2, `http_timeouts` has the time limits of HTTP clients.
//!
//! [`serve`] runs a connection of RESP and Thrift. It reads what has arrived, answers all of it, and writes
//! once. It sends output beyond a limit before it makes more, so a client that does not read blocks only
//! itself.

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

use futures_util::future::maybe_done;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};

use crate::access::Usage;
use crate::limits::{FIRST_ROOM, FLUSH_AT, LAST_REQUESTS, MAX_READ_ROOM, READ_ROOM, REST};
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

/// A connection whose protocol reads requests from a buffer and answers them in order.
pub(crate) trait Dialogue: Send {
    const PROTOCOL: Protocol;
    /// The answer when the connection limit is reached; empty if an answer needs a request.
    const REFUSAL: &'static [u8] = b"";

    fn wire(&mut self) -> &mut Wire;

    /// Gives up what has not been answered.
    fn end(&mut self) {}

    /// Answers every complete request of the input and removes it. Returns their number, or how the
    /// connection ends; its last request is logged and counted. The outer error is that of the connection.
    fn answer(&mut self, input: &mut Vec<u8>) -> impl Future<Output = io::Result<Result<u64, End>>> + Send;

    /// Sends the output, and adds up the counts.
    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Logs and counts a request that took too long to arrive, and answers it if the protocol can.
    fn end_late(&mut self) -> End;

    /// Frees what large requests left.
    fn shrink(&mut self) {}
}

/// A connection to a client, with the state that its answers need.
pub(crate) struct Wire {
    pub(crate) server: Arc<ServerState>,
    pub(crate) state: ConnectionState,
    pub(crate) counts: PendingCounts,
    pub(crate) out: Vec<u8>,
    /// How often output was sent.
    pub(crate) flushes: u64,
    /// The requests that were logged since then.
    pub(crate) logged: u64,
    stream: Stream,
    turn: Arc<Turn>,
    /// The bytes to read at once.
    room: usize,
}

impl Wire {
    fn new(server: Arc<ServerState>, stream: Stream, protocol: Protocol) -> Self {
        Self {
            state: server.mint.connection_state(),
            counts: PendingCounts::new(protocol),
            out: Vec::new(),
            flushes: 0,
            logged: 0,
            turn: Arc::default(),
            room: FIRST_ROOM,
            server,
            stream,
        }
    }

    /// Sends the output, and adds up the counts. `token` is logged if the output cannot be sent.
    pub(crate) async fn flush(&mut self, token: Option<&str>) -> io::Result<()> {
        self.counts.add_up(&self.server.metrics);
        let sent = send(&mut self.stream, &self.out, self.server.settings.timeouts.write).await;
        let logged = std::mem::take(&mut self.logged);
        if sent.is_err() {
            access_log::unsent(self.counts.protocol, token, logged);
        }
        self.turn.spend(sent?);
        self.out.clear();
        self.flushes += 1;
        Ok(())
    }

    /// Sends a full buffer, and lets other connections run if the turn is over. A client that reads as fast
    /// as we write never makes us wait: two of them would occupy both threads.
    pub(crate) async fn flush_full(&mut self, token: Option<&str>) -> io::Result<()> {
        if self.out.len() >= FLUSH_AT {
            self.flush(token).await?;
            self.turn.pass().await;
        }
        Ok(())
    }

    /// Reads what has arrived. Returns `None` if the connection rested, and has no buffers to read into:
    /// there is something to read now.
    async fn read(&mut self, input: &mut Vec<u8>, rested: bool) -> io::Result<Option<usize>> {
        if rested {
            self.stream.readable().await?;
            return Ok(None);
        }
        input.reserve(self.room);
        self.stream.read_buf(input).await.map(Some)
    }
}

#[cfg(test)]
#[cfg(unix)]
impl Wire {
    /// Returns the connection of a client, and its end.
    pub(crate) fn for_tests(server: Arc<ServerState>, protocol: Protocol) -> (Self, tokio::net::UnixStream) {
        let (stream, client) = tokio::net::UnixStream::pair().unwrap();
        (Self::new(server, Stream::Unix(stream), protocol), client)
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
    /// Send the output, and close once the client has had time to read it; it may still be sending.
    AfterReply,
}

/// Serves one connection until the client leaves, breaks the protocol or exceeds a time limit, or the service
/// ends.
pub(crate) async fn serve<D: Dialogue>(
    server: Arc<ServerState>,
    accepted: Accepted,
    admission: Admission,
    shutdown: ShutdownListener,
    dialogue: impl FnOnce(Wire) -> D,
) {
    let mut dialogue = {
        // A block, since the task would otherwise keep room for what is moved out of these.
        let Some(mut stream) = accepted.establish(&server, &shutdown).await else { return };
        if admission == Admission::Reserved {
            server.refused(D::PROTOCOL, ErrorKind::TooManyClients);
            return Box::pin(reply_and_close(&mut stream, D::REFUSAL)).await;
        }
        dialogue(Wire::new(Arc::clone(&server), stream, D::PROTOCOL))
    };
    let turn = Arc::clone(&dialogue.wire().turn);
    let ended = server.turns.take(&turn, pin!(run(&mut dialogue, shutdown))).await;
    dialogue.end();
    let wire = dialogue.wire();
    wire.counts.add_up(&server.metrics);
    match ended {
        Ok(End::Quiet) => wire.stream.close().await,
        // Closing with unread input would discard the answers.
        Ok(End::AfterReply) => reply_and_close(&mut wire.stream, &wire.out).await,
        Err(error) => tracing::debug!(protocol = D::PROTOCOL.name(), %error, "connection failed"),
    }
}

async fn run<D: Dialogue>(dialogue: &mut D, shutdown: ShutdownListener) -> io::Result<End> {
    // Stays ready once the service ends.
    let mut ends = pin!(maybe_done(shutdown.clone().ended()));
    // The first request of a client that was just accepted may be on its way.
    let (mut ending, mut is_last_chance) = (None, false);
    let mut input = Vec::new();
    let mut limits = ClientTimer::new(dialogue.wire().server.settings.timeouts);
    let mut timer = pin!(sleep_until(limits.next()));
    loop {
        let read = tokio::select! {
            // Requests that have arrived are answered even at shutdown: only an idle connection is closed.
            biased;
            read = dialogue.wire().read(&mut input, limits.rests) => read?,
            () = &mut ends, if !is_last_chance => {
                if !limits.fresh {
                    // After an answer the client may be sending more; closing with unread input would discard
                    // the answer.
                    return Ok(if ending.is_some() { End::AfterReply } else { End::Quiet });
                }
                is_last_chance = true;
                timer.as_mut().reset(Instant::now() + LAST_REQUESTS);
                continue;
            }
            () = &mut timer => {
                let action = limits.look();
                if is_last_chance && limits.fresh {
                    return Ok(End::Quiet);
                }
                if let Some(end) = at_deadline(dialogue, action, &mut input) {
                    return Ok(end);
                }
                timer.as_mut().reset(limits.next());
                continue;
            }
        };
        let Some(read) = read else {
            limits.rests = false;
            continue;
        };
        if read == 0 {
            return Ok(End::Quiet);
        }
        let (is_full, came) = (input.len() == input.capacity(), Instant::now());
        dialogue.wire().turn.spend(read);
        dialogue.wire().state.read_more();
        let answered = dialogue.answer(&mut input).await?;
        dialogue.flush().await?;
        let requests = match answered {
            Ok(requests) => requests,
            Err(end) => return Ok(end),
        };
        // The time of a request includes that of the others in its pipeline.
        let now = Instant::now();
        dialogue.wire().server.metrics.took(D::PROTOCOL, requests, now - came);
        if shutdown.is_ending() {
            if now - *ending.get_or_insert(now) > LAST_REQUESTS {
                return Ok(End::AfterReply);
            }
            // Some requests have come: from now on the connection ends once nothing is left to read.
            is_last_chance &= requests == 0;
        }
        fit_room(dialogue, is_full, read, &mut input);
        limits.answered(now, requests, &input);
        if limits.next() < timer.deadline() {
            timer.as_mut().reset(limits.next());
        }
        dialogue.wire().turn.pass().await;
    }
}

/// Does what is due when the timer fires. Returns how the connection ends, if it does.
#[cold]
fn at_deadline<D: Dialogue>(dialogue: &mut D, action: TimerAction, input: &mut Vec<u8>) -> Option<End> {
    let protocol = D::PROTOCOL.name();
    match action {
        TimerAction::Early => {}
        TimerAction::Rest => {
            if input.is_empty() {
                *input = Vec::new();
                dialogue.shrink();
                let wire = dialogue.wire();
                (wire.out, wire.room) = (Vec::new(), FIRST_ROOM);
                wire.server.memory.rested();
            }
        }
        TimerAction::Idle => {
            tracing::debug!(protocol, "client disconnected; idle");
            return Some(End::Quiet);
        }
        TimerAction::Late => {
            tracing::debug!(protocol, "client disconnected; incomplete request");
            return Some(dialogue.end_late());
        }
    }
    None
}

/// Grows the read buffer while reads fill it, and shrinks it when they no longer do.
fn fit_room<D: Dialogue>(dialogue: &mut D, is_full: bool, read: usize, input: &mut Vec<u8>) {
    let wire = dialogue.wire();
    if is_full {
        wire.room = (wire.room * 2).min(MAX_READ_ROOM);
    } else if wire.room > READ_ROOM && read < wire.room / 8 {
        (wire.out, wire.room) = (Vec::new(), READ_ROOM);
        dialogue.shrink();
    }
    let wire = dialogue.wire();
    if input.is_empty() && input.capacity() > wire.room {
        *input = Vec::with_capacity(wire.room);
    }
    if wire.out.capacity() > 4 * READ_ROOM {
        wire.out = Vec::new();
    }
}

/// Sends all of `out`. Returns the number of bytes.
///
/// # Errors
///
/// The connection failed, or the client read nothing `within` this time.
async fn send(stream: &mut Stream, out: &[u8], within: Duration) -> io::Result<usize> {
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
struct ClientTimer {
    timeouts: Timeouts,
    /// When the last command was answered.
    answered: Instant,
    /// When the incomplete command began.
    begun: Option<Instant>,
    /// Whether nothing has arrived yet.
    fresh: bool,
    /// Whether the buffers were freed.
    rests: bool,
}

/// What to do when the timer fires.
#[derive(Clone, Copy)]
enum TimerAction {
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
    fn new(timeouts: Timeouts) -> Self {
        Self { timeouts, answered: Instant::now(), begun: None, fresh: true, rests: true }
    }

    /// Records that input arrived: a number of complete requests, and the beginning of another one.
    fn answered(&mut self, now: Instant, requests: u64, beginning: &[u8]) {
        (self.fresh, self.rests, self.answered) = (false, false, now);
        self.begun = match self.begun.filter(|_| requests == 0) {
            Some(begun) => Some(begun),
            None => (!beginning.is_empty()).then_some(now),
        };
    }

    /// Returns when to check next.
    fn next(&self) -> Instant {
        /// Far enough in the future for a timer that is never needed.
        const NEVER: Duration = Duration::from_hours(24 * 365);
        match (self.begun, self.rests) {
            (Some(begun), _) => begun + self.timeouts.request,
            (None, false) => self.answered + REST,
            (None, true) => self.answered + self.timeouts.idle.unwrap_or(NEVER),
        }
    }

    fn look(&mut self) -> TimerAction {
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
