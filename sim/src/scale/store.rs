//! A store that executes a limited number of reads and of writes a second, each in the order of arrival.

use fastrand::Rng;
use snowmint_cluster::lease::protocol::{LeaseCall, LeaseInput, StoreTime};
use snowmint_store::Swap;

use super::{MS, SECOND};
use crate::store::records::{self, Records};

/// The way to the store or back.
pub(super) const NETWORK: u64 = MS / 4;
/// How long a write takes besides its share of the writes a second: it waits for a disk.
const COMMIT: u64 = 2 * MS;

/// How fast a store is, and which further reads its calls need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSpeed {
    /// Its name.
    pub name: &'static str,
    /// Writes that it executes in a second.
    pub writes_per_second: u64,
    /// Reads that it executes in a second.
    pub reads_per_second: u64,
    /// Whether nodes ask it for its time.
    pub tells_time: bool,
    /// Whether answers name the server, so that no look at the identity follows a write.
    pub tells_server: bool,
}

/// What a store does with a call whose node does not wait any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// It drops the call if its turn has not come: the call waited in the pool of the client.
    Dropped,
    /// It executes the call all the same, for nobody: the call waited in the server.
    Executed,
}

/// The queue in which a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

impl Access {
    /// Returns how long the answer is on its way after the store has executed the call.
    pub(super) const fn answer_takes(self) -> u64 {
        match self {
            Self::Read => NETWORK,
            Self::Write => NETWORK + COMMIT,
        }
    }
}

/// One visit of a call to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A look at the identity of the store, by `IdentifiedStore`.
    Identity,
    /// The call itself.
    Call,
    /// A look at the store's clock.
    Time,
}

impl Stage {
    pub(super) const fn access(self, call: &LeaseCall) -> Access {
        match (self, call) {
            (Self::Call, LeaseCall::Swap { .. }) => Access::Write,
            _ => Access::Read,
        }
    }
}

impl StoreSpeed {
    /// One etcd on two busy processors: `etcdctl check perf --load=xl` got 4,065 writes a second of etcd 3.4.
    /// `bench/RESULTS.md` has 8,457 writes and 17,959 reads of it, on a quiet machine.
    pub const ETCD: Self = Self {
        name: "etcd",
        writes_per_second: 4_000,
        reads_per_second: 16_000,
        tells_time: false,
        tells_server: false,
    };
    /// One PostgreSQL: `bench/RESULTS.md` has 19,244 rows inserted one by one, each committed and synced, and
    /// 60,265 selects, both over 16 connections on two processors.
    pub const POSTGRES: Self = Self {
        name: "PostgreSQL",
        writes_per_second: 19_000,
        reads_per_second: 60_000,
        tells_time: true,
        tells_server: true,
    };

    /// Returns the visits of a call, the first one last.
    pub(super) fn stages(&self, call: &LeaseCall, looks: bool) -> Vec<Stage> {
        let after = match call {
            LeaseCall::Look { time: StoreTime::Wanted, .. } if self.tells_time => Some(Stage::Time),
            LeaseCall::Swap { .. } if !self.tells_server => Some(Stage::Identity),
            _ => None,
        };
        let before = looks.then_some(Stage::Identity);
        after.into_iter().chain([Stage::Call]).chain(before).collect()
    }
}

/// How long a call waits, and when it is executed and answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) queued: u64,
    pub(super) executed: u64,
    pub(super) answered: u64,
}

#[derive(Debug)]
pub(super) struct BusyStore {
    speed: StoreSpeed,
    given_up: GivenUp,
    /// Until when the queues of reads and of writes are busy.
    reads_until: u64,
    writes_until: u64,
    records: Records,
    /// Revisions grow by random steps.
    rng: Rng,
}

impl BusyStore {
    pub(super) fn new(speed: StoreSpeed, given_up: GivenUp, rng: Rng) -> Self {
        Self { speed, given_up, reads_until: 0, writes_until: 0, records: Records::default(), rng }
    }

    /// Puts a call that arrives now into its queue; `None` if it is dropped there.
    pub(super) fn wait(&mut self, now: u64, access: Access, deadline: u64) -> Option<Wait> {
        let (until, per_second) = match access {
            Access::Read => (&mut self.reads_until, self.speed.reads_per_second),
            Access::Write => (&mut self.writes_until, self.speed.writes_per_second),
        };
        let begins = now.max(*until);
        if begins >= deadline && self.given_up == GivenUp::Dropped {
            return None;
        }
        *until = begins + SECOND / per_second;
        Some(Wait { queued: begins - now, executed: *until, answered: *until + access.answer_takes() })
    }

    pub(super) fn lose_records(&mut self) {
        self.records = Records::default();
    }

    pub(super) fn execute(&mut self, call: &LeaseCall, store_unix_ms: u64) -> LeaseInput {
        let store_unix_ms = Some(store_unix_ms).filter(|_| self.speed.tells_time);
        if let Some(input) = self.records.read(call, store_unix_ms) {
            return input;
        }
        let written = self.records.swap(call.clone(), &mut self.rng);
        let input = records::swapped(written.as_ref());
        if let Some(written) = written {
            self.records.put(written);
        }
        input
    }
}

/// Returns whether a write found another record than expected.
pub(super) const fn is_conflict(answer: &LeaseInput) -> bool {
    matches!(answer, LeaseInput::Swapped(Ok(Swap::Conflict)))
}
