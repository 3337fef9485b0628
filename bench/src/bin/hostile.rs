//! Hostile clients beside an honest one. Measures how long the honest client waits, whether the lease is
//! renewed, and how much memory remains in use afterwards. Clients and server share the machine. Hostile
//! threads run at the lowest priority, as if they had processors of their own: the measurement shows how the
//! server divides its time among clients, not how the system divides the processors.

use std::fs;
use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};
use rustix::process::{Signal, setpriority_process};
use snowmint_bench::http::{connected, get, line};
use snowmint_bench::server::{Outcome, Scratch, Server, raise_open_files};
use snowmint_bench::stats::{median, quantile};
use snowmint_bench::table::{Table, figure};

/// The node renews the lease after a third of this.
const WINDOW: &str = "3s";
/// The connections of the idle flood.
const IDLE: usize = 8_000;
/// The connection limit of the server: less than the flood.
const MOST: &str = "7000";
/// Namespaces of the rows about metrics, which then have about 2 MB.
const NAMESPACES: usize = 2_000;
/// Requests in flight of a connection of HTTP/2: as many as the server takes.
const STREAMS: u32 = 100;
/// Time limit for the server to return memory.
const SETTLE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(binary), quick) = (arguments.next(), arguments.next().as_deref() == Some("--quick")) else {
        eprintln!("usage: hostile PATH-OF-SNOWMINT [--quick]");
        return ExitCode::from(2);
    };
    let measured = raise_open_files().and_then(|()| measure(Path::new(&binary), quick));
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hostile: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The work of hostile clients until they are stopped.
#[derive(Clone, Copy)]
enum Attack {
    /// Pipelines of one request over RESP, on a number of connections.
    Resp(usize, &'static [u8]),
    /// The same over HTTP.
    Http(usize, &'static [u8]),
    /// A number of connections of HTTP/2 that read this many bytes of each answer.
    Unread(usize, Port, &'static str, u32),
    /// Anything else.
    Other(fn(&Server, &AtomicBool)),
}

/// A port of the server.
#[derive(Clone, Copy)]
enum Port {
    Http,
    Probe,
}

impl Port {
    const fn of(self, server: &Server) -> SocketAddr {
        match self {
            Self::Http => server.http,
            Self::Probe => server.probe,
        }
    }
}

impl Attack {
    fn run(self, server: &Server, stop: &AtomicBool) {
        match self {
            Self::Resp(connections, request) => greedy(server.resp, connections, request, stop),
            Self::Http(connections, request) => greedy(server.http, connections, request, stop),
            Self::Unread(connections, port, path, window) => {
                unread(port.of(server), connections, (path, window), stop);
            }
            Self::Other(attack) => attack(server, stop),
        }
    }
}

const GREEDY_RESP: Attack = Attack::Resp(8, b"ID.NEXT random COUNT 100000\r\n");
const CROWD_RESP: Attack = Attack::Resp(500, b"ID.NEXT random COUNT 100000\r\n");
const SMALL_RESP: Attack = Attack::Resp(8, b"ID.NEXT random\r\n");
const GREEDY_HTTP: Attack =
    Attack::Http(8, b"GET /v1/ids/random?count=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
const CROWD_HTTP: Attack =
    Attack::Http(500, b"GET /v1/ids/random?count=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
const MIDDLE_HTTP: Attack =
    Attack::Http(8, b"GET /v1/ids/random?count=500 HTTP/1.1\r\nHost: localhost\r\n\r\n");
const SMALL_HTTP: Attack = Attack::Http(8, b"GET /v1/ids/random HTTP/1.1\r\nHost: localhost\r\n\r\n");
const IDLE_CROWD: Attack = Attack::Other(idle);
const CONNECT: Attack = Attack::Other(connect);
const SLOW: Attack = Attack::Other(slow);
const WRONG: Attack = Attack::Other(wrong);

const UNREAD_METRICS: Attack = Attack::Unread(8, Port::Http, "/metrics", 0);
const UNREAD_PROBE: Attack = Attack::Unread(8, Port::Probe, "/metrics", 0);
const HALF_READ: Attack = Attack::Unread(20, Port::Http, "/metrics", 20_000);
const UNREAD_IDS: Attack = Attack::Unread(20, Port::Http, "/v1/ids/random?count=5000", 1);
const UNREAD_LIST: Attack = Attack::Unread(8, Port::Http, "/v1/server", 1);
const PIPELINES: Attack = Attack::Other(pipelines);
const SCRAPERS: Attack = Attack::Other(scrapers);

/// The rows on a server with thousands of namespaces.
const CROWDED: [(&str, &[Attack]); 7] = [
    ("none, 2,000 namespaces", &[]),
    ("4 scrapers without a pause, 2,000 namespaces", &[SCRAPERS]),
    ("8 x 100 unread `/metrics` over HTTP/2, 2,000 namespaces", &[UNREAD_METRICS]),
    ("the same at `--probe`", &[UNREAD_PROBE]),
    ("20 x 100 `/metrics` read in part", &[HALF_READ]),
    ("100 unread pipelines of `/metrics` over HTTP/1.1", &[PIPELINES]),
    ("unread ids, lists and metrics at once", &[UNREAD_IDS, UNREAD_LIST, HALF_READ, UNREAD_PROBE, PIPELINES]),
];

const ATTACKS: [(&str, &[Attack]); 13] = [
    ("none", &[]),
    ("8 RESP pipelines of `ID.NEXT .. COUNT 100000`", &[GREEDY_RESP]),
    ("500 of them", &[CROWD_RESP]),
    ("8 RESP pipelines of `ID.NEXT` without a count", &[SMALL_RESP]),
    ("8 HTTP pipelines of `count=100000`", &[GREEDY_HTTP]),
    ("500 of them", &[CROWD_HTTP]),
    ("8 HTTP pipelines of `count=500`", &[MIDDLE_HTTP]),
    ("8 HTTP pipelines without a count", &[SMALL_HTTP]),
    ("8,000 connections that ask once and idle, 7,000 allowed", &[IDLE_CROWD]),
    ("connecting and closing without a pause", &[CONNECT]),
    ("400 readers of 1 KiB a second", &[SLOW]),
    ("garbage, half requests, TLS, the other protocol", &[WRONG]),
    (
        "all but the crowds of 500",
        &[GREEDY_RESP, SMALL_RESP, GREEDY_HTTP, MIDDLE_HTTP, SMALL_HTTP, IDLE_CROWD, CONNECT, SLOW, WRONG],
    ),
];

fn measure(binary: &Path, quick: bool) -> Outcome<()> {
    let time = Duration::from_secs(if quick { 3 } else { 8 });
    let columns = [
        "hostile clients",
        "requests of the honest one",
        "p50 ms",
        "p99 ms",
        "slowest ms",
        "p99 ms of a server that nobody attacks",
        "server's CPU, cores",
        "health checks failed",
        "lease renewals",
        "lost",
        "RSS MiB before",
        "most",
        "after",
    ];
    let mut table = Table::new("Hostile clients beside an honest one", &columns);
    let rows = ATTACKS.iter().map(|row| (row, 0)).chain(CROWDED.iter().map(|row| (row, NAMESPACES)));
    for (&(what, attacks), namespaces) in rows {
        let scratch = Scratch::new("hostile")?;
        let data = scratch.0.join("data");
        let commands: [&[&str]; 2] = [&["store", "init"], &["ns", "add", "random", "--scheme", "uuid4"]];
        for command in commands {
            let done = Command::new(binary).args(command).arg("--data").arg(&data).output()?;
            if !done.status.success() {
                return Err(String::from_utf8_lossy(&done.stderr).into());
            }
        }
        let file = scratch.0.join("namespaces.toml");
        let numbers = (0..namespaces)
            .map(|nth| format!("[namespaces.a-namespace-with-a-long-name-{nth}]\nscheme = 'segment'\n"));
        fs::write(&file, numbers.collect::<String>() + "[namespaces.random]\nscheme = 'uuid4'\n")?;
        let file = file.to_string_lossy();
        let mut flags = vec!["--window", WINDOW, "--max-connections", MOST];
        if namespaces > 0 {
            // Thousands of first reservations at once would keep SQLite busy during the measurement.
            flags.extend(["--store", "memory:", "--namespaces-file", &file]);
        }
        let (server, _) = Server::start(binary, &data, &flags)?;
        let (quiet, _) = Server::start(binary, &scratch.0.join("quiet"), &["--window", WINDOW])?;
        let row = beside(&server, &quiet, attacks, time)?;
        quiet.stop(Signal::TERM)?;
        server.stop(Signal::TERM)?;
        let [before, most, after] = row.rss_mib.map(|mib| format!("{mib:.1}"));
        table.row(&[
            what.into(),
            row.ms.len().to_string(),
            figure(median(&row.ms)),
            figure(quantile(&row.ms, 0.99)),
            figure(quantile(&row.ms, 1.0)),
            figure(quantile(&row.quiet_ms, 0.99)),
            figure(row.cores),
            format!("{} of {}", row.failed, row.checks),
            row.renewals.to_string(),
            row.lost.to_string(),
            before,
            most,
            after,
        ]);
    }
    table.print();
    println!(
        "\nThe honest client asks for one id at a time over RESP and HTTP; a health check opens a connection each 50 ms. All \
         clients\nand the server share {} processors. Hostile threads run at nice 19, so that the honest client waits for the \
         server rather\nthan for a processor; the server's CPU shows how busy they keep it. The same client also asks a \
         second server, without\nhostile clients: its p99 is what the machine costs by itself.",
        thread::available_parallelism()?
    );
    Ok(())
}

struct Row {
    ms: Vec<f64>,
    /// Of a server without hostile clients on the same machine at the same time: what the machine itself
    /// costs.
    quiet_ms: Vec<f64>,
    /// CPU that the server used during the attack, in cores.
    cores: f64,
    checks: u64,
    failed: u64,
    renewals: u64,
    lost: u64,
    rss_mib: [f64; 3],
}

/// Measures an honest client during an attack.
fn beside(server: &Server, quiet: &Server, attacks: &[Attack], time: Duration) -> Outcome<Row> {
    // The honest client connects before the attack, as a service's clients do.
    let mut resp = connected(server.resp)?;
    let mut http = connected(server.http)?;
    let mut quiet = connected(quiet.resp)?;
    for _ in 0..2000 {
        ask_resp(&mut resp)?;
        get(&mut http, "/v1/ids/default")?;
        ask_resp(&mut quiet)?;
    }
    let (renewals, lost) = (
        metric(&mut http, "snowmint_lease_renewals_total")?,
        metric(&mut http, "snowmint_leases_lost_total")?,
    );
    let rss = |field| server.kib("status", field).map(|kib| kib / 1024.0);
    let before = rss("VmRSS:")?;
    let stop = AtomicBool::new(false);
    let (checks, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let (ms, quiet_ms, cores) = thread::scope(|scope| {
        let (stop, checks, failed) = (&stop, &checks, &failed);
        for attack in attacks {
            scope.spawn(move || {
                // Applies to this thread and to those that it starts.
                if let Err(error) = setpriority_process(None, 19) {
                    eprintln!("hostile: the priority of hostile clients stays as it is: {error}");
                }
                attack.run(server, stop);
            });
        }
        if !attacks.is_empty() {
            thread::sleep(Duration::from_secs(2));
        }
        // As an orchestrator does: over a new connection each time.
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                checks.fetch_add(1, Ordering::Relaxed);
                let ready = connected(server.http).and_then(|mut client| get(&mut client, "/readyz"));
                if ready.is_err() {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let asked = (|| {
            let cpu_ms = server.cpu_ms()?;
            let (began, mut ms, mut quiet_ms) = (Instant::now(), Vec::new(), Vec::new());
            while began.elapsed() < time {
                let asked = Instant::now();
                ask_resp(&mut resp)?;
                ms.push(asked.elapsed().as_secs_f64() * 1e3);
                let asked = Instant::now();
                get(&mut http, "/v1/ids/default")?;
                ms.push(asked.elapsed().as_secs_f64() * 1e3);
                let asked = Instant::now();
                ask_resp(&mut quiet)?;
                quiet_ms.push(asked.elapsed().as_secs_f64() * 1e3);
                thread::sleep(Duration::from_millis(1));
            }
            let cores = (server.cpu_ms()? - cpu_ms) / began.elapsed().as_secs_f64() / 1e3;
            Outcome::Ok((ms, quiet_ms, cores))
        })();
        stop.store(true, Ordering::Relaxed);
        asked
    })?;
    let most = rss("VmHWM:")?;
    let began = Instant::now();
    let mut after = rss("VmRSS:")?;
    while began.elapsed() < SETTLE {
        thread::sleep(Duration::from_millis(200));
        after = rss("VmRSS:")?;
    }
    Ok(Row {
        ms,
        quiet_ms,
        cores,
        checks: checks.into_inner(),
        failed: failed.into_inner(),
        renewals: metric(&mut http, "snowmint_lease_renewals_total")? - renewals,
        lost: metric(&mut http, "snowmint_leases_lost_total")? - lost,
        rss_mib: [before, most, after],
    })
}

fn ask_resp(client: &mut BufReader<TcpStream>) -> io::Result<()> {
    client.get_mut().write_all(b"*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\n")?;
    let head = line(client)?;
    if !head.starts_with('$') {
        return Err(io::Error::other(head));
    }
    line(client).map(drop)
}

fn metric(client: &mut BufReader<TcpStream>, name: &str) -> Outcome<u64> {
    let text = get(client, "/metrics")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.ok_or(format!("no {name}"))?.trim().parse()?)
}

/// Sends requests without a pause and reads as fast as the server answers, over some connections.
fn greedy(address: SocketAddr, connections: usize, request: &[u8], stop: &AtomicBool) {
    /// Each thread serves its share of the connections.
    const THREADS: usize = 4;
    let requests = request.repeat(64 * 1024 / request.len());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let share = connections / THREADS;
                let mut clients: Vec<Greedy> =
                    (0..share).filter_map(|_| Greedy::connect(address).ok()).collect();
                let mut ignored = vec![0; 1 << 20];
                while !stop.load(Ordering::Relaxed) {
                    let moved = clients.iter_mut().map(|client| client.go_on(&requests, &mut ignored));
                    if moved.sum::<usize>() == 0 {
                        thread::sleep(Duration::from_micros(100));
                    }
                }
            });
        }
    });
}

/// A connection that never runs out of requests.
struct Greedy {
    stream: TcpStream,
    /// Number of bytes of the requests that were sent.
    sent: usize,
}

impl Greedy {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, sent: 0 })
    }

    /// Sends and reads as much as possible without blocking. Returns the number of bytes.
    fn go_on(&mut self, requests: &[u8], ignored: &mut [u8]) -> usize {
        let sent = self.stream.write(&requests[self.sent..]).unwrap_or(0);
        self.sent = (self.sent + sent) % requests.len();
        // The kernel discards the data without a copy, which takes less CPU from the server.
        sent + recv(&self.stream, ignored, RecvFlags::TRUNC).map_or(0, |(_, read)| read)
    }
}

fn wait_for(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(10));
    }
}

fn idle(server: &Server, stop: &AtomicBool) {
    let mut held = Vec::new();
    for i in 0..IDLE {
        let (address, request): (_, &[u8]) = if i % 2 == 0 {
            (server.resp, b"PING\r\n")
        } else {
            (server.http, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        };
        if let Ok(mut stream) = TcpStream::connect(address) {
            let _ = stream.write_all(request);
            held.push(stream);
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
    wait_for(stop);
}

fn connect(server: &Server, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let _ = TcpStream::connect(server.resp);
        let _ = TcpStream::connect(server.http);
    }
}

/// Requests as much as connections of HTTP/2 may, and reads `window` bytes of each answer. Once the server
/// resets the answers, the connections begin again.
fn unread(address: SocketAddr, connections: usize, (path, window): (&str, u32), stop: &AtomicBool) {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
        [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    // `:method: GET` and `:scheme: http`, then path and authority as literals.
    let mut head = vec![0x82, 0x86];
    for (name, value) in [(4, path), (1, "localhost")] {
        head.extend([name, u8::try_from(value.len()).unwrap_or(u8::MAX)]);
        head.extend(value.as_bytes());
    }
    let mut opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    opening.extend(frame(4, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat()));
    // All answers together may be sent as far as the windows of each allow.
    opening.extend(frame(8, 0, 0, &(1_u32 << 30).to_be_bytes()));
    opening.extend((0..STREAMS).flat_map(|nth| frame(1, 5, 2 * nth + 1, &head)));
    let connect = || {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(&opening).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    };
    let mut held: Vec<Option<TcpStream>> = (0..connections).map(|_| connect()).collect();
    let mut ignored = vec![0; 1 << 20];
    while !stop.load(Ordering::Relaxed) {
        for client in &mut held {
            let is_open = client.as_mut().is_some_and(|client| match client.read(&mut ignored) {
                Ok(read) => read > 0,
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            });
            if !is_open {
                *client = connect();
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn pipelines(server: &Server, stop: &AtomicBool) {
    let requests = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
    let connect = |_| {
        let mut stream = TcpStream::connect(server.http).ok()?;
        stream.write_all(&requests).ok()?;
        Some(stream)
    };
    let held: Vec<TcpStream> = (0..100).filter_map(connect).collect();
    wait_for(stop);
    drop(held);
}

fn scrapers(server: &Server, stop: &AtomicBool) {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let Ok(mut client) = connected(server.http) else { return };
                while !stop.load(Ordering::Relaxed) && get(&mut client, "/metrics").is_ok() {}
            });
        }
    });
}

fn slow(server: &Server, stop: &AtomicBool) {
    let resp = b"ID.NEXT default COUNT 100000\r\n".repeat(100);
    let http = b"GET /v1/ids/default?count=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
    let mut readers: Vec<TcpStream> = (0..400)
        .filter_map(|i| {
            let address = if i % 2 == 0 { server.resp } else { server.http };
            let mut stream = TcpStream::connect(address).ok()?;
            stream.write_all(if i % 2 == 0 { &resp } else { &http }).ok()?;
            stream.set_nonblocking(true).ok()?;
            Some(stream)
        })
        .collect();
    let mut piece = [0; 1024];
    while !stop.load(Ordering::Relaxed) {
        for reader in &mut readers {
            let _ = reader.read(&mut piece);
        }
        for _ in 0..50 {
            if !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn wrong(server: &Server, stop: &AtomicBool) {
    let garbage: Vec<u8> = (0..4096_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let texts: [&[u8]; 6] = [
        &garbage,
        b"GET /v1/ids/default HTTP/1.1\r\nHos",
        b"*2\r\n$7\r\nID.NEXT\r\n$7\r\ndef",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\nID.NEXT default\r\n",
        b"*1\r\n$4\r\nPING\r\n",
    ];
    let mut held = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        for address in [server.resp, server.http] {
            for text in texts {
                if let Ok(mut stream) = TcpStream::connect(address) {
                    let _ = stream.write_all(text);
                    held.push(stream);
                }
            }
        }
        if held.len() > 600 {
            held.drain(..300);
        }
        thread::sleep(Duration::from_millis(2));
    }
}
