//! The MySQL store and the counters of other systems on a primary and a replica that change roles: numbers of
//! one server are never returned again by the other, even to users whom `read_only` does not stop.

mod sessions;

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use snowmint_store::{Counter, Expected, Store, StoreError, StoreErrorKind, Swap, open_counter, survey};
use snowmint_test_servers::{GaleraPair, MariaDb, MariaDbPair, is_mysql};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep};

use crate::support::{Log, key, open, refused};

const TABLES: &str = "USE test;
    CREATE TABLE leaf_alloc (biz_tag VARCHAR(128) PRIMARY KEY, max_id BIGINT NOT NULL, step INT NOT NULL,
        description VARCHAR(256), update_time TIMESTAMP);
    INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('a', 1, 10);
    CREATE TABLE tiny_id_info (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, biz_type VARCHAR(63) NOT NULL UNIQUE,
        begin_id BIGINT, max_id BIGINT NOT NULL, step INT, delta INT, remainder INT, create_time TIMESTAMP,
        update_time TIMESTAMP, version BIGINT NOT NULL);
    INSERT INTO tiny_id_info (biz_type, begin_id, max_id, step, delta, remainder, version)
        VALUES ('a', 0, 0, 10, 1, 0, 1);
    CREATE TABLE Tickets64 (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, stub CHAR(1) NOT NULL UNIQUE)";

/// The source of the numbers.
#[derive(Clone)]
enum Source {
    /// `add` on a store.
    Sum(Arc<dyn Store>),
    /// A record that is loaded and replaced, like a lease.
    Record(Arc<dyn Store>),
    Counter(Arc<dyn Counter>),
}

impl Source {
    /// The numbers of one draw.
    async fn draw(&self) -> Result<Vec<u64>, StoreError> {
        let ten = NonZeroU64::new(10).unwrap();
        match self {
            Self::Sum(store) => {
                Ok((0..10).zip(store.add(&key("sum"), ten).await?..).map(|it| it.1).collect())
            }
            Self::Record(store) => {
                let found = store.load(&key("record")).await?;
                let number =
                    found.as_ref().map_or(0, |it| String::from_utf8_lossy(&it.value).parse().unwrap());
                let expected = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
                let value = (number + 1_u64).to_string();
                let swap = store.compare_and_set(&key("record"), expected, value.as_bytes()).await?;
                Ok(if matches!(swap, Swap::Done(_)) { vec![number] } else { Vec::new() })
            }
            Self::Counter(counter) => {
                let segment = counter.reserve(ten).await?;
                Ok((0..segment.count().get())
                    .map(|nth| segment.first() + nth * segment.step().get())
                    .collect())
            }
        }
    }
}

/// The draws that run at the same time, as a user who may write to a read-only server and as one who may not.
struct Writers {
    stop: Arc<AtomicBool>,
    writers: Vec<Writer>,
}

/// One drawing task.
struct Writer {
    name: &'static str,
    draws: Arc<AtomicUsize>,
    /// The error of the last failed draw.
    error: Arc<Mutex<String>>,
    /// The drawn numbers.
    task: JoinHandle<Vec<u64>>,
}

impl Writers {
    async fn start(pair: &MariaDbPair) -> Self {
        pair.primary().sql(TABLES);
        let mut writers = Self { stop: Arc::default(), writers: Vec::new() };
        for user in ["root", "node"] {
            let url = format!("{}?timeout_ms=2000", pair.url(user));
            let store = open(&url).await;
            writers.spawn("sum", &Source::Sum(Arc::clone(&store)));
            writers.spawn("record", &Source::Record(store));
            for (name, parameter) in [("leaf", "&tag=a"), ("tinyid", "&biz_type=a"), ("tickets", "")] {
                let counter = open_counter(&format!("{name}:{url}{parameter}")).await.unwrap();
                writers.spawn(name, &Source::Counter(counter));
            }
        }
        writers
    }

    fn spawn(&mut self, name: &'static str, source: &Source) {
        let (source, stop) = (source.clone(), Arc::clone(&self.stop));
        let (draws, last_error) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(String::new())));
        let (successes, failure) = (Arc::clone(&draws), Arc::clone(&last_error));
        let task = tokio::spawn(async move {
            let mut given = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                match source.draw().await {
                    Ok(numbers) => {
                        given.extend(numbers);
                        successes.fetch_add(1, Ordering::Relaxed);
                    }
                    // Other errors are expected while servers start and stop.
                    Err(error) => {
                        let kinds = [
                            StoreErrorKind::ReadOnly,
                            StoreErrorKind::Unavailable,
                            StoreErrorKind::OutcomeUnknown,
                        ];
                        assert!(kinds.contains(&error.kind()), "{error}");
                        *failure.lock().unwrap() = error.to_string();
                        sleep(Duration::from_millis(10)).await;
                    }
                }
            }
            given
        });
        self.writers.push(Writer { name, draws, error: last_error, task });
    }

    /// Waits until each task has drawn more numbers.
    async fn go_on(&self) {
        let before: Vec<_> = self.writers.iter().map(|it| it.draws.load(Ordering::Relaxed)).collect();
        let until = Instant::now() + Duration::from_mins(2);
        for (writer, before) in self.writers.iter().zip(before) {
            while writer.draws.load(Ordering::Relaxed) < before + 5 {
                let ended = writer.task.is_finished();
                assert!(
                    !ended && Instant::now() < until,
                    "{} draws no more: {:?}",
                    writer.name,
                    writer.error
                );
                sleep(Duration::from_millis(10)).await;
            }
        }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut given: BTreeSet<(&str, u64)> = BTreeSet::new();
        let (mut total, mut twice) = (0, Vec::new());
        for Writer { name, task, .. } in self.writers {
            let numbers = task.await.unwrap();
            total += numbers.len();
            twice.extend(
                numbers.into_iter().filter(|number| !given.insert((name, *number))).map(|it| (name, it)),
            );
        }
        assert!(
            total > 0 && twice.is_empty(),
            "{} of {total} numbers were given twice: {twice:?}",
            twice.len()
        );
    }
}

/// Runs blocking code beside the writers.
async fn on(pair: &Arc<MariaDbPair>, act: impl FnOnce(&MariaDbPair) + Send + 'static) {
    let pair = Arc::clone(pair);
    spawn_blocking(move || act(&pair)).await.unwrap();
}

async fn start() -> Arc<MariaDbPair> {
    Arc::new(spawn_blocking(MariaDbPair::start).await.unwrap())
}

/// Goal: a demoted primary returns no more numbers. Method: several switchovers there and back, with all
/// tasks drawing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn planned_switchovers_give_nothing_twice() {
    let pair = start().await;
    let writers = Writers::start(&pair).await;
    for _ in 0..3 {
        writers.go_on().await;
        on(&pair, MariaDbPair::switch_over).await;
    }
    writers.go_on().await;
    writers.stop().await;
}

/// Goal: no counter of another system advances on a demoted server. Method: users whom `read_only` does not
/// stop, on connections that were made before.
#[tokio::test]
async fn a_demoted_server_takes_no_write_of_any_counter() {
    let server = MariaDb::start();
    server.sql(TABLES);
    let state = "SELECT max_id FROM test.leaf_alloc; SELECT max_id, version FROM test.tiny_id_info; \
        SELECT * FROM test.Tickets64; SELECT auto_increment FROM information_schema.tables WHERE table_name = 'Tickets64'";
    for (name, parameter) in [("leaf", "?tag=a"), ("tinyid", "?biz_type=a"), ("tickets", "")] {
        let url = format!("{name}:mysql://root@{}/test{parameter}", server.address());
        let counter = open_counter(&url).await.unwrap();
        counter.reserve(NonZeroU64::MIN).await.unwrap();
        let before = server.sql(state);
        server.sql("SET GLOBAL read_only = 1");
        let error = counter.reserve(NonZeroU64::MIN).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
        assert_eq!(server.sql(state), before, "{name}");
        // Even if it is already above: the server that replaced it may be lower.
        for number in [0, 1000] {
            server.sql("SET GLOBAL read_only = 0");
            // Each error closes its connection, and a new one would find the server read-only.
            counter.reserve(NonZeroU64::MIN).await.unwrap();
            let before = server.sql(state);
            server.sql("SET GLOBAL read_only = 1");
            let error = counter.raise_above(number).await.expect_err(name);
            assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{name}: {error}");
            assert_eq!(server.sql(state), before, "{name}");
        }
        server.sql("SET GLOBAL read_only = 0");
        let before = counter.reserve(NonZeroU64::MIN).await.unwrap().first();
        for number in [0, before, 1000] {
            assert!(counter.raise_above(number).await.unwrap());
            let next = counter.reserve(NonZeroU64::MIN).await.unwrap().first();
            assert!(next > number && next > before, "{name}: {next} after {before}, raised above {number}");
        }
    }
}

/// Goal: raising a counter succeeds only when a replica has the raise, even if the primary shows that it is
/// above already. Method: a raise whose wait for the replica is killed, the same raise again, and a replica
/// that comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_that_no_replica_has_does_not_count() {
    let pair = start().await;
    pair.primary().sql(TABLES);
    let raised = [
        "SELECT max_id > 2000 FROM test.leaf_alloc",
        "SELECT max_id >= 2000 FROM test.tiny_id_info",
        "SELECT MAX(id) >= 2000 FROM test.Tickets64",
    ];
    for ((name, parameter), raised) in COUNTERS.into_iter().zip(raised) {
        let url = format!("{name}:{}?timeout_ms=1500&{parameter}", pair.url("node"));
        let counter = open_counter(&url).await.unwrap();
        counter.raise_above(1000).await.unwrap();
        on(&pair, MariaDbPair::cut_replica).await;
        let raising = {
            let counter = Arc::clone(&counter);
            tokio::spawn(async move { counter.raise_above(2000).await })
        };
        pair.primary().wait_until(
            "a commit that waits",
            "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for semi-sync ACK%'",
        );
        on(&pair, MariaDbPair::end_waits).await;
        let error = raising.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{name}: {error}");
        assert_eq!((&*pair.primary().sql(raised), &*pair.replica().sql(raised)), ("1", "0"), "{name}");
        let error = counter.raise_above(2000).await.expect_err(name);
        assert!(
            [StoreErrorKind::OutcomeUnknown, StoreErrorKind::Unavailable].contains(&error.kind()),
            "{error}"
        );
        on(&pair, MariaDbPair::end_waits).await;
        pair.replica().sql("START SLAVE IO_THREAD");
        while let Err(error) = counter.raise_above(2000).await {
            assert!(
                error.is_temporary() || error.kind() == StoreErrorKind::OutcomeUnknown,
                "{name}: {error}"
            );
            sleep(Duration::from_millis(10)).await;
        }
        pair.replica().wait_until("the raise", raised);
    }
}

/// The counters of other systems, and the URL parameters of each.
const COUNTERS: [(&str, &str); 3] = [("leaf", "tag=a"), ("tinyid", "biz_type=a"), ("tickets", "stub=a")];

/// Goal: no number is returned that a crash would take back. Method: an operator changes settings while
/// connections are open; nothing is written, except for users who accept the loss.
#[tokio::test]
async fn a_server_that_comes_to_sync_later_takes_no_write() {
    let server = MariaDb::with(&["--log-bin=binlog"]);
    server.sql(TABLES);
    let url = format!("mysql://root@{}/test", server.address());
    let (store, lossy) = (open(&url).await, open(&format!("{url}?may_lose=2s")).await);
    let one = NonZeroU64::MIN;
    store.add(&key("sum"), one).await.unwrap();
    let revision = match store.compare_and_set(&key("a"), Expected::Absent, b"1").await.unwrap() {
        Swap::Done(revision) => revision,
        Swap::Conflict => panic!("unexpected conflict"),
    };
    let rows = "SELECT name, revision, value FROM test.snowmint_records WHERE name < '~' ORDER BY name; \
        SELECT max_id FROM test.leaf_alloc; SELECT max_id, version FROM test.tiny_id_info; SELECT * FROM test.Tickets64";
    for (setting, value) in
        [("innodb_flush_log_at_trx_commit", 0), ("innodb_flush_log_at_trx_commit", 2), ("sync_binlog", 0)]
    {
        let set = |value| server.sql(&format!("SET GLOBAL {setting} = {value}"));
        let told = |error: StoreError, accept: &str| {
            assert_eq!(error.kind(), StoreErrorKind::Other, "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("{setting} is {value}")) && text.contains(accept), "{error}");
        };
        let before = server.sql(rows);
        for write in 0..4 {
            // On a connection that was made while the server synced.
            store.load(&key("a")).await.unwrap();
            set(value);
            let error = match write {
                0 => store.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await.unwrap_err(),
                1 => store.compare_and_set(&key("b"), Expected::Absent, b"2").await.unwrap_err(),
                2 => store.add(&key("sum"), one).await.unwrap_err(),
                _ => store.add(&key("other"), one).await.unwrap_err(),
            };
            told(error, "may_lose=2s");
            set(1);
        }
        let mut counters = Vec::new();
        for (name, parameter) in COUNTERS {
            let counter = open_counter(&format!("{name}:{url}?{parameter}")).await.unwrap();
            set(value);
            told(counter.reserve(one).await.unwrap_err(), "durable=no");
            set(1);
            counters.push(open_counter(&format!("{name}:{url}?{parameter}&durable=no")).await.unwrap());
        }
        assert_eq!(server.sql(rows), before, "{setting} {value}");
        set(value);
        lossy.add(&key("lossy"), one).await.unwrap();
        for counter in counters {
            counter.reserve(one).await.unwrap();
        }
        set(1);
    }
    // The loss in the URL no longer covers what the server may lose.
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 0; SET GLOBAL innodb_flush_log_at_timeout = 10");
    let error = lossy.add(&key("lossy"), one).await.unwrap_err();
    assert!(error.to_string().contains("may_lose=11s"), "{error}");
}

/// Goal: no counter is used that a crash may take back, whatever the server's settings. Method: tables of
/// another engine, which can be surveyed, and used if `durable=no` accepts that.
#[tokio::test]
async fn a_table_of_another_engine_is_no_counter() {
    let server = MariaDb::start();
    server.sql(TABLES);
    let tables = ["leaf_alloc", "tiny_id_info", "Tickets64"];
    for ((name, parameter), table) in COUNTERS.into_iter().zip(tables) {
        let url = format!("{name}:mysql://root@{}/test?{parameter}", server.address());
        open_counter(&url).await.unwrap();
        let engines: &[_] = if is_mysql() { &["MyISAM", "MEMORY"] } else { &["MyISAM", "Aria", "MEMORY"] };
        for engine in engines {
            // The comment of this row contains no text that this engine could not store.
            server.sql(&format!("ALTER TABLE test.{table} ENGINE = {engine}"));
            let Err(snowmint_store::OpenError::Store(error)) = open_counter(&url).await else {
                panic!("{name} was opened on {engine}")
            };
            assert_eq!(error.kind(), StoreErrorKind::Other, "{error}");
            let text = error.to_string();
            assert!(
                text.contains(engine) && text.contains(&format!("ALTER TABLE {table} ENGINE = InnoDB")),
                "{text}"
            );
            assert_eq!(survey(&url).await.unwrap().counters.len(), 1);
            open_counter(&format!("{url}&durable=no")).await.unwrap().reserve(NonZeroU64::MIN).await.unwrap();
        }
        server.sql(&format!("ALTER TABLE test.{table} ENGINE = InnoDB"));
        open_counter(&url).await.unwrap().reserve(NonZeroU64::MIN).await.unwrap();
    }
}

/// Goal: servers that only set `wsrep_on` are not a cluster, and get none of its privileges. Method: two
/// without a provider.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_without_a_provider_are_no_cluster() {
    let settings = ["--wsrep-on=ON", "--log-bin=binlog", "--binlog-format=ROW"];
    let servers = [MariaDb::with(&settings), MariaDb::with(&settings)];
    let one = |server: &MariaDb| format!("mysql://root@{}/test", server.address());
    let both = format!("mysql://root@{},{}/test", servers[0].address(), servers[1].address());
    let (kind, error) = refused(&both).await;
    assert_eq!(kind, Some(StoreErrorKind::SplitBrain), "{error}");
    assert!(error.contains("both accept writes"), "{error}");
    for (setting, sync) in [("innodb_flush_log_at_trx_commit", 0), ("sync_binlog", 0)] {
        servers[0].sql(&format!("SET GLOBAL {setting} = {sync}"));
        let (_, error) = refused(&one(&servers[0])).await;
        assert!(error.contains(&format!("{setting} is 0")), "{error}");
        servers[0].sql(&format!("SET GLOBAL {setting} = 1"));
    }
    open(&one(&servers[0])).await;
}

/// Goal: members of a Galera cluster count as one server while they are one cluster. Method: a real cluster
/// whose members are cut off from each other, and whose second member is then made a separate cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_parts_of_a_galera_cluster_are_two_servers() {
    let pair = Arc::new(spawn_blocking(|| GaleraPair::start(&[])).await.unwrap());
    let one = NonZeroU64::MIN;
    let flush =
        |server: &MariaDb, value| server.sql(&format!("SET GLOBAL innodb_flush_log_at_trx_commit = {value}"));
    let url = format!("{}?timeout_ms=3000", pair.url());
    let store = open(&url).await;
    // Of two members, each has what the other loses.
    for server in [pair.first(), pair.second()] {
        flush(server, 0);
        let only = open(&format!("mysql://root@{}/test", server.address())).await;
        only.add(&key("sum"), one).await.unwrap();
    }
    // Its connections were made while the servers synced, so they have to notice the change first.
    let added = loop {
        match store.add(&key("sum"), one).await {
            Ok(before) => break before,
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}"),
        }
    };
    assert_eq!(added, 2);

    let cut = Arc::clone(&pair);
    spawn_blocking(move || cut.part()).await.unwrap();
    // No other member still has what this one would lose: on open connections and on new ones.
    for store in [&store, &open(&format!("{url}&may_lose=2s")).await] {
        let added = store.add(&key("sum"), one).await;
        match added {
            Ok(before) => assert!(!store.may_lose().is_zero() && before >= 3, "{before}"),
            Err(error) => {
                assert!(store.may_lose().is_zero(), "{error}");
                assert!(
                    matches!(error.kind(), StoreErrorKind::OutcomeUnknown | StoreErrorKind::Other),
                    "{error}"
                );
                assert!(error.to_string().contains("innodb_flush_log_at_trx_commit is 0"), "{error}");
            }
        }
    }
    let (_, error) = refused(&url).await;
    assert!(error.contains("innodb_flush_log_at_trx_commit is 0"), "{error}");
    flush(pair.first(), 1);
    open(&url).await.add(&key("sum"), one).await.unwrap();
    // The member that belongs to no cluster is not used, nor does it count as a second primary.
    let alone = format!("mysql://root@{}/test?timeout_ms=1000", pair.second().address());
    let (kind, error) = refused(&alone).await;
    assert_eq!(kind, Some(StoreErrorKind::Unavailable), "{error}");
    assert!(error.contains("wsrep_cluster_status non-Primary"), "{error}");

    let cut = Arc::clone(&pair);
    spawn_blocking(move || cut.bootstrap_second()).await.unwrap();
    flush(pair.second(), 1);
    let both = [pair.first(), pair.second()].map(|it| it.address().to_string());
    let (kind, error) = refused(&url).await;
    assert_eq!(kind, Some(StoreErrorKind::Unavailable), "{error}");
    assert!(both.iter().all(|it| error.contains(it)) && error.contains("Galera"), "{error}");
    // One member under two names is one server.
    let port = pair.second().port();
    open(&format!("mysql://root@127.0.0.1:{port},localhost:{port}/test")).await;
}

/// Goal: what a primary acknowledged before it was killed is on the replica. Method: kill it under load,
/// twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn forced_failovers_give_nothing_twice() {
    let pair = start().await;
    let writers = Writers::start(&pair).await;
    writers.go_on().await;
    on(&pair, MariaDbPair::fail_over).await;
    writers.go_on().await;
    on(&pair, MariaDbPair::rejoin).await;
    writers.go_on().await;
    on(&pair, MariaDbPair::fail_over).await;
    writers.go_on().await;
    writers.stop().await;
}

/// Goal: of two primaries neither is used. Method: promote the replica and leave the primary running.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_primaries_are_refused() {
    let pair = start().await;
    let store = open(&pair.url("root")).await;
    assert_eq!(store.add(&key("sum"), NonZeroU64::MIN).await.unwrap(), 0);
    on(&pair, MariaDbPair::promote_replica).await;
    let (kind, error) = refused(&pair.url("node")).await;
    assert_eq!(kind, Some(StoreErrorKind::SplitBrain), "{error}");
    let both = [pair.primary(), pair.replica()].map(|it| it.address().to_string());
    assert!(both.iter().all(|it| error.contains(it)) && error.contains("both accept writes"), "{error}");
    // One server under two names is not a second primary.
    pair.replica().kill9();
    let port = pair.primary().port();
    open(&format!("mysql://root@127.0.0.1:{port},localhost:{port}/test")).await;
}

/// Goal: a write counts, and is shown, only when a replica has it. Method: a replica that does not answer;
/// waits that are killed, and waits that time out.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_no_replica_has_is_not_shown() {
    let pair = start().await;
    let store = open(&format!("{}?timeout_ms=1500", pair.url("root"))).await;
    let reader = open(&format!("{}?timeout_ms=1500", pair.url("node"))).await;
    for point in ["AFTER_SYNC", "AFTER_COMMIT"] {
        pair.primary().sql(&format!("SET GLOBAL rpl_semi_sync_master_wait_point = '{point}'"));
        let name = key(point);
        assert_eq!(reader.load(&name).await.unwrap(), None);
        pair.replica().sql("STOP SLAVE IO_THREAD");
        let writing = {
            let (store, name) = (Arc::clone(&store), name.clone());
            tokio::spawn(async move { store.compare_and_set(&name, Expected::Absent, b"mine").await })
        };
        pair.primary().wait_until(
            "a commit that waits",
            "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for semi-sync ACK%'",
        );
        on(&pair, MariaDbPair::end_waits).await;
        // The server answers OK to a wait that was ended.
        let error = writing.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{point}: {error}");
        let written = format!("SELECT COUNT(*) FROM test.snowmint_records WHERE name = '{point}'");
        assert_eq!((&*pair.primary().sql(&written), &*pair.replica().sql(&written)), ("1", "0"), "{point}");
        for error in [reader.load(&name).await.unwrap_err(), reader.list("").await.unwrap_err()] {
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{point}: {error}");
        }
        pair.replica().sql("START SLAVE IO_THREAD");
        let found = loop {
            match reader.load(&name).await {
                Ok(found) => break found.unwrap(),
                Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{point}: {error}"),
            }
        };
        assert_eq!(found.value, b"mine");
        pair.replica().wait_until("having it", &written);
    }
    assert!(reader.list("").await.unwrap().iter().all(|(name, _)| name.as_str().starts_with("AFTER")));

    // Waits that time out; after that the server no longer waits.
    pair.replica().sql("STOP SLAVE IO_THREAD");
    pair.primary().sql("SET GLOBAL rpl_semi_sync_master_timeout = 1");
    let error = store.add(&key("sum"), NonZeroU64::MIN).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    for error in [
        store.load(&key("sum")).await.unwrap_err(),
        store.add(&key("sum"), NonZeroU64::MIN).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("does not wait for a replica"), "{error}");
    }
    assert_eq!(pair.primary().sql("SELECT value FROM test.snowmint_records WHERE name = 'sum'"), "1");
    // A survey does not need durable data.
    pair.primary().sql(TABLES);
    let surveyed = survey(&format!("leaf:{}?timeout_ms=1500&tag=a", pair.url("node"))).await.unwrap();
    assert_eq!(surveyed.counters.len(), 1);
    // A user who has stated a loss is served.
    let lossy = open(&format!("{}?may_lose=2s", pair.url("root"))).await;
    assert_eq!(lossy.add(&key("sum"), NonZeroU64::MIN).await.unwrap(), 1);
}

/// Goal: if a replica would wait for a replica of its own before it applies a transaction, the error on that
/// replica names the setting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_waits_for_replicas_is_told() {
    let pair = start().await;
    let url = format!("mysql://node@{}/test?timeout_ms=1000", pair.replica().address());
    for (value, is_told) in [(0, false), (1, true)] {
        pair.replica().sql(&format!("SET GLOBAL rpl_semi_sync_master_enabled = {value}"));
        let (kind, error) = refused(&url).await;
        assert_eq!(kind, Some(StoreErrorKind::ReadOnly), "{error}");
        let role = if is_mysql() { "source" } else { "master" };
        let says = format!("SET GLOBAL rpl_semi_sync_{role}_enabled = OFF");
        assert_eq!(error.contains(&says), is_told, "{error}");
    }
    open(&pair.url("node")).await;
}

/// Goal: an open connection notices that semi-synchronous replication was enabled. Method: enable it after a
/// write, cut the replica off, and kill the wait of the next write; the server answers OK to that.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_wait_that_begins_later_is_noticed() {
    let pair = start().await;
    let enable = |value| pair.primary().sql(&format!("SET GLOBAL rpl_semi_sync_master_enabled = {value}"));
    let url = format!("{}?timeout_ms=5000", pair.url("node"));
    for write in [false, true] {
        enable(0);
        let store = open(&url).await;
        store.add(&key("sum"), NonZeroU64::MIN).await.unwrap();
        enable(1);
        pair.primary().wait_until(
            "waiting for the replica",
            "SELECT variable_value = 'ON' FROM information_schema.global_status \
             WHERE variable_name = 'rpl_semi_sync_master_status'",
        );
        on(&pair, MariaDbPair::cut_replica).await;
        let asking = tokio::spawn(async move {
            let one = NonZeroU64::MIN;
            if write {
                store.add(&key("sum"), one).await.map(drop)
            } else {
                store.load(&key("sum")).await.map(drop)
            }
        });
        pair.primary().wait_until(
            "a commit that waits",
            "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for semi-sync ACK%'",
        );
        on(&pair, MariaDbPair::end_waits).await;
        let error = asking.await.unwrap().unwrap_err();
        let kind = if write { StoreErrorKind::OutcomeUnknown } else { StoreErrorKind::Unavailable };
        assert_eq!(error.kind(), kind, "{error}");
        pair.replica().sql("START SLAVE IO_THREAD");
        pair.primary().wait_until(
            "a replica that confirms",
            "SELECT variable_value > 0 FROM information_schema.global_status \
             WHERE variable_name = 'rpl_semi_sync_master_clients'",
        );
    }
}

/// Goal: transactions that no replica has do not count as seen, so the promoted replica, which never had
/// them, is used. Method: cut the replica off, leave writes unconfirmed on the primary, call it on new and on
/// old connections and from a node that starts, also while it shows those writes; then kill the primary and
/// promote the replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_no_replica_has_locks_nobody_out() {
    let pair = start().await;
    let writers = Writers::start(&pair).await;
    writers.go_on().await;
    let url = format!("{}?timeout_ms=1000", pair.url("node"));
    let store = open(&url).await;
    on(&pair, MariaDbPair::cut_replica).await;
    // Each of these calls breaks its connection, so the next one opens a new one.
    for _ in 0..3 {
        let error = store.load(&key("sum")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        on(&pair, MariaDbPair::end_waits).await;
    }
    let starting = tokio::spawn({
        let url = url.clone();
        async move { snowmint_store::open_backend(&url).await }
    });
    on(&pair, |pair| {
        let stranded = pair.primary().sql("SELECT @@gtid_binlog_pos");
        assert_ne!(pair.replica().sql("SELECT @@gtid_slave_pos"), stranded, "nothing is stranded");
        pair.fail_over();
    })
    .await;
    drop(starting.await.unwrap());
    // All of them continue on the promoted server.
    store.load(&key("sum")).await.unwrap();
    writers.go_on().await;
    writers.stop().await;
}

/// Adds as soon as the store accepts it.
async fn add_when_up(store: &dyn Store) {
    while let Err(error) = store.add(&key("sum"), NonZeroU64::MIN).await {
        assert!(error.is_temporary() || error.kind() == StoreErrorKind::OutcomeUnknown, "{error}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Goal: a server whose commits no replica confirms stays in use, even as the first one that a node meets,
/// but if replicas confirmed before, a warning is logged. Method: a failover that leaves the new primary
/// alone, a replica that comes back, and a setting that is removed; a store whose URL states the loss logs
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replicas_that_confirm_no_more_are_told_once() {
    let pair = start().await;
    let log = Log::listen(&pair.url("node"));
    let store = open(&format!("{}?timeout_ms=2000", pair.url("node"))).await;
    let lossy = open(&format!("{}?timeout_ms=2000&may_lose=1s", pair.url("node"))).await;
    let told =
        || (log.lines("replicas no longer confirm").len(), log.lines("replicas confirm commits again").len());
    for store in [&store, &lossy] {
        add_when_up(&**store).await;
    }
    assert_eq!(told(), (0, 0));
    on(&pair, MariaDbPair::fail_over).await;
    for _ in 0..5 {
        for store in [&store, &lossy] {
            add_when_up(&**store).await;
            store.load(&key("sum")).await.unwrap();
        }
    }
    assert_eq!(told(), (1, 0), "alone");
    let line = &log.lines("replicas no longer confirm")[0];
    let says = [&*pair.primary().address().to_string(), "WARN", "may_lose"];
    assert!(says.iter().all(|it| line.contains(it)), "{line}");
    on(&pair, MariaDbPair::rejoin).await;
    while told() != (1, 1) {
        add_when_up(&*store).await;
    }
    pair.primary().sql("SET GLOBAL rpl_semi_sync_master_enabled = 0");
    for _ in 0..5 {
        add_when_up(&*store).await;
    }
    assert_eq!(told(), (2, 1), "the setting was taken away");
}

/// Goal: a write counts only if a replica has it, even on a connection that was made before the server gave
/// up waiting. Method: another program's commit times out, after which the server does not wait; then the
/// replica comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_gave_up_waiting_is_noticed_by_each_call() {
    let pair = start().await;
    let store = open(&pair.url("node")).await;
    pair.primary().sql("SET GLOBAL rpl_semi_sync_master_timeout = 1; CREATE TABLE test.other (id INT)");
    let status = |value| {
        let sql = format!(
            "SELECT variable_value = '{value}' FROM information_schema.global_status \
             WHERE variable_name = 'rpl_semi_sync_master_status'"
        );
        pair.primary().wait_until("the status", &sql);
    };
    for write in [true, false] {
        status("ON");
        add_when_up(&*store).await;
        pair.replica().sql("STOP SLAVE IO_THREAD");
        pair.primary().sql("INSERT INTO test.other VALUES (1)");
        status("OFF");
        let (error, kind) = if write {
            (store.add(&key("sum"), NonZeroU64::MIN).await.map(drop), StoreErrorKind::OutcomeUnknown)
        } else {
            (store.load(&key("sum")).await.map(drop), StoreErrorKind::Unavailable)
        };
        let error = error.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("without the confirmation of a replica"), "{error}");
        pair.replica().sql("START SLAVE IO_THREAD");
    }
}

/// Goal: a server that lost transactions is not used. Method: one that forgets its log, and a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lacks_what_was_seen_is_refused() {
    let server = MariaDb::with(&["--log-bin=binlog", "--server-id=7"]);
    let url = format!("mysql://root@{}/test", server.address());
    let store = open(&url).await;
    store.add(&key("sum"), NonZeroU64::MIN).await.unwrap();
    server.restart();
    // Finds the connection broken, and opens another.
    while store.load(&key("sum")).await.is_err() {}
    assert_eq!(store.add(&key("sum"), NonZeroU64::MIN).await.unwrap(), 1);
    server.sql("RESET MASTER");
    server.restart();
    // The first call may find the connection broken.
    let error = match store.load(&key("sum")).await {
        Err(error) if error.kind() == StoreErrorKind::Unavailable => {
            store.load(&key("sum")).await.unwrap_err()
        }
        answer => answer.unwrap_err(),
    };
    assert_eq!(error.kind(), StoreErrorKind::Other, "{error}");
    let origin =
        if is_mysql() { server.sql("SELECT @@server_uuid") } else { "domain 0, server 7".to_owned() };
    assert!(error.to_string().contains(&format!("{origin}, and this node has seen")), "{error}");
    open(&url).await.load(&key("sum")).await.unwrap();
}
