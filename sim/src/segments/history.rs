//! Every number that was handed out, to whom and when: the evidence that a run is judged by.

use std::fmt;

use snowmint_store::Segment;

/// What came of a run.
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
    /// Outcomes that the nodes never got to know.
    pub unknown_outcomes: u64,
    /// Calls that reached a counter after their node had given up on them.
    pub late_calls: u64,
    /// Crashes.
    pub crashes: u64,
    /// Releases.
    pub releases: u64,
    /// Times a store lost its newest writes, or was restored.
    pub losses: u64,
    /// Reservations that a node found lost, and so did not use.
    pub lost: u64,
    /// Segments from a counter that had gone back, of which no number was used.
    pub went_back: u64,
    /// Times there was no number when one was asked for.
    pub misses: u64,
    /// Draws with a number that another draw had too.
    pub duplicates: u64,
    /// Numbers that were not greater than the one before from the same process, at a single counter.
    pub disorder: u64,
    /// Direct numbers that were not greater than one that had been returned before they were asked for.
    pub real_time_disorder: u64,
    /// A number of each, of the first few.
    pub examples: Vec<u64>,
    /// A hash over all that happened, in order.
    pub trace: u64,
}

impl SegmentReport {
    /// Whether no number came twice, and all were in order.
    pub const fn promise_kept(&self) -> bool {
        self.duplicates == 0 && self.disorder == 0 && self.real_time_disorder == 0
    }
}

impl fmt::Display for SegmentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Numbers that a caller got, and when it asked and got them.
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

    pub(crate) fn judged(mut self, direct: bool) -> SegmentReport {
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
        if direct {
            self.report.real_time_disorder = self.real_time_disorder();
        }
        self.report
    }

    /// They are in the order in which they were got.
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
