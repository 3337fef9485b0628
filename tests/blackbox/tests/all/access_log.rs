//! The access log: a line for each request of each protocol, without secrets; and none unless it is asked for.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::time::Duration;

use serde_json::Value;
use snowmint_test_servers::snowmint::raw::THRIFT_GET_ID;
use snowmint_test_servers::snowmint::{Serve, Server};
use snowmint_test_servers::{port, time};

const PATIENCE: Duration = Duration::from_secs(30);

/// Sends bytes and waits for the end of the answer.
fn send(address: SocketAddrV4, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(bytes).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut said = Vec::new();
    client.read_to_end(&mut said).unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

/// The lines of a protocol, each as request, namespace, count and outcome.
fn lines(server: &Server, protocol: &str, count: usize) -> Vec<String> {
    let lines = || -> Vec<Value> {
        let log = server.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|it| it["target"] == "snowmint::access" && it["protocol"] == protocol).collect()
    };
    let lines = time::eventually("the lines", PATIENCE, || Some(lines()).filter(|it| it.len() >= count));
    let shown = |line: &Value| {
        assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert!(line["duration_us"].as_u64().is_some(), "{line}");
        let of = |name: &str| line.get(name).map_or("-".to_owned(), |it| it.to_string().replace('"', ""));
        ["request", "namespace", "count", "outcome"].map(of).join(" ")
    };
    lines.iter().map(shown).collect()
}

#[test]
fn each_request_is_a_line_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let (thrift, noeqd) = (port::free(), port::free());
    let ports = ["--thrift", &thrift.to_string(), "--noeqd", &noeqd.to_string()];
    let flags = ["--log-format", "json", "--access-log"];
    let server = Serve::new(folder.path()).args(ports).args(flags).start();

    for path in [
        "/v1/ids/default?count=3",
        "/v1/ids/none",
        "/tinyid/id/nextIdSimple?bizType=default&batchSize=2&token=secret",
        "/api/snowflake/get/default",
    ] {
        server.get(path);
    }
    let http = lines(&server, "http", 4);
    for wanted in [
        "GET /v1/ids/default default 3 ok",
        "GET /v1/ids/none none 1 404",
        "GET /tinyid/id/nextIdSimple default 2 ok",
        "GET /api/snowflake/get/default default 1 ok",
    ] {
        assert_eq!(http.iter().filter(|line| *line == wanted).count(), 1, "{wanted}: {http:?}");
    }

    // Equal commands in one packet are one line each.
    let next = "*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\n".repeat(5);
    let others = "ID.NEXT default COUNT 20000\r\nincr default\r\nAUTH secret\r\nID.NEXT none\r\nPING\r\n";
    send(server.resp(), format!("{next}{others}").as_bytes());
    let resp = lines(&server, "resp", 10);
    let mut wanted = vec!["ID.NEXT default 1 ok"; 5];
    wanted.extend(["ID.NEXT default 20000 ok", "INCR default 1 WRONGTYPE"]);
    assert_eq!(&resp[..7], wanted);
    assert!(resp[7].starts_with("AUTH - - "), "{resp:?}");
    assert_eq!(&resp[8..], ["ID.NEXT none 1 NONAMESPACE", "PING - - ok"]);

    send(thrift, THRIFT_GET_ID);
    assert_eq!(lines(&server, "thrift", 1), ["get_id default 1 ok"]);
    send(noeqd, b"\x02\xff");
    assert_eq!(lines(&server, "noeqd", 2), ["ids default 2 ok", "ids default 255 ok"]);
    assert!(!server.log().contains("secret"), "{}", server.log());
}

#[test]
fn without_the_flag_no_request_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).args(["--log", "trace"]).start();
    server.take(10);
    server.get("/v1/ids/default");
    assert!(!server.log().contains("snowmint::access"), "{}", server.log());
}
