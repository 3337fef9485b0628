//! The PostgreSQL store with standbys: data that is visible on the primary but not confirmed by a synchronous
//! standby must not be relied on, however the session that waits for the standby ends.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use snowmint_store::{Expected, Revision, Store, StoreError, StoreErrorKind, Swap, conformance};
use snowmint_test_servers::{PgBouncer, Postgres, Server};
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::{Instant, sleep};

use crate::support::{Log, PATIENCE, SECRET, eventually, key, open, put, refused};

const WAITING: &str = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
const CANCEL: &str = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
const TERMINATE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// The password of a user with rights on the table only.
fn url(server: &Server) -> String {
    format!("postgres://node:{SECRET}@{}/postgres?timeout_ms=1500", server.address())
}

/// A primary whose commits wait for a standby, and that standby.
fn pair() -> (Postgres, Postgres) {
    let primary = Postgres::with(&["synchronous_standby_names=FIRST 1 (s1)"]);
    let standby = Postgres::standby_named(&primary, "s1");
    primary.sql(&format!("CREATE USER node PASSWORD '{SECRET}'"));
    primary.sql(&snowmint_store::schema(&url(&primary)).unwrap());
    primary.sql("GRANT SELECT, INSERT, UPDATE ON snowmint_records TO node");
    (primary, standby)
}

/// Starts a write and returns once it waits for the standby.
async fn wait_for_standby<T: Send + 'static>(
    primary: &Postgres,
    write: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let write = tokio::spawn(write);
    eventually("a write that waits", || block_in_place(|| !primary.sql(WAITING).is_empty())).await;
    write
}

/// Starts a write of `a` that waits for the standby.
async fn write(
    primary: &Postgres,
    store: &Arc<dyn Store>,
    before: Revision,
) -> JoinHandle<Result<Swap, StoreError>> {
    let store = Arc::clone(store);
    let write = async move { store.compare_and_set(&key("a"), Expected::Revision(before), b"2").await };
    wait_for_standby(primary, write).await
}

/// Returns the value of `a` that a server shows to reads without a fence; nothing on a standby that lacks the
/// table so far.
fn shown(server: &Postgres) -> String {
    if server.sql("SELECT to_regclass('snowmint_records')").is_empty() {
        return String::new();
    }
    server.sql("SELECT encode(value, 'escape') FROM snowmint_records WHERE name = 'a'")
}

/// Checks that reads fail until the standby confirms what they show.
async fn reads_fail(primary: &Postgres) {
    let reader = open(&url(primary)).await;
    let error = reader.load(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    let error = reader.list("").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    // Also for a missing record: an old primary would report it as missing forever.
    let error = reader.load(&key("none")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
}

/// Ends the wait of a write for the standby, and returns the writer's result.
type End = fn(&Postgres);

/// Goal: no caller relies on a write that the standby lacks, and after its promotion that write has not
/// happened. Method: end the wait of a write in every possible way, read, promote.
async fn an_unconfirmed_write_counts_for_nobody(end: End) {
    let (primary, standby) = block_in_place(pair);
    let store = open(&url(&primary)).await;
    let before = put(&*store, "a", b"1").await.revision;
    block_in_place(|| standby.kill9());
    let write = write(&primary, &store, before).await;
    block_in_place(|| end(&primary));
    let error = write.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    println!("{error}");
    assert_eq!(block_in_place(|| shown(&primary)), "2", "the trap is set");
    reads_fail(&primary).await;

    block_in_place(|| primary.kill9());
    block_in_place(|| standby.restart());
    block_in_place(|| standby.promote());
    let store = open(&url(&standby)).await;
    let found = store.load(&key("a")).await.unwrap().unwrap();
    assert_eq!((found.revision, &*found.value), (before, &b"1"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminated_wait_counts_for_nobody() {
    an_unconfirmed_write_counts_for_nobody(|primary| drop(primary.sql(TERMINATE))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_wait_counts_for_nobody() {
    an_unconfirmed_write_counts_for_nobody(|primary| drop(primary.sql(CANCEL))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fast_restart_counts_for_nobody() {
    an_unconfirmed_write_counts_for_nobody(Postgres::restart_fast).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_counts_for_nobody() {
    an_unconfirmed_write_counts_for_nobody(|primary| {
        primary.kill9();
        primary.restart();
    })
    .await;
}

/// Goal: time limits on statements, the server's and ours, do not end a wait as if it were confirmed. Method:
/// a wait that outlasts them; then the standby comes back and confirms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_limit_confirms_nothing() {
    let (primary, standby) = block_in_place(pair);
    block_in_place(|| primary.sql("ALTER ROLE node SET statement_timeout = 100"));
    let store = open(&url(&primary)).await;
    let before = put(&*store, "a", b"1").await.revision;
    block_in_place(|| standby.kill9());
    let write = write(&primary, &store, before).await;
    let error = write.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(block_in_place(|| shown(&primary)), "1", "the commit still waits");
    // New sessions end that wait, since no caller still waits for it. That confirms nothing either.
    reads_fail(&primary).await;
    block_in_place(|| standby.restart());
    eventually("the commit", || block_in_place(|| shown(&primary) == "2")).await;
    assert_eq!(store.load(&key("a")).await.unwrap().unwrap().value, b"2");
    eventually("the standby", || block_in_place(|| shown(&standby) == "2")).await;
}

/// Goal: no read and no addition counts as confirmed, even if each of their waits is cancelled. Method:
/// another user repeatedly cancels every wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_that_are_cancelled_again_and_again_confirm_nothing() {
    let (primary, standby) = block_in_place(pair);
    let store = open(&url(&primary)).await;
    let before = put(&*store, "a", b"1").await.revision;
    assert_eq!(store.add(&key("sum"), NonZeroU64::MIN).await.unwrap(), 0);
    block_in_place(|| standby.kill9());
    let primary = Arc::new(primary);
    let canceller = Canceller::start(&primary);
    let swap = store.compare_and_set(&key("a"), Expected::Revision(before), b"2").await;
    assert_eq!(swap.unwrap_err().kind(), StoreErrorKind::OutcomeUnknown);
    for _ in 0..3 {
        let error = store.add(&key("sum"), NonZeroU64::MIN).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    }
    println!("{}", store.load(&key("a")).await.unwrap_err());
    reads_fail(&primary).await;
    drop(canceller);
    assert_eq!(block_in_place(|| shown(&primary)), "2", "the trap is set");
    // Once the standby has confirmed them, all readers see the same records; additions without an answer are
    // lost.
    block_in_place(|| standby.restart());
    assert_eq!(load_when_confirmed(&*store).await, b"2");
    assert_eq!(store.add(&key("sum"), NonZeroU64::MIN).await.unwrap(), 4);
}

/// Cancels every wait for a standby, until it is dropped.
struct Canceller {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Canceller {
    fn start(primary: &Arc<Postgres>) -> Self {
        let (stop, primary) = (Arc::new(AtomicBool::new(false)), Arc::clone(primary));
        let stopped = Arc::clone(&stop);
        let cancel = move || {
            while !stopped.load(Ordering::Relaxed) {
                primary.sql(CANCEL);
            }
        };
        Self { stop, thread: Some(thread::spawn(cancel)) }
    }
}

impl Drop for Canceller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(thread::JoinHandle::join);
    }
}

async fn load_when_confirmed(store: &dyn Store) -> Vec<u8> {
    let started = Instant::now();
    loop {
        match store.load(&key("a")).await {
            Ok(found) => return found.unwrap().value,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_given_up_do_not_pile_up() {
    let (primary, standby) = block_in_place(pair);
    let url = url(&primary).replace("1500", "1000");
    given_up_calls_do_not_pile_up(primary, &standby, &url).await;
}

/// Goal: the same through a pooler, which may add the address of its client to the name of a session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_given_up_do_not_pile_up_behind_a_pooler() {
    let (primary, standby) = block_in_place(pair);
    let pooler = block_in_place(|| PgBouncer::start(&primary, "session", 60));
    let url = format!("postgres://postgres@{}/postgres?timeout_ms=1000", pooler.address());
    given_up_calls_do_not_pile_up(primary, &standby, &url).await;
}

/// Goal: calls that time out leave few sessions on the server, which has a limit. Method: nodes that read,
/// write and restart repeatedly without the standby; count the sessions at the end, and all writes that were
/// sent.
async fn given_up_calls_do_not_pile_up(primary: Postgres, standby: &Postgres, url: &str) {
    const NODES: usize = 3;
    const ROUNDS: usize = 6;
    block_in_place(|| standby.kill9());
    let primary = Arc::new(primary);
    let node = |nth: usize| {
        let url = url.to_owned();
        async move {
            let store = open(&url).await;
            for round in 0..ROUNDS {
                // A different record each time, like a node that looks for a free worker.
                let name = key(format!("{nth}/{round}"));
                let error = store.compare_and_set(&name, Expected::Absent, b"mine").await.unwrap_err();
                assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
                let error = open(&url).await.load(&name).await.unwrap_err();
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
            }
        }
    };
    let nodes: Vec<_> = (0..NODES).map(|nth| tokio::spawn(node(nth))).collect();
    for node in nodes {
        node.await.unwrap();
    }
    // A session that begins now ends the abandoned ones.
    sleep(Duration::from_millis(1100)).await;
    open(url).await;
    let left = || block_in_place(|| primary.sql(WAITING)).lines().count();
    let started = Instant::now();
    while left() > NODES {
        assert!(started.elapsed() < PATIENCE, "{} sessions are left behind", left());
        sleep(Duration::from_millis(10)).await;
    }
    // Nothing is lost by that: the writes are confirmed once the standby is back.
    block_in_place(|| standby.restart());
    let store = open(url).await;
    let deadline = Instant::now() + PATIENCE;
    let found = loop {
        match store.list("").await {
            Ok(found) => break found.len(),
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    assert_eq!(found, NODES * ROUNDS);
}

/// Goal: the contract holds with a synchronous standby, and for a user without more rights. Method: the
/// suite.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_with_a_synchronous_standby() {
    let (primary, standby) = block_in_place(pair);
    let url = url(&primary).replace("1500", "10000");
    conformance::run(async || open(&url).await).await.unwrap();
    drop(standby);
}

/// Goal: a read on a server without synchronous standbys costs no commit, and costs one once the server has
/// them. Method: look at the transaction ids that it has used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_write_only_where_standbys_are_waited_for() {
    let primary = block_in_place(Postgres::start);
    let store = open(&format!("postgres://postgres@{}/postgres", primary.address())).await;
    put(&*store, "a", b"1").await;
    let used = || block_in_place(|| primary.sql("SELECT pg_snapshot_xmax(pg_current_snapshot())"));
    let before = used();
    store.load(&key("a")).await.unwrap().unwrap();
    assert_eq!(store.list("").await.unwrap().len(), 1);
    assert_eq!(used(), before);
    let standby = block_in_place(|| Postgres::standby_named(&primary, "s1"));
    block_in_place(|| primary.set("synchronous_standby_names", "ANY 1 (s1)"));
    store.load(&key("a")).await.unwrap().unwrap();
    assert_ne!(used(), before);
    // The same session notices the setting.
    block_in_place(|| standby.kill9());
    let started = Instant::now();
    while store.load(&key("a")).await.is_ok() {
        assert!(started.elapsed() < PATIENCE, "reads do not wait for the standby");
    }
}

/// Goal: the URL states what an asynchronous standby may lack. Method: write, promote, read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_standby_may_lose_what_the_url_says() {
    let primary = block_in_place(Postgres::start);
    let standby = block_in_place(|| Postgres::standby_named(&primary, "s1"));
    let url = |server: &Server| format!("postgres://postgres@{}/postgres", server.address());
    assert_eq!(open(&url(&primary)).await.may_lose(), Duration::ZERO);
    let store = open(&format!("{}?may_lose=1500ms", url(&primary))).await;
    assert_eq!(store.may_lose(), Duration::from_millis(1500));
    let before = put(&*store, "a", b"1").await.revision;
    eventually("the standby", || block_in_place(|| shown(&standby) == "1")).await;
    block_in_place(|| standby.kill9());
    // Acknowledged, then lost: this is why writes must settle.
    put(&*store, "a", b"2").await;
    block_in_place(|| primary.kill9());
    block_in_place(|| standby.restart());
    block_in_place(|| standby.promote());
    let found = open(&url(&standby)).await.load(&key("a")).await.unwrap().unwrap();
    assert_eq!((found.revision, &*found.value), (before, &b"1"[..]));
}

/// Goal: a server whose commits no standby confirms stays in use, even as the first one that a node meets,
/// but if standbys confirmed before, a warning is logged. Method: promote the standby, which has none of its
/// own; give it one, and take it away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standbys_that_confirm_no_more_are_told_once() {
    let (primary, standby) = block_in_place(pair);
    let both = both(&primary, &standby);
    let log = Log::listen(&both);
    let (store, lossy) = (open(both.split("&may_lose").next().unwrap()).await, open(&both).await);
    let told =
        || (log.lines("replicas no longer confirm").len(), log.lines("replicas confirm commits again").len());
    put(&*store, "a", b"1").await;
    lossy.load(&key("a")).await.unwrap();
    assert_eq!(told(), (0, 0));
    block_in_place(|| primary.kill9());
    block_in_place(|| standby.promote());
    for store in [&store, &lossy] {
        for _ in 0..3 {
            put_when_up(&**store).await;
        }
    }
    assert_eq!(told(), (1, 0), "alone");
    let line = &log.lines("replicas no longer confirm")[0];
    let says = [&*standby.address().to_string(), "WARN", "may_lose", "synchronous_standby_names"];
    assert!(says.iter().all(|it| line.contains(it)), "{line}");
    let another = block_in_place(|| Postgres::standby_named(&standby, "s1"));
    for (names, wanted) in [("FIRST 1 (s1)", (1, 1)), ("", (2, 1))] {
        block_in_place(|| standby.set("synchronous_standby_names", names));
        // The open session notices it after a while.
        let started = Instant::now();
        while told() != wanted {
            put_when_up(&*store).await;
            assert!(started.elapsed() < PATIENCE, "{:?}", told());
        }
    }
    drop(another);
}

/// Both hosts, in the order of a URL, for calls of a few seconds.
fn both(one: &Server, other: &Server) -> String {
    format!(
        "postgres://node:{SECRET}@{},{}/postgres?timeout_ms=1500&may_lose=2s",
        one.address(),
        other.address()
    )
}

/// A primary with an asynchronous standby: the old primary can continue alone after a promotion.
fn asynchronous_pair() -> (Postgres, Postgres) {
    let primary = Postgres::start();
    primary.sql(&format!("CREATE USER node PASSWORD '{SECRET}'"));
    primary.sql(&snowmint_store::schema(&url(&primary)).unwrap());
    primary.sql("GRANT SELECT, INSERT, UPDATE ON snowmint_records TO node");
    let standby = Postgres::standby_named(&primary, "s1");
    (primary, standby)
}

/// Such a pair after a promotion of the standby, with the old primary down; a store that has used both, and
/// the revision of `a` that it wrote last.
async fn promoted_pair() -> (Postgres, Postgres, Arc<dyn Store>, Revision) {
    let (primary, standby) = block_in_place(asynchronous_pair);
    let store = open(&both(&primary, &standby)).await;
    put(&*store, "a", b"1").await;
    eventually("the standby", || block_in_place(|| shown(&standby) == "1")).await;
    block_in_place(|| primary.kill9());
    block_in_place(|| standby.promote());
    let before = put_when_up(&*store).await;
    (primary, standby, store, before)
}

/// Goal: a node that reaches both of two primaries uses neither, and the error names both. Method: promote
/// the standby, restart the old primary unchanged; nodes that were connected before, and new nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_primaries_are_refused_and_named() {
    let (primary, standby, store, before) = promoted_pair().await;
    block_in_place(|| primary.restart());
    for url in [both(&primary, &standby), both(&standby, &primary)] {
        let (kind, error) = refused(&url).await;
        assert_eq!(kind, Some(StoreErrorKind::SplitBrain), "{error}");
        assert!(error.contains("both accept writes"), "{error}");
        for server in [&primary, &standby] {
            assert!(error.contains(&server.address().to_string()), "{error}");
        }
    }
    // A node that holds a session on one of them notices it soon, and has written nothing to the other.
    let started = Instant::now();
    let error = loop {
        match store.load(&key("a")).await {
            Ok(found) => assert_eq!(found.unwrap().revision, before),
            Err(error) => break error,
        }
        assert!(started.elapsed() < PATIENCE, "the second primary is not noticed");
        sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(error.kind(), StoreErrorKind::SplitBrain, "{error}");
    // Two names of one server are not two primaries.
    block_in_place(|| primary.kill9());
    let port = standby.port();
    open(&both(&standby, &standby)).await;
    open(&format!("postgres://node:{SECRET}@localhost:{port},127.0.0.1:{port}/postgres")).await;
}

/// Writes `a` as soon as a primary is found.
async fn put_when_up(store: &dyn Store) -> Revision {
    let started = Instant::now();
    loop {
        match store.load(&key("a")).await {
            Ok(found) => {
                let expected = Expected::Revision(found.unwrap().revision);
                match store.compare_and_set(&key("a"), expected, b"new").await.unwrap() {
                    Swap::Done(revision) => return revision,
                    Swap::Conflict => panic!("an unexpected conflict"),
                }
            }
            Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Goal: a node that has used the promoted server does not go back to the old primary, even if only that one
/// is up. Method: promote, use, kill the new primary, start the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_is_not_gone_back_to() {
    let (primary, standby, store, before) = promoted_pair().await;
    block_in_place(|| standby.kill9());
    block_in_place(|| primary.restart());
    let error = store.load(&key("a")).await.unwrap_err();
    assert!(error.to_string().contains("timeline 1"), "{error}");
    let error = store.compare_and_set(&key("a"), Expected::Revision(before), b"x").await.unwrap_err();
    assert_ne!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    println!("{error}");
    block_in_place(|| primary.kill9());
    block_in_place(|| standby.restart());
    put_when_up(&*store).await;
}

/// Goal: another database is not mistaken for the one in use. Method: two servers of which one runs at a
/// time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_database_is_not_taken_for_this_one() {
    let (one, other) = block_in_place(|| (Postgres::start(), Postgres::start()));
    block_in_place(|| other.kill9());
    let url = format!("postgres://postgres@{},{}/postgres", one.address(), other.address());
    let store = open(&url).await;
    put(&*store, "a", b"1").await;
    block_in_place(|| one.kill9());
    block_in_place(|| other.restart());
    let error = store.load(&key("a")).await.unwrap_err();
    assert!(error.to_string().contains("another database"), "{error}");
    // A node that starts now has seen neither.
    open(&url).await;
}
