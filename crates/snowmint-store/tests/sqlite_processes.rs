//! The SQLite store between processes: opened at one instant, shared, and killed in the middle of a write.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails"
)]

mod common;

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Barrier;

use common::{Running, block_on, key, load, put, role, start, wait_for_go};
use snowmint_store::{Expected, SqliteStore, Store, Swap};

/// What the child processes of the tests below do.
#[test]
#[ignore = "the other tests run it as a child process"]
fn child() {
    let (role, path) = role();
    wait_for_go();
    block_on(async {
        let store = SqliteStore::open(&path).await.unwrap();
        match role.as_str() {
            "count once" => count(&store, 1).await,
            "count" => count(&store, 100).await,
            "add until killed" => add_until_killed(&store).await,
            "write until killed" => write_until_killed(&store).await,
            other => panic!("no role {other}"),
        }
    });
}

/// Adds 1 to a shared number, reporting each number it alone made.
async fn count(store: &SqliteStore, times: usize) {
    let mut done = 0;
    while done < times {
        let found = load(store, "counter").await;
        let expected = found.as_ref().map_or(Expected::Absent, |it| Expected::Revision(it.revision));
        let next = 1 + found.map_or(0, |it| String::from_utf8(it.value).unwrap().parse::<u64>().unwrap());
        let swap = store.compare_and_set(&key("counter"), expected, next.to_string().as_bytes()).await;
        if let Swap::Done(_) = swap.unwrap() {
            println!("@{next}");
            done += 1;
        }
    }
}

/// Adds 7 again and again, reporting where each seven begins.
async fn add_until_killed(store: &SqliteStore) {
    loop {
        println!("@{}", store.add(&key("sum"), SEVEN).await.unwrap());
    }
}

/// Writes a count, reporting each that was acknowledged.
async fn write_until_killed(store: &SqliteStore) {
    let found = load(store, "record").await;
    let mut count = found.as_ref().map_or(0, |it| counted(&it.value));
    let mut now = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
    loop {
        count += 1;
        let Swap::Done(revision) = store.compare_and_set(&key("record"), now, &value(count)).await.unwrap()
        else {
            panic!("a conflict with nobody");
        };
        println!("@{count}");
        now = Expected::Revision(revision);
    }
}

/// Several pages long, so that a kill can come between two of them.
fn value(count: u64) -> Vec<u8> {
    count.to_be_bytes().repeat(2000)
}

/// The count in a value that was written whole.
fn counted(whole: &[u8]) -> u64 {
    let count = u64::from_be_bytes(whole[..8].try_into().unwrap());
    assert_eq!(whole, value(count));
    count
}

const SEVEN: NonZeroU64 = NonZeroU64::new(7).unwrap();

fn run_together(role: &str, path: &Path, processes: usize) -> Vec<u64> {
    let mut children: Vec<Running> = (0..processes).map(|_| start(role, path)).collect();
    children.iter_mut().for_each(Running::go);
    let mut numbers = Vec::new();
    for child in &mut children {
        numbers.extend(child.reports().iter().map(|it| it.parse::<u64>().unwrap()));
        assert!(child.wait(), "a child failed");
    }
    numbers
}

#[test]
fn processes_share_a_file_without_losing_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let numbers = run_together("count", &path, 4);
    assert_eq!(numbers.len(), 400);
    assert_eq!(numbers.iter().copied().collect::<BTreeSet<_>>(), (1..=400).collect());
    let last = block_on(async { load(&SqliteStore::open(&path).await.unwrap(), "counter").await });
    assert_eq!(last.unwrap().value, b"400");
}

/// Goal: the first start of many nodes never fails. Method: processes that open a new file at one signal.
#[test]
fn processes_open_a_new_file_at_the_same_instant() {
    for round in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let numbers = run_together("count once", &folder.path().join("leases.db"), 6);
        assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), (1..=6).collect(), "round {round}");
    }
}

/// The same with threads, which come closer together: a barrier lets them go.
#[test]
fn threads_open_a_new_file_at_the_same_instant() {
    const THREADS: usize = 8;
    for round in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let barrier = Barrier::new(THREADS);
        let open = |thread| {
            barrier.wait();
            block_on(async {
                let store =
                    SqliteStore::open(&path).await.map_err(|it| format!("round {round}: {it}")).unwrap();
                put(&store, &format!("thread/{thread}"), b"").await;
                store
            })
        };
        let open = &open;
        let stores: Vec<SqliteStore> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || open(thread))).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        for store in &stores {
            assert_eq!(block_on(store.list("thread/")).unwrap().len(), THREADS);
        }
    }
}

/// Goal: what was acknowledged is there after kill -9. Method: kill a writer again and again, at any point.
#[test]
fn acknowledged_writes_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let mut last = 0;
    for round in 0..12 {
        let mut child = start("write until killed", &path);
        child.go();
        for _ in 0..=(round * 7) {
            last = child.report().expect("the child ended by itself").parse::<u64>().unwrap();
        }
        child.kill();
        last = child.reports().iter().map(|it| it.parse::<u64>().unwrap()).max().unwrap_or(last);
        assert!(!child.wait());
        let found =
            block_on(async { load(&SqliteStore::open(&path).await.unwrap(), "record").await }).unwrap();
        let found = counted(&found.value);
        // The one write that was under way may have happened, unreported.
        assert!((last..=last + 1).contains(&found), "acknowledged {last}, found {found}");
    }
}

/// Goal: numbers that were given are not given again, also after kill -9. Method: two processes that add to one record,
/// killed at any point, one round after the other.
#[test]
fn added_numbers_are_given_once_in_spite_of_kills() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let (mut given, mut unreported) = (BTreeSet::new(), 0);
    for round in 0..8 {
        let mut children = [start("add until killed", &path), start("add until killed", &path)];
        children.iter_mut().for_each(Running::go);
        for child in &mut children {
            for _ in 0..=(round * 7) {
                let first = child.report().expect("the child ended by itself").parse::<u64>().unwrap();
                assert!(given.insert(first), "{first} was given twice");
            }
        }
        for child in &mut children {
            child.kill();
            for first in child.reports() {
                assert!(given.insert(first.parse().unwrap()), "{first} was given twice");
            }
            assert!(!child.wait());
            // The one that was under way may have been added and not reported.
            unreported += 1;
        }
    }
    let sum =
        block_on(async { SqliteStore::open(&path).await.unwrap().add(&key("sum"), SEVEN).await.unwrap() });
    let (sevens, given) = (sum / 7, given.len() as u64);
    assert!((given..=given + unreported).contains(&sevens), "{given} were reported, {sevens} were added");
}
