//! What a source of numbers tells: for readiness, metrics and people; and why there is no number.

use std::collections::BTreeMap;
use std::time::Duration;

use super::config::{Mode, SegmentConfig};
use super::period::{HighWaterMarks, Period, PeriodCounters};
use super::protocol::Range;

/// What is in memory, and what has happened since the start.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SegmentStatus {
    /// How many numbers are in memory.
    pub left: u64,
    /// How long they last at the demand measured; `None` while there is no demand.
    pub lasts: Option<Duration>,
    /// The demand measured, in numbers a second.
    pub demand_per_second: u64,
    /// The greatest number reserved so far, 0 before the first; also by earlier ones with the same [`HighWaterMarks`](super::HighWaterMarks).
    pub highest: u64,
    /// The same for the previous, the current and the next period, where numbers restart with each; without those of which
    /// no number is reserved. Numbers of the next period are reserved shortly before it begins.
    pub highest_by_period: BTreeMap<Period, u64>,
    /// The greatest number that will be handed out.
    pub maximum: u64,
    /// How much of the range up to the maximum is reserved, by all nodes, from 0 to 1.
    pub used: f64,
    /// The size of the next segment.
    pub size: u64,
    /// How many segments were reserved.
    pub refills: u64,
    /// How many calls to the store failed.
    pub store_errors: u64,
    /// How many segments were not used, since their counter had gone back or their reservation was not found again.
    pub refused: u64,
    /// How many times there was no number when one was asked for.
    pub misses: u64,
    /// How many counters there are.
    pub counters: usize,
    /// How many of them are left out because their last call failed.
    pub counters_failing: usize,
    /// The current period, where numbers restart.
    pub period: Option<Period>,
    /// Why no numbers are reserved, while that fails.
    pub waiting: Option<String>,
    /// The same, where somebody has to change something first.
    pub failure: Option<String>,
    /// Whether the maximum is reached.
    pub exhausted: bool,
}

impl SegmentStatus {
    pub(super) fn at_start(config: &SegmentConfig, periods: &PeriodCounters) -> Self {
        Self {
            maximum: config.maximum,
            size: *config.sizes.start(),
            counters: periods.counters().len(),
            period: periods.period(),
            highest: periods.highest(),
            used: config.range().used(periods.highest()),
            ..Self::default()
        }
    }

    pub(super) fn failed(&mut self, text: String, temporary: bool) {
        self.store_errors += 1;
        self.failure = (!temporary).then(|| text.clone());
        self.waiting = Some(text);
    }

    /// A segment was not used.
    pub(super) fn refused(&mut self, why: String, temporary: bool) {
        self.refused += 1;
        self.failure = (!temporary).then(|| why.clone());
        self.waiting = Some(why);
    }

    pub(super) fn refilled(&mut self) {
        self.refills += 1;
        self.failure = None;
        self.waiting = None;
    }

    pub(super) fn restarts(&mut self, periods: &PeriodCounters, range: Range) {
        self.period = periods.period();
        self.highest = periods.highest();
        self.used = range.used(self.highest);
        self.exhausted = false;
    }

    pub(super) fn reached(&mut self, highest: u64, range: Range) {
        if highest > self.highest {
            self.highest = highest;
            self.used = range.used(highest);
        }
    }

    /// Takes what was received, which is known before a number of it is used.
    pub(super) fn received(&mut self, received: &[HighWaterMarks], range: Range) {
        let highest = |period| {
            let highest = received.iter().map(|received| received.highest(period)).max();
            highest.unwrap_or(0).min(range.maximum)
        };
        self.reached(highest(self.period), range);
        let periods = self.period.map(|period| [period.previous(), Some(period), Some(period.next())]);
        let numbers = periods.into_iter().flatten().flatten().map(|period| (period, highest(Some(period))));
        self.highest_by_period = numbers.filter(|(_, highest)| *highest > 0).collect();
    }

    pub(super) fn no_number(&self, mode: Mode) -> NoNumberError {
        if self.exhausted {
            return NoNumberError::Exhausted { maximum: self.maximum };
        }
        let why = match (mode, &self.waiting) {
            (_, Some(why)) => why.clone(),
            (Mode::Direct, None) => "in direct mode each is asked from the store: wait for it".to_owned(),
            (Mode::Cached, None) if self.refills == 0 => "the first are being reserved".to_owned(),
            (Mode::Cached, None) => "they are used faster than they are reserved".to_owned(),
        };
        NoNumberError::NotReady { why }
    }
}

/// Why there is no number now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoNumberError {
    /// None is in memory; waiting may help.
    #[error("no number is ready: {why}")]
    NotReady {
        /// Why not.
        why: String,
    },
    /// Every number up to the maximum is reserved.
    #[error("every number up to {maximum} is used up: raise the maximum, or take a new namespace")]
    Exhausted {
        /// The maximum.
        maximum: u64,
    },
    /// Numbers of a stripe do not follow one another.
    #[error(
        "{count} consecutive numbers cannot be had from stripes: their numbers are {step} apart; ask for single numbers"
    )]
    NotConsecutive {
        /// How many were asked for.
        count: u64,
        /// From one number to the next.
        step: u64,
    },
    /// The counter does not give so many numbers at once.
    #[error("{count} consecutive numbers cannot be had: the counter gave {given} at once; ask for fewer")]
    RunTooLong {
        /// How many were asked for.
        count: u64,
        /// How many it gave.
        given: u64,
    },
    /// It was stopped.
    #[error("no numbers are handed out any more: they were given back for a stop")]
    Stopped,
}
