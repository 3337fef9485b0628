//! The document at `/openapi.json` against a running server: each path, method, parameter, status and media type that it documents is
//! requested, and each answer is valid by its schema.

use snowmint_test_servers::snowmint::external::python;
use snowmint_test_servers::snowmint::{self, Serve};

const SCRIPT: &str = r##"
import http.client, json, sys
from urllib.parse import quote, urlencode
import jsonschema, openapi_spec_validator

host, port = sys.argv[1].rsplit(":", 1)

def request(method, target, headers):
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request(method, target, headers=headers)
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

def valid(value, schema):
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(value)

answered, used = set(), set()

def call(method, path, status, query={}, headers={}, media=None, **names):
    operation = document["paths"][path][method]
    target = path
    for name, value in names.items():
        target = target.replace("{" + name + "}", quote(value, safe=""))
    target += "?" + urlencode(query) if query else ""
    answer, body = request(method.upper(), target, headers)
    place = f"{method} {target}: {answer.status} {body[:300]}"
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
    valid(body if kind.startswith(("text/", "application/openmetrics")) else json.loads(body), schema)
    for name, header in documented.get("headers", {}).items():
        value = answer.getheader(name)
        if name == "Idempotency-Replayed" and value is None:
            continue
        valid(json.loads(value) if header["schema"].get("type") == "integer" else value, header["schema"])
    answered.add((path, method, status, kind))
    return body

# The paths of administration need a token, which this server has none of.
admin = {path: document["paths"].pop(path) for path in list(document["paths"]) if path.startswith("/v1/admin/")}
assert len(admin) == 7

elsewhere = {"headers": {"Host": "evil.example"}}
other_site = {"headers": {"Sec-Fetch-Site": "cross-site"}}
for path, operations in document["paths"].items():
    names = {"namespace": "default", "id": "1", "key": "default"}
    for method in operations:
        call(method, path, 421, **elsewhere, **{n: v for n, v in names.items() if "{" + n + "}" in path})

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
call("get", inspect, 404, {"namespace": "nope"}, id=id)
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

# A node without a lease is tested elsewhere.
answered.add(("/readyz", "get", 503, "application/problem+json"))
for path, operations in document["paths"].items():
    for method, operation in operations.items():
        for parameter in map(resolved, operation.get("parameters", [])):
            assert (path, method, parameter["name"]) in used, f"unused: {method} {path} {parameter['name']}"
        for status, answer in operation["responses"].items():
            for kind in resolved(answer)["content"]:
                assert (path, method, int(status), kind) in answered, f"unseen: {method} {path} {status} {kind}"
print("checked", len(answered))
"##;

#[test]
fn answers_are_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    snowmint::run(folder.path(), ["store", "init", "--data", "data"]);
    for (name, maximum) in [("few", "10"), ("many", "1000000000")] {
        let add = ["ns", "add", name, "--scheme", "segment", "--maximum", maximum, "--data", "data"];
        let added = snowmint::run(folder.path(), add);
        assert!(added.status.success(), "{}", snowmint::text(&added));
    }
    let server = Serve::new(folder.path()).start();
    let checked = python("openapi_spec_validator", SCRIPT, &[&server.http().to_string()]);
    assert!(checked.starts_with("checked "), "{checked}");
}
