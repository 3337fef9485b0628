//! As many nodes as workers on one store: a node that stops hands its worker over, a node that starts takes
//! it, and one node too many learns how long to wait.

use std::path::Path;
use std::time::Duration;

use snowmint_test_servers::Etcd;
use snowmint_test_servers::snowmint::server::assert_says;
use snowmint_test_servers::snowmint::{Ids, Serve, Server};
use snowmint_test_servers::time;

const NODES: usize = 4;
const FOUR_WORKERS: &str = "time:41@1ms datacenter:8 worker:2 sequence:12 epoch:2010-11-04T01:42:54.657Z";
const PATIENCE: Duration = Duration::from_mins(1);

/// A node with a name that no record contains yet, like a pod.
fn node(folder: &Path, store: &Etcd, window: &str, name: &str) -> Serve {
    let url = format!("etcd://{}", store.address());
    let serve = Serve::new(folder).args(["--store", &url, "--layout", FOUR_WORKERS]);
    serve.args(["--window", window, "--holder", name])
}

fn worker(id: u64) -> u64 {
    (id >> 12) & 3
}

/// Goal: a rolling restart needs no spare worker and does not wait for leases to end. Method: four nodes on
/// four workers, with a window of ten minutes, end by SIGTERM one after the other; each time a node with a
/// new name starts, which can only take the released worker.
#[test]
fn a_rolling_restart_hands_each_worker_over() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Etcd::start());
    let (folder, mut ids) = (folder.path(), Ids::new());
    let start = |name: &str| node(folder, &store, "10m", name).start();
    let mut nodes: Vec<Server> = (0..NODES).map(|i| start(&format!("old-{i}"))).collect();
    let mut slowest = Duration::ZERO;
    for i in 0..NODES {
        for node in &nodes {
            ids.add(&node.take(1000));
        }
        let last = nodes[i].take(10);
        ids.add(&last);
        let began = time::now();
        let ended = nodes.remove(i).stop();
        assert_says(&ended.log, &["lease released"]);
        nodes.insert(i, start(&format!("new-{i}")));
        slowest = slowest.max(began.elapsed());
        let first = nodes[i].take(10);
        assert_eq!(worker(first[0]), worker(last[0]), "the only worker that was free");
        assert!(first[0] > last[9]);
        ids.add(&first);
    }
    ids.assert_unique();
    println!("from SIGTERM of a node until its successor is ready: {slowest:.0?} at most");
}

/// Goal: one node too many waits, reports which worker frees first and when (log and requests), and serves as
/// soon as a worker is released. Method: a fifth node on four workers; then one of the four ends.
#[test]
fn one_node_too_many_is_told_who_frees_first_and_when() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Etcd::start());
    let (folder, mut ids) = (folder.path(), Ids::new());
    let name = |i: usize| format!("node-{i}");
    let mut nodes: Vec<Server> = (0..NODES).map(|i| node(folder, &store, "3s", &name(i)).start()).collect();
    let workers: Vec<u64> = nodes.iter().map(|node| worker(node.take(1)[0])).collect();
    let fifth = node(folder, &store, "3s", "node-5").spawn();
    let log = fifth.log_with("listening; ids are rejected", PATIENCE);
    let line = log.lines().find(|line| line.contains("no worker is free")).unwrap_or_else(|| panic!("{log}"));
    // The text of the answer, compared with the holders of the workers.
    let told = |text: &str| {
        let (_, rest) = text.split_once("no worker is free; worker ").unwrap_or_else(|| panic!("{text}"));
        let words: Vec<&str> = rest.split_whitespace().collect();
        let nth = workers.iter().position(|it| it.to_string() == words[0]).unwrap();
        assert_eq!(words[1..4], ["frees", "first,", "at"], "{rest}");
        assert!(words[4].contains('T') && words[4].ends_with("Z,"), "an instant: {rest}");
        assert_eq!(words[5..7], ["if", name(nth).as_str()], "{rest}");
    };
    told(line);
    let error = fifth.client().next("default", 1).unwrap().expect_err("four workers, five nodes");
    assert!(error.starts_with("NOTREADY "), "{error}");
    told(&error);
    let ready = fifth.get("/readyz");
    assert_eq!(ready.status, 503);
    told(ready.json()["detail"].as_str().unwrap());

    for node in &nodes {
        ids.add(&node.take(1000));
    }
    nodes.remove(2).stop();
    let (_, first) = time::eventually("the fifth serves", PATIENCE, || fifth.ask_once());
    assert_eq!(worker(first), workers[2], "the worker that was handed over");
    ids.add(&fifth.take(1000));
    for node in &nodes {
        ids.add(&node.take(1000));
    }
    ids.assert_unique();
}

/// Goal: only one node can have a fixed worker, even on different machines. Method: two nodes with `--worker
/// 3` on one store.
#[test]
fn a_second_node_with_the_same_fixed_worker_is_refused_with_the_name_of_the_first() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Etcd::start());
    let fixed = |name: &str| node(folder.path(), &store, "2s", name).args(["--worker", "3"]);
    let first = fixed("web-1").start();
    let mut ids = Ids::new();
    ids.add(&first.take(1000));
    let refused = fixed("web-2").refused();
    refused.assert_says(&["worker 3 is held by web-1 until", "another worker"]);
    assert!(first.ready());
    ids.add(&first.take(1000));
    first.stop();
    let second = fixed("web-2").start();
    ids.add(&second.take(1000));
    ids.assert_unique();
}
