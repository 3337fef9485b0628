//! The access log: one line per request of each protocol, without secrets; and no line unless it is enabled.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::time::Duration;

use serde_json::Value;
use snowmint_test_servers::snowmint::raw_clients::THRIFT_GET_ID;
use snowmint_test_servers::snowmint::third_party::{output, python};
use snowmint_test_servers::snowmint::{Serve, Server, binary};
use snowmint_test_servers::{port, time};

const PATIENCE: Duration = Duration::from_secs(30);

/// Sends bytes and waits for the end of the answer.
fn send(address: SocketAddrV4, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(bytes).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut said = Vec::new();
    client.read_to_end(&mut said).unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

/// The lines of a protocol, as request, namespace, count and outcome.
fn lines(server: &Server, protocol: &str, count: usize) -> Vec<String> {
    shown(server, protocol, count, &["request", "namespace", "count", "outcome"])
}

/// The lines of a protocol, as some of their fields.
fn shown(server: &Server, protocol: &str, count: usize, fields: &[&str]) -> Vec<String> {
    let lines = || -> Vec<Value> {
        let log = server.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|it| it["target"] == "snowmint::access" && it["protocol"] == protocol).collect()
    };
    let lines = time::eventually("the lines", PATIENCE, || Some(lines()).filter(|it| it.len() >= count));
    let shown = |line: &Value| {
        assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert!(line["duration_us"].as_u64().is_some(), "{line}");
        let text = |name: &str| line.get(name).map(|it| it.to_string().replace('"', ""));
        // HTTP has a method and a path instead.
        let request = || Some(format!("{} {}", text("method")?, text("path")?));
        let of = |name: &str| {
            let of_http = if name == "request" { request() } else { None };
            text(name).or(of_http).unwrap_or_else(|| "-".to_owned())
        };
        fields.iter().copied().map(of).collect::<Vec<_>>().join(" ")
    };
    lines.iter().map(shown).collect()
}

#[test]
fn each_request_is_a_line_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let thrift = port::free();
    let ports = ["--thrift", &thrift.to_string()];
    let flags = ["--log-format", "json", "--access-log"];
    // Not by `/readyz`, which would have lines too.
    let server = Serve::new(folder.path()).args(ports).args(flags).spawn();
    server.log_with("ready: ids are served", PATIENCE);

    for path in [
        "/v1/ids/default?count=3",
        "/v1/ids/none",
        "/tinyid/id/nextIdSimple?bizType=default&batchSize=2&token=secret",
        "/api/snowflake/get/default",
    ] {
        server.get(path);
    }
    let http = lines(&server, "http", 4);
    for wanted in [
        "GET /v1/ids/default default 3 ok",
        "GET /v1/ids/none none 1 404",
        "GET /tinyid/id/nextIdSimple default 2 ok",
        "GET /api/snowflake/get/default default 1 ok",
    ] {
        assert_eq!(http.iter().filter(|line| *line == wanted).count(), 1, "{wanted}: {http:?}");
    }

    let fields = shown(&server, "http", 4, &["method", "path", "status"]);
    assert!(fields.contains(&"GET /v1/ids/none 404".to_owned()), "{fields:?}");
    assert!(fields.contains(&"GET /v1/ids/default 200".to_owned()), "{fields:?}");

    // Each of several equal commands in one packet has a line.
    let next = "*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\n".repeat(5);
    let others = "ID.NEXT default COUNT 20000\r\nincr default\r\nAUTH secret\r\nID.NEXT none\r\nPING\r\n";
    send(server.resp(), format!("{next}{others}").as_bytes());
    let resp = lines(&server, "resp", 10);
    let mut wanted = vec!["ID.NEXT default 1 ok"; 5];
    wanted.extend(["ID.NEXT default 20000 ok", "INCR default 1 WRONGTYPE"]);
    assert_eq!(&resp[..7], wanted);
    assert!(resp[7].starts_with("AUTH - - "), "{resp:?}");
    assert_eq!(&resp[8..], ["ID.NEXT none 1 NONAMESPACE", "PING - - ok"]);

    send(thrift, THRIFT_GET_ID);
    assert_eq!(lines(&server, "thrift", 1), ["get_id default 1 ok"]);
    assert!(!server.log().contains("secret"), "{}", server.log());
}

/// Returns the number of requests that the metrics count for a protocol.
fn counted(server: &Server, protocol: &str) -> usize {
    let metrics = server.get("/metrics").body;
    let of_protocol = format!("snowmint_requests_total{{protocol=\"{protocol}\"");
    let counts = metrics.lines().filter(|line| line.starts_with(&of_protocol));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum()
}

/// Goal: each request has exactly one line, with its outcome, even if it is queued, rejected, unreadable or
/// the last of its connection. Method: for each protocol, the number of lines equals the number of requests
/// in the metrics; only discarded commands, which never ran, have a line without a count.
#[test]
fn each_request_is_one_line_with_its_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.toml");
    let args = ["token", "create", "web", "--namespaces", "default", "--file", tokens.to_str().unwrap()];
    let token = output(binary().to_str().unwrap(), args).trim().to_owned();
    let thrift = port::free();
    let ports = ["--thrift", &thrift.to_string(), "--thrift-token", "web"];
    let flags = ["--log-format", "json", "--access-log", "--request-timeout", "1s", "--tokens-file"];
    let serve = Serve::new(folder.path()).args(ports).args(flags).args([&tokens]);
    let server = serve.spawn();
    server.log_with("ready: ids are served", PATIENCE);

    // The commands of a transaction are logged when they have run, not when they are queued.
    let auth = format!("AUTH {token}\r\n");
    let ran = "MULTI\r\nID.NEXT default\r\nID.NEXT none\r\nEXEC\r\nQUIT\r\nPING\r\n";
    send(server.resp(), format!("{auth}{ran}").as_bytes());
    let discarded = "MULTI\r\nID.NEXT default\r\nDISCARD\r\nMULTI\r\nINCR default\r\nNOPE\r\nID.NEXT default COUNT 7\r\nEXEC\r\n*1\r\n+x";
    send(server.resp(), format!("{auth}{discarded}").as_bytes());
    // Queued commands of a client that disconnects, an HTTP request, and a command that never ends.
    send(server.resp(), format!("{auth}MULTI\r\nECHO hi\r\n").as_bytes());
    send(server.resp(), b"POST / HTTP/1.1\r\n");
    let mut slow = TcpStream::connect(server.resp()).unwrap();
    slow.write_all(b"*2\r\n").unwrap();
    let resp = lines(&server, "resp", 21);
    let first = [
        "AUTH - - ok",
        "MULTI - - ok",
        "ID.NEXT default 1 ok",
        "ID.NEXT none 1 NOPERM",
        "EXEC - - ok",
        "QUIT - - ok",
    ];
    assert_eq!(resp[..6], first);
    let second = [
        "AUTH - - ok",
        "MULTI - - ok",
        "ID.NEXT default 1 discarded",
        "DISCARD - - ok",
        "MULTI - - ok",
        "INCR default 1 discarded",
        "NOPE - - ERR",
        "ID.NEXT default 7 discarded",
        "EXEC - - EXECABORT",
        "- - - ERR",
    ];
    assert_eq!(resp[6..16], second);
    let third = ["AUTH - - ok", "MULTI - - ok", "ECHO - - discarded", "POST - - ERR", "- - - ERR"];
    assert_eq!(resp[16..], third);
    let ran = resp.iter().filter(|line| !line.ends_with(" discarded")).count();
    assert_eq!(ran, counted(&server, "resp"), "{resp:?}");

    send(thrift, &[THRIFT_GET_ID, b"\xff\xff\xff\xff"].concat());
    let thrift = lines(&server, "thrift", 2);
    assert_eq!(thrift, ["get_id default 1 ok", "- - - bad-request"]);
    assert_eq!(thrift.len(), counted(&server, "thrift"));

    // Bytes that are not HTTP, and an endless request. The metrics are read over HTTP too.
    send(server.http(), b"GET /x HTTP/9.9\r\n\r\n");
    let mut slow = TcpStream::connect(server.http()).unwrap();
    slow.write_all(b"GET /healthz").unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(slow.read(&mut [0; 8]).unwrap(), 0);
    let before = counted(&server, "http");
    // The line of the request that reads the metrics is written after they are.
    let http = lines(&server, "http", before + 1);
    assert_eq!(http.len(), before + 1, "{http:?}");
    for wanted in ["- - - 400", "- - - bad-request"] {
        assert_eq!(http.iter().filter(|line| *line == wanted).count(), 1, "{wanted}: {http:?}");
    }
    assert!(!server.log().contains(&token), "{}", server.log());
}

/// Goal: each line names the token of the request, over every protocol, and no line shows its text. Method:
/// requests with a token, with none and with a wrong one; commands that were queued, discarded or cut off.
#[test]
fn each_line_names_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.toml");
    let created = ["web", "ops"].map(|name| {
        let args = ["token", "create", name, "--namespaces", "*", "--file", tokens.to_str().unwrap()];
        output(binary().to_str().unwrap(), args).trim().to_owned()
    });
    let [web, ops] = &created;
    let thrift = port::free();
    let ports = ["--thrift", &thrift.to_string(), "--thrift-token", "web"];
    let flags = ["--log-format", "json", "--access-log", "--tokens-file", tokens.to_str().unwrap()];
    let server = Serve::new(folder.path()).args(ports).args(flags).spawn();
    server.log_with("ready: ids are served", PATIENCE);
    let of = |protocol, count| shown(&server, protocol, count, &["request", "token", "outcome"]);

    let http = |path: &str, with: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{with}Connection: close\r\n\r\n");
        let mut client = TcpStream::connect(server.http()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
    };
    http("/v1/ids/default", &format!("Authorization: Bearer {web}\r\n"));
    http("/v1/ids/default", "");
    http("/v1/ids/default", "Authorization: Bearer smt_web_x\r\n");
    http(&format!("/tinyid/id/nextIdSimple?bizType=default&token={ops}"), "");
    http("/v1/admin/workers", &format!("Authorization: Bearer {ops}\r\n"));
    let wanted = [
        "GET /v1/ids/default web ok",
        "GET /v1/ids/default - 401",
        "GET /v1/ids/default - 401",
        "GET /tinyid/id/nextIdSimple ops ok",
        "GET /v1/admin/workers ops 403",
    ];
    assert_eq!(of("http", wanted.len()), wanted);

    let commands = format!(
        "PING\r\nAUTH {web}\r\nID.NEXT default\r\nMULTI\r\nID.NEXT default\r\nEXEC\r\nAUTH {ops}\r\nPING\r\n\
         MULTI\r\nECHO hi\r\nDISCARD\r\nMULTI\r\nECHO left\r\n"
    );
    send(server.resp(), commands.as_bytes());
    let wanted = [
        "PING - NOAUTH",
        "AUTH web ok",
        "ID.NEXT web ok",
        "MULTI web ok",
        "ID.NEXT web ok",
        "EXEC web ok",
        "AUTH ops ok",
        "PING ops ok",
        "MULTI ops ok",
        "ECHO ops discarded",
        "DISCARD ops ok",
        "MULTI ops ok",
        "ECHO ops discarded",
    ];
    assert_eq!(of("resp", wanted.len()), wanted);

    let many = "ID.NEXT default COUNT 100000\r\n".repeat(40);
    TcpStream::connect(server.resp()).unwrap().write_all(format!("AUTH {ops}\r\n{many}").as_bytes()).unwrap();
    time::eventually("the cancelled command", PATIENCE, || {
        of("resp", wanted.len()).last().filter(|line| *line == "ID.NEXT ops cancelled").map(|_| ())
    });

    send(thrift, THRIFT_GET_ID);
    assert_eq!(of("thrift", 1), ["get_id web ok"]);
    let script = "
import grpc, sys
channel = grpc.insecure_channel(sys.argv[1])
raw = lambda it: it
sent = (('authorization', 'Bearer ' + sys.argv[2]),)
def call(metadata):
    try: channel.unary_unary('/snowmint.v1.Snowmint/Next', raw, raw)(b'\\x0a\\x07default', metadata=metadata, timeout=30)
    except grpc.RpcError: pass
call(sent)
call(())
list(channel.stream_stream('/snowmint.v1.Snowmint/Stream', raw, raw)(iter([b'\\x0a\\x07default']), metadata=sent))
print('done')
";
    assert!(python("grpc", script, &[&server.http().to_string(), web]).contains("done"));
    let wanted = [
        "/snowmint.v1.Snowmint/Next web ok",
        "/snowmint.v1.Snowmint/Next - unauthorized",
        "/snowmint.v1.Snowmint/Stream web ok",
    ];
    assert_eq!(of("grpc", wanted.len()), wanted);
    let log = server.log();
    assert!(created.iter().all(|token| !log.contains(token.as_str())), "{log}");
}

/// Goal: a command whose client disconnects while the answer is sent has a line too, since its ids count as
/// issued. Method: clients request more than fits into the buffers of their connection, and disconnect.
#[test]
fn a_command_whose_client_leaves_is_cancelled() {
    const COMMANDS: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).args(["--log-format", "json", "--access-log"]).start();
    let leave = |sent: &str| {
        TcpStream::connect(server.resp()).unwrap().write_all(sent.as_bytes()).unwrap();
    };
    let commands = "ID.NEXT default COUNT 100000\r\n".repeat(COMMANDS);

    leave(&format!("MULTI\r\n{commands}EXEC\r\n"));
    let resp = lines(&server, "resp", COMMANDS + 2);
    assert_eq!((&*resp[0], &*resp[COMMANDS + 1]), ("MULTI - - ok", "EXEC - - cancelled"));
    let (before, later) =
        resp[1..=COMMANDS].split_at(resp.iter().position(|it| it.ends_with("cancelled")).unwrap());
    let (cancelled, done) = before.split_last().unwrap();
    assert_eq!(cancelled, "ID.NEXT default 100000 cancelled");
    assert!(done.iter().all(|line| line == "ID.NEXT default 100000 ok"), "{resp:?}");
    assert!(later.iter().all(|line| line == "ID.NEXT default 100000 discarded"), "{resp:?}");

    leave(&commands);
    time::eventually("the line", PATIENCE, || {
        let resp = lines(&server, "resp", COMMANDS + 3);
        Some(()).filter(|()| resp.last().is_some_and(|line| line == "ID.NEXT default 100000 cancelled"))
    });
}

/// Goal: the same for gRPC on the HTTP port: calls that are rejected before they reach the service, requests
/// of a stream, and health checks. Method: grpcio, and headers that a web page would send.
#[test]
fn each_call_is_one_line_with_its_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).args(["--log-format", "json", "--access-log"]).start();
    let script = "
import grpc, sys
from grpc_health.v1 import health_pb2, health_pb2_grpc
channel = grpc.insecure_channel(sys.argv[1])
def call(method, *metadata, body=b'\\x0a\\x07default'):
    raw = lambda it: it
    try: channel.unary_unary('/snowmint.v1.Snowmint/' + method, raw, raw)(body, metadata=metadata, timeout=30)
    except grpc.RpcError as error: return error.code()
call('Next')
call('Next', body=b'\\x0a\\x04none')
call('Nope')
call('Next', ('origin', 'https://evil.example'), ('sec-fetch-site', 'cross-site'))
raw = lambda it: it
stream = channel.stream_stream('/snowmint.v1.Snowmint/Stream', raw, raw)
try: list(stream(iter([b'\\x0a\\x07default', b'\\x0a\\x07default\\x10\\x02', b'\\x0a\\x04none'])))
except grpc.RpcError: pass
list(stream(iter([])))
health = health_pb2_grpc.HealthStub(channel)
health.Check(health_pb2.HealthCheckRequest())
try: health.Check(health_pb2.HealthCheckRequest(service='other'))
except grpc.RpcError: pass
print('done')
";
    assert!(python("grpc_health", script, &[&server.http().to_string()]).contains("done"));
    let grpc = lines(&server, "grpc", 9);
    let wanted = [
        "/snowmint.v1.Snowmint/Next default 1 ok",
        "/snowmint.v1.Snowmint/Next none 1 unknown-namespace",
        "/snowmint.v1.Snowmint/Nope - - unknown",
        "/snowmint.v1.Snowmint/Next - - cross-site",
        "/snowmint.v1.Snowmint/Stream default 1 ok",
        "/snowmint.v1.Snowmint/Stream default 2 ok",
        "/snowmint.v1.Snowmint/Stream none 1 unknown-namespace",
        "/grpc.health.v1.Health/Check - - ok",
        "/grpc.health.v1.Health/Check - - unknown",
    ];
    assert_eq!(grpc, wanted);
    assert_eq!(grpc.len(), counted(&server, "grpc"));
}

/// Goal: what a caller calls its request is in the answer and in the log, over HTTP and gRPC, so that one search
/// finds it in the logs of all services. Method: valid and invalid ids and traces; grpcio.
#[test]
fn answers_and_lines_have_the_names_of_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).args(["--log-format", "json", "--access-log"]).spawn();
    server.log_with("ready: ids are served", PATIENCE);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    for (path, id) in [("default", "order-7"), ("none", "order-8"), ("default", "two words")] {
        let own = format!("Snowmint-Request: 7f-{}\r\n", id.len());
        let headers = format!("X-Request-Id: {id}\r\n{own}traceparent: {parent}\r\n");
        let answer = send(
            server.http(),
            format!("GET /v1/ids/{path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes(),
        );
        assert_eq!(answer.contains(&format!("x-request-id: {id}\r\n")), !id.contains(' '), "{answer}");
        assert!(answer.contains(&own.to_lowercase()), "{answer}");
        assert!(answer.contains(&format!("traceparent: {parent}\r\n")), "{answer}");
    }
    let http = shown(&server, "http", 3, &["request_id", "trace_id", "outcome"]);
    let wanted = ["order-7 {trace} ok", "order-8 {trace} 404", "- {trace} ok"];
    assert_eq!(http, wanted.map(|line| line.replace("{trace}", trace)));

    let script = "
import grpc, sys
channel = grpc.insecure_channel(sys.argv[1])
raw = lambda it: it
named = [('x-request-id', 'order-9'), ('traceparent', sys.argv[2])]
for namespace in [b'default', b'none']:
    body = b'\\x0a' + bytes([len(namespace)]) + namespace
    call = channel.unary_unary('/snowmint.v1.Snowmint/Next', raw, raw)
    try: answered = call.with_call(body, metadata=named, timeout=30)[1]
    except grpc.RpcError as error: answered = error
    headers = dict(answered.initial_metadata()) or dict(answered.trailing_metadata())
    assert headers['x-request-id'] == 'order-9' and headers['traceparent'] == sys.argv[2], headers
stream = channel.stream_stream('/snowmint.v1.Snowmint/Stream', raw, raw)
assert len(list(stream(iter([b'\\x0a\\x07default'] * 2), metadata=named))) == 2
print('done')
";
    assert!(python("grpc", script, &[&server.http().to_string(), &parent]).contains("done"));
    let grpc = shown(&server, "grpc", 4, &["request_id", "trace_id", "outcome"]);
    let wanted = ["ok", "unknown-namespace", "ok", "ok"];
    assert_eq!(grpc, wanted.map(|outcome| format!("order-9 {trace} {outcome}")));
}

#[test]
fn without_the_flag_no_request_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).args(["--log", "trace"]).start();
    server.take(10);
    server.get("/v1/ids/default");
    assert!(!server.log().contains("snowmint::access"), "{}", server.log());
}
