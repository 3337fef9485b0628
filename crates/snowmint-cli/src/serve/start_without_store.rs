//! `--start-without-store`: the lease that this node saved, whether it may continue under it, and a
//! placeholder for the store until it is reachable.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use snowmint::error::Chain;
use snowmint::{Clock as _, WallClock};
use snowmint_cluster::{Holder, SavedLeases, WorkerPool};
use snowmint_store::{
    Expected, Identity, Key, Store, StoreError, StoreErrorKind, StoreId, Swap, Versioned, Visibility,
};

use super::args::ServePlan;
use crate::data_directory::data_directory;
use crate::error::Failure;
use crate::flag_values::Listen;
use crate::open_store::without_credentials;

/// Locks the data directory, and opens the leases that were saved for this store and these namespaces.
pub(super) fn open_saved(plan: &ServePlan) -> Result<SavedLeases, Failure> {
    let origin = format!("{} {}", without_credentials(&plan.store_url), plan.namespaces.fingerprint());
    let directory = data_directory(plan.args.data.as_deref())?;
    SavedLeases::open(Path::new(&directory), &origin).map_err(|error| Failure::runtime(Chain(&error)))
}

/// Returns whether this node may continue under its saved lease; logs the reason if not.
pub(super) fn is_usable(plan: &ServePlan, saved: &SavedLeases) -> bool {
    let Some(holder) = holder(plan) else { return false };
    let pool = WorkerPool::new(plan.args.layout, plan.datacenter);
    match saved.usable(&pool, &holder, WallClock.unix_ms()) {
        Ok(None) => false,
        Ok(Some(_)) if saved.served().is_empty() => {
            tracing::info!(
                "the saved lease is not used: this node served no namespace of its layout when the store last answered"
            );
            false
        }
        Ok(Some(_)) => true,
        Err(why) => {
            tracing::warn!("the saved lease is not used: {why}");
            false
        }
    }
}

/// Returns the name of this node, if it is known before a port is bound.
fn holder(plan: &ServePlan) -> Option<Holder> {
    if plan.args.holder.is_some() {
        return plan.args.holder.clone();
    }
    let open = || plan.args.ports().into_iter().map(|(_, listen)| listen);
    match open().find_map(Listen::port) {
        Some(port) => (port != 0).then(|| Holder::of_this_host(&port.to_string())),
        None => open()
            .find(|listen| !matches!(listen, Listen::Off))
            .map(|socket| Holder::of_this_host(&socket.to_string())),
    }
}

/// A store that is not reachable yet. Until [`arrive`](Self::arrive), every call fails as unavailable.
#[derive(Debug)]
pub(super) struct LateStore {
    /// Its URL, for logs.
    name: String,
    /// The identity without which it does not arrive.
    expected: Option<StoreId>,
    arrived: OnceLock<Arc<dyn Store>>,
}

impl LateStore {
    pub(super) const fn new(name: String, expected: Option<StoreId>) -> Self {
        Self { name, expected, arrived: OnceLock::new() }
    }

    /// Forwards calls to this store from now on.
    pub(super) fn arrive(&self, store: Arc<dyn Store>) {
        // Only one task opens the store, once.
        let _ = self.arrived.set(store);
    }

    fn store(&self, operation: &'static str) -> Result<&Arc<dyn Store>, StoreError> {
        self.arrived.get().ok_or_else(|| {
            let why = "unreachable since this node started";
            StoreError::new(StoreErrorKind::Unavailable, operation, self.name.clone(), why)
        })
    }
}

#[async_trait]
impl Store for LateStore {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.store("load")?.load(key).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        self.store("compare_and_set")?.compare_and_set(key, expected, value).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.store("list")?.list(prefix).await
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        self.store("add")?.add(key, count).await
    }

    async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
        self.store("unix_ms")?.unix_ms().await
    }

    async fn checkpoint(&self) -> Result<(), StoreError> {
        self.store("checkpoint")?.checkpoint().await
    }

    fn identity(&self) -> Option<Identity> {
        let expected = || self.expected.map(|id| Identity { id, another: None });
        self.arrived.get().map_or_else(expected, |store| store.identity())
    }

    fn visibility(&self) -> Visibility {
        Visibility::of_url(&self.name)
    }

    fn describe(&self) -> String {
        self.arrived.get().map_or_else(|| self.name.clone(), |store| store.describe())
    }

    /// None until it arrives: until then, no write is acknowledged.
    fn inner(&self) -> Option<&dyn Store> {
        self.arrived.get().map(|store| &**store)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use snowmint_store::MemoryStore;

    #[test]
    fn calls_fail_until_it_arrives() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (store, key) = (LateStore::new("redis://r".to_owned(), None), Key::new("k").unwrap());
            let error = store.load(&key).await.unwrap_err();
            assert!(error.is_temporary() && error.to_string().contains("redis://r"), "{error}");
            assert!(store.compare_and_set(&key, Expected::Absent, b"v").await.is_err());
            store.arrive(Arc::new(MemoryStore::new()));
            assert_eq!(store.load(&key).await.unwrap(), None, "nothing was written before");
            assert_eq!((store.describe(), store.may_lose()), ("memory:".to_owned(), Duration::ZERO));
        });
    }
}
