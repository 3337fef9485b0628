//! A clock that a background thread updates once a millisecond: a reading is one load.
//! It costs a wake-up every millisecond, and its time may be old.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use super::{Clock, Hold, Reading};
use crate::fork::ForkMark;

/// The time of another clock, at most a few milliseconds old.
///
/// A thread reads the other clock every millisecond, for as long as this one exists: about 2 % of a core and
/// 1,000 wake-ups a second. The time is at most 1 ms old while that thread runs on time; on an overloaded
/// machine it was up to 16 ms old. Uniqueness does not depend on it. A forked child does not have the thread:
/// each reading there reads the other clock.
///
/// # Examples
///
/// ```
/// use snowmint::clock::CachedClock;
/// use snowmint::{Clock, WallClock};
/// let clock = CachedClock::start(WallClock)?;
/// assert!(clock.unix_ms() > 1_700_000_000_000);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct CachedClock {
    shown: Arc<CachedMs>,
    thread: Option<JoinHandle<()>>,
    fork: ForkMark,
}

/// On a cache line of its own: written every millisecond and read for every id.
#[repr(align(128))]
struct CachedMs {
    unix_ms: AtomicU64,
    stop: AtomicBool,
    clock: Box<dyn Clock + Send + Sync>,
}

impl fmt::Debug for CachedMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedMs")
            .field("unix_ms", &self.unix_ms)
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}

impl CachedClock {
    /// Starts the thread that reads `clock`.
    ///
    /// # Errors
    ///
    /// The system's error if it cannot start a thread.
    pub fn start(clock: impl Clock + Send + Sync + 'static) -> io::Result<Self> {
        let unix_ms = AtomicU64::new(clock.unix_ms());
        let shown = Arc::new(CachedMs { unix_ms, stop: AtomicBool::new(false), clock: Box::new(clock) });
        let shared = Arc::clone(&shown);
        let thread = Builder::new().name("snowmint-clock".to_owned()).spawn(move || {
            while !shared.stop.load(Ordering::Relaxed) {
                shared.unix_ms.store(shared.clock.unix_ms(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        })?;
        Ok(Self { shown, thread: Some(thread), fork: ForkMark::of_this_process() })
    }
}

impl Drop for CachedClock {
    fn drop(&mut self) {
        self.shown.stop.store(true, Ordering::Relaxed);
        match self.thread.take() {
            // It panics only if the other clock does, and a destructor cannot report that.
            Some(thread) if self.fork.is_same_process() => drop(thread.join()),
            // A forked child does not have the thread.
            thread => std::mem::forget(thread),
        }
    }
}

impl Clock for CachedClock {
    #[inline]
    fn unix_ms(&self) -> u64 {
        if self.fork.is_same_process() {
            self.shown.unix_ms.load(Ordering::Relaxed)
        } else {
            self.shown.clock.unix_ms()
        }
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
