//! Twitter's Snowflake service over Apache Thrift: serves one connection. `codec` parses and writes messages.
//!
//! The interface is that of `snowflake.thrift`, on the framed transport and the binary protocol, as the original server had
//! them (<https://github.com/twitter-archive/snowflake>). An unframed message is recognised and answered unframed.
//!
//! All ids come from one namespace, whose ids must be plain numbers. The user agent is checked as the original server did, and
//! not recorded.

pub mod codec;

use std::io;
use std::pin::pin;
use std::sync::Arc;

use snowmint::error::Snippet;
use snowmint::{Clock as _, WallClock};
use snowmint_cluster::NamespaceName;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until};

use crate::accept::{Admission, reply_and_close};
use crate::connection::{ClientTimer, TimerAction, send};
use crate::limits::thrift::READ_ROOM;
use crate::limits::{FLUSH_AT, HEAR_OUT, MAX_WAIT};
use crate::listener::Listener;
use crate::metrics::Protocol;
use crate::mint::{Backend, ConnectionState, MintError, Minted, Namespace, Taken};
use crate::shutdown::ShutdownListener;
use crate::state::ServerState;
use crate::status::ErrorKind;
use crate::stream::Stream;
use crate::tls::Accepted;
use crate::turns::Turn;
use codec::{ApplicationError, CodecError, Declared, Request, parse};

/// The open port of the Thrift service, and whose ids it serves.
#[derive(Debug)]
pub struct ThriftListener {
    /// The port.
    pub listener: Listener,
    /// The namespace whose ids clients get.
    pub namespace: NamespaceName,
    /// How clients learn of an invalid user agent or clock.
    pub exceptions: ThriftExceptions,
}

/// How Thrift clients learn of an invalid user agent and of a clock that went back.
///
/// Twitter's `snowflake.thrift` has exceptions for both, but does not declare them for `get_id`: a client generated from it
/// reads a declared exception as an answer without a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThriftExceptions {
    /// As a `TApplicationException` with the reason, which every client raises.
    #[default]
    Application,
    /// As `InvalidUserAgentError` and `InvalidSystemClock`, for clients generated from an interface whose `get_id` has
    /// `throws (1: InvalidUserAgentError agent, 2: InvalidSystemClock clock)`.
    Declared,
}

/// Serves one connection until the client leaves, breaks the protocol or a time limit, or the service ends.
pub(crate) async fn serve(
    server: Arc<ServerState>,
    accepted: Accepted,
    admission: Admission,
    shutdown: ShutdownListener,
    namespace: Arc<NamespaceName>,
    exceptions: ThriftExceptions,
) {
    let Some(stream) = accepted.establish(&server, &shutdown).await else { return };
    if admission == Admission::Reserved {
        server.metrics.failed(Protocol::Thrift, ErrorKind::TooManyClients);
        // An answer needs a request: the protocol has no greeting.
        return reply_and_close(stream, b"").await;
    }
    let mut connection = Connection {
        state: server.mint.connection_state(),
        out: Vec::new(),
        turn: Arc::default(),
        issued: None,
        succeeded: 0,
        namespace,
        exceptions,
        server,
        stream,
    };
    let (server, turn) = (Arc::clone(&connection.server), Arc::clone(&connection.turn));
    let ended = server.turns.take(&turn, connection.run(shutdown)).await;
    connection.add_up();
    match ended {
        Ok(End::Quiet) => connection.stream.close().await,
        // Closing over unread input would take back the answers.
        Ok(End::AfterReply) => reply_and_close(connection.stream, b"").await,
        Err(error) => tracing::debug!(%error, "Thrift connection failed"),
    }
}

/// How a connection ends that did not fail.
enum End {
    /// Close at once.
    Quiet,
    /// The client may be sending, and reading answers that were sent.
    AfterReply,
}

struct Connection {
    server: Arc<ServerState>,
    stream: Stream,
    namespace: Arc<NamespaceName>,
    exceptions: ThriftExceptions,
    state: ConnectionState,
    out: Vec<u8>,
    turn: Arc<Turn>,
    /// The ids since the last write. Adding them up for every request would cost more than parsing.
    issued: Option<(Arc<Namespace>, u64)>,
    /// The successful requests since the last write.
    succeeded: u64,
}

/// The outcome of a request.
enum Failure {
    /// The user agent of the request is invalid.
    UserAgent(String),
    /// The method does not exist.
    Method(String),
    Mint(MintError),
}

impl From<MintError> for Failure {
    fn from(error: MintError) -> Self {
        Self::Mint(error)
    }
}

impl Connection {
    async fn run(&mut self, shutdown: ShutdownListener) -> io::Result<End> {
        let mut ends = pin!(shutdown.clone().ended());
        // The first request of a client that was just accepted may be on its way.
        let (mut ending, mut heard_out) = (None, false);
        let mut input = Vec::new();
        let mut pace = ClientTimer::new(self.server.timeouts);
        let mut timer = pin!(sleep_until(pace.next()));
        loop {
            let reading = async {
                if pace.rests {
                    // An idle connection has no buffers.
                    self.stream.readable().await?;
                    return Ok(None);
                }
                input.reserve(READ_ROOM);
                self.stream.read_buf(&mut input).await.map(Some)
            };
            let read = tokio::select! {
                // Requests that have arrived are answered even at shutdown: only an idle connection is closed.
                biased;
                read = reading => read?,
                () = &mut ends, if !heard_out => {
                    if !pace.fresh {
                        // After an answer the client may be sending more; closing over it would discard the answer.
                        return Ok(if ending.is_some() { End::AfterReply } else { End::Quiet });
                    }
                    heard_out = true;
                    timer.as_mut().reset(Instant::now() + HEAR_OUT);
                    continue;
                }
                () = &mut timer => match pace.look() {
                    _ if heard_out && pace.fresh => return Ok(End::Quiet),
                    TimerAction::Early => {
                        timer.as_mut().reset(pace.next());
                        continue;
                    }
                    TimerAction::Rest => {
                        if input.is_empty() {
                            (input, self.out) = (Vec::new(), Vec::new());
                            self.server.memory.rested();
                        }
                        timer.as_mut().reset(pace.next());
                        continue;
                    }
                    TimerAction::Idle => {
                        tracing::debug!("Thrift client disconnected; idle");
                        return Ok(End::Quiet);
                    }
                    TimerAction::Late => {
                        tracing::debug!("Thrift client disconnected; incomplete request");
                        self.server.metrics.failed(Protocol::Thrift, ErrorKind::BadRequest);
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
            self.turn.spend(read);
            let answered = self.answer(&mut input).await?;
            self.flush().await?;
            let requests = match answered {
                Ok(requests) => requests,
                Err(error) => {
                    tracing::debug!(%error, "Thrift client disconnected");
                    self.server.metrics.failed(Protocol::Thrift, ErrorKind::BadRequest);
                    return Ok(End::AfterReply);
                }
            };
            let now = Instant::now();
            self.server.metrics.took(Protocol::Thrift, requests, now - came);
            if shutdown.is_ending() {
                let since = now - *ending.get_or_insert(now);
                if since > HEAR_OUT || (heard_out && requests > 0) {
                    return Ok(End::AfterReply);
                }
            }
            pace.answered(now, requests > 0, !input.is_empty());
            if self.out.capacity() > 4 * READ_ROOM {
                self.out = Vec::new();
            }
            if input.is_empty() && input.capacity() > READ_ROOM {
                input = Vec::new();
            }
            if pace.next() < timer.deadline() {
                timer.as_mut().reset(pace.next());
            }
            self.turn.pass().await;
        }
    }

    /// Answers every complete request of the input and removes it. Returns their number.
    async fn answer(&mut self, input: &mut Vec<u8>) -> io::Result<Result<u64, CodecError>> {
        let (mut start, mut requests) = (0, 0);
        let outcome = loop {
            match parse(&input[start..]) {
                Ok(Some((request, len))) => {
                    self.call(&request).await?;
                    (start, requests) = (start + len, requests + 1);
                }
                Ok(None) => break Ok(requests),
                Err(error) => break Err(error),
            }
            if self.out.len() >= FLUSH_AT {
                self.flush().await?;
                self.turn.pass().await;
            }
        };
        input.drain(..start);
        Ok(outcome)
    }

    async fn call(&mut self, request: &Request<'_>) -> io::Result<()> {
        if !request.wants_answer() {
            // Nobody would get the id.
            return Ok(());
        }
        let answer = match request.method() {
            b"get_id" => self.id(request.user_agent.unwrap_or_default()).await?,
            b"get_worker_id" => self.worker().map_err(Failure::Mint),
            b"get_datacenter_id" => Ok(i64::from(self.server.mint.datacenter().0)),
            b"get_timestamp" => Ok(i64::try_from(WallClock.unix_ms()).unwrap_or(i64::MAX)),
            unknown => Err(Failure::Method(Snippet::of(&String::from_utf8_lossy(unknown)).to_string())),
        };
        match answer {
            Ok(number) => {
                self.succeeded += 1;
                codec::reply(&mut self.out, request, number);
            }
            Err(failure) => self.refuse(request, &failure),
        }
        Ok(())
    }

    /// Returns the next id. The outer error is that of the connection: earlier answers are sent before it waits.
    async fn id(&mut self, user_agent: &[u8]) -> io::Result<Result<i64, Failure>> {
        if !is_user_agent(user_agent) {
            let shown = Snippet::of(&String::from_utf8_lossy(user_agent)).to_string();
            return Ok(Err(Failure::UserAgent(shown)));
        }
        let found = self.state.find(self.namespace.as_str().as_bytes());
        let (namespace, id) = match found {
            Ok((namespace, handles)) => (Arc::clone(namespace), namespace.try_one(handles)),
            Err(error) => return Ok(Err(error.into())),
        };
        let id = match id {
            Ok(Some(id)) => Ok(id),
            Ok(None) => {
                self.flush().await?;
                wait_for_one(&namespace, &mut self.state).await
            }
            Err(error) => Err(error),
        };
        if id.is_ok() {
            self.count_id(namespace);
        }
        // All ids have at most 63 bits.
        Ok(id.map(|id| i64::try_from(id).unwrap_or(i64::MAX)).map_err(Failure::from))
    }

    fn count_id(&mut self, namespace: Arc<Namespace>) {
        match &mut self.issued {
            Some((last, issued)) if Arc::ptr_eq(last, &namespace) => *issued += 1,
            _ => {
                self.add_up();
                self.issued = Some((namespace, 1));
            }
        }
    }

    /// The worker under which the ids of the namespace are made; of several, the first.
    fn worker(&mut self) -> Result<i64, MintError> {
        let name = Arc::clone(&self.namespace);
        let (namespace, _) = self.state.find(name.as_str().as_bytes())?;
        let Backend::Snowflake(pool) = namespace.backend() else {
            return Err(MintError::WrongScheme {
                name: Snippet::of(name.as_str()),
                what: "of the scheme snowflake, which get_worker_id needs",
            });
        };
        let status = pool.status();
        let no_lease = || MintError::NotReady { why: "this node holds no lease".to_owned() };
        status.worker.map(|worker| i64::from(worker.0)).ok_or_else(no_lease)
    }

    #[cold]
    fn refuse(&mut self, request: &Request<'_>, failure: &Failure) {
        let (kind, error, declared, text) = match failure {
            Failure::Method(name) => {
                let text = format!(
                    "invalid method {name}: expected get_id, get_worker_id, get_datacenter_id or get_timestamp"
                );
                (ErrorKind::Unknown, ApplicationError::UnknownMethod, None, text)
            }
            Failure::UserAgent(agent) => {
                let text =
                    format!("invalid user agent {agent}: expected a letter, then letters, digits and '-'");
                (ErrorKind::BadRequest, ApplicationError::Internal, Some(Declared::InvalidUserAgent), text)
            }
            Failure::Mint(error) => {
                let kind = error.kind();
                let text = format!("{} {error}", kind.status().resp);
                let declared = (kind == ErrorKind::ClockBehind).then_some(Declared::InvalidSystemClock);
                (kind, ApplicationError::Internal, declared, text)
            }
        };
        self.server.metrics.failed(Protocol::Thrift, kind);
        match (self.exceptions, declared) {
            (ThriftExceptions::Declared, Some(declared)) if request.method() == b"get_id" => {
                codec::declared(&mut self.out, request, declared, &text);
            }
            _ => codec::exception(&mut self.out, request, error, &text),
        }
    }

    /// Sends the output, and adds up the counts.
    async fn flush(&mut self) -> io::Result<()> {
        self.add_up();
        let sent = send(&mut self.stream, &self.out, self.server.timeouts.write).await?;
        self.turn.spend(sent);
        self.out.clear();
        Ok(())
    }

    fn add_up(&mut self) {
        if self.succeeded > 0 {
            self.server.metrics.succeeded(Protocol::Thrift, std::mem::take(&mut self.succeeded));
        }
        if let Some((namespace, issued)) = self.issued.take() {
            namespace.add_issued(issued);
        }
    }
}

/// Waits for an id that was not available at once.
#[cold]
async fn wait_for_one(namespace: &Arc<Namespace>, state: &mut ConnectionState) -> Result<u64, MintError> {
    let wrong_scheme = || MintError::WrongScheme {
        name: Snippet::of(namespace.name().as_str()),
        what: "one of plain 64-bit numbers, which get_id needs",
    };
    // Before anything is taken: a refused request must not use up a number.
    if !namespace.definition().is_plain_number() {
        return Err(wrong_scheme());
    }
    let mut ids = match namespace.try_take(state.handles(), 1)? {
        Taken::All(ids) => ids,
        Taken::Partial(part) => namespace.wait(state.handles(), part, MAX_WAIT).await?,
    };
    match ids.next() {
        Some(Minted::Number(id)) => Ok(id),
        _ => Err(wrong_scheme()),
    }
}

/// The rule of the original server: `[a-zA-Z][a-zA-Z\-0-9]*`.
fn is_user_agent(text: &[u8]) -> bool {
    matches!(text, [first, rest @ ..] if first.is_ascii_alphabetic()
        && rest.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-'))
}
