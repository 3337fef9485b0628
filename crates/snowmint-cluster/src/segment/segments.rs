//! `Segments`: the source of numbers that callers draw from.
//!
//! In cached mode a draw is one atomic step on the segment in memory ([`SegmentQueue`]); [`RefillTask`] adds segments in the
//! background. In direct mode, and for long runs, callers wait for [`DirectTask`].

use std::fmt;
use std::num::NonZeroU64;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use snowmint::Clock;
use snowmint_store::{Counter, MAX_NUMBER};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument as _;

use super::cached_task::{NumberBuffer, RefillTask};
use super::config::{self, Mode, SegmentConfig, SegmentConfigError};
use super::counter_calls::CounterCalls;
use super::direct_protocol::Order;
use super::direct_task::{DirectTask, NumberRequest};
use super::high_water_mark::NumberRange;
use super::period::{CountersOf, HighWaterMarks, Period, PeriodCounters, Reset};
use super::queue::{DrawnNumbers, SegmentQueue};
use super::status::{NoNumberError, Reporter, SegmentStatus};
use super::{Run, SharedClock};
use crate::fork;

/// How many requests may wait for the direct task; further callers wait before they send theirs.
const DIRECT_QUEUE: usize = 1024;
/// How long a reserved segment may take from the answer of its counter to memory.
const ON_THE_WAY: Duration = Duration::from_millis(10);

/// A source of numbers that are unique over all nodes, taken from segments that it reserves at counters.
///
/// In cached mode numbers come from memory. A task reserves the next segment in the background, long before the current one
/// ends, so no caller waits for the store while numbers are left. With one counter the numbers of one `Segments` increase:
/// a draw that begins after another one returned gets greater numbers. With several counters they increase within each
/// stripe.
///
/// A clone is cheap and draws from the same segments. If all clones are dropped without [`release`](Self::release), the numbers
/// in memory are lost.
///
/// A forked child gets [`NoNumberError::Forked`] instead of a number, since its parent has the same numbers in memory. It can
/// start a source of its own.
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
    inner: Arc<SegmentsInner>,
}

struct SegmentsInner {
    config: SegmentConfig,
    clock: SharedClock,
    counters: usize,
    /// One for each counter.
    received: Vec<HighWaterMarks>,
    buffer: Arc<NumberBuffer>,
    status: watch::Receiver<SegmentStatus>,
    direct: mpsc::Sender<NumberRequest>,
    stopped: AtomicBool,
    /// `None` in direct mode, and after a release.
    refill: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

impl Segments {
    /// Starts to reserve numbers and returns immediately; [`ready`](Self::ready) waits for the first ones.
    ///
    /// Several counters are asked in turn, and one that fails is skipped until it answers again. They must be disjoint
    /// [stripes](super::Stripe) of independent stores. Call this on a tokio runtime with timers: the tasks run there.
    ///
    /// # Errors
    ///
    /// [`SegmentConfigError`] for a value out of range, no counter, direct mode with several counters, or direct mode with a
    /// counter that may lose acknowledged reservations.
    pub fn start(
        counters: Vec<Arc<dyn Counter>>,
        config: SegmentConfig,
        clock: impl Clock + Send + Sync + 'static,
    ) -> Result<Self, SegmentConfigError> {
        Self::start_with(PeriodCounters::without_reset(counters, Vec::new()), config, Arc::new(clock))
    }

    /// Like [`start`](Self::start), after earlier `Segments` of this process used the same counters.
    ///
    /// `received` holds the high-water mark of each counter. A counter that went back below its mark is detected.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_after(
        received: Vec<HighWaterMarks>,
        counters: Vec<Arc<dyn Counter>>,
        config: SegmentConfig,
        clock: impl Clock + Send + Sync + 'static,
    ) -> Result<Self, SegmentConfigError> {
        Self::start_with(PeriodCounters::without_reset(counters, received), config, Arc::new(clock))
    }

    /// Like [`start`](Self::start), with numbers that restart in each period.
    ///
    /// A number is then unique together with its period, which every [`Run`] carries. The clock decides the period, so use
    /// the wall clock, or [`TimeZone::clock`](crate::namespace::TimeZone::clock) for the dates of a time zone. Numbers of the
    /// next period are reserved shortly before it begins. In cached mode, no number of a period is handed out after its end.
    /// A clock that goes back over the start of a period by more than a second is followed within a second.
    ///
    /// `counters_of` must return separate counters for each period, and the same ones on every node.
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
    /// let segments = Segments::start_periodic(Reset::Daily, counters_of, SegmentConfig::new(), clock)?;
    /// let run = segments.take(1).await?[0];
    /// assert_eq!(format!("{}/{:06}", run.period().unwrap(), run.first()), "2026-11-21/000001");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_periodic(
        reset: Reset,
        counters_of: CountersOf,
        config: SegmentConfig,
        clock: impl Clock + Send + Sync + 'static,
    ) -> Result<Self, SegmentConfigError> {
        Self::start_periodic_after(Vec::new(), reset, counters_of, config, clock)
    }

    /// Like [`start_periodic`](Self::start_periodic), after earlier `Segments` of this process used the same counters.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_periodic_after(
        received: Vec<HighWaterMarks>,
        reset: Reset,
        counters_of: CountersOf,
        config: SegmentConfig,
        clock: impl Clock + Send + Sync + 'static,
    ) -> Result<Self, SegmentConfigError> {
        let period = Period::at(reset, clock.unix_ms());
        Self::start_with(PeriodCounters::of(period, counters_of, received), config, Arc::new(clock))
    }

    fn start_with(
        periods: PeriodCounters,
        config: SegmentConfig,
        clock: SharedClock,
    ) -> Result<Self, SegmentConfigError> {
        config.check()?;
        config.check_counters(periods.counters())?;
        let (counters, received) = (periods.counters().len(), periods.received().to_vec());
        let seed = config::random_seed()?;
        let (sender, status) = watch::channel(SegmentStatus::at_start(&config, &periods));
        let reporter = Reporter::new(sender, config.range());
        let (queue, producer) = SegmentQueue::open();
        let buffer = Arc::new(NumberBuffer::new(queue, periods.ends_unix_ms()));
        let (direct, requests) = mpsc::channel(DIRECT_QUEUE);
        let calls = CounterCalls::new(periods, Arc::clone(&clock), seed, reporter);
        let task = DirectTask::new(calls.clone(), &config);
        // The caller's span says whose numbers these are; the tasks outlive the call.
        fork::spawn(task.run(requests).in_current_span());
        let refill = (config.mode == Mode::Cached).then(|| {
            let (release, released) = oneshot::channel();
            let settings = config.settings(calls.periods.counters());
            let task = RefillTask::new(Arc::clone(&buffer), producer, calls, &settings);
            (release, fork::spawn(task.run(released).in_current_span()))
        });
        let (stopped, refill) = (AtomicBool::new(false), Mutex::new(refill));
        let inner =
            SegmentsInner { config, clock, counters, received, buffer, status, direct, stopped, refill };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Waits until there is a number. In direct mode it returns immediately: only a draw could tell, and would use up a number.
    ///
    /// # Errors
    ///
    /// [`NoNumberError`] once it is certain that waiting does not help.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub async fn ready(&self) -> Result<SegmentStatus, NoNumberError> {
        self.unless_forked(pin!(self.wait_until_ready())).await
    }

    async fn wait_until_ready(&self) -> Result<SegmentStatus, NoNumberError> {
        let direct = self.inner.config.mode == Mode::Direct;
        let mut status = self.inner.status.clone();
        let is_decided = |status: &SegmentStatus| {
            direct || status.refills > 0 || status.exhausted || status.failure.is_some()
        };
        let Ok(decided) = status.wait_for(is_decided).await.map(|decided| decided.clone()) else {
            return Err(NoNumberError::Stopped);
        };
        if direct || decided.refills > 0 { Ok(decided) } else { Err(self.no_number()) }
    }

    /// Takes up to `count` numbers, at least one, from memory. It never waits and never allocates.
    ///
    /// # Errors
    ///
    /// [`NoNumberError`]; no number was used up. In direct mode there are no numbers in memory.
    #[inline]
    pub fn try_take(&self, count: usize) -> Result<Run, NoNumberError> {
        let count = NonZeroU64::new(count as u64).unwrap_or(NonZeroU64::MIN);
        match self.inner.buffer.queue.draw(count).and_then(|drawn| self.checked(drawn)) {
            Some(run) => Ok(run),
            None => Err(self.missed()),
        }
    }

    /// Returns the drawn numbers, unless their period has ended. Wakes the task if few are left.
    #[inline]
    fn checked(&self, drawn: DrawnNumbers) -> Option<Run> {
        let period = Period::from_bits(drawn.label);
        let ended = period.is_some_and(|period| self.has_ended(period));
        if drawn.wakes_producer || ended {
            self.inner.buffer.few_left.notify_one();
        }
        (!ended).then(|| Run::new(drawn.segment, period))
    }

    /// Returns whether the period of drawn numbers has ended. The task may have begun another one since the draw.
    fn has_ended(&self, period: Period) -> bool {
        let ends_unix_ms = self.inner.buffer.period_ends_unix_ms.load(Ordering::Relaxed);
        period.is_before_one_that_ends_at(ends_unix_ms) || self.inner.clock.unix_ms() >= ends_unix_ms
    }

    #[cold]
    fn missed(&self) -> NoNumberError {
        if self.is_forked() {
            return NoNumberError::Forked;
        }
        self.inner.buffer.misses.fetch_add(1, Ordering::Relaxed);
        self.no_number()
    }

    /// Takes exactly `count` numbers, as runs in the order in which they were drawn. Sleeps while there are none.
    ///
    /// In direct mode the numbers are greater than all that any node returned before the call.
    ///
    /// # Errors
    ///
    /// [`NoNumberError`] if waiting does not help, or if no number arrived within the configured patience. Numbers taken before
    /// that are lost and never reused.
    ///
    /// # Cancel safety
    ///
    /// Numbers taken so far are lost and never reused.
    pub async fn take(&self, count: usize) -> Result<Vec<Run>, NoNumberError> {
        let runs = pin!(async {
            match (self.inner.config.mode, NonZeroU64::new(count as u64)) {
                (_, None) => Ok(Vec::new()),
                (Mode::Direct, Some(count)) => self.take_directly(count, Order::Any).await,
                (Mode::Cached, Some(_)) => self.take_cached(count).await,
            }
        });
        self.unless_forked(runs).await
    }

    /// Awaits the numbers of this process. A child that was forked meanwhile gets the answer too, and an error instead of it.
    async fn unless_forked<T>(
        &self,
        answer: Pin<&mut impl Future<Output = Result<T, NoNumberError>>>,
    ) -> Result<T, NoNumberError> {
        let process = self.inner.buffer.queue.process();
        fork::unless_forked(process, answer).await.unwrap_or(Err(NoNumberError::Forked))
    }

    /// Returns whether this is a forked child. Another thread of its parent may have held any lock, so it must take none.
    fn is_forked(&self) -> bool {
        !self.inner.buffer.queue.process().is_same_process()
    }

    async fn take_cached(&self, count: usize) -> Result<Vec<Run>, NoNumberError> {
        self.check_left(count as u64).await?;
        let mut runs = Vec::new();
        let mut missing = count;
        let mut give_up_at = None;
        while missing > 0 {
            // Registered before the draw, so that it misses no segment that is added after it.
            let mut filled = pin!(self.inner.buffer.filled.notified());
            if give_up_at.is_some() {
                filled.as_mut().enable();
            }
            match self.try_take(missing) {
                Ok(run) => {
                    // At most `missing`.
                    missing -= usize::try_from(run.count().get()).unwrap_or(missing);
                    runs.push(run);
                    give_up_at = None;
                }
                Err(error) if !self.is_worth_waiting(&error) => return Err(error),
                Err(_) => match give_up_at {
                    None => give_up_at = Some(Instant::now() + self.inner.config.patience),
                    Some(at) => timeout_at(at, filled).await.map_err(|_| self.no_number())?,
                },
            }
        }
        Ok(runs)
    }

    /// Returns whether fewer than `count` numbers seem to be left. [`try_take`](Self::try_take) would take some of them in vain;
    /// [`take`](Self::take) makes sure, and then takes none.
    pub fn may_lack(&self, count: u64) -> bool {
        let range = self.inner.config.range();
        count > 1 && range.maximum < MAX_NUMBER && count > self.left_at_most(range)
    }

    /// Refuses more numbers than are left, before any is drawn: they would be lost, and nobody would get another one.
    async fn check_left(&self, count: u64) -> Result<(), NoNumberError> {
        if !self.may_lack(count) {
            return Ok(());
        }
        // A segment may be on its way from the counter to memory.
        sleep(ON_THE_WAY).await;
        let range = self.inner.config.range();
        match self.left_at_most(range) {
            left if left > 0 && count > left => {
                Err(NoNumberError::TooFewLeft { count, left, maximum: range.maximum })
            }
            _ => Ok(()),
        }
    }

    /// Returns how many numbers are left, in memory and at the counters. Other nodes may have taken some of those.
    fn left_at_most(&self, range: NumberRange) -> u64 {
        let SegmentsInner { received, buffer, status, .. } = &*self.inner;
        let (period, step) = (status.borrow().period, buffer.queue.step().unwrap_or(NonZeroU64::MIN));
        let at_counters =
            received.iter().map(|received| range.left_at_most(received.settled_end(period), step));
        at_counters.fold(buffer.queue.left(), u64::saturating_add)
    }

    fn is_worth_waiting(&self, error: &NoNumberError) -> bool {
        matches!(error, NoNumberError::NotReady { .. }) && self.inner.status.borrow().failure.is_none()
    }

    /// Takes `count` consecutive numbers: from the segment in memory if it has them, otherwise from the counter.
    ///
    /// Numbers must increase, so the numbers in memory below a run from the counter are lost. If the segment in memory is long
    /// enough but has too few left, and the next one is there, the rest of the first one is lost.
    ///
    /// # Errors
    ///
    /// [`NoNumberError`]. Several counters, or the counter of one stripe, have no consecutive numbers.
    ///
    /// # Cancel safety
    ///
    /// The numbers may be lost; they are never reused.
    pub async fn take_run(&self, count: NonZeroU64) -> Result<Run, NoNumberError> {
        self.unless_forked(pin!(self.take_consecutive(count))).await
    }

    async fn take_consecutive(&self, count: NonZeroU64) -> Result<Run, NoNumberError> {
        let cached = self.inner.config.mode == Mode::Cached;
        if cached {
            let drawn = self.inner.buffer.queue.draw_whole(count);
            if let Some(run) = drawn.and_then(|drawn| self.checked(drawn)) {
                return Ok(run);
            }
            if count == NonZeroU64::MIN {
                // The next number in memory, so that nothing is skipped.
                return self.take_cached(1).await?.first().copied().ok_or_else(|| self.no_number());
            }
            if let Some(step) = self.step_above_one() {
                return Err(NoNumberError::NotConsecutive { count: count.get(), step });
            }
            if let Some(run) = self.draw_from_next_segment(count).await.and_then(|drawn| self.checked(drawn))
            {
                return Ok(run);
            }
        }
        let runs = self.take_directly(count, Order::Consecutive).await?;
        let run = runs.first().copied().ok_or_else(|| self.no_number())?;
        if cached {
            self.inner.buffer.skip_below(&run);
        }
        Ok(run)
    }

    /// Waits briefly for the next segment, if a segment has that many numbers: a run from the counter would skip it.
    async fn draw_from_next_segment(&self, count: NonZeroU64) -> Option<DrawnNumbers> {
        let SegmentsInner { buffer, status, stopped, config, .. } = &*self.inner;
        if count.get() > status.borrow().size || stopped.load(Ordering::Acquire) {
            return None;
        }
        // Registered before the draw, so that it misses no segment that is added after it.
        let mut filled = pin!(buffer.filled.notified());
        filled.as_mut().enable();
        if let Some(drawn) = buffer.queue.draw_whole(count) {
            return Some(drawn);
        }
        buffer.few_left.notify_one();
        timeout(config.patience / 4, filled).await.ok()?;
        buffer.queue.draw_whole(count)
    }

    /// Returns the distance from one number to the next, if they are not consecutive.
    fn step_above_one(&self) -> Option<u64> {
        let step = self.inner.buffer.queue.step().map_or(1, NonZeroU64::get);
        let step = step.max(self.inner.counters as u64);
        (step > 1).then_some(step)
    }

    async fn take_directly(&self, count: NonZeroU64, order: Order) -> Result<Vec<Run>, NoNumberError> {
        if self.inner.stopped.load(Ordering::Acquire) {
            return Err(NoNumberError::Stopped);
        }
        let (reply, answer) = oneshot::channel();
        let answered = async {
            let request = NumberRequest { count, order, reply };
            self.inner.direct.send(request).await.map_err(|_| NoNumberError::Stopped)?;
            answer.await.map_err(|_| NoNumberError::Stopped)?
        };
        match timeout(self.inner.config.patience, answered).await {
            Ok(answer) => answer,
            Err(_) => Err(self.no_number()),
        }
    }

    #[cold]
    fn no_number(&self) -> NoNumberError {
        if self.inner.stopped.load(Ordering::Acquire) {
            return NoNumberError::Stopped;
        }
        self.inner.status.borrow().no_number(self.inner.config.mode)
    }

    /// Returns the numbers in memory, and what has happened so far. In a forked child there are none.
    pub fn status(&self) -> SegmentStatus {
        if self.is_forked() {
            return SegmentStatus::in_a_forked_child();
        }
        let mut status = self.inner.status.borrow().clone();
        status.left = self.inner.buffer.queue.left();
        status.misses = self.inner.buffer.misses.load(Ordering::Relaxed);
        status.received(&self.inner.received, self.inner.config.range());
        status
    }

    /// Ends the numbers for every thread, and gives back those that are still the newest of their counter.
    ///
    /// Returns when the counters have them, or after `patience`: numbers that were not given back by then are lost. In a forked
    /// child it does nothing, because the numbers belong to the parent.
    pub async fn release(&self, patience: Duration) {
        if self.is_forked() {
            return;
        }
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
            // Once the task has ended, it cannot add a segment. The error says that it was aborted.
            let _ = task.await;
        }
        self.inner.buffer.queue.end();
        self.inner.buffer.filled.notify_waiters();
    }
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segments").field("status", &self.status()).finish_non_exhaustive()
    }
}
