//! Redis with replicas that copy after the answer, and a failover that promotes one of them.
//! With `wait_replicas`, reads and writes are answered once that many copies have everything that the primary had.

use snowmint_cluster::lease::protocol::LeaseCall;

use super::records::{self, Log, Records};
use super::{Lapses, Reply, SimStore, Visit};

/// Number of replicas.
pub(super) const REPLICAS: usize = 2;

/// The time at which a write is acknowledged without waiting for replicas, and the time at which each replica gets it.
#[derive(Clone, Copy, Debug, Default)]
struct Copied {
    written_ms: u64,
    at_ms: [u64; REPLICAS],
}

/// The acknowledged writes that a failover may lose.
#[derive(Clone, Copy, Debug)]
pub(super) enum Losing {
    /// Everything that the next primary has not received, and everything that the old one acknowledges later.
    Anything,
    /// Only writes that were acknowledged at most this long before the old primary stops.
    Within {
        most_ms: u64,
        /// Percentage of failovers in which the old primary dies.
        killed: u8,
    },
}

impl Copied {
    /// Returns the time at which that many replicas have the write; at once for 0.
    fn to(mut self, wanted: usize) -> u64 {
        self.at_ms.sort_unstable();
        wanted.checked_sub(1).map_or(0, |last| self.at_ms[last])
    }
}

/// A primary that was replaced, but still serves the clients that do not know of it.
#[derive(Debug)]
struct Deposed {
    records: Records,
    /// One bit per client.
    clients: u64,
    until_ms: u64,
    /// Limit on how long it serves after the first lost write was acknowledged.
    after_first_loss_ms: u64,
    /// The time of that acknowledgement.
    first_loss_ms: Option<u64>,
}

impl Deposed {
    fn lost(&mut self, now_ms: u64) {
        if self.first_loss_ms.is_none() {
            self.first_loss_ms = Some(now_ms);
            self.until_ms = self.until_ms.min(now_ms + self.after_first_loss_ms);
        }
    }
}

#[derive(Debug)]
pub(super) struct Failover {
    log: Log<Copied>,
    longest_lag_ms: u64,
    /// Number of replicas that must confirm.
    wanted: usize,
    losing: Losing,
    term: u64,
    deposed: Option<Deposed>,
    forgotten_writes: u64,
}

impl Failover {
    pub(super) fn new(longest_lag_ms: u64, wanted: usize, losing: Losing) -> Self {
        let (log, deposed) = (Log::default(), None);
        Self { log, longest_lag_ms, wanted, losing, term: 0, deposed, forgotten_writes: 0 }
    }

    /// Returns the times at which each replica gets a write made now: not before the earlier writes.
    fn copied(&self, visit: &mut Visit<'_>) -> Copied {
        let before = self.log.last().copied().unwrap_or_default();
        let at_ms = before.at_ms.map(|before| {
            let lag_ms = if visit.rng.bool() { 0 } else { visit.rng.u64(..self.longest_lag_ms) };
            before.max(visit.now_ms + lag_ms)
        });
        Copied { written_ms: visit.now_ms, at_ms }
    }

    /// Answers clients that reach the deposed primary, only without waiting for replicas: it has none.
    fn call_deposed(&mut self, visit: &mut Visit<'_>, call: &LeaseCall) -> Option<Reply> {
        let reaches = |deposed: &&mut Deposed| {
            deposed.until_ms > visit.now_ms && deposed.clients >> visit.client & 1 == 1
        };
        let deposed = self.deposed.as_mut().filter(reaches)?;
        if self.wanted > 0 {
            return Some(Reply::Unconfirmed { after_ms: 1 });
        }
        let input = deposed.records.read(call, visit.store_unix_ms).unwrap_or_else(|| {
            let written = deposed.records.swap(call.clone(), visit.rng);
            self.forgotten_writes += u64::from(written.is_some());
            let input = records::swapped(written.as_ref());
            if let Some(written) = written {
                deposed.lost(visit.now_ms);
                deposed.records.put(written);
            }
            input
        });
        Some(Reply::Now(input))
    }
}

impl SimStore for Failover {
    fn call(&mut self, visit: &mut Visit<'_>, call: LeaseCall) -> Reply {
        if let Some(reply) = self.call_deposed(visit, &call) {
            return reply;
        }
        let everywhere = self.log.steps_while(|copied| copied.to(REPLICAS) <= visit.now_ms);
        self.log.settle(everywhere);
        let input = self.log.newest().read(&call, visit.store_unix_ms).unwrap_or_else(|| {
            let written = self.log.newest().swap(call, visit.rng);
            let input = records::swapped(written.as_ref());
            let copied = self.copied(visit);
            if let Some(written) = written {
                self.log.push(copied, written);
            }
            input
        });
        let confirmed_at_ms = self.log.last().map_or(0, |copied| copied.to(self.wanted));
        let after_ms = confirmed_at_ms.saturating_sub(visit.now_ms);
        let patience_ms = self.longest_lag_ms / 4;
        match after_ms {
            0 => Reply::Now(input),
            _ if after_ms <= patience_ms => Reply::Confirmed { after_ms, term: self.term, input },
            _ => Reply::Unconfirmed { after_ms: patience_ms },
        }
    }

    fn fail(&mut self, visit: &mut Visit<'_>) {
        let next = visit.rng.usize(..REPLICAS);
        let records = self.log.newest().clone();
        let now_ms = visit.now_ms;
        let copied = self.log.steps_while(|copied| copied.at_ms[next] <= now_ms);
        let received = match self.losing {
            Losing::Anything => copied,
            Losing::Within { most_ms, .. } => {
                copied.max(self.log.steps_while(|copied| copied.written_ms + most_ms < now_ms))
            }
        };
        let forgotten = self.log.forget_after(received);
        let answered = forgotten.iter().filter(|(copied, _)| copied.to(self.wanted) <= now_ms);
        self.forgotten_writes += answered.count() as u64;
        // The other replica restarts as a copy of this one.
        self.log.settle(received);
        self.term += 1;
        let mut deposed = Deposed {
            records,
            clients: visit.rng.u64(..),
            until_ms: now_ms + visit.rng.u64(..self.longest_lag_ms),
            after_first_loss_ms: u64::MAX / 2,
            first_loss_ms: None,
        };
        if let Losing::Within { most_ms, killed } = self.losing {
            // In half of the cases, for as long as allowed.
            deposed.after_first_loss_ms = if visit.rng.bool() { most_ms } else { visit.rng.u64(..=most_ms) };
            deposed.until_ms = now_ms + deposed.after_first_loss_ms.max(self.longest_lag_ms);
            if let Some((first, _)) = forgotten.front() {
                deposed.lost(first.written_ms);
            }
            if visit.rng.u8(..100) < killed {
                deposed.until_ms = now_ms;
            }
        }
        self.deposed = Some(deposed);
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn lapses(&self) -> Lapses {
        Lapses { forgotten_writes: self.forgotten_writes, ..Lapses::default() }
    }
}
