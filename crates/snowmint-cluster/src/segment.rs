//! Number segments: ranges of plain numbers, reserved from a counter before any number of them is used.
//! `protocol` decides, without I/O; `segments` asks the counters and hands numbers out.

pub mod batching;
mod config;
mod direct;
mod period;
pub mod protocol;
mod queue;
mod refill;
mod segments;
mod status;
mod stripe;

use std::num::NonZeroU64;
use std::sync::Arc;

use snowmint::Clock;
use snowmint_store::Segment;

pub use config::{Mode, ModeError, SegmentConfig, SegmentConfigError};
pub use period::{CountersOf, HighWaterMarks, Period, Reset, ResetError};
pub use queue::Unused;
pub use segments::Segments;
pub use status::{NoNumberError, SegmentStatus};
pub use stripe::{Stripe, StripeError};

type SharedClock = Arc<dyn Clock + Send + Sync>;

/// What the queue shares between threads: the model checker puts its own atomics in their place
/// (`tests/segment_loom.rs`).
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};

    /// How many segments a queue has room for: sixteen of a reserve, and more where a counter gives fewer numbers at
    /// once than it is asked for.
    pub(super) const ROOM: u64 = 32;
}

/// Numbers drawn for one caller: `first`, `first + step` and so on, `count` of them.
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
    /// The numbers of a segment, of a period where numbers restart.
    pub const fn new(segment: Segment, period: Option<Period>) -> Self {
        Self { segment, period }
    }

    /// The smallest number.
    pub const fn first(&self) -> u64 {
        self.segment.first()
    }

    /// The greatest number.
    pub const fn last(&self) -> u64 {
        self.segment.last()
    }

    /// From one number to the next: 1, or the number of stripes.
    pub const fn step(&self) -> NonZeroU64 {
        self.segment.step()
    }

    /// How many numbers there are.
    pub const fn count(&self) -> NonZeroU64 {
        self.segment.count()
    }

    /// The numbers, without their period.
    pub const fn segment(&self) -> Segment {
        self.segment
    }

    /// What the numbers are unique within, where they restart: a period and a number together never come twice.
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
