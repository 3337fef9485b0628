//! The `twitter` layout at full speed, with callers that wait: the limit is 4,096,000 ids per second.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::settings::Settings;
use crate::stats::{Figures, median};
use crate::table::{Table, figure};
use crate::timing::{cpu_ns, wall_ms};

/// The limit of the layout for one worker, in ids per second.
pub const LIMIT: f64 = 4_096_000.0;

/// Draws ids one after another, and waits when its generator says so, until [`Progress::note`] says to stop.
pub type Caller = Box<dyn FnOnce(&Progress) + Send>;

/// A caller that blocks.
pub fn caller(mut next: impl FnMut() -> u64 + Send + 'static) -> Caller {
    Box::new(move |progress| while progress.note(next()) {})
}

/// A generator with a sequence of 12 bits, and how to wait for it.
pub struct Saturated {
    /// Its name in the table.
    pub name: &'static str,
    /// Whether it starts a background thread that never ends: it is then measured after all others.
    pub ticks_for_ever: bool,
    /// Whether threads can share it.
    pub for_two: bool,
    /// Makes it, for this many threads.
    pub make: fn(usize) -> Vec<Caller>,
    /// The instant of an id, in Unix milliseconds.
    pub unix_ms: fn(u64) -> u64,
}

/// The result of one round.
#[derive(Clone, Copy)]
struct Round {
    ids_per_second: f64,
    cpu: f64,
    /// How far the last id is ahead of the wall clock, in milliseconds.
    ahead_ms: f64,
}

/// The progress of one caller.
#[derive(Default)]
#[repr(align(128))]
pub struct Progress {
    ids: AtomicU64,
    last: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    /// Counts an id. Returns `false` when it is time to stop.
    #[inline]
    pub fn note(&self, id: u64) -> bool {
        self.last.store(id, Ordering::Relaxed);
        self.ids.store(self.ids.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Measures, prints and records the figures.
pub fn run(settings: &Settings, figures: &mut Figures, measured: Vec<Saturated>) {
    let mut subjects = measured;
    subjects.retain(|subject| settings.wants(subject.name));
    subjects.sort_by_key(|subject| subject.ticks_for_ever);

    let heading = "Saturated: `twitter` layout, blocking, limit 4,096,000 ids a second";
    let columns =
        ["subject", "threads", "M ids/s", "% of the limit", "CPU, % of a core", "ms ahead of the clock"];
    let mut table = Table::new(heading, &columns);
    for subject in &subjects {
        let threads = if subject.for_two { 1..=2 } else { 1..=1 };
        for threads in threads {
            let ours = subject.name.starts_with("snowmint");
            let (rounds, seconds) = match (settings.quick, ours) {
                (true, _) => (1, 0.2),
                (false, true) => (5, 1.5),
                (false, false) => (1, 1.0),
            };
            let rounds: Vec<Round> = (0..rounds).map(|_| measure(subject, threads, seconds)).collect();
            let of = |what: fn(&Round) -> f64| median(&rounds.iter().map(what).collect::<Vec<_>>());
            let (rate, cpu, ahead) = (of(|r| r.ids_per_second), of(|r| r.cpu), of(|r| r.ahead_ms));
            let share = rate / LIMIT * 100.0;
            figures.note("saturated", subject.name, &format!("{threads} share"), share);
            figures.note("saturated", subject.name, &format!("{threads} cpu"), cpu);
            let cells =
                [figure(rate / 1e6), format!("{share:.2}"), format!("{cpu:.1}"), format!("{ahead:.0}")];
            let [rate, share, cpu, ahead] = cells;
            table.row(&[subject.name.into(), threads.to_string(), rate, share, cpu, ahead]);
        }
    }
    table.print();
}

fn measure(subject: &Saturated, threads: usize, seconds: f64) -> Round {
    let progress: Vec<Progress> = (0..threads).map(|_| Progress::default()).collect();
    std::thread::scope(|scope| {
        for (caller, progress) in (subject.make)(threads).into_iter().zip(&progress) {
            scope.spawn(move || caller(progress));
        }
        let total = || progress.iter().map(|progress| progress.ids.load(Ordering::Relaxed)).sum::<u64>();
        // Start after the beginning, where a burst of ids from past ticks would count as speed.
        std::thread::sleep(Duration::from_millis(100));
        let (started, cpu, ids) = (Instant::now(), cpu_ns(), total());
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let (elapsed, cpu, ids) = (started.elapsed().as_secs_f64(), cpu_ns() - cpu, total() - ids);
        let last = progress.iter().map(|progress| progress.last.load(Ordering::Relaxed)).max().unwrap_or(0);
        let ahead_ms = (subject.unix_ms)(last) as f64 - wall_ms() as f64;
        for caller in &progress {
            caller.stop.store(true, Ordering::Relaxed);
        }
        Round { ids_per_second: ids as f64 / elapsed, cpu: cpu as f64 / elapsed / 1e7, ahead_ms }
    })
}
