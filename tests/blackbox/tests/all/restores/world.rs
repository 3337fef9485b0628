//! Three nodes, a client of each that draws ids and numbers continuously, and a fourth node that joins.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use snowmint_test_servers::snowmint::server::assert_says;
use snowmint_test_servers::snowmint::{self, Ids, Resp, Serve, Server};
use snowmint_test_servers::time;
use tempfile::TempDir;

use super::stores::{Nodes, Restorable};

const NODES: usize = 3;
/// As many workers as nodes, including the one that joins: a node can take only a worker that a restore
/// forgets.
const LAYOUT: &str = "time:41@1ms datacenter:11 worker:2 sequence:9 epoch:2010-11-04T01:42:54.657Z";
/// Number of ids drawn at a time; a segment has twice as many.
const DRAW: usize = 50;
/// Number of draws of each kind from a node between two steps of a test.
const DRAWS: usize = 20;
const PATIENCE: Duration = Duration::from_mins(1);

/// Goal and method of `..._under_running_nodes`: three nodes hold leases and reserve numbers; a backup is
/// taken; they renew and reserve more; the store goes back to the backup without notice. Once each node has
/// noticed, a fourth takes the only free worker.
pub(crate) fn under_running_nodes(store: &dyn Restorable) {
    let mut world = World::start(store, "6s");
    world.back_up();
    store.restore_under_nodes();
    // On a busy machine the store may be unavailable until a lease ends: that node claims another.
    let went_on = |node: &Node| node.server.metric("snowmint_leases_forgotten_total") > 0.0;
    let ended = |node: &Node| node.server.log().contains("the lease has ended");
    world.until("each node has noticed", |node| {
        (went_on(node) || ended(node)) && node.server.metric("snowmint_lease_held") > 0.0
    });
    world.start_another();
    world.draw_from_all();
    world.check_ids();
    let refused: f64 =
        world.nodes.iter().map(|node| node.server.metric("snowmint_segments_refused_total")).sum();
    assert!(refused > 0.0, "no node has noticed that the counter went back");
    for node in world.nodes.iter().take(NODES).filter(|node| !ended(node)) {
        // Over a store that may lose writes, the last grant may not have settled yet: then no id used it.
        let log = node.server.log();
        let told = ["the store lost writes that it had acknowledged", "the store lost a grant of this lease"];
        assert!(told.iter().any(|words| log.contains(words)), "{log}");
    }
}

/// Goal and method of `..._by_the_procedure`: the same, but the operator stops the store, restores it
/// elsewhere, recovers it from the reports of the nodes, and puts it in place.
pub(crate) fn by_the_procedure(store: &dyn Restorable) {
    let mut world = World::start(store, "3s");
    world.back_up();
    store.stop();
    world.recover_by_the_nodes();
    world.draw_from_all();
    world.check_ids_and_numbers();
}

pub(crate) struct World<'a> {
    store: &'a dyn Restorable,
    window: &'static str,
    /// The `--store` of nodes that start now.
    url: String,
    nodes: Vec<Node>,
    /// Ids and numbers from nodes that have ended.
    earlier: Vec<Drawn>,
    // Last, so that the logs exist as long as the nodes.
    folder: TempDir,
}

struct Node {
    server: Server,
    client: Client,
}

impl<'a> World<'a> {
    /// Starts the nodes, and one more that stops again, so that every worker has a record.
    pub(crate) fn start(store: &'a dyn Restorable, window: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let words = ["ns", "add", "tickets", "--scheme", "segment", "--size-min", "100", "--size-max", "100"];
        let url = store.url();
        run(&folder, ["store", "init", "--store", &url].iter());
        run(&folder, words.iter().chain(&["--store", &url]));
        let mut world = Self { store, folder, window, url, nodes: Vec::new(), earlier: Vec::new() };
        world.start_all();
        world.start_another();
        world.draw_from_all();
        let Node { server, client } = world.nodes.pop().unwrap();
        world.earlier.push(client.stop());
        server.stop();
        world
    }

    pub(crate) fn start_all(&mut self) {
        for _ in 0..NODES {
            self.start_another();
        }
    }

    fn start_another(&mut self) {
        let name = format!("node-{}-{}", self.earlier.len(), self.nodes.len());
        let serve = Serve::new(self.folder.path()).args(["--store", &self.url, "--window", self.window]);
        let serve =
            serve.args(["--layout", LAYOUT, "--namespaces-poll", "100ms"]).env("SNOWMINT_HOLDER", name);
        let server = serve.start();
        let client = Client::start(server.resp());
        self.nodes.push(Node { server, client });
    }

    /// Waits until a condition holds for each node.
    fn until(&self, what: &str, holds: impl Fn(&Node) -> bool) {
        for node in &self.nodes {
            time::eventually(what, PATIENCE, || holds(node).then_some(()));
        }
    }

    pub(crate) fn draw_from_all(&self) {
        let before: Vec<usize> = self.nodes.iter().map(|node| node.client.draws()).collect();
        for (node, before) in self.nodes.iter().zip(before) {
            time::eventually("a node serves", PATIENCE, || {
                (node.client.draws() >= before + DRAWS).then_some(())
            });
        }
    }

    /// Backs the store up, and waits until it lacks reservations and a renewal of each node.
    pub(crate) fn back_up(&self) {
        let until = |node: &Node| node.server.metric("snowmint_lease_until_timestamp_seconds");
        self.store.back_up();
        let at_backup: Vec<f64> = self.nodes.iter().map(until).collect();
        for (node, at_backup) in self.nodes.iter().zip(at_backup) {
            time::eventually("a renewal", PATIENCE, || (until(node) > at_backup).then_some(()));
        }
        self.draw_from_all();
    }

    /// Recovers the restored store from the reports of the nodes, and lets them use it.
    fn recover_by_the_nodes(&mut self) {
        let nodes: Vec<String> =
            self.nodes.iter().map(|node| format!("http://{}", node.server.http())).collect();
        self.restore_by(&["--nodes", &nodes.join(",")]);
        self.start_another();
    }

    /// Restores the store elsewhere, recovers it there and puts it in place.
    pub(crate) fn restore_by(&mut self, known: &[&str]) {
        let aside = self.store.restore_aside();
        let words = ["store", "recover", "--store", &aside, "--window", self.window];
        let words: Vec<&str> = words.iter().chain(known).copied().collect();
        let plan = run(&self.folder, &words);
        assert_says(&plan, &["counter segments/tickets", "4 records, 0 new", "nothing was changed"]);
        let done = run(&self.folder, words.iter().chain(&["--yes"]));
        assert_says(&done, &["may be used; the workers of the pools above are reserved until"]);
        if let Nodes::Start(url) = self.store.put_in_place() {
            self.url = url;
            for mut node in std::mem::take(&mut self.nodes) {
                node.server.terminate();
                node.server.ended();
                self.earlier.push(node.client.stop());
                self.start_another();
            }
        }
    }

    pub(crate) fn kill_all(&mut self) {
        for mut node in self.nodes.drain(..) {
            node.server.kill();
            self.earlier.push(node.client.stop());
        }
        self.store.stop();
    }

    /// Checks that no id is a duplicate over all nodes, and no number within a node.
    fn check_ids(&mut self) {
        let drawn = self.drawn();
        for Drawn { numbers, .. } in &drawn {
            let twice = numbers.clone().duplicates();
            assert!(twice.is_empty(), "a node gave numbers twice, from {} on", twice[0]);
        }
        all(drawn, |drawn| drawn.ids).assert_unique();
    }

    /// Checks that no id and no number is a duplicate over all nodes.
    pub(crate) fn check_ids_and_numbers(&mut self) {
        let drawn = self.drawn();
        let numbers = all(drawn.iter().cloned(), |drawn| drawn.numbers);
        let (count, twice) = (numbers.len(), numbers.duplicates());
        assert!(twice.is_empty(), "{} of {count} numbers are duplicates, from {} on", twice.len(), twice[0]);
        all(drawn, |drawn| drawn.ids).assert_unique();
    }

    fn drawn(&mut self) -> Vec<Drawn> {
        let stopped = self.nodes.iter_mut().map(|node| node.client.halt());
        stopped.collect::<Vec<_>>().into_iter().chain(std::mem::take(&mut self.earlier)).collect()
    }
}

fn all(drawn: impl IntoIterator<Item = Drawn>, kind: impl Fn(Drawn) -> Ids) -> Ids {
    let mut all = Ids::new();
    drawn.into_iter().for_each(|drawn| all.append(kind(drawn)));
    all
}

/// Runs a command that must succeed, and returns what it wrote.
fn run(folder: &TempDir, words: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> String {
    let output = snowmint::run(folder.path(), words);
    assert!(output.status.success(), "{}", snowmint::text(&output));
    snowmint::text(&output)
}

/// The ids and numbers of a client from one process.
#[derive(Clone, Default)]
struct Drawn {
    ids: Ids,
    numbers: Ids,
}

/// Draws ids and numbers from one node until it is stopped, and ignores errors.
struct Client {
    over: Arc<AtomicBool>,
    /// Number of rounds in which it got both.
    draws: Arc<AtomicUsize>,
    thread: Option<JoinHandle<Drawn>>,
}

impl Client {
    fn start(node: SocketAddrV4) -> Self {
        let (over, draws) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let thread = {
            let (over, draws) = (Arc::clone(&over), Arc::clone(&draws));
            thread::spawn(move || {
                let mut got = Drawn::default();
                while !over.load(Ordering::Relaxed) {
                    if let Ok(client) = Resp::connect(node, Duration::from_secs(10)) {
                        got.take_from(client, &over, &draws);
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                got
            })
        };
        Self { over, draws, thread: Some(thread) }
    }

    fn draws(&self) -> usize {
        self.draws.load(Ordering::Relaxed)
    }

    fn stop(mut self) -> Drawn {
        self.halt()
    }

    fn halt(&mut self) -> Drawn {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().expect("stopped once").join().unwrap()
    }
}

impl Drawn {
    /// Runs until the test ends or the connection breaks.
    fn take_from(&mut self, mut client: Resp, over: &AtomicBool, draws: &AtomicUsize) {
        while !over.load(Ordering::Relaxed) {
            let mut both = true;
            for (namespace, into) in [("default", &mut self.ids), ("tickets", &mut self.numbers)] {
                match client.next(namespace, DRAW) {
                    Ok(Ok(ids)) => into.add(&ids),
                    Ok(Err(_)) => both = false,
                    Err(_) => return,
                }
            }
            draws.fetch_add(usize::from(both), Ordering::Relaxed);
            thread::sleep(Duration::from_millis(10));
        }
    }
}
