//! Turns at a record that many want: whoever meets another waits for a random time, longer after every conflict.
//! Bounded, so that a call that is never first ends.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::random;

/// How long one call goes on while others are first every time.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first wait lasts up to this long, each one after it up to twice as long as the one before.
const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(64);

/// The turns of one call.
pub(crate) struct Turns {
    started: Instant,
    longest: Duration,
    conflicts: u32,
}

/// Patience is at an end. Shown as `in 70 tries for 5 s`.
#[derive(Debug)]
pub(crate) struct NeverFirst {
    tries: u32,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), longest: FIRST, conflicts: 0 }
    }

    /// Waits after a conflict.
    pub(crate) async fn wait(&mut self) -> Result<(), NeverFirst> {
        self.conflicts += 1;
        if self.started.elapsed() >= PATIENCE {
            return Err(NeverFirst { tries: self.conflicts });
        }
        let micros = u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX);
        sleep(Duration::from_micros(random::below(micros))).await;
        self.longest = LONGEST.min(self.longest * 2);
        Ok(())
    }
}

impl fmt::Display for NeverFirst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {} tries for {} s", self.tries, PATIENCE.as_secs())
    }
}
