//! Stores and counters on real servers whose connections are cut after the bytes of an answer.

use std::num::NonZeroU64;
use std::time::Duration;

use snowmint_store::conformance::acknowledged::{CallOutcome, Numbers};
use snowmint_store::{Counter, StoreErrorKind};
use snowmint_test_servers::{Etcd, MariaDb, Postgres, Proxy, Redis, ZooKeeper};
use tokio::time::{Instant, sleep, timeout};

use super::servers::{COUNTERS, check_skipped, make_counters, make_key};
use crate::support::cut_connection::{BOUND, cut_store, places, saw};
use crate::support::{PATIENCE, open as open_store};

/// Cuts the answers to reservations, and returns the account of the numbers.
async fn cut_counter(counter: &dyn Counter, direct: &dyn Counter, proxy: &Proxy, most: usize) -> Numbers {
    let started = Instant::now();
    let (mut numbers, mut outcomes) = (Numbers::new(), Vec::new());
    // These numbers are reserved before the account begins. A counter whose first call connects again needs no
    // login for the second.
    reserve_only(counter).await;
    let before = proxy.answered();
    reserve_only(counter).await;
    let without_login = places(proxy.answered() - before, most / 2);
    // The reservation and the call that shows that it has settled are cut separately, since the first answer
    // is much shorter.
    let mut measured = [0; 2];
    for (settling, bytes) in measured.iter_mut().enumerate() {
        proxy.cut();
        reserve_only(counter).await;
        proxy.cut();
        let before = proxy.answered();
        if settling == 0 {
            reserve_only(counter).await;
        } else {
            reserve_again(&mut numbers, counter).await;
        }
        *bytes = proxy.answered() - before;
    }
    let [reserved, settled] = measured;
    let later = places(settled.saturating_sub(reserved), most / 4).into_iter().map(|bytes| reserved + bytes);
    let places: Vec<usize> = places(reserved, most).into_iter().chain(later).chain(without_login).collect();
    println!("{}: {} cuts", direct.describe(), places.len());
    for bytes in places {
        proxy.cut();
        // The first call may use the connection that was cut.
        let _ = reserve(&mut numbers, counter).await;
        proxy.cut_answers_after(bytes);
        outcomes.push(reserve(&mut numbers, counter).await);
        proxy.pass_answers();
        reserve_again(&mut numbers, counter).await;
    }
    assert!(saw(&outcomes, StoreErrorKind::OutcomeUnknown), "{outcomes:?}");
    assert!(reserve(&mut numbers, direct).await.is_acknowledged());
    println!("{}: {:?}, {numbers:?}", direct.describe(), started.elapsed());
    numbers
}

pub(crate) async fn reserve(numbers: &mut Numbers, counter: &dyn Counter) -> CallOutcome {
    let count = NonZeroU64::new(3).unwrap();
    timeout(BOUND, numbers.reserve(counter, count)).await.expect("a reservation in bounded time").unwrap()
}

/// Reserves numbers that nobody uses, without a check that they have settled.
async fn reserve_only(counter: &dyn Counter) {
    let (started, count) = (Instant::now(), NonZeroU64::MIN);
    while timeout(BOUND, snowmint_store::reserve(counter, count))
        .await
        .expect("an answer in bounded time")
        .is_err()
    {
        assert!(started.elapsed() < PATIENCE, "{} does not come back", counter.describe());
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn reserve_again(numbers: &mut Numbers, counter: &dyn Counter) {
    let started = Instant::now();
    while !reserve(numbers, counter).await.is_acknowledged() {
        assert!(started.elapsed() < PATIENCE, "{} does not come back", counter.describe());
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_gives_nothing_twice() {
    let server = Postgres::start();
    let proxy = Proxy::start(server.address());
    let url = |address| format!("postgres://postgres@{address}/postgres");
    let (store, direct) = (open_store(&url(proxy.address())).await, open_store(&url(server.address())).await);
    cut_store(store, direct, &proxy, 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_and_its_counters_give_nothing_twice() {
    let server = MariaDb::start();
    let proxy = Proxy::start(server.address());
    let url = |address| format!("mysql://root@{address}/test");
    let (store, direct) = (open_store(&url(proxy.address())).await, open_store(&url(server.address())).await);
    cut_store(store, direct, &proxy, 40).await;

    make_counters(&server);
    for (system, parameters) in COUNTERS {
        let open = async |address| {
            let url = format!("{system}:mysql://root@{address}/test{parameters}");
            snowmint_store::open_counter(&url).await.unwrap()
        };
        let (counter, direct) = (open(proxy.address()).await, open(server.address()).await);
        let numbers = cut_counter(&*counter, &*direct, &proxy, 40).await;
        check_skipped(&*counter, &numbers);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_and_its_counter_give_nothing_twice() {
    let server = Redis::start();
    let proxy = Proxy::start(server.address());
    let url = |address| format!("redis://{address}/0");
    let (store, direct) = (open_store(&url(proxy.address())).await, open_store(&url(server.address())).await);
    cut_store(store, direct, &proxy, 40).await;

    make_key(&server);
    let open = async |address| {
        snowmint_store::open_counter(&format!(
            "redis-counter:redis://{address}/0?counter=orders&may_lose=100ms"
        ))
        .await
        .unwrap()
    };
    let (counter, direct) = (open(proxy.address()).await, open(server.address()).await);
    let numbers = cut_counter(&*counter, &*direct, &proxy, 40).await;
    check_skipped(&*counter, &numbers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_gives_nothing_twice() {
    let server = Etcd::start();
    let proxy = Proxy::start(server.address());
    let url = |address| format!("etcd://{address}");
    let (store, direct) = (open_store(&url(proxy.address())).await, open_store(&url(server.address())).await);
    cut_store(store, direct, &proxy, 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_gives_nothing_twice() {
    let server = ZooKeeper::start();
    let proxy = Proxy::start(server.address());
    let url = |address| format!("zookeeper://{address}");
    let (store, direct) = (open_store(&url(proxy.address())).await, open_store(&url(server.address())).await);
    cut_store(store, direct, &proxy, 20).await;
}
