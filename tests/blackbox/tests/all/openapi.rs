//! Tests the document at `/openapi.json` against a running server: requests each documented path, method,
//! parameter, status and media type, and checks that each answer is valid by its schema.

use std::path::Path;
use std::time::Duration;

use snowmint_test_servers::snowmint::third_party::python;
use snowmint_test_servers::snowmint::{self, Serve};
use snowmint_test_servers::time;

/// Requests the document, and defines how it is compared with an answer.
const HEAD: &str = r##"
import http.client, json, sys
from urllib.parse import quote, urlencode
import jsonschema, openapi_spec_validator

host, port = sys.argv[1].rsplit(":", 1)

def request(method, target, headers, body=None):
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request(method, target, body=body, headers=headers)
    answer = connection.getresponse()
    return answer, answer.read().decode()

document = json.loads(request("GET", "/openapi.json", {})[1])
openapi_spec_validator.validate(document)

def resolved(value):
    if "$ref" in value:
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = document[part] if part == "components" else found[part]
        return found
    return value

def validator(schema):
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]})

def valid(value, schema):
    validator(schema).validate(value)

answered, used = set(), set()

def call(method, path, status, query={}, headers={}, media=None, body=None, **names):
    operation = document["paths"][path][method]
    target = path
    for name, value in names.items():
        target = target.replace("{" + name + "}", quote(value, safe=""))
    target += "?" + urlencode(query) if query else ""
    answer, text = request(method.upper(), target, headers, body)
    place = f"{method} {target}: {answer.status} {text[:300]}"
    assert answer.status == status, place
    for parameter in map(resolved, operation.get("parameters", [])):
        given = {"path": names, "query": query, "header": headers}[parameter["in"]]
        if parameter["name"] in given:
            used.add((path, method, parameter["name"]))
            value = given[parameter["name"]]
            if status == 200 and resolved(parameter["schema"]).get("type") in ("integer", "number"):
                value = json.loads(value)
            if status == 200:
                valid(value, parameter["schema"])
    documented = resolved(operation["responses"][str(status)])
    kind = answer.getheader("content-type").split(";")[0]
    assert media in (None, kind), place
    schema = documented["content"][kind]["schema"]
    valid(text if kind.startswith(("text/", "application/openmetrics")) else json.loads(text), schema)
    for name, header in documented.get("headers", {}).items():
        header = resolved(header)
        value = answer.getheader(name)
        if name == "Idempotency-Replayed" and value is None:
            continue
        valid(json.loads(value) if header["schema"].get("type") == "integer" else value, header["schema"])
    answered.add((path, method, status, kind))
    return text

# What the server refuses as invalid, the schema refuses too; what it takes, or refuses for what the store has, is valid.
def agrees(status, value, schema):
    assert validator(schema).is_valid(value) == (status != 400), (status, value)

def agrees_with_parameter(status, path, name, value, **names):
    operation = document["paths"][path]["get"]
    call("get", path, status, {name: value}, **names)
    schema = next(it["schema"] for it in map(resolved, operation["parameters"]) if it["name"] == name)
    agrees(status, value, schema)

# The paths of administration have a test of their own.
is_admin = sys.argv[2] == "admin"
document["paths"] = {path: it for path, it in document["paths"].items() if path.startswith("/v1/admin/") == is_admin}
"##;

/// Requests everything but the admin API.
const IDS: &str = r#"elsewhere = {"headers": {"Host": "evil.example"}}
other_site = {"headers": {"Sec-Fetch-Site": "cross-site"}}
samples = {"namespace": "default", "id": "1", "key": "default"}
for path, operations in document["paths"].items():
    for method in operations:
        call(method, path, 421, **elsewhere, **{n: v for n, v in samples.items() if "{" + n + "}" in path})

# More than are left takes none of them.
call("get", "/v1/ids/{namespace}", 400, {"count": "100"}, namespace="few")
call("get", "/v1/ids/{namespace}", 200, {"count": "10"}, namespace="few")
for method in ("get", "post"):
    for path, most in (("/v1/ids/{namespace}", "100000"), ("/v1/ranges/{namespace}", "1000000")):
        call(method, path, 200, namespace="default")
        call(method, path, 200, {"count": "1000", "wait": "0.5"}, namespace="default")
        call(method, path, 200, {"count": most, "wait": "10"}, namespace="default")
        call(method, path, 400, {"count": most + "0"}, namespace="default")
        call(method, path, 400, {"wait": "11"}, namespace="default")
        call(method, path, 403, **other_site, namespace="default")
        call(method, path, 404, namespace="nope")
        call(method, path, 500, {"count": "100"}, namespace="few")
        call(method, path, 503, {"count": most, "wait": "0"}, namespace="default")
        if method == "post":
            key, own = {"Idempotency-Key": "a-key"}, "default" if "ids" in path else "many"
            first = call(method, path, 200, {"count": "5"}, key, namespace=own)
            again = call(method, path, 200, {"count": "5"}, key, namespace=own)
            assert first == again
            call(method, path, 422, {"count": "6"}, key, namespace=own)
            call(method, path, 400, {}, {"Idempotency-Key": "x" * 256}, namespace="default")
            # A request that runs is tested elsewhere.
            answered.add((path, method, 409, "application/problem+json"))
    path = "/v1/ids/{namespace}"
    call(method, path, 200, {"format": "text"}, media="text/plain", namespace="default")
    call(method, path, 200, {"count": "1000"}, {"Accept": "text/plain"}, "text/plain", namespace="default")
    call(method, path, 200, {"format": "json"}, {"Accept": "text/plain"}, "application/json", namespace="default")
    for path, key in (("/api/segment/get/{key}", "many"), ("/api/snowflake/get/{key}", "default")):
        call(method, path, 200, key=key)
        call(method, path, 500, key="nope")
        call(method, path, 403, **other_site, key=key)
    for path in ("/tinyid/id/nextId", "/tinyid/id/nextIdSimple"):
        call(method, path, 200, {"bizType": "many", "batchSize": "5", "token": "x"})
        call(method, path, 200, {"bizType": "nope"})
        call(method, path, 403, {"bizType": "many"}, **other_site)

id = json.loads(call("get", "/v1/ids/{namespace}", 200, namespace="default"))["ids"][0]
inspect = "/v1/inspect/{id}"
for query in ({}, {"namespace": "default"}, {"layout": "twitter"}):
    assert json.loads(call("get", inspect, 200, query, id=id))["id"] == id
call("get", inspect, 400, id="x")
for path in (inspect, "/v1/readings/{id}"):
    agrees_with_parameter(400, path, "layout", "", id=id)
    agrees_with_parameter(200, path, "layout", "twitter", id=id)
agrees_with_parameter(400, "/v1/layout", "spec", "")
# A method that a path never takes is refused before the query is.
for path in ("/v1/inspect/1?namespace=default&layout=", "/v1/layout?surplus=1", "/v1/ids/default?wait=x"):
    for method in ("TRACE", "PUT", "DELETE", "PATCH"):
        answer, body = request(method, path, {})
        assert answer.status == 405 and "GET" in answer.getheader("allow"), f"{method} {path}: {answer.status} {body}"
call("get", inspect, 404, {"namespace": "nope"}, id=id)
readings = "/v1/readings/{id}"
for query in ({}, {"namespace": "default"}, {"layout": "twitter"}):
    assert json.loads(call("get", readings, 200, query, id=id))["readings"][0]["id"] == id
for text in ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "507f1f77bcf86cd799439011", "7"):
    call("get", readings, 200, id=text)
call("get", readings, 400, id="x")
call("get", readings, 404, {"namespace": "nope"}, id=id)
call("get", "/v1/layouts", 200)
call("get", "/v1/layout", 200, {"spec": "time:41,worker:10,sequence:12,epoch:2026-01-01"})
call("get", "/v1/layout", 400, {"spec": "time:60,worker:10"})
call("get", "/v1/server", 200)
for name, served in (("default", ["default"]), ("nope", [])):
    server = json.loads(call("get", "/v1/server", 200, {"namespace": name}))
    assert ([it["name"] for it in server["namespaces"]], server["more_namespaces"]) == (served, 0), server
for path in ("/v1/layouts", "/v1/server"):
    call("get", path, 400, {"unknown": "1"})
call("get", "/decodeSnowflakeId", 200, {"snowflakeId": id})
call("get", "/decodeSnowflakeId", 200, {"snowflakeId": "x"})
for path in ("/healthz", "/readyz", "/openapi.json"):
    call("get", path, 200)
call("get", "/metrics", 200, media="text/plain")
call("get", "/metrics", 200, {}, {"Accept": "application/openmetrics-text"}, "application/openmetrics-text")

# Invalid percent-encoding, which no client library sends by itself.
def bad_encoding(method, path, target):
    answer, body = request(method.upper(), target, {})
    assert answer.status == 400, body
    valid(json.loads(body), document["components"]["schemas"]["Problem"])
    answered.add((path, method, 400, answer.getheader("content-type")))
for method in ("get", "post"):
    for path in ("/api/segment/get/{key}", "/api/snowflake/get/{key}"):
        bad_encoding(method, path, path.replace("{key}", "%"))
    for path in ("/tinyid/id/nextId", "/tinyid/id/nextIdSimple"):
        bad_encoding(method, path, path + "?bizType=%")
bad_encoding("get", "/decodeSnowflakeId", "/decodeSnowflakeId?snowflakeId=%")

# A server with tokens.
host, port = sys.argv[3].rsplit(":", 1)
mint, look, few = ({"Authorization": "Bearer " + token} for token in sys.argv[4:])
call("get", "/v1/ids/{namespace}", 200, {"count": "50"}, few, namespace="default")
for path, operations in document["paths"].items():
    names = {name: value for name, value in samples.items() if "{" + name + "}" in path}
    for method, operation in operations.items():
        if "401" in operation["responses"]:
            assert operation["security"] == [{}, {"token": []}]
            call(method, path, 401, {}, {"Authorization": "Bearer wrong"}, **names)
        if "429" in operation["responses"]:
            call(method, path, 403, {}, look, **names)
            call(method, path, 429, {"count": "10"}, few, **names)
        elif "403" in operation["responses"] and (path, method, 403, "application/problem+json") not in answered:
            call(method, path, 403, {}, mint, **names)

# A node without a lease is tested elsewhere.
answered.add(("/readyz", "get", 503, "application/problem+json"))
"#;

/// Requests the admin API.
const ADMIN: &str = r#"
ops, web = ({"Authorization": "Bearer " + token} for token in sys.argv[3:])
typed = {**ops, "Content-Type": "application/json"}
samples = {"namespace": "n", "worker": "5"}
for path, operations in document["paths"].items():
    names = {name: value for name, value in samples.items() if "{" + name + "}" in path}
    for method, operation in operations.items():
        call(method, path, 421, {}, {"Host": "evil.example"}, **names)
        call(method, path, 401, **names)
        call(method, path, 403, {}, web, **names)
        if "400" in operation["responses"]:
            call(method, path, 400, {"unknown": "1"}, ops, **names)
        if "requestBody" in operation:
            call(method, path, 415, {}, {**ops, "Content-Type": "text/plain"}, body="{}", **names)
            call(method, path, 413, {}, typed, body=json.dumps({"text": "x" * 70000}), **names)

namespace, n = "/v1/admin/namespaces/{namespace}", {"namespace": "n"}
def put(status, settings, headers={}, **name):
    agrees(status, settings, document["components"]["schemas"]["Addition"])
    return call("put", namespace, status, {}, {**typed, **headers}, body=json.dumps(settings), **name or n)
def patch(status, settings, headers={}, **name):
    agrees(status, settings, document["components"]["schemas"]["Change"])
    return call("patch", namespace, status, {}, {**typed, **headers}, body=json.dumps(settings), **name or n)
for method in ("get", "delete"):
    call(method, namespace, 404, {}, ops, **n)

# What is invalid in itself, by setting and by scheme.
for settings in (
    {"scheme": "snowflake", "layout": ""}, {"scheme": "snowflake", "rule": ""}, {"scheme": "snowflake", "rule": "reject then reject?"},
    {"scheme": "snowflake", "sequence_start": "random(0)"}, {"scheme": "segment", "stripe": ""}, {"scheme": "segment", "mode": "fast"},
    {"scheme": "segment", "maximum": 2**63}, {"scheme": "segment", "start": -1}, {"scheme": "segment", "size_min": 0},
    {"scheme": "segment", "size_max": 2**40 + 1}, {"scheme": "segment", "text": ""}, {"scheme": "segment", "hide": ""},
    {"scheme": "segment", "hide": "a b"}, {"scheme": "segment", "hide": "known", "hide_check": "12"},
    {"scheme": "segment", "hide_check": "0011223344556677"}, {"scheme": "segment", "description": "x" * 257},
    {"scheme": "segment", "owner": "a\nb"}, {"scheme": "segment", "reset": "daily"}, {"scheme": "snowflakes"},
    {"scheme": "segment", "reset": "daily", "text": "{date}-{number}", "hide": "known"},
    {"scheme": "segment", "layout": "twitter"}, {"scheme": "snowflake", "maximum": 5}, {"layout": "twitter", "maximum": 5},
    {"scheme": "ulid", "maximum": 5}, {"scheme": "ulid", "rule": "reject"}, {"scheme": "ulid", "hide": "known"},
    {"hide": "known"}, {"stripe": "1/2"}, {"unknown": 1},
): put(400, settings, namespace="invalid")
# Before other layouts have workers of their own, which may be the same.
release = "/v1/admin/workers/{worker}/release"
call("post", release, 409, {}, typed, body="{}", worker="5")
call("post", release, 404, {}, typed, body="{}", worker="9")
call("post", release, 400, {}, typed, body='{"holder": "x"}', worker="5")
call("post", release, 412, {}, typed, body='{"force": true, "holder": "another"}', worker="5")
call("post", release, 200, {}, typed, body='{"force": true}', worker="5")
# What is valid, in each scheme.
for nth, settings in enumerate((
    {"scheme": "snowflake"}, {"layout": "time:41,worker:10,sequence:12,epoch:2026-01-01"}, {"layout": "leaf", "hide": "known", "hide_check": "0011223344556677"},
    {"scheme": "snowflake", "rule": "wait(5ms) then borrow(1s) then reject", "sequence_start": "random(100)"},
    {"scheme": "segment", "stripe": "1/2", "start": 0, "maximum": 2**63 - 1, "size_min": 1, "size_max": 2**40, "mode": "direct"},
    {"scheme": "segment", "reset": "yearly", "text": "{yyyy}-{number:6}", "description": "ü" * 256, "owner": ""},
    {"scheme": "segment", "hide": "known", "hide_check": "0011223344556677", "text": "T-{base62}"}, {"scheme": "uuid7", "text": "u_{id}"}, {"scheme": "ulid", "start_over": {}},
)): put(200, settings, namespace=f"valid-{nth}")
# Only the check value of a key says which key it is.
put(409, {"scheme": "segment", "hide": "known"}, namespace="valid")
# A change is also valid if it conflicts with the namespace, which no schema knows.
for settings in ({"scheme": "segment"}, {"scheme": "ulid"}, {"start": 5}, {"layout": "leaf"}, {"hide": "known"}):
    patch(409, settings, namespace="valid-0")
for settings in ({"scheme": "snowflake"}, {"scheme": "snowflake", "rule": "reject"}, {"rule": None, "owner": "ids"}):
    patch(200, settings, namespace="valid-0")
for settings in ({}, {"scheme": "x"}, {"scheme": None}, {"hide": ""}, {"layout": ""}, {"rule": "x"}, {"unknown": 1}):
    patch(400, settings, namespace="valid-0")
answer, body = request("PATCH", "/v1/admin/workers?surplus=1", typed, "{}")
assert answer.status == 405, body
patch(404, {"maximum": 5})
added = json.loads(put(200, {"scheme": "segment", "text": "A{number:4}", "maximum": 90, "mode": "cached"}))
assert added["served_here"] and added["namespace"]["state"] == "served", added
put(409, {"scheme": "segment"})
call("get", namespace, 200, {}, ops, **n)
patch(200, {"maximum": None}, {"If-Match": "*"})
patch(412, {"maximum": 70}, {"If-Match": '"1"'})
patch(409, {"stripe": "1/2"})
call("delete", namespace, 412, {}, {**ops, "If-Match": '"1"'}, **n)
call("delete", namespace, 200, {}, {**ops, "If-Match": "*"}, **n)
call("delete", namespace, 409, {}, ops, **n)
put(412, {}, {"If-None-Match": "*"})
put(412, {}, {"If-Match": '"1"'})
put(200, {"start_over": {}}, {"If-Match": "*"})
call("put", namespace, 200, {}, {**typed, "If-None-Match": "*"}, body='{"scheme": "ulid"}', namespace="other")
call("get", "/v1/admin/namespaces", 200, {}, ops)
call("get", "/v1/admin/workers", 200, {}, ops)
call("get", "/v1/admin/store", 200, {}, ops)
release = "/v1/admin/workers/{worker}/release"
call("get", "/v1/admin/doctor", 200, {}, ops)
call("get", "/v1/admin/doctor", 200, {"nodes": "http://127.0.0.1:9"}, ops)
nodes = document["paths"]["/v1/admin/doctor"]["get"]["parameters"][0]["schema"]
for status, text in ((400, "x"), (400, "http://127.0.0.1"), (200, "http://127.0.0.1:9"), (403, "http://[::1]:9,http://n.example:1")):
    agrees(status, text, nodes)
    call("get", "/v1/admin/doctor", status, {"nodes": text}, ops)
matches = next(it for it in document["paths"][namespace]["delete"]["parameters"] if it.get("name") == "If-Match")["schema"]
for status, text in ((400, ""), (400, "x"), (412, '"77"')):
    agrees(status, text, matches)
    call("delete", namespace, status, {}, {**ops, "If-Match": text}, namespace="valid-0")
call("get", "/v1/admin/doctor", 403, {"nodes": f"http://{host}:{port}"}, ops)
level = "/v1/admin/log-level"
shown = json.loads(call("get", level, 200, {}, ops))
assert shown.pop("holder") and shown == {"level": "info", "configured": "info"}, shown
assert json.loads(call("put", level, 200, {}, typed, body='{"level": "debug"}'))["level"] == "debug"
levels = document["paths"][level]["put"]["requestBody"]["content"]["application/json"]["schema"]
for status, text in ((400, "loud"), (400, ""), (200, "info,snowmint_cluster=warn"), (200, "warn")):
    agrees(status, {"level": text}, levels)
    call("put", level, status, {}, typed, body=json.dumps({"level": text}))
assert json.loads(call("delete", level, 200, {}, ops))["level"] == "info"
for method in ("get", "post", "delete"):
    call(method, "/v1/admin/drain", 200, {}, ops)
call("get", "/v1/admin/fleet", 200, {}, ops)
call("get", "/v1/admin/history", 200, {}, ops)
# The stream does not end: its first state.
connection = http.client.HTTPConnection(host, int(port), timeout=30)
connection.request("GET", "/v1/admin/events", headers=ops)
events = connection.getresponse()
assert events.status == 200 and events.getheader("content-type") == "text/event-stream", events.status
assert events.readline() == b"retry: 2000\n" and events.readline() == b"\n"
assert events.readline() == b"event: fleet\n"
valid(json.loads(events.readline().decode().removeprefix("data: ")), document["components"]["schemas"]["Fleet"])
answered.add(("/v1/admin/events", "get", 200, "text/event-stream"))
connection.close()
call("get", "/v1/admin/audit", 200, {}, ops)
# A store that fails is tested elsewhere.
for path, operations in document["paths"].items():
    for method, operation in operations.items():
        for status in (500, 503, 504):
            answered.add((path, method, status, "application/problem+json"))
        is_of_store = path.split("/")[3] in ("namespaces", "workers", "doctor", "audit", "store")
        assert ("503" in operation["responses"]) == is_of_store, f"{method} {path}: 503"
        assert ("504" in operation["responses"]) == (is_of_store and method != "get"), f"{method} {path}: 504"
call("get", "/v1/admin/audit", 200, {"limit": "5", "namespace": "n"}, ops)
"#;

/// Checks that everything documented was requested.
const TAIL: &str = r#"for path, operations in document["paths"].items():
    for method, operation in operations.items():
        for parameter in map(resolved, operation.get("parameters", [])):
            assert (path, method, parameter["name"]) in used, f"unused: {method} {path} {parameter['name']}"
        for status, answer in operation["responses"].items():
            for kind in resolved(answer)["content"]:
                assert (path, method, int(status), kind) in answered, f"unseen: {method} {path} {status} {kind}"
print("checked", len(answered))
"#;

/// Creates a token in `tokens.toml`.
fn token(folder: &Path, name: &str, rights: &str, more: &[&str]) -> String {
    let args = ["token", "create", name, "--namespaces", "*", "--rights", rights, "--file", "tokens.toml"];
    let created = snowmint::run(folder, [&args, more].concat());
    assert!(created.status.success(), "{}", snowmint::text(&created));
    String::from_utf8(created.stdout).unwrap().trim().to_owned()
}

#[test]
fn answers_are_as_documented() {
    time::wait_at_midnight();
    let folder = tempfile::tempdir().unwrap();
    snowmint::run(folder.path(), ["store", "init", "--data", "data"]);
    for (name, maximum) in [("few", "10"), ("many", "1000000000")] {
        let add = ["ns", "add", name, "--scheme", "segment", "--maximum", maximum, "--data", "data"];
        let added = snowmint::run(folder.path(), add);
        assert!(added.status.success(), "{}", snowmint::text(&added));
    }
    let server = Serve::new(folder.path()).start();
    let other = tempfile::tempdir().unwrap();
    let [mint, look, few] =
        [("mint", "mint", &[][..]), ("look", "inspect", &[]), ("few", "mint", &["--per-day", "50"])]
            .map(|(name, rights, more)| token(other.path(), name, rights, more));
    let guarded = Serve::new(other.path()).args(["--tokens-file", "tokens.toml"]).spawn();
    guarded.log_with("ready: ids are served", Duration::from_secs(30));
    let addresses = [&server, &guarded].map(|it| it.http().to_string());
    let args = [&addresses[0], "ids", &addresses[1], &mint, &look, &few];
    let checked = python("openapi_spec_validator", &[HEAD, IDS, TAIL].concat(), &args);
    assert!(checked.starts_with("checked "), "{checked}");
}

#[test]
fn answers_of_the_admin_api_are_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let (ops, web) = (token(folder.path(), "ops", "admin", &[]), token(folder.path(), "web", "mint", &[]));
    let args =
        ["--tokens-file", "tokens.toml", "--worker", "5", "--window", "1h", "--peers", "http://127.0.0.1:9"];
    let server = Serve::new(folder.path()).args(args).start();
    let script = [HEAD, ADMIN, TAIL].concat();
    let address = server.http().to_string();
    let checked = python("openapi_spec_validator", &script, &[&address, "admin", &ops, &web]);
    assert!(checked.starts_with("checked "), "{checked}");
}
