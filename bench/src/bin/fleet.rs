//! Fleets of 1 to 1,000 nodes on each store. Measures the time until every node has a lease, when they start
//! together, and for the largest fleet when they restart after an orderly stop, and after all of them were
//! killed; the calls to the store while the fleet is idle; and the calls a second that the store answers.
//!
//! The nodes are in one process, as many as a service has for its one layout. They share some handles to the
//! real server, which is on the same machine; each handle to a database has up to four connections. Prints
//! Markdown.

use std::num::NonZeroU64;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use snowmint::Layout;
use snowmint_bench::table::Table;
use snowmint_cluster::{Holder, LeaseConfig, Leases, NodeClock};
use snowmint_store::{Expected, Key, Store, StoreError, Swap, Versioned, Visibility, open};
use snowmint_test_servers::{Etcd, MariaDb, Postgres, Redis, ZooKeeper};

const LAYOUT: &str = "time:41@1ms worker:10 sequence:12 epoch:2020-01-01";
const WINDOW: Duration = Duration::from_secs(10);
/// The limit for a start.
const PATIENCE: Duration = Duration::from_mins(2);
const SIZES: [usize; 4] = [1, 10, 100, 1000];
/// How long a store answers at full speed.
const FULL_SPEED: Duration = Duration::from_secs(3);
/// Tasks of a handle at full speed: as many as its connections to a database.
const TASKS: usize = 4;
const STORES: [&str; 6] = ["sqlite", "postgres", "mariadb", "redis", "etcd", "zookeeper"];

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let mut sizes: Vec<usize> = Vec::new();
    let mut stores: Vec<String> = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("--nodes", Some(count)) if count.parse::<usize>().is_ok() => {
                sizes.extend(count.parse::<usize>())
            }
            ("--only", Some(store)) if STORES.contains(&store.as_str()) => stores.push(store),
            _ => {
                eprintln!("usage: fleet [--nodes N]... [--only {}]...", STORES.join("|"));
                return ExitCode::from(2);
            }
        }
    }
    if stores.is_empty() {
        stores = STORES.map(ToOwned::to_owned).into();
    }
    if sizes.is_empty() {
        sizes = SIZES.into();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(run(&sizes, &stores)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fleet: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(sizes: &[usize], stores: &[String]) -> Result<(), Failure> {
    let columns = [
        "store",
        "handles",
        "nodes",
        "start",
        "nodes with a lease",
        "after",
        "calls a node",
        "most calls of one",
    ];
    let mut starts = Table::new("Nodes on one store: until all have a lease of 1,024 workers", &columns);
    let heading = format!("Nodes on one store, at rest: calls a node in a window of {} s", WINDOW.as_secs());
    let mut steady = Table::new(&heading, &["store", "nodes", "writes", "loads", "lists"]);
    let heading = format!("Nodes on one store: calls a second that it answers, {} at a time a handle", TASKS);
    let mut fastest = Table::new(&heading, &["store", "handles", "writes", "loads"]);
    for store in stores {
        let server = Server::start(store)?;
        let handles = server.handles().await?;
        let [writes, loads] =
            [full_speed(&handles, Call::Write).await?, full_speed(&handles, Call::Load).await?];
        fastest.row(&[
            store.clone(),
            handles.len().to_string(),
            format!("{writes:.0}"),
            format!("{loads:.0}"),
        ]);
        for (nth, &nodes) in sizes.iter().enumerate() {
            let mut fleet = Fleet { nodes, handles: handles.clone(), clock: NodeClock::default() };
            let is_last = nth + 1 == sizes.len();
            let all = ["first", "after a release of all", "after a crash of all"];
            for &start in &all[..if is_last { all.len() } else { 1 }] {
                let (started, counts, figures) = fleet.start().await?;
                starts.row(&[
                    store.clone(),
                    fleet.handles.len().to_string(),
                    nodes.to_string(),
                    start.to_owned(),
                    figures.leased.to_string(),
                    format!("{:.2} s", figures.after.as_secs_f64()),
                    format!("{:.2}", figures.calls as f64 / nodes as f64),
                    figures.most.to_string(),
                ]);
                eprintln!("{store}, {nodes}, {start}: {figures:?}");
                match start {
                    "first" => {
                        steady.row(&fleet.rest(store, &counts).await);
                        release(started).await;
                    }
                    // Killed: no lease is released.
                    _ => drop(started),
                }
            }
        }
    }
    starts.print();
    println!(
        "\nCalls are those of the trait `Store`, until a node has its lease; the store's time is one of them."
    );
    steady.print();
    fastest.print();
    println!(
        "\nEach task writes or loads a record of its own, as a node renews its lease, and waits for the answer."
    );
    Ok(())
}

/// A call at full speed.
#[derive(Clone, Copy)]
enum Call {
    Write,
    Load,
}

/// Returns the calls a second that the store answers to tasks that do nothing else.
async fn full_speed(handles: &[Arc<dyn Store>], call: Call) -> Result<f64, Failure> {
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for nth in 0..handles.len() * TASKS {
        let store = Arc::clone(&handles[nth / TASKS]);
        tasks.spawn(async move {
            let key = Key::new(format!("bench/speed/{nth}")).map_err(|error| error.to_string())?;
            let found = store.load(&key).await.map_err(|error| error.to_string())?;
            let mut expected = found.map_or(Expected::Absent, |found| Expected::Revision(found.revision));
            let mut calls = 0_u64;
            while began.elapsed() < FULL_SPEED {
                match call {
                    Call::Load => drop(store.load(&key).await.map_err(|error| error.to_string())?),
                    Call::Write => {
                        let swap = store.compare_and_set(&key, expected, &[b'x'; 150]).await;
                        match swap.map_err(|error| error.to_string())? {
                            Swap::Done(revision) => expected = Expected::Revision(revision),
                            Swap::Conflict => return Err("a conflict on a record of its own".to_owned()),
                        }
                    }
                }
                calls += 1;
            }
            Ok(calls)
        });
    }
    let calls = tasks.join_all().await.into_iter().sum::<Result<u64, String>>()?;
    Ok(calls as f64 / began.elapsed().as_secs_f64())
}

async fn release(nodes: Vec<Leases>) {
    let mut releasing = tokio::task::JoinSet::new();
    for leases in nodes {
        releasing.spawn(async move { leases.release(PATIENCE).await });
    }
    releasing.join_all().await;
}

/// The result of a start.
#[derive(Debug)]
struct Figures {
    leased: usize,
    after: Duration,
    calls: u64,
    most: u64,
}

struct Fleet {
    nodes: usize,
    handles: Vec<Arc<dyn Store>>,
    clock: NodeClock,
}

impl Fleet {
    async fn start(&mut self) -> Result<(Vec<Leases>, Vec<Arc<Counts>>, Figures), Failure> {
        let layout = LAYOUT.parse::<Layout>()?;
        let (mut nodes, mut counts) = (Vec::new(), Vec::new());
        let mut waiting = tokio::task::JoinSet::new();
        let began = Instant::now();
        for node in 0..self.nodes {
            let counted = Arc::new(Counts::default());
            let inner = Arc::clone(&self.handles[node % self.handles.len()]);
            let store = Arc::new(Counted { inner, counts: Arc::clone(&counted) });
            let holder = Holder::new(format!("web-{node}:8080"))?;
            let config = LeaseConfig::new(layout, holder).window(WINDOW).clock(self.clock.clone());
            let leases = Leases::start(store, config)?;
            let (ready, counts_of_it) = (leases.clone(), Arc::clone(&counted));
            waiting.spawn(async move {
                let ready = tokio::time::timeout(PATIENCE, ready.ready()).await;
                (matches!(ready, Ok(Ok(_))), began.elapsed(), counts_of_it.calls())
            });
            nodes.push(leases);
            counts.push(counted);
        }
        let all = waiting.join_all().await;
        let figures = Figures {
            leased: all.iter().filter(|(leased, ..)| *leased).count(),
            after: all.iter().map(|(_, after, _)| *after).max().unwrap_or_default(),
            calls: all.iter().map(|(.., calls)| calls).sum(),
            most: all.iter().map(|(.., calls)| *calls).max().unwrap_or_default(),
        };
        Ok((nodes, counts, figures))
    }

    /// Counts the calls of the nodes while the fleet is idle.
    async fn rest(&self, store: &str, counts: &[Arc<Counts>]) -> [String; 5] {
        let sum = |of: fn(&Counts) -> &AtomicU64| {
            counts.iter().map(|it| of(it).load(Ordering::Relaxed)).sum::<u64>()
        };
        let so_far = || [sum(|it| &it.writes), sum(|it| &it.loads), sum(|it| &it.lists)];
        let before = so_far();
        tokio::time::sleep(WINDOW).await;
        let after = so_far();
        let each = |i: usize| format!("{:.2}", (after[i] - before[i]) as f64 / self.nodes as f64);
        [store.to_owned(), self.nodes.to_string(), each(0), each(1), each(2)]
    }
}

/// Number of calls of a node to the store.
#[derive(Debug, Default)]
struct Counts {
    loads: AtomicU64,
    writes: AtomicU64,
    lists: AtomicU64,
    times: AtomicU64,
}

impl Counts {
    fn calls(&self) -> u64 {
        [&self.loads, &self.writes, &self.lists, &self.times]
            .map(|count| count.load(Ordering::Relaxed))
            .iter()
            .sum()
    }
}

/// A store that counts its calls.
#[derive(Debug)]
struct Counted {
    inner: Arc<dyn Store>,
    counts: Arc<Counts>,
}

#[async_trait]
impl Store for Counted {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.counts.loads.fetch_add(1, Ordering::Relaxed);
        self.inner.load(key).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.inner.compare_and_set(key, expected, value).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.counts.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.list(prefix).await
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.inner.add(key, count).await
    }

    async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
        let told = self.inner.unix_ms().await;
        // A store without a clock is not called over the network.
        if !matches!(told, Ok(None)) {
            self.counts.times.fetch_add(1, Ordering::Relaxed);
        }
        told
    }

    fn may_lose(&self) -> Duration {
        self.inner.may_lose()
    }

    fn visibility(&self) -> Visibility {
        self.inner.visibility()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// A real server, or the folder of an SQLite file.
enum Server {
    Sqlite(tempfile::TempDir),
    Postgres(Postgres),
    MariaDb(MariaDb),
    Redis(Redis),
    Etcd(Etcd),
    ZooKeeper(ZooKeeper),
}

impl Server {
    fn start(store: &str) -> Result<Self, Failure> {
        Ok(match store {
            "sqlite" => Self::Sqlite(tempfile::tempdir()?),
            "postgres" => Self::Postgres(Postgres::with(&["max_connections=250"])),
            "mariadb" => Self::MariaDb(MariaDb::with(&["--max-connections=250"])),
            "redis" => Self::Redis(Redis::start()),
            "etcd" => Self::Etcd(Etcd::start()),
            "zookeeper" => Self::ZooKeeper(ZooKeeper::start()),
            other => return Err(format!("unknown store {other}").into()),
        })
    }

    /// SQLite coordinates the processes of one machine, which are few.
    async fn handles(&self) -> Result<Vec<Arc<dyn Store>>, Failure> {
        let (count, url) = match self {
            Self::Sqlite(folder) => (8, format!("sqlite:{}", folder.path().join("snowmint.db").display())),
            Self::Postgres(server) => (50, format!("postgres://postgres@{}/postgres", server.address())),
            Self::MariaDb(server) => (50, format!("mysql://root@{}/test", server.address())),
            Self::Redis(server) => (50, format!("redis://{}", server.address())),
            Self::Etcd(server) => (50, format!("etcd://{}", server.address())),
            Self::ZooKeeper(server) => (50, format!("zookeeper://{}", server.address())),
        };
        let mut handles: Vec<Arc<dyn Store>> = Vec::new();
        for _ in 0..count {
            let handle = open(&url).await?;
            handle.load(&Key::new("bench/warm")?).await?;
            handles.push(handle);
        }
        Ok(handles)
    }
}
