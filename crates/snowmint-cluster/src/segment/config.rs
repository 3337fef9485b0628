//! What a source of numbers is told, checked before anything is asked of the store.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::{Counter, MAX_NUMBER};

use super::protocol::{Range, Settings};

/// The largest size that may be set.
const MAX_SIZE: u64 = 1 << 40;
const TARGETS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(24);
const MAX_RESERVE: Duration = Duration::from_hours(24);
const MAX_PATIENCE: Duration = Duration::from_hours(1);

/// How numbers are handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// From segments in memory: fast, unique, growing on each node. Numbers in memory are lost in a crash.
    #[default]
    Cached,
    /// From the store, each time: strictly growing over all nodes. Callers of one process that ask at the same time
    /// share one call.
    Direct,
}

/// How [`Segments`](super::Segments) reserves numbers and hands them out.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use snowmint_cluster::segment::SegmentConfig;
/// let config = SegmentConfig::new().sizes(100..=100_000).reserve(Duration::from_secs(60));
/// assert!(config.check().is_ok());
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SegmentConfig {
    pub(super) mode: Mode,
    pub(super) sizes: RangeInclusive<u64>,
    pub(super) target: Duration,
    pub(super) reserve: Duration,
    pub(super) first: u64,
    pub(super) maximum: u64,
    pub(super) patience: Duration,
}

impl Default for SegmentConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl SegmentConfig {
    /// Numbers from 1, from memory; segments of 1000 to 10 million that last about 30 s; a reserve for 30 s without
    /// the store.
    pub const fn new() -> Self {
        Self {
            mode: Mode::Cached,
            sizes: 1000..=10_000_000,
            target: Duration::from_secs(30),
            reserve: Duration::from_secs(30),
            first: 1,
            maximum: MAX_NUMBER,
            patience: Duration::from_secs(5),
        }
    }

    /// How numbers are handed out.
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The smallest and the largest size of a segment, in numbers, from 1 to 2^40. The first is of the size that the
    /// counter suggests, or else the smallest. What is in memory when a process crashes is lost.
    pub const fn sizes(mut self, sizes: RangeInclusive<u64>) -> Self {
        self.sizes = sizes;
        self
    }

    /// How long a segment should last, 10 ms to a day: the size doubles when one is spent in under half of it, and
    /// halves when one lasts over twice of it.
    pub const fn target(mut self, target: Duration) -> Self {
        self.target = target;
        self
    }

    /// How long the store may be away with no effect, at the demand measured; at most a day. The numbers in memory
    /// last 8 s longer than that, which is what it may take to notice that the store is back. With 0 there is one whole
    /// segment besides the one in use.
    ///
    /// At most 16 segments of the largest size are kept.
    pub const fn reserve(mut self, reserve: Duration) -> Self {
        self.reserve = reserve;
        self
    }

    /// The smallest number to hand out: a counter that is below it is moved on.
    pub const fn first(mut self, first: u64) -> Self {
        self.first = first;
        self
    }

    /// The greatest number to hand out, at most [`MAX_NUMBER`].
    pub const fn maximum(mut self, maximum: u64) -> Self {
        self.maximum = maximum;
        self
    }

    /// How long [`take`](super::Segments::take) waits for numbers before it says why there are none; at most an
    /// hour.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Whether it can be used.
    ///
    /// # Errors
    ///
    /// [`SegmentConfigError`], with the value and the limits.
    pub fn check(&self) -> Result<(), SegmentConfigError> {
        let (&smallest, &largest) = (self.sizes.start(), self.sizes.end());
        if smallest < 1 || largest > MAX_SIZE || smallest > largest {
            return Err(SegmentConfigError::Sizes { smallest, largest });
        }
        if !TARGETS.contains(&self.target) {
            return Err(SegmentConfigError::Target { target: self.target });
        }
        if self.reserve > MAX_RESERVE {
            return Err(SegmentConfigError::Reserve { reserve: self.reserve });
        }
        if self.maximum > MAX_NUMBER || self.first > self.maximum {
            return Err(SegmentConfigError::Maximum { first: self.first, maximum: self.maximum });
        }
        if self.patience > MAX_PATIENCE {
            return Err(SegmentConfigError::Patience { patience: self.patience });
        }
        Ok(())
    }

    pub(super) const fn range(&self) -> Range {
        Range { first: self.first, maximum: self.maximum }
    }

    pub(super) fn settings(&self, counters: &[Arc<dyn Counter>]) -> Settings {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let suggested = counters.iter().filter_map(|counter| counter.suggested_count());
        Settings {
            counters: counters.len(),
            sizes: self.sizes.clone(),
            first_size: suggested.max().map_or(*self.sizes.start(), NonZeroU64::get),
            target_ms: ms(self.target),
            reserve_ms: ms(self.reserve),
            settle_ms: counters.iter().map(|counter| ms(counter.may_lose())).max().unwrap_or(0),
            range: self.range(),
        }
    }

    pub(super) fn check_counters(&self, counters: &[Arc<dyn Counter>]) -> Result<(), SegmentConfigError> {
        match (self.mode, counters) {
            (_, []) => Err(SegmentConfigError::NoCounter),
            (Mode::Direct, [counter]) => Self::check_direct(counter.may_lose(), &counter.describe()),
            (Mode::Direct, _) => Err(SegmentConfigError::DirectOverStripes { counters: counters.len() }),
            (Mode::Cached, _) => Ok(()),
        }
    }

    /// Whether numbers may come straight from a store or counter, by how much it may lose and what it is called.
    ///
    /// # Errors
    ///
    /// [`SegmentConfigError::DirectMayLose`] for one that may lose what it acknowledged: each number would have to wait
    /// until its reservation has settled.
    pub fn check_direct(may_lose: Duration, described: &str) -> Result<(), SegmentConfigError> {
        if may_lose.is_zero() {
            return Ok(());
        }
        Err(SegmentConfigError::DirectMayLose { counter: described.to_owned(), may_lose })
    }
}

/// Fresh random bits: nodes that fail together do not come back together.
pub(super) fn random_seed() -> Result<u64, SegmentConfigError> {
    getrandom::u64().map_err(|error| SegmentConfigError::Randomness(error.to_string()))
}

/// Why numbers cannot be handed out as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentConfigError {
    /// The sizes are out of range.
    #[error(
        "segments of {smallest} to {largest} numbers are out of range: take sizes from 1 to {MAX_SIZE}, the smaller first"
    )]
    Sizes {
        /// The smallest size.
        smallest: u64,
        /// The largest size.
        largest: u64,
    },
    /// The target is too short or too long.
    #[error("segments cannot be made to last {target:?}: take {:?} to {:?}", TARGETS.start(), TARGETS.end())]
    Target {
        /// The target.
        target: Duration,
    },
    /// The reserve is too long.
    #[error("a reserve for {reserve:?} is too long: take {MAX_RESERVE:?} at most")]
    Reserve {
        /// The reserve.
        reserve: Duration,
    },
    /// The first or the greatest number is out of range.
    #[error(
        "numbers from {first} to {maximum} are out of range: the greatest is {MAX_NUMBER} at most, and the first not above it"
    )]
    Maximum {
        /// The first number.
        first: u64,
        /// The greatest number.
        maximum: u64,
    },
    /// The patience is too long.
    #[error("a patience of {patience:?} is too long: take {MAX_PATIENCE:?} at most")]
    Patience {
        /// The patience.
        patience: Duration,
    },
    /// There is nothing to reserve numbers from.
    #[error("no counter is given: numbers are reserved from at least one")]
    NoCounter,
    /// Numbers of several stripes do not grow in the order they are asked for.
    #[error(
        "{counters} counters cannot make numbers that grow over all nodes: direct mode takes exactly one counter, \
         cached mode takes several"
    )]
    DirectOverStripes {
        /// How many were given.
        counters: usize,
    },
    /// The store may lose what it acknowledged.
    #[error(
        "direct mode needs a store that keeps what it acknowledged, and {counter} may lose the writes of the last \
         {may_lose:?}: use cached mode, or another store; or set may_lose=0 if this one loses nothing"
    )]
    DirectMayLose {
        /// The counter.
        counter: String,
        /// How much it may lose.
        may_lose: Duration,
    },
    /// The system gave no random bits.
    #[error("the system gave no random bits: {0}")]
    Randomness(String),
}
