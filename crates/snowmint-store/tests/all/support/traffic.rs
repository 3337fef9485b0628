//! Shared by the tests of the etcd, ZooKeeper and Kubernetes stores: compare-and-set traffic while servers
//! and networks fail, and a check that the results of all writers form one history.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use snowmint_store::{Expected, Key, Revision, Store, StoreErrorKind, Swap, Versioned};
use snowmint_test_servers::{Proxy, Server};
use tokio::time::{Instant, sleep};

use crate::support::{PATIENCE, eventually, key, put};

/// The record for additions.
const SUM: &str = "traffic/sum";
/// The limit for a call, whatever fails: "some seconds".
pub(crate) const LONGEST_CALL: Duration = Duration::from_secs(12);

/// Waits until the store answers again, through the handle that saw it fail.
pub(crate) async fn load_again(store: &dyn Store, name: &str) -> Option<Versioned> {
    let started = Instant::now();
    loop {
        match store.load(&key(name)).await {
            Ok(found) => return found,
            Err(error) => assert!(started.elapsed() < PATIENCE, "still failing: {error}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Writes as soon as the other members have a leader.
pub(crate) async fn put_again(store: &dyn Store, name: &str, value: &[u8]) -> Versioned {
    let started = Instant::now();
    loop {
        let found = load_again(store, name).await;
        let expected = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
        match store.compare_and_set(&key(name), expected, value).await {
            Ok(Swap::Done(revision)) => return Versioned { value: value.to_vec(), revision },
            Ok(Swap::Conflict) => panic!("{name}: an unexpected conflict"),
            Err(error) => assert!(started.elapsed() < PATIENCE, "still failing: {error}"),
        }
    }
}

/// Checks that one of three members which is cut off from the others, and lacks their writes, neither answers
/// a read nor acknowledges a write: it sleeps while they write, and wakes up when they sleep. `alone` then
/// gets its address.
pub(crate) async fn cut_off_it_answers_nothing(
    scheme: &str,
    nodes: &[Server],
    cut_off: usize,
    alone: impl FnOnce(SocketAddr),
) {
    let open = async |hosts: Vec<String>| {
        snowmint_store::open_backend(&format!("{scheme}://{}", hosts.join(","))).await.unwrap()
    };
    let others: Vec<&Server> =
        nodes.iter().enumerate().filter(|(it, _)| *it != cut_off).map(|(_, it)| it).collect();
    let cut_off = &nodes[cut_off];
    let behind = open(vec![cut_off.address().to_string()]).await;
    let writer = open(others.iter().map(|it| it.address().to_string()).collect()).await;
    let before = put_again(&*writer, "a", b"before").await;
    assert_eq!(load_again(&*behind, "a").await, Some(before.clone()));
    cut_off.pause();
    let after = put_again(&*writer, "a", b"after").await;
    for other in &others {
        other.pause();
    }
    cut_off.resume();
    alone(cut_off.address());
    fails_for_now(&*behind, "a", Expected::Revision(before.revision)).await;
    let list = behind.list("").await.unwrap_err();
    assert_eq!(list.kind(), StoreErrorKind::Unavailable, "{list}");
    for other in &others {
        other.resume();
    }
    assert_eq!(load_again(&*behind, "a").await, Some(after));
}

/// Calls a store that is down: both kinds of call fail in bounded time, and report that a retry may succeed.
pub(crate) async fn fails_for_now(store: &dyn Store, name: &str, expected: Expected) {
    let started = Instant::now();
    let error = store.load(&key(name)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(started.elapsed() < LONGEST_CALL, "a load took {:?}", started.elapsed());
    let started = Instant::now();
    let error = store.compare_and_set(&key(name), expected, b"while down").await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    assert!(started.elapsed() < LONGEST_CALL, "a write took {:?}", started.elapsed());
    let started = Instant::now();
    let error = store.add(&key(SUM), NonZeroU64::MIN).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    assert!(started.elapsed() < LONGEST_CALL, "an addition took {:?}", started.elapsed());
    println!("down: {error}");
}

/// Adds 5 and returns the number before; a store that comes back must not have less than before the outage.
pub(crate) async fn add_five(store: &dyn Store) -> u64 {
    store.add(&key(SUM), NonZeroU64::new(5).unwrap()).await.unwrap()
}

/// What one writer did to the record, or saw of it.
#[derive(Clone, Debug)]
enum Event {
    Read(Versioned),
    Done {
        expected: Revision,
        wrote: Versioned,
    },
    /// The value of a write that was reported as not written.
    Refused(Vec<u8>),
    Unknown {
        expected: Revision,
        value: Vec<u8>,
    },
}

/// Counts the outcomes of the calls of all writers.
#[derive(Default, Debug)]
pub(crate) struct Report {
    pub(crate) done: usize,
    pub(crate) conflicts: usize,
    pub(crate) unknown: usize,
    pub(crate) unknown_but_written: usize,
    pub(crate) unavailable: usize,
    pub(crate) failed_reads: usize,
    pub(crate) additions: usize,
    pub(crate) slowest: Duration,
    /// The longest time without a write.
    pub(crate) gap: Duration,
}

/// The traffic while it runs.
pub(crate) struct Traffic {
    key: Key,
    stop: AtomicBool,
    /// The greatest revision that any call has returned: a call that begins now must not see less.
    floor: AtomicU64,
    done: AtomicUsize,
    failed_reads: AtomicUsize,
    /// Values of writes with an unknown outcome that no reader has seen yet.
    unknown: Mutex<BTreeSet<Vec<u8>>>,
    unknown_but_written: AtomicUsize,
}

impl Traffic {
    fn new(key: Key, first: Revision) -> Self {
        let (stop, floor, unknown) = (AtomicBool::new(false), AtomicU64::new(first.0), Mutex::default());
        let [done, failed_reads, unknown_but_written] = [0; 3].map(AtomicUsize::new);
        Self { key, stop, floor, done, failed_reads, unknown, unknown_but_written }
    }

    /// Waits until that many more writes have succeeded.
    pub(crate) async fn goes_on(&self, writes: usize) {
        let wanted = self.done.load(Ordering::SeqCst) + writes;
        eventually("writes", || self.done.load(Ordering::SeqCst) >= wanted).await;
    }

    /// Waits until more reads have failed.
    pub(crate) async fn fails(&self) {
        let before = self.failed_reads.load(Ordering::SeqCst);
        eventually("reads that fail", || self.failed_reads.load(Ordering::SeqCst) > before).await;
    }

    /// Returns whether a write with an unknown outcome had happened.
    pub(crate) fn has_unknown_but_written(&self) -> bool {
        self.unknown_but_written.load(Ordering::SeqCst) > 0
    }

    fn read(&self, found: &Versioned) {
        self.floor.fetch_max(found.revision.0, Ordering::SeqCst);
        let seen = self.unknown.lock().unwrap().remove(&found.value);
        self.unknown_but_written.fetch_add(usize::from(seen), Ordering::SeqCst);
    }
}

/// Loses the answers of writes repeatedly, until one such write has happened.
pub(crate) async fn lose_answers(proxy: &Proxy, traffic: &Traffic) {
    let started = Instant::now();
    for round in 0.. {
        proxy.lose_answers(true);
        sleep(Duration::from_millis(100)).await;
        proxy.cut();
        proxy.lose_answers(false);
        traffic.goes_on(1).await;
        if round >= 5 && traffic.has_unknown_but_written() {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "no answer of a write was lost");
    }
}

/// Waits until a call fails: the store has seen that its connection is gone.
pub(crate) async fn notices(store: &dyn Store) {
    let started = Instant::now();
    while store.load(&key("notices")).await.is_ok() {
        assert!(started.elapsed() < PATIENCE, "the store is still up");
    }
}

/// Lets one writer per handle swap one record for as long as `trouble` takes, and two more tasks add to
/// another, then checks their results.
///
/// Panics if no single history explains them: a lost or doubled write, a stale read, a write that happened
/// although its error said that it would not, a number that was returned twice, a call that took too long.
pub(crate) async fn under_trouble(
    handles: Vec<Arc<dyn Store>>,
    trouble: impl AsyncFnOnce(&Traffic),
) -> Report {
    let name = "traffic/record";
    let first = put(&*handles[0], name, b"first").await;
    let traffic = Arc::new(Traffic::new(key(name), first.revision));
    let writers: Vec<_> = (0..)
        .zip(&handles)
        .map(|(nth, store)| tokio::spawn(write(Arc::clone(store), Arc::clone(&traffic), nth)))
        .collect();
    let adders: Vec<_> = (1..=2)
        .zip(handles.iter().rev())
        .map(|(count, store)| tokio::spawn(add(Arc::clone(store), Arc::clone(&traffic), count)))
        .collect();
    trouble(&traffic).await;
    traffic.stop.store(true, Ordering::SeqCst);
    let (mut events, mut report, mut done_at) = (Vec::new(), Report::default(), Vec::new());
    for writer in writers {
        let log = writer.await.unwrap();
        report.conflicts += log.conflicts;
        report.failed_reads += log.failed_reads;
        report.slowest = report.slowest.max(log.slowest);
        done_at.extend(log.done_at);
        events.extend(log.events);
    }
    let mut ranges = Vec::new();
    for adder in adders {
        ranges.extend(adder.await.unwrap());
    }
    let last = load_again(&*handles[0], name).await.unwrap();
    check_additions(ranges, add_five(&*handles[0]).await, &mut report);
    assert!(last.revision.0 >= traffic.floor.load(Ordering::SeqCst), "the last write is lost: {last:?}");
    events.push(Event::Read(last));
    done_at.sort_unstable();
    report.gap = done_at.windows(2).map(|it| it[1] - it[0]).max().unwrap_or_default();
    check(&events, &first, &mut report);
    println!("{report:?}");
    report
}

#[derive(Default)]
struct Log {
    events: Vec<Event>,
    conflicts: usize,
    failed_reads: usize,
    slowest: Duration,
    done_at: Vec<Instant>,
}

impl Log {
    fn time(&mut self, started: Instant) {
        self.slowest = self.slowest.max(started.elapsed());
        assert!(self.slowest < LONGEST_CALL, "a call took {:?}", self.slowest);
    }
}

/// Adds `count` repeatedly, and returns the numbers it got, which must grow.
async fn add(store: Arc<dyn Store>, traffic: Arc<Traffic>, count: u64) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    while !traffic.stop.load(Ordering::SeqCst) {
        let started = Instant::now();
        match store.add(&key(SUM), NonZeroU64::new(count).unwrap()).await {
            Ok(first) => {
                let before = ranges.last().map(|range| range.1);
                assert!(Some(first) >= before, "{first} was given after {before:?}");
                ranges.push((first, first + count));
            }
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
        assert!(started.elapsed() < LONGEST_CALL, "an addition took {:?}", started.elapsed());
        sleep(Duration::from_millis(20)).await;
    }
    ranges
}

/// Checks that no number was returned twice, and that the sum has not gone back.
fn check_additions(mut ranges: Vec<(u64, u64)>, sum: u64, report: &mut Report) {
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "numbers were given twice: {pair:?}");
    }
    let end = ranges.last().expect("additions").1;
    assert!(sum >= end, "{end} numbers were given, and then {sum} again");
    report.additions = ranges.len();
}

async fn write(store: Arc<dyn Store>, traffic: Arc<Traffic>, writer: usize) -> Log {
    let mut log = Log::default();
    let mut attempt = 0_u64;
    while !traffic.stop.load(Ordering::SeqCst) {
        let (floor, started) = (traffic.floor.load(Ordering::SeqCst), Instant::now());
        let found = store.load(&traffic.key).await;
        log.time(started);
        let found = match found {
            Ok(found) => found.expect("a record that was written"),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
                log.failed_reads += 1;
                traffic.failed_reads.fetch_add(1, Ordering::SeqCst);
                sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        assert!(found.revision.0 >= floor, "a stale read: {} after {floor}", found.revision);
        traffic.read(&found);
        log.events.push(Event::Read(found.clone()));
        // Several writes after one load, like the renewals of a lease.
        let mut expected = found.revision;
        for _ in 0..3 {
            attempt += 1;
            match swap(&*store, &traffic, expected, format!("{writer}.{attempt}"), &mut log).await {
                Some(revision) => expected = revision,
                None => break,
            }
        }
    }
    log
}

/// Swaps once; returns the new revision if the swap succeeded.
async fn swap(
    store: &dyn Store,
    traffic: &Traffic,
    expected: Revision,
    value: String,
    log: &mut Log,
) -> Option<Revision> {
    let (floor, started, value) = (traffic.floor.load(Ordering::SeqCst), Instant::now(), value.into_bytes());
    let swapped = store.compare_and_set(&traffic.key, Expected::Revision(expected), &value).await;
    log.time(started);
    match swapped {
        Ok(Swap::Done(revision)) => {
            assert!(revision.0 > floor, "written at {revision}, after {floor} was seen");
            traffic.floor.fetch_max(revision.0, Ordering::SeqCst);
            traffic.done.fetch_add(1, Ordering::SeqCst);
            log.done_at.push(Instant::now());
            log.events.push(Event::Done { expected, wrote: Versioned { value, revision } });
            return Some(revision);
        }
        Ok(Swap::Conflict) => {
            log.conflicts += 1;
            log.events.push(Event::Refused(value));
        }
        Err(error) if error.kind() == StoreErrorKind::OutcomeUnknown => {
            traffic.unknown.lock().unwrap().insert(value.clone());
            log.events.push(Event::Unknown { expected, value });
        }
        Err(error) => {
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
            log.events.push(Event::Refused(value));
            sleep(Duration::from_millis(20)).await;
        }
    }
    None
}

/// Checks that every write replaced the write just before it; a write that nobody has seen cannot be
/// replaced, so the events name them all.
fn check(events: &[Event], first: &Versioned, report: &mut Report) {
    let mut values = BTreeMap::from([(first.revision, first.value.clone())]);
    let mut before = BTreeMap::new();
    let mut unknown = BTreeMap::new();
    let mut refused = BTreeSet::new();
    for event in events {
        match event {
            Event::Read(seen) => same(&mut values, seen),
            Event::Done { expected, wrote } => {
                report.done += 1;
                same(&mut values, wrote);
                assert!(before.insert(wrote.revision, *expected).is_none(), "{} twice", wrote.revision);
            }
            Event::Refused(value) => {
                refused.insert(value.clone());
            }
            Event::Unknown { expected, value } => {
                report.unknown += 1;
                unknown.insert(value.clone(), *expected);
            }
        }
    }
    report.unavailable = refused.len() - report.conflicts;
    for (revision, value) in &values {
        assert!(!refused.contains(value), "written at {revision} in spite of an error that says it was not");
        if let Some(expected) = unknown.get(value) {
            report.unknown_but_written += 1;
            assert!(before.insert(*revision, *expected).is_none(), "{revision} written twice");
        }
    }
    let line: Vec<Revision> = values.keys().copied().collect();
    assert_eq!(line[0], first.revision);
    for pair in line.windows(2) {
        let found = before.get(&pair[1]);
        assert_eq!(found, Some(&pair[0]), "{} replaced {}, its writer expected {found:?}", pair[1], pair[0]);
    }
}

fn same(values: &mut BTreeMap<Revision, Vec<u8>>, seen: &Versioned) {
    let known = values.entry(seen.revision).or_insert_with(|| seen.value.clone());
    assert_eq!(*known, seen.value, "two values at revision {}", seen.revision);
}
