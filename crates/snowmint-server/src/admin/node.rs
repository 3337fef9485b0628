//! Runs the operations of operators on the store of a running node.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::Store;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::{AdminError, SettledStore};
use crate::limits::admin::{OPERATIONS, REFRESH_WITHIN, WITHIN};

/// An operation. Boxed, since its type has the types of all stores in it.
pub(crate) type Operation<T> = Pin<Box<dyn Future<Output = Result<T, AdminError>> + Send>>;

/// Returns an operation of any type.
pub(crate) fn boxed<T>(
    operation: impl Future<Output = Result<T, AdminError>> + Send + 'static,
) -> Operation<T> {
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
}

impl fmt::Debug for NodeAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAdmin").field("store", &self.store.describe()).finish_non_exhaustive()
    }
}

impl NodeAdmin {
    /// Returns the operations on a store, on the runtime that owns it.
    pub fn new(store: Arc<dyn Store>, runtime: Handle, refresher: Refresher) -> Self {
        Self { store, runtime, refresher, permits: Arc::new(Semaphore::new(OPERATIONS)) }
    }

    /// Runs an operation that reads.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        operation: impl FnOnce(Arc<dyn Store>) -> Operation<T>,
    ) -> Result<T, AdminError> {
        self.run(operation(Arc::clone(&self.store))).await
    }

    /// Runs an operation that writes. Returns once everything that it wrote has settled and this node follows it, if it can.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        operation: impl FnOnce(Arc<dyn Store>) -> Operation<T>,
    ) -> Result<T, AdminError> {
        let store = Arc::new(SettledStore::new(Arc::clone(&self.store)));
        let operation = operation(Arc::clone(&store) as _);
        let changed = self
            .run(Box::pin(async move {
                let changed = operation.await?;
                store.settle().await?;
                Ok(changed)
            }))
            .await?;
        self.refresher.refresh().await;
        Ok(changed)
    }

    /// Runs an operation to its end, even if nobody waits for it any more: a change is not cut in the middle.
    async fn run<T: Send + 'static>(&self, operation: Operation<T>) -> Result<T, AdminError> {
        let late = |_| AdminError::Late { within: WITHIN };
        let waiting = timeout(WITHIN, Arc::clone(&self.permits).acquire_owned());
        // The semaphore is never closed.
        let permit = waiting.await.map_err(late)?.ok();
        let running = self.runtime.spawn(async move {
            let done = operation.await;
            drop(permit);
            done
        });
        match timeout(WITHIN, running).await.map_err(late)? {
            Ok(done) => done,
            Err(error) => Err(AdminError::Failed(format!("the operation did not end: {error}"))),
        }
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

    /// Waits until the node has followed the store, for a moment at most. It does so later by itself.
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

/// How long a client waits before it retries an operation that failed because of the store.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);
