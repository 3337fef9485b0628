//! Stores and counters that fail: the disk full at many positions, the file or the server read-only, errors of reads
//! and writes, and the connection cut behind each byte of an answer. What was acknowledged is there after reopening,
//! nothing is given twice, and what was refused has written nothing.
//!
//! Full disks are small mounts of their own, in child processes in namespaces of their own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../cut/mod.rs"]
mod cut;
mod cuts;
mod disks;
mod servers;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use common::role;
use cut::{BOUND, PATIENCE, call};
use snowmint_store::Store;
use snowmint_store::conformance::failing::{Account, Operation};
use tokio::time::{Instant, sleep, timeout};

/// What the child processes of the tests do.
#[test]
#[ignore = "the other tests run it as a child process"]
fn child() {
    let (role, folder) = role();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match role.as_str() {
            "sqlite-full" => sqlite::full(&folder).await,
            "sqlite-checkpoint" => sqlite::full_at_checkpoint(&folder).await,
            "sqlite-read-only" => sqlite::read_only(&folder).await,
            "sqlite-torn" => sqlite::torn(&folder).await,
            "sqlite-io" => sqlite::io_errors(&folder).await,
            server => servers::full(server, &folder).await,
        }
    });
    println!("@done");
}

/// Writes until that succeeds: a session may learn of a change in its own time.
async fn writes_come_back(account: &mut Account, store: &dyn Store) {
    let started = Instant::now();
    while !call(account, store, Operation::Add).await.is_acknowledged() {
        assert!(started.elapsed() < PATIENCE, "{} is not written again", store.describe());
        sleep(Duration::from_millis(5)).await;
    }
}

/// Makes all calls, with one on a record of its own, until that many writes have failed. Reads may fail or not.
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

async fn open(url: &str) -> Arc<dyn Store> {
    snowmint_store::open(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}
