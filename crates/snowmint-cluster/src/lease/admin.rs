//! Lists all leases of a store, and revokes a lease safely. Tools for operators: no node needs them to hold a
//! lease.

use snowmint::WorkerId;
use snowmint_store::{Expected, Key, Revision, Store, StoreError, StoreErrorKind, Swap};

#[cfg(test)]
use super::record::Granted;
use super::record::{Record, RecordError, Tag};
use crate::store_calls::{BEFORE_LOOKING, cause, unknown_outcome};

/// The prefix of the keys of all leases.
const PREFIX: &str = "workers/";
/// How often a write without an answer is repeated.
const TRIES: u32 = 5;

/// A lease in a store.
#[derive(Debug)]
pub struct LeaseEntry {
    /// The pool, as in the key.
    pub pool: String,
    /// The worker.
    pub worker: WorkerId,
    /// The record, or the reason why it is unreadable.
    pub record: Result<Record, RecordError>,
    pub(super) key: Key,
    pub(super) revision: Revision,
}

/// The outcome of [`evict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The holder can no longer renew the lease. The worker is free from this instant on, in unix
    /// milliseconds.
    FreeFrom(u64),
    /// The record changed in the meantime: its holder is alive, or another node took the worker.
    Changed,
}

/// Lists all leases of a store, by pool and worker.
///
/// # Errors
///
/// The store's error.
pub async fn leases(store: &dyn Store) -> Result<Vec<LeaseEntry>, StoreError> {
    leases_below(store, PREFIX).await
}

/// Lists the leases whose keys begin with a prefix.
pub(super) async fn leases_below(store: &dyn Store, prefix: &str) -> Result<Vec<LeaseEntry>, StoreError> {
    let records = store.list(prefix).await?;
    let entries = records.into_iter().filter_map(|(key, value)| {
        let (pool, worker) = worker_of(&key)?;
        let pool = pool.to_owned();
        let record = Record::from_bytes(&value.value);
        Some(LeaseEntry { pool, worker, record, key, revision: value.revision })
    });
    Ok(entries.collect())
}

/// Lists the keys under the leases' prefix that do not name a worker. No node uses or removes such a record.
///
/// # Errors
///
/// The store's error.
pub async fn strange_keys(store: &dyn Store) -> Result<Vec<Key>, StoreError> {
    let keys = store.list(PREFIX).await?.into_iter().map(|(key, _)| key);
    Ok(keys.filter(|key| worker_of(key).is_none()).collect())
}

/// Returns the pool and the worker of a key.
fn worker_of(key: &Key) -> Option<(&str, WorkerId)> {
    let (pool, worker) = key.as_str().strip_prefix(PREFIX)?.rsplit_once('/')?;
    Some((pool, WorkerId(worker.parse().ok()?)))
}

/// Takes a worker from its holder, after the end of the current lease.
///
/// The lease keeps its end, because ids up to that instant may exist. The holder uses it to the end, notices
/// at its next renewal that it has lost the worker, and takes another one. Returns `None` if the record is
/// unreadable.
///
/// If an answer is lost, this function reads the record again and decides by its tag.
///
/// # Errors
///
/// The store's error. [`OutcomeUnknown`](StoreErrorKind::OutcomeUnknown) means that the record could not be
/// read again either: the worker may have been taken.
pub async fn evict(store: &dyn Store, entry: &LeaseEntry, tag: Tag) -> Result<Option<Eviction>, StoreError> {
    let Ok(record) = &entry.record else { return Ok(None) };
    // The same end under a tag that the holder never wrote: to the holder, the record belongs to another
    // node. Nothing is granted.
    let evicted = Record { tag, from_unix_ms: Some(record.until_unix_ms), released: true, ..record.clone() };
    let (value, expected) = (evicted.to_bytes(), Expected::Revision(entry.revision));
    let free_from = Ok(Some(Eviction::FreeFrom(record.until_unix_ms)));
    let mut tries = 0;
    loop {
        let lost = match store.compare_and_set(&entry.key, expected, &value).await {
            Ok(Swap::Done(_)) => return free_from,
            Ok(Swap::Conflict) if tries == 0 => return Ok(Some(Eviction::Changed)),
            // An earlier write of this loop may have taken place.
            Ok(Swap::Conflict) => None,
            Err(error) if error.kind() == StoreErrorKind::OutcomeUnknown => Some(error),
            Err(error) if tries == 0 => return Err(error),
            Err(error) => return Err(unknown_outcome(store, cause(&error))),
        };
        tokio::time::sleep(BEFORE_LOOKING).await;
        let found = store.load(&entry.key).await;
        let found = found.map_err(|error| unknown_outcome(store, cause(&error)))?;
        let is_unchanged = found.as_ref().is_some_and(|found| found.revision == entry.revision);
        match (found.map(|found| Record::from_bytes(&found.value)), lost) {
            (Some(Ok(found)), _) if found.tag == tag => return free_from,
            // The write has not taken place: try again.
            (_, Some(error)) if is_unchanged => {
                tries += 1;
                if tries == TRIES {
                    return Err(error);
                }
            }
            // The lease had not ended, so no node could have taken the worker after the eviction.
            (Some(Ok(found)), _)
                if found.holder == record.holder && found.until_unix_ms > record.until_unix_ms =>
            {
                return Ok(Some(Eviction::Changed));
            }
            (_, lost) => {
                let why = "no answer, and the record was changed again since".to_owned();
                return Err(lost.unwrap_or_else(|| unknown_outcome(store, why)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use snowmint_store::MemoryStore;

    use super::*;
    use crate::Holder;
    use crate::test_store::{Fate, LostAnswers};

    const UNTIL: u64 = 1_790_000_000_000;

    fn record(tag: u128, until_unix_ms: u64) -> Record {
        let holder = Holder::new("node-1").unwrap();
        let granted = Granted::up_to(until_unix_ms);
        Record {
            holder,
            from_unix_ms: Some(UNTIL - 1000),
            until_unix_ms,
            tag: Tag(tag),
            granted,
            released: false,
        }
    }

    async fn write(store: &MemoryStore, record: &Record) {
        let key = Key::new("workers/p/0000000007").unwrap();
        let found = store.load(&key).await.unwrap();
        let at = found.map_or(Expected::Absent, |found| Expected::Revision(found.revision));
        assert!(matches!(store.compare_and_set(&key, at, &record.to_bytes()).await, Ok(Swap::Done(_))));
    }

    /// Goal: if the answer is lost, the eviction reads the record before it reports, and says so if it
    /// cannot. Method: each outcome of the write and of the read after it.
    #[tokio::test(start_paused = true)]
    async fn an_eviction_without_an_answer_looks_again() {
        use Fate::{LostBefore, LostDone, Refused};
        let free = Ok(Eviction::FreeFrom(UNTIL));
        for (fates, renewed, wanted) in [
            (&[][..], false, free),
            (&[LostDone], false, free),
            (&[LostBefore], false, free),
            (&[LostBefore, LostBefore, LostDone], false, free),
            (&[LostBefore; 5], false, Err(StoreErrorKind::OutcomeUnknown)),
            (&[LostBefore, Refused], false, Err(StoreErrorKind::OutcomeUnknown)),
            (&[Refused], false, Err(StoreErrorKind::Unavailable)),
            (&[], true, Ok(Eviction::Changed)),
            (&[LostBefore], true, Ok(Eviction::Changed)),
        ] {
            let store = LostAnswers::default();
            write(&store.inner, &record(1, UNTIL)).await;
            let entries = leases(&store).await.unwrap();
            if renewed {
                write(&store.inner, &record(2, UNTIL + 5000)).await;
            }
            store.will(fates);
            let evicted = evict(&store, &entries[0], Tag(9)).await;
            let evicted = evicted.map(Option::unwrap).map_err(|error| error.kind());
            assert_eq!(evicted, wanted, "{fates:?} {renewed}");
        }
    }

    /// Goal: if nothing can be read after a lost answer, the eviction does not claim that nothing was
    /// written.
    #[tokio::test(start_paused = true)]
    async fn an_eviction_that_cannot_look_is_unknown() {
        let store = LostAnswers::default();
        write(&store.inner, &record(1, UNTIL)).await;
        let entries = leases(&store).await.unwrap();
        store.will(&[Fate::LostDoneAndDown]);
        let error = evict(&store, &entries[0], Tag(9)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown);
        assert!(!error.to_string().contains("nothing was written"), "{error}");
    }
}
