//! Goal: over real stores, writers on several nodes lose no entry of the audit log.
//! Method: each writer has its own connection, and all append at the same time.

use std::collections::BTreeSet;

use snowmint_cluster::audit::{Action, AuthorRights, Entry, Listed, Logged, append, list};
use snowmint_test_servers::{Etcd, Postgres, Redis};
use tokio::task::JoinSet;

const WRITERS: usize = 4;
const ENTRIES: usize = 15;

fn entry(subject: String) -> Entry {
    Entry {
        at_unix_ms: 1_790_000_000_000,
        who: "alice".to_owned(),
        from: "web-3".to_owned(),
        action: Action::NamespaceSet,
        subject,
        details: "segment cached, all numbers".to_owned(),
        rights: AuthorRights::All,
    }
}

async fn writers_lose_nothing(url: &str) {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = snowmint_store::open(url).await.unwrap();
        writers.spawn(async move {
            for number in 0..ENTRIES {
                let _written = append(&*store, entry(format!("{writer}-{number}"))).await.unwrap();
            }
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    let store = snowmint_store::open(url).await.unwrap();
    let listed = list(&*store, usize::MAX).await.unwrap();
    let subject = |listed: &Listed| match listed {
        Listed::Entry(Logged { entry, .. }) => entry.subject.clone(),
        other @ Listed::Unreadable { .. } => panic!("{other:?}"),
    };
    let each: BTreeSet<_> = listed.iter().map(subject).collect();
    assert_eq!((listed.len(), each.len()), (WRITERS * ENTRIES, WRITERS * ENTRIES), "{url}");
    // Each writer's entries are in its order, newest first.
    for writer in 0..WRITERS {
        let of_writer = listed.iter().map(subject).filter(|it| it.starts_with(&format!("{writer}-")));
        let wanted: Vec<_> = (0..ENTRIES).rev().map(|number| format!("{writer}-{number}")).collect();
        assert_eq!(of_writer.collect::<Vec<_>>(), wanted, "{url}");
    }
}

#[tokio::test]
async fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    writers_lose_nothing(&format!("sqlite:{}", folder.path().join("ids.db").display())).await;
}

#[tokio::test]
async fn redis() {
    let server = Redis::start();
    writers_lose_nothing(&format!("redis://{}?may_lose=0", server.address())).await;
}

#[tokio::test]
async fn postgres() {
    let server = Postgres::start();
    writers_lose_nothing(&format!("postgres://postgres@{}/postgres", server.address())).await;
}

#[tokio::test]
async fn etcd() {
    let server = Etcd::start();
    writers_lose_nothing(&format!("etcd://{}", server.address())).await;
}
