//! The SQLite store on disks that are full, read-only or broken.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use snowmint_store::conformance::acknowledged::{Account, CallOutcome, Operation};
use snowmint_store::{SqliteStore, StoreErrorKind};
use tokio::time::{Instant, sleep};

use super::{Ballast, until_writes_fail};
use crate::support::PATIENCE;
use crate::support::child_process::{close, run_mounted};
use crate::support::cut_connection::{call, saw};

const PAGE: u64 = 4096;

fn run(role: &str, script: &str) {
    let folder = tempfile::tempdir().unwrap();
    run_mounted(role, folder.path(), script);
}

/// Goal: on a full disk no number is returned twice and no write is lost. Method: a disk of 1 MB with ever
/// more free pages, so that it fills up in each phase of a write.
#[test]
fn a_full_disk_gives_nothing_twice() {
    run("sqlite-full", r#"mount -t tmpfs -o size=1m none "$0""#);
}

pub(crate) async fn full(folder: &Path) {
    let path = folder.join("leases.db");
    let mut account = Account::new();
    for pages in 0..40 {
        let store = SqliteStore::open(&path).await.unwrap();
        // The first write creates the log, and there is space for it.
        account.check(&store).await.unwrap();
        let ballast = Ballast::leaving(folder, pages * PAGE);
        until_writes_fail(&mut account, &store, 4, 1000).await;
        let outcomes = writes(&mut account, &store).await;
        assert!(saw(&outcomes, StoreErrorKind::Full), "{outcomes:?}");
        reads(&mut account, &store).await;
        check_as_after_a_crash(&account, &path).await;
        ballast.remove();
        goes_on(&mut account, store, &path).await;
        account
            .check(&SqliteStore::open(&path).await.unwrap())
            .await
            .unwrap_or_else(|found| panic!("{pages}: {found:?}"));
    }
}

/// Goal: a checkpoint that finds no space loses nothing. Method: a log so long that SQLite copies it into the
/// file, which cannot grow.
#[test]
fn a_disk_that_fills_at_a_checkpoint_gives_nothing_twice() {
    run("sqlite-checkpoint", r#"mount -t tmpfs -o size=6m none "$0""#);
}

pub(crate) async fn full_at_checkpoint(folder: &Path) {
    let path = folder.join("leases.db");
    let mut account = Account::new();
    let store = SqliteStore::open(&path).await.unwrap();
    account.check(&store).await.unwrap();
    // The log has 1,000 pages when it is copied.
    let ballast = Ballast::leaving(folder, 1030 * (PAGE + 24));
    until_writes_fail(&mut account, &store, 4, 3000).await;
    check_as_after_a_crash(&account, &path).await;
    ballast.remove();
    goes_on(&mut account, store, &path).await;
}

#[test]
fn a_read_only_disk_loses_nothing() {
    run("sqlite-read-only", r#"mount -t tmpfs -o size=1m none "$0""#);
}

pub(crate) async fn read_only(folder: &Path) {
    let path = folder.join("leases.db");
    let mut account = Account::new();
    for _ in 0..3 {
        let store = SqliteStore::open(&path).await.unwrap();
        account.check(&store).await.unwrap();
        close(store, &path).await;
        remount(folder, "remount,ro");
        let error = SqliteStore::open(&path).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
        remount(folder, "remount,rw");
    }
    account.check(&SqliteStore::open(&path).await.unwrap()).await.unwrap();
}

fn remount(folder: &Path, options: &str) {
    assert!(Command::new("mount").args(["-o", options]).arg(folder).status().unwrap().success());
}

/// Goal: a write that stops after any byte does not count as done. Method: a limit on the size of files,
/// which is a different error than a full disk, somewhere in the next pages of the log.
#[test]
fn a_torn_write_gives_nothing_twice() {
    run("sqlite-torn", r#"mount -t tmpfs -o size=1m none "$0"; trap '' XFSZ"#);
}

pub(crate) async fn torn(folder: &Path) {
    let path = folder.join("leases.db");
    let log = folder.join("leases.db-wal");
    let mut account = Account::new();
    let unlimited = getrlimit(Resource::Fsize);
    // About three pages of the log, in steps that share no factor with the page size.
    for nth in 0..120 {
        let store = SqliteStore::open(&path).await.unwrap();
        account.check(&store).await.unwrap();
        let limit = log.metadata().unwrap().len() + nth * 103;
        setrlimit(Resource::Fsize, Rlimit { current: Some(limit), maximum: unlimited.maximum }).unwrap();
        until_writes_fail(&mut account, &store, 2, 1000).await;
        let outcomes = writes(&mut account, &store).await;
        reads(&mut account, &store).await;
        setrlimit(Resource::Fsize, unlimited).unwrap();
        assert!(
            outcomes.iter().all(|it| *it == CallOutcome::Failed(StoreErrorKind::OutcomeUnknown)),
            "{outcomes:?}"
        );
        if nth % 4 == 0 {
            check_as_after_a_crash(&account, &path).await;
        }
        goes_on(&mut account, store, &path).await;
        account
            .check(&SqliteStore::open(&path).await.unwrap())
            .await
            .unwrap_or_else(|found| panic!("{nth}: {found:?}"));
    }
}

/// Goal: a write that could not be synced is not acknowledged, but may have happened. Method: a preloaded
/// library whose calls fail with EIO while a file exists.
#[test]
fn errors_of_the_disk_give_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("broken.c"), folder.path().join("broken.so"));
    std::fs::write(&source, include_str!("broken_disk.c")).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
    assert!(compiler.status().expect("this test needs `cc` of gcc").success());
    run_mounted("sqlite-io", folder.path(), r#"export BROKEN_DISK="$0/broken-" LD_PRELOAD="$0/broken.so""#);
}

pub(crate) async fn io_errors(folder: &Path) {
    let path = folder.join("leases.db");
    let mut account = Account::new();
    let mut seen = Vec::new();
    for nth in 0..18 {
        let store = SqliteStore::open(&path).await.unwrap();
        account.check(&store).await.unwrap();
        let broken = folder.join(if nth % 3 == 0 { "broken-write" } else { "broken-sync" });
        for _ in 0..2 {
            std::fs::write(&broken, b"").unwrap();
            let outcomes = writes(&mut account, &store).await;
            assert!(outcomes.iter().all(|it| !it.is_acknowledged()), "{outcomes:?}");
            seen.extend(outcomes);
            check_as_after_a_crash(&account, &path).await;
            std::fs::remove_file(&broken).unwrap();
            if nth % 2 == 0 {
                account.check(&store).await.unwrap();
            }
        }
        std::fs::write(folder.join("broken-read"), b"").unwrap();
        for operation in [Operation::Load, Operation::List] {
            let _ = call(&mut account, &store, operation).await;
        }
        std::fs::remove_file(folder.join("broken-read")).unwrap();
        goes_on(&mut account, store, &path).await;
        account
            .check(&SqliteStore::open(&path).await.unwrap())
            .await
            .unwrap_or_else(|found| panic!("{nth}: {found:?}"));
    }
    assert!(saw(&seen, StoreErrorKind::OutcomeUnknown), "{seen:?}");
    shows_nothing_that_is_not_synced(folder, &path).await;
}

/// Goal: data that a process wrote to the log but did not sync before it died is on disk before it is read.
/// Method: the files that such a process leaves, opened while no sync succeeds.
async fn shows_nothing_that_is_not_synced(folder: &Path, path: &Path) {
    let store = SqliteStore::open(path).await.unwrap();
    let _ = writes(&mut Account::new(), &store).await;
    std::fs::create_dir(folder.join("after")).unwrap();
    let left = folder.join("after/leases.db");
    for suffix in ["", "-wal"] {
        std::fs::copy(format!("{}{suffix}", path.display()), format!("{}{suffix}", left.display())).unwrap();
    }
    std::fs::write(folder.join("broken-sync"), b"").unwrap();
    let opened = SqliteStore::open(&left).await;
    assert!(opened.is_err(), "the log was read without being synced");
    std::fs::remove_file(folder.join("broken-sync")).unwrap();
    SqliteStore::open(&left).await.unwrap();
}

async fn writes(account: &mut Account, store: &SqliteStore) -> Vec<CallOutcome> {
    let mut outcomes = Vec::new();
    for operation in [Operation::CompareAndSet, Operation::Add] {
        outcomes.push(call(account, store, operation).await);
    }
    outcomes
}

/// A read-only file can be read.
async fn reads(account: &mut Account, store: &SqliteStore) {
    for operation in [Operation::Load, Operation::List] {
        assert!(call(account, store, operation).await.is_acknowledged(), "{operation:?}");
    }
}

/// Copies what a crash at this instant would leave: the file and the log, without the log's index in memory.
async fn check_as_after_a_crash(account: &Account, path: &Path) {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let copy = folder.path().join("leases.db");
    for suffix in ["", "-wal"] {
        std::fs::copy(format!("{}{suffix}", path.display()), format!("{}{suffix}", copy.display())).unwrap();
    }
    account.clone().check(&SqliteStore::open(&copy).await.unwrap()).await.unwrap();
}

/// The handle that met the failure works again, and does not block others from writing.
async fn goes_on(account: &mut Account, store: SqliteStore, path: &Path) {
    account.check(&store).await.unwrap();
    let other = SqliteStore::open(path).await.unwrap();
    account.check(&other).await.unwrap();
    account.check(&store).await.unwrap();
    drop(other);
    // Two connections that close at the same time may both leave the log in place.
    let started = Instant::now();
    while connections() > 1 {
        assert!(started.elapsed() < PATIENCE, "{} is still open twice", path.display());
        sleep(Duration::from_millis(1)).await;
    }
    close(store, path).await;
}

/// Returns the number of connections that this process has open: each has a thread, which ends when it is
/// closed.
fn connections() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.filter_map(|it| std::fs::read_to_string(it.path().join("comm")).ok());
    names.filter(|it| it.trim_end() == "snowmint-sqlite").count()
}
