//! SIGTERM: requests are answered, the lease is released, and the exit code is 0.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use snowmint_test_servers::snowmint::http::Http;
use snowmint_test_servers::snowmint::ids::{increase, worker};
use snowmint_test_servers::snowmint::raw_clients::{Grpc, THRIFT_GET_ID, Thrift, grpc_stream};
use snowmint_test_servers::snowmint::resp::command;
use snowmint_test_servers::snowmint::{self, Ids, Reply, Resp, Serve, Signal};
use snowmint_test_servers::{port, time};

/// Limit on the time to exit: the drain timeout and a little more.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Goal: all requests that arrived before the signal are answered, and then the connection is closed cleanly.
/// Method: clients of each kind send many requests at once, then the signal is sent, then they read.
#[test]
fn what_was_asked_before_the_signal_is_answered() {
    const EACH: usize = 500;
    let folder = tempfile::tempdir().unwrap();
    let (thrift, grpc) = (port::free(), port::free());
    let serve =
        Serve::new(folder.path()).args(["--thrift", &thrift.to_string(), "--grpc", &grpc.to_string()]);
    let mut server = serve.start();
    let mut thrift: Vec<Thrift> = (0..4).map(|_| Thrift::connect(thrift, ENDS_WITHIN).unwrap()).collect();
    let mut grpc: Vec<Grpc> = (0..4).map(|_| Grpc::connect(grpc, ENDS_WITHIN).unwrap()).collect();
    let mut resp: Vec<Resp> = (0..8).map(|_| server.client()).collect();
    let mut http: Vec<Http> = (0..4).map(|_| Http::connect(server.http(), ENDS_WITHIN).unwrap()).collect();
    for client in &mut resp {
        client.write(&command(&["ID.NEXT", "default", "COUNT", "7"]).repeat(EACH)).unwrap();
    }
    for client in &mut http {
        client.write(b"GET /v1/ids/default?count=3 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    for client in &mut thrift {
        client.write(&THRIFT_GET_ID.repeat(EACH)).unwrap();
    }
    for client in &mut grpc {
        client.write(&grpc_stream(EACH, 7)).unwrap();
    }
    // The requests are in the server's sockets by now.
    thread::sleep(Duration::from_millis(50));
    server.terminate();
    let mut ids = Ids::new();
    for mut client in resp {
        let mut replies = 0;
        while let Some(reply) = client.read_unless_closed().expect("whole replies, then a clean close") {
            ids.add(&reply.ids().unwrap());
            replies += 1;
        }
        assert_eq!(replies, EACH);
    }
    for mut client in thrift {
        let mut replies = Vec::new();
        while let Some(id) = client.read_unless_closed().expect("whole replies, then a clean close") {
            replies.push(id);
        }
        assert_eq!(replies.len(), EACH);
        ids.add(&replies);
    }
    for client in grpc {
        let streamed = client.read_to_the_end().expect("whole responses, then a clean close");
        assert_eq!((streamed.responses, streamed.ids.len(), streamed.ended), (EACH, 7 * EACH, true));
        assert!(increase(&streamed.ids));
        ids.add(&streamed.ids);
    }
    for mut client in http {
        ids.add(&client.read().unwrap().ids().unwrap());
        let end = client.read().unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionAborted, "{end}");
    }
    let ended = server.ended();
    assert!(ended.status.success(), "{}: {}", ended.status, ended.log);
    ids.add(&serve.start().take(1000));
    ids.assert_unique();
}

/// The replies to a client that sent requests until its connection ended.
struct Saw {
    ids: Vec<u64>,
    end: &'static str,
}

/// Sends requests without waiting for replies, until the connection ends. Checks that no reply is cut.
fn pour_until_the_end(client: Resp, asked: &AtomicU64) -> Saw {
    let request = command(&["ID.NEXT", "default", "COUNT", "20"]).repeat(50);
    let mut writer = client.socket().try_clone().unwrap();
    let mut reader = client;
    thread::scope(|scope| {
        scope.spawn(move || while writer.write_all(&request).is_ok() {});
        let mut ids = Vec::new();
        loop {
            match reader.read_unless_closed() {
                Ok(Some(reply)) => ids.extend(reply.ids().unwrap()),
                Ok(None) => return Saw { ids, end: "closed" },
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Saw { ids, end: "reset" },
                Err(error) => panic!("a reply was cut: {error}"),
            }
            asked.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// Sends requests until the connection ends, 50 at a time. Checks that no reply is cut.
fn ask_until_the_end(mut client: Resp, asked: &AtomicU64) -> Saw {
    let request = command(&["ID.NEXT", "default", "COUNT", "20"]).repeat(50);
    let mut ids = Vec::new();
    loop {
        let written = client.write(&request);
        for _ in 0..50 {
            match client.read_unless_closed() {
                Ok(Some(Reply::Error(error))) => panic!("a request was refused instead of answered: {error}"),
                Ok(Some(reply)) => ids.extend(reply.ids().unwrap()),
                Ok(None) => return Saw { ids, end: "closed" },
                // More requests were in flight when the server closed, so the connection was reset.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Saw { ids, end: "reset" },
                Err(error) => panic!("a reply was cut: {error}"),
            }
        }
        if written.is_err() {
            return Saw { ids, end: "closed" };
        }
        asked.fetch_add(50, Ordering::Relaxed);
    }
}

/// Goal: under load, a signal cuts no reply, and the server exits with 0 in time and releases the lease.
/// Method: clients that never pause, some of which do not wait for replies; then a server takes the same
/// fixed worker, whose lease could not have expired yet.
#[test]
fn a_signal_under_load_cuts_no_reply_and_releases_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::new(folder.path()).args(["--worker", "3", "--window", "10m"]);
    let mut server = serve.start();
    let asked = AtomicU64::new(0);
    let connections: Vec<Resp> = (0..8).map(|_| server.client()).collect();
    let mut signalled = time::now();
    let saw: Vec<Saw> = thread::scope(|scope| {
        let asked = &asked;
        let clients: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(i, client)| {
                let until_the_end = if i < 6 { ask_until_the_end } else { pour_until_the_end };
                scope.spawn(move || until_the_end(client, asked))
            })
            .collect();
        time::eventually("load", ENDS_WITHIN, || (asked.load(Ordering::Relaxed) > 5000).then_some(()));
        server.terminate();
        signalled = time::now();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let ended = server.ended();
    assert!(ended.status.success(), "{}: {}", ended.status, ended.log);
    assert!(signalled.elapsed() < ENDS_WITHIN);
    assert!(ended.log.contains("lease released"), "{}", ended.log);

    println!("ended {:?} after the signal", signalled.elapsed());
    let ends = |what| saw.iter().filter(|it| it.end == what).count();
    println!("{} connections closed, {} reset after whole replies", ends("closed"), ends("reset"));
    let mut ids = Ids::new();
    for Saw { ids: seen, .. } in &saw {
        assert!(increase(seen));
        ids.add(seen);
    }
    let mut next = serve.start();
    assert!(next.first_id().0 < ENDS_WITHIN, "it did not wait for ten minutes");
    let more = next.take(1000);
    assert_eq!(worker(more[0]), 3);
    ids.add(&more);
    ids.assert_unique();
}

/// Goal: idle connections, incomplete requests and clients that do not read do not delay the exit.
#[test]
fn idle_and_stuck_clients_do_not_hold_up_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (thrift, grpc) = (port::free(), port::free());
    let serve =
        Serve::new(folder.path()).args(["--thrift", &thrift.to_string(), "--grpc", &grpc.to_string()]);
    let server = serve.start();
    let mut half_thrift = Thrift::connect(thrift, ENDS_WITHIN).unwrap();
    half_thrift.write(&THRIFT_GET_ID[..20]).unwrap();
    let mut half_grpc = Grpc::connect(grpc, ENDS_WITHIN).unwrap();
    half_grpc.write(&grpc_stream(1, 1)[..40]).unwrap();
    let mut stuck_grpc = Grpc::connect(grpc, ENDS_WITHIN).unwrap();
    stuck_grpc.write(&grpc_stream(100, 100_000)).unwrap();
    let mut idle = server.client();
    assert!(idle.call(&["PING"]).is_ok());
    let mut half = server.client();
    half.write(b"*2\r\n$7\r\nID.NEXT\r\n$7\r\ndef").unwrap();
    let mut stuck = server.client();
    stuck.write(&command(&["ID.NEXT", "default", "COUNT", "100000"]).repeat(100)).unwrap();
    let mut half_http = Http::connect(server.http(), ENDS_WITHIN).unwrap();
    half_http.write(b"GET /v1/ids/default HTTP/1.1\r\nHos").unwrap();
    thread::sleep(Duration::from_millis(100));
    let signalled = time::now();
    let ended = server.stop();
    assert!(signalled.elapsed() < ENDS_WITHIN, "{:?}", signalled.elapsed());
    assert!(ended.log.contains("lease released"), "{}", ended.log);
    assert!(idle.read_unless_closed().unwrap().is_none(), "an idle connection is closed, not reset");
}

/// Goal: a second signal is harmless, at once or while the server drains: the server exits by itself, and the
/// file is intact.
#[test]
fn a_second_signal() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::new(folder.path());
    let mut ids = Ids::new();
    for pause in [0, 100] {
        let mut server = serve.start();
        ids.add(&server.take(1000));
        let mut stuck = server.client();
        stuck.write(&command(&["ID.NEXT", "default", "COUNT", "100000"]).repeat(100)).unwrap();
        thread::sleep(Duration::from_millis(50));
        server.terminate();
        thread::sleep(Duration::from_millis(pause));
        server.terminate();
        let signalled = time::now();
        let ended = server.ended();
        assert!(signalled.elapsed() < ENDS_WITHIN);
        assert!(matches!(ended.status.code(), Some(0 | 1)), "{}: {}", ended.status, ended.log);
        println!("{pause} ms between two signals: {} after {:?}", ended.status, signalled.elapsed());
    }
    ids.add(&serve.start().take(1000));
    ids.assert_unique();
}

/// Goal: SIGUSR1, SIGUSR2, SIGHUP and SIGPIPE never end a server. Method: each is sent while it serves and
/// while it waits for its store.
#[test]
fn signals_that_ask_for_nothing_end_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = format!("redis://{}", port::free());
    let mut waiting = Serve::new(folder.path()).args(["--store", &nowhere]).spawn();
    waiting.log_with("store unavailable; retrying", ENDS_WITHIN);
    let mut serving = Serve::new(folder.path()).start();
    for signal in [Signal::USR1, Signal::USR2, Signal::HUP, Signal::PIPE] {
        waiting.signal(signal);
        serving.signal(signal);
        serving.take(1);
    }
    serving.log_with("SIGHUP: reloading", ENDS_WITHIN);
    assert_eq!((waiting.exit_status(), serving.exit_status()), (None, None));
    serving.stop();
}

/// Goal: the data file of a stopped node has every record, and so after a command, since people copy or move
/// that file alone. Method: copy only that file, and compare what commands show of both.
#[test]
fn the_data_file_of_a_stopped_node_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data/snowmint.db"), folder.path().join("copy.db"));
    let shown = |file: &Path, words: &[&str]| {
        let store = format!("sqlite:{}", file.display());
        let output = snowmint::run(folder.path(), [words, &["--json", "--store", &store]].concat());
        assert!(output.status.success(), "{}", snowmint::text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let assert_whole = |expected: &str| {
        fs::copy(&data, &copy).unwrap();
        let namespaces = shown(&data, &["ns", "list"]);
        assert!(namespaces.contains(expected), "{namespaces}");
        assert_eq!(shown(&copy, &["ns", "list"]), namespaces);
        // Without the fields that change with the time of the command.
        let leases = |file| {
            let workers = shown(file, &["workers"]);
            workers
                .lines()
                .map(|line| line.split(",\"state\"").next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(leases(&*copy), leases(&data));
        fs::remove_file(&copy).unwrap();
    };
    let server = Serve::new(folder.path()).start();
    server.take(3);
    server.stop();
    assert_whole("default");
    // Often enough that a log which is left in half of the cases is noticed.
    for nth in 0..12 {
        let name = format!("orders-{nth}");
        shown(&data, &["ns", "add", &name, "--scheme", "segment"]);
        assert_whole(&name);
        shown(&data, &["new", "-n", "2"]);
        assert_whole(&name);
    }
}
