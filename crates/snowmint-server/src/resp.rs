//! The Redis protocol, RESP2 and RESP3: serves one connection. `codec` parses, `command` asks the mint, `reply` writes;
//! `compat` answers the other commands of Redis.
//!
//! The connection reads what has arrived, answers all of it, and writes once. It sends output beyond a limit before it makes
//! more, so a client that does not read blocks only itself.

pub mod codec;
mod command;
mod compat;
mod reply;
mod session;

use std::io;
use std::pin::pin;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until};

use crate::accept::{Admission, reply_and_close};
use crate::connection::{ClientTimer, PendingCounts, TimerAction, send};
use crate::limits::resp::{MAX_READ_ROOM, READ_ROOM};
use crate::limits::{FLUSH_AT, HEAR_OUT, MAX_WAIT};
use crate::metrics::Protocol;
use crate::mint::{ConnectionState, IdRange, Ids, MintError};
use crate::shutdown::ShutdownListener;
use crate::state::ServerState;
use crate::status::ErrorKind;
use crate::stream::Stream;
use crate::tls::Accepted;
use crate::turns::Turn;
use codec::{Parser, ProtocolError, Step};
use command::{Call, IdReply, IdRequest, Outcome, refuse, write_id};
use session::{Queued, Session};

/// The answer when the connection limit is reached, as in Redis.
const REFUSAL: &[u8] = b"-ERR max number of clients reached\r\n";

/// Serves one connection until the client leaves, breaks the protocol or a time limit, or the service ends.
pub(crate) async fn serve(
    server: Arc<ServerState>,
    accepted: Accepted,
    admission: Admission,
    shutdown: ShutdownListener,
) {
    let Some(stream) = accepted.establish(&server, &shutdown).await else { return };
    if admission == Admission::Reserved {
        server.metrics.failed(Protocol::Resp, ErrorKind::TooManyClients);
        return reply_and_close(stream, REFUSAL).await;
    }
    let mut connection = Connection {
        session: Session::new(server.next_client()),
        counts: PendingCounts::new(Protocol::Resp),
        state: server.mint.connection_state(),
        room: READ_ROOM,
        out: Vec::new(),
        turn: Arc::default(),
        server,
        stream,
    };
    let (server, turn) = (Arc::clone(&connection.server), Arc::clone(&connection.turn));
    let ended = server.turns.take(&turn, connection.run(shutdown)).await;
    connection.counts.add_up(&connection.server.metrics);
    connection.session.transaction.end(&connection.server.queued);
    match ended {
        Ok(End::Quiet) => connection.stream.close().await,
        // `out` has the error; the client may still be sending.
        Ok(End::AfterReply) => reply_and_close(connection.stream, &connection.out).await,
        Err(error) => tracing::debug!(%error, "RESP connection failed"),
    }
}

/// How a connection ends that did not fail.
enum End {
    /// Close at once.
    Quiet,
    /// Send the output, then close.
    AfterReply,
}

/// What became of a command.
enum Handled {
    /// It is answered.
    Answered,
    /// Run it again: its namespace is created now.
    Again,
    End(End),
}

struct Connection {
    server: Arc<ServerState>,
    stream: Stream,
    session: Session,
    state: ConnectionState,
    counts: PendingCounts,
    /// The bytes to read at once.
    room: usize,
    out: Vec<u8>,
    turn: Arc<Turn>,
}

impl Connection {
    async fn run(&mut self, shutdown: ShutdownListener) -> io::Result<End> {
        let mut ends = pin!(shutdown.clone().ended());
        // The first command of a client that was just accepted may be on its way.
        let (mut ending, mut heard_out) = (None, false);
        let (mut input, mut parser) = (Vec::new(), Parser::default());
        let mut limits = ClientTimer::new(self.server.timeouts);
        let mut timer = pin!(sleep_until(limits.next()));
        loop {
            let reading = async {
                if limits.rests {
                    // An idle connection has no buffers.
                    self.stream.readable().await?;
                    return Ok(None);
                }
                input.reserve(self.room);
                self.stream.read_buf(&mut input).await.map(Some)
            };
            let read = tokio::select! {
                // Commands that have arrived are answered even at shutdown: only an idle connection is closed.
                biased;
                read = reading => read?,
                () = &mut ends, if !heard_out => {
                    if limits.fresh {
                        heard_out = true;
                        timer.as_mut().reset(Instant::now() + HEAR_OUT);
                        continue;
                    }
                    // After an answer the client may be sending more; closing over it would discard the answer.
                    return Ok(if ending.is_some() { End::AfterReply } else { End::Quiet });
                }
                () = &mut timer => match limits.look() {
                    _ if heard_out && limits.fresh => return Ok(End::Quiet),
                    TimerAction::Early => {
                        timer.as_mut().reset(limits.next());
                        continue;
                    }
                    TimerAction::Rest => {
                        if input.is_empty() {
                            (input, self.out, self.room) = (Vec::new(), Vec::new(), READ_ROOM);
                            parser.shrink();
                            self.server.memory.rested();
                        }
                        timer.as_mut().reset(limits.next());
                        continue;
                    }
                    TimerAction::Idle => {
                        tracing::debug!(client = self.session.id, "RESP client disconnected; idle");
                        return Ok(End::Quiet);
                    }
                    TimerAction::Late => return Ok(self.late()),
                },
            };
            let Some(read) = read else {
                limits.rests = false;
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
            // The time of a command includes that of the others in its pipeline.
            let now = Instant::now();
            self.server.metrics.took(Protocol::Resp, answered.1, now - came);
            if shutdown.is_ending() {
                let since = now - *ending.get_or_insert(now);
                if since > HEAR_OUT || (heard_out && answered.1 > 0) {
                    return Ok(End::AfterReply);
                }
            }
            self.fit_room(full, read, &mut input, &mut parser);
            limits.answered(now, answered.1 > 0, !input.is_empty());
            if limits.next() < timer.deadline() {
                timer.as_mut().reset(limits.next());
            }
            self.turn.pass().await;
        }
    }

    /// Answers every complete command of the input and removes it. Returns their number.
    async fn answer(&mut self, parser: &mut Parser, input: &mut Vec<u8>) -> io::Result<(Option<End>, u64)> {
        let (mut start, mut commands, mut created) = (0, 0, false);
        while start < input.len() {
            let (outcome, len) = match self.call(parser, &input[start..]) {
                Ok(Some(called)) => called,
                Ok(None) => break,
                Err(error) => return Ok((Some(self.broken(error)), commands)),
            };
            match outcome {
                Outcome::Done => {}
                Outcome::Execute(queued) => self.execute(queued).await?,
                outcome => match self.finish(outcome, created).await? {
                    Handled::Answered => {}
                    Handled::Again => {
                        created = true;
                        continue;
                    }
                    Handled::End(end) => return Ok((Some(end), commands)),
                },
            }
            (start, commands, created) = (start + len, commands + 1, false);
            self.flush_full().await?;
        }
        input.drain(..start);
        Ok((None, commands))
    }

    /// Runs the command at the start of `input`. Returns the outcome and the length of the command; `None` if it is
    /// incomplete.
    #[inline]
    fn call(&mut self, parser: &mut Parser, input: &[u8]) -> Result<Option<(Outcome, usize)>, ProtocolError> {
        let (args, len) = match parser.next(input)? {
            Step::Command { args, len } => (args, len),
            Step::Incomplete => return Ok(None),
        };
        if args.is_empty() {
            return Ok(Some((Outcome::Done, len)));
        }
        let call = Call {
            server: &self.server,
            session: &mut self.session,
            connection: &mut self.state,
            counts: &mut self.counts,
            args,
            bytes: &input[..len],
            out: &mut self.out,
        };
        Ok(Some((call.run(), len)))
    }

    /// Runs the commands of a transaction, and answers all of them.
    async fn execute(&mut self, queued: Queued) -> io::Result<()> {
        reply::array(&mut self.out, queued.commands);
        let (mut parser, mut start, mut created) = (Parser::default(), 0, false);
        // Each was parsed once before it was queued.
        while let Ok(Some((outcome, len))) = self.call(&mut parser, &queued.bytes[start..]) {
            match outcome {
                Outcome::Done => {}
                outcome => {
                    if let Handled::Again = self.finish(outcome, created).await? {
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

    /// Finishes a command. `created` says that its namespace was just created.
    async fn finish(&mut self, outcome: Outcome, created: bool) -> io::Result<Handled> {
        match outcome {
            Outcome::Close => return Ok(Handled::End(End::AfterReply)),
            Outcome::Abandon => return Ok(Handled::End(End::Quiet)),
            Outcome::Ids(request, ids) => self.write_ids(request, ids).await?,
            Outcome::Create(name, unknown) => {
                self.flush().await?;
                match self.server.mint.create(&name, unknown).await {
                    Ok(()) if !created => return Ok(Handled::Again),
                    Ok(()) => {
                        self.refuse(&MintError::NotReady { why: "it was dropped meanwhile".to_owned() });
                    }
                    Err(error) => self.refuse(&error),
                }
            }
            outcome => self.wait(outcome).await?,
        }
        Ok(Handled::Answered)
    }

    #[cold]
    fn late(&mut self) -> End {
        let within = self.server.timeouts.request;
        tracing::debug!(client = self.session.id, "RESP client disconnected; incomplete command");
        self.server.metrics.failed(Protocol::Resp, ErrorKind::BadRequest);
        let text = format!("Protocol error: incomplete command after {within:?}");
        reply::error(&mut self.out, ErrorKind::BadRequest.status().resp, text);
        End::AfterReply
    }

    /// Sends the replies so far, then waits for ids.
    async fn wait(&mut self, outcome: Outcome) -> io::Result<()> {
        self.flush().await?;
        match outcome {
            Outcome::Wait(request, part) => {
                match request.namespace.wait(self.state.handles(), part, MAX_WAIT).await {
                    Ok(ids) => self.write_ids(request, ids).await?,
                    Err(error) => self.refuse(&error),
                }
            }
            Outcome::Increment(namespace, count) => match namespace.take_run(count).await {
                Ok(run) => {
                    self.counts.issued(&self.server.metrics, &namespace, run.count().get());
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

    async fn write_ids(&mut self, request: IdRequest, mut ids: Ids) -> io::Result<()> {
        self.counts.issued(&self.server.metrics, &request.namespace, ids.len() as u64);
        if request.shape.id == IdReply::Range {
            return self.write_ranges(ids).await;
        }
        if request.shape.array {
            reply::array(&mut self.out, ids.len());
        }
        let mut text = Vec::new();
        while let Some(id) = ids.next() {
            write_id(&mut self.out, &ids, id, request.shape.id, &mut text);
            self.flush_full().await?;
        }
        if ids.len() > 0 {
            return Err(io::Error::other("the system has no more randomness"));
        }
        Ok(())
    }

    async fn write_ranges(&mut self, mut ids: Ids) -> io::Result<()> {
        let mut ranges = Vec::new();
        while let Some(range) = ids.next_range() {
            ranges.push(range);
        }
        reply::array(&mut self.out, ranges.len());
        for IdRange { first, count, step } in ranges {
            reply::array(&mut self.out, 3);
            reply::digits(&mut self.out, first);
            reply::integer(&mut self.out, count);
            reply::integer(&mut self.out, step);
            self.flush_full().await?;
        }
        Ok(())
    }

    #[cold]
    fn broken(&mut self, error: ProtocolError) -> End {
        tracing::debug!(client = self.session.id, %error, "RESP client disconnected");
        self.server.metrics.failed(Protocol::Resp, ErrorKind::BadRequest);
        reply::error(&mut self.out, ErrorKind::BadRequest.status().resp, error);
        End::AfterReply
    }

    /// Sends a full buffer, and lets other connections run if the turn is over. A client that reads as fast as we write never
    /// makes us wait: two of them would occupy both threads.
    async fn flush_full(&mut self) -> io::Result<()> {
        if self.out.len() >= FLUSH_AT {
            self.flush().await?;
            self.turn.pass().await;
        }
        Ok(())
    }

    /// Sends the output, and adds up the counts.
    async fn flush(&mut self) -> io::Result<()> {
        self.counts.add_up(&self.server.metrics);
        let sent = send(&mut self.stream, &self.out, self.server.timeouts.write).await?;
        self.turn.spend(sent);
        self.out.clear();
        Ok(())
    }

    /// Grows the read buffer while reads fill it, and shrinks it when they no longer do.
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
