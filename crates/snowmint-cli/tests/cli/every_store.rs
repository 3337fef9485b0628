//! The command against every store that can be installed here, each a real server.

use std::collections::HashSet;

use serde_json::Value;
use snowmint_test_servers::{Etcd, MariaDb, Postgres, Redis, ZooKeeper};

use crate::support::{Sandbox, json};

/// Goal: the command works with each store. Method: ids, the list of workers and the doctor, on one store.
fn works_on(url: &str) {
    let sandbox = Sandbox::new().with_env("SNOWMINT_STORE", url);
    assert!(!sandbox.out(&["store", "init", "--dry-run"]).is_empty());
    assert!(sandbox.out(&["store", "init"]).ends_with("is ready\n"));
    let mut last = 0;
    let mut workers = HashSet::new();
    for _ in 0..3 {
        for id in sandbox.out(&["new", "-n", "100"]).lines() {
            let id: u64 = id.parse().unwrap();
            assert!(id > last, "{id} after {last}");
            last = id;
            workers.insert(id >> 12 & 31);
        }
    }
    assert_eq!(workers.len(), 1, "a released worker is one's own again");
    let row = json(sandbox.out(&["workers", "--json"]).lines().next().unwrap());
    assert_eq!(row["state"].as_str(), Some("free"), "{row}");
    sandbox.out(&["ns", "add", "orders", "--scheme", "segment", "--as", "alice"]);
    sandbox.out(&["ns", "drop", "orders", "--as", "bob"]);
    let log = sandbox.out(&["audit", "--json"]);
    let log: Vec<_> = log.lines().map(json).map(|it| (it["who"].clone(), it["action"].clone())).collect();
    let text = |text: &str| Value::String(text.to_owned());
    let pair = |who, action| (text(who), text(action));
    assert_eq!(log, [pair("bob", "namespace-drop"), pair("alice", "namespace-add")]);
    // The audit log is not listed as a worker, a namespace or a counter.
    assert_eq!(sandbox.out(&["workers", "--json"]).lines().count(), 1);
    assert_eq!(sandbox.out(&["ns", "list", "--json"]).lines().count(), 1);
    assert!(sandbox.out(&["doctor"]).contains("ok      store"));
}

#[test]
fn redis() {
    let server = Redis::start();
    // A claim that has to settle first would be reported on standard error.
    works_on(&format!("redis://{}?may_lose=0", server.address()));
}

#[test]
fn postgres() {
    let server = Postgres::start();
    works_on(&format!("postgres://postgres@{}/postgres", server.address()));
}

#[test]
fn mariadb() {
    let server = MariaDb::start();
    server.sql("CREATE DATABASE ids");
    works_on(&format!("mysql://root@{}/ids", server.address()));
}

#[test]
fn etcd() {
    let server = Etcd::start();
    works_on(&format!("etcd://{}", server.address()));
}

#[test]
fn zookeeper() {
    let server = ZooKeeper::start();
    works_on(&format!("zookeeper://{}/ids", server.address()));
}

/// Goal: two servers on one store have two workers, and one that starts before its store waits for it.
#[test]
fn servers_share_a_store_and_wait_for_it() {
    let redis = Redis::start();
    let url = format!("redis://{}", redis.address());
    redis.kill9();
    let sandbox = Sandbox::new().with_env("SNOWMINT_STORE", &url);
    let mut early = sandbox.start(&[]);
    early.wait_for("store unavailable; retrying: no ids until it answers");
    redis.restart();
    let first = early.ready("worker");
    let second = sandbox.serve(&[]).ready("worker");
    assert_ne!(first, second);
}

/// Goal: a server that starts in the middle of a failover waits for its end. Method: first no server accepts
/// writes, then two.
#[test]
fn a_start_during_a_failover_waits_for_its_end() {
    let primary = Redis::start();
    let replica = Redis::replica_of(&primary, &[]);
    let waits = "store unavailable; retrying: no ids until it answers";

    let sandbox = Sandbox::new().with_env("SNOWMINT_STORE", &format!("redis://{}", replica.address()));
    let mut early = sandbox.start(&[]);
    early.wait_for(waits);
    replica.promote();
    early.ready("worker");

    let both = format!("redis://{},{}", primary.address(), replica.address());
    let sandbox = Sandbox::new().with_env("SNOWMINT_STORE", &both);
    let mut early = sandbox.start(&[]);
    assert!(early.wait_for(waits).to_string().contains("both accept writes"));
    primary.follow(&replica);
    early.ready("worker");
}
