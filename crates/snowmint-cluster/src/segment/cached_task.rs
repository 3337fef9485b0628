//! Numbers in memory, and the task that refills them: it performs the protocol's calls and applies its events.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snowmint_store::{Reserved, reserve};
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::Instrument as _;

use super::Run;
use super::cached_protocol::{
    CounterCall, Memory, MemoryRoom, SegmentInput, SegmentNext, SegmentProtocol, SegmentSettings, SegmentTurn,
};
use super::counter_calls::CounterCalls;
use super::known_counter::{CounterEvent, CounterFailure};
use super::period::{Period, PeriodCounters};
use super::queue::{Producer, SegmentQueue, Unused};
use super::status::failure_of;
use crate::fork::{self, in_this_process};

/// How often an idle task looks: it measures the demand, and notices that the machine was suspended.
const LOOK_EVERY_MS: u64 = 1000;
/// How long before the end of a period numbers of the next one are reserved.
const AHEAD_MS: u64 = 60_000;
/// The pause before a retry of that reservation.
const AHEAD_AGAIN_MS: u64 = 5000;
/// The maximum number of calls for that reservation.
const AHEAD_CALLS: usize = 3;

/// The numbers in memory, shared by the callers and the task.
#[derive(Debug)]
pub(super) struct NumberBuffer {
    pub(super) queue: Arc<SegmentQueue>,
    /// Wakes the task: few numbers are left.
    pub(super) few_left: Notify,
    /// Wakes the callers that wait: numbers were added.
    pub(super) filled: Notify,
    /// How many times a caller found no number.
    pub(super) misses: AtomicU64,
    /// Locked while the floor changes, while segments below it are ended, and while one is added to the queue.
    floor: Mutex<NumberFloor>,
    /// The first instant after the period of the numbers in memory, in unix milliseconds.
    pub(super) period_ends_unix_ms: AtomicU64,
}

/// How many periods have a floor: the current one, the previous one, and the next one. Their callers may overlap.
const FLOORS: usize = 3;

/// The numbers below which memory hands out nothing, because greater ones were handed out.
#[derive(Debug, Default)]
struct NumberFloor {
    /// By the label of the period; labels of later periods are greater.
    numbers: BTreeMap<u64, u64>,
    /// How many numbers of this period were skipped, because they were below the floor.
    skipped: u64,
    /// How many numbers of this period went from the counter to a caller without being in memory.
    bypassed: u64,
}

impl NumberBuffer {
    pub(super) fn new(queue: Arc<SegmentQueue>, period_ends_unix_ms: u64) -> Self {
        Self {
            queue,
            few_left: Notify::new(),
            filled: Notify::new(),
            misses: AtomicU64::new(0),
            floor: Mutex::default(),
            period_ends_unix_ms: AtomicU64::new(period_ends_unix_ms),
        }
    }

    /// Skips the numbers below a run that is about to be handed out: those in memory and those that arrive later.
    pub(super) fn skip_below(&self, run: &Run) {
        let (label, number) = (Period::to_bits(run.period()), run.first());
        let ended = {
            let mut floor = self.floor();
            let highest = floor.numbers.entry(label).or_default();
            *highest = number.max(*highest);
            if floor.numbers.len() > FLOORS {
                // Remove the farthest: a clock that was wrong may have left floors for future periods, which are not the current
                // one.
                let farthest = floor.numbers.keys().copied().max_by_key(|other| other.abs_diff(label));
                farthest.map(|other| floor.numbers.remove(&other));
            }
            let ended = self.queue.end_below(label, number);
            floor.skipped += ended;
            floor.bypassed += run.count().get();
            ended
        };
        if ended > 0 {
            self.few_left.notify_one();
        }
    }

    /// Adds a segment to the queue unless greater numbers were handed out before; returns whether it did.
    fn put(&self, producer: &mut Producer, unused: Unused, label: u64) -> bool {
        let mut floor = self.floor();
        if floor.numbers.get(&label).is_some_and(|number| unused.segment.last() < *number) {
            floor.skipped += unused.segment.count().get();
            return false;
        }
        producer.put(unused, label);
        true
    }

    fn memory(&self, room: MemoryRoom) -> Memory {
        let misses = self.misses.load(Ordering::Relaxed);
        let floor = self.floor();
        Memory { left: self.queue.left(), room, misses, skipped: floor.skipped, bypassed: floor.bypassed }
    }

    fn floor(&self) -> MutexGuard<'_, NumberFloor> {
        // A panic elsewhere leaves a floor that is at worst too low for one run.
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct RefillTask {
    buffer: Arc<NumberBuffer>,
    producer: Producer,
    calls: CounterCalls,
    next_period: NextPeriod,
    protocol: SegmentProtocol,
    ending: Ending,
}

/// The numbers that are reserved before their period begins.
enum NextPeriod {
    Nothing {
        try_at_unix_ms: u64,
    },
    /// Its own task reserves them, so that the current period does not wait; dropping this aborts the task.
    Reserving(JoinSet<Option<Reservation>>),
    Reserved(Reservation),
}

impl NextPeriod {
    const NOTHING: Self = Self::Nothing { try_at_unix_ms: 0 };
}

/// The first numbers of a period, and the protocol that continues from there.
struct Reservation {
    calls: CounterCalls,
    protocol: Box<SegmentProtocol>,
    segments: Vec<Unused>,
}

/// Whether and why the task ends.
enum Ending {
    No,
    /// The source was released: the protocol gives these back once, oldest first.
    Released(Option<Vec<Unused>>),
    /// Every handle was dropped without a release: the numbers in memory are lost.
    Dropped,
}

impl RefillTask {
    pub(super) fn new(
        buffer: Arc<NumberBuffer>,
        producer: Producer,
        calls: CounterCalls,
        settings: &SegmentSettings,
    ) -> Self {
        let protocol = SegmentProtocol::new(settings, calls.seed).sharing(calls.periods.high_water_marks());
        Self { buffer, producer, calls, next_period: NextPeriod::NOTHING, protocol, ending: Ending::No }
    }

    /// Runs until `release` requests the end and everything is given back.
    pub(super) async fn run(mut self, mut release: oneshot::Receiver<()>) {
        let mut input = SegmentInput::Wake;
        loop {
            if matches!(self.ending, Ending::No) {
                self.follow_period();
            }
            let output = self.protocol.step(self.calls.now_ms(), self.memory(), input);
            for event in output.events {
                self.apply(event);
            }
            self.report();
            input = match output.next {
                SegmentNext::Call(call) => self.perform(call, &mut release).await,
                SegmentNext::Wait(ms) => self.wait(sleep(self.until_next_look(ms)), &mut release).await,
                SegmentNext::Idle { keep } => self.idle(keep, &mut release).await,
                // Every call is awaited to its end, so none is in flight here.
                SegmentNext::Await => self.wait(sleep(Duration::from_millis(1)), &mut release).await,
                SegmentNext::Stop => break,
            };
            if matches!(self.ending, Ending::Dropped) {
                return;
            }
        }
        let next_period = match self.next_period {
            NextPeriod::Nothing { .. } => None,
            NextPeriod::Reserving(mut task) => task.join_next().await.and_then(Result::ok).flatten(),
            NextPeriod::Reserved(reservation) => Some(reservation),
        };
        if let Some(reservation) = next_period {
            reservation.give_back().await;
        }
    }

    /// Returns a wait that ends with the period at the latest.
    fn until_next_look(&self, ms: u64) -> Duration {
        let left_ms = self.calls.periods.left_ms(self.calls.clock.unix_ms()).unwrap_or(u64::MAX);
        Duration::from_millis(ms.min(left_ms.max(1)))
    }

    fn memory(&self) -> Memory {
        // One place for a segment that this step may add, and one for the segment that it requests.
        let room = if self.producer.room() > 1 { MemoryRoom::Left } else { MemoryRoom::Full };
        self.buffer.memory(room)
    }

    async fn idle(&mut self, keep: u64, release: &mut oneshot::Receiver<()>) -> SegmentInput {
        if self.producer.wake_below(keep) < keep {
            return SegmentInput::Wake;
        }
        self.take_next_period();
        if self.should_reserve_next_period() {
            self.reserve_next_period();
        }
        let buffer = Arc::clone(&self.buffer);
        let few_left = timeout(self.until_next_look(LOOK_EVERY_MS), buffer.few_left.notified());
        self.wait(few_left, release).await
    }

    /// Waits and returns the next input; a release ends the wait.
    async fn wait<T>(
        &mut self,
        wait: impl Future<Output = T>,
        release: &mut oneshot::Receiver<()>,
    ) -> SegmentInput {
        if matches!(self.ending, Ending::No) {
            tokio::select! {
                biased;
                released = release => self.end(&released),
                _ = wait => {}
            }
        } else {
            wait.await;
        }
        match &mut self.ending {
            Ending::Released(unused) => {
                unused.take().map_or(SegmentInput::Wake, |unused| SegmentInput::Release { unused })
            }
            Ending::No | Ending::Dropped => SegmentInput::Wake,
        }
    }

    /// Ends the numbers in memory for every thread, immediately.
    fn end(&mut self, released: &Result<(), RecvError>) {
        self.ending = match released {
            Ok(()) => Ending::Released(Some(self.buffer.queue.end())),
            Err(_) => Ending::Dropped,
        };
    }

    async fn perform(&mut self, call: CounterCall, release: &mut oneshot::Receiver<()>) -> SegmentInput {
        match call {
            CounterCall::Reserve { counter, count, timeout_ms } => {
                let asked = Arc::clone(self.calls.counter(counter));
                let answer = timeout(Duration::from_millis(timeout_ms), reserve(&*asked, count));
                // Without an answer, the period or the source has ended: nobody uses the numbers.
                let answer = match self.answer_of(answer, release).await {
                    Some(answer) => self.calls.reporter.answered(&*asked, answer),
                    None => Err(CounterFailure::Failed),
                };
                if let Ending::Released(unused) = &mut self.ending
                    && let Some(unused) = unused.take()
                {
                    // Before the answer, so that its numbers are not handed to anyone.
                    self.protocol.step(
                        self.calls.now_ms(),
                        Memory::default(),
                        SegmentInput::Release { unused },
                    );
                }
                input(answer)
            }
            CounterCall::Confirm { counter, mark, timeout_ms } => {
                let (asked, within) = (&**self.calls.counter(counter), Duration::from_millis(timeout_ms));
                SegmentInput::Confirmed(self.calls.answer(asked, within, asked.holds(mark)).await)
            }
            CounterCall::Raise { counter, above, timeout_ms } => {
                let asked = &**self.calls.counter(counter);
                SegmentInput::Raised(self.calls.raise(asked, above, timeout_ms).await)
            }
            CounterCall::GiveBack { unused: Unused { counter, segment }, timeout_ms } => {
                let (asked, within) = (&**self.calls.counter(counter), Duration::from_millis(timeout_ms));
                SegmentInput::GaveBack(self.calls.answer(asked, within, asked.give_back(segment)).await)
            }
        }
    }

    /// Waits for the answer to a call; `None` if the period or the source ends first.
    async fn answer_of<T>(
        &mut self,
        answer: impl Future<Output = T>,
        release: &mut oneshot::Receiver<()>,
    ) -> Option<T> {
        let mut answer = pin!(answer);
        loop {
            let look = sleep(self.until_next_look(LOOK_EVERY_MS));
            tokio::select! {
                biased;
                released = &mut *release, if matches!(self.ending, Ending::No) => {
                    self.end(&released);
                    if matches!(self.ending, Ending::Dropped) {
                        return None;
                    }
                }
                answer = &mut answer => return Some(answer),
                () = look => {
                    let released = matches!(self.ending, Ending::Released(_));
                    if !released && self.calls.changed().is_some() {
                        return None;
                    }
                }
            }
        }
    }

    fn apply(&mut self, event: CounterEvent) {
        if let CounterEvent::Reserved { counter, segment } = event {
            let (unused, label) = (Unused { counter, segment }, Period::to_bits(self.calls.periods.period()));
            if !self.buffer.put(&mut self.producer, unused, label) {
                return;
            }
            self.calls.reporter.refilled();
        }
        let left = self.buffer.queue.left();
        self.calls.reporter.happened(event, self.calls.periods.counters(), Some(left));
        // Callers that wait find numbers, or learn that waiting does not help.
        if matches!(
            event,
            CounterEvent::Reserved { .. } | CounterEvent::Exhausted | CounterEvent::Stuck { .. }
        ) {
            self.buffer.filled.notify_waiters();
        }
    }

    fn report(&self) {
        let left = self.buffer.queue.left();
        let (protocol, range) = (&self.protocol, self.protocol.range());
        self.calls.reporter.update(|status| {
            status.left = left;
            status.lasts = protocol.lasts_ms(left).map(Duration::from_millis);
            status.demand_per_second = protocol.demand_per_second();
            status.size = protocol.size();
            status.counters_failing = protocol.failing();
            status.reached(protocol.highest(), range);
        });
    }

    /// Begins the current period, if it has changed.
    fn follow_period(&mut self) {
        let Some(periods) = self.calls.changed() else { return };
        self.take_next_period();
        let next = match std::mem::replace(&mut self.next_period, NextPeriod::NOTHING) {
            NextPeriod::Reserved(next) if next.calls.periods.period() == periods.period() => next,
            // The clock stepped to another period.
            NextPeriod::Reserved(next) => {
                fork::spawn(next.give_back().in_current_span());
                self.restarted(periods)
            }
            NextPeriod::Nothing { .. } | NextPeriod::Reserving(_) => self.restarted(periods),
        };
        let Reservation { calls, protocol, segments } = next;
        let before = std::mem::replace(&mut self.calls, calls);
        let mut ended = self.restarted(before.periods);
        self.protocol = *protocol;
        ended.segments = self.producer.restart();
        {
            let mut floor = self.buffer.floor();
            (floor.skipped, floor.bypassed) = (0, 0);
        }
        self.buffer.period_ends_unix_ms.store(self.calls.periods.ends_unix_ms(), Ordering::Relaxed);
        for Unused { counter, segment } in segments {
            self.apply(CounterEvent::Reserved { counter, segment });
        }
        self.calls.reporter.restarted(&self.calls.periods);
        tracing::info!(
            period = self.calls.periods.period().map(|period| period.to_string()),
            "a new period began: numbers restart"
        );
        fork::spawn(ended.give_back().in_current_span());
    }

    /// Returns the protocol for the counters of another period, at the demand measured so far, without numbers.
    fn restarted(&self, periods: PeriodCounters) -> Reservation {
        let protocol = self.protocol.restart(periods.counters().len(), self.calls.seed);
        let protocol = Box::new(protocol.sharing(periods.high_water_marks()));
        Reservation { calls: self.calls.of(periods), protocol, segments: Vec::new() }
    }

    fn should_reserve_next_period(&self) -> bool {
        let now = self.calls.clock.unix_ms();
        let NextPeriod::Nothing { try_at_unix_ms } = self.next_period else { return false };
        // Jitter, so that not all nodes reserve at the same time.
        let ahead_ms = AHEAD_MS / 2 + self.calls.seed % (AHEAD_MS / 2);
        let soon = self.calls.periods.left_ms(now).is_some_and(|left| left <= ahead_ms);
        soon && now >= try_at_unix_ms && matches!(self.ending, Ending::No)
    }

    /// Starts a task that reserves the first segment of the next period.
    fn reserve_next_period(&mut self) {
        self.next_period = self.nothing_for_a_while();
        let Some(periods) = self.calls.periods.next() else { return };
        let mut task = JoinSet::new();
        task.spawn(in_this_process(self.restarted(periods).reserve_first()).in_current_span());
        self.next_period = NextPeriod::Reserving(task);
    }

    /// Takes the reservation for the next period, once it is there.
    fn take_next_period(&mut self) {
        if let NextPeriod::Reserving(task) = &mut self.next_period
            && let Some(answer) = task.try_join_next()
        {
            self.next_period = match answer {
                Ok(Some(reservation)) => NextPeriod::Reserved(reservation),
                Ok(None) | Err(_) => self.nothing_for_a_while(),
            };
        }
    }

    fn nothing_for_a_while(&self) -> NextPeriod {
        NextPeriod::Nothing { try_at_unix_ms: self.calls.clock.unix_ms() + AHEAD_AGAIN_MS }
    }
}

impl Reservation {
    fn step(&mut self, input: SegmentInput) -> SegmentTurn {
        self.protocol.step(self.calls.now_ms(), Memory::default(), input)
    }

    /// Reserves the first segment of the period.
    async fn reserve_first(mut self) -> Option<Self> {
        let mut output = self.step(SegmentInput::Wake);
        // One reservation; or a reservation below the first number, a raise, and another reservation.
        for _ in 0..AHEAD_CALLS {
            let input = match output.next {
                SegmentNext::Call(CounterCall::Reserve { counter, count, timeout_ms }) => {
                    let asked = &**self.calls.counter(counter);
                    SegmentInput::Reserved(self.calls.reserve_settled(asked, count, timeout_ms).await)
                }
                SegmentNext::Call(CounterCall::Raise { counter, above, timeout_ms }) => {
                    let asked = &**self.calls.counter(counter);
                    SegmentInput::Raised(self.calls.raise(asked, above, timeout_ms).await)
                }
                _ => break,
            };
            output = self.step(input);
            self.segments.extend(output.events.iter().filter_map(|event| match *event {
                CounterEvent::Reserved { counter, segment } => Some(Unused { counter, segment }),
                _ => None,
            }));
        }
        let is_ready = !self.segments.is_empty() && matches!(output.next, SegmentNext::Idle { .. });
        is_ready.then_some(self)
    }

    /// Gives back the numbers of a period that ended, or that did not begin.
    async fn give_back(mut self) {
        let mut input = SegmentInput::Release { unused: std::mem::take(&mut self.segments) };
        while let SegmentNext::Call(CounterCall::GiveBack { unused, timeout_ms }) = self.step(input).next {
            let counter = self.calls.counter(unused.counter);
            let answer = timeout(Duration::from_millis(timeout_ms), counter.give_back(unused.segment)).await;
            input = SegmentInput::GaveBack(match answer {
                Ok(answer) => answer.map_err(|error| failure_of(&error)),
                Err(_) => Err(CounterFailure::TimedOut),
            });
        }
    }
}

/// Translates a reservation for the protocol.
fn input(answer: Result<Reserved, CounterFailure>) -> SegmentInput {
    match answer {
        Ok(Reserved::Settled(segment)) => SegmentInput::Reserved(Ok(segment)),
        Ok(Reserved::Marked { segment, mark, settle }) => {
            let settle_ms = u64::try_from(settle.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            SegmentInput::ReservedMarked { segment, mark, settle_ms }
        }
        Err(failure) => SegmentInput::Reserved(Err(failure)),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use snowmint_store::Segment;

    use super::super::period::Reset;
    use super::*;

    fn numbers(first: u64, count: u64) -> Segment {
        Segment::new(first, NonZeroU64::MIN, NonZeroU64::new(count).unwrap()).unwrap()
    }

    /// Goal: a segment that was in flight while greater numbers were handed out is skipped, only in its own period.
    #[test]
    fn what_comes_late_is_left_out() {
        let (queue, mut producer) = SegmentQueue::open();
        let buffer = NumberBuffer::new(queue, u64::MAX);
        let mut put = |first, count, label| {
            buffer.put(&mut producer, Unused { counter: 0, segment: numbers(first, count) }, label)
        };
        assert!(put(1, 10, 0));
        buffer.skip_below(&Run::new(numbers(51, 100), None));
        let left_and_skipped = || {
            let memory = buffer.memory(MemoryRoom::Left);
            (memory.left, memory.skipped)
        };
        assert_eq!(left_and_skipped(), (0, 10));
        assert!(!put(11, 40, 0) && put(151, 10, 0) && put(11, 10, 1), "below, above, another period");
        assert_eq!(left_and_skipped(), (20, 50));
        let drawn = buffer.queue.draw(NonZeroU64::MIN).unwrap();
        assert_eq!(drawn.segment.first(), 151);
        // An earlier run that arrives later changes nothing.
        buffer.skip_below(&Run::new(numbers(31, 20), None));
        assert!(!put(41, 10, 0));
    }

    /// Goal: a late caller of the previous period does not lower the floor of the current one. Method: runs of several days, in
    /// mixed order.
    #[test]
    fn a_late_run_of_another_period_leaves_this_floor() {
        let (queue, mut producer) = SegmentQueue::open();
        let buffer = NumberBuffer::new(queue, u64::MAX);
        let yesterday = Period::at(Reset::Daily, 1_795_219_200_000);
        let today = yesterday.next();
        let run = |first, period| Run::new(numbers(first, 20), Some(period));
        buffer.skip_below(&run(81, yesterday));
        buffer.skip_below(&run(51, today));
        buffer.skip_below(&run(101, yesterday));
        let mut put = |first, period| {
            let unused = Unused { counter: 0, segment: numbers(first, 10) };
            buffer.put(&mut producer, unused, Period::to_bits(Some(period)))
        };
        assert!(!put(31, today), "numbers of today above it were handed out");
        assert!(put(71, today));
        // The number of floors stays bounded.
        for period in std::iter::successors(Some(today), |period| Some(period.next())).take(50) {
            buffer.skip_below(&run(51, period));
        }
        assert_eq!(buffer.floor().numbers.len(), FLOORS);
    }
}
