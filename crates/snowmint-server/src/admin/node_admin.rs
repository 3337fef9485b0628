//! Runs the operations of operators on the store of a running node.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use snowmint_admin::audit::ChangeOutcome;
use snowmint_admin::node::{LimitedToken, NodeContext, NodeControl};
use snowmint_admin::node_reports::{self, NodeError};
use snowmint_admin::operations::OperationEffect;
use snowmint_admin::{AdminError, SettledStore};
use snowmint_cluster::audit::ChangeFailure;
use snowmint_cluster::namespace::Logins;
use snowmint_store::{Store, StoreError, StoreErrorKind};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::limits::admin::{OPERATIONS, OPERATIONS_OF_SOME, REFRESH_WITHIN, WITHIN};

/// An operation. Boxed, since its type contains the types of all stores.
pub(crate) type StoreOperation<T> = Pin<Box<dyn Future<Output = Result<T, AdminError>> + Send>>;

/// Boxes an operation.
pub(crate) fn boxed<T>(
    operation: impl Future<Output = Result<T, AdminError>> + Send + 'static,
) -> StoreOperation<T> {
    Box::pin(operation)
}

/// The store of a node, for operations of operators. Clones are cheap.
///
/// Operations run beside the node's leases, on the runtime that owns the connections of the store.
#[derive(Clone)]
pub struct NodeAdmin {
    store: Arc<dyn Store>,
    runtime: Handle,
    refresher: Refresher,
    permits: Arc<Semaphore>,
    permits_of_some: Arc<Semaphore>,
    /// Held from the count of the namespaces to the write of one more, so that requests at the same time
    /// exceed no limit.
    adding: Arc<Mutex<()>>,
    /// The addresses of nodes that this node may ask for their metrics.
    peers: Arc<[String]>,
    outcomes: Arc<[AtomicU64; ChangeOutcome::ALL.len()]>,
    logins: Arc<ArcSwap<Logins>>,
}

/// The kind of token behind an operation. Operations of tokens for some namespaces leave room for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenScope {
    /// A token for some namespaces.
    Some,
    /// A token for all namespaces.
    All,
}

impl fmt::Debug for NodeAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAdmin").field("store", &self.store.describe()).finish_non_exhaustive()
    }
}

impl NodeAdmin {
    /// Returns the operations on a store, on the runtime that owns it.
    pub fn new(store: Arc<dyn Store>, runtime: Handle, refresher: Refresher) -> Self {
        Self {
            store,
            runtime,
            refresher,
            permits: Arc::new(Semaphore::new(OPERATIONS)),
            permits_of_some: Arc::new(Semaphore::new(OPERATIONS_OF_SOME)),
            adding: Arc::default(),
            peers: Arc::default(),
            outcomes: Arc::default(),
            logins: Arc::default(),
        }
    }

    /// Sets the nodes that clients may make this node ask for `/metrics` and `/readyz`: `http://HOST:PORT`.
    ///
    /// # Errors
    ///
    /// [`NodeError::Address`].
    pub fn with_peers(self, peers: &[String]) -> Result<Self, NodeError> {
        let peers = peers.iter().map(|peer| node_reports::address(peer).map(str::to_ascii_lowercase));
        Ok(Self { peers: peers.collect::<Result<_, _>>()?, ..self })
    }

    /// Sets the logins with which this node checks the sources of namespaces.
    #[must_use]
    pub fn with_logins(self, logins: Arc<ArcSwap<Logins>>) -> Self {
        Self { logins, ..self }
    }

    /// Returns the addresses of the peers.
    pub(crate) fn peers(&self) -> Arc<[String]> {
        Arc::clone(&self.peers)
    }

    /// Returns what limits the operations of a client. `token` is `None` if its token is for all namespaces.
    pub(crate) fn context(
        &self,
        node: Arc<dyn NodeControl>,
        token: Option<Arc<dyn LimitedToken>>,
    ) -> NodeContext {
        let (peers, adding) = (self.peers(), Arc::clone(&self.adding));
        NodeContext { node, token, peers, adding, logins: (**self.logins.load()).clone() }
    }

    /// Returns the number of changes with each outcome.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (ChangeOutcome, u64)> {
        ChangeOutcome::ALL
            .into_iter()
            .map(|outcome| (outcome, self.outcomes[outcome as usize].load(Ordering::Relaxed)))
    }

    /// Returns the name of the store, as errors and logs show it.
    pub(crate) fn describe(&self) -> String {
        self.store.describe()
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Runs an operation that reads.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        scope: TokenScope,
        operation: impl FnOnce(Arc<dyn Store>) -> StoreOperation<T>,
    ) -> Result<T, AdminError> {
        self.run(scope, OperationEffect::ReadsStore, operation(Arc::clone(&self.store))).await
    }

    /// Runs an operation that writes. Returns once everything that it wrote has settled and, if possible,
    /// this node serves the change.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        scope: TokenScope,
        operation: impl FnOnce(Arc<dyn Store>) -> StoreOperation<T>,
    ) -> Result<T, AdminError> {
        let store = Arc::new(SettledStore::new(Arc::clone(&self.store)));
        let operation = operation(Arc::clone(&store) as _);
        let (outcomes, refresher) = (Arc::clone(&self.outcomes), self.refresher.clone());
        // In this task and not in the caller, which ends early if its client hangs up.
        let settled = Box::pin(async move {
            let mut counted = CountedChange { outcomes, outcome: ChangeOutcome::Unknown };
            let changed = store.settled(operation.await).await;
            counted.outcome = changed
                .as_ref()
                .map_or_else(|error| (&ChangeFailure::from(error)).into(), |_| ChangeOutcome::Made);
            drop(counted);
            if changed.is_ok() {
                refresher.refresh().await;
            }
            changed
        });
        let changed = self.run(scope, OperationEffect::ChangesStore, settled).await;
        if let Err(AdminError::Busy { .. }) = changed {
            // It was not started.
            drop(CountedChange { outcomes: Arc::clone(&self.outcomes), outcome: ChangeOutcome::Failed });
        }
        changed
    }

    /// Runs an operation to its end, even if its caller is gone: a change must not stop halfway.
    async fn run<T: Send + 'static>(
        &self,
        scope: TokenScope,
        effect: OperationEffect,
        operation: StoreOperation<T>,
    ) -> Result<T, AdminError> {
        let permits = async {
            // The semaphores are never closed.
            let of_some = match scope {
                TokenScope::Some => Arc::clone(&self.permits_of_some).acquire_owned().await.ok(),
                TokenScope::All => None,
            };
            (of_some, Arc::clone(&self.permits).acquire_owned().await.ok())
        };
        let permits = timeout(WITHIN, permits).await.map_err(|_| AdminError::Busy { within: WITHIN })?;
        let running = self.runtime.spawn(async move {
            let done = operation.await;
            drop(permits);
            done
        });
        if effect != OperationEffect::ChangesStore {
            return match timeout(WITHIN, running).await {
                Ok(Ok(done)) => done,
                Ok(Err(error)) => Err(AdminError::Failed(format!("the operation did not end: {error}"))),
                Err(_) => Err(AdminError::Late { within: WITHIN }),
            };
        }
        // A change also waits until it has settled, and until this node has read it.
        let within = WITHIN.saturating_add(self.store.may_lose()).saturating_add(REFRESH_WITHIN);
        match timeout(within, running).await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => {
                let (kind, store) = (StoreErrorKind::OutcomeUnknown, self.store.describe());
                let why = format!("the operation did not end: {error}");
                Err(StoreError::new(kind, "change", store, why).into())
            }
            Err(_) => Err(AdminError::LateChange { within }),
        }
    }
}

/// Counts the outcome of a change when it is dropped, and so also after a panic.
struct CountedChange {
    outcomes: Arc<[AtomicU64; ChangeOutcome::ALL.len()]>,
    outcome: ChangeOutcome,
}

impl Drop for CountedChange {
    fn drop(&mut self) {
        self.outcomes[self.outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Asks the namespace sync of a node to look at the store at once.
#[derive(Clone, Debug)]
pub struct Refresher(mpsc::Sender<oneshot::Sender<()>>);

/// The requests of [`Refresher`]s.
pub(crate) type RefreshRequests = mpsc::Receiver<oneshot::Sender<()>>;

impl Refresher {
    pub(crate) fn new() -> (Self, RefreshRequests) {
        let (sender, requests) = mpsc::channel(OPERATIONS);
        (Self(sender), requests)
    }

    /// Waits until the node has read the store, at most [`REFRESH_WITHIN`]. After that, the node reads it by
    /// itself.
    async fn refresh(&self) {
        let refreshed = async {
            let (done, is_done) = oneshot::channel();
            if self.0.send(done).await.is_ok() {
                // An error means that the node shuts down.
                let _ = is_done.await;
            }
        };
        if timeout(REFRESH_WITHIN, refreshed).await.is_err() {
            tracing::debug!("a change of a namespace is not served yet; the next poll follows");
        }
    }
}

#[cfg(test)]
mod tests {
    use snowmint_admin::AdminErrorKind;
    use snowmint_store::MemoryStore;

    use super::*;

    fn counted(node: &NodeAdmin) -> [u64; ChangeOutcome::ALL.len()] {
        ChangeOutcome::ALL.map(|outcome| node.outcomes[outcome as usize].load(Ordering::Relaxed))
    }

    /// Goal: the outcome of every change is counted, and a change that ended early may have taken place.
    /// Method: a change that panics, and one whose client hangs up before it ends.
    #[tokio::test]
    async fn changes_are_counted_without_a_client_and_after_a_panic() {
        let node = NodeAdmin::new(Arc::new(MemoryStore::new()), Handle::current(), Refresher::new().0);
        let panicked =
            node.change(TokenScope::All, |_| boxed::<()>(async { panic!("a defect") })).await.unwrap_err();
        assert_eq!(panicked.kind(), AdminErrorKind::OutcomeUnknown, "{panicked}");
        assert_eq!(counted(&node), [0, 0, 0, 1]);
        let (go_on, waits) = oneshot::channel::<()>();
        let change = node.change(TokenScope::All, |_| {
            boxed(async move {
                let _ = waits.await;
                Ok(())
            })
        });
        assert!(timeout(std::time::Duration::from_millis(10), change).await.is_err());
        go_on.send(()).unwrap();
        while counted(&node) != [1, 0, 0, 1] {
            tokio::task::yield_now().await;
        }
    }
}
