//! What callers get: counts, order, age, and independence from their runtimes.

use std::net::SocketAddr;
use std::task::{Context, Waker};
use std::time::Duration;

use snowmint_client::{Client, ErrorKind, Ids};
use snowmint_test_servers::snowmint::ids::{self, Ids as Collected};
use snowmint_test_servers::snowmint::{self, Serve};
use snowmint_test_servers::{Proxy, time};

use super::{PATIENCE, client, ids_of, numbers};

/// Goal: whatever the buffer size, each call gets exactly its count, in order, without duplicates.
#[test]
fn every_call_gets_its_count() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let mut all = Collected::new();
    for sizes in [0..=0, 0..=1, 7..=7, 0..=100_000] {
        let ids = ids_of(client(&[&server]).buffer(sizes), "default");
        for count in [1, 2, 100, 4097, 30_000] {
            let drawn = numbers(&ids.blocking_next_ids(count).unwrap());
            assert_eq!(drawn.len(), count);
            assert!(ids::increase(&drawn), "one server and one client: the ids increase");
            all.add(&drawn);
            all.add(&[ids.blocking_next_id().unwrap().get()]);
        }
    }
    all.assert_unique();
}

/// Goal: tasks and threads share a handle, and some futures are dropped halfway: every caller is served,
/// without duplicates.
#[tokio::test(flavor = "multi_thread")]
async fn many_callers_share_a_handle() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let ids = ids_of(client(&[&server]).buffer(0..=50), "default");
    let tasks: Vec<_> = (1..=50)
        .map(|nth| {
            let ids = ids.clone();
            tokio::spawn(async move {
                let mut drawn = Vec::new();
                for round in 0..20 {
                    if (nth + round) % 3 == 0 {
                        // Polled once, then dropped.
                        tokio::time::timeout(Duration::ZERO, ids.next_ids(5)).await.ok();
                    }
                    drawn.push(ids.next_id().await.unwrap());
                    drawn.extend(ids.next_ids(nth).await.unwrap());
                }
                numbers(&drawn)
            })
        })
        .collect();
    let mut all = Collected::new();
    for task in tasks {
        all.add(&task.await.unwrap());
    }
    assert_eq!(all.len(), 50 * 20 + 20 * (1..=50).sum::<usize>());
    all.assert_unique();
}

/// Goal: an id that was in memory for longer than allowed is not returned. Method: compare the time in the
/// id.
#[test]
fn an_old_id_is_not_returned() {
    const MAX_AGE: Duration = Duration::from_millis(300);
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let young = ids_of(client(&[&server]).buffer(1000..=1000).max_age(MAX_AGE), "default");
    let kept =
        ids_of(client(&[&server]).buffer(1000..=1000).namespace_max_age("default", Duration::MAX), "default");
    for ids in [&young, &kept] {
        ids.blocking_next_id().unwrap();
    }
    assert_eq!(kept.buffered(), 1000);
    let before = time::unix_ms();
    std::thread::sleep(MAX_AGE + Duration::from_millis(100));
    assert_eq!(young.buffered(), 0);
    let made = |id: snowmint_client::Id| ids::unix_ms(id.get());
    let (young, kept) = (made(young.blocking_next_id().unwrap()), made(kept.blocking_next_id().unwrap()));
    assert!(young >= before + 300, "{young} was made before {before} and 300 ms");
    assert!(kept <= before, "{kept} was made after {before}");
}

/// Goal: a client outlives the runtimes that use it, and needs none.
#[test]
fn a_client_needs_no_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let ids = ids_of(client(&[&server]).buffer(0..=0), "default");
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            ids.next_id().await.unwrap();
            // This blocks the only thread of this runtime.
            ids.blocking_next_id().unwrap();
        });
    }
    ids.blocking_next_id().unwrap();
    // The last handle keeps the client alive.
    let ids = ids_of(client(&[&server]), "default");
    let found = time::eventually("an id without waiting", PATIENCE, || ids.try_next_id().unwrap());
    assert!(found > snowmint_client::Id::MIN);
}

/// Goal: handles of one name share one buffer, and a discarded buffer is empty.
#[test]
fn one_buffer_for_each_name() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let client = client(&[&server]).buffer(100..=100).max_age(PATIENCE).build().unwrap();
    let (one, same) = (client.namespace("default").unwrap(), client.namespace("default").unwrap());
    let first = one.blocking_next_id().unwrap();
    assert!(one.buffered() >= 50 && one.buffered() == same.buffered());
    assert!(same.blocking_next_id().unwrap() > first);
    one.discard_buffered();
    assert_eq!(same.buffered(), 0);
    let requests = client.stats().requests;
    one.blocking_next_id().unwrap();
    assert!(client.stats().requests > requests);
}

/// Holds one answer back, runs `meanwhile`, lets the answer pass, and waits until the client has certainly
/// read it.
fn with_a_late_answer(proxy: &Proxy, ids: &Ids, request: impl FnOnce(), meanwhile: impl FnOnce()) {
    let requests = || ids.client().stats().requests;
    let (before, answered) = (requests(), proxy.answered());
    proxy.freeze();
    request();
    time::eventually("the request", PATIENCE, || (requests() > before).then_some(()));
    meanwhile();
    proxy.thaw();
    time::eventually("the answer", PATIENCE, || (proxy.answered() > answered).then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(requests(), before + 1, "requests that nobody needs");
}

/// Goal: after a discard the buffer stays empty until the next draw. Method: a proxy holds the answer of a
/// refill back until the ids were discarded.
#[test]
fn a_discarded_buffer_stays_empty() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let proxy = Proxy::start(SocketAddr::V4(server.http()));
    let builder = Client::builder().server(format!("http://{}", proxy.address())).timeout(PATIENCE);
    let ids = ids_of(builder.buffer(100..=100).max_age(Duration::MAX), "default");
    ids.blocking_next_id().unwrap();
    let refill = || drop(ids.blocking_next_ids(80).unwrap());
    with_a_late_answer(&proxy, &ids, refill, || ids.discard_buffered());
    assert_eq!(ids.buffered(), 0);
    ids.blocking_next_id().unwrap();
    assert_eq!(ids.buffered(), 100, "the next draw fills it again");
}

/// Goal: without a buffer, no id stays in memory. Method: one caller leaves before its answer arrives, and
/// one does not wait at all.
#[test]
fn without_a_buffer_no_id_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let proxy = Proxy::start(SocketAddr::V4(server.http()));
    let builder = Client::builder().server(format!("http://{}", proxy.address())).timeout(PATIENCE);
    let ids = ids_of(builder.buffer(0..=0), "default");
    ids.blocking_next_id().unwrap();
    let leaving = std::cell::RefCell::new(Some(Box::pin(ids.next_id())));
    let come = || {
        let mut future = leaving.borrow_mut();
        let polled = future.as_mut().unwrap().as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    };
    with_a_late_answer(&proxy, &ids, come, || drop(leaving.take()));
    assert_eq!(ids.buffered(), 0);
    let requests = ids.client().stats().requests;
    assert_eq!(ids.try_next_id().unwrap(), None);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((ids.buffered(), ids.client().stats().requests), (0, requests));
}

/// Goal: numbers of a segment have no gaps and keep their step, since none is dropped.
#[test]
fn numbers_of_a_segment() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let added =
        snowmint::run(folder.path(), ["ns", "add", "invoices", "--scheme", "segment", "--data", data]);
    assert!(added.status.success(), "{}", snowmint::text(&added));
    let ids = ids_of(client(&[&server]).namespace_max_age("invoices", Duration::MAX), "invoices");
    let known = |error: &snowmint_client::ClientError| error.kind() == ErrorKind::UnknownNamespace;
    let first = time::eventually("the new namespace", PATIENCE, || match ids.blocking_next_id() {
        Ok(id) => Some(id.get()),
        Err(error) if known(&error) => None,
        Err(error) => panic!("{error}"),
    });
    let mut drawn = vec![first];
    drawn.extend(numbers(&ids.blocking_next_ids(500).unwrap()));
    drawn.extend((0..500).map(|_| ids.blocking_next_id().unwrap().get()));
    assert_eq!(drawn, (first..first + 1001).collect::<Vec<_>>());
}
