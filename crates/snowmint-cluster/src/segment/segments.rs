//! The driver of the segment protocol: asks the counters, and keeps numbers ready in memory.
//! Drawing a number goes past it: one pointer to the segment of now, and one atomic step on it.

use std::fmt;
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use snowmint::Clock;
use snowmint_store::Counter;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument as _;

use super::batching::Order;
use super::config::{self, Mode, SegmentConfig, SegmentConfigError};
use super::direct::{Ask, DirectTask};
use super::period::{CountersOf, HighWaterMarks, Period, PeriodCounters, Reset};
use super::queue::{Drawn, SegmentQueue};
use super::refill::{Buffer, RefillTask};
use super::status::{NoNumberError, SegmentStatus};
use super::{Run, SharedClock};

/// How many callers may wait for the direct before others wait for them.
const DIRECT_QUEUE: usize = 1024;

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

struct Inner {
    config: SegmentConfig,
    clock: SharedClock,
    counters: usize,
    /// By counter.
    received: Vec<HighWaterMarks>,
    buffer: Arc<Buffer>,
    status: watch::Receiver<SegmentStatus>,
    direct: mpsc::Sender<Ask>,
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
        Self::start_with(PeriodCounters::one(counters, Vec::new()), config, Arc::new(clock))
    }

    /// As [`start`](Self::start), where earlier `Segments` of this process may have asked the same counters: `received` holds
    /// what they got, counter by counter. A counter that went back below that is noticed.
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
        Self::start_with(PeriodCounters::one(counters, received), config, Arc::new(clock))
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

    /// As [`start_periodic`](Self::start_periodic), after what earlier `Segments` of this process `received`.
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
        let periods = PeriodCounters::each(reset, counters_of, received, clock.unix_ms());
        Self::start_with(periods, config, Arc::new(clock))
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
        let (queue, producer) = SegmentQueue::open();
        let buffer = Arc::new(Buffer {
            queue,
            few_left: Notify::new(),
            filled: Notify::new(),
            misses: AtomicU64::new(0),
            floor: Mutex::default(),
            period_ends_unix_ms: AtomicU64::new(periods.ends_unix_ms()),
        });
        let (direct, asks) = mpsc::channel(DIRECT_QUEUE);
        let from_counter =
            DirectTask::new(periods.clone(), &config, Arc::clone(&clock), seed, sender.clone());
        // The caller's span says whose numbers these are; the tasks outlive the call.
        tokio::spawn(from_counter.run(asks).in_current_span());
        let refill = (config.mode == Mode::Cached).then(|| {
            let (release, released) = oneshot::channel();
            let settings = config.settings(periods.counters());
            let task = RefillTask::new(
                Arc::clone(&buffer),
                producer,
                periods,
                &settings,
                Arc::clone(&clock),
                seed,
                sender,
            );
            (release, tokio::spawn(task.run(released).in_current_span()))
        });
        let (stopped, refill) = (AtomicBool::new(false), Mutex::new(refill));
        let inner = Inner { config, clock, counters, received, buffer, status, direct, stopped, refill };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Waits until there is a number. In direct mode it returns at once: only asking would tell, and cost one.
    ///
    /// # Errors
    ///
    /// [`NoNumberError`] once it is certain that waiting does not help.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub async fn ready(&self) -> Result<SegmentStatus, NoNumberError> {
        let direct = self.inner.config.mode == Mode::Direct;
        let mut status = self.inner.status.clone();
        let is_settled = |status: &SegmentStatus| {
            direct || status.refills > 0 || status.exhausted || status.failure.is_some()
        };
        let Ok(settled) = status.wait_for(is_settled).await.map(|settled| settled.clone()) else {
            return Err(NoNumberError::Stopped);
        };
        if direct || settled.refills > 0 { Ok(settled) } else { Err(self.no_number()) }
    }

    /// Takes up to `count` numbers, at least one, from memory. Never waits, never allocates.
    ///
    /// # Errors
    ///
    /// [`NoNumberError`]; nothing was used up. In direct mode there are no numbers in memory.
    #[inline]
    pub fn try_take(&self, count: usize) -> Result<Run, NoNumberError> {
        let count = NonZeroU64::new(count as u64).unwrap_or(NonZeroU64::MIN);
        match self.inner.buffer.queue.draw(count).and_then(|drawn| self.drawn(drawn)) {
            Some(run) => Ok(run),
            None => Err(self.missed()),
        }
    }

    /// The numbers that were drawn, unless their period has ended: then nobody needs them, and the task is woken.
    #[inline]
    fn drawn(&self, drawn: Drawn) -> Option<Run> {
        let period = Period::from_bits(drawn.label);
        let ended = period.is_some_and(|period| self.has_ended(period));
        if drawn.wakes_producer || ended {
            self.inner.buffer.few_left.notify_one();
        }
        (!ended).then(|| Run::new(drawn.segment, period))
    }

    /// Whether the period of numbers that were drawn has ended. Another may have begun since they were.
    fn has_ended(&self, period: Period) -> bool {
        let ends_unix_ms = self.inner.buffer.period_ends_unix_ms.load(Ordering::Relaxed);
        period.is_before_one_that_ends_at(ends_unix_ms) || self.inner.clock.unix_ms() >= ends_unix_ms
    }

    #[cold]
    fn missed(&self) -> NoNumberError {
        self.inner.buffer.misses.fetch_add(1, Ordering::Relaxed);
        self.no_number()
    }

    /// Takes exactly `count` numbers, as runs in the order they were drawn; waits, asleep, while there are none. In
    /// direct mode they are greater than all that any node returned before the call.
    ///
    /// # Errors
    ///
    /// [`NoNumberError`] when waiting is no answer, or none came within the configured patience; numbers taken before are
    /// lost, not handed out again.
    ///
    /// # Cancel safety
    ///
    /// Numbers taken so far are lost, not handed out again.
    pub async fn take(&self, count: usize) -> Result<Vec<Run>, NoNumberError> {
        match (self.inner.config.mode, NonZeroU64::new(count as u64)) {
            (_, None) => Ok(Vec::new()),
            (Mode::Direct, Some(count)) => self.from_counter(count, Order::Any).await,
            (Mode::Cached, Some(_)) => self.cached(count).await,
        }
    }

    async fn cached(&self, count: usize) -> Result<Vec<Run>, NoNumberError> {
        let mut runs = Vec::new();
        let mut missing = count;
        let mut give_up_at = None;
        while missing > 0 {
            // Before it looks, so that it misses no segment that comes after.
            let mut filled = pin!(self.inner.buffer.filled.notified());
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

    fn is_worth_waiting(&self, none: &NoNumberError) -> bool {
        matches!(none, NoNumberError::NotReady { .. }) && self.inner.status.borrow().failure.is_none()
    }

    /// Takes `count` consecutive numbers: from the segment in memory if they are there, else from the counter. What is in
    /// memory below those is lost then, so that numbers keep growing. So is the rest of a segment that is long enough,
    /// but has not enough left, where the next one is there.
    ///
    /// # Errors
    ///
    /// [`NoNumberError`]; several counters, or one of a stripe, have no consecutive numbers.
    ///
    /// # Cancel safety
    ///
    /// The numbers may be lost, not handed out again.
    pub async fn take_run(&self, count: NonZeroU64) -> Result<Run, NoNumberError> {
        let cached = self.inner.config.mode == Mode::Cached;
        if cached {
            let drawn = self.inner.buffer.queue.draw_whole(count);
            if let Some(run) = drawn.and_then(|drawn| self.drawn(drawn)) {
                return Ok(run);
            }
            if count == NonZeroU64::MIN {
                // From memory, in its turn: nothing is passed.
                return self.cached(1).await?.first().copied().ok_or_else(|| self.no_number());
            }
            if let Some(step) = self.numbers_apart() {
                return Err(NoNumberError::NotConsecutive { count: count.get(), step });
            }
            if let Some(run) = self.draw_whole_soon(count).await.and_then(|drawn| self.drawn(drawn)) {
                return Ok(run);
            }
        }
        let runs = self.from_counter(count, Order::Consecutive).await?;
        let run = runs.first().copied().ok_or_else(|| self.no_number())?;
        if cached {
            self.inner.buffer.pass(&run);
        }
        Ok(run)
    }

    /// Consecutive numbers from the segment that comes next, where one of its size has so many: a run from the counter
    /// would leave it out.
    async fn draw_whole_soon(&self, count: NonZeroU64) -> Option<Drawn> {
        let Inner { buffer, status, stopped, config, .. } = &*self.inner;
        if count.get() > status.borrow().size || stopped.load(Ordering::Acquire) {
            return None;
        }
        // Before it looks, so that it misses no segment that comes after.
        let mut filled = pin!(buffer.filled.notified());
        filled.as_mut().enable();
        if let Some(drawn) = buffer.queue.draw_whole(count) {
            return Some(drawn);
        }
        buffer.few_left.notify_one();
        timeout(config.patience / 4, filled).await.ok()?;
        buffer.queue.draw_whole(count)
    }

    /// From one number to the next, where they do not follow one another.
    fn numbers_apart(&self) -> Option<u64> {
        let step = self.inner.buffer.queue.step().map_or(1, NonZeroU64::get);
        let apart = step.max(self.inner.counters as u64);
        (apart > 1).then_some(apart)
    }

    async fn from_counter(&self, count: NonZeroU64, order: Order) -> Result<Vec<Run>, NoNumberError> {
        if self.inner.stopped.load(Ordering::Acquire) {
            return Err(NoNumberError::Stopped);
        }
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.inner.direct.send(Ask { count, order, reply }).await.map_err(|_| NoNumberError::Stopped)?;
            answer.await.map_err(|_| NoNumberError::Stopped)?
        };
        match timeout(self.inner.config.patience, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(self.no_number()),
        }
    }

    /// Why there is none.
    #[cold]
    fn no_number(&self) -> NoNumberError {
        if self.inner.stopped.load(Ordering::Acquire) {
            return NoNumberError::Stopped;
        }
        self.inner.status.borrow().no_number(self.inner.config.mode)
    }

    /// What is in memory, and what has happened so far.
    pub fn status(&self) -> SegmentStatus {
        let mut status = self.inner.status.borrow().clone();
        status.left = self.inner.buffer.queue.left();
        status.misses = self.inner.buffer.misses.load(Ordering::Relaxed);
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
        self.inner.buffer.queue.end();
        self.inner.buffer.filled.notify_waiters();
    }
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segments").field("status", &self.status()).finish_non_exhaustive()
    }
}
