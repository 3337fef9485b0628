//! Records in the memory of this process, shared by all clones and dropped with the last of them.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::store::add;
use crate::{Expected, Key, Revision, Store, StoreError, Swap, Versioned, Visibility};

/// A store in memory, for tests and for a single node that needs no persistence.
///
/// Clones share the records. Leases recorded here protect only the nodes of this process.
#[derive(Clone, Default, Debug)]
pub struct MemoryStore(Arc<Mutex<Records>>);

#[derive(Default, Debug)]
struct Records {
    by_key: BTreeMap<Key, Versioned>,
    /// One counter for all keys, as in etcd: code that expects consecutive revisions of a key fails its tests
    /// here.
    last: u64,
}

impl Records {
    fn write(&mut self, key: &Key, value: Vec<u8>) -> Revision {
        self.last += 1;
        let revision = Revision(self.last);
        self.by_key.insert(key.clone(), Versioned { value, revision });
        revision
    }
}

impl MemoryStore {
    /// Returns an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A panic cannot leave the records half changed, so a poisoned lock is as good as any other.
    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        Ok(self.records().by_key.get(key).cloned())
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let mut records = self.records();
        let found = records.by_key.get(key).map_or(Expected::Absent, |it| Expected::Revision(it.revision));
        if found != expected {
            return Ok(Swap::Conflict);
        }
        Ok(Swap::Done(records.write(key, value.to_vec())))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        let records = self.records();
        let from_prefix = records.by_key.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let found = from_prefix.take_while(|(key, _)| key.as_str().starts_with(prefix));
        Ok(found.map(|(key, record)| (key.clone(), record.clone())).collect())
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        let mut records = self.records();
        let (before, after) = add::before_and_after(self, key, records.by_key.get(key), count)?;
        records.write(key, after.to_string().into_bytes());
        Ok(before)
    }

    fn visibility(&self) -> Visibility {
        Visibility::Process
    }

    fn describe(&self) -> String {
        "memory:".to_owned()
    }
}
