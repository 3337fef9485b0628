//! The driver of the lease protocol: asks the store, and keeps a generator under the lease it holds.
//! Minting goes past it: one pointer to the generator of now, and the generator's own atomics.

mod config;
mod mount;
mod outage;
mod quiet;
mod slot;
mod status;
mod task;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use snowmint::generator::Batch;
use snowmint::{Clock, GenerateError, Generator};
use snowmint_store::Store;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::NodeClock;
pub use config::{KeeperConfig, KeeperConfigError};
pub use status::{LeaseFailure, LeaseStatus};

pub(super) use mount::Mount;
pub(super) use slot::{Node, Slot};

pub(super) type LeasedGenerator = Generator<NodeClock>;

/// Keeps one lease of a worker, and makes ids under it.
///
/// A task renews the lease in the background; when another node took the worker, it goes on to the end of what
/// was granted and takes another worker meanwhile. Cheap to clone: every clone mints from the same generator.
#[derive(Clone)]
pub struct Keeper {
    inner: Arc<Inner>,
}

struct Inner {
    current: Arc<ArcSwapOption<LeasedGenerator>>,
    clock: NodeClock,
    status: watch::Receiver<LeaseStatus>,
    slot: std::sync::Mutex<Option<Slot>>,
}

/// Why there is no id now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoId {
    /// The generator refused.
    #[error("{0}")]
    Refused(GenerateError),
    /// No lease is held.
    #[error("no lease is held: {why}")]
    NoLease {
        /// Why not.
        why: String,
    },
}

impl Keeper {
    /// Starts to seek a lease and returns at once; [`ready`](Self::ready) waits for it.
    ///
    /// Must be called on a tokio runtime: the task runs there.
    ///
    /// # Errors
    ///
    /// [`KeeperConfigError`] for a datacenter or worker beyond the layout, a window too short or too long, also for what
    /// the store may lose, or a rule that does not go with the layout.
    pub fn start(
        store: Arc<dyn Store>,
        config: KeeperConfig,
        clock: impl Into<NodeClock>,
    ) -> Result<Self, KeeperConfigError> {
        let (settings, clock) = (config.checked(store.may_lose())?, clock.into());
        let current = Arc::new(ArcSwapOption::empty());
        let mount: Arc<dyn Mount> = Arc::<ArcSwapOption<LeasedGenerator>>::clone(&current);
        let slot = Node::new(store, settings, config, clock.clone(), mount).start(0)?;
        let (status, slot) = (slot.status.clone(), std::sync::Mutex::new(Some(slot)));
        Ok(Self { inner: Arc::new(Inner { current, clock, status, slot }) })
    }

    /// Waits until a lease is held.
    ///
    /// # Errors
    ///
    /// [`LeaseFailure`] once it is certain that waiting does not help: the only worker wanted is another's, or
    /// the store cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub async fn ready(&self) -> Result<LeaseStatus, LeaseFailure> {
        LeaseStatus::settled(self.inner.status.clone()).await
    }

    /// Takes up to `count` ids, at least one. Never waits.
    ///
    /// # Errors
    ///
    /// [`NoId`] with the generator's refusal, or why no lease is held.
    #[inline]
    pub fn try_take(&self, count: usize) -> Result<Batch, NoId> {
        // A generator that was ended is replaced in the next instant by the one that follows it.
        const LOOKS: usize = 64;
        for _ in 0..LOOKS {
            let current = self.inner.current.load();
            let Some(generator) = current.as_deref() else {
                return Err(self.no_lease());
            };
            match generator.try_take(count) {
                Err(GenerateError::Ended) => std::hint::spin_loop(),
                Err(refusal @ GenerateError::LeaseEnded { .. }) => return Err(self.not_renewed(refusal)),
                Err(refusal) => return Err(NoId::Refused(refusal)),
                Ok(batch) => return Ok(batch),
            }
        }
        Err(NoId::Refused(GenerateError::Ended))
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
    pub async fn take(&self, count: usize) -> Result<Vec<Batch>, NoId> {
        let mut batches = Vec::new();
        let mut missing = count;
        while missing > 0 {
            match self.try_take(missing) {
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
        NoId::NoLease { why: self.trouble().unwrap_or_else(|| "it was given back".to_owned()) }
    }

    /// The lease ran out: with the reason, where there is one.
    #[cold]
    fn not_renewed(&self, ended: GenerateError) -> NoId {
        let now_unix_ms = self.inner.clock.unix_ms();
        NoId::of_ended(ended, std::slice::from_ref(&*self.inner.status.borrow()), now_unix_ms)
    }

    fn trouble(&self) -> Option<String> {
        self.inner.status.borrow().why_none()
    }

    /// What is held and what has happened so far.
    pub fn status(&self) -> LeaseStatus {
        self.inner.status.borrow().clone()
    }

    /// Ends the generator for every thread and gives the lease back, so that another node may go on from the
    /// next timestamp. Returns when the store has it, or after `patience`: then the lease runs out by itself.
    pub async fn release(&self, patience: Duration) {
        let started = self.inner.slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(mut slot) = started {
            slot.give_back();
            slot.gone(patience).await;
        }
    }
}

/// Ends a task that would otherwise run for ever.
#[derive(Debug)]
pub(super) struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl NoId {
    /// Of generators whose leases ran out, the last of them as `ended` says: with the reason, where there is one.
    ///
    /// Worth waiting for only while one of the leases was granted for longer than that, by the clock too: an end that
    /// has passed is no sign of a renewal, whichever lease it is of.
    pub(super) fn of_ended(ended: GenerateError, leases: &[LeaseStatus], now_unix_ms: u64) -> Self {
        let GenerateError::LeaseEnded { until_unix_ms } = ended else { return Self::Refused(ended) };
        let lasts_ms = until_unix_ms.max(now_unix_ms);
        let lasting = || leases.iter().filter(|lease| lease.until_unix_ms > Some(lasts_ms));
        if lasting().any(|lease| lease.unsaved.is_none()) {
            // About to be saved, before it may be used.
            return Self::Refused(GenerateError::Ended);
        }
        if let Some(why) = lasting().find_map(|lease| lease.unsaved.clone()) {
            return Self::NoLease { why };
        }
        match leases.iter().find_map(LeaseStatus::why_none) {
            Some(why) => Self::NoLease { why: format!("{ended}; {why}") },
            None => Self::Refused(ended),
        }
    }

    /// How long to sleep before asking again.
    pub(super) fn worth_waiting(self) -> Result<Duration, Self> {
        match &self {
            Self::Refused(GenerateError::Ended) => Ok(Duration::from_millis(1)),
            Self::Refused(refusal) => match refusal.retry_after_ms() {
                Some(ms) => Ok(Duration::from_millis(ms.get())),
                None => Err(self),
            },
            Self::NoLease { .. } => Err(self),
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("status", &*self.inner.status.borrow()).finish_non_exhaustive()
    }
}
