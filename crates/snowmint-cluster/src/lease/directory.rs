//! Every lease of a store, over all pools, for the people who look after them; and how to take one away safely.
//! Nothing here is needed to hold a lease.

use snowmint::WorkerId;
use snowmint_store::{Expected, Key, Revision, Store, StoreError, Swap};

use super::record::{Record, RecordError, Tag};

/// What every lease's key begins with.
const PREFIX: &str = "workers/";

/// One lease as a store holds it.
#[derive(Debug)]
pub struct LeaseEntry {
    /// The pool, as in the key.
    pub pool: String,
    /// The worker.
    pub worker: WorkerId,
    /// Its record, or why it cannot be read.
    pub record: Result<Record, RecordError>,
    key: Key,
    revision: Revision,
}

/// What came of taking a worker away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Its holder can renew it no more; it is free from this instant on, in unix milliseconds.
    FreeFrom(u64),
    /// The record changed meanwhile: its holder lives, or another took it.
    Changed,
}

/// Every lease in a store, by pool and worker.
///
/// # Errors
///
/// The store's.
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

/// The keys among the leases that name no worker: no node uses such a record, and none removes it.
///
/// # Errors
///
/// The store's.
pub async fn strange_keys(store: &dyn Store) -> Result<Vec<Key>, StoreError> {
    let keys = store.list(PREFIX).await?.into_iter().map(|(key, _)| key);
    Ok(keys.filter(|key| worker_of(key).is_none()).collect())
}

/// The pool and the worker that a key names.
fn worker_of(key: &Key) -> Option<(&str, WorkerId)> {
    let (pool, worker) = key.as_str().strip_prefix(PREFIX)?.rsplit_once('/')?;
    Some((pool, WorkerId(worker.parse().ok()?)))
}

/// Takes a worker from its holder, without shortening what was granted: ids up to that instant may exist, so nobody
/// else may use that time. The holder goes on to the end of its lease, notices when it would renew, and seeks another
/// worker; after that instant this one is free.
///
/// # Errors
///
/// The store's; with [`OutcomeUnknown`](snowmint_store::StoreErrorKind::OutcomeUnknown) look at the lease again.
pub async fn evict(store: &dyn Store, entry: &LeaseEntry, tag: Tag) -> Result<Option<Eviction>, StoreError> {
    let Ok(record) = &entry.record else { return Ok(None) };
    // The same end under a tag that its holder never wrote: to the holder it is another's. Nothing is granted anew.
    let evicted = Record { tag, from_unix_ms: Some(record.until_unix_ms), ..record.clone() };
    let expected = Expected::Revision(entry.revision);
    let swap = store.compare_and_set(&entry.key, expected, &evicted.to_bytes()).await?;
    Ok(Some(match swap {
        Swap::Done(_) => Eviction::FreeFrom(record.until_unix_ms),
        Swap::Conflict => Eviction::Changed,
    }))
}
