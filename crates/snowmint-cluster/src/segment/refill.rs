//! The task behind segments in memory: performs the protocol's calls, applies its events, keeps the status.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snowmint_store::{Counter, Reserved, StoreError, StoreErrorKind, reserve, reserve_settled};
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use super::period::{Period, PeriodCounters};
use super::protocol::{Call, Event, Failure, Forgot, Input, Memory, Next, Protocol, Range, Room, Settings};
use super::queue::{Producer, SegmentQueue, Unused};
use super::status::SegmentStatus;
use super::{Run, SharedClock};

/// How often it looks when there is nothing to do: the demand is measured, a machine that slept is noticed.
const LOOK_EVERY_MS: u64 = 1000;
/// How long before the end of a period numbers of the next one are reserved.
const AHEAD_MS: u64 = 60_000;
/// How soon that is tried again.
const AHEAD_AGAIN_MS: u64 = 5000;
/// How many calls that may take.
const AHEAD_CALLS: usize = 3;
/// What the callers and the task share.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) queue: Arc<SegmentQueue>,
    /// The task looks again.
    pub(super) few_left: Notify,
    /// Callers that wait look again.
    pub(super) filled: Notify,
    pub(super) misses: AtomicU64,
    /// Locked while it changes, while segments below it are ended, and while one is put in line.
    floor: Mutex<Floor>,
    /// The first instant after the period of the numbers in memory, in unix milliseconds.
    pub(super) period_ends_unix_ms: AtomicU64,
}

/// Below which number nothing is handed out from memory any more.
#[derive(Debug, Default)]
struct Floor {
    /// Of which period.
    label: u64,
    number: u64,
    /// How many numbers were left out since the period began, and how many were handed out straight from the counter.
    skipped: u64,
    beside: u64,
}

impl Buffer {
    /// A run is about to be handed out: what is in memory below it, or comes there later, is left out.
    pub(super) fn pass(&self, run: &Run) {
        let (label, number) = (Period::to_bits(run.period()), run.first());
        let ended = {
            let mut floor = self.floor();
            if floor.label != label || floor.number < number {
                (floor.label, floor.number) = (label, number);
            }
            let ended = self.queue.end_below(label, number);
            floor.skipped += ended;
            floor.beside += run.count().get();
            ended
        };
        if ended > 0 {
            self.few_left.notify_one();
        }
    }

    /// Puts a segment at the end of the queue, unless greater numbers were handed out before: whether it did.
    fn put(&self, producer: &mut Producer, unused: Unused, label: u64) -> bool {
        let mut floor = self.floor();
        if floor.label == label && unused.segment.last() < floor.number {
            floor.skipped += unused.segment.count().get();
            return false;
        }
        producer.put(unused, label);
        true
    }

    /// What is in memory, and what went past it.
    fn memory(&self, room: Room) -> Memory {
        let misses = self.misses.load(Ordering::Relaxed);
        let floor = self.floor();
        Memory { left: self.queue.left(), room, misses, skipped: floor.skipped, beside: floor.beside }
    }

    fn floor(&self) -> MutexGuard<'_, Floor> {
        // A panic elsewhere leaves a floor that is too low at worst, for one run.
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct RefillTask {
    buffer: Arc<Buffer>,
    producer: Producer,
    periods: PeriodCounters,
    ahead: Ahead,
    protocol: Protocol,
    range: Range,
    clock: SharedClock,
    /// The protocol's time runs from here. No step of the wall clock moves it, and it stands still while the machine
    /// sleeps: what has to settle then only waits longer.
    began: Instant,
    seed: u64,
    status: watch::Sender<SegmentStatus>,
    ending: Ending,
}

/// What is reserved for the period to come.
enum Ahead {
    Nothing {
        try_at_unix_ms: u64,
    },
    /// A task of its own asks, so that the period of now is not kept waiting; it ends with this.
    Asking(JoinSet<Option<Reservation>>),
    Reserved(Reservation),
}

/// The first numbers of a period, and the machine that goes on from there.
struct Reservation {
    periods: PeriodCounters,
    protocol: Box<Protocol>,
    segments: Vec<Unused>,
}

/// Whether and why the task is to end.
enum Ending {
    No,
    /// What nobody drew is to be given back, oldest first; the protocol is told once.
    Released(Option<Vec<Unused>>),
    /// Nobody can draw any more, and nothing was asked for: what is in memory is lost.
    Dropped,
}

impl RefillTask {
    pub(super) fn new(
        buffer: Arc<Buffer>,
        producer: Producer,
        periods: PeriodCounters,
        settings: &Settings,
        clock: SharedClock,
        seed: u64,
        status: watch::Sender<SegmentStatus>,
    ) -> Self {
        Self {
            protocol: Protocol::new(settings, seed).sharing(periods.seen()),
            buffer,
            producer,
            periods,
            ahead: Ahead::Nothing { try_at_unix_ms: 0 },
            range: settings.range,
            clock,
            began: Instant::now(),
            seed,
            status,
            ending: Ending::No,
        }
    }

    /// Runs until all was given back; `release` asks for that.
    pub(super) async fn run(mut self, mut release: oneshot::Receiver<()>) {
        let mut input = Input::Wake;
        loop {
            if matches!(self.ending, Ending::No) {
                self.follow_period();
            }
            let turn = self.protocol.step(self.now_ms(), self.memory(), input);
            for event in turn.events {
                self.apply(event);
            }
            self.report();
            input = match turn.next {
                Next::Call(call) => self.perform(call, &mut release).await,
                Next::Wait(ms) => self.wait(sleep(self.look_again_in(ms)), &mut release).await,
                Next::Idle { keep } => self.idle(keep, &mut release).await,
                // Every call is awaited to its end, so there is none under way here.
                Next::Await => self.wait(sleep(Duration::from_millis(1)), &mut release).await,
                Next::Stop => break,
            };
            if matches!(self.ending, Ending::Dropped) {
                return;
            }
        }
        let ahead = match self.ahead {
            Ahead::Nothing { .. } => None,
            Ahead::Asking(mut asking) => asking.join_next().await.and_then(Result::ok).flatten(),
            Ahead::Reserved(reservation) => Some(reservation),
        };
        if let Some(Reservation { periods, protocol, segments }) = ahead {
            give_back(*protocol, periods, segments, self.began).await;
        }
    }

    fn now_ms(&self) -> u64 {
        ms_since(self.began)
    }

    /// A wait, cut at the end of the period.
    fn look_again_in(&self, ms: u64) -> Duration {
        let left_ms = self.periods.left_ms(self.clock.unix_ms()).unwrap_or(u64::MAX);
        Duration::from_millis(ms.min(left_ms.max(1)))
    }

    fn memory(&self) -> Memory {
        // One for what may be put in this step, and one for what it asks for.
        let room = if self.producer.room() > 1 { Room::Left } else { Room::Full };
        self.buffer.memory(room)
    }

    async fn idle(&mut self, keep: u64, release: &mut oneshot::Receiver<()>) -> Input {
        if self.producer.wake_below(keep) < keep {
            return Input::Wake;
        }
        self.take_ahead();
        if self.is_time_to_reserve_ahead() {
            self.reserve_ahead();
        }
        let buffer = Arc::clone(&self.buffer);
        let few_left = timeout(self.look_again_in(LOOK_EVERY_MS), buffer.few_left.notified());
        self.wait(few_left, release).await
    }

    /// Waits, and tells what to go on with: a release ends the wait.
    async fn wait<T>(&mut self, wait: impl Future<Output = T>, release: &mut oneshot::Receiver<()>) -> Input {
        if matches!(self.ending, Ending::No) {
            tokio::select! {
                biased;
                asked = release => self.end(&asked),
                _ = wait => {}
            }
        } else {
            wait.await;
        }
        match &mut self.ending {
            Ending::Released(unused) => unused.take().map_or(Input::Wake, |unused| Input::Release { unused }),
            Ending::No | Ending::Dropped => Input::Wake,
        }
    }

    /// Ends the numbers for every thread, at once.
    fn end(&mut self, asked: &Result<(), RecvError>) {
        self.ending = match asked {
            Ok(()) => Ending::Released(Some(self.buffer.queue.end())),
            Err(_) => Ending::Dropped,
        };
    }

    async fn perform(&mut self, call: Call, release: &mut oneshot::Receiver<()>) -> Input {
        match call {
            Call::Reserve { counter, count, timeout_ms } => {
                let asked = Arc::clone(&self.periods.counters()[counter]);
                let answer = timeout(Duration::from_millis(timeout_ms), reserve(&*asked, count));
                // Without an answer the period has ended, or all: the numbers are nobody's.
                let answer = match self.answer_of(answer, release).await {
                    Some(answer) => self.judged(&*asked, answer),
                    None => Err(Failure::Failed),
                };
                if let Ending::Released(unused) = &mut self.ending
                    && let Some(unused) = unused.take()
                {
                    // Told before the answer, so that its numbers are handed to nobody.
                    self.protocol.step(self.now_ms(), Memory::default(), Input::Release { unused });
                }
                input(answer)
            }
            Call::Confirm { counter, mark, timeout_ms } => {
                let asked = Arc::clone(&self.periods.counters()[counter]);
                let answer = timeout(Duration::from_millis(timeout_ms), asked.holds(mark)).await;
                Input::Confirmed(self.judged(&*asked, answer))
            }
            Call::Raise { counter, above, timeout_ms } => {
                let asked = Arc::clone(&self.periods.counters()[counter]);
                let answer = timeout(Duration::from_millis(timeout_ms), asked.raise_above(above)).await;
                Input::Raised(self.judged(&*asked, answer))
            }
            Call::GiveBack { unused, timeout_ms } => {
                let asked = Arc::clone(&self.periods.counters()[unused.counter]);
                let answer =
                    timeout(Duration::from_millis(timeout_ms), asked.give_back(unused.segment)).await;
                Input::GaveBack(self.judged(&*asked, answer))
            }
        }
    }

    /// The answer to a call; `None` where it comes too late for anybody.
    async fn answer_of<T>(
        &mut self,
        answer: impl Future<Output = T>,
        release: &mut oneshot::Receiver<()>,
    ) -> Option<T> {
        let mut answer = pin!(answer);
        loop {
            let look = sleep(self.look_again_in(LOOK_EVERY_MS));
            tokio::select! {
                biased;
                asked = &mut *release, if matches!(self.ending, Ending::No) => {
                    self.end(&asked);
                    if matches!(self.ending, Ending::Dropped) {
                        return None;
                    }
                }
                answer = &mut answer => return Some(answer),
                () = look => {
                    let released = matches!(self.ending, Ending::Released(_));
                    if !released && self.periods.changed(self.clock.unix_ms()).is_some() {
                        return None;
                    }
                }
            }
        }
    }

    /// Counts failures and keeps their text.
    fn judged<T>(
        &self,
        counter: &dyn Counter,
        answer: Result<Result<T, StoreError>, Elapsed>,
    ) -> Result<T, Failure> {
        judged(&self.status, counter, answer)
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Reserved { counter, segment } => {
                let (unused, label) = (Unused { counter, segment }, Period::to_bits(self.periods.period()));
                if !self.buffer.put(&mut self.producer, unused, label) {
                    return;
                }
                self.status.send_modify(SegmentStatus::refilled);
                self.buffer.filled.notify_waiters();
                tracing::debug!(first = segment.first(), count = segment.count().get(), "segment reserved");
            }
            Event::Failing { counter } => tracing::warn!(
                counter = self.describe(counter),
                left = self.buffer.queue.left(),
                error = self.status.borrow().waiting.as_deref().unwrap_or_default(),
                "no numbers can be reserved at this counter; it is left out and asked again"
            ),
            Event::Recovered { counter, failures } => {
                tracing::info!(counter = self.describe(counter), failures, "numbers can be reserved again");
            }
            Event::NearlyExhausted { highest } => tracing::warn!(
                highest,
                maximum = self.range.maximum,
                "nine tenths of the numbers are used: raise the maximum, or take a new namespace"
            ),
            Event::Exhausted => {
                tracing::error!(maximum = self.range.maximum, "every number up to the maximum is used up");
                self.status.send_modify(|status| status.exhausted = true);
                self.buffer.filled.notify_waiters();
            }
            Event::WentBack { counter, segment, highest, forgot } => {
                tell_of_loss(&self.status, &self.describe(counter), segment.first(), highest, forgot);
            }
            Event::Lost { counter, segment } => {
                let (counter, first, last) = (self.describe(counter), segment.first(), segment.last());
                let why = format!(
                    "{counter} does not show the reservation of {first} to {last}, which it acknowledged"
                );
                self.status.send_modify(|status| status.refused(why, true));
                tracing::warn!(
                    counter,
                    first,
                    last,
                    "a reservation was not found when it was read again: the store lost it before it had settled, or the read came \
                     too late; none of its numbers was used, no id is affected"
                );
            }
            Event::Raised { counter, above } => {
                tracing::info!(
                    counter = self.describe(counter),
                    above,
                    "counter raised above what it had given"
                );
            }
            Event::Stuck { counter, highest } => {
                let counter = self.describe(counter);
                self.status.send_modify(|status| status.refused(stuck(&counter, highest), false));
                tracing::error!(
                    counter,
                    highest,
                    "the counter went back and cannot be raised; it is not used again"
                );
                self.buffer.filled.notify_waiters();
            }
            Event::GivenBack { count } => tracing::info!(count, "numbers were given back"),
        }
    }

    fn describe(&self, counter: usize) -> String {
        self.periods.counters().get(counter).map_or_else(String::new, |counter| counter.describe())
    }

    fn report(&self) {
        let left = self.buffer.queue.left();
        let (protocol, range) = (&self.protocol, self.range);
        self.status.send_modify(|status| {
            status.left = left;
            status.lasts = protocol.lasts_ms(left).map(Duration::from_millis);
            status.demand_per_second = protocol.demand_per_second();
            status.size = protocol.size();
            status.counters_failing = protocol.failing();
            status.reached(protocol.highest(), range);
        });
    }

    /// Begins the period of now, if it is another.
    fn follow_period(&mut self) {
        let Some(periods) = self.periods.changed(self.clock.unix_ms()) else { return };
        self.take_ahead();
        let nothing = Ahead::Nothing { try_at_unix_ms: 0 };
        let (protocol, periods, segments) = match std::mem::replace(&mut self.ahead, nothing) {
            Ahead::Reserved(ahead) if ahead.periods.period() == periods.period() => {
                (*ahead.protocol, ahead.periods, ahead.segments)
            }
            // The clock stepped to another period.
            Ahead::Reserved(Reservation { periods: ahead, protocol, segments }) => {
                tokio::spawn(give_back(*protocol, ahead, segments, self.began).in_current_span());
                (self.restart(&periods), periods, Vec::new())
            }
            Ahead::Nothing { .. } | Ahead::Asking(_) => (self.restart(&periods), periods, Vec::new()),
        };
        let before = std::mem::replace(&mut self.periods, periods);
        let ended = std::mem::replace(&mut self.protocol, protocol);
        let unused = self.producer.restart();
        {
            let mut floor = self.buffer.floor();
            (floor.skipped, floor.beside) = (0, 0);
        }
        self.buffer.period_ends_unix_ms.store(self.periods.ends_unix_ms(), Ordering::Relaxed);
        for Unused { counter, segment } in segments {
            self.apply(Event::Reserved { counter, segment });
        }
        self.status.send_modify(|status| status.restarts(&self.periods, self.range));
        tracing::info!(
            period = self.periods.period().map(|period| period.to_string()),
            "a new period began: numbers restart"
        );
        let ended = ended.restart(before.counters().len(), self.seed).sharing(before.seen());
        tokio::spawn(give_back(ended, before, unused, self.began).in_current_span());
    }

    fn restart(&self, periods: &PeriodCounters) -> Protocol {
        self.protocol.restart(periods.counters().len(), self.seed).sharing(periods.seen())
    }

    fn is_time_to_reserve_ahead(&self) -> bool {
        let now = self.clock.unix_ms();
        let Ahead::Nothing { try_at_unix_ms } = self.ahead else { return false };
        // Not all nodes at once.
        let ahead_ms = AHEAD_MS / 2 + self.seed % (AHEAD_MS / 2);
        let soon = self.periods.left_ms(now).is_some_and(|left| left <= ahead_ms);
        soon && now >= try_at_unix_ms && matches!(self.ending, Ending::No)
    }

    /// Has the first segment of the next period reserved.
    fn reserve_ahead(&mut self) {
        self.ahead = Ahead::Nothing { try_at_unix_ms: self.clock.unix_ms() + AHEAD_AGAIN_MS };
        let Some(periods) = self.periods.next() else { return };
        let protocol = self.restart(&periods);
        let (status, began) = (self.status.clone(), self.began);
        let mut asking = JoinSet::new();
        asking.spawn(reserve_ahead(periods, protocol, status, began).in_current_span());
        self.ahead = Ahead::Asking(asking);
    }

    /// Takes what was reserved for the next period, once it is.
    fn take_ahead(&mut self) {
        if let Ahead::Asking(asking) = &mut self.ahead
            && let Some(answer) = asking.try_join_next()
        {
            self.ahead = match answer {
                Ok(Some(reservation)) => Ahead::Reserved(reservation),
                Ok(None) | Err(_) => Ahead::Nothing { try_at_unix_ms: self.clock.unix_ms() + AHEAD_AGAIN_MS },
            };
        }
    }
}

/// Reserves the first segment of a period.
async fn reserve_ahead(
    periods: PeriodCounters,
    mut protocol: Protocol,
    status: watch::Sender<SegmentStatus>,
    began: Instant,
) -> Option<Reservation> {
    let mut turn = protocol.step(ms_since(began), Memory::default(), Input::Wake);
    let mut segments = Vec::new();
    // Reserve; or find that it is below the first number, raise, and reserve.
    for _ in 0..AHEAD_CALLS {
        let input = match turn.next {
            Next::Call(Call::Reserve { counter, count, timeout_ms }) => {
                let asked = &*periods.counters()[counter];
                let within = Duration::from_millis(timeout_ms) + asked.may_lose() * 2;
                let answer = timeout(within, reserve_settled(asked, count)).await;
                Input::Reserved(judged(&status, asked, answer))
            }
            Next::Call(Call::Raise { counter, above, timeout_ms }) => {
                let asked = &*periods.counters()[counter];
                let answer = timeout(Duration::from_millis(timeout_ms), asked.raise_above(above)).await;
                Input::Raised(judged(&status, asked, answer))
            }
            _ => break,
        };
        turn = protocol.step(ms_since(began), Memory::default(), input);
        segments.extend(turn.events.iter().filter_map(|event| match *event {
            Event::Reserved { counter, segment } => Some(Unused { counter, segment }),
            _ => None,
        }));
    }
    let is_ready = matches!((segments.is_empty(), turn.next), (false, Next::Idle { .. }));
    is_ready.then(|| Reservation { periods, protocol: Box::new(protocol), segments })
}

/// Counts failures and keeps their text.
fn judged<T>(
    status: &watch::Sender<SegmentStatus>,
    counter: &dyn Counter,
    answer: Result<Result<T, StoreError>, Elapsed>,
) -> Result<T, Failure> {
    let (failure, text, temporary) = match answer {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => (failure_of(&error), error.to_string(), error.is_temporary()),
        Err(_) => (Failure::TimedOut, format!("no answer in time from {}", counter.describe()), true),
    };
    tracing::debug!(error = %text, "counter call failed");
    status.send_modify(|status| status.failed(text, temporary));
    Err(failure)
}

/// A reservation, as the protocol takes it.
fn input(answer: Result<Reserved, Failure>) -> Input {
    match answer {
        Ok(Reserved::Settled(segment)) => Input::Reserved(Ok(segment)),
        Ok(Reserved::Marked { segment, mark, settle }) => {
            let settle_ms = u64::try_from(settle.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            Input::ReservedMarked { segment, mark, settle_ms }
        }
        Err(failure) => Input::Reserved(Err(failure)),
    }
}

/// Gives back what a period that is over has left, or what one that did not begin has.
async fn give_back(mut protocol: Protocol, periods: PeriodCounters, unused: Vec<Unused>, began: Instant) {
    let mut input = Input::Release { unused };
    while let Next::Call(Call::GiveBack { unused, timeout_ms }) =
        protocol.step(ms_since(began), Memory::default(), input).next
    {
        let counter = &periods.counters()[unused.counter];
        let answer = timeout(Duration::from_millis(timeout_ms), counter.give_back(unused.segment)).await;
        input = Input::GaveBack(
            answer
                .map_err(|_| Failure::TimedOut)
                .and_then(|answer| answer.map_err(|error| failure_of(&error))),
        );
    }
}

fn ms_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Says in the log and the status that a counter gave numbers that it had given before, and what that means.
pub(super) fn tell_of_loss(
    status: &watch::Sender<SegmentStatus>,
    counter: &str,
    first: u64,
    highest: u64,
    forgot: Forgot,
) {
    let why = format!("{counter} went back: it gave {first} after {highest}; it is raised above that");
    status.send_modify(|status| status.refused(why, true));
    match forgot {
        Forgot::Unsettled => tracing::warn!(
            counter,
            first,
            highest,
            "the store lost reservations that had not settled, as may_lose allows; none of their numbers was used, no id is \
             affected; the counter is raised"
        ),
        Forgot::Settled => tracing::error!(
            counter,
            first,
            highest,
            "the counter gave numbers that it had given before; none of them is used and the counter is raised. Its store \
             was restored, or lost more than it may; see `snowmint store recover --help`"
        ),
    }
}

pub(super) fn stuck(counter: &str, highest: u64) -> String {
    format!("{counter} went back and cannot be raised: set it above {highest}, then restart this node")
}

/// What the protocol makes of a store's error.
pub(super) fn failure_of(error: &StoreError) -> Failure {
    match error.kind() {
        StoreErrorKind::Full => Failure::Full,
        _ => Failure::Failed,
    }
}

#[cfg(test)]
mod tests {
    use snowmint_store::Segment;

    use super::*;

    fn numbers(first: u64, count: u64) -> Segment {
        Segment::new(first, NonZeroU64::MIN, NonZeroU64::new(count).unwrap()).unwrap()
    }

    /// Goal: a segment that was on its way while greater numbers were handed out is left out, in its own period alone.
    #[test]
    fn what_comes_late_is_left_out() {
        let (queue, mut producer) = SegmentQueue::open();
        let (few_left, filled, misses) = (Notify::new(), Notify::new(), AtomicU64::new(0));
        let buffer = Buffer {
            queue,
            few_left,
            filled,
            misses,
            floor: Mutex::default(),
            period_ends_unix_ms: AtomicU64::new(u64::MAX),
        };
        let mut put = |first, count, label| {
            buffer.put(&mut producer, Unused { counter: 0, segment: numbers(first, count) }, label)
        };
        assert!(put(1, 10, 0));
        buffer.pass(&Run::new(numbers(51, 100), None));
        let left_and_skipped = || {
            let memory = buffer.memory(Room::Left);
            (memory.left, memory.skipped)
        };
        assert_eq!(left_and_skipped(), (0, 10));
        assert!(!put(11, 40, 0) && put(151, 10, 0) && put(11, 10, 1), "below, above, another period");
        assert_eq!(left_and_skipped(), (20, 50));
        let drawn = buffer.queue.draw(NonZeroU64::MIN).unwrap();
        assert_eq!(drawn.segment.first(), 151);
        // An earlier run that comes later changes nothing.
        buffer.pass(&Run::new(numbers(31, 20), None));
        assert!(!put(41, 10, 0));
    }
}
