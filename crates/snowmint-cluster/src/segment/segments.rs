//! The driver of the segment protocol: asks the counters, and keeps numbers ready in memory.
//! Drawing a number goes past it: one pointer to the segment of now, and one atomic step on it.

mod config;
mod desk;
mod periods;
mod refill;
mod status;

use std::fmt;
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snowmint::Clock;
use snowmint_store::Counter;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument as _;

use super::combine::Order;
use super::line::{Drawn, Line, Tail};
use super::protocol::{Memory, Room};
use super::{Period, Reset, Run, Unused};
pub use config::{Mode, SegmentConfig, SegmentConfigError};
use desk::{Ask, Desk};
use periods::Periods;
pub use periods::{CountersOf, Received};
use refill::Refill;
pub use status::{NoNumber, SegmentStatus};

/// How many callers may wait for the desk before others wait for them.
const DESK_QUEUE: usize = 1024;

type SharedClock = Arc<dyn Clock + Send + Sync>;

/// Hands out numbers that are unique over all nodes, from segments that it reserves at counters.
///
/// In cached mode numbers come from memory and a task reserves the next segment in the background, long before one
/// ends: no caller waits for the store while numbers are left. With one counter the numbers of one `Segments` grow:
/// whoever draws after another draw returned gets greater ones. With several counters they grow within each stripe.
///
/// Cheap to clone: every clone draws from the same segments. Dropped without [`release`](Self::release), the numbers
/// in memory are lost.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use snowmint::AnchoredClock;
/// use snowmint_cluster::segment::{SegmentConfig, Segments, Stripe};
/// use snowmint_store::{Key, MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let counter = Stripe::WHOLE.counter(Arc::new(MemoryStore::new()), Key::new("segments/orders")?, 1);
/// let clock = Arc::new(AnchoredClock::new());
/// let segments = Segments::start(vec![Arc::new(counter)], SegmentConfig::new(), clock)?;
/// let runs = segments.take(3).await?;
/// assert_eq!(runs.into_iter().flatten().collect::<Vec<u64>>(), [1, 2, 3]);
/// assert_eq!(segments.try_take(1)?.first(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Segments {
    inner: Arc<Inner>,
}

/// What the callers and the task share.
#[derive(Debug)]
struct Shared {
    line: Arc<Line>,
    /// The task looks again.
    few_left: Notify,
    /// Callers that wait look again.
    filled: Notify,
    misses: AtomicU64,
    /// Locked while it changes, while segments below it are ended, and while one is put in line.
    floor: Mutex<Floor>,
    /// The first instant after the period of the numbers in memory, in unix milliseconds.
    period_ends_unix_ms: AtomicU64,
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

impl Shared {
    /// A run is about to be handed out: what is in memory below it, or comes there later, is left out.
    fn pass(&self, run: &Run) {
        let (label, number) = (Period::to_bits(run.period()), run.first());
        let ended = {
            let mut floor = self.floor();
            if floor.label != label || floor.number < number {
                (floor.label, floor.number) = (label, number);
            }
            let ended = self.line.end_below(label, number);
            floor.skipped += ended;
            floor.beside += run.count().get();
            ended
        };
        if ended > 0 {
            self.few_left.notify_one();
        }
    }

    /// Puts a segment at the end of the line, unless greater numbers were handed out before: whether it did.
    fn put(&self, tail: &mut Tail, unused: Unused, label: u64) -> bool {
        let mut floor = self.floor();
        if floor.label == label && unused.segment.last() < floor.number {
            floor.skipped += unused.segment.count().get();
            return false;
        }
        tail.put(unused, label);
        true
    }

    /// What is in memory, and what went past it.
    fn memory(&self, room: Room) -> Memory {
        let misses = self.misses.load(Ordering::Relaxed);
        let floor = self.floor();
        Memory { left: self.line.left(), room, misses, skipped: floor.skipped, beside: floor.beside }
    }

    fn floor(&self) -> MutexGuard<'_, Floor> {
        // A panic elsewhere leaves a floor that is too low at worst, for one run.
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Inner {
    config: SegmentConfig,
    clock: SharedClock,
    counters: usize,
    /// By counter.
    received: Vec<Received>,
    shared: Arc<Shared>,
    status: watch::Receiver<SegmentStatus>,
    desk: mpsc::Sender<Ask>,
    stopped: AtomicBool,
    /// Absent in direct mode, and once it was asked to end.
    refill: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

impl Segments {
    /// Starts to reserve numbers and returns at once; [`ready`](Self::ready) waits for them.
    ///
    /// Several counters are asked in turn, and one that fails is left out until it answers again: they have to be
    /// disjoint [stripes](super::Stripe) of independent stores. Must be called on a tokio runtime with timers: the
    /// task runs there.
    ///
    /// # Errors
    ///
    /// [`SegmentConfigError`] for a value out of range, no counter, direct mode with several, or with one that may lose
    /// what it acknowledged.
    pub fn start(
        counters: Vec<Arc<dyn Counter>>,
        config: SegmentConfig,
        clock: impl Clock + Send + Sync + 'static,
    ) -> Result<Self, SegmentConfigError> {
        Self::start_with(Periods::one(counters, Vec::new()), config, Arc::new(clock))
    }

    /// As [`start`](Self::start), where earlier `Segments` of this process may have asked the same counters: `received` holds
    /// what they got, counter by counter. A counter that went back below that is noticed.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_after(
        received: Vec<Received>,
        counters: Vec<Arc<dyn Counter>>,
        config: SegmentConfig,
        clock: impl Clock + Send + Sync + 'static,
    ) -> Result<Self, SegmentConfigError> {
        Self::start_with(Periods::one(counters, received), config, Arc::new(clock))
    }

    /// As [`start`](Self::start), with numbers that restart with each period: a number is then unique together with
    /// its period, which every [`Run`] bears.
    ///
    /// The clock decides the period: best the wall clock. Numbers of the next one are reserved shortly before it begins. From
    /// memory, no number of a period is handed out after its end; a clock that goes back over the begin of a period by more
    /// than a second is followed within a second. `counters_of` must give counters of its own to each period, and the same to
    /// every node.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use snowmint::ManualClock;
    /// use snowmint_cluster::segment::{CountersOf, Reset, SegmentConfig, Segments, Stripe};
    /// use snowmint_store::{Counter, Key, MemoryStore};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = Arc::new(MemoryStore::new());
    /// let counters_of: CountersOf = Arc::new(move |period| {
    ///     let key = Key::new(format!("segments/invoices/{period}")).expect("a date fits a key");
    ///     vec![Arc::new(Stripe::WHOLE.counter(store.clone(), key, 1)) as Arc<dyn Counter>]
    /// });
    /// let clock = ManualClock::at_unix_ms(1_795_219_200_000);
    /// let segments = Segments::start_anew_each(Reset::Daily, counters_of, SegmentConfig::new(), clock)?;
    /// let run = segments.take(1).await?[0];
    /// assert_eq!(format!("{}/{:06}", run.period().unwrap(), run.first()), "2026-11-21/000001");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_anew_each(
        reset: Reset,
        counters_of: CountersOf,
        config: SegmentConfig,
        clock: impl Clock + Send + Sync + 'static,
    ) -> Result<Self, SegmentConfigError> {
        Self::start_anew_each_after(Vec::new(), reset, counters_of, config, clock)
    }

    /// As [`start_anew_each`](Self::start_anew_each), after what earlier `Segments` of this process `received`.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_anew_each_after(
        received: Vec<Received>,
        reset: Reset,
        counters_of: CountersOf,
        config: SegmentConfig,
        clock: impl Clock + Send + Sync + 'static,
    ) -> Result<Self, SegmentConfigError> {
        let periods = Periods::each(reset, counters_of, received, clock.unix_ms());
        Self::start_with(periods, config, Arc::new(clock))
    }

    fn start_with(
        periods: Periods,
        config: SegmentConfig,
        clock: SharedClock,
    ) -> Result<Self, SegmentConfigError> {
        config.check()?;
        config.check_counters(periods.counters())?;
        let (counters, received) = (periods.counters().len(), periods.received().to_vec());
        let seed = config::random_seed()?;
        let (sender, status) = watch::channel(SegmentStatus::at_start(&config, &periods));
        let (line, tail) = Line::open();
        let shared = Arc::new(Shared {
            line,
            few_left: Notify::new(),
            filled: Notify::new(),
            misses: AtomicU64::new(0),
            floor: Mutex::default(),
            period_ends_unix_ms: AtomicU64::new(periods.ends_unix_ms()),
        });
        let (desk, asks) = mpsc::channel(DESK_QUEUE);
        let at_desk = Desk::new(periods.clone(), &config, Arc::clone(&clock), seed, sender.clone());
        // The caller's span says whose numbers these are; the tasks outlive the call.
        tokio::spawn(at_desk.run(asks).in_current_span());
        let refill = (config.mode == Mode::Cached).then(|| {
            let (release, released) = oneshot::channel();
            let settings = config.settings(periods.counters());
            let task =
                Refill::new(Arc::clone(&shared), tail, periods, &settings, Arc::clone(&clock), seed, sender);
            (release, tokio::spawn(task.run(released).in_current_span()))
        });
        let (stopped, refill) = (AtomicBool::new(false), Mutex::new(refill));
        let inner = Inner { config, clock, counters, received, shared, status, desk, stopped, refill };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Waits until there is a number. In direct mode it returns at once: only asking would tell, and cost one.
    ///
    /// # Errors
    ///
    /// [`NoNumber`] once it is certain that waiting does not help.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub async fn ready(&self) -> Result<SegmentStatus, NoNumber> {
        let direct = self.inner.config.mode == Mode::Direct;
        let mut status = self.inner.status.clone();
        let is_settled = |status: &SegmentStatus| {
            direct || status.refills > 0 || status.exhausted || status.failure.is_some()
        };
        let Ok(settled) = status.wait_for(is_settled).await.map(|settled| settled.clone()) else {
            return Err(NoNumber::Stopped);
        };
        if direct || settled.refills > 0 { Ok(settled) } else { Err(self.no_number()) }
    }

    /// Takes up to `count` numbers, at least one, from memory. Never waits, never allocates.
    ///
    /// # Errors
    ///
    /// [`NoNumber`]; nothing was used up. In direct mode there are no numbers in memory.
    #[inline]
    pub fn try_take(&self, count: usize) -> Result<Run, NoNumber> {
        let count = NonZeroU64::new(count as u64).unwrap_or(NonZeroU64::MIN);
        match self.inner.shared.line.draw(count).and_then(|drawn| self.drawn(drawn)) {
            Some(run) => Ok(run),
            None => Err(self.missed()),
        }
    }

    /// The numbers that were drawn, unless their period has ended: then nobody needs them, and the task is woken.
    #[inline]
    fn drawn(&self, drawn: Drawn) -> Option<Run> {
        let period = Period::from_bits(drawn.label);
        let ended = period.is_some_and(|period| self.has_ended(period));
        if drawn.passed_mark || ended {
            self.inner.shared.few_left.notify_one();
        }
        (!ended).then(|| Run::new(drawn.segment, period))
    }

    /// Whether the period of numbers that were drawn has ended. Another may have begun since they were.
    fn has_ended(&self, period: Period) -> bool {
        let ends_unix_ms = self.inner.shared.period_ends_unix_ms.load(Ordering::Relaxed);
        period.is_before_one_that_ends_at(ends_unix_ms) || self.inner.clock.unix_ms() >= ends_unix_ms
    }

    #[cold]
    fn missed(&self) -> NoNumber {
        self.inner.shared.misses.fetch_add(1, Ordering::Relaxed);
        self.no_number()
    }

    /// Takes exactly `count` numbers, as runs in the order they were drawn; waits, asleep, while there are none. In
    /// direct mode they are greater than all that any node returned before the call.
    ///
    /// # Errors
    ///
    /// [`NoNumber`] when waiting is no answer, or none came within the configured patience; numbers taken before are
    /// lost, not handed out again.
    ///
    /// # Cancel safety
    ///
    /// Numbers taken so far are lost, not handed out again.
    pub async fn take(&self, count: usize) -> Result<Vec<Run>, NoNumber> {
        match (self.inner.config.mode, NonZeroU64::new(count as u64)) {
            (_, None) => Ok(Vec::new()),
            (Mode::Direct, Some(count)) => self.at_desk(count, Order::Any).await,
            (Mode::Cached, Some(_)) => self.cached(count).await,
        }
    }

    async fn cached(&self, count: usize) -> Result<Vec<Run>, NoNumber> {
        let mut runs = Vec::new();
        let mut missing = count;
        let mut give_up_at = None;
        while missing > 0 {
            // Before it looks, so that it misses no segment that comes after.
            let mut filled = pin!(self.inner.shared.filled.notified());
            if give_up_at.is_some() {
                filled.as_mut().enable();
            }
            match self.try_take(missing) {
                Ok(run) => {
                    // At most what was asked for.
                    missing -= usize::try_from(run.count().get()).unwrap_or(missing);
                    runs.push(run);
                    give_up_at = None;
                }
                Err(none) if !self.is_worth_waiting(&none) => return Err(none),
                Err(_) => match give_up_at {
                    None => give_up_at = Some(Instant::now() + self.inner.config.patience),
                    Some(at) => timeout_at(at, filled).await.map_err(|_| self.no_number())?,
                },
            }
        }
        Ok(runs)
    }

    fn is_worth_waiting(&self, none: &NoNumber) -> bool {
        matches!(none, NoNumber::NotReady { .. }) && self.inner.status.borrow().failure.is_none()
    }

    /// Takes `count` consecutive numbers: from the segment in memory if they are there, else from the counter. What is in
    /// memory below those is lost then, so that numbers keep growing. So is the rest of a segment that is long enough,
    /// but has not enough left, where the next one is there.
    ///
    /// # Errors
    ///
    /// [`NoNumber`]; several counters, or one of a stripe, have no consecutive numbers.
    ///
    /// # Cancel safety
    ///
    /// The numbers may be lost, not handed out again.
    pub async fn take_run(&self, count: NonZeroU64) -> Result<Run, NoNumber> {
        let cached = self.inner.config.mode == Mode::Cached;
        if cached {
            let drawn = self.inner.shared.line.draw_whole(count);
            if let Some(run) = drawn.and_then(|drawn| self.drawn(drawn)) {
                return Ok(run);
            }
            if count == NonZeroU64::MIN {
                // From memory, in its turn: nothing is passed.
                return self.cached(1).await?.first().copied().ok_or_else(|| self.no_number());
            }
            if let Some(step) = self.numbers_apart() {
                return Err(NoNumber::NotConsecutive { count: count.get(), step });
            }
            if let Some(run) = self.draw_whole_soon(count).await.and_then(|drawn| self.drawn(drawn)) {
                return Ok(run);
            }
        }
        let runs = self.at_desk(count, Order::Consecutive).await?;
        let run = runs.first().copied().ok_or_else(|| self.no_number())?;
        if cached {
            self.inner.shared.pass(&run);
        }
        Ok(run)
    }

    /// Consecutive numbers from the segment that comes next, where one of its size has so many: a run from the counter
    /// would leave it out.
    async fn draw_whole_soon(&self, count: NonZeroU64) -> Option<Drawn> {
        let Inner { shared, status, stopped, config, .. } = &*self.inner;
        if count.get() > status.borrow().size || stopped.load(Ordering::Acquire) {
            return None;
        }
        // Before it looks, so that it misses no segment that comes after.
        let mut filled = pin!(shared.filled.notified());
        filled.as_mut().enable();
        if let Some(drawn) = shared.line.draw_whole(count) {
            return Some(drawn);
        }
        shared.few_left.notify_one();
        timeout(config.patience / 4, filled).await.ok()?;
        shared.line.draw_whole(count)
    }

    /// From one number to the next, where they do not follow one another.
    fn numbers_apart(&self) -> Option<u64> {
        let step = self.inner.shared.line.step().map_or(1, NonZeroU64::get);
        let apart = step.max(self.inner.counters as u64);
        (apart > 1).then_some(apart)
    }

    async fn at_desk(&self, count: NonZeroU64, order: Order) -> Result<Vec<Run>, NoNumber> {
        if self.inner.stopped.load(Ordering::Acquire) {
            return Err(NoNumber::Stopped);
        }
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.inner.desk.send(Ask { count, order, reply }).await.map_err(|_| NoNumber::Stopped)?;
            answer.await.map_err(|_| NoNumber::Stopped)?
        };
        match timeout(self.inner.config.patience, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(self.no_number()),
        }
    }

    /// Why there is none.
    #[cold]
    fn no_number(&self) -> NoNumber {
        if self.inner.stopped.load(Ordering::Acquire) {
            return NoNumber::Stopped;
        }
        self.inner.status.borrow().no_number(self.inner.config.mode)
    }

    /// What is in memory, and what has happened so far.
    pub fn status(&self) -> SegmentStatus {
        let mut status = self.inner.status.borrow().clone();
        status.left = self.inner.shared.line.left();
        status.misses = self.inner.shared.misses.load(Ordering::Relaxed);
        status.received(&self.inner.received, self.inner.config.range());
        status
    }

    /// Ends the numbers for every thread, and gives back what is left as far as nobody reserved after it. Returns
    /// when the counters have it, or after `patience`: what was not given back by then is lost.
    pub async fn release(&self, patience: Duration) {
        self.inner.stopped.store(true, Ordering::Release);
        let started = self.inner.refill.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((release, mut task)) = started
            && release.send(()).is_ok()
            && timeout(patience, &mut task).await.is_err()
        {
            tracing::warn!(
                "the counters did not answer in time: the numbers in memory are lost, not given back"
            );
            task.abort();
            // Once it has ended, no new segment can appear behind our back. Its error says that it was aborted.
            let _ = task.await;
        }
        self.inner.shared.line.end();
        self.inner.shared.filled.notify_waiters();
    }
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segments").field("status", &self.status()).finish_non_exhaustive()
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
        let (line, mut tail) = Line::open();
        let (few_left, filled, misses) = (Notify::new(), Notify::new(), AtomicU64::new(0));
        let shared = Shared {
            line,
            few_left,
            filled,
            misses,
            floor: Mutex::default(),
            period_ends_unix_ms: AtomicU64::new(u64::MAX),
        };
        let mut put = |first, count, label| {
            shared.put(&mut tail, Unused { counter: 0, segment: numbers(first, count) }, label)
        };
        assert!(put(1, 10, 0));
        shared.pass(&Run::new(numbers(51, 100), None));
        let left_and_skipped = || {
            let memory = shared.memory(Room::Left);
            (memory.left, memory.skipped)
        };
        assert_eq!(left_and_skipped(), (0, 10));
        assert!(!put(11, 40, 0) && put(151, 10, 0) && put(11, 10, 1), "below, above, another period");
        assert_eq!(left_and_skipped(), (20, 50));
        let drawn = shared.line.draw(NonZeroU64::MIN).unwrap();
        assert_eq!(drawn.segment.first(), 151);
        // An earlier run that comes later changes nothing.
        shared.pass(&Run::new(numbers(31, 20), None));
        assert!(!put(41, 10, 0));
    }
}
