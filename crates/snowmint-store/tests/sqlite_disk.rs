//! The SQLite store on a disk that cannot be written and on one that is full.
//! Both are real mounts in a namespace of their own, so root does not get around them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails"
)]

mod common;

use std::path::Path;

use common::{block_on, close, key, load, put, role, run_mounted};
use snowmint_store::{Expected, SqliteStore, Store, StoreError, StoreErrorKind, Swap};

const READ_ONLY: &str = r#"mount --bind "$0" "$0"; mount -o remount,ro,bind "$0""#;
const SMALL: &str = r#"mount -t tmpfs -o size=1m none "$0""#;

/// What the child processes of the tests below do.
#[test]
#[ignore = "the other tests run it as a child process"]
fn child() {
    let (role, folder) = role();
    block_on(async {
        match role.as_str() {
            "read-only" => read_only(&folder).await,
            "full" => full(&folder).await,
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
        assert!(text.contains("for uid 0, or point --data elsewhere"), "{text}");
    }
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
