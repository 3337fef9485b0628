//! Redis servers that change roles: demoted, cut off, two at once, one that was replaced, and a failover by
//! Sentinel. Tests the store and the counters of other systems, on connections that existed before.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use snowmint_store::{Counter, Expected, Store, StoreError, StoreErrorKind, Swap};
use snowmint_test_servers::{Proxy, Redis, RedisSentinels, SLOW_REWRITES};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::{PATIENCE, eventually, key, open, put, refused};

fn url(servers: &[&Redis]) -> String {
    let hosts: Vec<String> = servers.iter().map(|it| it.address().to_string()).collect();
    format!("redis://{}?timeout_ms=2000", hosts.join(","))
}

async fn open_counter(servers: &[&Redis]) -> Arc<dyn Counter> {
    snowmint_store::open_counter(&format!("redis-counter:{}&counter=orders", url(servers))).await.unwrap()
}

/// A primary and an up-to-date replica.
fn pair() -> (Redis, Redis) {
    let primary = Redis::start();
    assert_eq!(primary.command(&["SET", "orders", "100"]), "OK");
    let replica = Redis::replica_of(&primary, &[]);
    replica.wait_connected();
    (primary, replica)
}

/// A primary that accepts writes only while its replica is connected, and that replica.
async fn pair_that_needs_its_replica() -> (Redis, Redis) {
    let primary = Redis::with(&["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"]);
    let replica = Redis::replica_of(&primary, &[]);
    replica.wait_connected();
    eventually("the replica counts", || primary.command(&["SET", "orders", "100"]) == "OK").await;
    (primary, replica)
}

/// Cuts a replica off from its primary while the returned value exists.
#[must_use]
fn cut_off(replica: &Redis, primary: &Redis) -> Proxy {
    let nobody = Proxy::start(primary.address());
    nobody.refuse();
    let port = nobody.address().port().to_string();
    assert_eq!(replica.command(&["REPLICAOF", "127.0.0.1", &port]), "OK");
    nobody
}

/// Loads until the result is the wanted one.
async fn until<T>(
    store: &dyn Store,
    what: &str,
    wanted: impl Fn(&Result<Option<Vec<u8>>, StoreError>) -> Option<T>,
) -> T {
    let started = Instant::now();
    loop {
        let found = store.load(&key("a")).await.map(|it| it.map(|it| it.value));
        if let Some(wanted) = wanted(&found) {
            return wanted;
        }
        assert!(started.elapsed() < PATIENCE, "timed out waiting for {what}: {found:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn until_it_answers(store: &dyn Store) -> Option<Vec<u8>> {
    until(store, "an answer", |found| found.as_ref().ok().cloned()).await
}

/// Goal: a primary that became a replica neither accepts a write nor answers a read. Method: every call on a
/// separate connection that was open before.
#[tokio::test]
async fn a_demoted_primary_answers_nothing() {
    let (first, second) = pair();
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(open(&url(&[&first])).await);
    }
    let counter = open_counter(&[&first]).await;
    let revision = put(&*stores[0], "a", b"1").await.revision;
    second.wait_synced(&first);
    second.promote();
    first.follow(&second);
    let swap = stores[0].compare_and_set(&key("a"), Expected::Revision(revision), b"2").await.map(|_| ());
    let add = stores[1].add(&key("sum"), NonZeroU64::MIN).await.map(|_| ());
    let load = stores[2].load(&key("a")).await.map(|_| ());
    let list = stores[3].list("").await.map(|_| ());
    let reserve = counter.reserve(NonZeroU64::MIN).await.map(|_| ());
    let raise = counter.raise_above(500).await.map(|_| ());
    // The server that replaced this one may be lower.
    let raised = counter.raise_above(50).await.map(|_| ());
    for answer in [swap, add, load, list, reserve, raise, raised] {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    }
    first.wait_connected();
    for server in [&first, &second] {
        assert_eq!(server.command(&["HGET", "{snowmint}:record:a", "v"]), "1");
        assert_eq!(server.command(&["EXISTS", "{snowmint}:record:sum"]), "0");
        assert_eq!(server.command(&["GET", "orders"]), "100");
    }
}

/// Goal: a promoted server is used only once its data is in its file, by new and by existing nodes. Method:
/// replicas that take minutes to rewrite their file after a sync, one of which shows what a crash would lose.
#[tokio::test]
async fn a_promoted_replica_is_used_once_its_file_is_written() {
    let first = Redis::start();
    put(&*open(&url(&[&first])).await, "a", b"1").await;
    let synced = || {
        let replica = Redis::replica_of(&first, &SLOW_REWRITES);
        replica.wait_synced(&first);
        replica
    };
    let (lost, second) = (synced(), synced());
    lost.kill9_with_rewrite();
    // Otherwise it would sync again at once.
    first.pause();
    lost.restart();
    assert_eq!(lost.command(&["DBSIZE"]), "0", "a crash loses everything");
    first.resume();

    lost.kill9();
    let store = open(&url(&[&first, &second])).await;
    second.promote_at_once();
    first.kill9();
    for url in [url(&[&second]), url(&[&first, &second])] {
        let error = snowmint_store::open_backend(&url).await.unwrap_err().to_string();
        assert!(error.contains("append-only file may lack its data"), "{error}");
    }
    let error = store.load(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    second.end_rewrite();
    assert_eq!(until_it_answers(&*store).await.as_deref(), Some(&b"1"[..]));
    second.kill9();
    second.restart();
    assert_eq!(second.command(&["HGET", "{snowmint}:record:a", "v"]), "1");
}

/// Goal: an ordinary rewrite of a promoted server in use is no reason to refuse it.
#[tokio::test]
async fn a_promoted_replica_may_rewrite_its_file() {
    let (first, second) = pair();
    let store = open(&url(&[&first, &second])).await;
    put(&*store, "a", b"1").await;
    second.wait_synced(&first);
    second.promote();
    first.kill9();
    until_it_answers(&*store).await;
    let [name, value] = SLOW_REWRITES.map(|it| it.trim_start_matches("--"));
    assert_eq!(second.command(&["CONFIG", "SET", name, value]), "OK");
    second.command(&["BGREWRITEAOF"]);
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        assert!(!second.has_its_data_on_disk(), "a rewrite is under way");
        store.load(&key("a")).await.unwrap();
        sleep(Duration::from_millis(100)).await;
    }
    second.kill9_with_rewrite();
}

/// Goal: a primary that was cut off from its replicas stops accepting calls by itself, reads too. Method:
/// `min-replicas-to-write`, and a replica whose connection is open but silent.
#[tokio::test]
async fn a_primary_that_was_cut_off_ends_by_itself() {
    let (first, second) = pair_that_needs_its_replica().await;
    let (store, counter) = (open(&url(&[&first])).await, open_counter(&[&first]).await);
    let revision = put(&*store, "a", b"1").await.revision;
    second.pause();
    let cut = Instant::now();
    let error = until(&*store, "the end of reads", |found| {
        found.as_ref().err().map(|it| (it.kind(), it.to_string()))
    });
    let (kind, error) = error.await;
    println!("it went on for {:?}: {error}", cut.elapsed());
    assert_eq!(kind, StoreErrorKind::Unavailable, "{error}");
    assert!(error.contains("min-replicas-to-write"), "{error}");
    let swap = store.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await.map(|_| ());
    let reserve = counter.reserve(NonZeroU64::MIN).await.map(|_| ());
    let raised = counter.raise_above(50).await.map(|_| ());
    for answer in [swap, reserve, raised] {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
    second.resume();
    assert_eq!(until_it_answers(&*store).await.as_deref(), Some(&b"1"[..]));
    assert_eq!(first.command(&["GET", "orders"]), "100");
}

/// Goal: of two servers that both accept writes, neither is used, by new or by existing nodes.
#[tokio::test]
async fn two_primaries_are_refused() {
    let (first, second) = pair();
    let (store, counter) = (open(&url(&[&first, &second])).await, open_counter(&[&second, &first]).await);
    put(&*store, "a", b"1").await;
    assert_eq!(counter.reserve(NonZeroU64::MIN).await.unwrap().first(), 101);
    second.wait_synced(&first);
    second.promote();
    let says = format!("{} and {} both accept writes", first.address(), second.address());
    let error = until(&*store, "a refusal", |found| found.as_ref().err().map(ToString::to_string)).await;
    assert!(error.contains(&says), "{error}");
    let (_, error) = refused(&url(&[&first, &second])).await;
    assert!(error.contains(&says), "{error}");
    let started = Instant::now();
    let error = loop {
        match counter.reserve(NonZeroU64::MIN).await {
            Ok(_) => assert!(started.elapsed() < PATIENCE, "the counter goes on"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("both accept writes"), "{error}");

    first.follow(&second);
    assert_eq!(until_it_answers(&*store).await.as_deref(), Some(&b"1"[..]));
    assert_eq!(counter.reserve(NonZeroU64::MIN).await.unwrap().first(), 102);
    assert_eq!(second.command(&["GET", "orders"]), "102");
}

/// Goal: a second primary is noticed whatever its settings. Method: one that the store would refuse.
#[tokio::test]
async fn a_second_primary_counts_whatever_its_settings() {
    let (first, second) = (Redis::start(), Redis::with(&["--appendonly", "no"]));
    let (_, error) = refused(&url(&[&first, &second])).await;
    assert!(error.contains("both accept writes"), "{error}");
    // One server under two names is one server.
    let port = first.port();
    open(&format!("redis://127.0.0.1:{port},localhost:{port}")).await;
}

/// Goal: a primary that was replaced is not trusted even if no other is up. Method: it sleeps while it is
/// replaced, and wakes up when its successor sleeps.
#[tokio::test]
async fn a_primary_that_was_replaced_is_never_used_again() {
    let (first, second) = pair();
    let store = open(&url(&[&first, &second])).await;
    put(&*store, "a", b"1").await;
    second.wait_synced(&first);
    first.pause();
    second.promote();
    until_it_answers(&*store).await;
    put(&*store, "a", b"2").await;
    second.pause();
    first.resume();
    let replaced = until(&*store, "a refusal", |found| {
        let error = found.as_ref().expect_err("the old primary is trusted").to_string();
        error.contains("has replaced").then_some(error)
    });
    println!("{}", replaced.await);
    // Its data is deleted when it follows the other.
    first.follow(&second);
    second.resume();
    assert_eq!(until_it_answers(&*store).await.as_deref(), Some(&b"2"[..]));
    put(&*store, "a", b"3").await;
    assert_eq!(second.command(&["HGET", "{snowmint}:record:a", "v"]), "3");
}

/// Goal: an old primary that was restarted disturbs nobody who uses its successor, and does not pass for it.
/// Method: it comes back without anybody to tell it, while the successor answers, while it hangs, and while
/// nobody listens there. One store has used the old primary, the other has never seen it.
#[tokio::test]
async fn an_old_primary_that_comes_back_is_left_alone() {
    let (first, second) = pair();
    let store = open(&url(&[&first, &second])).await;
    put(&*store, "a", b"1").await;
    second.wait_synced(&first);
    first.kill9();
    second.promote();
    until_it_answers(&*store).await;
    let later = open(&url(&[&first, &second])).await;
    put(&*store, "a", b"2").await;
    first.restart();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(3) {
        for store in [&store, &later] {
            assert_eq!(store.load(&key("a")).await.unwrap().unwrap().value, b"2");
        }
        sleep(Duration::from_millis(50)).await;
    }
    let (_, error) = refused(&url(&[&first, &second])).await;
    assert!(error.contains("both accept writes"), "{error}");
    second.pause();
    the_old_primary_is_refused(&[&store, &later]).await;
    second.resume();
    for store in [&store, &later] {
        assert_eq!(until_it_answers(&**store).await.as_deref(), Some(&b"2"[..]));
    }
    // Or it would return as a replica of the old primary.
    assert_eq!(second.command(&["CONFIG", "REWRITE"]), "OK");
    second.kill9();
    the_old_primary_is_refused(&[&store, &later]).await;
    second.restart();
    for store in [&store, &later] {
        assert_eq!(until_it_answers(&**store).await.as_deref(), Some(&b"2"[..]));
    }
}

/// Goal: an old primary does not pass for the right one where two others were seen. Method: its successor
/// goes on after it was replaced too, and then both hang, so that only the old primary accepts writes.
#[tokio::test]
async fn an_old_primary_is_no_way_out_of_two_others() {
    let (first, second) = pair();
    let third = Redis::replica_of(&first, &[]);
    third.wait_connected();
    let store = open(&url(&[&first, &second, &third])).await;
    put(&*store, "a", b"1").await;
    second.wait_synced(&first);
    first.kill9();
    second.promote();
    third.follow(&second);
    until_it_answers(&*store).await;
    put(&*store, "a", b"2").await;
    third.wait_synced(&second);
    first.restart();
    third.promote();
    let refusal = until(&*store, "a refusal", |found| {
        let error = found.as_ref().err()?.to_string();
        error.contains("both accept writes").then_some(error)
    });
    println!("{}", refusal.await);
    second.pause();
    third.pause();
    the_old_primary_is_refused(&[&store]).await;
    first.kill9();
    second.resume();
    second.follow(&third);
    third.resume();
    assert_eq!(until_it_answers(&*store).await.as_deref(), Some(&b"2"[..]));
}

/// Loads until each store says what is wrong with the only server that accepts writes.
async fn the_old_primary_is_refused(stores: &[&Arc<dyn Store>]) {
    for store in stores {
        let refusal = until(&***store, "a refusal", |found| {
            let error = found.as_ref().expect_err("the old primary is believed").to_string();
            error.contains("does not continue").then_some(error)
        });
        println!("{}", refusal.await);
    }
}

/// Loads until the store refuses for good, writing meanwhile.
async fn until_it_is_refused(store: &dyn Store) -> String {
    until(store, "a refusal", |found| {
        let error = found.as_ref().err()?;
        (error.kind() == StoreErrorKind::Other).then(|| error.to_string())
    })
    .await
}

/// Writes for some seconds, so that the first writes have settled.
async fn write_and_settle(store: &dyn Store, value: &[u8]) {
    let started = Instant::now();
    while started.elapsed() < store.may_lose() + Duration::from_secs(2) {
        put(store, "a", value).await;
        sleep(Duration::from_millis(20)).await;
    }
}

/// Goal: a replica that lacks settled writes is not used, although no other server accepts writes. Method: of
/// two replicas one is promoted and used; it dies, and the other one, which never followed it, is promoted.
#[tokio::test]
async fn a_replica_that_never_followed_the_primary_is_refused() {
    let (first, second) = pair();
    let third = Redis::replica_of(&first, &[]);
    third.wait_connected();
    let store = open(&url(&[&first, &second, &third])).await;
    write_and_settle(&*store, b"1").await;
    second.wait_synced(&first);
    third.wait_synced(&first);
    first.kill9();
    second.promote();
    assert_eq!(until_it_answers(&*store).await.as_deref(), Some(&b"1"[..]), "an ordinary failover");
    write_and_settle(&*store, b"2").await;
    second.kill9();
    third.promote();
    let error = until_it_is_refused(&*store).await;
    println!("{error}");
    assert!(
        error.contains(&third.address().to_string()) && error.contains("lost writes in a failover"),
        "{error}"
    );
    assert_eq!(third.command(&["HGET", "{snowmint}:record:a", "v"]), "1");
    // A process that an operator starts now uses it.
    open(&url(&[&first, &second, &third])).await;
}

/// Goal: a failover that lost more than `may_lose` is refused. Method: a replica that was cut off for longer.
#[tokio::test]
async fn a_replica_that_lagged_for_longer_than_may_lose_is_refused() {
    let (first, second) = pair();
    let store = open(&url(&[&first, &second])).await;
    put(&*store, "a", b"1").await;
    second.wait_synced(&first);
    let _nobody = cut_off(&second, &first);
    write_and_settle(&*store, b"2").await;
    first.kill9();
    second.promote();
    let error = until_it_is_refused(&*store).await;
    assert!(error.contains("lost writes in a failover"), "{error}");
}

/// Goal: a primary that refuses writes settles nothing, so the failover that follows is an ordinary one.
/// Method: it has lost its replica and keeps increasing its offset, for longer than `may_lose`.
#[tokio::test]
async fn a_primary_that_refuses_writes_settles_nothing() {
    let (first, second) = pair_that_needs_its_replica().await;
    let started = Instant::now();
    let store = open(&format!("{}&may_lose=3s", url(&[&first, &second]))).await;
    // A busy machine may delay the replica's report by a second.
    while store.compare_and_set(&key("a"), Expected::Absent, b"1").await.is_err() {
        assert!(started.elapsed() < PATIENCE, "it accepts no write");
    }
    second.wait_synced(&first);
    let _nobody = cut_off(&second, &first);
    let refusal = until(&*store, "the end of writes", |found| found.as_ref().err().map(ToString::to_string));
    let error = refusal.await;
    assert!(error.contains("min-replicas-to-write"), "{error}");
    let (before, cut) = (offset(&first), Instant::now());
    while cut.elapsed() < store.may_lose() + Duration::from_secs(3) {
        // Increases the offset like a heartbeat to replicas: it is replicated, but is not a write.
        first.command(&["PUBLISH", "snowmint", "still here"]);
        assert!(store.load(&key("a")).await.is_err(), "it has a replica again");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(offset(&first) > before);
    first.kill9();
    second.promote();
    let found = until(&*store, "an answer", |found| {
        let error = found.as_ref().err().filter(|error| error.kind() == StoreErrorKind::Other);
        assert!(error.is_none(), "an ordinary failover is refused: {error:?}");
        found.as_ref().ok().cloned()
    });
    assert_eq!(found.await.as_deref(), Some(&b"1"[..]));
    put(&*store, "a", b"2").await;
}

/// Returns the replication offset of a server.
fn offset(server: &Redis) -> u64 {
    server.info("master_repl_offset").parse().unwrap()
}

/// Goal: a host that never answers delays no call. Method: consecutive calls, for several times the second in
/// which all hosts have to be asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_host_delays_no_call() {
    let server = Redis::start();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = format!("redis://{},{}", server.address(), silent.local_addr().unwrap());
    let store = open(&hosts).await;
    let (started, mut slow, mut calls) = (Instant::now(), Vec::new(), 0);
    while started.elapsed() < Duration::from_secs(12) {
        let call = Instant::now();
        put(&*store, "a", b"1").await;
        calls += 1;
        // The minimum time of a call that itself asks the silent host.
        slow.extend(Some(call.elapsed()).filter(|it| *it >= Duration::from_millis(450)));
    }
    println!("{calls} calls, slow: {slow:?}");
    // If calls ask, six and more of them wait; a busy machine may delay some.
    assert!(slow.len() < 4, "of {calls} calls {slow:?}");
}

/// What a writer knows to be written, and since when.
type Acknowledged = Vec<(Instant, u64)>;

/// Increments the record `a`, also while the primary changes.
fn count(store: Arc<dyn Store>, stop: Arc<AtomicBool>) -> JoinHandle<Acknowledged> {
    tokio::spawn(async move {
        let mut acknowledged = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            let Ok(found) = store.load(&key("a")).await else {
                sleep(Duration::from_millis(10)).await;
                continue;
            };
            let number = found.as_ref().map_or(0, |it| number(&it.value));
            let expected = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
            let next = (number + 1).to_string();
            if let Ok(Swap::Done(_)) = store.compare_and_set(&key("a"), expected, next.as_bytes()).await {
                acknowledged.push((Instant::now(), number + 1));
            }
            // Leave the CPU to the servers that take over.
            sleep(Duration::from_millis(1)).await;
        }
        acknowledged
    })
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// Draws numbers one by one, also while the primary changes.
fn draw(counter: Arc<dyn Counter>, stop: Arc<AtomicBool>) -> JoinHandle<Vec<u64>> {
    tokio::spawn(async move {
        let mut drawn = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            match counter.reserve(NonZeroU64::MIN).await {
                Ok(segment) => drawn.push(segment.first()),
                Err(error) => {
                    assert!(error.is_temporary() || error.kind() == StoreErrorKind::ReadOnly, "{error}");
                    sleep(Duration::from_millis(10)).await;
                }
            }
        }
        drawn
    })
}

/// Goal: a switchover by Redis itself loses nothing. Method: `FAILOVER` while many write, back and forth.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_planned_switchover_loses_nothing() {
    let (first, second) = pair();
    let stop = Arc::<AtomicBool>::default();
    let all = [&first, &second];
    let (mut writers, mut drawers) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        writers.push(count(open(&url(&all)).await, Arc::clone(&stop)));
        drawers.push(draw(open_counter(&all).await, Arc::clone(&stop)));
    }
    for (from, to) in [(&first, &second), (&second, &first), (&first, &second)] {
        sleep(Duration::from_millis(500)).await;
        assert_eq!(from.command(&["FAILOVER", "TO", "127.0.0.1", &to.port().to_string()]), "OK");
        to_primary(to).await;
        from.wait_connected();
    }
    sleep(Duration::from_secs(2)).await;
    stop.store(true, Ordering::SeqCst);
    let mut written: Vec<u64> = Vec::new();
    for writer in writers {
        written.extend(writer.await.unwrap().iter().map(|it| it.1));
    }
    let mut drawn: Vec<u64> = Vec::new();
    for drawer in drawers {
        drawn.extend(drawer.await.unwrap());
    }
    let last = until_it_answers(&*open(&url(&all)).await).await;
    println!("{} writes and {} numbers over three switchovers", written.len(), drawn.len());
    assert!(number(&last.unwrap()) >= *written.iter().max().unwrap());
    for mut all in [written, drawn] {
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "some were given twice");
    }
}

async fn to_primary(server: &Redis) {
    eventually("a promotion", || server.info("role") == "master").await;
}

/// Goal: the hosts of the URL follow a failover by Sentinel, which loses no more than `may_lose`. Method: the
/// primary is killed while many write, and comes back as another primary for as long as Sentinel lets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_failover_by_sentinel_is_followed() {
    let first = Redis::start();
    let replicas = [(); 2].map(|()| Redis::replica_of(&first, &[]));
    replicas.iter().for_each(Redis::wait_connected);
    let sentinels = RedisSentinels::start(3, &first);
    let all = [&first, &replicas[0], &replicas[1]];
    let store = open(&url(&all)).await;
    let may_lose = store.may_lose();
    assert_eq!(may_lose, Duration::from_secs(2));
    let stop = Arc::<AtomicBool>::default();
    let mut writers = Vec::new();
    for _ in 0..4 {
        writers.push(count(open(&url(&all)).await, Arc::clone(&stop)));
    }
    sleep(Duration::from_secs(3)).await;
    first.kill9();
    let killed = Instant::now();
    let second = sentinels.wait_replaced(&first);
    let after = number(&until_it_answers(&*store).await.unwrap());
    println!("another primary, {second}, answers after {:?}", killed.elapsed());
    // It is a primary until the Sentinels have reconfigured it.
    first.restart();
    first.wait_connected();
    let again = number(&until_it_answers(&*store).await.unwrap());
    let later = until(&*store, "more writes", |found| {
        let found = number(found.as_ref().ok()?.as_ref()?);
        (found > again + 20).then_some(found)
    });
    let later = later.await;
    stop.store(true, Ordering::SeqCst);
    let mut settled = 0;
    for writer in writers {
        let acknowledged = writer.await.unwrap();
        let old = acknowledged.iter().filter(|it| killed.saturating_duration_since(it.0) >= may_lose);
        settled = settled.max(old.map(|it| it.1).max().unwrap_or_default());
    }
    println!(
        "{settled} had settled, {after} after the failover, {again} after the restart, {later} in the end"
    );
    assert!(settled > 0 && after >= settled && again >= after, "{settled} {after} {again}");
}
