//! The records of RESP commands. A command between `MULTI` and `EXEC` gets its line and span when it has run.
//! If it is discarded, it has a line only.

use std::sync::Arc;

use tokio::time::Instant;

use crate::access::Identity;
use crate::protocol::Protocol;
use crate::request_record::{RequestKind, RequestRecord};
use crate::resp::codec::{Args, Parser, Step};
use crate::resp::command_table::find_command;
use crate::state::ServerState;
use crate::telemetry::access_log::is_on;

/// The outcome of a command that was queued and did not run.
const DISCARDED: &str = "discarded";

/// Begins the record of a command that will run.
#[cold]
pub(super) fn begin(server: &Arc<ServerState>, identity: &Identity, args: &Args<'_>) -> RequestRecord {
    let began = Instant::now();
    record(identity, args, |request| RequestRecord::of_command(server, Protocol::Resp, request, began))
}

fn record(
    identity: &Identity,
    args: &Args<'_>,
    begin: impl FnOnce((RequestKind, String)) -> RequestRecord,
) -> RequestRecord {
    let name = String::from_utf8_lossy(args.at(0)).to_ascii_uppercase();
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
    // Arguments of other commands may be secrets.
    let count = match name.as_str() {
        "ID.NEXT" | "ID.RANGE" => {
            let count = args.from(2).skip_while(|it| !it.eq_ignore_ascii_case(b"COUNT")).nth(1);
            Some(count.map_or(Some(1), number))
        }
        "INCR" => Some(Some(1)),
        "INCRBY" => Some(number(args.at(2))),
        _ => None,
    };
    let namespace = count.map(|_| String::from_utf8_lossy(args.at(1)));
    let mut record = begin((RequestKind::Command { is_known: find_command(args.at(0)).is_some() }, name));
    record.sent_by(identity);
    record.asks(namespace.as_deref(), count.flatten());
    record
}

/// Writes the lines of queued commands that will not run, if requests are logged.
#[cold]
pub(super) fn discarded(identity: &Identity, queued: &[u8]) {
    if !is_on() {
        return;
    }
    let (mut parser, mut start) = (Parser::default(), 0);
    // Each was parsed once before it was queued.
    while let Ok(Step::Command { args, len }) = parser.next(&queued[start..]) {
        let of_line = |request| RequestRecord::of_line(Protocol::Resp, Instant::now(), || request);
        record(identity, &args, of_line).not_run(DISCARDED);
        start += len;
    }
}

/// The commands of a transaction that have not run yet. If it is dropped, they will not run.
pub(super) struct Rest<'a> {
    pub(super) identity: Identity,
    pub(super) commands: &'a [u8],
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if !self.commands.is_empty() {
            discarded(&self.identity, self.commands);
        }
    }
}
