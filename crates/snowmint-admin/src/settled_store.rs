//! A store that remembers what an operation wrote, so that it succeeds only once that has settled.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use snowmint_cluster::audit::{self, ChangeFailure, MadeEntries};
use snowmint_cluster::lease::Record;
use snowmint_store::{Expected, Key, Store, StoreError, StoreErrorKind, Swap, Versioned};

use crate::AdminError;

/// A store that remembers what a command wrote, so that the command can wait until it has settled.
///
/// A failover can take back a write that has not settled, so a command reports success only after
/// [`settle`](Self::settle).
#[derive(Debug)]
pub struct SettledStore {
    store: Arc<dyn Store>,
    /// The value that must be found again, by key.
    written: Mutex<BTreeMap<Key, Vec<u8>>>,
    /// Whether a record of the change itself may have been written: not only its entry in the audit log.
    may_have_changed: AtomicBool,
    /// The entries that the audit log shows as made.
    entries: Mutex<MadeEntries>,
}

impl SettledStore {
    /// Wraps a store; no write is remembered yet.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            written: Mutex::default(),
            may_have_changed: AtomicBool::new(false),
            entries: Mutex::default(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, MadeEntries> {
        // As for `written`.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<Key, Vec<u8>>> {
        // Each change is one insertion, so a panic elsewhere leaves the map consistent.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a write that took place, or may have.
    fn remember(&self, key: &Key, value: Vec<u8>) {
        if key.as_str().starts_with("audit/") {
            self.entries().note(&value);
        } else {
            self.may_have_changed.store(true, Ordering::Relaxed);
        }
        self.written().insert(key.clone(), value);
    }

    /// Returns the error of a call. "Nothing was written" may be true of this call, but not of the command if
    /// it wrote something before.
    fn failed(&self, error: StoreError) -> StoreError {
        use StoreErrorKind::{AnotherStore, Full, ReadOnly, SplitBrain, Unavailable};
        // Other kinds do not say that nothing was written; callers rely on their kind, for example to skip a
        // damaged record.
        if !matches!(error.kind(), Unavailable | SplitBrain | AnotherStore | ReadOnly | Full)
            || !self.may_have_changed.load(Ordering::Relaxed)
        {
            return error;
        }
        let cause = error.cause().to_string();
        StoreError::new(StoreErrorKind::OutcomeUnknown, error.operation(), error.store(), cause)
    }

    /// Waits until everything that was written has settled. Returns at once if the store loses no
    /// acknowledged writes. The audit log then shows which writes were lost, or may be lost.
    ///
    /// # Errors
    ///
    /// [`AdminError::Lost`], or the error of the store.
    pub async fn settle(&self) -> Result<(), AdminError> {
        let settled = self.look_again().await;
        let entries = std::mem::take(&mut *self.entries());
        if let Err(error) = &settled {
            // Whatever failed now, the changes were written before.
            let failure = ChangeFailure::Unknown(error.to_string());
            audit::warn_if_unrecorded(entries.failed(&*self.store, &failure).await, &failure);
        }
        settled
    }

    /// Returns the outcome of a command once everything that it wrote has settled.
    ///
    /// # Errors
    ///
    /// Those of the command, and of [`settle`](Self::settle).
    pub async fn settled<T, E: From<AdminError>>(&self, outcome: Result<T, E>) -> Result<T, E> {
        let error = match outcome {
            Ok(made) => return self.settle().await.map(|()| made).map_err(E::from),
            Err(error) => error,
        };
        // The steps before the failed one were made. If they are lost, the audit log shows it.
        if !self.entries().is_empty() {
            let _ = self.settle().await;
        }
        Err(error)
    }

    async fn look_again(&self) -> Result<(), AdminError> {
        let written = std::mem::take(&mut *self.written());
        let may_lose = self.store.may_lose();
        if may_lose.is_zero() || written.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(may_lose).await;
        for (key, value) in written {
            let found = self.store.load(&key).await.map_err(|error| self.failed(error))?;
            if !found.is_some_and(|found| follows(&key, &value, &found.value)) {
                let (store, key) = (self.store.describe(), key.to_string());
                return Err(AdminError::Lost { store, key, may_lose });
            }
        }
        Ok(())
    }
}

/// Returns whether `found` shows that `written` was not lost: it is the same value, or a later one.
fn follows(key: &Key, written: &[u8], found: &[u8]) -> bool {
    let number = |value| std::str::from_utf8(value).ok()?.parse::<u64>().ok();
    let folder = key.as_str().split_once('/').map_or("", |(folder, _)| folder);
    found == written
        || match folder {
            "segments" => number(found) >= number(written),
            // A lease that another node took since begins where the written one ends.
            "workers" => match (Record::from_bytes(written), Record::from_bytes(found)) {
                (Ok(written), Ok(found)) => {
                    let until = written.granted.until_unix_ms();
                    found.from_unix_ms.is_some_and(|from| from >= written.until_unix_ms)
                        || (found.is_in_gap() && found.granted.until_unix_ms() >= until)
                }
                _ => false,
            },
            "audit" => audit::follows(written, found),
            // A hint only: nodes find the change without it too.
            "versions" => true,
            _ => false,
        }
}

#[async_trait]
impl Store for SettledStore {
    /// Also remembers namespaces that are only read: another command may have written them a moment ago.
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        let found = self.store.load(key).await.map_err(|error| self.failed(error))?;
        if let Some(found) = &found
            && key.as_str().starts_with("namespaces/")
        {
            self.written().insert(key.clone(), found.value.clone());
        }
        Ok(found)
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let swap = self.store.compare_and_set(key, expected, value).await;
        let unknown = |error: &StoreError| error.kind() == StoreErrorKind::OutcomeUnknown;
        if matches!(swap, Ok(Swap::Done(_))) || swap.as_ref().is_err_and(unknown) {
            self.remember(key, value.to_vec());
        }
        swap.map_err(|error| self.failed(error))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.store.list(prefix).await.map_err(|error| self.failed(error))
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        let before = self.store.add(key, count).await.map_err(|error| self.failed(error))?;
        self.remember(key, before.saturating_add(count.get()).to_string().into_bytes());
        Ok(before)
    }

    fn describe(&self) -> String {
        self.store.describe()
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use snowmint_cluster::audit::{Action, AuthorRights, Listed, Logged};
    use snowmint_cluster::lease::{Granted, Tag};
    use snowmint_cluster::{Holder, NamespaceName};
    use snowmint_store::MemoryStore;

    use super::*;
    use crate::AdminErrorKind;
    use crate::Author;
    use crate::namespaces::{self, Addition, Change, Settings};

    /// A store in memory that may lose what it acknowledged.
    #[derive(Debug)]
    struct Forgetful(MemoryStore, Duration, AtomicBool);

    const MAY_LOSE: Duration = Duration::from_millis(20);

    #[async_trait]
    impl Store for Forgetful {
        async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
            if self.2.load(Ordering::Relaxed) {
                return Err(StoreError::new(StoreErrorKind::Unavailable, "load", "forgetful", "cut"));
            }
            self.0.load(key).await
        }

        async fn compare_and_set(&self, key: &Key, at: Expected, value: &[u8]) -> Result<Swap, StoreError> {
            self.0.compare_and_set(key, at, value).await
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            self.0.list(prefix).await
        }

        fn may_lose(&self) -> Duration {
            self.1
        }

        fn describe(&self) -> String {
            "forgetful".to_owned()
        }
    }

    fn forgetful(may_lose: Duration) -> Forgetful {
        Forgetful(MemoryStore::new(), may_lose, AtomicBool::new(false))
    }

    fn lease(tag: u128, from_unix_ms: u64, until_unix_ms: u64) -> Vec<u8> {
        let holder = Holder::new("n").unwrap();
        let granted = Granted::up_to(until_unix_ms);
        let from_unix_ms = Some(from_unix_ms);
        Record { holder, from_unix_ms, until_unix_ms, tag: Tag(tag), granted, released: false }.to_bytes()
    }

    async fn put(store: &dyn Store, key: &Key, value: &[u8]) {
        let at = store.load(key).await.unwrap();
        let at = at.map_or(Expected::Absent, |at| Expected::Revision(at.revision));
        assert!(matches!(store.compare_and_set(key, at, value).await.unwrap(), Swap::Done(_)));
    }

    /// Goal: a command succeeds only once its writes have settled; a write that a failover takes back is an
    /// error. Method: each kind of record is written, and is then found unchanged, older, and overwritten by
    /// a node.
    #[tokio::test]
    async fn a_write_that_a_failover_takes_back_is_an_error() {
        let written = lease(2, 5000, 5000);
        for (key, value, older, over) in [
            ("segments/n", &b"70"[..], &b"69"[..], Some(&b"90"[..])),
            ("namespaces/n", b"new", b"old", None),
            ("workers/p/0000000001", &written, &lease(1, 4000, 5000), Some(&lease(3, 5000, 9000))),
            // The holder renewed the lease that was to be taken from it.
            ("workers/p/0000000001", &written, &lease(1, 4500, 9000), None),
        ] {
            let inner: Arc<dyn Store> = Arc::new(forgetful(MAY_LOSE));
            let store = SettledStore::new(Arc::clone(&inner));
            let key = Key::new(key).unwrap();
            for (found, is_done) in [(Some(value), true), (Some(older), false), (over, true)] {
                let Some(found) = found else { continue };
                put(&store, &key, value).await;
                put(&*inner, &key, found).await;
                let began = tokio::time::Instant::now();
                let settled = store.settle().await;
                assert_eq!(settled.is_ok(), is_done, "{key} {settled:?}");
                assert!(began.elapsed() >= MAY_LOSE);
            }
        }
    }

    /// Goal: a failed read after a write does not say that nothing was written. Method: reads fail before and
    /// after a write.
    #[tokio::test]
    async fn a_failed_read_after_a_write_leaves_the_outcome_unknown() {
        let inner = Arc::new(forgetful(MAY_LOSE));
        let store = SettledStore::new(Arc::clone(&inner) as _);
        put(&store, &Key::new("audit/01").unwrap(), b"e").await;
        let key = Key::new("segments/n").unwrap();
        inner.2.store(true, Ordering::Relaxed);
        let before = store.load(&key).await.unwrap_err();
        assert_eq!(before.kind(), StoreErrorKind::Unavailable);
        inner.2.store(false, Ordering::Relaxed);
        put(&store, &key, b"7").await;
        inner.2.store(true, Ordering::Relaxed);
        let settled = store.settle().await.unwrap_err();
        assert_eq!(settled.kind(), AdminErrorKind::OutcomeUnknown, "{settled}");
        assert!(matches!(ChangeFailure::from(&settled), ChangeFailure::Unknown(_)), "{settled}");
        assert!(!settled.to_string().contains("nothing was written"), "{settled}");
    }

    /// Goal: a command that would change nothing succeeds only once an earlier change has settled. Method: a
    /// failover takes back the record meanwhile.
    #[tokio::test]
    async fn a_change_that_is_there_already_has_to_settle_too() {
        let inner = Arc::new(forgetful(MAY_LOSE));
        let (name, key) = (NamespaceName::new("n").unwrap(), Key::new("namespaces/n").unwrap());
        let author = Author { who: "w".to_owned(), from: "f".to_owned(), rights: AuthorRights::All };
        let of = |text: &str| serde_json::from_str::<Settings>(text).unwrap();
        let addition = Addition { settings: of(r#"{"scheme": "segment"}"#), ..Addition::default() };
        namespaces::add(&*inner, &author, &name, &addition, |_| true).await.unwrap();
        let older = inner.load(&key).await.unwrap().unwrap().value;
        let change = Change { settings: of(r#"{"owner": "web"}"#), ..Change::default() };
        namespaces::set(&*inner, &author, &name, &change).await.unwrap();
        let store = SettledStore::new(Arc::clone(&inner) as _);
        let again = namespaces::set(&store, &author, &name, &change).await.unwrap();
        assert_eq!(again.edition, 2);
        put(&*inner, &key, &older).await;
        assert!(matches!(store.settle().await, Err(AdminError::Lost { .. })));
    }

    /// Goal: the audit log does not show a change as made if a failover took it back, even if a later step of
    /// the command failed. Method: the second of two changes is lost.
    #[tokio::test]
    async fn a_change_that_is_lost_is_named_so_in_the_audit_log() {
        for outcome in [Ok(()), Err(AdminError::Unsupported("a later step"))] {
            let inner = Arc::new(forgetful(MAY_LOSE));
            let (name, key) = (NamespaceName::new("n").unwrap(), Key::new("namespaces/n").unwrap());
            let author = Author { who: "w".to_owned(), from: "f".to_owned(), rights: AuthorRights::All };
            let of = |text: &str| serde_json::from_str::<Settings>(text).unwrap();
            let store = SettledStore::new(Arc::clone(&inner) as _);
            let addition = Addition { settings: of(r#"{"scheme": "segment"}"#), ..Addition::default() };
            namespaces::add(&store, &author, &name, &addition, |_| true).await.unwrap();
            store.settle().await.unwrap();
            let older = inner.load(&key).await.unwrap().unwrap().value;
            let change = Change { settings: of(r#"{"owner": "web"}"#), ..Change::default() };
            namespaces::set(&store, &author, &name, &change).await.unwrap();
            put(&*inner, &key, &older).await;
            let is_made = outcome.is_ok();
            match store.settled(outcome).await {
                Err(AdminError::Lost { .. }) => assert!(is_made),
                Err(AdminError::Unsupported(_)) => assert!(!is_made),
                other => panic!("{other:?}"),
            }
            let failures = audit::list(&*inner, 10).await.unwrap().into_iter();
            let failures = failures.map(|listed| match listed {
                Listed::Entry(Logged { entry, failure }) => (entry.action, failure.map(|it| it.name())),
                other @ Listed::Unreadable { .. } => panic!("{other:?}"),
            });
            let failures: Vec<_> = failures.collect();
            assert_eq!(failures, [(Action::NamespaceSet, Some("unknown")), (Action::NamespaceAdd, None)]);
        }
    }

    /// Goal: no wait if nothing was written, or if the store loses nothing.
    #[tokio::test]
    async fn only_writes_that_may_be_lost_are_waited_for() {
        // If it waited, the test would never end.
        SettledStore::new(Arc::new(forgetful(Duration::MAX))).settle().await.unwrap();
        let store = SettledStore::new(Arc::new(MemoryStore::new()));
        put(&store, &Key::new("segments/n").unwrap(), b"7").await;
        store.settle().await.unwrap();
    }
}
