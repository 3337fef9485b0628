//! Numbers directly from a counter: all numbers in direct mode, and long runs of consecutive numbers in cached mode.
//! The task performs the calls that [`Batching`] decides on and hands the numbers to the callers that wait.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::{Counter, StoreError, StoreErrorKind};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::Run;
use super::config::{Mode, SegmentConfig};
use super::counter_calls::CounterCalls;
use super::direct_protocol::{Batching, DirectNext, Order, RequestId, RequestOutcome};
use super::high_water_mark::NumberRange;
use super::known_counter::CounterEvent;
use super::status::{NoNumberError, stuck};

/// What a caller requests, and where it waits for the answer.
pub(super) struct NumberRequest {
    pub(super) count: NonZeroU64,
    pub(super) order: Order,
    pub(super) reply: oneshot::Sender<Result<Vec<Run>, NoNumberError>>,
}

/// A request that was admitted, and its numbers so far.
struct WaitingCaller {
    request: NumberRequest,
    runs: Vec<Run>,
}

pub(super) struct DirectTask {
    mode: Mode,
    calls: CounterCalls,
    batching: Batching,
    range: NumberRange,
    waiting: BTreeMap<RequestId, WaitingCaller>,
    last_id: u64,
}

impl DirectTask {
    pub(super) fn new(calls: CounterCalls, config: &SegmentConfig) -> Self {
        let (mode, range) = (config.mode, config.range());
        let batching = batching(range, &calls);
        Self { mode, calls, batching, range, waiting: BTreeMap::new(), last_id: 0 }
    }

    /// Runs until no caller is left that could request numbers.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<NumberRequest>) {
        loop {
            while let Ok(request) = requests.try_recv() {
                self.admit(request);
            }
            self.drop_cancelled();
            self.follow_period();
            match self.batching.next(self.calls.now_ms()) {
                DirectNext::Idle => match requests.recv().await {
                    Some(request) => self.admit(request),
                    None => return,
                },
                DirectNext::Wait(ms) => tokio::select! {
                    request = requests.recv() => match request {
                        Some(request) => self.admit(request),
                        None => return,
                    },
                    () = sleep(Duration::from_millis(ms)) => {}
                },
                DirectNext::Refuse(id, outcome) => self.give(id, outcome),
                DirectNext::Peek { timeout_ms } => self.peek(timeout_ms).await,
                DirectNext::Raise { above, timeout_ms } => self.raise(above, timeout_ms).await,
                DirectNext::Reserve { count, timeout_ms } => self.reserve(count, timeout_ms).await,
            }
        }
    }

    fn admit(&mut self, request: NumberRequest) {
        self.last_id += 1;
        let id = RequestId(self.last_id);
        self.batching.request(id, request.count, request.order);
        self.waiting.insert(id, WaitingCaller { request, runs: Vec::new() });
    }

    fn drop_cancelled(&mut self) {
        self.waiting.retain(|_, waiting| !waiting.request.reply.is_closed());
        self.batching.retain(|id| self.waiting.contains_key(&id));
    }

    /// Begins the current period, if it has changed: callers that wait get its numbers.
    fn follow_period(&mut self) {
        let Some(periods) = self.calls.changed() else { return };
        self.calls.periods = periods;
        if self.mode == Mode::Direct {
            self.calls.reporter.restarted(&self.calls.periods);
        }
        self.batching = batching(self.range, &self.calls);
        for (id, waiting) in &mut self.waiting {
            waiting.runs.clear();
            self.batching.request(*id, waiting.request.count, waiting.request.order);
        }
    }

    /// Returns the only counter in direct mode, and the first one in cached mode.
    fn counter(&self) -> Option<Arc<dyn Counter>> {
        self.calls.periods.counters().first().map(Arc::clone)
    }

    async fn reserve(&mut self, count: NonZeroU64, timeout_ms: u64) {
        let Some(counter) = self.counter() else { return };
        let answer = match self.check_mode(&*counter) {
            Ok(()) => self.calls.reserve_settled(&*counter, count, timeout_ms).await,
            Err(error) => self.calls.reporter.answered(&*counter, Ok(Err(error))),
        };
        if let Ok(segment) = answer {
            self.calls.reporter.drawn_directly(segment);
        }
        let (outcomes, events) = self.batching.answered(self.calls.now_ms(), answer);
        self.report(events);
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
        let within = Duration::from_millis(timeout_ms);
        let answer = self.calls.answer(&*counter, within, counter.peek()).await;
        let event = self.batching.peeked(self.calls.now_ms(), answer);
        self.report(event);
    }

    async fn raise(&mut self, above: u64, timeout_ms: u64) {
        let Some(counter) = self.counter() else { return };
        let answer = self.calls.raise(&*counter, above, timeout_ms).await;
        let event = self.batching.raised(self.calls.now_ms(), answer);
        self.report(event);
    }

    fn report(&self, events: impl IntoIterator<Item = CounterEvent>) {
        for event in events {
            self.calls.reporter.happened(event, self.calls.periods.counters(), None);
        }
    }

    fn give(&mut self, id: RequestId, outcome: RequestOutcome) {
        let period = self.calls.periods.period();
        if let (RequestOutcome::Part(part), Some(waiting)) = (outcome, self.waiting.get_mut(&id)) {
            waiting.runs.push(Run::new(part, period));
            return;
        }
        let Some(WaitingCaller { request, mut runs }) = self.waiting.remove(&id) else { return };
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
                let why = self.calls.reporter.waiting();
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

fn batching(range: NumberRange, calls: &CounterCalls) -> Batching {
    let batching = Batching::new(range, calls.seed);
    match calls.periods.high_water_marks() {
        [of_first, ..] => batching.sharing(of_first.clone()),
        [] => batching,
    }
}
