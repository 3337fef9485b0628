//! `snowmint ns`: its output, its errors, and the effect on a running node.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use snowmint_cluster::namespace::{Fields, SettingKind};

use crate::support::{Ran, Sandbox, json};

fn listed(sandbox: &Sandbox) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let rows = sandbox.out(&["ns", "list", "--json"]);
    rows.lines().map(json).map(|row| (text(&row["name"]), text(&row["state"]))).collect()
}

#[test]
fn a_namespace_from_its_beginning_to_its_end() {
    let sandbox = Sandbox::with_store();
    let made = sandbox.out(&["ns", "add", "orders", "--scheme", "segment", "--text", "ORD-{number:6}"]);
    let store = sandbox.path("snowmint/snowmint.db");
    let recorded = format!(
        "recorded in sqlite:{}; running nodes serve it within their --namespaces-poll (5s by default)\n",
        store.display()
    );
    assert_eq!(made, format!("orders is segment cached, all numbers, as ORD-{{number:6}}\n{recorded}"));
    let changed = sandbox.out(&["ns", "set", "orders", "--maximum", "999999", "--plain"]);
    assert_eq!(changed, "orders is segment cached, all numbers, to 999999\n");
    assert_eq!(listed(&sandbox), [("orders".to_owned(), "served".to_owned())]);
    assert!(sandbox.out(&["ns", "list"]).contains("segment cached, all numbers, to 999999  reserved to 0"));
    assert!(sandbox.out(&["ns", "drop", "orders"]).contains("`snowmint ns add orders` resumes it"));
    assert_eq!(listed(&sandbox), [("orders".to_owned(), "dropped".to_owned())]);
    // Added as before, without repeating the settings.
    let again = sandbox.out(&["ns", "add", "orders"]);
    assert!(
        again.starts_with("orders is segment cached, all numbers, to 999999\n")
            && again.contains("\nresumed: the next number is above 0"),
        "{again}"
    );
}

/// Goal: the description and owner of a namespace are kept, listed and changed, and do not affect ids.
/// Method: the flags, the list, and a file that a node serves.
#[test]
fn a_namespace_has_a_description_and_an_owner() {
    let sandbox = Sandbox::with_store();
    sandbox.out(&["ns", "add", "keys", "--scheme", "uuid7"]);
    assert_eq!(sandbox.out(&["ns", "list"]), "keys                  served      uuid7\n");
    sandbox.out(&[
        "ns",
        "add",
        "orders",
        "--scheme",
        "segment",
        "--owner",
        "team-web",
        "--description",
        "of the shop",
    ]);
    let row = |sandbox: &Sandbox| json(sandbox.out(&["ns", "list", "--json"]).lines().last().unwrap());
    assert_eq!(
        (row(&sandbox)["owner"].as_str(), row(&sandbox)["description"].as_str()),
        (Some("team-web"), Some("of the shop"))
    );
    let listed = sandbox.out(&["ns", "list"]);
    assert!(
        listed.contains("  served      -         uuid7")
            && listed.contains("  served      team-web  segment"),
        "{listed}"
    );
    assert_eq!(
        sandbox.out(&["ns", "set", "orders", "--owner", ""]),
        "orders is segment cached, all numbers\n"
    );
    assert_eq!(
        (row(&sandbox)["owner"].as_str(), row(&sandbox)["description"].as_str()),
        (None, Some("of the shop"))
    );
    let long = "x".repeat(129);
    let told = sandbox.refused(&["ns", "set", "orders", "--owner", &long], 2);
    assert!(told.contains("invalid owner") && told.contains("at most 128 characters"), "{told}");
    std::fs::write(sandbox.path("ns.toml"), "[namespaces.users]\nscheme = 'uuid7'\nowner = 'team-id'\n")
        .unwrap();
    let mut server = sandbox.serve(&["--namespaces-file", "ns.toml"]);
    assert_eq!(server.http("/v1/ids/users").0, 200);
    assert_eq!(row(&sandbox)["owner"].as_str(), Some("team-id"));
}

/// Goal: no text occurs twice, with any flag that changes how ids are written.
#[test]
fn a_text_that_was_given_does_not_come_again() {
    let sandbox = Sandbox::with_store();
    sandbox.out(&["ns", "add", "n", "--scheme", "segment"]);
    let told = sandbox.refused(&["ns", "set", "n", "--text", "{hex}"], 2);
    for words in ["cannot change its text form to `{hex}`", "written as `{number}`", "use a new namespace"] {
        assert!(told.contains(words), "{told}");
    }
    sandbox.out(&["ns", "set", "n", "--text", "A{number}"]);
    sandbox.refused(&["ns", "set", "n", "--text", "{base62}"], 2);
    sandbox.out(&["ns", "set", "n", "--plain"]);
    sandbox.out(&["ns", "drop", "n"]);
    sandbox.refused(&["ns", "add", "n", "--scheme", "segment", "--text", "{hex}"], 2);
    std::fs::write(sandbox.path("ns.toml"), "[namespaces.m]\nscheme = \"segment\"\ntext = \"{hex}\"\n")
        .unwrap();
    sandbox.out(&["ns", "add", "m", "--scheme", "segment"]);
    let serve = ["serve", "--http", "127.0.0.1:0", "--resp", "off", "--namespaces-file", "ns.toml"];
    assert!(sandbox.refused(&serve, 2).contains("namespace m cannot change its text form"));
}

/// Goal: a shuffled alphabet works from the flag, the file and the store to the id and back. Method: a node
/// that serves one namespace of each.
#[test]
fn ids_of_a_shuffled_alphabet_are_made_and_read_back() {
    const DIGITS: &str = "alphabet=ohrfjdgPzp3T2XkNulQBFas9eJDmW7VKSC51cbUL8tRiOqIwZn406YEMyGxHAv";
    let sandbox = Sandbox::with_store();
    let text = format!("T-{{{DIGITS}:11}}");
    let made = sandbox.out(&["ns", "add", "tickets", "--scheme", "snowflake", "--text", &text]);
    assert!(made.contains(&format!(", as {text}\n")), "{made}");
    std::fs::write(
        sandbox.path("ns.toml"),
        format!("[namespaces.orders]\nscheme = \"segment\"\ntext = \"{{{DIGITS}:4}}\"\n"),
    )
    .unwrap();
    let mut server = sandbox.serve(&["--namespaces-file", "ns.toml"]);
    let mut first = |namespace: &str| {
        let (status, body) = server.http(&format!("/v1/ids/{namespace}"));
        assert_eq!(status, 200, "{body}");
        let id = json(&body)["ids"][0].as_str().unwrap().to_owned();
        let (status, body) = server.http(&format!("/v1/inspect/{id}?namespace={namespace}"));
        assert_eq!(status, 200, "{body}");
        (id, json(&body))
    };
    let (order, read) = first("orders");
    assert_eq!((&*order, &read["id"]), ("oooh", &"1".into()));
    let (ticket, read) = first("tickets");
    assert!(ticket.len() == 13 && ticket.starts_with("T-"), "{ticket}");
    let decimal = sandbox.out(&["inspect", "--json", "--format", DIGITS, &ticket[2..]]);
    assert_eq!(json(&decimal)["id"], read["id"]);
    let told = sandbox.refused(&["ns", "set", "tickets", "--text", "T-{alphabet=ohr}"], 2);
    assert!(told.contains("cannot change its text form"), "{told}");
}

#[test]
fn a_sequence_start_is_set_changed_and_listed() {
    let sandbox = Sandbox::with_store();
    let made = sandbox.out(&["ns", "add", "ids", "--scheme", "snowflake", "--sequence-start", "random(100)"]);
    assert!(made.contains(", sequence start random(100)\n"), "{made}");
    let changed = sandbox.out(&["ns", "set", "ids", "--sequence-start", "rolling"]);
    assert!(changed.ends_with(", sequence start rolling\n"), "{changed}");
    assert!(sandbox.out(&["ns", "list"]).contains(", sequence start rolling"));
    assert_eq!(json(&sandbox.out(&["ns", "list", "--json"]))["sequence_start"], "rolling");
}

/// Goal: a time zone is set, shown, changed and removed; one that the machine does not know is refused with
/// the remedy, and such a machine still lists namespaces. Method: the real database, and one that has another
/// zone only.
#[test]
fn a_time_zone_is_set_shown_and_changed() {
    let sandbox = Sandbox::with_store();
    let daily =
        ["ns", "add", "orders", "--scheme", "segment", "--reset", "daily", "--text", "ORD-{date}-{number:6}"];
    let zoned = |zone| [&daily[..], &["--time-zone", zone]].concat();
    let unknown = sandbox.refused(&zoned("Asia/Shangai"), 2);
    assert!(unknown.contains("unknown time zone Asia/Shangai") && unknown.contains("tzdata"), "{unknown}");
    let bad = sandbox.refused(&zoned("UTC+8"), 2);
    assert!(bad.contains("unknown time zone UTC+8"), "{bad}");
    let bad = sandbox.refused(&zoned("+08:00"), 2);
    assert!(bad.contains("invalid time zone `+08:00`: expected UTC or a name"), "{bad}");
    let made = sandbox.out(&zoned("asia/shanghai"));
    assert!(made.contains("as ORD-{date}-{number:6}, dates of Asia/Shanghai\n"), "{made}");
    assert!(sandbox.out(&["ns", "show", "orders"]).contains("Asia/Shanghai"));
    assert_eq!(json(&sandbox.out(&["ns", "show", "orders", "--json"]))["time_zone"], "Asia/Shanghai");
    let read = sandbox.out(&["inspect", "--json", "--namespace", "orders", "ORD-20261122-000042"]);
    assert_eq!(json(&read)["id"], "42", "{read}");
    let changed = sandbox.out(&["ns", "set", "orders", "--time-zone", "America/New_York"]);
    assert!(changed.contains("dates of America/New_York"), "{changed}");

    std::fs::write(sandbox.path("zone.zi"), "Zone Test/Office 1:00 - %z\n").unwrap();
    let made = Command::new("zic").arg("-d").arg(sandbox.path("zones")).arg(sandbox.path("zone.zi")).status();
    assert!(made.unwrap().success());
    let run = |args: &[&str]| {
        let ran = sandbox.command(args).env("TZDIR", sandbox.path("zones")).output().unwrap();
        (ran.status.code(), String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned())
    };
    let (code, told) = run(&["ns", "set", "orders", "--time-zone", "Asia/Tokyo"]);
    assert!(code == Some(2) && told.contains("unknown time zone Asia/Tokyo"), "{told}");
    let (code, told) = run(&["ns", "set", "orders", "--time-zone", "Test/Office"]);
    assert!(code == Some(0) && told.contains("dates of Test/Office"), "{told}");
    let listed = sandbox.out(&["ns", "list"]);
    assert!(listed.contains("dates of Test/Office") && !listed.contains("unknown"), "{listed}");
    let read = sandbox.out(&["inspect", "--json", "--namespace", "orders", "ORD-20261122-000042"]);
    assert_eq!(json(&read)["id"], "42", "{read}");
    let (code, told) = run(&["ns", "set", "orders", "--time-zone", "UTC"]);
    assert!(code == Some(0) && !told.contains("dates of"), "{told}");
    assert!(json(&sandbox.out(&["ns", "show", "orders", "--json"])).get("time_zone").is_none());
    let plain = sandbox.refused(&["ns", "add", "x", "--scheme", "segment", "--time-zone", "Asia/Tokyo"], 2);
    assert!(plain.contains("the text form shows no date"), "{plain}");
}

#[test]
fn a_layout_implies_its_scheme() {
    let sandbox = Sandbox::with_store();
    let made = sandbox.out(&["ns", "add", "ids", "--layout", "leaf"]);
    assert!(made.starts_with("ids is snowflake time:41@1ms worker:10 sequence:12 "), "{made}");
    sandbox.out(&["ns", "drop", "ids"]);
    let resumed = sandbox.out(&["ns", "add", "ids", "--layout", "leaf"]);
    assert!(resumed.starts_with("ids is snowflake time:41@1ms worker:10 "), "{resumed}");
    let other = sandbox.refused(&["ns", "add", "more", "--layout", "leaf", "--scheme", "segment"], 2);
    assert!(other.contains("invalid setting `layout` for scheme segment"), "{other}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn what_cannot_be_is_refused_with_what_could() {
    let sandbox = Sandbox::with_store();
    sandbox.out(&["ns", "add", "n", "--scheme", "segment"]);
    let long = "x".repeat(65);
    for (args, wanted) in [
        (
            &["ns", "add", "x"][..],
            "--scheme: missing for the new namespace x: expected snowflake, segment, uuid7",
        ),
        (
            &["ns", "add", "x", "--scheme", "segment", "--start", "1e6"],
            "--start: invalid value \"1e6\": expected a whole number from 0 to 9,223,372,036,854,775,807, such as",
        ),
        (
            &["ns", "add", "x", "--scheme", "segment", "--start", "-5"],
            "--start: invalid value \"-5\": expected",
        ),
        (
            &["ns", "set", "n", "--maximum", "1,5"],
            "--maximum: invalid value \"1,5\": expected a whole number",
        ),
        (&["ns", "set", "n", "--size-min", "x"], "--size-min: invalid value \"x\": expected a whole number"),
        (&["ns", "set", "n", "--size-max", "x"], "--size-max: invalid value \"x\": expected a whole number"),
        (
            &["ns", "set", "n", "--source", "x", "--above", "x"],
            "--above: invalid value \"x\": expected a whole",
        ),
        (&["store", "recover", "--add", "1e6"], "--add: invalid value \"1e6\": expected a whole number"),
        (&["workers", "release", "abc"], "invalid value \"abc\": expected the number of a worker, such as 7"),
        (&["audit", "--limit", "abc"], "--limit: invalid value \"abc\": expected a whole number, such as 50"),
        (&["ns", "add", "x", "--maximum", "3"], "--maximum, --size-min and --size-max belong to segment"),
        (&["ns", "add", "x", "--scheme", "segment", "--maximum", "0"], "invalid range of numbers 1 to 0"),
        (
            &["ns", "add", "n", "--stripe", "1/2"],
            "--scheme: missing: --stripe, --source, --reset and --hide define",
        ),
        (&["ns", "add", "n", "--maximum", "3"], "`snowmint ns set n` changes it"),
        (
            &["ns", "add", "y", "--scheme", "segment", "--store", "memory:"],
            "--store: memory: does not outlive this command",
        ),
        (
            &["ns", "list", "--data", "snowmint/snowmint.db"],
            "--data: snowmint/snowmint.db is a file: expected a directory; for a SQLite file use --store sqlite:snowmint/snowmint.db",
        ),
        (&["store", "init", "--data", "snowmint/snowmint.db"], "is a file: expected a directory"),
        (&["serve", "--data", "snowmint/snowmint.db"], "is a file: expected a directory"),
        (&["serve", "--data", ""], "--data: invalid directory \"\": expected a path"),
        (
            &["serve", "--data", "", "--store", "sqlite:a.db", "--start-without-store"],
            "--data: invalid directory \"\": expected a path",
        ),
        (&["new", "--data", ""], "--data: invalid directory \"\": expected a path"),
        (&["store", "init", "--data", ""], "--data: invalid directory \"\": expected a path"),
        (&["ns", "list", "--data", ""], "--data: invalid directory \"\": expected a path"),
        (&["import", "leaf:mysql://u:hunter2@127.0.0.1/leaf", "--apply"], "?password_file=PATH"),
        (&["ns", "set", "n", "--source", "leaf:mysql://u:hunter2@h/l?tag=a"], "login=NAME"),
        (
            &["ns", "set", "n", "--source", "leaf:mysql://u@h/l?tag=a&password_file=p"],
            "unexpected parameter `password_file`",
        ),
        (&["ns", "add", "x", "--scheme", "segment", "--source", "sqlite:/a.db"], "names no file of a node"),
        (&["ns", "set", "n", "--source", "x:", "--logins", "shop=hunter2"], "--logins: invalid login shop"),
        (&["ns", "set", "n", "--above", "7"], "--source"),
        (&["ns", "add", "x", "--scheme", "flake"], "unknown scheme `flake`: expected snowflake, segment"),
        (&["ns", "add", "x", "--scheme", "segment", "--stripe", "3/2"], "invalid stripe 3/2"),
        (&["ns", "add", "x", "--scheme", "segment", "--size-min", "0"], "invalid segment sizes 0 to"),
        (
            &["ns", "add", "x", "--scheme", "segment", "--start", "9", "--maximum", "5"],
            "invalid range of numbers 9 to 5",
        ),
        (&["ns", "add", "x", "--scheme", "segment", "--reset", "daily"], "add {date}"),
        (&["ns", "add", "x", "--scheme", "segment", "--text", "{nummer}"], "expected {number}, {hex}"),
        (
            &["ns", "add", "x", "--scheme", "uuid7", "--start", "5"],
            "invalid setting `start` for scheme uuid7",
        ),
        (
            &["ns", "add", "x", "--scheme", "segment", "--source", "mysql://u:hunter2@h/i"],
            "--logins, SNOWMINT_LOGINS",
        ),
        (&["ns", "add", &long, "--scheme", "segment"], "invalid namespace name"),
        (&["ns", "add", "n", "--scheme", "segment"], "namespace n already exists"),
        (&["ns", "set", "n"], "nothing to change: expected --text"),
        (&["ns", "set", "n", "--rule", "reject"], "invalid setting `rule` for scheme segment"),
        (
            &["ns", "set", "n", "--sequence-start", "random"],
            "invalid setting `sequence_start` for scheme segment: it belongs to snowflake",
        ),
        (
            &["ns", "add", "x", "--scheme", "ulid", "--sequence-start", "zero"],
            "invalid setting `sequence_start` for scheme ulid",
        ),
        (
            &["ns", "add", "x", "--scheme", "snowflake", "--sequence-start", "random(0)"],
            "expected zero, random, random(N)",
        ),
        (&["ns", "set", "nope", "--plain"], "unknown namespace nope"),
        (&["ns", "drop", "nope"], "unknown namespace nope"),
    ] {
        let told = sandbox.refused(args, 2);
        assert!(told.contains(wanted) && !told.contains("hunter2"), "{args:?}: {told}");
    }
}

#[test]
fn a_dropped_namespace_returns_as_it_was_or_starts_over() {
    let sandbox = Sandbox::with_store();
    sandbox.out(&["ns", "add", "n", "--scheme", "segment"]);
    sandbox.out(&["ns", "drop", "n"]);
    // Unchanged except for the given setting, or as something else, which is rejected.
    let small = sandbox.out(&["ns", "add", "n", "--maximum", "3"]);
    assert!(small.starts_with("n is segment cached, all numbers, to 3\n"), "{small}");
    sandbox.out(&["ns", "drop", "n"]);
    let other = sandbox.refused(&["ns", "add", "n", "--scheme", "segment", "--stripe", "1/2"], 2);
    assert!(other.contains("is pinned to `segment cached, all numbers, to 3` and cannot become"), "{other}");
    assert!(other.contains("only once every node has seen the drop or is stopped"), "{other}");
    let over = sandbox.run(&["ns", "add", "n", "--scheme", "segment", "--stripe", "1/2", "--start-over"]);
    assert_eq!(over.code, 0, "{over:?}");
    assert!(over.err.contains("warning: n starts over: it may repeat earlier ids"), "{over:?}");
    assert!(
        over.err.contains("a node that cannot reach the store continues to give the old numbers"),
        "{over:?}"
    );
}

#[test]
fn a_file_of_namespaces_is_checked_before_anything_is_opened() {
    let sandbox = Sandbox::new();
    let serve = ["serve", "--http", "127.0.0.1:0", "--resp", "off", "--namespaces-file", "ns.toml"];
    let missing = sandbox.refused(&serve, 2);
    assert!(missing.contains("--namespaces-file: cannot read the namespace file ns.toml"), "{missing}");
    std::fs::write(sandbox.path("ns.toml"), "[namespaces.a]\nscheme = \"segment\"\nstep = 0\n").unwrap();
    let bad = sandbox.refused(&serve, 2);
    assert!(bad.contains("ns.toml: line 3: unknown field `step`"), "{bad}");
    assert!(!sandbox.path("snowmint").exists());
}

#[test]
fn a_running_node_follows() {
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&["--namespaces-poll", "100ms"]);
    assert_eq!(server.http("/v1/ids/orders").0, 404);
    sandbox.out(&["ns", "add", "orders", "--scheme", "segment", "--text", "ORD-{number:4}"]);
    let mut last = String::new();
    let mut until = |wanted: u16| loop {
        let (status, body) = server.http("/v1/ids/orders");
        if status == 200 {
            assert!(body > last, "{body} after {last}");
            last.clone_from(&body);
        }
        if status == wanted {
            break body;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(until(200), r#"{"ids":["ORD-0001"]}"#);
    sandbox.out(&["ns", "drop", "orders"]);
    until(404);
    sandbox.out(&["ns", "add", "orders"]);
    until(200);
}

/// Goal: a definition is written where nodes look for it, and not into a file that a mistyped path has just
/// created.
#[test]
fn a_store_is_not_made_by_adding_to_it() {
    let sandbox = Sandbox::new();
    for args in [&["ns", "add", "n", "--scheme", "segment"][..], &["ns", "list"], &["ns", "drop", "n"]] {
        let told = sandbox.refused(args, 1);
        assert!(
            told.contains(&format!("data file {} not found", sandbox.path("snowmint/snowmint.db").display()))
                && told.contains("snowmint store init"),
            "{told}"
        );
    }
    assert!(!sandbox.path("snowmint").exists());
}

/// Goal: a data file that a user may not see is not called missing, since a second store would repeat ids;
/// the error names the user and the way out. Method: each command that opens a store, and a data directory
/// without rights.
#[test]
fn a_store_without_permission_is_not_a_missing_one() {
    use std::os::unix::fs::PermissionsExt as _;

    let sandbox = Sandbox::with_store();
    let data = sandbox.path("snowmint");
    let allow = |mode| std::fs::set_permissions(&data, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o000);
    let tried = [
        &["doctor"][..],
        &["workers"],
        &["ns", "list"],
        &["ns", "add", "n", "--scheme", "segment"],
        &["audit"],
        &["range", "--since", "1 day", "--namespace", "default"],
        &["inspect", "--namespace", "default", "17"],
        &["store", "recover", "--add", "0"],
    ]
    .map(|args| (args, Ran::from(sandbox.command_under_permissions(args).output().unwrap())));
    allow(0o700);
    let uid = rustix::process::geteuid().as_raw();
    for (args, ran) in tried {
        assert_eq!((ran.code, &*ran.out, ran.err.lines().count()), (1, "", 1), "{args:?}: {ran:?}");
        for words in
            ["Permission denied", &format!("uid {uid} "), &format!("`sudo -u '#{uid}' snowmint ...`")]
        {
            assert!(ran.err.contains(words), "{words}: {args:?}: {}", ran.err);
        }
        assert!(!ran.err.contains("not found") && !ran.err.contains("store init"), "{args:?}: {}", ran.err);
    }
}

/// Goal: a namespace does not start over under a node that continues the old numbers. Method: a node that
/// does not look for changes, like one that is cut off from the store; then one that follows them, and one
/// that is gone.
#[test]
fn a_namespace_does_not_start_over_under_a_node_that_still_serves_it() {
    let sandbox = Sandbox::with_store();
    sandbox.out(&["ns", "add", "n", "--scheme", "segment"]);
    let mut blind = sandbox.serve(&["--namespaces-poll", "1h"]);
    let mut follows = sandbox.serve(&["--namespaces-poll", "100ms"]);
    let [old, new] = [&mut blind, &mut follows].map(|server| {
        assert_eq!(server.http("/v1/ids/n").0, 200);
        format!("http://{}", server.ready("http"))
    });
    sandbox.out(&["ns", "drop", "n"]);
    while follows.http("/v1/ids/n").0 != 404 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let start_over = ["ns", "add", "n", "--start-over", "--nodes"];
    let all = format!("{new},{old}");
    let with_both = [&start_over[..], &[&all]].concat();
    let refused = sandbox.refused(&with_both, 1);
    assert!(refused.contains(&format!("node {old} still serves n")), "{refused}");
    assert_eq!(blind.http("/v1/ids/n").0, 200);
    drop(blind);
    let gone = sandbox.refused(&with_both, 1);
    assert!(gone.contains("stop it for good, then remove it from --nodes"), "{gone}");
    let listed = sandbox.out(&["ns", "list"]);
    assert!(listed.contains("dropped"), "{listed}");
    let over = sandbox.run(&[&start_over[..], &[&new]].concat());
    assert_eq!(over.code, 0, "{over:?}");
    assert!(over.err.contains("a node that is not in --nodes and that cannot reach the store"), "{over:?}");
}

/// Goal: the first order numbers that a newcomer sees are 1, 2, 3, on whatever node. Method: the command of
/// the README, and three nodes in turns.
#[test]
fn order_numbers_of_the_readme_count_on_over_all_nodes() {
    let readme = include_str!("../../../../README.md");
    let row = readme.lines().find(|line| line.starts_with("| order numbers")).unwrap();
    let command = row.split('`').find(|it| it.starts_with("snowmint ns add NAME")).unwrap();
    let args: Vec<_> =
        command.split(' ').skip(1).map(|word| if word == "NAME" { "orders" } else { word }).collect();
    let sandbox = Sandbox::with_store();
    sandbox.out(&args);
    let mut nodes = [(); 3].map(|()| sandbox.serve(&[]));
    let drawn: Vec<_> = (0..6).map(|nth| nodes[nth % 3].http("/v1/ids/orders?format=text").1).collect();
    assert_eq!(drawn, ["1", "2", "3", "4", "5", "6"].map(|number| format!("{number}\n")));
}

/// Goal: every setting of a namespace is documented. Method: each one is looked up in the schemas of the
/// admin API and in the tables of the page, in both languages.
#[test]
fn every_setting_is_documented() {
    let read = |file: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::read_to_string(root.join(file)).unwrap()
    };
    let document = json(&read("crates/snowmint-server/src/http/openapi.json"));
    let pages = ["docs/numbers.md", "docs/zh/numbers.md"].map(read);
    for setting in Fields::SETTINGS {
        let name = setting.name;
        let is_in = |schema: &str| !document["components"]["schemas"][schema]["properties"][name].is_null();
        // Nodes accept no sources from a client.
        let is_accepted = setting.kind != SettingKind::Internal && name != "sources";
        let wanted = [true, is_accepted, is_accepted];
        assert_eq!(["Namespace", "Addition", "Change"].map(is_in), wanted, "{name} in openapi.json");
        for page in &pages {
            let mut names = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
            let is_listed = names.any(|names| names.contains(&format!("`{name}`")));
            let title = page.lines().next();
            assert_eq!(is_listed, setting.value_name.is_some(), "{name} in {title:?}");
        }
    }
}
