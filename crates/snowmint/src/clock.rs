//! Sources of time: the wall clock, a clock that ignores steps of the wall clock, or a manual one. Clocks
//! decide how fresh a timestamp is and whether a generator can continue. Uniqueness does not depend on them.

use crate::sync::{AtomicU64, Ordering};

#[cfg(feature = "std")]
mod anchored;
#[cfg(feature = "std")]
mod cached;
#[cfg(feature = "std")]
mod cycles;

#[cfg(feature = "std")]
pub use anchored::{AnchoredClock, ClockReport, WallClock};
#[cfg(feature = "std")]
pub use cached::CachedClock;

/// Tells the time, in milliseconds since 1970-01-01T00:00:00Z.
///
/// A clock may step back or forward at any time; generators handle it. It returns 0 for a time before 1970.
pub trait Clock {
    /// Returns the current time, in unix milliseconds. Never waits; safe from any thread.
    fn unix_ms(&self) -> u64;

    /// Returns the current time, and how long that reading holds. Generators call this method.
    ///
    /// Implement it only if the clock has a cheaper way than a reading to know that its millisecond has not
    /// ended.
    #[inline]
    fn read(&self) -> Reading {
        Reading { unix_ms: self.unix_ms(), hold: Hold::NONE }
    }

    /// Returns whether a reading still holds: `true` only while the clock would show the same millisecond.
    ///
    /// Generators call it for every id, so it has to be cheaper than [`unix_ms`](Self::unix_ms).
    #[inline]
    fn holds(&self, hold: Hold) -> bool {
        let _ = hold;
        false
    }
}

/// A clock reading: the time, and how long it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Unix milliseconds.
    pub unix_ms: u64,
    /// The argument for [`Clock::holds`].
    pub hold: Hold,
}

/// How long a reading holds. Only the clock that made it can interpret the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold(pub u64);

impl Hold {
    /// The hold of a reading that is outdated immediately.
    pub const NONE: Self = Self(0);
}

macro_rules! clock_behind_a_pointer {
    ($pointer:ty) => {
        impl<C: Clock + ?Sized> Clock for $pointer {
            #[inline]
            fn unix_ms(&self) -> u64 {
                (**self).unix_ms()
            }

            #[inline]
            fn read(&self) -> Reading {
                (**self).read()
            }

            #[inline]
            fn holds(&self, hold: Hold) -> bool {
                (**self).holds(hold)
            }
        }
    };
}

clock_behind_a_pointer!(&C);
#[cfg(feature = "std")]
clock_behind_a_pointer!(std::sync::Arc<C>);

/// A clock that shows the time it was set to: for tests, and for `no_std` programs with a time source of
/// their own.
///
/// # Examples
///
/// ```
/// use snowmint::{Clock, ManualClock};
/// let clock = ManualClock::at_unix_ms(1000);
/// clock.advance_ms(5);
/// assert_eq!(clock.unix_ms(), 1005);
/// ```
#[derive(Debug)]
pub struct ManualClock {
    unix_ms: AtomicU64,
}

impl ManualClock {
    /// Makes a clock that shows `unix_ms` until it is set or advanced.
    #[cfg(not(snowmint_loom))]
    pub const fn at_unix_ms(unix_ms: u64) -> Self {
        Self { unix_ms: AtomicU64::new(unix_ms) }
    }

    /// Makes a clock that shows `unix_ms` until it is set or advanced.
    #[cfg(snowmint_loom)]
    pub fn at_unix_ms(unix_ms: u64) -> Self {
        Self { unix_ms: AtomicU64::new(unix_ms) }
    }

    /// Sets the clock, forward or back.
    pub fn set_unix_ms(&self, unix_ms: u64) {
        self.unix_ms.store(unix_ms, Ordering::Relaxed);
    }

    /// Moves the clock forward.
    pub fn advance_ms(&self, ms: u64) {
        self.unix_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    #[inline]
    fn unix_ms(&self) -> u64 {
        self.unix_ms.load(Ordering::Relaxed)
    }

    #[inline]
    fn read(&self) -> Reading {
        let unix_ms = self.unix_ms();
        Reading { unix_ms, hold: Hold(unix_ms) }
    }

    #[inline]
    fn holds(&self, hold: Hold) -> bool {
        hold.0 == self.unix_ms()
    }
}
