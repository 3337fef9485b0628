//! Counters of other systems against real servers: beside writers that run those systems' own statements, and with all
//! that can be wrong about a table, a key or a URL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the statements of other systems, whose rows are looked at alone"
)]

#[cfg(feature = "mysql")]
mod leaf;
#[cfg(feature = "redis")]
mod redis_counter;
#[cfg(feature = "mysql")]
mod tickets;
#[cfg(feature = "mysql")]
mod tinyid;
mod urls;

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use snowmint_store::{Counter, OpenError, Segment, StoreErrorKind, open_counter, survey};
use tokio::task::JoinSet;

/// A password that must not turn up anywhere.
const SECRET: &str = "hunter2-s3cret";

fn some(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

async fn open(url: &str) -> Arc<dyn Counter> {
    open_counter(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Opens a counter that must not open; the error says why, and never the password.
async fn refused(url: &str) -> (Option<StoreErrorKind>, String) {
    let error = open_counter(url).await.expect_err(url);
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(SECRET), "{shown}");
    println!("{error}");
    let kind = match &error {
        OpenError::Store(error) => Some(error.kind()),
        _ => None,
    };
    (kind, error.to_string())
}

/// A survey in one line for each counter: name, highest number, step, remainder and delta.
async fn surveyed(url: &str) -> Vec<String> {
    let found = survey(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    let line = |it: &snowmint_store::Surveyed| {
        format!("{} {} {} {}/{}", it.name, it.highest_number, it.step, it.remainder, it.delta)
    };
    found.iter().map(line).collect()
}

fn numbers(segment: Segment) -> impl Iterator<Item = u64> {
    (0..segment.count().get()).map(move |nth| segment.first() + nth * segment.step().get())
}

/// Draws from several counters at once, each through tasks of its own, `draws` times each and in several sizes.
///
/// Checks that each task got greater numbers every time, and returns all of them.
async fn draw(counters: &[Arc<dyn Counter>], draws: u64) -> Vec<u64> {
    let mut tasks = JoinSet::new();
    for (task, counter) in (1..).zip(counters) {
        let counter = Arc::clone(counter);
        tasks.spawn(async move {
            let (mut all, mut last) = (Vec::new(), None);
            for nth in 0..draws {
                let segment = counter.reserve(some(1 + (task * nth) % 7)).await.unwrap();
                assert!(Some(segment.first()) > last, "{segment:?} after {last:?}");
                last = Some(segment.last());
                all.extend(numbers(segment));
            }
            all
        });
    }
    joined(tasks).await
}

async fn joined(mut tasks: JoinSet<Vec<u64>>) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some(numbers) = tasks.join_next().await {
        all.extend(numbers.unwrap());
    }
    all
}

/// No number twice.
fn assert_distinct(numbers: &[u64]) {
    let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "{} numbers were given twice", numbers.len() - distinct.len());
}
