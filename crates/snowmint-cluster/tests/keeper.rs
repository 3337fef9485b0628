//! Goal: the driver keeps the protocol's promises on real stores and a real clock.
//! Method: keepers on one SQLite file or one memory store; a store that can be cut off; nothing waits for a
//! fixed time, only for what is to happen.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cut_off;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use cut_off::{CutOff, until};
use snowmint::{AnchoredClock, DatacenterId, Id, Layout, WorkerId};
use snowmint_cluster::lease::{Record, Tag};
use snowmint_cluster::{
    Holder, Keeper, KeeperConfig, LeaseFailure, NamespaceError, NamespaceName, NoId, Pool, WorkerChoice, pin,
};
use snowmint_store::{Expected, MemoryStore, SqliteStore, Store, Swap};

fn pool() -> Pool {
    Pool::new(Layout::TWITTER, DatacenterId(0))
}

fn config(holder: &str) -> KeeperConfig {
    KeeperConfig::new(pool(), Holder::new(holder).unwrap()).window(Duration::from_secs(5))
}

fn start(store: &Arc<dyn Store>, config: KeeperConfig) -> Keeper {
    Keeper::start(Arc::clone(store), config, Arc::new(AnchoredClock::new())).unwrap()
}

async fn ids(keeper: &Keeper, count: usize) -> Vec<Id> {
    keeper.take(count).await.unwrap().into_iter().flatten().collect()
}

#[tokio::test]
async fn two_keepers_on_one_sqlite_file_have_two_workers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snowmint.db");
    let mut all = HashSet::new();
    let mut workers = HashSet::new();
    let mut keepers = Vec::new();
    for name in ["a", "b"] {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).await.unwrap());
        let keeper = start(&store, config(name));
        workers.insert(keeper.ready().await.unwrap().worker.unwrap());
        keepers.push(keeper);
    }
    for keeper in &keepers {
        all.extend(ids(keeper, 20_000).await);
    }
    assert_eq!((workers.len(), all.len()), (2, 40_000));
}

#[tokio::test]
async fn a_released_worker_is_ones_own_again_at_once_and_ids_go_on_increasing() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let mut last = None;
    let mut workers = HashSet::new();
    for _ in 0..5 {
        let keeper = start(&store, config("me"));
        workers.insert(keeper.ready().await.unwrap().worker);
        let made = ids(&keeper, 5000).await;
        assert!(made.is_sorted() && last < Some(made[0]));
        last = made.last().copied();
        keeper.release(Duration::from_secs(5)).await;
        assert!(matches!(keeper.try_take(1), Err(NoId::NoLease { .. })), "released means no more ids");
    }
    assert_eq!(workers.len(), 1);
}

#[tokio::test]
async fn a_second_holder_of_a_fixed_worker_is_refused_with_the_name_of_the_first() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let fixed = WorkerChoice::Only(WorkerId(7));
    let first = start(&store, config("first:1").worker(fixed));
    assert_eq!(first.ready().await.unwrap().worker, Some(WorkerId(7)));
    let second = start(&store, config("second:1").worker(fixed));
    match second.ready().await {
        Err(LeaseFailure::Taken { worker, holder, .. }) => {
            assert_eq!((worker, holder.as_str()), (WorkerId(7), "first:1"));
        }
        other => panic!("{other:?}"),
    }
    assert!(first.try_take(1).is_ok(), "the first goes on");
}

/// Goal: a read that the node gave up by itself is told as one. Method: a store that answers nothing.
#[tokio::test]
async fn a_call_that_was_given_up_says_so() {
    let silent = Arc::new(CutOff::default());
    silent.fall_silent();
    let store: Arc<dyn Store> = silent;
    let keeper = start(&store, config("me").window(Duration::from_millis(800)));
    let why = until(|| keeper.status().waiting.filter(|why| why.contains("no answer"))).await;
    assert!(why.contains("no answer within 200 ms, this node's limit for a call"), "{why}");
    assert!(!why.contains("written or not"), "{why}");
}

#[tokio::test]
async fn without_the_store_it_mints_to_the_end_of_the_lease_and_goes_on_when_the_store_is_back() {
    let cut_off = Arc::new(CutOff::default());
    let store: Arc<dyn Store> = Arc::clone(&cut_off) as Arc<dyn Store>;
    let keeper = start(&store, config("me").window(Duration::from_millis(600)));
    let granted = keeper.ready().await.unwrap();
    cut_off.cut(true);
    let mut last = keeper.try_take(1).unwrap().next().unwrap();
    // Ids go on increasing until the lease has ended, not a timestamp longer.
    let (why, ended) = until(|| match keeper.try_take(1) {
        Ok(mut batch) => {
            last = batch.next().unwrap();
            None
        }
        Err(NoId::NoLease { why }) => Some((why, keeper.status().until_unix_ms.unwrap())),
        Err(other) => panic!("{other}"),
    })
    .await;
    assert!(why.starts_with("the lease ended at") && why.contains("unplugged"), "{why}");
    assert!(ended >= granted.until_unix_ms.unwrap());
    let parts = Layout::TWITTER.split(last).unwrap();
    assert!(Layout::TWITTER.unix_ms(parts.timestamp) < ended);
    assert!(keeper.status().store_errors > 0);
    cut_off.cut(false);
    let next = until(|| keeper.try_take(1).ok()).await.next().unwrap();
    assert!(next > last);
    assert_eq!(keeper.status().worker, granted.worker, "nobody else took it meanwhile");
}

#[tokio::test]
async fn a_worker_taken_by_another_is_replaced_without_a_gap() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let keeper = start(&store, config("me"));
    let first = keeper.ready().await.unwrap().worker.unwrap();
    let mut last = keeper.try_take(1).unwrap().next().unwrap();
    let key = pool().key(first).unwrap();
    // Somebody forces the worker out of its hands, at whatever revision it has.
    loop {
        let found = store.load(&key).await.unwrap().unwrap();
        let until_unix_ms = Record::from_bytes(&found.value).unwrap().until_unix_ms + 60_000;
        let thief =
            Record { holder: Holder::new("thief").unwrap(), from_unix_ms: None, until_unix_ms, tag: Tag(1) };
        let expected = Expected::Revision(found.revision);
        if matches!(store.compare_and_set(&key, expected, &thief.to_bytes()).await.unwrap(), Swap::Done(_)) {
            break;
        }
    }
    let taken = until(|| {
        let id = keeper.try_take(1).expect("no gap").next().unwrap();
        assert!(id > last, "and in order");
        last = id;
        keeper.status().worker.filter(|worker| *worker != first)
    })
    .await;
    assert_eq!(keeper.status().lost, 1);
    let id = keeper.try_take(1).unwrap().next().unwrap();
    assert_eq!(Layout::TWITTER.split(id).unwrap().worker, taken);
}

#[tokio::test]
async fn a_namespace_keeps_its_layout() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let name = NamespaceName::new("orders").unwrap();
    pin(&*store, &name, &Layout::TWITTER).await.unwrap();
    pin(&*store, &name, &Layout::TWITTER).await.unwrap();
    let other: Layout = "leaf".parse().unwrap();
    let error = pin(&*store, &name, &other).await.unwrap_err();
    assert!(matches!(error, NamespaceError::Mismatch { .. }));
    let text = error.to_string();
    assert!(text.contains(&Layout::TWITTER.to_string()) && text.contains(&other.to_string()), "{text}");
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_the_store_is_asked() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let clock = Arc::new(AnchoredClock::new());
    let refused =
        |config| Keeper::start(Arc::clone(&store), config, Arc::clone(&clock)).unwrap_err().to_string();
    let worker = refused(config("me").worker(WorkerChoice::Only(WorkerId(1024))));
    assert_eq!(worker, "worker 1024 is out of range: this layout has worker 0 to 31");
    let window = refused(config("me").window(Duration::from_millis(1)));
    assert!(window.contains("1ms") && window.contains("500ms"), "{window}");
    let pool = Pool::new(Layout::TWITTER, DatacenterId(32));
    let datacenter = refused(KeeperConfig::new(pool, Holder::new("me").unwrap()));
    assert_eq!(datacenter, "datacenter 32 is out of range: this layout has datacenter 0 to 31");
}

#[tokio::test]
async fn a_window_shorter_than_three_times_what_the_store_may_lose_is_refused() {
    let store: Arc<dyn Store> = Arc::new(CutOff::losing(Duration::from_secs(2)));
    let clock = Arc::new(AnchoredClock::new());
    let window = |ms| {
        let config = config("me").window(Duration::from_millis(ms));
        Keeper::start(Arc::clone(&store), config, Arc::clone(&clock)).map(drop)
    };
    let error = window(5999).unwrap_err().to_string();
    assert!(
        error.contains("window 5.999s") && error.contains("2s of writes") && error.contains("6s"),
        "{error}"
    );
    window(6000).unwrap();
}

/// Over a store that may lose its newest writes, the first id comes when the claim has settled, and not before.
#[tokio::test]
async fn a_claim_is_used_once_it_has_settled() {
    let loses = Duration::from_millis(700);
    let store: Arc<dyn Store> = Arc::new(CutOff::losing(loses));
    let began = tokio::time::Instant::now();
    let keeper = start(&store, config("me"));
    let waiting = until(|| keeper.status().waiting.filter(|why| why.contains("claimed"))).await;
    assert!(waiting.contains("once it has settled"), "{waiting}");
    keeper.ready().await.unwrap();
    assert!(began.elapsed() >= loses, "{:?}", began.elapsed());
    ids(&keeper, 10).await;
    assert_eq!(keeper.status().store_forgot, 0);
}

/// Goal: what another node was granted too, since the store forgot, is not used from then on. Method: the record is replaced by
/// one whose lease begins a second ago.
#[tokio::test]
async fn a_lease_that_another_was_granted_too_ends_at_once() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let keeper = start(&store, config("me"));
    let first = keeper.ready().await.unwrap().worker.unwrap();
    ids(&keeper, 1).await;
    let key = pool().key(first).unwrap();
    loop {
        let found = store.load(&key).await.unwrap().unwrap();
        let until_unix_ms = Record::from_bytes(&found.value).unwrap().until_unix_ms;
        let thief = Record {
            holder: Holder::new("thief").unwrap(),
            from_unix_ms: Some(until_unix_ms - 1000),
            until_unix_ms: until_unix_ms + 60_000,
            tag: Tag(1),
        };
        let expected = Expected::Revision(found.revision);
        if matches!(store.compare_and_set(&key, expected, &thief.to_bytes()).await.unwrap(), Swap::Done(_)) {
            break;
        }
    }
    until(|| (keeper.status().overlaps == 1).then_some(())).await;
    let status = keeper.status();
    assert_eq!((status.worker, status.store_forgot, status.lost), (None, 1, 0));
    assert!(status.waiting.as_ref().is_some_and(|why| why.contains("thief")), "{status:?}");
    let none = keeper.try_take(1).unwrap_err();
    assert!(matches!(none, NoId::NoLease { .. }), "{none}");
    // After a window another is taken.
    let next = until(|| keeper.status().worker).await;
    assert_ne!(next, first);
}
