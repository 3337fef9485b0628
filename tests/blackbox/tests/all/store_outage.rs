//! A store that is unavailable: at the start a node waits for it; later the node serves to the end of its
//! lease. The tests also check what operators can see before ids stop.

use std::net::TcpStream;
use std::time::Duration;

use snowmint_test_servers::snowmint::ids::{increase, unix_ms};
use snowmint_test_servers::snowmint::server::assert_says;
use snowmint_test_servers::snowmint::{Ids, Serve, Server};
use snowmint_test_servers::time;
use snowmint_test_servers::{EtcdCluster, Postgres};

const PATIENCE: Duration = Duration::from_mins(1);

fn serve(folder: &std::path::Path, store: &Postgres) -> Serve {
    let url = format!("postgres://postgres@{}/postgres", store.address());
    Serve::new(folder).args(["--store", &url, "--window", "8s"])
}

/// Goal: a node without a store reports it, retries at growing intervals, opens no port, and serves once the
/// store is there; one that is stopped meanwhile exits cleanly. Method: two nodes on a server that is down.
#[test]
fn a_store_that_is_down_at_the_start_is_waited_for() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Postgres::start());
    store.kill9();
    let serve = serve(folder.path(), &store);
    let mut waits = serve.spawn();
    let gives_up = serve.spawn();
    let log = time::eventually("three tries", PATIENCE, || {
        let log = waits.log();
        (log.matches("store unavailable; retrying").count() >= 3).then_some(log)
    });
    assert_says(&log, &["no ids until it answers", &store.address().to_string()]);
    let pauses = log.lines().filter_map(|line| line.split_once("next_try_in=")?.1.split_whitespace().next());
    let pauses: Vec<&str> = pauses.take(3).collect();
    assert_eq!(pauses, ["200ms", "400ms", "800ms"]);
    assert!(TcpStream::connect(waits.http()).is_err() && TcpStream::connect(waits.resp()).is_err());
    gives_up.stop();

    store.restart();
    let (after, _) = time::eventually("an id", PATIENCE, || waits.ask_once());
    println!("the first id came {after:.1?} after the start");
    assert!(waits.ready() && waits.exit_status().is_none());
}

/// The metrics of a node while its store is down.
struct Told {
    remaining: f64,
    store_errors: f64,
}

fn told(server: &Server) -> Told {
    let metric = |name: &str| server.metric(name);
    Told {
        remaining: metric("snowmint_lease_remaining_seconds"),
        store_errors: metric("snowmint_store_errors_total"),
    }
}

/// Goal: without a store a node makes ids up to the end of its lease and none beyond. It warns before, then
/// reports the reason, and recovers by itself. Method: a server is killed under a node that serves requests,
/// and started again.
#[test]
fn a_store_that_goes_away_is_outlived_to_the_end_of_the_lease() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Postgres::start());
    let server = serve(folder.path(), &store).start();
    let mut client = server.client();
    let mut ids = server.take(1000);
    assert!(told(&server).store_errors < 0.5);
    store.kill9();

    // Renewals come every third of the window, so less than half of it left is a sign of a problem.
    let sign = time::eventually("a sign of the outage, with ids still made", PATIENCE, || {
        let told = told(&server);
        ids.extend(client.next("default", 10).unwrap().expect("the lease has not ended: there was no sign"));
        (told.remaining < 4.0 && told.store_errors > 0.5).then_some(told)
    });
    let ready = server.get("/readyz");
    assert_eq!(ready.status, 200, "ids are made still: {}", ready.body);
    let until = ready.json()["until"].as_str().unwrap().to_owned();
    assert_says(ready.json()["trouble"].as_str().unwrap(), &[&store.address().to_string()]);
    println!("{} s before the end, until {until}, {} calls had failed", sign.remaining, sign.store_errors);

    let error = time::eventually("the end of the lease", PATIENCE, || {
        client.next("default", 10).unwrap().map(|more| ids.extend(more)).err()
    });
    assert_says(&error, &["NOTREADY ", &until, "postgres://", &store.address().to_string()]);
    let refused = server.get("/readyz");
    assert_eq!(refused.status, 503);
    assert_says(&refused.body, &[&until, &store.address().to_string()]);
    assert!(server.metric("snowmint_lease_held").abs() < 0.5);
    assert_eq!(server.get("/healthz").status, 200, "the process itself is well");

    let last = unix_ms(*ids.last().unwrap());
    let end = last_instant(&until);
    assert!(last < end, "an id of {last} under a lease that ends at {end}");
    store.restart();
    let more = time::eventually("ids again", PATIENCE, || client.next("default", 1000).unwrap().ok());
    ids.extend(more);
    assert!(increase(&ids));
    assert_eq!(server.get("/readyz").status, 200);
    let mut all = Ids::new();
    all.add(&ids);
    all.assert_unique();
}

/// Returns the instant of a text such as `2026-11-21T14:46:27.842Z`, in Unix milliseconds, as the program
/// itself reads it.
fn last_instant(text: &str) -> u64 {
    let output = snowmint_test_servers::snowmint::third_party::output("date", ["-u", "-d", text, "+%s%3N"]);
    output.trim().parse().unwrap()
}

/// Goal: one frozen member of three, with its connections open, stops no node, even if the window is shorter
/// than the store's own timeouts. Method: each member in turn is paused for longer than the window; ids must
/// continue meanwhile.
#[test]
fn a_frozen_member_stops_no_node() {
    let (folder, cluster) = (tempfile::tempdir().unwrap(), EtcdCluster::start(3));
    let hosts: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let url = format!("etcd://{}", hosts.join(","));
    let server = Serve::new(folder.path()).args(["--store", &url, "--window", "3s"]).start();
    for member in cluster.nodes() {
        member.pause();
        let paused = time::now();
        time::eventually("ids while one of three members is frozen", PATIENCE, || {
            let lease_of_before_is_over = paused.elapsed() > Duration::from_secs(4);
            (lease_of_before_is_over && server.ask_once().is_some()).then_some(())
        });
        member.resume();
    }
}
