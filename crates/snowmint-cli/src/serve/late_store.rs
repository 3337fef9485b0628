//! A store that is not there yet, for a node that goes on under a saved lease meanwhile.
//! Until it arrives its calls fail, as those of a store that cannot be reached.

use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use snowmint_store::{Expected, Key, Store, StoreError, StoreErrorKind, StoreReach, Swap, Versioned};

/// A store that arrives once.
#[derive(Debug)]
pub(super) struct LateStore {
    /// As logs show it.
    name: String,
    arrived: OnceLock<Arc<dyn Store>>,
}

impl LateStore {
    pub(super) const fn new(name: String) -> Self {
        Self { name, arrived: OnceLock::new() }
    }

    /// From now on calls go to this store.
    pub(super) fn arrive(&self, store: Arc<dyn Store>) {
        // It is opened by one task, once.
        let _ = self.arrived.set(store);
    }

    fn store(&self, operation: &'static str) -> Result<&Arc<dyn Store>, StoreError> {
        self.arrived.get().ok_or_else(|| {
            let why = "it could not be reached since the start";
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

    fn skipped(&self) -> Vec<String> {
        self.arrived.get().map(|store| store.skipped()).unwrap_or_default()
    }

    /// Before it arrives nothing is acknowledged.
    fn may_lose(&self) -> Duration {
        self.arrived.get().map_or(Duration::ZERO, |store| store.may_lose())
    }

    fn server(&self) -> Option<String> {
        self.arrived.get().and_then(|store| store.server())
    }

    fn reach(&self) -> StoreReach {
        StoreReach::of_url(&self.name)
    }

    fn describe(&self) -> String {
        self.arrived.get().map_or_else(|| self.name.clone(), |store| store.describe())
    }
}

#[cfg(test)]
mod tests {
    use snowmint_store::MemoryStore;

    use super::*;

    #[test]
    fn calls_fail_until_it_arrives() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (store, key) = (LateStore::new("redis://r".to_owned()), Key::new("k").unwrap());
            let error = store.load(&key).await.unwrap_err();
            assert!(error.is_temporary() && error.to_string().contains("redis://r"), "{error}");
            assert!(store.compare_and_set(&key, Expected::Absent, b"v").await.is_err());
            store.arrive(Arc::new(MemoryStore::new()));
            assert_eq!(store.load(&key).await.unwrap(), None, "nothing was written before");
            assert_eq!((store.describe(), store.may_lose()), ("memory:".to_owned(), Duration::ZERO));
        });
    }
}
