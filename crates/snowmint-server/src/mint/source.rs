//! Where snowflake ids come from: the leases of this node, or in tests a generator without a store.
//! Each connection asks by a handle of its own, so that its ids go on from its own last one.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use snowmint::generator::Batch;
use snowmint_cluster::{Caller, Keepers, LeaseStatus, NoId};

/// Where ids come from: [`Keepers`], or in tests a generator without a store.
#[async_trait]
pub trait IdSource: fmt::Debug + Send + Sync + 'static {
    /// A handle for one connection.
    fn handle(&self) -> Box<dyn IdHandle>;

    /// How the lease stands; several as one.
    fn status(&self) -> LeaseStatus;

    /// How each lease stands.
    fn leases(&self) -> Vec<LeaseStatus> {
        vec![self.status()]
    }

    /// Makes no more ids and gives the lease back, within `patience`.
    async fn release(&self, patience: Duration);
}

/// What one connection draws its ids from.
#[async_trait]
pub trait IdHandle: Send {
    /// Takes 1 to `count` ids. Never waits.
    ///
    /// # Errors
    ///
    /// [`NoId`] when there is none now.
    fn try_take(&mut self, count: usize) -> Result<Batch, NoId>;

    /// Takes exactly `count` ids; waits asleep while a tick is used up.
    ///
    /// # Errors
    ///
    /// [`NoId`] when waiting is no answer.
    ///
    /// # Cancel safety
    ///
    /// Ids that were taken when it is dropped are lost, and given to no one else.
    async fn take(&mut self, count: usize) -> Result<Vec<Batch>, NoId>;
}

#[async_trait]
impl IdSource for Keepers {
    fn handle(&self) -> Box<dyn IdHandle> {
        Box::new(LeasesHandle { caller: self.caller(), keepers: self.clone() })
    }

    fn status(&self) -> LeaseStatus {
        Self::status(self)
    }

    fn leases(&self) -> Vec<LeaseStatus> {
        Self::leases(self)
    }

    async fn release(&self, patience: Duration) {
        Self::release(self, patience).await;
    }
}

struct LeasesHandle {
    keepers: Keepers,
    caller: Caller,
}

#[async_trait]
impl IdHandle for LeasesHandle {
    fn try_take(&mut self, count: usize) -> Result<Batch, NoId> {
        self.keepers.try_take(&mut self.caller, count)
    }

    async fn take(&mut self, count: usize) -> Result<Vec<Batch>, NoId> {
        self.keepers.take(&mut self.caller, count).await
    }
}
