//! Numbers from outside the service's own store: a Leaf row, a Redis key, two ticket servers.

use std::fs;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use snowmint_test_servers::snowmint::resp::Reply;
use snowmint_test_servers::snowmint::server::assert_says;
use snowmint_test_servers::snowmint::third_party::output;
use snowmint_test_servers::snowmint::{self, Ids};
use snowmint_test_servers::time;
use snowmint_test_servers::{MariaDb, Proxy, Redis};

use crate::namespaces::{increment, init, ns, serve, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

const LEAF: &str = "CREATE TABLE test.leaf_alloc (biz_tag VARCHAR(128) NOT NULL DEFAULT '', max_id BIGINT NOT NULL \
    DEFAULT 1, step INT NOT NULL, description VARCHAR(256), update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP \
    ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (biz_tag)) ENGINE=InnoDB; \
    INSERT INTO test.leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 100);";

/// Leaf's statements for each segment: the numbers below the new `max_id`.
const LEAF_TAKES: &str = "START TRANSACTION; \
    UPDATE test.leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'order'; \
    SELECT max_id, step FROM test.leaf_alloc WHERE biz_tag = 'order'; COMMIT;";

/// Goal: Leaf and the service draw from one row without duplicates. Method: Leaf's own statements between
/// requests to Leaf's path, with curl.
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

    // A missing tag is reported when the namespace is added, and when the row disappears.
    let missing = format!("{url}?tag=gone");
    let refused = snowmint::run(
        folder.path(),
        ["ns", "add", "gone", "--data", "data", "--scheme", "segment", "--source", &missing],
    );
    assert_eq!(refused.status.code(), Some(1));
    assert_says(&snowmint::text(&refused), &["leaf_alloc", "gone"]);
}

/// Goal: a key that holds text is not a counter; the node reports it and serves all other namespaces.
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
    // Once repaired by hand, it is served without a restart.
    output("redis-cli", ["-p", &port, "SET", "n", "41"]);
    let number = time::eventually("a number", PATIENCE, || increment(&server, &["INCR", "n"]).ok());
    assert_eq!(number, 42);
}

/// Goal: two ticket servers behind one namespace: one is killed and comes back; ids continue without
/// duplicates.
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

    // A node that starts while one of them is down uses it once it is back, and then does not need the other.
    stores[1].kill9();
    let server = serve(folder.path()).start();
    wait_for(&server, "ids");
    let mut client = server.client();
    let log = server.log_with("until it is back", PATIENCE);
    assert!(log.contains("numbers{namespace=ids}"), "{log}");
    stores[1].restart();
    stores[0].kill9();
    time::eventually("an even number", PATIENCE, || {
        let drawn = client.next("ids", 20).unwrap().ok()?;
        ids.add(&drawn);
        drawn.iter().any(|id| id % 2 == 0).then_some(())
    });
    ids.assert_unique();
}

/// Goal: sources that can give the same number are refused everywhere, and both are named. Method: real Redis
/// keys and ticket servers, on the command line, in a file, and in a store that an earlier version wrote.
#[test]
fn overlapping_sources_are_refused() {
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::start());
    let port = redis.port().to_string();
    for key in ["a", "b"] {
        output("redis-cli", ["-p", &port, "SET", key, "100"]);
    }
    let key = |key: &str| format!("redis-counter:redis://{}/0?counter={key}", redis.address());
    let tickets: [MariaDb; 2] = ["1", "1"].map(|offset| {
        MariaDb::with(&["--auto-increment-increment=2", &format!("--auto-increment-offset={offset}")])
    });
    for server in &tickets {
        server.sql(TICKETS);
    }
    let table = |nth: usize| format!("tickets:mysql://root@{}/test", tickets[nth].address());
    let sets = [
        ("keys", [key("a"), key("b")], "gives every number"),
        (
            "twice",
            [table(0), table(0).replace("127.0.0.1", "localhost") + "?stub=a"],
            "name the same counter",
        ),
        ("tickets", [table(0), table(1)], "1 modulo 2"),
    ];
    init(folder.path());
    for (name, [one, other], words) in &sets {
        let add =
            ["ns", "add", name, "--data", "data", "--scheme", "segment", "--source", one, "--source", other];
        let refused = snowmint::run(folder.path(), add);
        assert_eq!(refused.status.code(), Some(2), "{}", snowmint::text(&refused));
        assert_says(&snowmint::text(&refused), &[words, one, other]);
    }
    // The overlap is visible without a connection: the whole file is rejected.
    let file = |[one, other]: &[String; 2]| {
        let text = format!("[namespaces.n]\nscheme = \"segment\"\nsources = [\"{one}\", \"{other}\"]\n");
        fs::write(folder.path().join("ns.toml"), text).unwrap();
    };
    for (_, sources, words) in &sets[..2] {
        file(sources);
        let args = [
            "serve",
            "--data",
            "data",
            "--http",
            "off",
            "--resp",
            "127.0.0.1:0",
            "--namespaces-file",
            "ns.toml",
        ];
        let refused = snowmint::run(folder.path(), args);
        assert_eq!(refused.status.code(), Some(2), "{}", snowmint::text(&refused));
        assert_says(&snowmint::text(&refused), &["ns.toml: line 1", words]);
    }
    // The overlap is visible once both are open.
    file(&sets[2].1);
    let server = serve(folder.path()).args(["--namespaces-file", "ns.toml"]).start();
    let error = increment(&server, &["ID.NEXT", "n"]).unwrap_err();
    assert_says(&error, &["NOTREADY", "1 modulo 2", &table(0), &table(1)]);
    assert_eq!(server.take(3).len(), 3, "the other namespaces are served");
    // Once repaired there, it is served without a restart: each number once.
    tickets[1].sql("SET GLOBAL auto_increment_offset = 2");
    let draw = || match server.client().call(&["ID.NEXT", "n", "COUNT", "4"]).unwrap() {
        Reply::Array(ids) => Some(ids),
        _ => None,
    };
    let mut ids = time::eventually("numbers of both", PATIENCE, draw);
    ids.extend((0..20).filter_map(|_| draw()).flatten());
    let distinct: std::collections::BTreeSet<_> = ids.iter().map(|id| format!("{id:?}")).collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    server.stop();

    // A definition that an earlier version wrote into the store is shown, but not served.
    let record =
        format!(r#"{{"scheme":"segment","sources":["{}","{}"],"everywhere":true}}"#, key("a"), key("b"));
    ns(folder.path(), &["add", "old", "--scheme", "segment"]);
    let script = "import sqlite3, sys\n\
                  c = sqlite3.connect(sys.argv[1])\n\
                  c.execute(\"update snowmint_records set value = ?, revision = revision + 1 where key = 'namespaces/old'\", [sys.argv[2].encode()])\n\
                  c.commit()";
    output("python3", ["-c", script, &folder.path().join("data/snowmint.db").display().to_string(), &record]);
    let server = serve(folder.path()).start();
    let error = increment(&server, &["ID.NEXT", "old"]).unwrap_err();
    assert_says(&error, &["NOTREADY", "gives every number", &key("a"), &key("b")]);
    assert!(ns(folder.path(), &["list"]).contains(&key("a")));
    ns(folder.path(), &["drop", "old"]);
}

/// Goal: if the settings of a ticket server change while a node draws from it, the node uses no number of
/// another server. Method: the offset of one of two is set to that of the other.
#[test]
fn a_source_that_leaves_its_numbers_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let tickets: [MariaDb; 2] = ["1", "2"].map(|offset| {
        MariaDb::with(&["--auto-increment-increment=2", &format!("--auto-increment-offset={offset}")])
    });
    let table = |server: &MariaDb| format!("tickets:mysql://root@{}/test", server.address());
    for server in &tickets {
        server.sql(TICKETS);
    }
    let [one, other] = [table(&tickets[0]), table(&tickets[1])];
    ns(
        folder.path(),
        &[
            "add",
            "n",
            "--scheme",
            "segment",
            "--size-max",
            "1",
            "--size-min",
            "1",
            "--source",
            &one,
            "--source",
            &other,
        ],
    );
    let server = serve(folder.path()).start();
    wait_for(&server, "n");
    tickets[1].sql("SET GLOBAL auto_increment_offset = 1");
    // Sessions keep their settings, so the test ends the server's connections, like a restart.
    let sessions = "SELECT GROUP_CONCAT(CONCAT('KILL ', id) SEPARATOR ';') FROM information_schema.processlist \
                    WHERE id <> CONNECTION_ID() AND user = 'root'";
    tickets[1].sql(&tickets[1].sql(sessions));
    let mut ids = Ids::new();
    let mut client = server.client();
    for _ in 0..100 {
        if let Ok(drawn) = client.next("n", 1).unwrap() {
            ids.add(&drawn);
        }
    }
    assert!(ids.len() > 20, "the other source goes on: {}", ids.len());
    ids.assert_unique();
}

/// Goal: a namespace that others share accepts no source that only one process or machine can reach. Method:
/// a store at an address that is not recognized as this machine's, and at one that is.
#[test]
fn a_source_that_not_every_node_sees_is_refused() {
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::start());
    // The resolver reads this number as 127.0.0.1.
    let store = format!("redis://2130706433:{}/0", redis.port());
    let loopback = format!("redis://{}/0", redis.address());
    let tickets = "tickets:mysql://root@localhost/test";
    let file = format!("sqlite:{}", folder.path().join("ids.db").display());
    let add = |store: &str, source: &str| {
        let args = ["ns", "add", "n", "--store", store, "--scheme", "segment", "--source", source];
        let ran = snowmint::run(folder.path(), args);
        (ran.status.code(), snowmint::text(&ran))
    };
    for (source, words) in [
        ("memory:", "forgets it when it ends"),
        (&*file, "names no file of a node"),
        (tickets, "each would reach a server of its own"),
    ] {
        let (code, text) = add(&store, source);
        assert_eq!(code, Some(2), "{text}");
        assert_says(&text, &[source, words]);
    }
    let (code, text) = add(&loopback, &file);
    assert_eq!(code, Some(2), "{text}");
    assert_says(&text, &[&file, "names no file of a node"]);
    let (code, text) = add(&loopback, tickets);
    assert!(
        !text.contains("a server of its own"),
        "what leads to the store leads there too: {code:?} {text}"
    );
    snowmint::run(folder.path(), ["store", "init", "--store", "sqlite:own.db"]);
    let (code, text) = add("sqlite:own.db", &file);
    assert_eq!(code, Some(2), "everyone who can write to the store could make nodes open files: {text}");
    assert_says(&text, &[&file, "names no file of a node"]);
}

/// Goal: two ticket servers that return the same numbers are noticed although no node ever reaches both.
/// Method: each node starts while another of the two is down, and so does the command that adds them.
#[test]
fn overlapping_sources_that_are_never_there_together_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let tickets: [MariaDb; 2] = ["1", "1"].map(|offset| {
        MariaDb::with(&["--auto-increment-increment=2", &format!("--auto-increment-offset={offset}")])
    });
    for server in &tickets {
        server.sql(TICKETS);
        server.kill9();
    }
    let [one, other] =
        tickets.each_ref().map(|server| format!("tickets:mysql://root@{}/test", server.address()));
    ns(folder.path(), &["add", "n", "--scheme", "segment", "--source", &one, "--source", &other]);
    let mut ids = Ids::new();
    tickets[0].restart();
    let server = serve(folder.path()).start();
    wait_for(&server, "n");
    ids.add(&server.client().next("n", 10).unwrap().unwrap());
    server.stop();
    tickets[0].kill9();

    tickets[1].restart();
    let server = serve(folder.path()).start();
    let error =
        time::eventually("the overlap is told", PATIENCE, || match server.client().next("n", 10).unwrap() {
            Ok(drawn) => {
                ids.add(&drawn);
                panic!("{drawn:?} from the other server");
            }
            Err(error) => error.contains("modulo").then_some(error),
        });
    assert_says(&error, &["NOTREADY", "1 modulo 2", &one, &other]);
    // Once repaired, it returns the other half of the numbers, and every node accepts it.
    tickets[1].sql("SET GLOBAL auto_increment_offset = 2");
    let drawn =
        time::eventually("numbers of the other", PATIENCE, || server.client().next("n", 10).unwrap().ok());
    assert!(drawn.iter().all(|id| id % 2 == 0), "{drawn:?}");
    ids.add(&drawn);
    ids.assert_unique();
    let refused = snowmint::run(
        folder.path(),
        ["ns", "set", "n", "--data", "data", "--source", &other, "--source", &one, "--above", "1"],
    );
    assert_eq!(refused.status.code(), Some(2), "{}", snowmint::text(&refused));
    assert_says(&snowmint::text(&refused), &["0 modulo 2", "1 modulo 2 when it was first used"]);
}

/// Goal: a source that becomes available late is used even if the store may lose writes, so that its numbers
/// have to settle there first. Method: a Redis as the store, and ticket servers, of which one is down at the
/// start and the other after it.
#[test]
fn a_late_source_is_used_over_a_store_that_may_lose_writes() {
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::start());
    let tickets: [MariaDb; 2] = ["1", "2"].map(|offset| {
        MariaDb::with(&["--auto-increment-increment=2", &format!("--auto-increment-offset={offset}")])
    });
    for server in &tickets {
        server.sql(TICKETS);
    }
    tickets[1].kill9();
    let source = |nth: usize| format!("tickets:mysql://root@{}/test", tickets[nth].address());
    let file =
        format!("[namespaces.n]\nscheme = \"segment\"\nsources = [\"{}\", \"{}\"]\n", source(0), source(1));
    fs::write(folder.path().join("ns.toml"), file).unwrap();
    let store = format!("redis://{}/0", redis.address());
    let server = serve(folder.path()).args(["--store", &store, "--namespaces-file", "ns.toml"]).start();
    wait_for(&server, "n");
    tickets[1].restart();
    let mut ids = Ids::new();
    time::eventually("an even number", PATIENCE, || {
        let drawn = server.client().next("n", 1).unwrap().ok()?;
        ids.add(&drawn);
        (drawn[0] % 2 == 0).then_some(())
    });
    ids.assert_unique();
}

/// Goal: a source that accepts connections but never answers delays neither another namespace nor the start.
/// Method: a dozen namespaces on such a server, whose timeouts would add up if a node tried one after the
/// other.
#[test]
fn a_source_that_says_nothing_delays_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((connection, _)) = silent.accept() {
            held.push(connection);
        }
    });
    let table = |nth: usize| {
        format!(
            "[namespaces.slow{nth}]\nscheme = \"segment\"\nsources = [\"leaf:mysql://u@{address}/l?tag=t{nth}\"]\n"
        )
    };
    let text: String = (0..12).map(table).collect();
    fs::write(folder.path().join("ns.toml"), text + "[namespaces.own]\nscheme = \"segment\"\n").unwrap();
    let server = serve(folder.path()).args(["--namespaces-file", "ns.toml"]).start();
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(increment(&server, &["INCR", "own"]), Ok(1));
    let error = increment(&server, &["INCR", "slow3"]).unwrap_err();
    assert_says(&error, &["NOTREADY", "namespace slow3"]);
    // The node still polls the store.
    for nth in 0..3 {
        let name = format!("later{nth}");
        ns(folder.path(), &["add", &name, "--scheme", "segment"]);
        wait_for(&server, &name);
        ns(folder.path(), &["drop", &name]);
        time::eventually("it is dropped", PATIENCE, || {
            increment(&server, &["INCR", &name]).err().filter(|it| it.starts_with("NONAMESPACE"))
        });
    }
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(increment(&server, &["INCR", "own"]), Ok(2));
}

/// Goal: if its settings change while its source is down, a namespace keeps the numbers in memory. Method: a
/// Leaf database that is killed, a change of sizes, and numbers before and after it is back.
#[test]
fn a_change_while_the_source_is_down_keeps_the_reserve() {
    let (folder, leaf) = (tempfile::tempdir().unwrap(), MariaDb::start());
    leaf.sql(LEAF);
    let source = format!("leaf:mysql://root@{}/test?tag=order", leaf.address());
    ns(folder.path(), &["add", "order", "--scheme", "segment", "--size-min", "1000", "--source", &source]);
    let server = serve(folder.path()).start();
    wait_for(&server, "order");
    let mut ids = Ids::new();
    let mut draw = || ids.add(&server.client().next("order", 20).unwrap().unwrap());
    draw();
    leaf.kill9();
    ns(folder.path(), &["set", "order", "--size-min", "2000"]);
    // A namespace that is added after the change is served after it.
    ns(folder.path(), &["add", "later", "--scheme", "segment"]);
    wait_for(&server, "later");
    for _ in 0..10 {
        draw();
    }
    leaf.restart();
    server.log_with("namespace changed", PATIENCE);
    for _ in 0..10 {
        draw();
    }
    ids.assert_unique();
}

/// Goal: a source may move to another address if that is the same counter or continues above the old one; no
/// other move is accepted. Method: one Redis under two names, another one, and the first one killed.
#[test]
fn a_source_may_move_under_the_same_numbers() {
    let (folder, servers) = (tempfile::tempdir().unwrap(), [Redis::start(), Redis::start()]);
    for (server, value) in servers.iter().zip(["100", "5000"]) {
        output("redis-cli", ["-p", &server.port().to_string(), "SET", "n", value]);
    }
    let key = |host: &str, nth: usize| {
        format!("redis-counter:redis://{host}:{}/0?counter=n&may_lose=0", servers[nth].port())
    };
    ns(
        folder.path(),
        &["add", "n", "--scheme", "segment", "--size-min", "10", "--source", &key("127.0.0.1", 0)],
    );
    let server = serve(folder.path()).start();
    wait_for(&server, "n");
    let mut ids = Ids::new();
    ids.add(&server.client().next("n", 5).unwrap().unwrap());
    let set = |source: &str, more: &[&str]| {
        let args = [&["ns", "set", "n", "--data", "data", "--source", source], more].concat();
        let ran = snowmint::run(folder.path(), args);
        (ran.status.code(), snowmint::text(&ran))
    };
    for (source, words) in [
        (key("127.0.0.1", 1), &["two counters", "--above N"][..]),
        (key("127.0.0.1", 0).replace("counter=n", "counter=m"), &["no key m"]),
        (key("u:hunter2@127.0.0.1", 0), &["login=NAME", "--logins"]),
        ("leaf:mysql://127.0.0.1/l?tag=n".to_owned(), &["unreachable from here"]),
    ] {
        let (code, text) = set(&source, &[]);
        assert_ne!(code, Some(0), "{text}");
        assert_says(&text, words);
        assert!(!text.contains("hunter2"), "{text}");
    }
    for same in [key("127.0.0.1", 0) + "&timeout_ms=3000", key("localhost", 0)] {
        let (code, text) = set(&same, &[]);
        assert_eq!(code, Some(0), "{text}");
    }
    servers[0].kill9();
    let moved = key("127.0.0.1", 1);
    let (code, text) = set(&moved, &[]);
    assert_eq!(code, Some(2), "{text}");
    assert_says(&text, &["does not answer", "--above N"]);
    let (code, text) = set(&moved, &["--above", "9000"]);
    assert_eq!(code, Some(0), "{text}");
    time::eventually("numbers of the other server", PATIENCE, || {
        let drawn = server.client().next("n", 1).unwrap().ok()?;
        ids.add(&drawn);
        (drawn[0] > 9000).then_some(())
    });
    ids.assert_unique();
}

/// A server that says nothing and remembers what it was sent.
struct Listener {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Listener {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, heard) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<u8>>>::default());
        let (counted, all) = (Arc::clone(&connections), Arc::clone(&heard));
        thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let all = Arc::clone(&all);
                thread::spawn(move || {
                    let mut part = [0; 4096];
                    while let Ok(length @ 1..) = connection.read(&mut part) {
                        all.lock().unwrap().extend(&part[..length]);
                    }
                });
            }
        });
        Self { address, connections, heard }
    }
}

/// Overwrites the record of a namespace, as whoever can write to the store can.
fn overwrite(folder: &Path, namespace: &str, record: &str) {
    let script = "import sqlite3, sys\n\
                  c = sqlite3.connect(sys.argv[1], timeout=10)\n\
                  c.execute(\"update snowmint_records set value = ?, revision = revision + 1 where key = ?\", [sys.argv[3].encode(), 'namespaces/' + sys.argv[2]])\n\
                  c.commit()";
    let file = folder.join("data/snowmint.db").display().to_string();
    output("python3", ["-c", script, &file, namespace, record]);
}

/// Goal: whoever can write to the store gets no file, password or login of a node. Method: records whose
/// sources ask for each, at a server that remembers what nodes send; the namespaces stop with the reason, and
/// the others go on.
#[test]
fn a_record_gets_neither_files_nor_secrets_of_a_node() {
    let (folder, listener) = (tempfile::tempdir().unwrap(), Listener::start());
    let secret = folder.path().join("hide-keys.toml");
    fs::write(&secret, "hunter2-of-a-file\n").unwrap();
    let (address, secret, file) = (listener.address, secret.display(), folder.path().join("stolen.db"));
    let counter = format!("redis-counter:redis://u@{address}/0?counter=a");
    let evil = [
        (format!("{counter}&password_file={secret}"), "unexpected parameter `password_file`"),
        (format!("{counter}&password_file=/proc/self/environ"), "unexpected parameter `password_file`"),
        (format!("{counter}&p%61ssword_file={secret}"), "unexpected parameter"),
        (format!("sqlite:{}", file.display()), "names no file of a node"),
        (format!("mysql://u@{address}/a?ssl-ca={secret}"), "unexpected parameter `ssl-ca`"),
        (format!("mysql://u@localhost/a?socket={secret}"), "unexpected parameter `socket`"),
        (format!("kubernetes:a?server=http://{address}"), "account of each node"),
        (format!("{counter}&login=shop"), "login shop is for redis://u@10.255.255.1:6379/0"),
        (format!("{counter}&login=gone"), "unknown login `gone`"),
        // Tried, without a password.
        (counter, "NOTREADY"),
    ];
    ns(folder.path(), &["add", "good", "--scheme", "segment"]);
    for (nth, (source, _)) in evil.iter().enumerate() {
        let name = format!("evil{nth}");
        ns(folder.path(), &["add", &name, "--scheme", "segment"]);
        let record = format!(r#"{{"scheme":"segment","sources":["{source}"],"everywhere":true}}"#);
        overwrite(folder.path(), &name, &record);
    }
    let server = serve(folder.path())
        .args(["--logins", "shop=redis://u:hunter2-of-a-login@10.255.255.1/0"])
        .env("SNOWMINT_STORE_PASSWORD", "hunter2-of-the-store")
        .env("PGPASSWORD", "hunter2-of-postgres")
        .start();
    wait_for(&server, "good");
    let reason = |nth: usize| {
        time::eventually("the reason", PATIENCE, || {
            let error = increment(&server, &["INCR", &format!("evil{nth}")]).unwrap_err();
            (!error.contains("being opened")).then_some(error)
        })
    };
    let errors: Vec<String> = (0..evil.len()).map(reason).collect();
    assert!(listener.connections.load(Ordering::SeqCst) > 0, "the source without a password was tried");
    let heard = || String::from_utf8_lossy(&listener.heard.lock().unwrap()).into_owned();
    assert!(!heard().contains("hunter2") && !heard().contains("PATH="), "{}", heard());
    assert!(!file.exists());
    for ((source, words), error) in evil.iter().zip(errors) {
        assert!(error.contains("NOTREADY") && error.contains(words), "{source}: {error}");
    }
    let trouble = server.get("/readyz").json()["trouble"].to_string();
    assert!(trouble.contains("unavailable namespaces") && trouble.contains("evil0"), "{trouble}");
    assert_eq!(server.get("/readyz").status, 200);
    assert!(increment(&server, &["INCR", "good"]).is_ok());
    assert!(!server.log().contains("hunter2"), "{}", server.log());
    // Nor from the machine of an operator.
    let mut set = snowmint::command();
    set.current_dir(folder.path()).env("SNOWMINT_STORE_PASSWORD", "hunter2-of-the-store");
    set.args(["ns", "set", "evil0", "--data", "data", "--above", "7", "--source"]);
    let set = set.arg("redis-counter:redis://127.0.0.1:1/0?counter=a").output().unwrap();
    assert_ne!(set.status.code(), Some(0), "{}", snowmint::text(&set));
    assert!(!heard().contains("hunter2"), "{}", heard());
}

/// Goal: a source with a password works on every node that has its login, and only there. Method: a Redis
/// with a password, a login by a flag and by a file with a password file, and a node that gets the login with
/// SIGHUP.
#[test]
fn a_source_with_a_login_works_on_every_node_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let redis = Redis::with(&["--requirepass", "hunter2"]);
    let cli = |words: &[&str]| {
        let port = redis.port().to_string();
        output("redis-cli", [&["--no-auth-warning", "-a", "hunter2", "-p", &port], words].concat())
    };
    cli(&["SET", "n", "100"]);
    let address = redis.address();
    let source = format!("redis-counter:redis://{address}/0?counter=n&may_lose=0&login=cache");
    let add = |source: &str, more: &[&str]| {
        init(folder.path());
        let args = ["ns", "add", "n", "--data", "data", "--scheme", "segment", "--source", source];
        let ran = snowmint::run(folder.path(), [&args, more].concat());
        (ran.status.code(), snowmint::text(&ran))
    };
    let flag = format!("cache=redis://:hunter2@{address}/0");
    for (source, more, words) in [
        (source.replace("redis://", "redis://:hunter2@"), &[][..], &["has a password", "login=NAME"][..]),
        (source.replace("login=", "password_file="), &[], &["`password_file`", "login=NAME", "--logins"]),
        (
            source.clone(),
            &["--logins", &flag.replace("/0", "/1")],
            &["login cache is for", "have to be the same"],
        ),
        (
            source.clone(),
            &["--logins", &flag.replace("hunter2", "wrong-hunter2")],
            &["redis-counter:redis://"],
        ),
    ] {
        let (code, text) = add(&source, more);
        assert_ne!(code, Some(0), "{text}");
        assert_says(&text, words);
        assert!(!text.contains("hunter2"), "{text}");
    }
    let (code, text) = add(&source, &["--logins", &flag]);
    assert_eq!(code, Some(0), "{text}");

    let by_flag = serve(folder.path()).args(["--logins", &flag]).start();
    wait_for(&by_flag, "n");
    fs::write(folder.path().join("ns.toml"), "").unwrap();
    let by_file = serve(folder.path()).args(["--namespaces-file", "ns.toml"]).start();
    let error = time::eventually("the reason", PATIENCE, || {
        increment(&by_file, &["INCR", "n"]).err().filter(|it| !it.contains("being opened"))
    });
    assert_says(&error, &["NOTREADY", "unknown login `cache`", "[logins]"]);
    fs::write(folder.path().join("password"), "hunter2\n").unwrap();
    let path = folder.path().join("password");
    let file = format!("[logins]\ncache = \"redis://{address}/0?password_file={}\"\n", path.display());
    fs::write(folder.path().join("ns.toml"), file).unwrap();
    by_file.hang_up();
    wait_for(&by_file, "n");
    let mut ids = Ids::new();
    for _ in 0..20 {
        for server in [&by_flag, &by_file] {
            ids.add(&server.client().next("n", 7).unwrap().unwrap());
        }
    }
    ids.assert_unique();
    // A server that wants a password says so, and the node names the remedy.
    ns(folder.path(), &["add", "plain", "--scheme", "segment"]);
    let plain = source.replace("&login=cache", "");
    let record = format!(r#"{{"scheme":"segment","sources":["{plain}"],"everywhere":true}}"#);
    let third = serve(folder.path());
    overwrite(folder.path(), "plain", &record);
    let third = third.env("SNOWMINT_STORE_PASSWORD", "hunter2").start();
    let error = time::eventually("the reason", PATIENCE, || {
        increment(&third, &["INCR", "plain"]).err().filter(|it| !it.contains("being opened"))
    });
    assert_says(&error, &["without login=NAME gets no password"]);
}

const TICKETS: &str = "CREATE TABLE test.Tickets64 (id bigint(20) unsigned NOT NULL auto_increment, \
    stub char(1) NOT NULL default '', PRIMARY KEY (id), UNIQUE KEY stub (stub)) ENGINE=InnoDB";

/// Goal: two servers that both accept writes are two counters, even if their numbers grow in turns; one
/// server at another address is one. Method: ticket servers that count in steps of 2, each a replica of the
/// other.
#[test]
fn servers_that_replicate_each_other_are_two_counters() {
    let folder = tempfile::tempdir().unwrap();
    let servers = [1, 2].map(|nth| {
        let server = MariaDb::with(&[
            &format!("--server-id={nth}"),
            &format!("--auto-increment-offset={nth}"),
            "--auto-increment-increment=2",
            "--log-bin=binlog",
            "--binlog-format=MIXED",
            "--log-slave-updates=1",
        ]);
        server.sql("RESET MASTER");
        server
    });
    for (replica, primary) in [(&servers[0], &servers[1]), (&servers[1], &servers[0])] {
        replica.sql(&format!(
            "CHANGE MASTER TO master_host = '127.0.0.1', master_port = {}, master_user = 'root', \
             master_use_gtid = current_pos; START SLAVE",
            primary.port()
        ));
    }
    servers[0].sql(TICKETS);
    servers[1].wait_until(
        "the table",
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'Tickets64'",
    );
    let proxy = Proxy::start(servers[0].address());
    let [first, second, by_proxy] = [servers[0].address(), servers[1].address(), proxy.address()]
        .map(|it| format!("tickets:mysql://root@{it}/test"));
    ns(folder.path(), &["add", "n", "--scheme", "segment", "--source", &first]);
    let set = |source: &str| {
        let ran = snowmint::run(folder.path(), ["ns", "set", "n", "--data", "data", "--source", source]);
        (ran.status.code(), snowmint::text(&ran))
    };
    let (code, text) = set(&second);
    assert_eq!(code, Some(2), "{text}");
    assert_says(&text, &["two counters", "--above N"]);
    let (code, text) = set(&by_proxy);
    assert_eq!(code, Some(0), "{text}");
}
