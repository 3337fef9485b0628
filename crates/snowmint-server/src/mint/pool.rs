//! The workers of one layout, from which several namespaces may make ids; and what a refusal there means to who asked.

use std::time::Duration;

use snowmint::generator::Batch;
use snowmint::{GenerateError, Layout};
use snowmint_cluster::{LeaseStatus, NoId};
use tokio::sync::Semaphore;

use super::error::MintError;
use super::source::{IdHandle, IdSource};

/// The workers of one layout, from which several namespaces may make ids.
#[derive(Debug)]
pub struct Pool {
    pub(super) source: Box<dyn IdSource>,
    pub(super) layout: Layout,
    /// Where a caller keeps its state with this source.
    pub(super) slot: usize,
    /// The turn of the one request that waits for many ids.
    turn: Semaphore,
}

/// Requests for no more than this wait beside the one for many whose turn it is.
const FEW: usize = 64;

impl Pool {
    pub(super) const fn new(source: Box<dyn IdSource>, layout: Layout, slot: usize) -> Self {
        Self { source, layout, slot, turn: Semaphore::const_new(1) }
    }

    /// Takes exactly so many ids; waits where it has to. Those who wait wake up together in the next tick, and each takes
    /// all it can: hundreds of requests for many ids would leave nothing to one for a single id. So they wait in line.
    pub(super) async fn take(&self, handle: &mut dyn IdHandle, count: usize) -> Result<Vec<Batch>, NoId> {
        // It is never closed: without it, all would go as well, but for fairness.
        let _turn = if count > FEW { self.turn.acquire().await.ok() } else { None };
        handle.take(count).await
    }

    /// How its lease stands.
    pub fn status(&self) -> LeaseStatus {
        self.source.status()
    }

    /// Makes no more ids and gives the lease back, within `patience`.
    pub async fn release(&self, patience: Duration) {
        self.source.release(patience).await;
    }

    /// The layout of its ids.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    #[cold]
    pub(super) fn worth_waiting(&self, no_id: NoId, count: usize) -> Result<(), MintError> {
        match no_id {
            NoId::Refused(refusal) if refusal.retry_after_ms().is_some() => Ok(()),
            // The generator of a lease that ended; the one that follows it is about to be there.
            NoId::Refused(GenerateError::Ended) => Ok(()),
            no_id => Err(self.refused(no_id, count)),
        }
    }

    pub(super) fn refused(&self, no_id: NoId, count: usize) -> MintError {
        MintError::from_no_id(no_id, count, self.layout.ids_per_second_per_worker())
    }
}
