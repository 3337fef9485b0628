//! Traces by OTLP. The binary of the checks has the feature `otlp`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use snowmint_test_servers::snowmint::Serve;
use snowmint_test_servers::snowmint::external::python;
use snowmint_test_servers::{port, time};

const PATIENCE: Duration = Duration::from_mins(1);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// A collector, which decodes with the messages that OpenTelemetry publishes, and the requests of callers.
const SCRIPT: &str = "
import http.client, http.server, json, sys, threading, grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
port, service, trace, span = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
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
parent = lambda flags: '00-%s-%s-%s' % (trace, span, flags)
client = http.client.HTTPConnection(service)
def get(path, **headers):
    client.request('GET', path, headers=headers); client.getresponse().read()
get('/v1/ids/default?count=3', traceparent=parent('01'), tracestate='vendor=1')
get('/v1/ids/none', traceparent=parent('01'))
get('/v1/ids/default', traceparent=parent('00'))
get('/v1/ids/default', traceparent='nonsense')
get('/v1/ids/default')
raw = lambda it: it
channel = grpc.insecure_channel(service)
next = channel.unary_unary('/snowmint.v1.Snowmint/Next', raw, raw)
next(b'\\x0a\\x07default\\x10\\x05', metadata=[('traceparent', parent('01'))])
next(b'\\x0a\\x07default')
stream = channel.stream_stream('/snowmint.v1.Snowmint/Stream', raw, raw)
assert len(list(stream(iter([b'\\x0a\\x07default'] * 4), metadata=[('traceparent', parent('01'))]))) == 4
with arrived: arrived.wait_for(lambda: len(spans) >= 4, 50)
print(json.dumps(spans))
";

/// Goal: a request of a caller that is traced has a span, the child of the caller's, with what it asked for and what came of
/// it; other requests have none. Method: callers over HTTP and gRPC, and a collector, in Python.
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
    let spans: Vec<Value> = serde_json::from_str(&python("opentelemetry.proto", SCRIPT, &args)).unwrap();
    let named = |name: &str, status: Value, key: &str| {
        let found: Vec<_> =
            spans.iter().filter(|it| it["name"] == name && it["attributes"][key] == status).collect();
        assert_eq!(found.len(), 1, "{name}: {spans:?}");
        found[0]
    };
    assert_eq!(spans.len(), 4, "{spans:?}");
    let ids = named("GET /v1/ids/{namespace}", json!(200), "http.response.status_code");
    let none = named("GET /v1/ids/{namespace}", json!(404), "http.response.status_code");
    let next = named("snowmint.v1.Snowmint/Next", json!(0), "rpc.grpc.status_code");
    let stream = named("snowmint.v1.Snowmint/Stream", json!(0), "rpc.grpc.status_code");
    for span in &spans {
        assert_eq!((&span["trace"], &span["parent"]), (&json!(TRACE), &json!(SPAN)), "{span}");
        assert!(span["span"] != json!(SPAN) && span["span"].as_str().unwrap().len() == 16, "{span}");
        assert_eq!((&span["path"], &span["service"]), (&json!("/v1/traces"), &json!("ids")));
        assert_eq!((&span["kind"], &span["key"]), (&json!("application/x-protobuf"), &json!("a b")));
        assert_eq!((&span["span_kind"], &span["status"]), (&json!(2), &json!(0)));
        assert!(
            span["lasts"].as_u64().unwrap() < 60_000_000_000 && span["began"].as_u64().unwrap() > 1 << 60
        );
    }
    assert_eq!(ids["state"], "vendor=1");
    let wanted = json!({
        "http.request.method": "GET", "http.route": "/v1/ids/{namespace}", "url.path": "/v1/ids/default",
        "http.response.status_code": 200, "snowmint.namespace": "default", "snowmint.count": 3,
    });
    assert_eq!(ids["attributes"], wanted);
    assert_eq!(none["attributes"]["error.type"], "404");
    let wanted = json!({
        "rpc.system": "grpc", "rpc.service": "snowmint.v1.Snowmint", "rpc.method": "Next",
        "rpc.grpc.status_code": 0, "snowmint.namespace": "default", "snowmint.count": 5,
    });
    assert_eq!(next["attributes"], wanted);
    assert_eq!(stream["attributes"]["rpc.method"], "Stream");
    time::eventually("the count", PATIENCE, || {
        Some(()).filter(|()| server.get("/metrics").body.contains("\nsnowmint_spans_exported_total 4\n"))
    });
}

/// Goal: without a collector, requests are answered as ever, and their spans are dropped and counted. Method: more spans than
/// may wait, to a port where nobody listens, with a ratio that traces every request.
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
        let (mut answers, mut all) = (0, [0; 16 * 1024]);
        while answers < REQUESTS {
            let read = reader.read(&mut all).unwrap();
            assert!(read > 0, "closed after {answers}");
            answers += all[..read].windows(4).filter(|it| it == b"\r\n\r\n").count();
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

/// Goal: a wrong endpoint stops the start, with the flag or variable that it came from.
#[test]
fn a_wrong_endpoint_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let flag = Serve::new(folder.path()).args(["--otlp-endpoint", "localhost:4318"]);
    flag.refused()
        .assert_says(&["--otlp-endpoint: invalid OTLP endpoint `localhost:4318`", "http://HOST:PORT"]);
    let variable = Serve::new(folder.path()).env("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://a:1");
    variable.refused().assert_says(&["OTEL_EXPORTER_OTLP_ENDPOINT: invalid OTLP endpoint"]);
}
