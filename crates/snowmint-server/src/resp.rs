//! The Redis protocol, RESP2 and RESP3: serves one connection. `codec` parses, `command` asks the mint,
//! `reply` writes; `compat` answers the other commands of Redis.
//!
//! The connection reads what has arrived, answers all of it, and writes once. It sends output beyond a limit
//! before it makes more, so a client that does not read blocks only itself.

pub mod codec;
mod command;
mod command_table;
mod compat;
mod reply;
mod request_log;
mod session;

use std::borrow::Cow;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until};

use crate::access::Identity;
use crate::limits::resp::{FIRST_ROOM, MAX_READ_ROOM, READ_ROOM};
use crate::limits::{FLUSH_AT, LAST_REQUESTS};
use crate::load::fairness::Turn;
use crate::mint::{ConnectionState, Entry, IdRange, Ids, MintError};
use crate::protocol::{Admission, Protocol};
use crate::request_record::{RequestRecord, is_observed};
use crate::state::ServerState;
use crate::state::shutdown::ShutdownListener;
use crate::status::ErrorKind;
use crate::telemetry::access_log::{self, OK};
use crate::wire::accept::{Accepted, reply_and_close};
use crate::wire::stream::Stream;
use crate::wire::{ClientTimer, End, PendingCounts, TimerAction, send};
use codec::{Args, Parser, ProtocolError, Step};
use command::{Call, IdReply, IdRequest, Outcome, Unfinished, refuse, write_id};
use session::{Queued, Session};

/// Numbers that are written between two checks of the output's length: few compared to [`FLUSH_AT`].
const AT_ONCE: usize = 256;

/// The answer when the connection limit is reached, as in Redis.
const REFUSAL: &[u8] = b"-ERR max number of clients reached\r\n";

/// Serves one connection until the client leaves, breaks the protocol or exceeds a time limit, or the service
/// ends.
pub(crate) async fn serve(
    server: Arc<ServerState>,
    accepted: Accepted,
    admission: Admission,
    shutdown: ShutdownListener,
) {
    let Some(stream) = accepted.establish(&server, &shutdown).await else { return };
    if admission == Admission::Reserved {
        server.refused(Protocol::Resp, ErrorKind::TooManyClients);
        return reply_and_close(stream, REFUSAL).await;
    }
    let mut connection = Connection {
        session: Session::new(server.next_client(), server.anonymous()),
        counts: PendingCounts::new(Protocol::Resp),
        state: server.mint.connection_state(),
        room: FIRST_ROOM,
        out: Vec::new(),
        turn: Arc::default(),
        flushes: 0,
        logged: 0,
        server,
        stream,
    };
    let (server, turn) = (Arc::clone(&connection.server), Arc::clone(&connection.turn));
    let ended = server.turns.take(&turn, pin!(connection.run(shutdown))).await;
    connection.counts.add_up(&connection.server.metrics);
    connection.session.discard();
    match ended {
        Ok(End::Quiet) => connection.stream.close().await,
        // `out` has the error; the client may still be sending.
        Ok(End::AfterReply) => reply_and_close(connection.stream, &connection.out).await,
        Err(error) => tracing::debug!(%error, "RESP connection failed"),
    }
}

/// Whether a command is finished.
enum Handled {
    /// It is answered.
    Answered,
    /// Run it again: its namespace is created now.
    Again,
}

/// A command that is logged or traced, and the state before it runs.
struct Observed {
    record: RequestRecord,
    /// The length of the output.
    replied: usize,
    flushes: u64,
}

/// Writes nothing of a command that will run later.
fn omit(observed: Option<Observed>) {
    if let Some(observed) = observed {
        observed.record.omit();
    }
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
    /// How often output was sent.
    flushes: u64,
    /// The commands that were logged since then.
    logged: u64,
}

impl Connection {
    async fn run(&mut self, shutdown: ShutdownListener) -> io::Result<End> {
        let mut ends = pin!(shutdown.clone().ended());
        // The first command of a client that was just accepted may be on its way.
        let (mut ending, mut is_last_chance) = (None, false);
        let (mut input, mut parser) = (Vec::new(), Parser::default());
        let mut limits = ClientTimer::new(self.server.settings.timeouts);
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
                // Commands that have arrived are answered even at shutdown: only an idle connection is
                // closed.
                biased;
                read = reading => read?,
                () = &mut ends, if !is_last_chance => {
                    if limits.fresh {
                        is_last_chance = true;
                        timer.as_mut().reset(Instant::now() + LAST_REQUESTS);
                        continue;
                    }
                    // After an answer the client may be sending more; closing with unread input would discard
                    // the answer.
                    return Ok(if ending.is_some() { End::AfterReply } else { End::Quiet });
                }
                () = &mut timer => match limits.look() {
                    _ if is_last_chance && limits.fresh => return Ok(End::Quiet),
                    TimerAction::Early => {
                        timer.as_mut().reset(limits.next());
                        continue;
                    }
                    TimerAction::Rest => {
                        if input.is_empty() {
                            (input, self.out, self.room) = (Vec::new(), Vec::new(), FIRST_ROOM);
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
            self.state.read_more();
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
                if since > LAST_REQUESTS || (is_last_chance && answered.1 > 0) {
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
        self.session.identity.refresh();
        let is_recorded = is_observed(&self.server);
        while start < input.len() {
            let begins = start;
            let (outcome, len, mut observed) = match self.call(parser, &input[start..], is_recorded) {
                Ok(Some(called)) => called,
                Ok(None) => break,
                Err(error) => return Ok((Some(self.broken(error)), commands)),
            };
            match outcome {
                Outcome::Done => {}
                // Logged and traced once it has run.
                Outcome::Queued => omit(observed.take()),
                Outcome::Repeated(more) => (start, commands) = (start + more * len, commands + more as u64),
                Outcome::End(end) => {
                    if let Some(observed) = observed {
                        self.log_last(end, observed);
                    }
                    return Ok((Some(end), commands));
                }
                // Boxed, since an idle connection would otherwise reserve room for them.
                Outcome::Execute(queued) => {
                    Box::pin(self.execute(queued)).await?;
                    if let Some(observed) = observed.take() {
                        self.log_execute(observed);
                    }
                }
                Outcome::Unfinished(unfinished) => {
                    if let Handled::Again = Box::pin(self.finish(unfinished, created)).await? {
                        omit(observed);
                        created = true;
                        continue;
                    }
                }
            }
            (start, commands, created) = (start + len, commands + 1, false);
            if let Some(observed) = observed {
                self.log((start - begins) / len, observed);
            }
            self.flush_full().await?;
        }
        input.drain(..start);
        Ok((None, commands))
    }

    const fn identity(&self) -> &Identity {
        &self.session.identity
    }

    /// Starts to observe a command. If its client leaves before the answer, it is recorded as cancelled.
    #[cold]
    fn observe(&self, args: &Args<'_>) -> Observed {
        let record = request_log::begin(&self.server, self.identity(), args);
        Observed { record, replied: self.out.len(), flushes: self.flushes }
    }

    /// Returns the first word of the error that answered a command, if one did. The reply begins where the
    /// output did, or the output was sent in between.
    fn error_since(&self, observed: &Observed) -> Option<&[u8]> {
        let reply = if self.flushes == observed.flushes { &self.out[observed.replied..] } else { &self.out };
        reply.strip_prefix(b"-")?.split(|byte| matches!(byte, b' ' | b'\r')).next()
    }

    /// Writes the lines and spans of `times` equal commands.
    #[cold]
    fn log(&mut self, times: usize, mut observed: Observed) {
        let error = self.error_since(&observed).map(|error| String::from_utf8_lossy(error).into_owned());
        observed.record.ended(error.map_or(Cow::Borrowed(OK), Cow::Owned));
        // The command may have authenticated its client.
        observed.record.sent_by(self.identity());
        observed.record.repeated(times);
        self.logged += times as u64;
    }

    /// Writes the line and the span of `EXEC`, without an error: the reply may begin with that of a command.
    #[cold]
    fn log_execute(&mut self, mut observed: Observed) {
        observed.record.ended(OK);
        observed.record.sent_by(self.identity());
        self.logged += 1;
    }

    /// Writes the line and the span of the command that ended the connection. An HTTP request gets no answer.
    #[cold]
    fn log_last(&mut self, end: End, mut observed: Observed) {
        match end {
            End::AfterReply => self.log(1, observed),
            End::Quiet => observed.record.ended(ErrorKind::Unknown.status().resp),
        }
    }

    /// Runs the command at the start of `input`, and observes it if `is_recorded`. Returns the outcome and
    /// the length of the command; `None` if it is incomplete.
    #[inline]
    fn call(
        &mut self,
        parser: &mut Parser,
        input: &[u8],
        is_recorded: bool,
    ) -> Result<Option<(Outcome, usize, Option<Observed>)>, ProtocolError> {
        let (args, len) = match parser.next(input)? {
            Step::Command { args, len } => (args, len),
            Step::Incomplete => return Ok(None),
        };
        if args.is_empty() {
            return Ok(Some((Outcome::Done, len, None)));
        }
        let observed = is_recorded.then(|| self.observe(&args));
        let call = Call {
            server: &self.server,
            session: &mut self.session,
            connection: &mut self.state,
            counts: &mut self.counts,
            args,
            input,
            len,
            out: &mut self.out,
        };
        Ok(Some((call.run(), len, observed)))
    }

    /// Runs the commands of a transaction, and answers all of them.
    async fn execute(&mut self, queued: Queued) -> io::Result<()> {
        reply::array(&mut self.out, queued.commands());
        let (mut parser, mut created) = (Parser::default(), false);
        let is_recorded = is_observed(&self.server);
        let mut rest = request_log::Rest { identity: self.identity().clone(), commands: queued.bytes() };
        loop {
            let (here, mut times) = (rest.commands, 1);
            // Each was parsed once before it was queued.
            let Ok(Some((outcome, len, observed))) = self.call(&mut parser, here, is_recorded) else { break };
            rest.commands = &here[len..];
            match outcome {
                Outcome::Repeated(more) => {
                    times += more;
                    rest.commands = &here[times * len..];
                }
                // All but the first are not queued.
                Outcome::Done | Outcome::Queued | Outcome::End(_) | Outcome::Execute(_) => {}
                Outcome::Unfinished(unfinished) => {
                    if let Handled::Again = self.finish(unfinished, created).await? {
                        omit(observed);
                        (rest.commands, created) = (here, true);
                        continue;
                    }
                }
            }
            created = false;
            if let Some(observed) = observed {
                self.log(times, observed);
            }
            self.flush_full().await?;
        }
        Ok(())
    }

    /// Finishes a command. `created` says that its namespace was just created. Replies so far are sent before
    /// it waits.
    async fn finish(&mut self, unfinished: Unfinished, created: bool) -> io::Result<Handled> {
        if !matches!(unfinished, Unfinished::Ids(..)) {
            self.flush().await?;
        }
        match unfinished {
            Unfinished::Ids(request, ids) => self.write_ids(request, ids).await?,
            Unfinished::Partial(request, part) => match self.state.wait(&request.namespace, part).await {
                Ok(ids) => self.write_ids(request, ids).await?,
                Err(error) => self.refuse(&error),
            },
            Unfinished::Increment(namespace, count, spent) => {
                match self.state.take_run(&namespace, count).await {
                    Ok(run) => {
                        spent.keep();
                        self.counts.issued(&self.server.metrics, &namespace, run.count().get());
                        reply::integer(&mut self.out, run.last());
                    }
                    Err(error) => self.refuse(&error),
                }
            }
            Unfinished::Create(name, unknown) => {
                match self.state.create(&self.server.mint, &name, unknown).await {
                    Ok(()) if !created => return Ok(Handled::Again),
                    Ok(()) => {
                        self.refuse(&MintError::NotReady { why: "it was dropped meanwhile".to_owned() });
                    }
                    Err(error) => self.refuse(&error),
                }
            }
        }
        Ok(Handled::Answered)
    }

    #[cold]
    fn late(&mut self) -> End {
        let within = self.server.settings.timeouts.request;
        tracing::debug!(client = self.session.id, "RESP client disconnected; incomplete command");
        self.refuse_input(format!("Protocol error: incomplete command after {within:?}"))
    }

    fn refuse(&mut self, error: &MintError) {
        refuse(&self.server, &self.counts, &mut self.out, error);
    }

    async fn write_ids(&mut self, request: IdRequest, mut ids: Ids) -> io::Result<()> {
        let IdRequest { namespace, shape, spent } = request;
        spent.keep();
        self.counts.issued(&self.server.metrics, &namespace, ids.len() as u64);
        if shape.id == IdReply::Range {
            return self.write_ranges(ids).await;
        }
        if shape.array {
            reply::array(&mut self.out, ids.len());
        }
        if ids.are_plain_numbers() {
            return self.write_numbers(ids, shape.id).await;
        }
        let mut text = Vec::new();
        while let Some(id) = ids.next() {
            write_id(&mut self.out, &ids, id, shape.id, &mut text);
            self.flush_full().await?;
        }
        if ids.len() > 0 {
            return Err(io::Error::other("the system has no more randomness"));
        }
        Ok(())
    }

    async fn write_numbers(&mut self, mut ids: Ids, written: IdReply) -> io::Result<()> {
        let entry = if written == IdReply::Text { Entry::RespBulk } else { Entry::RESP_INTEGER };
        self.out.reserve(ids.len().saturating_mul(Entry::SPARE).min(FLUSH_AT));
        while ids.write_numbers(&mut self.out, AT_ONCE, entry) > 0 {
            self.flush_full().await?;
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
        self.refuse_input(error)
    }

    /// Refuses input that is not a command.
    fn refuse_input(&mut self, why: impl std::fmt::Display) -> End {
        let kind = ErrorKind::BadRequest;
        self.counts.failed(&self.server.metrics, kind);
        access_log::refused(Protocol::Resp, kind.status().resp);
        reply::error(&mut self.out, kind.status().resp, why);
        End::AfterReply
    }

    /// Sends a full buffer, and lets other connections run if the turn is over. A client that reads as fast
    /// as we write never makes us wait: two of them would occupy both threads.
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
        let sent = send(&mut self.stream, &self.out, self.server.settings.timeouts.write).await;
        let logged = std::mem::take(&mut self.logged);
        if sent.is_err() {
            access_log::unsent(Protocol::Resp, self.identity().name(), logged);
        }
        self.turn.spend(sent?);
        self.out.clear();
        self.flushes += 1;
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

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use proptest::prelude::*;
    use snowmint::Layout;
    use snowmint_cluster::NamespaceName;
    use snowmint_cluster::namespace::{Definition, Scheme, SegmentScheme};
    use snowmint_cluster::segment::{SegmentConfig, Segments, Stripe};
    use snowmint_store::{Counter, Key, MemoryStore};
    use tokio::net::UnixStream;

    use super::*;
    use crate::clock::SharedClock;
    use crate::limits::MAX_WAIT;
    use crate::mint::{Backend, Namespace};
    use crate::testing::{TestSource, mint_of};
    use crate::wire::listener::Socket;

    /// Commands with one id each, and everything that may stand between them.
    const COMMANDS: [&str; 28] = [
        "*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\n",
        "*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\n",
        "*2\r\n$7\r\nid.next\r\n$6\r\norders\r\n",
        "*2\r\n$7\r\nID.NEXT\r\n$7\r\nnumbers\r\n",
        "*2\r\n$4\r\nINCR\r\n$7\r\nnumbers\r\n",
        "*2\r\n$4\r\nINCR\r\n$7\r\nnumbers\r\n",
        "*2\r\n$4\r\nINCR\r\n$7\r\ndefault\r\n",
        "*2\r\n$7\r\nID.NEXT\r\n$4\r\nnope\r\n",
        "ID.NEXT texts\r\n",
        "INCR texts\r\n",
        "*2\r\n$07\r\nID.NEXT\r\n$7\r\ndefault\r\n",
        "ID.NEXT default\r\n",
        "ID.NEXT   \"default\"\n",
        "incr numbers\n",
        "INCRBY numbers 3\r\n",
        "ID.NEXT default COUNT 3\r\n",
        "ID.NEXT default INTEGER\r\n",
        "ID.RANGE default COUNT 20\r\n",
        "MULTI\r\n",
        "EXEC\r\n",
        "DISCARD\r\n",
        "HELLO 3\r\n",
        "RESET\r\n",
        "PING\r\n",
        "\r\n",
        "*0\r\n",
        "*1\r\n+x",
        "QUIT\r\n",
    ];

    /// What a client gets, and what is counted.
    #[derive(Debug, PartialEq)]
    struct Served {
        replies: Vec<u8>,
        requests: u64,
        issued: Vec<u64>,
    }

    /// Returns a server whose layout has 8 ids a tick, so that ticks end within a pipeline, and a counter
    /// without a refill.
    async fn server() -> Arc<ServerState> {
        let layout: Layout = "time:41 datacenter:4 worker:15 sequence:3 epoch:2020-01-01".parse().unwrap();
        let mint = mint_of(TestSource::new(layout), layout);
        let clock: SharedClock = Arc::new(snowmint::ManualClock::at_unix_ms(0));
        let mut namespaces = mint.table().namespaces().to_vec();
        for (name, text) in [("numbers", None), ("texts", Some("ORD-{number:6}".parse().unwrap()))] {
            let counter = Stripe::WHOLE.counter(Arc::new(MemoryStore::new()), Key::new("n").unwrap(), 1);
            let counters: Vec<Arc<dyn Counter>> = vec![Arc::new(counter)];
            let config = SegmentConfig::new().sizes(100_000..=100_000);
            let segments = Segments::start(counters, config, snowmint::ManualClock::at_unix_ms(0)).unwrap();
            segments.ready().await.unwrap();
            let definition = Definition {
                scheme: Scheme::Segment(SegmentScheme::new()),
                text,
                ..Definition::snowflake(Layout::TWITTER)
            };
            let name = NamespaceName::new(name).unwrap();
            namespaces.push(Arc::new(Namespace::new(name, definition, Backend::Segment(segments), &clock)));
        }
        mint.serve(namespaces);
        Arc::new(ServerState::for_tests(mint))
    }

    fn connection(server: &Arc<ServerState>, stream: UnixStream) -> Connection {
        Connection {
            flushes: 0,
            logged: 0,
            session: Session::new(7, server.anonymous()),
            counts: PendingCounts::new(Protocol::Resp),
            state: server.mint.connection_state(),
            room: FIRST_ROOM,
            out: Vec::new(),
            turn: Arc::default(),
            server: Arc::clone(server),
            stream: Stream::Unix(stream),
        }
    }

    /// Sends `input` in pieces of these lengths, the last of them again and again, and returns what comes
    /// back.
    async fn served(input: &[u8], pieces: &[usize]) -> Served {
        let server = server().await;
        let (near, mut far) = UnixStream::pair().unwrap();
        let reading = tokio::spawn(async move {
            let mut replies = Vec::new();
            far.read_to_end(&mut replies).await.unwrap();
            replies
        });
        let mut connection = connection(&server, near);
        let (mut buffered, mut parser, mut rest) = (Vec::new(), Parser::default(), input);
        let mut lengths = pieces.iter().chain(pieces.last().into_iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*lengths.next().unwrap()));
            buffered.extend_from_slice(piece);
            rest = after;
            if let (Some(_), _) = connection.answer(&mut parser, &mut buffered).await.unwrap() {
                break;
            }
        }
        connection.flush().await.unwrap();
        drop(connection);
        let issued = server.mint.table().namespaces().iter().map(|it| it.issued()).collect();
        let requests = server.metrics.requests(Protocol::Resp);
        Served { replies: reading.await.unwrap(), requests, issued }
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap().block_on(work)
    }

    /// Goal: commands that are answered together get what they would get one by one, whatever stands between
    /// them and however they arrive. Method: byte by byte, every command is the only one in the buffer.
    #[test]
    fn repeated_commands_are_answered_as_one_by_one() {
        let part = prop_oneof![
            8 => (0..COMMANDS.len(), prop_oneof![3 => Just(1_usize), 3 => 2..20_usize, 1 => 200..600_usize])
                .prop_map(|(command, times)| COMMANDS[command].as_bytes().repeat(times)),
            1 => proptest::collection::vec(any::<u8>(), 0..8),
        ];
        let parts = proptest::collection::vec(part, 1..8).prop_map(|parts| parts.concat());
        let pieces = proptest::collection::vec(1..700_usize, 1..20);
        let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
        proptest!(config, |(input in parts, pieces in pieces, cut in 0..40_usize)| {
            let input = &input[..input.len().saturating_sub(cut)];
            let one_by_one = block_on(served(input, &[1]));
            prop_assert_eq!(&block_on(served(input, &pieces)), &one_by_one);
            prop_assert_eq!(&block_on(served(input, &[usize::MAX])), &one_by_one);
        });
    }

    /// Goal: the commands of a transaction are answered as without one.
    #[test]
    fn repeated_commands_of_a_transaction_are_answered_as_without_one() {
        for command in COMMANDS[..6].iter().chain(&COMMANDS[8..10]) {
            let commands = command.repeat(300);
            let alone = block_on(served(commands.as_bytes(), &[usize::MAX]));
            let within = format!("MULTI\r\n{commands}EXEC\r\n");
            let within = block_on(served(within.as_bytes(), &[usize::MAX]));
            let before = format!("+OK\r\n{}*300\r\n", "+QUEUED\r\n".repeat(300));
            assert_eq!(within.replies.strip_prefix(before.as_bytes()), Some(&alone.replies[..]));
            assert_eq!(within.issued, alone.issued);
        }
    }

    /// Goal: a rejected command is answered as often as it was sent.
    #[test]
    fn each_repeated_command_gets_its_error() {
        let command = COMMANDS[7];
        let refused = block_on(served(command.repeat(600).as_bytes(), &[usize::MAX]));
        let replies = String::from_utf8(refused.replies).unwrap();
        assert!(replies.lines().all(|line| line.starts_with("-NONAMESPACE ")), "{replies}");
        assert_eq!((replies.lines().count(), refused.requests), (600, 600));
    }

    /// Goal: ten thousand idle connections fit into 60 MiB, so the task of one has at most 2 KiB.
    #[test]
    fn an_idle_connection_is_small() {
        block_on(async {
            let shutdown = crate::state::shutdown::Shutdown::new();
            let (near, _far) = UnixStream::pair().unwrap();
            let accepted = Accepted { socket: Socket::Unix(near), protocol: Protocol::Resp, tls: None };
            let task = serve(server().await, accepted, Admission::Client, shutdown.listener());
            let size = size_of_val(&task);
            assert!(size <= 2048, "{size} bytes");
        });
    }

    /// Goal: a pipeline waits for ids once, and its next input waits again. Method: a source that makes
    /// nothing, and the timer.
    #[test]
    fn a_pipeline_waits_in_vain_once() {
        block_on(async {
            let layout: Layout =
                "time:41 datacenter:4 worker:15 sequence:3 epoch:2020-01-01".parse().unwrap();
            let source = TestSource::new(layout);
            source.set_stuck(true);
            let server = Arc::new(ServerState::for_tests(mint_of(source.clone(), layout)));
            let (near, mut far) = UnixStream::pair().unwrap();
            let mut connection = connection(&server, near);
            let began = Instant::now();
            for nth in 1..=2 {
                let mut input = "ID.NEXT default COUNT 99\r\n".repeat(50).into_bytes();
                connection.state.read_more();
                connection.answer(&mut Parser::default(), &mut input).await.unwrap();
                connection.flush().await.unwrap();
                let mut replies = vec![0; 64 * 1024];
                let mut read = 0;
                while replies[..read].split(|byte| *byte == b'\n').count() <= 50 {
                    read += far.read(&mut replies[read..]).await.unwrap();
                }
                assert!(replies.starts_with(b"-TRYAGAIN 99 ids could not be made within 10s"));
                assert_eq!(began.elapsed().as_secs(), nth * MAX_WAIT.as_secs());
                assert_eq!(source.waits() as u64, nth);
            }
            let fewer = &mut b"ID.NEXT default COUNT 98\r\n".to_vec();
            connection.answer(&mut Parser::default(), fewer).await.unwrap();
            assert_eq!(source.waits(), 3, "fewer may be there");
        });
    }

    /// Goal: the access log tells answers that could not be sent, although each had its line before. Method:
    /// a client that left before a small pipeline was answered.
    #[test]
    fn answers_that_cannot_be_sent_are_logged_as_unsent() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(log.reopen().unwrap()).finish();
        let serving = async {
            let server = server().await;
            let (near, mut far) = UnixStream::pair().unwrap();
            let mut connection = connection(&server, near);
            let mut input = "PING\r\n".repeat(2).into_bytes();
            connection.answer(&mut Parser::default(), &mut input).await.unwrap();
            connection.flush().await.unwrap();
            far.read_exact(&mut [0; 14]).await.unwrap();
            drop(far);
            let mut input = "PING\r\n".repeat(3).into_bytes();
            connection.answer(&mut Parser::default(), &mut input).await.unwrap();
            connection.flush().await.unwrap_err();
        };
        tracing::subscriber::with_default(lines, || block_on(serving));
        let text = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(text.matches("outcome=\"ok\"").count(), 5, "{text}");
        let unsent: Vec<_> = text.lines().filter(|line| line.contains("outcome=\"unsent\"")).collect();
        assert!(matches!(&unsent[..], [line] if line.contains("requests=3 ")), "{text}");
    }

    /// Goal: a pipeline is really answered together; without it the tests above would compare the same with
    /// the same.
    #[test]
    fn a_pipeline_of_one_command_is_parsed_once() {
        block_on(async {
            let server = server().await;
            let (near, _far) = UnixStream::pair().unwrap();
            let mut connection = connection(&server, near);
            for (command, answered) in [(COMMANDS[0], 8), (COMMANDS[3], 256), (COMMANDS[4], 256)] {
                let input = command.repeat(300);
                let called = connection.call(&mut Parser::default(), input.as_bytes(), false);
                let called = called.unwrap().map(|(outcome, ..)| outcome);
                let Some(Outcome::Repeated(more)) = called else { panic!("{command}: {called:?}") };
                assert_eq!(more + 1, answered, "{command}");
            }
        });
    }
}
