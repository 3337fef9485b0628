//! The ZooKeeper store against real servers: the suite, crashes, an ensemble whose leader fails, a lagging
//! server, a bad network, sessions that expire, logins and TLS; and against servers that do not follow the
//! protocol.

mod bad_servers;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use snowmint_store::{Expected, OpenError, Store, StoreErrorKind, Swap, ZooKeeperStore, conformance};
use snowmint_test_servers::{Certificates, Proxy, ZooKeeper, ZooKeeperCli, ZooKeeperEnsemble};
use tokio::time::{Instant, sleep, timeout};

use crate::support::traffic;
use crate::support::traffic::{
    Traffic, add_five, cut_off_it_answers_nothing, fails_for_now, load_again, under_trouble,
};
use crate::support::{key, put};

async fn open(url: &str) -> Arc<dyn Store> {
    snowmint_store::open_backend(url).await.unwrap()
}

async fn handles(url: &str, count: usize) -> Vec<Arc<dyn Store>> {
    let mut handles = Vec::new();
    for _ in 0..count {
        handles.push(open(url).await);
    }
    handles
}

fn url(server: &ZooKeeper) -> String {
    format!("zookeeper://{}", server.address())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract() {
    let server = ZooKeeper::start();
    conformance::run(async || open(&url(&server)).await).await.unwrap();
}

/// Goal: a URL that names servers of two ensembles is refused, since they are two stores. Method: two servers
/// of their own; then one is down when the store is opened, and takes over later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_two_ensembles_are_refused() {
    let (one, other) = (ZooKeeper::start(), ZooKeeper::start());
    let both = format!("{},{}", url(&one), other.address());
    let OpenError::Store(error) = snowmint_store::open_backend(&both).await.unwrap_err() else { panic!() };
    assert_eq!(error.kind(), StoreErrorKind::SplitBrain, "{error}");
    assert!(error.to_string().contains("another ensemble"), "{error}");
    other.kill9();
    let store = open(&both).await;
    put(&*store, "a", b"1").await;
    one.kill9();
    other.restart();
    let error = loop {
        match store.load(&key("a")).await {
            Ok(found) => panic!("{found:?} of another ensemble"),
            Err(error) if error.kind() == StoreErrorKind::SplitBrain => break error,
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}"),
        }
    };
    assert!(error.to_string().contains("restart the nodes"), "{error}");
    let error = store.compare_and_set(&key("b"), Expected::Absent, b"1").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::SplitBrain, "{error}");
    // The first one comes back.
    other.kill9();
    one.restart();
    while store.load(&key("a")).await.is_err() {
        sleep(Duration::from_millis(100)).await;
    }
}

/// Goal: reads are up to date on every server of an ensemble. Method: the suite, with a different server for
/// each handle.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_on_an_ensemble() {
    let ensemble = ZooKeeperEnsemble::start(3);
    let (addresses, next) = (ensemble.addresses(), AtomicUsize::new(0));
    let opened = async || {
        let nth = next.fetch_add(1, Ordering::SeqCst);
        open(&format!("zookeeper://{}/deep/er", addresses[nth % addresses.len()])).await
    };
    conformance::run(opened).await.unwrap();
}

/// Goal: records are where the docs say, so that an operator finds them. Method: ZooKeeper's own client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_plain_znodes() {
    let server = ZooKeeper::start();
    let store = open(&format!("{}/team/ids", url(&server))).await;
    assert_eq!(store.describe(), format!("zookeeper://{}/team/ids", server.address()));
    let schema = snowmint_store::schema("zookeeper://h/team/ids").unwrap();
    assert!(schema.contains("\n/team/ids/,fence "), "{schema}");
    let record = put(&*store, "workers/a/1", b"ours").await;
    let mut cli = ZooKeeperCli::connect(server.address());
    let found = cli.run("get -s /team/ids/workers,a/1");
    assert!(found.lines().any(|it| it == "ours"), "{found}");
    assert_eq!(transaction(&found), Some(record.revision.0));

    // Znodes of another program are reported.
    cli.run("set /team/ids/workers,a/1 theirs");
    let swap = store.compare_and_set(&key("workers/a/1"), Expected::Revision(record.revision), b"lost").await;
    assert_eq!(swap.unwrap(), Swap::Conflict);
    cli.run("create '/team/ids/workers,a/what is this?'");
    // Without a value.
    cli.run("create /team/ids/workers,a/2");
    assert_eq!(store.load(&key("workers/a/2")).await.unwrap().unwrap().value, b"");
    assert_eq!(store.list("workers/").await.unwrap().len(), 2);
    let skipped = store.skipped();
    assert!(
        matches!(&skipped[..], [it] if it.contains("what is this?") && it.contains("not a Snowmint key")),
        "{skipped:?}"
    );
    assert!(store.list("other/").await.unwrap().is_empty());
}

/// Returns the transaction that last wrote a znode, from the output of `get -s`.
fn transaction(found: &str) -> Option<u64> {
    let number = found.lines().find_map(|line| line.strip_prefix("mZxid = 0x"))?;
    u64::from_str_radix(number, 16).ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_other_programs_are_skipped_and_told() {
    let server = ZooKeeper::start();
    let url = url(&server);
    let cli = Mutex::new(ZooKeeperCli::connect(server.address()));
    let put = async |name: &[u8]| {
        // The names of znodes are text without control characters.
        let Some((folder, child)) = str::from_utf8(name)
            .ok()
            .filter(|it| !it.contains(char::is_control))
            .and_then(|it| it.rsplit_once('/'))
        else {
            return false;
        };
        let folder = format!("/snowmint/{}", folder.replace('/', ","));
        let mut cli = cli.lock().unwrap();
        cli.run(&format!("create '{folder}'"));
        cli.run(&format!("create '{folder}/{child}'")).contains("Created")
    };
    conformance::skips_foreign_names(async || open(&url).await, put).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_tells_the_time_of_the_server() {
    let server = ZooKeeper::start();
    let store = open(&url(&server)).await;
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of the machine, which is that of the server too"
    )]
    let now = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let before = now();
    let told = store.unix_ms().await.unwrap().unwrap();
    assert!((before..=now()).contains(&told), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loses_nothing_and_the_handle_recovers() {
    let server = ZooKeeper::start();
    let store = open(&url(&server)).await;
    let record = put(&*store, "a", b"value").await;
    assert_eq!(add_five(&*store).await, 0);
    server.kill9();
    fails_for_now(&*store, "a", Expected::Revision(record.revision)).await;
    fails_for_now(&*store, "a", Expected::Revision(record.revision)).await;
    let error = ZooKeeperStore::open(&url(&server)).await.unwrap_err();
    assert!(matches!(&error, OpenError::Store(it) if it.kind() == StoreErrorKind::Unavailable), "{error}");
    server.restart();
    assert_eq!(load_again(&*store, "a").await, Some(record));
    put(&*store, "a", b"after").await;
    assert!(add_five(&*store).await >= 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_costs_bounded_time_and_sessions_come_back() {
    let server = ZooKeeper::start();
    let store = open(&url(&server)).await;
    let record = put(&*store, "a", b"value").await;
    server.pause();
    fails_for_now(&*store, "a", Expected::Revision(record.revision)).await;
    // Longer than the session.
    sleep(Duration::from_secs(8)).await;
    server.resume();
    let found = load_again(&*store, "a").await.unwrap();
    assert!(found == record || found.value == b"while down", "{found:?}");
    put(&*store, "a", b"after").await;
}

/// Goal: one history while the leader dies, comes back, and hangs. Method: compare-and-set traffic meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_that_fails_forks_no_history() {
    let ensemble = ZooKeeperEnsemble::start(3);
    let hosts: Vec<String> = ensemble.addresses().iter().map(ToString::to_string).collect();
    let handles = handles(&format!("zookeeper://{}", hosts.join(",")), 4).await;
    let trouble = async |traffic: &Traffic| {
        for round in 0..2 {
            traffic.goes_on(30).await;
            let leader = leader(&ensemble).await;
            println!("round {round}: the leader is {leader}");
            ensemble.nodes()[leader].kill9();
            traffic.goes_on(30).await;
            ensemble.nodes()[leader].restart();
            traffic.goes_on(30).await;
            let leader = self::leader(&ensemble).await;
            ensemble.nodes()[leader].pause();
            traffic.goes_on(30).await;
            ensemble.nodes()[leader].resume();
        }
        traffic.goes_on(30).await;
    };
    under_trouble(handles, trouble).await;
}

async fn leader(ensemble: &ZooKeeperEnsemble) -> usize {
    for _ in 0..6000 {
        if let Some(leader) = ensemble.leader() {
            return leader;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("no leader");
}

/// Goal: a load never returns a server's old copy. Method: a leader and a follower in turn are paused while
/// the rest continue to write, and are asked at the instant they wake up, when they do not know yet what they
/// missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_is_behind_is_not_believed() {
    let ensemble = ZooKeeperEnsemble::start(3);
    let addresses = ensemble.addresses();
    let (mut answered, mut naive_was_stale) = (0, 0);
    for round in 0..6 {
        let leader = leader(&ensemble).await;
        let nth = if round % 2 == 0 { leader } else { (leader + 1) % 3 };
        let others: Vec<String> =
            (0..3).filter(|it| *it != nth).map(|it| addresses[it].to_string()).collect();
        let behind = open(&format!("zookeeper://{}", addresses[nth])).await;
        let mut naive = ZooKeeperCli::connect(addresses[nth]);
        naive.run("version");
        let writer = open(&format!("zookeeper://{}", others.join(","))).await;
        load_again(&*writer, "a").await;
        load_again(&*behind, "a").await;
        ensemble.nodes()[nth].pause();
        let started = Instant::now();
        let mut written = None;
        while started.elapsed() < Duration::from_millis(1500) || written.is_none() {
            let Ok(found) = writer.load(&key("a")).await else { continue };
            let expected = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
            if let Ok(Swap::Done(revision)) = writer.compare_and_set(&key("a"), expected, b"x").await {
                written = Some(revision);
            }
            assert!(started.elapsed() < Duration::from_secs(30), "the rest of the ensemble does not write");
        }
        let name = key("a");
        naive.send("get -s /snowmint/,/a");
        let (loaded, ()) = tokio::join!(behind.load(&name), async { ensemble.nodes()[nth].resume() });
        if let Some(read) = transaction(&naive.answer()) {
            naive_was_stale += u32::from(Some(read) < written.map(|it| it.0));
        }
        if let Ok(found) = loaded {
            answered += 1;
            assert!(found.as_ref().map(|it| it.revision) >= written, "{found:?} after {written:?}");
        }
        load_again(&*behind, "a").await;
    }
    println!("{answered} of 6 loads were answered; a plain read was stale {naive_was_stale} times");
}

/// Goal: a server that is cut off from the others, and lacks what they wrote, neither answers a read nor
/// acknowledges a write. Method: it sleeps while they write, and wakes up when they sleep; once the leader,
/// once a follower.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_is_cut_off_answers_nothing() {
    let ensemble = ZooKeeperEnsemble::start(3);
    for round in 0..2 {
        let cut_off = (leader(&ensemble).await + round) % 3;
        cut_off_it_answers_nothing("zookeeper", ensemble.nodes(), cut_off, |_| ()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_that_breaks_leaves_no_doubt_in_the_end() {
    let server = ZooKeeper::start();
    let proxy = Proxy::start(server.address());
    let handles = handles(&format!("zookeeper://{}", proxy.address()), 4).await;
    let trouble = async |traffic: &Traffic| {
        for _ in 0..40 {
            sleep(Duration::from_millis(100)).await;
            proxy.cut();
        }
        traffic.goes_on(20).await;
        // Writes happen, but their answers are lost.
        traffic::lose_answers(&proxy, traffic).await;
        proxy.refuse();
        traffic.fails().await;
        proxy.accept();
        traffic.goes_on(20).await;
        proxy.freeze();
        // Wait until every session has expired.
        sleep(Duration::from_secs(9)).await;
        proxy.thaw();
        traffic.goes_on(20).await;
    };
    let report = under_trouble(handles, trouble).await;
    assert!(report.failed_reads > 0 && report.unknown_but_written > 0, "{report:?}");
}

/// Goal: the outcome of a write that was never sent is known. Method: the server is gone, on a session that
/// was open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_a_session_was_not_written() {
    let server = ZooKeeper::start();
    let proxy = Proxy::start(server.address());
    let store = open(&format!("zookeeper://{}", proxy.address())).await;
    let record = put(&*store, "a", b"value").await;
    proxy.refuse();
    traffic::notices(&*store).await;
    for expected in [Expected::Revision(record.revision), Expected::Absent] {
        let error = store.compare_and_set(&key("a"), expected, b"lost").await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
    proxy.accept();
    assert_eq!(load_again(&*store, "a").await, Some(record));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_to_a_user_is_closed_to_others() {
    let server = ZooKeeper::start();
    let host = server.address();
    let store = ZooKeeperStore::open(&format!("zookeeper://snow:s%2Fe%40cret@{host}/ids")).await.unwrap();
    put(&store, "a", b"1").await;
    assert!(!format!("{store:?} {}", store.describe()).contains("cret"));
    for (url, password) in [
        (format!("zookeeper://{host}/ids"), "none at all"),
        (format!("zookeeper://snow:wrong-one@{host}/ids"), "wrong-one"),
    ] {
        let error = ZooKeeperStore::open(&url).await.unwrap_err();
        let OpenError::Store(failed) = &error else { panic!("{error}") };
        assert_eq!(failed.kind(), StoreErrorKind::ReadOnly, "{error}");
        assert!(!format!("{error} {error:?}").contains(password), "{error:?}");
        println!("{error}");
    }
    let again = ZooKeeperStore::open(&format!("zookeeper://snow:s%2Fe%40cret@{host}/ids")).await.unwrap();
    put(&again, "a", b"2").await;
}

/// Goal: TLS protects both sides, and each mistake gets the advice that corrects it. Method: servers that want a
/// client certificate, do not, and have no TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tls_is_checked_on_both_sides() {
    use StoreErrorKind::{Other, Unavailable};
    let (certificates, others) = (Certificates::make(), Certificates::make());
    let (ca, other_ca) = (certificates.authority().display(), others.authority().display());
    let (cert, key_file) = (certificates.client_certificate().display(), certificates.client_key().display());
    let strict = ZooKeeper::with_tls(&certificates, &["ssl.clientAuth=need"]);
    let lax = ZooKeeper::with_tls(&certificates, &["ssl.clientAuth=none"]);
    let plain = ZooKeeper::start();
    for url in [
        format!("zookeepers://{}?ca={ca}&cert={cert}&key={key_file}", strict.secure_address()),
        format!("zookeepers://snow:secret@localhost:{}?ca={ca}", lax.secure_address().port()),
    ] {
        let store = open(&url).await;
        // An answer of several records of TLS.
        let value = vec![7; 60 * 1024];
        let record = put(&*store, "a", &value).await;
        assert_eq!(store.load(&key("a")).await.unwrap(), Some(record));
        assert!(store.describe().starts_with("zookeepers://"), "{}", store.describe());
    }
    for (url, why, kind, says) in [
        (format!("zookeeper://{}", lax.secure_address()), "no TLS", Unavailable, "only TLS (zookeepers://)"),
        (
            format!("zookeepers://{}?ca={other_ca}", lax.secure_address()),
            "another authority",
            Other,
            "name its file with ca=",
        ),
        (
            format!("zookeepers://{}?ca={ca}", strict.secure_address()),
            "no client certificate",
            Unavailable,
            "requires a client certificate (cert= and key=)",
        ),
        (
            format!("zookeepers://{}?ca={ca}", plain.address()),
            "TLS to a server without",
            Unavailable,
            "accepts none (zookeeper://)",
        ),
    ] {
        let started = Instant::now();
        let error = ZooKeeperStore::open(&url).await.expect_err(why);
        println!("{why}: {error}");
        assert!(matches!(&error, OpenError::Store(it) if it.kind() == kind), "{why}: {error}");
        assert!(error.to_string().contains(says), "{why}: {error}");
        assert!(started.elapsed() < traffic::LONGEST_CALL, "{why}: {:?}", started.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_over_tls() {
    let certificates = Certificates::make();
    let server = ZooKeeper::with_tls(&certificates, &["ssl.clientAuth=none"]);
    let url = format!("zookeepers://{}?ca={}", server.secure_address(), certificates.authority().display());
    conformance::run(async || open(&url).await).await.unwrap();
}

/// Goal: the outcome of a write is unknown if the server dies before it answers, and the call ends at once.
/// Method: a proxy that withholds the answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_server_dies_is_in_doubt() {
    let server = ZooKeeper::start();
    let proxy = Proxy::start(server.address());
    let store = open(&format!("zookeeper://{}", proxy.address())).await;
    let direct = open(&url(&server)).await;
    put(&*store, "folder/a", b"1").await;
    proxy.lose_answers(true);
    let name = key("folder/b");
    let (written, ()) = tokio::join!(store.compare_and_set(&name, Expected::Absent, b"2"), async {
        while direct.load(&name).await.unwrap().is_none() {}
        server.kill9();
    });
    let error = written.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    // It did not wait for its own limit.
    assert!(!error.to_string().contains("no answer"), "{error}");
    proxy.lose_answers(false);
    server.restart();
    assert_eq!(load_again(&*store, "folder/b").await.map(|it| it.value), Some(b"2".to_vec()));
}

/// Goal: a session opens although every call gives up before. Method: a connection on which nothing arrives
/// while ten short calls wait for one session. A machine that pauses in between may need a second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_opens_slowly_outlives_the_calls_that_wait_for_it() {
    let server = ZooKeeper::start();
    let proxy = Proxy::start(server.address());
    let store = open(&format!("zookeeper://{}", proxy.address())).await;
    store.load(&key("a")).await.unwrap();
    let before = proxy.accepted();
    proxy.freeze();
    proxy.cut();
    for _ in 0..10 {
        let given_up = timeout(Duration::from_millis(50), store.load(&key("a"))).await;
        assert!(!matches!(given_up, Ok(Ok(_))), "{given_up:?}");
    }
    proxy.thaw();
    load_again(&*store, "a").await;
    assert!(proxy.accepted() - before <= 2, "{} connections", proxy.accepted() - before);
}

/// Goal: a URL may name servers that are down or unresponsive. Method: one of four hosts answers, one refuses
/// connections, and two accept them and never answer; a session beginning with each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_of_four_is_enough() {
    let (server, down) = (ZooKeeper::start(), ZooKeeper::start());
    let proxy = Proxy::start(server.address());
    down.kill9();
    let silent = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (one, other) = (silent(), silent());
    let [one, other] = [&one, &other].map(|it| it.local_addr().unwrap());
    let hosts = format!("{one},{other},{},{}", down.address(), proxy.address());
    let store = open(&format!("zookeeper://{hosts}")).await;
    for _ in 0..4 {
        proxy.cut();
        store.load(&key("a")).await.unwrap();
    }
}
