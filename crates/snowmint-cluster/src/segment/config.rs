//! The configuration of a source of numbers, checked before the first store call.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use snowmint::error::Snippet;
use snowmint_store::{Counter, MAX_NUMBER};

use super::cached_protocol::SegmentSettings;
use super::high_water_mark::NumberRange;
use crate::RandomnessError;

/// The largest size that may be set.
const MAX_SIZE: u64 = 1 << 40;
const TARGETS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(24);
const MAX_RESERVE: Duration = Duration::from_hours(24);
const MAX_PATIENCE: Duration = Duration::from_hours(1);

/// Where a source takes numbers from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// From segments in memory: fast and unique, and increasing on each node. A crash loses the numbers in
    /// memory.
    #[default]
    Cached,
    /// Directly from the store, each time: strictly increasing over all nodes. Callers of one process that
    /// wait at the same time share one store call.
    Direct,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cached => "cached",
            Self::Direct => "direct",
        })
    }
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        match text {
            "cached" => Ok(Self::Cached),
            "direct" => Ok(Self::Direct),
            _ => Err(ModeError { text: Snippet::of(text) }),
        }
    }
}

/// A text that is not a mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid mode {text}: expected cached (from memory: fast, increasing on each node) or direct (from the store each time: \
     increasing over all nodes)"
)]
pub struct ModeError {
    /// The text.
    pub text: Snippet,
}

/// The settings of [`Segments`](super::Segments).
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
    /// Returns the defaults: cached numbers from 1, segments of 1000 to 10 million numbers that last about 30
    /// s, and a reserve for a store outage of 30 s.
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

    snowmint::__setters! {
        /// Sets where numbers are taken from.
        mode: Mode;

        /// Sets the smallest and the largest size of a segment, in numbers, from 1 to 2^40.
        ///
        /// The first segment has the size that the counter suggests, or else the smallest. A crash loses the
        /// numbers in memory.
        sizes: RangeInclusive<u64>;

        /// Sets how long a segment should last, from 10 ms to a day.
        ///
        /// The size doubles when a segment is spent in less than half of this, and halves when one lasts more
        /// than twice this.
        target: Duration;

        /// Sets the longest store outage that callers do not notice at the measured demand, at most a day.
        ///
        /// The numbers in memory last 8 s longer than this, because it may take that long to notice that the
        /// store is back. With 0, memory holds one whole segment in addition to the current one. It never
        /// holds more than 16 segments of the largest size.
        reserve: Duration;

        /// Sets the smallest number to hand out: a counter below it is raised.
        first: u64;

        /// Sets the greatest number to hand out, at most [`MAX_NUMBER`].
        maximum: u64;

        /// Sets how long [`take`](super::Segments::take) waits for numbers before it fails; at most an hour.
        patience: Duration;
    }

    /// Checks that every value is in range.
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

    pub(super) const fn range(&self) -> NumberRange {
        NumberRange { first: self.first, maximum: self.maximum }
    }

    pub(super) fn settings(&self, counters: &[Arc<dyn Counter>]) -> SegmentSettings {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let suggested = counters.iter().filter_map(|counter| counter.suggested_count());
        SegmentSettings {
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

    /// Checks that direct mode works with a store or counter, given how much it may lose and its description.
    ///
    /// # Errors
    ///
    /// [`SegmentConfigError::DirectMayLose`] if it may lose acknowledged writes: each number would have to
    /// wait until its reservation has settled.
    pub fn check_direct(may_lose: Duration, described: &str) -> Result<(), SegmentConfigError> {
        if may_lose.is_zero() {
            return Ok(());
        }
        Err(SegmentConfigError::DirectMayLose { counter: described.to_owned(), may_lose })
    }
}

/// Returns a random seed for waits, so that nodes that failed together do not retry together.
pub(super) fn random_seed() -> Result<u64, RandomnessError> {
    RandomnessError::of(getrandom::u64())
}

/// An invalid configuration of a source of numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentConfigError {
    /// The sizes are out of range.
    #[error(
        "invalid segment sizes {smallest} to {largest}: expected numbers from 1 to {MAX_SIZE}, the smaller one first"
    )]
    Sizes {
        /// The smallest size.
        smallest: u64,
        /// The largest size.
        largest: u64,
    },
    /// The target is too short or too long.
    #[error("invalid segment target {target:?}: expected {:?} to {:?}", TARGETS.start(), TARGETS.end())]
    Target {
        /// The target.
        target: Duration,
    },
    /// The reserve is too long.
    #[error("invalid segment reserve {reserve:?}: expected at most {MAX_RESERVE:?}")]
    Reserve {
        /// The reserve.
        reserve: Duration,
    },
    /// The first or the greatest number is out of range.
    #[error(
        "invalid range of numbers {first} to {maximum}: expected a maximum of at most {MAX_NUMBER}, and a start not above it"
    )]
    Maximum {
        /// The first number.
        first: u64,
        /// The greatest number.
        maximum: u64,
    },
    /// The patience is too long.
    #[error("invalid patience {patience:?}: expected at most {MAX_PATIENCE:?}")]
    Patience {
        /// The patience.
        patience: Duration,
    },
    /// There is no counter.
    #[error("missing counter: expected at least one to reserve numbers from")]
    NoCounter,
    /// Direct mode has several counters, whose numbers do not increase over all nodes.
    #[error(
        "invalid number of counters {counters} for direct mode: expected 1, as numbers of several counters do not increase \
         over all nodes; use one counter, or cached mode"
    )]
    DirectOverStripes {
        /// The number of counters.
        counters: usize,
    },
    /// The store may lose acknowledged writes.
    #[error(
        "direct mode needs a store that keeps what it acknowledged, and {counter} may lose the writes of the last \
         {may_lose:?}: use cached mode, or another store; or set may_lose=0 if this one loses nothing"
    )]
    DirectMayLose {
        /// The counter.
        counter: String,
        /// The age of the newest acknowledged writes that a failover may lose.
        may_lose: Duration,
    },
    /// The operating system returned no random bits.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
}
