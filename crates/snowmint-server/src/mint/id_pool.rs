//! The workers that snowflake ids come from: one pool for each layout and rule, one handle for each
//! connection. A connection draws through a handle of its own, so that its ids keep increasing.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use snowmint::generator::Batch;
use snowmint::{GenerateError, Layout};
use snowmint_cluster::{LeaseHandle, LeaseStatus, Leases, NextIdError};
use tokio::sync::Semaphore;

use super::error::MintError;

/// Requests for at most this many ids do not queue behind a larger one.
const FEW: usize = 64;

/// A source of snowflake ids: [`Leases`], or in tests a generator without a store.
#[async_trait]
pub trait IdSource: fmt::Debug + Send + Sync + 'static {
    /// Returns a handle for one connection.
    fn handle(&self) -> Box<dyn IdHandle>;

    /// Checks that an id can be made now. Makes none, and causes no further lease.
    ///
    /// # Errors
    ///
    /// [`NextIdError`] if not.
    fn check_ready(&self) -> Result<(), NextIdError>;

    /// Returns the state of the lease; several leases are summed up as one.
    fn status(&self) -> LeaseStatus;

    /// Returns the state of each lease.
    fn leases(&self) -> Vec<LeaseStatus> {
        vec![self.status()]
    }

    /// Returns the number of ticks that lay ahead of the clock when their first id was made.
    fn borrowed_ticks(&self) -> u64 {
        0
    }

    /// Stops making ids and releases the lease, within `patience`.
    async fn release(&self, patience: Duration);
}

/// One connection's access to an [`IdSource`].
#[async_trait]
pub trait IdHandle: Send {
    /// Takes 1 to `count` ids. Never waits.
    ///
    /// # Errors
    ///
    /// [`NextIdError`] if no id is available now.
    fn try_take(&mut self, count: usize) -> Result<Batch, NextIdError>;

    /// Takes exactly `count` ids. Sleeps while a tick is used up.
    ///
    /// # Errors
    ///
    /// [`NextIdError`] if waiting does not help.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the ids it took are lost; nobody else gets them.
    async fn take(&mut self, count: usize) -> Result<Vec<Batch>, NextIdError>;
}

#[async_trait]
impl IdSource for Leases {
    fn handle(&self) -> Box<dyn IdHandle> {
        Box::new(Self::handle(self))
    }

    fn check_ready(&self) -> Result<(), NextIdError> {
        Self::check_ready(self)
    }

    fn status(&self) -> LeaseStatus {
        Self::status(self)
    }

    fn leases(&self) -> Vec<LeaseStatus> {
        self.statuses()
    }

    fn borrowed_ticks(&self) -> u64 {
        Self::borrowed_ticks(self)
    }

    async fn release(&self, patience: Duration) {
        Self::release(self, patience).await;
    }
}

#[async_trait]
impl IdHandle for LeaseHandle {
    fn try_take(&mut self, count: usize) -> Result<Batch, NextIdError> {
        Self::try_take(self, count)
    }

    async fn take(&mut self, count: usize) -> Result<Vec<Batch>, NextIdError> {
        Self::take(self, count).await
    }
}

/// The workers of one layout and rule. Several namespaces may share them.
#[derive(Debug)]
pub struct IdPool {
    pub(super) source: Box<dyn IdSource>,
    pub(super) layout: Layout,
    /// The index of this pool's handle in [`IdHandles`].
    pub(super) slot: usize,
    /// Held by the one request for many ids that may wait.
    turn: Semaphore,
}

impl IdPool {
    pub(super) const fn new(source: Box<dyn IdSource>, layout: Layout, slot: usize) -> Self {
        Self { source, layout, slot, turn: Semaphore::const_new(1) }
    }

    /// Takes exactly `count` ids; waits if it has to.
    ///
    /// All waiting requests wake up in the same tick, and each takes as many ids as it can. Hundreds of large
    /// requests would leave nothing for a request for a single id. So large requests wait one after the
    /// other, and [take nothing before](Self::is_short_for).
    pub(super) async fn take(
        &self,
        handle: &mut dyn IdHandle,
        count: usize,
    ) -> Result<Vec<Batch>, NextIdError> {
        // The semaphore is never closed; if it were, only fairness would be lost.
        let _turn = if count > FEW { self.turn.acquire().await.ok() } else { None };
        handle.take(count).await
    }

    /// Returns whether a request for `count` ids has to wait behind a large one.
    pub(super) fn is_short_for(&self, count: usize) -> bool {
        count > FEW && self.turn.available_permits() == 0
    }

    /// Returns the state of the lease.
    pub fn status(&self) -> LeaseStatus {
        self.source.status()
    }

    /// Returns the number of ticks that lay ahead of the clock when their first id was made.
    pub fn borrowed_ticks(&self) -> u64 {
        self.source.borrowed_ticks()
    }

    /// Stops making ids and releases the leases, within `patience`.
    pub async fn release(&self, patience: Duration) {
        self.source.release(patience).await;
    }

    /// Returns whether other nodes held every worker of the pool when this one last looked.
    pub(super) fn none_free(&self) -> bool {
        self.source.leases().iter().any(|lease| lease.none_free)
    }

    /// Returns the number of this pool; every pool of a server has another one.
    pub(crate) const fn slot(&self) -> usize {
        self.slot
    }

    /// Returns the layout of the ids.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Checks that an id can be made now, or after a short wait. Makes none: anybody who can reach a port may
    /// ask.
    pub(super) fn check_ready(&self) -> Result<(), MintError> {
        self.source.check_ready().or_else(|no_id| self.id_may_come(no_id, 1))
    }

    /// Returns `Ok` if a short wait may bring an id.
    #[cold]
    pub(super) fn id_may_come(&self, no_id: NextIdError, count: usize) -> Result<(), MintError> {
        match no_id {
            NextIdError::Refused(refusal) if refusal.retry_after_ms().is_some() => Ok(()),
            // The lease of this generator has ended; its successor is about to start.
            NextIdError::Refused(GenerateError::Ended) => Ok(()),
            no_id => Err(self.refused(no_id, count)),
        }
    }

    pub(super) fn refused(&self, no_id: NextIdError, count: usize) -> MintError {
        MintError::from_no_id(no_id, count, self.layout.ids_per_second_per_worker())
    }
}

/// One connection's handles: one for each pool it has drawn from, created on first use.
#[derive(Default)]
pub struct IdHandles {
    of_slot: Vec<Option<Box<dyn IdHandle>>>,
}

impl fmt::Debug for IdHandles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdHandles").field("slots", &self.of_slot.len()).finish()
    }
}

impl IdHandles {
    /// Returns this connection's handle for `pool`.
    #[inline]
    pub(super) fn of(&mut self, pool: &IdPool) -> &mut dyn IdHandle {
        if self.of_slot.len() <= pool.slot {
            self.grow(pool.slot);
        }
        self.of_slot[pool.slot].get_or_insert_with(|| pool.source.handle()).as_mut()
    }

    /// Moves this connection's handle for `pool` into handles of its own.
    #[cold]
    pub(crate) fn split_off(&mut self, pool: &IdPool) -> Self {
        let mut own = Self::default();
        own.grow(pool.slot);
        own.of_slot[pool.slot] = self.of_slot.get_mut(pool.slot).and_then(Option::take);
        own
    }

    #[cold]
    fn grow(&mut self, slot: usize) {
        self.of_slot.resize_with(slot + 1, || None);
    }
}

#[cfg(test)]
mod tests {
    use snowmint::Layout;

    use crate::mint::Taken;
    use crate::testing::{TestSource, mint_of};

    /// Goal: where ids are short, a small request finds some. Method: while a large request waits, another
    /// large one takes none of the next tick.
    #[tokio::test]
    async fn a_large_request_takes_nothing_before_one_that_waits() {
        let source = TestSource::new(Layout::TWITTER);
        let mint = mint_of(source.clone(), Layout::TWITTER);
        source.set_stuck(true);
        let mut first = mint.connection_state();
        let waiting = tokio::spawn(async move {
            let (namespace, handles) = first.find(b"default").unwrap();
            namespace.take(handles, 10_000).await.map(Iterator::count)
        });
        source.waiting(1).await;
        source.clock().advance_ms(1);

        let mut second = mint.connection_state();
        let (namespace, handles) = second.find(b"default").unwrap();
        assert!(matches!(namespace.try_take(handles, 4096).unwrap(), Taken::Partial(_)));
        assert!(matches!(namespace.try_take(handles, super::FEW).unwrap(), Taken::All(_)));
        source.set_stuck(false);
        assert_eq!(waiting.await.unwrap().unwrap(), 10_000);
        assert_eq!(namespace.take(handles, 4096).await.unwrap().count(), 4096);
    }
}
