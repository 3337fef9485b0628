//! Servers whose disk is full, or that accept no writes.

use std::path::Path;
use std::time::Duration;

use snowmint_store::conformance::acknowledged::{Account, Numbers, Operation};
use snowmint_store::{Counter, Store, StoreErrorKind};
use snowmint_test_servers::{Etcd, MariaDb, Postgres, Redis, ZooKeeper};
use tokio::time::{Instant, sleep};

use super::cuts::{reserve, reserve_again};
use super::{Ballast, until_writes_fail};
use crate::support::child_process::run_mounted;
use crate::support::cut_connection::{call, comes_back, saw};
use crate::support::{PATIENCE, open};

/// The counters of other systems in MariaDB, with the parameters of their URLs.
pub(crate) const COUNTERS: [(&str, &str); 3] =
    [("leaf", "?tag=order"), ("tinyid", "?biz_type=order"), ("tickets", "")];

pub(crate) fn make_counters(server: &MariaDb) {
    server.sql(
        "CREATE TABLE test.leaf_alloc (biz_tag varchar(128) PRIMARY KEY, max_id bigint NOT NULL DEFAULT 1, \
         step int NOT NULL, description varchar(256), update_time timestamp); \
         INSERT INTO test.leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 2000); \
         CREATE TABLE test.tiny_id_info (id bigint unsigned AUTO_INCREMENT PRIMARY KEY, biz_type varchar(63) NOT NULL, \
         begin_id bigint NOT NULL DEFAULT 0, max_id bigint NOT NULL DEFAULT 0, step int DEFAULT 0, \
         delta int NOT NULL DEFAULT 1, remainder int NOT NULL DEFAULT 0, create_time timestamp NOT NULL DEFAULT NOW(), \
         update_time timestamp NOT NULL DEFAULT NOW(), version bigint NOT NULL DEFAULT 0); \
         INSERT INTO test.tiny_id_info (biz_type, step) VALUES ('order', 1000); \
         CREATE TABLE test.Tickets64 (id bigint unsigned AUTO_INCREMENT PRIMARY KEY, stub char(1) NOT NULL UNIQUE)",
    );
}

pub(crate) fn make_key(server: &Redis) {
    redis_cli(server, &["SET", "orders", "0"]);
}

fn redis_cli(server: &Redis, arguments: &[&str]) {
    let mut client = std::process::Command::new("redis-cli");
    let output = client.args(["-p", &server.port().to_string()]).args(arguments).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "OK", "{output:?}");
}

/// Checks that refused calls reserved no numbers. `AUTO_INCREMENT` does not go back with a statement that
/// failed.
pub(crate) fn check_skipped(counter: &dyn Counter, numbers: &Numbers) {
    let (name, gapless) = (counter.describe(), !counter.describe().starts_with("tickets:"));
    assert!(!gapless || numbers.skipped() <= numbers.unknown(), "{name}: {numbers:?}");
}

/// Runs a child whose servers store their data on a disk of that size.
fn on_a_disk_of(megabytes: u32, role: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mount = format!(r#"mount -t tmpfs -o size={megabytes}m,mode=755 none "$0"; export TMPDIR="$0""#);
    run_mounted(role, folder.path(), &mount);
}

#[test]
fn postgres_on_a_full_disk_gives_nothing_twice() {
    on_a_disk_of(110, "postgres");
}

#[test]
fn mariadb_on_a_full_disk_gives_nothing_twice() {
    on_a_disk_of(160, "mariadb");
}

#[test]
fn redis_on_a_full_disk_gives_nothing_twice() {
    on_a_disk_of(4, "redis");
}

#[test]
fn zookeeper_on_a_full_disk_gives_nothing_twice() {
    on_a_disk_of(8, "zookeeper");
}

pub(crate) async fn full(role: &str, folder: &Path) {
    match role {
        "postgres" => postgres(folder).await,
        "mariadb" => mariadb(folder).await,
        "redis" => redis(folder).await,
        "zookeeper" => zookeeper(folder).await,
        other => panic!("no role {other}"),
    }
}

async fn postgres(folder: &Path) {
    use sqlx::Connection;
    let server = Postgres::with(&["min_wal_size=32MB", "max_wal_size=32MB"]);
    let url = format!("postgres://postgres@{}/postgres?timeout_ms=2000", server.address());
    let store = open(&url).await;
    let mut account = Account::new();
    account.check(&*store).await.unwrap();
    for pages in [0, 1, 2, 4, 8] {
        let ballast = Ballast::leaving(folder, pages * 8192);
        until_writes_fail(&mut account, &*store, 4, 7000).await;
        ballast.remove();
        comes_back(&mut account, &*store).await;
        account.check(&*store).await.unwrap();
    }
    // No space for the next log file: the server panics, and stays down until there is space.
    let mut connection = sqlx::PgConnection::connect(&url.replace("?timeout_ms=2000", "")).await.unwrap();
    let ballast = Ballast::leaving(folder, 0);
    for _ in 0..3 {
        ballast.grow();
        let _ = call(&mut account, &*store, Operation::Add).await;
        sqlx::raw_sql("SELECT pg_switch_wal()").execute(&mut connection).await.ok();
        let _ = call(&mut account, &*store, Operation::CompareAndSet).await;
    }
    // There is no space for its last log lines either.
    let started = Instant::now();
    while server.is_running() {
        assert!(started.elapsed() < PATIENCE, "the server keeps running: {}", server.log());
        sleep(Duration::from_millis(20)).await;
    }
    ballast.remove();
    server.restart();
    comes_back(&mut account, &*store).await;
    account.check(&*open(&url).await).await.unwrap();
}

async fn mariadb(folder: &Path) {
    let server = MariaDb::start();
    make_counters(&server);
    let store = open(&format!("mysql://root@{}/test?timeout_ms=3000", server.address())).await;
    let mut account = Account::new();
    account.check(&*store).await.unwrap();
    let mut counters = Vec::new();
    for (system, parameters) in COUNTERS {
        let url = format!("{system}:mysql://root@{}/test{parameters}", server.address());
        counters.push((snowmint_store::open_counter(&url).await.unwrap(), Numbers::new()));
    }
    for pages in [0, 40] {
        let ballast = Ballast::leaving(folder, pages * 16384);
        until_writes_fail(&mut account, &*store, 4, 30_000).await;
        for (counter, numbers) in &mut counters {
            for _ in 0..20 {
                let _ = reserve(numbers, &**counter).await;
            }
        }
        ballast.remove();
        // InnoDB may have shut down, or hang for good.
        server.restart();
        comes_back(&mut account, &*store).await;
        account.check(&*store).await.unwrap();
    }
    for (counter, numbers) in &mut counters {
        reserve_again(numbers, &**counter).await;
        check_skipped(&**counter, numbers);
    }
}

async fn redis(folder: &Path) {
    let server = Redis::start();
    make_key(&server);
    let store = open(&format!("redis://{}/0?timeout_ms=2000", server.address())).await;
    let url = format!("redis-counter:redis://{}/0?counter=orders&may_lose=100ms", server.address());
    let counter = snowmint_store::open_counter(&url).await.unwrap();
    let (mut account, mut numbers) = (Account::new(), Numbers::new());
    account.check(&*store).await.unwrap();
    for pages in [0, 1, 3, 5] {
        let ballast = Ballast::leaving(folder, pages * 4096);
        until_writes_fail(&mut account, &*store, 4, 500).await;
        let _ = reserve(&mut numbers, &*counter).await;
        ballast.remove();
        // A server that syncs each write shuts down when it cannot.
        server.restart();
        reserve_again(&mut numbers, &*counter).await;
        comes_back(&mut account, &*store).await;
        account.check(&*store).await.unwrap();
    }
    check_skipped(&*counter, &numbers);
}

async fn zookeeper(folder: &Path) {
    let server = ZooKeeper::with(&["preAllocSize=64"]);
    let store = open(&format!("zookeeper://{}", server.address())).await;
    let mut account = Account::new();
    account.check(&*store).await.unwrap();
    for pages in [0, 5] {
        let ballast = Ballast::leaving(folder, pages * 4096);
        until_writes_fail(&mut account, &*store, 4, 3000).await;
        ballast.remove();
        // A server that cannot write its log shuts down.
        server.restart();
        comes_back(&mut account, &*store).await;
        account.check(&*store).await.unwrap();
    }
}

/// Goal: with its quota used up, etcd keeps what it acknowledged and wrote nothing that it refused. Method: a
/// small quota, all calls, a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_without_room_gives_nothing_twice() {
    let server = Etcd::with(&["--quota-backend-bytes=4194304"]);
    let store = open(&format!("etcd://{}", server.address())).await;
    let mut account = Account::new();
    account.check(&*store).await.unwrap();
    until_writes_fail(&mut account, &*store, 6, 60_000).await;
    // While the alarm is raised, etcd does not report itself healthy.
    server.restart_without_waiting();
    comes_back(&mut account, &*store).await;
    assert!(call(&mut account, &*store, Operation::List).await.is_acknowledged());
    let _ = call(&mut account, &*store, Operation::Add).await;
    assert!(call(&mut account, &*store, Operation::List).await.is_acknowledged());
}

/// Goal: a server that accepts no writes has written nothing. Method: each kind of server, made read-only
/// while nodes are connected, and writable again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_servers_give_nothing_twice() {
    let postgres = Postgres::start();
    let store = open(&format!("postgres://postgres@{}/postgres", postgres.address())).await;
    let set = |value: &str| {
        postgres.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"));
        postgres.sql("SELECT pg_reload_conf()");
    };
    read_only(&*store, || set("on"), || set("off")).await;

    let mariadb = MariaDb::start();
    mariadb.sql("CREATE USER node@'%'; GRANT ALL ON test.* TO node@'%'");
    make_counters(&mariadb);
    let store = open(&format!("mysql://node@{}/test", mariadb.address())).await;
    let set = |value: u8| drop(mariadb.sql(&format!("SET GLOBAL read_only = {value}")));
    read_only(&*store, || set(1), || set(0)).await;
    for (system, parameters) in COUNTERS {
        let url = format!("{system}:mysql://node@{}/test{parameters}", mariadb.address());
        let counter = snowmint_store::open_counter(&url).await.unwrap();
        let mut numbers = Numbers::new();
        reserve_again(&mut numbers, &*counter).await;
        set(1);
        for _ in 0..3 {
            let outcome = reserve(&mut numbers, &*counter).await;
            assert!(saw(&[outcome], StoreErrorKind::ReadOnly), "{system}: {outcome:?}");
        }
        set(0);
        reserve_again(&mut numbers, &*counter).await;
        assert_eq!(numbers.unknown(), 0, "{system}");
        check_skipped(&*counter, &numbers);
    }

    let redis = Redis::start();
    make_key(&redis);
    let store = open(&format!("redis://{}/0", redis.address())).await;
    let set = |of: &[&str]| redis_cli(&redis, &[&["REPLICAOF"], of].concat());
    // A primary that is unreachable, so that the copy keeps its data.
    read_only(&*store, || set(&["127.0.0.1", "1"]), || set(&["NO", "ONE"])).await;
}

async fn read_only(store: &dyn Store, begin: impl Fn(), end: impl Fn()) {
    let mut account = Account::new();
    for _ in 0..2 {
        account.check(store).await.unwrap();
        begin();
        until_writes_fail(&mut account, store, 4, 100).await;
        end();
        comes_back(&mut account, store).await;
        super::writes_come_back(&mut account, store).await;
        account.check(store).await.unwrap();
    }
}
