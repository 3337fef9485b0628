//! Retries of a write that lost against another: random pauses, each up to twice as long as the one before.
//! A call that always loses gives up after some seconds.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long one call retries.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first pause lasts up to this long, and each later one up to twice as long as the one before.
const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(64);

/// The retries of one call.
pub(crate) struct Retries {
    started: Instant,
    longest: Duration,
    conflicts: u32,
}

/// The call has retried for too long. Displayed as `in 70 tries for 5 s`.
#[derive(Debug)]
pub(crate) struct GaveUp {
    tries: u32,
}

impl Retries {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), longest: FIRST, conflicts: 0 }
    }

    /// Waits after a conflict.
    pub(crate) async fn pause(&mut self) -> Result<(), GaveUp> {
        self.conflicts += 1;
        if self.started.elapsed() >= PATIENCE {
            return Err(GaveUp { tries: self.conflicts });
        }
        let micros = u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX);
        sleep(Duration::from_micros(random_below(micros))).await;
        self.longest = LONGEST.min(self.longest * 2);
        Ok(())
    }
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {} tries for {} s", self.tries, PATIENCE.as_secs())
    }
}

/// A random number from 0 up to and without `limit`, and 0 if the limit is 0.
///
/// For pauses and for numbers that only have to differ: the seed of a hash map is random enough, and nothing here keeps a
/// secret.
pub(crate) fn random_below(limit: u64) -> u64 {
    RandomState::new().build_hasher().finish().checked_rem(limit).unwrap_or(0)
}
