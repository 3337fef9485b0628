//! Why a generator returns no id, and the snippets of invalid input that parse errors quote.
//! Errors are small, `Copy` and without allocated text, so that an error costs no more than an id.

use core::fmt;
use core::num::NonZeroU64;

use crate::utc::Utc;

/// Why a generator returns no id now. The failed call used up nothing; a retry is always safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GenerateError {
    /// The sequence of this tick is used up, and the rule does not borrow any further. Also returned in the last tick before a
    /// lease begins.
    Exhausted {
        /// Milliseconds until the next usable tick.
        retry_after_ms: NonZeroU64,
    },
    /// The clock is behind timestamps that are already used, or behind the start of the lease.
    ClockBehind {
        /// Milliseconds until the clock has caught up.
        behind_ms: NonZeroU64,
        /// What the rule says to do.
        wait: Wait,
    },
    /// The clock shows a time before the layout's epoch.
    NotBegun {
        /// The layout's epoch, in unix milliseconds.
        from_unix_ms: u64,
        /// The clock's time, in unix milliseconds.
        now_unix_ms: u64,
    },
    /// The lease has no unused timestamps left. After a renewal the generator continues.
    LeaseEnded {
        /// The end of the lease, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The generator has ended for good. A new lease needs a new generator.
    Ended,
    /// This process is a forked child of the one that made the generator, and its ids would be duplicates.
    ///
    /// On Linux, the library detects forks by a page that the kernel wipes in the child. On other unix systems, and if Linux
    /// cannot provide that page, it uses a `fork` handler, which a child made by a bare system call bypasses. Without the feature
    /// `std` it detects no forks.
    Forked,
    /// The layout has no timestamp for the current time.
    TimestampOverflow {
        /// The first instant without a timestamp, in unix milliseconds.
        ended_unix_ms: u64,
    },
}

/// What a rule says to do after the clock went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait until the clock has caught up: the distance is within the rule's bound.
    UntilCaughtUp,
    /// Do not wait: return the error to the caller.
    Refused,
}

impl GenerateError {
    /// Returns how long to wait before a retry; `None` if waiting does not help.
    pub const fn retry_after_ms(&self) -> Option<NonZeroU64> {
        match self {
            Self::Exhausted { retry_after_ms } => Some(*retry_after_ms),
            Self::ClockBehind { behind_ms, wait: Wait::UntilCaughtUp } => Some(*behind_ms),
            _ => None,
        }
    }
}

impl fmt::Display for GenerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exhausted { retry_after_ms } => {
                write!(f, "every id of this tick is used: the next tick begins in {retry_after_ms} ms")
            }
            Self::ClockBehind { behind_ms, wait: Wait::UntilCaughtUp } => {
                write!(f, "the clock went back by {behind_ms} ms: wait until it has caught up")
            }
            Self::ClockBehind { behind_ms, wait: Wait::Refused } => write!(
                f,
                "the clock went back by {behind_ms} ms, more than the rule bridges: correct the clock, or allow \
                 more with a rule such as wait(1s) or borrow(1s)"
            ),
            Self::NotBegun { from_unix_ms, now_unix_ms } => write!(
                f,
                "the clock shows {}, before the first instant that may be used, {}: correct the clock",
                Utc(now_unix_ms),
                Utc(from_unix_ms)
            ),
            Self::LeaseEnded { until_unix_ms } => write!(
                f,
                "the lease ended at {} and was not renewed: another node may hold this worker's later timestamps",
                Utc(until_unix_ms)
            ),
            Self::Ended => f.write_str("this generator was ended: take a new lease and make a new generator"),
            Self::Forked => {
                f.write_str("this generator belongs to the parent process: make a new one after the fork")
            }
            Self::TimestampOverflow { ended_unix_ms } => write!(
                f,
                "the layout ended at {}: move to a layout with more timestamp bits or a later epoch",
                Utc(ended_unix_ms)
            ),
        }
    }
}

impl core::error::Error for GenerateError {}

/// Bytes that a snippet keeps.
const ROOM: usize = 30;

/// The start of rejected input, up to 30 bytes, for an error message.
///
/// It keeps errors small and `Copy`. Longer input ends in an ellipsis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Snippet {
    bytes: [u8; ROOM],
    len: u8,
    cut: bool,
}

impl Snippet {
    /// Keeps the start of `text`, cut at a character boundary.
    pub fn of(text: &str) -> Self {
        let mut end = text.len().min(ROOM);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self::cut_at(text.as_bytes(), end)
    }

    /// Keeps the start of a text of ASCII characters.
    pub(crate) const fn of_ascii(text: &[u8]) -> Self {
        Self::cut_at(text, if text.len() < ROOM { text.len() } else { ROOM })
    }

    const fn cut_at(text: &[u8], end: usize) -> Self {
        let mut bytes = [0; ROOM];
        bytes.split_at_mut(end).0.copy_from_slice(text.split_at(end).0);
        #[expect(clippy::cast_possible_truncation, reason = "end is at most ROOM, which is 30")]
        Self { bytes, len: end as u8, cut: end < text.len() }
    }

    /// Returns the kept text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or("")
    }
}

impl fmt::Display for Snippet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Control characters of the input must not reach a terminal or a log line.
        write!(f, "`{}{}`", self.as_str().escape_debug(), if self.cut { "…" } else { "" })
    }
}

impl fmt::Debug for Snippet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_input_is_cut_at_a_character() {
        let shown = format!("{}", Snippet::of(&"é".repeat(40)));
        assert_eq!(shown, format!("`{}…`", "é".repeat(15)));
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(format!("{}", Snippet::of("a\u{1b}[31m")), "`a\\u{1b}[31m`");
    }
}
