//! The wall clock of the system, with all its steps.
//! A rule decides what happens when it goes back.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Clock, Hold, Reading, counter};

const NS_PER_MS: u64 = 1_000_000;

/// The system's wall clock.
///
/// A generator notices a step when the millisecond in which it happens has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl WallClock {
    /// Nanoseconds since 1970; 64 bits last until the year 2554.
    #[expect(clippy::disallowed_methods, reason = "this type is the clock of all other code")]
    fn unix_ns() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Not `as_nanos`: its u128 arithmetic would cost half as much again as the reading itself.
        since.as_secs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(since.subsec_nanos()))
    }
}

impl Clock for WallClock {
    #[inline]
    fn unix_ms(&self) -> u64 {
        Self::unix_ns() / NS_PER_MS
    }

    #[inline]
    fn read(&self) -> Reading {
        let (ns, hold) = counter::hold_until_ms_ends(Self::unix_ns);
        Reading { unix_ms: ns / NS_PER_MS, hold }
    }

    #[inline]
    fn holds(&self, hold: Hold) -> bool {
        counter::holds(hold)
    }
}
