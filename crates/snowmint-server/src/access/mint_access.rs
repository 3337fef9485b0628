//! One connection's access to the mint, which its concurrent requests share: over HTTP/2, and the calls and
//! streams of gRPC.
//!
//! The ids of a connection increase. So it draws the ids of one pool through one handle, one request after
//! the other. A request that waits delays only requests for ids of the same pool.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{self, OwnedMutexGuard};
use tokio::time::{Instant, timeout};

use crate::access::{Identity, Right, Spent};
use crate::mint::{
    Backend, ConnectionState, IdHandles, IdPool, Ids, Mint, MintError, Namespace, PartialIds, Taken,
};

/// One connection's access to the mint.
#[derive(Debug)]
pub(crate) struct MintAccess(Mutex<State>);

#[derive(Debug)]
struct State {
    connection: ConnectionState,
    /// The handle of each pool for which a request has waited, by the pool's slot. Requests for it wait in
    /// line.
    lines: BTreeMap<usize, Line>,
}

pub(crate) type Line = Arc<sync::Mutex<IdHandles>>;

/// Draws ids without a wait.
pub(crate) type TryTake = fn(&Namespace, &mut IdHandles, usize) -> Result<Taken, MintError>;

impl MintAccess {
    pub(crate) fn new(mint: &Mint) -> Self {
        Self(Mutex::new(State { connection: mint.connection_state(), lines: BTreeMap::new() }))
    }

    /// Finds a namespace by its name, if the client may take its ids. Creates an unknown one if the server
    /// allows it and `may_create` is set.
    pub(crate) async fn find_or_create(
        &self,
        mint: &Mint,
        identity: &Identity,
        name: &[u8],
        may_create: bool,
    ) -> Result<Arc<Namespace>, MintError> {
        identity.may(Right::Mint, name)?;
        let find = || self.find(name).map_err(|error| identity.unfound(mint, Right::Mint, name, error));
        let unknown = match find() {
            Err(unknown) if may_create => unknown,
            found => return found,
        };
        mint.create(name, unknown).await?;
        find()
    }

    /// Finds a namespace by its name, for any client.
    pub(crate) fn find(&self, name: &[u8]) -> Result<Arc<Namespace>, MintError> {
        self.state().connection.find(name).map(|(namespace, _)| Arc::clone(namespace))
    }

    /// Never held while a request waits.
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the state whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `count` ids by [`Namespace::try_take`] or [`Namespace::try_take_ranges`], and counts them. Waits
    /// for `within` at most.
    pub(crate) async fn take(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        count: usize,
        within: Duration,
        try_take: TryTake,
    ) -> Result<Ids, MintError> {
        let spent = identity.spend(namespace.name().as_str().as_bytes(), count as u64)?;
        let ids = self.draw(namespace, count, try_take)?.finish(namespace, count, within, try_take).await?;
        issued(identity, namespace, ids.len() as u64, spent);
        Ok(ids)
    }

    /// Draws one plain number, without counting it, if that needs no wait and no other request waits.
    pub(crate) fn try_one(&self, namespace: &Namespace) -> Result<Option<u64>, MintError> {
        let mut state = self.state();
        if let Backend::Snowflake(pool) = namespace.backend().plain()
            && let Some(line) = state.lines.get(&pool.slot())
        {
            return line.try_lock().map_or(Ok(None), |mut handles| namespace.try_one(&mut handles));
        }
        namespace.try_one(state.connection.handles())
    }

    /// Draws `count` ids without a wait and without counting them, as far as possible.
    pub(crate) fn draw(
        &self,
        namespace: &Namespace,
        count: usize,
        try_take: TryTake,
    ) -> Result<Drawn, MintError> {
        match namespace.backend().plain() {
            Backend::Snowflake(pool) => self.state().draw(pool, namespace, count, try_take),
            _ => Ok(match try_take(namespace, &mut IdHandles::default(), count)? {
                Taken::All(ids) => Drawn::All(ids),
                Taken::Partial(partial) => Drawn::Numbers(partial),
            }),
        }
    }
}

/// Counts ids that the client gets.
pub(crate) fn issued(identity: &Identity, namespace: &Namespace, ids: u64, spent: Spent) {
    spent.keep();
    namespace.add_issued(ids);
    if let Some(usage) = identity.usage() {
        usage.issued(ids);
    }
}

/// What a draw has given so far.
pub(crate) enum Drawn {
    All(Ids),
    /// Some numbers of a namespace whose numbers need no handle.
    Numbers(PartialIds),
    /// Some ids, and the first place in the line of the pool.
    First(OwnedMutexGuard<IdHandles>, PartialIds),
    /// Nothing: other requests wait.
    Behind(Line),
}

impl Drawn {
    /// Waits for the missing ids of the same draw, for `within` at most.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the ids drawn so far are lost; nobody else gets them.
    pub(crate) async fn finish(
        self,
        namespace: &Namespace,
        count: usize,
        within: Duration,
        try_take: TryTake,
    ) -> Result<Ids, MintError> {
        match self {
            Self::All(ids) => Ok(ids),
            Self::Numbers(partial) => namespace.wait(&mut IdHandles::default(), partial, within).await,
            Self::First(mut handles, partial) => namespace.wait(&mut handles, partial, within).await,
            // Boxed: otherwise every request's future has room for this wait.
            Self::Behind(line) => Box::pin(take_in_line(&line, namespace, count, within, try_take)).await,
        }
    }
}

impl State {
    fn draw(
        &mut self,
        pool: &IdPool,
        namespace: &Namespace,
        count: usize,
        try_take: TryTake,
    ) -> Result<Drawn, MintError> {
        if let Some(line) = self.lines.get(&pool.slot()) {
            let Ok(mut handles) = Arc::clone(line).try_lock_owned() else {
                return Ok(Drawn::Behind(Arc::clone(line)));
            };
            return Ok(match try_take(namespace, &mut handles, count)? {
                Taken::All(ids) => Drawn::All(ids),
                Taken::Partial(partial) => Drawn::First(handles, partial),
            });
        }
        match try_take(namespace, self.connection.handles(), count)? {
            Taken::All(ids) => Ok(Drawn::All(ids)),
            Taken::Partial(partial) => Ok(Drawn::First(self.begin_line(pool), partial)),
        }
    }

    /// Begins the line of a pool, and returns its first place.
    #[cold]
    fn begin_line(&mut self, pool: &IdPool) -> OwnedMutexGuard<IdHandles> {
        let line = Arc::new(sync::Mutex::new(self.connection.handles().split_off(pool)));
        // Nobody else has it yet.
        let first = Arc::clone(&line).try_lock_owned().unwrap_or_else(|_| unreachable!("the line is new"));
        self.lines.insert(pool.slot(), line);
        first
    }
}

/// Takes ids once the requests before this one have theirs.
async fn take_in_line(
    line: &Line,
    namespace: &Namespace,
    count: usize,
    within: Duration,
    try_take: TryTake,
) -> Result<Ids, MintError> {
    let began = Instant::now();
    let mut handles = timeout(within, line.lock()).await.map_err(|_| namespace.busy(count, within))?;
    match try_take(namespace, &mut handles, count)? {
        Taken::All(ids) => Ok(ids),
        Taken::Partial(partial) => {
            namespace.wait(&mut handles, partial, within.saturating_sub(began.elapsed())).await
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use snowmint::Layout;

    use super::*;
    use crate::access::tests::limited;
    use crate::testing::{TestSource, mint_of};

    /// Goal: a request that is dropped while it waits costs no quota, whether it is the first of its
    /// connection or waits in line; one that is answered does.
    #[tokio::test]
    async fn a_dropped_request_gives_its_ids_back() {
        const WITHIN: Duration = Duration::from_mins(1);
        let source = TestSource::new(Layout::TWITTER);
        source.set_stuck(true);
        let mint = mint_of(source.clone(), Layout::TWITTER);
        let (identity, access) = (limited(20_000), MintAccess::new(&mint));
        let namespace = access.find(b"default").unwrap();
        let take = || access.take(&identity, &namespace, 10_000, WITHIN, Namespace::try_take);
        {
            let mut first = std::pin::pin!(take());
            assert!(first.as_mut().now_or_never().is_none());
            assert!(take().now_or_never().is_none(), "it waits in line");
            drop(identity.spend(b"default", 10_000).unwrap());
            assert!(identity.spend(b"default", 10_001).is_err(), "counted while it waits");
        }
        drop(identity.spend(b"default", 20_000).unwrap());
        source.set_stuck(false);
        assert_eq!(take().await.unwrap().len(), 10_000);
        assert!(identity.spend(b"default", 10_001).is_err());
    }
}
