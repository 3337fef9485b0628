//! One connection's access to the mint, which the concurrent requests of HTTP/2 share. Snowflake ids are drawn through one
//! handle, one request after the other, so that the ids of a connection increase. No other wait delays another request.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::access::{Identity, Right};
use crate::mint::{Backend, ConnectionState, IdHandles, Ids, Mint, MintError, Namespace, Taken};

/// One connection's access to the mint.
#[derive(Debug)]
pub(super) struct Client(Mutex<ConnectionState>);

impl Client {
    pub(super) fn new(mint: &Mint) -> Self {
        Self(Mutex::new(mint.connection_state()))
    }

    /// Finds a namespace by its name, if the client may take its ids. Creates an unknown one if the server allows it and
    /// `may_create` is set.
    pub(super) async fn find_or_create(
        &self,
        mint: &Mint,
        identity: &Identity,
        name: &[u8],
        may_create: bool,
    ) -> Result<Arc<Namespace>, MintError> {
        identity.may(Right::Mint, name)?;
        let find = || self.find(mint, name).map_err(|error| identity.unfound(mint, Right::Mint, name, error));
        let unknown = match find() {
            Err(unknown) if may_create => unknown,
            found => return found,
        };
        mint.create(name, unknown).await?;
        find()
    }

    fn find(&self, mint: &Mint, name: &[u8]) -> Result<Arc<Namespace>, MintError> {
        match self.0.try_lock() {
            Ok(mut state) => state.find(name).map(|(namespace, _)| Arc::clone(namespace)),
            // Another request of this connection waits for its ids.
            Err(_) => mint.table().find(name).cloned(),
        }
    }

    /// Takes `count` ids, and counts them. Waits for `within` at most.
    pub(super) async fn take(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        count: usize,
        within: Duration,
    ) -> Result<Ids, MintError> {
        self.take_by(identity, namespace, count, within, Namespace::try_take).await
    }

    /// Takes `count` ids, to be read as ranges. Waits for `within` at most.
    pub(super) async fn take_ranges(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        count: usize,
        within: Duration,
    ) -> Result<Ids, MintError> {
        self.take_by(identity, namespace, count, within, Namespace::try_take_ranges).await
    }

    async fn take_by(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        count: usize,
        within: Duration,
        try_take: impl FnOnce(&Namespace, &mut IdHandles, usize) -> Result<Taken, MintError>,
    ) -> Result<Ids, MintError> {
        identity.spend(namespace.name().as_str().as_bytes(), count as u64)?;
        let taken = self.take_uncounted(namespace, count, within, try_take).await;
        match &taken {
            Ok(ids) => {
                namespace.add_issued(ids.len() as u64);
                if let Some(usage) = identity.usage() {
                    usage.issued(ids.len() as u64);
                }
            }
            Err(_) => identity.give_back(count as u64),
        }
        taken
    }

    async fn take_uncounted(
        &self,
        namespace: &Namespace,
        count: usize,
        within: Duration,
        try_take: impl FnOnce(&Namespace, &mut IdHandles, usize) -> Result<Taken, MintError>,
    ) -> Result<Ids, MintError> {
        let (mut state, left) = if let Ok(state) = self.0.try_lock() {
            (state, within)
        } else {
            let began = Instant::now();
            // Boxed: otherwise every request's future has room for this wait.
            let locked = Box::pin(timeout(within, self.0.lock())).await;
            (locked.map_err(|_| namespace.busy(count, within))?, within.saturating_sub(began.elapsed()))
        };
        let partial = match try_take(namespace, state.handles(), count)? {
            Taken::All(ids) => return Ok(ids),
            Taken::Partial(partial) => partial,
        };
        if matches!(namespace.backend().plain(), Backend::Snowflake(_)) {
            return namespace.wait(state.handles(), partial, left).await;
        }
        drop(state);
        namespace.wait(&mut IdHandles::default(), partial, left).await
    }
}
