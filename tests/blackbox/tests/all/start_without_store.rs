//! `--start-without-store`: a node that restarts while its store is down serves under the lease that it
//! saved.

use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;

use snowmint_test_servers::Redis;
use snowmint_test_servers::snowmint::ids::{self, increase};
use snowmint_test_servers::snowmint::server::assert_says;
use snowmint_test_servers::snowmint::{self, FakeClock, Ids, Serve, Server};
use snowmint_test_servers::{port, time};

const PATIENCE: Duration = Duration::from_mins(1);

/// A node on a Redis, on fixed ports, with its lease in `folder/data`.
struct Node {
    serve: Serve,
    ids: Ids,
    last: u64,
}

impl Node {
    fn new(folder: &Path, redis: &Redis, ports: (SocketAddrV4, SocketAddrV4)) -> Self {
        let store = format!("redis://127.0.0.1:{}", redis.port());
        let args = ["--store", &store, "--start-without-store", "--window", "8s"];
        let serve = Serve::new(folder).args(args).ports(ports.0, ports.1);
        Self { serve, ids: Ids::new(), last: 0 }
    }

    /// Draws ids, and checks that they are above all ids of this node so far.
    fn take(&mut self, server: &Server, count: usize) {
        let taken = server.take(count);
        assert!(increase(&taken) && taken[0] > self.last, "not above what was made before");
        self.last = taken[count - 1];
        self.ids.add(&taken);
    }
}

fn ports() -> (SocketAddrV4, SocketAddrV4) {
    (port::free(), port::free())
}

/// Goal: a node that crashes and restarts while its store is down serves to the end of its lease, above all
/// its earlier ids. Then it reports the reason, and continues when the store is back. Method: a real Redis
/// that is killed.
#[test]
fn without_its_store_a_node_goes_on_under_its_saved_lease() {
    let folder = tempfile::tempdir().unwrap();
    let redis = Redis::start();
    let mut node = Node::new(folder.path(), &redis, ports());
    let mut server = node.serve.start();
    node.take(&server, 20_000);
    let worker = ids::worker(node.last);
    redis.kill9();
    server.kill();

    // Twice: the third process must not repeat the ids of the second.
    let mut server = node.serve.start();
    node.take(&server, 20_000);
    server.kill();
    let server = node.serve.start();
    assert_says(&server.log_with("store unavailable; retrying", PATIENCE), &["resumed the saved lease"]);
    node.take(&server, 20_000);
    assert_eq!(ids::worker(node.last), worker);

    let mut client = server.client();
    let why = time::eventually("the lease ends", PATIENCE, || match client.next("default", 1).unwrap() {
        Ok(more) => {
            assert!(more[0] > node.last);
            node.last = more[0];
            None
        }
        Err(why) => Some(why),
    });
    assert_says(&why, &["NOTREADY", "the lease ended at", "unreachable since this node started"]);
    assert_eq!(server.get("/readyz").status, 503);

    redis.restart();
    let next = time::eventually("ids again", PATIENCE, || client.next("default", 1).unwrap().ok());
    assert!(next[0] > node.last);
    node.ids.assert_unique();
    server.stop();
    assert!(!folder.path().join("data/lease-1.json").exists(), "a lease that was given back is not saved");
}

/// Goal: without its store, a node serves no namespace that was dropped or got another layout, even if its
/// flags name it and its saved lease lasts. Method: both happen while it serves; then the store and the node
/// crash.
#[test]
fn without_its_store_a_node_serves_no_namespace_that_was_dropped_or_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let redis = Redis::start();
    let store = format!("redis://127.0.0.1:{}", redis.port());
    let ns = |args: &[&str]| {
        let done = snowmint::run(folder.path(), [&["ns"], args, &["--store", &store]].concat());
        assert!(done.status.success(), "{}", snowmint::text(&done));
    };
    let args = ["--namespaces", "default,orders,users", "--namespaces-poll", "100ms", "--window", "60s"];
    let (http, resp) = ports();
    let serve = Serve::new(folder.path())
        .args(["--store", &store, "--start-without-store"])
        .args(args)
        .ports(http, resp);
    let mut server = serve.start();
    ns(&["drop", "orders"]);
    ns(&["drop", "users"]);
    let gone =
        |name: &str| Some(server.get(&format!("/v1/ids/{name}")).status).filter(|status| *status == 404);
    time::eventually("both are dropped", PATIENCE, || gone("orders").and(gone("users")));
    ns(&["add", "users", "--start-over", "--scheme", "snowflake", "--layout", "discord"]);
    // Its flags give it the layout of the service.
    let refused = || Some(server.get("/v1/ids/users")).filter(|answer| answer.status == 503);
    let refused = time::eventually("it is there again, and not served here", PATIENCE, refused);
    assert_says(&refused.body, &["users", "epoch:2015-01-01"]);
    redis.kill9();
    server.kill();

    let server = serve.start();
    assert_says(
        &server.log_with("namespace orders is not served until", PATIENCE),
        &["resumed the saved lease"],
    );
    assert_eq!(server.get("/v1/ids/default").status, 200);
    assert_eq!(server.get("/v1/ids/orders").status, 404);
    assert_eq!(server.get("/v1/ids/users").status, 404);
    server.stop();
}

/// Goal: a clock that was stepped back between the crash and the start produces no duplicate. Method: the
/// wall clock of the second process is 3 s behind, so it first waits for the end of the timestamps that the
/// first one may have used.
#[test]
fn a_clock_stepped_back_before_the_start_waits_for_what_was_used() {
    let folder = tempfile::tempdir().unwrap();
    let redis = Redis::start();
    let mut node = Node::new(folder.path(), &redis, ports());
    let mut server = node.serve.start();
    node.take(&server, 20_000);
    redis.kill9();
    server.kill();
    let clock = FakeClock::new(folder.path(), "-3s");
    let server = node.serve.clone().clock(&clock).start();
    node.take(&server, 20_000);
    node.ids.assert_unique();
    server.log_with("resumed the saved lease", PATIENCE);
}

/// Goal: a saved lease is used in one place. Method: a second server on the same folder, and one on a copy of
/// it.
#[test]
fn a_saved_lease_is_used_by_one_process_and_not_from_a_copy() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let redis = Redis::start();
    let first = ports();
    let mut server = Node::new(folder.path(), &redis, first).serve.start();
    let second = Node::new(folder.path(), &redis, ports()).serve.refused();
    second.assert_says(&["leases are saved in", "by another process"]);

    redis.kill9();
    server.kill();
    let copy = elsewhere.path().join("data");
    std::fs::create_dir(&copy).unwrap();
    for name in ["lease-1.json", "leases.lock"] {
        std::fs::copy(folder.path().join("data").join(name), copy.join(name)).unwrap();
    }
    let copied = Node::new(elsewhere.path(), &redis, first).serve.spawn();
    copied.log_with("of which this is a copy", PATIENCE);
    let log = copied.log_with("store unavailable; retrying: no ids until it answers", PATIENCE);
    assert!(!log.contains("ready: ids are served"), "{log}");
}
