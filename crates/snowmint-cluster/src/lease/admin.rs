//! Lists all leases of a store, and revokes a lease safely. Tools for operators: no node needs them to hold a lease.

use snowmint::WorkerId;
use snowmint_store::{Expected, Key, Revision, Store, StoreError, Swap};

use super::record::{Record, RecordError, Tag};

/// The prefix of the keys of all leases.
const PREFIX: &str = "workers/";

/// A lease in a store.
#[derive(Debug)]
pub struct LeaseEntry {
    /// The pool, as in the key.
    pub pool: String,
    /// The worker.
    pub worker: WorkerId,
    /// The record, or the reason why it is unreadable.
    pub record: Result<Record, RecordError>,
    key: Key,
    revision: Revision,
}

/// The outcome of [`evict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The holder can no longer renew the lease. The worker is free from this instant on, in unix milliseconds.
    FreeFrom(u64),
    /// The record changed meanwhile: its holder lives, or another node took the worker.
    Changed,
}

/// Lists all leases of a store, by pool and worker.
///
/// # Errors
///
/// The store's error.
pub async fn leases(store: &dyn Store) -> Result<Vec<LeaseEntry>, StoreError> {
    let records = store.list(PREFIX).await?;
    let entries = records.into_iter().filter_map(|(key, value)| {
        let (pool, worker) = worker_of(&key)?;
        let pool = pool.to_owned();
        let record = Record::from_bytes(&value.value);
        Some(LeaseEntry { pool, worker, record, key, revision: value.revision })
    });
    Ok(entries.collect())
}

/// Lists the keys under the leases' prefix that name no worker. No node uses or removes such a record.
///
/// # Errors
///
/// The store's error.
pub async fn strange_keys(store: &dyn Store) -> Result<Vec<Key>, StoreError> {
    let keys = store.list(PREFIX).await?.into_iter().map(|(key, _)| key);
    Ok(keys.filter(|key| worker_of(key).is_none()).collect())
}

/// The pool and the worker of a key.
fn worker_of(key: &Key) -> Option<(&str, WorkerId)> {
    let (pool, worker) = key.as_str().strip_prefix(PREFIX)?.rsplit_once('/')?;
    Some((pool, WorkerId(worker.parse().ok()?)))
}

/// Takes a worker from its holder, after the end of the current lease.
///
/// The lease keeps its end, because ids up to that instant may exist. The holder uses it to the end, notices at its next renewal
/// that it has lost the worker, and takes another one. Returns `None` if the record is unreadable.
///
/// # Errors
///
/// The store's error. After [`OutcomeUnknown`](snowmint_store::StoreErrorKind::OutcomeUnknown) look at the lease again.
pub async fn evict(store: &dyn Store, entry: &LeaseEntry, tag: Tag) -> Result<Option<Eviction>, StoreError> {
    let Ok(record) = &entry.record else { return Ok(None) };
    // The same end under a tag that the holder never wrote: to the holder, the record belongs to another node. Nothing is granted.
    let evicted = Record { tag, from_unix_ms: Some(record.until_unix_ms), ..record.clone() };
    let expected = Expected::Revision(entry.revision);
    let swap = store.compare_and_set(&entry.key, expected, &evicted.to_bytes()).await?;
    Ok(Some(match swap {
        Swap::Done(_) => Eviction::FreeFrom(record.until_unix_ms),
        Swap::Conflict => Eviction::Changed,
    }))
}
