//! A store whose reads may come from a follower that lags, each from another: a later read may show an older state.
//! Its writes go to the leader, and are compared with the newest state.

use snowmint_cluster::lease::protocol::Call;

use super::records::{self, Log};
use super::{Lapses, Reply, SimStore, Visit};

/// How many writes the furthest follower lags at most.
const LONGEST: usize = 24;

#[derive(Debug)]
pub(super) struct Follower {
    /// The world's time of each write.
    log: Log<u64>,
    longest_lag_ms: u64,
    stale_reads: u64,
}

impl Follower {
    pub(super) fn new(longest_lag_ms: u64) -> Self {
        Self { log: Log::default(), longest_lag_ms, stale_reads: 0 }
    }
}

impl SimStore for Follower {
    fn call(&mut self, visit: &mut Visit<'_>, call: Call) -> Reply {
        if matches!(call, Call::Swap { .. }) {
            let written = self.log.newest().swap(call, visit.rng);
            let reply = Reply::Now(records::swapped(written.as_ref()));
            if let Some(written) = written {
                self.log.push(visit.now_ms, written);
            }
            self.log.settle(self.log.steps().saturating_sub(LONGEST));
            return reply;
        }
        let lag_ms = if visit.rng.bool() { 0 } else { visit.rng.u64(..self.longest_lag_ms) };
        let seen = self.log.steps_while(|at_ms| at_ms + lag_ms <= visit.now_ms);
        self.stale_reads += u64::from(seen < self.log.steps());
        let records = self.log.after(seen);
        // Every read has an answer, and this is one.
        records.read(&call, visit.store_unix_ms).map_or(Reply::Unconfirmed { after_ms: 0 }, Reply::Now)
    }

    fn fail(&mut self, _visit: &mut Visit<'_>) {}

    fn lapses(&self) -> Lapses {
        Lapses { stale_reads: self.stale_reads, ..Lapses::default() }
    }
}
