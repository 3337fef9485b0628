//! `snowmint workers` and `snowmint doctor`.

use std::process::Command;

use crate::store_recover::tool;
use crate::support::{Ran, Sandbox, json};

#[test]
fn a_store_without_leases_and_one_that_is_not_there() {
    let sandbox = Sandbox::new();
    for command in ["workers", "doctor"] {
        let told = sandbox.refused(&[command], 1);
        assert!(told.contains("not found") && told.contains("--data"), "{told}");
    }
    assert!(!sandbox.path("snowmint").exists(), "looking makes nothing");
}

#[test]
fn a_lease_that_was_given_back_is_shown_and_need_not_be_released() {
    let sandbox = Sandbox::new();
    sandbox.out(&["new", "--worker", "7"]);
    let row = json(&sandbox.out(&["workers", "--json"]));
    assert_eq!((row["worker"].as_u64(), row["state"].as_str()), (Some(7), Some("free")));
    assert!(row["holder"].as_str().is_some_and(|holder| holder.ends_with(":cli")), "{row}");
    assert!(sandbox.out(&["workers", "release", "7"]).starts_with("worker 7 is free"));
    let told = sandbox.refused(&["workers", "release", "8"], 2);
    assert!(told.contains("unknown worker 8"), "{told}");
}

#[test]
fn the_doctor_looks_at_everything_and_finds_a_healthy_store_healthy() {
    let sandbox = Sandbox::new();
    sandbox.out(&["new"]);
    let out = sandbox.out(&["doctor"]);
    for check in ["store", "write", "clock", "leases", "workers"] {
        assert!(out.lines().any(|line| line.starts_with("ok ") && line.contains(check)), "{check}: {out}");
    }
    assert!(out.contains("32 of 32 workers") || out.contains("31 of 32 workers"), "{out}");
}

/// Goal: records of another program in a store do not stop any command, and each command and the node report
/// them. Method: rows that no node writes.
#[test]
fn what_lists_skip_is_told_by_name() {
    let sandbox = Sandbox::new();
    sandbox.out(&["new"]);
    let file = sandbox.path("snowmint/snowmint.db").display().to_string();
    let strange = "('workers/what?', 1, x''), ('namespaces/what?', 1, x''), ('workers/pool/first', 1, x'')";
    tool("sqlite3", &[&file, &format!("INSERT INTO snowmint_records VALUES {strange}")]);
    let listed = [&["workers"][..], &["ns", "list"]].map(|command| sandbox.run(command));
    for (ran, key) in listed.iter().zip(["workers/what?", "namespaces/what?"]) {
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains(&format!("warning: skipped `{key}`")), "{}", ran.err);
    }
    assert!(listed[0].err.contains("`workers/pool/first`: its key names no worker"), "{}", listed[0].err);
    let doctor = sandbox.run(&["doctor"]);
    assert_eq!(doctor.code, 1, "{}", doctor.out);
    for key in ["workers/what?", "namespaces/what?", "workers/pool/first"] {
        assert!(doctor.out.contains(&format!("`{key}`")), "{key}: {}", doctor.out);
    }
    let mut node = sandbox.serve(&[]);
    assert_eq!(node.http("/v1/ids/default").0, 200);
    assert!(node.log().contains("the lists of the store skip `namespaces/what?`"), "{}", node.log());
}

/// Goal: a worker is taken from a running node only by force, and never before its granted timestamps have
/// ended.
#[test]
fn a_held_worker_is_released_only_by_force_and_what_was_granted_is_not_shortened() {
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&["--worker", "5", "--window", "1h"]);
    let until = server.ready("until");
    let told = sandbox.refused(&["workers", "release", "5"], 1);
    assert!(told.contains("is held by") && told.contains("--force"), "{told}");
    let told = sandbox.refused(&["workers", "release", "5", "--force", "--holder", "another"], 1);
    assert!(told.contains("not by another"), "{told}");
    let holder = json(&sandbox.out(&["workers", "--json"]))["holder"].as_str().unwrap().to_owned();
    let out = sandbox.out(&["workers", "release", "5", "--force", "--holder", &holder]);
    assert!(out.contains(&format!("it is free from {until}, because")), "{out}");
    assert_eq!(server.http("/v1/ids/default").0, 200, "what was granted stays usable");
    let row = json(&sandbox.out(&["workers", "--json"]));
    assert_eq!((row["state"].as_str(), row["until"].as_str()), (Some("held"), Some(until.as_str())));
    let doctor = sandbox.run(&["doctor"]);
    assert!(
        doctor.code == 1 && doctor.out.contains("PROBLEM leases"),
        "an hour ahead is worth a look: {}",
        doctor.out
    );
}

/// Changes the data file like a restore does.
pub(crate) fn sql(sandbox: &Sandbox, sql: &str) {
    let data = sandbox.path("snowmint/snowmint.db");
    let ran = Command::new("sqlite3").arg(data).args([".timeout 5000", sql]).output();
    let ran = ran.unwrap_or_else(|error| panic!("sqlite3 is missing: {error}; apt-get install sqlite3"));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Goal: a doctor that may only read says what it does not know, and not that nodes cannot write. Method: a
/// store that permissions make read-only for this process.
#[test]
fn a_doctor_that_may_not_write_says_nothing_about_the_nodes() {
    use std::os::unix::fs::PermissionsExt as _;

    let sandbox = Sandbox::with_store();
    let (data, file) = (sandbox.path("snowmint"), sandbox.path("snowmint/snowmint.db"));
    let allow = |path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(&file, 0o444);
    allow(&data, 0o555);
    let ran = Ran::from(sandbox.command_under_permissions(&["doctor"]).output().unwrap());
    allow(&data, 0o700);
    assert_eq!(ran.code, 1, "{ran:?}");
    let line = ran.out.lines().find(|line| line.starts_with("PROBLEM write ")).unwrap();
    assert!(
        line.contains("this process cannot write, which says nothing about nodes of another user"),
        "{line}"
    );
    assert!(line.contains("run doctor as the user of the nodes"), "{line}");
}

/// Goal: with a dead store, an operator still sees what each node says. Method: a node on a store of its own,
/// and a doctor for a store that does not open, of either kind.
#[test]
fn a_dead_store_does_not_hide_what_the_nodes_say() {
    let sandbox = Sandbox::with_store();
    let mut server = sandbox.serve(&[]);
    let node = format!("http://{}", server.ready("http"));
    std::fs::write(sandbox.path("damaged.db"), "no database, but long enough to be read as one".repeat(100))
        .unwrap();
    for store in ["redis://127.0.0.1:1", "sqlite:damaged.db", "sqlite:nowhere.db"] {
        let alone = sandbox.refused(&["doctor", "--store", store], 1);
        let ran = sandbox.run(&["doctor", "--store", store, "--nodes", &node]);
        assert_eq!((ran.code, &*ran.err), (1, "error: 1 of 2 checks found a problem\n"), "{}", ran.out);
        let lines: Vec<&str> = ran.out.lines().collect();
        let why = alone.trim_start_matches("error: ").trim_end();
        assert_eq!(lines[0], format!("PROBLEM store      {why}"));
        assert!(lines[1].starts_with("ok      node") && lines[1].contains("it makes ids"), "{}", ran.out);
        let invalid = sandbox.refused(&["doctor", "--store", store, "--nodes", "x"], 2);
        assert!(invalid.contains("--nodes: invalid node"), "{invalid}");
    }
}

/// Goal: data that a store lost is reported by every command that can know it. Method: a node draws numbers
/// and ids; then its counter and its lease go back, and the record of the namespace is removed.
#[test]
fn the_doctor_finds_what_the_store_lost() {
    let sandbox = Sandbox::with_store();
    sandbox.out(&["ns", "add", "tickets", "--scheme", "segment"]);
    let mut server = sandbox.serve(&["--worker", "5", "--window", "3s"]);
    let node = format!("http://{}", server.ready("http"));
    let highest = |server: &mut crate::support::Server| {
        let (_, metrics) = server.http("/metrics");
        let line =
            metrics.lines().find(|line| line.starts_with("snowmint_numbers_highest{namespace=\"tickets\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    server.http("/v1/ids/tickets");
    let received = (0..2000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        highest(&mut server).filter(|highest| *highest > 0)
    });
    assert!(received.is_some(), "no numbers: {}", server.log());
    let out = sandbox.out(&["doctor", "--nodes", &node]);
    assert!(
        out.contains("ok      node") && out.contains("the first lease to end is that of worker 5"),
        "{out}"
    );

    let looks = |nodes: &str, found: &[&str]| {
        let ran = sandbox.run(&["doctor", "--nodes", nodes]);
        assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
        for words in found {
            let is_found = ran.out.lines().any(|line| line.starts_with("PROBLEM") && line.contains(words));
            assert!(is_found, "{words}: {}", ran.out);
        }
    };
    sql(&sandbox, "UPDATE snowmint_records SET value = CAST('5' AS BLOB) WHERE key = 'segments/tickets'");
    looks(&node, &["segments/tickets has given 5 numbers and nodes received"]);
    sql(&sandbox, "DELETE FROM snowmint_records WHERE key LIKE 'workers/%' OR key = 'namespaces/tickets'");
    server.wait_for("the store lost writes that it had acknowledged");
    looks(
        &format!("{node},http://127.0.0.1:1"),
        &[
            "tickets gave numbers but has no record",
            "lease records that the store lost: 1",
            "no metrics from node http://127.0.0.1:1",
        ],
    );
}
