//! The task that asks a counter for callers who wait: in direct mode for all, in cached mode for long runs.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::{Counter, Segment, StoreError, StoreErrorKind, reserve_settled};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};

use super::batching::{Action, Batching, Health, Order, Outcome, RequestId};
use super::config::{Mode, SegmentConfig};
use super::period::PeriodCounters;
use super::protocol::{Failure, Range};
use super::refill::{failure_of, stuck, tell_of_loss};
use super::status::{NoNumberError, SegmentStatus};
use super::{Run, SharedClock};

/// What a caller asks for, and where it waits.
pub(super) struct Ask {
    pub(super) count: NonZeroU64,
    pub(super) order: Order,
    pub(super) reply: oneshot::Sender<Result<Vec<Run>, NoNumberError>>,
}

struct Waiting {
    ask: Ask,
    runs: Vec<Run>,
}

pub(super) struct DirectTask {
    mode: Mode,
    periods: PeriodCounters,
    batching: Batching,
    range: Range,
    seed: u64,
    clock: SharedClock,
    /// The batching's time runs from here.
    began: Instant,
    status: watch::Sender<SegmentStatus>,
    waiting: BTreeMap<RequestId, Waiting>,
    callers: u64,
    reported_nearly_exhausted: bool,
}

impl DirectTask {
    pub(super) fn new(
        periods: PeriodCounters,
        config: &SegmentConfig,
        clock: SharedClock,
        seed: u64,
        status: watch::Sender<SegmentStatus>,
    ) -> Self {
        let range = config.range();
        Self {
            mode: config.mode,
            batching: batching(range, seed, &periods),
            periods,
            range,
            seed,
            clock,
            began: Instant::now(),
            status,
            waiting: BTreeMap::new(),
            callers: 0,
            reported_nearly_exhausted: false,
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs until nobody can ask any more.
    pub(super) async fn run(mut self, mut asks: mpsc::Receiver<Ask>) {
        loop {
            while let Ok(ask) = asks.try_recv() {
                self.admit(ask);
            }
            self.forget_gone();
            self.follow_period();
            match self.batching.next(self.now_ms()) {
                Action::Idle => match asks.recv().await {
                    Some(ask) => self.admit(ask),
                    None => return,
                },
                Action::Wait(ms) => tokio::select! {
                    ask = asks.recv() => match ask {
                        Some(ask) => self.admit(ask),
                        None => return,
                    },
                    () = sleep(Duration::from_millis(ms)) => {}
                },
                Action::Refuse(caller) => self.give(caller, Outcome::Exhausted),
                Action::GiveUp { caller, highest } => self.give(caller, Outcome::Stuck { highest }),
                Action::Raise { above, timeout_ms } => self.raise(above, timeout_ms).await,
                Action::Reserve { count, timeout_ms } => self.reserve(count, timeout_ms).await,
            }
        }
    }

    fn admit(&mut self, ask: Ask) {
        self.callers += 1;
        let caller = RequestId(self.callers);
        self.batching.ask(caller, ask.count, ask.order);
        self.waiting.insert(caller, Waiting { ask, runs: Vec::new() });
    }

    fn forget_gone(&mut self) {
        self.waiting.retain(|_, waiting| !waiting.ask.reply.is_closed());
        self.batching.keep(|caller| self.waiting.contains_key(&caller));
    }

    /// Begins the period of now, if it is another: callers that wait get numbers of it.
    fn follow_period(&mut self) {
        let Some(periods) = self.periods.changed(self.clock.unix_ms()) else { return };
        self.periods = periods;
        if self.mode == Mode::Direct {
            self.status.send_modify(|status| status.restarts(&self.periods, self.range));
        }
        self.reported_nearly_exhausted = false;
        self.batching = batching(self.range, self.seed, &self.periods);
        for (caller, waiting) in &mut self.waiting {
            waiting.runs.clear();
            self.batching.ask(*caller, waiting.ask.count, waiting.ask.order);
        }
    }

    async fn reserve(&mut self, count: NonZeroU64, timeout_ms: u64) {
        let Some(counter) = self.periods.counters().first().map(Arc::clone) else { return };
        let answer = match self.check_mode(&*counter) {
            Ok(()) => {
                let within = Duration::from_millis(timeout_ms) + counter.may_lose() * 2;
                timeout(within, reserve_settled(&*counter, count)).await
            }
            Err(error) => Ok(Err(error)),
        };
        let answer = self.judged(answer);
        let (outcomes, health) = self.batching.answered(self.now_ms(), answer);
        self.tell(&*counter, health);
        for (caller, outcome) in outcomes {
            self.give(caller, outcome);
        }
    }

    /// Direct numbers do not wait until they have settled. What a counter may lose may be known only now.
    fn check_mode(&self, counter: &dyn Counter) -> Result<(), StoreError> {
        match (self.mode, SegmentConfig::check_direct(counter.may_lose(), &counter.describe())) {
            (Mode::Direct, Err(error)) => {
                Err(StoreError::new(StoreErrorKind::Other, "reserve", counter.describe(), error.to_string()))
            }
            _ => Ok(()),
        }
    }

    async fn raise(&mut self, above: u64, timeout_ms: u64) {
        let Some(counter) = self.periods.counters().first().map(Arc::clone) else { return };
        let answer = timeout(Duration::from_millis(timeout_ms), counter.raise_above(above)).await;
        let answer = self.failure(answer);
        let health = self.batching.raised(self.now_ms(), answer);
        self.tell(&*counter, health);
    }

    fn tell(&self, counter: &dyn Counter, health: Option<Health>) {
        let counter = counter.describe();
        match health {
            Some(Health::Failing) => tracing::warn!(
                counter,
                error = self.status.borrow().waiting.as_deref().unwrap_or_default(),
                "no numbers can be reserved at this counter; callers wait, it is asked again"
            ),
            Some(Health::Recovered { failures }) => {
                tracing::info!(counter, failures, "numbers can be reserved again");
            }
            Some(Health::WentBack { segment, highest, forgot }) => {
                tell_of_loss(&self.status, &counter, segment.first(), highest, forgot);
            }
            Some(Health::Raised { above }) => {
                tracing::info!(counter, above, "counter raised above what it had given");
            }
            Some(Health::Stuck { highest }) => {
                self.status.send_modify(|status| status.refused(stuck(&counter, highest), false));
                tracing::error!(
                    counter,
                    highest,
                    "the counter went back and cannot be raised; it is not used again"
                );
            }
            None => {}
        }
    }

    fn judged(&mut self, answer: Result<Result<Segment, StoreError>, Elapsed>) -> Result<Segment, Failure> {
        let segment = self.failure(answer)?;
        let highest = segment.last().min(self.range.maximum);
        self.status.send_modify(|status| {
            status.refilled();
            status.reached(highest, self.range);
        });
        if self.range.is_nearly_exhausted(highest)
            && !std::mem::replace(&mut self.reported_nearly_exhausted, true)
        {
            tracing::warn!(
                highest,
                maximum = self.range.maximum,
                "nine tenths of the numbers are used: raise the maximum, or take a new namespace"
            );
        }
        Ok(segment)
    }

    /// Counts failures and keeps their text.
    fn failure<T>(&self, answer: Result<Result<T, StoreError>, Elapsed>) -> Result<T, Failure> {
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                self.status.send_modify(|status| status.failed(error.to_string(), error.is_temporary()));
                Err(failure_of(&error))
            }
            Err(_) => {
                self.status
                    .send_modify(|status| status.failed("the store did not answer in time".to_owned(), true));
                Err(Failure::TimedOut)
            }
        }
    }

    fn give(&mut self, caller: RequestId, outcome: Outcome) {
        let period = self.periods.period();
        if let (Outcome::Part(part), Some(waiting)) = (outcome, self.waiting.get_mut(&caller)) {
            waiting.runs.push(Run::new(part, period));
            return;
        }
        let Some(Waiting { ask, mut runs }) = self.waiting.remove(&caller) else { return };
        let count = ask.count.get();
        let answer = match outcome {
            Outcome::Done(last) | Outcome::Part(last) => {
                runs.push(Run::new(last, period));
                Ok(runs)
            }
            Outcome::Exhausted => Err(NoNumberError::Exhausted { maximum: self.range.maximum }),
            Outcome::NoRoom => Err(NoNumberError::NotReady {
                why: self
                    .status
                    .borrow()
                    .waiting
                    .clone()
                    .unwrap_or_else(|| "the store has no room".to_owned()),
            }),
            Outcome::Stuck { highest } => {
                let counter = self.periods.counters().first().map_or_else(String::new, |it| it.describe());
                Err(NoNumberError::NotReady { why: stuck(&counter, highest) })
            }
            Outcome::TooMany { given } => Err(NoNumberError::RunTooLong { count, given }),
            Outcome::Apart { step } => Err(NoNumberError::NotConsecutive { count, step: step.get() }),
        };
        // A caller that went meanwhile loses its numbers.
        let _ = ask.reply.send(answer);
    }
}

/// A machine for the counter of a period.
fn batching(range: Range, seed: u64, periods: &PeriodCounters) -> Batching {
    let batching = Batching::new(range, seed);
    match periods.seen() {
        [received, ..] => batching.sharing(received.clone()),
        [] => batching,
    }
}
