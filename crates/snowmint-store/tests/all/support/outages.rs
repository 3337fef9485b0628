//! Shared by the tests of stores on real servers: writers through a bad network, outages, and secrets.
//! The test of each backend supplies how to open a store and how to disturb its server.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use snowmint_store::{Expected, Key, Store, StoreErrorKind, Swap, Versioned};
use snowmint_test_servers::{Proxy, Server};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{PATIENCE, eventually, key, open, put};

/// The limit for a call: the limit that the tests set, plus time for a machine with two cores.
const BOUND: Duration = Duration::from_secs(8);

/// Goal: acknowledged writes survive a kill -9 of the server, calls during the outage fail in bounded time
/// with the right kind, and the same handle works again. Method: many writers and adders, a kill while they
/// run, a restart.
pub(crate) async fn survives_a_crash(store: Arc<dyn Store>, server: &Server) {
    let before = put(&*store, "before", b"kept").await.revision;
    let writers = start_writers(&store, 8);
    let adders = start_adders(&store, 4);
    eventually("writes before the crash", || writers.seen.done() > 20 && adders.seen.done() > 20).await;
    tokio::task::block_in_place(|| server.kill9());
    fails_for_now(&*store).await;
    eventually("writes that fail", || writers.seen.failed() > 0 && adders.seen.failed() > 0).await;
    tokio::task::block_in_place(|| server.restart());
    comes_back(&*store, &key("outage")).await;
    let (done, added) = (writers.seen.done(), adders.seen.done());
    eventually("writes after the crash", || writers.seen.done() > done && adders.seen.done() > added).await;
    let (_, seen) = writers.stop().await;
    let additions = stop_adders(adders, &*store).await;
    println!("crash: {}, and {additions} additions", seen.shown());
    let found = store.load(&key("before")).await.unwrap().unwrap();
    assert_eq!((found.revision, &*found.value), (before, &b"kept"[..]));
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

/// Every call fails with the right kind while the server is away.
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
    let sum =
        timeout(BOUND, store.add(&name, NonZeroU64::MIN)).await.expect("add in bounded time").unwrap_err();
    assert!(sum.is_temporary(), "{sum}");
    let time = timeout(BOUND, store.unix_ms()).await.expect("unix_ms in bounded time").unwrap_err();
    assert_eq!(time.kind(), StoreErrorKind::Unavailable, "{time}");
    println!("during the outage, after {:?}: {load} | {swap}", started.elapsed());
}

/// Loads until a load succeeds.
async fn comes_back(store: &dyn Store, name: &Key) -> Option<Versioned> {
    let started = Instant::now();
    loop {
        match timeout(BOUND, store.load(name)).await.expect("a load in bounded time") {
            Ok(found) => return found,
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
                assert!(started.elapsed() < PATIENCE, "still: {error}");
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Goal: every `Done` is there, a read settles every `OutcomeUnknown`, and every other failure has written
/// nothing. Method: writers through a proxy that cuts connections, loses answers, freezes and refuses; each
/// writer knows what its record can hold, and reads it after each failure.
pub(crate) async fn survives_a_bad_network(store: Arc<dyn Store>, direct: Arc<dyn Store>, proxy: &Proxy) {
    let writers = start_writers(&store, 8);
    let adders = start_adders(&store, 4);
    // Some of the writes with an unknown outcome must have happened, or the test proves nothing.
    let enough = || writers.seen.unknown_written() > 0 && writers.seen.done() > 50 && adders.seen.done() > 50;
    let started = Instant::now();
    for round in 0_u32.. {
        if round >= 40 && round.is_multiple_of(4) && enough() {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{}", writers.seen.shown());
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
                // On a busy machine a connection may take longer than the time between two cuts.
                let done = writers.seen.done();
                eventually("a write between cuts", || writers.seen.done() > done).await;
            }
        }
    }
    proxy.refuse();
    fails_for_now(&*store).await;
    proxy.accept();
    comes_back(&*store, &key("outage")).await;
    let (last, seen) = writers.stop().await;
    let additions = stop_adders(adders, &*direct).await;
    println!("bad network: {}, and {additions} additions", seen.shown());
    // Also check through a connection that never used the proxy.
    for (name, wanted) in last.into_iter().flatten() {
        let found = direct.load(&key(&*name)).await.unwrap().map(|it| it.value);
        assert_eq!(found, Some(wanted), "{name}");
    }
}

/// Counts the outcomes of writes while they run.
#[derive(Default)]
struct Tally {
    done: AtomicU32,
    unknown: AtomicU32,
    unknown_written: AtomicU32,
    failed: AtomicU32,
}

impl Tally {
    fn count(counter: &AtomicU32, happened: bool) {
        counter.fetch_add(u32::from(happened), Ordering::Relaxed);
    }

    fn done(&self) -> u32 {
        self.done.load(Ordering::Relaxed)
    }

    fn failed(&self) -> u32 {
        self.failed.load(Ordering::Relaxed)
    }

    fn unknown_written(&self) -> u32 {
        self.unknown_written.load(Ordering::Relaxed)
    }

    fn shown(&self) -> String {
        let unknown = self.unknown.load(Ordering::Relaxed);
        let (done, failed, written) = (self.done(), self.failed(), self.unknown_written());
        format!("{done} done, {failed} failed, of them {unknown} unknown, of them {written} written")
    }
}

/// Tasks that run until they are stopped, and then return a result.
struct Running<T> {
    tasks: JoinSet<T>,
    stop: tokio::sync::watch::Sender<bool>,
    seen: Arc<Tally>,
}

impl<T: Send + 'static> Running<T> {
    fn start<F>(
        count: usize,
        task: impl Fn(usize, tokio::sync::watch::Receiver<bool>, Arc<Tally>) -> F,
    ) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let ((stop, stopped), seen) = (tokio::sync::watch::channel(false), Arc::<Tally>::default());
        let mut tasks = JoinSet::new();
        for nth in 0..count {
            tasks.spawn(task(nth, stopped.clone(), Arc::clone(&seen)));
        }
        Self { tasks, stop, seen }
    }

    async fn stop(self) -> (Vec<T>, Arc<Tally>) {
        self.stop.send(true).ok();
        (self.tasks.join_all().await, self.seen)
    }
}

/// The name of a record, and its final content.
type Last = Option<(String, Vec<u8>)>;

fn start_writers(store: &Arc<dyn Store>, count: usize) -> Running<Last> {
    Running::start(count, |nth, stopped, seen| {
        let store = Arc::clone(store);
        async move { write_until(&*store, format!("writers/{nth}"), &stopped, &seen).await }
    })
}

/// The first and last number of additions.
type Ranges = Vec<(u64, u64)>;

/// Adds to one record from several tasks.
fn start_adders(store: &Arc<dyn Store>, count: usize) -> Running<Ranges> {
    Running::start(count, |nth, stopped, seen| {
        let store = Arc::clone(store);
        async move { add_until(&*store, nth, &stopped, &seen).await }
    })
}

async fn add_until(
    store: &dyn Store,
    nth: usize,
    stopped: &tokio::sync::watch::Receiver<bool>,
    seen: &Tally,
) -> Ranges {
    let (counter, count) = (key("adders"), NonZeroU64::new(nth as u64 + 1).unwrap());
    let mut ranges = Ranges::new();
    while !*stopped.borrow() {
        match timeout(BOUND, store.add(&counter, count)).await.expect("an addition in bounded time") {
            Ok(first) => {
                let last = ranges.last().map(|range| range.1);
                assert!(Some(first) >= last, "{first} was given after {last:?}");
                ranges.push((first, first + count.get()));
                Tally::count(&seen.done, true);
            }
            Err(error) => {
                assert!(error.is_temporary(), "{error}");
                Tally::count(&seen.failed, true);
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
    ranges
}

/// Checks that no number was returned twice, and that the record is beyond all of them. Returns the number of
/// additions.
async fn stop_adders(adders: Running<Ranges>, store: &dyn Store) -> usize {
    let mut ranges: Ranges = adders.stop().await.0.into_iter().flatten().collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "numbers were given twice: {pair:?}");
    }
    let end = ranges.last().expect("additions").1;
    let next = store.add(&key("adders"), NonZeroU64::MIN).await.unwrap();
    assert!(next >= end, "{end} numbers were given, and then {next} again");
    ranges.len()
}

/// Writes one record repeatedly and checks that it only ever holds an expected value.
async fn write_until(
    store: &dyn Store,
    name: String,
    stopped: &tokio::sync::watch::Receiver<bool>,
    seen: &Tally,
) -> Last {
    let name_key = key(&*name);
    let found = comes_back(store, &name_key).await;
    let mut expected = found.as_ref().map_or(Expected::Absent, |it| Expected::Revision(it.revision));
    let mut held = found.map(|it| it.value);
    // Writes at the current revision whose answers were lost: one of them may have happened, or may still
    // happen.
    let mut lost: Vec<Vec<u8>> = Vec::new();
    for count in 0_u64.. {
        if *stopped.borrow() {
            break;
        }
        let value = format!("{count} after {expected:?}").into_bytes();
        let swap = timeout(BOUND, store.compare_and_set(&name_key, expected, &value));
        match swap.await.expect("a swap in bounded time") {
            Ok(Swap::Done(revision)) => {
                Tally::count(&seen.done, true);
                (held, expected) = (Some(value), Expected::Revision(revision));
                lost.clear();
                continue;
            }
            Ok(Swap::Conflict) => assert!(!lost.is_empty(), "{name}: an unexpected conflict at {expected:?}"),
            Err(error) => {
                let unknown = error.kind() == StoreErrorKind::OutcomeUnknown;
                assert!(unknown || error.kind() == StoreErrorKind::Unavailable, "{error}");
                Tally::count(&seen.failed, true);
                Tally::count(&seen.unknown, unknown);
                lost.extend(unknown.then_some(value));
            }
        }
        let found = comes_back(store, &name_key).await;
        let now = found.as_ref().map_or(Expected::Absent, |it| Expected::Revision(it.revision));
        if now == expected {
            continue;
        }
        // Writes that were reported as refused are not among these.
        let value = found.map(|it| it.value).expect("a record that is never deleted");
        assert!(lost.contains(&value), "{name} holds {value:?}, not {held:?} or one of {lost:?}");
        Tally::count(&seen.unknown_written, true);
        (held, expected) = (Some(value), now);
        lost.clear();
    }
    // The last one may still be on its way.
    let found = comes_back(store, &name_key).await.map(|it| it.value);
    assert!(found == held || found.as_ref().is_some_and(|it| lost.contains(it)), "{name} holds {found:?}");
    lost.is_empty().then_some(found).flatten().map(|it| (name, it))
}

/// Goal: the store's time is correct. Method: the clock of this machine, before and after.
pub(crate) async fn tells_the_time(store: &dyn Store) {
    let before = machine_ms();
    let first = store.unix_ms().await.unwrap().expect("a store that tells time");
    let second = store.unix_ms().await.unwrap().unwrap();
    let after = machine_ms();
    // A server may read its clock a moment before it answers.
    assert!(
        before <= first + 100 && first <= second && second <= after + 100,
        "{before} {first} {second} {after}"
    );
}

fn machine_ms() -> u64 {
    let output = std::process::Command::new("date").arg("+%s%3N").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// Goal: nodes that start together on an empty store all open it. Method: twelve at the same time.
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
