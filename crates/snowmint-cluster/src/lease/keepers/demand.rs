//! What callers need, counted where they draw: ids they got, and ticks in which there was none left.
//! Callers add up for themselves, so that no id touches a line that all share.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many ids a caller counts for itself.
pub(super) const COUNTED_ALONE: u64 = 1024;

/// Counters since the start.
#[derive(Debug, Default)]
pub(super) struct Demand {
    ids: AtomicU64,
    exhausted_ticks: AtomicU64,
    last_exhausted_tick: AtomicU64,
}

impl Demand {
    pub(super) fn add_ids(&self, ids: u64) {
        self.ids.fetch_add(ids, Ordering::Relaxed);
    }

    /// A caller met a tick without an id that is left; more callers of one tick count once.
    pub(super) fn exhausted(&self, tick: u64) {
        if self.last_exhausted_tick.fetch_max(tick, Ordering::Relaxed) < tick {
            self.exhausted_ticks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ids and used-up ticks so far.
    pub(super) fn so_far(&self) -> (u64, u64) {
        (self.ids.load(Ordering::Relaxed), self.exhausted_ticks.load(Ordering::Relaxed))
    }
}
