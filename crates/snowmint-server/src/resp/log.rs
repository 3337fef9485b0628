//! The lines of RESP commands in the access log. A command between `MULTI` and `EXEC` gets its line when it has run, or when it
//! is discarded.

use std::time::Duration;

use crate::access_log::{LoggedRequest, OK};
use crate::metrics::Protocol;
use crate::resp::codec::{Parser, Step};
use crate::resp::session::Queued;

/// The outcome of a command that was queued and did not run.
const DISCARDED: &[u8] = b"discarded";

/// Writes the lines of `times` equal commands. `error` is the first word of the error that answered them.
#[cold]
pub(super) fn answered(command: &[u8], times: usize, error: Option<&[u8]>, took: Duration) {
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
    let line = LoggedRequest {
        protocol: Protocol::Resp,
        request: &name,
        namespace: namespace.as_deref(),
        count: count.flatten(),
        outcome: error.as_deref().unwrap_or(OK),
        took,
    };
    (0..times).for_each(|_| line.log());
}

/// Writes the lines of queued commands that will not run.
#[cold]
pub(super) fn discarded(queued: &Queued) {
    let (mut parser, mut start) = (Parser::default(), 0);
    // Each was parsed once before it was queued.
    while let Ok(Step::Command { len, .. }) = parser.next(&queued.bytes[start..]) {
        answered(&queued.bytes[start..start + len], 1, Some(DISCARDED), Duration::ZERO);
        start += len;
    }
}
