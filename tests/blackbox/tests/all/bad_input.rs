//! Bad input to the command line and to the service: each gets an error that names the value, the limit and
//! the remedy, and changes nothing.

use std::net::TcpListener;

use snowmint_test_servers::port;
use snowmint_test_servers::snowmint::ids::{increase, worker};
use snowmint_test_servers::snowmint::server::assert_says;
use snowmint_test_servers::snowmint::{self, Ids, Serve};

/// Runs a command that must fail as bad usage (exit code 2) with an error that contains each of these words.
fn refused(args: &[&str], words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let output = snowmint::run(folder.path(), args);
    let text = snowmint::text(&output);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert!(output.stdout.is_empty(), "{args:?}: an error belongs on standard error: {text}");
    assert_says(&text, words);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "{args:?} left something behind");
}

#[test]
fn a_worker_that_the_layout_does_not_have() {
    for command in ["serve", "new"] {
        refused(&[command, "--layout", "leaf", "--worker", "1024"], &["1024", "0 to 1023"]);
        refused(&[command, "--worker", "32"], &["32", "0 to 31"]);
        refused(&[command, "--worker", "-1"], &["-1"]);
        refused(&[command, "--worker", "x"], &["x"]);
        refused(&[command, "--datacenter", "32"], &["32", "0 to 31"]);
    }
}

#[test]
fn a_layout_of_73_bits() {
    let layout = "time:41@1ms worker:16 sequence:16 epoch:2020-01-01";
    for args in [&["serve", "--layout", layout][..], &["new", "--layout", layout], &["layout", layout]] {
        refused(args, &["73 bits", "10 over", "63"]);
    }
    refused(&["serve", "--layout", "time:41@1ms worker:10"], &["epoch"]);
    refused(&["serve", "--layout", "twiter"], &["twiter", "twitter"]);
}

#[test]
fn settings_that_cannot_be() {
    refused(&["serve", "--window", "1ms"], &["1ms", "500ms"]);
    refused(&["serve", "--window", "soon"], &["soon"]);
    refused(&["serve", "--namespaces", "two words"], &["two words", "letters"]);
    refused(&["serve", "--store", "mongodb://host"], &["mongodb", "sqlite:"]);
    refused(&["serve", "--http", "nonsense"], &["nonsense", "--http"]);
    refused(&["serve", "--nonsense"], &["--nonsense"]);
    refused(&["new", "-n", "0"], &["0"]);
    refused(&["new", "-n", "-1"], &["-1"]);
    refused(&["new", "-n", "x"], &["x"]);
    refused(&["inspect", "12x4"], &["12x4"]);
}

/// Goal: an invalid namespace or count is refused in each protocol's form, and uses up nothing. Method: every
/// bad request on one connection, between requests for ids.
#[test]
fn namespaces_and_counts_over_resp() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let mut client = server.client();
    let mut ids = client.next("default", 1).unwrap().unwrap();
    let issued = server.metric("snowmint_ids_issued_total");
    let long = "n".repeat(65);
    let cases: [(&[&str], &[&str]); 13] = [
        (&["ID.NEXT", "two words"], &["two words", "letters"]),
        (&["ID.NEXT", "naïve/🦀"], &["letters"]),
        (&["ID.NEXT", ""], &["letters"]),
        (&["ID.NEXT", &long], &["64"]),
        (&["ID.NEXT", "nope"], &["NONAMESPACE", "nope", "default", "--namespaces"]),
        (&["ID.NEXT", "default", "COUNT", "0"], &["0", "1 to 100000"]),
        (&["ID.NEXT", "default", "COUNT", "-1"], &["-1", "1 to 100000"]),
        (&["ID.NEXT", "default", "COUNT", "1000000000"], &["1000000000", "1 to 100000"]),
        (&["ID.NEXT", "default", "COUNT", "many"], &["many", "1 to 100000"]),
        (&["ID.NEXT", "default", "COUNT"], &["ERR syntax error"]),
        (&["ID.NEXT", "default", "TWICE", "3"], &["ERR syntax error"]),
        (&["ID.NEXT"], &["wrong number of arguments"]),
        (&["ID.INSPECT", "9223372036854775808"], &["9223372036854775808"]),
    ];
    for (words, said) in cases {
        let error = client.call(words).unwrap().error();
        assert_says(&error, said);
        assert!(error.len() < 400, "{error}");
    }
    assert!(server.metric("snowmint_ids_issued_total") - issued < 1.5, "nothing was issued");
    ids.extend(client.next("default", 100).unwrap().unwrap());
    assert!(increase(&ids), "and the connection lives on");
}

#[test]
fn namespaces_and_counts_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let issued = server.metric("snowmint_ids_issued_total");
    let cases: [(&str, u16, &[&str]); 10] = [
        ("/v1/ids/two%20words", 400, &["letters"]),
        ("/v1/ids/%F0%9F%A6%80", 400, &["letters"]),
        ("/v1/ids/nope", 404, &["nope", "default"]),
        ("/v1/ids/default?count=0", 400, &["0", "1 to 100000"]),
        ("/v1/ids/default?count=-1", 400, &["-1", "1 to 100000"]),
        ("/v1/ids/default?count=1000000000", 400, &["1000000000", "1 to 100000"]),
        ("/v1/ids/default?count=many", 400, &["many", "1 to 100000"]),
        ("/v1/ids/default?count=", 400, &["1 to 100000"]),
        ("/v1/inspect/9223372036854775808", 400, &["9223372036854775808"]),
        ("/v1/inspect/x", 400, &["x"]),
    ];
    for (path, status, said) in cases {
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{path}");
        let problem = answer.json();
        assert_eq!(problem["status"], status, "{path}");
        assert!(problem["title"].is_string() && problem["type"].is_string(), "{path}: {problem}");
        assert_says(problem["detail"].as_str().unwrap(), said);
    }
    assert!((server.metric("snowmint_ids_issued_total") - issued).abs() < 0.5, "nothing was issued");
    assert_eq!(server.get("/v1/ids/default?count=3").ids().unwrap().len(), 3);
}

/// Goal: the error for a port in use names its address, its flag and a remedy; the program that uses it is
/// not disturbed.
#[test]
fn a_port_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    for (http, resp, flag) in
        [(server.http(), port::free(), "--http"), (port::free(), server.resp(), "--resp")]
    {
        let taken = if flag == "--http" { http } else { resp };
        let ended = Serve::new(folder.path()).ports(http, resp).refused();
        ended.assert_says(&[&taken.to_string(), flag, "another program uses this port"]);
    }
    // The same if another program uses it.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let std::net::SocketAddr::V4(taken) = other.local_addr().unwrap() else { panic!("not IPv4") };
    Serve::new(folder.path()).ports(taken, port::free()).refused().assert_says(&[&taken.to_string()]);
    assert_eq!(server.take(10).len(), 10);
}

/// Goal: of two servers with the same fixed worker, the second is refused with the name of the first, which
/// continues; the second can start once the first has ended.
#[test]
fn a_second_server_with_the_same_fixed_worker() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::new(folder.path()).args(["--worker", "7", "--window", "2s"]);
    let mut ids = Ids::new();
    let first = serve.start();
    ids.add(&first.take(1000));
    let refused = serve.refused();
    refused.assert_says(&["worker 7 is held by", &first.http().port().to_string(), "another worker"]);
    assert!(first.ready());
    let before = first.take(1000);
    assert!(before.iter().all(|&id| worker(id) == 7));
    ids.add(&before);
    first.stop();
    let second = serve.start();
    ids.add(&second.take(1000));
    ids.assert_unique();
}

/// Goal: two layouts in one namespace could produce duplicates, so the store rejects the second and shows
/// both.
#[test]
fn a_store_whose_records_carry_another_layout() {
    let folder = tempfile::tempdir().unwrap();
    let first = Serve::new(folder.path()).start();
    let mut ids = Ids::new();
    ids.add(&first.take(1000));
    let leaf = Serve::new(folder.path()).args(["--layout", "leaf"]);
    let both = [
        "default",
        "time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z",
        "time:41@1ms worker:10 sequence:12 epoch:2010-11-04T01:42:54.657Z",
        "namespace",
    ];
    // While the first runs, and after it.
    leaf.refused().assert_says(&both);
    ids.add(&first.take(1000));
    first.stop();
    leaf.refused().assert_says(&both);
    // The remedy in the error works: another namespace on the same store.
    let elsewhere = leaf.clone().args(["--namespaces", "other"]).start();
    assert_eq!(elsewhere.client().next("other", 10).unwrap().unwrap().len(), 10);
    let again = Serve::new(folder.path()).start();
    ids.add(&again.take(1000));
    ids.assert_unique();
}

/// Goal: `snowmint new` takes its lease from the same file, so it cannot have a worker that a server holds.
#[test]
fn new_with_the_worker_of_a_running_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).args(["--worker", "7", "--window", "2s"]).start();
    let mut ids = Ids::new();
    ids.add(&server.take(1000));
    let data = folder.path().join("data");
    let new = |worker: &str| {
        let args = ["new", "-n", "1000", "--worker", worker, "--data", data.to_str().unwrap()];
        snowmint::run(folder.path(), args)
    };
    let refused = new("7");
    assert_eq!(refused.status.code(), Some(1), "{}", snowmint::text(&refused));
    assert_says(&snowmint::text(&refused), &["worker 7 is held by", &server.http().port().to_string()]);
    for _ in 0..3 {
        let other = new("8");
        assert!(other.status.success(), "{}", snowmint::text(&other));
        let made: Vec<u64> =
            String::from_utf8(other.stdout).unwrap().lines().map(|id| id.parse().unwrap()).collect();
        assert!(made.len() == 1000 && increase(&made));
        ids.add(&made);
        ids.add(&server.take(1000));
    }
    ids.assert_unique();
}
