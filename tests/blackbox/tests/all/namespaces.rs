//! Namespaces of every scheme, as clients and operators meet them: Redis' commands, Leaf's paths, the command
//! line beside a running node, signals, kills, and invalid settings.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use snowmint_test_servers::snowmint::ids::increase;
use snowmint_test_servers::snowmint::resp::Reply;
use snowmint_test_servers::snowmint::server::assert_says;
use snowmint_test_servers::snowmint::third_party::{output, python};
use snowmint_test_servers::snowmint::{self, Ids, Serve, Server};
use snowmint_test_servers::time;

const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a subcommand of `ns` next to a server that has its data in `folder/data`.
pub(crate) fn ns(folder: &Path, args: &[&str]) -> String {
    init(folder);
    let ran = snowmint::run(folder, [&["ns"], args, &["--data", "data"]].concat());
    assert!(ran.status.success(), "{args:?}: {}", snowmint::text(&ran));
    snowmint::text(&ran)
}

/// Creates the store, which `ns add` does not do by itself.
pub(crate) fn init(folder: &Path) {
    let ran = snowmint::run(folder, ["store", "init", "--data", "data"]);
    assert!(ran.status.success(), "{}", snowmint::text(&ran));
}

pub(crate) fn serve(folder: &Path) -> Serve {
    Serve::new(folder).args(["--namespaces-poll", "100ms"])
}

/// Repeats a request until the namespace is served.
pub(crate) fn wait_for(server: &Server, namespace: &str) {
    time::eventually(&format!("{namespace} is served"), PATIENCE, || {
        let reply = server.client().call(&["ID.NEXT", namespace]).unwrap();
        (!matches!(reply, Reply::Error(_))).then_some(())
    });
}

pub(crate) fn increment(server: &Server, words: &[&str]) -> Result<i64, String> {
    match server.client().call(words).unwrap() {
        Reply::Integer(number) => Ok(number),
        Reply::Error(text) => Err(text),
        other => panic!("{words:?}: {other:?}"),
    }
}

const REDIS_PY: &str = r#"
import sys, redis
r = redis.Redis(port=int(sys.argv[1]), protocol=int(sys.argv[2]))
first = r.incr("n")
assert r.incrby("n", 10) == first + 10
assert r.incr("n", 5) == first + 15
pipe = r.pipeline(transaction=False)
for _ in range(1000):
    pipe.incr("n")
numbers = pipe.execute()
assert numbers == list(range(first + 16, first + 1016)), numbers[:5]
for bad in ("default", "keys", "daily"):
    try:
        r.incr(bad)
        raise SystemExit(f"{bad} was incremented")
    except redis.ResponseError as error:
        assert "ID.NEXT" in str(error), error
try:
    r.get("n")
    raise SystemExit("GET is no command")
except redis.ResponseError as error:
    assert "unknown command" in str(error), error
print(numbers[-1])
"#;

/// Goal: programs that count with Redis' INCR work unchanged. Method: redis-cli and redis-py, both versions
/// of the protocol; each answer is the last number of its run.
#[test]
fn redis_clients_count() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["add", "n", "--scheme", "segment"][..],
        &["add", "keys", "--scheme", "uuid7"],
        &["add", "daily", "--scheme", "segment", "--reset", "daily", "--text", "{date}-{number:4}"],
    ] {
        ns(folder.path(), args);
    }
    let server = serve(folder.path()).start();
    wait_for(&server, "n");
    let port = server.resp().port().to_string();
    let cli = |words: &[&str]| output("redis-cli", [&["-p", &port], words].concat()).trim().to_owned();
    let first: u64 = cli(&["INCR", "n"]).parse().unwrap();
    assert_eq!(cli(&["INCRBY", "n", "100"]), (first + 100).to_string());
    assert_eq!(cli(&["-r", "3", "INCR", "n"]).lines().last().unwrap(), (first + 103).to_string());
    let mut last = first + 103;
    for protocol in ["2", "3"] {
        let ended: u64 = python("redis", REDIS_PY, &[&port, protocol]).trim().parse().unwrap();
        assert!(ended > last);
        last = ended;
    }
    let text = cli(&["ID.NEXT", "daily"]);
    assert!(text.len() == 13 && text.ends_with("-0001"), "{text}");
    assert_eq!(cli(&["ID.NEXT", "keys"]).len(), 36);
    for (words, told) in [
        (&["INCRBY", "n", "0"][..], "expected 1 to 100000"),
        (&["INCRBY", "n", "-5"], "expected 1 to 100000"),
        (&["INCRBY", "n", "100001"], "expected 1 to 100000"),
        (&["INCRBY", "n", "x"], "ERR value is not an integer or out of range"),
        (&["INCRBY", "n"], "ERR wrong number of arguments for 'incrby' command"),
        (&["INCR", "nope"], "NONAMESPACE unknown namespace `nope`: "),
        (&["INCR", "default"], "WRONGTYPE cannot increment namespace `default`: "),
    ] {
        let error = increment(&server, words).unwrap_err();
        assert!(error.contains(told), "{words:?}: {error}");
    }
    assert_eq!(
        increment(&server, &["INCR", "n"]),
        Ok(i64::try_from(last).unwrap() + 1),
        "bad input takes no number"
    );
}

/// Returns the number of rare ids for each of eight shards.
fn shards(ids: &[u64]) -> [usize; 8] {
    std::array::from_fn(|shard| ids.iter().filter(|id| **id % 8 == shard as u64).count())
}

/// Draws one id after another from each namespace, each in a different millisecond.
fn draw_rarely<const N: usize>(server: &Server, namespaces: [&str; N], count: usize) -> [Vec<u64>; N] {
    let mut client = server.client();
    let mut drawn = [const { Vec::new() }; N];
    for _ in 0..count {
        // Pause first: waiting for the namespaces has just drawn from them.
        thread::sleep(Duration::from_millis(2));
        for (namespace, ids) in namespaces.iter().zip(&mut drawn) {
            ids.extend(client.next(namespace, 1).unwrap().unwrap());
        }
    }
    drawn
}

/// Goal: `id % 8` spreads rare ids unless the sequence starts at zero; ids stay unique and increase from tick
/// to tick. Method: ids drawn one at a time with pauses, with the flag of the service, without it, and with
/// those of namespaces of the same layout.
#[test]
fn rare_ids_go_to_every_shard_unless_the_sequence_starts_at_zero() {
    let folder = tempfile::tempdir().unwrap();
    for start in ["zero", "rolling"] {
        ns(folder.path(), &["add", start, "--scheme", "snowflake", "--sequence-start", start]);
    }
    let server = serve(folder.path()).args(["--sequence-start", "random"]).start();
    for namespace in ["zero", "rolling"] {
        wait_for(&server, namespace);
    }
    let drawn = draw_rarely(&server, ["default", "zero", "rolling"], 1000);
    let mut all = Ids::new();
    for ids in &drawn {
        assert!(increase(ids));
        all.add(ids);
    }
    all.assert_unique();
    let [random, zero, rolling] = &drawn;
    // A fair share is 125, with a standard deviation of about 10.
    for ids in [random, rolling] {
        assert!(shards(ids).iter().all(|count| (60..200).contains(count)), "{:?}", shards(ids));
    }
    assert_eq!(shards(zero), [1000, 0, 0, 0, 0, 0, 0, 0]);
    server.stop();

    let folder = tempfile::tempdir().unwrap();
    ns(folder.path(), &["add", "twitter", "--scheme", "snowflake", "--sequence-start", "zero"]);
    let server = serve(folder.path()).start();
    wait_for(&server, "twitter");
    let [default, twitter] = draw_rarely(&server, ["default", "twitter"], 200);
    assert!(shards(&default).iter().all(|count| *count > 0), "without the flag: {:?}", shards(&default));
    assert_eq!(shards(&twitter), [200, 0, 0, 0, 0, 0, 0, 0]);
    server.stop();
    let server = serve(folder.path()).args(["--sequence-start", "zero"]).start();
    let [default] = draw_rarely(&server, ["default"], 50);
    assert!(default.iter().all(|id| id % 2 == 0), "rare ids are even with the flag");
}

/// Compiles a time zone database with one zone, at this distance from UTC.
fn database(folder: &Path, name: &str, zone: &str, offset: &str) -> std::path::PathBuf {
    let (rules, database) = (folder.join(format!("{name}.zi")), folder.join(name));
    fs::write(&rules, format!("Zone {zone} {offset} - %z\n")).unwrap();
    output("zic", ["-d", database.to_str().unwrap(), rules.to_str().unwrap()]);
    database
}

/// Goal: two nodes whose databases have different rules for a zone give different dates and never one text
/// twice, nor after both have restarted with the other's rules; a node that does not know the zone refuses.
/// Method: a zone that one release has 14 hours ahead of UTC and the other 12 behind, so that the dates
/// always differ; drawn in turn.
#[test]
fn nodes_with_different_releases_of_the_time_zones_give_no_text_twice() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let releases = [("east", "14:00"), ("west", "-12:00")]
        .map(|(name, offset)| database(folder, name, "Test/Office", offset));
    ns(
        folder,
        &["add", "orders", "--scheme", "segment", "--reset", "daily", "--text", "ORD-{date}-{number}"],
    );
    let set = snowmint::command()
        .current_dir(folder)
        .env("TZDIR", &releases[0])
        .args(["ns", "set", "orders", "--time-zone", "Test/Office", "--data", "data"])
        .output()
        .unwrap();
    assert!(set.status.success(), "{}", snowmint::text(&set));
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..2 {
        let nodes: Vec<Server> =
            (0..2).map(|nth| serve(folder).env("TZDIR", &releases[(nth + round) % 2]).start()).collect();
        let mut dates = [const { std::collections::BTreeSet::new() }; 2];
        for node in &nodes {
            wait_for(node, "orders");
        }
        for nth in 0..200 {
            let Reply::Bulk(text) = nodes[nth % 2].client().call(&["ID.NEXT", "orders"]).unwrap() else {
                panic!("no text")
            };
            dates[nth % 2].insert(text[4..12].to_owned());
            assert!(seen.insert(text.clone()), "{text} twice");
        }
        assert!(dates[0].is_disjoint(&dates[1]), "{dates:?}");
        for node in nodes {
            node.stop();
        }
    }
    let node = serve(folder).env("TZDIR", database(folder, "other", "Test/Other", "1:00")).start();
    let Reply::Error(error) = node.client().call(&["ID.NEXT", "orders"]).unwrap() else { panic!("served") };
    assert!(error.contains("unknown time zone Test/Office"), "{error}");
}

/// Goal: no number is returned twice, and a clean stop wastes none. Method: numbers drawn across a clean stop
/// and across kill -9, after each of which the node restarts on the same data.
#[test]
fn numbers_survive_stops_and_kills() {
    let folder = tempfile::tempdir().unwrap();
    ns(folder.path(), &["add", "n", "--scheme", "segment"]);
    let mut ids = Ids::new();
    let mut last = 0;
    for round in 0..4 {
        let mut server = serve(folder.path()).start();
        wait_for(&server, "n");
        let drawn = server.client().next("n", 2500).unwrap().unwrap();
        assert!(increase(&drawn) && drawn[0] > last, "{} after {last}", drawn[0]);
        if round % 2 == 1 {
            // One number was drawn to check that the namespace is served.
            assert_eq!(drawn[0], last + 2, "a clean stop gives back what was not used");
        }
        last = *drawn.last().unwrap();
        ids.add(&drawn);
        if round % 2 == 0 {
            server.stop();
        } else {
            server.kill();
        }
    }
    ids.assert_unique();
}

/// Goal: every node serves what an operator adds, changes and drops, without a restart. Method: two nodes on
/// one store, and the command line beside them.
#[test]
fn nodes_follow_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = [serve(folder.path()).start(), serve(folder.path()).start()];
    ns(folder.path(), &["add", "orders", "--scheme", "segment", "--text", "A-{number:6}"]);
    let mut seen = std::collections::BTreeSet::new();
    for node in &nodes {
        wait_for(node, "orders");
        for _ in 0..50 {
            let Reply::Bulk(text) = node.client().call(&["ID.NEXT", "orders"]).unwrap() else {
                panic!("no text")
            };
            assert!(text.starts_with("A-") && seen.insert(text.clone()), "{text} twice");
        }
    }
    ns(folder.path(), &["set", "orders", "--text", "B-{number:6}"]);
    for node in &nodes {
        time::eventually("the new text", PATIENCE, || {
            let Reply::Bulk(text) = node.client().call(&["ID.NEXT", "orders"]).unwrap() else {
                panic!("no text")
            };
            assert!(seen.insert(text.clone()), "{text} twice");
            text.starts_with("B-").then_some(())
        });
    }
    ns(folder.path(), &["drop", "orders"]);
    for node in &nodes {
        let error = time::eventually("the namespace is refused", PATIENCE, || {
            match node.client().call(&["ID.NEXT", "orders"]).unwrap() {
                Reply::Error(text) => Some(text),
                _ => None,
            }
        });
        assert!(error.contains("NONAMESPACE unknown namespace `orders`: "), "{error}");
    }
}

/// Goal: SIGHUP reads the file again; a bad file changes nothing, and the error names its line.
#[test]
fn a_file_is_reloaded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ns.toml");
    let write = |text: &str| fs::write(&file, text).unwrap();
    write("[namespaces.a]\nscheme = \"segment\"\ntext = \"A{number}\"\n");
    // The node does not poll the store meanwhile: changes arrive by the signal.
    let server =
        Serve::new(folder.path()).args(["--namespaces-poll", "1h", "--namespaces-file", "ns.toml"]).start();
    let text = |namespace: &str| server.client().call(&["ID.NEXT", namespace]).unwrap();
    assert_eq!(text("a"), Reply::Bulk("A1".to_owned()));

    write("[namespaces.a]\nscheme = \"segment\"\nstripe = \"3/2\"\n");
    server.hang_up();
    let log = server.log_with("nothing was reloaded", PATIENCE);
    assert_says(&log, &["ns.toml: line 3: invalid stripe 3/2"]);
    assert_eq!(text("a"), Reply::Bulk("A2".to_owned()));

    write("[namespaces.a]\nscheme = \"segment\"\ntext = \"B{number}\"\n[namespaces.b]\nscheme = \"ulid\"\n");
    server.hang_up();
    server.log_with("reloaded served=3", PATIENCE);
    assert_eq!(text("a"), Reply::Bulk("B3".to_owned()));
    assert!(matches!(text("b"), Reply::Bulk(id) if id.len() == 26));
}

/// Goal: the node warns long before the last number, with advice. Method: a small maximum.
#[test]
fn a_maximum_is_told_before_and_when_it_is_reached() {
    let folder = tempfile::tempdir().unwrap();
    ns(
        folder.path(),
        &["add", "n", "--scheme", "segment", "--maximum", "100", "--size-min", "1", "--size-max", "1"],
    );
    let server = serve(folder.path()).start();
    wait_for(&server, "n");
    let used = || server.metric("snowmint_numbers_used_ratio");
    assert!(used() < 0.2, "{}", used());
    for _ in 0..94 {
        increment(&server, &["INCR", "n"]).unwrap();
    }
    server.log_with("namespace n has used 90 % of its numbers", PATIENCE);
    assert!(used() >= 0.9, "{}", used());
    let mut client = server.client();
    let error = time::eventually("the end", PATIENCE, || match client.call(&["INCR", "n"]).unwrap() {
        Reply::Error(text) => Some(text),
        _ => None,
    });
    assert!(
        error.contains("NUMBERSENDED namespace `n` has used all numbers up to its maximum (100)"),
        "{error}"
    );
    assert_eq!(server.get("/v1/ids/n").status, 500);
    let ready = server.get("/readyz");
    assert_eq!(ready.status, 200, "the other namespaces are served");
    assert_says(&ready.body, &["trouble", "every number of n up to its maximum, 100, is used"]);
    let doctor = snowmint::run(folder.path(), ["doctor", "--data", "data"]);
    assert_eq!(doctor.status.code(), Some(1), "{}", snowmint::text(&doctor));
    assert_says(&snowmint::text(&doctor), &["every number of n up to its maximum, 100, is reserved"]);
    ns(folder.path(), &["set", "n", "--maximum", "1000"]);
    let number = time::eventually("a number above", PATIENCE, || increment(&server, &["INCR", "n"]).ok());
    assert!(number > 100, "{number}");
}

/// Goal: nodes continue to serve namespaces whose records the store lost, and report that until the records
/// are back. Method: the records are deleted from the data file of a running node, of a namespace in its
/// flags and of one added to the store.
#[test]
fn a_store_that_lost_its_records_takes_no_namespace_away() {
    let folder = tempfile::tempdir().unwrap();
    ns(folder.path(), &["add", "orders", "--scheme", "segment", "--text", "A{number}"]);
    let server = serve(folder.path()).start();
    wait_for(&server, "orders");
    let delete = "import sqlite3, sys\n\
                  c = sqlite3.connect(sys.argv[1], timeout=10)\n\
                  c.execute(\"delete from snowmint_records where key like 'namespaces/%' or key like 'versions/%'\")\n\
                  c.commit()";
    let file = folder.path().join("data/snowmint.db").display().to_string();
    let shown = |metric: &str| server.metric(metric).to_string();
    assert_eq!(shown("snowmint_namespace_records_lost_total"), "0");
    output("python3", ["-c", delete, &file]);
    server.log_with("this node serves them until it stops", PATIENCE);
    for _ in 0..20 {
        assert_eq!(server.take(10).len(), 10);
        assert!(matches!(server.client().call(&["ID.NEXT", "orders"]).unwrap(), Reply::Bulk(_)));
    }
    let ready = server.get("/readyz");
    assert_eq!(ready.status, 200);
    assert_says(&ready.body, &["trouble", "lost the records of served namespaces: orders"]);
    assert_eq!(shown("snowmint_namespace_records_lost_total"), "2");
    assert_eq!(shown("snowmint_namespaces_unrecorded"), "1");
    let listed = ns(folder.path(), &["list"]);
    assert!(
        listed.contains("default ") && !listed.contains("orders"),
        "the flag's is pinned again: {listed}"
    );

    ns(folder.path(), &["add", "orders", "--scheme", "segment", "--text", "A{number}"]);
    time::eventually("no more trouble", PATIENCE, || {
        let ready = server.get("/readyz").body;
        (!ready.contains("trouble")).then_some(())
    });
    ns(folder.path(), &["drop", "orders"]);
    time::eventually("a drop is a drop", PATIENCE, || {
        (server.get("/v1/ids/orders").status == 404).then_some(())
    });
}
