//! The leases of a node: as many as it needs, and a handle for each caller that takes ids.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use snowmint::fork::ForkMark;
use snowmint::generator::{Batch, GeneratorPool, PoolHandle};
use snowmint::{Clock, GenerateError, Id};
use snowmint_store::Store;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::config::{LeaseConfig, LeaseConfigError};
use super::scaling::{IdDemand, LeaseScaler, ScalingPolicy, Statuses};
use super::status::{LeaseError, LeaseStatus, NextIdError};
use super::task::LeaseNode;
use crate::{NodeClock, fork};

/// The number of ids that a handle counts before it reports them.
const COUNTED_ALONE: u64 = 1024;

/// Holds one or several leases of workers, and makes ids under them.
///
/// A background task renews each lease. If another node takes the worker, the node uses its lease up to the
/// end and takes another worker in the meantime, so that callers keep getting ids.
///
/// [`LeaseConfig::worker_count`] sets how many leases a node holds. It takes another lease when callers use
/// up the sequences of its leases: they met used-up ticks in a tenth of all ticks of a second (of ten ticks,
/// if those are longer), and got more than half of the ids of all leases. It releases a lease when, for three
/// windows in a row, the others had more than twice the ids that callers got. It makes one change at a time,
/// within the configured range.
///
/// Each lease has its own name (`web-3:8080`, `web-3:8080/2`) and is renewed and replaced on its own.
///
/// Each connection or thread takes ids through its own [`LeaseHandle`]; the ids of one handle strictly
/// increase. A clone refers to the same leases. When the last clone and the last handle are dropped, the
/// leases stay taken to the end of their window. Call [`release`](Self::release), so that other nodes can
/// take the workers immediately.
///
/// # Examples
///
/// ```
/// use snowmint::Layout;
/// use snowmint_cluster::{Holder, LeaseConfig, Leases, WorkerCount};
/// use snowmint_store::MemoryStore;
/// use std::{sync::Arc, time::Duration};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let config = LeaseConfig::new(Layout::TWITTER, Holder::new("web-1:8080")?).worker_count(WorkerCount::new(1, 4)?);
/// let leases = Leases::start(Arc::new(MemoryStore::new()), config)?;
/// leases.ready().await?;
///
/// let mut handle = leases.handle();
/// let first = handle.next_id().await?;
/// let more: Vec<_> = handle.take(10_000).await?.into_iter().flatten().collect();
/// assert!(more.len() == 10_000 && more.is_sorted() && first < more[0]);
/// leases.release(Duration::from_secs(1)).await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Leases {
    shared: Arc<LeasesShared>,
}

struct LeasesShared {
    /// The process whose leases these are.
    process: ForkMark,
    generators: GeneratorPool<NodeClock>,
    clock: NodeClock,
    tick_ms: u64,
    /// `None` if the number of leases is fixed and no counting is needed.
    demand: Option<Arc<IdDemand>>,
    first: watch::Receiver<LeaseStatus>,
    statuses: Statuses,
    scaler: Mutex<Option<(oneshot::Sender<Duration>, JoinHandle<()>)>>,
}

impl Leases {
    /// Starts to seek leases and returns immediately; [`ready`](Self::ready) waits for the first one.
    ///
    /// The background tasks run on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// [`LeaseConfigError`]:
    /// - the datacenter or the worker does not fit the layout;
    /// - the window is too short or too long, also for what the store may lose;
    /// - the rule does not suit the layout;
    /// - the pool has fewer workers, or a worker is fixed and several are requested;
    /// - the leases cannot be saved in the directory.
    ///
    /// # Panics
    ///
    /// If called outside a tokio runtime.
    pub fn start(store: Arc<dyn Store>, config: LeaseConfig) -> Result<Self, LeaseConfigError> {
        let settings = config.settings(store.may_lose())?;
        let (layout, workers, clock) = (*settings.pool.layout(), config.worker_count, config.node_clock());
        let generators = GeneratorPool::new(layout);
        let demand = (workers.min() < workers.max()).then(Arc::<IdDemand>::default);
        let policy = demand.clone().map(|demand| {
            (ScalingPolicy::new(workers, &layout, Duration::from_millis(settings.window_ms)), demand)
        });
        let node = LeaseNode::new(store, settings, config, clock.clone(), generators.clone());
        let scaler = LeaseScaler::start(Arc::new(node), workers, policy)?;
        let (first, statuses) = (scaler.first(), scaler.statuses());
        let (release, asked) = oneshot::channel();
        let scaler = Mutex::new(Some((release, fork::spawn(scaler.run(asked)))));
        let tick_ms = u64::try_from(layout.tick().as_millis()).unwrap_or(u64::MAX);
        let process = ForkMark::of_this_process();
        let shared = LeasesShared { process, generators, clock, tick_ms, demand, first, statuses, scaler };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Waits until the first lease is held.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] once it is certain that waiting does not help: another node holds the required worker,
    /// its record is unreadable, the clock is wrong, the store is unusable, or this is a forked child.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is lost.
    pub async fn ready(&self) -> Result<LeaseStatus, LeaseError> {
        let settled = pin!(LeaseStatus::settled(self.shared.first.clone()));
        fork::unless_forked(self.shared.process, settled).await.unwrap_or(Err(LeaseError::Forked))
    }

    /// Returns a handle through which one connection or thread takes ids.
    pub fn handle(&self) -> LeaseHandle {
        let (generators, demand) = (self.shared.generators.handle(), self.shared.demand.clone());
        LeaseHandle { generators, demand, uncounted: 0, shared: Arc::clone(&self.shared) }
    }

    /// Returns the state of each lease that is held, sought or being released, in the order in which the node
    /// sought them.
    pub fn statuses(&self) -> Vec<LeaseStatus> {
        self.shared.statuses.each()
    }

    /// Returns the state of all leases as one: the worker of the first one that is held, the latest end, and
    /// the sum of all counts.
    pub fn status(&self) -> LeaseStatus {
        self.shared.statuses.as_one()
    }

    /// Checks that the node can make an id now. Makes none, and causes no further lease.
    ///
    /// # Errors
    ///
    /// [`NextIdError`], as [`LeaseHandle::try_take`] of a new handle.
    pub fn check_ready(&self) -> Result<(), NextIdError> {
        self.shared.generators.check_ready().map_err(|refusal| self.shared.explain(refusal))
    }

    /// Returns the number of ticks that lay ahead of the clock when their first id was made, over all leases
    /// since the start.
    pub fn borrowed_ticks(&self) -> u64 {
        self.shared.generators.borrowed_ticks()
    }

    /// Ends all generators for every caller and releases all leases, so that other nodes can continue with
    /// the next timestamps.
    ///
    /// Returns when the store has acknowledged the release, or after `patience`: then the leases end by
    /// themselves. In a forked child it does nothing, because the leases belong to the parent.
    pub async fn release(&self, patience: Duration) {
        if !self.shared.process.is_same_process() {
            return;
        }
        let started = self.shared.scaler.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((release, scaler)) = started
            && release.send(patience).is_ok()
        {
            // It fails only if the scaler panicked; its leases then expire.
            let _ = scaler.await;
        }
    }
}

impl LeasesShared {
    /// Returns why there is no id, and no lease if that is the reason.
    fn explain(&self, refusal: GenerateError) -> NextIdError {
        match refusal {
            GenerateError::Ended if self.generators.generators().is_empty() => {
                let why = self.first.borrow().why_none();
                NextIdError::NoLease { why: why.unwrap_or_else(|| LeaseError::Released.to_string()) }
            }
            GenerateError::LeaseEnded { .. } => {
                NextIdError::of_ended(refusal, &self.statuses.each(), self.clock.unix_ms())
            }
            refusal => NextIdError::Refused(refusal),
        }
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("statuses", &self.statuses()).finish_non_exhaustive()
    }
}

/// Takes ids under a node's [`Leases`], each greater than the one before: for one connection or thread.
///
/// It is cheap to make and to drop, and keeps the leases alive. It is not `Clone`, because the ids of two
/// handles do not have one order.
pub struct LeaseHandle {
    generators: PoolHandle<NodeClock>,
    demand: Option<Arc<IdDemand>>,
    uncounted: u64,
    shared: Arc<LeasesShared>,
}

impl LeaseHandle {
    /// Returns the next id, or the reason why there is none now. Never waits.
    ///
    /// # Errors
    ///
    /// As [`try_take`](Self::try_take).
    #[inline]
    pub fn try_next_id(&mut self) -> Result<Id, NextIdError> {
        // A batch that is not empty has a first id.
        self.try_take(1)?.next().ok_or(NextIdError::Refused(GenerateError::Ended))
    }

    /// Returns the next id. Sleeps while all ticks are used up.
    ///
    /// # Errors
    ///
    /// [`NextIdError`] if waiting does not help.
    ///
    /// # Cancel safety
    ///
    /// Safe: a cancelled call has taken no id.
    pub async fn next_id(&mut self) -> Result<Id, NextIdError> {
        loop {
            match self.try_next_id() {
                Ok(id) => return Ok(id),
                Err(error) => sleep(error.retry_after()?).await,
            }
        }
    }

    /// Takes 1 to `count` ids. Never waits.
    ///
    /// # Errors
    ///
    /// [`NextIdError`]: the error of the generator with the shortest wait, or the reason why there is no
    /// lease.
    #[inline]
    pub fn try_take(&mut self, count: usize) -> Result<Batch, NextIdError> {
        match self.take_counted(count) {
            Ok(batch) => Ok(batch),
            Err(refusal) => self.try_again(count, refusal),
        }
    }

    /// Takes exactly `count` ids, as batches in increasing order. Sleeps while all ticks are used up.
    ///
    /// # Errors
    ///
    /// [`NextIdError`] if waiting does not help. The ids taken so far are lost, and never reused.
    ///
    /// # Cancel safety
    ///
    /// The ids taken so far are lost, and never reused.
    pub async fn take(&mut self, count: usize) -> Result<Vec<Batch>, NextIdError> {
        let mut batches = Vec::new();
        let mut missing = count;
        while missing > 0 {
            match self.try_take(missing) {
                Ok(batch) => {
                    missing -= batch.len();
                    batches.push(batch);
                }
                Err(error) => sleep(error.retry_after()?).await,
            }
        }
        Ok(batches)
    }

    #[inline]
    fn take_counted(&mut self, count: usize) -> Result<Batch, GenerateError> {
        let taken = self.generators.try_take(count);
        if let (Some(_), Ok(batch)) = (&self.demand, &taken) {
            self.uncounted += batch.len() as u64;
            if self.uncounted >= COUNTED_ALONE {
                self.report();
            }
        }
        taken
    }

    #[cold]
    fn try_again(&mut self, count: usize, mut refusal: GenerateError) -> Result<Batch, NextIdError> {
        // A generator that has ended is replaced a moment later by the next one.
        const ATTEMPTS: usize = 64;
        // A thread of the parent may have held the locks below.
        if !self.shared.process.is_same_process() {
            return Err(NextIdError::Refused(GenerateError::Forked));
        }
        for _ in 0..ATTEMPTS {
            if refusal != GenerateError::Ended || self.shared.generators.generators().is_empty() {
                if let (Some(demand), GenerateError::Exhausted { .. }) = (&self.demand, refusal) {
                    demand.exhausted(self.shared.clock.unix_ms() / self.shared.tick_ms);
                }
                return Err(self.shared.explain(refusal));
            }
            std::hint::spin_loop();
            refusal = match self.take_counted(count) {
                Ok(batch) => return Ok(batch),
                Err(refusal) => refusal,
            };
        }
        Err(NextIdError::Refused(refusal))
    }

    #[cold]
    fn report(&mut self) {
        if let Some(demand) = &self.demand {
            demand.add_ids(std::mem::take(&mut self.uncounted));
        }
    }
}

/// Reports the last ids, so that handles which take only a few are counted too.
impl Drop for LeaseHandle {
    fn drop(&mut self) {
        self.report();
    }
}

impl fmt::Debug for LeaseHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.generators.fmt(f)
    }
}
