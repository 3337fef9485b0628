//! Stores and counters that fail: the disk full at many positions, the file or the server read-only, read and
//! write errors, and the connection cut after each byte of an answer. Acknowledged writes are there after
//! reopening, no number is returned twice, and refused writes have changed nothing.
//!
//! Full disks are small separate mounts, made by child processes in their own namespaces.

mod cuts;
mod servers;
mod sqlite;

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use snowmint_store::Store;
use snowmint_store::conformance::acknowledged::{Account, Operation};
use tokio::time::{Instant, sleep, timeout};

use crate::support::PATIENCE;
use crate::support::cut_connection::{BOUND, call};

/// Runs the role of a child process.
pub(crate) fn child(role: &str, folder: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match role {
            "sqlite-full" => sqlite::full(folder).await,
            "sqlite-checkpoint" => sqlite::full_at_checkpoint(folder).await,
            "sqlite-read-only" => sqlite::read_only(folder).await,
            "sqlite-torn" => sqlite::torn(folder).await,
            "sqlite-io" => sqlite::io_errors(folder).await,
            server => servers::full(server, folder).await,
        }
    });
    println!("@done");
}

/// Writes until a write succeeds: a session may notice a change only after a while.
async fn writes_come_back(account: &mut Account, store: &dyn Store) {
    let started = Instant::now();
    while !call(account, store, Operation::Add).await.is_acknowledged() {
        assert!(started.elapsed() < PATIENCE, "{} is not written again", store.describe());
        sleep(Duration::from_millis(5)).await;
    }
}

/// Makes all calls, and writes a separate record, until that many writes have failed. Reads may fail or not.
async fn until_writes_fail(account: &mut Account, store: &dyn Store, failures: u32, bytes: usize) {
    let mut failed = Vec::new();
    for round in 0.. {
        let name = format!("filler/{}", round % 500);
        let filler = account.write(store, &name, bytes);
        failed.push(timeout(BOUND, filler).await.expect("a write in bounded time").unwrap());
        for operation in Operation::ALL {
            let outcome = call(account, store, operation).await;
            if matches!(operation, Operation::CompareAndSet | Operation::Add) {
                failed.push(outcome);
            }
        }
        failed.retain(|it| !it.is_acknowledged());
        if failed.len() >= failures as usize {
            return;
        }
        assert!(round < 3000, "no write fails");
    }
}

/// Fills the space on a disk.
pub(crate) struct Ballast(PathBuf);

impl Ballast {
    /// Leaves that much free space on the disk of a folder.
    pub(crate) fn leaving(folder: &Path, bytes: u64) -> Self {
        let path = folder.join("ballast");
        let mut file = File::create(&path).unwrap();
        fill(&mut file);
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(bytes)).unwrap();
        Self(path)
    }

    /// Fills the free space again.
    pub(crate) fn grow(&self) {
        fill(&mut OpenOptions::new().append(true).open(&self.0).unwrap());
    }

    /// Frees all of it.
    pub(crate) fn remove(self) {
        std::fs::remove_file(self.0).unwrap();
    }
}

fn fill(file: &mut File) {
    for block in [1 << 20, 4096, 1] {
        let block = vec![0; block];
        loop {
            match file.write_all(&block) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
