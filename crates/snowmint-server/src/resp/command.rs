//! Commands to the mint, replies to the output: no socket and no waiting here.
//! What has to wait, or is too long to be written at once, is handed back to the connection.

use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::sync::Arc;

use snowmint::error::Snippet;
use snowmint::inspect::{Value, Values};

use crate::metrics::Protocol;
use crate::mint::{
    ConnectionState, Ids, InspectBy, MintError, Minted, Namespace, PartialIds, Taken, parse_count,
};
use crate::resp::codec::Args;
use crate::resp::info;
use crate::resp::reply::{self, Version};
use crate::resp::session::Session;
use crate::resp::table::{self, Name, Spec, TABLE};
use crate::resp::tally::Tally;
use crate::resp::transaction::{Queued, Transaction};
use crate::server::Server;
use crate::status::ErrorKind;

/// Bytes of a bad command that its error repeats, as in Redis.
const REPEATED: usize = 128;

/// What is left to do after a command.
#[derive(Debug)]
pub(super) enum Flow {
    /// Nothing: the reply is written.
    Done,
    /// Send what there is and close.
    Close,
    /// Close without a word.
    Abandon,
    /// Write these ids.
    Ids(Request, Ids),
    /// Wait for the rest of these ids, and write them all.
    Wait(Request, PartialIds),
    /// Wait for so many numbers in a row, and write the last.
    Increment(Arc<Namespace>, NonZeroU64),
    /// Make a namespace of this name, and do the command again.
    Create(Box<[u8]>, MintError),
    /// Do these commands, and answer all of them.
    Execute(Queued),
}

/// Ids that were asked for.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) namespace: Arc<Namespace>,
    pub(super) answer: Answer,
}

/// How ids are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// With `COUNT` the reply is an array, also of one.
    pub(super) array: bool,
    pub(super) id: Written,
}

/// How one id is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// As a bulk string, which no client rounds.
    Text,
    /// As an integer, on request.
    Integer,
}

/// One command, and all it may touch.
pub(super) struct Call<'a> {
    pub(super) server: &'a Server,
    pub(super) session: &'a mut Session,
    pub(super) connection: &'a mut ConnectionState,
    pub(super) tally: &'a mut Tally,
    pub(super) args: Args<'a>,
    /// The command as it came.
    pub(super) bytes: &'a [u8],
    pub(super) out: &'a mut Vec<u8>,
}

impl Call<'_> {
    /// Does what the command says; `args` has at least a name.
    #[inline]
    pub(super) fn run(mut self) -> Flow {
        // The hot path: everything else goes through the table.
        let at_once = matches!(self.session.transaction, Transaction::None);
        if at_once && self.args.len() == 2 && self.args.at(0).eq_ignore_ascii_case(b"id.next") {
            return self.next_one();
        }
        self.look_up(at_once)
    }

    #[inline]
    fn next_one(&mut self) -> Flow {
        let (namespace, handles) = match self.connection.find(self.args.at(1)) {
            Ok(found) => found,
            Err(error) => return self.unfound(error),
        };
        match namespace.try_one(handles) {
            Ok(Some(number)) => {
                self.tally.issued(&self.server.metrics, namespace, 1);
                reply::digits(self.out, number);
                Flow::Done
            }
            Ok(None) => {
                let namespace = Arc::clone(namespace);
                self.next_many(namespace, 1, Answer { array: false, id: Written::Text })
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn look_up(&mut self, at_once: bool) -> Flow {
        let Some(spec) = table::find(self.args.at(0)) else {
            self.fail_transaction();
            return self.unknown();
        };
        if !spec.takes(self.args.len()) {
            self.fail_transaction();
            return self.wrong_arity(spec.text);
        }
        if !at_once {
            return self.in_transaction(spec);
        }
        match spec.name {
            Name::IdNext => self.next(),
            Name::IdInspect => self.inspect(),
            Name::Incr => self.increment(),
            Name::IncrBy => self.increment_by(),
            Name::Ping => self.ping(),
            Name::Echo => {
                reply::bulk(self.out, self.args.at(1));
                self.done()
            }
            Name::Hello => self.hello(),
            Name::Client => self.client(),
            Name::Command => self.command(),
            Name::Info => self.info(),
            Name::Config => self.config(),
            Name::Select => self.select(),
            Name::Auth => self.auth(),
            Name::Reset => self.reset(),
            Name::Quit => self.quit(),
            Name::Multi => self.multi(),
            Name::Exec => self.exec(),
            Name::Discard => self.discard(),
            Name::Watch => self.watch(),
            Name::Unwatch => self.ok(),
        }
    }

    pub(super) fn quit(&mut self) -> Flow {
        reply::simple(self.out, "OK");
        self.tally.succeeded += 1;
        Flow::Close
    }

    /// `ID.NEXT namespace [COUNT n] [INTEGER]`.
    fn next(&mut self) -> Flow {
        if self.args.len() == 2 {
            return self.next_one();
        }
        let (mut asked, mut id, mut at) = (None, Written::Text, 2);
        while at < self.args.len() {
            let word = self.args.at(at);
            if word.eq_ignore_ascii_case(b"integer") && id == Written::Text {
                id = Written::Integer;
                at += 1;
            } else if word.eq_ignore_ascii_case(b"count") && asked.is_none() && at + 1 < self.args.len() {
                asked = Some(parse_count(self.args.at(at + 1)));
                at += 2;
            } else {
                return self.fail(ErrorKind::BadRequest, "syntax error");
            }
        }
        let answer = Answer { array: asked.is_some(), id };
        match (self.connection.find(self.args.at(1)), asked.unwrap_or(Ok(1))) {
            (Ok((namespace, _)), Ok(count)) => match check_written(namespace, id) {
                Ok(()) => {
                    let namespace = Arc::clone(namespace);
                    self.next_many(namespace, count, answer)
                }
                Err(error) => self.refuse(&error),
            },
            (Err(error), Ok(_)) => self.unfound(error),
            // Bad input makes no namespace.
            (Err(error), Err(_)) | (Ok(_), Err(error)) => self.refuse(&error),
        }
    }

    fn next_many(&mut self, namespace: Arc<Namespace>, count: usize, answer: Answer) -> Flow {
        match namespace.try_take(self.connection.handles(), count) {
            Ok(Taken::All(ids)) => Flow::Ids(Request { namespace, answer }, ids),
            Ok(Taken::Partial(part)) => Flow::Wait(Request { namespace, answer }, part),
            Err(error) => self.refuse(&error),
        }
    }

    /// `INCR namespace`: the next number of a counter.
    fn increment(&mut self) -> Flow {
        let namespace = match self.connection.find(self.args.at(1)) {
            Ok((namespace, _)) => namespace,
            Err(error) => return self.unfound(error),
        };
        match namespace.try_increment() {
            Ok(Some(number)) => {
                self.tally.issued(&self.server.metrics, namespace, 1);
                reply::integer(self.out, number);
                Flow::Done
            }
            Ok(None) => Flow::Increment(Arc::clone(namespace), NonZeroU64::MIN),
            Err(error) => self.refuse(&error),
        }
    }

    /// `INCRBY namespace n`: n numbers in a row, of which the last is told.
    fn increment_by(&mut self) -> Flow {
        let by = self.args.at(2);
        let is_integer = std::str::from_utf8(by).is_ok_and(|by| by.parse::<i64>().is_ok());
        if !is_integer {
            return self.fail(ErrorKind::BadCount, "value is not an integer or out of range");
        }
        let count = parse_count(by).map(|count| NonZeroU64::new(count as u64).unwrap_or(NonZeroU64::MIN));
        match (self.connection.find(self.args.at(1)), count) {
            (Ok((namespace, _)), Ok(count)) => Flow::Increment(Arc::clone(namespace), count),
            (Err(error), Ok(_)) => self.unfound(error),
            (Err(error), Err(_)) | (Ok(_), Err(error)) => self.refuse(&error),
        }
    }

    /// No such namespace; it may become one.
    #[cold]
    fn unfound(&mut self, error: MintError) -> Flow {
        if matches!(error, MintError::UnknownNamespace { .. }) && self.server.mint.creates() {
            return Flow::Create(self.args.at(1).into(), error);
        }
        self.refuse(&error)
    }

    /// `ID.INSPECT id [NAMESPACE name | LAYOUT spec]`; the fields of a layout may be one argument or several.
    fn inspect(&mut self) -> Flow {
        let named = self.args.at(2);
        let layout;
        let by = match self.args.len() {
            2 => InspectBy::Anything,
            4 if named.eq_ignore_ascii_case(b"namespace") => InspectBy::Namespace(self.args.at(3)),
            4.. if named.eq_ignore_ascii_case(b"layout") => {
                layout = self.args.from(3).collect::<Vec<_>>().join(&b' ');
                InspectBy::Layout(&layout)
            }
            _ => return self.fail(ErrorKind::BadRequest, "syntax error"),
        };
        match self.server.mint.inspect(self.args.at(1), by) {
            Ok(inspection) => {
                write_values(self.out, self.session.version, &inspection.values());
                self.done()
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn ping(&mut self) -> Flow {
        match self.args.len() {
            1 => reply::simple(self.out, "PONG"),
            2 => reply::bulk(self.out, self.args.at(1)),
            _ => return self.wrong_arity("ping"),
        }
        self.done()
    }

    fn command(&mut self) -> Flow {
        let (out, version) = (&mut *self.out, self.session.version);
        let sub = self.args.at(1).to_ascii_lowercase();
        match (&*sub, self.args.len()) {
            (b"", 1) | (b"info", 2) => {
                reply::array(out, TABLE.len());
                for spec in &TABLE {
                    spec.write_info(out);
                }
            }
            (b"count", 2) => reply::integer(out, TABLE.len() as u64),
            (b"list", 2) => {
                reply::array(out, TABLE.len());
                for spec in &TABLE {
                    reply::bulk(out, spec.text.as_bytes());
                }
            }
            (b"info", _) => {
                reply::array(out, self.args.len() - 2);
                for name in self.args.from(2) {
                    match table::find(name) {
                        Some(spec) => spec.write_info(out),
                        None => reply::null_array(out, version),
                    }
                }
            }
            (b"docs", _) => {
                let asked = |spec: &&Spec| {
                    self.args.len() == 2
                        || self.args.from(2).any(|name| name.eq_ignore_ascii_case(spec.text.as_bytes()))
                };
                reply::map(out, version, TABLE.iter().filter(asked).count());
                for spec in TABLE.iter().filter(asked) {
                    spec.write_docs(out, version);
                }
            }
            _ => return self.unknown_subcommand("COMMAND"),
        }
        self.done()
    }

    fn info(&mut self) -> Flow {
        let text = info::text(self.server, self.args.from(1));
        reply::verbatim(self.out, self.session.version, &text);
        self.done()
    }

    fn config(&mut self) -> Flow {
        if !self.args.at(1).eq_ignore_ascii_case(b"get") {
            return self.unknown_subcommand("CONFIG");
        }
        if self.args.len() < 3 {
            return self.wrong_arity("config|get");
        }
        let found = info::config(self.server, self.args.from(2));
        reply::map(self.out, self.session.version, found.len());
        for (name, value) in found {
            reply::bulk(self.out, name.as_bytes());
            reply::bulk(self.out, value.as_bytes());
        }
        self.done()
    }

    pub(super) fn ok(&mut self) -> Flow {
        reply::simple(self.out, "OK");
        self.done()
    }

    pub(super) fn done(&mut self) -> Flow {
        self.tally.succeeded += 1;
        Flow::Done
    }

    #[cold]
    pub(super) fn fail(&mut self, kind: ErrorKind, text: &str) -> Flow {
        self.fail_as(kind, kind.status().resp, text)
    }

    /// As `fail`, with a prefix that clients know from Redis.
    #[cold]
    pub(super) fn fail_as(&mut self, kind: ErrorKind, prefix: &str, text: &str) -> Flow {
        self.server.metrics.failed(Protocol::Resp, kind);
        reply::error(self.out, prefix, text);
        Flow::Done
    }

    #[cold]
    fn refuse(&mut self, error: &MintError) -> Flow {
        refuse(self.server, self.out, error);
        Flow::Done
    }

    #[cold]
    pub(super) fn wrong_arity(&mut self, command: &str) -> Flow {
        self.fail(ErrorKind::BadRequest, &format!("wrong number of arguments for '{command}' command"))
    }

    #[cold]
    pub(super) fn unknown_subcommand(&mut self, command: &str) -> Flow {
        let given = shortened(self.args.at(1), REPEATED);
        self.fail(ErrorKind::BadRequest, &format!("unknown subcommand '{given}'. Try {command} HELP."))
    }

    #[cold]
    fn unknown(&mut self) -> Flow {
        // A web page can make a browser send HTTP here, with commands in its body: Redis closes as well.
        let name = self.args.at(0);
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            tracing::debug!("HTTP on the RESP port: closing");
            return Flow::Abandon;
        }
        let mut args = String::new();
        for arg in self.args.from(1) {
            if args.len() >= REPEATED {
                break;
            }
            // A `String` takes whatever is written to it.
            let room = REPEATED - args.len();
            let _ = write!(args, "'{}' ", shortened(arg, room));
        }
        let text =
            format!("unknown command '{}', with args beginning with: {args}", shortened(name, REPEATED));
        self.fail(ErrorKind::Unknown, &text)
    }
}

/// Writes a refusal of the mint.
#[cold]
pub(super) fn refuse(server: &Server, out: &mut Vec<u8>, error: &MintError) {
    server.metrics.failed(Protocol::Resp, error.kind());
    reply::error(out, error.kind().status().resp, error);
}

/// Whether the ids of a namespace can be answered so.
fn check_written(namespace: &Namespace, id: Written) -> Result<(), MintError> {
    if id == Written::Text || namespace.definition().is_plain_number() {
        return Ok(());
    }
    let why = if namespace.definition().text.is_some() {
        "they have a text form"
    } else {
        "they have over 64 bits"
    };
    Err(MintError::NotIntegers { name: Snippet::of(namespace.name().as_str()), why })
}

/// Writes an id, by way of `text` where it is no plain number.
#[inline]
pub(super) fn write_id(out: &mut Vec<u8>, ids: &Ids, id: Minted, written: Written, text: &mut Vec<u8>) {
    match (id, written) {
        (Minted::Number(number), Written::Integer) => reply::integer(out, number),
        (Minted::Number(number), Written::Text) if ids.are_plain_numbers() => reply::digits(out, number),
        (id, _) => {
            text.clear();
            ids.write(id, text);
            reply::bulk(out, text);
        }
    }
}

/// Writes what an id says: a map, whose values may be lists of maps.
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
mod tests;
