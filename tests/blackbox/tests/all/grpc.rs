//! gRPC with a third-party client: Python's grpcio, from the interface file that the crate ships.

use std::net::SocketAddrV4;
use std::path::Path;
use std::thread;
use std::time::Duration;

use snowmint_test_servers::snowmint::http::Http;
use snowmint_test_servers::snowmint::third_party::python;
use snowmint_test_servers::snowmint::{Ids, Resp, Serve, Server};
use snowmint_test_servers::{Certificates, port, time};

const PATIENCE: Duration = Duration::from_secs(30);

/// Compiles the interface file and connects.
const CONNECT: &str = r#"
import sys, threading, grpc
from grpc_tools import protoc
folder, proto, address, *authority = sys.argv[1:]
assert protoc.main(["", "-I" + proto, "--python_out=" + folder, "--grpc_python_out=" + folder, "snowmint/v1/snowmint.proto"]) == 0
sys.path.insert(0, folder)
from snowmint.v1 import snowmint_pb2 as pb, snowmint_pb2_grpc as rpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
def connect():
    options = [("grpc.use_local_subchannel_pool", 1)]
    if not authority: return grpc.insecure_channel(address, options=options)
    with open(authority[0], "rb") as roots: return grpc.secure_channel(address, grpc.ssl_channel_credentials(roots.read()), options=options)
channel = connect()
client = rpc.SnowmintStub(channel)
health = health_pb2_grpc.HealthStub(channel)
def request(namespace="default", **rest): return pb.NextRequest(namespace=namespace, **rest)
def failure(call):
    try: call()
    except grpc.RpcError as error:
        trailers = dict(error.trailing_metadata())
        return error.code().name, trailers.get("snowmint-error"), error.details(), trailers.get("retry-after-ms")
    raise AssertionError("it did not fail")
"#;

fn serve(folder: &Path, args: &[&str]) -> (Server, SocketAddrV4) {
    let grpc = port::free();
    (Serve::new(folder).args(["--grpc", &grpc.to_string()]).args(args).start(), grpc)
}

/// Runs a script after [`CONNECT`], and returns the numbers that it printed, one per line.
fn ids_of(folder: &Path, address: SocketAddrV4, script: &str) -> Vec<u64> {
    ids_over(folder, &[&address.to_string()], script)
}

/// Like [`ids_of`]; `address` may be followed by the CA file that the client trusts.
fn ids_over(folder: &Path, address: &[&str], script: &str) -> Vec<u64> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/snowmint-server/proto");
    let generated = tempfile::tempdir_in(folder).unwrap();
    let args = [&[generated.path().to_str().unwrap(), proto.to_str().unwrap()], address].concat();
    let text = python("grpc_tools", &format!("{CONNECT}\n{script}"), &args);
    text.lines().map(|line| line.parse().unwrap_or_else(|_| panic!("{text}"))).collect()
}

/// Goal: every call works from the interface file: ids in each form, a stream, and inspection of ids.
#[test]
fn every_call() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("namespaces.toml");
    let namespaces = "[namespaces.orders]\nscheme = \"segment\"\ntext = \"ORD-{number:6}\"\n\
                      [namespaces.counter]\nscheme = \"segment\"\n[namespaces.ulids]\nscheme = \"ulid\"\n";
    std::fs::write(&file, namespaces).unwrap();
    let (server, address) = serve(folder.path(), &["--namespaces-file", file.to_str().unwrap()]);
    let ids = ids_of(
        folder.path(),
        address,
        r#"
ids = []
for count in [1, 2, 1000, 100000]:
    got = list(client.Next(request(count=count)).ids)
    assert len(got) == count and (not ids or got[0] > ids[-1]), count
    ids += got
ids += client.Next(request()).ids
for range_ in client.Next(request(count=20000, format=pb.FORMAT_RANGES)).ranges:
    ids += range(range_.first, range_.first + range_.count * range_.step, range_.step)
assert len(ids) == 121004, len(ids)
ids += map(int, client.Next(request(count=1000, format=pb.FORMAT_TEXTS)).texts)

# A stream at the pace of the client.
turns = threading.Semaphore(1)
def requests():
    for count in [1, 10, 100, 100000, 1]:
        turns.acquire()
        yield request(count=count)
for response in client.Stream(requests()):
    ids += response.ids
    turns.release()
assert len(ids) == 222116 and ids == sorted(ids), len(ids)
for id in ids: print(id)

assert list(client.Next(request("counter", count=3)).ids) == [1, 2, 3]
assert list(client.Next(request("orders", count=2, format=pb.FORMAT_TEXTS)).texts) == ["ORD-000001", "ORD-000002"]
for bad in [pb.FORMAT_NUMBERS, pb.FORMAT_RANGES]:
    code, kind, text, _ = failure(lambda: client.Next(request("orders", format=bad)))
    assert (code, kind) == ("FAILED_PRECONDITION", "wrong-scheme") and "request FORMAT_TEXTS" in text, text
assert list(client.Next(request("orders", format=pb.FORMAT_TEXTS)).texts) == ["ORD-000003"], "a refused call costs no number"
ulids = client.Next(request("ulids", count=1000, format=pb.FORMAT_TEXTS)).texts
assert len(set(ulids)) == 1000 and all(len(ulid) == 26 for ulid in ulids)

inspected = client.Inspect(pb.InspectRequest(id=str(ids[0])))
assert inspected.name == "twitter" and inspected.form == "decimal" and inspected.guesses, inspected
fields = {field.name: getattr(field, field.WhichOneof("value")) for field in inspected.fields}
assert fields["id"] == str(ids[0]) and fields["timestamp"] == ids[0] >> 22, fields
assert client.Inspect(pb.InspectRequest(id="ORD-000003", namespace="orders")).fields[0].text == "3"
assert client.Inspect(pb.InspectRequest(id=ulids[0])).name == "ulid"
made = inspected.unix_ms
bounds = client.TimeBounds(pb.TimeBoundsRequest(namespace="default", from_unix_ms=made, until_unix_ms=made + 1))
assert bounds.first <= ids[0] <= bounds.last and bounds.last - bounds.first == 2**22 - 1, bounds
code, kind, text, _ = failure(lambda: client.TimeBounds(pb.TimeBoundsRequest(namespace="counter", from_unix_ms=made, until_unix_ms=made + 1)))
assert (code, kind) == ("FAILED_PRECONDITION", "wrong-scheme") and "do not sort by time" in text, text
listed = client.Namespaces(pb.NamespacesRequest()).namespaces
assert [(it.name, it.scheme, it.numbers) for it in listed] == [
    ("counter", "segment", True), ("default", "snowflake", True), ("orders", "segment", False), ("ulids", "ulid", False)], listed
assert listed[2].text == "ORD-{number:6}" and "sequence:12" in listed[1].layout, listed
"#,
    );
    assert_eq!(ids.len(), 222_116);
    let mut all = Ids::new();
    all.add(&ids);
    all.add(&server.take(1000));
    all.assert_unique();
    assert!(server.metric("snowmint_ids_issued_total") >= 223_116.0);
}

/// Goal: health and reflection work with the standard clients, on the gRPC port and on the HTTP port, which
/// answers all calls.
#[test]
fn health_and_reflection() {
    let folder = tempfile::tempdir().unwrap();
    let (server, grpc) = serve(folder.path(), &[]);
    let mut all = Ids::new();
    for address in [grpc, server.http()] {
        all.add(&ids_of(folder.path(), address, SERVICES));
        // The same port at the same time.
        assert_eq!(server.take(10).len(), 10);
    }
    all.assert_unique();
    let calls = "snowmint_requests_total{protocol=\"grpc\",outcome=\"ok\"}";
    assert!(server.metric(calls) > 20.0);
}

/// Goal: over TLS, both ports answer calls of a client that trusts their CA, with HTTP/2 by ALPN.
#[test]
fn calls_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make();
    let grpc = port::free();
    let [certificate, key, authority] =
        [certificates.certificate(), certificates.key(), certificates.authority()]
            .map(|it| it.to_str().unwrap());
    let server = Serve::new(folder.path())
        .args(["--grpc", &grpc.to_string(), "--tls-cert", certificate, "--tls-key", key])
        .spawn();
    server.log_with("ready: ids are served", PATIENCE);
    let mut all = Ids::new();
    for port in [grpc.port(), server.http().port()] {
        all.add(&ids_over(folder.path(), &[&format!("localhost:{port}"), authority], SERVICES));
    }
    all.assert_unique();
}

/// Health, reflection and ids in every way.
const SERVICES: &str = r#"
SERVING = health_pb2.HealthCheckResponse.SERVING
for service in ["", "snowmint.v1.Snowmint"]:
    assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == SERVING
assert failure(lambda: health.Check(health_pb2.HealthCheckRequest(service="nope")))[0] == "NOT_FOUND"
assert next(health.Watch(health_pb2.HealthCheckRequest())).status == SERVING

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_reflection.v1alpha import reflection_pb2
database = ProtoReflectionDescriptorDatabase(channel)
services = set(database.get_services())
assert {"snowmint.v1.Snowmint", "grpc.health.v1.Health"} <= services, services
described = DescriptorPool(database).FindServiceByName("snowmint.v1.Snowmint")
methods = {method.name: method for method in described.methods}
assert set(methods) == {"Next", "Stream", "Inspect", "TimeBounds", "Namespaces"}, methods
# A client that knows nothing but reflection, as grpcurl is one.
asks, answers = (GetMessageClass(it) for it in (methods["Next"].input_type, methods["Next"].output_type))
call = channel.unary_unary("/snowmint.v1.Snowmint/Next", asks.SerializeToString, answers.FromString)
assert len(call(asks(namespace="default", count=5)).ids) == 5
# Version 1 of the protocol has the same messages.
newer = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    reflection_pb2.ServerReflectionRequest.SerializeToString, reflection_pb2.ServerReflectionResponse.FromString)
for response in newer(iter([reflection_pb2.ServerReflectionRequest(list_services="")])):
    listed = {it.name for it in response.list_services_response.service}
    assert {"snowmint.v1.Snowmint", "grpc.health.v1.Health"} <= listed, listed
for response in client.Stream(iter([request(count=count) for count in (1, 100, 20000)])):
    for id in response.ids: print(id)
for range_ in client.Next(request(count=1000000, format=pb.FORMAT_RANGES)).ranges: print(range_.first)
assert failure(lambda: client.Next(request("nope")))[:2] == ("NOT_FOUND", "unknown-namespace")
"#;

/// Goal: errors have the code, kind and text of the table, and a deadline ends a call in time.
#[test]
fn errors_and_deadlines() {
    let folder = tempfile::tempdir().unwrap();
    // A hundred ids per second.
    let slow = "time:41@10ms worker:10 epoch:2026-01-01";
    let (_server, address) = serve(folder.path(), &["--layout", slow, "--worker", "3", "--window", "1m"]);
    let script = r#"
import time
for bad, code, kind, words in [
    (request("nope"), "NOT_FOUND", "unknown-namespace", "this server has default"),
    (request("no pe"), "INVALID_ARGUMENT", "bad-namespace", "expected 1 to 64"),
    (request(count=0), "INVALID_ARGUMENT", "bad-count", "expected 1 to 100000"),
    (request(count=100001), "INVALID_ARGUMENT", "bad-count", "invalid count 100001: expected 1 to 100000"),
]:
    for call in [lambda: client.Next(bad), lambda: list(client.Stream(iter([bad])))]:
        got = failure(call)
        assert got[:2] == (code, kind) and words in got[2] and got[3] is None, got
began = time.monotonic()
got = failure(lambda: client.Next(request(count=500), timeout=0.5))
assert got[0] == "DEADLINE_EXCEEDED" and time.monotonic() - began < 3, got
got = failure(lambda: list(client.Stream(iter([request(count=500)]), timeout=0.5)))
assert got[0] == "DEADLINE_EXCEEDED", got
assert len(client.Next(request(count=50), timeout=30).ids) == 50
"#;
    ids_of(folder.path(), address, script);
    // The worker is taken, so the second node has no lease.
    let grpc = port::free();
    let mut second = Serve::new(folder.path())
        .args(["--grpc", &grpc.to_string(), "--layout", slow, "--worker", "3", "--window", "1m"])
        .spawn();
    second.log_with("ids are rejected until this node holds a lease", PATIENCE);
    ids_of(
        folder.path(),
        grpc,
        r#"
got = failure(lambda: client.Next(request()))
assert got[:2] == ("UNAVAILABLE", "not-ready") and "no ids can be made now" in got[2] and got[3] == "1000", got
assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.NOT_SERVING
assert client.Inspect(pb.InspectRequest(id="1541815603606036480")).name == "twitter"
"#,
    );
    assert_eq!(second.exit_status(), None);
}

/// Goal: a signal under load cuts no call: each one is answered completely, or its client learns that it had
/// no effect. Method: threads that call without a pause and streams, and then a call that needs seconds for
/// its ids when the signal arrives.
#[test]
fn a_signal_under_load_cuts_no_call() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, address) = serve(folder.path(), &["--window", "10m", "--worker", "3"]);
    let path = folder.path();
    let ids = thread::scope(|scope| {
        let client = scope.spawn(move || {
            ids_of(
                path,
                address,
                r#"
ids, ends = [[] for _ in range(8)], [None] * 8
def work(nth):
    own = connect()
    stub = rpc.SnowmintStub(own)
    try:
        if nth % 2 == 0:
            while True: ids[nth] += stub.Next(request(count=20 if nth else 20000)).ids
        turns = threading.Semaphore(1)
        def requests():
            while True:
                turns.acquire()
                yield request(count=20)
        for response in stub.Stream(requests()):
            ids[nth] += response.ids
            turns.release()
    except grpc.RpcError as error:
        ends[nth] = error.code().name, error.details()
    own.close()
workers = [threading.Thread(target=work, args=(nth,), daemon=True) for nth in range(8)]
for worker in workers: worker.start()
for worker in workers: worker.join(60)
for nth, end in enumerate(ends):
    assert end and end[0] == "UNAVAILABLE", ends
    assert nth % 2 == 0 or "shutting down" in end[1], ends
for seen in ids:
    assert seen and seen == sorted(seen)
    for id in seen: print(id)
"#,
            )
        });
        time::eventually("load", PATIENCE, || {
            (server.metric("snowmint_requests_total{protocol=\"grpc\",outcome=\"ok\"}") > 500.0).then_some(())
        });
        server.terminate();
        client.join().unwrap()
    });
    let ended = server.ended();
    assert!(ended.status.success(), "{}: {}", ended.status, ended.log);
    assert!(
        ended.log.contains("lease released") && !ended.log.contains("connections closed"),
        "{}",
        ended.log
    );
    let (next, _) = serve(folder.path(), &["--worker", "3"]);
    let mut all = Ids::new();
    all.add(&ids);
    all.add(&next.take(1000));
    all.assert_unique();
}

/// Goal: streams that request 100,000 ids at a time without a pause delay no honest client for long, over any
/// protocol.
#[test]
fn greedy_streams_beside_honest_clients() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = serve(folder.path(), &["--window", "3s"]);
    let path = folder.path();
    thread::scope(|scope| {
        let clients = scope.spawn(move || {
            ids_of(
                path,
                address,
                r"
import time
stop = time.monotonic() + 6
def greedy():
    own = rpc.SnowmintStub(connect())
    def requests():
        while time.monotonic() < stop: yield request(count=100000)
    # It keeps the bytes as they come: decoding them would be most of the work.
    for _ in range(4):
        threading.Thread(target=lambda: [None for _ in own.Stream(requests())], daemon=True).start()
for _ in range(2): greedy()
asked = 0
while time.monotonic() < stop:
    assert len(client.Next(request(), timeout=10).ids) == 1
    asked += 1
print(asked)
",
            )
        });
        let mut honest = Resp::connect(server.resp(), PATIENCE).unwrap();
        let mut http = Http::connect(server.http(), PATIENCE).unwrap();
        let mut slowest = Duration::ZERO;
        while !clients.is_finished() {
            let began = time::now();
            honest.next("default", 1).expect("an answer in time").expect("an id");
            assert_eq!(http.get("/readyz", "").expect("an answer in time").status, 200);
            slowest = slowest.max(began.elapsed());
        }
        println!("{:?} honest calls; the slowest of RESP and HTTP took {slowest:?}", clients.join().unwrap());
    });
    let log = server.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}
