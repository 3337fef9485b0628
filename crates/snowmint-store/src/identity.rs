//! A wrapper that compares the identity of a store around calls.
//!
//! Two stores that grant the same worker make duplicates, and nothing else shows that there are two. So each
//! store holds a random identity in the record [`KEY`], and a node uses only the store in which it began.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::error::Effect;
use crate::{
    Expected, Identity, Key, OpenError, Store, StoreError, StoreErrorKind, StoreId, StoreIdError, Swap,
    Versioned, Visibility,
};

/// The key of the record that holds the identity.
const KEY: &str = "store/identity";
/// The name of the look in errors.
const OPERATION: &str = "identify";
/// The time for which a look counts.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Tries to write a missing record. A second one is needed only if another node writes it at the same moment.
const TRIES: usize = 4;

/// What a process does with the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Use {
    /// It uses one store, and gives it an identity.
    #[default]
    Nodes,
    /// It looks at whatever store answers, and changes nothing.
    Looks,
}

/// A store whose identity is looked at around calls.
///
/// It looks at the identity before a call, once a second at most; when another server answers; after a call
/// during which another server began to answer; and after each write to a store on the network that does not
/// tell its server. It writes a missing record, with the identity that this process knows, if it knows one.
/// Once an identity has settled, every call fails with [`StoreErrorKind::AnotherStore`] while the store shows
/// another.
#[derive(Debug)]
pub(crate) struct IdentifiedStore {
    inner: Arc<dyn Store>,
    known: Mutex<KnownIdentity>,
    /// Held during a look, so that calls at the same time make one.
    looking: tokio::sync::Mutex<()>,
}

/// What a process knows of the identity of its store: the rule, without calls.
#[derive(Clone, Debug, Default)]
pub struct KnownIdentity {
    used_by: Use,
    id: Option<StoreId>,
    /// When an answer first showed it.
    since: Option<Instant>,
    /// Whether the store can no longer lose it.
    is_settled: bool,
    another: Option<StoreId>,
    /// When the last look that was answered began.
    looked: Option<Instant>,
    /// The server that answered it.
    server: Option<String>,
}

impl IdentifiedStore {
    /// Wraps a store for a process that uses it.
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self::wrap(inner, KnownIdentity::default())
    }

    /// Wraps a store for a process that only looks: it writes no identity, and follows the one that it finds.
    pub(crate) fn to_read(inner: Arc<dyn Store>) -> Self {
        Self::wrap(inner, KnownIdentity { used_by: Use::Looks, ..KnownIdentity::default() })
    }

    /// Wraps a store, unless its identity differs from this one or is missing.
    pub(crate) async fn expecting(inner: Arc<dyn Store>, expected: StoreId) -> Result<Self, OpenError> {
        let found = look(&*inner).await?;
        if found != Some(expected) {
            return Err(OpenError::AnotherStore { store: inner.describe(), expected, found });
        }
        let known = KnownIdentity { id: Some(expected), is_settled: true, ..KnownIdentity::default() };
        Ok(Self::wrap(inner, known))
    }

    fn wrap(inner: Arc<dyn Store>, known: KnownIdentity) -> Self {
        Self { inner, known: Mutex::new(known), looking: tokio::sync::Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, KnownIdentity> {
        // Each change replaces the whole value, so a panic cannot leave it half changed.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call on the own store.
    async fn call<T>(
        &self,
        operation: &'static str,
        effect: Effect,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.check(operation, Instant::now().checked_sub(LOOK_EVERY)).await?;
        let before = self.inner.server();
        let answer = call.await?;
        let is_silent = before.is_none() && effect == Effect::Writes && self.is_remote();
        if self.inner.server() == before && !is_silent {
            return Ok(answer);
        }
        match (self.check(operation, Some(Instant::now())).await, effect) {
            (Ok(()), _) => Ok(answer),
            (Err(error), Effect::Reads) => Err(error),
            // It may have been written there.
            (Err(error), Effect::Writes) => Err(of_kind(StoreErrorKind::OutcomeUnknown, operation, &error)),
        }
    }

    /// Returns whether another store can take the place of this one while the process runs.
    fn is_remote(&self) -> bool {
        !matches!(self.inner.visibility(), Visibility::Process | Visibility::Machine)
    }

    /// Fails if another store answers. Looks, unless a look that began after `since` counts.
    async fn check(&self, operation: &'static str, since: Option<Instant>) -> Result<(), StoreError> {
        if !self.has_looked(since) {
            let _looking = self.looking.lock().await;
            if !self.has_looked(since) {
                self.look(operation).await?;
            }
        }
        let Some(Identity { id, another: Some(another) }) = self.identity() else { return Ok(()) };
        let cause = format!(
            "its identity is {another}, and this process uses {id}: nothing was written; check the URL and where its address leads; to \
             use the other store from now on, restart the process"
        );
        Err(StoreError::new(StoreErrorKind::AnotherStore, operation, self.describe(), cause))
    }

    fn has_looked(&self, since: Option<Instant>) -> bool {
        let server = self.inner.server();
        let known = self.known();
        known.looked.is_some_and(|looked| since.is_none_or(|since| looked > since))
            && known.server == server
            && !known.can_settle(Instant::now(), self.inner.may_lose())
    }

    async fn look(&self, operation: &'static str) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let began = Instant::now();
            let found = look(&*self.inner).await?;
            let known = {
                let mut known = self.known();
                if found.is_some() || known.used_by == Use::Looks {
                    *known = known.clone().after(found, began, Instant::now(), self.inner.may_lose());
                    known.server = self.inner.server();
                    return Ok(());
                }
                known.id
            };
            let id = match known {
                Some(id) => id,
                None => StoreId::random().map_err(|error| self.failed(operation, error.to_string()))?,
            };
            let (key, text) = (key(&*self.inner)?, id.to_string());
            match self.inner.compare_and_set(&key, Expected::Absent, text.as_bytes()).await {
                // Another node wrote it: look again.
                Ok(Swap::Done(_) | Swap::Conflict) => {}
                // The record of the caller was not written.
                Err(error) if error.kind() == StoreErrorKind::OutcomeUnknown => {
                    return Err(of_kind(StoreErrorKind::Unavailable, operation, &error));
                }
                Err(error) => return Err(error),
            }
        }
        Err(self.failed(operation, format!("the record {KEY} is lost as soon as it is written")))
    }

    fn failed(&self, operation: &'static str, cause: String) -> StoreError {
        StoreError::new(StoreErrorKind::Unavailable, operation, self.describe(), cause)
    }
}

impl KnownIdentity {
    /// Returns what is known after a look that began at one instant and was answered at another.
    #[must_use]
    pub fn after(
        self,
        found: Option<StoreId>,
        began: Instant,
        answered: Instant,
        may_lose: Duration,
    ) -> Self {
        let looked = Some(began);
        if self.id == found {
            let has_settled =
                self.since.is_some_and(|since| began.saturating_duration_since(since) >= may_lose);
            return Self { is_settled: self.is_settled || has_settled, another: None, looked, ..self };
        }
        if self.is_settled && self.used_by == Use::Nodes {
            return Self { another: found, looked, ..self };
        }
        // The first one, or the store lost it before it had settled.
        let is_settled = may_lose.is_zero();
        Self { id: found, since: Some(answered), is_settled, another: None, looked, ..self }
    }

    /// Returns whether a look would settle the identity: it settles with the first call that settles anything
    /// else.
    fn can_settle(&self, now: Instant, may_lose: Duration) -> bool {
        let is_due = self.since.is_some_and(|since| now.saturating_duration_since(since) >= may_lose);
        self.used_by == Use::Nodes && !self.is_settled && is_due
    }

    /// Returns the identity, once it has settled, and whether another store answers.
    pub fn identity(&self) -> Option<Identity> {
        let id = self.id.filter(|_| self.is_settled || self.used_by == Use::Looks)?;
        Some(Identity { id, another: self.another })
    }
}

/// Returns the identity that a store shows.
async fn look(store: &dyn Store) -> Result<Option<StoreId>, StoreError> {
    let Some(record) = store.load(&key(store)?).await? else { return Ok(None) };
    let parsed = String::from_utf8_lossy(&record.value).parse();
    parsed.map(Some).map_err(|error: StoreIdError| {
        let cause = format!("the record {KEY} was changed by another program: {error}");
        StoreError::new(StoreErrorKind::Corrupt, OPERATION, store.describe(), cause)
    })
}

fn key(store: &dyn Store) -> Result<Key, StoreError> {
    Key::new(KEY).map_err(|error| StoreError::new(StoreErrorKind::Other, OPERATION, store.describe(), error))
}

/// Returns an error of another kind with the cause of this one.
fn of_kind(kind: StoreErrorKind, operation: &'static str, error: &StoreError) -> StoreError {
    StoreError::new(kind, operation, error.store(), error.cause().to_string())
}

#[async_trait]
impl Store for IdentifiedStore {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.call("load", Effect::Reads, self.inner.load(key)).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let call = self.inner.compare_and_set(key, expected, value);
        self.call("compare_and_set", Effect::Writes, call).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.call("list", Effect::Reads, self.inner.list(prefix)).await
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        self.call("add", Effect::Writes, self.inner.add(key, count)).await
    }

    async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
        self.call("unix_ms", Effect::Reads, self.inner.unix_ms()).await
    }

    fn identity(&self) -> Option<Identity> {
        self.known().identity()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests;
