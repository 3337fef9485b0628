//! `snowmint serve`, as a process with sockets and signals.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use snowmint::utc::Utc;
use snowmint::{Clock as _, Layout, WallClock};
use snowmint_test_servers::{Certificates, Redis};

use crate::support::{Sandbox, ask, get, json};

#[test]
fn ids_come_over_http_and_the_redis_protocol() {
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&["--namespaces", "orders,users"]);
    let (status, body) = server.http("/v1/ids/orders?count=3");
    assert_eq!(status, 200, "{body}");
    let ids: Vec<u64> = json(&body)["ids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap().parse().unwrap())
        .collect();
    assert!(ids.len() == 3 && ids.is_sorted_by(|a, b| a < b), "{body}");
    assert_eq!(server.http("/readyz").0, 200);
    assert_eq!(server.http("/v1/ids/default").0, 404);

    let mut stream = TcpStream::connect(server.ready("resp")).unwrap();
    stream.write_all(b"*2\r\n$7\r\nID.NEXT\r\n$5\r\nusers\r\n").unwrap();
    let mut replies = BufReader::new(stream).lines().map(Result::unwrap);
    assert_eq!(replies.next().as_deref(), Some("$19"));
    let id: u64 = replies.next().unwrap().parse().unwrap();
    assert!(id > ids[2]);
    let inspected = json(&sandbox.out(&["inspect", "--json", &id.to_string()]));
    assert_eq!(inspected["worker"].to_string(), server.ready("worker"));
}

/// The layout of `pod-ip` with another epoch: five of its eight and a half years have passed. And the day on
/// which it ends.
fn layout_that_ends_soon() -> (Layout, String) {
    let epoch = WallClock.unix_ms() - 5 * 365 * 86_400_000;
    let layout: Layout = format!("time:28@1s worker:24 sequence:11 epoch:{epoch}").parse().unwrap();
    let ends = Utc(layout.ends_at_unix_ms()).to_string();
    (layout, ends[..10].to_owned())
}

#[test]
fn the_line_that_says_it_is_ready_says_where_and_how_long() {
    let sandbox = Sandbox::new();
    let (layout, ends) = layout_that_ends_soon();
    let mut server = sandbox.serve(&["--resp", "off", "--layout", &layout.to_string()]);
    assert!(server.ready("http").starts_with("127.0.0.1:"));
    assert_ne!(server.ready("http"), "127.0.0.1:0");
    assert_eq!(server.ready("resp"), "off");
    assert_eq!(server.ready("ends"), ends);
    assert_eq!(server.ready("layout"), layout.to_string());
    server.wait_for(&format!("namespace default: the layout ends on {ends}, in 3.5 years: "));
}

/// Goal: a namespace's own layout gets the same warning as the service's. Method: one namespace in a file and
/// one in the store, under a service layout that lasts for decades.
#[test]
fn namespaces_are_warned_of_before_their_layouts_end() {
    let sandbox = Sandbox::new();
    let (of_file, ends) = layout_that_ends_soon();
    let of_store = of_file.to_string().replace("worker:24", "worker:23");
    let toml = format!("[namespaces.filed]\nscheme = 'snowflake'\nlayout = '{of_file}'\n");
    std::fs::write(sandbox.path("ns.toml"), toml).unwrap();
    sandbox.out(&["store", "init"]);
    let added = sandbox.run(&["ns", "add", "stored", "--scheme", "snowflake", "--layout", &of_store]);
    let warned = added.err.contains(&format!("warning: stored: the layout ends on {ends}, in 3.5 years: "));
    assert!(added.code == 0 && warned, "{}", added.err);
    let mut server = sandbox.serve(&["--resp", "off", "--namespaces-file", "ns.toml"]);
    for name in ["filed", "stored"] {
        server.wait_for(&format!("namespace {name}: the layout ends on {ends}, in 3.5 years: "));
    }
    assert!(!server.log().contains("namespace default: the layout ends"), "{}", server.log());
    let (_, metrics) = server.http("/metrics");
    let left = |name: &str| {
        let label = format!("snowmint_layout_remaining_seconds{{namespace=\"{name}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&label)).unwrap().parse::<f64>().unwrap()
    };
    let years = |name| left(name) / 31_556_952.0;
    assert!(years("filed") > 3.5 && years("filed") < 3.6 && years("default") > 40.0, "{metrics}");
}

/// Goal: SIGTERM releases the lease. Method: a window of 1 h, which the test cannot wait for.
#[test]
fn a_signal_ends_in_order_and_gives_the_lease_back() {
    for signal in ["TERM", "INT"] {
        let sandbox = Sandbox::new();
        let mut server = sandbox.serve(&["--worker", "9", "--window", "1h"]);
        let (_, body) = server.http("/v1/ids/default");
        let last: u64 = json(&body)["ids"][0].as_str().unwrap().parse().unwrap();
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0), "{}", server.log());
        let next: u64 = sandbox.out(&["new", "--worker", "9"]).trim().parse().unwrap();
        assert!(next > last);
    }
}

/// Goal: two signals at the same instant end it in order, as one does: `timeout` sends two. Method: both are
/// pending while the process is stopped.
#[test]
fn two_signals_at_once_give_the_lease_back() {
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&["--worker", "9", "--window", "1h"]);
    for signal in ["STOP", "TERM", "INT", "CONT"] {
        server.signal(signal);
    }
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    sandbox.out(&["new", "--worker", "9"]);
}

/// Connects to a socket once a server listens there. A read that takes a minute fails.
fn connect(path: &Path) -> UnixStream {
    for _ in 0..12_000 {
        if let Ok(stream) = UnixStream::connect(path) {
            stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
            return stream;
        }
        sleep(Duration::from_millis(5));
    }
    panic!("no server after a minute");
}

/// Goal: a reader of the log that stops reading stops nothing else: ids, health and signals go on, the dropped lines
/// are counted, and the process ends. Method: standard error is a FIFO that is open for reading and not read,
/// and each request is logged, until lines are dropped.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let sandbox = Sandbox::new();
    let (fifo, socket) = (sandbox.path("log"), sandbox.path("socket"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Open for both: opening one end alone would wait for the other.
    let log = std::fs::File::options().read(true).write(true).open(&fifo).unwrap();
    let http = format!("unix:{}", socket.display());
    let mut command = sandbox.command(&["serve", "--resp", "off", "--access-log", "--http", &http]);
    let mut child = command.stderr(log.try_clone().unwrap()).spawn().unwrap();
    let dropped = || {
        let (_, metrics) = ask(connect(&socket), "/metrics");
        let dropped = metrics.lines().find_map(|line| line.strip_prefix("snowmint_log_lines_dropped_total "));
        dropped.unwrap().parse::<u64>().unwrap()
    };
    let request = "GET /v1/ids/default HTTP/1.1\r\nHost: localhost\r\n";
    let requests = format!("{}{request}Connection: close\r\n\r\n", format!("{request}\r\n").repeat(99));
    for round in 0.. {
        assert!(round < 600, "60,000 requests, and no line was dropped");
        let (mut stream, mut answers) = (connect(&socket), String::new());
        stream.write_all(requests.as_bytes()).unwrap();
        stream.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 100, "{answers:.1000}");
        if dropped() > 0 {
            break;
        }
    }
    for path in ["/readyz", "/healthz"] {
        assert_eq!(ask(connect(&socket), path).0, 200);
    }
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    for _ in 0..12_000 {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(0));
            return;
        }
        sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    panic!("the process did not end within a minute of SIGTERM");
}

/// Goal: the reason of a failed start comes after the log lines before it, whole, although the log has a
/// thread of its own.
#[test]
fn the_last_line_says_why_the_start_failed() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = taken.local_addr().unwrap().to_string();
    for _ in 0..5 {
        let ran = sandbox.run(&["serve", "--store", "memory:", "--resp", "off", "--http", &http]);
        assert_eq!(ran.code, 1, "{}", ran.err);
        let lines: Vec<_> = ran.err.lines().collect();
        let (last, before) = lines.split_last().unwrap();
        assert!(last.starts_with("error: cannot listen on") && !before.is_empty(), "{}", ran.err);
        assert!(before.iter().all(|line| !line.starts_with("error:")), "{}", ran.err);
    }
}

#[test]
fn new_works_beside_a_server_on_the_same_file() {
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&[]);
    let id = sandbox.out(&["new"]);
    let worker = json(&sandbox.out(&["inspect", "--json", id.trim()]))["worker"].to_string();
    assert_ne!(worker, server.ready("worker"));
}

/// Goal: what most users set comes first in the help of `serve`.
#[test]
fn help_begins_with_addresses_and_the_store() {
    for help in ["-h", "--help"] {
        let text = Sandbox::new().out(&["serve", help]);
        let is_heading = |line: &&str| line.ends_with(':') && !line.starts_with([' ', '-']);
        let headings: Vec<&str> = text.lines().filter(is_heading).collect();
        assert_eq!(headings[..2], ["Addresses:", "Store and namespaces:"], "{help}: {headings:?}");
        assert!(headings.contains(&"Global options:"), "{headings:?}");
    }
}

#[test]
fn a_misspelt_variable_is_named() {
    let sandbox =
        Sandbox::new().with_env("SNOWMINT_STOER", "etcd://x").with_env("SNOWMINT_SERVICE_HOST", "10.0.0.1");
    let mut server = sandbox.serve(&[]);
    let warning = server.wait_for("environment variable");
    assert_eq!(
        warning["message"],
        "environment variable SNOWMINT_STOER is unknown and ignored: did you mean SNOWMINT_STORE?"
    );
    assert_eq!(server.log().matches("environment variable").count(), 1, "{}", server.log());
}

/// Goal: a node does not serve from another store or under another worker than its operator meant.
#[test]
fn a_variable_that_means_the_store_is_refused() {
    for (name, meant) in [
        ("SNOWMINT_STORE_URL", "SNOWMINT_STORE"),
        ("SNOWMINT_DATACENTER_ID", "SNOWMINT_DATACENTER"),
        ("SNOWMINT_WORKER_ID", "SNOWMINT_WORKER"),
    ] {
        let sandbox = Sandbox::new().with_env(name, "7");
        let told = sandbox.run(&["serve", "--http", "127.0.0.1:0", "--resp", "off"]);
        let wanted = format!("error: unknown environment variable {name}: did you mean {meant}?");
        assert!(told.code == 2 && told.err.starts_with(&wanted), "{name}: {told:?}");
        assert!(!sandbox.path("snowmint-data").exists(), "{name}");
    }
}

#[test]
fn a_port_in_use_is_told_and_costs_no_lease() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, other) in [("--http", "--resp"), ("--resp", "--http")] {
        let sandbox = Sandbox::new();
        let told = sandbox.run(&["serve", flag, &address, other, "off", "--worker", "3", "--window", "1h"]);
        assert_eq!(told.code, 1, "{}", told.err);
        let line = told.err.lines().last().unwrap();
        assert!(
            line.starts_with(&format!("error: cannot listen on {address} ({flag}): another program")),
            "{line}"
        );
        sandbox.out(&["new", "--worker", "3"]);
    }
}

#[test]
fn a_flag_that_cannot_be_is_named_before_anything_is_opened() {
    let sandbox = Sandbox::new();
    for (args, flag) in [
        (&["--http", "8080"][..], "--http"),
        (&["--http", "127.0.0.1:99999"], "--http"),
        (&["--resp", ":6380"], "--resp"),
        (&["--http", "off", "--resp", "off"], "--http off and --resp off"),
        (&["--http", "127.0.0.1:7", "--resp", "127.0.0.1:7"], "--http and --resp are both"),
        (&["--http", "127.0.0.1:7", "--probe", "127.0.0.1:7"], "--http and --probe are both"),
        (&["--http", "off", "--resp", "off", "--probe", "127.0.0.1:7"], "--http off and --resp off"),
        (&["--http", "unix:"], "--http"),
        (&["--thrift", "unix:/run/thrift"], "--thrift"),
        (&["--http", "unix:a", "--resp", "unix:a"], "--http and --resp are both unix:a"),
        (&["--tls-cert", "server.pem"], "--tls-key"),
        (&["--tls-key", "server.key"], "--tls-cert"),
        (&["--tls-client-ca", "ca.pem"], "--tls-cert"),
        (&["--tls-cert", "none.pem", "--tls-key", "none.key"], "--tls-cert"),
        (&["--store", "leases.db"], "--store"),
        (&["--layout", "nonesuch"], "--layout"),
        (&["--layout", "time:37 worker:20 sequence:16"], "--layout"),
        (&["--layout", "baidu"], "--layout"),
        (&["--layout", "leaf", "--worker", "1024"], "--worker"),
        (&["--worker", "x"], "--worker"),
        (&["--worker", "-1"], "--worker"),
        (&["--datacenter", "32"], "--datacenter"),
        (&["--layout", "leaf", "--datacenter", "1"], "--datacenter"),
        (&["--namespaces", "a b"], "--namespaces"),
        (&["--namespaces", "good,"], "--namespaces"),
        (&["--namespaces", "ümlaut"], "--namespaces"),
        (&["--window", "10"], "--window"),
        (&["--window", "1ms"], "--window"),
        (&["--window", "48h"], "--window"),
        (&["--layout", "game", "--window", "2s"], "--window"),
        (&["--rule", "sleep(5ms)"], "--rule"),
        (&["--sequence-start", "often"], "--sequence-start"),
        (&["--layout", "game", "--rule", "borrow(10ms)"], "--rule"),
        (&["--holder", "two words"], "--holder"),
        (&["--log-format", "xml"], "--log-format"),
        (&["--log", "loud"], "--log"),
    ] {
        let told = sandbox.refused(&[&["serve"], args].concat(), 2);
        assert!(told.contains(flag), "{args:?}: {told}");
    }
    assert!(!sandbox.path("snowmint").exists());
}

#[test]
fn every_flag_has_a_variable() {
    for (name, value, flag) in [
        ("SNOWMINT_HTTP", "x", "--http"),
        ("SNOWMINT_RESP", "x", "--resp"),
        ("SNOWMINT_INSECURE", "x", "--insecure"),
        ("SNOWMINT_LAYOUT", "x", "--layout"),
        ("SNOWMINT_DATACENTER", "x", "--datacenter"),
        ("SNOWMINT_WORKER", "x", "--worker"),
        ("SNOWMINT_NAMESPACES", "a b", "--namespaces"),
        ("SNOWMINT_WINDOW", "x", "--window"),
        ("SNOWMINT_RULE", "x", "--rule"),
        ("SNOWMINT_SEQUENCE_START", "random(0)", "--sequence-start"),
        ("SNOWMINT_HOLDER", "a b", "--holder"),
        ("SNOWMINT_LOG_FORMAT", "x", "--log-format"),
        ("SNOWMINT_LOG", "x", "--log"),
    ] {
        let told = Sandbox::new().with_env(name, value).refused(&["serve"], 2);
        assert!(told.contains(flag) && told.contains(&format!("environment variable {name}\n")), "{told}");
    }
    let sandbox = Sandbox::new().with_env("SNOWMINT_STORE", "x");
    assert!(sandbox.refused(&["serve", "--http", "127.0.0.1:0", "--resp", "off"], 2).contains("--store"));
    let sandbox = Sandbox::new().with_env("SNOWMINT_DATA", "elsewhere");
    sandbox.out(&["new"]);
    assert!(sandbox.path("elsewhere/snowmint.db").is_file());
}

/// Method: the first node's lease reaches 1 h ahead, so that the second node need not watch its renewals.
#[test]
fn a_worker_that_another_node_holds_is_refused_with_its_name() {
    let sandbox = Sandbox::new();
    let _first = sandbox.serve(&["--worker", "9", "--window", "1h", "--holder", "first-node"]);
    let mut second = sandbox.start(&["--worker", "9", "--holder", "second-node"]);
    assert_eq!(second.wait().code(), Some(1));
    let log = second.log();
    let told = json(log.lines().last().unwrap());
    let message = told["message"].as_str().unwrap();
    assert!(message.starts_with("worker 9 is held by first-node until "), "{told}");
    let new = sandbox.refused(&["new", "--worker", "9"], 1);
    assert!(new.contains("worker 9 is held by first-node until "), "{new}");
}

#[test]
fn a_namespace_of_another_layout_is_refused_with_both_texts() {
    let sandbox = Sandbox::new();
    drop(sandbox.serve(&[]));
    let told = sandbox.refused(&["serve", "--layout", "leaf", "--http", "127.0.0.1:0", "--resp", "off"], 2);
    for wanted in [
        "namespace default is pinned to `snowflake time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010",
        "and cannot become `snowflake time:41@1ms worker:10 sequence:12 epoch:2010",
    ] {
        assert!(told.contains(wanted), "{told}");
    }
    drop(sandbox.serve(&["--layout", "leaf", "--namespaces", "other"]));
}

/// Goal: a node that has to wait for a worker reports that it is alive, that it is not ready, and why.
/// Method: a layout with one worker, which another node holds for 1 h.
#[test]
fn a_node_without_a_lease_answers_that_it_has_none() {
    let sandbox = Sandbox::new();
    let _first = sandbox.serve(&["--layout", "mastodon", "--window", "1h", "--holder", "first-node"]);
    let mut second = sandbox.start(&["--layout", "mastodon", "--resp", "off"]);
    let line = second.wait_for("no lease yet");
    assert!(line["message"].as_str().unwrap().contains("first-node"), "{line}");
    let address = second.wait_for("listening")["http"].as_str().unwrap().to_owned();
    assert_eq!(get(&address, "/healthz").0, 200);
    assert_eq!(get(&address, "/readyz").0, 503);
    let (status, body) = get(&address, "/v1/ids/default");
    assert!(status == 503 && body.contains("first-node"), "{status} {body}");
    second.signal("TERM");
    assert_eq!(second.wait().code(), Some(0), "{}", second.log());
}

/// Goal: a lease in memory is allowed, with a warning.
#[test]
fn a_store_in_memory_is_warned_of() {
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&["--store", "memory:"]);
    server.wait_for("--store memory: leases are lost");
    assert!(!sandbox.path("snowmint").exists());
}

/// Goal: the operator who starts a node sees among which processes its ids are unique, and gets a warning if
/// other machines can connect but the store is a file. Method: the ready line, and the log of nodes that
/// listen on loopback and elsewhere.
#[test]
fn the_ready_line_names_the_visibility_of_the_store() {
    let sandbox = Sandbox::new();
    let warning = "coordinates the processes of this machine only";
    let mut server = sandbox.serve(&["--resp", "off"]);
    assert_eq!(server.ready("version"), env!("CARGO_PKG_VERSION"));
    let store = format!("sqlite:{}", sandbox.path("snowmint/snowmint.db").display());
    assert_eq!(server.ready("store"), store);
    assert_eq!(server.ready("visibility"), "the processes of this machine that use this store");
    assert!(!server.log().contains(warning), "{}", server.log());
    let mut outside = sandbox.serve(&["--resp", "0.0.0.0:0", "--insecure"]);
    outside.ready("visibility");
    outside.wait_for(&format!("listening on 0.0.0.0:0 without --store: {store} {warning}"));
    let mut named = sandbox.serve(&["--resp", "0.0.0.0:0", "--store", "sqlite:named.db", "--insecure"]);
    let place = format!("sqlite:{}", sandbox.path("named.db").canonicalize().unwrap().display());
    assert_eq!(named.ready("store"), place, "a relative path is another store in another folder");
    assert!(!named.log().contains(warning), "{}", named.log());
}

/// Goal: no node serves other machines by accident. Method: each protocol's flag; then the two commands in
/// the error.
#[test]
fn a_port_that_other_machines_reach_needs_a_decision() {
    let sandbox = Sandbox::new();
    for flag in ["--http", "--resp", "--thrift", "--grpc"] {
        let told = sandbox.refused(&["serve", flag, "0.0.0.0:0"], 2);
        assert!(told.starts_with(&format!("error: {flag} 0.0.0.0:0: other machines can connect")), "{told}");
        assert!(told.contains(&format!("`snowmint serve {flag} 0.0.0.0:0 --insecure`")), "{told}");
    }
    assert!(!sandbox.path("snowmint").exists());
    let certificates = Certificates::make();
    let files = |with_clients: bool| {
        let [certificate, key, authority] =
            [certificates.certificate(), certificates.key(), certificates.authority()]
                .map(|path| path.to_str().unwrap().to_owned());
        let mut args = vec!["--tls-cert".to_owned(), certificate, "--tls-key".to_owned(), key];
        if with_clients {
            args.extend(["--tls-client-ca".to_owned(), authority]);
        }
        args
    };
    let open = ["--http", "0.0.0.0:0"];
    // TLS alone does not restrict who may connect.
    let args = files(false);
    let args: Vec<&str> = ["serve"].into_iter().chain(open).chain(args.iter().map(String::as_str)).collect();
    assert!(sandbox.refused(&args, 2).contains("--tls-client-ca FILE"));
    let args = files(true);
    let args: Vec<&str> = open.into_iter().chain(args.iter().map(String::as_str)).collect();
    drop(sandbox.serve(&args));
    drop(sandbox.serve(&["--http", "0.0.0.0:0", "--insecure"]));
    let sandbox = sandbox.with_env("SNOWMINT_INSECURE", "true");
    drop(sandbox.serve(&open));
}

/// Goal: an error about a TLS file names the flag, the file, and the remedy.
#[test]
fn a_tls_file_that_cannot_be_used_is_named() {
    let sandbox = Sandbox::new();
    let (ours, others) = (Certificates::make(), Certificates::make());
    let encrypted = sandbox.path("encrypted.key");
    std::fs::write(
        &encrypted,
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    let garbage = sandbox.path("garbage.pem");
    std::fs::write(&garbage, "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n").unwrap();
    let none = sandbox.path("none.pem");
    std::fs::write(sandbox.path("tls.toml"), "tls_cert = 'none.pem'\ntls_key = 'none.key'\n").unwrap();
    let told = sandbox.refused(&["serve", "--config", "tls.toml"], 2);
    assert!(told.contains("--tls-cert: cannot use none.pem"), "{told}");
    for (certificate, key, client_authority, wanted) in [
        (none.as_path(), ours.key(), None, ["--tls-cert: cannot use ", "none.pem: No such file"]),
        (ours.key(), ours.key(), None, ["--tls-cert: ", "no certificate; expected PEM with"]),
        (&garbage, ours.key(), None, ["--tls-cert: ", "garbage.pem: "]),
        (ours.certificate(), ours.certificate(), None, ["--tls-key: ", "no private key; expected PEM with"]),
        (ours.certificate(), &encrypted, None, ["--tls-key: ", "decrypt it with `openssl pkey"]),
        (ours.certificate(), others.key(), None, ["--tls-key: ", "the key is not that of the certificate"]),
        (ours.certificate(), ours.key(), Some(ours.key()), ["--tls-client-ca: ", "no certificate"]),
    ] {
        let mut args =
            vec!["serve", "--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
        if let Some(authority) = client_authority {
            args.extend(["--tls-client-ca", authority.to_str().unwrap()]);
        }
        let told = sandbox.refused(&args, 2);
        assert!(wanted.iter().all(|wanted| told.contains(wanted)), "{wanted:?}: {told}");
    }
}

/// Goal: ids that were made before a kill are never made again. Method: the next node gets another worker, or
/// waits.
#[test]
fn after_a_kill_ids_go_on_without_repeating() {
    let sandbox = Sandbox::new();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let mut server = sandbox.serve(&["--window", "1s", "--holder", "node"]);
        let (_, body) = server.http("/v1/ids/default?count=1000");
        let ids = json(&body)["ids"].as_array().unwrap().clone();
        seen.extend(ids.into_iter().map(|id| id.as_str().unwrap().to_owned()));
        server.signal("KILL");
        server.wait();
        sleep(Duration::from_millis(1));
    }
    let total = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((total, seen.len()), (3000, 3000));
}

/// Goal: a unit with `Type=notify` and a watchdog becomes ready when ids are served, stays alive as long as
/// the service, and learns when it stops. Method: the test plays systemd, which names the process that it
/// watches.
#[test]
fn systemd_learns_of_the_start_the_life_and_the_stop() {
    let sandbox = Sandbox::new();
    let socket = UnixDatagram::bind(sandbox.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let mut server = sandbox.watched(&sandbox.path("notify"), Duration::from_millis(200), &[]);
    let mut told = String::new();
    let mut wait_for = |wanted: &str| {
        while !told.contains(wanted) {
            let mut message = [0; 4096];
            let length = socket.recv(&mut message).unwrap();
            told.push_str(std::str::from_utf8(&message[..length]).unwrap());
        }
        told.clear();
    };
    wait_for("READY=1");
    wait_for("WATCHDOG=1");
    wait_for("WATCHDOG=1");
    server.signal("TERM");
    wait_for("STOPPING=1");
    assert!(server.wait().success());
}

/// Goal: systemd does not give up a start that waits until the namespaces have settled, which takes as long
/// as the store may lose. Method: the test plays systemd, and reads what it is told before the service is
/// ready.
#[test]
fn systemd_learns_how_long_namespaces_settle() {
    let server = Redis::start();
    let store = format!("redis://{}?may_lose=1s", server.address());
    let sandbox = Sandbox::new();
    let socket = UnixDatagram::bind(sandbox.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let _server =
        sandbox.watched(&sandbox.path("notify"), Duration::from_mins(1), &["--store", store.as_str()]);
    let mut told = String::new();
    while !told.contains("READY=1") {
        let mut message = [0; 4096];
        let length = socket.recv(&mut message).unwrap();
        told.push_str(std::str::from_utf8(&message[..length]).unwrap());
        told.push('\n');
    }
    assert!(told.contains("STATUS=waiting until the namespaces have settled"), "{told}");
    let extended = told.lines().find_map(|line| line.strip_prefix("EXTEND_TIMEOUT_USEC="));
    assert!(extended.is_some_and(|micros| micros.parse::<u64>().unwrap() > 30_000_000), "{told}");
}
