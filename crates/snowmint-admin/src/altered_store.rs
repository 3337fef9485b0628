//! A store in memory with the peculiarities of real ones, for tests.

use std::time::Duration;

use async_trait::async_trait;
use snowmint::{Clock as _, WallClock};
use snowmint_store::{Expected, Key, MemoryStore, Store, StoreError, Swap, Versioned};

/// Its clock may be a minute off, either way: etcd tells the time in whole seconds.
#[derive(Debug, Default)]
pub(crate) struct AlteredStore {
    pub(crate) inner: MemoryStore,
    /// How far its clock is behind.
    pub(crate) behind_ms: u64,
    pub(crate) writes: Writes,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Writes {
    #[default]
    Applied,
    /// Every write is dropped, as by a server of MySQL whose settings every node refuses.
    Dropped,
}

#[async_trait]
impl Store for AlteredStore {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.inner.load(key).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        match self.writes {
            Writes::Applied => self.inner.compare_and_set(key, expected, value).await,
            Writes::Dropped => Ok(Swap::Conflict),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.inner.list(prefix).await
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
        Ok(Some(WallClock.unix_ms() - self.behind_ms))
    }

    fn clock_error(&self) -> Duration {
        Duration::from_mins(1)
    }
}
