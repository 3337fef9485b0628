//! How the cost of a node grows with its namespaces, connections, tokens and workers, from 1 on: the time
//! until it is ready, memory, CPU and calls to the store at rest, and answers a second. The store is the
//! SQLite file of the node. Prints Markdown. `fleet` measures how a store bears many nodes.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::Signal;
use snowmint_bench::http::{connected, get};
use snowmint_bench::load::Load;
use snowmint_bench::server::{Outcome, Scratch, Server, raise_open_files};
use snowmint_bench::stats::median;
use snowmint_bench::table::{Table, figure};
use snowmint_bench::wire::Wire;
use snowmint_server::access::secret::{Secret, TokenName};

const USAGE: &str = "usage: scale PATH-OF-SNOWMINT [--quick] [--only namespaces|connections|tokens|workers]
  --quick  three of the steps, and 3 s of rest instead of 20: rough figures";
/// 65,536 ids a millisecond and worker, so that the layout is not the limit.
const LAYOUT: &str = "time:41 worker:6 sequence:16 epoch:2026-01-01";
/// The most workers of one layout that a node takes.
const WORKERS_OF_A_LAYOUT: usize = 8;
/// Connections of a load; the default of `redis-benchmark`.
const CONNECTIONS: usize = 50;
/// Requests in flight on each of them.
const PIPELINE: usize = 64;
/// A connection frees its buffers after a second, and the server returns memory to the system every ten.
const SETTLE: Duration = Duration::from_secs(12);

/// What grows, in which steps, and how a node with so many of it is started and used.
struct Subject {
    name: &'static str,
    steps: &'static [usize],
    plan: fn(&Path, usize) -> Outcome<Plan>,
}

const SUBJECTS: [Subject; 4] = [
    Subject { name: "namespaces", steps: &[1, 10, 100, 1_000, 10_000], plan: namespaces },
    Subject { name: "connections", steps: &[1, 10, 100, 1_000, 10_000], plan: connections },
    Subject { name: "tokens", steps: &[1, 10, 100, 1_000, 10_000], plan: tokens },
    Subject { name: "workers", steps: &[1, 2, 4, 8, 16, 32, 64], plan: workers },
];

struct Plan {
    flags: Vec<String>,
    /// The request of the load, and what is sent before it on each connection.
    request: Wire,
    first: Vec<u8>,
    connections: usize,
    pipeline: usize,
    /// The leases that a ready node holds.
    leases: usize,
}

impl Plan {
    fn new(request: &[&str]) -> Self {
        Self {
            flags: vec!["--layout".into(), LAYOUT.into()],
            request: Wire::resp(request),
            first: Vec::new(),
            connections: CONNECTIONS,
            pipeline: PIPELINE,
            leases: 1,
        }
    }

    /// Adds a flag with a file of this content.
    fn file(mut self, flag: &str, path: &Path, content: &str) -> Outcome<Self> {
        fs::write(path, content)?;
        self.flags.extend([flag.to_owned(), path.display().to_string()]);
        Ok(self)
    }

    /// Returns whether the node answers the request, and holds its leases.
    fn is_ready(&self, server: &Server) -> Outcome<bool> {
        Load::connect(server.resp, &self.request, 1, &self.first)?.closed(1, Duration::ZERO)?;
        let text = get(&mut connected(server.probe)?, "/metrics")?;
        let leases = text.lines().filter(|line| line.starts_with("snowmint_lease_until_")).count();
        Ok(leases >= self.leases)
    }
}

/// Numbers of the last namespace.
fn namespaces(scratch: &Path, count: usize) -> Outcome<Plan> {
    let mut file = String::new();
    for nth in 1..=count {
        writeln!(file, "[namespaces.orders-{nth}]\nscheme = 'segment'")?;
    }
    let last = format!("orders-{count}");
    Plan::new(&["INCR", &last]).file("--namespaces-file", &scratch.join("namespaces.toml"), &file)
}

/// Each connection has one request in flight.
fn connections(_scratch: &Path, count: usize) -> Outcome<Plan> {
    let plan = Plan { connections: count, pipeline: 1, ..Plan::new(&["ID.NEXT", "default"]) };
    // Some more, for those of the measurement.
    let flags = [plan.flags, vec!["--max-connections".into(), (count + 100).to_string()]].concat();
    Ok(Plan { flags, ..plan })
}

/// Ids with the last token.
fn tokens(scratch: &Path, count: usize) -> Outcome<Plan> {
    let (mut file, mut first) = (String::new(), Vec::new());
    for nth in 1..=count {
        let name = format!("shop-{nth}");
        let secret = Secret::generate(&TokenName::new(&name)?)?;
        writeln!(file, "[tokens.{name}]\nsha256 = '{}'\nnamespaces = ['default']", secret.digest())?;
        writeln!(file, "rights = ['mint']\nrate = '100M/s'")?;
        first = format!("AUTH {}\r\n", secret.as_str()).into_bytes();
    }
    let plan = Plan { first, ..Plan::new(&["ID.NEXT", "default"]) };
    plan.file("--tokens-file", &scratch.join("tokens.toml"), &file)
}

/// Ids of the layout of the service; more workers than it may hold are those of namespaces with layouts of
/// their own.
fn workers(scratch: &Path, count: usize) -> Outcome<Plan> {
    let mut file = String::new();
    for nth in 1..=count.saturating_sub(WORKERS_OF_A_LAYOUT) {
        let epoch = format!("2025-{:02}-{:02}", 1 + nth / 28, 1 + nth % 28);
        let layout = format!("time:41 worker:6 sequence:16 epoch:{epoch}");
        writeln!(file, "[namespaces.events-{nth}]\nscheme = 'snowflake'\nlayout = '{layout}'")?;
    }
    let plan = Plan { leases: count, ..Plan::new(&["ID.NEXT", "default"]) };
    let held = count.min(WORKERS_OF_A_LAYOUT).to_string();
    let flags = [plan.flags, vec!["--workers".into(), held]].concat();
    Plan { flags, ..plan }.file("--namespaces-file", &scratch.join("namespaces.toml"), &file)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let measured = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [binary] => measure(Path::new(binary), Effort::Whole, None),
        [binary, "--quick"] => measure(Path::new(binary), Effort::Quick, None),
        [binary, "--only", name] => measure(Path::new(binary), Effort::Whole, Some(name)),
        [binary, "--quick", "--only", name] => measure(Path::new(binary), Effort::Quick, Some(name)),
        _ => Err(USAGE.into()),
    };
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scale: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Effort {
    Quick,
    Whole,
}

fn measure(binary: &Path, effort: Effort, only: Option<&str>) -> Outcome<()> {
    if only.is_some_and(|only| SUBJECTS.iter().all(|subject| subject.name != only)) {
        return Err(USAGE.into());
    }
    raise_open_files()?;
    let columns = [
        "what",
        "number",
        "ready after ms",
        "RSS MiB",
        "after the load",
        "CPU at rest, ms a second",
        "answers a second",
        "store loads a minute",
        "writes",
        "lists",
    ];
    let mut table =
        Table::new("Scale: a node with many namespaces, connections, tokens or workers", &columns);
    for subject in SUBJECTS.iter().filter(|subject| only.is_none_or(|only| only == subject.name)) {
        for &count in subject.steps {
            if effort == Effort::Quick && ![1, 8, 64, 1_000].contains(&count) {
                continue;
            }
            let row = row(binary, subject, count, effort)
                .map_err(|error| format!("{count} {}: {error}", subject.name))?;
            table.row(&row);
            eprintln!("{}", row.join(" | "));
        }
    }
    table.print();
    println!(
        "\nNamespaces count numbers; ids have a layout of {LAYOUT}. The node is started with an empty SQLite file and is ready\n\
         when it answers the request of the load: `INCR` of the last namespace, or `ID.NEXT default`, with the last token.\n\
         {CONNECTIONS} connections keep {PIPELINE} requests in flight each; in the rows of connections each has one. A node takes\n\
         {WORKERS_OF_A_LAYOUT} workers of a layout at most; the others are those of namespaces with layouts of their own."
    );
    Ok(())
}

fn row(binary: &Path, subject: &Subject, count: usize, effort: Effort) -> Outcome<[String; 10]> {
    let (settle, rest) = match effort {
        Effort::Quick => (Duration::from_secs(2), Duration::from_secs(3)),
        Effort::Whole => (SETTLE, Duration::from_secs(20)),
    };
    let scratch = Scratch::new("scale")?;
    let plan = (subject.plan)(&scratch.0, count)?;
    let flags: Vec<&str> = plan.flags.iter().map(String::as_str).collect();
    let data = scratch.0.join("data");
    let (server, ready) = Server::start_until(binary, &data, &flags, |server| plan.is_ready(server))?;
    let mut load = Load::connect(server.resp, &plan.request, plan.connections, &plan.first)?;
    load.closed(1, Duration::ZERO)?;
    std::thread::sleep(settle);
    let rss_mib = || -> Outcome<String> { Ok(figure(server.kib("status", "VmRSS:")? / 1024.0)) };
    let mut probe = connected(server.probe)?;
    let (cpu_ms, calls) = (server.cpu_ms()?, calls(&get(&mut probe, "/metrics")?)?);
    std::thread::sleep(rest);
    let cpu_ms = (server.cpu_ms()? - cpu_ms) / rest.as_secs_f64();
    let rested = self::calls(&get(&mut probe, "/metrics")?)?;
    let resting = rss_mib()?;
    let mut per_second = Vec::new();
    for _ in 0..3 {
        per_second.push(load.closed(plan.pipeline, Duration::from_secs(1))?.per_second());
    }
    let loaded = rss_mib()?;
    server.stop(Signal::TERM)?;
    let a_minute = |kind: usize| figure((rested[kind] - calls[kind]) * 60.0 / rest.as_secs_f64());
    Ok([
        subject.name.into(),
        count.to_string(),
        figure(ready.as_secs_f64() * 1e3),
        resting,
        loaded,
        figure(cpu_ms),
        figure(median(&per_second)),
        a_minute(0),
        a_minute(1),
        a_minute(2),
    ])
}

/// Returns the numbers of loads, of writes and of lists in the text of the metrics.
fn calls(metrics: &str) -> Outcome<[f64; 3]> {
    const COUNT: &str = "snowmint_store_call_duration_seconds_count{operation=\"";
    let mut calls = [0.0; 3];
    let mut known = 0;
    for rest in metrics.lines().filter_map(|line| line.strip_prefix(COUNT)) {
        let (operation, value) = (rest.split('"').next(), rest.rsplit(' ').next());
        let kind = match operation {
            Some("load" | "unix_ms") => 0,
            Some("compare_and_set" | "add") => 1,
            Some("list") => 2,
            _ => return Err(format!("an unknown operation: {rest}").into()),
        };
        calls[kind] += value.unwrap_or_default().parse::<f64>()?;
        known += 1;
    }
    if known == 0 { Err(format!("no {COUNT}").into()) } else { Ok(calls) }
}
