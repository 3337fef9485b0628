//! Where snowflake ids come from: a keeper of one lease, of several, or in tests a generator without a store.
//! A caller is what a connection keeps between its requests, so that its ids go on from its own last one.

use std::future::Future;
use std::time::Duration;

use snowmint::Batch;
use snowmint_cluster::{Keeper, Keepers, LeaseStatus, NoId};

/// Where ids come from: [`Keepers`], a [`Keeper`], or in tests a generator without a store.
pub trait Source: Send + Sync + 'static {
    /// What one connection keeps between its calls; `()` where all callers are alike.
    type Caller: Send + 'static;

    /// The state of a new caller.
    fn caller(&self) -> Self::Caller;

    /// Takes 1 to `count` ids. Never waits.
    ///
    /// # Errors
    ///
    /// [`NoId`] when there is none now.
    fn try_take(&self, caller: &mut Self::Caller, count: usize) -> Result<Batch, NoId>;

    /// Takes exactly `count` ids; waits asleep while a tick is used up.
    ///
    /// # Errors
    ///
    /// [`NoId`] when waiting is no answer.
    ///
    /// # Cancel safety
    ///
    /// Ids that were taken when it is dropped are lost, and given to no one else.
    fn take(
        &self,
        caller: &mut Self::Caller,
        count: usize,
    ) -> impl Future<Output = Result<Vec<Batch>, NoId>> + Send;

    /// How the lease stands; several as one.
    fn status(&self) -> LeaseStatus;

    /// How each lease stands.
    fn leases(&self) -> Vec<LeaseStatus> {
        vec![self.status()]
    }

    /// Makes no more ids and gives the lease back, within `patience`.
    fn release(&self, patience: Duration) -> impl Future<Output = ()> + Send;
}

impl Source for Keeper {
    type Caller = ();

    fn caller(&self) {}

    #[inline]
    fn try_take(&self, (): &mut (), count: usize) -> Result<Batch, NoId> {
        Self::try_take(self, count)
    }

    async fn take(&self, (): &mut (), count: usize) -> Result<Vec<Batch>, NoId> {
        Self::take(self, count).await
    }

    fn status(&self) -> LeaseStatus {
        Self::status(self)
    }

    async fn release(&self, patience: Duration) {
        Self::release(self, patience).await;
    }
}

impl Source for Keepers {
    type Caller = snowmint_cluster::Caller;

    fn caller(&self) -> Self::Caller {
        Self::caller(self)
    }

    #[inline]
    fn try_take(&self, caller: &mut Self::Caller, count: usize) -> Result<Batch, NoId> {
        Self::try_take(self, caller, count)
    }

    async fn take(&self, caller: &mut Self::Caller, count: usize) -> Result<Vec<Batch>, NoId> {
        Self::take(self, caller, count).await
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
