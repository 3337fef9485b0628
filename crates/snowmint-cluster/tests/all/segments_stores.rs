//! Goal: over every store, no number is returned twice, whatever crashes; in direct mode numbers increase in
//! real time; with two stripes the crash of one server causes no errors. Method: real servers that are killed
//! with SIGKILL and restarted under load, nodes that are dropped without a release; every number that any
//! node returned is recorded and compared at the end.

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use snowmint::AnchoredClock;
use snowmint_cluster::segment::{Mode, Run, SegmentConfig, Segments, Stripe};
use snowmint_store::{Counter, Key, Store, open};
use snowmint_test_servers::{Etcd, MariaDb, Postgres, Redis, Server, ZooKeeper};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const NODES: usize = 8;
const CLIENTS: usize = 16;
/// The minimum number of numbers per store: more than 5 million over six stores.
const NUMBERS: u64 = 900_000;
/// The same in direct mode, in which a few are drawn at a time.
const DIRECT_NUMBERS: u64 = 5000;
const CRASHES_OF_NODES: usize = 12;

async fn counter(url: &str, key: &str, stripe: Stripe) -> Arc<dyn Counter> {
    // A server that has just started may reject connections for a moment.
    for _ in 0..600 {
        if let Ok(store) = open(url).await {
            let store: Arc<dyn Store> = store;
            return Arc::new(stripe.counter(store, Key::new(key).unwrap(), 1));
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("{url} cannot be opened");
}

fn config() -> SegmentConfig {
    let second = Duration::from_secs(1);
    SegmentConfig::new().sizes(100..=20_000).target(second / 10).reserve(second).patience(second * 30)
}

fn source(counters: Vec<Arc<dyn Counter>>, config: SegmentConfig) -> Segments {
    Segments::start(counters, config, AnchoredClock::new()).unwrap()
}

/// What the clients of all nodes got, and when they requested it.
struct Clients {
    stop: Arc<AtomicBool>,
    /// The number of numbers so far.
    given: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<(Vec<Given>, u64)>>,
}

#[derive(Clone, Copy)]
struct Given {
    asked: Instant,
    got: Instant,
    run: Run,
}

/// A node, which is replaced when it crashes.
type Node = Arc<RwLock<Segments>>;

impl Clients {
    /// Starts clients; each requests up to `most` numbers at a time.
    fn start(nodes: &[Node], most: usize) -> Self {
        let (stop, given) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = |client: usize| {
            let (node, stop, given) =
                (Arc::clone(&nodes[client % nodes.len()]), Arc::clone(&stop), Arc::clone(&given));
            tokio::spawn(async move {
                let (mut runs, mut errors) = (Vec::new(), 0);
                let mut count = client;
                while !stop.load(Ordering::Relaxed) {
                    count = (count * 31 + 7) % most;
                    let segments = node.read().unwrap().clone();
                    let asked = Instant::now();
                    let taken = match count % 5 {
                        0 => segments
                            .take_run(NonZeroU64::new(count as u64 + 1).unwrap())
                            .await
                            .map(|run| vec![run]),
                        _ => segments.take(count + 1).await,
                    };
                    match taken {
                        Ok(taken) => {
                            given.fetch_add(count as u64 + 1, Ordering::Relaxed);
                            let got = Instant::now();
                            runs.extend(taken.into_iter().map(|run| Given { asked, got, run }));
                        }
                        Err(_) => errors += 1,
                    }
                    sleep(Duration::from_millis(1)).await;
                }
                (runs, errors)
            })
        };
        let tasks = (0..CLIENTS).map(client).collect();
        Self { stop, given, tasks }
    }

    async fn until_given(&self, numbers: u64) {
        let limit = Instant::now() + Duration::from_mins(2);
        while self.given.load(Ordering::Relaxed) < numbers {
            assert!(Instant::now() < limit, "only {} numbers", self.given.load(Ordering::Relaxed));
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until this many more numbers were returned.
    async fn until_given_more(&self, numbers: u64) {
        self.until_given(self.given.load(Ordering::Relaxed) + numbers).await;
    }

    async fn stop(self) -> (Vec<Given>, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let (mut all, mut errors) = (Vec::new(), 0);
        for task in self.tasks {
            let (given, failed) = task.await.unwrap();
            all.extend(given);
            errors += failed;
        }
        (all, errors)
    }
}

/// Returns how many runs begin with a number that another run has.
fn duplicates(given: &[Given]) -> usize {
    let mut runs: Vec<Run> = given.iter().map(|given| given.run).collect();
    runs.sort_unstable_by_key(Run::first);
    runs.windows(2).filter(|pair| pair[1].first() <= pair[0].last()).count()
}

/// Checks runs with a step: between the first and last number of a run, no other run with the same remainder
/// has a number. Returns the number of numbers.
fn no_number_twice(given: &[Given]) -> u64 {
    let mut runs: Vec<Run> = given.iter().map(|given| given.run).collect();
    runs.sort_unstable_by_key(|run| (run.first() % run.step().get(), run.first()));
    for pair in runs.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        assert_eq!(a.step(), b.step());
        let same_stripe = a.first() % a.step().get() == b.first() % b.step().get();
        assert!(!same_stripe || a.last() < b.first(), "twice: {a:?} and {b:?}");
    }
    runs.iter().map(|run| run.count().get()).sum()
}

/// Checks that a client that requested numbers after another one had received its numbers got greater ones.
fn grows_in_real_time(given: &[Given]) {
    let mut by_asked = given.to_vec();
    by_asked.sort_unstable_by_key(|given| given.asked);
    let mut by_got = given.to_vec();
    by_got.sort_unstable_by_key(|given| given.got);
    let (mut before, mut highest) = (by_got.iter().peekable(), 0);
    for later in by_asked {
        while let Some(earlier) = before.next_if(|earlier| earlier.got < later.asked) {
            highest = highest.max(earlier.run.last());
        }
        assert!(later.run.first() > highest, "{:?} was asked for after {highest} was there", later.run);
    }
}

async fn nodes(url: &str, key: &str, config: &SegmentConfig) -> Vec<Node> {
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        let counters = vec![counter(url, key, Stripe::WHOLE).await];
        nodes.push(Arc::new(RwLock::new(source(counters, config.clone()))));
    }
    nodes
}

/// Crashes nodes one after the other while clients draw.
async fn crash_nodes(clients: &Clients, nodes: &[Node], url: &str, key: &str, times: usize) {
    for n in 0..times {
        clients.until_given_more(10_000).await;
        let fresh = source(vec![counter(url, key, Stripe::WHOLE).await], config());
        let crashed = std::mem::replace(&mut *nodes[n % NODES].write().unwrap(), fresh);
        drop(crashed);
    }
}

async fn hands_out_each_number_once(url: &str, server: Option<&Server>) {
    cached(url, server).await;
    direct(url, server).await;
}

async fn cached(url: &str, server: Option<&Server>) {
    let (key, begin) = ("segments/cached", Instant::now());
    let nodes = nodes(url, key, &config()).await;
    let clients = Clients::start(&nodes, 997);
    crash_nodes(&clients, &nodes, url, key, CRASHES_OF_NODES / 2).await;
    if let Some(server) = server {
        server.kill9();
        sleep(Duration::from_millis(200)).await;
        server.restart();
    }
    crash_nodes(&clients, &nodes, url, key, CRASHES_OF_NODES / 2).await;
    clients.until_given(NUMBERS).await;
    let refills: u64 = nodes.iter().map(|node| node.read().unwrap().status().refills).sum();
    let (given, errors) = clients.stop().await;
    let numbers = no_number_twice(&given);
    assert!(numbers >= NUMBERS);
    println!(
        "{url}: {numbers} numbers, {refills} refills of the last nodes, {errors} errors, {:?}",
        begin.elapsed()
    );
}

async fn direct(url: &str, server: Option<&Server>) {
    let (key, begin) = ("segments/direct", Instant::now());
    let nodes = nodes(url, key, &config().mode(Mode::Direct)).await;
    let clients = Clients::start(&nodes, 7);
    clients.until_given(DIRECT_NUMBERS / 2).await;
    if let Some(server) = server {
        server.kill9();
        server.restart();
    }
    clients.until_given_more(DIRECT_NUMBERS / 2).await;
    let (given, errors) = clients.stop().await;
    let numbers = no_number_twice(&given);
    grows_in_real_time(&given);
    println!(
        "{url} direct: {numbers} numbers in {} calls, {errors} errors, {:?}",
        given.len(),
        begin.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb() {
    let server = MariaDb::start();
    hands_out_each_number_once(&format!("mysql://root@{}/test", server.address()), Some(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let server = Postgres::start();
    let url = format!("postgres://postgres@{}/postgres", server.address());
    hands_out_each_number_once(&url, Some(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis() {
    let server = Redis::start();
    // A restart loses nothing of the append-only file, because the kernel keeps running.
    let url = format!("redis://{}?may_lose=0", server.address());
    hands_out_each_number_once(&url, Some(&server)).await;
    cached(&format!("redis://{}", server.address()), Some(&server)).await;
}

/// Goal: a failover that loses acknowledged additions repeats no number; without the wait it does. Method: a
/// replica is cut off from its primary for a second in which nodes draw, and is promoted once the primary is
/// killed: what the primary acknowledged in that second is lost. Then other nodes start, because the earlier
/// ones may know what the replica lacks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_promotes_a_replica_that_lacks_the_newest_additions() {
    const MAY_LOSE: Duration = Duration::from_secs(5);
    let lost = lose_by_failover("may_lose=0", Duration::MAX).await;
    assert!(lost > 0, "the failover lost nothing, so it shows nothing");
    let kept = lose_by_failover("may_lose=5s", MAY_LOSE).await;
    println!("redis failover: {lost} duplicates at may_lose=0, {kept} at may_lose=5s");
    assert_eq!(kept, 0);
}

async fn lose_by_failover(setting: &str, most: Duration) -> usize {
    let primary = Redis::start();
    let replica = Redis::replica_of(&primary, &[]);
    replica.wait_connected();
    let url = format!("redis://{},{}?{setting}", primary.address(), replica.address());
    let config = SegmentConfig::new()
        .sizes(50..=50)
        .target(Duration::from_millis(10))
        .reserve(Duration::ZERO)
        .patience(Duration::from_secs(20));
    let running = nodes(&url, "segments/failover", &config).await;
    let clients = Clients::start(&running, 4);
    clients.until_given_more(300).await;
    let begin = Instant::now();
    // Nothing listens there.
    replica.command(&["REPLICAOF", "127.0.0.1", "1"]);
    sleep(Duration::from_secs(1)).await;
    primary.kill9();
    let lost = begin.elapsed();
    replica.promote();
    // If more is lost than the nodes were told, the test proves nothing.
    assert!(lost < most, "the machine is too slow: {lost:?}");
    let later = nodes(&url, "segments/failover", &config).await;
    let others = Clients::start(&later, 4);
    others.until_given_more(600).await;
    let (mut given, _) = clients.stop().await;
    given.extend(others.stop().await.0);
    duplicates(&given)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd() {
    let server = Etcd::start();
    hands_out_each_number_once(&format!("etcd://{}", server.address()), Some(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper() {
    let server = ZooKeeper::start();
    hands_out_each_number_once(&format!("zookeeper://{}", server.address()), Some(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("numbers.db").display());
    hands_out_each_number_once(&url, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_mariadb_stripes_one_is_killed_and_comes_back_without_an_error() {
    let servers = [MariaDb::start(), MariaDb::start()];
    let urls = servers.each_ref().map(|server| format!("mysql://root@{}/test", server.address()));
    let mut nodes: Vec<Node> = Vec::new();
    for _ in 0..NODES {
        let mut counters = Vec::new();
        for (index, url) in (1..).zip(&urls) {
            counters.push(counter(url, "segments/tickets", Stripe::new(index, 2).unwrap()).await);
        }
        nodes.push(Arc::new(RwLock::new(source(counters, config()))));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (segments, stop) = (nodes[client % NODES].read().unwrap().clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut given = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    let runs = segments.take(300).await.expect("no error to clients");
                    let got = Instant::now();
                    given.extend(runs.into_iter().map(|run| Given { asked, got, run }));
                    sleep(Duration::from_millis(1)).await;
                }
                given
            })
        })
        .collect();
    let highest = || -> [u64; 2] {
        // The greatest number of each stripe, as the nodes know it.
        let statuses = nodes.iter().map(|node| node.read().unwrap().status());
        statuses.fold([0, 0], |[failing, highest], status| {
            [failing.max(status.counters_failing as u64), highest.max(status.highest)]
        })
    };
    let until = async |what: &str, is: &dyn Fn([u64; 2]) -> bool| {
        let limit = Instant::now() + Duration::from_mins(1);
        while !is(highest()) {
            assert!(Instant::now() < limit, "{what}: {:?}", highest());
            sleep(Duration::from_millis(10)).await;
        }
    };
    for server in &servers {
        let [_, begin] = highest();
        until("numbers flow", &|[_, highest]| highest > begin + 100_000).await;
        server.kill9();
        until("its death is noticed", &|[failing, _]| failing == 1).await;
        let [_, dead] = highest();
        until("numbers go on", &|[_, highest]| highest > dead + 300_000).await;
        server.restart();
        until("it is back", &|[failing, _]| failing == 0).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut given = Vec::new();
    for client in clients {
        given.extend(client.await.unwrap());
    }
    let numbers = no_number_twice(&given);
    println!("stripes: {numbers} numbers, no error");
}
