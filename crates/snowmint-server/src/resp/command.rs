//! Runs commands, and answers the id commands. `command_table` lists all commands. Nothing here waits or
//! touches a socket: the connection gets an [`Outcome`] for what has to wait or is too long to be written at
//! once.

use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::sync::Arc;

use snowmint::error::Snippet;
use snowmint::inspect::{Value, Values};

use crate::access::{Identity, Right, Spent};
use crate::limits::MAX_REPEATS;
use crate::mint::{
    ConnectionState, Entry, Ids, InspectBy, MintError, Minted, Namespace, PartialIds, Taken, parse_count,
    parse_range_count,
};
use crate::resp::codec::Args;
use crate::resp::command_table::{CommandName, NO_AUTH, find_command};
use crate::resp::reply::{self, Version};
use crate::resp::session::{Queued, Session, Transaction};
use crate::state::ServerState;
use crate::status::ErrorKind;
use crate::wire::{End, PendingCounts};

/// Bytes of an unknown command that its error repeats, as in Redis.
const REPEATED: usize = 128;

/// What the connection has to do after a command.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is moved once; a box would be an allocation for each command"
)]
pub(super) enum Outcome {
    /// Nothing: the reply is written.
    Done,
    /// Nothing: it will run when the transaction is executed.
    Queued,
    /// Nothing: this command is answered, and this many of the same that follow it.
    Repeated(usize),
    /// Close the connection, at once or after the reply.
    End(End),
    /// Run these commands, and answer all of them.
    Execute(Queued),
    /// Finish the reply.
    Unfinished(Unfinished),
}

/// A command whose reply has to wait, or is too long to be written at once.
#[derive(Debug)]
pub(super) enum Unfinished {
    /// Write these ids.
    Ids(IdRequest, Ids),
    /// Wait for the rest of these ids, and write them all.
    Partial(IdRequest, PartialIds),
    /// Wait for this many consecutive numbers, and write the last.
    Increment(Arc<Namespace>, NonZeroU64, Spent),
    /// Create a namespace of this name, and run the command again.
    Create(Box<[u8]>, MintError),
}

/// A request for ids.
#[derive(Debug)]
pub(super) struct IdRequest {
    pub(super) namespace: Arc<Namespace>,
    pub(super) shape: ReplyShape,
    pub(super) spent: Spent,
}

/// The shape of a reply with ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyShape {
    /// Whether the reply is an array: with `COUNT`, even of one id.
    pub(super) array: bool,
    pub(super) id: IdReply,
}

/// The type of one id in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdReply {
    /// A bulk string, which no client rounds.
    Text,
    /// An integer, on request.
    Integer,
    /// Not each id, but ranges of them: arrays of the first id, the count and the step.
    Range,
}

/// One command, and everything it may use.
pub(super) struct Call<'a> {
    pub(super) server: &'a ServerState,
    pub(super) session: &'a mut Session,
    pub(super) connection: &'a mut ConnectionState,
    pub(super) counts: &'a mut PendingCounts,
    pub(super) args: Args<'a>,
    /// The command as it arrived, and what arrived after it.
    pub(super) input: &'a [u8],
    /// The length of the command.
    pub(super) len: usize,
    pub(super) out: &'a mut Vec<u8>,
}

impl Call<'_> {
    /// Runs the command; `args` has at least a name.
    #[inline]
    pub(super) fn run(mut self) -> Outcome {
        // The hot path. Everything else goes through the table.
        let at_once = matches!(self.session.transaction, Transaction::None);
        if at_once
            && !self.session.identity.is_anonymous()
            && self.args.len() == 2
            && self.args.at(0).eq_ignore_ascii_case(b"id.next")
        {
            return self.next_one();
        }
        self.look_up(at_once)
    }

    #[inline]
    fn next_one(&mut self) -> Outcome {
        let (namespace, handles) = match self.connection.find(self.args.at(1)) {
            Ok(found) => found,
            Err(error) => return self.unfound(error),
        };
        let identity = &self.session.identity;
        let (repeats, mut spent) = match spend_repeats(identity, self.args.at(1), self.input, self.len) {
            Ok(counted) => counted,
            Err(error) => return self.refuse(&error),
        };
        let worth_waiting = match repeats {
            0 => match namespace.try_one(handles) {
                Ok(Some(number)) => {
                    spent.keep();
                    self.counts.issued(&self.server.metrics, namespace, 1);
                    reply::digits(self.out, number);
                    return Outcome::Done;
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            },
            _ => match namespace.try_several(handles, repeats + 1) {
                Ok(Some(ids)) => {
                    let namespace = Arc::clone(namespace);
                    return self.write_one_each(&namespace, ids, Entry::RespBulk, spent);
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            },
        };
        // The commands that follow are answered one by one.
        spent.reduce_to(1);
        match worth_waiting {
            Ok(()) => {
                let namespace = Arc::clone(namespace);
                self.next_many(namespace, 1, ReplyShape { array: false, id: IdReply::Text }, spent)
            }
            Err(error) => self.refuse(&error),
        }
    }

    /// Answers this command and the same ones that follow it with one id each: as many as there are ids, of
    /// those that were counted towards the quota.
    fn write_one_each(
        &mut self,
        namespace: &Arc<Namespace>,
        mut ids: Ids,
        entry: Entry,
        mut spent: Spent,
    ) -> Outcome {
        let commands = ids.write_numbers(self.out, usize::MAX, entry);
        debug_assert!(commands > 0, "plain numbers, at least one");
        spent.reduce_to(commands as u64);
        spent.keep();
        self.counts.issued_one_each(&self.server.metrics, namespace, commands as u64);
        // Each command took at least one id.
        Outcome::Repeated(commands.saturating_sub(1))
    }

    fn look_up(&mut self, at_once: bool) -> Outcome {
        let Some(spec) = find_command(self.args.at(0)) else {
            self.fail_transaction();
            return self.unknown();
        };
        if !spec.takes(self.args.len()) {
            self.fail_transaction();
            let usage = spec.usage().map_or_else(String::new, |usage| format!(": expected {usage}"));
            return self.wrong_arguments(spec.text, &usage);
        }
        if !spec.flags.contains(&NO_AUTH)
            && let Err(error) = self.session.identity.verify()
        {
            self.fail_transaction();
            if self.session.identity.is_anonymous() {
                return self.fail(ErrorKind::Unauthorized, "Authentication required: send AUTH TOKEN first");
            }
            return self.refuse(&error);
        }
        if !at_once {
            return self.in_transaction(spec);
        }
        match spec.name {
            CommandName::IdNext => self.next(),
            CommandName::IdRange => self.next_ranges(),
            CommandName::IdInspect => self.inspect(),
            CommandName::Incr => self.increment(),
            CommandName::IncrBy => self.increment_by(),
            CommandName::Ping => self.ping(),
            CommandName::Echo => {
                reply::bulk(self.out, self.args.at(1));
                self.done()
            }
            CommandName::Hello => self.hello(),
            CommandName::Client => self.client(),
            CommandName::Command => self.command(),
            CommandName::Info => self.info(),
            CommandName::Config => self.config(),
            CommandName::Select => self.select(),
            CommandName::Auth => self.auth(),
            CommandName::Reset => self.reset(),
            CommandName::Quit => self.quit(),
            CommandName::Multi => self.multi(),
            CommandName::Exec => self.exec(),
            CommandName::Discard => self.discard(),
            CommandName::Watch => self.watch(),
            CommandName::Unwatch => self.ok(),
        }
    }

    pub(super) fn quit(&mut self) -> Outcome {
        reply::simple(self.out, "OK");
        self.counts.succeeded += 1;
        Outcome::End(End::AfterReply)
    }

    /// `ID.NEXT namespace [COUNT n] [INTEGER]`.
    fn next(&mut self) -> Outcome {
        if self.args.len() == 2 {
            return self.next_one();
        }
        if let Err(forbidden) = self.session.identity.may(Right::Mint, self.args.at(1)) {
            return self.refuse(&forbidden);
        }
        let (mut asked, mut id, mut at) = (None, IdReply::Text, 2);
        while at < self.args.len() {
            let word = self.args.at(at);
            if word.eq_ignore_ascii_case(b"integer") && id == IdReply::Text {
                id = IdReply::Integer;
                at += 1;
            } else if word.eq_ignore_ascii_case(b"count") && asked.is_none() && at + 1 < self.args.len() {
                asked = Some(parse_count(self.args.at(at + 1)));
                at += 2;
            } else {
                return self.syntax_error(at, "ID.NEXT NAMESPACE [COUNT n] [INTEGER]");
            }
        }
        let shape = ReplyShape { array: asked.is_some(), id };
        match (self.connection.find(self.args.at(1)), asked.unwrap_or(Ok(1))) {
            (Ok((namespace, _)), Ok(count)) => match check_written(namespace, id) {
                Ok(()) => {
                    let namespace = Arc::clone(namespace);
                    match self.session.identity.spend(self.args.at(1), count as u64) {
                        Ok(spent) => self.next_many(namespace, count, shape, spent),
                        Err(error) => self.refuse(&error),
                    }
                }
                Err(error) => self.refuse(&error),
            },
            (Err(error), Ok(_)) => self.unfound(error),
            // Invalid input creates no namespace.
            (Err(error), Err(_)) => self.unknown_namespace(error),
            (Ok(_), Err(error)) => self.refuse(&error),
        }
    }

    /// Rejects a command because of the argument at an index.
    #[cold]
    fn syntax_error(&mut self, at: usize, expected: &str) -> Outcome {
        let text = Snippet::of(&String::from_utf8_lossy(self.args.at(at))).to_string();
        self.fail(ErrorKind::BadRequest, &format!("syntax error near {text}: expected {expected}"))
    }

    /// `ID.RANGE namespace COUNT n`.
    fn next_ranges(&mut self) -> Outcome {
        if let Err(forbidden) = self.session.identity.may(Right::Mint, self.args.at(1)) {
            return self.refuse(&forbidden);
        }
        if !self.args.at(2).eq_ignore_ascii_case(b"count") {
            return self.syntax_error(2, "ID.RANGE NAMESPACE COUNT n");
        }
        match (self.connection.find(self.args.at(1)), parse_range_count(self.args.at(3))) {
            (Ok((namespace, handles)), Ok(count)) => {
                let spent = match self.session.identity.spend(self.args.at(1), count as u64) {
                    Ok(spent) => spent,
                    Err(error) => return self.refuse(&error),
                };
                let taken = namespace.try_take_ranges(handles, count);
                let shape = ReplyShape { array: true, id: IdReply::Range };
                let request = IdRequest { namespace: Arc::clone(namespace), shape, spent };
                self.unfinished(request, taken)
            }
            (Err(error), Ok(_)) => self.unfound(error),
            (Err(error), Err(_)) => self.unknown_namespace(error),
            (Ok(_), Err(error)) => self.refuse(&error),
        }
    }

    /// Takes ids that were counted towards the quota.
    fn next_many(
        &mut self,
        namespace: Arc<Namespace>,
        count: usize,
        shape: ReplyShape,
        spent: Spent,
    ) -> Outcome {
        let taken = namespace.try_take(self.connection.handles(), count);
        self.unfinished(IdRequest { namespace, shape, spent }, taken)
    }

    /// Returns what the connection has to finish: ids to write, or the rest to wait for.
    fn unfinished(&mut self, request: IdRequest, taken: Result<Taken, MintError>) -> Outcome {
        match taken {
            Ok(Taken::All(ids)) => Outcome::Unfinished(Unfinished::Ids(request, ids)),
            Ok(Taken::Partial(part)) => Outcome::Unfinished(Unfinished::Partial(request, part)),
            Err(error) => self.refuse(&error),
        }
    }

    /// `INCR namespace`: the next number of a counter.
    fn increment(&mut self) -> Outcome {
        let namespace = match self.connection.find(self.args.at(1)) {
            Ok((namespace, _)) => namespace,
            Err(error) => return self.unfound(error),
        };
        let identity = &self.session.identity;
        let (repeats, mut spent) = match spend_repeats(identity, self.args.at(1), self.input, self.len) {
            Ok(counted) => counted,
            Err(error) => return self.refuse(&error),
        };
        let worth_waiting = match repeats {
            0 => match namespace.try_increment() {
                Ok(Some(number)) => {
                    spent.keep();
                    self.counts.issued(&self.server.metrics, namespace, 1);
                    reply::integer(self.out, number);
                    return Outcome::Done;
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            },
            _ => match namespace.try_increments(repeats + 1) {
                Ok(Some(numbers)) => {
                    let namespace = Arc::clone(namespace);
                    return self.write_one_each(&namespace, numbers, Entry::RESP_INTEGER, spent);
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            },
        };
        spent.reduce_to(1);
        match worth_waiting {
            Ok(()) => {
                let namespace = Arc::clone(namespace);
                Outcome::Unfinished(Unfinished::Increment(namespace, NonZeroU64::MIN, spent))
            }
            Err(error) => self.refuse(&error),
        }
    }

    /// `INCRBY namespace n`: takes n consecutive numbers and answers the last.
    fn increment_by(&mut self) -> Outcome {
        if let Err(forbidden) = self.session.identity.may(Right::Mint, self.args.at(1)) {
            return self.refuse(&forbidden);
        }
        let by = self.args.at(2);
        let is_integer = std::str::from_utf8(by).is_ok_and(|by| by.parse::<i64>().is_ok());
        if !is_integer {
            return self.fail(ErrorKind::BadCount, "value is not an integer or out of range");
        }
        let count = parse_count(by).map(|count| NonZeroU64::new(count as u64).unwrap_or(NonZeroU64::MIN));
        match (self.connection.find(self.args.at(1)), count) {
            (Ok((namespace, _)), Ok(count)) => {
                let namespace = Arc::clone(namespace);
                match self.session.identity.spend(self.args.at(1), count.get()) {
                    Ok(spent) => Outcome::Unfinished(Unfinished::Increment(namespace, count, spent)),
                    Err(error) => self.refuse(&error),
                }
            }
            (Err(error), Ok(_)) => self.unfound(error),
            (Err(error), Err(_)) => self.unknown_namespace(error),
            (Ok(_), Err(error)) => self.refuse(&error),
        }
    }

    /// Creates an unknown namespace, if that is allowed.
    #[cold]
    fn unfound(&mut self, error: MintError) -> Outcome {
        let identity = &self.session.identity;
        let error = identity.unfound(&self.server.mint, Right::Mint, self.args.at(1), error);
        if matches!(error, MintError::UnknownNamespace { .. }) && self.server.mint.creates() {
            return Outcome::Unfinished(Unfinished::Create(self.args.at(1).into(), error));
        }
        self.refuse(&error)
    }

    #[cold]
    fn unknown_namespace(&mut self, error: MintError) -> Outcome {
        let identity = &self.session.identity;
        let error = identity.unfound(&self.server.mint, Right::Mint, self.args.at(1), error);
        self.refuse(&error)
    }

    /// `ID.INSPECT id [NAMESPACE name | LAYOUT spec]`; the fields of a layout may be one argument or several.
    fn inspect(&mut self) -> Outcome {
        let named = self.args.at(2);
        let layout;
        let by = match self.args.len() {
            2 => InspectBy::Anything,
            4 if named.eq_ignore_ascii_case(b"namespace") => InspectBy::Namespace(self.args.at(3)),
            4.. if named.eq_ignore_ascii_case(b"layout") => {
                layout = self.args.from(3).collect::<Vec<_>>().join(&b' ');
                InspectBy::Layout(&layout)
            }
            _ => return self.syntax_error(2, "ID.INSPECT id [NAMESPACE name | LAYOUT layout]"),
        };
        match self.session.identity.inspect(&self.server.mint, self.args.at(1), by) {
            Ok(inspection) => {
                write_values(self.out, self.session.version, &inspection.values());
                self.done()
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn ping(&mut self) -> Outcome {
        match self.args.len() {
            1 => reply::simple(self.out, "PONG"),
            2 => reply::bulk(self.out, self.args.at(1)),
            _ => return self.wrong_arity("ping"),
        }
        self.done()
    }

    pub(super) fn ok(&mut self) -> Outcome {
        reply::simple(self.out, "OK");
        self.done()
    }

    pub(super) fn done(&mut self) -> Outcome {
        self.counts.succeeded += 1;
        Outcome::Done
    }

    #[cold]
    pub(super) fn fail(&mut self, kind: ErrorKind, text: &str) -> Outcome {
        self.fail_as(kind, kind.status().resp, text)
    }

    /// Fails with a prefix of Redis that is not in the status table.
    #[cold]
    pub(super) fn fail_as(&mut self, kind: ErrorKind, prefix: &str, text: &str) -> Outcome {
        self.counts.failed(&self.server.metrics, kind);
        reply::error(self.out, prefix, text);
        Outcome::Done
    }

    #[cold]
    fn refuse(&mut self, error: &MintError) -> Outcome {
        refuse(self.server, self.counts, self.out, error);
        Outcome::Done
    }

    #[cold]
    pub(super) fn wrong_arity(&mut self, command: &str) -> Outcome {
        self.wrong_arguments(command, "")
    }

    #[cold]
    fn wrong_arguments(&mut self, command: &str, usage: &str) -> Outcome {
        let text = format!("wrong number of arguments for '{command}' command{usage}");
        self.fail(ErrorKind::BadRequest, &text)
    }

    #[cold]
    pub(super) fn unknown_subcommand(&mut self, command: &str) -> Outcome {
        let given = shortened(self.args.at(1), REPEATED);
        self.fail(ErrorKind::BadRequest, &format!("unknown subcommand '{given}'. Try {command} HELP."))
    }

    #[cold]
    fn unknown(&mut self) -> Outcome {
        // A web page can make a browser send HTTP here, with commands in the body. Redis closes as well.
        let name = self.args.at(0);
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            tracing::debug!("connection closed; HTTP request on the RESP port");
            self.counts.failed(&self.server.metrics, ErrorKind::Unknown);
            return Outcome::End(End::Quiet);
        }
        let mut args = String::new();
        for arg in self.args.from(1) {
            if args.len() >= REPEATED {
                break;
            }
            // Writing to a `String` never fails.
            let room = REPEATED - args.len();
            let _ = write!(args, "'{}' ", shortened(arg, room));
        }
        let text =
            format!("unknown command '{}', with args beginning with: {args}", shortened(name, REPEATED));
        self.fail(ErrorKind::Unknown, &text)
    }
}

/// Returns how many times the command of `len` bytes at the start of `input` follows itself without a gap, at
/// most [`MAX_REPEATS`]. Equal bytes are equal commands, so clients with a pipeline of one command are parsed
/// and served once.
#[inline]
fn repeats(input: &[u8], len: usize) -> usize {
    let after = &input[len..];
    if after.len() < len {
        return 0;
    }
    count_repeats(input, after, len)
}

/// Counts this command and its repeats towards the quota, or only this command if they exceed it together.
/// Returns the number of repeats that were counted.
#[inline]
fn spend_repeats(
    identity: &Identity,
    namespace: &[u8],
    input: &[u8],
    len: usize,
) -> Result<(usize, Spent), MintError> {
    let repeats = repeats(input, len);
    if repeats > 0
        && let Ok(spent) = identity.spend(namespace, repeats as u64 + 1)
    {
        return Ok((repeats, spent));
    }
    identity.spend(namespace, 1).map(|spent| (0, spent))
}

fn count_repeats(input: &[u8], after: &[u8], len: usize) -> usize {
    let most = MAX_REPEATS.min(after.len() / len);
    // Nearly always all of them are the same, which one comparison shows: each equals the one before it.
    if input[..most * len] == after[..most * len] {
        return most;
    }
    after.chunks_exact(len).take(most).take_while(|next| **next == input[..len]).count()
}

/// Writes an error of the mint.
#[cold]
pub(super) fn refuse(server: &ServerState, counts: &PendingCounts, out: &mut Vec<u8>, error: &MintError) {
    counts.failed(&server.metrics, error.kind());
    reply::error(out, error.kind().status().resp, error.answer());
}

/// Checks that the ids of a namespace can be answered as this type.
fn check_written(namespace: &Namespace, id: IdReply) -> Result<(), MintError> {
    match namespace.why_no_numbers() {
        Some(why) if id != IdReply::Text => {
            Err(MintError::NotIntegers { name: Snippet::of(namespace.name().as_str()), why })
        }
        _ => Ok(()),
    }
}

/// Writes an id. `text` is a buffer for ids that are not plain numbers.
#[inline]
pub(super) fn write_id(out: &mut Vec<u8>, ids: &Ids, id: Minted, written: IdReply, text: &mut Vec<u8>) {
    match (id, written) {
        (Minted::Number(number), IdReply::Integer | IdReply::Range) => reply::integer(out, number),
        (Minted::Number(number), IdReply::Text) if ids.are_plain_numbers() => reply::digits(out, number),
        (id, _) => {
            text.clear();
            ids.write(id, text);
            reply::bulk(out, text);
        }
    }
}

/// Writes a decoded id: a map, whose values may be lists of maps.
fn write_values(out: &mut Vec<u8>, version: Version, values: &Values) {
    reply::map(out, version, values.len());
    for (name, value) in values {
        reply::bulk(out, name.as_bytes());
        match value {
            Value::Number(number) => reply::integer(out, *number),
            // RESP2 has no fractions.
            Value::Real(number) => reply::bulk(out, number.to_string().as_bytes()),
            Value::Text(text) => reply::bulk(out, text.as_bytes()),
            Value::Texts(texts) => {
                reply::array(out, texts.len());
                for text in texts {
                    reply::bulk(out, text.as_bytes());
                }
            }
            Value::List(list) => {
                reply::array(out, list.len());
                for values in list {
                    write_values(out, version, values);
                }
            }
        }
    }
}

fn shortened(bytes: &[u8], limit: usize) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(limit)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::tests::limited;
    use crate::protocol::Protocol;
    use crate::resp::codec::{Parser, Step};
    use crate::testing;

    struct Client {
        server: ServerState,
        session: Session,
        connection: ConnectionState,
        counts: PendingCounts,
    }

    impl Client {
        fn new() -> Self {
            let server = ServerState::for_tests(testing::mint());
            let connection = server.mint.connection_state();
            let session = Session::new(7, server.anonymous());
            Self { server, session, connection, counts: PendingCounts::new(Protocol::Resp) }
        }

        /// Runs an inline command; returns the reply and the outcome for the connection.
        fn call(&mut self, line: &str) -> (String, Outcome) {
            let (mut parser, mut out) = (Parser::default(), Vec::new());
            let line = format!("{line}\n");
            let Ok(Step::Command { args, .. }) = parser.next(line.as_bytes()) else {
                panic!("{line} is not a command")
            };
            let Self { server, session, connection, counts } = self;
            let outcome = Call {
                server,
                session,
                connection,
                counts,
                args,
                input: line.as_bytes(),
                len: line.len(),
                out: &mut out,
            }
            .run();
            (String::from_utf8(out).unwrap(), outcome)
        }

        fn reply(&mut self, line: &str) -> String {
            let (reply, outcome) = self.call(line);
            assert!(matches!(outcome, Outcome::Done), "{line}: {outcome:?}");
            reply
        }
    }

    /// Goal: no client rounds an id: in both versions of the protocol an id is text, unless INTEGER is given.
    #[test]
    fn one_id_is_a_bulk_string_and_an_integer_only_on_request() {
        let mut client = Client::new();
        let first = client.reply("ID.NEXT default");
        client.reply("HELLO 3");
        let second = client.reply("id.next orders");
        let number = |reply: &str| {
            let digits = reply.trim_end().strip_prefix("$19\r\n").unwrap_or_else(|| panic!("{reply}"));
            digits.parse::<u64>().unwrap()
        };
        assert!(number(&first) < number(&second));
        for (line, array) in [
            ("ID.NEXT default INTEGER", false),
            ("ID.NEXT default integer COUNT 1", true),
            ("ID.NEXT default COUNT 1 INTEGER", true),
        ] {
            let Outcome::Unfinished(Unfinished::Ids(IdRequest { shape, .. }, mut ids)) = client.call(line).1
            else {
                panic!("{line}")
            };
            assert_eq!(shape, ReplyShape { array, id: IdReply::Integer }, "{line}");
            let (mut out, id) = (Vec::new(), ids.next().unwrap());
            write_id(&mut out, &ids, id, shape.id, &mut Vec::new());
            assert!(out.starts_with(b":") && out.len() == 22, "{line}: {}", String::from_utf8_lossy(&out));
        }
    }

    #[test]
    fn a_count_makes_an_array_even_of_one() {
        let mut client = Client::new();
        for (line, len) in [("ID.NEXT default COUNT 1", 1), ("Id.Next default cOuNt 0010", 10)] {
            let (reply, outcome) = client.call(line);
            let Outcome::Unfinished(Unfinished::Ids(IdRequest { shape, .. }, ids)) = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!(shape, ReplyShape { array: true, id: IdReply::Text });
            assert_eq!((reply.as_str(), ids.len()), ("", len));
        }
        // More ids than the tick has: the rest has to wait.
        assert!(matches!(
            client.call("ID.NEXT default COUNT 100000").1,
            Outcome::Unfinished(Unfinished::Partial(
                IdRequest { shape: ReplyShape { array: true, .. }, .. },
                _
            ))
        ));
    }

    /// Goal: a command whose client leaves while it waits costs no quota, and one with an answer only what it
    /// got. Method: what the connection waits for is dropped.
    #[test]
    fn a_dropped_wait_gives_its_ids_back() {
        let mut client = Client::new();
        client.session.identity = limited(100_000);
        for line in ["ID.NEXT default COUNT 100000", "ID.RANGE default COUNT 100000"] {
            let (_, outcome) = client.call(line);
            assert!(matches!(outcome, Outcome::Unfinished(Unfinished::Partial(..))), "{line}: {outcome:?}");
            assert!(client.session.identity.spend(b"default", 1).is_err(), "counted while it waits");
            drop(outcome);
            drop(client.session.identity.spend(b"default", 100_000).unwrap());
        }
    }

    #[test]
    fn errors_of_id_next_and_id_inspect() {
        let mut client = Client::new();
        for (line, wanted) in [
            (
                "ID.NEXT",
                "-ERR wrong number of arguments for 'id.next' command: expected ID.NEXT namespace [COUNT n] [INTEGER]\r\n",
            ),
            ("ID.NEXT default COUNT", "-ERR syntax error near "),
            ("ID.NEXT default LIMIT 5", "-ERR syntax error near "),
            ("ID.NEXT default COUNT 5 6", "-ERR syntax error near "),
            ("ID.NEXT default COUNT 5 COUNT 6", "-ERR syntax error near "),
            ("ID.NEXT default INTEGER INTEGER", "-ERR syntax error near "),
            ("ID.NEXT default INTEGER COUNT", "-ERR syntax error near "),
            ("ID.NEXT nope INTEGER", "-NONAMESPACE "),
            ("ID.NEXT default COUNT 0", "-ERR invalid count 0: expected 1 to 100000\r\n"),
            ("ID.NEXT default COUNT -1", "-ERR invalid count -1: "),
            ("ID.NEXT default COUNT 100001", "-ERR invalid count 100001: "),
            ("ID.NEXT default COUNT 1e9", "-ERR invalid count `1e9`: "),
            ("ID.NEXT default COUNT abc", "-ERR invalid count `abc`: "),
            ("ID.NEXT default COUNT \"\"", "-ERR invalid count ``: "),
            ("ID.NEXT nope", "-NONAMESPACE unknown namespace `nope`: this server has default, orders; "),
            ("ID.NEXT nope COUNT 0", "-NONAMESPACE "),
            ("ID.NEXT \"a\\r\\n+OK\"", "-ERR invalid namespace name `a\\r\\n+OK`: "),
            ("ID.INSPECT x", "-ERR invalid id `x`: "),
            ("ID.INSPECT x NAMESPACE default", "-ERR `x` is not an id of namespace `default`: "),
            ("ID.INSPECT 7 NAMESPACE nope", "-NONAMESPACE unknown namespace `nope`: "),
            ("ID.INSPECT 7 LAYOUT time:99", "-ERR invalid layout `time:99`: "),
            ("ID.INSPECT 7 LAYOUT", "-ERR syntax error"),
            ("ID.INSPECT 7 NAMESPACE default x", "-ERR syntax error"),
            ("ID.INSPECT 7 OF default", "-ERR syntax error"),
            (
                "ID.INSPECT",
                "-ERR wrong number of arguments for 'id.inspect' command: expected ID.INSPECT id [NAMESPACE name | LAYOUT \
                 spec]\r\n",
            ),
        ] {
            let reply = client.reply(line);
            assert!(reply.starts_with(wanted), "{line}: {reply}");
            assert!(reply.ends_with("\r\n") && reply.matches('\n').count() == 1, "{line}: {reply}");
        }
    }

    #[test]
    fn unknown_commands_get_the_error_of_redis() {
        let mut client = Client::new();
        assert_eq!(
            client.reply("foo a b"),
            "-ERR unknown command 'foo', with args beginning with: 'a' 'b' \r\n"
        );
        assert_eq!(client.reply("Foo"), "-ERR unknown command 'Foo', with args beginning with: \r\n");
        let long = client.reply(&format!("{} {} more", "x".repeat(300), "y".repeat(300)));
        let (name, arg) = ("x".repeat(128), "y".repeat(128));
        assert_eq!(long, format!("-ERR unknown command '{name}', with args beginning with: '{arg}' \r\n"));
        assert!(!client.reply("\"a\\r\\nb\" \"c\\nd\"").trim_end().contains(['\r', '\n']));
        for http in ["POST / HTTP/1.1", "Host: localhost"] {
            assert!(
                matches!(client.call(http), (reply, Outcome::End(End::Quiet)) if reply.is_empty()),
                "{http}"
            );
        }
    }

    #[test]
    fn inspect_in_both_versions() {
        let mut client = Client::new();
        let resp2 = client.reply("ID.INSPECT 1541815603606036480 NAMESPACE default");
        assert!(
            resp2.starts_with("*18\r\n$2\r\nid\r\n$19\r\n1541815603606036480\r\n$6\r\nlayout\r\n"),
            "{resp2}"
        );
        assert!(resp2.contains("$6\r\nworker\r\n:26\r\n"), "{resp2}");
        assert_eq!(client.reply("id.inspect 1541815603606036480 layout twitter"), resp2);
        let spec = "time:41 datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z";
        assert_eq!(client.reply(&format!("id.inspect 1541815603606036480 layout {spec}")), resp2);
        let all = client.reply("ID.INSPECT 1541815603606036480");
        let (head, guesses) = all.split_once("$7\r\nguesses\r\n").unwrap();
        // The bits of Leaf are the same, with one node field.
        let head = head.strip_suffix("$9\r\nnear_ties\r\n*1\r\n$4\r\nleaf\r\n").unwrap();
        assert_eq!(head.replacen("*22", "*18", 1), resp2);
        let first = "*14\r\n$4\r\nname\r\n$7\r\ntwitter\r\n$4\r\nform\r\n$7\r\ndecimal\r\n";
        let owners = "$10\r\nnamespaces\r\n*2\r\n$7\r\ndefault\r\n$6\r\norders\r\n";
        assert!(
            guesses.contains(first) && guesses.contains(owners) && guesses.contains("$4\r\nleaf\r\n"),
            "{guesses}"
        );
        client.reply("HELLO 3");
        let resp3 = client.reply("ID.INSPECT 1541815603606036480 NAMESPACE default");
        assert_eq!(resp3, resp2.replacen("*18", "%9", 1));
        let all = client.reply("ID.INSPECT 1541815603606036480");
        assert!(
            all.starts_with("%11\r\n") && all.contains("\r\n%7\r\n$4\r\nname\r\n$7\r\ntwitter\r\n"),
            "{all}"
        );
    }

    /// Goal: the name of a client is held as long as it is connected, so its length is limited.
    #[test]
    fn the_name_of_a_client_is_bounded() {
        use crate::limits::resp::MAX_CLIENT_NAME;
        let mut client = Client::new();
        let name = |bytes| format!("CLIENT SETNAME {}", "n".repeat(bytes));
        assert_eq!(client.reply(&name(MAX_CLIENT_NAME)), "+OK\r\n");
        let refused = client.reply(&name(MAX_CLIENT_NAME + 1));
        assert!(refused.starts_with("-ERR "), "{refused}");
    }

    #[test]
    fn hello_answers_and_changes_all_or_nothing() {
        let mut client = Client::new();
        let resp2 = client.reply("HELLO");
        assert!(resp2.starts_with("*14\r\n$6\r\nserver\r\n$8\r\nsnowmint\r\n$7\r\nversion\r\n"), "{resp2}");
        assert!(
            resp2.contains("$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:7\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n"),
            "{resp2}"
        );
        for (line, wanted) in [
            ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
            ("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"),
            ("HELLO 3 AUTH bob secret", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
            ("HELLO 3 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'\r\n"),
            ("HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'\r\n"),
            (
                "HELLO 3 SETNAME 'a b'",
                "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
            ),
        ] {
            assert_eq!(client.reply(line), wanted);
        }
        assert!(client.reply("HELLO").starts_with("*14"), "a refused HELLO changes nothing");
        assert!(client.reply("HELLO 3 AUTH default x SETNAME app").starts_with("%7\r\n"));
        assert_eq!(client.reply("CLIENT GETNAME"), "$3\r\napp\r\n");
        assert_eq!(client.reply("RESET"), "+RESET\r\n");
        assert_eq!(client.reply("CLIENT GETNAME"), "$-1\r\n");
    }

    #[test]
    fn commands_that_clients_send_when_they_connect() {
        let mut client = Client::new();
        for (line, wanted) in [
            ("PING", "+PONG\r\n"),
            ("PING hi", "$2\r\nhi\r\n"),
            ("PING a b", "-ERR wrong number of arguments for 'ping' command\r\n"),
            ("ECHO hi", "$2\r\nhi\r\n"),
            ("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n"),
            ("client setinfo lib-ver 7.0.1", "+OK\r\n"),
            ("CLIENT SETINFO LIB-X 1", "-ERR Unrecognized option 'lib-x'\r\n"),
            (
                "CLIENT SETINFO LIB-NAME 'a b'",
                "-ERR lib-name cannot contain spaces, newlines or special characters.\r\n",
            ),
            ("CLIENT SETNAME worker-1", "+OK\r\n"),
            ("CLIENT SETNAME", "-ERR wrong number of arguments for 'client|setname' command\r\n"),
            ("CLIENT GETNAME", "$8\r\nworker-1\r\n"),
            ("CLIENT ID", ":7\r\n"),
            ("CLIENT NO-EVICT ON", "+OK\r\n"),
            ("CLIENT NO-EVICT maybe", "-ERR syntax error\r\n"),
            ("CLIENT KILL x", "-ERR unknown subcommand 'KILL'. Try CLIENT HELP.\r\n"),
            ("SELECT 0", "+OK\r\n"),
            ("SELECT 1", "-ERR DB index is out of range\r\n"),
            ("SELECT x", "-ERR value is not an integer or out of range\r\n"),
            (
                "AUTH secret",
                "-ERR AUTH <password> called without any password configured for the default user. Are you sure \
                             your configuration is correct?\r\n",
            ),
            ("AUTH default x", "+OK\r\n"),
            ("AUTH bob x", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
            ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
            ("CONFIG GET nope", "*0\r\n"),
            ("CONFIG SET save x", "-ERR unknown subcommand 'SET'. Try CONFIG HELP.\r\n"),
            ("COMMAND COUNT", ":21\r\n"),
            ("COMMAND INFO nope", "*1\r\n*-1\r\n"),
            (
                "COMMAND INFO echo",
                "*1\r\n*10\r\n$4\r\necho\r\n:2\r\n*1\r\n+fast\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
            ),
            ("COMMAND NOPE", "-ERR unknown subcommand 'NOPE'. Try COMMAND HELP.\r\n"),
        ] {
            assert_eq!(client.reply(line), wanted, "{line}");
        }
        assert!(client.reply("COMMAND").starts_with("*21\r\n*10\r\n$7\r\nid.next\r\n:-2\r\n"));
        assert!(client.reply("COMMAND LIST").starts_with("*21\r\n$7\r\nid.next\r\n"));
        assert!(
            client
                .reply("COMMAND DOCS id.next")
                .starts_with("*2\r\n$7\r\nid.next\r\n*8\r\n$7\r\nsummary\r\n")
        );
        assert!(
            client.reply("CLIENT INFO").contains("name=worker-1 db=0 resp=2 lib-name=redis-py lib-ver=7.0.1")
        );
        assert!(client.reply("INFO server").contains("\r\n# Server\r\nredis_version:7.2.0\r\n"));
        assert!(matches!(client.call("QUIT"), (reply, Outcome::End(End::AfterReply)) if reply == "+OK\r\n"));
    }

    #[test]
    fn the_tally_reaches_the_metrics_by_namespace() {
        let mut client = Client::new();
        for line in ["ID.NEXT default", "ID.NEXT default", "ID.NEXT orders", "PING", "ID.NEXT nope"] {
            client.reply(line);
        }
        client.server.metrics.serves(Protocol::Resp);
        client.counts.add_up(&client.server.metrics);
        let text = client.server.metrics.text(crate::metrics::Exposition::OpenMetrics).unwrap();
        for wanted in [
            "snowmint_ids_issued_total{namespace=\"default\"} 2\n",
            "snowmint_ids_issued_total{namespace=\"orders\"} 1\n",
            "snowmint_requests_total{protocol=\"resp\",outcome=\"ok\"} 4\n",
            "snowmint_requests_total{protocol=\"resp\",outcome=\"unknown-namespace\"} 1\n",
        ] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
    }
}
