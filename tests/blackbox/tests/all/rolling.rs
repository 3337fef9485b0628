//! Rolling restarts behind load balancers: three nodes are restarted one by one under load, and no request
//! fails.

use std::io;
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use snowmint_test_servers::snowmint::http::Http;
use snowmint_test_servers::snowmint::third_party::Balancer;
use snowmint_test_servers::snowmint::third_party::python;
use snowmint_test_servers::snowmint::{Ids, Serve, Server};
use snowmint_test_servers::time;

const PATIENCE: Duration = Duration::from_secs(20);
const CLIENTS: usize = 4;

/// Nodes on one SQLite file that can be restarted on the same ports.
struct Nodes {
    serve: Vec<Serve>,
    running: Vec<Server>,
}

impl Nodes {
    fn start(folder: &Path) -> Self {
        let args = ["--drain-delay", "2s", "--layout", "leaf"];
        let running: Vec<Server> = (0..3).map(|_| Serve::new(folder).args(args).start()).collect();
        let serve = |node: &Server| Serve::new(folder).args(args).ports(node.http(), node.resp());
        Self { serve: running.iter().map(serve).collect(), running }
    }

    /// Restarts each node, one after the other, under load; `asked` is the number of requests answered so
    /// far.
    fn restart_each(&mut self, asked: &AtomicU64) {
        for (serve, running) in self.serve.iter().zip(&mut self.running) {
            under_load(asked);
            running.terminate();
            let ended = running.ended();
            assert!(ended.status.success(), "{}: {}", ended.status, ended.log);
            assert!(!ended.log.contains("did not finish in time"), "{}", ended.log);
            *running = serve.start();
        }
        under_load(asked);
    }
}

/// Waits until some more requests are answered.
fn under_load(asked: &AtomicU64) {
    let before = asked.load(Ordering::Relaxed);
    time::eventually("load", PATIENCE, || (asked.load(Ordering::Relaxed) > before + 500).then_some(()));
}

/// Sends requests over keep-alive connections until it is stopped, and returns every id. It leaves a
/// connection only when the answer says so (RFC 9112).
fn ask(balancer: SocketAddrV4, stop: &AtomicBool, asked: &AtomicU64) -> io::Result<Vec<u64>> {
    let mut ids = Vec::new();
    let mut kept: Option<Http> = None;
    while !stop.load(Ordering::Relaxed) {
        let mut client = match kept.take() {
            Some(client) => client,
            None => Http::connect(balancer, PATIENCE)?,
        };
        let answer = client.get("/v1/ids/default?count=2", "")?;
        ids.extend(answer.ids().map_err(io::Error::other)?);
        asked.fetch_add(1, Ordering::Relaxed);
        let closes = answer.header("connection").is_some_and(|it| it.eq_ignore_ascii_case("close"));
        kept = (!closes).then_some(client);
        thread::sleep(Duration::from_millis(2));
    }
    Ok(ids)
}

/// Restarts the nodes while clients send requests to `http` and `beside` runs; every request must succeed.
fn roll(nodes: &mut Nodes, http: SocketAddrV4, beside: impl FnOnce(&AtomicBool) -> Vec<u64> + Send) {
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut ids = Ids::new();
    thread::scope(|scope| {
        let (stop, asked) = (&stop, &asked);
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(move || ask(http, stop, asked))).collect();
        let beside = scope.spawn(move || beside(stop));
        // The threads above end even if a check below fails.
        let rolled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| nodes.restart_each(asked)));
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            let seen = client.join().unwrap().unwrap_or_else(|error| panic!("a request failed: {error}"));
            ids.add(&seen);
        }
        ids.add(&beside.join().unwrap());
        rolled.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });

    ids.assert_unique();
}

/// Draws with redis-py, which reconnects and retries when a connection ends: RESP cannot tell a client to go
/// elsewhere.
const REDIS_PY: &str = r#"
import os, sys, time, redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
port, stop = int(sys.argv[1]), sys.argv[2]
r = redis.Redis(port=port, retry=Retry(ConstantBackoff(0.05), 5), retry_on_error=[redis.ConnectionError])
while not os.path.exists(stop):
    with r.pipeline() as pipe:
        for i in range(5):
            pipe.execute_command("ID.NEXT", "default")
        for id in pipe.execute():
            print(int(id))
    time.sleep(0.005)
"#;

/// Goal: a rolling restart behind a balancer that checks `/readyz` causes no error. Method: HAProxy in HTTP
/// mode, four clients that count any failure; beside them redis-py's transactions through HAProxy in TCP
/// mode.
#[test]
fn a_rolling_restart_behind_haproxy_fails_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = Nodes::start(folder.path());
    let balancer = Balancer::haproxy(folder.path(), &nodes.running);
    let (port, stopped) = (balancer.resp().port().to_string(), folder.path().join("stop"));
    roll(&mut nodes, balancer.http(), |stop| {
        thread::scope(|scope| {
            let python = scope.spawn(|| python("redis", REDIS_PY, &[&port, stopped.to_str().unwrap()]));
            while !stop.load(Ordering::Relaxed) && !python.is_finished() {
                thread::sleep(Duration::from_millis(20));
            }
            std::fs::write(&stopped, "").unwrap();
            let printed = python.join().unwrap();
            let ids: Vec<u64> = printed.lines().map(|line| line.parse().unwrap()).collect();
            assert!(ids.len() > 100, "{printed}");
            ids
        })
    });
    // It spreads requests over all ready nodes, once it has checked the last one.
    for node in &nodes.running {
        time::eventually("the balancer sends requests to each node", PATIENCE, || {
            let mut client = Http::connect(balancer.http(), PATIENCE).unwrap();
            client.get("/v1/ids/default?count=1", "").unwrap();
            (node.metric("snowmint_ids_issued_total") > 0.0).then_some(())
        });
    }
}

/// Goal: the same behind a balancer that only checks whether it can connect. Method: nginx forwards bytes,
/// even to a node that is about to exit.
#[test]
fn a_rolling_restart_behind_a_tcp_balancer_fails_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = Nodes::start(folder.path());
    let balancer = Balancer::nginx(folder.path(), &nodes.running);
    roll(&mut nodes, balancer.http(), |_| Vec::new());
}
