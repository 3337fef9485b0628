//! Why a generator returns no id, and how to print an error with its causes.
//! Errors are small, `Copy` and without allocated text, so that an error costs no more than an id.
//!
//! In all crates of Snowmint, an error either contains the text of its cause, or returns the cause by
//! [`source`](core::error::Error::source): a report of the whole chain shows no text twice.

use core::error::Error;
use core::fmt;
use core::num::NonZeroU64;

pub use crate::snippet::Snippet;
use crate::utc::Utc;

/// Displays an error and its causes on one line, such as `cannot read tls.pem: permission denied`.
///
/// ```
/// use std::{error::Error, fmt, io};
///
/// use snowmint::error::Chain;
///
/// #[derive(Debug)]
/// struct Unreadable(io::Error);
///
/// impl fmt::Display for Unreadable {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str("cannot read tls.pem")
///     }
/// }
///
/// impl Error for Unreadable {
///     fn source(&self) -> Option<&(dyn Error + 'static)> {
///         Some(&self.0)
///     }
/// }
///
/// let error = Unreadable(io::ErrorKind::PermissionDenied.into());
/// assert_eq!(Chain(&error).to_string(), "cannot read tls.pem: permission denied");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

/// Why a generator returns no id now. The failed call used up nothing; a retry is always safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GenerateError {
    /// The sequence of this tick is used up, and the rule does not borrow any further. Also returned in the
    /// last tick before a lease begins.
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
    /// On Linux, the library detects forks by a page that the kernel wipes in the child. On other unix
    /// systems, and if Linux cannot provide that page, it uses a `fork` handler, which a child made by a bare
    /// system call bypasses. Without the feature `std` it detects no forks.
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

impl Error for GenerateError {}
