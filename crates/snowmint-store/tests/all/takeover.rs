//! Counters of other systems against real servers: beside writers that run those systems' own statements, and
//! with every error in a table, a key or a URL.

#![allow(
    clippy::disallowed_methods,
    reason = "the statements of other systems, whose rows are looked at alone"
)]

mod leaf;
mod redis_counter;
mod tickets;
mod tinyid;

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use snowmint_store::{Counter, OpenError, Segment, StoreErrorKind, open_counter, survey};
use snowmint_test_servers::MariaDb;
use tokio::task::JoinSet;

use crate::support::SECRET;

fn some(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

async fn open(url: &str) -> Arc<dyn Counter> {
    open_counter(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Opens a counter that must not open. Returns the error, which must never contain the password.
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

/// Returns a survey with one line per counter: name, highest number, step, remainder and delta.
async fn surveyed(url: &str) -> Vec<String> {
    let found = survey(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    let line = |it: &snowmint_store::Surveyed| {
        format!("{} {} {} {}/{}", it.name, it.highest_number, it.step, it.remainder, it.delta)
    };
    found.counters.iter().map(line).collect()
}

/// Checks that a server with a binary log that syncs commits later can be surveyed, and is used only if the
/// URL accepts that; the URL has a parameter.
async fn assert_drawn_from_only_on_request(server: &MariaDb, url: &str) {
    let accepting = format!("{url}&durable=no");
    for (setting, value) in [("innodb_flush_log_at_trx_commit", 2), ("sync_binlog", 0)] {
        server.sql(&format!("SET GLOBAL {setting} = {value}"));
        for url in [url, &accepting] {
            assert_eq!(survey(url).await.unwrap().counters.len(), 1, "{url}");
        }
        let (kind, error) = refused(url).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        let says = [&*format!("{setting} is {value}"), "with durable=no"];
        assert!(says.iter().all(|it| error.contains(it)), "{error}");
        open(&accepting).await.reserve(some(1)).await.unwrap();
        server.sql(&format!("SET GLOBAL {setting} = 1"));
    }
    open(url).await.reserve(some(1)).await.unwrap();
}

fn numbers(segment: Segment) -> impl Iterator<Item = u64> {
    (0..segment.count().get()).map(move |nth| segment.first() + nth * segment.step().get())
}

/// Draws from several counters at once, each through separate tasks, `draws` times each and in several sizes.
/// Checks that each task gets greater numbers every time, and returns all of them.
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

/// Checks that no number occurs twice.
fn assert_distinct(numbers: &[u64]) {
    let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "{} numbers were given twice", numbers.len() - distinct.len());
}

#[tokio::test]
async fn a_mistake_in_a_url_is_told_without_its_password() {
    let cases = [
        (format!("mongo://u:{SECRET}@h/db"), "unknown counter `mongo:`"),
        ("leaf_alloc".to_owned(), "unknown counter `:`"),
        (format!("leaf:mysql://u:{SECRET}@h/db"), "missing tag: expected leaf:mysql://"),
        (
            format!("leaf:mysql://u:{SECRET}@h/db?tag=a&step=5"),
            "unknown parameter `step`: expected tag, durable, password_file",
        ),
        (format!("leaf:postgres://u:{SECRET}@h/db?tag=a"), "expected mysql:// or mariadb:// next"),
        (format!("leaf:mysql://u:{SECRET}@h?tag=a"), "missing database"),
        (format!("leaf:{SECRET}"), "expected mysql://"),
        (format!("tinyid:mysql://u:{SECRET}@h/db?biz_type="), "missing biz_type"),
        (
            format!("tickets:mysql://u:{SECRET}@h/db?tables=a"),
            "unknown parameter `tables`: expected table, stub",
        ),
        (format!("redis-counter:redis://u:{SECRET}@h/0"), "missing counter"),
        (format!("redis-counter:redis://u:{SECRET}@h/0?counter=a&prefix=b"), "unknown parameter `prefix`"),
        (format!("redis-counter:mysql://u:{SECRET}@h/0?counter=a"), "expected redis:// or rediss://"),
    ];
    for (url, says) in cases {
        let (kind, error) = refused(&url).await;
        assert!(kind.is_none() && error.contains(says), "{error}");
    }
}
