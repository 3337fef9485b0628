//! Clients that leave answers unread: memory stays bounded, other clients are served, and all of it is given
//! back.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use snowmint_test_servers::snowmint::http::{self, Http};
use snowmint_test_servers::snowmint::{Serve, Server, server};
use snowmint_test_servers::{port, time};

const PATIENCE: Duration = Duration::from_secs(30);
/// Their metrics have about 2 MB.
const NAMESPACES: usize = 2000;
/// As many as the server takes.
const STREAMS: usize = 100;
/// How much the server may grow.
const GROWTH_MIB: u64 = 32;

/// A connection of HTTP/2 that lets the server send this many bytes of each answer.
struct Unread(TcpStream);

impl Unread {
    fn connect(address: SocketAddrV4, window: u32) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let setting = [&[0, 4][..], &window.to_be_bytes()].concat();
        stream
            .write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &setting)].concat())
            .unwrap();
        Self(stream)
    }

    /// Sends as many requests as a connection may have in flight, and waits until all of them are answered.
    /// Returns how many answers are not refusals.
    fn request(&mut self, path: &str) -> usize {
        let requests: Vec<u8> = (0..STREAMS).flat_map(|nth| frame(1, 5, 2 * nth + 1, &head(path))).collect();
        self.0.write_all(&requests).unwrap();
        let (mut answered, mut held) = (0, 0);
        while answered < STREAMS {
            let mut prefix = [0; 9];
            self.0.read_exact(&mut prefix).unwrap();
            let mut payload = vec![0; u32::from_be_bytes([0, prefix[0], prefix[1], prefix[2]]) as usize];
            self.0.read_exact(&mut payload).unwrap();
            if prefix[3] == 1 {
                answered += 1;
                // An indexed `:status: 200`.
                held += usize::from(payload[0] == 0x88);
            }
        }
        held
    }
}

fn frame(kind: u8, flags: u8, stream: usize, payload: &[u8]) -> Vec<u8> {
    let (len, stream) = (u32::try_from(payload.len()).unwrap(), u32::try_from(stream).unwrap());
    [&len.to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `:method: GET` and `:scheme: http`, then path and authority as literals.
fn head(path: &str) -> Vec<u8> {
    let mut head = vec![0x82, 0x86];
    for (name, value) in [(4, path), (1, "localhost")] {
        head.extend([name, u8::try_from(value.len()).unwrap()]);
        head.extend(value.as_bytes());
    }
    head
}

/// Sends a pipeline of requests over HTTP/1.1, of which nothing is read.
fn pipeline(address: SocketAddrV4, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.repeat(200).as_bytes()).unwrap();
    stream
}

/// A server with thousands of namespaces, and the address of its port for probes.
fn crowded(folder: &std::path::Path) -> (Server, SocketAddrV4) {
    let mut namespaces = String::new();
    for nth in 0..NAMESPACES {
        writeln!(namespaces, "[namespaces.a-namespace-with-a-long-name-{nth}]\nscheme = 'segment'").unwrap();
    }
    std::fs::write(folder.join("namespaces.toml"), namespaces).unwrap();
    let probe = port::free();
    let flags = ["--namespaces-file", "namespaces.toml", "--store", "memory:", "--probe", &probe.to_string()];
    let server = Serve::new(folder).args(flags).spawn();
    server.log_with("ready: ids are served", PATIENCE);
    (server, probe)
}

/// Goal: connections that read nothing grow the server by a bounded amount, whatever they request at
/// whichever port, over HTTP/2 and HTTP/1.1. Other clients get ids and metrics meanwhile, and the memory is
/// given back once the connections are gone.
#[test]
fn answers_that_nobody_reads_hold_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (server, probe) = crowded(folder.path());
    let port = server.http();
    let size = server.get("/metrics").body.len();
    assert!(size > 1_000_000, "{size} bytes of metrics");
    server.get("/v1/server");
    let before = server::rss_kib(server.pid());
    let assert_bounded = |what: &str| {
        let grown = server::peak_rss_kib(server.pid()).saturating_sub(before) / 1024;
        println!("{what}: grew by {grown} MiB");
        assert!(grown < GROWTH_MIB, "{what}: the server grew by {grown} MiB");
    };
    let attacks = [
        ("metrics over the port for probes", probe, "/metrics", 0),
        ("metrics over HTTP/2", port, "/metrics", 0),
        ("metrics of which a part is read", port, "/metrics", 1),
        ("the list of namespaces", port, "/v1/server", 0),
        ("a list of ids", port, "/v1/ids/default?count=5000", 1),
        ("the page of the console", port, "/console/main.js", 1),
    ];
    for (what, address, path, window) in attacks {
        let mut held = Vec::new();
        for _ in 0..6 {
            let mut client = Unread::connect(address, window);
            client.request(path);
            held.push(client);
        }
        let mut honest = Http::connect(port, PATIENCE).unwrap();
        for path in ["/v1/ids/default", "/v1/ids/default?count=1000", "/readyz", "/metrics"] {
            let answer = honest.get(path, "").unwrap();
            assert_eq!(answer.status, 200, "{what}: {path}: {}", answer.body);
        }
        assert!(http::get(probe, "/metrics").unwrap().body.len() > size / 2, "{what}");
        assert_bounded(what);
    }
    let pipelines: Vec<TcpStream> = (0..100).map(|_| pipeline(port, "/metrics")).collect();
    assert_eq!(http::get(port, "/v1/ids/default?count=1000").unwrap().status, 200);
    assert_bounded("unread pipelines");
    drop(pipelines);
    assert!(server.metric("snowmint_requests_total{protocol=\"http\",outcome=\"too-many-unread\"}") > 0.0);
    time::eventually("the memory is given back", PATIENCE, || {
        (server::rss_kib(server.pid()) < before + 8 * 1024).then_some(())
    });
}
