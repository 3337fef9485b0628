//! Servers that die, stop, restart and lose answers under load: callers see no error while one server works,
//! and no duplicates.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use snowmint_client::{Client, ErrorKind, Ids};
use snowmint_test_servers::snowmint::ids::Ids as Collected;
use snowmint_test_servers::snowmint::{Serve, Server};
use snowmint_test_servers::{Proxy, port, time};

use super::{PATIENCE, client, ids_of, numbers};

/// Two servers that share a store.
fn pair(folder: &std::path::Path) -> [Server; 2] {
    [0, 1].map(|_| Serve::new(folder).start())
}

/// Draws in four threads, half of them from a client of their own, until `faults` ends. Any error fails the
/// test.
fn under_load(ids: [&Ids; 2], faults: impl FnOnce()) -> Collected {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let drawers: Vec<_> = [ids[0], ids[0], ids[1], ids[1]]
            .into_iter()
            .enumerate()
            .map(|(nth, ids)| {
                let ended = &ended;
                scope.spawn(move || {
                    let mut drawn = Vec::new();
                    while !ended.load(Ordering::Relaxed) {
                        if nth % 2 == 0 {
                            drawn.push(ids.blocking_next_id().unwrap().get());
                        } else {
                            drawn.extend(numbers(&ids.blocking_next_ids(50).unwrap()));
                        }
                        // A few thousand ids a second: the buffers are in use, but the machine is not busy.
                        thread::sleep(Duration::from_micros(500));
                    }
                    drawn
                })
            })
            .collect();
        faults();
        ended.store(true, Ordering::Relaxed);
        let mut all = Collected::new();
        for drawer in drawers {
            all.add(&drawer.join().unwrap());
        }
        all
    })
}

/// Waits until a client has received this many more answers.
fn after_answers(client: &Client, more: u64) {
    let answers = || {
        let stats = client.stats();
        stats.requests.saturating_sub(stats.failed)
    };
    // Two requests may still be in flight.
    let enough = answers() + more + 2;
    time::eventually("more answers", PATIENCE, || (answers() >= enough).then_some(()));
}

/// Goal: the death of one of two servers, even the preferred one, causes no error for callers, and no
/// duplicates.
#[test]
fn a_killed_server_is_no_error_for_callers() {
    let folder = tempfile::tempdir().unwrap();
    let [mut first, second] = pair(folder.path());
    let one = ids_of(client(&[&first, &second]), "default");
    let other = ids_of(client(&[&second, &first]), "default");
    let all = under_load([&one, &other], || {
        after_answers(one.client(), 5);
        first.kill();
        after_answers(one.client(), 20);
        after_answers(other.client(), 5);
    });
    assert!(one.client().stats().failed > 0, "the dead server was in use");
    assert!(all.len() > 1000);
    all.assert_unique();
}

/// Goal: servers restarted one after the other, as in a deployment, cause no errors for callers, and each is
/// used again.
#[test]
fn a_rolling_restart_is_no_error_for_callers() {
    let folder = tempfile::tempdir().unwrap();
    let ports = [0, 1].map(|_| (port::free(), port::free()));
    let start = |(http, resp)| Serve::new(folder.path()).ports(http, resp).start();
    let mut servers = ports.map(start);
    let one = ids_of(client(&[&servers[0], &servers[1]]), "default");
    let other = ids_of(client(&[&servers[1], &servers[0]]), "default");
    let issued = |server: &Server| server.metric("snowmint_ids_issued_total");
    let all = under_load([&one, &other], || {
        for (nth, ids) in [(0, &one), (1, &other), (0, &one)] {
            after_answers(ids.client(), 3);
            servers[nth].terminate();
            let ended = servers[nth].ended();
            assert!(ended.status.success(), "{}", ended.log);
            after_answers(ids.client(), 3);
            servers[nth] = start(ports[nth]);
            // The client that prefers it returns to it.
            time::eventually("ids of the new server", PATIENCE, || {
                (issued(&servers[nth]) > 0.0).then_some(())
            });
        }
    });
    all.assert_unique();
}

/// Goal: a server that accepts connections and never answers causes no errors; a second request goes to the
/// other one.
#[test]
fn a_silent_server_is_hedged() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = pair(folder.path());
    let ids = ids_of(client(&[&first, &second]), "default");
    let mut drawn = vec![ids.blocking_next_id().unwrap().get()];
    first.pause();
    let began = time::now();
    for _ in 0..3 {
        drawn.extend(numbers(&ids.blocking_next_ids(200).unwrap()));
    }
    // Without the second server, each request would take 2 s.
    assert!(ids.client().stats().hedged >= 1, "{:?}", ids.client().stats());
    let took = began.elapsed();
    first.resume();
    drawn.extend(numbers(&ids.blocking_next_ids(200).unwrap()));
    let mut all = Collected::new();
    all.add(&drawn);
    all.assert_unique();
    assert!(took < PATIENCE, "{took:?}");
}

/// Goal: with every server dead, a caller gets an error that says so, not before its timeout and not long
/// after it; once a server is back, the same client continues.
#[test]
fn without_a_server_there_is_an_error_in_time_and_then_ids_again() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let folder = tempfile::tempdir().unwrap();
    let ports = [0, 1].map(|_| (port::free(), port::free()));
    let start = |(http, resp)| Serve::new(folder.path()).ports(http, resp).start();
    let mut servers = ports.map(start);
    let ids = ids_of(client(&[&servers[0], &servers[1]]).timeout(TIMEOUT).buffer(0..=0), "default");
    let mut all = Collected::new();
    let draw = || time::eventually("ids", PATIENCE, || ids.blocking_next_ids(10).ok());
    all.add(&numbers(&draw()));
    servers.iter_mut().for_each(Server::kill);
    let began = time::now();
    let error = ids.blocking_next_id().unwrap_err();
    let took = began.elapsed();
    assert!(took >= TIMEOUT && took < PATIENCE, "{took:?}");
    assert_eq!((error.kind(), error.is_temporary(), error.status()), (ErrorKind::Unavailable, true, None));
    let said = error.to_string();
    assert!(said.contains("`default` within 2s") && said.contains("refused"), "{said}");
    let dead = format!("http://{}", ports[0].0);
    assert!(
        error.server() == Some(&dead) || error.server() == Some(&format!("http://{}", ports[1].0)),
        "{said}"
    );
    servers[1] = start(ports[1]);
    all.add(&numbers(&draw()));
    all.assert_unique();
}

/// Goal: a truncated, late or lost answer loses ids and never repeats one. Method: under load, a proxy in
/// front of the preferred server disturbs the answers.
#[test]
fn disturbed_answers_give_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = pair(folder.path());
    let proxy = Proxy::start(SocketAddr::V4(first.http()));
    let builder = || {
        let urls = [format!("http://{}", proxy.address()), format!("http://{}", second.http())];
        let order = snowmint_client::ServerOrder::AsListed;
        Client::builder().servers(urls).order(order).timeout(PATIENCE).buffer(10..=500)
    };
    let (one, other) = (ids_of(builder(), "default"), ids_of(builder(), "default"));
    let all = under_load([&one, &other], || {
        for nth in 0..20 {
            let client = [&one, &other][nth % 2].client();
            match nth % 5 {
                0 => proxy.cut_answers_after(37 * nth),
                1 => proxy.cut(),
                2 => proxy.freeze(),
                3 => proxy.lose_answers(true),
                _ => proxy.delay(Duration::from_millis(80)),
            }
            after_answers(client, 3);
            proxy.pass_answers();
            proxy.thaw();
            proxy.lose_answers(false);
            proxy.delay(Duration::ZERO);
            after_answers(client, 2);
        }
    });
    let stats = one.client().stats();
    assert!(stats.failed > 0, "{stats:?}");
    all.assert_unique();
}

/// Goal: a namespace that no server can serve does not affect others. Method: one whose source is down, and
/// calls for another one right after its failures. If such a call fails with a time to retry, the servers are
/// closed for both.
#[test]
fn a_namespace_whose_source_is_down_fails_no_call_for_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ns.toml");
    let down = format!("scheme = \"segment\"\nsources = [\"leaf:mysql://u@{}/l?tag=t\"]", port::free());
    std::fs::write(
        &file,
        format!("[namespaces.invoices]\n{down}\n[namespaces.orders]\nscheme = \"snowflake\"\n"),
    )
    .unwrap();
    let args = [OsStr::new("--namespaces-file"), file.as_os_str()];
    let [first, second] = [0, 1].map(|_| Serve::new(folder.path()).args(args).start());
    // Less than the 1 s after which the servers allow a retry.
    let client =
        client(&[&first, &second]).timeout(Duration::from_millis(900)).buffer(0..=0).build().unwrap();
    let [orders, invoices] = ["orders", "invoices"].map(|name| client.namespace(name).unwrap());
    let mut drawn = 0;
    time::eventually("ids right after a failure of the other namespace", PATIENCE, || {
        let error = invoices.blocking_next_id().unwrap_err();
        error.retry_after()?;
        assert_eq!(error.status(), Some(503), "{error}");
        match orders.blocking_next_id() {
            Ok(_) => drawn += 1,
            // The machine was busy.
            Err(error) => assert_eq!(error.retry_after(), None, "{error}"),
        }
        (drawn == 3).then_some(())
    });
}
