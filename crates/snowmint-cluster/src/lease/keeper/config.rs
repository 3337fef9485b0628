//! What a keeper is told, checked before anything is asked of the store.

use std::sync::Arc;
use std::time::Duration;

use snowmint::field::Field;
use snowmint::generator::BuildError;
use snowmint::layout::LayoutError;
use snowmint::{Generator, ManualClock, Rule, Start, WorkerId};

use crate::Holder;
use crate::lease::keepers::Workers;
use crate::lease::pool::Pool;
use crate::lease::protocol::{Settings, WorkerChoice};
use crate::lease::saved::{SavedLeases, SavedPlaceError};

const MIN_WINDOW: Duration = Duration::from_millis(500);
const MAX_WINDOW: Duration = Duration::from_hours(24);
/// A list of so many workers costs about as much as a look at one.
const SMALL_POOL: u32 = 64;
/// A window is at least so many times what the store may lose: a claim and the renewal after it settle within it.
const WINDOW_PER_LOSS: u32 = 3;

/// How a [`Keeper`](super::Keeper) seeks and keeps its lease.
#[derive(Clone, Debug)]
#[must_use]
pub struct KeeperConfig {
    pool: Pool,
    holder: Holder,
    choice: WorkerChoice,
    window: Duration,
    max_skew: Duration,
    rule: Rule,
    sequence_start: Start,
    saved: Option<SavedLeases>,
}

impl KeeperConfig {
    /// Any worker of a pool, a window of 10 s, and the generator's own rule for a clock that goes back.
    pub fn new(pool: Pool, holder: Holder) -> Self {
        Self {
            pool,
            holder,
            choice: WorkerChoice::Any,
            window: Duration::from_secs(10),
            max_skew: Duration::from_secs(30),
            rule: Rule::default(),
            sequence_start: Start::default(),
            saved: None,
        }
    }

    /// Which worker.
    pub const fn worker(mut self, choice: WorkerChoice) -> Self {
        self.choice = choice;
        self
    }

    /// How far a lease reaches ahead: the store may be down for two thirds of it with no effect (two fifths, where its
    /// calls hang instead of failing), and after a crash the worker stays taken for up to all of it. Between 500 ms and
    /// a day, and at least three times what the store [may lose](snowmint_store::Store::may_lose).
    pub const fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// How far the clock may be ahead of the store's own time, where the store has one, when a lease is sought; 30 s
    /// if not set. A clock far ahead would take its worker's future with it.
    pub const fn max_skew(mut self, max_skew: Duration) -> Self {
        self.max_skew = max_skew;
        self
    }

    /// What to do when the clock goes back.
    pub const fn rule(mut self, rule: Rule) -> Self {
        self.rule = rule;
        self
    }

    /// Where the sequence of a fresh tick starts; at 0 if not set. For rare ids that are spread by `id % n`: see
    /// [`Start`], also for what a random start takes from their order.
    pub const fn sequence_start(mut self, start: Start) -> Self {
        self.sequence_start = start;
        self
    }

    /// Saves leases in a folder, and goes on under the one that is saved there: see [`SavedLeases`]. Ids then depend on
    /// the disk, which is written a few times a second.
    pub fn saved(mut self, leases: SavedLeases) -> Self {
        self.saved = Some(leases);
        self
    }

    /// Whether a keeper could be started with it, over a store that keeps what it acknowledges.
    ///
    /// # Errors
    ///
    /// As [`Keeper::start`](super::Keeper::start).
    pub fn check(&self) -> Result<(), KeeperConfigError> {
        self.checked(Duration::ZERO).map(drop)
    }

    /// Whether a window is long enough for a store that may lose so much of its newest writes.
    ///
    /// # Errors
    ///
    /// [`KeeperConfigError::WindowForStore`] with both.
    pub fn check_window(window: Duration, may_lose: Duration) -> Result<(), KeeperConfigError> {
        if window < may_lose * WINDOW_PER_LOSS {
            return Err(KeeperConfigError::WindowForStore { window, may_lose });
        }
        Ok(())
    }

    pub(super) const fn saved_leases(&self) -> Option<&SavedLeases> {
        self.saved.as_ref()
    }

    pub(super) const fn generator_rule(&self) -> Rule {
        self.rule
    }

    pub(super) const fn generator_start(&self) -> Start {
        self.sequence_start
    }

    /// How long a call to the store may take before its outcome counts as unknown.
    pub(super) fn call_timeout(&self) -> Duration {
        (self.window / 4).min(Duration::from_secs(6))
    }

    pub(in crate::lease) fn checked(&self, may_lose: Duration) -> Result<Settings, KeeperConfigError> {
        if !(MIN_WINDOW..=MAX_WINDOW).contains(&self.window) || self.window < self.pool.layout().tick() * 3 {
            return Err(KeeperConfigError::Window { window: self.window, tick: self.pool.layout().tick() });
        }
        Self::check_window(self.window, may_lose)?;
        let layout = self.pool.layout();
        layout.check(Field::Datacenter, self.pool.datacenter().0.into())?;
        if let WorkerChoice::Only(WorkerId(worker)) = self.choice {
            layout.check(Field::Worker, worker.into())?;
        }
        // Refused here rather than when the first lease is granted.
        Generator::builder(*layout).rule(self.rule).build(ManualClock::at_unix_ms(0))?;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Ok(Settings {
            pool: self.pool,
            choice: self.choice,
            holder: self.holder.clone(),
            window_ms: ms(self.window),
            max_skew_ms: ms(self.max_skew),
            may_lose_ms: settle_ms(may_lose),
            small_pool: SMALL_POOL,
        })
    }
}

impl KeeperConfig {
    /// As [`checked`](Self::checked), for several leases.
    pub(in crate::lease) fn checked_for(
        &self,
        workers: Workers,
        may_lose: Duration,
    ) -> Result<Settings, KeeperConfigError> {
        let settings = self.checked(may_lose)?;
        if workers.max() > 1
            && let WorkerChoice::Only(worker) = self.choice
        {
            return Err(KeeperConfigError::OneFixed { worker, workers });
        }
        if workers.max() > self.pool.workers() {
            return Err(KeeperConfigError::TooManyWorkers { workers, limit: self.pool.workers() });
        }
        Ok(settings)
    }
}

/// How long a grant takes to settle, in milliseconds: one more than the store may lose, since readings of the clock are cut
/// to whole milliseconds.
pub(super) fn settle_ms(may_lose: Duration) -> u64 {
    if may_lose.is_zero() {
        return 0;
    }
    u64::try_from(may_lose.as_micros().div_ceil(1000)).unwrap_or(u64::MAX - 1) + 1
}

/// Fresh random bits for the tags of one process.
pub(super) fn random_seed() -> Result<u128, KeeperConfigError> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed)
        .map_err(|error| KeeperConfigError::Randomness(Arc::from(error.to_string())))?;
    Ok(u128::from_ne_bytes(seed))
}

/// Why a keeper cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperConfigError {
    /// The worker or the datacenter does not fit the layout.
    #[error(transparent)]
    Value(#[from] LayoutError),
    /// The rule does not go with the layout.
    #[error(transparent)]
    Rule(#[from] BuildError),
    /// Its leases cannot be saved in the folder.
    #[error(transparent)]
    Saved(#[from] SavedPlaceError),
    /// The window is too short or too long.
    #[error(
        "a window of {window:?} is out of range: take {MIN_WINDOW:?} to {MAX_WINDOW:?}, and at least three ticks of {tick:?}"
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
    /// Several workers are wanted, and one in particular.
    #[error("worker {worker} is one worker, {workers} were asked for: leave one of the two away")]
    OneFixed {
        /// The worker that is fixed.
        worker: WorkerId,
        /// How many were asked for.
        workers: Workers,
    },
    /// More workers are wanted than there are.
    #[error(
        "invalid worker count {workers}: expected at most {limit}, the workers of the layout in a datacenter"
    )]
    TooManyWorkers {
        /// How many were asked for.
        workers: Workers,
        /// How many there are.
        limit: u32,
    },
    /// The system gave no random bits.
    #[error("the system gave no random bits: {0}")]
    Randomness(Arc<str>),
}
