//! The service's protocols compared with bare peers and Redis: requests and CPU time, ids in batches, latency
//! at a fixed rate, TLS, and idle connections. Subjects take turns in rounds; a figure is the median of its
//! rounds, and a ratio is the median of the ratios.

use std::fs;
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use snowmint_bench::echo;
use snowmint_bench::load::Load;
use snowmint_bench::server::{
    Outcome, Peer, Scratch, Server, cpu_ms, free_port, raise_open_files, stolen_ticks,
};
use snowmint_bench::stats::{median, median_ratio, quantile};
use snowmint_bench::table::{Table, figure};
use snowmint_bench::wire::Wire;
use snowmint_server::Access;
use snowmint_server::access::TokensSource;
use snowmint_server::access::secret::{Secret, TokenName};
use snowmint_server::grpc_messages::{Format, NextRequest};

const USAGE: &str = "usage: network PATH-OF-SNOWMINT [--short | --quick] [--only GROUP]
  --short  20 s at the fixed rate, not 60; --quick: a minute in all, rough figures
  --only   one group: redis, peers, batches, rate, tls, idle, tokens";
/// A layout whose limit no client here can reach.
const WIDE: &str = "time:41 worker:2 sequence:20 epoch:2026-01-01";
/// 65,536 ids a millisecond.
const SIXTEEN: &str = "time:41 worker:6 sequence:16 epoch:2026-01-01";
const NEXT: &str = "/snowmint.v1.Snowmint/Next";
/// Requests per second at the fixed rate: Twitter's requirement for one server.
const RATE: u32 = 10_000;
/// Connections of most loads; the default of `redis-benchmark`.
const CONNECTIONS: usize = 50;
/// Connections that send one request and then idle.
const IDLE: usize = 9_900;

/// Durations and sizes of the measurements.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    slice: Duration,
    /// Duration at the fixed rate, for each protocol.
    rate_time: Duration,
    /// Requests of `redis-benchmark`, one by one and in pipelines.
    requests: [usize; 2],
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["echo", protocol, address] => {
            address.parse().map_err(Into::into).and_then(|address| echo::serve(protocol, address))
        }
        [] => Err(USAGE.into()),
        [binary, ref flags @ ..] => measure(Path::new(binary), flags),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("network: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(binary: &Path, flags: &[&str]) -> Outcome<()> {
    let mut effort = Effort {
        rounds: 5,
        slice: Duration::from_secs(1),
        rate_time: Duration::from_mins(1),
        requests: [100_000, 2_000_000],
    };
    let (mut only, mut flags) = (None, flags.iter());
    while let Some(flag) = flags.next() {
        match *flag {
            "--short" => effort.rate_time = Duration::from_secs(20),
            "--quick" => {
                effort = Effort {
                    rounds: 2,
                    slice: Duration::from_millis(300),
                    rate_time: Duration::from_secs(4),
                    requests: [20_000, 300_000],
                }
            }
            "--only" => only = Some(*flags.next().ok_or(USAGE)?),
            _ => return Err(USAGE.into()),
        }
    }
    raise_open_files()?;
    let bench = Bench { binary: binary.to_owned(), scratch: Scratch::new("network")?, effort };
    let groups: [(&str, Group); 7] = [
        ("redis", Bench::redis),
        ("peers", Bench::peers),
        ("batches", Bench::batches),
        ("rate", Bench::rate),
        ("tls", Bench::tls),
        ("idle", Bench::idle),
        ("tokens", Bench::tokens),
    ];
    if only.is_some_and(|only| groups.iter().all(|(name, _)| *name != only)) {
        return Err(USAGE.into());
    }
    let mut failed = Vec::new();
    for (name, group) in groups {
        if only.is_none_or(|only| only == name) {
            let began = Instant::now();
            if let Err(error) = group(&bench) {
                // The other groups still print their results.
                println!("\n## Network: {name}\n\n**Not measured: {error}**");
                failed.push(name);
            }
            eprintln!("{name}: {:.0} s", began.elapsed().as_secs_f64());
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured: {}", failed.join(", ")).into()) }
}

/// A group of measurements, which prints its table.
type Group = fn(&Bench) -> Outcome<()>;

/// A running server with all ports.
struct Service {
    server: Server,
    thrift: SocketAddr,
    grpc: SocketAddr,
}

/// The results of one subject in each round.
#[derive(Default)]
struct Rounds {
    per_second: Vec<f64>,
    p99_us: Vec<f64>,
    cpu_ns: Vec<f64>,
}

/// What one subject did at a fixed rate.
#[derive(Default)]
struct Rated {
    /// For each turn the stolen ticks, and the response times in milliseconds.
    turns: Vec<(u64, Vec<f64>)>,
    cpu_ms: f64,
    error: String,
}

impl Rated {
    /// Returns the response times of the turns with at most this number of stolen ticks.
    fn ms(&self, most_stolen: u64) -> Vec<f64> {
        self.turns.iter().filter(|turn| turn.0 <= most_stolen).flat_map(|turn| &turn.1).copied().collect()
    }
}

struct Bench {
    binary: PathBuf,
    scratch: Scratch,
    effort: Effort,
}

impl Bench {
    fn service(&self, name: &str, layout: &str, flags: &[&str]) -> Outcome<Service> {
        let (thrift, grpc) = (free_port()?, free_port()?);
        let (thrift_text, grpc_text) = (thrift.to_string(), grpc.to_string());
        let ports = ["--thrift", &thrift_text, "--grpc", &grpc_text, "--layout", layout];
        let flags: Vec<&str> = ports.iter().chain(flags).copied().collect();
        let (server, _) = Server::start(&self.binary, &self.scratch.0.join(name), &flags)?;
        Ok(Service { server, thrift, grpc })
    }

    fn redis_server(&self) -> Outcome<Peer> {
        Peer::start(|address| {
            let mut command = Command::new("redis-server");
            command.args([
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--loglevel",
                "warning",
            ]);
            command.arg("--port").arg(address.port().to_string()).arg("--dir").arg(&self.scratch.0);
            command
        })
    }

    /// Runs `redis-benchmark`, and adds its results and the CPU time of the server's process.
    fn redis_benchmark(
        &self,
        rounds: &mut Rounds,
        pid: u32,
        address: SocketAddr,
        pipeline: usize,
        command: &[&str],
    ) -> Outcome<()> {
        let requests = self.effort.requests[usize::from(pipeline > 1)];
        let before = cpu_ms(pid)?;
        let output = Command::new("redis-benchmark")
            .args(["-p", &address.port().to_string(), "-c", &CONNECTIONS.to_string(), "--csv"])
            .args(["-n", &requests.to_string(), "-P", &pipeline.to_string()])
            .args(command)
            .output()?;
        let cpu_ns = (cpu_ms(pid)? - before) * 1e6;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().last().unwrap_or_default();
        // The fields after the name: requests per second, then mean, minimum, p50, p95, p99 and maximum, in
        // milliseconds.
        let fields: Vec<f64> =
            line.rsplit("\",\"").filter_map(|field| field.trim_matches('"').parse().ok()).collect();
        let [_, p99_ms, .., per_second] = fields[..] else {
            return Err(format!("redis-benchmark: {text}{}", String::from_utf8_lossy(&output.stderr)).into());
        };
        rounds.per_second.push(per_second);
        rounds.p99_us.push(p99_ms * 1e3);
        rounds.cpu_ns.push(cpu_ns / requests as f64);
        Ok(())
    }

    /// `redis-benchmark` against Redis and Snowmint.
    fn redis(&self) -> Outcome<()> {
        let redis = self.redis_server()?;
        let [default, wide] =
            [("default", "twitter"), ("wide", WIDE)].map(|(name, layout)| self.service(name, layout, &[]));
        let (default, wide) = (default?, wide?);
        let columns = [
            "pipeline",
            "subject",
            "requests/s",
            "of Redis",
            "p99 us",
            "of Redis",
            "server CPU ns a request",
            "of Redis",
            "aim",
            "met",
        ];
        let mut table = Table::new("Network: RESP beside redis-server, `redis-benchmark -c 50`", &columns);
        for (pipeline, aim) in [(1, 1.1), (64, 0.45)] {
            let mut all = [(); 3].map(|()| Rounds::default());
            for round in 0..=self.effort.rounds {
                // The first round warms up.
                let mut cold = [(); 3].map(|()| Rounds::default());
                let [redis_rounds, default_rounds, wide_rounds] =
                    if round == 0 { &mut cold } else { &mut all };
                self.redis_benchmark(
                    redis_rounds,
                    redis.pid(),
                    redis.address,
                    pipeline,
                    &["INCR", "counter"],
                )?;
                for (service, rounds) in [(&default, default_rounds), (&wide, wide_rounds)] {
                    let next = ["ID.NEXT", "default"];
                    self.redis_benchmark(rounds, service.server.pid(), service.server.resp, pipeline, &next)?;
                }
            }
            let names =
                ["redis-server `INCR`", "`ID.NEXT default`", "`ID.NEXT default`, sequence of 20 bits"];
            for (at, (name, rounds)) in names.iter().zip(&all).enumerate() {
                let ratio = |values: &[f64], to: &[f64]| median_ratio(values, to);
                let cpu = ratio(&rounds.cpu_ns, &all[0].cpu_ns);
                let requests = ratio(&rounds.per_second, &all[0].per_second);
                let p99 = ratio(&rounds.p99_us, &all[0].p99_us);
                let (aims, met) = if at == 0 {
                    ("-".into(), "-".into())
                } else if pipeline == 1 {
                    let met = cpu <= aim && requests >= 1.0 && p99 <= 1.0;
                    (format!("requests 1.0, p99 1.0, CPU {aim}"), yes(met))
                } else {
                    (format!("CPU {aim}"), yes(cpu <= aim))
                };
                table.row(&[
                    pipeline.to_string(),
                    (*name).into(),
                    figure(median(&rounds.per_second)),
                    figure(requests),
                    figure(median(&rounds.p99_us)),
                    figure(p99),
                    figure(median(&rounds.cpu_ns)),
                    figure(cpu),
                    aims,
                    met,
                ]);
            }
        }
        table.print();
        Ok(())
    }

    /// Runs one measurement with a load from this process.
    fn load(&self, rounds: &mut Rounds, pid: u32, load: &mut Load, pipeline: usize) -> Outcome<()> {
        let before = cpu_ms(pid)?;
        let loaded = load.closed(pipeline, self.effort.slice)?;
        rounds.per_second.push(loaded.per_second());
        rounds.cpu_ns.push((cpu_ms(pid)? - before) * 1e6 / loaded.answered as f64);
        Ok(())
    }

    /// One id per request, compared with servers on the same libraries that answer with a constant.
    fn peers(&self) -> Outcome<()> {
        let itself = std::env::current_exe()?;
        let peer = |protocol: &'static str| {
            let itself = itself.clone();
            Peer::start(move |address| {
                let mut command = Command::new(itself);
                command.args(["echo", protocol, &address.to_string()]);
                command
            })
        };
        let service = self.service("peers", WIDE, &[])?;
        let (pid, message) = (service.server.pid(), next_request(None, Format::Numbers));
        let columns = [
            "request",
            "connections x in flight",
            "requests/s",
            "of the peer",
            "server CPU ns a request",
            "of the peer",
            "aim",
            "met",
        ];
        let mut table =
            Table::new("Network: one id a request, beside peers that answer with a constant", &columns);
        let http = (service.server.http, Wire::http("/v1/ids/default?count=1"), Wire::http("/"));
        let grpc = (service.grpc, Wire::grpc(NEXT, &message), Wire::grpc(NEXT, &message));
        let thrift = (service.thrift, Wire::thrift("bench"), Wire::thrift("bench"));
        for (protocol, what, (address, ours, theirs), shapes, aim) in [
            ("http", "HTTP `/v1/ids/default?count=1`; axum", &http, &[(CONNECTIONS, 1)][..], 0.95),
            ("grpc", "gRPC `Next`; tonic", &grpc, &[(CONNECTIONS, 1), (8, 8)], 0.9),
            (
                "thrift",
                "Thrift `get_id`; the same codec",
                &thrift,
                &[(CONNECTIONS, 1), (CONNECTIONS, 64)],
                0.9,
            ),
        ] {
            let peer = peer(protocol)?;
            for &(connections, in_flight) in shapes {
                let (mut ours_rounds, mut theirs_rounds) = (Rounds::default(), Rounds::default());
                let mut ours = Load::connect(*address, ours, connections, b"")?;
                let mut theirs = Load::connect(peer.address, theirs, connections, b"")?;
                for round in 0..=self.effort.rounds {
                    let (mut cold_ours, mut cold_theirs) = (Rounds::default(), Rounds::default());
                    let (to_ours, to_theirs) = match round {
                        0 => (&mut cold_ours, &mut cold_theirs),
                        _ => (&mut ours_rounds, &mut theirs_rounds),
                    };
                    self.load(to_theirs, peer.pid(), &mut theirs, in_flight)?;
                    self.load(to_ours, pid, &mut ours, in_flight)?;
                }
                let requests = median_ratio(&ours_rounds.per_second, &theirs_rounds.per_second);
                table.row(&[
                    what.into(),
                    format!("{connections} x {in_flight}"),
                    figure(median(&ours_rounds.per_second)),
                    figure(requests),
                    figure(median(&ours_rounds.cpu_ns)),
                    figure(median_ratio(&ours_rounds.cpu_ns, &theirs_rounds.cpu_ns)),
                    format!("requests {aim}"),
                    yes(requests >= aim),
                ]);
            }
        }
        table.print();
        Ok(())
    }

    /// Many ids per request.
    fn batches(&self) -> Outcome<()> {
        let columns = [
            "request",
            "M ids/s, sequence of 16 bits",
            "server CPU ns an id",
            "M ids/s, sequence of 20 bits",
            "server CPU ns an id",
            "aim",
            "met",
        ];
        let mut table = Table::new("Network: 1,000 ids a request, and ranges of 100,000", &columns);
        let [sixteen, wide] =
            [("sixteen", SIXTEEN), ("twenty", WIDE)].map(|(name, layout)| self.service(name, layout, &[]));
        let services = [sixteen?, wide?];
        let resp = |command: &str, ids: u32| Wire::resp(&[command, "default", "COUNT", &ids.to_string()]);
        let http = |list: &str, ids: u32| Wire::http(&format!("/v1/{list}/default?count={ids}"));
        let grpc = |ids: u32, format: Format| Wire::grpc(NEXT, &next_request(Some(ids), format));
        // One row per protocol: either form is enough for the target.
        let protocols = [
            [
                ("RESP `ID.NEXT default COUNT 1000`", resp("ID.NEXT", 1000), 1000),
                ("RESP `ID.RANGE default COUNT 1000`", resp("ID.RANGE", 1000), 1000),
                ("RESP `ID.RANGE default COUNT 100000`", resp("ID.RANGE", 100_000), 100_000),
            ],
            [
                ("HTTP `/v1/ids/default?count=1000`", http("ids", 1000), 1000),
                ("HTTP `/v1/ranges/default?count=1000`", http("ranges", 1000), 1000),
                ("HTTP `/v1/ranges/default?count=100000`", http("ranges", 100_000), 100_000),
            ],
            [
                ("gRPC `Next`, 1,000 numbers", grpc(1000, Format::Numbers), 1000),
                ("gRPC `Next`, ranges of 1,000", grpc(1000, Format::Ranges), 1000),
                ("gRPC `Next`, ranges of 100,000", grpc(100_000, Format::Ranges), 100_000),
            ],
        ];
        for protocol in protocols {
            let (mut best, mut rows) = (0.0_f64, Vec::new());
            for (what, wire, ids) in protocol {
                let ids = f64::from(ids);
                let mut cells = Vec::new();
                for service in &services {
                    let address = match &wire {
                        Wire::Resp(_) => service.server.resp,
                        Wire::Http(_) => service.server.http,
                        _ => service.grpc,
                    };
                    let (mut rounds, mut cold) = (Rounds::default(), Rounds::default());
                    let mut load = Load::connect(address, &wire, 8, b"")?;
                    self.load(&mut cold, service.server.pid(), &mut load, 4)?;
                    for _ in 0..self.effort.rounds.div_ceil(2) {
                        self.load(&mut rounds, service.server.pid(), &mut load, 4)?;
                    }
                    let millions = median(&rounds.per_second) * ids / 1e6;
                    best = best.max(millions);
                    cells.extend([millions, median(&rounds.cpu_ns) / ids].map(figure));
                }
                rows.push((what, <[String; 4]>::try_from(cells).map_err(|_| "two layouts")?));
            }
            for (what, [sixteen, cpu, wide, wide_cpu]) in rows {
                let aim = "50 in one way".into();
                table.row(&[what.into(), sixteen, cpu, wide, wide_cpu, aim, yes(best >= 50.0)]);
            }
        }
        table.print();
        Ok(())
    }

    /// A fixed rate, whatever the response times. The subjects take turns of one second, so that a busy host
    /// slows down all of them alike.
    fn rate(&self) -> Outcome<()> {
        const TURN: Duration = Duration::from_secs(1);
        let redis = self.redis_server()?;
        let service = self.service("rate", "twitter", &[])?;
        let pid = service.server.pid();
        let subjects = [
            ("redis-server `INCR`", redis.pid(), redis.address, Wire::resp(&["INCR", "counter"])),
            ("RESP `ID.NEXT default`", pid, service.server.resp, Wire::resp(&["ID.NEXT", "default"])),
            (
                "HTTP `/v1/ids/default?count=1`",
                pid,
                service.server.http,
                Wire::http("/v1/ids/default?count=1"),
            ),
            ("gRPC `Next`", pid, service.grpc, Wire::grpc(NEXT, &next_request(None, Format::Numbers))),
            ("Thrift `get_id`", pid, service.thrift, Wire::thrift("bench")),
        ];
        let mut all: Vec<Rated> = subjects.iter().map(|_| Rated::default()).collect();
        for turn in 0..=self.effort.rate_time.as_secs() {
            for ((_, pid, address, wire), rated) in subjects.iter().zip(&mut all) {
                let mut load = Load::connect(*address, wire, CONNECTIONS, b"")?;
                // A short load first: new connections allocate.
                load.open(RATE, Duration::from_millis(200))?;
                let (cpu, stolen) = (cpu_ms(*pid)?, stolen_ticks()?);
                match load.open(RATE, TURN) {
                    // The first turn warms up.
                    Ok(_) if turn == 0 => {}
                    Ok(loaded) => {
                        rated.cpu_ms += cpu_ms(*pid)? - cpu;
                        rated.turns.push((stolen_ticks()? - stolen, loaded.ms));
                    }
                    Err(error) => rated.error = error.to_string(),
                }
            }
        }
        let heading = format!(
            "Network: {RATE} requests a second, open loop, {CONNECTIONS} connections, {} turns of 1 s each",
            self.effort.rate_time.as_secs()
        );
        let columns = [
            "subject",
            "requests",
            "errors",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "slowest ms",
            "turns without steal",
            "p99.9 ms in these",
            "server CPU us a request",
            "aim: p99.9 ms",
            "met",
        ];
        let mut table = Table::new(&heading, &columns);
        let redis = quantile(&all[0].ms(u64::MAX), 0.999);
        for (nth, ((name, ..), rated)) in subjects.iter().zip(&all).enumerate() {
            let ms = rated.ms(u64::MAX);
            let undisturbed = rated.ms(0);
            let p999 = quantile(&ms, 0.999);
            table.row(&[
                (*name).into(),
                ms.len().to_string(),
                if rated.error.is_empty() { "0".into() } else { format!("**{}**", rated.error) },
                figure(quantile(&ms, 0.5)),
                figure(quantile(&ms, 0.99)),
                figure(p999),
                figure(quantile(&ms, 1.0)),
                rated.turns.iter().filter(|(stolen, _)| *stolen == 0).count().to_string(),
                if undisturbed.is_empty() { "-".into() } else { figure(quantile(&undisturbed, 0.999)) },
                figure(rated.cpu_ms * 1e3 / ms.len() as f64),
                if nth == 0 { "-".into() } else { format!("under 2, at most {}", figure(redis)) },
                if nth == 0 {
                    "-".into()
                } else {
                    yes(rated.error.is_empty() && p999 < 2.0 && p999 <= redis)
                },
            ]);
        }
        table.print();
        println!(
            "Steal is CPU time that the host gave to others while this machine had work, in ticks of 10 ms."
        );
        Ok(())
    }

    /// Pipelines with TLS and without.
    fn tls(&self) -> Outcome<()> {
        let [key, cert] = ["key.pem", "cert.pem"].map(|name| self.scratch.0.join(name));
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
            ])
            .args([
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=DNS:localhost,IP:127.0.0.1",
                "-keyout",
            ])
            .arg(&key)
            .arg("-out")
            .arg(&cert)
            .output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into());
        }
        let plain = self.service("plain", WIDE, &[])?;
        let (key, cert) = (key.display().to_string(), cert.display().to_string());
        // The first id is requested in plain text. So the plain server has no TLS, and a second server has
        // TLS only.
        let tls = TlsServer::start(&self.binary, &self.scratch.0.join("tls"), &cert, &key)?;
        let (mut of_plain, mut of_tls) = (Rounds::default(), Rounds::default());
        for round in 0..=self.effort.rounds {
            let (mut cold, mut cold_tls) = (Rounds::default(), Rounds::default());
            let (to_plain, to_tls) =
                if round == 0 { (&mut cold, &mut cold_tls) } else { (&mut of_plain, &mut of_tls) };
            self.redis_benchmark(
                to_plain,
                plain.server.pid(),
                plain.server.resp,
                64,
                &["ID.NEXT", "default"],
            )?;
            let over_tls = ["--tls", "--cacert", &cert, "ID.NEXT", "default"];
            self.redis_benchmark(to_tls, tls.0.pid(), tls.0.address, 64, &over_tls)?;
        }
        let columns = [
            "RESP, pipeline 64",
            "requests/s",
            "of plain",
            "server CPU ns a request",
            "of plain",
            "aim",
            "met",
        ];
        let mut table = Table::new("Network: TLS, `redis-benchmark -c 50 -P 64 --tls`", &columns);
        for (name, rounds) in [("plain", &of_plain), ("TLS", &of_tls)] {
            let requests = median_ratio(&rounds.per_second, &of_plain.per_second);
            table.row(&[
                name.into(),
                figure(median(&rounds.per_second)),
                figure(requests),
                figure(median(&rounds.cpu_ns)),
                figure(median_ratio(&rounds.cpu_ns, &of_plain.cpu_ns)),
                if name == "plain" { "-".into() } else { "requests 0.7".into() },
                if name == "plain" { "-".into() } else { yes(requests >= 0.7) },
            ]);
        }
        table.print();
        Ok(())
    }

    /// Memory with many connections that send one request and then idle, and after they close.
    fn idle(&self) -> Outcome<()> {
        let service = self.service("idle", "twitter", &[])?;
        let server = &service.server;
        let rss_mib = || -> Outcome<f64> { Ok(server.kib("status", "VmRSS:")? / 1024.0) };
        std::thread::sleep(Duration::from_secs(2));
        let before = rss_mib()?;
        let mut table = Table::new("Network: idle connections", &["what", "RSS MiB", "aim", "met"]);
        table.row(&["idle, no connection".into(), figure(before), "under 20".into(), yes(before < 20.0)]);
        let requests: [(SocketAddr, &[u8]); 2] = [
            (server.resp, b"*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\n"),
            (server.http, b"GET /v1/ids/default?count=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ];
        for (what, only) in [("RESP", Some(0)), ("HTTP", Some(1)), ("half RESP, half HTTP", None)] {
            let mut held = Vec::with_capacity(IDLE);
            for nth in 0..IDLE {
                let (address, request) = requests[only.unwrap_or(nth % 2)];
                let mut stream = TcpStream::connect(address)?;
                stream.write_all(request)?;
                let mut answer = [0; 512];
                if stream.read(&mut answer)? == 0 {
                    return Err(format!("connection {nth} was closed").into());
                }
                held.push(stream);
            }
            // A connection frees its buffers after a second, and the server returns them to the system every
            // ten.
            std::thread::sleep(Duration::from_secs(13));
            let open = rss_mib()?;
            drop(held);
            let began = Instant::now();
            let mut after = rss_mib()?;
            while began.elapsed() < Duration::from_secs(10) && after > before * 1.5 {
                std::thread::sleep(Duration::from_millis(250));
                after = rss_mib()?;
            }
            table.row(&[
                format!("{IDLE} idle connections, {what}"),
                figure(open),
                "under 60".into(),
                yes(open < 60.0),
            ]);
            table.row(&[
                format!("{:.1} s after they closed", began.elapsed().as_secs_f64()),
                figure(after),
                "at most 1.5 times the first".into(),
                yes(after <= before * 1.5),
            ]);
        }
        table.print();
        service.server.stop(Signal::TERM)
    }

    /// The cost of a token: the check alone, and requests with a token compared with requests without.
    fn tokens(&self) -> Outcome<()> {
        const CHECKS: u32 = 1_000_000;
        let file = self.scratch.0.join("tokens.toml");
        let secret = Secret::generate(&TokenName::new("bench")?)?;
        let row =
            "namespaces = [\"orders-*\", \"users\", \"default\"]\nrights = [\"mint\"]\nrate = \"100M/s\"";
        fs::write(&file, format!("[tokens.bench]\nsha256 = \"{}\"\n{row}\n", secret.digest()))?;
        let access = Arc::new(Access::load(
            TokensSource::File(file.clone()),
            Arc::new(snowmint::AnchoredClock::new()),
        )?);
        let mut identity = access.authenticate(secret.as_str().as_bytes())?;
        let mut ns = Vec::new();
        for _ in 0..self.effort.rounds {
            let began = Instant::now();
            for _ in 0..CHECKS {
                identity.refresh();
                identity.spend(black_box(b"default"), 1)?.keep();
            }
            ns.push(began.elapsed().as_secs_f64() * 1e9 / f64::from(CHECKS));
        }
        let columns = ["what", "measured", "of the same without tokens", "aim", "met"];
        let mut table = Table::new("Network: tokens", &columns);
        let check = median(&ns);
        let met = yes(check < 100.0);
        table.row(&[
            "check of right, namespace and quota".into(),
            format!("{} ns", figure(check)),
            "-".into(),
            "under 100 ns".into(),
            met,
        ]);
        let flags = Command::new(&self.binary).args(["serve", "--help"]).output()?;
        if String::from_utf8_lossy(&flags.stdout).contains("--tokens-file") {
            let open = self.service("open", WIDE, &[])?;
            let guarded = Peer::start(|address| {
                let mut command = Command::new(&self.binary);
                command.args(["serve", "--http", "off", "--resp", &address.to_string(), "--layout", WIDE]);
                command.arg("--data").arg(self.scratch.0.join("guarded")).arg("--tokens-file").arg(&file);
                command
            })?;
            let auth = format!("AUTH {}\r\n", secret.as_str());
            let next = Wire::resp(&["ID.NEXT", "default"]);
            for pipeline in [1, 64] {
                let mut with = self.first_ids(&guarded, &next, auth.as_bytes())?;
                let mut without = Load::connect(open.server.resp, &next, CONNECTIONS, b"")?;
                let (mut of_open, mut of_guarded) = (Rounds::default(), Rounds::default());
                for _ in 0..=self.effort.rounds {
                    self.load(&mut of_open, open.server.pid(), &mut without, pipeline)?;
                    self.load(&mut of_guarded, guarded.pid(), &mut with, pipeline)?;
                }
                let cpu = median_ratio(&of_guarded.cpu_ns[1..], &of_open.cpu_ns[1..]);
                table.row(&[
                    format!("RESP, pipeline {pipeline}: server CPU a request"),
                    format!("{} ns", figure(median(&of_guarded.cpu_ns[1..]))),
                    figure(cpu),
                    "-".into(),
                    "-".into(),
                ]);
            }
        }
        table.print();
        Ok(())
    }

    /// Connects to a server that has just started, once it has a lease.
    fn first_ids(&self, peer: &Peer, wire: &Wire, first: &[u8]) -> Outcome<Load> {
        let began = Instant::now();
        loop {
            let mut one = Load::connect(peer.address, wire, 1, first)?;
            match one.closed(1, Duration::ZERO) {
                Ok(_) => return Load::connect(peer.address, wire, CONNECTIONS, first),
                Err(error) if began.elapsed() > self.effort.rate_time => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// A server that speaks TLS only.
struct TlsServer(Peer);

impl TlsServer {
    fn start(binary: &Path, data: &Path, cert: &str, key: &str) -> Outcome<Self> {
        let peer = Peer::start(|address| {
            let mut command = Command::new(binary);
            command
                .args(["serve", "--http", "off", "--resp", &address.to_string(), "--layout", WIDE, "--data"])
                .arg(data);
            command.args(["--tls-cert", cert, "--tls-key", key]);
            command
        })?;
        let (pid, began) = (peer.pid(), Instant::now());
        // The port opens before the node holds a lease.
        loop {
            let port = peer.address.port().to_string();
            let flags = ["-p", &port, "--tls", "--cacert", cert, "ID.NEXT", "default"];
            let answer = Command::new("redis-cli").args(flags).output()?;
            if answer.stdout.first().is_some_and(u8::is_ascii_digit) {
                return Ok(Self(peer));
            }
            if began.elapsed() > Duration::from_secs(20) || fs::metadata(format!("/proc/{pid}")).is_err() {
                return Err(format!("no id over TLS: {}", String::from_utf8_lossy(&answer.stderr)).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn next_request(count: Option<u32>, format: Format) -> NextRequest {
    NextRequest { namespace: "default".into(), count, format: format.into() }
}

fn yes(met: bool) -> String {
    if met { "yes".into() } else { "**no**".into() }
}
