//! noeqd's protocol, with a client as its authors intended: ten lines of Python without a library.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::path::Path;
use std::time::Duration;

use snowmint_test_servers::port;
use snowmint_test_servers::snowmint::ids::increase;
use snowmint_test_servers::snowmint::third_party::output;
use snowmint_test_servers::snowmint::{Ids, Serve, Server, binary};

const PATIENCE: Duration = Duration::from_secs(30);

const CLIENT: &str = "
import socket, struct, sys
server = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def take(count):
    server.sendall(bytes([count]))
    answer = b''
    while len(answer) < 8 * count: answer += server.recv(8 * count - len(answer)) or sys.exit('closed')
    return struct.unpack('>%dQ' % count, answer)
for count in [1, 2, 255, 22, 3, 1] * 20:
    for id in take(count): print(id)
";

fn serve(folder: &Path, args: &[&str]) -> (Server, SocketAddrV4) {
    let noeqd = port::free();
    let server = Serve::new(folder).args(["--noeqd", &noeqd.to_string()]).args(args).start();
    (server, noeqd)
}

/// Sends bytes, closes the sending side, and returns what the server sends until it closes.
fn said(address: SocketAddrV4, bytes: &[u8]) -> Vec<u8> {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(bytes).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut said = Vec::new();
    client.read_to_end(&mut said).unwrap();
    said
}

fn ids(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|id| u64::from_be_bytes(id.try_into().unwrap())).collect()
}

/// Goal: a web page cannot use up ids: bytes that begin like a request of HTTP, or like TLS, get none.
#[test]
fn a_request_of_http_takes_no_ids() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = serve(folder.path(), &[]);
    for request in [
        "POST / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "GET /x HTTP/1.1\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\n",
        "\x16\x03\x01\x02\0\x01\0\x01\x7c\x03\x03",
    ] {
        assert_eq!(said(address, request.as_bytes()), b"", "{request}");
    }
}

/// Goal: a plain client gets increasing ids of the layout, one by one and by the hundred; pipelined requests too.
#[test]
fn a_client_of_ten_lines_gets_ids() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = serve(folder.path(), &[]);
    let printed = output("python3", ["-c", CLIENT, &address.port().to_string()]);
    let drawn: Vec<u64> = printed.lines().map(|id| id.parse().unwrap()).collect();
    assert!(drawn.len() == 284 * 20 && increase(&drawn), "{} ids", drawn.len());
    let mut all = Ids::new();
    all.add(&drawn);
    // More than any buffer at once; and three requests that look like the beginning of TLS.
    let many = ids(&said(address, &[255; 1000]));
    assert!(many.len() == 255_000 && increase(&many));
    all.add(&many);
    let few = ids(&said(address, &[22, 3, 1]));
    assert_eq!(few.len(), 26);
    all.add(&few);
    all.add(&server.take(1000));
    all.assert_unique();
    assert!((drawn[0] >> 12) & 31 == (many[0] >> 12) & 31, "the worker of this node");
    let metrics = server.get("/metrics").body;
    for line in [
        "snowmint_requests_total{protocol=\"noeqd\",outcome=\"ok\"} 1123",
        "snowmint_request_duration_seconds_count{protocol=\"noeqd\"} 1123",
        "snowmint_connections{protocol=\"noeqd\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}:\n{metrics}");
    }
}

/// Goal: an invalid request ends the connection, after the answers to earlier requests, and is counted.
#[test]
fn errors_close_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let namespaces = folder.path().join("ns.toml");
    std::fs::write(
        &namespaces,
        "[namespaces.keys]\nscheme = 'uuid7'\n[namespaces.orders]\nscheme = 'segment'\n",
    )
    .unwrap();
    let file = ["--namespaces-file", namespaces.to_str().unwrap()];
    let (server, address) = serve(folder.path(), &file);
    // A token although none is configured, which noeqd ignores; an incomplete one too.
    assert_eq!(said(address, b"\x02\0\x03abc\x01").len(), 16);
    assert_eq!(said(address, b"\0\xffabc").len(), 0);
    let refused = |server: &Server, kind: &str| {
        let line = format!("snowmint_requests_total{{protocol=\"noeqd\",outcome=\"{kind}\"}} 1\n");
        let metrics = server.get("/metrics").body;
        assert!(metrics.contains(&line), "{kind}:\n{metrics}");
    };
    refused(&server, "bad-request");
    server.stop();

    let (server, address) = serve(folder.path(), &[&file[..], &["--noeqd-namespace", "keys"]].concat());
    assert_eq!(said(address, b"\x01").len(), 0);
    refused(&server, "wrong-scheme");
    server.stop();
    let (server, address) = serve(folder.path(), &[&file[..], &["--noeqd-namespace", "none"]].concat());
    assert_eq!(said(address, b"\x01").len(), 0);
    refused(&server, "unknown-namespace");
    server.stop();
    let (_server, address) = serve(folder.path(), &[&file[..], &["--noeqd-namespace", "orders"]].concat());
    assert_eq!(ids(&said(address, b"\x03\x02")), [1, 2, 3, 4, 5]);
}

/// Goal: a client that never completes its request, one that stays silent, and one that reads nothing are closed.
#[test]
fn slow_clients_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let limits = ["--request-timeout", "300ms", "--idle-timeout", "1s", "--write-timeout", "500ms"];
    let (server, address) = serve(folder.path(), &limits);
    for begin in [&b"\0\x05a"[..], b""] {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(begin).unwrap();
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "{begin:?}");
    }
    let mut client = TcpStream::connect(address).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    let closed = (0..10_000).find_map(|_| client.write_all(&[255; 4096]).err());
    let kind = closed.expect("the server closes a client that reads nothing").kind();
    assert_ne!(kind, std::io::ErrorKind::WouldBlock, "the server neither reads nor closes");
    assert_eq!(server.take(10).len(), 10);
}

/// Goal: if tokens are configured, only a connection that begins with a valid one gets ids, and only of its namespaces. Method:
/// noeqd's own frame for tokens, with the ids requested in the same packet.
#[test]
fn a_connection_begins_with_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens.toml");
    let create = |name: &str, namespaces: &str| {
        let args = ["token", "create", name, "--namespaces", namespaces, "--file", file.to_str().unwrap()];
        output(binary().to_str().unwrap(), args).trim().to_owned()
    };
    let (web, other) = (create("web", "default"), create("other", "orders"));
    let noeqd = port::free();
    let args = ["--noeqd", &noeqd.to_string(), "--tokens-file", file.to_str().unwrap()];
    let server = Serve::new(folder.path()).args(args).spawn();
    server.log_with("ready: ids are served", PATIENCE);
    let frame = |token: &str| [&[0, u8::try_from(token.len()).unwrap()], token.as_bytes()].concat();
    let drawn = ids(&said(noeqd, &[&frame(&web)[..], &[2, 3]].concat()));
    assert!(drawn.len() == 5 && increase(&drawn), "{drawn:?}");
    for (what, request) in [
        ("no token", vec![2]),
        ("a wrong secret", [frame(&web[..web.len() - 4]), vec![2]].concat()),
        ("a token for others", [frame(&other), vec![2]].concat()),
        ("a second token", [frame(&web), frame(&web), vec![2]].concat()),
    ] {
        assert_eq!(said(noeqd, &request), b"", "{what}");
    }
    // A valid token alone: a request that succeeds and takes no ids.
    assert_eq!(said(noeqd, &frame(&web)), b"");
    // Rejected requests count for their token; a wrong secret counts for none.
    let metrics = server.get("/metrics").body;
    for line in [
        "snowmint_token_requests_total{token=\"other\",outcome=\"forbidden\"} 1\n",
        "snowmint_token_requests_total{token=\"web\",outcome=\"bad-request\"} 1\n",
        "snowmint_requests_total{protocol=\"noeqd\",outcome=\"unauthorized\"} 2\n",
        // Two requests for ids, and four tokens.
        "snowmint_requests_total{protocol=\"noeqd\",outcome=\"ok\"} 6\n",
        "snowmint_token_requests_total{token=\"web\",outcome=\"ok\"} 5\n",
        "snowmint_token_ids_total{token=\"web\"} 5\n",
        "snowmint_ids_issued_total{namespace=\"default\"} 5\n",
    ] {
        assert!(metrics.contains(line), "{line}:\n{metrics}");
    }
    assert!(!metrics.contains("token=\"web\",outcome=\"unauthorized\""), "{metrics}");
}
