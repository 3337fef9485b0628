//! The scenario of a seed: the number of nodes, their layout, and the faults of clocks and store.
//! Everything is drawn once, so that a report can print it.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use snowmint::{Layout, Rule};

use crate::StoreProfile;

/// One simulated world.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of the world and its events.
    pub seed: u64,
    /// The kind of store.
    pub store: StoreProfile,
    /// Number of nodes.
    pub nodes: usize,
    /// Their layout: few workers, so that several nodes want the same, and few sequences, so that an overlap
    /// shows.
    pub layout: Layout,
    /// Their rule for a clock that goes back.
    pub rule: Rule,
    /// Their window, in milliseconds.
    pub window_ms: u64,
    /// The nodes' `may_lose`, in milliseconds; at most a third of the window.
    pub may_lose_ms: u64,
    /// How long the world lasts, in milliseconds.
    pub lasts_ms: u64,
    /// The largest error of a clock at its start, in milliseconds, either way.
    pub skew_ms: u64,
    /// Whether processes also start with a clock that is years ahead.
    pub starts: Starts,
    /// The largest rate error, in parts per million, either way.
    pub drift_ppm: u64,
    /// The largest error of one reading, in milliseconds, either way: consecutive readings can go back.
    pub jitter_ms: u64,
    /// The largest step of a running clock, in milliseconds, either way; 0 for anchored clocks.
    pub step_ms: u64,
    /// Milliseconds between faults of any kind, on average.
    pub fault_every_ms: u64,
    /// Milliseconds between failures of the store itself, on average.
    pub store_fault_every_ms: u64,
    /// Faulty calls per thousand: a lost or late request or answer.
    pub store_faults_per_mille: u64,
    /// Whether the store has a clock; if so, nodes that are far ahead of it get no lease.
    pub store_tells_time: bool,
    /// Which worker each node wants.
    pub wish: Wish,
    /// Whether nodes save their leases, to continue under them after a crash without the store.
    pub saves: bool,
    /// Whether every node has the same name.
    pub same_name: bool,
    /// The largest pool that is listed at once; in larger ones a node first looks at a few workers.
    pub small_pool: u32,
}

/// The clocks of processes that start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// Off by the error of the world.
    Near,
    /// Some also 20 years ahead, or at one date in 20 years, like a machine without a battery. For the last
    /// tenth of the world, all clocks are correct, and nothing fails.
    YearsAhead,
}

/// Which worker a node wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Any.
    Any,
    /// The one with its own number, which another node may want too.
    Fixed,
}

/// The start of the world, in Unix milliseconds; clocks that are off by hours still show a time after 2020.
pub(crate) const BEGIN_MS: u64 = 1_750_000_000_000;
/// Limit on how far a clock may be ahead of the store's.
pub(crate) const MAX_SKEW_MS: u64 = 30_000;
/// Smaller steps are not compared.
const UNNOTICED_MS: u64 = 1_000;

const LAYOUTS: [&str; 5] = [
    "time:41@1ms worker:2 sequence:3 epoch:2020-01-01",
    "time:39@10ms sequence:2 worker:3 epoch:2020-01-01",
    "time:31@1s worker:2 sequence:6 epoch:2020-01-01",
    "time:36@250ms worker:1 sequence:4 epoch:2020-01-01",
    // More than a block of ten, the number of workers that one call reads.
    "time:38@10ms worker:4 sequence:2 epoch:2020-01-01",
];

impl Scenario {
    /// Draws the scenario of a seed; the kinds of store take turns.
    pub fn of(seed: u64) -> Self {
        Self::with_store(seed, StoreProfile::of(seed))
    }

    /// Like [`of`](Self::of), with another kind of store.
    #[expect(clippy::unwrap_used, reason = "the layouts above are constants that parse")]
    pub fn with_store(seed: u64, store: StoreProfile) -> Self {
        let mut rng = Rng::with_seed(seed);
        let layout: Layout = LAYOUTS[rng.usize(..LAYOUTS.len())].parse().unwrap();
        let tick_ms = layout.tick().as_millis().try_into().unwrap_or(u64::MAX);
        let rules = [
            Rule::REJECT,
            Rule::wait(Duration::from_millis(10)),
            Rule::borrow(Duration::from_millis(tick_ms * rng.u64(1..40))),
        ];
        let window_ms = [3_000, 9_000, 30_000][rng.usize(..3)].max(tick_ms * 3);
        Self {
            seed,
            store,
            nodes: rng.usize(2..=6),
            layout,
            rule: rules[rng.usize(..rules.len())],
            window_ms,
            may_lose_ms: 0,
            lasts_ms: 0,
            starts: Starts::Near,
            skew_ms: [0, 50, 5_000, 3_600_000][rng.usize(..4)],
            drift_ppm: [0, 200, 20_000][rng.usize(..3)],
            jitter_ms: [0, 0, 4, 2_000][rng.usize(..4)],
            step_ms: [0, 40, 10_000, 3_600_000][rng.usize(..4)],
            fault_every_ms: rng.u64(window_ms / 4..window_ms * 6),
            store_fault_every_ms: rng.u64(window_ms / 2..window_ms * 16),
            store_faults_per_mille: [0, 20, 300][rng.usize(..3)],
            store_tells_time: rng.u8(..4) == 0,
            wish: if rng.u8(..4) == 0 { Wish::Fixed } else { Wish::Any },
            // A saved lease does not know its store.
            saves: rng.bool() && !store.has_two(),
            same_name: rng.bool(),
            small_pool: [0, 2, 64][rng.usize(..3)],
        }
        .with_its_loss(&mut rng)
        .lasting()
    }

    /// The same world, with processes that start years ahead. No other clock is off by an hour: the gap below
    /// a clock that was an hour ahead for long is forgotten, and its worker blocked for that hour.
    #[must_use]
    pub fn with_years_ahead(self) -> Self {
        let (skew_ms, step_ms) = (self.skew_ms.min(5_000), self.step_ms.min(10_000));
        Self { starts: Starts::YearsAhead, skew_ms, step_ms, ..self }
    }

    /// The time from which all clocks are correct and nothing fails, if there is one.
    pub(crate) fn mends_at_ms(&self) -> Option<u64> {
        match self.starts {
            Starts::Near => None,
            Starts::YearsAhead => Some(self.lasts_ms / 10 * 9),
        }
    }

    /// Whether each node finds a worker in the end.
    pub(crate) fn has_workers_for_all(&self) -> bool {
        self.wish == Wish::Any && self.nodes <= 1 << self.layout.width(snowmint::field::Field::Worker)
    }

    /// How far a grant may reach beyond the time of the world, in milliseconds, if the store has a clock and
    /// no clock drifts: a window beyond the largest accepted error, with jitter either way.
    pub(crate) fn reach_ms(&self) -> u64 {
        let tick_ms = u64::try_from(self.layout.tick().as_millis()).unwrap_or(u64::MAX);
        self.window_ms + MAX_SKEW_MS + UNNOTICED_MS + 2 * self.jitter_ms + 2 * tick_ms
    }

    /// Draws a loss up to the limit, often the limit itself.
    fn with_its_loss(mut self, rng: &mut Rng) -> Self {
        let most_ms = self.window_ms / 3;
        if self.store.tells_its_loss() {
            self.may_lose_ms = if rng.u8(..3) == 0 { most_ms } else { rng.u64(1..=most_ms) };
        }
        self
    }

    /// Sets a duration of some thousands of renewals.
    fn lasting(mut self) -> Self {
        self.lasts_ms = self.window_ms / 3 * 7_000 / self.nodes as u64;
        self
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {}, {} nodes, {}, {}, window {} ms, may lose {} ms, {} s, skew {} ms, {}drift {} ppm, jitter {} ms, steps {} ms, a fault every \
             {} ms and of the store every {} ms, {} per mille of its calls faulty, {}, {}, {}, {}, pools of up to {} are listed",
            self.seed,
            self.store,
            self.nodes,
            self.layout,
            self.rule,
            self.window_ms,
            self.may_lose_ms,
            self.lasts_ms / 1000,
            self.skew_ms,
            match self.starts {
                Starts::Near => "",
                Starts::YearsAhead => "some starts years ahead, ",
            },
            self.drift_ppm,
            self.jitter_ms,
            self.step_ms,
            self.fault_every_ms,
            self.store_fault_every_ms,
            self.store_faults_per_mille,
            if self.store_tells_time { "it tells its time" } else { "it tells no time" },
            match self.wish {
                Wish::Any => "any worker",
                Wish::Fixed => "a fixed worker each",
            },
            if self.saves { "leases are saved" } else { "leases are not saved" },
            if self.same_name { "one name for all" } else { "a name each" },
            self.small_pool,
        )
    }
}
