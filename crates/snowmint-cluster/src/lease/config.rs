//! The settings of a node's leases, checked before the node calls the store.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use snowmint::error::Snippet;
use snowmint::field::Field;
use snowmint::generator::BuildError;
use snowmint::layout::LayoutError;
use snowmint::{Generator, ManualClock, Rule, Start, WorkerId};

use super::protocol::{LeaseSettings, WorkerChoice};
use super::record::WorkerPool;
use super::saved::{SavedLeases, SavedSlotError};
use crate::{Holder, NodeClock, RandomnessError};

const MIN_WINDOW: Duration = Duration::from_millis(500);
const MAX_WINDOW: Duration = Duration::from_hours(24);
/// Listing this many workers costs about as much as loading one.
const SMALL_POOL: u32 = 64;
/// The minimum ratio of the window to what the store may lose: a claim and the renewal after it have to
/// settle within a window.
const WINDOW_PER_LOSS: u32 = 3;
/// Beyond this number, a layout with more sequence bits is cheaper than more workers.
const MAX_WORKERS: u32 = 8;

/// The settings of [`Leases`](super::Leases).
///
/// # Examples
///
/// ```
/// use snowmint::Layout;
/// use snowmint_cluster::{Holder, LeaseConfig, WorkerCount};
/// use std::time::Duration;
///
/// let config = LeaseConfig::new(Layout::TWITTER, Holder::new("web-3:8080")?)
///     .window(Duration::from_secs(30))
///     .worker_count(WorkerCount::new(1, 4)?);
/// config.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LeaseConfig {
    pool: WorkerPool,
    holder: Holder,
    worker_choice: WorkerChoice,
    pub(super) worker_count: WorkerCount,
    clock: Option<NodeClock>,
    window: Duration,
    max_skew: Duration,
    pub(super) rule: Rule,
    pub(super) sequence_start: Start,
    pub(super) saved: Option<SavedLeases>,
}

impl LeaseConfig {
    /// Makes the default settings: one lease of any free worker, a window of 10 s, an anchored clock, and the
    /// generator's own rule for a clock that goes back.
    pub fn new(pool: impl Into<WorkerPool>, holder: Holder) -> Self {
        Self {
            pool: pool.into(),
            holder,
            worker_choice: WorkerChoice::Any,
            worker_count: WorkerCount::ONE,
            clock: None,
            window: Duration::from_secs(10),
            max_skew: Duration::from_secs(30),
            rule: Rule::default(),
            sequence_start: Start::default(),
            saved: None,
        }
    }

    snowmint::__setters! {
        /// Sets which worker to lease.
        worker_choice: WorkerChoice;

        /// Sets how many workers to lease at once.
        worker_count: WorkerCount;
    }

    /// Sets the clock of the ids and the leases. Leases of one process should share one clock.
    pub fn clock(mut self, clock: impl Into<NodeClock>) -> Self {
        self.clock = Some(clock.into());
        self
    }

    snowmint::__setters! {
        /// Sets how far ahead a lease reaches when it is granted or renewed.
        ///
        /// If store calls fail, leases survive an outage of two thirds of the window; if calls hang, two
        /// fifths. After a crash the worker stays taken for up to a whole window. The window is 500 ms to 24
        /// h, and at least three times what the store [may lose](snowmint_store::Store::may_lose).
        window: Duration;

        /// Sets how far the clock may be ahead of the store's clock, if the store has one, when the node
        /// takes a lease. The default is 30 s. A clock that is far ahead would block its worker for other
        /// nodes until the time it shows.
        max_skew: Duration;

        /// Sets what to do when the clock goes back.
        rule: Rule;

        /// Sets where the sequence of a new tick starts; the default is 0. A random start suits ids at a low
        /// rate that are sharded by `id % n`, but changes their order: see [`Start`].
        sequence_start: Start;
    }

    /// Saves leases in a directory, and resumes the lease that is saved there: see [`SavedLeases`]. Ids then
    /// depend on the disk, which is written a few times a second.
    pub fn saved(mut self, leases: SavedLeases) -> Self {
        self.saved = Some(leases);
        self
    }

    /// Checks the settings for a store that keeps everything it acknowledges.
    ///
    /// # Errors
    ///
    /// As [`Leases::start`](super::Leases::start).
    pub fn check(&self) -> Result<(), LeaseConfigError> {
        self.settings(Duration::ZERO).map(drop)
    }

    /// Checks whether a window is long enough for a store that may lose its newest writes.
    ///
    /// # Errors
    ///
    /// [`LeaseConfigError::WindowForStore`] with both durations.
    pub fn check_window(window: Duration, may_lose: Duration) -> Result<(), LeaseConfigError> {
        if window < may_lose * WINDOW_PER_LOSS {
            return Err(LeaseConfigError::WindowForStore { window, may_lose });
        }
        Ok(())
    }

    pub(super) fn node_clock(&self) -> NodeClock {
        self.clock.clone().unwrap_or_default()
    }

    /// The time after which the outcome of a store call counts as unknown.
    pub(super) fn call_timeout(&self) -> Duration {
        (self.window / 4).min(Duration::from_secs(6))
    }

    /// The settings of the protocol, for a store that may lose this much.
    pub(super) fn settings(&self, may_lose: Duration) -> Result<LeaseSettings, LeaseConfigError> {
        let (layout, count) = (self.pool.layout(), self.worker_count);
        if !(MIN_WINDOW..=MAX_WINDOW).contains(&self.window) || self.window < layout.tick() * 3 {
            return Err(LeaseConfigError::Window { window: self.window, tick: layout.tick() });
        }
        Self::check_window(self.window, may_lose)?;
        layout.check(Field::Datacenter, self.pool.datacenter().0.into())?;
        if let WorkerChoice::Only(worker) = self.worker_choice {
            layout.check(Field::Worker, worker.0.into())?;
            if count.max() > 1 {
                return Err(LeaseConfigError::OneFixed { worker, workers: count });
            }
        }
        if count.max() > self.pool.workers() {
            return Err(LeaseConfigError::TooManyWorkers { workers: count, limit: self.pool.workers() });
        }
        // Fails now instead of at the first grant.
        Generator::builder(*layout).worker(WorkerId(0)).rule(self.rule).build(ManualClock::at_unix_ms(0))?;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Ok(LeaseSettings {
            pool: self.pool,
            choice: self.worker_choice,
            holder: self.holder.clone(),
            window_ms: ms(self.window),
            max_skew_ms: ms(self.max_skew),
            may_lose_ms: settle_ms(may_lose),
            small_pool: SMALL_POOL,
        })
    }
}

/// How long a grant takes to settle, in milliseconds: 1 ms more than the store may lose, because clock
/// readings are cut to whole milliseconds.
pub(super) fn settle_ms(may_lose: Duration) -> u64 {
    if may_lose.is_zero() {
        return 0;
    }
    u64::try_from(may_lose.as_micros().div_ceil(1000)).unwrap_or(u64::MAX - 1) + 1
}

/// The reason why the settings of leases are invalid, or why the leases do not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseConfigError {
    /// The worker or the datacenter does not fit the layout.
    #[error(transparent)]
    Value(#[from] LayoutError),
    /// The rule does not suit the layout.
    #[error(transparent)]
    Rule(#[from] BuildError),
    /// The leases cannot be saved in the directory.
    #[error(transparent)]
    Saved(#[from] SavedSlotError),
    /// The window is too short or too long.
    #[error(
        "invalid window {window:?}: expected {MIN_WINDOW:?} to {MAX_WINDOW:?}, and at least three ticks of {tick:?}"
    )]
    Window {
        /// The window.
        window: Duration,
        /// The layout's tick.
        tick: Duration,
    },
    /// The window is too short for what the store may lose.
    #[error(
        "invalid window {window:?}: the store may lose its newest {may_lose:?} of writes, so a window is at least {:?}; \
         choose a longer window, or a smaller may_lose in the store's URL if its failover loses less",
        *.may_lose * WINDOW_PER_LOSS
    )]
    WindowForStore {
        /// The window.
        window: Duration,
        /// What the store may lose.
        may_lose: Duration,
    },
    /// Both several workers and one fixed worker are requested.
    #[error(
        "invalid worker count {workers}: expected 1 with a fixed worker ({worker}); remove one of the two settings"
    )]
    OneFixed {
        /// The fixed worker.
        worker: WorkerId,
        /// The requested number.
        workers: WorkerCount,
    },
    /// More workers are requested than the layout has.
    #[error(
        "invalid worker count {workers}: expected at most {limit}, the workers of the layout in a datacenter"
    )]
    TooManyWorkers {
        /// The requested number.
        workers: WorkerCount,
        /// The number of workers.
        limit: u32,
    },
    /// The operating system returned no random bits.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
}

/// The number of workers that a node leases: at least `min`, and up to `max` while the load needs them.
///
/// # Examples
///
/// ```
/// use snowmint_cluster::WorkerCount;
/// let count: WorkerCount = "1..8".parse()?;
/// assert_eq!((count.min(), count.max()), (1, 8));
/// assert_eq!("2".parse(), WorkerCount::new(2, 2));
/// assert!("8..1".parse::<WorkerCount>().is_err());
/// # Ok::<(), snowmint_cluster::WorkerCountError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerCount {
    min: u32,
    max: u32,
}

/// An invalid number of workers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid worker count {text}: expected 1 to {MAX_WORKERS}, or a range such as 1..{MAX_WORKERS}")]
pub struct WorkerCountError {
    /// The input.
    pub text: Snippet,
}

impl WorkerCount {
    /// Always one worker.
    pub const ONE: Self = Self { min: 1, max: 1 };

    /// Makes a range from `min` to `max`, both from 1 to 8.
    ///
    /// # Errors
    ///
    /// [`WorkerCountError`] for numbers out of range or in the wrong order.
    pub fn new(min: u32, max: u32) -> Result<Self, WorkerCountError> {
        if min >= 1 && min <= max && max <= MAX_WORKERS {
            Ok(Self { min, max })
        } else {
            Err(WorkerCountError { text: Snippet::of(&format!("{min}..{max}")) })
        }
    }

    /// Returns the number of workers that a node holds regardless of the load.
    pub const fn min(&self) -> u32 {
        self.min
    }

    /// Returns the maximum number of workers.
    pub const fn max(&self) -> u32 {
        self.max
    }
}

impl FromStr for WorkerCount {
    type Err = WorkerCountError;

    fn from_str(text: &str) -> Result<Self, WorkerCountError> {
        let invalid = || WorkerCountError { text: Snippet::of(text) };
        let number = |digits: &str| {
            let plain = digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse().ok().filter(|_| plain).ok_or_else(invalid)
        };
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        Self::new(number(min)?, number(max)?).map_err(|_| invalid())
    }
}

impl fmt::Display for WorkerCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{}..{}", self.min, self.max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_counts_read_back_and_invalid_ones_are_rejected() {
        for text in ["1", "8", "1..8", "2..3"] {
            assert_eq!(text.parse::<WorkerCount>().unwrap().to_string(), text);
        }
        assert_eq!("3..3".parse::<WorkerCount>().unwrap().to_string(), "3");
        for bad in
            ["", "0", "9", "0..1", "1..9", "3..2", "1..", "..8", "1..=8", "+1", "-1", "a", "1...8", "1..8..9"]
        {
            let error = bad.parse::<WorkerCount>().unwrap_err().to_string();
            assert!(error.ends_with("expected 1 to 8, or a range such as 1..8"), "{bad}: {error}");
        }
    }
}
