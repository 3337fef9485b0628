//! Numbers from segments in memory: the rate compared with an atomic counter, and how long a caller waits
//! where one segment ends and the next begins, while the store takes 50 ms for every call.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use snowmint::WallClock;
use snowmint_bench::stats::{median, median_ratio, quantile};
use snowmint_bench::table::{Table, figure};
use snowmint_cluster::segment::{SegmentConfig, Segments};
use snowmint_store::{Counter, Segment, StoreError, StoreErrorKind};

/// Draws between two readings of the clock.
const BURST: u64 = 1000;
/// The time of one call to the slow store.
const STORE_TAKES: Duration = Duration::from_millis(50);
/// Segments of this size last 100 ms here, so that there are many changes of segments in a short time.
const SIZE: u64 = 1000;
/// Number of sources to draw from in turn, since one source changes segments rarely.
const SOURCES: usize = 20;

fn main() -> ExitCode {
    let quick = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--quick") => true,
        Some(_) => {
            eprintln!("usage: segments [--quick]");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("segments: {error}");
            return ExitCode::FAILURE;
        }
    };
    let _inside = runtime.enter();
    numbers_a_second(quick);
    waits(quick);
    ExitCode::SUCCESS
}

/// A counter in memory with delayed answers.
#[derive(Debug)]
struct Slow {
    next: AtomicU64,
    takes: Duration,
}

#[async_trait]
impl Counter for Slow {
    async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError> {
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        let first = self.next.fetch_add(count.get(), Ordering::Relaxed);
        Segment::new(first, NonZeroU64::MIN, count)
            .ok_or_else(|| StoreError::new(StoreErrorKind::Full, "add", "memory", "used up"))
    }

    fn describe(&self) -> String {
        "memory".into()
    }
}

/// Returns a source that has numbers.
fn source(takes: Duration, config: SegmentConfig) -> Segments {
    let counter: Arc<dyn Counter> = Arc::new(Slow { next: AtomicU64::new(1), takes });
    let segments = Segments::start(vec![counter], config, WallClock).expect("the values are in range");
    while segments.try_take(1).is_err() {
        std::thread::yield_now();
    }
    segments
}

/// Draws numbers, and returns how many; safe from any thread.
type Draw = Box<dyn Fn() -> u64 + Sync>;

fn numbers_a_second(quick: bool) {
    let (rounds, time) = if quick { (5, Duration::from_millis(5)) } else { (31, Duration::from_millis(40)) };
    let config = || SegmentConfig::new().sizes(10_000_000..=1 << 40).reserve(Duration::ZERO);
    let (counter, one, hundred) =
        (AtomicU64::new(0), source(Duration::ZERO, config()), source(Duration::ZERO, config()));
    let drawn = |segments: &Segments, count: usize| {
        segments.try_take(count).map_or(0, |run| {
            black_box(run.first());
            run.count().get()
        })
    };
    let subjects: [(&str, Draw); 3] = [
        (
            "`AtomicU64::fetch_add(1)`",
            Box::new(move || {
                black_box(counter.fetch_add(1, Ordering::Relaxed));
                1
            }),
        ),
        ("`Segments::try_take(1)`", Box::new(move || drawn(&one, 1))),
        ("`Segments::try_take(100)`", Box::new(move || drawn(&hundred, 100))),
    ];
    let columns = ["subject", "threads", "ns a number", "M numbers/s", "of fetch_add's time"];
    let mut table = Table::new("Numbers from a segment in memory", &columns);
    for threads in 1..=2 {
        let mut ns: Vec<Vec<f64>> = vec![Vec::new(); subjects.len()];
        for _ in 0..rounds {
            for ((_, draw), ns) in subjects.iter().zip(&mut ns) {
                ns.push(ns_a_number(draw, threads, time));
            }
        }
        for ((name, _), each) in subjects.iter().zip(&ns) {
            let middle = median(each);
            let cells = [figure(middle), figure(1e3 / middle), figure(median_ratio(each, &ns[0]))];
            let [each, rate, ratio] = cells;
            table.row(&[(*name).into(), threads.to_string(), each, rate, ratio]);
        }
    }
    table.print();
}

/// Returns the wall time per number, over all threads.
fn ns_a_number(draw: &Draw, threads: usize, time: Duration) -> f64 {
    let started = Instant::now();
    let drawn: u64 = std::thread::scope(|scope| {
        let thread = || {
            let mut drawn = 0;
            while started.elapsed() < time {
                drawn += (0..BURST).map(|_| draw()).sum::<u64>();
            }
            drawn
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(thread)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    });
    started.elapsed().as_nanos() as f64 / drawn as f64
}

/// The time of each draw, by whether it was the first of its segment.
#[derive(Default)]
struct Took {
    first_ns: Vec<f64>,
    other_ns: Vec<f64>,
    misses: u64,
}

fn waits(quick: bool) {
    let time = Duration::from_secs(if quick { 2 } else { 20 });
    let config = || SegmentConfig::new().sizes(SIZE..=SIZE).reserve(Duration::from_secs(1));
    let sources: Vec<Segments> = (0..SOURCES).map(|_| source(STORE_TAKES, config())).collect();
    // After a while the demand is known and the reserve is filled.
    draw_from(&sources, Duration::from_secs(3));
    let took = draw_from(&sources, time);
    let columns = ["draw", "draws", "p50", "p99.9", "longest"];
    let heading =
        "What a draw takes while the store takes 50 ms a call: 200,000 numbers a second, segments of 1000";
    let mut table = Table::new(heading, &columns);
    for (name, ns) in [("the first of a segment", &took.first_ns), ("any other", &took.other_ns)] {
        let cells = [0.5, 0.999, 1.0].map(|share| format!("{} us", figure(quantile(ns, share) / 1e3)));
        let [middle, high, longest] = cells;
        table.row(&[name.into(), ns.len().to_string(), middle, high, longest]);
    }
    table.print();
    println!("\n{} draws found no number.", took.misses);
}

/// Draws one number of each source in turn, 10,000 times a second.
fn draw_from(sources: &[Segments], time: Duration) -> Took {
    let mut took = Took::default();
    let (started, mut rounds) = (Instant::now(), 0);
    while started.elapsed() < time {
        for segments in sources {
            let asked = Instant::now();
            let number = loop {
                match segments.try_take(1) {
                    Ok(run) => break run.first(),
                    Err(_) => took.misses += 1,
                }
            };
            let ns = asked.elapsed().as_nanos() as f64;
            // Segments begin at 1, 1001, 2001 ...
            if number % SIZE == 1 { took.first_ns.push(ns) } else { took.other_ns.push(ns) }
        }
        rounds += 1;
        while started.elapsed() < Duration::from_micros(100) * rounds {
            std::hint::spin_loop();
        }
    }
    took
}
