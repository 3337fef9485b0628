//! One connection's access to the mint, which the concurrent requests of HTTP/2 share.
//! Snowflake ids are drawn through one handle, one request after the other, so that the ids of a connection increase. A wait
//! for anything else holds up no other request.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::mint::{Backend, ConnectionState, IdHandles, Ids, Mint, MintError, Namespace, Taken};

/// One connection's access to the mint.
#[derive(Debug)]
pub(super) struct Client(Mutex<ConnectionState>);

impl Client {
    pub(super) fn new(mint: &Mint) -> Self {
        Self(Mutex::new(mint.connection_state()))
    }

    /// Finds a namespace by its name. Creates it if it is unknown, that is allowed, and `may_create` is set.
    pub(super) async fn find_or_create(
        &self,
        mint: &Mint,
        name: &[u8],
        may_create: bool,
    ) -> Result<Arc<Namespace>, MintError> {
        let unknown = match self.find(mint, name) {
            Err(unknown) if may_create => unknown,
            found => return found,
        };
        mint.create(name, unknown).await?;
        self.find(mint, name)
    }

    fn find(&self, mint: &Mint, name: &[u8]) -> Result<Arc<Namespace>, MintError> {
        match self.0.try_lock() {
            Ok(mut state) => state.find(name).map(|(namespace, _)| Arc::clone(namespace)),
            // Another request of this connection waits for its ids.
            Err(_) => mint.table().find(name).cloned(),
        }
    }

    /// Takes `count` ids. Waits at most `within` this time.
    pub(super) async fn take(
        &self,
        namespace: &Namespace,
        count: usize,
        within: Duration,
    ) -> Result<Ids, MintError> {
        self.take_by(namespace, count, within, Namespace::try_take).await
    }

    /// Takes `count` ids, to be read as ranges. Waits at most `within` this time.
    pub(super) async fn take_ranges(
        &self,
        namespace: &Namespace,
        count: usize,
        within: Duration,
    ) -> Result<Ids, MintError> {
        self.take_by(namespace, count, within, Namespace::try_take_ranges).await
    }

    async fn take_by(
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
            let locked = timeout(within, self.0.lock()).await;
            (locked.map_err(|_| namespace.busy(count, within))?, within.saturating_sub(began.elapsed()))
        };
        match try_take(namespace, state.handles(), count)? {
            Taken::All(ids) => Ok(ids),
            Taken::Partial(partial) if matches!(namespace.backend(), Backend::Snowflake(_)) => {
                namespace.wait(state.handles(), partial, left).await
            }
            Taken::Partial(partial) => {
                drop(state);
                namespace.wait(&mut IdHandles::default(), partial, left).await
            }
        }
    }
}
