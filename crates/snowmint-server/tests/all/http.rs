//! HTTP over real sockets: documents, problems, limits, and shutdown.
//! Heads are compared in lower case; no test depends on time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use snowmint::{DatacenterId, Layout, ManualClock, WallClock};
use snowmint_cluster::namespace::Definition;
use snowmint_cluster::{NamespaceName, WorkerPool};
use snowmint_server::limits::MAX_COUNT;
use snowmint_server::mint::{Backend, Namespace};
use snowmint_server::{AllowedHosts, CorsOrigins, Settings, SharedClock, Timeouts};

use crate::support::running_service::{Client, Running, settings, split};
use crate::support::test_source::{TestSource, mint_of};
use crate::tokens::{Tokens, row};

fn ids(body: &str) -> Vec<u64> {
    let document: Value = serde_json::from_str(body).unwrap();
    let ids = document["ids"].as_array().unwrap();
    ids.iter().map(|id| id.as_str().expect("ids are strings in JSON").parse().unwrap()).collect()
}

#[tokio::test]
async fn ids_strictly_increase_whatever_the_count() {
    let server = Running::start().await;
    let mut all = Vec::new();
    for (query, count) in [("", 1), ("?count=1", 1), ("?count=501", 501), ("?count=100000", MAX_COUNT)] {
        let (head, body) = server.get(&format!("/v1/ids/default{query}")).await;
        assert!(
            head.starts_with("http/1.1 200 ok\r\n") && head.contains("cache-control: no-store"),
            "{head}"
        );
        assert!(head.contains("content-type: application/json"), "{head}");
        let ids = ids(&body);
        assert_eq!(ids.len(), count, "{query}");
        all.extend(ids);
    }
    assert!(all.is_sorted_by(|a, b| a < b));
}

/// Goal: ranges and lists share one stream of ids, and ranges may be larger.
#[tokio::test]
async fn ranges_are_runs_of_consecutive_ids() {
    let server = Running::start().await;
    let mut last = ids(&server.get("/v1/ids/default").await.1)[0];
    for (query, count) in
        [("", 1), ("?count=1", 1), ("?count=5000", 5000), ("?count=1000000&wait=10", 1_000_000)]
    {
        let (head, body) = server.get(&format!("/v1/ranges/default{query}")).await;
        assert!(
            head.starts_with("http/1.1 200 ") && head.contains("content-type: application/json"),
            "{head}"
        );
        let document: Value = serde_json::from_str(&body).unwrap();
        let mut seen = 0;
        for range in document["ranges"].as_array().unwrap() {
            let number = |name: &str| -> u64 { range[name].as_str().unwrap().parse().unwrap() };
            assert!(number("first") > last, "{range} after {last}");
            assert_eq!(number("step"), 1);
            seen += range["count"].as_u64().unwrap();
            last = number("first") + range["count"].as_u64().unwrap() - 1;
        }
        assert_eq!(seen, count);
    }
    assert!(ids(&server.get("/v1/ids/default").await.1)[0] > last);
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("snowmint_ids_issued_total{namespace=\"default\"} 1005004\n"), "{metrics}");
    for (path, status, words) in [
        ("/v1/ranges/default?count=1000001", 400, "expected 1 to 1000000"),
        ("/v1/ranges/nope", 404, "unknown namespace `nope`"),
    ] {
        let (head, body) = server.get(path).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")) && body.contains(words), "{head} {body}");
    }
    let (head, body) = server.request("HEAD /v1/ranges/default HTTP/1.1").await;
    assert!(head.starts_with("http/1.1 200 ") && body.is_empty(), "{head}");
}

/// Goal: an explicit format wins over `Accept`.
#[tokio::test]
async fn the_format_parameter_wins() {
    let server = Running::start().await;
    for (format, accept, kind) in [
        ("json", "text/plain", "application/json"),
        ("text", "application/json", "text/plain; charset=utf-8"),
    ] {
        let head = format!("GET /v1/ids/default?format={format} HTTP/1.1\r\naccept: {accept}");
        let (head, body) = server.request(&head).await;
        assert!(head.contains(&format!("content-type: {kind}")), "{head}");
        assert_eq!(body[0] == b'{', format == "json");
    }
}

/// Goal: a request waits for its ids as long as it says, and no longer. Method: paused time, and ids that
/// never come.
#[tokio::test(start_paused = true)]
async fn a_request_waits_as_long_as_it_says() {
    use std::time::Duration;
    let server = Running::start().await;
    server.source.set_stuck(true);
    for path in ["ids", "ranges"] {
        for (wait, ms) in [("&wait=0", 0), ("&wait=2.5", 2500), ("", 10_000)] {
            let mut client = server.http().await;
            let began = tokio::time::Instant::now();
            let head = format!(
                "GET /v1/{path}/default?count=50000{wait} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"
            );
            client.send(head.as_bytes()).await;
            let (head, body) = split(&client.rest().await);
            let took = began.elapsed();
            assert!(head.starts_with("http/1.1 503 ") && head.contains("retry-after: 1"), "{head}");
            assert!(String::from_utf8(body).unwrap().contains("could not be made within"));
            let wanted = Duration::from_millis(ms);
            assert!(took >= wanted && took < wanted + Duration::from_secs(1), "{wait}: {took:?}");
        }
    }
    server.source.set_stuck(false);
    assert_eq!(ids(&server.get("/v1/ids/default?count=50000&wait=0.5").await.1).len(), 50_000);
}

/// Goal: TinyID's clients work unchanged, even when they fail.
#[tokio::test]
async fn tinyid_paths_answer_as_tinyid() {
    let server = Running::start().await;
    let mut last = 0;
    for (query, count) in
        [("", 1), ("&batchSize=3", 3), ("&batchSize=0", 1), ("&batchSize=200000&token=x", MAX_COUNT)]
    {
        let (head, body) = server.get(&format!("/tinyid/id/nextId?bizType=default{query}")).await;
        assert!(head.starts_with("http/1.1 200 ") && head.contains("application/json"), "{head}");
        let document: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&document["code"], &document["message"]), (&200.into(), &"".into()));
        let ids: Vec<u64> =
            document["data"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
        assert_eq!(ids.len(), count);
        assert!(ids[0] > last && ids.is_sorted_by(|a, b| a < b));
        last = *ids.last().unwrap();
    }
    let (head, body) = server
        .request("POST /tinyid/id/nextIdSimple?bizType=default&batchSize=4 HTTP/1.1\r\ncontent-length: 0")
        .await;
    assert!(head.contains("content-type: text/plain"), "{head}");
    let body = String::from_utf8(body).unwrap();
    let ids: Vec<u64> = body.split(',').map(|id| id.parse().unwrap()).collect();
    assert!(ids.len() == 4 && ids[0] > last, "{body}");
    for (query, message) in [
        ("bizType=nope", "unknown namespace `nope`"),
        ("token=x", "invalid namespace name"),
        ("bizType=default&batchSize=x", "invalid count `x`"),
    ] {
        let (head, body) = server.get(&format!("/tinyid/id/nextId?{query}")).await;
        let document: Value = serde_json::from_str(&body).unwrap();
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        assert_eq!((&document["data"], &document["code"]), (&Value::Null, &6.into()));
        assert!(document["message"].as_str().unwrap().contains(message), "{body}");
        let (head, body) = server.get(&format!("/tinyid/id/nextIdSimple?{query}")).await;
        assert!(head.starts_with("http/1.1 200 ") && body.is_empty(), "{head} {body}");
    }
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("outcome=\"unknown-namespace\"} 2\n"), "{metrics}");
}

/// Goal: Leaf's decoder answers like Leaf. The id and its fields are from Leaf's own article.
#[tokio::test]
async fn leaf_decodes_as_leaf() {
    let server = Running::start().await;
    let id: u64 = (1_567_733_700_834 - 1_288_834_974_657) * 4_194_304 + 39 * 4096 + 3448;
    let (head, body) = server.get(&format!("/decodeSnowflakeId?snowflakeId={id}")).await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    // Leaf's server was 8 hours east of UTC.
    let wanted = "{\"timestamp\":\"1567733700834(2019-09-06 01:35:00.834)\",\"sequenceId\":\"3448\",\"workerId\":\"39\"}";
    assert_eq!(body, wanted);
    for id in ["x", "", "9223372036854775808"] {
        let (head, body) = server.get(&format!("/decodeSnowflakeId?snowflakeId={id}")).await;
        assert!(
            head.starts_with("http/1.1 200 ") && body.starts_with("{\"errorMsg\":\"invalid id "),
            "{body}"
        );
    }
}

#[tokio::test]
async fn plain_text_is_one_id_a_line() {
    let server = Running::start().await;
    for count in [1, 3, 2000] {
        let head = format!("GET /v1/ids/or%64ers?count={count} HTTP/1.1\r\naccept: text/plain");
        let (head, body) = server.request(&head).await;
        assert!(head.contains("content-type: text/plain"), "{head}");
        let body = String::from_utf8(body).unwrap();
        assert!(body.ends_with('\n') && body.lines().all(|line| line.parse::<u64>().is_ok()), "{body}");
        assert_eq!(body.lines().count(), count);
    }
}

#[tokio::test]
async fn problems_have_status_type_and_what_helps() {
    let server = Running::start().await;
    for (path, status, kind, detail) in [
        (
            "/v1/ids/nope",
            404,
            "unknown-namespace",
            "unknown namespace `nope`: this server has default, orders;",
        ),
        ("/v1/ids/a%20b", 400, "bad-namespace", "invalid namespace name `a b`: "),
        ("/v1/ids/..", 400, "bad-namespace", "not only `.` or `..`"),
        ("/v1/ids/default?count=0", 400, "bad-count", "invalid count 0: expected 1 to 100000"),
        ("/v1/ids/default?count=-1", 400, "bad-count", "expected 1 to 100000"),
        ("/v1/ids/default?count=1e9", 400, "bad-count", "`1e9`"),
        ("/v1/ids/default?count=1000000000", 400, "bad-count", "expected 1 to 100000"),
        ("/v1/ids/default?count=abc", 400, "bad-count", "`abc`"),
        ("/v1/ids/default?count=", 400, "bad-count", "expected 1 to 100000"),
        ("/v1/ids/default?cuont=5", 400, "bad-request", "unknown query parameter `cuont`"),
        ("/v1/ids/default?count=5&count=6", 400, "bad-request", "repeated query parameter `count`"),
        ("/v1/ids/default%2", 400, "bad-request", "two hexadecimal digits"),
        ("/v1/inspect/x", 400, "bad-id", "invalid id `x`: "),
        ("/v1/inspect/9223372036854775808", 400, "bad-id", "2^63"),
        ("/v1/inspect/x?namespace=orders", 400, "bad-id", "`x` is not an id of namespace `orders`"),
        ("/v1/inspect/1?namespace=nope", 404, "unknown-namespace", "this server has default, orders"),
        ("/v1/inspect/1?layout=time:99", 400, "bad-request", "invalid layout `time:99`"),
        (
            "/v1/inspect/1?layout=js53&namespace=orders",
            400,
            "bad-request",
            "surplus query parameter `namespace`",
        ),
        ("/", 404, "unknown", "/v1/ids/{namespace}"),
    ] {
        let (head, body) = server.get(path).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{path}: {head}");
        assert!(head.contains("content-type: application/problem+json"), "{path}: {head}");
        let problem: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(problem["type"], format!("urn:snowmint:{kind}"), "{path}");
        assert_eq!(problem["status"], status, "{path}");
        assert!(
            problem["title"].is_string() && problem["detail"].as_str().unwrap().contains(detail),
            "{body}"
        );
    }
    let (_, body) = server.get("/v1/ids/default?count=100001").await;
    let problem: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&problem["value"], &problem["limit"]), (&"100001".into(), &100_000.into()));
}

#[tokio::test]
async fn other_methods_get_the_allowed_ones() {
    let server = Running::start().await;
    for (method, path, allowed) in [
        ("POST", "/v1/inspect/1", "get, head"),
        ("POST", "/healthz", "get, head"),
        ("POST", "/metrics", "get, head"),
        ("PUT", "/v1/ids/default", "get, head, post"),
    ] {
        let (head, body) = server.request(&format!("{method} {path} HTTP/1.1\r\ncontent-length: 0")).await;
        assert!(
            head.starts_with("http/1.1 405 ") && head.contains(&format!("allow: {allowed}\r\n")),
            "{head}"
        );
        assert!(
            String::from_utf8(body)
                .unwrap()
                .contains(&format!("method {method} not allowed: expected one of"))
        );
    }
    let (head, _) = server.request("POST /nowhere HTTP/1.1\r\ncontent-length: 0").await;
    assert!(head.starts_with("http/1.1 404 "), "{head}");
}

/// Goal: POST takes ids too, and a count in the body is not ignored.
#[tokio::test]
async fn post_takes_ids_too() {
    let server = Running::start().await;
    for length in ["", "\r\ncontent-length: 0"] {
        let (head, body) = server.request(&format!("POST /v1/ids/default?count=3 HTTP/1.1{length}")).await;
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        assert_eq!(ids(std::str::from_utf8(&body).unwrap()).len(), 3);
    }
    // Clients that cannot know the length in advance announce chunks, and then send none.
    let mut client = server.http().await;
    let head = "POST /v1/ids/default?count=3 HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n";
    client.send(format!("{head}\r\n0\r\n\r\n{head}connection: close\r\n\r\n").as_bytes()).await;
    client.send(b"5\r\nhello\r\n0\r\n\r\n").await;
    let answers = String::from_utf8(client.rest().await).unwrap();
    assert!(answers.contains("HTTP/1.1 200 ") && answers.contains("HTTP/1.1 400 "), "{answers}");
    assert!(answers.contains("unexpected body"), "{answers}");
    let mut client = server.http().await;
    client.send(b"POST /v1/ids/default HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: 11\r\n\r\n{\"count\":5}").await;
    let (head, body) = split(&client.rest().await);
    let body = String::from_utf8(body).unwrap();
    assert!(
        head.starts_with("http/1.1 400 ") && body.contains("give the count in the query"),
        "{head} {body}"
    );
}

/// Goal: a client that still sends its body when the request is refused gets the answer (curl 7.88 over HTTP/2
/// would not), and may go on with the connection. Method: the rest of the body comes later, then another request.
#[tokio::test]
async fn a_refusal_waits_for_the_rest_of_the_body() {
    let server = Running::start().await;
    for path in ["/v1/ids/default", "/nowhere", "/v1/admin/namespaces"] {
        let mut client = server.http().await;
        client
            .send(format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\n{{ ").as_bytes())
            .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.send(b" }GET /healthz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
        let answers = String::from_utf8(client.rest().await).unwrap();
        assert!(answers.starts_with("HTTP/1.1 4") && answers.contains("HTTP/1.1 200 "), "{path}: {answers}");
    }
}

/// Goal: a page of another site cannot use up ids; requests of a browser on its own site work.
#[tokio::test]
async fn other_web_sites_draw_no_ids() {
    let server = Running::start().await;
    for (path, site, status) in [
        ("GET /v1/ids/default", "cross-site", "403"),
        ("POST /v1/ids/default", "cross-site", "403"),
        ("GET /api/snowflake/get/default", "cross-site", "403"),
        ("GET /v1/ids/default", "same-site", "403"),
        ("GET /healthz", "cross-site", "200"),
        ("GET /v1/ids/default", "same-origin", "200"),
        ("GET /v1/ids/default", "none", "200"),
    ] {
        let (head, body) = server.request(&format!("{path} HTTP/1.1\r\nsec-fetch-site: {site}")).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{path} {site}: {head}");
        assert_eq!(
            String::from_utf8(body).unwrap().contains("urn:snowmint:cross-site"),
            status == "403",
            "{path}"
        );
    }
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("snowmint_ids_issued_total{namespace=\"default\"} 2\n"), "{metrics}");
}

/// Goal: requests that do not say which site sent them take no ids either if their `Origin` is another one,
/// or if they are handshakes of a WebSocket. Method: each browser sends `Origin` with POST and with a
/// handshake; `h2c` is offered by Java and curl.
#[tokio::test]
async fn a_foreign_origin_or_a_web_socket_draws_no_ids() {
    let server = Running::start().await;
    let socket = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13";
    for (path, headers, status) in [
        ("POST /v1/ids/default", "origin: https://evil.example".to_owned(), 403),
        ("POST /v1/ids/default", "origin: null".to_owned(), 403),
        ("POST /v1/ids/default", "origin: http://test:81".to_owned(), 403),
        ("POST /v1/ids/default", "origin: http://test\r\norigin: http://evil.example".to_owned(), 403),
        ("GET /v1/ids/default", "origin: https://evil.example".to_owned(), 403),
        ("GET /api/snowflake/get/default", format!("origin: https://evil.example\r\n{socket}"), 403),
        ("GET /v1/ids/default", format!("origin: http://test\r\n{socket}"), 403),
        ("GET /v1/ids/default", "upgrade: h2c, WebSocket".to_owned(), 403),
        ("PUT /v1/admin/namespaces/a", "origin: https://evil.example".to_owned(), 403),
        ("GET /v1/admin/namespaces", socket.to_owned(), 403),
        ("GET /healthz", "origin: https://evil.example".to_owned(), 200),
        ("POST /v1/ids/default", "origin: http://TEST".to_owned(), 200),
        (
            "POST /v1/ids/default",
            "origin: https://proxied.example\r\nsec-fetch-site: same-origin".to_owned(),
            200,
        ),
        (
            "GET /v1/ids/default",
            "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__"
                .to_owned(),
            200,
        ),
    ] {
        let (head, body) = server.request(&format!("{path} HTTP/1.1\r\n{headers}")).await;
        let body = String::from_utf8(body).unwrap();
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{path} {headers}: {head} {body}");
        assert_eq!(body.contains("urn:snowmint:cross-site"), status == 403, "{path} {headers}: {body}");
    }
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("snowmint_ids_issued_total{namespace=\"default\"} 3\n"), "{metrics}");
}

/// Goal: pages of the named origins, and of no others, may send requests and read the answers, also errors. A
/// page that does not say its origin gets no ids either.
#[tokio::test]
async fn pages_of_named_origins_draw_ids() {
    let cors_origins = CorsOrigins::new(["https://app.example"]).unwrap();
    let server = Running::with(Settings { cors_origins, ..settings() }).await;
    let own = "sec-fetch-site: cross-site\r\norigin: https://app.example";
    let asks = "access-control-request-method: POST\r\naccess-control-request-headers: idempotency-key";
    for (request, headers, status, marked) in [
        ("GET /v1/ids/default", own.to_owned(), 200, true),
        ("POST /v1/ids/default", own.to_owned(), 200, true),
        ("GET /v1/ids/nope", own.to_owned(), 404, true),
        ("OPTIONS /v1/ids/default", format!("{own}\r\n{asks}"), 204, true),
        ("OPTIONS /v1/ids/default", own.to_owned(), 405, true),
        ("GET /healthz", "accept: */*".to_owned(), 200, false),
        ("GET /v1/ids/default", "sec-fetch-site: cross-site".to_owned(), 403, false),
        ("GET /v1/ids/default", format!("{own}\r\norigin: https://app.example"), 403, false),
        (
            "GET /v1/ids/default",
            "sec-fetch-site: cross-site\r\norigin: https://evil.example".to_owned(),
            403,
            false,
        ),
        ("OPTIONS /v1/ids/default", format!("origin: https://evil.example\r\n{asks}"), 403, false),
        ("OPTIONS /v1/ids/default", format!("origin: null\r\n{asks}"), 403, false),
    ] {
        let (head, _) = server.request(&format!("{request} HTTP/1.1\r\n{headers}")).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{request} {headers}: {head}");
        assert!(head.contains("vary: origin"), "{head}");
        assert_eq!(head.contains("access-control-allow-origin: https://app.example"), marked, "{head}");
        assert!(!head.contains("access-control-allow-credentials") && !head.contains("origin: *"), "{head}");
        if status == 204 {
            for line in [
                "access-control-allow-methods: get, head, post",
                "access-control-allow-headers: authorization, content-type, idempotency-key",
            ] {
                assert!(head.contains(line), "{head}");
            }
        }
    }
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("snowmint_ids_issued_total{namespace=\"default\"} 2\n"), "{metrics}");
    let server = Running::start().await;
    let (head, _) = server.request(&format!("OPTIONS /v1/ids/default HTTP/1.1\r\n{own}\r\n{asks}")).await;
    assert!(head.starts_with("http/1.1 405 ") && !head.contains("access-control"), "off by default: {head}");
}

/// Goal: a repeated POST with an `Idempotency-Key` gets the same answer and takes no ids; another request
/// with the key is rejected.
#[tokio::test]
async fn a_repeated_request_gets_the_same_ids() {
    let server = Running::start().await;
    let post = async |path: &str, key: &str| {
        server.request(&format!("POST {path} HTTP/1.1\r\nidempotency-key: {key}")).await
    };
    let mut all = Vec::new();
    for path in [
        "/v1/ids/default?count=3",
        "/v1/ids/default?count=1000&format=text",
        "/v1/ranges/default?count=20000",
    ] {
        let key = format!("key-{}", all.len());
        let (head, first) = post(path, &key).await;
        assert!(head.starts_with("http/1.1 200 ") && !head.contains("idempotency-replayed"), "{head}");
        let (head, again) = post(path, &key).await;
        assert!(head.starts_with("http/1.1 200 ") && head.contains("idempotency-replayed: true"), "{head}");
        assert_eq!(first, again);
        // A header that nobody verifies names no client: the address does.
        let (head, same) = post(path, &format!("{key}\r\nauthorization: Bearer left-over")).await;
        assert!(head.contains("idempotency-replayed: true") && same == first, "{head}");
        let (_, other) = post(path, "other").await;
        let (_, elsewhere) = post(&path.replace("default", "orders"), &key).await;
        assert!(other != first && elsewhere != first && elsewhere != other);
        all.push(first);
        let (head, body) = post(&path.replace("count=", "count=1"), &key).await;
        let kind = if path.contains("1000&") { "bad-count" } else { "key-reused" };
        assert!(String::from_utf8(body).unwrap().contains(kind), "{head}");
    }
    for (request, key, words) in [
        (
            "POST /v1/ids/default",
            "a b",
            "invalid Idempotency-Key `a b`: expected one of 1 to 255 visible ASCII",
        ),
        ("POST /v1/ids/default", "", "invalid Idempotency-Key"),
        ("POST /v1/ids/default", &"x".repeat(256), "invalid Idempotency-Key"),
        ("POST /v1/ids/default", "a\r\nidempotency-key: b", "invalid Idempotency-Key `a`"),
        ("GET /v1/ids/default", "a", "unexpected Idempotency-Key: send it with POST"),
        ("POST /tinyid/id/nextId?bizType=default", "a", "unexpected Idempotency-Key"),
        ("POST /v1/ids/default?count=1001", "a", "expected 1 to 1000 with Idempotency-Key; use /v1/ranges"),
    ] {
        let (head, body) = server.request(&format!("{request} HTTP/1.1\r\nidempotency-key: {key}")).await;
        assert!(head.starts_with("http/1.1 400 "), "{request} {key}: {head}");
        assert!(String::from_utf8(body).unwrap().contains(words), "{request} {key}");
    }
}

/// Goal: a key belongs to its token; an answer that was kept costs no quota, and its token still needs the
/// right to it.
#[tokio::test]
async fn a_key_belongs_to_its_token() {
    let (limited, own) = row("limited", "namespaces = ['default']\nper_day = 7");
    let (rest, other) = row("rest", "namespaces = ['default']");
    let tokens = Tokens::start(&format!("{limited}{rest}")).await;
    let post = async |secret: &str| {
        let request = "POST /v1/ids/default?count=5 HTTP/1.1\r\nidempotency-key: k\r\nauthorization: Bearer";
        tokens.running.request(&format!("{request} {secret}")).await
    };
    let (head, first) = post(&own).await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    for _ in 0..3 {
        let (head, again) = post(&own).await;
        assert!(head.starts_with("http/1.1 200 ") && again == first, "{head}");
    }
    let (head, of_another) = post(&other).await;
    assert!(head.starts_with("http/1.1 200 ") && of_another != first, "{head}");
    tokens.change(&rest);
    while !post(&own).await.0.starts_with("http/1.1 401 ") {}
}

/// Goal: while a request with a key runs, another one with it is rejected; once its client has left, the key
/// is free.
#[tokio::test]
async fn a_running_request_is_not_repeated() {
    let server = Running::start().await;
    let request =
        |wait| format!("POST /v1/ranges/default?count=9999&wait={wait} HTTP/1.1\r\nidempotency-key: k");
    server.source.set_stuck(true);
    let mut first = server.http().await;
    first.send(format!("{}\r\nhost: test\r\n\r\n", request("10")).as_bytes()).await;
    server.source.waiting(1).await;
    let (head, body) = server.request(&request("0")).await;
    assert!(head.starts_with("http/1.1 409 ") && head.contains("retry-after: 1"), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("urn:snowmint:key-in-use"));
    drop(first);
    while server.request(&request("0")).await.0.starts_with("http/1.1 409 ") {}
    server.source.set_stuck(false);
    let (head, body) = server.request(&request("10")).await;
    assert!(head.starts_with("http/1.1 200 ") && !head.contains("replayed"), "{head}");
    assert!(body.starts_with(b"{\"ranges\":[{"));
}

/// Goal: a request without a Host header, or with two, is rejected (RFC 9112, 3.2); HTTP/1.0 needs none.
#[tokio::test]
async fn a_host_is_said_once() {
    let server = Running::start().await;
    for (head, status) in [
        ("GET /healthz HTTP/1.1", "400"),
        ("GET /healthz HTTP/1.1\r\nhost: a\r\nhost: a", "400"),
        ("GET /healthz HTTP/1.1\r\nhost: a b", "400"),
        ("GET /healthz HTTP/1.1\r\nhost:", "200"),
        ("GET /healthz HTTP/1.0", "200"),
    ] {
        let mut client = server.http().await;
        client.send(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes()).await;
        let (answer, _) = split(&client.rest().await);
        assert!(
            answer.starts_with(&format!("http/1.1 {status} "))
                || answer.starts_with(&format!("http/1.0 {status} ")),
            "{head}: {answer}"
        );
    }
}

/// Goal: a page whose host name resolves to this machine reads nothing here.
#[tokio::test]
async fn names_of_others_are_not_served_where_hosts_are_checked() {
    let allowed_hosts = AllowedHosts::new(["test"]).unwrap();
    let server = Running::with(Settings { allowed_hosts, ..settings() }).await;
    assert!(server.get("/healthz").await.0.starts_with("http/1.1 200 "));
    for path in ["/v1/ids/default", "/metrics"] {
        let mut client = server.http().await;
        client
            .send(
                format!("GET {path} HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").as_bytes(),
            )
            .await;
        let (head, body) = split(&client.rest().await);
        assert!(head.starts_with("http/1.1 421 "), "{head}");
        assert!(String::from_utf8(body).unwrap().contains("--allowed-hosts"));
    }
}

#[tokio::test]
async fn head_answers_without_a_body_and_takes_no_ids() {
    let server = Running::start().await;
    for path in ["/v1/ids/default?count=10", "/v1/inspect/1", "/healthz"] {
        let (head, body) = server.request(&format!("HEAD {path} HTTP/1.1")).await;
        assert!(head.starts_with("http/1.1 200 ") && body.is_empty(), "{path}: {head}");
    }
    let (head, body) = server.request("HEAD /v1/ids/nope HTTP/1.1").await;
    assert!(head.starts_with("http/1.1 404 ") && body.is_empty(), "{head}");
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("snowmint_ids_issued_total{namespace=\"default\"} 0\n"), "{metrics}");
}

#[tokio::test]
async fn inspect_shows_what_the_mint_wrote() {
    let server = Running::start().await;
    let id = ids(&server.get("/v1/ids/default").await.1)[0];
    let (head, body) = server.get(&format!("/v1/inspect/{id}")).await;
    assert!(head.contains("content-type: application/json"), "{head}");
    let parts: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(parts["id"], id.to_string());
    assert_eq!((&parts["worker"], &parts["datacenter"]), (&3.into(), &1.into()));
    assert_eq!(
        (&parts["unix_ms"], &parts["utc"]),
        (&crate::support::test_source::START_UNIX_MS.into(), &"2023-11-14T22:13:20.000Z".into())
    );
    let guesses = parts["guesses"].as_array().unwrap();
    assert_eq!((&guesses[0]["name"], &guesses[0]["namespaces"][1]), (&"twitter".into(), &"orders".into()));
    assert!(guesses[1..].iter().all(|guess| guess["namespaces"].is_null()), "{body}");
    for by in [
        "namespace=orders",
        "layout=twitter",
        "layout=time:41,datacenter:5,worker:5,sequence:12,epoch:1288834974657",
    ] {
        let (_, body) = server.get(&format!("/v1/inspect/{id}?{by}")).await;
        let known: Value = serde_json::from_str(&body).unwrap();
        assert!(known["guesses"].is_null() && known["unix_ms"] == parts["unix_ms"], "{by}: {body}");
    }
    let (_, body) = server.get(&format!("/v1/inspect/{id}?layout=game")).await;
    assert!(body.contains("time:31@1s"), "{body}");
}

#[tokio::test]
async fn health_is_life_and_readiness_is_a_lease() {
    let server = Running::start().await;
    let (head, body) = server.get("/readyz").await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    let mut found: Value = serde_json::from_str(&body).unwrap();
    // Each node draws its own at its start.
    assert!(found["instance"].take().as_str().is_some_and(|it| !it.is_empty()), "{body}");
    let until = "2023-11-14T22:14:20.000Z";
    let pool = "time41@1ms.datacenter5.worker5.sequence12.1288834974657.in1";
    let leases = [json!({"worker": 3, "pool": pool, "until": until})];
    let version = env!("CARGO_PKG_VERSION");
    let wanted = json!({
        "ready": true, "worker": 3, "until": until, "leases": leases, "instance": null, "version": version, "issued": 0,
    });
    assert_eq!(found, wanted);
    server.source.set_lease(false);
    let (head, body) = server.get("/readyz").await;
    assert!(head.starts_with("http/1.1 503 ") && head.contains("retry-after: 1"), "{head}");
    assert!(body.contains("the store does not answer"), "{body}");
    let (head, body) = server.get("/v1/ids/default").await;
    assert!(head.starts_with("http/1.1 503 ") && body.contains("urn:snowmint:not-ready"), "{head} {body}");
    assert_eq!(server.get("/healthz").await.1, "ok\n");
    // Probes know 200 and 503 only.
    server.source.set_lease(true);
    server.source.clock().set_unix_ms(Layout::TWITTER.ends_at_unix_ms());
    let (head, body) = server.get("/readyz").await;
    assert!(head.starts_with("http/1.1 503 ") && body.contains("no more ids can be made"), "{head} {body}");
}

/// Goal: `/metrics` shows the end of each lease of the node, since `store recover` reserves workers until the
/// last of them. Method: a namespace whose ids come from a second pool, a third namespace that shares it, and
/// a worker of the same number.
#[tokio::test]
async fn metrics_show_the_leases_of_every_layout() {
    let source = TestSource::new(Layout::TWITTER);
    let mint = Arc::new(mint_of(source.clone(), Layout::TWITTER));
    let mut namespaces = mint.table().namespaces().to_vec();
    let other: Layout = "time:41 datacenter:2 worker:3 sequence:17 epoch:2020-01-01".parse().unwrap();
    let pool = mint.add_pool(Box::new(TestSource::new(other)), other);
    for name in ["photos", "albums"] {
        let backend = Backend::Snowflake(Arc::clone(&pool));
        let definition = Definition::snowflake(other);
        let wall: SharedClock = Arc::new(WallClock);
        let name = NamespaceName::new(name).unwrap();
        namespaces.push(Arc::new(Namespace::new(name, definition, backend, &wall)));
    }
    mint.serve(namespaces);
    let server = Running::serving(mint, source, settings()).await;
    let (_, body) = server.get("/metrics").await;
    for layout in [Layout::TWITTER, other] {
        let pool = WorkerPool::new(layout, DatacenterId(1));
        let line =
            format!("snowmint_lease_until_timestamp_seconds{{worker=\"3\",pool=\"{pool}\"}} 1700000060.0");
        assert_eq!(body.lines().filter(|found| *found == line).count(), 1, "{line} in {body}");
    }
}

#[tokio::test]
async fn metrics_tell_ids_requests_connections_and_the_lease() {
    let clock = Arc::new(ManualClock::at_unix_ms(1_700_000_000_000));
    let shared = Arc::clone(&clock);
    let server = Running::with(Settings { clock: shared, ..settings() }).await;
    server.get("/v1/ids/default?count=7").await;
    server.get("/v1/ids/nope").await;
    let (head, body) = server.get("/metrics").await;
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    for line in [
        "# TYPE snowmint_ids_issued_total counter",
        "# TYPE snowmint_build_info gauge",
        "# TYPE snowmint_request_duration_seconds histogram",
        "snowmint_request_duration_seconds_count{protocol=\"http\"} 2",
        "snowmint_requests_total{protocol=\"resp\",outcome=\"busy\"} 0",
        "snowmint_connections{protocol=\"resp\"} 0",
        "snowmint_workers{pool=\"time41@1ms.datacenter5.worker5.sequence12.1288834974657.in1\"} 32",
        "process_start_time_seconds 1700000000.0",
        "snowmint_ids_issued_total{namespace=\"default\"} 7",
        "snowmint_ids_issued_total{namespace=\"orders\"} 0",
        "snowmint_layout_remaining_seconds{namespace=\"default\"} 1787858230.209",
        "snowmint_layout_remaining_seconds{namespace=\"orders\"} 1787858230.209",
        "snowmint_requests_total{protocol=\"http\",outcome=\"ok\"} 1",
        "snowmint_requests_total{protocol=\"http\",outcome=\"unknown-namespace\"} 1",
        "snowmint_lease_held 1.0",
        "snowmint_leases{pool=\"time41@1ms.datacenter5.worker5.sequence12.1288834974657.in1\"} 1",
        "snowmint_lease_until_timestamp_seconds{worker=\"3\",pool=\"time41@1ms.datacenter5.worker5.sequence12.1288834974657.in1\"} 1700000060.0",
        "snowmint_lease_remaining_seconds 60.0",
        "snowmint_lease_renewals_total 5",
        "snowmint_leases_lost_total 1",
        "snowmint_store_errors_total 2",
        "snowmint_clock_wall_ahead_seconds -1.5",
        "snowmint_clock_steps_total 0",
        "snowmint_clock_ahead_seconds 0.0",
        "snowmint_records_ahead_seconds 0.0",
    ] {
        assert!(body.lines().any(|found| found == line), "{line} in {body}");
    }
    assert!(!body.contains("# EOF") && body.contains("snowmint_build_info{version=\""), "{body}");
    for name in
        ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"]
    {
        let line = body
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("{name} in {body}"));
        assert!(line.trim().parse::<f64>().unwrap() > 0.0, "{name}{line}");
    }
    let (head, open) = server.request("GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text").await;
    assert!(head.contains("content-type: application/openmetrics-text"), "{head}");
    let open = String::from_utf8(open).unwrap();
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE snowmint_ids_issued counter\n"), "{open}");
    assert!(body.contains("snowmint_connections{protocol=\"http\"} "), "{body}");
    for zeros in [
        "protocol=\"thrift\"",
        "snowmint_request_duration_seconds_bucket{le=\"+Inf\",protocol=\"resp\"}",
        "borrowed",
    ] {
        assert!(
            !body.contains(zeros),
            "nothing is shown of what is off or did not happen: {zeros} in {body}"
        );
    }
    clock.set_unix_ms(1_700_000_060_000);
    let (_, body) = server.get("/metrics").await;
    let none = "snowmint_leases{pool=\"time41@1ms.datacenter5.worker5.sequence12.1288834974657.in1\"} 0\n";
    assert!(body.contains(none) && body.contains("snowmint_lease_held 0.0"), "{body}");
    let has = |body: &str, name: &str| body.lines().any(|line| line.starts_with(name));
    assert!(has(&body, "snowmint_lease_until_timestamp_seconds{"), "ended: {body}");
    let (head, body) = server.get("/readyz").await;
    assert!(head.contains("200") && !body.contains("22:14:20") && !body.contains("worker"), "{head} {body}");
    server.source.set_lease(false);
    let (_, body) = server.get("/metrics").await;
    assert!(has(&body, "snowmint_lease_held 0.0"), "{body}");
}

#[tokio::test]
async fn a_connection_serves_many_requests_also_pipelined() {
    let server = Running::start().await;
    let mut client = server.http().await;
    let request = "GET /v1/ids/default HTTP/1.1\r\nhost: test\r\n\r\n".repeat(100);
    client.send(request.as_bytes()).await;
    client.send(b"GET /healthz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
    let answers = String::from_utf8(client.rest().await).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 101);
    assert_eq!(answers.matches("{\"ids\":[\"").count(), 100);
}

/// Goal: a client that rests between its requests, while the server keeps no buffers for it, is served like
/// any other. Method: paused time; each time it sends a request and a part of the next one, rests, and sends
/// the remainder.
#[tokio::test(start_paused = true)]
async fn a_client_that_rests_is_served_on() {
    use std::time::Duration;
    let server = Running::start().await;
    let mut client = server.http().await;
    let request = b"GET /v1/ids/default?format=text HTTP/1.1\r\nhost: test\r\n\r\n";
    let mut last = 0;
    let mut answered = async |client: &mut Client| {
        assert_eq!(client.line().await, "HTTP/1.1 200 OK");
        while !client.line().await.is_empty() {}
        let id = client.bytes(20).await;
        let id = std::str::from_utf8(&id).unwrap().trim().parse::<u64>().unwrap();
        assert!(id > last);
        last = id;
    };
    for cut in [0, 1, 3, 24, 25, request.len() - 1] {
        client.send(&[request, &request[..cut]].concat()).await;
        answered(&mut client).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        client.send(&request[cut..]).await;
        answered(&mut client).await;
        tokio::time::sleep(Duration::from_mins(5)).await;
    }
    // The part of a request that was sent before the rest is late, too.
    client.send(&[request, &request[..9]].concat()).await;
    answered(&mut client).await;
    let began = tokio::time::Instant::now();
    assert!(client.rest().await.is_empty());
    let (took, limit) = (began.elapsed(), Timeouts::default().request);
    assert!(took >= limit && took < limit + Duration::from_secs(4), "{took:?}");
    // A client that rests is closed at once when the service ends.
    let mut client = server.http().await;
    client.send(request).await;
    answered(&mut client).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(server.end().await.unwrap().cut, 0);
    assert!(client.rest().await.is_empty());
}

#[tokio::test]
async fn heads_beyond_the_bounds_are_refused() {
    let server = Running::start().await;
    let long = format!("GET /healthz HTTP/1.1\r\nx: {}", "y".repeat(1024 * 1024));
    let many = format!("GET /healthz HTTP/1.1\r\n{}x: y", "x: y\r\n".repeat(200));
    for (head, code) in [(long, "431"), (many, "431"), ("nonsense".to_owned(), "400")] {
        let mut client = server.http().await;
        let bytes = format!("{head}\r\nhost: test\r\n\r\n").into_bytes();
        let (mut read, mut write) = client.stream.split();
        // The server may answer and close before it has read everything.
        let sending = async { drop(tokio::io::AsyncWriteExt::write_all(&mut write, &bytes).await) };
        let mut answer = Vec::new();
        let reading = async { drop(tokio::io::AsyncReadExt::read_to_end(&mut read, &mut answer).await) };
        tokio::join!(sending, reading);
        // A reset may discard the answer; an answer that arrives must be the right one.
        if !answer.is_empty() {
            assert!(answer.starts_with(format!("HTTP/1.1 {code} ").as_bytes()), "{}", answer.escape_ascii());
        }
    }
    assert_eq!(server.get("/healthz").await.1, "ok\n");
}

/// Goal: a full server rejects a client with the reason, also one that is set to reserve no connection for
/// that.
#[tokio::test]
async fn a_full_server_says_so() {
    for reserved_connections in [4, 0] {
        let server = Running::with(Settings { max_connections: 1, reserved_connections, ..settings() }).await;
        let mut first = server.resp().await;
        assert_eq!(first.ask("PING").await, "+PONG");
        let mut second = server.http().await;
        second.send(b"GET /v1/ids/default HTTP/1.1\r\nhost: test\r\n\r\n").await;
        let (head, body) = split(&second.rest().await);
        assert!(head.starts_with("http/1.1 503 ") && head.contains("retry-after: 1"), "{head}");
        assert!(head.contains("connection: close"), "{head}");
        assert!(String::from_utf8(body).unwrap().contains("urn:snowmint:too-many-clients"));
    }
}

/// Goal: no flood of either port makes health and metrics fail. Method: all connections are taken, and three
/// times as many silent clients as there are reserved connections connect before and after each request.
#[tokio::test]
async fn health_and_metrics_answer_in_a_full_house() {
    let full = Settings { max_connections: 1, reserved_connections: 4, ..settings() };
    let server = Running::with(full).await;
    let mut first = server.resp().await;
    assert_eq!(first.ask("PING").await, "+PONG");
    let mut silent = Vec::new();
    for path in ["/healthz", "/readyz", "/metrics"] {
        for _ in 0..12 {
            silent.push(server.http().await);
            silent.push(server.resp().await);
        }
        let (head, body) = server.get(path).await;
        assert!(head.starts_with("http/1.1 200 ") && head.contains("connection: close"), "{path}: {head}");
        assert!(path != "/metrics" || body.contains("outcome=\"too-many-clients\""), "{body}");
    }
    assert_eq!(first.ask("PING").await, "+PONG");
}

/// Goal: a silent client keeps a reserved connection for a second at most. Method: paused time.
#[tokio::test]
async fn a_silent_client_loses_its_reserved_place() {
    use std::time::Duration;
    tokio::time::pause();
    let full = Settings { max_connections: 1, reserved_connections: 4, ..settings() };
    let server = Running::with(full).await;
    let mut first = server.resp().await;
    assert_eq!(first.ask("PING").await, "+PONG");
    let mut silent = server.http().await;
    let began = tokio::time::Instant::now();
    silent.rest().await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

/// Goal: an idle connection is closed after the idle timeout, and an incomplete request after the shorter
/// request timeout. Method: paused time.
#[tokio::test(start_paused = true)]
async fn idle_connections_and_half_requests_are_closed() {
    use std::time::Duration;
    use tokio::time::Instant;
    let (idle, request) = (Duration::from_mins(10), Duration::from_secs(30));
    let timeouts = Timeouts { idle: Some(idle), request, ..Timeouts::default() };
    let server = Running::with(Settings { timeouts, ..settings() }).await;
    let asked = b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n";
    for (bytes, within) in [(&b""[..], request), (&b"GET /hea"[..], request), (asked, idle)] {
        let mut client = server.http().await;
        let began = Instant::now();
        client.send(bytes).await;
        client.rest().await;
        let took = began.elapsed();
        assert!(
            took >= within && took < within + Duration::from_secs(2),
            "{}: {took:?}",
            bytes.escape_ascii()
        );
    }
    // Single bytes do not extend the deadline.
    let mut client = server.http().await;
    client.send(asked).await;
    assert_eq!(client.line().await, "HTTP/1.1 200 OK");
    tokio::time::sleep(Duration::from_mins(1)).await;
    let began = Instant::now();
    for byte in b"GET /healthz HTTP/1.1\r\nhost" {
        client.send(&[*byte]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    client.rest().await;
    let took = began.elapsed();
    assert!(took >= request && took < request + Duration::from_secs(2), "{took:?}");
    // A connection that waits for a slow answer is not idle.
    server.source.set_stuck(true);
    let mut client = server.http().await;
    client.send(b"GET /v1/ids/default?count=50000 HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
    server.source.waiting(1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.source.set_stuck(false);
    assert!(split(&client.rest().await).0.starts_with("http/1.1 200 "));
}

/// Goal: a client that was accepted just before the shutdown is answered. Method: it connects, the service
/// shuts down, and only then it sends its request.
#[tokio::test]
async fn the_first_request_of_a_new_connection_is_answered_at_the_end() {
    let server = Running::start().await;
    let (mut http, mut resp) = (server.http().await, server.resp().await);
    let ending = server.end();
    tokio::task::yield_now().await;
    http.send(b"GET /v1/ids/default HTTP/1.1\r\nhost: test\r\n\r\n").await;
    resp.send(b"ID.NEXT default\r\n").await;
    let (head, _) = split(&http.rest().await);
    assert!(head.starts_with("http/1.1 200 ") && head.contains("connection: close"), "{head}");
    assert_eq!(resp.ids(1).await.len(), 1);
    assert!(resp.rest().await.is_empty());
    assert_eq!(ending.await.unwrap().cut, 0);
}

/// Goal: a shutdown answers waiting requests, closes idle connections, and then returns.
#[tokio::test]
async fn the_end_lets_a_waiting_request_finish() {
    let server = Running::start().await;
    let (source, mut idle, mut client) = (server.source.clone(), server.http().await, server.http().await);
    idle.send(b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(idle.line().await, "HTTP/1.1 200 OK");
    source.set_stuck(true);
    client.send(b"GET /v1/ids/default?count=50000 HTTP/1.1\r\nhost: test\r\n\r\n").await;
    source.waiting(1).await;
    let ending = server.end();
    idle.rest().await;
    source.set_stuck(false);
    let (head, body) = split(&client.rest().await);
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    assert_eq!(ids(&String::from_utf8(body).unwrap()).len(), 50_000);
    assert_eq!(ending.await.unwrap().cut, 0);
}

/// Goal: an answer with ids in a long text form is whole, also one that is sent as one piece. Method: the
/// longest template.
#[tokio::test]
async fn ids_in_a_long_text_form_are_answered_whole() {
    let source = TestSource::new(Layout::TWITTER);
    let mint = mint_of(source.clone(), Layout::TWITTER);
    let text = format!("{}ABCD-{{alphabet=01}}", "{date}".repeat(8));
    let definition =
        Definition { text: Some(text.parse().unwrap()), ..Definition::snowflake(Layout::TWITTER) };
    let wall: SharedClock = Arc::new(ManualClock::at_unix_ms(1_700_000_000_000));
    let backend = Backend::Snowflake(Arc::clone(mint.pool()));
    let name = NamespaceName::new("long").unwrap();
    mint.serve(vec![Arc::new(Namespace::new(name, definition, backend, &wall))]);
    let server = Running::serving(mint.into(), source, settings()).await;
    for count in [1, 100, 500, 501] {
        let (head, body) = server.get(&format!("/v1/ids/long?count={count}")).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let document: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(document["ids"].as_array().unwrap().len(), count);
    }
}

/// Goal: during the drain delay a node is not ready and still serves all requests. Method: a delay that
/// outlasts the test.
#[tokio::test]
async fn a_node_that_leaves_is_not_ready_and_still_serves() {
    use std::time::Duration;
    let server = Running::with(Settings { drain_delay: Duration::from_hours(1), ..settings() }).await;
    let mut connected = server.http().await;
    let (http, resp) = (server.http, server.resp);
    let ending = server.end();
    loop {
        let mut probe = Client::at(http).await;
        probe.send(b"GET /readyz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
        let (head, body) = split(&probe.rest().await);
        if head.starts_with("http/1.1 503") {
            let body = String::from_utf8(body).unwrap();
            assert!(
                body.contains("this node is shutting down") && !body.contains("no ids can be made"),
                "{body}"
            );
            break;
        }
    }
    // A client that connected before is asked to send its next request to another node.
    connected.send(b"GET /v1/ids/default HTTP/1.1\r\nhost: test\r\n\r\n").await;
    let (head, body) = split(&connected.rest().await);
    assert!(head.starts_with("http/1.1 200") && head.contains("connection: close"), "{head}");
    assert_eq!(ids(std::str::from_utf8(&body).unwrap()).len(), 1);
    let mut redis = Client::at(resp).await;
    assert_eq!(redis.ask("PING").await, "+PONG");
    assert!(!ending.is_finished());
    ending.abort();
}
