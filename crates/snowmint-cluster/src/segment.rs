//! Segments: plain numbers, unique over all nodes. Ranges of numbers are reserved at a counter before any number is used.
//!
//! | term | meaning |
//! |---|---|
//! | counter | a place in a store where numbers are reserved: [`Counter`](snowmint_store::Counter) |
//! | segment | a range of numbers reserved by one call |
//! | cached mode | numbers come from segments in memory, and the next segment is reserved in the background |
//! | direct mode | each number comes from the store, so that numbers increase over all nodes |
//! | run | the numbers that one caller gets: [`Run`] |
//! | stripe | the share of one of several counters: stripe 1 of 2 has the odd numbers: [`Stripe`] |
//! | period | a day, a month or a year after which numbers restart: [`Period`] |
//! | high-water mark | the greatest number received from a counter: a lower one later shows that it went back |
//!
//! | module | what it does |
//! |---|---|
//! | `segments` | [`Segments`]: the source that callers draw from |
//! | `queue` | segments in memory, drawn from without a lock |
//! | `cached_task` | cached mode: keeps numbers in memory, as `cached_protocol` decides |
//! | `direct_task` | direct mode: asks the counter for callers that wait, as `direct_protocol` decides |
//! | `cached_protocol` | decides, without I/O, when to reserve, confirm, raise and give back |
//! | `direct_protocol` | decides, without I/O, which requests share one call |
//! | `counter_calls` | what both tasks have in common: counters, clocks and status |
//! | `known_counter` | what both protocols know about one counter, and report about it |
//! | `counters` | which of several counters to call, and how long to leave out one that failed |
//! | `high_water_mark` | notices a counter that went back |
//! | `period` | periods, their counters and high-water marks |
//! | `stripe` | disjoint shares of the numbers for independent stores |
//! | `config`, `status` | settings, and what a source reports |

// The state machines are public only for the simulation.
#[doc(hidden)]
pub mod cached_protocol;
mod cached_task;
mod config;
mod counter_calls;
mod counters;
#[doc(hidden)]
pub mod direct_protocol;
mod direct_task;
#[doc(hidden)]
pub mod high_water_mark;
mod known_counter;
mod period;
mod queue;
mod segments;
mod status;
mod stripe;

use std::num::NonZeroU64;
use std::sync::Arc;

use snowmint::Clock;
use snowmint_store::Segment;

pub use config::{Mode, ModeError, SegmentConfig, SegmentConfigError};
pub use period::{CountersOf, HighWaterMarks, Period, Reset, ResetError};
#[doc(hidden)]
pub use queue::Unused;
pub use segments::Segments;
pub use status::{NoNumberError, SegmentStatus};
pub use stripe::{Stripe, StripeError};

type SharedClock = Arc<dyn Clock + Send + Sync>;

/// The atomics of the queue. Its model checker (`segment_loom.rs`) replaces them with its own.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};

    /// The segments that a queue has room for: 16 of a reserve, and more for a counter that returns fewer numbers at once
    /// than requested.
    pub(super) const ROOM: u64 = 32;
}

/// The numbers that one caller gets: `first`, `first + step` and so on, `count` of them.
///
/// They are durable in the store, and nobody else gets them. A run is a plain value, like an id: a process that forks while it
/// holds one has to decide which process uses it.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU64;
/// use snowmint_cluster::segment::Run;
/// use snowmint_store::Segment;
/// let [step, count] = [2, 3].map(|n| NonZeroU64::new(n).unwrap());
/// let run = Run::new(Segment::new(7, step, count).unwrap(), None);
/// assert_eq!(run.into_iter().collect::<Vec<u64>>(), [7, 9, 11]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "numbers that are not used are lost"]
pub struct Run {
    segment: Segment,
    period: Option<Period>,
}

impl Run {
    /// Returns the run of a segment, and of a period if numbers restart.
    pub const fn new(segment: Segment, period: Option<Period>) -> Self {
        Self { segment, period }
    }

    /// Returns the smallest number.
    pub const fn first(&self) -> u64 {
        self.segment.first()
    }

    /// Returns the greatest number.
    pub const fn last(&self) -> u64 {
        self.segment.last()
    }

    /// Returns the distance from one number to the next: 1, or the number of stripes.
    pub const fn step(&self) -> NonZeroU64 {
        self.segment.step()
    }

    /// Returns how many numbers the run has.
    pub const fn count(&self) -> NonZeroU64 {
        self.segment.count()
    }

    /// Returns the numbers without their period.
    pub const fn segment(&self) -> Segment {
        self.segment
    }

    /// Returns the period within which the numbers are unique, if they restart. A period and a number together are never handed
    /// out twice.
    pub const fn period(&self) -> Option<Period> {
        self.period
    }
}

impl IntoIterator for Run {
    type Item = u64;
    type IntoIter = RunIter;

    fn into_iter(self) -> RunIter {
        RunIter { next: self.first(), step: self.step(), left: self.count().get() }
    }
}

/// The numbers of a [`Run`], in increasing order.
#[derive(Clone, Debug)]
pub struct RunIter {
    next: u64,
    step: NonZeroU64,
    left: u64,
}

impl Iterator for RunIter {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let number = self.next;
        // The last number is at most 2^63 - 1 and so is the step: no overflow.
        self.next = number.wrapping_add(self.step.get());
        Some(number)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}
