//! One simulated node: the protocol and the numbers in its memory, or the batching and the callers that wait.
//! A process ends with a crash; what it had sent may still arrive.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;

use snowmint_cluster::segment::Unused;
use snowmint_cluster::segment::batching::{Batching, RequestId};
use snowmint_cluster::segment::protocol::{HighWaterMark, Memory, Protocol, Range, Settings};
use snowmint_store::{MAX_NUMBER, Segment};

use super::SegmentScenario;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) process: u32,
    pub(crate) protocol: Protocol,
    pub(crate) batching: Batching,
    /// Oldest first.
    pub(crate) memory: VecDeque<Unused>,
    misses: u64,
    /// Wakes the protocol when fewer are left; none while it waits for something else.
    pub(crate) keep: Option<u64>,
    /// Which wake-up is the one that is waited for.
    pub(crate) wake: u64,
    /// The call whose answer the process waits for.
    pub(crate) pending: Option<u64>,
    pub(crate) released: bool,
    /// When each caller asked.
    pub(crate) callers: BTreeMap<RequestId, u64>,
    asked: u64,
    last: Option<u64>,
    pub(crate) disorder: u64,
}

impl Node {
    pub(crate) fn new(scenario: &SegmentScenario, seed: u64) -> Self {
        let range = Range { first: 1, maximum: MAX_NUMBER };
        let settings = Settings {
            counters: scenario.counters,
            sizes: scenario.sizes.0..=scenario.sizes.1,
            first_size: scenario.sizes.0,
            target_ms: 500,
            reserve_ms: scenario.reserve_ms,
            settle_ms: scenario.may_lose_ms,
            range,
        };
        Self {
            process: 0,
            protocol: Protocol::new(&settings, seed),
            batching: Batching::new(range, seed),
            memory: VecDeque::new(),
            misses: 0,
            keep: None,
            wake: 0,
            pending: None,
            released: false,
            callers: BTreeMap::new(),
            asked: 0,
            last: None,
            disorder: 0,
        }
    }

    /// A new process in the place of the old one.
    pub(crate) fn restart(&mut self, scenario: &SegmentScenario, seed: u64) {
        let (process, disorder) = (self.process + 1, self.disorder);
        *self = Self::new(scenario, seed);
        (self.process, self.disorder) = (process, disorder);
    }

    /// Makes it forget what the counters have given: a mistake.
    pub(crate) fn forget_highest(&mut self, scenario: &SegmentScenario) {
        let other = Self::new(scenario, 0);
        let seen = vec![HighWaterMark::default(); scenario.counters];
        self.protocol = std::mem::replace(&mut self.protocol, other.protocol).sharing(&seen);
        self.batching =
            std::mem::replace(&mut self.batching, other.batching).sharing(HighWaterMark::default());
    }

    pub(crate) fn left(&self) -> u64 {
        self.memory.iter().map(|unused| unused.segment.count().get()).sum()
    }

    pub(crate) fn state(&self) -> Memory {
        Memory { left: self.left(), misses: self.misses, ..Memory::default() }
    }

    /// Up to `count` numbers from memory, in order.
    pub(crate) fn draw(&mut self, count: NonZeroU64) -> Option<Segment> {
        let Some(Unused { counter, segment }) = self.memory.pop_front() else {
            self.misses += 1;
            return None;
        };
        let count = count.min(segment.count());
        let drawn = Segment::new(segment.first(), segment.step(), count)?;
        let rest = NonZeroU64::new(segment.count().get() - count.get());
        let first = segment.first() + count.get() * segment.step().get();
        if let Some(segment) = rest.and_then(|rest| Segment::new(first, segment.step(), rest)) {
            self.memory.push_front(Unused { counter, segment });
        }
        self.disorder += u64::from(self.last.is_some_and(|last| last >= drawn.first()));
        self.last = Some(drawn.last());
        Some(drawn)
    }

    /// A caller that asks in direct mode.
    pub(crate) fn caller(&mut self, now_ms: u64) -> RequestId {
        self.asked += 1;
        let caller = RequestId(self.asked);
        self.callers.insert(caller, now_ms);
        caller
    }
}
