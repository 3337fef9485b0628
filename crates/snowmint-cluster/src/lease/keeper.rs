//! The driver of the lease protocol: asks the store, and keeps a generator under the lease it holds.
//! Minting goes past it: one pointer to the generator of now, and the generator's own atomics.

mod config;
mod status;
mod task;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use snowmint::{AnchoredClock, Batch, Generator, Refusal};
use snowmint_store::Store;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

pub use config::{KeeperConfig, KeeperConfigError};
pub use status::{LeaseFailure, LeaseStatus};

use super::protocol::Protocol;
use crate::wall_watch::watch_wall;
use task::Task;

type LeasedGenerator = Generator<Arc<AnchoredClock>>;

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
    status: watch::Receiver<LeaseStatus>,
    release: std::sync::Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

/// Why there is no id now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoId {
    /// The generator refused.
    #[error("{0}")]
    Refused(Refusal),
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
    /// [`KeeperConfigError`] for a datacenter or worker beyond the layout, a window too short or too long, or a
    /// rule that does not go with the layout.
    pub fn start(
        store: Arc<dyn Store>,
        config: KeeperConfig,
        clock: Arc<AnchoredClock>,
    ) -> Result<Self, KeeperConfigError> {
        let settings = config.checked()?;
        let seed = config::random_seed()?;
        let (sender, status) = watch::channel(LeaseStatus::seeking(&settings.pool));
        let current = Arc::new(ArcSwapOption::empty());
        let (release, released) = oneshot::channel();
        let watcher = tokio::spawn(watch_wall(Arc::clone(&clock), sender.clone()));
        let protocol = Protocol::new(settings, seed);
        let task = Task::new(store, protocol, config, clock, Arc::clone(&current), sender);
        let handle = tokio::spawn(async move {
            // Ends with the task, also when that is aborted.
            let _watching = AbortOnDrop(watcher);
            task.run(released).await;
        });
        let release = std::sync::Mutex::new(Some((release, handle)));
        Ok(Self { inner: Arc::new(Inner { current, status, release }) })
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
        let mut status = self.inner.status.clone();
        let settled = status.wait_for(|status| status.worker.is_some() || status.failure.is_some()).await;
        let Ok(status) = settled else {
            return Err(LeaseFailure::Stopped);
        };
        match (&status.worker, &status.failure) {
            (None, Some(failure)) => Err(failure.clone()),
            _ => Ok(status.clone()),
        }
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
                Err(Refusal::Ended) => std::hint::spin_loop(),
                Err(refusal @ Refusal::LeaseEnded { .. }) => return Err(self.not_renewed(refusal)),
                Err(refusal) => return Err(NoId::Refused(refusal)),
                Ok(batch) => return Ok(batch),
            }
        }
        Err(NoId::Refused(Refusal::Ended))
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
    fn not_renewed(&self, ended: Refusal) -> NoId {
        match self.trouble() {
            Some(why) => NoId::NoLease { why: format!("{ended}; {why}") },
            None => NoId::Refused(ended),
        }
    }

    fn trouble(&self) -> Option<String> {
        let status = self.inner.status.borrow();
        status.failure.as_ref().map(ToString::to_string).or_else(|| status.waiting.clone())
    }

    /// What is held and what has happened so far.
    pub fn status(&self) -> LeaseStatus {
        self.inner.status.borrow().clone()
    }

    /// Ends the generator for every thread and gives the lease back, so that another node may go on from the
    /// next timestamp. Returns when the store has it, or after `patience`: then the lease runs out by itself.
    pub async fn release(&self, patience: Duration) {
        let started = self.inner.release.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some((release, mut task)) = started
            && release.send(()).is_ok()
            && tokio::time::timeout(patience, &mut task).await.is_err()
        {
            tracing::warn!(
                "the store did not answer in time: the lease was not given back, it runs out by itself"
            );
            task.abort();
            // Once it has ended, no new generator can appear behind our back. Its error says that it was aborted.
            let _ = task.await;
            if let Some(generator) = self.inner.current.swap(None) {
                generator.end();
            }
        }
    }
}

/// Ends a task that would otherwise run for ever.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl NoId {
    /// How long to sleep before asking again.
    fn worth_waiting(self) -> Result<Duration, Self> {
        match &self {
            Self::Refused(Refusal::Ended) => Ok(Duration::from_millis(1)),
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
