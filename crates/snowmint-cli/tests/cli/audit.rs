//! `snowmint audit`: the entries of each command, and that nothing changes without an entry.

use serde_json::Value;

use crate::support::{Sandbox, json};
use crate::workers::sql;

/// Returns the log as rows of action, subject and outcome, oldest first.
fn log(sandbox: &Sandbox, args: &[&str]) -> Vec<(String, String, &'static str)> {
    let out = sandbox.out(&[&["audit", "--json"], args].concat());
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    let rows = out.lines().rev().map(json).map(|row| {
        assert!(row["at"].as_str().unwrap().ends_with('Z') && row["who"] == "alice", "{row}");
        assert!(!row["from"].as_str().unwrap().is_empty(), "{row}");
        let outcome = match row["outcome"].as_str() {
            Some("made") => "made",
            Some("refused") => "refused",
            other => panic!("{other:?}: {row}"),
        };
        assert_eq!(row["failed"].is_null(), outcome == "made", "{row}");
        (text(&row, "action"), text(&row, "subject"), outcome)
    });
    rows.collect()
}

fn rows(rows: &[(&str, &str, &'static str)]) -> Vec<(String, String, &'static str)> {
    rows.iter().map(|&(action, subject, outcome)| (action.to_owned(), subject.to_owned(), outcome)).collect()
}

/// Goal: each command that changes the store leaves an entry, and a failed change is marked. Method: the life
/// of a namespace.
#[test]
fn each_change_is_recorded_with_its_author() {
    let sandbox = Sandbox::with_store().with_env("USER", "alice").with_env("SUDO_USER", "");
    assert_eq!(sandbox.out(&["audit"]), "no changes are recorded in this store\n");
    sandbox.out(&["ns", "add", "orders", "--scheme", "segment"]);
    sandbox.out(&["ns", "add", "users", "--scheme", "uuid7"]);
    // A request that is rejected before anything is written is not recorded.
    sandbox.refused(&["ns", "add", "orders", "--scheme", "segment"], 2);
    sandbox.refused(&["ns", "set", "orders", "--rule", "reject"], 2);
    sandbox.out(&["ns", "set", "orders", "--maximum", "500"]);
    sandbox.refused(&["ns", "set", "orders", "--text", "{hex}"], 2);
    sandbox.out(&["ns", "drop", "orders"]);
    sandbox.out(&["ns", "add", "orders"]);
    sandbox.out(&["ns", "drop", "orders"]);
    sandbox.run(&["ns", "add", "orders", "--scheme", "segment", "--start-over"]);
    sandbox.out(&["store", "recover", "--add", "7"]);
    sandbox.out(&["store", "recover", "--add", "7", "--yes"]);
    let of_orders = [
        ("namespace-add", "orders", "made"),
        ("namespace-set", "orders", "made"),
        ("namespace-set", "orders", "refused"),
        ("namespace-drop", "orders", "made"),
        ("namespace-resume", "orders", "made"),
        ("namespace-drop", "orders", "made"),
        ("namespace-start-over", "orders", "made"),
    ];
    assert_eq!(log(&sandbox, &["--namespace", "orders"]), rows(&of_orders));
    let all = log(&sandbox, &[]);
    assert_eq!((all.len(), &all[1].1, &*all[8].0), (9, &"users".to_owned(), "store-recover"), "{all:?}");
    assert_eq!(log(&sandbox, &["--namespace", "orders", "--limit", "1"]), rows(&of_orders[6..]));

    let shown = sandbox.out(&["audit"]);
    let first = shown.lines().last().unwrap();
    for words in ["Z  alice on ", "  namespace-add ", "  orders ", "  segment cached, all numbers"] {
        assert!(first.contains(words), "{first}");
    }
    assert!(shown.contains("REFUSED: namespace orders cannot change its text form to `{hex}`"), "{shown}");
    assert!(shown.contains("store-recover") && shown.contains("window 10s, add 7"), "{shown}");
}

#[test]
fn the_author_can_be_named() {
    let sandbox = Sandbox::with_store().with_env("USER", "deploy");
    sandbox.out(&["ns", "add", "orders", "--scheme", "segment", "--as", "alice, ticket 4711"]);
    let row = json(&sandbox.out(&["audit", "--json"]));
    assert_eq!(row["who"], "alice, ticket 4711");
    assert_eq!(row["details"], "segment cached, all numbers");
}

/// Goal: without an entry there is no change. Method: damage the log, then add and drop a namespace.
#[test]
fn nothing_changes_without_its_entry() {
    let sandbox = Sandbox::with_store();
    sandbox.out(&["ns", "add", "orders", "--scheme", "segment"]);
    let damaged =
        "INSERT INTO snowmint_records (key, value, revision) VALUES ('audit/page', CAST('x' AS BLOB), 1)";
    sql(&sandbox, damaged);
    for change in [&["ns", "add", "users", "--scheme", "uuid7"][..], &["ns", "drop", "orders"]] {
        let error = sandbox.refused(change, 1);
        assert!(
            error.contains("cannot write the audit log: unreadable record audit/page in sqlite:"),
            "{error}"
        );
        assert!(error.contains("nothing was changed"), "{error}");
    }
    let listed = sandbox.out(&["ns", "list", "--json"]);
    assert!(listed.contains("\"served\"") && listed.lines().count() == 1, "{listed}");
}
