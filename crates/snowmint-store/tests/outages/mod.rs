//! What the tests of stores on real servers share: writers through a bad network, outages, and secrets.
//! Each test of a backend hands in how it opens a store and what it does to its server.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "not every test uses all of it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::{Expected, Key, OpenError, Revision, Store, StoreErrorKind, Swap, Versioned};
use snowmint_test_servers::{Proxy, Server};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// No call may take longer: the limit that the tests set, and time for a machine with two cores.
const BOUND: Duration = Duration::from_secs(8);
/// A password that must not turn up anywhere.
pub(crate) const SECRET: &str = "hunter2-s3cret";

pub(crate) fn key(text: impl Into<String>) -> Key {
    Key::new(text).unwrap()
}

pub(crate) async fn open(url: &str) -> Arc<dyn Store> {
    snowmint_store::open(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Opens a store that must not open; the error says why, and never the password.
pub(crate) async fn refused(url: &str) -> (Option<StoreErrorKind>, String) {
    let error = match timeout(BOUND, snowmint_store::open(url)).await.expect("in bounded time") {
        Ok(store) => panic!("{store:?} opened"),
        Err(error) => error,
    };
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(SECRET), "{shown}");
    let kind = match &error {
        OpenError::Store(error) => Some(error.kind()),
        _ => None,
    };
    (kind, error.to_string())
}

/// Writes whatever is there, for tests that write alone.
pub(crate) async fn put(store: &dyn Store, name: &str, value: &[u8]) -> Revision {
    let found = store.load(&key(name)).await.unwrap();
    let expected = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
    match store.compare_and_set(&key(name), expected, value).await.unwrap() {
        Swap::Done(revision) => revision,
        Swap::Conflict => panic!("{name}: a conflict with nobody"),
    }
}

/// Goal: what was acknowledged survives a kill -9 of the server, calls meanwhile fail in bounded time as they should,
/// and the same handle works again. Method: many writers, a kill in their midst, a restart.
pub(crate) async fn survives_a_crash(store: Arc<dyn Store>, server: &Server) {
    let before = put(&*store, "before", b"kept").await;
    let writers = start_writers(&store, 8);
    sleep(Duration::from_millis(300)).await;
    tokio::task::block_in_place(|| server.kill9());
    fails_for_now(&*store).await;
    tokio::task::block_in_place(|| server.restart());
    comes_back(&*store, &key("outage")).await;
    let tally = stop_writers(writers).await;
    assert!(tally.done > 20 && tally.failed > 0, "{}", tally.shown());
    let found = store.load(&key("before")).await.unwrap().unwrap();
    assert_eq!((found.revision, &*found.value), (before, &b"kept"[..]));
    println!("crash: {}", tally.shown());
}

/// Goal: a server that hangs costs bounded time, and nothing else. Method: SIGSTOP, calls, SIGCONT.
pub(crate) async fn survives_a_pause(store: Arc<dyn Store>, server: &Server) {
    put(&*store, "paused", b"1").await;
    server.pause();
    fails_for_now(&*store).await;
    server.resume();
    comes_back(&*store, &key("outage")).await;
    let found = store.load(&key("paused")).await.unwrap().unwrap();
    assert_eq!(found.value, b"1");
}

/// Every call fails as it should while the server is away.
async fn fails_for_now(store: &dyn Store) {
    let name = key("outage");
    let started = Instant::now();
    let load = timeout(BOUND, store.load(&name)).await.expect("load in bounded time").unwrap_err();
    assert_eq!(load.kind(), StoreErrorKind::Unavailable, "{load}");
    let list = timeout(BOUND, store.list("")).await.expect("list in bounded time").unwrap_err();
    assert_eq!(list.kind(), StoreErrorKind::Unavailable, "{list}");
    let swap = store.compare_and_set(&name, Expected::Absent, b"");
    let swap = timeout(BOUND, swap).await.expect("swap in bounded time").unwrap_err();
    assert!(matches!(swap.kind(), StoreErrorKind::Unavailable | StoreErrorKind::OutcomeUnknown), "{swap}");
    let time = timeout(BOUND, store.unix_ms()).await.expect("unix_ms in bounded time").unwrap_err();
    assert_eq!(time.kind(), StoreErrorKind::Unavailable, "{time}");
    println!("during the outage, after {:?}: {load} | {swap}", started.elapsed());
}

/// Loads until that succeeds.
async fn comes_back(store: &dyn Store, name: &Key) -> Option<Versioned> {
    let started = Instant::now();
    loop {
        match timeout(BOUND, store.load(name)).await.expect("a load in bounded time") {
            Ok(found) => return found,
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
                assert!(started.elapsed() < Duration::from_secs(20), "still: {error}");
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Goal: every `Done` is there, every `OutcomeUnknown` is settled by reading, every other failure has written nothing.
/// Method: writers through a proxy that cuts connections, loses answers, freezes and refuses; each writer knows what
/// its record can hold, and reads it after each failure.
pub(crate) async fn survives_a_bad_network(store: Arc<dyn Store>, direct: Arc<dyn Store>, proxy: &Proxy) {
    let writers = start_writers(&store, 8);
    for round in 0..40 {
        sleep(Duration::from_millis(25)).await;
        match round % 4 {
            0 | 1 => proxy.cut(),
            2 => {
                proxy.lose_answers(true);
                sleep(Duration::from_millis(15)).await;
                proxy.cut();
                proxy.lose_answers(false);
            }
            _ => {
                proxy.freeze();
                sleep(Duration::from_millis(15)).await;
                proxy.cut();
                proxy.thaw();
            }
        }
    }
    proxy.refuse();
    fails_for_now(&*store).await;
    proxy.accept();
    comes_back(&*store, &key("outage")).await;
    sleep(Duration::from_millis(200)).await;
    let tally = stop_writers(writers).await;
    println!("bad network: {}", tally.shown());
    // Among the writes with an unknown outcome some had happened, or the test has tested nothing.
    assert!(tally.done > 50 && tally.unknown > 0 && tally.unknown_written > 0, "{}", tally.shown());
    // And by a connection that never was through the proxy.
    for (name, wanted) in tally.last {
        let found = direct.load(&key(&*name)).await.unwrap().map(|it| it.value);
        assert_eq!(found, Some(wanted), "{name}");
    }
}

/// What writers saw.
#[derive(Default)]
struct Tally {
    done: u32,
    unknown: u32,
    unknown_written: u32,
    failed: u32,
    last: BTreeMap<String, Vec<u8>>,
}

impl Tally {
    fn shown(&self) -> String {
        let Self { done, unknown, unknown_written, failed, .. } = self;
        format!("{done} done, {failed} failed, of them {unknown} unknown, of them {unknown_written} written")
    }
}

struct Writers {
    tasks: JoinSet<Tally>,
    stop: tokio::sync::watch::Sender<bool>,
}

fn start_writers(store: &Arc<dyn Store>, count: usize) -> Writers {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut tasks = JoinSet::new();
    for nth in 0..count {
        let (store, stopped) = (Arc::clone(store), stopped.clone());
        tasks.spawn(async move { write_until(&*store, format!("writers/{nth}"), &stopped).await });
    }
    Writers { tasks, stop }
}

async fn stop_writers(mut writers: Writers) -> Tally {
    writers.stop.send(true).ok();
    let mut all = Tally::default();
    while let Some(tally) = writers.tasks.join_next().await {
        let tally = tally.unwrap();
        all.done += tally.done;
        all.unknown += tally.unknown;
        all.unknown_written += tally.unknown_written;
        all.failed += tally.failed;
        all.last.extend(tally.last);
    }
    all
}

/// Writes one record again and again and checks that it only ever holds what it should.
async fn write_until(store: &dyn Store, name: String, stopped: &tokio::sync::watch::Receiver<bool>) -> Tally {
    let (name_key, mut tally) = (key(&*name), Tally::default());
    // What the record holds for certain; a lost write may still come on top of it.
    let found = comes_back(store, &name_key).await;
    let mut expected = found.as_ref().map_or(Expected::Absent, |it| Expected::Revision(it.revision));
    let mut held = found.map(|it| it.value);
    for count in 0_u64.. {
        if *stopped.borrow() {
            break;
        }
        let value = format!("{count} after {expected:?}").into_bytes();
        let swap = timeout(BOUND, store.compare_and_set(&name_key, expected, &value));
        match swap.await.expect("a swap in bounded time") {
            Ok(Swap::Done(revision)) => {
                tally.done += 1;
                (held, expected) = (Some(value), Expected::Revision(revision));
            }
            Ok(Swap::Conflict) => panic!("{name}: a conflict with nobody at {expected:?}"),
            Err(error) => {
                let unknown = error.kind() == StoreErrorKind::OutcomeUnknown;
                assert!(unknown || error.kind() == StoreErrorKind::Unavailable, "{error}");
                let (found, written) = settle(store, &name_key, held.as_deref(), &value).await;
                assert!(unknown || !written, "{name}: written in spite of {error}");
                tally.unknown += u32::from(unknown);
                tally.unknown_written += u32::from(written);
                tally.failed += 1;
                if let Some((value, revision)) = found {
                    (held, expected) = (Some(value), Expected::Revision(revision));
                }
            }
        }
    }
    tally.last.extend(held.map(|it| (name, it)));
    tally
}

/// Reads until an answer comes; a write that is on its way gets time to arrive first.
async fn settle(
    store: &dyn Store,
    name: &Key,
    held: Option<&[u8]>,
    tried: &[u8],
) -> (Option<(Vec<u8>, Revision)>, bool) {
    sleep(Duration::from_millis(100)).await;
    let found = comes_back(store, name).await;
    let value = found.as_ref().map(|it| &*it.value);
    assert!(value == held || value == Some(tried), "{name} holds {value:?}, not {held:?} or {tried:?}");
    let written = value == Some(tried);
    (found.map(|it| (it.value, it.revision)), written)
}

/// Goal: the store's time is time. Method: two readings around a pause, and the clock of this machine.
pub(crate) async fn tells_the_time(store: &dyn Store) {
    let first = store.unix_ms().await.unwrap().expect("a store that tells time");
    sleep(Duration::from_millis(50)).await;
    let second = store.unix_ms().await.unwrap().unwrap();
    assert!((50..2000).contains(&(second - first)), "{first} {second}");
    let output = std::process::Command::new("date").arg("+%s").output().unwrap();
    let seconds: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert!((second / 1000).abs_diff(seconds) <= 2, "{second} {seconds}");
}

/// Goal: nodes that start together on an empty store all open it. Method: twelve at once.
pub(crate) async fn opens_in_a_race(url: &str) {
    let mut tasks = JoinSet::new();
    for nth in 0..12 {
        let url = url.to_owned();
        tasks.spawn(async move {
            let store = open(&url).await;
            put(&*store, &format!("race/{nth}"), b"").await
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(open(url).await.list("race/").await.unwrap().len(), 12);
}
