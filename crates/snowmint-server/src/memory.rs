//! Memory after a flood: the allocator keeps what thousands of connections have given back, since what is still used lies
//! between it. A node that was flooded once would hold its memory for as long as it lives.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Connections that must have gone, or given their buffers back, to be worth a walk through the free memory.
const MANY: usize = 250;
/// Between two walks for connections that rest and do not go: some of them always do.
const AGAIN: Duration = Duration::from_secs(10);

/// How many connections there are, were, and have given their buffers back.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    open: AtomicUsize,
    /// The most that were open since memory was given back.
    peak: AtomicUsize,
    /// Connections that rested since then.
    rested: AtomicUsize,
}

impl Crowd {
    pub(crate) fn came(&self) {
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(open, Ordering::Relaxed);
    }

    pub(crate) fn went(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn rested(&self) {
        self.rested.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether memory is worth giving back, and then counts from here on.
    fn has_thinned(&self, since_last: Duration) -> bool {
        let open = self.open.load(Ordering::Relaxed);
        let gone = self.peak.load(Ordering::Relaxed).saturating_sub(open);
        let rested = self.rested.load(Ordering::Relaxed);
        let thinned = gone >= MANY || (rested >= MANY && since_last >= AGAIN);
        if thinned {
            self.peak.store(open, Ordering::Relaxed);
            self.rested.store(0, Ordering::Relaxed);
        }
        thinned
    }

    /// Gives memory back to the system whenever a crowd has gone; never returns.
    pub(crate) async fn tidy_up_after(&self) -> ! {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        loop {
            looks.tick().await;
            if self.has_thinned(last.elapsed()) {
                // It waits for locks of the allocator and makes many system calls.
                let _ = tokio::task::spawn_blocking(give_back).await;
                last = Instant::now();
            }
        }
    }
}

/// Gives free pages back to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "measured: 6,000 closed connections left 115 MB resident, 25 MB with it")]
fn give_back() {
    // SAFETY: it takes the allocator's own locks and touches no memory that is in use.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators give pages back by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_when_many_are_gone_and_once_for_each_crowd() {
        let crowd = Crowd::default();
        (0..MANY).for_each(|_| crowd.came());
        (1..MANY).for_each(|_| crowd.went());
        assert!(!crowd.has_thinned(AGAIN), "one too few");
        crowd.went();
        assert!(crowd.has_thinned(Duration::ZERO));
        assert!(!crowd.has_thinned(AGAIN), "they have gone before");
        (0..10_000).for_each(|_| {
            crowd.came();
            crowd.went();
        });
        assert!(!crowd.has_thinned(AGAIN), "never many at once");
        (0..MANY).for_each(|_| crowd.rested());
        assert!(!crowd.has_thinned(AGAIN / 2) && crowd.has_thinned(AGAIN) && !crowd.has_thinned(AGAIN));
    }
}
