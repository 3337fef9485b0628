//! Input cannot grow memory or stack without bound, and an abusive client does not affect others.
//!
//! Each test abuses the server in one way, watches its memory in `/proc`, and draws ids like other clients.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use snowmint_test_servers::snowmint::raw_clients::{THRIFT_GET_ID, grpc_stream};
use snowmint_test_servers::snowmint::resp::command;
use snowmint_test_servers::snowmint::{Resp, Serve, Server, server};
use snowmint_test_servers::{port, time};

const MAX_RSS_KIB: u64 = 64 * 1024;

/// Checks that memory stayed within the bound, and that other clients are served.
fn assert_unharmed(server: &Server) {
    let peak = server::peak_rss_kib(server.pid());
    assert!(peak < MAX_RSS_KIB, "the server grew to {peak} KiB");
    assert_eq!(server.take(1000).len(), 1000);
    assert_eq!(server.get("/v1/ids/default?count=10").ids().unwrap().len(), 10);
}

/// Sends a piece repeatedly, up to a number of bytes or until the server closes. Returns the server's answer.
fn flood(server: &Server, start: &[u8], piece: &[u8], bytes: usize) -> String {
    let mut client = server.client();
    client.write(start).unwrap();
    let mut sent = 0;
    while sent < bytes {
        match client.write(piece) {
            Ok(()) => sent += piece.len(),
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::TimedOut, "the server neither reads nor closes");
                break;
            }
        }
    }
    said(client)
}

/// Returns everything that the server sends until it closes.
fn said(mut client: Resp) -> String {
    client.socket().shutdown(Shutdown::Write).ok();
    match client.read_unless_closed() {
        Ok(Some(reply)) => reply.error(),
        Ok(None) => "closed".to_owned(),
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
            "reset".to_owned()
        }
        Err(error) => panic!("{error}"),
    }
}

/// Goal: a length that is too large is refused when the header is read, before its bytes arrive.
#[test]
fn announced_lengths() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    for (header, word) in [
        ("*2\r\n$7\r\nID.NEXT\r\n$536870912\r\n", "bulk"),
        ("*2\r\n$7\r\nID.NEXT\r\n$-5\r\n", "bulk"),
        ("*1048576\r\n", "multibulk"),
        ("*9999999999999999999999\r\n", "multibulk"),
        ("*1\r\n*1\r\n", "expected '$'"),
        ("*2\r\n$4294967296\r\n", "bulk"),
    ] {
        let mut client = server.client();
        client.write(header.as_bytes()).unwrap();
        let error = client.read().unwrap().error();
        assert!(error.starts_with("ERR ") && error.contains(word), "{header:?}: {error}");
        assert!(client.read_unless_closed().unwrap().is_none(), "{header:?}: the rest cannot be understood");
    }
    assert_unharmed(&server);
}

/// Goal: endless input is cut off. Method: 64 MiB of each kind.
#[test]
fn endless_input() {
    const FLOOD: usize = 64 << 20;
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let piece = |text: &[u8]| text.repeat((1 << 16) / text.len());
    let line = flood(&server, b"", &piece(b"a"), FLOOD);
    let blanks = flood(&server, b"PING", &piece(b" "), FLOOD);
    let nested = flood(&server, b"", &piece(b"*1\r\n"), FLOOD);
    let bulk = flood(&server, b"*2\r\n$4\r\nPING\r\n$536870912\r\n", &piece(b"a"), FLOOD);
    let header = flood(&server, b"*2\r\n$4\r\nPING\r\n$", &piece(b"1"), FLOOD);
    for text in [&line, &blanks, &nested, &bulk, &header] {
        assert!(text.starts_with("ERR Protocol error") || text == "reset", "{text}");
    }
    println!("line: {line}; blanks: {blanks}; nested: {nested}; bulk: {bulk}; header: {header}");
    assert_unharmed(&server);
}

/// Goal: a client that asks for 1 billion ids and reads none blocks only itself.
#[test]
fn replies_that_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let request = command(&["ID.NEXT", "default", "COUNT", "100000"]).repeat(10_000);
    let stuck: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(server.resp()).unwrap();
            // The server may not read all of it, because its own answer is blocked.
            stream.set_nonblocking(true).unwrap();
            let mut rest = &request[..];
            let started = time::now();
            while !rest.is_empty() && started.elapsed() < Duration::from_millis(500) {
                match stream.write(rest) {
                    Ok(written) => rest = &rest[written..],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            stream
        })
        .collect();
    for _ in 0..10 {
        assert_unharmed(&server);
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("peak {} KiB with {} stuck clients", server::peak_rss_kib(server.pid()), stuck.len());
    drop(stuck);
    time::eventually("their connections are gone", Duration::from_secs(10), || {
        (server.metric("snowmint_connections") < 2.5).then_some(())
    });
    assert_unharmed(&server);
}

/// Goal: the same over HTTP, whose answer is sent in pieces.
#[test]
fn answers_that_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let request = "GET /v1/ids/default?count=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
    let stuck: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(server.http()).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    for _ in 0..10 {
        assert_unharmed(&server);
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("peak {} KiB with {} stuck clients", server::peak_rss_kib(server.pid()), stuck.len());
    drop(stuck);
    time::eventually("their connections are gone", Duration::from_secs(10), || {
        (server.metric("snowmint_connections") < 1.5).then_some(())
    });
    assert_unharmed(&server);
}

/// Goal: the same over gRPC: its calls wait, and the server makes ids only for answers that are read.
#[test]
fn streams_that_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let grpc = port::free();
    let server = Serve::new(folder.path()).args(["--grpc", &grpc.to_string()]).start();
    let stuck: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(grpc).unwrap();
            stream.write_all(&grpc_stream(100, 100_000)).unwrap();
            stream
        })
        .collect();
    for _ in 0..10 {
        assert_unharmed(&server);
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("peak {} KiB with {} stuck clients", server::peak_rss_kib(server.pid()), stuck.len());
    drop(stuck);
    time::eventually("their connections are gone", Duration::from_secs(10), || {
        (server.metric("snowmint_connections") < 1.5).then_some(())
    });
    assert_unharmed(&server);
}

/// Goal: a client that does not read its answer is disconnected after the write timeout, in every protocol.
/// Method: one client of each, with a timeout of 1 s.
#[test]
fn a_client_that_takes_nothing_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (thrift, grpc) = (port::free(), port::free());
    let serve =
        Serve::new(folder.path()).args(["--thrift", &thrift.to_string(), "--grpc", &grpc.to_string()]);
    let server = serve.args(["--write-timeout", "1s"]).start();
    let mut deaf_to_grpc = TcpStream::connect(grpc).unwrap();
    deaf_to_grpc.write_all(&grpc_stream(20, 100_000)).unwrap();
    // A reply is small, so it takes many calls until the server cannot send.
    let deaf_to_thrift = TcpStream::connect(thrift).unwrap();
    deaf_to_thrift.set_nonblocking(true).unwrap();
    let calls = THRIFT_GET_ID.repeat(10_000);
    let mut at = 0;
    time::eventually("the server reads no more calls", Duration::from_mins(1), || {
        let before = at;
        std::thread::sleep(Duration::from_millis(300));
        let stopped = loop {
            match (&deaf_to_thrift).write(&calls[at % THRIFT_GET_ID.len()..]) {
                Ok(written) => at += written,
                Err(error) => break error,
            }
        };
        let is_cut = stopped.kind() != ErrorKind::WouldBlock;
        (is_cut || (before > 0 && at == before)).then_some(())
    });
    let request = "GET /v1/ids/default?count=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(20);
    let mut deaf = TcpStream::connect(server.http()).unwrap();
    deaf.write_all(request.as_bytes()).unwrap();
    let mut deaf_to_resp = server.client();
    deaf_to_resp.write(&command(&["ID.NEXT", "default", "COUNT", "100000"]).repeat(20)).unwrap();
    for protocol in ["http", "resp", "thrift", "grpc"] {
        // The request for the metrics uses a connection too.
        let most = if protocol == "http" { 1.5 } else { 0.5 };
        let name = format!("snowmint_connections{{protocol=\"{protocol}\"}}");
        time::eventually("its connection is gone", Duration::from_mins(1), || {
            (server.metric(&name) < most).then_some(())
        });
    }
    drop((deaf, deaf_to_resp, deaf_to_thrift, deaf_to_grpc));
    assert_unharmed(&server);
}

/// Goal: hundreds of clients that send a byte now and then cost no more than their connections.
#[test]
fn slow_loris() {
    const CLIENTS: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let (thrift, grpc) = (port::free(), port::free());
    let serve =
        Serve::new(folder.path()).args(["--thrift", &thrift.to_string(), "--grpc", &grpc.to_string()]);
    let server = serve.args(["--request-timeout", "2s"]).start();
    let http = b"GET /v1/ids/default HTTP/1.1\r\nX: y".to_vec();
    let ports = [
        (server.http(), http.clone()),
        (server.resp(), http.clone()),
        (thrift, THRIFT_GET_ID[..30].to_vec()),
        (grpc, grpc_stream(1, 1)[..http.len()].to_vec()),
    ];
    let mut slow: Vec<(TcpStream, &[u8])> = (0..CLIENTS)
        .map(|i| {
            let (address, trickle) = &ports[i % ports.len()];
            (TcpStream::connect(address).unwrap(), &trickle[..])
        })
        .collect();
    for at in 0..http.len() {
        for (stream, trickle) in &mut slow {
            stream.write_all(trickle.get(at..=at).unwrap_or_default()).ok();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_unharmed(&server);
    // None of them got further, and their time limit has passed.
    for protocol in ["http", "resp", "thrift", "grpc"] {
        let most = if protocol == "http" { 1.5 } else { 0.5 };
        let name = format!("snowmint_connections{{protocol=\"{protocol}\"}}");
        time::eventually("its slow clients are gone", Duration::from_mins(1), || {
            (server.metric(&name) < most).then_some(())
        });
    }
    println!("peak {} KiB with {CLIENTS} slow clients", server::peak_rss_kib(server.pid()));
}

/// Goal: memory returns after thousands of connections, in every protocol. Method: clients send one request,
/// wait, and close.
#[test]
fn memory_comes_back_after_a_crowd() {
    const CROWD: usize = 3000;
    const SPARE_KIB: u64 = 8 * 1024;
    raise_open_files();
    let folder = tempfile::tempdir().unwrap();
    let (thrift, grpc) = (port::free(), port::free());
    let serve =
        Serve::new(folder.path()).args(["--thrift", &thrift.to_string(), "--grpc", &grpc.to_string()]);
    let server = serve.start();
    let before = server::rss_kib(server.pid());
    let (mut crowd, streamed) = (Vec::new(), grpc_stream(1, 100));
    for i in 0..CROWD {
        let (address, request): (_, &[u8]) = match i % 4 {
            0 => (server.http(), b"GET /v1/ids/default?count=100 HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            1 => (server.resp(), b"ID.NEXT default COUNT 100\r\n"),
            2 => (thrift, THRIFT_GET_ID),
            _ => (grpc, &streamed),
        };
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        crowd.push(stream);
    }
    for stream in &mut crowd {
        assert!(stream.read(&mut [0; 64]).unwrap() > 0, "an answer");
    }
    let crowded = server::rss_kib(server.pid());
    drop(crowd);
    let left = time::eventually("memory comes back", Duration::from_secs(20), || {
        Some(server::rss_kib(server.pid())).filter(|now| *now < before + SPARE_KIB)
    });
    println!("{before} KiB, {crowded} KiB with {CROWD} clients, {left} KiB after them");
    assert!(crowded > before + 2 * SPARE_KIB, "{crowded} KiB: the crowd is too small to show anything");
}

/// Raises the limit of open files: a test that opens thousands of connections needs them for its own ends.
fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Goal: the server raises its soft limit of open files, which is low by default. Method: more clients than
/// that limit, all of which are served at once.
#[test]
fn the_soft_limit_of_open_files_is_raised() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).open_files(64, 4096).start();
    let mut clients: Vec<Resp> = (0..300).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.next("default", 1).unwrap().unwrap().len(), 1);
    }
    assert!((server.metric("process_max_fds") - 4096.0).abs() < 0.5);
    assert!(server.log().contains("connection limit lowered"), "{}", server.log());
}

/// Goal: with few open files, a flood on either port takes only the places of clients: health checks are
/// answered, an honest client is served, and the log stays short. Method: 64 open files, hundreds of silent
/// clients.
#[test]
fn a_flood_where_open_files_are_few() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).open_files(64, 64).start();
    let mut honest = server.client();
    honest.next("default", 1).unwrap().unwrap();
    let mut silent = Vec::new();
    for _ in 0..5 {
        for _ in 0..60 {
            silent.extend([server.http(), server.resp()].map(|address| TcpStream::connect(address).unwrap()));
        }
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(server.get(path).status, 200, "{path}");
        }
        assert_eq!(honest.next("default", 1).unwrap().unwrap().len(), 1);
    }
    let log = server.log_with("connection limit reached", Duration::from_secs(30));
    assert!(log.contains("connection limit lowered"), "{log}");
    assert!(!log.contains("cannot accept"), "{log}");
    assert!(log.matches("WARN").count() <= 4, "{log}");
}

/// Goal: invalid or oversized HTTP (request line, headers, body) gets an error and is bounded. Method: a
/// little too much, which must be answered, and far too much, where the answer may be lost while the client
/// still sends.
#[test]
fn http_beyond_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let long = |bytes| "a".repeat(bytes);
    let (little, much) = (20 << 10, 1 << 20);
    let headers = |count| "X-Y: z\r\n".repeat(count);
    for (request, statuses) in [
        (format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", long(little)), &["400", "414", "431"][..]),
        (format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", long(much)), &["400", "414", "431", "reset"]),
        (format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", long(little)), &["400", "431"]),
        (
            format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", long(much)),
            &["400", "431", "reset"],
        ),
        (format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{}\r\n", headers(100)), &["400", "431"]),
        (
            format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{}\r\n", headers(10_000)),
            &["400", "431", "reset"],
        ),
        ("GET /healthz HTTP/9.9\r\n\r\n".to_owned(), &["400", "505"]),
        ("nonsense\r\n\r\n".to_owned(), &["400"]),
        (
            "POST /v1/ids/default HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\nx"
                .to_owned(),
            &["400", "413"],
        ),
    ] {
        let mut stream = TcpStream::connect(server.http()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The server may close before everything is sent.
        stream.write_all(request.as_bytes()).ok();
        let mut start = [0; 12];
        let what = format!("{} bytes, {}", request.len(), &request[..request.len().min(60)]);
        let said = match stream.read_exact(&mut start) {
            Ok(()) => String::from_utf8_lossy(&start[9..]).into_owned(),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => "reset".to_owned(),
            Err(error) => panic!("{what}: {error}"),
        };
        assert!(statuses.contains(&said.as_str()), "{what}: {said}");
    }
    assert_unharmed(&server);
}
