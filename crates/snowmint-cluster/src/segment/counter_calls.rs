//! What the two tasks of a source of numbers have in common: the counters of the period, the clocks, and the status.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::{Counter, Segment, StoreError, reserve_settled};
use tokio::time::{Instant, timeout};

use super::SharedClock;
use super::known_counter::CounterFailure;
use super::period::PeriodCounters;
use super::status::Reporter;

/// Makes the calls of one task to the counters of the current period.
#[derive(Clone)]
pub(super) struct CounterCalls {
    pub(super) periods: PeriodCounters,
    pub(super) clock: SharedClock,
    /// The origin of the protocol's time. Steps of the wall clock do not move it, and it stands still while the machine is
    /// suspended: a reservation then only takes longer to settle.
    began: Instant,
    /// Decides how long the protocol waits after failures.
    pub(super) seed: u64,
    pub(super) reporter: Reporter,
}

impl CounterCalls {
    pub(super) fn new(periods: PeriodCounters, clock: SharedClock, seed: u64, reporter: Reporter) -> Self {
        Self { periods, clock, began: Instant::now(), seed, reporter }
    }

    /// Returns the same for another period.
    pub(super) fn of(&self, periods: PeriodCounters) -> Self {
        Self { periods, ..self.clone() }
    }

    /// Returns the time of the protocol, in milliseconds.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the counters of the current period, if they differ from these.
    pub(super) fn changed(&self) -> Option<PeriodCounters> {
        self.periods.changed(self.clock.unix_ms())
    }

    pub(super) fn counter(&self, index: usize) -> &Arc<dyn Counter> {
        &self.periods.counters()[index]
    }

    /// Awaits the answer to a call, and translates it for the protocol.
    pub(super) async fn answer<T>(
        &self,
        counter: &dyn Counter,
        within: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, CounterFailure> {
        self.reporter.answered(counter, timeout(within, call).await)
    }

    /// Reserves numbers, and waits until they have settled.
    pub(super) async fn reserve_settled(
        &self,
        counter: &dyn Counter,
        count: NonZeroU64,
        timeout_ms: u64,
    ) -> Result<Segment, CounterFailure> {
        let within = Duration::from_millis(timeout_ms) + counter.may_lose() * 2;
        self.answer(counter, within, reserve_settled(counter, count)).await
    }

    /// Raises a counter above a number. Returns whether it can be raised at all.
    pub(super) async fn raise(
        &self,
        counter: &dyn Counter,
        above: u64,
        timeout_ms: u64,
    ) -> Result<bool, CounterFailure> {
        self.answer(counter, Duration::from_millis(timeout_ms), counter.raise_above(above)).await
    }
}
