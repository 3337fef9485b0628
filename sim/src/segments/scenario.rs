//! What a seed stands for: how many nodes and counters, how large segments are, how bad the way to the counters is.

use fastrand::Rng;

/// A mistake that is planted, to show that it would be found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// None: what ships.
    #[default]
    Nothing,
    /// Numbers are given back, whoever reserved after the look.
    GiveBackWithoutCompare,
    /// Giving back is tried again when nobody knows what became of it.
    GiveBackAgain,
    /// A call whose answer is lost is taken to have reserved what comes next.
    LostAnswerUsed,
    /// Callers in direct mode get numbers that were reserved before they asked.
    DirectFromMemory,
    /// Numbers are used at once, whatever the store may lose.
    UseUnsettled,
    /// What settles is a mark that is written after the addition, and says nothing of its numbers.
    MarkAlone,
    /// Nobody remembers what a counter has given.
    ForgetHighest,
}

/// One simulated world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentScenario {
    /// The seed it was drawn from, and all that happens in it.
    pub seed: u64,
    /// How many nodes.
    pub nodes: usize,
    /// How many counters, each a stripe.
    pub counters: usize,
    /// Whether every number comes straight from the counter.
    pub direct: bool,
    /// The smallest and the largest size of a segment.
    pub sizes: (u64, u64),
    /// The reserve, in milliseconds.
    pub reserve_ms: u64,
    /// How long the world lasts, in milliseconds.
    pub lasts_ms: u64,
    /// Milliseconds between faults of nodes and counters, on average.
    pub fault_every_ms: u64,
    /// Calls out of a thousand whose request, answer or time is not what it should be.
    pub faulty_per_mille: u64,
    /// How much the stores may lose, as the nodes know it, in milliseconds.
    pub may_lose_ms: u64,
    /// How much they do lose at most, every few seconds.
    pub loses_ms: u64,
    /// Whether a counter goes back by half of the world's time, once.
    pub restored: bool,
    /// What is wrong with the code, if anything.
    pub planted: Planted,
}

impl SegmentScenario {
    /// Draws the scenario of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let counters = [1, 1, 2, 3][rng.usize(..4)];
        let smallest = rng.u64(1..20);
        Self {
            seed,
            nodes: rng.usize(1..=5),
            counters,
            direct: counters == 1 && rng.bool(),
            sizes: (smallest, smallest * [1, 1, 10, 200][rng.usize(..4)]),
            reserve_ms: [0, 500, 5000][rng.usize(..3)],
            lasts_ms: 60_000,
            fault_every_ms: rng.u64(200..5000),
            faulty_per_mille: [0, 20, 300][rng.usize(..3)],
            may_lose_ms: 0,
            loses_ms: 0,
            restored: false,
            planted: Planted::Nothing,
        }
    }

    /// The same world, over stores that lose up to `loses_ms` of their newest writes every few seconds; the nodes are
    /// told `may_lose_ms`.
    #[must_use]
    pub const fn losing(mut self, may_lose_ms: u64, loses_ms: u64) -> Self {
        (self.may_lose_ms, self.loses_ms, self.direct) = (may_lose_ms, loses_ms, false);
        self
    }

    /// One node that does not crash, and a counter that is restored while it runs.
    #[must_use]
    pub const fn restored(mut self) -> Self {
        (self.nodes, self.restored, self.fault_every_ms) = (1, true, u64::MAX / 4);
        self
    }

    /// The same world, with a mistake in the code.
    #[must_use]
    pub const fn with(mut self, planted: Planted) -> Self {
        self.planted = planted;
        self
    }
}
