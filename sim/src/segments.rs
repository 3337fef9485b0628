//! Simulation of number segments: nodes that reserve, crash, restart and give back, and counters that lose
//! answers and execute late requests after their nodes gave up. One seed, one trace.
//!
//! It drives the shipped code of segments and of batched direct calls. No number may be a duplicate, the
//! numbers of one process grow at a single counter, and direct ones grow over all nodes in real time.

mod counter;
mod world;

use std::fmt;

use fastrand::Rng;
use snowmint_store::{MAX_NUMBER, Segment};

/// Runs the world of a scenario.
pub fn run_segments(scenario: &SegmentScenario) -> SegmentReport {
    world::World::new(scenario).run()
}

/// A planted mistake, to show that the simulation would find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// None: the shipped code.
    #[default]
    Nothing,
    /// Numbers are given back even if another node reserved after the check.
    GiveBackWithoutCompare,
    /// A give-back with an unknown outcome is retried.
    GiveBackAgain,
    /// A call whose answer is lost is assumed to have reserved the next numbers.
    LostAnswerUsed,
    /// Callers in direct mode get numbers that were reserved before the request.
    DirectFromMemory,
    /// Numbers are used at once, before they have settled.
    UseUnsettled,
    /// The mark that settles a reservation does not contain its numbers.
    MarkAlone,
    /// No process remembers the highest number of a counter.
    ForgetHighest,
}

/// One simulated world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentScenario {
    /// The seed of the world and its events.
    pub seed: u64,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of counters; each is a stripe.
    pub counters: usize,
    /// Whether every number comes directly from the counter.
    pub direct: bool,
    /// The smallest and the largest size of a segment.
    pub sizes: (u64, u64),
    /// The reserve, in milliseconds.
    pub reserve_ms: u64,
    /// How long the world lasts, in milliseconds.
    pub lasts_ms: u64,
    /// Milliseconds between faults of nodes and counters, on average.
    pub fault_every_ms: u64,
    /// Faulty calls per thousand: a lost or late request or answer.
    pub faulty_per_mille: u64,
    /// The nodes' `may_lose`, in milliseconds.
    pub may_lose_ms: u64,
    /// The most that the stores really lose every few seconds, in milliseconds.
    pub loses_ms: u64,
    /// Whether a counter goes back once, by half of the world's time.
    pub restored: bool,
    /// The first and the last number that nodes may hand out.
    pub range: (u64, u64),
    /// The planted fault, if any.
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
            range: (1, MAX_NUMBER),
            planted: Planted::Nothing,
        }
    }

    /// Returns the same world over stores that lose up to `loses_ms` of their newest writes every few
    /// seconds; the nodes assume `may_lose_ms`.
    #[must_use]
    pub const fn losing(mut self, may_lose_ms: u64, loses_ms: u64) -> Self {
        (self.may_lose_ms, self.loses_ms, self.direct) = (may_lose_ms, loses_ms, false);
        self
    }

    /// Returns a world with one node that does not crash, and a counter that is restored while it runs.
    #[must_use]
    pub const fn restored(mut self) -> Self {
        (self.nodes, self.restored, self.fault_every_ms) = (1, true, u64::MAX / 4);
        self
    }

    /// Returns a world whose numbers begin and end within its time.
    #[must_use]
    pub const fn ending(mut self) -> Self {
        self.range = (100, 1500);
        self
    }

    /// Returns the same world with a mistake in the code.
    #[must_use]
    pub const fn with(mut self, planted: Planted) -> Self {
        self.planted = planted;
        self
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentReport {
    /// The scenario's seed.
    pub seed: u64,
    /// Numbers handed out.
    pub numbers: u64,
    /// Segments reserved.
    pub reserved: u64,
    /// Segments given back.
    pub given_back: u64,
    /// Outcomes that the nodes never learned.
    pub unknown_outcomes: u64,
    /// Calls that reached a counter after their node had given up on them.
    pub late_calls: u64,
    /// Crashes.
    pub crashes: u64,
    /// Releases.
    pub releases: u64,
    /// Times that a store lost its newest writes, or was restored.
    pub losses: u64,
    /// Reservations that a node found lost, and so did not use.
    pub lost: u64,
    /// Segments from a counter that had gone back, of which no number was used.
    pub went_back: u64,
    /// Times that no number was available for a request.
    pub misses: u64,
    /// Requests that were refused because fewer numbers were left.
    pub refused: u64,
    /// Draws with a number outside the range.
    pub outside: u64,
    /// Draws with a number that another draw had too.
    pub duplicates: u64,
    /// Numbers that were not greater than the one before from the same process, at a single counter.
    pub disorder: u64,
    /// Direct numbers that were not greater than one that was returned before the request.
    pub real_time_disorder: u64,
    /// The first few numbers of each kind of error.
    pub examples: Vec<u64>,
    /// A hash over all events, in order.
    pub trace: u64,
}

impl SegmentReport {
    /// Returns whether there is no duplicate, and all numbers were in order and within the range.
    pub const fn promise_kept(&self) -> bool {
        self.duplicates == 0 && self.disorder == 0 && self.real_time_disorder == 0 && self.outside == 0
    }
}

impl fmt::Display for SegmentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Numbers that a caller got, with the times of its request and of the answer.
#[derive(Clone, Copy, Debug)]
struct Got {
    asked_ms: u64,
    at_ms: u64,
    segment: Segment,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    got: Vec<Got>,
    pub(crate) report: SegmentReport,
}

impl History {
    pub(crate) fn got(&mut self, asked_ms: u64, at_ms: u64, segment: Segment) {
        self.trace(segment.first());
        self.trace(segment.count().get());
        self.report.numbers += segment.count().get();
        self.got.push(Got { asked_ms, at_ms, segment });
    }

    /// Mixes a number into the trace's hash.
    pub(crate) fn trace(&mut self, word: u64) {
        self.report.trace = (self.report.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    pub(crate) fn judged(mut self, scenario: &SegmentScenario) -> SegmentReport {
        const SHOWN: usize = 5;
        let mut runs: Vec<Segment> = self.got.iter().map(|got| got.segment).collect();
        runs.sort_unstable_by_key(|run| (run.first() % run.step().get(), run.first()));
        let is_twice = |pair: &&[Segment]| {
            let of_one_stripe =
                pair[0].first() % pair[0].step().get() == pair[1].first() % pair[1].step().get();
            of_one_stripe && pair[1].first() <= pair[0].last()
        };
        let twice: Vec<u64> = runs.windows(2).filter(is_twice).map(|pair| pair[1].first()).collect();
        self.report.duplicates = twice.len() as u64;
        self.report.examples = twice.into_iter().take(SHOWN).collect();
        let (first, maximum) = scenario.range;
        let is_outside = |got: &&Got| got.segment.first() < first || got.segment.last() > maximum;
        self.report.outside = self.got.iter().filter(is_outside).count() as u64;
        if scenario.direct {
            self.report.real_time_disorder = self.real_time_disorder();
        }
        self.report
    }

    /// They are in the order of their answers.
    fn real_time_disorder(&self) -> u64 {
        let mut by_asked: Vec<&Got> = self.got.iter().collect();
        by_asked.sort_by_key(|got| got.asked_ms);
        let (mut before, mut highest, mut disorder) = (self.got.iter().peekable(), 0, 0);
        for later in by_asked {
            while let Some(earlier) = before.next_if(|earlier| earlier.at_ms < later.asked_ms) {
                highest = highest.max(earlier.segment.last());
            }
            disorder += u64::from(later.segment.first() <= highest);
        }
        disorder
    }
}
