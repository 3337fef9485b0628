//! Words that people type by habit, completions and man pages, and JSON from every command that a script may
//! read.

use std::process::Command;

use crate::support::{Sandbox, json};

#[test]
fn habits_work_or_lead_on() {
    let sandbox = Sandbox::with_store();
    let version = sandbox.out(&["--version"]);
    for args in [&["-v"][..], &["-V"]] {
        assert_eq!(sandbox.out(args), version, "{args:?}");
    }
    assert!(sandbox.out(&["version"]).starts_with(&version));
    assert_eq!(json(&sandbox.out(&["version", "--json"]))["version"], env!("CARGO_PKG_VERSION"));
    for word in ["generate", "gen", "next"] {
        assert_eq!(sandbox.out(&[word, "--count", "3"]).lines().count(), 3, "{word}");
    }
    let inspected = sandbox.out(&["inspect", "--layout", "twitter", "1541815603606036480"]);
    for word in ["decode", "parse"] {
        assert_eq!(sandbox.out(&[word, "--layout", "twitter", "1541815603606036480"]), inspected);
    }
    for word in ["server", "start", "run"] {
        assert_eq!(sandbox.out(&[word, "-h"]), sandbox.out(&["serve", "-h"]), "{word}");
    }
    sandbox.out(&["ns", "create", "orders", "--scheme", "segment"]);
    assert_eq!(sandbox.out(&["ns", "ls"]), sandbox.out(&["namespaces", "list"]));
    let shown = sandbox.out(&["ns", "show", "orders"]);
    assert!(shown.starts_with("orders  ") && shown.contains("  scheme         segment\n"), "{shown}");
    let pasted = ["--scheme", "segment", "--start", "10,001", "--maximum", "1_000_000", "--json"];
    let added = json(&sandbox.out(&[&["ns", "add", "pasted"][..], &pasted].concat()));
    let shown = [&added["namespace"]["start"], &added["namespace"]["maximum"]];
    assert_eq!(shown.map(|it| it.to_string().replace('"', "")), ["10001", "1000000"], "{added}");
    sandbox.out(&["ns", "drop", "pasted"]);
    assert!(sandbox.refused(&["ns", "show", "nothing"], 2).contains("snowmint ns list"));
    assert!(sandbox.out(&["ns", "rm", "orders"]).contains("is dropped"));
    assert_eq!(sandbox.out(&["workers", "list"]), sandbox.out(&["workers"]));
    assert!(sandbox.out(&["help", "gen"]).contains("snowmint new -n 1000"));
    for (args, wanted) in [
        (&["doctor", "--node", "http://h:1"][..], "a similar argument exists: '--nodes'"),
        (
            &["ns", "set", "n", "--layout", "twitter"],
            "unknown flag --layout: the layout of a namespace is fixed, because a change could produce duplicates",
        ),
        (&["ns", "set", "n", "--stripe", "1/2"], "unknown flag --stripe: the stripe of a namespace is fixed"),
        (
            &["import", "mysql://u@h/d"],
            "missing kind of counter before `mysql:`: write leaf:, tinyid: or tickets: before",
        ),
        (&["ns", "add", "n", "--text", "ORD-{number:6"], "--text: unmatched brace at `{number:6`"),
        (&["serve", "--port", "9000"], "unexpected argument '--port' found"),
        (&["serve", "--log-level", "loud"], "--log"),
        (&["ns", "init"], "unrecognized subcommand 'init'"),
        (&["new", "3"], "unexpected argument 3: the number of ids is a flag: -n 3"),
        (&["gen", "1,000"], "the number of ids is a flag: -n 1,000"),
        (
            &["new", "orders"],
            "unexpected argument orders: ids of a namespace come from a running node: curl http://127.0.0.1:8080/v1/ids/orders",
        ),
        (
            &["health", "http://127.0.0.1:8080"],
            "unexpected argument http://127.0.0.1:8080: name the node by --server http://127.0.0.1:8080",
        ),
        (&["doctor", "https://ids:8080"], "name the node by --server https://ids:8080"),
        (&["doctor", "redis://me:hunter2@h"], "unexpected argument redis://h: name the store by --store URL"),
        (
            &["ns", "list", "https://me:hunter2@ids"],
            "unexpected argument https://ids: name the node by --server https://ids",
        ),
        (&["new", "http://127.0.0.1:8080"], "unexpected argument 'http://127.0.0.1:8080'"),
        (&["serve", "8080"], "--http 127.0.0.1:8080"),
        (&["health", "node"], "unexpected argument 'node'"),
        // Without advice to pass it as a value.
        (
            &["sql", "postgres", "--layout", "leaf", "--json"],
            "unexpected argument '--json' found; see --help",
        ),
    ] {
        let error = sandbox.refused(args, 2);
        assert!(error.contains(wanted), "{args:?}: {error}");
    }
}

/// Goal: every command that a script reads can print JSON. Method: run each command that prints a result, and
/// parse each line.
#[test]
fn every_result_has_json() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("snowmint.toml"), "log_format = 'json'\n").unwrap();
    let other = Sandbox::new();
    let mut server = other.serve(&[]);
    let node = format!("http://{}", server.ready("http"));
    for args in [
        &["store", "init"][..],
        &["store", "init", "--dry-run"],
        &["ns", "add", "orders", "--scheme", "segment"],
        &["ns", "set", "orders", "--maximum", "99"],
        &["ns", "list"],
        &["ns", "show", "orders"],
        &["ns", "drop", "orders"],
        &["new", "-n", "2"],
        &["workers"],
        &["workers", "list"],
        &["doctor"],
        &["audit"],
        &["layouts"],
        &["layout", "twitter"],
        &["layout", "twitter", "--successor", "auto"],
        &["inspect", "7", "8"],
        &["convert", "--to", "hex", "7"],
        &["range", "--layout", "twitter", "--since", "1d"],
        &["explain"],
        &["explain", "busy"],
        &["version"],
        &["token", "create", "a", "--namespaces", "*", "--file", "tokens.toml"],
        &["token", "list", "--file", "tokens.toml"],
        &["token", "rotate", "a", "--file", "tokens.toml"],
        &["token", "revoke", "a", "--file", "tokens.toml"],
        &["config", "check", "snowmint.toml"],
        &["hide-key", "a"],
        &["hide-key", "a", "--file", "keys.toml"],
        &["store", "recover", "--add", "5"],
        &["store", "recover", "--add", "5", "--yes"],
        &["health", "--server", &node],
        &["health", "--of", "process", "--server", &node],
    ] {
        let ran = sandbox.run(&[args, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        assert!(!ran.out.is_empty(), "{args:?}");
        for line in ran.out.lines() {
            assert!(json(line).is_object(), "{args:?}: {line}");
        }
    }
}

/// Returns the names of the subcommands in the help.
fn subcommands(sandbox: &Sandbox) -> Vec<String> {
    let help = sandbox.out(&["--help"]);
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let names = commands
        .lines()
        .take_while(|line| !line.is_empty())
        // A long description continues on the next lines, without a name.
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    let names: Vec<_> = names.filter(|name| *name != "help").map(str::to_owned).collect();
    assert!(names.len() > 18, "{names:?}");
    names
}

#[test]
fn completions_have_every_subcommand_and_load_in_bash() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = sandbox.out(&["completions", shell]);
        for name in subcommands(&sandbox) {
            assert!(script.contains(&name), "{shell}: {name}");
        }
    }
    std::fs::write(sandbox.path("snowmint.bash"), sandbox.out(&["completions", "bash"])).unwrap();
    let complete = "source ./snowmint.bash && COMP_WORDS=(snowmint ran) COMP_CWORD=1 && _snowmint snowmint ran snowmint && \
                    echo \"${COMPREPLY[@]}\" && COMP_WORDS=(snowmint ns sh) COMP_CWORD=2 && _snowmint snowmint sh ns && echo \
                    \"${COMPREPLY[@]}\"";
    let ran =
        Command::new("bash").args(["--norc", "-c", complete]).current_dir(sandbox.path("")).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "range\nshow\n");
}

#[test]
fn man_has_a_page_for_every_subcommand() {
    let sandbox = Sandbox::new();
    let page = sandbox.out(&["man"]);
    assert!(page.contains(".TH snowmint 1"), "{page:.300}");
    for name in subcommands(&sandbox) {
        assert!(page.contains(&format!("snowmint\\-{}", name.replace('-', "\\-"))), "{name}");
    }
    let told = sandbox.out(&["man", "pages"]);
    for name in subcommands(&sandbox) {
        let page = std::fs::read_to_string(sandbox.path(&format!("pages/snowmint-{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME"), "{name}");
    }
    let pages = std::fs::read_dir(sandbox.path("pages")).unwrap().count();
    assert_eq!(told, format!("{pages} pages written to pages\n"));
    assert!(sandbox.path("pages/snowmint-ns-add.1").exists() && sandbox.path("pages/snowmint.1").exists());
}

/// Goal: a word that is not UTF-8 is an ordinary error or the name of a file, never a panic. Method: such a
/// word in each place that reads the command line beside its parser: a node instead of a store, an invalid
/// value that may come from the environment, a flag of another tool, and the format of errors.
#[test]
#[cfg(target_os = "linux")]
fn words_that_are_not_utf8_are_no_panic() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let sandbox = Sandbox::new();
    let odd = OsStr::from_bytes(b"t\xff");
    std::fs::write(sandbox.path("").join(odd), "smt_secret").unwrap();
    for (args, code, wanted) in [
        (&["workers", "--server", "http://127.0.0.1:1", "--token-file"][..], 1, "127.0.0.1:1"),
        (&["serve", "--window", "x", "--tokens-file"], 2, "--window: invalid value \"x\""),
        (&["serve", "--port", "--tokens-file"], 2, "unexpected argument '--port'"),
        (&["serve", "--log"], 2, "invalid UTF-8"),
        (&[], 2, "unrecognized subcommand"),
    ] {
        let ran = sandbox.command(args).arg(odd).output().unwrap();
        let told = String::from_utf8_lossy(&ran.stderr);
        assert_eq!((ran.status.code(), told.lines().count()), (Some(code), 1), "{args:?}: {told}");
        assert!(told.starts_with("error: ") && told.contains(wanted), "{args:?}: {told}");
    }
}
