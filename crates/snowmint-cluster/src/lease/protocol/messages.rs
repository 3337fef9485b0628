//! What the machine is told and what it says: calls and their answers, events, and what to do next.

use std::ops::Range;

use snowmint::{Lease, WorkerId};
use snowmint_store::{Expected, Revision};

use crate::Holder;
use crate::lease::record::Record;
use crate::segment::protocol::Forgot;

/// One call to the store; its answer is the next [`Input`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Some records of the pool, and the store's own time where that is wanted.
    Look {
        /// Which records.
        scope: Scope,
        /// Whether the store is asked for its time.
        time: StoreTime,
    },
    /// One worker's record.
    Load(WorkerId),
    /// Write one worker's record if it is as expected.
    Swap {
        /// The worker.
        worker: WorkerId,
        /// What must be there.
        expected: Expected,
        /// What to write.
        record: Record,
    },
}

/// Which records of a pool to read, by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// That of one worker.
    Worker(WorkerId),
    /// Those of some workers.
    Block(Block),
    /// All.
    Pool,
}

impl Scope {
    /// Whether there is nothing wider in a large pool.
    pub(super) const fn is_wide(self) -> bool {
        matches!(self, Self::Pool | Self::Block(Block { size: BlockSize::Hundred, .. }))
    }

    /// The numbers of its workers, in a pool of so many.
    pub fn range(self, workers: u32) -> Range<u32> {
        let all = match self {
            Self::Worker(WorkerId(worker)) => worker..worker.saturating_add(1),
            Self::Block(block) => block.range(),
            Self::Pool => 0..workers,
        };
        all.start.min(workers)..all.end.min(workers)
    }
}

/// Workers whose numbers differ in the last digits only, so that one prefix of their keys lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    number: u32,
    size: BlockSize,
}

/// How many workers a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockSize {
    /// Ten.
    Ten,
    /// A hundred.
    Hundred,
}

impl BlockSize {
    /// As a number.
    pub const fn workers(self) -> u32 {
        match self {
            Self::Ten => 10,
            Self::Hundred => 100,
        }
    }
}

impl Block {
    /// The block in which a worker is.
    pub const fn of(worker: WorkerId, size: BlockSize) -> Self {
        Self { number: worker.0 / size.workers(), size }
    }

    /// The numbers of its workers; the pool may have fewer.
    pub const fn range(self) -> Range<u32> {
        let first = self.number * self.size.workers();
        first..first.saturating_add(self.size.workers())
    }

    /// What the ten digits of all its workers begin with.
    pub fn digits(self) -> String {
        match self.size {
            BlockSize::Ten => format!("{:09}", self.number),
            BlockSize::Hundred => format!("{:08}", self.number),
        }
    }
}

/// Whether a look asks the store for its time, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreTime {
    /// It does.
    Wanted,
    /// The clock was compared with it lately.
    Known,
}

/// A record as the store holds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The worker.
    pub worker: WorkerId,
    /// The record's revision.
    pub revision: Revision,
    /// What it says; `None` if it cannot be read: such a worker is left alone.
    pub record: Option<Record>,
}

/// The records that were asked for, and the store's own time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Listing {
    /// The records.
    pub entries: Vec<Entry>,
    /// The store's time when it listed them, in unix milliseconds, if it has any and was asked.
    pub store_unix_ms: Option<u64>,
}

/// How a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Nothing was written and nothing will be.
    NotDone,
    /// A write may have happened, or may still happen later.
    Unknown,
}

/// What a swap came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Swapped {
    /// Written, at this revision.
    Done(Revision),
    /// The record is not as expected.
    Conflict,
}

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The wait is over, or it begins.
    Wake,
    /// The answer to [`Call::Look`].
    Listed(Result<Listing, Failure>),
    /// The answer to [`Call::Load`].
    Loaded(Result<Option<Entry>, Failure>),
    /// The answer to [`Call::Swap`].
    Swapped(Result<Swapped, Failure>),
    /// The generator was ended: give the lease back from this instant on. Only in place of a [`Input::Wake`].
    Release {
        /// The first instant after every timestamp used, in unix milliseconds.
        used_until_unix_ms: u64,
    },
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// Make this call and give its answer.
    Call(Call),
    /// Give [`Input::Wake`] after this many milliseconds.
    Wait(u64),
    /// Nothing: the lease was given back.
    Stop,
}

/// What has changed for whoever makes ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A lease was granted: make a generator, end the one before it.
    Granted(Lease),
    /// The lease goes on until later.
    Extended {
        /// Its new end, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// A worker was claimed, of a store that may lose the claim: the lease is granted once that has settled.
    Claimed {
        /// The worker.
        worker: WorkerId,
        /// How long that takes at least, in milliseconds.
        settles_in_ms: u64,
    },
    /// The store has an older record of this lease than it had acknowledged, or none: it failed over, or was restored. The
    /// lease is written again, unless another node has the worker; no other is claimed for one window.
    StoreForgot {
        /// The worker.
        worker: WorkerId,
        /// The end that the store had acknowledged, in unix milliseconds.
        acknowledged_until_unix_ms: u64,
        /// The end of this lease that it shows, in unix milliseconds; `None` where it shows none.
        found_until_unix_ms: Option<u64>,
        /// Whether any of what it forgot may have been used.
        forgot: Forgot,
    },
    /// Another holder was granted what this lease covers, since the store forgot: it ends at once.
    Overlap {
        /// The worker.
        worker: WorkerId,
        /// Who else has it.
        holder: Holder,
        /// Where the other's grant begins, in unix milliseconds.
        from_unix_ms: u64,
        /// Where this node's lease would have ended, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// Another node took the worker's later timestamps: what was granted stays, another lease is sought.
    Lost {
        /// The worker.
        worker: WorkerId,
        /// The end of what was granted, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The store's records reach further ahead than a clock that agrees with this one would have written.
    RecordsAhead {
        /// The record that reaches furthest.
        worker: WorkerId,
        /// Who wrote it.
        holder: Holder,
        /// How far it is beyond a window from now, in milliseconds.
        ahead_ms: u64,
    },
    /// The clock is further ahead of the store's own time than it may be: no lease is taken or renewed with it.
    ClockAhead {
        /// How far, in milliseconds.
        ahead_ms: u64,
        /// How far it may be, in milliseconds.
        max_skew_ms: u64,
    },
    /// The clock jumped forward, and neither a store's clock nor another node confirms that: no lease is taken or renewed with
    /// it.
    ClockJumped {
        /// How far, in milliseconds.
        by_ms: u64,
        /// When the clock is believed if it is not stepped again, in milliseconds from now.
        followed_in_ms: u64,
    },
    /// Every worker is taken, or all of the last hundred that were looked at.
    NoneFree {
        /// Which frees first, who has it, and when, in unix milliseconds; `None` when none can be read.
        first: Option<(WorkerId, Holder, u64)>,
    },
    /// The only worker wanted is granted to someone who may have crashed: it is free if it is not renewed.
    Awaited {
        /// The worker.
        worker: WorkerId,
        /// Who has it.
        holder: Holder,
        /// Until when, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The only worker wanted belongs to another node, which was seen to renew it or holds it far ahead.
    Taken {
        /// The worker.
        worker: WorkerId,
        /// Who has it.
        holder: Holder,
        /// Until when, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The lease was given back.
    Released,
}

/// What one step of the machine comes to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    /// What changed, in order.
    pub events: Vec<Event>,
    /// What to do next.
    pub next: Next,
}
