//! Six nodes on real clusters. Nodes and coordinators are killed, paused and cut off, and clocks jump, while
//! clients draw ids: no id may be a duplicate. Also measures the table of `tests/README.md`.
//!
//! `SNOWMINT_CHAOS=long` draws twenty million ids from each store, and five million numbers from each store
//! whose primary changes. `SNOWMINT_SEED=n` repeats a schedule of faults; their timing still depends on the
//! machine.

mod coordinators;
mod fault_table;
mod faults;
mod observer;
mod switchovers;
mod world;

use std::time::Duration;

use snowmint_test_servers::snowmint::chaos::{Load, draw_while};
use snowmint_test_servers::snowmint::{self, SplitMix64};
use snowmint_test_servers::time;

use coordinators::Kind;
use world::World;

/// Eight workers for six nodes; nodes that have ended hold two. So workers change hands all the time. With
/// 256 ids a tick, two nodes with one worker would soon produce a duplicate.
const LAYOUT: &str = "time:41@1ms datacenter:11 worker:3 sequence:8 epoch:2010-11-04T01:42:54.657Z";
const LOAD: Load = Load { clients: 12, numbers: None, ids_a_second: 5_000 };
/// Half of the connections draw ids, half of them numbers.
const LOAD_WITH_NUMBERS: Load = Load { clients: 12, numbers: Some("numbers"), ids_a_second: 8_000 };
/// The load of a long run, for twenty million ids in minutes.
const LONG_IDS_A_SECOND: u64 = 24_000;

/// Minimum duration of the short run of a test with switchovers.
const SHORT: Duration = Duration::from_secs(15);

const WINDOW: Duration = Duration::from_secs(3);
/// The window: at least three times `may_lose`.
const LOSSY_WINDOW: Duration = Duration::from_secs(4);

/// A run under faults.
struct Plan {
    /// The name of its results.
    name: &'static str,
    store: Kind,
    layout: &'static str,
    window: Duration,
    /// Its minimum duration.
    length: Duration,
    /// Smallest number of ids to draw; low, so that a slow machine only takes longer.
    ids: usize,
    load: Load,
    /// Smallest number of numbers to draw, if the load draws any.
    numbers: usize,
    /// Smallest number of faults of each kind.
    least_faults: u32,
    /// The time between two faults, on average.
    between_faults: Duration,
}

impl Plan {
    fn new(name: &'static str, store: Kind) -> Self {
        let long = std::env::var("SNOWMINT_CHAOS").is_ok_and(|it| it == "long");
        let (length, ids, least_faults, load) = if long {
            (Duration::from_mins(2), 20_000_000, 20, Load { ids_a_second: LONG_IDS_A_SECOND, ..LOAD })
        } else {
            (Duration::from_secs(25), 100_000, 2, LOAD)
        };
        let window = WINDOW;
        let between_faults = Duration::from_millis(400);
        let (layout, numbers) = (LAYOUT, 0);
        Self { name, store, layout, window, length, ids, load, numbers, least_faults, between_faults }
    }

    /// With replicas: the primary changes, and numbers are drawn too.
    fn with_switchovers(name: &'static str, store: Kind, window: Duration) -> Self {
        let plan = Self::new(name, store);
        let between_faults = Duration::from_millis(200);
        if plan.ids > 1_000_000 {
            let load = Load { ids_a_second: LONG_IDS_A_SECOND, ..LOAD_WITH_NUMBERS };
            return Self { window, load, numbers: 5_000_000, least_faults: 10, between_faults, ..plan };
        }
        let (numbers, load) = (plan.ids, LOAD_WITH_NUMBERS);
        Self { window, length: SHORT, load, numbers, least_faults: 1, between_faults, ..plan }
    }
}

/// Goal: the promise of the project on etcd, whose members come and go. Method: as [`run`] says.
#[test]
fn no_duplicates_on_three_etcd() {
    run(&Plan::new("chaos-etcd", Kind::Etcd));
}

/// Goal: the same on ZooKeeper, where a member that lags answers reads from its memory.
#[test]
fn no_duplicates_on_three_zookeeper() {
    run(&Plan::new("chaos-zookeeper", Kind::ZooKeeper));
}

/// Goal: the same on PostgreSQL, a single server: an outage affects every node.
#[test]
fn no_duplicates_on_postgres() {
    run(&Plan::new("chaos-postgres", Kind::Postgres));
}

/// Goal: the same on Lease objects of Kubernetes, with the rights that the manifests grant. Its API server and its
/// etcd are both a single server.
#[test]
#[ignore = "needs a real API server: see ./check kubernetes"]
fn no_duplicates_on_kubernetes() {
    run(&Plan::new("chaos-kubernetes", Kind::Kubernetes));
}

/// Goal: the same where the primary changes, on MariaDB with a replica that confirms each commit, for ids and
/// numbers.
#[test]
fn no_duplicates_on_mariadb_with_switchovers() {
    run(&Plan::with_switchovers("chaos-mariadb-pair", Kind::MariaDbPair, WINDOW));
}

/// Goal: the same on PostgreSQL with a synchronous standby.
#[test]
fn no_duplicates_on_postgres_with_a_synchronous_standby() {
    run(&Plan::with_switchovers("chaos-postgres-synchronous", Kind::PostgresSynchronous, WINDOW));
}

/// Goal: the same on PostgreSQL with an asynchronous standby, whose promotion loses the newest writes: at
/// most `may_lose` of them, which `switchovers` ensures.
#[test]
fn no_duplicates_on_postgres_with_an_asynchronous_standby() {
    run(&Plan::with_switchovers("chaos-postgres-asynchronous", Kind::PostgresAsynchronous, LOSSY_WINDOW));
}

/// Goal: the same on Redis with replicas and Sentinels, under the same conditions.
#[test]
fn no_duplicates_on_redis_with_sentinels() {
    run(&Plan::with_switchovers("chaos-redis-sentinels", Kind::RedisSentinels, LOSSY_WINDOW));
}

/// One seed decides which fault strikes which node and coordinator. Clients check the order of ids as they
/// arrive; the end of the test looks for duplicates over all ids.
fn run(plan: &Plan) {
    let seed = SplitMix64::seed();
    println!("SNOWMINT_SEED={seed}");
    let mut random = SplitMix64::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let began = time::now();
    let mut world = World::start(folder.path(), plan);
    let addresses = world.addresses();
    let mut harvest =
        draw_while(&addresses, plan.load, &mut random, |random, drawn| world.run(random, drawn));
    let shares = harvest.shares();
    let (faults, ids, numbers) = world.end();
    harvest.ids.append(ids);
    harvest.numbers.append(numbers);

    let took = began.elapsed().as_secs_f64();
    let (count, numbers) = (harvest.ids.len(), harvest.numbers.len());
    assert!(count >= plan.ids && numbers >= plan.numbers);
    let numbers_twice = harvest.numbers.duplicates().len();
    println!("{numbers_twice} of {numbers} numbers are duplicates after {faults:?}");
    harvest.ids.assert_unique();
    assert_eq!(numbers_twice, 0, "of {numbers} numbers so many are duplicates");
    let Plan { store, layout, window, .. } = plan;
    let text = format!(
        "6 nodes on {store:?}, {} clients, layout {layout}, window {window:?}, seed {seed}\n\
         ids {count}, numbers {numbers}, duplicates 0, in {took:.1} s\n{faults}\n{shares}",
        plan.load.clients
    );
    snowmint::publish(plan.name, &text);
}
