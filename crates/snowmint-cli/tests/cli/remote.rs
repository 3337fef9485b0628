//! `--server`: the operator commands through the admin API of a running node.

use std::net::TcpListener;

use serde_json::Value;
use snowmint_test_servers::Certificates;

use crate::support::{Ran, Sandbox, Server, json};

/// Creates a token in `tokens.toml`.
fn token(sandbox: &Sandbox, name: &str, namespaces: &str, rights: &str) -> String {
    let args = ["--namespaces", namespaces, "--rights", rights, "--file", "tokens.toml"];
    let created = sandbox.run(&[&["token", "create", name][..], &args].concat());
    assert_eq!(created.code, 0, "{created:?}");
    created.out.trim().to_owned()
}

/// A node with tokens; also its URL.
fn node(sandbox: &Sandbox) -> (Server, String) {
    let mut node = sandbox.serve(&["--tokens-file", "tokens.toml", "--worker", "5", "--window", "1h"]);
    let url = format!("http://{}", node.ready("http"));
    (node, url)
}

/// Returns the part of the output that two runs share: without times and numbers, which a running node
/// changes, and without the place of the store.
fn same(text: &str) -> String {
    let line = |line: &str| match serde_json::from_str::<Value>(line) {
        Ok(Value::Object(mut fields)) => {
            let differ = ["ahead_ms", "dropped", "holder", "reserved_to", "text", "until", "until_unix_ms"];
            fields.retain(|name, _| !differ.contains(&name.as_str()));
            Value::Object(fields).to_string()
        }
        _ => line
            .split_whitespace()
            .filter(|word| !word.contains(|it: char| it.is_ascii_digit() || it == '/'))
            .collect::<Vec<_>>()
            .join(" "),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Goal: a command gives the same output, warnings, errors and exit code through a node as on a store.
/// Method: one scenario, both ways.
#[test]
fn commands_do_the_same_through_a_node_as_on_a_store() {
    let scenario: &[&[&str]] = &[
        &["ns", "add", "n", "--scheme", "segment", "--text", "ORD-{number:6}", "--maximum", "900"],
        &["ns", "add", "n", "--scheme", "segment"],
        &["ns", "set", "n", "--maximum", "9000"],
        &["ns", "set", "n", "--plain"],
        &["ns", "set", "n", "--text", "{hex}"],
        &["ns", "set", "nope", "--plain"],
        &["ns", "add", "m", "--maximum", "3"],
        &["ns", "add", "m", "--scheme", "segment", "--reset", "daily"],
        &["ns", "add", "m", "--scheme", "uuid7", "--text", "key_{id}"],
        &["ns", "add", "m", "--scheme", "flake"],
        &["ns", "list"],
        &["ns", "list", "--json"],
        &["ns", "drop", "n"],
        &["ns", "drop", "n"],
        &["ns", "add", "n", "--stripe", "1/2"],
        &["ns", "add", "n", "--scheme", "segment", "--stripe", "1/2"],
        &["ns", "add", "n"],
        &["ns", "drop", "n"],
        &["ns", "add", "n", "--start-over", "--nodes", "x"],
        &["ns", "add", "n", "--start-over"],
        &["store", "show"],
        &["workers"],
        &["workers", "--json"],
        &["workers", "release", "8"],
        &["workers", "release", "5"],
        &["workers", "release", "5", "--force"],
        &["doctor"],
        &["doctor", "--json"],
        &["doctor", "--nodes", "x"],
        &["audit", "--namespace", "n"],
    ];
    let run_all = |through_node: bool| -> Vec<Ran> {
        let sandbox = Sandbox::new();
        let token = token(&sandbox, "ops", "*", "admin");
        let (_node, url) = node(&sandbox);
        std::fs::write(sandbox.path("ops.token"), format!("{token}\n")).unwrap();
        let target = ["--server", &url, "--token-file", "ops.token"];
        let target: &[&str] = if through_node { &target } else { &[] };
        scenario.iter().map(|args| sandbox.run(&[args, target].concat())).collect()
    };
    for ((args, direct), through) in scenario.iter().zip(run_all(false)).zip(run_all(true)) {
        assert_eq!(direct.code, through.code, "{args:?}\n{direct:?}\n{through:?}");
        assert_eq!(same(&direct.err), same(&through.err), "{args:?}");
        if args[0] == "audit" {
            assert_eq!(direct.out.lines().count(), through.out.lines().count(), "{direct:?}\n{through:?}");
            assert!(through.out.contains("token ops on 127.0.0.1"), "{}", through.out);
        } else {
            assert_eq!(same(&direct.out), same(&through.out), "{args:?}");
        }
    }
}

/// Goal: the log level of a running node changes at once, only for an operator of the whole node, and returns
/// to the configured one by command and by SIGHUP.
#[test]
fn the_log_level_of_a_node_changes_while_it_runs() {
    let sandbox = Sandbox::new();
    let ops = token(&sandbox, "ops", "*", "admin");
    let orders = token(&sandbox, "orders", "orders-*", "admin");
    std::fs::write(sandbox.path("ops.token"), ops).unwrap();
    // Its polls are logged at level debug.
    let polls = ["--namespaces-poll", "100ms", "--window", "1s"];
    let mut node = sandbox.serve(&[&["--tokens-file", "tokens.toml"][..], &polls].concat());
    let url = format!("http://{}", node.ready("http"));
    let level = |args: &[&str]| {
        sandbox.out(&[&["log-level"][..], args, &["--server", &url, "--token-file", "ops.token"]].concat())
    };
    assert_eq!(level(&[]), "info\n");
    let debug = |node: &Server| node.log().contains("\"level\":\"DEBUG\"");
    assert!(!debug(&node), "{}", node.log());
    let shown = level(&["info,snowmint_server=debug,snowmint_store=debug,snowmint_cluster=debug", "--json"]);
    assert_eq!(json(&shown)["configured"], "info", "{shown}");
    sandbox.out(&["ns", "list", "--server", &url, "--token-file", "ops.token"]);
    assert!((0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        debug(&node)
    }));
    node.wait_for("node-log-level: info,snowmint_server=debug,snowmint_store=debug,snowmint_cluster=debug");
    assert_eq!(level(&["warn"]), "warn (configured: info)\n");
    assert_eq!(level(&["--configured"]), "info\n");
    assert_eq!(level(&["error"]), "error (configured: info)\n");
    node.signal("HUP");
    let mut shown = String::new();
    assert!(
        (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            shown = level(&[]);
            shown == "info\n"
        }),
        "{shown}"
    );
    let log = sandbox.out(&["audit", "--json"]);
    assert_eq!(json(log.lines().next().unwrap())["action"], "node-log-level", "{log}");
    for (args, wanted) in [
        (&["loud", "--token-file", "ops.token"][..], "LEVEL: invalid log level `loud`: expected off, error"),
        (&["debug", "--token", &orders], "token `orders` does not have the right admin for all namespaces"),
        (&["--token", &orders], "token `orders`"),
    ] {
        let told = sandbox.refused(&[&["log-level", "--server", &url][..], args].concat(), 2);
        assert!(told.contains(wanted), "{told}");
    }
    assert!(sandbox.refused(&["log-level"], 2).contains("--server: required"));
}

/// Goal: over TLS, `--server` verifies the node, and sends a client certificate to a node that requires one.
#[test]
fn a_node_that_requires_client_certificates_is_administered() {
    let sandbox = Sandbox::new();
    let (certificates, others) = (Certificates::make(), Certificates::make());
    let file = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (ca, cert, key) =
        (file(certificates.authority()), file(certificates.certificate()), file(certificates.key()));
    std::fs::write(sandbox.path("ops.token"), token(&sandbox, "ops", "*", "admin")).unwrap();
    let tls = ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca];
    let mut node = sandbox.serve(&[&["--tokens-file", "tokens.toml"][..], &tls].concat());
    let address = node.ready("http");
    let url = format!("https://localhost:{}", address.rsplit(':').next().unwrap());
    // The metrics are read without TLS, from another port.
    for (given, wanted) in [
        (
            format!("http://{address}"),
            "this port uses TLS: name the node's --probe address, http://HOST:PORT",
        ),
        (url.clone(), "expected http://HOST:PORT; for a node with TLS, its --probe address"),
    ] {
        let ran = sandbox.run(&["doctor", "--nodes", &given]);
        assert!(ran.code != 0 && format!("{}{}", ran.out, ran.err).contains(wanted), "{ran:?}");
    }
    let call = |files: &[&str]| {
        let target = ["ns", "list", "--json", "--server", &url, "--token-file", "ops.token"];
        sandbox.run(&[&target[..], files].concat())
    };
    let (client_cert, client_key) =
        (file(certificates.client_certificate()), file(certificates.client_key()));
    let client = ["--server-cert", &*client_cert, "--server-key", &*client_key];
    let listed = call(&[&["--server-ca", &ca][..], &client].concat());
    assert_eq!((listed.code, &*listed.err), (0, ""), "{listed:?}");
    assert_eq!(json(&listed.out)["name"], "default");
    let other_ca = file(others.authority());
    let other = [file(others.client_certificate()), file(others.client_key())];
    for (files, code, wanted) in [
        (&["--server-ca", &*ca][..], 1, "no answer from"),
        (&["--server-ca", &ca, "--server-cert", &other[0], "--server-key", &other[1]], 1, "no answer from"),
        (
            &["--server-ca", &other_ca, client[0], client[1], client[2], client[3]],
            1,
            "; --server-ca FILE names the authority that issued it",
        ),
        (
            &["--server-ca", &ca, "--server-cert", &client_cert, "--server-key", &other[1]],
            2,
            "--server-cert: cannot use",
        ),
        (&["--server-ca", &ca, "--server-cert", &client_cert], 2, "--server-key"),
        (
            &["--server-ca", &ca, "--server-cert", "none", "--server-key", &client_key],
            2,
            "--server-cert: cannot use none",
        ),
        (
            &["--server-ca", &client_key, client[0], client[1], client[2], client[3]],
            2,
            "expected certificates in PEM",
        ),
    ] {
        let told = call(files);
        assert!(told.code == code && told.err.contains(wanted), "{files:?}: {told:?}");
    }
    let health = ["health", "--server", &url];
    sandbox.out(&[&health[..], &["--server-ca", &ca], &client].concat());
    let told = sandbox.refused(&health, 1);
    assert!(told.contains("; --server-ca FILE names the authority that issued it"), "{told}");
    let told = sandbox.run(&["bench", &url, "--duration", "100ms"]);
    assert!(
        told.code == 1 && told.err.contains("; --server-ca FILE names the authority that issued it"),
        "{told:?}"
    );
    // A port without TLS.
    let plain = Sandbox::new();
    let mut node = plain.serve(&[]);
    let told = sandbox.refused(&["health", "--server", &format!("https://{}", node.ready("http"))], 1);
    assert!(told.contains("the port may serve no TLS: try it without"), "{told}");
}

/// Goal: a wrong use of `--server` gets advice, and a token is not sent where others can read it.
#[test]
fn errors_of_a_server_teach() {
    let sandbox = Sandbox::new();
    let web = token(&sandbox, "web", "*", "mint");
    let orders = token(&sandbox, "orders", "orders-*", "admin");
    let (node, url) = node(&sandbox);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("http://{free}");
    std::fs::write(sandbox.path("empty"), "\n").unwrap();
    for (args, code, wanted) in [
        (&["ns", "list", "--server", &url][..], 2, "token"),
        (&["ns", "list", "--server", &url, "--token", &web], 2, "the right admin"),
        (
            &["ns", "list", "--server", &url, "--token", "hunter2"],
            2,
            "--token: not a token: expected the text that `snowmint token create` printed",
        ),
        (&["ns", "list", "--server", &url, "--token", ""], 2, "--token: empty: expected the text"),
        (
            &["ns", "list", "--server", &url, "--token-file", "tokens.toml"],
            2,
            "--token-file: tokens.toml: more than a token (the file of `serve --tokens-file` holds digests",
        ),
        (&["bench", &url, "--token-file", "tokens.toml"], 2, "--token-file: tokens.toml: more than a token"),
        (
            &["ns", "list", "--server", &url, "--token-file", "empty"],
            2,
            "--token-file: empty: empty: expected",
        ),
        (&["bench", &url, "--token", ""], 2, "--token: empty: expected"),
        (
            &["ns", "add", "n", "--scheme", "segment", "--server", &url, "--token", &orders],
            2,
            "token `orders`",
        ),
        (&["workers", "--server", &url, "--token", &orders], 2, "token `orders`"),
        (&["audit", "--server", &url, "--token", &orders], 2, "or show one namespace: add --namespace NAME"),
        (&["ns", "list", "--server", &url, "--store", "sqlite:x"], 2, "omit --store"),
        (&["ns", "list", "--server", "http://10.0.0.5:1", "--token", &web], 2, "--insecure"),
        (&["ns", "list", "--server-cert", "a", "--server-key", "b"], 2, "belongs to --server"),
        (
            &["ns", "list", "--server", &url, "--token", &orders, "--server-cert", "a", "--server-key", "b"],
            2,
            "belongs to https://",
        ),
        (&["ns", "list", "--server", "ids:8080"], 2, "expected https://HOST:PORT"),
        (&["ns", "list", "--server", &url, "--token-file", "none"], 2, "cannot read none"),
        (&["ns", "list", "--server", &nobody], 1, "no answer from"),
        (&["ns", "drop", "n", "--as", "me", "--server", &url], 2, "--as: with --server"),
        (
            &["ns", "set", "orders-1", "--source", "1/1 sqlite:x", "--server", &url, "--token", &orders],
            2,
            "--source: not through a node",
        ),
    ] {
        let told = sandbox.refused(args, code);
        assert!(told.contains(wanted) && !told.contains("hunter2"), "{args:?}: {told}");
    }
    let unset = Sandbox::new().with_env("SNOWMINT_TOKEN", "");
    let told = unset.refused(&["ns", "list", "--server", &url], 2);
    assert!(told.contains("--token: empty") && told.contains("check SNOWMINT_TOKEN too"), "{told}");
    let with_env =
        Sandbox::new().with_env("SNOWMINT_TOKEN", &orders).with_env("SNOWMINT_STORE", "sqlite:nothing.db");
    with_env.out(&["ns", "add", "orders-1", "--scheme", "segment", "--server", &url]);
    let listed = with_env.out(&["ns", "list", "--json", "--server", &url]);
    assert_eq!(json(&listed)["name"], "orders-1", "a token sees its own namespaces only: {listed}");
    assert!(node.log().contains("namespace served"), "{}", node.log());
}

/// Goal: a token given as a flag without `--server` does not change the local store, and one from the
/// environment does not stop commands on it.
#[test]
fn a_token_flag_needs_a_server_and_a_variable_does_not() {
    let commands: &[&[&str]] = &[
        &["ns", "add", "n", "--scheme", "segment"],
        &["ns", "set", "n", "--text", "{hex}"],
        &["ns", "list"],
        &["ns", "drop", "n"],
        &["range", "--since", "2026-01-01", "--namespace", "n"],
        &["inspect", "--namespace", "n", "17"],
        &["workers"],
        &["workers", "release", "5"],
        &["doctor"],
        &["audit"],
    ];
    let (flagged, variable) = (Sandbox::new(), Sandbox::new().with_env("SNOWMINT_TOKEN", "smt_x"));
    for sandbox in [&flagged, &variable] {
        sandbox.out(&["store", "init", "--data", "b"]);
    }
    for command in commands {
        for token in [&["--token", "smt_x"][..], &["--token=smt_x"]] {
            let told = flagged.refused(&[command, &["--data", "b"][..], token].concat(), 2);
            assert!(told.contains("--token: belongs to --server: add --server URL"), "{command:?}: {told}");
        }
        let ran = variable.run(&[command, &["--data", "b"][..]].concat());
        assert!(!ran.err.contains("--token"), "{command:?}: {ran:?}");
    }
    assert!(flagged.out(&["audit", "--data", "b"]).contains("no changes are recorded"));
    assert!(variable.out(&["audit", "--data", "b"]).contains(" n "));
    let told = flagged.refused(&["log-level", "--token", "smt_x"], 2);
    assert!(told.contains("--server"), "{told}");
    let told = variable.refused(&["log-level"], 2);
    assert!(told.contains("--server: required"), "{told}");
    let told = flagged.refused(&["bench", "--layout", "twitter", "--token", "smt_x"], 2);
    assert!(told.contains("--token"), "{told}");
}
