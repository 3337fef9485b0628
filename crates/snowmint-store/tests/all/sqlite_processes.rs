//! The SQLite store between processes: opened at one instant, shared, and killed in the middle of a write.
//! Also on disks that are full or read-only: real mounts in a separate namespace, so that root cannot bypass
//! them. Also in a folder that becomes closed.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Barrier;

use snowmint_store::{Expected, SqliteStore, Store, StoreError, StoreErrorKind, Swap};

use crate::support::child_process::{Running, block_on, close, load, run_mounted, start, wait_for_go};
use crate::support::{key, put};

/// Runs the role of a child process that shares a file, for the tests below.
pub(crate) fn child(role: &str, path: &Path) {
    wait_for_go();
    block_on(async {
        let store = SqliteStore::open(path).await.unwrap();
        match role {
            "count once" => count(&store, 1).await,
            "count" => count(&store, 100).await,
            "add until killed" => add_until_killed(&store).await,
            "write until killed" => write_until_killed(&store).await,
            other => panic!("no role {other}"),
        }
    });
}

/// Adds 1 to a shared number, and reports each number that it got.
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

/// Adds 7 repeatedly, and reports the first number of each segment.
async fn add_until_killed(store: &SqliteStore) {
    loop {
        println!("@{}", store.add(&key("sum"), SEVEN).await.unwrap());
    }
}

/// Writes a count, and reports each acknowledged one.
async fn write_until_killed(store: &SqliteStore) {
    let found = load(store, "record").await;
    let mut count = found.as_ref().map_or(0, |it| counted(&it.value));
    let mut now = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
    loop {
        count += 1;
        let Swap::Done(revision) = store.compare_and_set(&key("record"), now, &value(count)).await.unwrap()
        else {
            panic!("an unexpected conflict");
        };
        println!("@{count}");
        now = Expected::Revision(revision);
    }
}

/// Several pages long, so that a kill can come between two of them.
fn value(count: u64) -> Vec<u8> {
    count.to_be_bytes().repeat(2000)
}

/// Returns the count in a value that was written completely.
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

/// The same with threads, which start closer together: a barrier releases them.
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

/// Goal: acknowledged writes are there after kill -9. Method: kill a writer repeatedly, at any point.
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
        // The write that was running may have happened without a report.
        assert!((last..=last + 1).contains(&found), "acknowledged {last}, found {found}");
    }
}

/// Goal: no number is returned twice, even after kill -9. Method: two processes that add to one record,
/// killed at any point, in several rounds.
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
            // The addition that was running may have happened without a report.
            unreported += 1;
        }
    }
    let sum =
        block_on(async { SqliteStore::open(&path).await.unwrap().add(&key("sum"), SEVEN).await.unwrap() });
    let (sevens, given) = (sum / 7, given.len() as u64);
    assert!((given..=given + unreported).contains(&sevens), "{given} were reported, {sevens} were added");
}

const READ_ONLY: &str = r#"mount --bind "$0" "$0"; mount -o remount,ro,bind "$0""#;
const SMALL: &str = r#"mount -t tmpfs -o size=1m none "$0""#;
/// Without these rights of root, the modes of files and folders apply to it too.
const PERMISSIONS_APPLY: &str = r#"set -- setpriv --bounding-set=-dac_override,-dac_read_search "$@""#;

/// Runs the role of a child process with a separate disk, for the tests below.
pub(crate) fn child_on_a_mount(role: &str, folder: &Path) {
    block_on(async {
        match role {
            "read-only" => read_only(folder).await,
            "full" => full(folder).await,
            "no-access" => no_access(folder).await,
            other => panic!("no role {other}"),
        }
    });
    println!("@done");
}

async fn refused(path: &Path) -> StoreError {
    let error = SqliteStore::open(path).await.expect_err("it was opened");
    println!("{error}");
    error
}

#[test]
fn a_disk_that_cannot_be_written_is_read_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    block_on(async {
        let store = SqliteStore::open(&path).await.unwrap();
        put(&store, "a", b"value").await;
        close(store, &path).await;
    });
    run_mounted("read-only", folder.path(), READ_ONLY);
}

async fn read_only(folder: &Path) {
    for name in ["leases.db", "new.db", "new/folder/leases.db"] {
        let error = refused(&folder.join(name)).await;
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
        let text = error.to_string();
        assert!(text.contains("for uid 0, or use another --data"), "{text}");
    }
}

/// Goal: a process that may no longer look at its files gets that error, and not that they were moved; it
/// continues once it may. Method: a process that permissions apply to, also if it runs as root, and a folder
/// that becomes closed and open again.
#[test]
fn a_folder_that_may_not_be_entered_is_not_a_file_that_was_moved() {
    let folder = tempfile::tempdir().unwrap();
    run_mounted("no-access", folder.path(), PERMISSIONS_APPLY);
}

async fn no_access(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;

    let data = folder.join("data");
    let path = data.join("leases.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let record = put(&store, "a", b"value").await;
    let allow = |mode| std::fs::set_permissions(&data, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o000);
    let read = store.load(&key("a")).await.unwrap_err();
    let expected = Expected::Revision(record.revision);
    let write = store.compare_and_set(&key("a"), expected, b"other").await.unwrap_err();
    allow(0o700);
    for error in [read, write] {
        println!("{error}");
        assert_eq!(error.kind(), StoreErrorKind::Other, "{error}");
        let text = error.to_string();
        assert!(!text.contains("moved"), "{text}");
        assert!(text.contains("Permission denied") && text.contains("uid 0 access to"), "{text}");
    }
    assert_eq!(store.load(&key("a")).await.unwrap(), Some(record));
}

#[test]
fn a_full_disk_loses_nothing_and_works_again_with_room() {
    let folder = tempfile::tempdir().unwrap();
    run_mounted("full", folder.path(), SMALL);
}

async fn full(folder: &Path) {
    let closed = folder.join("closed.db");
    let store = SqliteStore::open(&closed).await.unwrap();
    put(&store, "a", b"value").await;
    close(store, &closed).await;

    let (path, ballast) = (folder.join("leases.db"), folder.join("ballast"));
    std::fs::write(&ballast, vec![0; 300_000]).unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    let mut written = 0;
    let error = loop {
        let name = key(format!("{written:04}"));
        match store.compare_and_set(&name, Expected::Absent, &[7; 10_000]).await {
            Ok(swap) => assert!(matches!(swap, Swap::Done(_))),
            Err(error) => break error,
        }
        written += 1;
        assert!(written < 200, "the disk does not fill");
    };
    println!("after {written} records: {error}");
    assert_eq!(error.kind(), StoreErrorKind::Full);
    assert!(error.to_string().contains("free space on the disk that holds"), "{error}");
    assert_eq!(
        store.list("").await.unwrap().len(),
        written,
        "the refused record is there, or others are not"
    );

    while std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(folder.join("rest"))
        .is_ok_and(|mut it| std::io::Write::write_all(&mut it, &[0; 512]).is_ok())
    {}
    for name in ["new.db", "closed.db"] {
        assert_eq!(refused(&folder.join(name)).await.kind(), StoreErrorKind::Full, "{name}");
    }

    std::fs::remove_file(&ballast).unwrap();
    put(&store, &format!("{written:04}"), &[7; 10_000]).await;
    assert_eq!(store.list("").await.unwrap().len(), written + 1);
    let reopened = SqliteStore::open(&path).await.unwrap();
    assert_eq!(reopened.list("").await.unwrap().len(), written + 1);
    assert_eq!(load(&SqliteStore::open(&closed).await.unwrap(), "a").await.unwrap().value, b"value");
    put(&SqliteStore::open(&folder.join("new.db")).await.unwrap(), "a", b"value").await;
}
