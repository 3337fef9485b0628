//! Every bound of the service in one place: what a request may ask for, and what a connection may hold.
//! None of them can be reached without the client being told which one it was.

use std::time::Duration;

use snowmint::error::Snippet;

use crate::mint::MintError;

/// The most ids that one request may ask for.
pub const MAX_COUNT: usize = 100_000;

/// How long a request may wait for its ids before it is told to ask for fewer.
pub const MAX_WAIT: Duration = Duration::from_secs(10);

/// Connections at once, over all protocols, unless the settings say otherwise.
pub const MAX_CONNECTIONS: usize = 10_000;

/// How long requests in flight may take to finish once the service was told to end.
pub const DRAIN: Duration = Duration::from_secs(5);

/// Output that is gathered before it is sent, in bytes: what one connection holds for a client that reads
/// slowly, however much it asked for.
pub const FLUSH_AT: usize = 64 * 1024;

/// Bytes that a connection reads and writes before it lets others run.
pub const TURN: usize = FLUSH_AT;

/// A connection that has read and written this much without a pause waits in line before it goes on, unless it rested: more
/// than a usual request and its answer.
pub const LONG_TURN: usize = 4 * 1024;

/// How long a client is still answered that goes on sending after the service was told to end.
pub const HEAR_OUT: Duration = Duration::from_secs(1);

/// How long a connection may be idle, unless the settings say otherwise: longer than load balancers keep their own idle
/// connections, so that they close first.
pub const IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// How long a request may take to arrive once it has begun, unless the settings say otherwise.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a client may take nothing of its answer, unless the settings say otherwise.
pub const WRITE_TIMEOUT: Duration = Duration::from_mins(1);

/// Connections of each protocol beyond the most there may be: HTTP answers `/healthz`, `/readyz` and `/metrics` on them,
/// and every other request with the reason why it is refused. When all are taken, the oldest one gives way.
pub const RESERVED: usize = 64;

/// Open files that connections leave to the store, the log and the process itself.
pub const OTHER_FILES: usize = 32;

/// How long a connection beyond the most there may be may take.
pub const LINGER: Duration = Duration::from_secs(1);

/// A connection that is idle for this long gives its buffers back, and does not wait in line for what it asks next.
pub const REST: Duration = Duration::from_secs(1);

/// Bytes of an answer that the system holds for a client and has not sent yet.
pub const UNSENT: u32 = 128 * 1024;

/// After how long a silent connection is probed, so that a vanished peer does not hold its place.
pub const KEEPALIVE: Duration = Duration::from_mins(5);

/// Bounds of the Redis protocol.
pub mod resp {
    /// Arguments of a command, its name included. Redis allows a million; no command here takes many.
    pub const MAX_ARGS: usize = 1024;
    /// Bytes of one argument.
    pub const MAX_BULK: usize = 64 * 1024;
    /// Bytes of a command that is a plain line.
    pub const MAX_INLINE: usize = 64 * 1024;
    /// Bytes of a whole command: with [`READ_ROOM`] this bounds what a connection buffers of its input.
    pub const MAX_COMMAND: usize = 128 * 1024;
    /// Room that a connection starts with, and returns to, for what it reads.
    pub const READ_ROOM: usize = 4 * 1024;
    /// Room that it grows to while reads fill what there is.
    pub const MAX_READ_ROOM: usize = 64 * 1024;
    /// Bytes of the commands between `MULTI` and `EXEC`.
    pub const MAX_QUEUED: usize = 256 * 1024;
    /// The same over all connections.
    pub const MAX_QUEUED_IN_ALL: usize = 16 * 1024 * 1024;
    /// Bytes of a name or version that a client gives itself, held as long as it is connected.
    pub const MAX_CLIENT_NAME: usize = 256;
}

/// Bounds of HTTP.
pub mod http {
    /// Bytes of a request's line and headers.
    pub const MAX_HEAD: usize = 16 * 1024;
    /// Headers of a request.
    pub const MAX_HEADERS: usize = 64;
    /// Bytes of a body that is sent in pieces.
    pub const CHUNK: usize = 16 * 1024;
    /// Up to so many ids, a body has a length; beyond, it is sent in pieces.
    pub const WHOLE_BODY_IDS: usize = 500;
}

/// Reads how many ids are wanted: a plain whole number in `1..=MAX_COUNT`.
///
/// # Errors
///
/// [`MintError::BadCount`] for everything else, signs and blanks included.
pub fn parse_count(text: &[u8]) -> Result<usize, MintError> {
    let digits = !text.is_empty() && text.len() <= 20 && text.iter().all(u8::is_ascii_digit);
    let value = digits.then(|| {
        text.iter().fold(0_usize, |n, b| n.saturating_mul(10).saturating_add(usize::from(b - b'0')))
    });
    match value {
        Some(count @ 1..=MAX_COUNT) => Ok(count),
        _ => {
            Err(MintError::BadCount { value: Snippet::of(&String::from_utf8_lossy(text)), limit: MAX_COUNT })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_end_at_both_bounds() {
        for (text, count) in [("1", 1), ("007", 7), ("100000", 100_000)] {
            assert_eq!(parse_count(text.as_bytes()).unwrap(), count);
        }
        for bad in [
            "",
            "0",
            "100001",
            "-1",
            "+1",
            " 1",
            "1e9",
            "1.0",
            "abc",
            "18446744073709551617",
            "99999999999999999999999",
        ] {
            let error = parse_count(bad.as_bytes()).unwrap_err();
            assert!(matches!(error, MintError::BadCount { limit: MAX_COUNT, .. }), "{bad}");
            assert!(error.to_string().contains(": expected 1 to 100000"), "{error}");
        }
        assert!(parse_count(b"\xff\xfe").is_err());
    }
}
