//! TLS on every port, and Unix sockets, with third-party clients: curl, redis-cli, redis-py, Apache's Thrift
//! and openssl.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use snowmint_test_servers::snowmint::third_party::{output, python, run};
use snowmint_test_servers::snowmint::{self, Ids, Serve, Server, Signal, http, workspace};
use snowmint_test_servers::{Certificates, port, time};

const PATIENCE: Duration = Duration::from_secs(30);

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A server with the files of these certificates and more arguments.
fn serve(folder: &Path, certificates: &Certificates, args: &[&str]) -> Server {
    let files = ["--tls-cert", text(certificates.certificate()), "--tls-key", text(certificates.key())];
    ready(&Serve::new(folder).args(files).args(args))
}

/// Starts a server whose HTTP port the harness cannot call.
fn ready(serve: &Serve) -> Server {
    let server = serve.spawn();
    server.log_with("ready: ids are served", PATIENCE);
    server
}

/// Returns curl's output for a path, with the CA that it trusts.
fn curl(server: &Server, authority: &Path, path: &str, args: &[&str]) -> Result<String, String> {
    let url = format!("https://localhost:{}{path}", server.http().port());
    let words = ["-sS", "--max-time", "20", "--cacert", text(authority), &url];
    let done = run("curl", words.iter().chain(args));
    let said = snowmint::text(&done);
    if done.status.success() { Ok(said) } else { Err(said) }
}

fn redis_cli(server: &Server, authority: &Path, args: &[&str]) -> String {
    let port = server.resp().port().to_string();
    let words = ["-p", &port, "--tls", "--cacert", text(authority)];
    snowmint::text(&run("redis-cli", words.iter().chain(args)))
}

fn ids(text: &str) -> Vec<u64> {
    let digits = text.split(|it: char| !it.is_ascii_digit()).filter(|word| !word.is_empty());
    digits.map(|id| id.parse().unwrap_or_else(|_| panic!("{text}"))).collect()
}

/// Returns the number of failed handshakes, from metrics in plain text.
fn failures(metrics: &str, protocol: &str) -> u64 {
    let line = metrics.lines().find(|line| {
        line.starts_with("snowmint_requests_total")
            && line.contains(&format!("protocol=\"{protocol}\""))
            && line.contains("outcome=\"bad-tls\"")
    });
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{metrics}"))
}

/// Goal: real clients draw ids over TLS in each protocol: one, pipelined, more than any buffer; connections
/// end cleanly.
#[test]
fn every_port_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make();
    let authority = certificates.authority();
    let thrift = port::free();
    let mut server = serve(folder.path(), &certificates, &["--thrift", &thrift.to_string()]);
    let mut all = Ids::new();

    all.add(&ids(&curl(&server, authority, "/v1/ids/default", &["-H", "accept: text/plain"]).unwrap()));
    let many = curl(&server, authority, "/v1/ids/default?count=100000", &["-H", "accept: text/plain"]);
    let many = ids(&many.unwrap());
    assert_eq!(many.len(), 100_000);
    all.add(&many);
    for (flag, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let args = [flag, "-o", "/dev/null", "-w", "%{http_version}"];
        assert_eq!(curl(&server, authority, "/v1/ids/default", &args).unwrap(), version);
    }
    let many = ids(&redis_cli(&server, authority, &["ID.NEXT", "default", "COUNT", "20000"]));
    assert_eq!(many.len(), 20_000);
    all.add(&many);

    let script = format!(
        "import redis, ssl, socket, sys\n\
         client = redis.Redis(port={resp}, host='localhost', ssl=True, ssl_ca_certs={authority:?}, protocol=3)\n\
         pipe = client.pipeline(transaction=False)\n\
         for _ in range(5000): pipe.execute_command('ID.NEXT', 'default')\n\
         for id in pipe.execute(): print(int(id))\n\
         context = ssl.create_default_context(cafile={authority:?})\n\
         # A cut connection would be an error, since no ragged end is suppressed.\n\
         def ends(port, request):\n\
         \x20   with context.wrap_socket(socket.create_connection(('localhost', port)), server_hostname='localhost',\n\
         \x20                            suppress_ragged_eofs=False) as client:\n\
         \x20       client.sendall(request)\n\
         \x20       while client.recv(4096): pass\n\
         ends({resp}, b'QUIT\\r\\n')\n\
         ends({http}, b'GET /healthz HTTP/1.1\\r\\nhost: localhost\\r\\nconnection: close\\r\\n\\r\\n')\n",
        resp = server.resp().port(),
        http = server.http().port(),
    );
    let said = ids(&python("redis", &script, &[]));
    assert_eq!(said.len(), 5000);
    all.add(&said);

    let interface = workspace().join("crates/snowmint-server/snowflake.thrift");
    output("thrift", ["--gen", "py", "-out", text(folder.path()), text(&interface)]);
    let script = format!(
        "import sys; sys.path.insert(0, {folder:?})\n\
         from thrift.transport import TSSLSocket, TTransport\n\
         from thrift.protocol.TBinaryProtocol import TBinaryProtocol\n\
         from snowflake import Snowflake\n\
         socket = TSSLSocket.TSSLSocket('localhost', {port}, ca_certs={authority:?})\n\
         transport = TTransport.TFramedTransport(socket)\n\
         client = Snowflake.Client(TBinaryProtocol(transport)); transport.open()\n\
         for _ in range(1000): print(client.get_id('web'))\n",
        folder = folder.path(),
        port = thrift.port(),
    );
    let said = ids(&python("thrift", &script, &[]));
    assert_eq!(said.len(), 1000);
    all.add(&said);
    all.assert_unique();

    // A waiting client also learns that the server stops.
    let waiting = format!(
        "import ssl, socket\n\
         context = ssl.create_default_context(cafile={authority:?})\n\
         client = context.wrap_socket(socket.create_connection(('localhost', {resp})), server_hostname='localhost',\n\
         \x20                            suppress_ragged_eofs=False)\n\
         client.sendall(b'PING\\r\\n'); assert client.recv(100) == b'+PONG\\r\\n'\n\
         import os, signal; os.kill({pid}, signal.SIGTERM)\n\
         assert client.recv(100) == b''\n",
        resp = server.resp().port(),
        pid = server.pid(),
    );
    python("ssl", &waiting, &[]);
    let ended = server.ended();
    assert!(ended.status.success(), "{}", ended.log);
}

/// Goal: a request that arrives together with the end of the handshake is answered at once, although no more
/// bytes follow.
#[test]
fn a_request_in_the_last_packet_of_the_handshake() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make();
    let server = serve(folder.path(), &certificates, &[]);
    let script = format!(
        "import socket, ssl\n\
         context = ssl.create_default_context(cafile={:?})\n\
         incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()\n\
         client = context.wrap_bio(incoming, outgoing, server_hostname='localhost')\n\
         tcp = socket.create_connection(('localhost', {}), timeout=20)\n\
         while True:\n\
         \x20   try: client.do_handshake(); break\n\
         \x20   except ssl.SSLWantReadError: tcp.sendall(outgoing.read()); incoming.write(tcp.recv(65536))\n\
         # What ends the handshake has not been sent yet.\n\
         assert outgoing.pending > 0\n\
         client.write(b'PING\\r\\n'); tcp.sendall(outgoing.read())\n\
         while True:\n\
         \x20   try: print(client.read(100).decode().strip()); break\n\
         \x20   except ssl.SSLWantReadError: incoming.write(tcp.recv(65536))\n",
        certificates.authority(),
        server.resp().port(),
    );
    assert_eq!(python("ssl", &script, &[]).trim(), "+PONG");
}

/// Goal: only clients with a certificate of the right CA get ids; the others are counted.
#[test]
fn client_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, others) = (Certificates::make(), Certificates::make());
    let server = serve(folder.path(), &ours, &["--tls-client-ca", text(ours.authority())]);
    let named = |from: &Certificates| {
        [text(from.client_certificate()).to_owned(), text(from.client_key()).to_owned()]
    };
    let [certificate, key] = named(&ours);
    let known = ["--cert", certificate.as_str(), "--key", key.as_str()];
    let [certificate, key] = named(&others);
    let unknown = ["--cert", certificate.as_str(), "--key", key.as_str()];
    let path = "/v1/ids/default";
    assert!(curl(&server, ours.authority(), path, &known).unwrap().contains("ids"));
    for refused in [&[][..], &unknown] {
        let said = curl(&server, ours.authority(), path, refused).unwrap_err();
        assert!(said.contains("alert") && !said.contains("ids"), "{said}");
        let said = redis_cli(&server, ours.authority(), &[refused, &["ID.NEXT", "default"]].concat());
        assert!(!said.contains("1234567") && ids(&said).iter().all(|id| *id < 1 << 40), "{said}");
    }
    let said = redis_cli(&server, ours.authority(), &[&known[..], &["ID.NEXT", "default"]].concat());
    assert_eq!(ids(&said).len(), 1, "{said}");
    let metrics = curl(&server, ours.authority(), "/metrics", &known).unwrap();
    assert_eq!((failures(&metrics, "http"), failures(&metrics, "resp")), (2, 2), "{metrics}");
    for protocol in ["http", "resp"] {
        server.log_with(&format!("TLS handshake failed protocol=\"{protocol}\""), PATIENCE);
    }
    let log = server.log();
    assert_eq!(log.matches("TLS handshake failed").count(), 2, "a line a minute for each protocol:\n{log}");
}

/// Goal: if clients need a certificate, health checks and Prometheus have a port that needs none and serves
/// nothing else: even at the connection limit, and until the service stops.
#[test]
fn probes_without_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make();
    let probe = port::free();
    let authority = text(certificates.authority());
    let flags = ["--tls-client-ca", authority, "--probe", &probe.to_string(), "--max-connections", "1"];
    let mut server = serve(folder.path(), &certificates, &[&flags[..], &["--drain-delay", "1m"]].concat());
    let get = |path: &str| http::get(probe, path).unwrap();
    let _holds_it = TcpStream::connect(server.resp()).unwrap();
    assert_eq!((get("/healthz").status, get("/readyz").status), (200, 200));
    assert!(get("/metrics").body.contains("snowmint_lease_held 1"));
    for path in [
        "/v1/ids/default",
        "/v1/inspect/1",
        "/api/snowflake/get/default",
        "/openapi.json",
        "/v1/ranges/default",
    ] {
        let answer = get(path);
        assert!(
            answer.status == 404 && answer.body.contains("this port serves /healthz, /readyz"),
            "{path}: {answer:?}"
        );
    }
    let over_http2 = |path: &str| {
        let url = format!("http://{probe}{path}");
        output(
            "curl",
            ["-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code} %{http_version}", &url],
        )
    };
    assert_eq!((over_http2("/readyz"), over_http2("/v1/ids/default")), ("200 2".into(), "404 2".into()));
    let call = format!("http://{probe}/snowmint.v1.Snowmint/Next");
    let words =
        ["-sS", "--http2-prior-knowledge", "-H", "content-type: application/grpc", "--data-binary", "", "-i"];
    let refused = output("curl", words.iter().chain(&[call.as_str()]));
    assert!(refused.contains("grpc-status: 12"), "{refused}");
    let named = |host: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        plain(probe, request.as_bytes())
    };
    assert!(named("evil.example").starts_with("HTTP/1.1 421 "), "a page of another site");
    // Idle connections of probes are replaced. They have a limit of their own, which is reached.
    let idle: Vec<_> = (0..200).map(|_| TcpStream::connect(probe).unwrap()).collect();
    assert_eq!(get("/healthz").status, 200);
    let metrics = get("/metrics").body;
    let open =
        metrics.lines().find_map(|line| line.strip_prefix("snowmint_connections{protocol=\"probe\"} "));
    assert!((1..=64).contains(&open.unwrap().parse::<u32>().unwrap()), "{metrics}");
    let replaced = "snowmint_requests_total{protocol=\"probe\",outcome=\"too-many-clients\"} ";
    let replaced = metrics.lines().find_map(|line| line.strip_prefix(replaced)).unwrap();
    assert!(replaced.parse::<u32>().unwrap() >= 136, "{metrics}");
    assert!(metrics.contains("snowmint_requests_total{protocol=\"probe\",outcome=\"ok\"} "), "{metrics}");
    assert!(metrics.contains("snowmint_connections{protocol=\"http\"} 0\n"), "{metrics}");
    let log = server.log_with("connection limit of --probe (64) reached", PATIENCE);
    assert!(!log.contains("raise --max-connections"), "{log}");
    drop(idle);
    server.signal(Signal::TERM);
    time::eventually("not ready", PATIENCE, || (get("/readyz").status == 503).then_some(()));
    assert_eq!(get("/healthz").status, 200);
    server.kill();
}

/// Goal: new files are used without a restart, when they change or SIGHUP arrives; invalid ones change
/// nothing; open connections stay.
#[test]
fn certificates_are_reloaded() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second, third) = (Certificates::make(), Certificates::make(), Certificates::make());
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let install = |from: &Certificates| {
        fs::copy(from.certificate(), &certificate).unwrap();
        fs::copy(from.key(), &key).unwrap();
    };
    install(&first);
    let files = ["--tls-cert", text(&certificate), "--tls-key", text(&key)];
    let server = ready(&Serve::new(folder.path()).args(files));
    let trusts = |authority: &Path| curl(&server, authority, "/healthz", &[]).is_ok();
    assert!(trusts(first.authority()) && !trusts(second.authority()));
    let log = fs::read_dir(folder.path()).unwrap().flatten().map(|file| file.path());
    let log = { log }.find(|path| path.extension().is_some_and(|it| it == "log")).unwrap();
    let held = format!(
        "import ssl, socket, sys, time\n\
         context = ssl.create_default_context(cafile={:?})\n\
         client = context.wrap_socket(socket.create_connection(('localhost', {})), server_hostname='localhost')\n\
         for _ in range(600):\n\
         \x20   client.sendall(b'PING\\r\\n'); assert client.recv(100) == b'+PONG\\r\\n'\n\
         \x20   if b'reloaded' in open({log:?}, 'rb').read(): sys.exit(0)\n\
         \x20   time.sleep(0.05)\n\
         sys.exit('no reload')\n",
        first.authority(),
        server.resp().port(),
    );
    std::thread::scope(|scope| {
        let client = scope.spawn(|| python("ssl", &held, &[]));
        install(&second);
        server.log_with("TLS files reloaded", PATIENCE);
        client.join().expect("the open connection stays");
    });
    assert!(trusts(second.authority()) && !trusts(first.authority()));

    // A certificate without its key, like between two copies, and then no certificate at all.
    fs::copy(third.certificate(), &certificate).unwrap();
    server.hang_up();
    let log = server.log_with("TLS files not reloaded", PATIENCE);
    assert!(log.contains("the key is not that of the certificate"), "{log}");
    fs::write(&certificate, "no certificate").unwrap();
    server.log_with("expected PEM with -----BEGIN CERTIFICATE-----", PATIENCE);
    assert!(trusts(second.authority()) && !trusts(third.authority()));

    install(&third);
    server.hang_up();
    time::eventually("the third certificate", PATIENCE, || trusts(third.authority()).then_some(()));
    server.stop();
}

/// Goal: an operator learns in time that a certificate expires: from the log, and from a metric that follows
/// the file. Method: the server's certificate, signed again for ten days, and then replaced by one for a
/// month.
#[test]
fn a_certificate_that_expires_soon_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make();
    let (short, copied) = (folder.path().join("short.pem"), folder.path().join("cert.pem"));
    let request = certificates.folder().join("server.csr");
    let (authority, key) = (certificates.authority(), certificates.folder().join("ca.key"));
    let extensions = certificates.folder().join("extensions");
    let words = ["x509", "-req", "-in", text(&request), "-CA", text(authority), "-CAkey", text(&key)];
    let more = ["-CAcreateserial", "-out", text(&short), "-days", "10", "-extfile", text(&extensions)];
    output("openssl", words.iter().chain(&more));
    fs::copy(&short, &copied).unwrap();
    let files = ["--tls-cert", text(&copied), "--tls-key", text(certificates.key())];
    let server = ready(&Serve::new(folder.path()).args(files));
    let log = server.log_with("TLS certificate expires soon", PATIENCE);
    assert!(log.contains("days_left=9") && log.contains("cert.pem"), "{log}");
    let days_left = || {
        let metrics = curl(&server, authority, "/metrics", &[]).unwrap();
        let name = "snowmint_tls_certificate_expires_timestamp_seconds ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.parse::<f64>().ok());
        let now: f64 = output("date", ["+%s"]).trim().parse().unwrap();
        (line.unwrap_or_else(|| panic!("{metrics}")) - now) / 86_400.0
    };
    assert!((9.9..10.1).contains(&days_left()), "{}", days_left());
    fs::copy(certificates.certificate(), &copied).unwrap();
    time::eventually("the new certificate", PATIENCE, || (days_left() > 20.0).then_some(()));
    assert_eq!(server.log().matches("TLS certificate expires soon").count(), 1, "{}", server.log());
}

/// Sends bytes without TLS, and returns what the server sends until it closes.
fn plain(address: SocketAddrV4, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(bytes).unwrap();
    let mut said = Vec::new();
    client.read_to_end(&mut said).unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

/// Goal: a client on the wrong kind of port gets an answer that says so: plain clients on TLS ports, TLS
/// clients on plain ports, and clients that begin a handshake and stop.
#[test]
fn tls_and_plain_text_confused() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make();
    let thrift = port::free();
    let args = ["--thrift", &thrift.to_string(), "--request-timeout", "500ms"];
    let server = serve(folder.path(), &certificates, &args);
    let said = plain(server.http(), b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("connect with https://"), "{said}");
    let said = plain(server.resp(), b"*1\r\n$4\r\nPING\r\n");
    assert!(said.starts_with("-ERR this port requires TLS") && said.ends_with("\r\n"), "{said}");
    assert_eq!(plain(thrift, b"\x80\x01\0\x01"), "");
    // These begin a handshake, or send nothing at all.
    assert_eq!(plain(server.http(), b"\x16\x03\x01"), "");
    assert_eq!(plain(server.http(), b""), "");
    let metrics = curl(&server, certificates.authority(), "/metrics", &[]).unwrap();
    let counted = ["http", "resp", "thrift"].map(|protocol| failures(&metrics, protocol));
    assert_eq!(counted, [3, 1, 1]);
    assert!(server.log().contains("the client does not speak TLS"), "{}", server.log());

    let folder = tempfile::tempdir().unwrap();
    let plain = Serve::new(folder.path()).args(["--thrift", &port::free().to_string()]).start();
    let said = curl(&plain, certificates.authority(), "/healthz", &[]).unwrap_err();
    assert!(said.contains("alert protocol version"), "{said}");
    let said = redis_cli(&plain, certificates.authority(), &["PING"]);
    assert!(!said.contains("PONG"), "{said}");
    let metrics = plain.get("/metrics").body;
    // redis-cli tries twice.
    assert!(failures(&metrics, "http") == 1 && failures(&metrics, "resp") >= 1, "{metrics}");
    plain.log_with("the client speaks TLS, but this port does not: set --tls-cert and --tls-key", PATIENCE);
}

/// Goal: at the connection limit, health checks are answered and others are rejected, with TLS as without it.
#[test]
fn the_connection_limit_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make();
    let server = serve(folder.path(), &certificates, &["--max-connections", "1"]);
    let authority = certificates.authority();
    let _holds_it = TcpStream::connect(server.resp()).unwrap();
    let refused = || redis_cli(&server, authority, &["PING"]);
    time::eventually("a rejection", PATIENCE, || refused().contains("max number of clients").then_some(()));
    assert!(curl(&server, authority, "/healthz", &["-f"]).is_ok());
    let said = curl(&server, authority, "/v1/ids/default", &[]).unwrap();
    assert!(said.contains("connection limit (1) reached"), "{said}");
}

/// Goal: Unix sockets serve both protocols, only to owner and group; their files come and go with the server,
/// even after a crash, and another server cannot take them from a running one.
#[test]
fn unix_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let (http, resp) = (folder.path().join("http.sock"), folder.path().join("resp.sock"));
    let serve = Serve::new(folder.path()).sockets(&http, &resp);
    let mut all = Ids::new();
    let draw = || {
        let words = ["-sS", "-H", "accept: text/plain", "--unix-socket", text(&http)];
        let curl = output("curl", words.iter().chain(&["http://localhost/v1/ids/default?count=1000"]));
        let cli = output("redis-cli", ["-s", text(&resp), "ID.NEXT", "default", "COUNT", "20000"]);
        let script = format!(
            "import redis\n\
             pipe = redis.Redis(unix_socket_path={resp:?}).pipeline(transaction=False)\n\
             for _ in range(5000): pipe.execute_command('ID.NEXT', 'default')\n\
             for id in pipe.execute(): print(int(id))\n"
        );
        let drawn = [ids(&curl), ids(&cli), ids(&python("redis", &script, &[]))].concat();
        assert_eq!(drawn.len(), 26_000);
        drawn
    };
    let mut crashed = ready(&serve);
    for path in [&http, &resp] {
        let file = fs::metadata(path).unwrap();
        assert!(file.file_type().is_socket() && file.permissions().mode() & 0o777 == 0o660, "{file:?}");
    }
    all.add(&draw());
    let other = Serve::new(folder.path()).sockets(&folder.path().join("other.sock"), &resp).refused();
    other.assert_says(&["another program listens on this socket", "(--resp)"]);
    crashed.kill();
    assert!(http.exists() && resp.exists());

    let server = ready(&serve);
    all.add(&draw());
    all.assert_unique();
    server.stop();
    assert!(!http.exists() && !resp.exists());
    fs::write(&http, "mine").unwrap();
    serve.refused().assert_says(&["the file exists and is not a socket"]);
    assert_eq!(fs::read(&http).unwrap(), b"mine");
}

/// Goal: a client on a Unix socket that reads nothing is disconnected, although the system does not detect it
/// there. Method: its peer is gone once it cannot send.
#[test]
fn a_client_of_a_unix_socket_that_reads_nothing_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (http, resp) = (folder.path().join("http.sock"), folder.path().join("resp.sock"));
    let _server = ready(&Serve::new(folder.path()).sockets(&http, &resp).args(["--write-timeout", "300ms"]));
    let mut client = UnixStream::connect(&http).unwrap();
    client.write_all(b"GET /v1/ids/default?count=100000 HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    time::eventually("the connection is closed", PATIENCE, || client.write_all(b"\n").is_err().then_some(()));
}
