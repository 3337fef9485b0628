//! One counter as both protocols see it: what it returned so far, whether it has to be raised before the next
//! reservation, and what is reported about it.

use std::num::NonZeroU64;

use snowmint_store::Segment;

use super::high_water_mark::{Forgot, HighWaterMark, NumberRange, Within};

/// Why a call failed. The numbers that it may have reserved are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterFailure {
    /// A retry may succeed.
    Failed,
    /// No answer came in time.
    TimedOut,
    /// The counter has no room for that many numbers; a request for fewer may succeed.
    Full,
}

/// A change that the driver applies to memory, status and log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterEvent {
    /// Numbers were reserved: add them to memory.
    Reserved {
        /// The counter that returned them.
        counter: usize,
        /// The numbers.
        segment: Segment,
    },
    /// A counter began to fail. It is skipped for a while, then retried.
    Failing {
        /// The counter.
        counter: usize,
    },
    /// A counter answers again.
    Recovered {
        /// The counter.
        counter: usize,
        /// The number of calls that failed in a row.
        failures: u32,
    },
    /// Nine tenths of the numbers up to the maximum are reserved. Reported once.
    NearlyExhausted {
        /// The greatest number reserved.
        highest: u64,
    },
    /// Every number up to the maximum is reserved, at every counter. Reported once.
    Exhausted,
    /// A counter returned numbers that it had returned before. None of them is used, and the counter is
    /// raised next.
    WentBack {
        /// The counter.
        counter: usize,
        /// The numbers it returned.
        segment: Segment,
        /// The greatest number received from it before.
        highest: u64,
        /// Which reservations its store lost.
        forgot: Forgot,
    },
    /// A reservation was not found when it should have settled: the store lost it, or later ones pushed it
    /// out of the record. Its numbers are not used.
    Lost {
        /// The counter.
        counter: usize,
        /// The numbers.
        segment: Segment,
    },
    /// A counter that went back was raised.
    Raised {
        /// The counter.
        counter: usize,
        /// It was raised above this number.
        above: u64,
    },
    /// A counter that went back cannot be raised: it is not used any more.
    Stuck {
        /// The counter.
        counter: usize,
        /// The greatest number received from it.
        highest: u64,
    },
    /// Numbers were given back.
    GivenBack {
        /// The number of numbers.
        count: u64,
    },
}

/// A reservation whose answer is awaited.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedNumbers {
    pub(super) counter: usize,
    pub(super) count: NonZeroU64,
    pub(super) at_ms: u64,
    /// The smallest expected number; an answer that begins below it shows that the counter went back.
    least: u64,
}

/// Why a counter is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RaiseReason {
    /// It is below the first number that may be handed out.
    BelowFirst,
    /// It returned numbers that it had returned before.
    WentBack,
}

/// A pending raise of a counter above a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    pub(super) above: u64,
    reason: RaiseReason,
}

/// What is known about a counter.
#[derive(Debug)]
pub(super) struct KnownCounter {
    index: usize,
    pub(super) high_water_mark: HighWaterMark,
    /// The greatest number within the range that it returned.
    pub(super) highest: u64,
    /// The distance from one number to the next; `None` before the first answer.
    pub(super) step: Option<NonZeroU64>,
    /// How many numbers it is below the first that may be handed out, if it cannot be raised.
    pub(super) below: u64,
    /// The maximum count to request, because the counter had no room for more.
    pub(super) most: Option<NonZeroU64>,
    /// The counter has to be raised before the next reservation.
    pub(super) raise: Option<Raise>,
    /// The counter cannot be raised.
    is_fixed: bool,
}

impl KnownCounter {
    /// Returns a counter before its first call; counters are numbered from 0.
    pub(super) fn new(index: usize) -> Self {
        Self {
            index,
            high_water_mark: HighWaterMark::default(),
            highest: 0,
            step: None,
            below: 0,
            most: None,
            raise: None,
            is_fixed: false,
        }
    }

    /// Begins a reservation.
    pub(super) fn ask(&self, count: NonZeroU64, now_ms: u64) -> AskedNumbers {
        AskedNumbers { counter: self.index, count, at_ms: now_ms, least: self.high_water_mark.end() }
    }

    /// Takes the numbers that a reservation returned, and cuts them to the range. The error is what to report
    /// if the counter went back: none of the numbers is used, and they are not given back either, because
    /// they may be in use elsewhere.
    pub(super) fn received(
        &mut self,
        asked: AskedNumbers,
        segment: Segment,
        range: NumberRange,
    ) -> Result<Within, CounterEvent> {
        if let Some(forgot) = self.high_water_mark.forgot(segment, asked.least) {
            let above = self.high_water_mark.highest();
            self.raise = Some(Raise { above, reason: RaiseReason::WentBack });
            let highest = asked.least - 1;
            return Err(CounterEvent::WentBack { counter: self.index, segment, highest, forgot });
        }
        self.high_water_mark.received(segment);
        self.highest = self.highest.max(segment.last().min(range.maximum));
        (self.step, self.below, self.most) = (Some(segment.step()), 0, None);
        let within = range.cut(segment);
        if let Within::Below { missing } = within
            && !self.raise_to_first(range)
        {
            self.below = missing;
        }
        Ok(within)
    }

    /// Raises a counter that is below the first number. If each node added the missing count instead, the
    /// counter would run too far. Returns `false` if it cannot be raised.
    pub(super) fn raise_to_first(&mut self, range: NumberRange) -> bool {
        if !self.is_fixed {
            let above = range.first.saturating_sub(1);
            self.raise = Some(Raise { above, reason: RaiseReason::BelowFirst });
        }
        !self.is_fixed
    }

    /// Takes the answer to a raise, which says whether the counter can be raised at all. Returns what to
    /// report.
    pub(super) fn raised(&mut self, can: bool) -> Option<CounterEvent> {
        let (counter, Raise { above, reason }) = (self.index, self.raise.take()?);
        match reason {
            RaiseReason::BelowFirst => {
                self.is_fixed = !can;
                None
            }
            RaiseReason::WentBack if can => Some(CounterEvent::Raised { counter, above }),
            RaiseReason::WentBack => Some(CounterEvent::Stuck { counter, highest: above }),
        }
    }
}
