//! A store that keeps what it acknowledges, until an operator restores it to an older state while nodes run.
//! The restart cuts every connection: what was sent to it before never arrives.

use snowmint_cluster::lease::protocol::Call;

use super::records::{self, Log};
use super::{Lapses, Reply, SimStore, Visit};

#[derive(Debug)]
pub(super) struct Restored {
    /// The world's time of each write.
    log: Log<u64>,
    oldest_backup_ms: u64,
    term: u64,
    forgotten_writes: u64,
}

impl Restored {
    pub(super) fn new(oldest_backup_ms: u64) -> Self {
        Self { log: Log::default(), oldest_backup_ms, term: 0, forgotten_writes: 0 }
    }
}

impl SimStore for Restored {
    fn call(&mut self, visit: &mut Visit<'_>, call: Call) -> Reply {
        let oldest_ms = visit.now_ms.saturating_sub(self.oldest_backup_ms);
        self.log.settle(self.log.steps_while(|at_ms| *at_ms < oldest_ms));
        if let Some(input) = self.log.newest().read(&call, visit.store_unix_ms) {
            return Reply::Now(input);
        }
        let written = self.log.newest().swap(call, visit.rng);
        let reply = Reply::Now(records::swapped(written.as_ref()));
        if let Some(written) = written {
            self.log.push(visit.now_ms, written);
        }
        reply
    }

    fn fail(&mut self, visit: &mut Visit<'_>) {
        let backup_ms = visit.now_ms.saturating_sub(visit.rng.u64(..self.oldest_backup_ms));
        let kept = self.log.steps_while(|at_ms| *at_ms <= backup_ms);
        self.forgotten_writes += self.log.forget_after(kept).len() as u64;
        self.term += 1;
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn drops_requests_of(&self, term: u64) -> bool {
        term != self.term
    }

    fn lapses(&self) -> Lapses {
        Lapses { forgotten_writes: self.forgotten_writes, ..Lapses::default() }
    }
}
