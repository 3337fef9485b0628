//! `snowmint store recover` and the information that it requires. Restores of every store, with running
//! nodes, are in `tests/blackbox/tests/all/restores.rs`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use snowmint_test_servers::Redis;

use crate::support::{Sandbox, Server, json};

/// Draws ids and numbers. Returns whether one of them was drawn before.
fn draw(server: &mut Server, seen: &mut HashSet<String>) -> usize {
    let mut twice = 0;
    for path in ["/v1/ids/default?count=200", "/v1/ids/tickets?count=900"] {
        // A new namespace is served after a moment.
        let answer = (0..1000).find_map(|_| {
            let (status, body) = server.http(path);
            (status == 200).then_some(body).or_else(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                None
            })
        });
        let ids = json(&answer.unwrap());
        for id in ids["ids"].as_array().unwrap() {
            twice += usize::from(!seen.insert(format!("{path} {id}")));
        }
    }
    twice
}

pub(crate) fn tool(program: &str, args: &[&str]) {
    let ran = Command::new(program).args(args).output();
    let ran = ran.unwrap_or_else(|error| panic!("{program} is missing: {error}; apt-get install sqlite3"));
    assert!(ran.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// Goal: the JSON of a recovery says what its text says. Method: one store, both ways.
#[test]
fn a_recovery_is_printed_as_json() {
    let sandbox = Sandbox::with_store();
    sandbox.out(&["ns", "add", "tickets", "--scheme", "segment"]);
    sandbox.out(&["new"]);
    let at_least = "tickets=9,007,199,254,740,993";
    let recover = ["store", "recover", "--numbers-at-least", at_least, "--add", "5", "--json"];
    let planned = sandbox.out(&recover);
    let lines: Vec<_> = planned.lines().map(json).collect();
    assert!(lines[0]["leases"].as_str().unwrap().starts_with("workers/"), "{planned}");
    assert_eq!(lines[0]["records"], 1, "{planned}");
    let counter = lines.iter().find(|line| line["counter"].is_string()).unwrap();
    let [now, after] = ["now", "after"].map(|name| counter[name].as_str().unwrap());
    assert_eq!((now, after), ("0", "9007199254740998"), "{planned}");
    assert_eq!(lines.last().unwrap()["applied"], false, "{planned}");
    let applied = sandbox.out(&[&recover[..], &["--yes"]].concat());
    let last = json(applied.lines().last().unwrap());
    assert_eq!(last["applied"], true, "{applied}");
    assert!(last["until"].is_string() && last["store"].is_string(), "{applied}");
}

/// Serves from a store, draws, backs the store up, draws more, restores, recovers with the given flags, and
/// draws again. Returns the number of duplicate ids and numbers. A crashed node reports nothing.
fn restored(
    sandbox: &Sandbox,
    old: &str,
    new: &str,
    backup: impl Fn(),
    restore: impl Fn(),
    recover: impl Fn(&Sandbox, &str),
) -> usize {
    let sizes = ["--size-min", "100", "--size-max", "100"];
    sandbox.out(&["store", "init", "--store", old]);
    let add = [&["ns", "add", "tickets", "--scheme", "segment", "--store", old][..], &sizes].concat();
    sandbox.out(&add);
    let window = ["--window", "2s", "--namespaces-poll", "100ms"];
    let mut seen = HashSet::new();
    let mut node = sandbox.serve(&[&["--store", old][..], &window].concat());
    assert_eq!(draw(&mut node, &mut seen), 0);
    let identity = node.ready("store_id");
    backup();
    for _ in 0..5 {
        assert_eq!(draw(&mut node, &mut seen), 0);
    }
    restore();
    let address = node.ready("http");
    recover(sandbox, &address);
    drop(node);
    let mut node = sandbox.serve(&[&["--store", new][..], &window].concat());
    assert_eq!(node.ready("store_id"), identity, "a restore keeps the identity");
    (0..5).map(|_| draw(&mut node, &mut seen)).sum()
}

fn sqlite(recover: impl Fn(&Sandbox, &str)) -> usize {
    let sandbox = Sandbox::new();
    let [old, new, backup] = ["old.db", "new.db", "backup.db"].map(|name| sandbox.path(name));
    let url = |path: &Path| format!("sqlite:{}", path.display());
    restored(
        &sandbox,
        &url(&old),
        &url(&new),
        || tool("sqlite3", &[old.to_str().unwrap(), &format!(".backup {}", backup.display())]),
        || {
            fs::copy(&backup, &new).unwrap();
        },
        recover,
    )
}

#[test]
fn a_restored_sqlite_file_gives_no_number_again_once_it_was_recovered() {
    assert!(sqlite(|_, _| ()) > 1000, "without it the restore repeats numbers");
    let new = |sandbox: &Sandbox| format!("sqlite:{}", sandbox.path("new.db").display());
    let by_the_node = sqlite(|sandbox, address| {
        let (store, node) = (new(sandbox), format!("http://{address}"));
        let args = ["store", "recover", "--store", &store, "--nodes", &node, "--window", "2s"];
        let plan = sandbox.out(&args);
        assert!(plan.contains("counter segments/tickets") && plan.contains("nothing was changed"), "{plan}");
        let done = sandbox.out(&[&args[..], &["--yes"]].concat());
        assert!(done.contains("may be used; the workers of the pools above are reserved until"), "{done}");
    });
    assert_eq!(by_the_node, 0);
    let by_the_operator = sqlite(|sandbox, _| {
        let store = new(sandbox);
        sandbox.out(&["store", "recover", "--store", &store, "--numbers-at-least", "tickets=10000", "--yes"]);
    });
    assert_eq!(by_the_operator, 0);
}

#[test]
fn what_is_not_known_has_to_be_said() {
    let sandbox = Sandbox::with_store();
    sandbox.out(&["ns", "add", "tickets", "--scheme", "segment"]);
    let told = sandbox.refused(&["store", "recover"], 2);
    assert!(told.contains("--add 0 keeps them"), "{told}");
    // A namespace may be newer than the backup, and be added again with a reset period or without.
    let plan = sandbox.out(&["store", "recover", "--numbers-at-least", "orders=7"]);
    let raised = plan.lines().filter(|it| it.starts_with("counter segments/orders") && it.ends_with(" 7"));
    assert!(raised.count() >= 4 && plan.contains("orders has counters that the backup lacks"), "{plan}");
    let told = sandbox.refused(&["store", "recover", "--nodes", "http://127.0.0.1:1"], 1);
    assert!(told.contains("no metrics from node"), "{told}");
    let plan = sandbox.out(&["store", "recover", "--numbers-at-least", "tickets=700", "--add", "5"]);
    assert!(plan.contains("705") && plan.contains("nothing was changed"), "{plan}");
}

/// Goal: a number that a node returned is not ignored because the store does not know its counter, and the
/// output for a store without lease records says what that means. Method: a namespace that is served, but is
/// missing in the recovered store; a store that no node has used.
#[test]
fn a_counter_that_the_store_lacks_is_made_and_a_store_without_leases_says_so() {
    let sandbox = Sandbox::new();
    let [old, new] = ["old.db", "new.db"].map(|name| format!("sqlite:{}", sandbox.path(name).display()));
    for store in [&old, &new] {
        sandbox.out(&["store", "init", "--store", store]);
    }
    sandbox.out(&["ns", "add", "tickets", "--scheme", "segment", "--store", &old]);
    sandbox.out(&["ns", "add", "orders", "--scheme", "segment", "--store", &new]);
    let mut node = sandbox.serve(&["--store", &old]);
    assert_eq!(draw(&mut node, &mut HashSet::new()), 0);
    let address = format!("http://{}", node.ready("http"));
    let recover = ["store", "recover", "--store", &new, "--nodes", &address];
    let plan = sandbox.out(&recover);
    let made = plan.lines().find(|line| line.starts_with("counter segments/tickets")).unwrap();
    assert!(!made.ends_with(" 0") && plan.contains("tickets has counters that the backup lacks"), "{plan}");
    assert!(plan.contains("counter segments/orders"), "{plan}");
    let plan = sandbox.out(&["store", "recover", "--store", &new, "--add", "0"]);
    assert!(plan.contains("no records, so no worker can be reserved: start no node before"), "{plan}");
}

/// Goal: an unreadable worker record does not stop a recovery halfway, and is named. Method: damage one of
/// those that a first recovery wrote, and recover again.
#[test]
fn a_damaged_worker_is_named_and_the_others_are_recovered() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("data.db");
    let store = format!("sqlite:{}", file.display());
    sandbox.out(&["store", "init", "--store", &store]);
    sandbox.out(&["ns", "add", "tickets", "--scheme", "segment", "--store", &store]);
    drop(sandbox.serve(&["--store", &store, "--window", "2s"]));
    let recover = ["store", "recover", "--store", &store, "--add", "7", "--window", "2s", "--yes"];
    sandbox.out(&recover);
    let damage = "UPDATE snowmint_records SET revision = -1 WHERE key LIKE 'workers/%/0000000003'";
    tool("sqlite3", &[file.to_str().unwrap(), damage]);
    let ran = sandbox.run(&recover);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.starts_with("warning: skipped `workers/") && ran.err.lines().count() == 1, "{}", ran.err);
    let damaged = ran.out.lines().position(|line| {
        line.starts_with("damaged workers/") && line.contains("/0000000003: ") && line.contains("it was left")
    });
    let counter = ran.out.lines().position(|line| line.starts_with("counter segments/tickets"));
    assert!(damaged.is_some() && damaged < counter, "{}", ran.out);
    assert!(
        ran.out.contains("may be used; the workers of the pools above are reserved until"),
        "{}",
        ran.out
    );
}

/// Goal: no worker is free in a pool that the backup lacks but that a node or a namespace uses, and the last
/// line claims no more. Method: a node in a separate datacenter, and a namespace with another layout; a store
/// without a lease.
#[test]
fn pools_that_the_backup_lacks_are_reserved() {
    let sandbox = Sandbox::new();
    let [old, new] = ["old.db", "new.db"].map(|name| format!("sqlite:{}", sandbox.path(name).display()));
    for store in [&old, &new] {
        sandbox.out(&["store", "init", "--store", store]);
    }
    let layout = ["--layout", "time:41 datacenter:2 worker:3 sequence:17 epoch:2020-01-01"];
    sandbox.out(&[&["ns", "add", "wide", "--scheme", "snowflake", "--store", &new][..], &layout].concat());
    let mut node = sandbox.serve(&["--store", &old, "--datacenter", "3"]);
    let address = format!("http://{}", node.ready("http"));
    let done =
        sandbox.out(&["store", "recover", "--store", &new, "--nodes", &address, "--add", "0", "--yes"]);
    for (pool, workers) in [(".worker5.", 32), (".worker3.", 8)] {
        let reserved = |line: &str| {
            line.starts_with("leases  workers/")
                && line.contains(pool)
                && line.contains(&format!(".in3: 0 records, {workers} new"))
        };
        assert!(done.lines().any(reserved), "{pool}: {done}");
    }
    let last = done.lines().last().unwrap();
    assert!(last.contains("start no node with another layout or datacenter before then"), "{last}");
}

/// Goal: a pool that the backup lacks is reserved if a node holds a lease in it, also if the backup lacks the
/// namespace of its layout. Method: a namespace with its own layout, which only the old store has.
#[test]
fn pools_of_namespaces_that_the_backup_lacks_are_reserved() {
    let sandbox = Sandbox::new();
    let [old, new] = ["old.db", "new.db"].map(|name| format!("sqlite:{}", sandbox.path(name).display()));
    for store in [&old, &new] {
        sandbox.out(&["store", "init", "--store", store]);
    }
    let layout = ["--layout", "time:41 worker:3 sequence:19 epoch:2020-01-01"];
    sandbox.out(&[&["ns", "add", "wide", "--scheme", "snowflake", "--store", &old][..], &layout].concat());
    let mut node = sandbox.serve(&["--store", &old]);
    while node.http("/v1/ids/wide").0 != 200 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let address = format!("http://{}", node.ready("http"));
    let plan = sandbox.out(&["store", "recover", "--store", &new, "--nodes", &address, "--add", "0"]);
    let reserved = |line: &str| line.contains(".worker3.") && line.contains(": 0 records, 8 new, until");
    assert!(plan.lines().any(reserved), "{plan}");
}

/// Goal: the window is that of the nodes. Method: windows that no node of the store accepts, because of what
/// the store may lose or of a layout with long ticks; the variable that `serve` reads.
#[test]
fn a_window_that_no_node_can_have_is_refused() {
    let sandbox = Sandbox::new();
    let lossy = "redis://127.0.0.1:1?may_lose=5s";
    let told = sandbox.refused(&["store", "recover", "--store", lossy, "--add", "0"], 2);
    assert!(told.contains("--window: invalid window 10s") && told.contains("at least 15s"), "{told}");
    sandbox.out(&["store", "init"]);
    let layout = ["--layout", "time:31@10s worker:3 sequence:29 epoch:2020-01-01"];
    sandbox.out(&[&["ns", "add", "slow", "--scheme", "snowflake"][..], &layout].concat());
    let recover = ["store", "recover", "--add", "0"];
    let told = sandbox.refused(&recover, 2);
    assert!(told.contains("--window: invalid window 10s") && told.contains("three ticks of 10s"), "{told}");
    let sandbox = sandbox.with_env("SNOWMINT_WINDOW", "29s");
    let told = sandbox.refused(&recover, 2);
    assert!(told.contains("--window: invalid window 29s"), "{told}");
    let sandbox = sandbox.with_env("SNOWMINT_WINDOW", "30s");
    assert!(sandbox.out(&recover).contains("nothing was changed"));
}

/// Goal: a store that may lose its newest writes counts as recovered only once they have settled. Method: the
/// counter goes back while they settle, as in a failover: once it was raised, and once it was high enough
/// because of a recovery a moment ago; then nothing goes back.
#[test]
fn a_recovery_that_the_store_loses_is_no_recovery() {
    let server = Redis::start();
    let url = |may_lose| format!("redis://{}?may_lose={may_lose}", server.address());
    let sandbox = Sandbox::new().with_env("SNOWMINT_STORE", &url("5s"));
    sandbox.out(&["ns", "add", "tickets", "--scheme", "segment"]);
    // This counter was never used: it has no record, and needs none.
    sandbox.out(&["ns", "add", "fresh", "--scheme", "segment"]);
    let field = |counter: &str| format!("{{snowmint}}:record:segments/{counter}");
    let counter = |name: &str| server.command(&["HGET", &field(name), "v"]);
    let set = |number: &str| server.command(&["HSET", &field("tickets"), "v", number]);
    let at_least = ["store", "recover", "--numbers-at-least", "tickets=5000", "--window", "15s", "--yes"];
    // Counters are raised in the order of their names: once the last one is written, so is `tickets`.
    for (last, last_at_least, before) in [("u1", "u1=7", None), ("u2", "u2=7", Some("5000"))] {
        before.map(set);
        let args = [&at_least[..], &["--numbers-at-least", last_at_least]].concat();
        let recovering =
            sandbox.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while counter(last) != "7" {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(counter("tickets"), "5000");
        set("100");
        let ran = recovering.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{told}");
        assert!(told.contains("lost segments/tickets after acknowledging it (may_lose=5s)"), "{told}");
    }
    let done = sandbox.out(&[&at_least[..], &["--store", &url("100ms")]].concat());
    assert!(done.contains("may be used") && counter("tickets") == "5000", "{done}");
}

/// Goal: the steps of "Move to another store" in docs/upgrade.md repeat no number of a namespace whose
/// numbers restart. Method: a node draws from the old store, a node draws from the new one, on the same day.
#[test]
fn numbers_that_restart_move_to_another_store() {
    let sandbox = Sandbox::new();
    let [old, new] = ["old.db", "new.db"].map(|name| format!("sqlite:{}", sandbox.path(name).display()));
    let drawn = |store: &str| -> Vec<String> {
        let mut node = sandbox.serve(&["--store", store]);
        // A new namespace is served after a moment.
        let body = (0..1000).find_map(|_| {
            let (status, body) = node.http("/v1/ids/orders?count=3");
            std::thread::sleep(std::time::Duration::from_millis(if status == 200 { 0 } else { 10 }));
            (status == 200).then_some(body)
        });
        let body = body.unwrap_or_else(|| panic!("{}", node.log()));
        node.signal("TERM");
        assert!(node.wait().success());
        let ids = json(&body)["ids"].as_array().unwrap().clone();
        ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    };
    for store in [&old, &new] {
        sandbox.out(&["store", "init", "--store", store]);
        let definition = ["--scheme", "segment", "--reset", "daily", "--text", "ORD-{date}-{number:6}"];
        sandbox.out(&[&["ns", "add", "orders", "--store", store][..], &definition].concat());
    }
    let mut ids = drawn(&old);
    let shown = sandbox.out(&["ns", "list", "--store", &old]);
    assert!(shown.contains("reserved to ") && shown.contains(" in this period"), "{shown}");
    let row = json(&sandbox.out(&["ns", "show", "orders", "--json", "--store", &old]));
    let at_least = format!("orders={}", row["reserved_to"].as_u64().unwrap());
    let recover = ["store", "recover", "--store", &new, "--numbers-at-least", &at_least, "--yes"];
    sandbox.out(&recover);
    ids.extend(drawn(&new));
    let distinct: HashSet<&String> = ids.iter().collect();
    assert_eq!(distinct.len(), 6, "{ids:?}");
}
