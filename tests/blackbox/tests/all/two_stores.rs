//! Goal: two stores where one is meant are noticed by everything that can compare two answers. Method: nodes
//! on two files, on two prefixes of one etcd, on a copy of a file, and on an address whose server is replaced
//! by another.

use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use snowmint_test_servers::snowmint::{self, Serve, Server, http};
use snowmint_test_servers::{Etcd, Proxy, port, time};

/// Within this time, everything that watches notices a second store.
const A_MINUTE: Duration = Duration::from_mins(1);

/// Returns the identity that a node shows in the header of its answers.
fn id_of(server: &Server) -> String {
    server.get("/readyz").header("snowmint-store").expect("the header").to_owned()
}

/// Runs `doctor` with more arguments. Returns its exit code and its lines.
fn doctor(folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let ran = snowmint::run(folder, [&["doctor"], args].concat());
    (ran.status.code(), snowmint::text(&ran))
}

fn folders<const N: usize>(root: &Path) -> [std::path::PathBuf; N] {
    std::array::from_fn(|nth| {
        let folder = root.join(nth.to_string());
        std::fs::create_dir(&folder).unwrap();
        folder
    })
}

fn url(server: &Server) -> String {
    format!("http://{}", server.http())
}

/// The two stores of these cases make duplicates: both nodes hold worker 5. `doctor --nodes` names the node
/// of the other store, from either side.
#[test]
fn doctor_names_a_node_on_another_file_or_prefix() {
    let root = tempfile::tempdir().unwrap();
    let [one, other] = folders(root.path());
    let etcd = Etcd::start();
    let prefix = |prefix: &str| format!("etcd://{}?prefix={prefix}/", etcd.address());
    let file = |folder: &Path| format!("sqlite:{}", folder.join("snowmint.db").display());
    for stores in [[file(&one), file(&other)], [prefix("prod"), prefix("prd")]] {
        let start =
            |folder: &Path, store: &str| Serve::new(folder).args(["--store", store, "--worker", "5"]).start();
        let nodes = [start(&one, &stores[0]), start(&other, &stores[1])];
        let ids = nodes.each_ref().map(id_of);
        assert_ne!(ids[0], ids[1]);
        for nth in [0, 1] {
            // The start-up line tells them apart.
            assert!(nodes[nth].log().contains(&ids[nth]), "{}", nodes[nth].log());
            let urls = nodes.each_ref().map(url);
            let (code, text) = doctor(&one, &["--store", &stores[nth], "--nodes", &urls.join(",")]);
            let (own, other) = (&urls[nth], &urls[1 - nth]);
            assert_eq!(code, Some(1), "{text}");
            assert!(text.contains(&format!("ok      identity   {}", ids[nth])), "{text}");
            assert!(
                text.contains(&format!("PROBLEM identity   {other} uses another store: {}", ids[1 - nth])),
                "{text}"
            );
            assert!(!text.contains(&format!("{own} uses")), "{text}");
            let is_praised = text.lines().any(|line| line.starts_with("ok") && line.contains(other.as_str()));
            assert!(!is_praised, "{text}");
        }
    }
}

/// Goal: a copy of a store, which has the same identity, is noticed by the leases. Method: the file of a node
/// is copied, and a second node runs on the copy.
#[test]
fn doctor_and_peers_notice_a_copy_of_the_store() {
    let root = tempfile::tempdir().unwrap();
    let [one, other] = folders(root.path());
    let (first, second) = (port::free(), port::free());
    let peers = format!("http://{first},http://{second}");
    let serve = |folder: &Path, http: SocketAddrV4| {
        Serve::new(folder).ports(http, port::free()).args(["--worker", "5", "--peers", &peers])
    };
    let server = serve(&one, first).start();
    let id = id_of(&server);
    assert!(server.stop().status.success());
    std::fs::create_dir(other.join("data")).unwrap();
    std::fs::copy(one.join("data/snowmint.db"), other.join("data/snowmint.db")).unwrap();

    let nodes = [serve(&one, first).start(), serve(&other, second).start()];
    assert_eq!(nodes.each_ref().map(id_of), [id.clone(), id]);
    let urls = nodes.each_ref().map(url);
    let store = format!("sqlite:{}", one.join("data/snowmint.db").display());
    let (code, text) = doctor(&one, &["--store", &store, "--nodes", &urls.join(",")]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("PROBLEM identity   {}: it holds worker 5 of ", urls[1])), "{text}");
    for nth in [0, 1] {
        let wanted = format!("peer {} holds worker 5 of ", urls[1 - nth].trim_start_matches("http://"));
        nodes[nth].log_with(&wanted, A_MINUTE + Duration::from_secs(30));
        let trouble = nodes[nth].get("/readyz").json()["trouble"].to_string();
        assert!(trouble.contains(&wanted), "{trouble}");
        assert!(nodes[nth].metric("snowmint_peers_with_same_worker") > 0.0);
    }
}

/// Goal: an operator who starts one of three nodes with a wrong prefix finds out within a minute from each
/// of: log, `doctor`, `/readyz`, the data of the console, Prometheus. Method: three nodes that are each
/// other's peers, one of them with a typo.
#[test]
fn one_of_three_nodes_at_the_wrong_prefix_is_noticed_everywhere() {
    let root = tempfile::tempdir().unwrap();
    let folders: [_; 3] = folders(root.path());
    let etcd = Etcd::start();
    let ports = [(); 3].map(|()| port::free());
    let peers = ports.map(|http| format!("http://{http}")).join(",");
    let nodes: Vec<Server> = ["prod", "prod", "prd"]
        .iter()
        .enumerate()
        .map(|(nth, prefix)| {
            let store = format!("etcd://{}?prefix={prefix}/", etcd.address());
            let args = ["--store", &store, "--peers", &peers, "--tokens-file", "tokens.toml"];
            let create = [
                "token",
                "create",
                "ops",
                "--namespaces",
                "*",
                "--rights",
                "mint,inspect,admin",
                "--file",
                "tokens.toml",
            ];
            let token = snowmint::run(&folders[nth], create);
            std::fs::write(folders[nth].join("ops.token"), &token.stdout).unwrap();
            Serve::new(&folders[nth]).ports(ports[nth], port::free()).args(args).start()
        })
        .collect();
    let began = time::now();
    let wrong = ports[2].to_string();
    let (right, other) = (id_of(&nodes[0]), id_of(&nodes[2]));
    for (nth, node) in nodes.iter().enumerate() {
        // Both sides say so.
        let blamed = if nth == 2 { &ports[0].to_string() } else { &wrong };
        let said = format!("peer {blamed} uses another store: ");
        let log = node.log_with(&said, A_MINUTE);
        assert!(log.contains(&right) && log.contains(&other), "{log}");
        let answer = node.get("/readyz");
        assert_eq!(answer.status, 200);
        assert!(answer.json()["trouble"].as_str().unwrap().contains(&said), "{}", answer.body);
        let expected = if nth == 2 { 2.0 } else { 1.0 };
        assert_eq!(node.metric("snowmint_peers_of_other_stores").to_string(), f64::to_string(&expected));
        assert!(
            node.get("/metrics")
                .body
                .contains(&format!("snowmint_store_info{{store=\"{}\"}} 1", id_of(node)))
        );
    }
    let token = std::fs::read_to_string(folders[0].join("ops.token")).unwrap();
    let authorization = format!("Authorization: Bearer {}\r\n", token.trim());
    let fleet = fetch(ports[0], "/v1/admin/fleet", &authorization);
    assert_eq!(fleet["store"]["id"], right.as_str(), "{fleet}");
    let row =
        fleet["peers"].as_array().unwrap().iter().find(|peer| peer["address"] == wrong.as_str()).unwrap();
    assert_eq!(row["store"], other.as_str(), "{row}");
    let problems = fleet["problems"].as_array().unwrap();
    let is_named =
        |it: &Value| it["severity"] == "error" && it["what"].as_str().unwrap().contains("uses another store");
    assert!(problems.iter().any(is_named), "{fleet}");
    let server = format!("http://{}", ports[0]);
    let (code, text) = doctor(&folders[0], &["--server", &server, "--token-file", "ops.token"]);
    assert!(
        code == Some(1) && text.contains(&format!("PROBLEM identity   {wrong} uses another store")),
        "{text}"
    );
    prometheus_fires(root.path(), &ports);
    assert!(began.elapsed() < A_MINUTE + Duration::from_secs(30), "{:?}", began.elapsed());
}

fn fetch(address: SocketAddrV4, path: &str, headers: &str) -> Value {
    http::Http::connect(address, A_MINUTE).unwrap().get(path, headers).unwrap().json()
}

/// Waits until a real Prometheus that scrapes these nodes fires the alert.
fn prometheus_fires(folder: &Path, nodes: &[SocketAddrV4]) {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring/alerts.yml");
    let targets: Vec<String> = nodes.iter().map(|node| format!("'{node}'")).collect();
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\nscrape_configs:\n  - job_name: snowmint\n    \
         static_configs: [{{targets: [{}]}}]\n",
        rules.canonicalize().unwrap().display(),
        targets.join(", ")
    );
    let (file, address) = (folder.join("prometheus.yml"), port::free());
    std::fs::write(&file, config).unwrap();
    let mut prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
        .arg(format!("--web.listen-address={address}"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let fires = || {
        let answer = http::get(address, "/api/v1/alerts").ok()?.body;
        (answer.contains("SnowmintTwoStores") && answer.contains("firing")).then_some(())
    };
    let is_told = time::holds_within(A_MINUTE, || fires().is_some());
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
    assert!(is_told, "SnowmintTwoStores does not fire");
}

/// Goal: a node whose address leads to another store writes nothing there, serves to the end of its lease,
/// says so, and goes on when its own store is back. Method: a proxy that leads to one etcd, then to another,
/// then back.
#[test]
fn a_node_stops_at_another_store_and_goes_on_at_its_own() {
    let root = tempfile::tempdir().unwrap();
    let (own, other) = (Etcd::start(), Etcd::start());
    // The other one is a store too, with an identity.
    let init = ["store", "init", "--store", &format!("etcd://{}", other.address())];
    assert!(snowmint::run(root.path(), init).status.success());
    let proxy = Proxy::start(own.address());
    let store = format!("etcd://{}", proxy.address());
    let server = Serve::new(root.path()).args(["--store", &store, "--window", "6s"]).start();
    let id = id_of(&server);

    proxy.lead_to(other.address());
    let log = server.log_with("another store answers there: its identity is smst_", A_MINUTE);
    assert!(log.contains(&id), "{log}");
    let answer = server.get("/readyz");
    assert_eq!(answer.status, 200, "it serves to the end of its lease: {}", answer.body);
    assert!(
        answer.json()["trouble"].as_str().unwrap().contains("another store answers at"),
        "{}",
        answer.body
    );
    assert_eq!(server.metric("snowmint_store_replaced").to_string(), "1");
    assert!(!server.take(1).is_empty());
    time::eventually("the end of the lease", A_MINUTE, || {
        (server.get("/readyz").status == 503).then_some(())
    });
    // Nothing was claimed there.
    let workers = snowmint::run(root.path(), ["workers", "--store", &format!("etcd://{}", other.address())]);
    assert!(snowmint::text(&workers).contains("no node has held a worker"), "{}", snowmint::text(&workers));

    proxy.lead_to(own.address());
    time::eventually("ids", A_MINUTE, || (server.get("/readyz").status == 200).then_some(()));
    assert_eq!((id_of(&server), server.metric("snowmint_store_replaced").to_string()), (id, "0".to_owned()));
    assert!(!server.take(1).is_empty());
}

/// Goal: with `--expect-store` a node refuses another store, and an empty one. Method: the flag and the
/// variable, right and wrong.
#[test]
fn a_node_refuses_a_store_that_it_does_not_expect() {
    let root = tempfile::tempdir().unwrap();
    let [one, other] = folders(root.path());
    let id = id_of(&Serve::new(&one).start());
    let wrong = id_of(&Serve::new(&other).start());
    let again = Serve::new(&one).env("SNOWMINT_EXPECT_STORE", &id).start();
    assert_eq!(id_of(&again), id);
    drop(again);
    Serve::new(&one)
        .args(["--expect-store", &wrong])
        .refused()
        .assert_says(&["--expect-store: ", &format!("its identity is {id}, expected {wrong}")]);
    Serve::new(&one)
        .data(&root.path().join("empty"))
        .args(["--expect-store", &id])
        .refused()
        .assert_says(&["missing"]);
    Serve::new(&one)
        .args(["--expect-store", "prod"])
        .refused()
        .assert_says(&["invalid store identity \"prod\""]);
}
