//! Two threads on one generator, each on a separate processor, not throttled: wall ns per id over both.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::settings::Settings;
use crate::stats::{Figures, median, median_ratio, quantile};
use crate::subject::{Draw, Pace, Subject};
use crate::table::{Table, figure};
use crate::timing::{counter, pin, processors, wait_for_next_ms};

/// Ids between two readings of the clock.
const CHUNK: u64 = 4096;

/// The contended atomic operation that is the baseline.
pub const FETCH_ADD: &str = "contended `AtomicU64::fetch_add`";

/// The minimum cost of strict order over threads if each id reads the counter first.
pub const AFTER_COUNTER: &str = "the same, each after a look at the counter";

/// Measures, prints and records the figures.
pub fn run(settings: &Settings, figures: &mut Figures, measured: Vec<Subject>) {
    let processors = processors();
    let Some(&[first, second]) = processors.first_chunk() else {
        println!("\nTwo threads: not measured, this machine gives one processor only.");
        return;
    };
    let mut subjects = baselines();
    subjects.extend(measured);
    subjects.retain(|subject| subject.baseline || settings.wants(subject.name));

    let (rounds, time) = settings.rounds();
    let mut draws: Vec<[Draw; 2]> = subjects.iter().map(|subject| [subject.draw(), subject.draw()]).collect();
    let mut ns: Vec<Vec<f64>> = vec![Vec::new(); subjects.len()];
    for round in 0..=rounds {
        for (i, subject) in subjects.iter().enumerate() {
            let wall = match subject.pace {
                Pace::Free => flat_out(&mut draws[i], [first, second], time),
                Pace::EachMs(ids) => bursts(&mut draws[i], [first, second], ids, time),
            };
            // The first round only warms up.
            if round > 0 {
                ns[i].push(wall);
            }
        }
    }

    let heading = "Two threads on one generator, not throttled: wall ns an id over both";
    let mut table = Table::new(heading, &["subject", "ns an id", "p10 to p90", "x contended fetch_add"]);
    for (subject, ns_of) in subjects.iter().zip(&ns) {
        let (middle, ratio) = (median(ns_of), median_ratio(ns_of, &ns[0]));
        figures.note("pair", subject.name, "ns", middle);
        figures.note("pair", subject.name, "x fetch_add", ratio);
        let spread = format!("{} to {}", figure(quantile(ns_of, 0.1)), figure(quantile(ns_of, 0.9)));
        table.row(&[subject.name.into(), figure(middle), spread, figure(ratio)]);
    }
    table.print();
}

fn baselines() -> Vec<Subject> {
    use std::sync::atomic::{AtomicU64, Ordering};

    // On a separate cache line, like a generator's variable.
    #[derive(Default)]
    #[repr(align(128))]
    struct Padded(AtomicU64);

    vec![
        Subject::shared(FETCH_ADD, Padded::default(), |word| word.0.fetch_add(1, Ordering::Relaxed))
            .baseline(),
        // The pause between two steps gives the other processor time to take the cache line away.
        Subject::shared(AFTER_COUNTER, Padded::default(), |word| {
            std::hint::black_box(counter());
            word.0.fetch_add(1, Ordering::Relaxed)
        })
        .baseline(),
    ]
}

/// Both threads draw for a while; the slower one is not left to finish alone.
fn flat_out(draws: &mut [Draw; 2], cpus: [usize; 2], time: Duration) -> f64 {
    let barrier = Barrier::new(2);
    let spans = std::thread::scope(|scope| {
        let threads: Vec<_> = draws
            .iter_mut()
            .zip(cpus)
            .map(|(draw, cpu)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    pin(cpu);
                    barrier.wait();
                    let started = Instant::now();
                    let mut ids = 0;
                    while started.elapsed() < time {
                        draw(CHUNK);
                        ids += CHUNK;
                    }
                    (started, Instant::now(), ids)
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>()
    });
    wall_ns(&spans) / spans.iter().map(|span| span.2).sum::<u64>() as f64
}

/// Both threads draw this many ids at the start of each millisecond, together.
fn bursts(draws: &mut [Draw; 2], cpus: [usize; 2], ids: u64, time: Duration) -> f64 {
    let bursts = u64::try_from(time.as_millis()).unwrap_or(1);
    let barrier = Barrier::new(2);
    let spans: Vec<Vec<_>> = std::thread::scope(|scope| {
        let threads: Vec<_> = draws
            .iter_mut()
            .zip(cpus)
            .map(|(draw, cpu)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    pin(cpu);
                    let mut spans = Vec::new();
                    for _ in 0..bursts {
                        barrier.wait();
                        wait_for_next_ms();
                        let started = Instant::now();
                        draw(ids / 2);
                        spans.push((started, Instant::now(), ids / 2));
                    }
                    spans
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let walls = spans[0].iter().zip(&spans[1]).map(|(one, other)| wall_ns(&[*one, *other]));
    let walls: Vec<f64> = walls.collect();
    // The median, so that a burst whose threads did not start together does not count.
    median(&walls) / (ids / 2 * 2) as f64
}

fn wall_ns(spans: &[(Instant, Instant, u64)]) -> f64 {
    let started = spans.iter().map(|span| span.0).min();
    let ended = spans.iter().map(|span| span.1).max();
    started.zip(ended).map_or(f64::NAN, |(started, ended)| (ended - started).as_nanos() as f64)
}
