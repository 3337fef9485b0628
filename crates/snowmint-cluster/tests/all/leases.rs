//! Goal: leases keep the protocol's promises on real stores and real clocks. A node with several leases looks
//! like several nodes to the store, and like one source of increasing ids to its handles, and grows and
//! shrinks with the load. Method: leases on one SQLite file or one memory store, and a store that can be cut
//! off. The tests wait for events, not for fixed times. The slowest takes 9 s.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::cut_off_store::{CutOff, until};
use snowmint::{Clock as _, DatacenterId, Id, Layout, WallClock, WorkerId};
use snowmint_cluster::lease::{Granted, Record, Tag, admin};
use snowmint_cluster::{
    Holder, LeaseConfig, LeaseError, LeaseHandle, Leases, NamespaceError, NamespaceName, NextIdError,
    WorkerChoice, WorkerCount, WorkerPool, pin,
};
use snowmint_store::{Expected, MemoryStore, SqliteStore, Store, StoreErrorKind, Swap};

const PATIENCE: Duration = Duration::from_secs(5);

fn pool(layout: &str) -> WorkerPool {
    WorkerPool::new(layout.parse().unwrap(), DatacenterId(0))
}

fn config(layout: &str, holder: &str) -> LeaseConfig {
    LeaseConfig::new(pool(layout), Holder::new(holder).unwrap()).window(Duration::from_secs(5))
}

fn start(store: &Arc<dyn Store>, config: LeaseConfig) -> Leases {
    Leases::start(Arc::clone(store), config).unwrap()
}

fn count(workers: &str) -> WorkerCount {
    workers.parse().unwrap()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

async fn ids(handle: &mut LeaseHandle, count: usize) -> Vec<Id> {
    handle.take(count).await.unwrap().into_iter().flatten().collect()
}

fn workers_of(leases: &Leases) -> BTreeSet<WorkerId> {
    leases.statuses().iter().filter_map(|lease| lease.worker).collect()
}

async fn all_held(leases: &Leases, count: usize) -> BTreeSet<WorkerId> {
    until(|| Some(workers_of(leases)).filter(|workers| workers.len() == count)).await
}

/// Replaces the record of a worker, whatever its revision.
async fn replace_record(store: &dyn Store, worker: WorkerId, with: impl Fn(Record) -> Record) {
    let key = pool("twitter").key(worker).unwrap();
    loop {
        let found = store.load(&key).await.unwrap().unwrap();
        let record = with(Record::from_bytes(&found.value).unwrap());
        let expected = Expected::Revision(found.revision);
        if matches!(store.compare_and_set(&key, expected, &record.to_bytes()).await.unwrap(), Swap::Done(_)) {
            return;
        }
    }
}

#[tokio::test]
async fn one_of_one_keeps_its_worker_over_restarts_and_ids_go_on_increasing() {
    let store = memory();
    let mut last = None;
    let mut workers = HashSet::new();
    for _ in 0..5 {
        let leases = start(&store, config("twitter", "me"));
        workers.insert(leases.ready().await.unwrap().worker);
        let mut handle = leases.handle();
        let made = ids(&mut handle, 5000).await;
        assert!(made.is_sorted() && last < Some(made[0]));
        last = made.last().copied();
        leases.release(PATIENCE).await;
        assert!(matches!(handle.try_take(1), Err(NextIdError::NoLease { .. })), "released means no more ids");
    }
    assert_eq!(workers.len(), 1);
}

#[tokio::test]
async fn several_leases_have_workers_names_and_tags_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> =
        Arc::new(SqliteStore::open(&folder.path().join("snowmint.db")).await.unwrap());
    let leases = start(&store, config("twitter", "me").worker_count(count("3")));
    let workers = all_held(&leases, 3).await;
    let entries = admin::leases(&*store).await.unwrap();
    let records: Vec<Record> = entries.into_iter().map(|entry| entry.record.unwrap()).collect();
    let holders: BTreeSet<&str> = records.iter().map(|record| record.holder.as_str()).collect();
    assert_eq!(holders, BTreeSet::from(["me", "me/2", "me/3"]));
    assert_eq!(records.iter().map(|record| record.tag.0 >> 64).collect::<HashSet<_>>().len(), 3);

    let mut all = HashSet::new();
    let mut used = BTreeSet::new();
    let mut handles: Vec<LeaseHandle> = (0..4).map(|_| leases.handle()).collect();
    for handle in &mut handles {
        let made = ids(handle, 30_000).await;
        assert!(made.is_sorted());
        used.extend(made.iter().map(|id| Layout::TWITTER.split(*id).unwrap().worker));
        all.extend(made);
    }
    assert_eq!((all.len(), used), (120_000, workers.clone()));

    leases.release(PATIENCE).await;
    let again = start(&store, config("twitter", "me").worker_count(count("3")));
    assert_eq!(all_held(&again, 3).await, workers, "each has its own worker again");
}

/// Goal: an error that retrying does not mend is in the status while the lease lasts, as one that may end by
/// itself is. Method: a store that refuses writes, then one that is unreachable.
#[tokio::test]
async fn every_error_of_the_store_is_in_the_status_while_the_lease_lasts() {
    let cut_off = Arc::new(CutOff::default());
    let store: Arc<dyn Store> = Arc::clone(&cut_off) as Arc<dyn Store>;
    let leases = start(&store, config("twitter", "me").window(Duration::from_secs(6)));
    leases.ready().await.unwrap();
    for kind in [StoreErrorKind::Full, StoreErrorKind::Unavailable] {
        cut_off.fails_with(Some(kind));
        let status = until(|| Some(leases.status()).filter(|status| status.trouble.is_some())).await;
        assert!(status.trouble.unwrap().contains("unplugged") && status.worker.is_some());
        cut_off.fails_with(None);
        until(|| leases.status().trouble.is_none().then_some(())).await;
        assert!(leases.status().failure.is_none());
    }
}

/// The store is down for longer than the leases last. Then each lease finds its own record.
#[tokio::test]
async fn after_an_outage_each_lease_goes_on_with_its_own_worker() {
    let cut_off = Arc::new(CutOff::default());
    let store: Arc<dyn Store> = Arc::clone(&cut_off) as Arc<dyn Store>;
    let leases =
        start(&store, config("twitter", "me").window(Duration::from_millis(600)).worker_count(count("2")));
    let workers = all_held(&leases, 2).await;
    let mut handle = leases.handle();
    let mut last = ids(&mut handle, 1).await[0];
    cut_off.cut(true);
    let why = until(|| match handle.try_take(1) {
        Ok(mut batch) => {
            last = batch.next().unwrap();
            None
        }
        Err(NextIdError::NoLease { why }) => Some(why),
        Err(other) => panic!("{other}"),
    })
    .await;
    assert!(why.contains("the lease ended at") && why.contains("unplugged"), "{why}");
    cut_off.cut(false);
    let next = until(|| handle.try_take(1).ok()).await.next().unwrap();
    assert!(next > last);
    assert_eq!(all_held(&leases, 2).await, workers);
    assert_eq!(leases.status().lost, 0, "neither took the other's");
}

/// Goal: when the store is down for longer than all leases last, callers get an error, whichever lease ended
/// last, because waiting does not help. Method: the leases end at different times, in both orders.
#[tokio::test]
async fn leases_that_ended_one_after_the_other_are_an_error_and_nothing_to_wait_for() {
    for last in [1, 0] {
        let cut_off = Arc::new(CutOff::default());
        let store: Arc<dyn Store> = Arc::clone(&cut_off) as Arc<dyn Store>;
        let leases =
            start(&store, config("twitter", "me").window(Duration::from_secs(2)).worker_count(count("2")));
        all_held(&leases, 2).await;
        until(|| {
            let ends: Vec<_> = leases.statuses().iter().map(|lease| lease.until_unix_ms.unwrap()).collect();
            (ends[1 - last] + 5 < ends[last]).then_some(())
        })
        .await;
        cut_off.cut(true);
        let mut handle = leases.handle();
        let refused = async {
            loop {
                if let Err(no_id) = handle.take(1).await {
                    return no_id;
                }
            }
        };
        let refused = tokio::time::timeout(Duration::from_secs(10), refused).await;
        let ended = snowmint::utc::Utc(leases.status().until_unix_ms.unwrap());
        for no_id in [refused.expect("it waits for nothing"), handle.try_take(1).unwrap_err()] {
            let NextIdError::NoLease { why } = no_id else { panic!("{no_id:?}") };
            assert!(why.starts_with(&format!("the lease ended at {ended}")), "{why}, not {ended}");
            assert!(why.contains("unplugged"), "{why}");
        }
    }
}

#[tokio::test]
async fn pools_side_by_side_on_one_store_do_not_meet() {
    let store = memory();
    let layouts = ["twitter", "leaf", "time:41@1ms worker:1 sequence:4 epoch:2020-01-01"];
    let nodes: Vec<Leases> =
        layouts.iter().map(|layout| start(&store, config(layout, "me").worker_count(count("2")))).collect();
    for (leases, layout) in nodes.iter().zip(layouts) {
        let workers = all_held(leases, 2).await;
        let mut handle = leases.handle();
        let layout: Layout = layout.parse().unwrap();
        for id in ids(&mut handle, 200).await {
            assert!(workers.contains(&layout.split(id).unwrap().worker));
        }
    }
    let pools: BTreeSet<String> =
        admin::leases(&*store).await.unwrap().into_iter().map(|entry| entry.pool).collect();
    assert_eq!(pools.len(), 3);
}

/// Goal: with as many nodes as workers, each restarted in turn, no node waits for a lease to end.
/// Method: a window far longer than the test.
#[tokio::test]
async fn a_rolling_restart_with_no_worker_to_spare_waits_for_nothing() {
    const FOUR: &str = "time:41@1ms worker:2 sequence:12 epoch:2020-01-01";
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> =
        Arc::new(SqliteStore::open(&folder.path().join("snowmint.db")).await.unwrap());
    let config = |node: usize| config(FOUR, &format!("node-{node}")).window(Duration::from_mins(10));
    let mut nodes: Vec<Leases> = (0..4).map(|node| start(&store, config(node))).collect();
    let mut workers = BTreeMap::new();
    for (node, leases) in nodes.iter().enumerate() {
        workers.insert(node, leases.ready().await.unwrap().worker);
    }
    assert_eq!(workers.values().collect::<HashSet<_>>().len(), 4);
    let mut seen = HashSet::new();
    for node in 0..4 {
        nodes[node].release(PATIENCE).await;
        nodes[node] = start(&store, config(node));
        let ready = tokio::time::timeout(Duration::from_mins(1), nodes[node].ready()).await;
        assert_eq!(ready.expect("it waits for no lease to lapse").unwrap().worker, workers[&node]);
        for leases in &nodes {
            let mut handle = leases.handle();
            assert!(ids(&mut handle, 1000).await.into_iter().all(|id| seen.insert(id)));
        }
    }
}

#[tokio::test]
async fn when_all_workers_are_taken_it_says_who_frees_first_and_when() {
    const TWO: &str = "time:41@1ms worker:1 sequence:12 epoch:2020-01-01";
    let store = memory();
    let first = start(&store, config(TWO, "first").window(Duration::from_secs(30)));
    let second = start(&store, config(TWO, "second").window(Duration::from_secs(90)));
    let lease = first.ready().await.unwrap();
    second.ready().await.unwrap();
    assert!(!first.status().none_free);
    let third = start(&store, config(TWO, "third"));
    let why = until(|| match third.handle().try_take(1) {
        Err(NextIdError::NoLease { why }) if why.contains("no worker is free") => Some(why),
        _ => None,
    })
    .await;
    assert!(third.status().none_free);
    let (worker, frees) = (lease.worker.unwrap(), snowmint::utc::Utc(lease.until_unix_ms.unwrap()));
    assert!(
        why.contains(&format!("worker {worker} frees first, at {frees}, if first does not renew it")),
        "{why}"
    );
}

/// Goal: a failure that has passed ends nobody's wait. Method: a read-only store recovers, or fails
/// differently, while no worker is free.
#[tokio::test]
async fn a_failure_lasts_only_until_the_store_says_otherwise() {
    const ONE: &str = "time:41@1ms sequence:12 epoch:2020-01-01";
    let cut_off = Arc::new(CutOff::default());
    let store: Arc<dyn Store> = Arc::clone(&cut_off) as Arc<dyn Store>;
    let first = start(&store, config(ONE, "first").window(Duration::from_secs(90)));
    first.ready().await.unwrap();
    let second = start(&store, config(ONE, "second").window(Duration::from_secs(90)));
    for then in [None, Some(StoreErrorKind::Unavailable)] {
        cut_off.fails_with(Some(StoreErrorKind::ReadOnly));
        let refused = until(|| second.status().failure).await;
        assert!(refused.to_string().contains("read-only"), "{refused}");
        assert!(second.ready().await.is_err());
        cut_off.fails_with(then);
        until(|| second.status().failure.is_none().then_some(())).await;
        let waiting = second.status().waiting.unwrap();
        let said = if then.is_some() { "unplugged" } else { "no worker is free" };
        assert!(waiting.contains(said), "{waiting}");
    }
}

#[tokio::test]
async fn a_fixed_worker_whose_record_cannot_be_read_is_refused_with_its_key() {
    let store = memory();
    let key = pool("twitter").key(WorkerId(7)).unwrap();
    assert!(matches!(store.compare_and_set(&key, Expected::Absent, b"{").await.unwrap(), Swap::Done(_)));
    let leases = start(&store, config("twitter", "me").worker_choice(WorkerChoice::Only(WorkerId(7))));
    let refused = leases.ready().await.unwrap_err();
    assert!(matches!(refused, LeaseError::Unreadable { worker: WorkerId(7), .. }), "{refused}");
    assert!(refused.to_string().contains(key.as_str()), "{refused}");
}

#[tokio::test]
async fn invalid_settings_are_rejected_before_the_store_is_called() {
    let store = memory();
    let rejected = |config: LeaseConfig| Leases::start(Arc::clone(&store), config).unwrap_err().to_string();
    let only = |worker| config("twitter", "me").worker_choice(WorkerChoice::Only(WorkerId(worker)));
    assert_eq!(rejected(only(1024)), "worker 1024 is out of range: this layout has worker 0 to 31");
    let fixed = rejected(only(3).worker_count(count("1..2")));
    assert_eq!(
        fixed,
        "invalid worker count 1..2: expected 1 with a fixed worker (3); remove one of the two settings"
    );
    let many = config("time:41@1ms worker:1 sequence:12 epoch:2020-01-01", "me").worker_count(count("1..3"));
    assert!(rejected(many).contains("invalid worker count 1..3: expected at most 2"));
    let window = rejected(config("twitter", "me").window(Duration::from_millis(1)));
    assert!(window.contains("1ms") && window.contains("500ms"), "{window}");
    let elsewhere = WorkerPool::new(Layout::TWITTER, DatacenterId(32));
    let datacenter = rejected(LeaseConfig::new(elsewhere, Holder::new("me").unwrap()));
    assert_eq!(datacenter, "datacenter 32 is out of range: this layout has datacenter 0 to 31");
}

#[tokio::test]
async fn two_nodes_on_one_sqlite_file_have_two_workers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snowmint.db");
    let mut all = HashSet::new();
    let mut workers = HashSet::new();
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).await.unwrap());
        let leases = start(&store, config("twitter", name));
        workers.insert(leases.ready().await.unwrap().worker.unwrap());
        nodes.push(leases);
    }
    for leases in &nodes {
        all.extend(ids(&mut leases.handle(), 20_000).await);
    }
    assert_eq!((workers.len(), all.len()), (2, 40_000));
}

#[tokio::test]
async fn a_second_holder_of_a_fixed_worker_is_refused_with_the_name_of_the_first() {
    let store: Arc<dyn Store> = memory();
    let fixed = WorkerChoice::Only(WorkerId(7));
    let first = start(&store, config("twitter", "first:1").worker_choice(fixed));
    assert_eq!(first.ready().await.unwrap().worker, Some(WorkerId(7)));
    let second = start(&store, config("twitter", "second:1").worker_choice(fixed));
    match second.ready().await {
        Err(LeaseError::Taken { worker, holder, .. }) => {
            assert_eq!((worker, holder.as_str()), (WorkerId(7), "first:1"));
        }
        other => panic!("{other:?}"),
    }
    assert!(first.handle().try_take(1).is_ok(), "the first goes on");
}

/// Goal: the error of a call that the node abandoned says so. Method: a store that never answers.
#[tokio::test]
async fn a_call_that_was_given_up_says_so() {
    let silent = Arc::new(CutOff::default());
    silent.fall_silent();
    let store: Arc<dyn Store> = silent;
    let leases = start(&store, config("twitter", "me").window(Duration::from_millis(800)));
    let why = until(|| leases.status().waiting.filter(|why| why.contains("no answer"))).await;
    assert!(why.contains("no answer within 200 ms, this node's limit for a call"), "{why}");
    assert!(!why.contains("the write may have happened"), "{why}");
}

#[tokio::test]
async fn without_the_store_it_mints_to_the_end_of_the_lease_and_goes_on_when_the_store_is_back() {
    let cut_off = Arc::new(CutOff::default());
    let store: Arc<dyn Store> = Arc::clone(&cut_off) as Arc<dyn Store>;
    let leases = start(&store, config("twitter", "me").window(Duration::from_secs(3)));
    let granted = leases.ready().await.unwrap();
    let mut handle = leases.handle();
    let mut last = ids(&mut handle, 1).await[0];
    cut_off.cut(true);
    // Ids keep increasing until the lease has ended, and not one timestamp longer.
    let (why, ended) = until(|| match handle.try_take(1) {
        Ok(mut batch) => {
            last = batch.next().unwrap();
            None
        }
        Err(NextIdError::NoLease { why }) => Some((why, leases.status().until_unix_ms.unwrap())),
        Err(NextIdError::Refused(_)) => None,
        Err(other) => panic!("{other}"),
    })
    .await;
    assert!(why.starts_with("the lease ended at") && why.contains("unplugged"), "{why}");
    assert!(ended >= granted.until_unix_ms.unwrap());
    let parts = Layout::TWITTER.split(last).unwrap();
    assert!(Layout::TWITTER.unix_ms(parts.timestamp) < ended);
    assert!(leases.status().store_errors > 0);
    cut_off.cut(false);
    let next = until(|| handle.try_take(1).ok()).await.next().unwrap();
    assert!(next > last);
    assert_eq!(leases.status().worker, granted.worker, "nobody else took it meanwhile");
}

/// The window is so long that even a machine which stalls for seconds leaves no gap.
#[tokio::test]
async fn a_worker_taken_by_another_is_replaced_without_a_gap() {
    let store: Arc<dyn Store> = memory();
    let leases = start(&store, config("twitter", "me").window(Duration::from_secs(15)));
    let first = leases.ready().await.unwrap().worker.unwrap();
    let mut handle = leases.handle();
    let mut last = handle.try_take(1).unwrap().next().unwrap();
    let thief = |record: Record| {
        let until_unix_ms = record.until_unix_ms + 60_000;
        Record {
            holder: Holder::new("thief").unwrap(),
            from_unix_ms: None,
            until_unix_ms,
            tag: Tag(1),
            granted: Granted::up_to(until_unix_ms),
            released: false,
        }
    };
    replace_record(&*store, first, thief).await;
    let taken = until(|| {
        let id = handle.try_take(1).expect("no gap").next().unwrap();
        assert!(id > last, "and in order");
        last = id;
        leases.status().worker.filter(|worker| *worker != first)
    })
    .await;
    assert_eq!(leases.status().lost, 1);
    let id = handle.try_take(1).unwrap().next().unwrap();
    assert_eq!(Layout::TWITTER.split(id).unwrap().worker, taken);
}

#[tokio::test]
async fn a_namespace_keeps_its_layout() {
    let store: Arc<dyn Store> = memory();
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
async fn a_window_shorter_than_three_times_what_the_store_may_lose_is_refused() {
    let store: Arc<dyn Store> = Arc::new(CutOff::losing(Duration::from_secs(2)));
    let window = |ms| {
        let config = config("twitter", "me").window(Duration::from_millis(ms));
        Leases::start(Arc::clone(&store), config).map(drop)
    };
    let error = window(5999).unwrap_err().to_string();
    assert!(
        error.contains("window 5.999s") && error.contains("2s of writes") && error.contains("6s"),
        "{error}"
    );
    window(6000).unwrap();
}

/// Over a store that may lose its newest writes, the first id comes when the claim has settled, and not
/// before.
#[tokio::test]
async fn a_claim_is_used_once_it_has_settled() {
    let loses = Duration::from_millis(700);
    let store: Arc<dyn Store> = Arc::new(CutOff::losing(loses));
    let began = tokio::time::Instant::now();
    let leases = start(&store, config("twitter", "me"));
    let waiting = until(|| leases.status().waiting.filter(|why| why.contains("claimed"))).await;
    assert!(waiting.contains("once it has settled"), "{waiting}");
    leases.ready().await.unwrap();
    let mut handle = leases.handle();
    assert!(began.elapsed() >= loses, "{:?}", began.elapsed());
    ids(&mut handle, 10).await;
    assert_eq!(leases.status().store_forgot, 0);
}

/// Goal: over a store without a clock, a node that is far ahead of one that renews its lease takes no worker,
/// also if the store failed at its start. Leases that nobody renews delay one start, and no later one.
/// Method: the record of another node, from an hour ago.
#[tokio::test]
async fn a_node_far_ahead_of_one_that_renews_is_refused() {
    let failing = Arc::new(CutOff::default());
    let store = Arc::clone(&failing) as Arc<dyn Store>;
    let window = Duration::from_secs(2);
    let started = |holder: &str| start(&store, config("twitter", holder).window(window));
    let other = started("other");
    let worker = other.ready().await.unwrap().worker.unwrap();
    other.release(PATIENCE).await;
    let hour_ago = |record: Record| {
        let until_unix_ms = WallClock.unix_ms() - 3_600_000;
        let granted = Granted::up_to(until_unix_ms);
        Record { from_unix_ms: None, until_unix_ms, tag: Tag(1), granted, released: false, ..record }
    };
    replace_record(&*store, worker, hour_ago).await;
    failing.cut(true);
    let ahead = started("ahead");
    until(|| (ahead.status().store_errors > 0).then_some(())).await;
    failing.cut(false);
    let renewing = async {
        loop {
            replace_record(&*store, worker, hour_ago).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let refused = tokio::select! {
        refused = ahead.ready() => refused.unwrap_err(),
        () = renewing => unreachable!(),
    };
    assert!(matches!(refused, LeaseError::AheadOfNode { worker: found, .. } if found == worker), "{refused}");
    // It no longer renews.
    until(|| ahead.status().worker).await;
    let records = admin::leases(&*store).await.unwrap();
    let marked = records.iter().find(|entry| entry.worker == worker).unwrap().record.as_ref().unwrap();
    assert!(marked.released);
    let third = started("third");
    let waited = tokio::select! {
        ready = third.ready() => ready.map(|_| false).unwrap(),
        _ = until(|| third.status().waiting.filter(|why| why.contains("longer than clocks may differ"))) => true,
    };
    assert!(!waited, "the lease is marked as released");
}

/// Goal: a lease ends immediately if another node was granted a part of it, because the store forgot. Method:
/// its record is replaced by one whose lease begins before its end.
#[tokio::test]
async fn a_lease_that_another_was_granted_too_ends_at_once() {
    let store: Arc<dyn Store> = memory();
    let leases = start(&store, config("twitter", "me"));
    let first = leases.ready().await.unwrap().worker.unwrap();
    let mut handle = leases.handle();
    ids(&mut handle, 1).await;
    let thief = |record: Record| Record {
        holder: Holder::new("thief").unwrap(),
        from_unix_ms: Some(record.until_unix_ms - 1000),
        until_unix_ms: record.until_unix_ms + 60_000,
        tag: Tag(1),
        granted: Granted::up_to(record.until_unix_ms + 60_000),
        released: false,
    };
    replace_record(&*store, first, thief).await;
    until(|| (leases.status().overlaps == 1).then_some(())).await;
    let status = leases.status();
    assert_eq!((status.worker, status.store_forgot, status.lost), (None, 1, 0));
    assert!(status.waiting.as_ref().is_some_and(|why| why.contains("thief")), "{status:?}");
    let none = handle.try_take(1).unwrap_err();
    assert!(matches!(none, NextIdError::NoLease { .. }), "{none}");
    // After a window the node takes another worker.
    let next = until(|| leases.status().worker).await;
    assert_ne!(next, first);
}

/// Goal: a process stops immediately when a copy of it renewed its lease. Method: the record gets a later tag
/// of the same line.
#[tokio::test]
async fn a_lease_that_a_copy_of_the_process_renewed_ends_at_once() {
    let store: Arc<dyn Store> = memory();
    let leases = start(&store, config("twitter", "me").window(Duration::from_secs(2)));
    let first = leases.ready().await.unwrap().worker.unwrap();
    let mut handle = leases.handle();
    ids(&mut handle, 1).await;
    let copy = |record: Record| Record { tag: Tag(record.tag.0 + 1_000_000), ..record };
    replace_record(&*store, first, copy).await;
    until(|| (leases.status().overlaps == 1).then_some(())).await;
    let next = until(|| leases.status().worker).await;
    assert_ne!(next, first, "it takes another worker");
    assert_eq!((leases.status().store_forgot, leases.status().lost), (0, 0));
}

/// Goal: a node takes another lease when the load exceeds one worker, and releases it when the load ends.
/// Method: two handles take as many ids as they can, from a layout with 16 ids per tick; then three short
/// windows pass without load. Takes about 9 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_grows_under_load_and_shrinks_when_idle() {
    const SMALL: &str = "time:41@1ms worker:3 sequence:4 epoch:2020-01-01";
    let store = memory();
    let leases =
        start(&store, config(SMALL, "me").window(Duration::from_millis(600)).worker_count(count("1..2")));
    leases.ready().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let draw = || {
        let (leases, stop) = (leases.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut handle = leases.handle();
            let mut made = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                made.extend(ids(&mut handle, 5).await);
            }
            made
        })
    };
    let drawing = [draw(), draw()];
    all_held(&leases, 2).await;
    // Handles use both leases after they have found the second one.
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
    assert_eq!(workers, workers_of(&leases));
    let renewals = leases.status().renewals;
    all_held(&leases, 1).await;
    until(|| (leases.statuses().len() == 1).then_some(())).await;
    assert!(leases.status().renewals >= renewals, "the counts of the released lease remain");
    leases.release(PATIENCE).await;
    assert_eq!(workers_of(&leases).len(), 0);
}
