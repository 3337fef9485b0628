//! Goal: one file configures a service, with lower priority than environment and flags, and errors in it name
//! the line.

use crate::support::{Sandbox, Server, json};

const FILE: &str = "\
window = '4s'
log_format = 'json'
namespaces_poll = '100ms'

[namespaces.orders]
scheme = 'segment'
text = 'ORD-{number:6}'
";

fn with_file(text: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("snowmint.toml"), text).unwrap();
    sandbox
}

#[test]
fn a_service_is_configured_by_one_file_and_hangup_reads_its_namespaces_again() {
    let sandbox = with_file(FILE);
    let mut server = sandbox.serve(&["--config", "snowmint.toml"]);
    assert_eq!(server.http("/v1/ids/orders").1, r#"{"ids":["ORD-000001"]}"#);
    let more = format!("{FILE}\n[namespaces.keys]\nscheme = 'uuid7'\n");
    std::fs::write(sandbox.path("snowmint.toml"), more).unwrap();
    server.signal("HUP");
    let is_served = |_: &u32| server.http("/v1/ids/keys").0 == 200;
    assert!(
        (0..1000)
            .inspect(|_| std::thread::sleep(std::time::Duration::from_millis(10)))
            .find(is_served)
            .is_some()
    );
}

#[test]
fn hangup_reads_the_first_tables_of_a_file_that_had_none() {
    let sandbox = with_file("namespaces = ['orders']\n");
    let mut server = sandbox.serve(&["--config", "snowmint.toml", "--namespaces-poll", "100ms"]);
    assert_eq!(server.http("/v1/ids/orders").0, 200);
    std::fs::write(sandbox.path("snowmint.toml"), "[namespaces.keys]\nscheme = 'uuid7'\n").unwrap();
    server.signal("HUP");
    let mut is_served = |_: &u32| server.http("/v1/ids/keys").0 == 200;
    assert!(
        (0..1000)
            .inspect(|_| std::thread::sleep(std::time::Duration::from_millis(10)))
            .any(|n| is_served(&n))
    );
}

/// Goal: the log level changes without a restart; an invalid file changes nothing, and a flag has priority
/// over the file.
#[test]
fn hangup_reads_the_level_of_the_log_again() {
    let debug_lines = |server: &Server| server.log().matches("\"level\":\"DEBUG\"").count();
    let sandbox = with_file("log = 'info'\n");
    let write = |text: &str| std::fs::write(sandbox.path("snowmint.toml"), text).unwrap();
    let until = |server: &Server, wanted: &dyn Fn(&Server) -> bool| {
        let waited = (0..1200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(25));
            wanted(server)
        });
        assert!(waited, "{}", server.log());
    };
    let mut server =
        sandbox.serve(&["--config", "snowmint.toml", "--namespaces-poll", "100ms", "--window", "1s"]);
    assert_eq!(debug_lines(&server), 0, "{}", server.log());
    write("log = 'info,snowmint_store=debug,snowmint_cluster=debug,snowmint_server=debug'");
    server.signal("HUP");
    server.wait_for("log level changed");
    until(&server, &|server| debug_lines(server) > 0);
    write("log = 'loud'");
    server.signal("HUP");
    server.wait_for("log level not changed");
    let before = debug_lines(&server);
    until(&server, &|server| debug_lines(server) > before);

    write("log = 'debug'");
    let mut server = sandbox.serve(&["--config", "snowmint.toml", "--log", "info"]);
    server.signal("HUP");
    server.wait_for("SIGHUP: reloading");
    assert!(!server.log().contains("log level changed") && debug_lines(&server) == 0, "{}", server.log());
}

/// Method: the same setting in all three places, and the origin that `config print` reports.
#[test]
fn flags_win_over_the_environment_and_this_over_the_file() {
    let print = |sandbox: &Sandbox, args: &[&str]| {
        sandbox.out(&[&["config", "print", "--config", "snowmint.toml"], args].concat())
    };
    let sandbox = with_file(FILE);
    assert!(print(&sandbox, &[]).contains("window = \"4s\"  # file\n"));
    assert!(print(&sandbox, &["--window", "6s"]).contains("window = \"6s\"  # flag\n"));
    let sandbox = with_file(FILE).with_env("SNOWMINT_WINDOW", "5s");
    let printed = print(&sandbox, &["--store", "postgres://me:secret@db/x"]);
    assert!(printed.contains("window = \"5s\"  # environment\n"), "{printed}");
    assert!(printed.contains("resp = \"127.0.0.1:6380\"  # default\n"), "{printed}");
    assert!(!printed.contains("secret"), "{printed}");
    std::fs::write(sandbox.path("printed.toml"), &printed).unwrap();
    let checked = sandbox.out(&["config", "check", "printed.toml"]);
    assert!(
        checked.starts_with("printed.toml: valid; ") && checked.ends_with("namespaces: 2\n"),
        "{checked}"
    );
    for url in [
        "postgres://me:pa/secret@db/x",
        "redis://:a?secret@h",
        "mysql://db/x?password=secret",
        "me:secret@db",
        "postgres://me:123?secret@db/x",
    ] {
        let printed = print(&sandbox, &["--store", url]);
        assert!(!printed.contains("secret"), "{url}: {printed}");
    }
    let peers = ["--peers", "http://a:1,http://me:secret@b:1", "--cors-origin", "http://me:secret@web"];
    let printed = print(&sandbox, &peers);
    assert!(printed.contains("peers = [\"http://a:1\", \"http://b:1\"]  # flag\n"), "{printed}");
    assert!(printed.contains("\"http://web\"") && !printed.contains("secret"), "{printed}");
    // `serve` refuses such a source.
    let source = "sources = [\"redis-counter:redis://me:secret@h/0?counter=n\"]";
    let printed = print(&with_file(&FILE.replace("text =", &format!("{source}\ntext ="))), &[]);
    assert!(printed.contains("[\"redis-counter:redis://h/0?counter=n\"]"), "{printed}");
    assert!(printed.contains("text = 'ORD-{number:6}'") && !printed.contains("secret"), "{printed}");
    for flags in [["--peers", "http://me:secret@b:1"], ["--cors-origin", "http://me:secret@web"]] {
        let told = Sandbox::new()
            .refused(&[&["serve", "--store", "memory:", "--log", "off"][..], &flags].concat(), 2);
        assert!(told.starts_with("error: ") && !told.contains("secret"), "{told}");
    }
    let help = with_file("").with_env("SNOWMINT_STORE", "redis://:secret@h").out(&["serve", "--help"]);
    assert!(help.contains("SNOWMINT_STORE") && !help.contains("secret"), "{help}");
}

/// Goal: the printed file can be extended as the documentation says, and means the same.
#[test]
fn a_printed_file_takes_tables_of_namespaces() {
    let sandbox = Sandbox::new();
    let printed = sandbox.out(&["config", "print", "--window", "20s"]);
    let write = |text: &str| std::fs::write(sandbox.path("p.toml"), text).unwrap();
    write(&printed);
    assert!(sandbox.out(&["config", "check", "p.toml"]).ends_with("namespaces: 1\n"));
    assert_eq!(
        sandbox.out(&["config", "print", "--config", "p.toml"]).matches("\"default\"").count(),
        printed.matches("\"default\"").count()
    );
    let table = "\n[namespaces.orders]\nscheme = \"segment\"\n";
    write(&format!("{printed}{table}"));
    assert!(sandbox.out(&["config", "check", "p.toml"]).ends_with("namespaces: 2\n"));
    // A list means exactly its names, which tables cannot express: they come in addition to `default`.
    let listed = sandbox.out(&["config", "print", "--namespaces", "a,b"]);
    write(&listed);
    assert!(sandbox.out(&["config", "check", "p.toml"]).ends_with("namespaces: 2\n"));
    write(&format!("{listed}{table}"));
    let told = sandbox.refused(&["config", "check", "p.toml"], 2);
    assert!(
        told.contains("`namespaces` is a list of names above, and a table here: remove the list"),
        "{told}"
    );
}

#[test]
fn a_file_named_by_the_environment_is_used() {
    let sandbox = with_file("window = '7s'\n").with_env("SNOWMINT_CONFIG", "snowmint.toml");
    assert!(sandbox.out(&["config", "print"]).contains("window = \"7s\"  # file\n"));
    assert_eq!(sandbox.out(&["config", "check"]), "snowmint.toml: valid; settings: 1, namespaces: 1\n");
}

#[test]
fn what_is_wrong_in_a_file_is_named_before_anything_is_opened() {
    for (text, wanted) in [
        ("[namespaces.a]\nschema = 'segment'", "line 2: unknown field `schema`: did you mean `scheme`?"),
        ("\nwidnow = '4s'", "snowmint.toml: line 2: unknown key `widnow`: did you mean `window`?"),
        ("window = '4'", "snowmint.toml: line 1: invalid value `4` of `window`: expected a time"),
        ("http = 'off'\nresp = 'off'", "--http off and --resp off"),
        ("peers = ['http://a:1', 'http://u:p@b:1']", "--peers: invalid node \"http://...@b:1\""),
        ("store = 'leases.db'", "--store: invalid store `leases.db`"),
        ("store = 'etcd://'", "--store: etcd"),
        ("store = 'postgres://h/db?may_lose=2'", "--store: postgres: invalid may_lose"),
        ("store = 'redis://10.0.0.7'\nwindow = '5s'", "--window: "),
        ("worker = 'ipv4'\nlayout = 'time:41 sequence:22 epoch:2026-01-01'", "has no worker"),
        (
            "http = 'off'\n\n[namespaces.a]\nscheme = 'segment'\nsteps = 5",
            "--config: snowmint.toml: line 5: unknown field",
        ),
    ] {
        let sandbox = with_file(text);
        for command in [&["serve", "--config", "snowmint.toml"][..], &["config", "check", "snowmint.toml"]] {
            let told = sandbox.refused(command, 2);
            assert!(told.contains(wanted), "{told}");
        }
        assert!(!sandbox.path("snowmint").exists());
    }
    let told = Sandbox::new().refused(&["serve", "--config", "none.toml"], 2);
    assert!(told.contains("--config: cannot read none.toml: "), "{told}");
    let twice =
        with_file(FILE).refused(&["serve", "--config", "snowmint.toml", "--namespaces-file", "ns.toml"], 2);
    assert!(twice.contains("namespaces are defined both in snowmint.toml and in ns.toml"), "{twice}");
}

/// Goal: a check on another machine than the one that serves is not an error, and warnings are reported.
#[test]
fn warnings_and_what_depends_on_the_machine_are_told_and_the_file_is_valid() {
    for (text, wanted) in [
        ("store = 'memory:'", "warning: --store memory: leases are lost"),
        ("http = '0.0.0.0:80'\ninsecure = true", "warning: listening on 0.0.0.0:80 without --store"),
        ("worker = 'ordinal'", "warning: --worker depends on the machine that serves; it "),
        (
            "[namespaces.n]\nscheme = 'snowflake'\nlayout = 'time:41 worker:10 sequence:12 epoch:14200070400000'",
            "warning: namespace n: the layout begins on 2419-12-",
        ),
        (
            "worker = 'ipv4:198.51.100.0/27'",
            "warning: --worker depends on the machine that serves; it has none here: ",
        ),
    ] {
        let ran = with_file(text).run(&["config", "check", "snowmint.toml"]);
        assert_eq!(ran.code, 0, "{text}: {}", ran.err);
        assert!(ran.out.starts_with("snowmint.toml: valid; "), "{}", ran.out);
        assert!(ran.err.starts_with(wanted) && ran.err.lines().count() == 1, "{}", ran.err);
    }
    let told = with_file("worker = 'ordinal'\nworkers = 2").refused(&["config", "check", "snowmint.toml"], 2);
    assert!(told.contains("--worker requires one worker, --workers 2 several"), "{told}");
}

#[test]
fn the_schema_describes_every_key() {
    let schema = json(&Sandbox::new().out(&["config", "schema"]));
    assert_eq!(schema["properties"]["window"]["default"], "10s");
    assert_eq!(schema["properties"]["log_format"]["enum"], serde_json::json!(["text", "json"]));
    assert_eq!(schema["properties"]["start_without_store"]["type"], "boolean");
    assert_eq!(schema["additionalProperties"], false);
}
