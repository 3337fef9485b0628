//! Third-party Thrift clients: Apache's Python client and thriftpy2, from the interface file that the crate
//! ships.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use snowmint_test_servers::port;
use snowmint_test_servers::snowmint::ids::increase;
use snowmint_test_servers::snowmint::third_party::{output, python};
use snowmint_test_servers::snowmint::{self, Ids, Serve, Server};
use snowmint_test_servers::time;

fn interface() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/snowmint-server/snowflake.thrift")
}

fn serve(folder: &Path, args: &[&str]) -> (Server, SocketAddrV4) {
    let thrift = port::free();
    let server = Serve::new(folder).args(["--thrift", &thrift.to_string()]).args(args).start();
    (server, thrift)
}

/// The output of a client, one item per line: the worker, the datacenter, the time, ids, and the errors.
struct Said {
    worker: u64,
    datacenter: u64,
    unix_ms: u64,
    ids: Vec<u64>,
    errors: Vec<String>,
}

impl Said {
    fn of(text: &str) -> Self {
        let mut lines = text.lines();
        let mut number =
            || lines.next().and_then(|line| line.parse::<u64>().ok()).unwrap_or_else(|| panic!("{text}"));
        let (worker, datacenter, unix_ms) = (number(), number(), number());
        let rest: Vec<&str> = lines.collect();
        let ids = rest.iter().map_while(|line| line.parse().ok()).collect::<Vec<u64>>();
        let errors = rest[ids.len()..].iter().map(|line| (*line).to_owned()).collect();
        Self { worker, datacenter, unix_ms, ids, errors }
    }

    fn check(&self, server: &Server, all: &mut Ids) {
        let worker = server.get("/readyz").json()["worker"].to_string();
        assert_eq!((self.worker.to_string(), self.datacenter), (worker, 7));
        assert!(increase(&self.ids) && self.ids.len() == 1000, "{} ids", self.ids.len());
        let twitter = |id: u64| ((id >> 22) + 1_288_834_974_657, (id >> 17) & 31, (id >> 12) & 31);
        let (unix_ms, datacenter, worker) = twitter(self.ids[0]);
        assert_eq!((datacenter, worker), (7, self.worker));
        assert!(unix_ms.abs_diff(self.unix_ms) < 60_000, "{unix_ms} and {}", self.unix_ms);
        all.add(&self.ids);
    }
}

const USE: &str = r#"
print(client.get_worker_id()); print(client.get_datacenter_id()); print(client.get_timestamp())
for _ in range(1000): print(client.get_id("web-1"))
for bad in ["", "1web", "we b", "web_1"]:
    try: client.get_id(bad)
    except Exception as error: print(type(error).__name__, getattr(error, "type", ""), error.message)
"#;

/// Goal: Apache's client, strict or not, accelerated or not, gets ids, and errors that name the cause.
#[test]
fn apache_thrift() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = serve(folder.path(), &["--datacenter", "7"]);
    output("thrift", ["--gen", "py", "-out", folder.path().to_str().unwrap(), interface().to_str().unwrap()]);
    let mut all = Ids::new();
    for protocol in [
        "TBinaryProtocol(transport)",
        "TBinaryProtocol(transport, strictRead=True, strictWrite=True)",
        "TBinaryProtocol(transport, strictWrite=False)",
        "TBinaryProtocolAccelerated(transport)",
    ] {
        let script = format!(
            "import sys; sys.path.insert(0, {folder:?})\n\
             from thrift.transport import TSocket, TTransport\n\
             from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolAccelerated\n\
             from snowflake import Snowflake\n\
             transport = TTransport.TFramedTransport(TSocket.TSocket('127.0.0.1', {port}))\n\
             client = Snowflake.Client({protocol}); transport.open()\n{USE}",
            folder = folder.path(),
            port = address.port(),
        );
        let said = Said::of(&python("thrift", &script, &[]));
        said.check(&server, &mut all);
        assert_eq!(said.errors.len(), 4, "{:?}", said.errors);
        for error in &said.errors {
            assert!(error.starts_with("TApplicationException 6 invalid user agent"), "{error}");
        }
    }
    all.assert_unique();
    assert!(server.metric("snowmint_ids_issued_total") >= 4000.0);
}

/// Goal: thriftpy2 works from the interface file, also for the service that declares its exceptions.
#[test]
fn thriftpy2() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = serve(folder.path(), &["--datacenter", "7", "--thrift-exceptions", "declared"]);
    let mut all = Ids::new();
    for (service, wanted) in
        [("Snowflake", "TApplicationException 5"), ("SnowflakeThrows", "InvalidUserAgentError")]
    {
        for transport in ["TFramedTransportFactory", "TBufferedTransportFactory"] {
            let script = format!(
                "import thriftpy2\n\
                 from thriftpy2.rpc import make_client\n\
                 from thriftpy2.transport import TFramedTransportFactory, TBufferedTransportFactory\n\
                 idl = thriftpy2.load({interface:?}, module_name='snowflake_thrift')\n\
                 client = make_client(idl.{service}, '127.0.0.1', {port}, trans_factory={transport}())\n{USE}",
                interface = interface(),
                port = address.port(),
            );
            let said = Said::of(&python("thriftpy2", &script, &[]));
            said.check(&server, &mut all);
            assert!(
                said.errors.len() == 4 && said.errors.iter().all(|it| it.starts_with(wanted)),
                "{:?}",
                said.errors
            );
        }
    }
    all.assert_unique();
}

fn connect(address: SocketAddrV4) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client
}

/// Sends a call without a frame; returns the answer up to the end of the connection.
fn call(address: SocketAddrV4, name: &str) -> String {
    let mut message = b"\x80\x01\0\x01".to_vec();
    message.extend(u32::try_from(name.len()).unwrap().to_be_bytes());
    message.extend(name.as_bytes());
    message.extend(b"\0\0\0\x01\x0b\0\x01\0\0\0\x03web\0");
    let mut client = connect(address);
    client.write_all(&message).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = Vec::new();
    client.read_to_end(&mut said).unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

/// Goal: input that is not Thrift ends the connection at once, is counted, and affects no other client.
#[test]
fn bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = serve(folder.path(), &["--thrift-namespace", "later"]);
    let bad: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"\x80\x01\0\x02\0\0\0\x01a\0\0\0\0", &[0; 64]];
    for bad in bad {
        let mut client = connect(address);
        client.write_all(bad).unwrap();
        assert_eq!(client.read(&mut [0; 64]).unwrap(), 0, "{bad:?}: the server closes");
    }
    let refused = server.get("/metrics").body.lines().find_map(|line| {
        let wanted = line.contains("protocol=\"thrift\"") && line.contains("outcome=\"bad-request\"");
        line.starts_with("snowmint_requests_total").then_some(())?;
        wanted.then(|| line.rsplit(' ').next().unwrap().to_owned())
    });
    assert_eq!(refused.as_deref(), Some("4"));
    assert!(
        call(address, "nope").contains("invalid method `nope`: expected get_id"),
        "{}",
        call(address, "nope")
    );
    let unknown = call(address, "get_id");
    assert!(unknown.contains("NONAMESPACE") && unknown.contains("later"), "{unknown}");
    assert_eq!(server.metric("snowmint_lease_held").to_string(), "1", "it still serves");
}

/// Goal: a namespace whose ids are not plain numbers is rejected before a number is drawn.
#[test]
fn a_text_form_is_refused_and_costs_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("namespaces.toml");
    std::fs::write(&file, "[namespaces.orders]\nscheme = \"segment\"\ntext = \"ORD-{number:6}\"\n").unwrap();
    let (server, address) =
        serve(folder.path(), &["--namespaces-file", file.to_str().unwrap(), "--thrift-namespace", "orders"]);
    let first = server.get("/v1/ids/orders").body;
    for _ in 0..3 {
        let refused = call(address, "get_id");
        assert!(refused.contains("plain 64-bit numbers, which get_id needs"), "{refused}");
    }
    let next = server.get("/v1/ids/orders").body;
    assert!(first.contains("ORD-000001") && next.contains("ORD-000002"), "{first} {next}");
}

/// Goal: in a pipeline each call gets its own answer, even though the server answers equal calls together.
/// Method: 6,000 calls of `get_id` with different sequence ids, 64 ids per millisecond, and other calls and
/// an invalid user agent in between. The token's quota equals the number of ids that these calls draw, so the
/// accounting of calls answered together must be exact.
#[test]
fn a_pipeline_answers_each_call() {
    const CALLS: u32 = 6000;
    time::wait_at_midnight();
    let folder = tempfile::tempdir().unwrap();
    let create = "token create web --namespaces default --per-day 5988 --file tokens.toml";
    let created = snowmint::run(folder.path(), create.split(' '));
    assert!(created.status.success(), "{}", snowmint::text(&created));
    let address = port::free();
    let port = address.to_string();
    let tokens = ["--tokens-file", "tokens.toml", "--thrift-token", "web"];
    let layout =
        ["--layout", "time:41 datacenter:5 worker:5 sequence:6 epoch:2026-01-01", "--datacenter", "7"];
    let server = Serve::new(folder.path()).args(["--thrift", &port]).args(tokens).args(layout).spawn();
    server.log_with("ready: ids are served", Duration::from_secs(30));
    let call = |name: &str, sequence: u32, argument: &[u8]| {
        let name_len = u32::try_from(name.len()).unwrap().to_be_bytes();
        let message =
            [&b"\x80\x01\0\x01"[..], &name_len, name.as_bytes(), &sequence.to_be_bytes(), argument, b"\0"]
                .concat();
        [&u32::try_from(message.len()).unwrap().to_be_bytes()[..], &message].concat()
    };
    let mut requests = Vec::new();
    for sequence in 0..CALLS {
        requests.extend(match sequence % 1000 {
            500 => call("get_datacenter_id", sequence, b""),
            700 => call("get_id", sequence, b"\x0b\0\x01\0\0\0\x031eb"),
            _ => call("get_id", sequence, b"\x0b\0\x01\0\0\0\x03web"),
        });
    }
    let mut client = connect(address);
    let mut writes = client.try_clone().unwrap();
    let sending = std::thread::spawn(move || writes.write_all(&requests).unwrap());
    let mut ids = Vec::new();
    for sequence in 0..CALLS {
        let mut len = [0; 4];
        client.read_exact(&mut len).unwrap();
        let mut answer = vec![0; usize::try_from(u32::from_be_bytes(len)).unwrap()];
        client.read_exact(&mut answer).unwrap();
        let name = if sequence % 1000 == 500 { "get_datacenter_id" } else { "get_id" };
        assert_eq!(&answer[8..8 + name.len()], name.as_bytes(), "call {sequence}");
        let rest = &answer[8 + name.len()..];
        assert_eq!(rest[..4], sequence.to_be_bytes(), "call {sequence}");
        match sequence % 1000 {
            700 => assert_eq!(answer[3], 3, "call {sequence}: an invalid user agent is an exception"),
            nth => {
                assert_eq!((answer[3], &rest[4..7]), (2, &b"\x0a\0\0"[..]), "call {sequence}");
                let number = u64::from_be_bytes(*rest[7..].first_chunk().unwrap());
                if nth == 500 { assert_eq!(number, 7) } else { ids.push(number) }
            }
        }
    }
    sending.join().unwrap();
    assert!(increase(&ids) && ids.len() == 5988, "{} ids", ids.len());
    client.write_all(&call("get_id", 1, b"\x0b\0\x01\0\0\0\x03web")).unwrap();
    let mut refused = [0; 8];
    client.read_exact(&mut refused).unwrap();
    assert_eq!(refused[7], 3, "the ids of the day are drawn: an exception");
    drop(client);
    assert_eq!(server.metric("snowmint_ids_issued_total").to_string(), "5988");
}
