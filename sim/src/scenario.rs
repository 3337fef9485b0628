//! What a seed stands for: how many nodes, which layout, how bad the clocks and the store are.
//! Everything is drawn once, so that a report can print it.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use snowmint::{Layout, Rule};

/// One simulated world.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed it was drawn from, and all that happens in it.
    pub seed: u64,
    /// How many nodes.
    pub nodes: usize,
    /// Their layout: few workers, so that they are wanted by several, and few sequences, so that what overlaps
    /// shows.
    pub layout: Layout,
    /// Their rule for a clock that goes back.
    pub rule: Rule,
    /// Their window, in milliseconds.
    pub window_ms: u64,
    /// How long the world lasts, in milliseconds.
    pub lasts_ms: u64,
    /// The largest error of a clock at its start, in milliseconds, either way.
    pub skew_ms: u64,
    /// The largest rate error, in parts per million, either way.
    pub drift_ppm: u64,
    /// The largest step of a running clock, in milliseconds, either way; 0 for anchored clocks.
    pub step_ms: u64,
    /// Milliseconds between faults of any kind, on average.
    pub fault_every_ms: u64,
    /// Calls out of a thousand whose request, answer or time is not what it should be.
    pub store_faults_per_mille: u64,
    /// Whether every node bears the same name.
    pub same_name: bool,
}

const LAYOUTS: [&str; 4] = [
    "time:41@1ms worker:2 sequence:3 epoch:2020-01-01",
    "time:39@10ms sequence:2 worker:3 epoch:2020-01-01",
    "time:31@1s worker:2 sequence:6 epoch:2020-01-01",
    "time:36@250ms worker:1 sequence:4 epoch:2020-01-01",
];

impl Scenario {
    /// Draws the scenario of a seed.
    #[expect(clippy::unwrap_used, reason = "the layouts above are constants that parse")]
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let layout: Layout = LAYOUTS[rng.usize(..LAYOUTS.len())].parse().unwrap();
        let tick_ms = layout.tick().as_millis().try_into().unwrap_or(u64::MAX);
        let rules = [
            Rule::REJECT,
            Rule::wait(Duration::from_millis(10)),
            Rule::borrow(Duration::from_millis(tick_ms * rng.u64(1..40))),
        ];
        Self {
            seed,
            nodes: rng.usize(2..=6),
            layout,
            rule: rules[rng.usize(..rules.len())],
            window_ms: [3_000, 9_000, 30_000][rng.usize(..3)].max(tick_ms * 3),
            lasts_ms: 0,
            skew_ms: [0, 50, 5_000, 3_600_000][rng.usize(..4)],
            drift_ppm: [0, 200, 20_000][rng.usize(..3)],
            step_ms: [0, 40, 10_000, 3_600_000][rng.usize(..4)],
            fault_every_ms: rng.u64(500..20_000),
            store_faults_per_mille: [0, 20, 300][rng.usize(..3)],
            same_name: rng.bool(),
        }
        .lasting()
    }

    /// Long enough for some thousands of renewals.
    fn lasting(mut self) -> Self {
        self.lasts_ms = self.window_ms / 3 * 7_000 / self.nodes as u64;
        self
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {} nodes, {}, {}, window {} ms, {} s, skew {} ms, drift {} ppm, steps {} ms, a fault every \
             {} ms, {} per mille of store calls faulty, {}",
            self.seed,
            self.nodes,
            self.layout,
            self.rule,
            self.window_ms,
            self.lasts_ms / 1000,
            self.skew_ms,
            self.drift_ppm,
            self.step_ms,
            self.fault_every_ms,
            self.store_faults_per_mille,
            if self.same_name { "one name for all" } else { "a name each" },
        )
    }
}
