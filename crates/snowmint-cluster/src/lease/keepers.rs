//! A node's leases, as many as it needs: each kept by the protocol of one, all drawn from as one pool.
//! `capacity` decides how many, `governor` does it; minting goes past both.

mod caller;
mod capacity;
mod demand;
mod governor;
mod workers;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use snowmint::generator::{Batch, GeneratorPool};
use snowmint::{Clock, GenerateError};
use snowmint_store::Store;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

pub use caller::Caller;
pub use workers::{Workers, WorkersError};

use super::keeper::{KeeperConfig, KeeperConfigError, LeaseFailure, LeaseStatus, Mount, NoId, Node};
use crate::NodeClock;
use capacity::Capacity;
use demand::Demand;
use governor::{Governor, Leases};

/// Keeps one or several leases of workers, and makes ids under them.
///
/// It takes another lease when callers used up the sequences of its leases: they met used-up ticks in a tenth of all
/// ticks of a second (of ten ticks, where those are longer), and got more than half of the ids that the leases have.
/// It gives one back when, for three windows in a row, the others had more than twice what callers got. One change at a
/// time, never below the least nor above the most.
///
/// Each lease is kept as a [`Keeper`](super::Keeper) keeps its one: under a name of its own (`web-3:8080`,
/// `web-3:8080/2`), renewed by itself, replaced when it is lost. With [`Workers::ONE`] it is that keeper, and as cheap.
///
/// Ids are drawn through a [`Caller`], of which each connection or thread has its own; the ids of one caller strictly
/// increase. Cheap to clone: every clone draws from the same leases.
///
/// # Examples
///
/// ```
/// use snowmint::{AnchoredClock, DatacenterId, Layout};
/// use snowmint_cluster::{Holder, KeeperConfig, Keepers, Pool, Workers};
/// use snowmint_store::MemoryStore;
/// use std::{sync::Arc, time::Duration};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let config = KeeperConfig::new(Pool::new(Layout::TWITTER, DatacenterId(0)), Holder::new("web-1:8080")?);
/// let store = Arc::new(MemoryStore::new());
/// let keepers = Keepers::start(store, config, Workers::new(1, 4)?, Arc::new(AnchoredClock::new()))?;
/// keepers.ready().await?;
/// let mut caller = keepers.caller();
/// let ids: Vec<_> = keepers.take(&mut caller, 10_000).await?.into_iter().flatten().collect();
/// assert!(ids.len() == 10_000 && ids.is_sorted());
/// keepers.release(Duration::from_secs(1)).await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Keepers {
    inner: Arc<Inner>,
}

struct Inner {
    pool: GeneratorPool<NodeClock>,
    clock: NodeClock,
    tick_ms: u64,
    /// `None` where the number of leases is fixed: then nobody has to count.
    demand: Option<Arc<Demand>>,
    first: watch::Receiver<LeaseStatus>,
    leases: Leases,
    governor: Mutex<Option<(oneshot::Sender<Duration>, JoinHandle<()>)>>,
}

impl Keepers {
    /// Starts to seek the least number of leases and returns at once; [`ready`](Self::ready) waits for the first.
    ///
    /// Must be called on a tokio runtime: its tasks run there.
    ///
    /// # Errors
    ///
    /// [`KeeperConfigError`], as [`Keeper::start`](super::Keeper::start); for more workers than the pool has, or several
    /// where one is fixed.
    pub fn start(
        store: Arc<dyn Store>,
        config: KeeperConfig,
        workers: Workers,
        clock: impl Into<NodeClock>,
    ) -> Result<Self, KeeperConfigError> {
        let (settings, clock) = (config.checked_for(workers, store.may_lose())?, clock.into());
        let layout = *settings.pool.layout();
        let pool = GeneratorPool::new(layout);
        let mount: Arc<dyn Mount> = Arc::new(pool.clone());
        let demand = (workers.min() < workers.max()).then(Arc::<Demand>::default);
        let capacity = demand.clone().map(|demand| {
            (Capacity::new(workers, &layout, Duration::from_millis(settings.window_ms)), demand)
        });
        let node = Node::new(store, settings, config, clock.clone(), mount);
        let governor = Governor::start(node, workers, capacity)?;
        let (first, leases) = (governor.first(), governor.leases());
        let (release, asked) = oneshot::channel();
        let governor = Mutex::new(Some((release, tokio::spawn(governor.run(asked)))));
        let tick_ms = u64::try_from(layout.tick().as_millis()).unwrap_or(u64::MAX);
        Ok(Self { inner: Arc::new(Inner { pool, clock, tick_ms, demand, first, leases, governor }) })
    }

    /// Waits until a lease is held: the first of them, where there are several.
    ///
    /// # Errors
    ///
    /// [`LeaseFailure`] once it is certain that waiting does not help.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub async fn ready(&self) -> Result<LeaseStatus, LeaseFailure> {
        LeaseStatus::settled(self.inner.first.clone()).await
    }

    /// What one connection or thread draws through.
    pub fn caller(&self) -> Caller {
        Caller::new(self.inner.pool.handle(), self.inner.demand.clone())
    }

    /// Takes up to `count` ids, at least one, all of them greater than the last that this caller got. Never waits.
    ///
    /// # Errors
    ///
    /// [`NoId`] with the refusal that waiting helps soonest, or why no lease is held.
    #[inline]
    pub fn try_take(&self, caller: &mut Caller, count: usize) -> Result<Batch, NoId> {
        match caller.try_take(count) {
            Ok(batch) => Ok(batch),
            Err(refusal) => self.try_again(caller, count, refusal),
        }
    }

    #[cold]
    fn try_again(
        &self,
        caller: &mut Caller,
        count: usize,
        mut refusal: GenerateError,
    ) -> Result<Batch, NoId> {
        // A generator that was ended is replaced in the next instant by the one that follows it.
        const LOOKS: usize = 64;
        for _ in 0..LOOKS {
            match refusal {
                GenerateError::Ended if self.inner.pool.generators().is_empty() => {
                    return Err(self.no_lease());
                }
                GenerateError::Ended => std::hint::spin_loop(),
                ended @ GenerateError::LeaseEnded { .. } => {
                    return Err(NoId::of_ended(ended, &self.leases(), self.inner.clock.unix_ms()));
                }
                GenerateError::Exhausted { .. } => {
                    if let Some(demand) = &self.inner.demand {
                        demand.exhausted(self.inner.clock.unix_ms() / self.inner.tick_ms);
                    }
                    return Err(NoId::Refused(refusal));
                }
                refusal => return Err(NoId::Refused(refusal)),
            }
            refusal = match caller.try_take(count) {
                Ok(batch) => return Ok(batch),
                Err(refusal) => refusal,
            };
        }
        Err(NoId::Refused(refusal))
    }

    /// Takes exactly `count` ids, as batches in increasing order; waits, asleep, while ticks are used up.
    ///
    /// # Errors
    ///
    /// [`NoId`] when waiting is no answer; ids taken before are lost, not reused.
    ///
    /// # Cancel safety
    ///
    /// Ids taken so far are lost, not reused.
    pub async fn take(&self, caller: &mut Caller, count: usize) -> Result<Vec<Batch>, NoId> {
        let mut batches = Vec::new();
        let mut missing = count;
        while missing > 0 {
            match self.try_take(caller, missing) {
                Ok(batch) => {
                    missing -= batch.len();
                    batches.push(batch);
                }
                Err(no_id) => tokio::time::sleep(no_id.worth_waiting()?).await,
            }
        }
        Ok(batches)
    }

    #[cold]
    fn no_lease(&self) -> NoId {
        let why = self.inner.first.borrow().why_none();
        NoId::NoLease { why: why.unwrap_or_else(|| "it was given back".to_owned()) }
    }

    /// Each lease that is held, sought or being given back, in the order in which they were sought.
    pub fn leases(&self) -> Vec<LeaseStatus> {
        self.inner.leases.all()
    }

    /// All leases as one: the worker of the first that is held, the latest end, and everything that was counted.
    pub fn status(&self) -> LeaseStatus {
        self.inner.leases.as_one()
    }

    /// Ends all generators for every caller and gives all leases back, so that other nodes may go on from the next
    /// timestamps. Returns when the store has it, or after `patience`: then the leases run out by themselves.
    pub async fn release(&self, patience: Duration) {
        let started = self.inner.governor.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((release, governor)) = started
            && release.send(patience).is_ok()
        {
            // It fails only if the governor panicked; its leases then run out.
            let _ = governor.await;
        }
    }
}

impl fmt::Debug for Keepers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keepers").field("leases", &self.leases()).finish_non_exhaustive()
    }
}
