//! Numbers directly from a counter: all numbers in direct mode, and long runs of consecutive numbers in cached mode.
//! The task performs the calls that [`Batching`] decides on and hands the numbers to the callers that wait.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::{Counter, Segment, StoreError, StoreErrorKind, reserve_settled};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::config::{Mode, SegmentConfig};
use super::direct_protocol::{Action, Batching, Order, RequestId, RequestOutcome};
use super::high_water_mark::Range;
use super::period::PeriodCounters;
use super::status::{NoNumberError, Reporter, stuck};
use super::{Run, SharedClock};

/// What a caller requests, and where it waits for the answer.
pub(super) struct Request {
    pub(super) count: NonZeroU64,
    pub(super) order: Order,
    pub(super) reply: oneshot::Sender<Result<Vec<Run>, NoNumberError>>,
}

/// A request that was admitted, and its numbers so far.
struct Waiting {
    request: Request,
    runs: Vec<Run>,
}

pub(super) struct DirectTask {
    mode: Mode,
    periods: PeriodCounters,
    batching: Batching,
    range: Range,
    seed: u64,
    clock: SharedClock,
    /// The origin of the time that the protocol uses.
    began: Instant,
    reporter: Reporter,
    waiting: BTreeMap<RequestId, Waiting>,
    last_id: u64,
}

impl DirectTask {
    pub(super) fn new(
        periods: PeriodCounters,
        config: &SegmentConfig,
        clock: SharedClock,
        seed: u64,
        reporter: Reporter,
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
            reporter,
            waiting: BTreeMap::new(),
            last_id: 0,
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs until no caller is left that could request numbers.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        loop {
            while let Ok(request) = requests.try_recv() {
                self.admit(request);
            }
            self.drop_cancelled();
            self.follow_period();
            match self.batching.next(self.now_ms()) {
                Action::Idle => match requests.recv().await {
                    Some(request) => self.admit(request),
                    None => return,
                },
                Action::Wait(ms) => tokio::select! {
                    request = requests.recv() => match request {
                        Some(request) => self.admit(request),
                        None => return,
                    },
                    () = sleep(Duration::from_millis(ms)) => {}
                },
                Action::Refuse(id) => self.give(id, RequestOutcome::Exhausted),
                Action::RefuseTooMany { id, left } => self.give(id, RequestOutcome::TooFewLeft { left }),
                Action::GiveUp { id, highest } => self.give(id, RequestOutcome::Stuck { highest }),
                Action::Peek { timeout_ms } => self.peek(timeout_ms).await,
                Action::Raise { above, timeout_ms } => self.raise(above, timeout_ms).await,
                Action::Reserve { count, timeout_ms } => self.reserve(count, timeout_ms).await,
            }
        }
    }

    fn admit(&mut self, request: Request) {
        self.last_id += 1;
        let id = RequestId(self.last_id);
        self.batching.request(id, request.count, request.order);
        self.waiting.insert(id, Waiting { request, runs: Vec::new() });
    }

    fn drop_cancelled(&mut self) {
        self.waiting.retain(|_, waiting| !waiting.request.reply.is_closed());
        self.batching.retain(|id| self.waiting.contains_key(&id));
    }

    /// Begins the current period, if it has changed: callers that wait get its numbers.
    fn follow_period(&mut self) {
        let Some(periods) = self.periods.changed(self.clock.unix_ms()) else { return };
        self.periods = periods;
        if self.mode == Mode::Direct {
            self.reporter.restarted(&self.periods);
        }
        self.batching = batching(self.range, self.seed, &self.periods);
        for (id, waiting) in &mut self.waiting {
            waiting.runs.clear();
            self.batching.request(*id, waiting.request.count, waiting.request.order);
        }
    }

    /// Returns the only counter in direct mode, and the first one in cached mode.
    fn counter(&self) -> Option<Arc<dyn Counter>> {
        self.periods.counters().first().map(Arc::clone)
    }

    async fn reserve(&mut self, count: NonZeroU64, timeout_ms: u64) {
        let Some(counter) = self.counter() else { return };
        let answer = match self.check_mode(&*counter) {
            Ok(()) => {
                let within = Duration::from_millis(timeout_ms) + counter.may_lose() * 2;
                timeout(within, reserve_settled(&*counter, count)).await
            }
            Err(error) => Ok(Err(error)),
        };
        let answer: Result<Segment, _> = self.reporter.answered(&*counter, answer);
        if let Ok(segment) = answer {
            self.reporter.drawn_directly(segment);
        }
        let (outcomes, events) = self.batching.answered(self.now_ms(), answer);
        for event in events {
            self.reporter.happened(event, self.periods.counters(), None);
        }
        for (id, outcome) in outcomes {
            self.give(id, outcome);
        }
    }

    /// Rejects direct mode at a counter that may lose acknowledged reservations. That may be known only once the counter is open.
    fn check_mode(&self, counter: &dyn Counter) -> Result<(), StoreError> {
        match (self.mode, SegmentConfig::check_direct(counter.may_lose(), &counter.describe())) {
            (Mode::Direct, Err(error)) => {
                Err(StoreError::new(StoreErrorKind::Other, "reserve", counter.describe(), error.to_string()))
            }
            _ => Ok(()),
        }
    }

    async fn peek(&mut self, timeout_ms: u64) {
        let Some(counter) = self.counter() else { return };
        let answer = timeout(Duration::from_millis(timeout_ms), counter.peek()).await;
        let answer = self.reporter.answered(&*counter, answer);
        if let Some(event) = self.batching.peeked(self.now_ms(), answer) {
            self.reporter.happened(event, self.periods.counters(), None);
        }
    }

    async fn raise(&mut self, above: u64, timeout_ms: u64) {
        let Some(counter) = self.counter() else { return };
        let answer = timeout(Duration::from_millis(timeout_ms), counter.raise_above(above)).await;
        let answer = self.reporter.answered(&*counter, answer);
        if let Some(event) = self.batching.raised(self.now_ms(), answer) {
            self.reporter.happened(event, self.periods.counters(), None);
        }
    }

    fn give(&mut self, id: RequestId, outcome: RequestOutcome) {
        let period = self.periods.period();
        if let (RequestOutcome::Part(part), Some(waiting)) = (outcome, self.waiting.get_mut(&id)) {
            waiting.runs.push(Run::new(part, period));
            return;
        }
        let Some(Waiting { request, mut runs }) = self.waiting.remove(&id) else { return };
        let count = request.count.get();
        let answer = match outcome {
            RequestOutcome::Done(last) | RequestOutcome::Part(last) => {
                runs.push(Run::new(last, period));
                Ok(runs)
            }
            RequestOutcome::Exhausted => Err(NoNumberError::Exhausted { maximum: self.range.maximum }),
            RequestOutcome::TooFewLeft { left } => {
                Err(NoNumberError::TooFewLeft { count, left, maximum: self.range.maximum })
            }
            RequestOutcome::NoRoom => {
                let why = self.reporter.waiting();
                Err(NoNumberError::NotReady { why: why.unwrap_or_else(|| "the store is full".to_owned()) })
            }
            RequestOutcome::Stuck { highest } => {
                let counter = self.counter().map_or_else(String::new, |it| it.describe());
                Err(NoNumberError::NotReady { why: stuck(&counter, highest) })
            }
            RequestOutcome::TooMany { given } => Err(NoNumberError::RunTooLong { count, given }),
            RequestOutcome::Apart { step } => Err(NoNumberError::NotConsecutive { count, step: step.get() }),
        };
        // The numbers of a caller that was cancelled in the meantime are lost.
        let _ = request.reply.send(answer);
    }
}

fn batching(range: Range, seed: u64, periods: &PeriodCounters) -> Batching {
    let batching = Batching::new(range, seed);
    match periods.high_water_marks() {
        [of_first, ..] => batching.sharing(of_first.clone()),
        [] => batching,
    }
}
