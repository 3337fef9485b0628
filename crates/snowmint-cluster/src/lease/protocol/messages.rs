//! What the protocol exchanges with its driver: inputs, store calls and their answers, and events.

use std::ops::Range;

use snowmint::WorkerId;
use snowmint_store::{Expected, Revision, Swap};

use super::SettledLease;
use crate::Holder;
use crate::lease::record::{Block, BlockSize, Record};
use crate::segment::high_water_mark::Forgot;

/// One call to the store; its answer is the next [`LeaseInput`].
#[expect(clippy::large_enum_variant, reason = "few exist at a time: one for each lease of a node")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseCall {
    /// Read records of the pool, and the store's time if wanted.
    Look {
        /// Which records.
        scope: LookScope,
        /// Whether to ask the store for its time.
        time: StoreTime,
    },
    /// Read a worker's record.
    Load(WorkerId),
    /// Write a worker's record if it is as expected.
    Swap {
        /// The worker.
        worker: WorkerId,
        /// The expected revision.
        expected: Expected,
        /// The new record.
        record: Record,
    },
}

/// The records that one call reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookScope {
    /// The record of one worker.
    Worker(WorkerId),
    /// The records of a block of workers.
    Block(Block),
    /// All records of the pool.
    Pool,
}

impl LookScope {
    /// Returns whether this is the widest scope in a large pool.
    pub(super) const fn is_wide(self) -> bool {
        match self {
            Self::Worker(_) => false,
            Self::Block(block) => matches!(block.size(), BlockSize::Hundred),
            Self::Pool => true,
        }
    }

    /// Returns the workers of this scope that a pool of `workers` workers has.
    pub fn range(self, workers: u32) -> Range<u32> {
        let all = match self {
            Self::Worker(WorkerId(worker)) => worker..worker.saturating_add(1),
            Self::Block(block) => block.range(),
            Self::Pool => 0..workers,
        };
        all.start.min(workers)..all.end.min(workers)
    }
}

/// Whether a look also asks the store for its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreTime {
    /// Ask for the time.
    Wanted,
    /// Do not ask: the clock was compared with it recently.
    Known,
}

/// A record in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerEntry {
    /// The worker.
    pub worker: WorkerId,
    /// The record's revision.
    pub revision: Revision,
    /// The record; `None` if it is unreadable. No node uses such a worker.
    pub record: Option<Record>,
}

/// The records of a look, and the store's time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Listing {
    /// The records.
    pub entries: Vec<WorkerEntry>,
    /// The latest time that the store's clock can show after the look, in unix milliseconds, if it has a
    /// clock and was asked. Some clocks show whole seconds.
    pub store_unix_ms: Option<u64>,
}

/// How a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallFailure {
    /// Nothing was written and nothing will be.
    NotDone,
    /// A write may have happened, or may still happen later.
    Unknown,
}

/// What the driver passes to the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseInput {
    /// The wait is over, or this is the first step.
    Wake,
    /// The answer to [`LeaseCall::Look`].
    Looked(Result<Listing, CallFailure>),
    /// The answer to [`LeaseCall::Load`].
    Loaded(Result<Option<WorkerEntry>, CallFailure>),
    /// The answer to [`LeaseCall::Swap`].
    Swapped(Result<Swap, CallFailure>),
    /// The generator has ended: release the lease from this instant on. Only in place of an
    /// [`LeaseInput::Wake`].
    Release {
        /// The first instant after every used timestamp, in unix milliseconds.
        used_until_unix_ms: u64,
    },
}

/// What to do next.
#[expect(clippy::large_enum_variant, reason = "few exist at a time: one for each lease of a node")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseNext {
    /// Make this call and pass on its answer.
    Call(LeaseCall),
    /// Pass [`LeaseInput::Wake`] after this many milliseconds.
    Wait(u64),
    /// Nothing: the lease is released.
    Stop,
}

/// What has changed for the driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseEvent {
    /// A lease was granted: make a generator for it, after ending the last one.
    Granted(SettledLease),
    /// The lease was renewed: only its end is new.
    Extended(SettledLease),
    /// A worker was claimed in a store that may lose the claim. The lease is granted once the claim has
    /// settled.
    Claimed {
        /// The worker.
        worker: WorkerId,
        /// The minimum time that this takes, in milliseconds.
        settles_in_ms: u64,
    },
    /// The store has an older record of this lease than it had acknowledged, or none: it failed over or was
    /// restored. The protocol writes the lease again, unless another node has the worker, and claims no other
    /// worker for one window.
    StoreForgot {
        /// The worker.
        worker: WorkerId,
        /// The end that the store had acknowledged, in unix milliseconds.
        acknowledged_until_unix_ms: u64,
        /// The end of this lease in the store, in unix milliseconds; `None` without such a record.
        found_until_unix_ms: Option<u64>,
        /// Whether ids may have used what the store forgot.
        forgot: Forgot,
    },
    /// Another holder was granted time that this lease covers, because the store forgot it. This lease ends
    /// immediately.
    Overlap {
        /// The worker.
        worker: WorkerId,
        /// The other holder.
        holder: Holder,
        /// The beginning of the other grant, in unix milliseconds.
        from_unix_ms: u64,
        /// The end of this node's lease, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// A copy of this process renewed the lease, for example a virtual machine that was restored from a
    /// snapshot. Both used the same lease, so it ends here immediately.
    Copied {
        /// The worker.
        worker: WorkerId,
        /// The end of the lease, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// Another node took the worker after this lease. The lease stays usable to its end, and the protocol
    /// seeks another one.
    Lost {
        /// The worker.
        worker: WorkerId,
        /// The end of the lease, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The lease lies in a gap and reaches to the next grant of its worker. It stays usable to its end, and
    /// the protocol seeks another one.
    GapEnds {
        /// The worker.
        worker: WorkerId,
        /// The end of the lease, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The store's records reach further ahead than a clock like this one would have written.
    RecordsAhead {
        /// The worker whose record reaches furthest.
        worker: WorkerId,
        /// The holder of that record.
        holder: Holder,
        /// How far it reaches beyond a window from now, in milliseconds.
        ahead_ms: u64,
    },
    /// The clock is too far ahead of the store's clock to take or renew a lease.
    ClockAhead {
        /// How far at least, in milliseconds.
        ahead_ms: u64,
        /// The limit, in milliseconds.
        max_skew_ms: u64,
    },
    /// The clock jumped forward, and neither the store's clock nor another node confirms that: the protocol
    /// takes and renews no lease by it.
    ClockJumped {
        /// How far, in milliseconds.
        by_ms: u64,
        /// The time until the clock is trusted if it is not stepped again, in milliseconds.
        followed_in_ms: u64,
    },
    /// Every worker is taken, or at least every one of the last hundred.
    NoneFree {
        /// The worker that frees first, its holder, and when, in unix milliseconds; `None` if no record is
        /// readable.
        first: Option<(WorkerId, Holder, u64)>,
    },
    /// Another node holds the required worker and may have crashed: the worker becomes free unless that node
    /// renews.
    Awaited {
        /// The worker.
        worker: WorkerId,
        /// Its holder.
        holder: Holder,
        /// The end of its lease, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// Another node holds the required worker, and was seen to renew it or holds it far ahead.
    Taken {
        /// The worker.
        worker: WorkerId,
        /// Its holder.
        holder: Holder,
        /// The end of its lease, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The lease was released.
    Released,
}

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTurn {
    /// What changed, in order.
    pub events: Vec<LeaseEvent>,
    /// What to do next.
    pub next: LeaseNext,
}
