//! The status of a source of numbers, for readiness checks, metrics and people; its log lines; and why there is no number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::{Counter, Segment, StoreError, StoreErrorKind};
use tokio::sync::watch;
use tokio::time::error::Elapsed;

use super::config::{Mode, SegmentConfig};
use super::high_water_mark::{Forgot, NumberRange};
use super::known_counter::{CounterEvent, CounterFailure};
use super::period::{HighWaterMarks, Period, PeriodCounters};

/// The numbers in memory, and what has happened since the start.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SegmentStatus {
    /// The number of numbers in memory.
    pub left: u64,
    /// How long they last at the measured demand; `None` while there is no demand.
    pub lasts: Option<Duration>,
    /// The measured demand, in numbers a second.
    pub demand_per_second: u64,
    /// The greatest number reserved so far, 0 before the first. It includes the reservations of earlier sources with the same
    /// [`HighWaterMarks`].
    pub highest: u64,
    /// The greatest number reserved in the previous, the current and the next period, if numbers restart. Periods without a
    /// reservation are left out. Numbers of the next period are reserved shortly before it begins.
    pub highest_by_period: BTreeMap<Period, u64>,
    /// The greatest number to hand out.
    pub maximum: u64,
    /// The share of the range up to the maximum that all nodes have reserved, from 0 to 1.
    pub used: f64,
    /// The size of the next segment.
    pub size: u64,
    /// The number of segments reserved.
    pub refills: u64,
    /// The number of store calls that failed.
    pub store_errors: u64,
    /// The number of segments that were not used because their counter went back, or because their reservation was not found
    /// again.
    pub refused: u64,
    /// How many times a caller found no number in memory.
    pub misses: u64,
    /// The number of counters.
    pub counters: usize,
    /// The number of counters that are skipped because their last call failed.
    pub counters_failing: usize,
    /// The current period, if numbers restart.
    pub period: Option<Period>,
    /// Why no numbers are reserved, while reservations fail.
    pub waiting: Option<String>,
    /// The same reason, if it lasts until somebody changes something.
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

    pub(super) fn in_a_forked_child() -> Self {
        let mut status = Self::default();
        status.waits(NoNumberError::Forked.to_string(), false);
        status
    }

    fn failed(&mut self, text: String, temporary: bool) {
        self.store_errors += 1;
        self.waits(text, temporary);
    }

    /// Counts a segment that was not used.
    fn refused(&mut self, why: String, temporary: bool) {
        self.refused += 1;
        self.waits(why, temporary);
    }

    fn waits(&mut self, why: String, temporary: bool) {
        self.failure = (!temporary).then(|| why.clone());
        self.waiting = Some(why);
    }

    fn refilled(&mut self) {
        self.refills += 1;
        self.failure = None;
        self.waiting = None;
    }

    pub(super) fn reached(&mut self, highest: u64, range: NumberRange) {
        if highest > self.highest {
            self.highest = highest;
            self.used = range.used(highest);
        }
    }

    /// Adds the received numbers, which are known before any of them is used.
    pub(super) fn received(&mut self, received: &[HighWaterMarks], range: NumberRange) {
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
            (Mode::Direct, None) => "direct mode asks the store for each number, so a number is never ready at once: use a call that waits".to_owned(),
            (Mode::Cached, None) if self.refills == 0 => "the first numbers are being reserved".to_owned(),
            (Mode::Cached, None) => "numbers are used faster than they are reserved".to_owned(),
        };
        NoNumberError::NotReady { why }
    }
}

/// Why there is no number now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoNumberError {
    /// No number is in memory; waiting may help.
    #[error("no number is ready: {why}")]
    NotReady {
        /// The reason.
        why: String,
    },
    /// Every number up to the maximum is reserved.
    #[error("every number up to {maximum} is used up: raise the maximum, or use a new namespace")]
    Exhausted {
        /// The maximum.
        maximum: u64,
    },
    /// The numbers of a stripe are not consecutive.
    #[error("invalid count {count}: the numbers of this stripe are {step} apart, so request them one by one")]
    NotConsecutive {
        /// The requested count.
        count: u64,
        /// The distance from one number to the next.
        step: u64,
    },
    /// More numbers were requested at once than are left; none was taken.
    #[error(
        "invalid count {count}: at most {left} numbers are left up to the maximum {maximum}, request fewer"
    )]
    TooFewLeft {
        /// The requested count.
        count: u64,
        /// At most this many are left.
        left: u64,
        /// The greatest number that may be handed out.
        maximum: u64,
    },
    /// The counter returns fewer numbers at once.
    #[error(
        "invalid count {count}: the counter returned {given} consecutive numbers, request no more at once"
    )]
    RunTooLong {
        /// The requested count.
        count: u64,
        /// The number of numbers it returned.
        given: u64,
    },
    /// The source was released.
    #[error("this source of numbers was stopped: its numbers were given back")]
    Stopped,
    /// This process is a forked child of the one that started the source, and its numbers would be duplicates.
    /// [`GenerateError::Forked`](snowmint::GenerateError::Forked) states where forks are detected.
    #[error(
        "this process was forked from the one the source of numbers belongs to: start one of its own after the fork"
    )]
    Forked,
}

/// Keeps the status up to date, and writes the log.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    status: watch::Sender<SegmentStatus>,
    range: NumberRange,
}

impl Reporter {
    pub(super) const fn new(status: watch::Sender<SegmentStatus>, range: NumberRange) -> Self {
        Self { status, range }
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut SegmentStatus)) {
        self.status.send_modify(change);
    }

    /// Returns why no numbers are reserved, while reservations fail.
    pub(super) fn waiting(&self) -> Option<String> {
        self.status.borrow().waiting.clone()
    }

    /// Translates a counter's answer for the protocol; counts a failure and keeps its text.
    pub(super) fn answered<T>(
        &self,
        counter: &dyn Counter,
        answer: Result<Result<T, StoreError>, Elapsed>,
    ) -> Result<T, CounterFailure> {
        let (failure, text, temporary) = match answer {
            Ok(Ok(value)) => {
                // The failure is over, also if the numbers have to settle before they may be used.
                if self.status.borrow().failure.is_some() {
                    self.update(|status| status.failure = None);
                }
                return Ok(value);
            }
            Ok(Err(error)) => (failure_of(&error), error.to_string(), error.is_temporary()),
            Err(_) => {
                (CounterFailure::TimedOut, format!("no answer in time from {}", counter.describe()), true)
            }
        };
        tracing::debug!(error = %text, "counter call failed");
        self.update(|status| status.failed(text, temporary));
        Err(failure)
    }

    /// Counts a segment that may be used.
    pub(super) fn refilled(&self) {
        self.update(SegmentStatus::refilled);
    }

    /// Counts a segment that goes straight to callers.
    pub(super) fn drawn_directly(&self, segment: Segment) {
        self.update(|status| {
            status.refilled();
            status.reached(segment.last().min(self.range.maximum), self.range);
        });
    }

    pub(super) fn restarted(&self, periods: &PeriodCounters) {
        self.update(|status| {
            status.period = periods.period();
            status.highest = periods.highest();
            status.used = self.range.used(status.highest);
            status.exhausted = false;
        });
    }

    /// Applies an event to the status and logs it; `left` is the number of numbers in memory.
    pub(super) fn happened(&self, event: CounterEvent, counters: &[Arc<dyn Counter>], left: Option<u64>) {
        let describe = |counter: usize| counters.get(counter).map_or_else(String::new, |it| it.describe());
        match event {
            CounterEvent::Reserved { segment, .. } => {
                tracing::debug!(first = segment.first(), count = segment.count().get(), "segment reserved");
            }
            CounterEvent::Failing { counter } => tracing::warn!(
                counter = describe(counter),
                left,
                error = self.waiting().unwrap_or_default(),
                "no numbers can be reserved at this counter; retrying"
            ),
            CounterEvent::Recovered { counter, failures } => {
                tracing::info!(counter = describe(counter), failures, "numbers can be reserved again");
            }
            CounterEvent::NearlyExhausted { highest } => tracing::warn!(
                highest,
                maximum = self.range.maximum,
                "nine tenths of the numbers are reserved: raise the maximum, or use a new namespace"
            ),
            CounterEvent::Exhausted => {
                // Nodes may still have some of them in memory, even all.
                tracing::error!(
                    maximum = self.range.maximum,
                    left,
                    "every number up to the maximum is reserved: raise the maximum, or use a new namespace"
                );
                self.update(|status| status.exhausted = true);
            }
            CounterEvent::WentBack { counter, segment, highest, forgot } => {
                self.went_back(&describe(counter), segment.first(), highest, forgot);
            }
            CounterEvent::Lost { counter, segment } => self.lost(&describe(counter), segment),
            CounterEvent::Raised { counter, above } => {
                tracing::info!(
                    counter = describe(counter),
                    above,
                    "counter raised above its earlier numbers"
                );
            }
            CounterEvent::Stuck { counter, highest } => {
                let counter = describe(counter);
                self.update(|status| status.refused(stuck(&counter, highest), false));
                tracing::error!(
                    counter,
                    highest,
                    "the counter went back and cannot be raised; it is not used any more"
                );
            }
            CounterEvent::GivenBack { count } => tracing::info!(count, "numbers were given back"),
        }
    }

    fn went_back(&self, counter: &str, first: u64, highest: u64, forgot: Forgot) {
        let why = format!(
            "{counter} went back: it returned {first} after {highest} and is being raised above that"
        );
        self.update(|status| status.refused(why, true));
        match forgot {
            Forgot::Unsettled => tracing::warn!(
                counter,
                first,
                highest,
                "the store lost reservations that had not settled, as may_lose allows; none of their numbers was used, no id \
                 is affected; the counter is raised"
            ),
            Forgot::Settled => tracing::error!(
                counter,
                first,
                highest,
                "the counter returned numbers that it had returned before; none of them is used and the counter is raised. Its \
                 store was restored, or lost more than may_lose; see `snowmint store recover --help`"
            ),
        }
    }

    fn lost(&self, counter: &str, segment: Segment) {
        let (first, last) = (segment.first(), segment.last());
        let why =
            format!("{counter} does not show the reservation of {first} to {last}, which it acknowledged");
        self.update(|status| status.refused(why, true));
        tracing::warn!(
            counter,
            first,
            last,
            "a reservation was not found when it was read again: the store lost it before it had settled, or the read came \
             too late; none of its numbers was used, no id is affected"
        );
    }
}

pub(super) fn stuck(counter: &str, highest: u64) -> String {
    format!("{counter} went back and cannot be raised: set it above {highest}, then restart this node")
}

/// Returns what a store's error means for the protocol.
pub(super) fn failure_of(error: &StoreError) -> CounterFailure {
    match error.kind() {
        StoreErrorKind::Full => CounterFailure::Full,
        _ => CounterFailure::Failed,
    }
}
