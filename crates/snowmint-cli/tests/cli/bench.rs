//! `snowmint bench`, against a real server and in process.

use snowmint_test_servers::Certificates;

use crate::support::{Sandbox, json};

#[test]
fn ids_are_drawn_over_each_protocol() {
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&["--grpc", "127.0.0.1:0"]);
    let (http, resp, grpc) = (server.ready("http"), server.ready("resp"), server.ready("grpc"));
    for (target, batch) in [
        (format!("http://{http}"), "1"),
        (format!("http://{http}"), "100"),
        (format!("redis://{resp}"), "1"),
        (format!("redis://{resp}/"), "100"),
        (format!("grpc://{grpc}"), "1"),
        (format!("grpc://{grpc}/"), "10000"),
        // The HTTP port also answers gRPC.
        (format!("grpc://{http}"), "100"),
    ] {
        let read = json(&sandbox.out(&["bench", &target, "--duration", "300ms", "--batch", batch, "--json"]));
        let number = |name: &str| read[name].as_u64().unwrap();
        let batch: u64 = batch.parse().unwrap();
        assert!(number("ids") > 0 && number("ids") == number("requests") * batch, "{read}");
        assert_eq!((number("checked"), number("duplicates")), (number("ids"), 0), "{read}");
        assert_eq!(read["errors"], json("{}"), "{read}");
        let protocol = target.split("://").next().unwrap().replace("redis", "resp");
        assert_eq!(read["protocol"], protocol, "{read}");
        let us = |name: &str| read["latency_us"][name].as_f64().unwrap();
        assert!(us("p50") > 0.0 && us("p50") <= us("p99") && us("p99") <= us("max"), "{read}");
    }
    let args = ["bench", &format!("http://{http}"), "--duration", "200ms", "--svg", "curve.svg"];
    let text = sandbox.out(&args);
    assert!(
        text.starts_with("measured    4 connections to http://") && text.contains("duplicates  none"),
        "{text}"
    );
    assert!(std::fs::read_to_string(sandbox.path("curve.svg")).unwrap().contains("<polyline"));
    for target in [format!("http://{http}"), format!("grpc://{grpc}")] {
        let ran = sandbox.run(&["bench", &target, "--namespace", "nothing", "--duration", "200ms"]);
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(ran.err.contains("see `snowmint explain unknown-namespace`"), "{}", ran.err);
    }
    // A port of the Redis protocol gives the gRPC client no answer that it understands.
    let target = format!("grpc://{resp}");
    let ran = sandbox.run(&["bench", &target, "--duration", "200ms"]);
    assert!(ran.code == 1 && ran.err.contains("no id was drawn"), "{}", ran.err);
}

/// Goal: text ids can be drawn over gRPC, where clients have to ask for texts.
#[test]
fn texts_are_drawn_over_grpc() {
    let sandbox = Sandbox::new();
    let file = "[namespaces.orders]\nscheme = \"segment\"\ntext = \"ORD-{number:6}\"\n";
    std::fs::write(sandbox.path("namespaces.toml"), file).unwrap();
    let mut server = sandbox.serve(&["--namespaces-file", "namespaces.toml"]);
    let target = format!("grpc://{}", server.ready("http"));
    let run = ["bench", &target, "--namespace", "orders", "--batch", "10", "--duration", "300ms", "--json"];
    let read = json(&sandbox.out(&run));
    let number = |name: &str| read[name].as_u64().unwrap();
    assert!(number("ids") > 0 && number("ids") == number("requests") * 10, "{read}");
    assert_eq!((number("checked"), number("duplicates")), (number("ids"), 0), "{read}");
    assert_eq!(read["errors"], json("{}"), "{read}");
}

/// Goal: over TLS, the node is verified, and the token is that of the call; it never crosses a network in
/// plain text.
#[test]
fn a_token_is_sent_over_grpc_with_tls() {
    let sandbox = Sandbox::new();
    let created = sandbox.run(&["token", "create", "web", "--namespaces", "*", "--file", "tokens.toml"]);
    assert_eq!(created.code, 0, "{created:?}");
    std::fs::write(sandbox.path("web.token"), &created.out).unwrap();
    let certificates = Certificates::make();
    let [certificate, key, authority] =
        [certificates.certificate(), certificates.key(), certificates.authority()]
            .map(|it| it.to_str().unwrap());
    let mut server = sandbox.serve(&[
        "--grpc",
        "127.0.0.1:0",
        "--tokens-file",
        "tokens.toml",
        "--tls-cert",
        certificate,
        "--tls-key",
        key,
    ]);
    for port in ["grpc", "http"] {
        let address = server.ready(port);
        let target = format!("grpcs://localhost:{}", address.rsplit(':').next().unwrap());
        let run = ["bench", &target, "--server-ca", authority, "--duration", "300ms", "--json"];
        let read = json(&sandbox.out(&[&run[..], &["--token-file", "web.token"]].concat()));
        assert!(read["ids"].as_u64().unwrap() > 0 && read["errors"] == json("{}"), "{read}");
        let ran = sandbox.run(&run);
        assert!(ran.code == 1 && ran.err.contains("`snowmint explain unauthorized`"), "{}", ran.err);
        let unknown = sandbox.refused(&["bench", &target, "--duration", "300ms"], 1);
        assert!(unknown.contains("cannot draw from grpcs://localhost"), "{unknown}");
    }
    let plain = ["bench", "grpc://10.0.0.5:1", "--token-file", "web.token", "--yes"];
    assert!(sandbox.refused(&plain, 2).contains("use https://, grpcs:// or rediss://"));
}

#[test]
fn a_process_draws_by_itself() {
    let read = json(&Sandbox::new().out(&[
        "bench",
        "--layout",
        "twitter",
        "--threads",
        "2",
        "--duration",
        "300ms",
        "--json",
    ]));
    assert_eq!((&read["protocol"], &read["duplicates"]), (&"process".into(), &0.into()), "{read}");
    assert!(read["ids"].as_u64().unwrap() > 1000, "{read}");
}

#[test]
fn a_result_is_shown_also_without_its_file() {
    let sandbox = Sandbox::new();
    let ran =
        sandbox.run(&["bench", "--layout", "twitter", "--duration", "100ms", "--svg", "missing/curve.svg"]);
    assert!(ran.code == 2 && ran.out.contains("duplicates  none"), "{} {}", ran.code, ran.out);
    assert!(ran.err.contains("--svg: cannot write missing/curve.svg"), "{}", ran.err);
}

#[test]
fn another_machine_is_not_loaded_by_accident() {
    let sandbox = Sandbox::new();
    let refused = sandbox.refused(&["bench", "http://ids.example.com"], 2);
    assert!(refused.contains("is another machine") && refused.contains("--yes"), "{refused}");
    for (target, wanted) in [
        ("ftp://localhost", "invalid URL"),
        ("http://localhost/v1", "invalid URL"),
        ("grpc://localhost/v1", "invalid URL"),
    ] {
        assert!(sandbox.refused(&["bench", target], 2).contains(wanted), "{target}");
    }
    for target in ["http://127.0.0.1:1", "grpc://127.0.0.1:1"] {
        let refused = sandbox.refused(&["bench", target, "--duration", "100ms"], 1);
        assert!(refused.contains(&format!("cannot draw from {target}")), "{refused}");
    }
}
