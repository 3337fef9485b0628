//! Goal: a node that is killed is noticed by those who look at another node. Method: two nodes on one store,
//! one of which is killed without a word.

use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use serde_json::Value;
use snowmint_test_servers::snowmint::http::Http;
use snowmint_test_servers::snowmint::{self, Serve};
use snowmint_test_servers::{Redis, time};

const PATIENCE: Duration = Duration::from_mins(1);

#[test]
fn fleet_and_doctor_notice_a_killed_node() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    for folder in [&one, &other] {
        std::fs::create_dir(folder).unwrap();
    }
    let redis = Redis::start();
    let store = format!("redis://{}", redis.address());
    let create =
        ["token", "create", "ops", "--namespaces", "*", "--rights", "admin", "--file", "tokens.toml"];
    let token = snowmint::run(&one, create);
    std::fs::write(one.join("ops.token"), &token.stdout).unwrap();
    let header = format!("Authorization: Bearer {}\r\n", String::from_utf8(token.stdout).unwrap().trim());

    let mut killed = Serve::new(&other).args(["--store", &store, "--holder", "killed"]).start();
    let address = killed.http().to_string();
    let peers = format!("http://{address}");
    let args = ["--store", &store, "--tokens-file", "tokens.toml", "--peers", &peers];
    let server = Serve::new(&one).args(args).start();
    let doctor = || {
        let server = format!("http://{}", server.http());
        let ran = snowmint::run(&one, ["doctor", "--server", &server, "--token-file", "ops.token"]);
        (ran.status.code(), snowmint::text(&ran))
    };
    let (code, text) = doctor();
    assert!(
        code == Some(0) && text.contains(&format!("ok      node       {address}: it makes ids")),
        "{text}"
    );

    // Each state of the stream, as the console gets it.
    let mut viewer = Http::connect(server.http(), PATIENCE).unwrap();
    let request = format!("GET /v1/admin/events HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
    viewer.write(request.as_bytes()).unwrap();
    let lines = BufReader::new(viewer.socket().try_clone().unwrap()).lines();
    let mut states = lines.map_while(Result::ok).filter_map(|line| {
        let data = line.strip_prefix("data: ")?;
        serde_json::from_str::<Value>(data).ok().filter(|state| state["problems"].is_array())
    });
    let has = |state: &Value, severity: &str, text: &str| {
        let mut problems = state["problems"].as_array().unwrap().iter();
        problems.any(|it| it["severity"] == severity && it["what"].as_str().unwrap().contains(text))
    };
    let silent = format!("peer {address} does not answer");
    let first = states.next().unwrap();
    assert_eq!(first["peers"][0]["state"], "ready", "{first}");
    let row = |state: &Value| {
        let all = state["nodes"].as_array().unwrap();
        all.iter().position(|node| node["name"] == "killed").map(|at| (at, all[at].clone()))
    };
    let (_, node) = row(&first).unwrap();
    assert_eq!((&node["state"], &node["address"]), (&"alive".into(), &address.as_str().into()), "{first}");
    assert_eq!(
        (node["workers"].as_array().unwrap().len(), &node["store"]),
        (1, &first["store"]["id"]),
        "{first}"
    );
    assert!(node["version"].is_string() && first["nodes"].as_array().unwrap().len() == 2, "{first}");
    assert!(!has(&first, "error", &silent), "{first}");

    killed.kill();
    let began = time::now();
    let state = states
        .find(|state| has(state, "error", &silent) && has(state, "warning", "without a release by killed"));
    let state = state.unwrap_or_else(|| panic!("not noticed within {:?}: {}", began.elapsed(), server.log()));
    assert_eq!(state["peers"][0]["state"], "silent", "{state}");
    // It is the first that one sees, by the name that it had.
    let (place, node) = row(&state).unwrap();
    assert_eq!((place, &node["state"]), (0, &"gone".into()), "{state}");
    assert!(node["seen_unix_ms"].is_u64() && node["why"].is_string(), "{state}");
    let (code, text) = doctor();
    assert!(code == Some(1) && text.contains(&format!("no metrics from node {address}")), "{text}");
    assert!(server.stop().status.success());
}
