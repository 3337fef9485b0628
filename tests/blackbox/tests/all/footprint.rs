//! The cost of a server: time to its first id, memory, size of the binary. The docs show the figures.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use snowmint_test_servers::snowmint::{self, Serve, server, third_party};
use snowmint_test_servers::time;

const MIB: f64 = 1024.0;

/// Goal: print the time from start to first id on a file that was used before. It is not asserted, because
/// the machine may be busy.
#[test]
fn start_to_first_id() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::new(folder.path());
    serve.start().stop();
    let mut times: Vec<Duration> = (0..10)
        .map(|_| {
            let mut server = serve.spawn();
            let (first_id, _) = server.first_id();
            server.stop();
            first_id
        })
        .collect();
    times.sort_unstable();
    let text = format!("start to first id, warm file: best {:.1?}, median {:.1?}", times[0], times[5]);
    snowmint::publish("footprint-start", &text);
}

/// Goal: an idle server stays below 20 MiB, and a million ids leave no memory behind. The limit of a debug
/// build, with its larger code, is 42 MiB.
#[test]
fn memory_when_idle() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    std::thread::sleep(Duration::from_millis(500));
    let pid = server.pid();
    let (rss, pss, threads) = (server::rss_kib(pid), server::pss_kib(pid), server::threads(pid));
    let mut client = server.client();
    for _ in 0..1000 {
        client.next("default", 1000).unwrap().unwrap();
    }
    drop(client);
    std::thread::sleep(Duration::from_millis(500));
    let after = server::rss_kib(pid);
    let mib = |kib: u64| f64::from(u32::try_from(kib).unwrap()) / MIB;
    let text = format!(
        "idle server: RSS {:.1} MiB, PSS {:.1} MiB, {threads} threads; RSS {:.1} MiB after 1,000,000 ids",
        mib(rss),
        mib(pss),
        mib(after),
    );
    snowmint::publish("footprint-memory", &text);
    let limit_kib = if is_debug() { 42 * 1024 } else { 20 * 1024 };
    assert!(rss < limit_kib && after < limit_kib, "{text}");
}

/// Goal: idle connections cost little, and nothing after they close. Method: 9,900 clients send one request
/// and stay. The aim for a release build is 60 MiB for 10,000.
#[test]
fn memory_of_idle_connections() {
    const CLIENTS: usize = 9_900;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let rss_mib = || server::rss_kib(server.pid()) / 1024;
    let before = rss_mib();
    let mut text = format!("{CLIENTS} idle connections: {before} MiB before");
    for (protocol, address, request) in [
        ("HTTP", server.http(), &b"GET /v1/ids/default HTTP/1.1\r\nHost: localhost\r\n\r\n"[..]),
        ("RESP", server.resp(), b"ID.NEXT default\r\n"),
    ] {
        let clients: Vec<TcpStream> = (0..CLIENTS)
            .map(|_| {
                let mut client = TcpStream::connect(address).unwrap();
                client.write_all(request).unwrap();
                assert!(client.read(&mut [0; 512]).unwrap() > 0);
                client
            })
            .collect();
        let most = rss_mib();
        let limit = if is_debug() { 80 } else { 60 };
        // The server frees the memory of idle connections every 10 s.
        let idle = time::eventually("idle connections are small", Duration::from_secs(30), || {
            Some(rss_mib()).filter(|now| *now < limit)
        });
        drop(clients);
        let after = time::eventually("their memory is returned", Duration::from_secs(20), || {
            Some(rss_mib()).filter(|now| *now < before + 10)
        });
        text += &format!(", {protocol} {most} at most, {idle} at rest, {after} after them");
    }
    snowmint::publish("footprint-connections", &text);
}

fn is_debug() -> bool {
    snowmint::binary().components().any(|part| part.as_os_str() == "debug")
}

/// Goal: the size of the binary.
#[test]
fn size_of_the_stripped_binary() {
    let folder = tempfile::tempdir().unwrap();
    let stripped = folder.path().join("snowmint");
    third_party::output("strip", ["-o".as_ref(), stripped.as_os_str(), snowmint::binary().as_os_str()]);
    let bytes = u32::try_from(fs::metadata(&stripped).unwrap().len()).unwrap();
    let text = format!("stripped binary: {bytes} bytes, {:.1} MiB", f64::from(bytes) / MIB / MIB);
    snowmint::publish("footprint-size", &text);
}
