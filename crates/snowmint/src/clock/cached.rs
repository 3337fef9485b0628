//! A clock that a background thread reads once a millisecond: reading it is one load.
//! A choice, not a default: it costs a wake-up every millisecond, and the time it shows may be old.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::{Clock, Hold, Reading};

/// Another clock's time, as of at most a few milliseconds ago.
///
/// A thread reads the other clock every millisecond, for as long as this one exists: about 2% of a core and
/// 1000 wake-ups a second. The time is 1 ms old at most while that thread is scheduled in time; on a machine
/// with more to do than processors, up to 16 ms were seen. Uniqueness does not depend on it.
///
/// # Examples
///
/// ```
/// use snowmint::{CachedClock, Clock, WallClock};
/// let clock = CachedClock::start(WallClock)?;
/// assert!(clock.unix_ms() > 1_700_000_000_000);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct CachedClock {
    shown: Arc<Shown>,
    thread: Option<JoinHandle<()>>,
}

/// On a cache line of its own: it is written every millisecond and read for every id.
#[derive(Debug)]
#[repr(align(128))]
struct Shown {
    unix_ms: AtomicU64,
    stop: AtomicBool,
}

impl CachedClock {
    /// Starts the thread that reads `clock`.
    ///
    /// # Errors
    ///
    /// The system's, when it cannot start a thread.
    pub fn start(clock: impl Clock + Send + 'static) -> io::Result<Self> {
        let shown =
            Arc::new(Shown { unix_ms: AtomicU64::new(clock.unix_ms()), stop: AtomicBool::new(false) });
        let shared = Arc::clone(&shown);
        let thread = Builder::new().name("snowmint-clock".to_owned()).spawn(move || {
            while !shared.stop.load(Ordering::Relaxed) {
                shared.unix_ms.store(clock.unix_ms(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        })?;
        Ok(Self { shown, thread: Some(thread) })
    }
}

impl Drop for CachedClock {
    fn drop(&mut self) {
        self.shown.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It panics only if the clock it reads does; there is nobody left here to tell.
            let _ = thread.join();
        }
    }
}

impl Clock for CachedClock {
    #[inline]
    fn unix_ms(&self) -> u64 {
        self.shown.unix_ms.load(Ordering::Relaxed)
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
