//! The admin API over real sockets, on a store that can be cut off.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use snowmint::{DatacenterId, Layout, Rule, Start, WallClock};
use snowmint_admin::doctor::{Findings, examine};
use snowmint_cluster::namespace::Logins;
use snowmint_cluster::{NamespaceName, audit};
use snowmint_server::access::TokensSource;
use snowmint_server::access::secret::{Secret, TokenName};
use snowmint_server::admin::NodeAdmin;
use snowmint_server::namespace_sync::{NamespaceFlags, SyncOptions};
use snowmint_server::{Access, Mint, NamespaceSync, Settings};
use snowmint_store::{Store, StoreErrorKind};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::support::cut_off_store::CutOff;
use crate::support::running_service::{Running, split};
use crate::support::test_source::TestSource;

/// A node with an admin API, and a token of each kind.
struct Node {
    running: Running,
    store: Arc<CutOff>,
    /// For all namespaces.
    admin: String,
    /// For `orders-*` only.
    of_orders: String,
    /// Without the right admin.
    minter: String,
    _folder: tempfile::TempDir,
}

impl Node {
    /// The sync polls once at the start and then only if it is told to.
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        let mut rows = String::new();
        let mut token = |name: &str, namespaces: &str, right: &str| {
            let secret = Secret::generate(&TokenName::new(name).unwrap()).unwrap();
            let digest = secret.digest();
            let names = format!("namespaces = ['{namespaces}']\nrights = ['{right}']\n");
            rows.extend([&format!("[tokens.{name}]\nsha256 = '{digest}'\n"), &names].map(String::as_str));
            secret.as_str().to_owned()
        };
        let (admin, of_orders, minter) =
            (token("ops", "*", "admin"), token("orders-ops", "orders-*", "admin"), token("web", "*", "mint"));
        std::fs::write(&file, rows).unwrap();
        let access = Arc::new(Access::load(TokensSource::File(file), Arc::new(WallClock)).unwrap());
        let store = Arc::new(CutOff::default());
        let flags = NamespaceFlags {
            hide_keys: None,
            logins: Logins::default(),
            names: vec![NamespaceName::new("default").unwrap()],
            file: None,
            layout: Layout::TWITTER,
        };
        let config = flags.read().unwrap();
        config.pin(&*store).await.unwrap();
        let source = TestSource::new(Layout::TWITTER);
        let mint = Arc::new(Mint::new([], source.clone(), Layout::TWITTER, DatacenterId(1)));
        let options = SyncOptions {
            store: Arc::clone(&store) as Arc<dyn Store>,
            flags,
            rule: Rule::default(),
            sequence_start: Start::Zero,
            saved: None,
            open_source: Box::new(|layout, _, _| Ok(Box::new(TestSource::new(layout)) as _)),
            poll: Duration::from_hours(1),
            clock: Arc::new(WallClock),
            wall: Arc::new(WallClock),
        };
        let mut sync = NamespaceSync::new(Arc::clone(&mint), config, options);
        sync.refresh().await.unwrap();
        let node = NodeAdmin::new(Arc::clone(&store) as _, Handle::current(), sync.refresher());
        tokio::spawn(sync.run(Arc::new(Notify::new())));
        let settings = Settings {
            access: Some(access),
            admin: Some(node),
            ..crate::support::running_service::settings()
        };
        let running = Running::serving(mint, source, settings).await;
        Self { running, store, admin, of_orders, minter, _folder: folder }
    }

    /// Sends a request with a body and headers; returns the status, the head and the document.
    async fn send(&self, token: &str, line: &str, headers: &str, body: &[u8]) -> (u16, String, Value) {
        let mut client = self.running.http().await;
        let head = format!(
            "{line} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
             content-length: {}\r\n{headers}\r\n",
            body.len()
        );
        client.send(&[head.as_bytes(), body].concat()).await;
        let (head, body) = split(&client.rest().await);
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn ask(&self, token: &str, line: &str, body: Option<Value>) -> (u16, Value) {
        let headers = if body.is_some() { "content-type: application/json\r\n" } else { "" };
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let (status, _, document) = self.send(token, line, headers, body.as_bytes()).await;
        (status, document)
    }

    async fn admin(&self, line: &str, body: Option<Value>) -> (u16, Value) {
        self.ask(&self.admin, line, body).await
    }

    /// Takes an id; returns the status.
    async fn take(&self, namespace: &str) -> u16 {
        self.ask(&self.minter, &format!("GET /v1/ids/{namespace}"), None).await.0
    }
}

/// Goal: a client whose body comes in a packet of its own may be idle afterwards: the body begins no further
/// request. Method: paused time, and a client that sends the body when the server tells it to go on.
#[tokio::test(start_paused = true)]
async fn a_body_of_its_own_packet_is_no_part_of_the_next_request() {
    let node = Node::start().await;
    let mut client = node.running.http().await;
    let body = json!({"level": "debug"}).to_string();
    let head = format!(
        "PUT /v1/admin/log-level HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        node.admin,
        body.len()
    );
    for _ in 0..3 {
        client.send(head.as_bytes()).await;
        assert_eq!(client.line().await, "HTTP/1.1 100 Continue");
        assert_eq!(client.line().await, "");
        client.send(body.as_bytes()).await;
        assert_eq!(client.line().await, "HTTP/1.1 503 Service Unavailable", "the level is fixed here");
        let mut answer = 0;
        loop {
            let line = client.line().await;
            match line.strip_prefix("content-length: ") {
                Some(length) => answer = length.parse().unwrap(),
                None if line.is_empty() => break,
                None => {}
            }
        }
        client.bytes(answer).await;
        tokio::time::sleep(Duration::from_mins(5)).await;
    }
}

/// Goal: an operator's change of a namespace takes effect on this node at once, and is in the audit log.
/// Method: a node that never polls the store by itself.
#[tokio::test]
async fn a_namespace_is_added_changed_dropped_and_resumed_here_at_once() {
    let node = Node::start().await;
    assert_eq!(node.take("orders-1").await, 404);
    let (status, added) = node
        .admin("PUT /v1/admin/namespaces/orders-1", Some(json!({"scheme": "segment", "maximum": 90})))
        .await;
    assert_eq!((status, &added["served_here"]), (200, &json!(true)), "{added}");
    assert_eq!(
        added["namespace"],
        json!({"name": "orders-1", "state": "served", "reserved_to": 0, "scheme": "segment", "maximum": 90}),
        "{added}"
    );
    assert_eq!(node.take("orders-1").await, 200);
    let text = json!({"text": "A{number:4}"});
    let (status, changed) = node.admin("PATCH /v1/admin/namespaces/orders-1", Some(text)).await;
    assert_eq!((status, &changed["namespace"]["text"]), (200, &json!("A{number:4}")), "{changed}");
    let (_, ids) = node.ask(&node.minter, "GET /v1/ids/orders-1", None).await;
    assert!(ids["ids"][0].as_str().is_some_and(|id| id.starts_with("A000")), "{ids}");
    let (status, dropped) = node.admin("DELETE /v1/admin/namespaces/orders-1", None).await;
    assert_eq!((status, &dropped["served_here"]), (200, &json!(false)), "{dropped}");
    assert_eq!(node.take("orders-1").await, 404);
    let (status, resumed) = node.admin("PUT /v1/admin/namespaces/orders-1", Some(json!({}))).await;
    assert_eq!(status, 200, "{resumed}");
    assert!(resumed["resumed_above"].as_u64().is_some_and(|above| above > 0), "{resumed}");
    let (status, log) = node.admin("GET /v1/admin/audit?namespace=orders-1&limit=9", None).await;
    let actions: Vec<_> =
        log["changes"].as_array().unwrap().iter().map(|it| it["action"].as_str().unwrap()).collect();
    assert_eq!(
        (status, &actions[..]),
        (200, &["namespace-resume", "namespace-drop", "namespace-set", "namespace-add"][..])
    );
    assert_eq!(
        (&log["changes"][0]["who"], &log["changes"][0]["from"]),
        (&json!("token ops"), &json!("127.0.0.1"))
    );
}

/// Goal: without the right, nobody can administer; a restricted token administers only its own namespaces.
#[tokio::test]
async fn each_request_needs_the_right_admin() {
    let node = Node::start().await;
    let body = || Some(json!({"scheme": "segment"}));
    for line in [
        "GET /v1/admin/namespaces",
        "GET /v1/admin/namespaces/default",
        "PUT /v1/admin/namespaces/orders-1",
        "PATCH /v1/admin/namespaces/default",
        "DELETE /v1/admin/namespaces/default",
        "GET /v1/admin/workers",
        "POST /v1/admin/workers/1/release",
        "GET /v1/admin/doctor",
        "POST /v1/admin/drain",
        "DELETE /v1/admin/drain",
        "GET /v1/admin/audit",
        "GET /v1/admin/log-level",
        "PUT /v1/admin/log-level",
        "PATCH /v1/admin/nothing",
    ] {
        let (status, problem) = node.ask(&node.minter, line, body()).await;
        assert_eq!((status, &problem["type"]), (403, &json!("urn:snowmint:forbidden")), "{line}: {problem}");
        let (status, problem) = node.ask("wrong", line, body()).await;
        assert_eq!(
            (status, &problem["type"]),
            (401, &json!("urn:snowmint:unauthorized")),
            "{line}: {problem}"
        );
        let of_orders = line.ends_with("orders-1") || line == "GET /v1/admin/namespaces";
        let (status, answer) = node.ask(&node.of_orders, line, body()).await;
        assert_eq!(status, if of_orders { 200 } else { 403 }, "{line}: {answer}");
    }
    let (_, listed) = node.ask(&node.of_orders, "GET /v1/admin/namespaces", None).await;
    let names: Vec<_> = listed["namespaces"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["orders-1"]);
    let over = Some(json!({"start_over": {}}));
    node.ask(&node.of_orders, "DELETE /v1/admin/namespaces/orders-1", None).await;
    assert_eq!(node.ask(&node.of_orders, "PUT /v1/admin/namespaces/orders-1", over.clone()).await.0, 403);
    assert_eq!(node.admin("PUT /v1/admin/namespaces/orders-1", over).await.0, 200);
    assert!(node.running.http().await.probe().await, "it was not drained");
    // Without tokens, the answer shows how to make one.
    let open = Running::start().await;
    let (head, body) = open.get("/v1/admin/namespaces").await;
    assert!(head.starts_with("http/1.1 403 ") && body.contains("snowmint token create"), "{head} {body}");
}

/// Goal: a token for some namespaces can neither remove a setting that it may not set, nor resume a dropped
/// namespace that has it. Method: a namespace with such settings, made by the operator of the store.
#[tokio::test]
async fn what_a_restricted_token_may_not_set_it_may_not_remove() {
    let node = Node::start().await;
    let line = |method: &str| format!("{method} /v1/admin/namespaces/orders-1");
    let settings = json!({"layout": "js53", "rule": "reject", "sequence_start": "random"});
    let (status, added) = node.admin(&line("PUT"), Some(settings)).await;
    assert_eq!(status, 200, "{added}");
    for setting in ["rule", "sequence_start", "layout", "hide", "sources"] {
        let removed = json!({"description": "orders", setting: null});
        let (status, problem) = node.ask(&node.of_orders, &line("PATCH"), Some(removed)).await;
        assert_eq!((status, &problem["setting"]), (403, &json!(setting)), "{problem}");
    }
    let (_, found) = node.admin(&line("GET"), None).await;
    assert_eq!((&found["rule"], &found["description"]), (&json!("reject"), &Value::Null), "{found}");
    let (status, problem) = node.ask(&node.of_orders, &line("DELETE"), None).await;
    assert_eq!(status, 200, "{problem}");
    for settings in [json!({}), json!({"rule": null})] {
        let (status, problem) = node.ask(&node.of_orders, &line("PUT"), Some(settings)).await;
        assert_eq!((status, &problem["setting"]), (403, &json!("layout")), "{problem}");
    }
    assert_eq!(node.admin(&line("PUT"), Some(json!({}))).await.0, 200);
    let (status, changed) = node.admin(&line("PATCH"), Some(json!({"rule": null}))).await;
    assert_eq!((status, &changed["namespace"]["rule"]), (200, &Value::Null), "{changed}");
}

/// Goal: an invalid request is rejected with what is allowed, and changes nothing.
#[tokio::test]
async fn invalid_requests_are_rejected() {
    let node = Node::start().await;
    node.admin("PUT /v1/admin/namespaces/n", Some(json!({"scheme": "segment"}))).await;
    let large = "x".repeat(65 * 1024);
    for (line, body, wanted, words) in [
        ("PUT /v1/admin/namespaces/n", json!({"scheme": "segment"}), 409, "already exists"),
        (
            "PUT /v1/admin/namespaces/m",
            json!({"scheme": "segment", "maximun": 3}),
            400,
            "did you mean `maximum`?",
        ),
        ("PUT /v1/admin/namespaces/m", json!({}), 400, "scheme: missing for the new namespace m"),
        ("PUT /v1/admin/namespaces/m", json!([]), 400, "expected a JSON object"),
        ("PUT /v1/admin/namespaces/m", json!({"scheme": "segment", "text": large}), 413, "65536"),
        (
            "PUT /v1/admin/namespaces/m",
            json!({"scheme": "segment", "start_over": true}),
            400,
            "start_over: expected an object",
        ),
        ("PUT /v1/admin/namespaces/m", json!({"start_over": {"node": []}}), 400, "did you mean `nodes`?"),
        ("PUT /v1/admin/namespaces/m!", json!({}), 400, "invalid namespace name"),
        (
            "PUT /v1/admin/namespaces/m",
            json!({"scheme": "segment", "sources": ["1/1 mysql://evil/x?password_file=/etc/passwd"]}),
            403,
            "not through a node",
        ),
        (
            "PATCH /v1/admin/namespaces/n",
            json!({"stripe": "1/2"}),
            409,
            "is pinned to `segment cached, all numbers`",
        ),
        (
            "PATCH /v1/admin/namespaces/n",
            json!({"sources": ["1/1 sqlite:/etc/x"], "above": 1}),
            403,
            "not through a node",
        ),
        ("PATCH /v1/admin/namespaces/n", json!({}), 400, "nothing to change"),
        ("PATCH /v1/admin/namespaces/nope", json!({"maximum": 3}), 404, "unknown namespace nope"),
        ("DELETE /v1/admin/namespaces/nope", json!({}), 404, "unknown namespace nope"),
        ("POST /v1/admin/namespaces", json!({}), 405, "expected one of GET, HEAD"),
        ("POST /v1/admin/workers/7/release", json!({}), 404, "unknown worker 7"),
        ("POST /v1/admin/workers/7/release", json!({"forced": true}), 400, "did you mean `force`?"),
        ("POST /v1/admin/workers/x/release", json!({}), 400, "invalid worker `x`"),
        ("GET /v1/admin/audit?limit=0", json!({}), 400, "invalid limit `0`"),
        ("GET /v1/admin/workers?x=1", json!({}), 400, "unknown query parameter `x`"),
        ("GET /v1/admin/doctor?nodes=x", json!({}), 400, "nodes: invalid node"),
        (
            "GET /v1/admin/doctor?nodes=http://10.0.0.9:80",
            json!({}),
            403,
            "10.0.0.9:80 is not a peer of this node",
        ),
        ("PUT /v1/admin/log-level", json!({"level": "debug"}), 503, "cannot be changed while it runs"),
        ("GET /v1/admin/nothing", json!({}), 404, "expected /v1/admin/namespaces"),
    ] {
        let (status, problem) = node.admin(line, Some(body)).await;
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(status == wanted && detail.contains(words), "{line}: {status} {problem}");
    }
    for (headers, body, wanted) in [
        ("", "{}", 415),
        ("content-type: text/plain\r\n", "{}", 415),
        ("content-type: application/json; charset=utf-8\r\n", "{\"maximum\":", 400),
        ("content-type: application/merge-patch+json\r\n", "{\"maximum\":5}", 200),
        ("content-type: application/json\r\nsec-fetch-site: cross-site\r\n", "{\"maximum\":6}", 403),
        ("content-type: application/json\r\nsec-fetch-site: same-site\r\n", "{\"maximum\":6}", 403),
        ("content-type: application/json\r\nif-match: 5\r\n", "{\"maximum\":6}", 400),
    ] {
        let sent = node.send(&node.admin, "PATCH /v1/admin/namespaces/n", headers, body.as_bytes()).await;
        assert_eq!(sent.0, wanted, "{headers}: {sent:?}");
    }
    let (_, n) = node.admin("GET /v1/admin/namespaces/n", None).await;
    assert_eq!((&n["maximum"], n.get("sources")), (&json!(5), None), "{n}");
    let known = audit::list(&*node.store, 100).await.unwrap();
    let made =
        known.iter().filter(|it| matches!(it, audit::Listed::Entry(logged) if logged.failure.is_none()));
    assert_eq!(made.count(), 2, "rejected requests are no changes: {known:?}");
}

/// Goal: if two operators change the version that both have read, the second change is rejected. Method: both
/// at once, with one `ETag`.
#[tokio::test]
async fn two_changes_of_one_edition_do_not_both_take_place() {
    let node = Node::start().await;
    node.admin("PUT /v1/admin/namespaces/n", Some(json!({"scheme": "segment"}))).await;
    let (_, head, _) = node.send(&node.admin, "GET /v1/admin/namespaces/n", "", b"").await;
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let headers = format!("content-type: application/json\r\nif-match: {tag}\r\n");
    let change = async |maximum: u64| {
        let body = json!({"maximum": maximum}).to_string();
        node.send(&node.admin, "PATCH /v1/admin/namespaces/n", &headers, body.as_bytes()).await
    };
    let (one, other) = tokio::join!(change(500), change(600));
    let mut statuses = [one.0, other.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412], "{one:?} {other:?}");
    let (_, n) = node.admin("GET /v1/admin/namespaces/n", None).await;
    assert_eq!(n["maximum"], json!(if one.0 == 200 { 500 } else { 600 }));
}

/// Goal: a precondition holds for additions and drops too: an outdated one changes nothing. Method: one
/// `ETag`, before and after a change.
#[tokio::test]
async fn an_outdated_addition_or_drop_is_rejected() {
    let node = Node::start().await;
    let send = async |line: &str, condition: &str| {
        let headers = format!("content-type: application/json\r\n{condition}\r\n");
        node.send(&node.admin, line, &headers, b"{\"scheme\":\"segment\"}").await.0
    };
    let (put, delete) = ("PUT /v1/admin/namespaces/n", "DELETE /v1/admin/namespaces/n");
    assert_eq!(send(put, "if-match: *").await, 412);
    assert_eq!(send(put, "if-none-match: *").await, 200);
    assert_eq!(send(delete, "if-match: \"2\"").await, 412);
    assert_eq!(send(delete, "if-match: \"1\"").await, 200);
    assert_eq!(send(put, "if-none-match: *").await, 412);
    assert_eq!(send(put, "if-match: \"1\"").await, 412);
    assert_eq!(send(put, "if-match: \"2\"").await, 200);
    let made = audit::list(&*node.store, 100).await.unwrap();
    assert_eq!(made.len(), 3, "what is rejected is not in the log: {made:?}");
}

/// Goal: a change without effect adds no log entry, and every admin request counts for its token and its
/// outcome.
#[tokio::test]
async fn admin_requests_are_counted() {
    let node = Node::start().await;
    let body = || Some(json!({"scheme": "segment"}));
    for (status, line) in [
        (200, "PUT /v1/admin/namespaces/orders-1"),
        (409, "PUT /v1/admin/namespaces/orders-1"),
        (403, "PUT /v1/admin/namespaces/other"),
    ] {
        assert_eq!(node.ask(&node.of_orders, line, body()).await.0, status);
    }
    for _ in 0..5 {
        let (status, same) = node.ask(&node.of_orders, "PATCH /v1/admin/namespaces/orders-1", body()).await;
        assert_eq!((status, &same["edition"]), (200, &json!(1)), "{same}");
    }
    assert_eq!(audit::list(&*node.store, 100).await.unwrap().len(), 1);
    let (_, metrics) = node.running.get("/metrics").await;
    for line in [
        "snowmint_token_requests_total{token=\"orders-ops\",outcome=\"ok\"} 6",
        "snowmint_token_requests_total{token=\"orders-ops\",outcome=\"conflict\"} 1",
        "snowmint_token_requests_total{token=\"orders-ops\",outcome=\"forbidden\"} 1",
        "snowmint_admin_changes_total{outcome=\"made\"} 6",
        "snowmint_admin_changes_total{outcome=\"refused\"} 1",
        "snowmint_admin_changes_total{outcome=\"unknown\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

/// Goal: a node whose store is down reports it and when to retry, and can still be drained.
#[tokio::test]
async fn a_store_that_is_down_is_reported() {
    let node = Node::start().await;
    node.store.cut(true);
    for line in [
        "GET /v1/admin/namespaces",
        "DELETE /v1/admin/namespaces/default",
        "GET /v1/admin/workers",
        "GET /v1/admin/doctor",
    ] {
        let (status, head, problem) = node.send(&node.admin, line, "", b"").await;
        assert_eq!((status, &problem["type"]), (503, &json!("urn:snowmint:not-ready")), "{line}: {problem}");
        assert!(head.contains("retry-after: 1"), "{head}");
    }
    let (status, drained) = node.admin("POST /v1/admin/drain", None).await;
    let warning = drained["warnings"][0].as_str().unwrap();
    assert_eq!((status, &drained["drained"]), (200, &json!(true)));
    assert!(
        warning.starts_with("the change was made, but ") && !warning.contains("nothing was changed"),
        "{warning}"
    );
    assert!(!node.running.http().await.probe().await);
}

/// Goal: a store that is read-only or full until an operator changes that has an answer of its own, which
/// says what to do and does not ask for a retry. Method: each kind, for a read and a change.
#[tokio::test]
async fn a_store_that_accepts_no_writes_is_answered_with_advice() {
    let node = Node::start().await;
    for kind in [StoreErrorKind::ReadOnly, StoreErrorKind::Full] {
        node.store.fails_with(Some(kind));
        for line in ["GET /v1/admin/workers", "DELETE /v1/admin/namespaces/default"] {
            let (status, head, problem) = node.send(&node.admin, line, "", b"").await;
            let kind = &problem["type"];
            assert_eq!((status, kind), (500, &json!("urn:snowmint:store-not-writable")), "{line}: {problem}");
            assert!(!head.contains("retry-after"), "{head}");
            let detail = problem["detail"].as_str().unwrap();
            for words in ["nothing was written", "`snowmint doctor`", "explain store-not-writable"] {
                assert!(detail.contains(words), "{detail}");
            }
        }
    }
}

/// Goal: a program can tell from the answer that only a token for all namespaces may send the request,
/// without reading its text.
#[tokio::test]
async fn a_request_for_all_namespaces_says_so() {
    let node = Node::start().await;
    for (token, line, wanted) in [
        (&node.of_orders, "GET /v1/admin/audit", json!("*")),
        (&node.of_orders, "GET /v1/admin/audit?namespace=users", Value::Null),
        (&node.minter, "GET /v1/admin/audit", Value::Null),
    ] {
        let (status, problem) = node.ask(token, line, None).await;
        assert_eq!((status, &problem["token_namespaces"]), (403, &wanted), "{line}: {problem}");
        assert_eq!(problem["type"], "urn:snowmint:forbidden");
    }
}

/// Goal: a drained node is not ready and serves all requests, until the drain is ended.
#[tokio::test]
async fn a_drained_node_serves_and_is_not_ready() {
    let node = Node::start().await;
    assert_eq!(node.admin("GET /v1/admin/drain", None).await, (200, json!({"drained": false})));
    assert_eq!(node.admin("POST /v1/admin/drain", None).await, (200, json!({"drained": true})));
    let (head, body) = node.running.get("/readyz").await;
    assert!(head.starts_with("http/1.1 503 ") && body.contains("DELETE /v1/admin/drain"), "{head} {body}");
    assert_eq!(node.take("default").await, 200);
    assert_eq!(node.admin("DELETE /v1/admin/drain", None).await, (200, json!({"drained": false})));
    assert!(node.running.http().await.probe().await);
    let (_, log) = node.admin("GET /v1/admin/audit", None).await;
    assert_eq!(log["changes"][0]["action"], "node-drain", "{log}");
}

/// Goal: the doctor reports a node that makes no ids, with the reason that the node states. Method: a node
/// that is ready, then one without a lease, then one that was drained.
#[tokio::test]
async fn the_doctor_reports_a_node_that_is_not_ready() {
    let node = Node::start().await;
    let nodes = [format!("http://{}", node.running.http)];
    let found = async || {
        let Findings { findings } = examine(&*node.store, &nodes).await.unwrap();
        findings.into_iter().find(|it| it.check == "node").unwrap()
    };
    let ready = found().await;
    assert!(ready.ok && ready.text.contains("makes ids"), "{ready:?}");
    node.running.source.set_lease(false);
    let without_lease = found().await;
    assert!(!without_lease.ok, "{without_lease:?}");
    assert!(
        without_lease.text.contains("it is not ready: ")
            && without_lease.text.contains("the store does not answer"),
        "{without_lease:?}"
    );
    node.running.source.set_lease(true);
    assert_eq!(node.admin("POST /v1/admin/drain", None).await, (200, json!({"drained": true})));
    let drained = found().await;
    assert!(!drained.ok && drained.text.contains("an operator has drained this node"), "{drained:?}");
}

/// Goal: a store that fails during the checks is one problem among others: the nodes are asked all the same.
#[tokio::test]
async fn the_doctor_asks_nodes_although_the_store_fails() {
    let node = Node::start().await;
    let nodes = [format!("http://{}", node.running.http)];
    node.store.cut(true);
    let error = examine(&*node.store, &[]).await.unwrap_err();
    let Findings { findings } = examine(&*node.store, &nodes).await.unwrap();
    let found: Vec<_> = findings.iter().map(|it| (&*it.check, it.ok, &*it.text)).collect();
    assert!(
        matches!(&found[..], [("store", false, why), ("node", true, said)]
            if *why == error.to_string() && said.contains("it makes ids")),
        "{found:?}"
    );
}

/// Goal: the doctor and the list of workers answer over the network.
#[tokio::test]
async fn checks_and_workers_are_listed() {
    let node = Node::start().await;
    let (status, found) = node.admin("GET /v1/admin/doctor", None).await;
    let checks: Vec<_> =
        found["findings"].as_array().unwrap().iter().map(|it| it["check"].as_str().unwrap()).collect();
    assert!(status == 200 && checks.starts_with(&["store", "identity", "write", "clock"]), "{found}");
    assert_eq!(node.admin("GET /v1/admin/workers", None).await, (200, json!({"workers": []})));
}
