//! Hostile clients beside an honest one: how long that waits, whether the lease is renewed, and what memory is left after.
//! Clients and server share the machine, so the honest client also waits for a processor that the hostile ones use.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use snowmint_bench::server::{Outcome, PATIENCE, Scratch, Server};
use snowmint_bench::stats::{median, quantile};
use snowmint_bench::table::{Table, figure};

/// A lease is renewed at a third of it.
const WINDOW: &str = "3s";
/// The connections of the idle flood.
const IDLE: usize = 8_000;
/// The most that the server takes: fewer.
const MOST: &str = "7000";
/// How long memory may take to come back.
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

fn raise_open_files() -> Outcome<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// What hostile clients do until they are told to stop.
type Attack = fn(&Server, &AtomicBool);

const ATTACKS: [(&str, &[Attack]); 8] = [
    ("none", &[]),
    ("8 RESP pipelines of `ID.NEXT .. COUNT 100000`", &[greedy_resp]),
    ("8 HTTP connections of `count=100000`", &[greedy_http]),
    ("8,000 connections that ask once and idle, 7,000 allowed", &[idle]),
    ("connecting and closing without a pause", &[connect]),
    ("400 readers of 1 KiB a second", &[slow]),
    ("garbage, half requests, TLS, the other protocol", &[wrong]),
    ("all of these", &[greedy_resp, greedy_http, idle, connect, slow, wrong]),
];

fn measure(binary: &Path, quick: bool) -> Outcome<()> {
    let time = Duration::from_secs(if quick { 3 } else { 8 });
    let columns = [
        "hostile clients",
        "requests of the honest one",
        "p50 ms",
        "p99 ms",
        "slowest ms",
        "health checks failed",
        "lease renewals",
        "lost",
        "RSS MiB before",
        "most",
        "after",
    ];
    let mut table = Table::new("Hostile clients beside an honest one", &columns);
    for (what, attacks) in ATTACKS {
        let scratch = Scratch::new("hostile")?;
        let data = scratch.0.join("data");
        let added = Command::new(binary)
            .args(["ns", "add", "random", "--scheme", "uuid4", "--data"])
            .arg(&data)
            .output()?;
        if !added.status.success() {
            return Err(String::from_utf8_lossy(&added.stderr).into());
        }
        let flags = ["--window", WINDOW, "--max-connections", MOST];
        let (server, _) = Server::start(binary, &data, &flags)?;
        let row = beside(&server, attacks, time)?;
        server.stop(Signal::TERM)?;
        let [before, most, after] = row.rss_mib.map(|mib| format!("{mib:.1}"));
        table.row(&[
            what.into(),
            row.ms.len().to_string(),
            figure(median(&row.ms)),
            figure(quantile(&row.ms, 0.99)),
            figure(quantile(&row.ms, 1.0)),
            format!("{} of {}", row.failed, row.checks),
            row.renewals.to_string(),
            row.lost.to_string(),
            before,
            most,
            after,
        ]);
    }
    table.print();
    Ok(())
}

struct Row {
    ms: Vec<f64>,
    checks: u64,
    failed: u64,
    renewals: u64,
    lost: u64,
    rss_mib: [f64; 3],
}

/// Measures an honest client while others do their worst.
fn beside(server: &Server, attacks: &[Attack], time: Duration) -> Outcome<Row> {
    // It was there before them, as clients of a service are.
    let mut resp = connected(server.resp)?;
    let mut http = connected(server.http)?;
    for _ in 0..2000 {
        ask_resp(&mut resp)?;
        ask_http(&mut http, "/v1/ids/default")?;
    }
    let rss = |field| server.kib("status", field).map(|kib| kib / 1024.0);
    let before = rss("VmRSS:")?;
    let (renewals, lost) = (
        metric(&mut http, "snowmint_lease_renewals_total")?,
        metric(&mut http, "snowmint_leases_lost_total")?,
    );
    let stop = AtomicBool::new(false);
    let (checks, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let ms = thread::scope(|scope| {
        let (stop, checks, failed) = (&stop, &checks, &failed);
        for attack in attacks {
            scope.spawn(move || attack(server, stop));
        }
        if !attacks.is_empty() {
            thread::sleep(Duration::from_secs(2));
        }
        // As an orchestrator asks: each time over a new connection.
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                checks.fetch_add(1, Ordering::Relaxed);
                let ready = connected(server.http).and_then(|mut client| ask_http(&mut client, "/readyz"));
                if ready.is_err() {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let asked = (|| {
            let (began, mut ms) = (Instant::now(), Vec::new());
            while began.elapsed() < time {
                let asked = Instant::now();
                ask_resp(&mut resp)?;
                ms.push(asked.elapsed().as_secs_f64() * 1e3);
                let asked = Instant::now();
                ask_http(&mut http, "/v1/ids/default")?;
                ms.push(asked.elapsed().as_secs_f64() * 1e3);
                thread::sleep(Duration::from_millis(1));
            }
            io::Result::Ok(ms)
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
        checks: checks.into_inner(),
        failed: failed.into_inner(),
        renewals: metric(&mut http, "snowmint_lease_renewals_total")? - renewals,
        lost: metric(&mut http, "snowmint_leases_lost_total")? - lost,
        rss_mib: [before, most, after],
    })
}

fn connected(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

fn line(client: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if client.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

fn ask_resp(client: &mut BufReader<TcpStream>) -> io::Result<()> {
    client.get_mut().write_all(b"*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\n")?;
    let head = line(client)?;
    if !head.starts_with('$') {
        return Err(io::Error::other(head));
    }
    line(client).map(drop)
}

/// Asks for a path: the body of an answer that is good.
fn ask_http(client: &mut BufReader<TcpStream>, path: &str) -> io::Result<String> {
    client.get_mut().write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let status = line(client)?;
    let mut length = 0;
    loop {
        let header = line(client)?.to_ascii_lowercase();
        if header == "\r\n" {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    client.read_exact(&mut body)?;
    if !status.contains(" 200 ") {
        return Err(io::Error::other(status));
    }
    String::from_utf8(body).map_err(io::Error::other)
}

fn metric(client: &mut BufReader<TcpStream>, name: &str) -> Outcome<u64> {
    let text = ask_http(client, "/metrics")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.ok_or(format!("no {name}"))?.trim().parse()?)
}

/// Asks without a pause and reads as fast as it is answered.
fn greedy(address: SocketAddr, request: &[u8], stop: &AtomicBool) {
    let requests = request.repeat(100);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let Ok(stream) = TcpStream::connect(address) else { return };
                let (Ok(mut writer), mut reader) = (stream.try_clone(), stream) else { return };
                let requests = &requests;
                thread::scope(|scope| {
                    scope.spawn(move || while writer.write_all(requests).is_ok() {});
                    let mut ignored = vec![0; 1 << 18];
                    while !stop.load(Ordering::Relaxed)
                        && reader.read(&mut ignored).is_ok_and(|read| read > 0)
                    {}
                    // The writer hears of the end this way.
                    let _ = reader.shutdown(std::net::Shutdown::Both);
                });
            });
        }
    });
}

fn greedy_resp(server: &Server, stop: &AtomicBool) {
    greedy(server.resp, b"ID.NEXT random COUNT 100000\r\n", stop);
}

fn greedy_http(server: &Server, stop: &AtomicBool) {
    greedy(server.http, b"GET /v1/ids/random?count=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n", stop);
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
