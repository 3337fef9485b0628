//! The lines of RESP commands in the access log, and their spans. A command between `MULTI` and `EXEC` gets both when it has run.
//! If it is discarded, it has a line only.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::access::Identity;
use crate::access_log::{CANCELLED, LoggedRequest, OK, is_on};
use crate::protocol::Protocol;
use crate::resp::codec::{Parser, Step};
use crate::resp::command_table::find_command;
use crate::state::ServerState;

/// The outcome of a command that was queued and did not run.
const DISCARDED: &[u8] = b"discarded";

/// Writes the lines and spans of `times` equal commands. `identity` is that of the client after them, and `error` the first word of
/// the error that answered them.
#[cold]
pub(super) fn answered(
    server: &ServerState,
    identity: &Identity,
    command: &[u8],
    times: usize,
    error: Option<&[u8]>,
    began: Instant,
) {
    describe(identity, command, error, began.elapsed(), |request, name| {
        (0..times).for_each(|_| crate::connection::request_log::answered(server, &request, name, began));
    });
}

/// Passes on what is logged of a command, and its name if there is such a command.
fn describe(
    identity: &Identity,
    command: &[u8],
    error: Option<&[u8]>,
    took: Duration,
    to: impl FnOnce(LoggedRequest<'_>, Option<&str>),
) {
    let mut parser = Parser::default();
    let Ok(Step::Command { args, .. }) = parser.next(command) else { return };
    if args.is_empty() {
        return;
    }
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
    let error = error.map(String::from_utf8_lossy);
    let request = LoggedRequest {
        protocol: Protocol::Resp,
        token: identity.name(),
        request: &name,
        namespace: namespace.as_deref(),
        count: count.flatten(),
        outcome: error.as_deref().unwrap_or(OK),
        took,
    };
    to(request, find_command(args.at(0)).map(|_| &*name));
}

/// Writes the lines of queued commands that will not run, if requests are logged.
#[cold]
pub(super) fn discarded(identity: &Identity, queued: &[u8]) {
    if !is_on() {
        return;
    }
    let (mut parser, mut start) = (Parser::default(), 0);
    // Each was parsed once before it was queued.
    while let Ok(Step::Command { len, .. }) = parser.next(&queued[start..]) {
        let command = &queued[start..start + len];
        describe(identity, command, Some(DISCARDED), Duration::ZERO, |request, _| request.log());
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

/// A command that is observed and not answered yet; `None` for one that is not observed. If it is dropped, its client left before
/// the answer.
pub(super) struct Unanswered<'a>(pub(super) Option<Begun<'a>>);

/// A command that has begun.
pub(super) struct Begun<'a> {
    pub(super) server: Arc<ServerState>,
    pub(super) identity: Identity,
    pub(super) command: &'a [u8],
    pub(super) at: Instant,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(Begun { server, identity, command, at }) = &self.0 {
            answered(server, identity, command, 1, Some(CANCELLED.as_bytes()), *at);
        }
    }
}

/// Runs a command to the end of its answer. Its line and span are written only if the client leaves before, or its connection is
/// cut.
pub(super) async fn unless_answered<T>(
    mut unanswered: Unanswered<'_>,
    running: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let answer = running.await?;
    unanswered.0 = None;
    Ok(answer)
}
