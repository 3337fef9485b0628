//! Traces over OTLP.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use snowmint_test_servers::snowmint::Serve;
use snowmint_test_servers::snowmint::raw_clients::THRIFT_GET_ID;
use snowmint_test_servers::snowmint::third_party::python;
use snowmint_test_servers::{port, time};

const PATIENCE: Duration = Duration::from_mins(1);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
/// The version of the semantic conventions.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.44.0";

/// A collector that decodes with the messages that OpenTelemetry publishes.
const COLLECTOR: &str = "
import http.client, http.server, json, sys, threading, grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
port, service = int(sys.argv[1]), sys.argv[2]
spans, arrived = [], threading.Condition()
class Collector(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_POST(self):
        body = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers['content-length'])))
        value = lambda it: getattr(it.value, it.value.WhichOneof('value'))
        attributes = lambda of: {it.key: value(it) for it in of.attributes}
        with arrived:
            for of in body.resource_spans:
                for it in of.scope_spans[0].spans:
                    spans.append(dict(
                        schemas=[of.schema_url, of.scope_spans[0].schema_url],
                        path=self.path, kind=self.headers['content-type'], key=self.headers['api-key'],
                        service=attributes(of.resource)['service.name'], trace=it.trace_id.hex(), span=it.span_id.hex(),
                        parent=it.parent_span_id.hex(), state=it.trace_state, name=it.name, span_kind=it.kind,
                        lasts=it.end_time_unix_nano - it.start_time_unix_nano, began=it.start_time_unix_nano,
                        status=it.status.code, attributes=attributes(it)))
            self.send_response(200); self.end_headers()
            self.wfile.flush()
            arrived.notify_all()
collector = http.server.ThreadingHTTPServer(('127.0.0.1', port), Collector)
threading.Thread(target=collector.serve_forever, daemon=True).start()
";

/// The requests of callers that trace.
const CALLERS: &str = "
trace, span = sys.argv[3:]
parent = lambda flags: '00-%s-%s-%s' % (trace, span, flags)
client = http.client.HTTPConnection(service)
def get(path, **headers):
    client.request('GET', path, headers=headers); client.getresponse().read()
get('/v1/ids/default?count=3', traceparent=parent('01'), tracestate='vendor=1')
get('/v1/ids/none', traceparent=parent('01'))
client.request('BREW', '/v1/ids/default', headers=dict(traceparent=parent('01'))); client.getresponse().read()
get('/v1/ids/default', traceparent=parent('00'))
get('/v1/ids/default', traceparent='nonsense')
get('/v1/ids/default')
raw = lambda it: it
channel = grpc.insecure_channel(service)
next = channel.unary_unary('/snowmint.v1.Snowmint/Next', raw, raw)
next(b'\\x0a\\x07default\\x10\\x05', metadata=[('traceparent', parent('01'))])
next(b'\\x0a\\x07default')
try: channel.unary_unary('/snowmint.v1.Snowmint/Brew', raw, raw)(b'', metadata=[('traceparent', parent('01'))])
except grpc.RpcError: pass
stream = channel.stream_stream('/snowmint.v1.Snowmint/Stream', raw, raw)
assert len(list(stream(iter([b'\\x0a\\x07default'] * 4), metadata=[('traceparent', parent('01'))]))) == 4
with arrived: arrived.wait_for(lambda: len(spans) >= 6, 50)
print(json.dumps(spans))
";

/// Goal: a request from a traced caller has a span, the child of the caller's, with its arguments and its
/// outcome; other requests have none. Method: callers over HTTP and gRPC, and a collector, in Python.
#[test]
fn the_span_of_a_request_is_the_child_of_its_callers() {
    let folder = tempfile::tempdir().unwrap();
    let collector = port::free();
    let server = Serve::new(folder.path())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}"))
        .env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b")
        .env("OTEL_SERVICE_NAME", "ids")
        .start();
    let args = [&collector.port().to_string(), &server.http().to_string(), TRACE, SPAN];
    let text = python("opentelemetry.proto", &format!("{COLLECTOR}\n{CALLERS}"), &args);
    let spans: Vec<Value> = serde_json::from_str(&text).unwrap();
    let named = |name: &str, status: Value, key: &str| {
        let found: Vec<_> =
            spans.iter().filter(|it| it["name"] == name && it["attributes"][key] == status).collect();
        assert_eq!(found.len(), 1, "{name}: {spans:?}");
        found[0]
    };
    assert_eq!(spans.len(), 6, "{spans:?}");
    let ids = named("GET /v1/ids/{namespace}", json!(200), "http.response.status_code");
    let none = named("GET /v1/ids/{namespace}", json!(404), "http.response.status_code");
    // Text of a client does not name a span.
    let brew = named("HTTP /v1/ids/{namespace}", json!(405), "http.response.status_code");
    let unknown = named("grpc", json!("UNIMPLEMENTED"), "rpc.response.status_code");
    let next = named("snowmint.v1.Snowmint/Next", json!("OK"), "rpc.response.status_code");
    let stream = named("snowmint.v1.Snowmint/Stream", json!("OK"), "rpc.response.status_code");
    for span in &spans {
        assert_eq!((&span["trace"], &span["parent"]), (&json!(TRACE), &json!(SPAN)), "{span}");
        assert!(span["span"] != json!(SPAN) && span["span"].as_str().unwrap().len() == 16, "{span}");
        assert_eq!((&span["path"], &span["service"]), (&json!("/v1/traces"), &json!("ids")));
        assert_eq!((&span["kind"], &span["key"]), (&json!("application/x-protobuf"), &json!("a b")));
        let status = if span == unknown { 2 } else { 0 };
        assert_eq!((&span["span_kind"], &span["status"]), (&json!(2), &json!(status)));
        assert_eq!(span["schemas"], json!([SCHEMA, SCHEMA]));
        let attributes = &span["attributes"];
        assert_eq!(attributes["server.address"], json!(server.http().ip().to_string()), "{span}");
        assert_eq!(attributes["server.port"], json!(server.http().port()), "{span}");
        assert!(
            span["lasts"].as_u64().unwrap() < 60_000_000_000 && span["began"].as_u64().unwrap() > 1 << 60
        );
    }
    assert_eq!(ids["state"], "vendor=1");
    let wanted = json!({
        "http.request.method": "GET", "http.route": "/v1/ids/{namespace}", "url.path": "/v1/ids/default",
        "url.scheme": "http", "network.protocol.version": "1.1", "http.response.status_code": 200,
        "server.address": "127.0.0.1", "server.port": server.http().port(),
        "snowmint.namespace": "default", "snowmint.count": 3,
    });
    assert_eq!(ids["attributes"], wanted);
    // The client's mistake is no error of the server.
    assert_eq!(none["attributes"]["error.type"], Value::Null);
    let methods =
        [&brew["attributes"]["http.request.method"], &brew["attributes"]["http.request.method_original"]];
    assert_eq!(methods, ["_OTHER", "BREW"]);
    let wanted = json!({
        "rpc.system.name": "grpc", "rpc.method": "snowmint.v1.Snowmint/Next", "rpc.response.status_code": "OK",
        "server.address": "127.0.0.1", "server.port": server.http().port(),
        "snowmint.namespace": "default", "snowmint.count": 5,
    });
    assert_eq!(next["attributes"], wanted);
    assert_eq!(stream["attributes"]["rpc.method"], "snowmint.v1.Snowmint/Stream");
    let called = [&unknown["attributes"]["rpc.method"], &unknown["attributes"]["rpc.method_original"]];
    assert_eq!(called, ["_OTHER", "snowmint.v1.Snowmint/Brew"]);
    time::eventually("the count", PATIENCE, || {
        Some(()).filter(|()| server.get("/metrics").body.contains("\nsnowmint_spans_exported_total 6\n"))
    });
}

/// Sends requests over the Redis protocol and Thrift; then waits for the number of spans.
const WITHOUT_CONTEXT: &str = "
import socket
def send(address, data):
    host, port = address.split(':')
    with socket.create_connection((host, int(port))) as client:
        client.settimeout(50)
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536): pass
resp, thrift, get_id, wanted = sys.argv[3:]
get_id = bytes(map(int, get_id.split()))
# Equal commands in one packet, one that is streamed, a transaction, and what clients may get wrong.
send(resp, b'*2\\r\\n$7\\r\\nID.NEXT\\r\\n$7\\r\\ndefault\\r\\n' * 5)
send(resp, b'ID.NEXT default COUNT 20000\\r\\nMULTI\\r\\nID.RANGE default COUNT 7\\r\\nEXEC\\r\\n')
send(resp, b'MULTI\\r\\nPING\\r\\nDISCARD\\r\\nINCR default\\r\\nAUTH hush\\r\\nsecret hush\\r\\n')
send(thrift, get_id * 2)
send(thrift, get_id.replace(b'get_id', b'get_me'))
with arrived: arrived.wait_for(lambda: len(spans) >= int(wanted), 50)
print(json.dumps(spans))
";

/// Goal: a request over a protocol without a trace context has a root span by the sample ratio, with the
/// command, the namespace and the count, and with no other argument. Method: a ratio of 1, and a count of
/// each name and outcome.
#[test]
fn requests_without_a_context_have_spans_by_the_ratio() {
    let folder = tempfile::tempdir().unwrap();
    let [collector, thrift] = [(); 2].map(|()| port::free());
    let ports = ["--thrift", &thrift.to_string()];
    let flags = ["--otlp-endpoint", &format!("http://{collector}"), "--otlp-sample-ratio", "1"];
    let server = Serve::new(folder.path()).args(ports).args(flags).spawn();
    server.log_with("ready: ids are served", PATIENCE);
    let wanted: [(&str, &str, &str, u64, u64, usize); 11] = [
        ("resp", "ID.NEXT", "default", 1, 0, 5),
        ("resp", "ID.NEXT", "default", 20_000, 0, 1),
        ("resp", "MULTI", "-", 0, 0, 2),
        ("resp", "ID.RANGE", "default", 7, 0, 1),
        ("resp", "EXEC", "-", 0, 0, 1),
        ("resp", "DISCARD", "-", 0, 0, 1),
        ("resp", "INCR WRONGTYPE", "default", 1, 0, 1),
        ("resp", "AUTH ERR", "-", 0, 0, 1),
        ("resp", "resp ERR", "-", 0, 0, 1),
        ("thrift", "get_id", "default", 1, 0, 2),
        ("thrift", "thrift unknown", "-", 0, 0, 1),
    ];
    let count: usize = wanted.iter().map(|it| it.5).sum();
    let get_id = THRIFT_GET_ID.iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
    let [collector, resp, thrift] =
        [collector.port().to_string(), server.resp().to_string(), thrift.to_string()];
    let args = [&collector, &String::new(), &resp, &thrift, &get_id, &count.to_string()];
    let script = format!("{COLLECTOR}\n{WITHOUT_CONTEXT}");
    let text = python("opentelemetry.proto", &script, &args.map(String::as_str));
    assert!(!text.contains("hush"), "{text}");
    let spans: Vec<Value> = serde_json::from_str(&text).unwrap();
    for (protocol, name, namespace, number, status, times) in wanted {
        let found = spans.iter().filter(|span| {
            let attributes = &span["attributes"];
            let text = |key: &str| attributes[key].as_str().unwrap_or("-");
            let full = [span["name"].as_str().unwrap(), text("error.type")].join(" ");
            text("network.protocol.name") == protocol
                && full.trim_end_matches(" -") == name
                && text("snowmint.namespace") == namespace
                && attributes["snowmint.count"].as_u64().unwrap_or(0) == number
                && span["status"] == status
        });
        assert_eq!(found.count(), times, "{protocol} {name} {number}: {spans:?}");
    }
    assert_eq!(spans.len(), count, "{spans:?}");
    let traces: HashSet<&str> = spans.iter().map(|span| span["trace"].as_str().unwrap()).collect();
    assert!(traces.len() == count && spans.iter().all(|span| span["parent"] == ""), "{spans:?}");
}

/// Goal: without a collector, requests are answered as usual, and their spans are dropped and counted.
/// Method: more spans than the queue holds, to a closed port, with a ratio that traces every request.
#[test]
fn without_a_collector_spans_are_dropped_and_requests_answered() {
    const REQUESTS: usize = 3000;
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--otlp-endpoint", &format!("http://{}", port::free()), "--otlp-sample-ratio", "1"];
    let server = Serve::new(folder.path()).args(flags).start();
    let mut client = TcpStream::connect(server.http()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = "GET /v1/ids/default HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut reader = client.try_clone().unwrap();
    let reading = std::thread::spawn(move || {
        let (mut answers, mut read) = (0, Vec::new());
        while answers < REQUESTS {
            let mut more = [0; 16 * 1024];
            let len = reader.read(&mut more).unwrap();
            assert!(len > 0, "closed after {answers}");
            read.extend_from_slice(&more[..len]);
            answers += read.windows(4).filter(|it| it == b"\r\n\r\n").count();
            // The end of a head may come in two reads.
            read.drain(..read.len().saturating_sub(3));
        }
    });
    client.write_all(request.repeat(REQUESTS).as_bytes()).unwrap();
    reading.join().unwrap();
    time::eventually("dropped spans", PATIENCE, || {
        let metrics = server.get("/metrics").body;
        let dropped = metrics.lines().find_map(|line| line.strip_prefix("snowmint_spans_dropped_total "))?;
        Some(()).filter(|()| dropped.parse::<usize>().unwrap() >= REQUESTS - 2048)
    });
    server.log_with("cannot export spans", PATIENCE);
}

/// Goal: an invalid endpoint stops the start, with the flag or variable that it came from.
#[test]
fn a_wrong_endpoint_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let flag = Serve::new(folder.path()).args(["--otlp-endpoint", "localhost:4318"]);
    flag.refused()
        .assert_says(&["--otlp-endpoint: invalid OTLP endpoint `localhost:4318`", "http://HOST:PORT"]);
    let variable = Serve::new(folder.path()).env("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://a:1");
    variable.refused().assert_says(&["OTEL_EXPORTER_OTLP_ENDPOINT: invalid OTLP endpoint"]);
}
