//! Abuse of every port beside an honest client: the client gets all its ids, memory stays bounded, and each
//! protocol works afterwards.
//!
//! The honest client fails a test with an error, or with a request that takes longer than [`SLOWEST`], which
//! leaves room for a busy machine. Its p99 is printed; `bench/src/bin/hostile.rs` measures it on a quiet one.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use snowmint_test_servers::snowmint::http::Http;
use snowmint_test_servers::snowmint::raw_clients::{Grpc, THRIFT_GET_ID, Thrift, grpc_call, grpc_stream};
use snowmint_test_servers::snowmint::resp::command;
use snowmint_test_servers::snowmint::{self, Resp, Serve, Server, server};
use snowmint_test_servers::{port, time};

/// A request of an honest client that takes longer fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// The p99 of an honest client on a busy machine. The aim on a quiet one is 50 ms.
const SLOWEST: Duration = Duration::from_secs(3);
/// How long each kind of abuse lasts once it has begun.
const ABUSE: Duration = Duration::from_secs(2);

const HTTP_ID: &[u8] = b"GET /v1/ids/default HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A server with each protocol on a separate port.
struct Victim {
    server: Server,
    thrift: SocketAddrV4,
    grpc: SocketAddrV4,
}

impl Victim {
    fn spawn(folder: &Path, args: &[&str]) -> Self {
        let (thrift, grpc) = (port::free(), port::free());
        let ports = [("--thrift", thrift), ("--grpc", grpc)];
        let ports = ports.iter().flat_map(|(flag, address)| [(*flag).to_owned(), address.to_string()]);
        let server = Serve::new(folder).args(ports).args(args).spawn();
        server.log_with("ready: ids are served", PATIENCE);
        Self { server, thrift, grpc }
    }

    /// The ports, with the bytes of a request for an id.
    fn ports(&self) -> [(SocketAddrV4, Vec<u8>); 4] {
        [
            (self.server.http(), HTTP_ID.to_vec()),
            (self.server.resp(), command(&["ID.NEXT", "default"])),
            (self.thrift, THRIFT_GET_ID.to_vec()),
            (self.grpc, grpc_stream(1, 1)),
        ]
    }

    /// Draws an id over each protocol, and checks that nothing broke and that memory stayed bounded.
    fn assert_unharmed(&self, most_mib: u64) {
        assert_eq!(self.server.take(1).len(), 1);
        assert_eq!(self.server.get("/v1/ids/default").ids().unwrap().len(), 1);
        let mut thrift = Thrift::connect(self.thrift, PATIENCE).unwrap();
        thrift.write(THRIFT_GET_ID).unwrap();
        assert!(thrift.read_unless_closed().unwrap().is_some());
        let mut grpc = Grpc::connect(self.grpc, PATIENCE).unwrap();
        grpc.write(&grpc_stream(1, 1)).unwrap();
        assert_eq!(grpc.read_call().unwrap().ids.len(), 1);
        self.assert_bounded(most_mib);
    }

    fn assert_bounded(&self, most_mib: u64) {
        let peak = server::peak_rss_kib(self.server.pid()) / 1024;
        assert!(peak < most_mib, "the server grew to {peak} MiB");
        let log = self.server.log();
        assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
        assert!(log.lines().count() < 100, "anybody can fill the log:\n{log}");
    }
}

/// An honest client that connected before the abuse.
struct Honest {
    resp: Resp,
    http: Http,
    /// The headers of its HTTP requests.
    headers: String,
}

impl Honest {
    fn connect(server: &Server, token: Option<&str>) -> Self {
        let mut resp = Resp::connect(server.resp(), PATIENCE).unwrap();
        if let Some(token) = token {
            resp.call(&["AUTH", token]).unwrap();
        }
        let headers = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let mut honest = Self { resp, http: Http::connect(server.http(), PATIENCE).unwrap(), headers };
        honest.ask();
        honest
    }

    fn ask(&mut self) {
        self.resp.next("default", 1).expect("an answer in time").expect("an id");
        let answer = self.http.get("/v1/ids/default", &self.headers).expect("an answer in time");
        assert_eq!(answer.ids().expect("ids").len(), 1);
    }

    /// Sends requests until `time` has passed since the abuse began, and checks how long it waited.
    fn ask_for(&mut self, what: &str, time: Duration, has_begun: impl Fn() -> bool) {
        let (mut began, mut waits) = (None, Vec::new());
        while began.is_none_or(|began: Instant| began.elapsed() < time) {
            if began.is_none() && has_begun() {
                began = Some(time::now());
            }
            let asked = time::now();
            self.ask();
            waits.push(asked.elapsed());
            thread::sleep(Duration::from_millis(1));
        }
        waits.sort_unstable();
        let p99 = waits[(waits.len() - 1) * 99 / 100];
        let text = format!("{what}: an honest client asked {} times, p99 {p99:.1?}", waits.len());
        snowmint::publish(&format!("abuse-{}", what.replace(' ', "-")), &text);
        assert!(p99 < SLOWEST, "{text}");
    }
}

/// Stops the hostile clients, even if the honest one fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `hostile` clients at the lowest priority, as if they had processors of their own, while an honest one
/// sends requests: until they have begun, and for [`ABUSE`] after that.
fn abuse<'a>(
    what: &str,
    honest: &mut Honest,
    has_begun: impl Fn() -> bool,
    hostile: impl IntoIterator<Item = Box<dyn Fn(&AtomicBool) + Send + 'a>>,
) {
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(stop);
        let run = |client: Box<dyn Fn(&AtomicBool) + Send + 'a>| {
            scope.spawn(move || {
                setpriority_process(None, 19).unwrap();
                client(stop);
            })
        };
        let hostile: Vec<_> = hostile.into_iter().map(run).collect();
        // A hostile client that fails would never begin.
        honest.ask_for(what, ABUSE, || {
            has_begun() || hostile.iter().any(thread::ScopedJoinHandle::is_finished)
        });
    });
}

/// The server's reaction to a hostile client.
#[derive(Debug, Default)]
struct Served {
    connections: AtomicUsize,
    bytes: AtomicUsize,
}

/// Sends a piece without a pause and reads as fast as the server writes, on one connection after the other.
fn send_greedily(address: SocketAddrV4, begin: &[u8], piece: &[u8], served: &Served, stop: &AtomicBool) {
    let is_stopped = || stop.load(Ordering::Relaxed);
    while !is_stopped() {
        let Ok(mut client) = TcpStream::connect(address) else { continue };
        served.connections.fetch_add(1, Ordering::Relaxed);
        let mut reader = client.try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut ignored = vec![0; 1 << 18];
                while !is_stopped()
                    && let Ok(read @ 1..) = reader.read(&mut ignored)
                {
                    served.bytes.fetch_add(read, Ordering::Relaxed);
                }
                // This ends a writer that waits for buffer space.
                let _ = reader.shutdown(Shutdown::Both);
            });
            let mut sends = client.write_all(begin).is_ok();
            while sends && !is_stopped() {
                sends = client.write_all(piece).is_ok();
            }
            let _ = client.shutdown(Shutdown::Both);
        });
    }
}

/// Raises the limit of open files: a test that opens thousands of connections needs them for its own ends.
fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Goal: thousands of connections at once, on every port, delay no honest client and leave nothing behind.
/// Method: 1,250 connections per port, opened without a pause. A third stays silent, a third sends its
/// request one byte at a time and never completes it, and a third sends one request and reads nothing.
#[test]
fn five_thousand_connections_at_once() {
    const EACH: usize = 1250;
    raise_open_files();
    let folder = tempfile::tempdir().unwrap();
    let victim = Victim::spawn(folder.path(), &[]);
    let mut honest = Honest::connect(&victim.server, None);
    let before = server::rss_kib(victim.server.pid());
    let ready = &AtomicUsize::new(0);
    let crowd = |address: SocketAddrV4, request: Vec<u8>| {
        move |stop: &AtomicBool| {
            let mut clients: Vec<TcpStream> =
                (0..EACH).map(|_| TcpStream::connect(address).expect("a connection")).collect();
            for asks in clients.iter_mut().skip(2).step_by(3) {
                asks.write_all(&request).expect("the server reads");
            }
            for byte in &request[..request.len() - 1] {
                for slow in clients.iter_mut().skip(1).step_by(3) {
                    slow.write_all(&[*byte]).expect("it is not late yet");
                }
            }
            ready.fetch_add(1, Ordering::Relaxed);
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
            }
            let open = clients.iter().filter(|client| !is_closed(client)).count();
            assert_eq!(open, EACH, "the server closed connections of {address}");
        }
    };
    let crowds = victim.ports().map(|(address, request)| Box::new(crowd(address, request)) as Box<_>);
    let count = crowds.len();
    let all_ready = || ready.load(Ordering::Relaxed) == count;
    abuse("5,000 connections at once", &mut honest, all_ready, crowds);
    time::eventually("their connections are gone", PATIENCE, || {
        (victim.server.metric("snowmint_connections") < 3.5).then_some(())
    });
    victim.assert_unharmed(256);
    time::eventually("their memory is returned", PATIENCE, || {
        (server::rss_kib(victim.server.pid()) < before + 16 * 1024).then_some(())
    });
}

fn is_closed(client: &TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    match client.peek(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Goal: whatever bytes arrive at any port, the server answers or closes, and continues to serve. Method: the
/// seeds of all fuzz targets, each unchanged and with random changes from a fixed seed. The client then stops
/// sending, and reads the server's answer.
#[test]
fn the_seeds_of_every_protocol_on_every_port() {
    const CHANGED: usize = 5;
    let folder = tempfile::tempdir().unwrap();
    let victim = Victim::spawn(folder.path(), &[]);
    let mut honest = Honest::connect(&victim.server, None);
    let seeds = seeds();
    let count = &std::sync::Mutex::new(0);
    let ports = victim.ports().map(|(address, _)| address);
    let send = |address: SocketAddrV4| {
        let (seeds, mut random) = (&seeds, Random(u64::from(0x5eed_u16)));
        move || {
            setpriority_process(None, 19).unwrap();
            for seed in seeds {
                say(address, seed);
                for _ in 0..CHANGED {
                    say(address, &random.changed(seed));
                }
                *count.lock().unwrap() += 1 + CHANGED;
            }
        }
    };
    thread::scope(|scope| {
        let senders = ports.map(|address| scope.spawn(send(address)));
        while !senders.iter().all(thread::ScopedJoinHandle::is_finished) {
            honest.ask();
            thread::sleep(Duration::from_millis(1));
        }
    });
    let inputs = *count.lock().unwrap();
    println!("{inputs} inputs of {} seeds", seeds.len());
    assert_eq!(inputs, ports.len() * seeds.len() * (1 + CHANGED));
    victim.assert_unharmed(96);
}

/// Returns every seed of every fuzz target, also without the byte that selects how it is split, as an HTTP
/// path, and as the messages of a gRPC call.
fn seeds() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut files = Vec::new();
    for target in fs::read_dir(root).unwrap() {
        let target = target.unwrap().path();
        files.extend(fs::read_dir(target).unwrap().map(|file| file.unwrap().path()));
    }
    files.sort_unstable();
    let mut seeds = Vec::new();
    for seed in files.iter().map(|path| fs::read(path).unwrap()) {
        let first_line = seed.split(|byte| *byte == b'\n').next().unwrap_or_default();
        seeds.push([b"GET ", first_line, b" HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat());
        let body = &seed[1..seed.len().min(8000)];
        seeds.push(grpc_call("/snowmint.v1.Snowmint/Next", body));
        seeds.push(body.to_vec());
        seeds.push(seed);
    }
    assert!(seeds.len() > 200, "{} seeds", seeds.len());
    seeds
}

/// Sends bytes, closes the sending side, and reads until the server closes.
fn say(address: SocketAddrV4, bytes: &[u8]) {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    // The server may close before it has read everything.
    let sent = client.write_all(bytes).and_then(|()| client.shutdown(Shutdown::Write));
    let said = sent.and_then(|()| client.read_to_end(&mut Vec::new()));
    if let Err(error) = said {
        let waited = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(!waited, "{address} neither answers nor closes: {}", bytes.escape_ascii());
    }
}

/// A small generator (xorshift), so that each run sends the same bytes.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % limit
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    /// Returns the bytes with a few of them changed, cut off, inserted or repeated.
    fn changed(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(5) {
                0 => bytes.insert(at, self.byte()),
                1 => bytes.truncate(at),
                2 => bytes.extend_from_within(..at),
                3 => bytes[..at].last_mut().into_iter().for_each(|byte| *byte = self.byte()),
                _ => bytes[..at].last_mut().into_iter().for_each(|byte| *byte ^= 1 << self.below(8)),
            }
        }
        bytes
    }
}

/// Goal: endless pipelines on every port at once delay no honest client.
#[test]
fn greedy_pipelines_on_every_port() {
    let folder = tempfile::tempdir().unwrap();
    snowmint::run(folder.path(), ["store", "init", "--data", "data"]);
    // They do not use up the ids of the honest client.
    let added = snowmint::run(folder.path(), ["ns", "add", "random", "--scheme", "uuid4", "--data", "data"]);
    assert!(added.status.success(), "{}", snowmint::text(&added));
    let victim = Victim::spawn(folder.path(), &[]);
    let mut honest = Honest::connect(&victim.server, None);
    let http = b"GET /v1/ids/random?count=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let pipelines = [
        (victim.server.http(), Vec::new(), http.repeat(100)),
        (victim.server.resp(), Vec::new(), command(&["ID.NEXT", "random", "COUNT", "100000"]).repeat(100)),
        (
            victim.thrift,
            Vec::new(),
            [&b"\0\0\0\x1a"[..], b"\x80\x01\0\x01\0\0\0\x0dget_worker_id\0\0\0\x01\0"].concat().repeat(500),
        ),
        // A call, and pings, each of which the server acknowledges.
        (
            victim.grpc,
            grpc_call("/grpc.health.v1.Health/Check", &[0; 5]),
            b"\0\0\x08\x06\0\0\0\0\0abcdefgh".repeat(5000),
        ),
    ];
    let served: [Served; 4] = Default::default();
    let hostile = pipelines.iter().zip(&served).map(|((address, begin, piece), served)| {
        Box::new(move |stop: &AtomicBool| send_greedily(*address, begin, piece, served, stop)) as Box<_>
    });
    // A slow machine needs longer until the attack has an effect.
    let all_greedy = || served.iter().all(|it| it.bytes.load(Ordering::Relaxed) > 100_000);
    abuse("greedy pipelines on every port", &mut honest, all_greedy, hostile);
    assert!(all_greedy(), "a hostile client ended: {served:?}");
    for (served, (address, ..)) in served.iter().zip(&pipelines) {
        println!("{address}: {served:?}");
        assert_eq!(served.connections.load(Ordering::Relaxed), 1, "{address} closed it: {served:?}");
    }
    victim.assert_unharmed(96);
}

/// Goal: clients that try tokens as fast as they can delay no honest client and do not fill the log.
#[test]
fn wrong_tokens_at_full_speed() {
    let folder = tempfile::tempdir().unwrap();
    let create = ["token", "create", "web", "--namespaces", "default", "--file", "tokens.toml"];
    let created = snowmint::run(folder.path(), create);
    assert!(created.status.success(), "{}", snowmint::text(&created));
    let token = String::from_utf8(created.stdout).unwrap().trim().to_owned();
    let victim = Victim::spawn(folder.path(), &["--tokens-file", "tokens.toml", "--thrift-token", "web"]);
    let mut honest = Honest::connect(&victim.server, Some(&token));
    // A token with a wrong secret, and a text that is not a token.
    let wrong: Vec<String> = (0..100)
        .flat_map(|nth| [format!("{}{nth:02}", &token[..token.len() - 2]), format!("wrong{nth}")])
        .filter(|wrong| *wrong != token)
        .collect();
    let pieces = [
        (victim.server.resp(), wrong.iter().flat_map(|it| command(&["AUTH", it])).collect::<Vec<u8>>()),
        (
            victim.server.http(),
            wrong
                .iter()
                .flat_map(|it| {
                    format!(
                        "GET /v1/ids/default HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {it}\r\n\r\n"
                    )
                    .into_bytes()
                })
                .collect(),
        ),
    ];
    let served = &Served::default();
    let hostile = pieces.iter().map(|(address, piece)| {
        Box::new(move |stop: &AtomicBool| send_greedily(*address, b"", piece, served, stop)) as Box<_>
    });
    let refused = || {
        let metrics = victim.server.get("/metrics").body;
        let refused = metrics.lines().filter(|line| {
            line.starts_with("snowmint_requests_total{") && line.contains("outcome=\"unauthorized\"")
        });
        refused.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    abuse("wrong tokens at full speed", &mut honest, || refused() > 1000.0, hostile);
    honest.ask();
    victim.assert_bounded(96);
    assert!(refused() > 1000.0, "a hostile client ended: {} wrong tokens were refused", refused());
}
