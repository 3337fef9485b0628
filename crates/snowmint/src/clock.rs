//! Where the time comes from: the wall, an anchor that no step of the wall moves, or a test.
//! Clocks decide how fresh a timestamp is and whether a generator can go on, never whether two ids are equal.

use crate::sync::{AtomicU64, Ordering};

#[cfg(feature = "std")]
mod anchored;
#[cfg(feature = "std")]
mod cached;
#[cfg(feature = "std")]
mod counter;
#[cfg(feature = "std")]
mod wall;

#[cfg(feature = "std")]
pub use anchored::{AnchoredClock, ClockReport};
#[cfg(feature = "std")]
pub use cached::CachedClock;
#[cfg(feature = "std")]
pub use wall::WallClock;

/// Tells the time, in milliseconds since 1970-01-01T00:00:00Z.
///
/// A clock may step back or forward at any time; generators bear it. A time before 1970 is given as 0.
pub trait Clock {
    /// The time now, in unix milliseconds. Never waits; safe from any thread.
    fn unix_ms(&self) -> u64;

    /// The time now, and how long that reading holds. Generators read the clock through this.
    ///
    /// A clock with no cheaper way to tell that its millisecond has not ended need not implement it.
    #[inline]
    fn read(&self) -> Reading {
        Reading { unix_ms: self.unix_ms(), hold: Hold::NONE }
    }

    /// Whether a reading still holds: `true` only while the clock would show the same millisecond.
    ///
    /// It is asked for every id, so it must be cheaper than [`unix_ms`](Self::unix_ms) to be of use.
    #[inline]
    fn holds(&self, hold: Hold) -> bool {
        let _ = hold;
        false
    }
}

/// A time, and how long it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Unix milliseconds.
    pub unix_ms: u64,
    /// What [`Clock::holds`] takes.
    pub hold: Hold,
}

/// How long a reading holds, in terms that only the clock that made it understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold(pub u64);

impl Hold {
    /// Holds no longer than it takes to read it.
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

/// A clock that shows what it is told: for tests, and for `no_std` programs that bring their own time.
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
    /// A clock that shows `unix_ms` until told otherwise.
    #[cfg(not(loom))]
    pub const fn at_unix_ms(unix_ms: u64) -> Self {
        Self { unix_ms: AtomicU64::new(unix_ms) }
    }

    /// A clock that shows `unix_ms` until told otherwise.
    #[cfg(loom)]
    pub fn at_unix_ms(unix_ms: u64) -> Self {
        Self { unix_ms: AtomicU64::new(unix_ms) }
    }

    /// Steps the clock, forward or back.
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
