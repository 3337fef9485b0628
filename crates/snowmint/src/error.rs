//! Why a generator does not give an id right now.
//! Small, `Copy` and without text, so that refusing costs no more than issuing.

use core::fmt;
use core::num::NonZeroU64;

use crate::utc::Utc;

/// Why there is no id now. Nothing was used up; calling again is always safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GenerateError {
    /// The sequence of this tick is used up, and the rule does not borrow (further) ahead. So it is too in the last tick
    /// before a lease begins.
    Exhausted {
        /// Milliseconds until the next tick that may be used.
        retry_after_ms: NonZeroU64,
    },
    /// The clock went back behind timestamps that were already used, or has not come to the begin of the lease.
    ClockBehind {
        /// Milliseconds until the clock is where it was.
        behind_ms: NonZeroU64,
        /// What the rule says to do about it.
        wait: Wait,
    },
    /// The clock shows a time before the layout's epoch.
    NotBegun {
        /// The first instant that may be used, in unix milliseconds.
        from_unix_ms: u64,
        /// What the clock shows, in unix milliseconds.
        now_unix_ms: u64,
    },
    /// Every timestamp of the lease is used or past; a renewed lease goes on.
    LeaseEnded {
        /// The end of the lease, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The generator was ended for good; a new lease needs a new generator.
    Ended,
    /// This process is a fork of the one that made the generator, which may be producing duplicates of its ids.
    ///
    /// Forks are noticed on Linux by a page that the kernel wipes in the child, on other unix systems (and where Linux has
    /// no such page to give) by a handler of `fork`, which a child made by a bare system call goes past. Without the
    /// feature `std` they are not noticed.
    Forked,
    /// The layout has no timestamp for now: its time ran out.
    TimestampOverflow {
        /// The first instant without a timestamp, in unix milliseconds.
        ended_unix_ms: u64,
    },
}

/// What a rule says to do about a clock that went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait until the clock has caught up: it is within the rule's bound.
    UntilCaughtUp,
    /// Do not wait: give the error to the caller.
    Refused,
}

impl GenerateError {
    /// How long a caller that may wait should wait before it asks again; `None` where waiting is no answer.
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
                "the lease ended at {} and was not renewed: this worker's later timestamps may be another's",
                Utc(until_unix_ms)
            ),
            Self::Ended => f.write_str("this generator was ended: take a new lease and make a new generator"),
            Self::Forked => f.write_str(
                "this process was forked from the one the generator belongs to: make one of its own after the fork",
            ),
            Self::TimestampOverflow { ended_unix_ms } => write!(
                f,
                "the layout's time ran out at {}: move to a layout with more timestamp bits or a later epoch",
                Utc(ended_unix_ms)
            ),
        }
    }
}

impl core::error::Error for GenerateError {}

/// Bytes that a snippet keeps.
const ROOM: usize = 30;

/// Up to 30 bytes of the input that was refused, for the error message.
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

    /// The kept text.
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
