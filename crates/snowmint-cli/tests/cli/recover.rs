//! `snowmint store recover` and what it has to be told. Restores of every store, with nodes that run, are in
//! `tests/blackbox/tests/restores`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::run::{Bench, Server, json};

/// Draws ids and numbers: whether one of them came before.
fn draw(server: &mut Server, seen: &mut HashSet<String>) -> usize {
    let mut twice = 0;
    for path in ["/v1/ids/default?count=200", "/v1/ids/tickets?count=900"] {
        // A fresh namespace is served within moments.
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

fn tool(program: &str, args: &[&str]) {
    let ran = Command::new(program).args(args).output();
    let ran = ran.unwrap_or_else(|error| panic!("{program} is missing: {error}; apt-get install sqlite3"));
    assert!(ran.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// Serves from a store, draws, backs the store up, draws more, restores, recovers as told, and draws again: how many ids
/// and numbers came twice. A node that crashed tells nothing.
fn restored(
    bench: &Bench,
    old: &str,
    new: &str,
    backup: impl Fn(),
    restore: impl Fn(),
    recover: impl Fn(&Bench, &str),
) -> usize {
    let sizes = ["--size-min", "100", "--size-max", "100"];
    bench.out(&["store", "init", "--store", old]);
    let add = [&["ns", "add", "tickets", "--scheme", "segment", "--store", old][..], &sizes].concat();
    bench.out(&add);
    let window = ["--window", "2s", "--namespaces-poll", "100ms"];
    let mut seen = HashSet::new();
    let mut node = bench.serve(&[&["--store", old][..], &window].concat());
    assert_eq!(draw(&mut node, &mut seen), 0);
    backup();
    for _ in 0..5 {
        assert_eq!(draw(&mut node, &mut seen), 0);
    }
    restore();
    let address = node.ready("http");
    recover(bench, &address);
    drop(node);
    let mut node = bench.serve(&[&["--store", new][..], &window].concat());
    (0..5).map(|_| draw(&mut node, &mut seen)).sum()
}

fn sqlite(recover: impl Fn(&Bench, &str)) -> usize {
    let bench = Bench::new();
    let [old, new, backup] = ["old.db", "new.db", "backup.db"].map(|name| bench.path(name));
    let url = |path: &Path| format!("sqlite:{}", path.display());
    restored(
        &bench,
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
    let new = |bench: &Bench| format!("sqlite:{}", bench.path("new.db").display());
    let by_the_node = sqlite(|bench, address| {
        let (store, node) = (new(bench), format!("http://{address}"));
        let args = ["store", "recover", "--store", &store, "--nodes", &node, "--window", "2s"];
        let plan = bench.out(&args);
        assert!(plan.contains("counter segments/tickets") && plan.contains("nothing was changed"), "{plan}");
        let done = bench.out(&[&args[..], &["--yes"]].concat());
        assert!(done.contains("may be used; no worker is free before"), "{done}");
    });
    assert_eq!(by_the_node, 0);
    let by_the_operator = sqlite(|bench, _| {
        let store = new(bench);
        bench.out(&["store", "recover", "--store", &store, "--numbers-at-least", "tickets=10000", "--yes"]);
    });
    assert_eq!(by_the_operator, 0);
}

#[test]
fn what_is_not_known_has_to_be_said() {
    let bench = Bench::with_store();
    bench.out(&["ns", "add", "tickets", "--scheme", "segment"]);
    let told = bench.refused(&["store", "recover"], 2);
    assert!(told.contains("--add 0 keeps them"), "{told}");
    let told = bench.refused(&["store", "recover", "--numbers-at-least", "orders=7"], 2);
    assert!(told.contains("no segment namespace orders"), "{told}");
    let told = bench.refused(&["store", "recover", "--nodes", "http://127.0.0.1:1"], 1);
    assert!(told.contains("no metrics from node"), "{told}");
    let plan = bench.out(&["store", "recover", "--numbers-at-least", "tickets=700", "--add", "5"]);
    assert!(plan.contains("700") && plan.contains("nothing was changed"), "{plan}");
}
