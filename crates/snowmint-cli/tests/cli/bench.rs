//! `snowmint bench`, against a real server and in process.

use crate::run::{Sandbox, json};

#[test]
fn ids_are_drawn_over_each_protocol() {
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&[]);
    let (http, resp) = (server.ready("http"), server.ready("resp"));
    for (target, batch) in [
        (format!("http://{http}"), "1"),
        (format!("http://{http}"), "100"),
        (format!("redis://{resp}"), "1"),
        (format!("redis://{resp}/"), "100"),
    ] {
        let read = json(&sandbox.out(&["bench", &target, "--duration", "300ms", "--batch", batch, "--json"]));
        let number = |name: &str| read[name].as_u64().unwrap();
        let batch: u64 = batch.parse().unwrap();
        assert!(number("ids") > 0 && number("ids") == number("requests") * batch, "{read}");
        assert_eq!((number("checked"), number("duplicates")), (number("ids"), 0), "{read}");
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
    let target = format!("http://{http}");
    let ran = sandbox.run(&["bench", &target, "--namespace", "nothing", "--duration", "200ms"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("see `snowmint explain unknown-namespace`"), "{}", ran.err);
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
    for (target, wanted) in [("ftp://localhost", "invalid URL"), ("http://localhost/v1", "invalid URL")] {
        assert!(sandbox.refused(&["bench", target], 2).contains(wanted), "{target}");
    }
    let refused = sandbox.refused(&["bench", "http://127.0.0.1:1", "--duration", "100ms"], 1);
    assert!(refused.contains("cannot draw from http://127.0.0.1:1"), "{refused}");
}
