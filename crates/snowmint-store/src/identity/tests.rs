//! One process over a store whose place other stores take.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is test code: a panic is how a test fails")]

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::advance;

use super::*;
use crate::MemoryStore;

/// An address at which stores take turns.
#[derive(Debug, Default)]
struct Place {
    /// The store that answers, and the name of its server, if it tells that.
    now: Mutex<(MemoryStore, Option<String>)>,
    /// The store that answers from the next call on that is no look.
    next: Mutex<Option<(MemoryStore, Option<String>)>>,
    may_lose: Duration,
    loads_of_identity: AtomicU64,
}

impl Place {
    fn may_lose(may_lose: Duration) -> Self {
        Self { may_lose, ..Self::default() }
    }

    fn put(&self, store: &MemoryStore, server: Option<&str>) {
        *self.now.lock().unwrap() = (store.clone(), server.map(str::to_owned));
    }

    fn put_during_next_call(&self, store: &MemoryStore, server: Option<&str>) {
        *self.next.lock().unwrap() = Some((store.clone(), server.map(str::to_owned)));
    }

    fn store(&self, key: Option<&Key>) -> MemoryStore {
        if key.is_some_and(|key| key.as_str() == KEY) {
            self.loads_of_identity.fetch_add(1, Ordering::Relaxed);
        } else if let Some(next) = self.next.lock().unwrap().take() {
            *self.now.lock().unwrap() = next;
        }
        self.now.lock().unwrap().0.clone()
    }
}

#[async_trait]
impl Store for Place {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.store(Some(key)).load(key).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        self.store(Some(key)).compare_and_set(key, expected, value).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.store(None).list(prefix).await
    }

    fn may_lose(&self) -> Duration {
        self.may_lose
    }

    fn server(&self) -> Option<String> {
        self.now.lock().unwrap().1.clone()
    }

    fn describe(&self) -> String {
        "place".to_owned()
    }
}

fn worker() -> Key {
    Key::new("workers/pool/7").unwrap()
}

async fn claim(store: &dyn Store) -> Result<Swap, StoreError> {
    store.compare_and_set(&worker(), Expected::Absent, b"mine").await
}

async fn shown_by(store: &MemoryStore) -> Option<StoreId> {
    look(store).await.unwrap()
}

/// Returns a store with an identity, as another process left it.
async fn used() -> (MemoryStore, StoreId) {
    let store = MemoryStore::new();
    let opened = IdentifiedStore::new(Arc::new(store.clone()));
    assert_eq!(opened.load(&worker()).await.unwrap(), None);
    (store, opened.identity().unwrap().id)
}

/// Goal: all processes see one identity, whichever of them wrote it, and no two stores have the same. Method:
/// many processes begin at the same time.
#[tokio::test]
async fn the_first_call_writes_an_identity_and_every_process_finds_it() {
    let memory = MemoryStore::new();
    let all: Vec<_> = (0..20).map(|_| IdentifiedStore::new(Arc::new(memory.clone()))).collect();
    assert!(all.iter().all(|store| store.identity().is_none()));
    let key = worker();
    let loads: Vec<_> = all.iter().map(|store| store.load(&key)).collect();
    for load in loads {
        assert_eq!(load.await.unwrap(), None);
    }
    let id = shown_by(&memory).await.unwrap();
    assert!(all.iter().all(|store| store.identity() == Some(Identity { id, another: None })));
    assert_ne!(used().await.1, id);
}

/// Goal: nothing is written to another store, and the process goes on when its own is back. Method: another
/// store takes the place, with and without a server that it names; then both look one second later.
#[tokio::test(start_paused = true)]
async fn another_store_gets_no_call_until_the_own_one_is_back() {
    for server in [None, Some("server 2")] {
        let (own, id) = used().await;
        let (other, another) = used().await;
        let place = Arc::new(Place::default());
        place.put(&own, server.map(|_| "server 1"));
        let store = IdentifiedStore::new(Arc::clone(&place) as _);
        store.load(&worker()).await.unwrap();
        place.put(&other, server);
        if server.is_none() {
            // Nothing shows it before.
            advance(LOOK_EVERY).await;
        }
        for _ in 0..3 {
            let error = claim(&store).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::AnotherStore);
            assert!(error.is_temporary());
            let text = error.to_string();
            assert!(text.contains(&id.to_string()) && text.contains(&another.to_string()), "{text}");
            assert_eq!(store.identity(), Some(Identity { id, another: Some(another) }));
            advance(LOOK_EVERY).await;
        }
        assert_eq!(store.list("").await.unwrap_err().kind(), StoreErrorKind::AnotherStore);
        assert_eq!(store.unix_ms().await.unwrap_err().kind(), StoreErrorKind::AnotherStore);
        assert_eq!(store.add(&worker(), NonZeroU64::MIN).await.unwrap_err().operation(), "add");
        assert_eq!(other.list("workers/").await.unwrap(), []);
        place.put(&own, server.map(|_| "server 1"));
        advance(LOOK_EVERY).await;
        assert!(matches!(claim(&store).await, Ok(Swap::Done(_))));
        assert_eq!(store.identity(), Some(Identity { id, another: None }));
    }
}

/// Goal: a claim that another store accepted during the call is not taken for one in the own store. Method:
/// the other store answers from the middle of a call on, with and without a server that it names.
#[tokio::test(start_paused = true)]
async fn a_call_during_which_another_store_took_over_does_not_count() {
    let (own, other) = (used().await.0, used().await.0);
    for server in [Some("server 1"), None] {
        let place = Arc::new(Place::default());
        place.put(&own, server);
        let store = IdentifiedStore::new(Arc::clone(&place) as _);
        store.load(&worker()).await.unwrap();
        place.put_during_next_call(&other, server.map(|_| "server 2"));
        assert_eq!(claim(&store).await.unwrap_err().kind(), StoreErrorKind::OutcomeUnknown, "{server:?}");
        // What the caller does next.
        assert_eq!(store.load(&worker()).await.unwrap_err().kind(), StoreErrorKind::AnotherStore);
        let Some(server) = server else { continue };
        place.put(&own, Some(server));
        store.load(&worker()).await.unwrap();
        place.put_during_next_call(&other, Some("server 2"));
        assert_eq!(store.list("").await.unwrap_err().kind(), StoreErrorKind::AnotherStore);
    }
}

/// Goal: a store that forgot its identity gets it back from a node that knows it. Method: an empty store takes
/// the place.
#[tokio::test(start_paused = true)]
async fn a_missing_identity_is_written_back() {
    let (own, id) = used().await;
    let place = Arc::new(Place::default());
    place.put(&own, None);
    let store = IdentifiedStore::new(Arc::clone(&place) as _);
    store.load(&worker()).await.unwrap();
    let empty = MemoryStore::new();
    place.put(&empty, None);
    advance(LOOK_EVERY).await;
    assert_eq!(store.load(&worker()).await.unwrap(), None);
    assert_eq!((shown_by(&empty).await, store.identity().unwrap().id), (Some(id), id));
}

/// Goal: an identity that the store may still lose is shown to nobody, and the one that replaces it is
/// adopted; a settled one stays. Method: a store that loses its first write, before and after it has settled.
#[tokio::test(start_paused = true)]
async fn an_identity_counts_once_it_has_settled() {
    const MAY_LOSE: Duration = Duration::from_secs(2);
    let place = Arc::new(Place::may_lose(MAY_LOSE));
    let store = IdentifiedStore::new(Arc::clone(&place) as _);
    store.load(&worker()).await.unwrap();
    assert_eq!(store.identity(), None);
    let (after_failover, id) = used().await;
    place.put(&after_failover, Some("the replica"));
    store.load(&worker()).await.unwrap();
    assert_eq!(store.identity(), None);
    advance(MAY_LOSE).await;
    store.load(&worker()).await.unwrap();
    assert_eq!(store.identity(), Some(Identity { id, another: None }));
    place.put(&used().await.0, Some("another"));
    assert_eq!(claim(&store).await.unwrap_err().kind(), StoreErrorKind::AnotherStore);
}

/// Goal: calls cost one look a second together. Method: many calls in each of three seconds.
#[tokio::test(start_paused = true)]
async fn the_identity_is_looked_at_once_a_second() {
    let place = Arc::new(Place::default());
    let store = IdentifiedStore::new(Arc::clone(&place) as _);
    store.load(&worker()).await.unwrap();
    let before = place.loads_of_identity.load(Ordering::Relaxed);
    for _ in 0..3 {
        advance(LOOK_EVERY).await;
        for _ in 0..10 {
            store.list("").await.unwrap();
        }
    }
    assert_eq!(place.loads_of_identity.load(Ordering::Relaxed) - before, 3);
}

/// Goal: a tool that looks changes nothing, and shows the identity of the store that answers now.
#[tokio::test(start_paused = true)]
async fn a_reader_writes_no_identity_and_follows() {
    let (one, other) = (used().await, used().await);
    let place = Arc::new(Place::default());
    let store = IdentifiedStore::to_read(Arc::clone(&place) as _);
    assert_eq!(store.list("").await.unwrap(), []);
    assert_eq!(store.identity(), None);
    for (memory, id) in [one, other] {
        place.put(&memory, None);
        advance(LOOK_EVERY).await;
        store.load(&worker()).await.unwrap();
        assert_eq!(store.identity(), Some(Identity { id, another: None }));
    }
}

/// Goal: a store other than the expected one, or an empty one, is not opened, and nothing is written to it.
#[tokio::test]
async fn another_store_than_the_expected_one_is_not_opened() {
    let (memory, id) = used().await;
    let store = IdentifiedStore::expecting(Arc::new(memory.clone()), id).await.unwrap();
    assert_eq!(store.identity(), Some(Identity { id, another: None }));
    let empty = MemoryStore::new();
    for (memory, found) in [(&memory, Some(id)), (&empty, None)] {
        let error = IdentifiedStore::expecting(Arc::new(memory.clone()), StoreId::new(7)).await.unwrap_err();
        assert!(matches!(error, OpenError::AnotherStore { found: it, .. } if it == found), "{error}");
        assert!(!error.is_temporary());
    }
    assert_eq!(empty.list("").await.unwrap(), []);
}

#[tokio::test]
async fn a_record_that_is_no_identity_is_corrupt() {
    let memory = MemoryStore::new();
    let written = memory.compare_and_set(&Key::new(KEY).unwrap(), Expected::Absent, b"hello").await;
    assert!(matches!(written, Ok(Swap::Done(_))));
    let error = claim(&IdentifiedStore::new(Arc::new(memory))).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
    assert!(error.to_string().contains("\"hello\""), "{error}");
}
