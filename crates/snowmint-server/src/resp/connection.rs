//! One RESP connection: read what is there, answer all of it, write once.
//! Output beyond a bound is sent before more is made, so a client that does not read stops only itself.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use crate::accept::{Place, say_and_close};
use crate::limits::resp::{MAX_READ_ROOM, READ_ROOM};
use crate::limits::{FLUSH_AT, HEAR_OUT, REST};
use crate::metrics::Protocol;
use crate::mint::{ConnectionState, Ids, MintError};
use crate::resp::codec::{Parser, ProtocolError, Step};
use crate::resp::command::{Call, Flow, Request, refuse, write_id};
use crate::resp::reply;
use crate::resp::session::Session;
use crate::resp::tally::Tally;
use crate::resp::transaction::Queued;
use crate::server::Server;
use crate::settings::Timeouts;
use crate::shutdown::Draining;
use crate::status::ErrorKind;
use crate::turns::Turn;

/// What a client hears that finds no place, in the words of Redis.
const REFUSAL: &[u8] = b"-ERR max number of clients reached\r\n";

/// Serves one connection until the client leaves, takes too long or breaks the protocol, or the service ends.
pub(crate) async fn serve(server: Arc<Server>, stream: TcpStream, place: Place, draining: Draining) {
    if place == Place::Reserved {
        server.metrics.failed(Protocol::Resp, ErrorKind::TooManyClients);
        return say_and_close(stream, REFUSAL).await;
    }
    let mut connection = Connection {
        session: Session::new(server.next_client()),
        tally: Tally::default(),
        state: server.mint.connection_state(),
        room: READ_ROOM,
        out: Vec::new(),
        turn: Arc::default(),
        server,
        stream,
    };
    let (server, turn) = (Arc::clone(&connection.server), Arc::clone(&connection.turn));
    let ended = server.turns.take(&turn, connection.run(draining)).await;
    connection.tally.add_up(&connection.server.metrics);
    connection.session.transaction.end(&connection.server.queued);
    match ended {
        Ok(End::Quiet) => {}
        // What is in `out` says why; the client may still be sending.
        Ok(End::NamespaceConfig) => say_and_close(connection.stream, &connection.out).await,
        Err(error) => tracing::debug!(%error, "RESP connection broke"),
    }
}

/// How a connection ends that did not break.
enum End {
    /// There is nothing more to say.
    Quiet,
    /// What is in the output is still to be said.
    NamespaceConfig,
}

/// How a command of the input was followed.
enum Followed {
    /// It was answered.
    Answered,
    /// It is to be done once more, now that its namespace is there.
    Again,
    End(End),
}

struct Connection {
    server: Arc<Server>,
    stream: TcpStream,
    session: Session,
    state: ConnectionState,
    tally: Tally,
    /// How much is read at once.
    room: usize,
    out: Vec<u8>,
    turn: Arc<Turn>,
}

impl Connection {
    async fn run(&mut self, draining: Draining) -> io::Result<End> {
        let mut ends = pin!(draining.clone().begun());
        // A client that was let in a moment ago is heard out: its first command may be under way.
        let (mut ending, mut heard_out) = (None, false);
        let (mut input, mut parser) = (Vec::new(), Parser::default());
        let mut pace = Pace::new(self.server.timeouts);
        let mut timer = pin!(sleep_until(pace.next()));
        loop {
            let reading = async {
                if pace.rests {
                    // Nothing is held for a connection that is idle.
                    self.stream.readable().await?;
                    return Ok(None);
                }
                input.reserve(self.room);
                self.stream.read_buf(&mut input).await.map(Some)
            };
            let read = tokio::select! {
                // What has arrived is answered even when the service ends: only an idle connection is closed.
                biased;
                read = reading => read?,
                () = &mut ends, if !heard_out => {
                    if pace.fresh {
                        heard_out = true;
                        timer.as_mut().reset(Instant::now() + HEAR_OUT);
                        continue;
                    }
                    // One that was answered since may be sending more, which must not take the replies back.
                    return Ok(if ending.is_some() { End::NamespaceConfig } else { End::Quiet });
                }
                () = &mut timer => match pace.look() {
                    _ if heard_out && pace.fresh => return Ok(End::Quiet),
                    Look::Early => {
                        timer.as_mut().reset(pace.next());
                        continue;
                    }
                    Look::Rest => {
                        if input.is_empty() {
                            (input, self.out, self.room) = (Vec::new(), Vec::new(), READ_ROOM);
                            parser.shrink();
                            self.server.crowd.rested();
                        }
                        timer.as_mut().reset(pace.next());
                        continue;
                    }
                    Look::Idle => {
                        tracing::debug!(client = self.session.id, "idle RESP client disconnected");
                        return Ok(End::Quiet);
                    }
                    Look::Late => return Ok(self.late()),
                },
            };
            let Some(read) = read else {
                pace.rests = false;
                continue;
            };
            if read == 0 {
                return Ok(End::Quiet);
            }
            let full = input.len() == input.capacity();
            let came = Instant::now();
            self.turn.spend(read);
            let answered = self.answer(&mut parser, &mut input).await?;
            self.flush().await?;
            if let (Some(end), _) = answered {
                return Ok(end);
            }
            // From when a request had come until its reply was on its way, with what the others of its pipeline took.
            let now = Instant::now();
            self.server.metrics.took(Protocol::Resp, answered.1, now - came);
            if draining.has_begun() {
                let since = now - *ending.get_or_insert(now);
                if since > HEAR_OUT || (heard_out && answered.1 > 0) {
                    return Ok(End::NamespaceConfig);
                }
            }
            self.fit_room(full, read, &mut input, &mut parser);
            pace.answered(now, answered.1 > 0, !input.is_empty());
            if pace.next() < timer.deadline() {
                timer.as_mut().reset(pace.next());
            }
            self.turn.pass().await;
        }
    }

    /// Answers every whole command of the input, and leaves what is not one yet; also how many there were.
    async fn answer(&mut self, parser: &mut Parser, input: &mut Vec<u8>) -> io::Result<(Option<End>, u64)> {
        let (mut start, mut commands, mut created) = (0, 0, false);
        while start < input.len() {
            let (flow, len) = match self.call(parser, &input[start..]) {
                Ok(Some(called)) => called,
                Ok(None) => break,
                Err(error) => return Ok((Some(self.broken(error)), commands)),
            };
            match flow {
                Flow::Done => {}
                Flow::Execute(queued) => self.execute(queued).await?,
                flow => match self.follow(flow, created).await? {
                    Followed::Answered => {}
                    Followed::Again => {
                        created = true;
                        continue;
                    }
                    Followed::End(end) => return Ok((Some(end), commands)),
                },
            }
            (start, commands, created) = (start + len, commands + 1, false);
            self.flush_full().await?;
        }
        input.drain(..start);
        Ok((None, commands))
    }

    /// Does the command at the start of `input`: what is left to do of it, and how long it is. `None` if it is not there
    /// as a whole.
    #[inline]
    fn call(&mut self, parser: &mut Parser, input: &[u8]) -> Result<Option<(Flow, usize)>, ProtocolError> {
        let (args, len) = match parser.next(input)? {
            Step::Command { args, len } => (args, len),
            Step::Incomplete => return Ok(None),
        };
        if args.is_empty() {
            return Ok(Some((Flow::Done, len)));
        }
        let call = Call {
            server: &self.server,
            session: &mut self.session,
            connection: &mut self.state,
            tally: &mut self.tally,
            args,
            bytes: &input[..len],
            out: &mut self.out,
        };
        Ok(Some((call.run(), len)))
    }

    /// Does what was queued since `MULTI`, and answers all of it.
    async fn execute(&mut self, queued: Queued) -> io::Result<()> {
        reply::array(&mut self.out, queued.commands);
        let (mut parser, mut start, mut created) = (Parser::default(), 0, false);
        // Each was read once before it was queued.
        while let Ok(Some((flow, len))) = self.call(&mut parser, &queued.bytes[start..]) {
            match flow {
                Flow::Done => {}
                flow => {
                    if let Followed::Again = self.follow(flow, created).await? {
                        created = true;
                        continue;
                    }
                }
            }
            (start, created) = (start + len, false);
            self.flush_full().await?;
        }
        Ok(())
    }

    /// Does what is left to do of a command; `created` says that its namespace has been made.
    async fn follow(&mut self, flow: Flow, created: bool) -> io::Result<Followed> {
        match flow {
            Flow::Close => return Ok(Followed::End(End::NamespaceConfig)),
            Flow::Abandon => return Ok(Followed::End(End::Quiet)),
            Flow::Ids(request, ids) => self.write_ids(request, ids).await?,
            Flow::Create(name, unknown) => {
                self.flush().await?;
                match self.server.mint.create(&name, unknown).await {
                    Ok(()) if !created => return Ok(Followed::Again),
                    Ok(()) => {
                        self.refuse(&MintError::NotReady { why: "it was dropped meanwhile".to_owned() });
                    }
                    Err(error) => self.refuse(&error),
                }
            }
            flow => self.wait(flow).await?,
        }
        Ok(Followed::Answered)
    }

    #[cold]
    fn late(&mut self) -> End {
        let within = self.server.timeouts.request;
        tracing::debug!(client = self.session.id, "RESP client disconnected within a command");
        self.server.metrics.failed(Protocol::Resp, ErrorKind::BadRequest);
        let text = format!("Protocol error: incomplete command after {within:?}");
        reply::error(&mut self.out, ErrorKind::BadRequest.status().resp, text);
        End::NamespaceConfig
    }

    /// Replies that are there must not wait with the one that is not.
    async fn wait(&mut self, flow: Flow) -> io::Result<()> {
        self.flush().await?;
        match flow {
            Flow::Wait(request, part) => match request.namespace.wait(self.state.handles(), part).await {
                Ok(ids) => self.write_ids(request, ids).await?,
                Err(error) => self.refuse(&error),
            },
            Flow::Increment(namespace, count) => match namespace.take_run(count).await {
                Ok(run) => {
                    self.tally.issued(&self.server.metrics, &namespace, run.count().get());
                    reply::integer(&mut self.out, run.last());
                }
                Err(error) => self.refuse(&error),
            },
            _ => {}
        }
        Ok(())
    }

    fn refuse(&mut self, error: &MintError) {
        refuse(&self.server, &mut self.out, error);
    }

    async fn write_ids(&mut self, request: Request, mut ids: Ids) -> io::Result<()> {
        self.tally.issued(&self.server.metrics, &request.namespace, ids.len() as u64);
        if request.answer.array {
            reply::array(&mut self.out, ids.len());
        }
        let mut text = Vec::new();
        while let Some(id) = ids.next() {
            write_id(&mut self.out, &ids, id, request.answer.id, &mut text);
            self.flush_full().await?;
        }
        if ids.len() > 0 {
            return Err(io::Error::other("the system gave no more random bits"));
        }
        Ok(())
    }

    #[cold]
    fn broken(&mut self, error: ProtocolError) -> End {
        tracing::debug!(client = self.session.id, %error, "RESP client disconnected");
        self.server.metrics.failed(Protocol::Resp, ErrorKind::BadRequest);
        reply::error(&mut self.out, ErrorKind::BadRequest.status().resp, error);
        End::NamespaceConfig
    }

    /// Sends a full buffer, and lets other connections run when the turn is over: a client that reads as fast as we write
    /// never makes us wait, and two of them would keep every thread for as long as they have requests in line.
    async fn flush_full(&mut self) -> io::Result<()> {
        if self.out.len() >= FLUSH_AT {
            self.flush().await?;
            self.turn.pass().await;
        }
        Ok(())
    }

    /// Sends what there is, and adds up what was counted on the way.
    async fn flush(&mut self) -> io::Result<()> {
        self.tally.add_up(&self.server.metrics);
        let mut sent = 0;
        while sent < self.out.len() {
            let rest = &self.out[sent..];
            sent += match self.stream.try_write(rest) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The timer is only for a client that does not read: others never get here.
                    let within = self.server.timeouts.write;
                    timeout(within, self.stream.write(rest)).await.map_err(|_| stalled(within))??
                }
                Err(error) => return Err(error),
            };
        }
        self.turn.spend(sent);
        self.out.clear();
        Ok(())
    }

    /// Reads more at once while reads come in full, and gives room back when they no longer do.
    fn fit_room(&mut self, full: bool, read: usize, input: &mut Vec<u8>, parser: &mut Parser) {
        if full {
            self.room = (self.room * 2).min(MAX_READ_ROOM);
        } else if self.room > READ_ROOM && read < self.room / 8 {
            self.room = READ_ROOM;
            self.out = Vec::new();
            parser.shrink();
        }
        if input.is_empty() && input.capacity() > self.room {
            *input = Vec::with_capacity(self.room);
        }
        if self.out.capacity() > 4 * READ_ROOM {
            self.out = Vec::new();
        }
    }
}

#[cold]
fn stalled(within: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the client took nothing for {within:?}"))
}

/// How long the client takes. One timer is slept from deadline to deadline, so that a command costs none.
struct Pace {
    timeouts: Timeouts,
    /// When the last command was answered.
    answered: Instant,
    /// When the command began that is not there as a whole.
    begun: Option<Instant>,
    /// Whether nothing has come yet.
    fresh: bool,
    /// Whether the buffers were given back.
    rests: bool,
}

/// What it is time for.
enum Look {
    Early,
    /// To give the buffers back.
    Rest,
    /// To close: nothing was asked for long.
    Idle,
    /// To refuse: a command does not come to its end.
    Late,
}

impl Pace {
    fn new(timeouts: Timeouts) -> Self {
        Self { timeouts, answered: Instant::now(), begun: None, fresh: true, rests: true }
    }

    /// Something came; `any` command was whole, and a `part` of another one is left.
    fn answered(&mut self, now: Instant, any: bool, part: bool) {
        (self.fresh, self.rests, self.answered) = (false, false, now);
        self.begun = match self.begun.filter(|_| !any) {
            Some(begun) => Some(begun),
            None => part.then_some(now),
        };
    }

    /// When to look next.
    fn next(&self) -> Instant {
        /// Far enough for a timer that is never needed.
        const NEVER: Duration = Duration::from_hours(24 * 365);
        match (self.begun, self.rests) {
            (Some(begun), _) => begun + self.timeouts.request,
            (None, false) => self.answered + REST,
            (None, true) => self.answered + self.timeouts.idle.unwrap_or(NEVER),
        }
    }

    fn look(&mut self) -> Look {
        let now = Instant::now();
        if let Some(begun) = self.begun {
            return if now >= begun + self.timeouts.request { Look::Late } else { Look::Early };
        }
        if self.timeouts.idle.is_some_and(|idle| now >= self.answered + idle) {
            return Look::Idle;
        }
        if !self.rests && now >= self.answered + REST {
            self.rests = true;
            return Look::Rest;
        }
        Look::Early
    }
}
