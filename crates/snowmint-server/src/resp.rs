//! The Redis protocol, RESP2 and RESP3: answers one connection. `codec` parses, `command` asks the mint,
//! `reply` writes; `compat` answers the other commands of Redis.

pub mod codec;
mod command;
mod command_table;
mod compat;
mod reply;
mod request_log;
mod session;

use std::borrow::Cow;
use std::io;

use crate::access::Identity;
use crate::limits::FLUSH_AT;
use crate::mint::{Entry, IdRange, Ids, MintError};
use crate::protocol::Protocol;
use crate::request_record::{RequestRecord, is_observed};
use crate::status::ErrorKind;
use crate::telemetry::access_log::{self, OK};
use crate::wire::{Dialogue, End, Wire};
use codec::{Args, Parser, ProtocolError, Step};
use command::{Call, IdReply, IdRequest, Outcome, Unfinished, refuse, write_id};
use session::{Queued, Session};

/// Numbers that are written between two checks of the output's length: few compared to [`FLUSH_AT`].
const AT_ONCE: usize = 256;

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

impl Observed {
    /// Starts to observe a command. If its client leaves before the answer, it is recorded as cancelled.
    #[cold]
    fn begin(wire: &Wire, identity: &Identity, args: &Args<'_>) -> Self {
        let record = request_log::begin(&wire.server, identity, args);
        Self { record, replied: wire.out.len(), flushes: wire.flushes }
    }
}

/// Writes nothing of a command that will run later.
fn omit(observed: Option<Observed>) {
    if let Some(observed) = observed {
        observed.record.omit();
    }
}

/// Answers the commands of one connection.
pub(crate) struct Connection {
    wire: Wire,
    session: Session,
    parser: Parser,
}

impl Dialogue for Connection {
    const PROTOCOL: Protocol = Protocol::Resp;
    /// As in Redis.
    const REFUSAL: &'static [u8] = b"-ERR max number of clients reached\r\n";

    fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    fn end(&mut self) {
        self.session.discard();
    }

    fn shrink(&mut self) {
        self.parser.shrink();
    }

    #[cold]
    fn end_late(&mut self) -> End {
        let within = self.wire.server.settings.timeouts.request;
        self.refuse_input(format!("Protocol error: incomplete command after {within:?}"))
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.wire.flush(self.session.identity.name()).await
    }

    async fn answer(&mut self, input: &mut Vec<u8>) -> io::Result<Result<u64, End>> {
        let (mut start, mut commands, mut created) = (0, 0, false);
        self.session.identity.refresh();
        let is_recorded = is_observed(&self.wire.server);
        while start < input.len() {
            let begins = start;
            let (outcome, len, mut observed) = match self.call(&input[start..], is_recorded) {
                Ok(Some(called)) => called,
                Ok(None) => break,
                Err(error) => return Ok(Err(self.broken(error))),
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
                    return Ok(Err(end));
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
        Ok(Ok(commands))
    }
}

impl Connection {
    pub(crate) fn new(wire: Wire) -> Self {
        let session = Session::new(wire.server.next_client(), wire.server.anonymous());
        Self { wire, session, parser: Parser::default() }
    }

    const fn identity(&self) -> &Identity {
        &self.session.identity
    }

    /// Returns the first word of the error that answered a command, if one did. The reply begins where the
    /// output did, or the output was sent in between.
    fn error_since(&self, observed: &Observed) -> Option<&[u8]> {
        let reply = if self.wire.flushes == observed.flushes {
            &self.wire.out[observed.replied..]
        } else {
            &self.wire.out
        };
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
        self.wire.logged += times as u64;
    }

    /// Writes the line and the span of `EXEC`, without an error: the reply may begin with that of a command.
    #[cold]
    fn log_execute(&mut self, mut observed: Observed) {
        observed.record.ended(OK);
        observed.record.sent_by(self.identity());
        self.wire.logged += 1;
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
        input: &[u8],
        is_recorded: bool,
    ) -> Result<Option<(Outcome, usize, Option<Observed>)>, ProtocolError> {
        let (args, len) = match self.parser.next(input)? {
            Step::Command { args, len } => (args, len),
            Step::Incomplete => return Ok(None),
        };
        if args.is_empty() {
            return Ok(Some((Outcome::Done, len, None)));
        }
        let observed = is_recorded.then(|| Observed::begin(&self.wire, &self.session.identity, &args));
        let call = Call {
            server: &self.wire.server,
            session: &mut self.session,
            connection: &mut self.wire.state,
            counts: &mut self.wire.counts,
            args,
            input,
            len,
            out: &mut self.wire.out,
        };
        Ok(Some((call.run(), len, observed)))
    }

    /// Runs the commands of a transaction, and answers all of them.
    async fn execute(&mut self, queued: Queued) -> io::Result<()> {
        reply::array(&mut self.wire.out, queued.commands());
        let mut created = false;
        let is_recorded = is_observed(&self.wire.server);
        let mut rest = request_log::Rest { identity: self.identity().clone(), commands: queued.bytes() };
        loop {
            let (here, mut times) = (rest.commands, 1);
            // Each was parsed once before it was queued.
            let Ok(Some((outcome, len, observed))) = self.call(here, is_recorded) else { break };
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
            Unfinished::Partial(request, part) => {
                match self.wire.state.wait(&request.namespace, part).await {
                    Ok(ids) => self.write_ids(request, ids).await?,
                    Err(error) => self.refuse(&error),
                }
            }
            Unfinished::Increment(namespace, count, spent) => {
                match self.wire.state.take_run(&namespace, count).await {
                    Ok(run) => {
                        spent.keep();
                        self.wire.counts.issued(&self.wire.server.metrics, &namespace, run.count().get());
                        reply::integer(&mut self.wire.out, run.last());
                    }
                    Err(error) => self.refuse(&error),
                }
            }
            Unfinished::Create(name, unknown) => {
                match self.wire.state.create(&self.wire.server.mint, &name, unknown).await {
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

    fn refuse(&mut self, error: &MintError) {
        refuse(&self.wire.server, &self.wire.counts, &mut self.wire.out, error);
    }

    async fn write_ids(&mut self, request: IdRequest, mut ids: Ids) -> io::Result<()> {
        let IdRequest { namespace, shape, spent } = request;
        spent.keep();
        self.wire.counts.issued(&self.wire.server.metrics, &namespace, ids.len() as u64);
        if shape.id == IdReply::Range {
            return self.write_ranges(ids).await;
        }
        if shape.array {
            reply::array(&mut self.wire.out, ids.len());
        }
        if ids.are_plain_numbers() {
            return self.write_numbers(ids, shape.id).await;
        }
        let mut text = Vec::new();
        while let Some(id) = ids.next() {
            write_id(&mut self.wire.out, &ids, id, shape.id, &mut text);
            self.flush_full().await?;
        }
        if ids.len() > 0 {
            return Err(io::Error::other("the system has no more randomness"));
        }
        Ok(())
    }

    async fn write_numbers(&mut self, mut ids: Ids, written: IdReply) -> io::Result<()> {
        let entry = if written == IdReply::Text { Entry::RespBulk } else { Entry::RESP_INTEGER };
        self.wire.out.reserve(ids.len().saturating_mul(Entry::SPARE).min(FLUSH_AT));
        while ids.write_numbers(&mut self.wire.out, AT_ONCE, entry) > 0 {
            self.flush_full().await?;
        }
        Ok(())
    }

    async fn write_ranges(&mut self, mut ids: Ids) -> io::Result<()> {
        let mut ranges = Vec::new();
        while let Some(range) = ids.next_range() {
            ranges.push(range);
        }
        reply::array(&mut self.wire.out, ranges.len());
        for IdRange { first, count, step } in ranges {
            reply::array(&mut self.wire.out, 3);
            reply::digits(&mut self.wire.out, first);
            reply::integer(&mut self.wire.out, count);
            reply::integer(&mut self.wire.out, step);
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
        self.wire.counts.failed(&self.wire.server.metrics, kind);
        access_log::refused(Protocol::Resp, kind.status().resp);
        reply::error(&mut self.wire.out, kind.status().resp, why);
        End::AfterReply
    }

    async fn flush_full(&mut self) -> io::Result<()> {
        self.wire.flush_full(self.session.identity.name()).await
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use snowmint::Layout;
    use snowmint_cluster::NamespaceName;
    use snowmint_cluster::namespace::{Definition, Scheme, SegmentScheme};
    use snowmint_cluster::segment::{SegmentConfig, Segments, Stripe};
    use snowmint_store::{Counter, Key, MemoryStore};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;
    use tokio::time::Instant;

    use super::*;
    use crate::clock::SharedClock;
    use crate::limits::MAX_WAIT;
    use crate::mint::{Backend, Namespace};
    use crate::protocol::Admission;
    use crate::state::ServerState;
    use crate::testing::{TestSource, mint_of};
    use crate::wire;
    use crate::wire::accept::Accepted;
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

    /// Returns the connection of a client, and its end.
    fn connection(server: &Arc<ServerState>) -> (Connection, UnixStream) {
        let (wire, client) = Wire::for_tests(Arc::clone(server), Protocol::Resp);
        (Connection::new(wire), client)
    }

    /// Sends `input` in pieces of these lengths, the last of them again and again, and returns what comes
    /// back.
    async fn served(input: &[u8], pieces: &[usize]) -> Served {
        let server = server().await;
        let (mut connection, mut far) = connection(&server);
        let reading = tokio::spawn(async move {
            let mut replies = Vec::new();
            far.read_to_end(&mut replies).await.unwrap();
            replies
        });
        let (mut buffered, mut rest) = (Vec::new(), input);
        let mut lengths = pieces.iter().chain(pieces.last().into_iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*lengths.next().unwrap()));
            buffered.extend_from_slice(piece);
            rest = after;
            if connection.answer(&mut buffered).await.unwrap().is_err() {
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
            let task = wire::serve(
                server().await,
                accepted,
                Admission::Client,
                shutdown.listener(),
                Connection::new,
            );
            let size = size_of_val(&task);
            assert!(size <= 2048, "{size} bytes");
        });
    }

    /// Goal: a pipeline that arrived before the service ended is answered to its last command, even if none
    /// of it had been read. Method: more than one read takes, which the runtime has not noticed yet.
    #[test]
    fn a_pipeline_that_nobody_has_read_is_answered_at_the_end() {
        const PINGS: usize = 500;
        block_on(async {
            let server = server().await;
            let shutdown = crate::state::shutdown::Shutdown::new();
            let (near, mut far) = UnixStream::pair().unwrap();
            far.write_all(&b"PING\r\n".repeat(PINGS)).await.unwrap();
            shutdown.begin();
            let accepted = Accepted { socket: Socket::Unix(near), protocol: Protocol::Resp, tls: None };
            let serving =
                wire::serve(server, accepted, Admission::Client, shutdown.listener(), Connection::new);
            let mut replies = Vec::new();
            let ((), read) = tokio::join!(serving, far.read_to_end(&mut replies));
            read.unwrap();
            assert_eq!(replies.len(), PINGS * b"+PONG\r\n".len());
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
            let (mut connection, mut far) = connection(&server);
            let began = Instant::now();
            for nth in 1..=2 {
                let mut input = "ID.NEXT default COUNT 99\r\n".repeat(50).into_bytes();
                connection.wire.state.read_more();
                connection.answer(&mut input).await.unwrap().unwrap();
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
            connection.answer(fewer).await.unwrap().unwrap();
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
            let (mut connection, mut far) = connection(&server);
            let mut input = "PING\r\n".repeat(2).into_bytes();
            connection.answer(&mut input).await.unwrap().unwrap();
            connection.flush().await.unwrap();
            far.read_exact(&mut [0; 14]).await.unwrap();
            drop(far);
            let mut input = "PING\r\n".repeat(3).into_bytes();
            connection.answer(&mut input).await.unwrap().unwrap();
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
            let (mut connection, _far) = connection(&server);
            for (command, answered) in [(COMMANDS[0], 8), (COMMANDS[3], 256), (COMMANDS[4], 256)] {
                let input = command.repeat(300);
                let called = connection.call(input.as_bytes(), false);
                let called = called.unwrap().map(|(outcome, ..)| outcome);
                let Some(Outcome::Repeated(more)) = called else { panic!("{command}: {called:?}") };
                assert_eq!(more + 1, answered, "{command}");
            }
        });
    }
}
