//! Goal: a node with several leases is to the store what several nodes are, and to its callers one source of increasing
//! ids, that grows and shrinks with the load.
//! Method: keepers on one SQLite file or one memory store, real clocks; nothing waits for a fixed time, only for what is
//! to happen. The slowest takes 9 s.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cut_off;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cut_off::{CutOff, until};
use snowmint::{AnchoredClock, DatacenterId, Id, Layout, WorkerId};
use snowmint_cluster::lease::{Record, directory};
use snowmint_cluster::{
    Caller, Holder, KeeperConfig, Keepers, LeaseFailure, NoId, Pool, WorkerChoice, Workers,
};
use snowmint_store::{Expected, MemoryStore, SqliteStore, Store, Swap};

const PATIENCE: Duration = Duration::from_secs(5);

fn pool(layout: &str) -> Pool {
    Pool::new(layout.parse().unwrap(), DatacenterId(0))
}

fn config(layout: &str, holder: &str) -> KeeperConfig {
    KeeperConfig::new(pool(layout), Holder::new(holder).unwrap()).window(Duration::from_secs(5))
}

fn start(store: &Arc<dyn Store>, config: KeeperConfig, workers: &str) -> Keepers {
    let clock = Arc::new(AnchoredClock::new());
    Keepers::start(Arc::clone(store), config, workers.parse().unwrap(), clock).unwrap()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

async fn ids(keepers: &Keepers, caller: &mut Caller, count: usize) -> Vec<Id> {
    keepers.take(caller, count).await.unwrap().into_iter().flatten().collect()
}

fn workers_of(keepers: &Keepers) -> BTreeSet<WorkerId> {
    keepers.leases().iter().filter_map(|lease| lease.worker).collect()
}

async fn all_held(keepers: &Keepers, count: usize) -> BTreeSet<WorkerId> {
    until(|| Some(workers_of(keepers)).filter(|workers| workers.len() == count)).await
}

#[tokio::test]
async fn one_of_one_keeps_its_worker_over_restarts_and_ids_go_on_increasing() {
    let store = memory();
    let mut last = None;
    let mut workers = HashSet::new();
    for _ in 0..5 {
        let keepers = start(&store, config("twitter", "me"), "1");
        workers.insert(keepers.ready().await.unwrap().worker);
        let mut caller = keepers.caller();
        let made = ids(&keepers, &mut caller, 5000).await;
        assert!(made.is_sorted() && last < Some(made[0]));
        last = made.last().copied();
        keepers.release(PATIENCE).await;
        assert!(
            matches!(keepers.try_take(&mut caller, 1), Err(NoId::NoLease { .. })),
            "released means no more ids"
        );
    }
    assert_eq!(workers.len(), 1);
}

#[tokio::test]
async fn several_leases_have_workers_names_and_tags_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> =
        Arc::new(SqliteStore::open(&folder.path().join("snowmint.db")).await.unwrap());
    let keepers = start(&store, config("twitter", "me"), "3");
    let workers = all_held(&keepers, 3).await;
    let entries = directory::leases(&*store).await.unwrap();
    let records: Vec<Record> = entries.into_iter().map(|entry| entry.record.unwrap()).collect();
    let holders: BTreeSet<&str> = records.iter().map(|record| record.holder.as_str()).collect();
    assert_eq!(holders, BTreeSet::from(["me", "me/2", "me/3"]));
    assert_eq!(records.iter().map(|record| record.tag.0 >> 64).collect::<HashSet<_>>().len(), 3);

    let mut all = HashSet::new();
    let mut used = BTreeSet::new();
    let mut callers: Vec<Caller> = (0..4).map(|_| keepers.caller()).collect();
    for caller in &mut callers {
        let made = ids(&keepers, caller, 30_000).await;
        assert!(made.is_sorted());
        used.extend(made.iter().map(|id| Layout::TWITTER.split(*id).unwrap().worker));
        all.extend(made);
    }
    assert_eq!((all.len(), used), (120_000, workers.clone()));

    keepers.release(PATIENCE).await;
    let again = start(&store, config("twitter", "me"), "3");
    assert_eq!(all_held(&again, 3).await, workers, "each has its own worker again");
}

/// The store is away for longer than the leases last: each slot finds its own record as it left it.
#[tokio::test]
async fn after_an_outage_each_lease_goes_on_with_its_own_worker() {
    let cut_off = Arc::new(CutOff::default());
    let store: Arc<dyn Store> = Arc::clone(&cut_off) as Arc<dyn Store>;
    let keepers = start(&store, config("twitter", "me").window(Duration::from_millis(600)), "2");
    let workers = all_held(&keepers, 2).await;
    let mut caller = keepers.caller();
    let mut last = ids(&keepers, &mut caller, 1).await[0];
    cut_off.cut(true);
    let why = until(|| match keepers.try_take(&mut caller, 1) {
        Ok(mut batch) => {
            last = batch.next().unwrap();
            None
        }
        Err(NoId::NoLease { why }) => Some(why),
        Err(other) => panic!("{other}"),
    })
    .await;
    assert!(why.contains("the lease ended at") && why.contains("unplugged"), "{why}");
    cut_off.cut(false);
    let next = until(|| keepers.try_take(&mut caller, 1).ok()).await.next().unwrap();
    assert!(next > last);
    assert_eq!(all_held(&keepers, 2).await, workers);
    assert_eq!(keepers.status().lost, 0, "neither took the other's");
}

/// Goal: when the store is away for longer than all leases last, that is told, whichever of them ended last: waiting is
/// no answer any more. Method: their renewals are apart by then, one way and the other.
#[tokio::test]
async fn leases_that_ended_one_after_the_other_are_an_error_and_nothing_to_wait_for() {
    for last in [1, 0] {
        let cut_off = Arc::new(CutOff::default());
        let store: Arc<dyn Store> = Arc::clone(&cut_off) as Arc<dyn Store>;
        let keepers = start(&store, config("twitter", "me").window(Duration::from_secs(2)), "2");
        all_held(&keepers, 2).await;
        until(|| {
            let ends: Vec<_> = keepers.leases().iter().map(|lease| lease.until_unix_ms.unwrap()).collect();
            (ends[1 - last] + 5 < ends[last]).then_some(())
        })
        .await;
        cut_off.cut(true);
        let mut caller = keepers.caller();
        let refused = async {
            loop {
                if let Err(no_id) = keepers.take(&mut caller, 1).await {
                    return no_id;
                }
            }
        };
        let refused = tokio::time::timeout(Duration::from_secs(10), refused).await;
        let ended = snowmint::utc::Utc(keepers.status().until_unix_ms.unwrap());
        for no_id in [refused.expect("it waits for nothing"), keepers.try_take(&mut caller, 1).unwrap_err()] {
            let NoId::NoLease { why } = no_id else { panic!("{no_id:?}") };
            assert!(why.starts_with(&format!("the lease ended at {ended}")), "{why}, not {ended}");
            assert!(why.contains("unplugged"), "{why}");
        }
    }
}

#[tokio::test]
async fn pools_side_by_side_on_one_store_do_not_meet() {
    let store = memory();
    let layouts = ["twitter", "leaf", "time:41@1ms worker:1 sequence:4 epoch:2020-01-01"];
    let nodes: Vec<Keepers> = layouts.iter().map(|layout| start(&store, config(layout, "me"), "2")).collect();
    for (keepers, layout) in nodes.iter().zip(layouts) {
        let workers = all_held(keepers, 2).await;
        let mut caller = keepers.caller();
        let layout: Layout = layout.parse().unwrap();
        for id in ids(keepers, &mut caller, 200).await {
            assert!(workers.contains(&layout.split(id).unwrap().worker));
        }
    }
    let pools: BTreeSet<String> =
        directory::leases(&*store).await.unwrap().into_iter().map(|entry| entry.pool).collect();
    assert_eq!(pools.len(), 3);
}

/// Goal: as many nodes as workers, each restarted in turn: none waits for a lease to lapse.
/// Method: a window far longer than the test.
#[tokio::test]
async fn a_rolling_restart_with_no_worker_to_spare_waits_for_nothing() {
    const FOUR: &str = "time:41@1ms worker:2 sequence:12 epoch:2020-01-01";
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> =
        Arc::new(SqliteStore::open(&folder.path().join("snowmint.db")).await.unwrap());
    let config = |node: usize| config(FOUR, &format!("node-{node}")).window(Duration::from_mins(10));
    let mut nodes: Vec<Keepers> = (0..4).map(|node| start(&store, config(node), "1")).collect();
    let mut workers = BTreeMap::new();
    for (node, keepers) in nodes.iter().enumerate() {
        workers.insert(node, keepers.ready().await.unwrap().worker);
    }
    assert_eq!(workers.values().collect::<HashSet<_>>().len(), 4);
    let mut seen = HashSet::new();
    for node in 0..4 {
        nodes[node].release(PATIENCE).await;
        nodes[node] = start(&store, config(node), "1");
        let ready = tokio::time::timeout(Duration::from_mins(1), nodes[node].ready()).await;
        assert_eq!(ready.expect("it waits for no lease to lapse").unwrap().worker, workers[&node]);
        for keepers in &nodes {
            let mut caller = keepers.caller();
            assert!(ids(keepers, &mut caller, 1000).await.into_iter().all(|id| seen.insert(id)));
        }
    }
}

#[tokio::test]
async fn when_all_workers_are_taken_it_says_who_frees_first_and_when() {
    const TWO: &str = "time:41@1ms worker:1 sequence:12 epoch:2020-01-01";
    let store = memory();
    let first = start(&store, config(TWO, "first").window(Duration::from_secs(30)), "1");
    let second = start(&store, config(TWO, "second").window(Duration::from_secs(90)), "1");
    let lease = first.ready().await.unwrap();
    second.ready().await.unwrap();
    let third = start(&store, config(TWO, "third"), "1");
    let why = until(|| match third.try_take(&mut third.caller(), 1) {
        Err(NoId::NoLease { why }) if why.contains("no worker is free") => Some(why),
        _ => None,
    })
    .await;
    let (worker, frees) = (lease.worker.unwrap(), snowmint::utc::Utc(lease.until_unix_ms.unwrap()));
    assert!(
        why.contains(&format!("worker {worker} frees first, at {frees}, if first does not renew it")),
        "{why}"
    );
}

#[tokio::test]
async fn a_fixed_worker_whose_record_cannot_be_read_is_refused_with_its_key() {
    let store = memory();
    let key = pool("twitter").key(WorkerId(7)).unwrap();
    assert!(matches!(store.compare_and_set(&key, Expected::Absent, b"{").await.unwrap(), Swap::Done(_)));
    let keepers = start(&store, config("twitter", "me").worker(WorkerChoice::Only(WorkerId(7))), "1");
    let refused = keepers.ready().await.unwrap_err();
    assert!(matches!(refused, LeaseFailure::Unreadable { worker: WorkerId(7), .. }), "{refused}");
    assert!(refused.to_string().contains(key.as_str()), "{refused}");
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_the_store_is_asked() {
    let store = memory();
    let refused = |config: KeeperConfig, workers: &str| {
        let clock = Arc::new(AnchoredClock::new());
        let workers: Workers = workers.parse().unwrap();
        Keepers::start(Arc::clone(&store), config, workers, clock).unwrap_err().to_string()
    };
    let fixed = refused(config("twitter", "me").worker(WorkerChoice::Only(WorkerId(3))), "1..2");
    assert_eq!(fixed, "worker 3 is one worker, 1..2 were asked for: leave one of the two away");
    let many = refused(config("time:41@1ms worker:1 sequence:12 epoch:2020-01-01", "me"), "1..3");
    assert!(many.contains("invalid worker count 1..3: expected at most 2"), "{many}");
}

/// Goal: load that one worker cannot carry takes another lease, and goes back to one when it ends. Method: two callers
/// draw flat out on a layout of 16 ids a tick; the window is short, so that three of them are. Takes about 9 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_grows_under_load_and_shrinks_when_idle() {
    const SMALL: &str = "time:41@1ms worker:3 sequence:4 epoch:2020-01-01";
    let store = memory();
    let keepers = start(&store, config(SMALL, "me").window(Duration::from_millis(600)), "1..2");
    keepers.ready().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let draw = || {
        let (keepers, stop) = (keepers.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut caller = keepers.caller();
            let mut made = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                made.extend(ids(&keepers, &mut caller, 5).await);
            }
            made
        })
    };
    let drawing = [draw(), draw()];
    all_held(&keepers, 2).await;
    // Both are drawn from, once callers have found the second one.
    tokio::time::sleep(Duration::from_millis(200)).await;
    stop.store(true, Ordering::Relaxed);
    let mut seen = HashSet::new();
    let mut workers = BTreeSet::new();
    for made in drawing {
        let made = made.await.unwrap();
        assert!(made.windows(2).all(|two| two[0] < two[1]), "a caller's ids went back");
        let layout: Layout = SMALL.parse().unwrap();
        workers.extend(made.iter().map(|id| layout.split(*id).unwrap().worker));
        assert!(made.into_iter().all(|id| seen.insert(id)), "an id came twice");
    }
    assert_eq!(workers, workers_of(&keepers));
    let renewals = keepers.status().renewals;
    all_held(&keepers, 1).await;
    until(|| (keepers.leases().len() == 1).then_some(())).await;
    assert!(keepers.status().renewals >= renewals, "what the lease that is gone counted still counts");
    keepers.release(PATIENCE).await;
    assert_eq!(workers_of(&keepers).len(), 0);
}
