//! Text of others in logs and on terminals: keys of other programs in the store, names from clients, answers
//! of servers.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::thread;
use std::time::Duration;

use snowmint_test_servers::snowmint;
use snowmint_test_servers::snowmint::server::assert_says;
use snowmint_test_servers::{Redis, time};

use crate::namespaces::serve;

const PATIENCE: Duration = Duration::from_secs(30);

/// What a terminal acts on or a reader does not see, beside the line breaks of the log itself.
fn assert_clean(text: &str) {
    let hidden = |sign: char| sign.is_control() && sign != '\n' || "\u{202e}\u{200b}\u{2066}".contains(sign);
    assert!(!text.chars().any(hidden), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("ERROR forged")), "{text}");
}

/// Goal: one foreign key stops no start and no list, and neither its name nor a name that a client sends
/// forges a line of the log, reaches a terminal as an order, or puts a token into the log. Method: keys in a
/// Redis as another program could write them, with an index that has to be rebuilt; names over both
/// protocols; each format of the log.
#[test]
fn names_of_others_are_shown_without_their_power() {
    let folder = tempfile::tempdir().unwrap();
    let redis = Redis::start();
    let store = format!("redis://{}/0", redis.address());
    assert!(snowmint::run(folder.path(), ["store", "init", "--store", &store]).status.success());
    let port = redis.port().to_string();
    let cli = |command: &[&[u8]]| {
        let mut cli = Command::new("redis-cli");
        let done = cli.args(["-p", &port]).args(command.iter().map(|word| OsStr::from_bytes(word))).output();
        assert!(done.unwrap().status.success());
    };
    let long = [&b"namespaces/"[..], &vec![b'x'; 20_000]].concat();
    for name in
        [&b"namespaces/\xff\xfe"[..], b"namespaces/a\nERROR forged \x1b]0;owned\x07\xe2\x80\xae", &long]
    {
        cli(&[b"HSET", &[b"{snowmint}:record:", name].concat(), b"r", b"1", b"v", b"{}"]);
    }
    cli(&[b"DEL", b"{snowmint}:index", b"{snowmint}:count"]);
    let secret = "0Ab".repeat(17);
    let token = format!("smt_orders-service_{secret}");
    for format in ["text", "json"] {
        let server =
            serve(folder.path()).args(["--store", &store, "--access-log", "--log-format", format]).start();
        assert_eq!(server.take(3).len(), 3);
        for name in [&token, "a\nERROR forged \u{1b}[2J\u{202e}"] {
            server.client().call(&["ID.NEXT", name]).unwrap();
        }
        server.get(&format!("/v1/ids/{token}"));
        server.log_with("namespaces/a\\", PATIENCE);
        let lines = time::eventually("both requests", PATIENCE, || {
            Some(server.log()).filter(|lines| lines.matches("smt_orders-service_0Ab0…").count() > 1)
        });
        assert_clean(&lines);
        assert!(!lines.contains(&secret), "{lines}");
        assert!(lines.lines().all(|line| line.len() < 17_000), "a line has 20 kB");
        server.stop();
    }
    let ran = snowmint::run(folder.path(), ["ns", "list", "--store", &store]);
    let text = snowmint::text(&ran);
    assert!(ran.status.success(), "{text}");
    assert_says(
        &text,
        &["namespaces/\\xff\\xfe", "namespaces/a\\nERROR forged \\u{1b}]0;owned\\u{7}\\u{202e}"],
    );
    assert_clean(&text);
}

/// Goal: the answer of a server reaches no terminal as an order. Method: a server that answers each command
/// with escape sequences, as an error, as a list, and as its health; also with colours on.
#[test]
fn answers_of_servers_are_shown_without_their_power() {
    let hostile = "x\\u001b]0;owned\\u0007 \\u009b2J \\u202e \\n ERROR forged";
    let problem = format!(r#"{{"type":"urn:snowmint:x","detail":"{hostile}"}}"#);
    let list = format!(
        r#"{{"namespaces":[{{"name":"{hostile}","state":"unreadable","unreadable":"{hostile}"}}],"warnings":["{hostile}"]}}"#
    );
    let findings = format!(r#"{{"findings":[],"warnings":["{hostile}"]}}"#);
    for (status, body) in
        [("500 x", problem.clone()), ("404 x", problem), ("200 OK", list), ("200 OK", findings)]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                let _ = connection.read(&mut [0; 4096]);
                let _ = connection.write_all(answer.as_bytes());
            }
        });
        let folder = tempfile::tempdir().unwrap();
        for command in [
            &["ns", "list"][..],
            &["ns", "list", "--json"],
            &["workers", "list"],
            &["audit"],
            &["doctor"],
            &["health"],
            &["health", "--json"],
        ] {
            let ran = snowmint::run(folder.path(), [command, &["--server", &url]].concat());
            assert_clean(&snowmint::text(&ran));
            let coloured =
                snowmint::run(folder.path(), [command, &["--server", &url, "--color", "always"]].concat());
            let text = snowmint::text(&coloured);
            for order in ["\u{1b}]", "\u{7}", "\u{9b}", "\u{202e}"] {
                assert!(!text.contains(order), "{command:?}: {text:?}");
            }
        }
    }
}
