//! `snowmint bench`: draws ids from a server or in process for a while, and reports rate, latencies and
//! duplicates.

mod svg;
mod wire;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use snowmint::{Generator, Id, Layout, Rule, WallClock, WorkerId};
use snowmint_cluster::NamespaceName;

use crate::client_credentials::is_this_machine;
use crate::error::{Failure, report};
use crate::output::{Output, thousands};
use crate::{argv, explain, flag_values};
use wire::Target;

const EXAMPLES: &str = "\
Examples:
  snowmint bench
      The server on this machine, over HTTP, for 5 seconds.
  snowmint bench redis://127.0.0.1:6380 --connections 50 --batch 100
      Over the Redis protocol, 100 ids a request.
  snowmint bench grpc://127.0.0.1:8080
      Over gRPC, which the port of HTTP answers, too.
  snowmint bench --layout twitter --threads 2
      In this process, without server, store or lease: the library alone.
  snowmint bench https://ids.example.com --token-file client.token --yes
      Another machine, only with --yes: it takes ids from everybody else there.
  snowmint bench --svg latency.svg --json

What is measured: each connection sends its next request when it has the answer
to the last one. The latency is that of one request, seen by this command; a
server that stalls delays the next request, which is then not counted as slow.
Client and server share the processors of one machine: its rate is then a lower
bound. In process, the latency is that of one call; of calls that draw one id,
every 16th is measured.

The ids are thrown away. The first 20,000,000 are checked for duplicates; one is
a fault, and the exit code is 1.

JSON, one object: target, namespace, protocol, connections, batch, seconds, ids,
ids_per_second, requests, errors (number by kind), latency_us (p50, p90, p99,
p999, max, mean), checked and duplicates. A kind of error is a code or word that
`snowmint explain` knows, or connection, no-answer, answer (not of a Snowmint
node) or generator (of this process).";

/// Number of ids to keep for finding duplicates.
const KEPT: usize = 20_000_000;
/// Significant digits of the latencies.
const DIGITS: u8 = 3;
/// Longer latencies count as this one, in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Draw ids for a while, and report rate, latencies and duplicates
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples and what is measured.")]
pub(crate) struct Args {
    /// Server: http://HOST:PORT, grpc://HOST:PORT or redis://HOST:PORT; with TLS https://, grpcs:// or
    /// rediss://
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8080", conflicts_with = "layout")]
    target: String,
    /// Draw in this process by a layout, instead of from a server
    #[arg(long, value_name = "SPEC|NAME", help_heading = "What to draw")]
    layout: Option<Layout>,
    /// Namespace to draw from
    #[arg(
        long,
        value_name = "NAME",
        default_value = "default",
        conflicts_with = "layout",
        help_heading = "What to draw"
    )]
    namespace: NamespaceName,
    /// Number of ids in a request, 1 to 10000
    #[arg(long, value_name = "N", default_value = "1", value_parser = batch, help_heading = "What to draw")]
    batch: usize,
    /// Number of connections, or of threads with --layout: 1 to 1000
    #[arg(short = 'c', long, visible_alias = "threads", value_name = "N", default_value = "4", value_parser = connections, help_heading = "Load")]
    connections: usize,
    /// How long to draw, from 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = flag_values::timeout, help_heading = "Load")]
    duration: Duration,
    /// Load a server on another machine
    #[arg(long, help_heading = "Load")]
    yes: bool,
    /// Token for the server. Other users of this machine can see flags: prefer the variable or --token-file
    #[arg(
        long,
        value_name = "TOKEN",
        env = "SNOWMINT_TOKEN",
        hide_env_values = true,
        help_heading = "Server"
    )]
    token: Option<String>,
    /// File that holds the token
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    token_file: Option<PathBuf>,
    /// Authorities that the server may have its certificate from (PEM); default: those of this system
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    server_ca: Option<PathBuf>,
    /// Draw the latencies by percentile into this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

fn batch(text: &str) -> Result<usize, String> {
    number(text, 10_000)
}

fn connections(text: &str) -> Result<usize, String> {
    number(text, 1000)
}

fn number(text: &str, most: usize) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| format!("expected 1 to {most}"))
}

/// Returns the current time, for measurements.
#[expect(clippy::disallowed_methods, reason = "it measures a duration, and no id depends on it")]
fn present() -> Instant {
    Instant::now()
}

/// The results of one connection or thread.
struct Lane {
    latencies: Histogram<u64>,
    requests: u64,
    ids: u64,
    /// Ids as numbers, for finding duplicates.
    kept: Vec<u64>,
    /// Number of ids that it may keep.
    room: usize,
    /// Failed requests by kind, each with one error text.
    errors: BTreeMap<String, (u64, String)>,
}

impl Lane {
    fn new(lanes: usize) -> Result<Self, Failure> {
        let latencies = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).map_err(Failure::runtime)?;
        let room = KEPT / lanes;
        Ok(Self { latencies, requests: 0, ids: 0, kept: Vec::new(), room, errors: BTreeMap::new() })
    }

    fn keep(&mut self, id: u64) {
        if self.kept.len() < self.room {
            self.kept.push(id);
        }
    }

    fn took(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(LONGEST_NS);
        self.latencies.saturating_record(ns.max(1));
    }

    fn failed(&mut self, kind: &str, why: &str) {
        self.errors.entry(kind.to_owned()).or_insert_with(|| (0, why.to_owned())).0 += 1;
    }
}

/// A run: its end, and the number of ids drawn so far.
#[derive(Clone)]
struct Run {
    until: Instant,
    drawn: Arc<AtomicU64>,
}

impl Run {
    fn is_over(&self) -> bool {
        present() >= self.until
    }

    fn add(&self, ids: u64) {
        self.drawn.fetch_add(ids, Ordering::Relaxed);
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (target, what) = if let Some(layout) = args.layout {
        // The variable may hold a token for other commands.
        if argv::has_flag("--token") {
            return Err(Failure::flag(
                "--token",
                "belongs to a server: omit it with --layout, or name a URL",
            ));
        }
        let threads = plural(args.connections, "thread");
        (None, format!("{threads} of this process, one generator of `{layout}`"))
    } else {
        let target = Target::new(args)?;
        if !is_this_machine(target.host()) && !args.yes {
            return Err(Failure::usage(format!(
                "{} is another machine, and its other clients would feel the load: add --yes if it may be loaded",
                target.host()
            )));
        }
        let what = format!(
            "{} to {}, namespace {}",
            plural(args.connections, "connection"),
            target.url(),
            args.namespace
        );
        (Some(target), what)
    };
    let begin = present();
    let run = Run { until: begin + args.duration, drawn: Arc::default() };
    let progress = Progress::start(&run, args.duration);
    let lanes = match target {
        Some(target) => wire::draw(&Arc::new(target), args.connections, &run),
        None => draw_in_process(args.layout.unwrap_or(Layout::TWITTER), args.connections, args.batch, &run),
    };
    let seconds = begin.elapsed().as_secs_f64();
    progress.stop();
    let result = Outcome::of(args, lanes?, seconds)?;
    let mut out = Output::new();
    if args.json {
        out.json(&result.summary)?;
    } else {
        show(&mut out, &result, &what)?;
    }
    out.flush()?;
    // Print the result even if the file cannot be written; a duplicate is the more important failure.
    let written = args.svg.as_ref().map_or(Ok(()), |path| {
        std::fs::write(path, svg::curve(&result.latencies, &what))
            .map_err(|error| Failure::flag("--svg", format!("cannot write {}: {error}", path.display())))
    });
    result.check()?;
    written
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The result of a run.
struct Outcome {
    latencies: Histogram<u64>,
    summary: Summary,
    /// One error text for each kind.
    errors: BTreeMap<String, (u64, String)>,
}

/// A run as JSON. The order of the members is part of the format.
#[derive(Debug, Serialize)]
struct Summary {
    target: String,
    namespace: Option<String>,
    protocol: &'static str,
    connections: usize,
    batch: usize,
    seconds: f64,
    ids: u64,
    ids_per_second: u64,
    requests: u64,
    errors: BTreeMap<String, u64>,
    latency_us: Latencies,
    checked: u64,
    duplicates: u64,
}

#[derive(Debug, Serialize)]
struct Latencies {
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
    mean: f64,
}

impl Outcome {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate needs a few digits, and is not negative"
    )]
    fn of(args: &Args, lanes: Vec<Lane>, seconds: f64) -> Result<Self, Failure> {
        let mut all = Lane::new(1)?;
        for mut lane in lanes {
            all.latencies.add(&lane.latencies).map_err(Failure::runtime)?;
            all.requests += lane.requests;
            all.ids += lane.ids;
            all.kept.append(&mut lane.kept);
            for (kind, (count, why)) in lane.errors {
                all.errors.entry(kind).or_insert((0, why)).0 += count;
            }
        }
        let checked = all.kept.len() as u64;
        let duplicates = duplicates(&mut all.kept);
        let us = |ns: u64| (ns as f64 / 100.0).round() / 10.0;
        let at = |quantile| us(all.latencies.value_at_quantile(quantile));
        let local = args.layout.map(|layout| layout.to_string());
        let summary = Summary {
            protocol: if local.is_some() {
                "process"
            } else if args.target.starts_with("redis") {
                "resp"
            } else if args.target.starts_with("grpc") {
                "grpc"
            } else {
                "http"
            },
            namespace: local.is_none().then(|| args.namespace.to_string()),
            target: local.unwrap_or_else(|| crate::open_store::without_credentials(&args.target)),
            connections: args.connections,
            batch: args.batch,
            seconds: (seconds * 1000.0).round() / 1000.0,
            ids: all.ids,
            ids_per_second: (all.ids as f64 / seconds) as u64,
            requests: all.requests,
            errors: all.errors.iter().map(|(kind, (count, _))| (kind.clone(), *count)).collect(),
            latency_us: Latencies {
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p999: at(0.999),
                max: us(all.latencies.max()),
                mean: (all.latencies.mean() / 100.0).round() / 10.0,
            },
            checked,
            duplicates,
        };
        Ok(Self { latencies: all.latencies, summary, errors: all.errors })
    }

    /// Reports errors. A run with a duplicate, or without any id, has failed.
    fn check(&self) -> Result<(), Failure> {
        for (kind, (count, why)) in &self.errors {
            report("warning", &format!("{} requests failed with {kind}: {why}", thousands(*count)));
        }
        let Summary { duplicates, ids, .. } = self.summary;
        if duplicates > 0 {
            return Err(Failure::runtime(format!(
                "{} duplicates among {} ids: stop using this namespace, and check that all its nodes use one store",
                thousands(duplicates),
                thousands(self.summary.checked)
            )));
        }
        if ids == 0 {
            let kind = self.errors.keys().find(|kind| explain::knows(kind));
            let hint = kind.map_or_else(String::new, |kind| format!(": see `snowmint explain {kind}`"));
            return Err(Failure::runtime(format!("no id was drawn{hint}")));
        }
        Ok(())
    }
}

/// Counts repeated numbers, without the first occurrence of each.
fn duplicates(ids: &mut [u64]) -> u64 {
    ids.sort_unstable();
    ids.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64
}

fn show(out: &mut Output, result: &Outcome, what: &str) -> Result<(), Failure> {
    let Summary { seconds, ids, ids_per_second, requests, checked, duplicates, batch, .. } = &result.summary;
    let Latencies { p50, p90, p99, p999, max, .. } = result.summary.latency_us;
    let failed: u64 = result.summary.errors.values().sum();
    let times = [("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p999), ("max", max)];
    let times: Vec<_> = times.iter().map(|(name, us)| format!("{name} {}", time(*us))).collect();
    let facts = [
        ("measured", format!("{what}, {} a request, {seconds:.1} s", plural(*batch, "id"))),
        ("ids", format!("{}, {} a second", thousands(*ids), thousands(*ids_per_second))),
        ("requests", format!("{}, {} failed", thousands(*requests), thousands(failed))),
        ("latency", times.join(", ")),
        (
            "duplicates",
            match duplicates {
                0 => format!("none among {} ids", thousands(*checked)),
                some => out.paint.alarm(&format!("{} among {} ids", thousands(*some), thousands(*checked))),
            },
        ),
    ];
    for (name, value) in facts {
        out.line(&format!("{} {value}", out.paint.faint(&format!("{name:<11}"))))?;
    }
    Ok(())
}

/// Formats microseconds with a unit that leaves few digits.
fn time(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.1} µs"),
        us if us < 1_000_000.0 => format!("{:.2} ms", us / 1000.0),
        us => format!("{:.2} s", us / 1_000_000.0),
    }
}

/// One of this many single-id calls is measured: reading the clock costs more than a call.
const SAMPLE: u64 = 16;

/// Draws in this process until the run is over: all threads share one generator, as in a program that uses
/// the library.
fn draw_in_process(layout: Layout, threads: usize, batch: usize, run: &Run) -> Result<Vec<Lane>, Failure> {
    let generator = Generator::builder(layout)
        .worker(WorkerId(0))
        .rule(Rule::wait(layout.tick().max(Duration::from_secs(1))))
        .build(WallClock)
        .map_err(Failure::usage)?;
    // Reading the clock is cheap compared with a batch.
    let round = if batch > 1 { 1 } else { SAMPLE };
    let lane = || {
        let mut lane = Lane::new(threads)?;
        let mut ids = vec![Id::MAX; batch];
        let mut calls: u64 = 0;
        while !run.is_over() {
            let before = lane.ids;
            for _ in 0..round {
                let is_measured = batch > 1 || calls.is_multiple_of(SAMPLE);
                calls += 1;
                let begin = is_measured.then(present);
                let filled = generator.fill(&mut ids).unwrap_or_else(|error| {
                    lane.failed("generator", &error.to_string());
                    0
                });
                if let (Some(begin), 1..) = (begin, filled) {
                    lane.took(begin.elapsed());
                }
                lane.ids += filled as u64;
                ids[..filled].iter().for_each(|id| lane.keep(id.get()));
            }
            run.add(lane.ids - before);
        }
        lane.requests = calls;
        Ok(lane)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(lane)).collect();
        let ended = running.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::runtime("a thread of the bench panicked")))
        });
        ended.collect()
    })
}

const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Width of the bar in characters.
const BAR_WIDTH: u64 = 30;

/// A progress line on standard error, on a terminal only: the elapsed time, and the rate so far.
struct Progress {
    shown: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Progress {
    fn start(run: &Run, duration: Duration) -> Self {
        if !io::stderr().is_terminal() {
            return Self { shown: None };
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, run) = (Arc::clone(&is_over), run.clone());
        let thread = std::thread::spawn(move || {
            let begin = present();
            while !over.load(Ordering::Relaxed) {
                let line =
                    progress_line(begin.elapsed().min(duration), duration, run.drawn.load(Ordering::Relaxed));
                // Ignored: if standard error is closed, nobody is looking.
                let _ = write!(io::stderr(), "\r\x1b[K{line}");
                std::thread::sleep(PROGRESS_INTERVAL);
            }
            let _ = write!(io::stderr(), "\r\x1b[K");
        });
        Self { shown: Some((is_over, thread)) }
    }

    fn stop(self) {
        if let Some((is_over, thread)) = self.shown {
            is_over.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
    }
}

fn progress_line(passed: Duration, duration: Duration, drawn: u64) -> String {
    let (passed_ms, all_ms) = (passed.as_millis().max(1), duration.as_millis().max(1));
    let filled = (u128::from(BAR_WIDTH) * passed_ms / all_ms).min(u128::from(BAR_WIDTH));
    let filled = usize::try_from(filled).unwrap_or_default();
    let width = usize::try_from(BAR_WIDTH).unwrap_or_default();
    let bar = "█".repeat(filled) + &"░".repeat(width - filled);
    let rate = u128::from(drawn) * 1000 / passed_ms;
    format!(
        "{bar} {:.1} of {:.1} s, {} ids, {} a second",
        passed.as_secs_f64(),
        duration.as_secs_f64(),
        thousands(drawn),
        thousands(u64::try_from(rate).unwrap_or(u64::MAX))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_counted_without_their_first() {
        assert_eq!(duplicates(&mut []), 0);
        assert_eq!(duplicates(&mut [3, 1, 2]), 0);
        assert_eq!(duplicates(&mut [3, 1, 3, 2, 3, 1]), 3);
    }

    #[test]
    fn times_have_a_unit() {
        for (us, wanted) in [(0.04, "0.0 µs"), (12.34, "12.3 µs"), (4500.0, "4.50 ms"), (2.5e6, "2.50 s")] {
            assert_eq!(time(us), wanted);
        }
    }

    #[test]
    fn the_bar_fills_up() {
        let at = |ms| progress_line(Duration::from_millis(ms), Duration::from_secs(2), 1_000_000);
        assert!(at(0).starts_with("░"), "{}", at(0));
        assert_eq!(at(1000).matches('█').count(), 15);
        assert_eq!(at(2000), format!("{} 2.0 of 2.0 s, 1,000,000 ids, 500,000 a second", "█".repeat(30)));
    }
}
