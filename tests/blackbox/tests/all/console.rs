//! The console in headless Chromium, used like people do: with the mouse, with the keyboard only, in both
//! themes, on a phone.
//!
//! `console/browser.js` drives the browser. With `SNOWMINT_PICTURES=FOLDER` it also writes the pictures of
//! `docs/console.md`. `console/states.js` shows states that it makes itself, `console/other_site.js` is a
//! page of another site; `console/chromium.js` starts the browser of all.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use snowmint_test_servers::snowmint::http::{self, Http};
use snowmint_test_servers::snowmint::third_party::{node, output, python, run, run_with_input};
use snowmint_test_servers::snowmint::{self, Serve, Server};
use snowmint_test_servers::{Proxy, Redis};

const CHROMIUM: &str = include_str!("console/chromium.js");
const BROWSER: &str = include_str!("console/browser.js");
const STATES: &str = include_str!("console/states.js");
const OTHER_SITE: &str = include_str!("console/other_site.js");
/// The `Accept` header of browsers.
const PAGE: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
/// A text that would run as a script if it were inserted as markup.
const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror=alert(1)>";

/// Goal: each view works, has no accessibility fault, and shows problems clearly. Method: one browser visits
/// a server without tokens, and one with a token, whose store goes away and comes back.
#[test]
fn console_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let (open, closed) = (folder.path().join("open"), folder.path().join("closed"));
    fs::create_dir_all(&open).unwrap();
    fs::create_dir_all(&closed).unwrap();
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let store = format!("redis://{}", proxy.address());
    let token = snowmint::run(
        &closed,
        [
            "token",
            "create",
            "ops",
            "--namespaces",
            "*",
            "--rights",
            "mint,inspect,admin",
            "--file",
            "tokens.toml",
        ],
    );
    let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
    snowmint::run(&closed, ["store", "init", "--store", &store]);
    for (name, about) in [("invoices", HOSTILE), ("players", "ids of players")] {
        let scheme = if name == "invoices" { "segment" } else { "snowflake" };
        let add = [
            "ns",
            "add",
            name,
            "--scheme",
            scheme,
            "--owner",
            about,
            "--description",
            about,
            "--store",
            &store,
        ];
        let added = snowmint::run(&closed, add);
        assert!(added.status.success(), "{}", snowmint::text(&added));
    }
    let layout = "time:41 worker:9 sequence:12 epoch:2026-01-01";
    let layout = snowmint::run(&open, ["layout", layout, "--json"]);
    let layout: Value = serde_json::from_slice(&layout.stdout).unwrap();
    let server = Serve::new(&open).start();
    let args = ["--tokens-file", "tokens.toml", "--worker", "5", "--store", &store];
    let fleet = Serve::new(&closed).args(args).start();
    let asked = json!({
        "open": format!("http://{}", server.http()),
        "fleet": format!("http://{}", fleet.http()),
        "token": token,
        "layout": layout,
        "pictures": std::env::var("SNOWMINT_PICTURES").ok(),
    });

    let mut browser = start_browser(BROWSER, &asked);
    let mut input = browser.stdin.take().unwrap();
    let mut fleet = Some(fleet);
    let mut said = String::new();
    for line in BufReader::new(browser.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match &*line {
            "cut" => {
                proxy.refuse();
                proxy.cut();
            }
            "mend" => proxy.accept(),
            // The stream must not delay the shutdown.
            "stop" => {
                assert_stops(fleet.take().unwrap());
            }
            _ => {
                println!("{line}");
                said = line;
                continue;
            }
        }
        input.write_all(b"done\n").unwrap();
    }
    let ended = browser.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let done: Value = serde_json::from_str(&said).unwrap();
    let programs: Vec<&str> =
        done["programs"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    run_programs(&programs);
}

/// A stream does not delay the shutdown: no connection has to be cut.
fn assert_stops(server: Server) {
    let ended = server.stop();
    assert!(ended.status.success() && !ended.log.contains("did not finish in time"), "{}", ended.log);
}

/// The programs that the console shows draw ids.
fn run_programs(programs: &[&str]) {
    let [curl, cli, of_python, of_node, go, java, rust, grpc] = programs else { panic!("{programs:#?}") };
    let ids: Value = serde_json::from_str(&output("sh", ["-c", &format!("{curl} --silent")])).unwrap();
    assert_eq!(ids["ids"].as_array().unwrap().len(), 5, "{ids}");
    let count = |text: &str| text.split(|c: char| !c.is_ascii_digit()).filter(|word| word.len() > 15).count();
    for text in [output("sh", ["-c", cli]), python("redis", of_python, &[])] {
        assert_eq!(count(&text), 5, "{text}");
    }
    // The harness runs scripts as CommonJS modules.
    let body = of_node.replace("import { createClient } from 'redis';", "");
    let text =
        node(&format!("const {{ createClient }} = require('redis');\n(async () => {{{body}}})();"), &[]);
    assert_eq!(count(&text), 5, "{text}");
    let run = "cd clients/go && mkdir -p target && d=$(mktemp -d target/console.XXXX) && trap 'rm -r $d' EXIT && cat >$d/main.go && \
               go run ./$d";
    let script = format!("cd '{}' && {run}", snowmint::workspace().display());
    let ran = run_with_input("bash", ["-c", &script], go);
    assert!(ran.status.success(), "{go}: {}", snowmint::text(&ran));
    assert_eq!(count(&snowmint::text(&ran)), 5, "{go}");
    assert!(java.contains("SnowmintClient.builder()") && java.contains(".next(5)"), "{java}");
    assert!(grpc.starts_with("grpcurl -plaintext -d '{\"namespace\":\"default\",\"count\":5}' "), "{grpc}");
    assert!(rust.contains("snowmint_client::Client::builder()") && rust.contains("next_ids(5)"), "{rust}");
}

fn start_browser(script: &str, asked: &Value) -> std::process::Child {
    let modules = snowmint::workspace().join("target/node");
    let missing =
        ["playwright-core", "axe-core"].iter().any(|it| !modules.join("node_modules").join(it).is_dir());
    assert!(
        !missing && run("which", ["chromium"]).status.success(),
        "chromium, playwright-core or axe-core is missing: install them with `./check tools`"
    );
    Command::new("node")
        .current_dir(modules)
        .args(["-e", &format!("{CHROMIUM}{script}"), "--", &asked.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Goal: the console shows what it does not know as unknown, whatever happens to the node, the store and the
/// connection. Method: a browser gets the page from a server and its data from the script, which also moves
/// the clock of the page.
#[test]
fn console_in_states_that_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let asked = json!({ "address": format!("http://{}", server.http()) });
    let ended = start_browser(STATES, &asked).wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Goal: a page of another site that its user opens takes no ids and makes no namespace on a loopback port,
/// by whichever address and request. Method: a page in the browser tries them; the metrics show that its
/// requests arrived.
#[test]
fn a_page_of_another_site_draws_no_ids() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[namespaces.model]\nscheme = 'segment'\n[auto_create]\nlike = 'model'\nat_most = 50\n";
    fs::write(folder.path().join("ns.toml"), file).unwrap();
    let server = Serve::new(folder.path()).args(["--namespaces-file", "ns.toml"]).start();
    let asked = json!({ "port": server.http().port() });
    let ended = start_browser(OTHER_SITE, &asked).wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let metrics = server.get("/metrics").body;
    let refused = |outcome: &str| {
        let line = format!("snowmint_requests_total{{protocol=\"http\",outcome=\"{outcome}\"}} ");
        let count =
            metrics.split_once(&line).map(|(_, rest)| rest.split_once('\n').unwrap().0.parse::<u32>());
        count.map_or(0, Result::unwrap)
    };
    assert!(refused("cross-site") >= 10 && refused("unknown-host") > 0, "{metrics}");
    assert!(!metrics.contains("made-by-a-page"), "{metrics}");
    assert_eq!(server.metric("snowmint_ids_issued_total").to_string(), "1", "by the console alone");
}

/// Goal: browsers get the page, and other clients get the same answer as before; without the console no
/// client gets the page. Method: `/` as a browser and as other clients, with the default, the flag, the
/// configuration file and the variable.
#[test]
fn console_is_served_to_browsers_unless_it_is_off() {
    let folder = tempfile::tempdir().unwrap();
    let get = |server: &Server, path: &str, headers: &str| {
        Http::connect(server.http(), std::time::Duration::from_secs(10)).unwrap().get(path, headers).unwrap()
    };
    let server = Serve::new(folder.path()).start();
    let page = get(&server, "/", PAGE);
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    for (name, wanted) in [
        ("content-security-policy", "default-src 'none'"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-cache"),
    ] {
        assert!(page.header(name).is_some_and(|value| value.contains(wanted)), "{name}");
    }
    let tag = page.header("etag").unwrap().to_owned();
    assert_eq!(get(&server, "/console", &format!("If-None-Match: {tag}\r\n")).status, 304);
    assert_eq!(get(&server, "/console", "").status, 200);
    assert_eq!(get(&server, "/console/", "").header("location"), Some("../console"));
    for path in ["/", "/console/nope", "/consoles"] {
        let answer = get(&server, path, "");
        assert_eq!(
            (answer.status, answer.json()["type"].as_str()),
            (404, Some("urn:snowmint:unknown")),
            "{path}"
        );
    }
    let detail = get(&server, "/", "").json()["detail"].to_string();
    assert!(detail.contains("the console, for browsers") && detail.contains("/v1/ids/default"), "{detail}");
    assert_eq!(get(&server, "/", "Accept: text/html\r\nHost: evil.example\r\n").status, 400, "two hosts");
    drop(server);

    fs::write(folder.path().join("off.toml"), "console = false\n").unwrap();
    for (args, variable) in [
        (&["--no-console"][..], "true"),
        (&["--console", "false"], "true"),
        (&["--config", "off.toml"], ""),
        (&[], "false"),
    ] {
        let mut serve = Serve::new(folder.path()).args(args);
        if !variable.is_empty() {
            serve = serve.env("SNOWMINT_CONSOLE", variable);
        }
        let server = serve.start();
        for path in ["/", "/console", "/console/main.js"] {
            assert_eq!(get(&server, path, PAGE).status, 404, "{args:?} {variable} {path}");
        }
        assert_eq!(http::get(server.http(), "/v1/ids/default").unwrap().status, 200);
    }
}

/// Goal: many viewers cost the store no more than one, and their number is limited. Method: as many streams
/// as allowed, and one more; the store's own count of calls.
#[test]
fn many_viewers_cost_the_store_as_much_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let redis = Redis::start();
    let store = format!("redis://{}", redis.address());
    let create =
        ["token", "create", "ops", "--namespaces", "*", "--rights", "admin", "--file", "tokens.toml"];
    let token = snowmint::run(folder.path(), create);
    let header = format!("Authorization: Bearer {}\r\n", String::from_utf8(token.stdout).unwrap().trim());
    let args = ["--tokens-file", "tokens.toml", "--store", &store, "--window", "1h"];
    let server = Serve::new(folder.path()).args(args).start();
    let calls = || redis.info("total_commands_processed").parse::<u64>().unwrap();
    let over = |seconds: u64| {
        let before = calls();
        std::thread::sleep(std::time::Duration::from_secs(seconds));
        calls() - before
    };
    let patience = std::time::Duration::from_secs(20);
    let request = format!("GET /v1/admin/events HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
    let open = || {
        let mut viewer = Http::connect(server.http(), patience).unwrap();
        viewer.write(request.as_bytes()).unwrap();
        let mut lines = BufReader::new(viewer.socket().try_clone().unwrap()).lines();
        let status = lines.next().unwrap().unwrap();
        if status.contains(" 200 ") {
            assert!(lines.any(|line| line.unwrap().contains("event: fleet")));
        }
        (viewer, status)
    };
    let (first, _) = open();
    let alone = over(6);
    let viewers: Vec<_> = (1..64).map(|_| open()).collect();
    assert!(viewers.iter().all(|(_, status)| status.contains(" 200 ")));
    let watched = over(6);
    assert!(alone > 0 && watched <= 2 * alone + 10, "{alone} calls for one viewer and {watched} for 64");
    let (_, status) = open();
    assert!(status.contains(" 503 "), "{status}");
    drop((first, viewers));
    // The node notices that they are gone when it writes to them.
    std::thread::sleep(std::time::Duration::from_secs(5));
    let unwatched = over(4);
    assert!(unwatched < alone.max(4), "{unwatched} calls for nobody, {alone} for one viewer");
    assert_stops(server);
}
