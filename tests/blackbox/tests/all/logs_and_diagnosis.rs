//! The operator's view: the log on a full disk, the JSON log, errors at the start, and `doctor` and `workers`
//! on a read-only database.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use snowmint_test_servers::snowmint::server::assert_says;
use snowmint_test_servers::snowmint::{self, Disk, Serve, Server, clock_and_disk, third_party};
use snowmint_test_servers::time;

const PATIENCE: Duration = Duration::from_mins(1);

/// Checks that every line is an object with unique keys, and that a field has the same type in all of them.
fn assert_json(log: &str) {
    let mut types: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    for line in log.lines() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        // The parser keeps one of two values of a key, so duplicate keys make the text shorter.
        assert_eq!(value.to_string().len(), line.len(), "a key comes twice: {line}");
        let fields = value.as_object().unwrap();
        let in_span = fields.get("span").and_then(Value::as_object).into_iter().flatten();
        for (name, field) in fields.iter().filter(|(name, _)| *name != "span").chain(in_span) {
            let kind = match field {
                Value::String(_) => "text",
                Value::Number(_) => "number",
                Value::Bool(_) => "boolean",
                _ => "other",
            };
            let (first, where_first) = *types.entry(name.clone()).or_insert((kind, line));
            assert_eq!(first, kind, "{name} has two types:\n{where_first}\n{line}");
        }
    }
}

fn draw_numbers(server: &Server) {
    // An error because no numbers are left counts as an answer.
    server.get("/v1/ids/tickets?count=100");
}

/// Goal: a full disk gives one log line when it begins, one when ids end, and one when there is space again;
/// the JSON is valid; `doctor` finds the cause. Method: a small disk is filled under a node, and emptied.
#[test]
fn a_full_disk_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let small = Disk::small(&data, 1024);
    let namespaces = folder.path().join("namespaces.toml");
    fs::write(&namespaces, "[namespaces.tickets]\nscheme = \"segment\"\nsize_max = 10\n").unwrap();
    let serve = Serve::new(folder.path()).on(&small).args(["--log-format", "json", "--window", "3s"]);
    let server = serve.args([Path::new("--namespaces-file"), &namespaces]).start();
    draw_numbers(&server);
    let ballast = clock_and_disk::fill(&small.seen_by(server.pid()));
    let errors = || server.metric("snowmint_store_errors_total");
    server.log_with("the lease has ended", PATIENCE);
    let at_end = errors();
    time::eventually("calls that fail", PATIENCE, || {
        draw_numbers(&server);
        (errors() >= at_end + 5.0).then_some(())
    });
    let log = server.log();
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!((lines("store call failed"), lines("answers again")), (1, 0), "{log}");
    assert_eq!((lines("the lease has ended"), lines("no numbers can be reserved")), (1, 1), "{log}");

    let pid = server.pid().to_string();
    let (binary, data) = (snowmint::binary().display().to_string(), data.display().to_string());
    let doctor = third_party::run("nsenter", ["-t", &pid, "-m", "--", &binary, "doctor", "--data", &data]);
    let said = snowmint::text(&doctor);
    assert_eq!(doctor.status.code(), Some(1), "{said}");
    assert_says(&said, &["PROBLEM write", "no space left", "ok      store"]);

    fs::remove_file(ballast).unwrap();
    server.log_with("the store answers again", PATIENCE);
    server.log_with("lease renewed after it had ended; ids are made again", PATIENCE);
    server.hang_up();
    server.log_with("reloaded", PATIENCE);
    let log = server.stop().log;
    assert_eq!(log.matches("the store answers again").count(), 1, "{log}");
    assert_json(&log);
}

/// Goal: the operator of a read-only database can still inspect it. Method: a read-only disk, with and
/// without a node that has the file open.
#[test]
fn a_read_only_database_can_be_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).args(["--worker", "7"]).start();
    let data = folder.path().join("data");
    let look = |command: &str| {
        let words = command.split(' ').chain(["--data", data.to_str().unwrap()]);
        let looked = Disk::read_only(&data).run(words);
        (looked.status.code(), snowmint::text(&looked))
    };
    let looks = |state: &str, workers: &str| {
        let (code, said) = look("workers");
        assert_eq!(code, Some(0), "{said}");
        assert!(said.lines().any(|line| line.contains("     7  ") && line.contains(state)), "{said}");
        let (code, said) = look("ns list");
        assert_eq!((code, said.starts_with("default ")), (Some(0), true), "{said}");
        let (code, said) = look("doctor");
        assert_eq!(code, Some(1), "{said}");
        assert_says(
            &said,
            &["PROBLEM write", "read-only, nothing was written", workers, "default is pinned to"],
        );
    };
    looks("held", "31 of 32 workers");
    server.stop();
    looks("free", "32 of 32 workers");
    // SQLite deletes the index of the log first, so a process that ends at that moment leaves the log alone.
    let mut server = Serve::new(folder.path()).args(["--worker", "7"]).start();
    server.kill();
    fs::remove_file(data.join("snowmint.db-shm")).unwrap();
    looks("held", "31 of 32 workers");
}

/// Goal: a JSON log is JSON up to its last line, even if the process does not start. Method: unknown and
/// invalid flags, and a port in use.
#[test]
fn a_start_that_fails_says_so_in_the_format_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (args, code, words) in [
        (&["--no-such-flag"][..], 2, "unexpected argument '--no-such-flag'"),
        (&["--worker", "99"], 2, "99"),
        (&["--window", "soon"], 2, "soon"),
        (&["--http", &taken, "--resp", "off"], 1, "uses this port"),
    ] {
        for format in [&["--log-format", "json"][..], &["--log-format=json"]] {
            let ended = snowmint::run(folder.path(), ["serve"].iter().chain(args).chain(format));
            let said = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(code), "{said}");
            assert_json(&said);
            let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
            assert_eq!(last["level"], "ERROR", "{said}");
            assert!(last["message"].as_str().is_some_and(|message| message.contains(words)), "{said}");
        }
        let ended = snowmint::run(folder.path(), ["serve"].iter().chain(args));
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.lines().last().unwrap().starts_with("error: "), "{said}");
    }
}
