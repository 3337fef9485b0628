//! Commands to the mint, replies to the output: no socket and no waiting here.
//! What has to wait, or is too long to be written at once, is handed back to the connection.

use std::fmt::Write as _;

use snowmint::Id;

use crate::limits::parse_count;
use crate::metrics::{Metrics, Protocol};
use crate::mint::{Ids, MintError, Namespace, Part, Source, Taken, Value};
use crate::resp::codec::Args;
use crate::resp::info;
use crate::resp::reply;
use crate::resp::session::Session;
use crate::resp::table::{self, Name, Spec, TABLE};
use crate::server::Server;
use crate::status::Kind;

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
    Wait(Request, Part),
}

/// Ids that were asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) namespace: Namespace,
    /// With `COUNT` the reply is an array, also of one.
    pub(super) array: bool,
}

/// What a connection counts for itself until it writes: adding up for every command would cost more than parsing.
#[derive(Debug, Default)]
pub(super) struct Tally {
    succeeded: u64,
    issued: u64,
    namespace: Option<Namespace>,
}

impl Tally {
    #[inline]
    pub(super) fn issued(&mut self, metrics: &Metrics, namespace: Namespace, ids: u64) {
        if self.namespace != Some(namespace) {
            self.add_up(metrics);
            self.namespace = Some(namespace);
        }
        self.issued += ids;
        self.succeeded += 1;
    }

    pub(super) fn add_up(&mut self, metrics: &Metrics) {
        if self.succeeded > 0 {
            metrics.succeeded(Protocol::Resp, std::mem::take(&mut self.succeeded));
        }
        if let (1.., Some(namespace)) = (self.issued, self.namespace) {
            metrics.issued(namespace, std::mem::take(&mut self.issued));
        }
    }
}

/// One command, and all it may touch.
pub(super) struct Call<'a, S> {
    pub(super) server: &'a Server<S>,
    pub(super) session: &'a mut Session,
    pub(super) tally: &'a mut Tally,
    pub(super) args: Args<'a>,
    pub(super) out: &'a mut Vec<u8>,
}

impl<S: Source> Call<'_, S> {
    /// Does what the command says; `args` has at least a name.
    #[inline]
    pub(super) fn run(mut self) -> Flow {
        // The hot path: everything else goes through the table.
        if self.args.len() == 2 && self.args.at(0).eq_ignore_ascii_case(b"id.next") {
            return self.next_one();
        }
        self.look_up()
    }

    #[inline]
    fn next_one(&mut self) -> Flow {
        let mint = &self.server.mint;
        let taken =
            mint.namespace(self.args.at(1)).and_then(|namespace| Ok((namespace, mint.try_one(namespace)?)));
        match taken {
            Ok((namespace, Some(id))) => {
                self.tally.issued(&self.server.metrics, namespace, 1);
                write_id(self.out, id);
                Flow::Done
            }
            Ok((namespace, None)) => self.next_many(namespace, 1, false),
            Err(error) => self.refuse(&error),
        }
    }

    fn look_up(&mut self) -> Flow {
        let Some(spec) = table::find(self.args.at(0)) else {
            return self.unknown();
        };
        if !spec.takes(self.args.len()) {
            return self.wrong_arity(spec.text);
        }
        match spec.name {
            Name::IdNext => self.next(),
            Name::IdInspect => self.inspect(),
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
            Name::Quit => {
                reply::simple(self.out, "OK");
                self.tally.succeeded += 1;
                Flow::Close
            }
        }
    }

    fn next(&mut self) -> Flow {
        let count = match (self.args.len(), self.args.at(2)) {
            (2, _) => return self.next_one(),
            (4, word) if word.eq_ignore_ascii_case(b"count") => parse_count(self.args.at(3)),
            _ => return self.fail(Kind::BadRequest, "syntax error"),
        };
        let found = self.server.mint.namespace(self.args.at(1)).and_then(|namespace| Ok((namespace, count?)));
        match found {
            Ok((namespace, count)) => self.next_many(namespace, count, true),
            Err(error) => self.refuse(&error),
        }
    }

    fn next_many(&mut self, namespace: Namespace, count: usize, array: bool) -> Flow {
        let request = Request { namespace, array };
        match self.server.mint.try_take(namespace, count) {
            Ok(Taken::All(ids)) => Flow::Ids(request, ids),
            Ok(Taken::Part(part)) => Flow::Wait(request, part),
            Err(error) => self.refuse(&error),
        }
    }

    fn inspect(&mut self) -> Flow {
        let inspection = match self.server.mint.inspect(self.args.at(1)) {
            Ok(inspection) => inspection,
            Err(error) => return self.refuse(&error),
        };
        let values = inspection.values();
        reply::map(self.out, self.session.version, values.len());
        for (name, value) in values {
            reply::bulk(self.out, name.as_bytes());
            match value {
                Value::Number(number) => reply::integer(self.out, number),
                Value::Id(id) => reply::integer(self.out, id.get()),
                Value::Text(text) => reply::bulk(self.out, text.as_bytes()),
            }
        }
        self.done()
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
        let found = info::config(self.args.from(2));
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
    pub(super) fn fail(&mut self, kind: Kind, text: &str) -> Flow {
        self.fail_as(kind, kind.status().resp, text)
    }

    /// As `fail`, with a prefix that clients know from Redis.
    #[cold]
    pub(super) fn fail_as(&mut self, kind: Kind, prefix: &str, text: &str) -> Flow {
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
        self.fail(Kind::BadRequest, &format!("wrong number of arguments for '{command}' command"))
    }

    #[cold]
    pub(super) fn unknown_subcommand(&mut self, command: &str) -> Flow {
        let given = shortened(self.args.at(1), REPEATED);
        self.fail(Kind::BadRequest, &format!("unknown subcommand '{given}'. Try {command} HELP."))
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
        self.fail(Kind::Unknown, &text)
    }
}

/// Writes a refusal of the mint.
#[cold]
pub(super) fn refuse<S: Source>(server: &Server<S>, out: &mut Vec<u8>, error: &MintError) {
    server.metrics.failed(Protocol::Resp, error.kind());
    reply::error(out, error.kind().status().resp, error);
}

#[inline]
pub(super) fn write_id(out: &mut Vec<u8>, id: Id) {
    reply::integer(out, id.get());
}

fn shortened(bytes: &[u8], limit: usize) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(limit)])
}

#[cfg(test)]
mod tests;
