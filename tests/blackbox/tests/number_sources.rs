//! Numbers from elsewhere than the service's own store: a Leaf's row, a key of Redis, two ticket servers.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use snowmint_blackbox::external::output;
use snowmint_blackbox::resp::Reply;
use snowmint_blackbox::server::assert_says;
use snowmint_blackbox::{Ids, Serve, Server, binary, time};
use snowmint_test_servers::{MariaDb, Redis};

const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the command beside a server that has its data in `folder/data`.
fn ns(folder: &Path, args: &[&str]) -> String {
    let ran = binary::run(folder, [&["ns"], args, &["--data", "data"]].concat());
    assert!(ran.status.success(), "{args:?}: {}", binary::text(&ran));
    binary::text(&ran)
}

fn serve(folder: &Path) -> Serve {
    Serve::new(folder).args(["--namespaces-poll", "100ms"])
}

/// Asks until the namespace is served.
fn wait_for(server: &Server, namespace: &str) {
    time::eventually(&format!("{namespace} is served"), PATIENCE, || {
        let reply = server.client().call(&["ID.NEXT", namespace]).unwrap();
        (!matches!(reply, Reply::Error(_))).then_some(())
    });
}

fn increment(server: &Server, words: &[&str]) -> Result<i64, String> {
    match server.client().call(words).unwrap() {
        Reply::Integer(number) => Ok(number),
        Reply::Error(text) => Err(text),
        other => panic!("{words:?}: {other:?}"),
    }
}

const LEAF: &str = "CREATE TABLE test.leaf_alloc (biz_tag VARCHAR(128) NOT NULL DEFAULT '', max_id BIGINT NOT NULL \
    DEFAULT 1, step INT NOT NULL, description VARCHAR(256), update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP \
    ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (biz_tag)) ENGINE=InnoDB; \
    INSERT INTO test.leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 100);";

/// What Leaf does for each of its segments, in its own words: the numbers below the new `max_id`.
const LEAF_TAKES: &str = "START TRANSACTION; \
    UPDATE test.leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'order'; \
    SELECT max_id, step FROM test.leaf_alloc WHERE biz_tag = 'order'; COMMIT;";

/// Goal: a Leaf and the service draw from one row, and no number comes twice. Method: Leaf's own statements between
/// requests to Leaf's own path, by curl.
#[test]
fn leaf_and_the_service_share_a_row() {
    let (folder, leaf) = (tempfile::tempdir().unwrap(), MariaDb::start());
    leaf.sql(LEAF);
    let url = format!("leaf:mysql://root@{}/test", leaf.address());
    ns(
        folder.path(),
        &[
            "add",
            "order",
            "--scheme",
            "segment",
            "--size-min",
            "10",
            "--size-max",
            "10",
            "--source",
            &format!("{url}?tag=order"),
        ],
    );
    let server = serve(folder.path()).start();
    wait_for(&server, "order");
    let get = |path: &str| {
        output("curl", ["-s", "-w", " %{http_code}", &format!("http://{}{path}", server.http())])
    };
    let mut ids = Ids::new();
    for _ in 0..20 {
        let row = leaf.sql(LEAF_TAKES);
        let (max, step) = row.split_once('\t').unwrap();
        let (max, step): (u64, u64) = (max.parse().unwrap(), step.parse().unwrap());
        ids.add(&(max - step..max).collect::<Vec<_>>());
        for _ in 0..7 {
            let answer = get("/api/segment/get/order");
            let (id, status) = answer.split_once(' ').unwrap();
            assert_eq!(status, "200", "{answer}");
            ids.add(&[id.parse().unwrap()]);
        }
    }
    ids.assert_unique();

    let (id, _) = get("/api/snowflake/get/default")
        .split_once(' ')
        .map(|(id, status)| (id.to_owned(), status.to_owned()))
        .unwrap();
    assert!(id.parse::<u64>().unwrap() > 1 << 60);
    for (path, code) in
        [("/api/segment/get/nope", -2), ("/api/segment/get/default", -2), ("/api/snowflake/get/order", -1)]
    {
        let answer = get(path);
        let (body, status) = answer.rsplit_once(' ').unwrap();
        let document: Value = serde_json::from_str(body).unwrap();
        assert_eq!(document["message"], format!("Result{{id={code}, status=EXCEPTION}}"), "{answer}");
        assert_eq!((status, &document["status"]), ("500", &500.into()), "{answer}");
    }

    // A tag that nobody inserted is told when it is added, and when it goes missing.
    let missing = format!("{url}?tag=gone");
    let refused = binary::run(
        folder.path(),
        ["ns", "add", "gone", "--data", "data", "--scheme", "segment", "--source", &missing],
    );
    assert_eq!(refused.status.code(), Some(1));
    assert_says(&binary::text(&refused), &["leaf_alloc", "gone"]);
}

/// Goal: a key that holds text is no counter, and the node that was told to use it says so and serves all else.
#[test]
fn a_counter_that_holds_text_is_told() {
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::start());
    let port = redis.port().to_string();
    output("redis-cli", ["-p", &port, "SET", "n", "text"]);
    let source = format!("redis-counter:redis://{}/0?counter=n", redis.address());
    fs::write(
        folder.path().join("ns.toml"),
        format!("[namespaces.n]\nscheme = \"segment\"\nsources = [\"{source}\"]\n"),
    )
    .unwrap();
    let server = serve(folder.path()).args(["--namespaces-file", "ns.toml"]).start();
    let error = increment(&server, &["INCR", "n"]).unwrap_err();
    assert!(error.starts_with("NOTREADY ") && error.contains("text"), "{error}");
    assert_eq!(server.take(3).len(), 3);
    // Mended by hand, it is served without a restart.
    output("redis-cli", ["-p", &port, "SET", "n", "41"]);
    let number = time::eventually("a number", PATIENCE, || increment(&server, &["INCR", "n"]).ok());
    assert_eq!(number, 42);
}

/// Goal: two ticket servers behind one name: one is killed and comes back, ids go on, none twice.
#[test]
fn one_of_two_stores_may_be_down() {
    let folder = tempfile::tempdir().unwrap();
    let stores = [MariaDb::start(), MariaDb::start()];
    let source = |i: usize| format!("{}/2 mysql://root@{}/test", i + 1, stores[i].address());
    ns(
        folder.path(),
        &[
            "add",
            "ids",
            "--scheme",
            "segment",
            "--size-min",
            "50",
            "--size-max",
            "50",
            "--source",
            &source(0),
            "--source",
            &source(1),
        ],
    );
    let server = serve(folder.path()).start();
    wait_for(&server, "ids");
    let mut client = server.client();
    let mut ids = Ids::new();
    let mut draw = |rounds: usize| {
        let mut parities = [0, 0];
        for _ in 0..rounds {
            let drawn =
                client.next("ids", 20).unwrap().unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
            for id in &drawn {
                parities[usize::from(id % 2 == 0)] += 1;
            }
            ids.add(&drawn);
        }
        parities
    };
    let [odd, even] = draw(50);
    assert!(odd > 0 && even > 0, "{odd} odd, {even} even");
    stores[1].kill9();
    draw(50);
    stores[1].restart();
    time::eventually("the second store is used again", PATIENCE, || {
        let [_, even] = draw(10);
        (even > 0).then_some(())
    });
    drop(client);
    drop(server);

    // A node that begins while one of them is down uses it once it is there, and then needs the other no more.
    stores[1].kill9();
    let server = serve(folder.path()).start();
    wait_for(&server, "ids");
    let mut client = server.client();
    let log = server.log();
    assert!(log.contains("namespace{name=ids}") && log.contains("until this one is there"), "{log}");
    stores[1].restart();
    stores[0].kill9();
    time::eventually("an even number", PATIENCE, || {
        let drawn = client.next("ids", 20).unwrap().ok()?;
        ids.add(&drawn);
        drawn.iter().any(|id| id % 2 == 0).then_some(())
    });
    ids.assert_unique();
}
