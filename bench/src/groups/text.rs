//! Splitting and composing ids, and their text forms: ns and allocations for each.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::allocations;
use crate::settings::Settings;
use crate::stats::{Figures, median};
use crate::table::{Table, figure};

/// Number of ids in the inputs; they stay in the cache.
pub const INPUTS: usize = 1024;

/// Processes input `i % INPUTS` for each `i` below the given number.
type Work = Box<dyn FnMut(usize)>;

/// One conversion.
pub struct Conversion {
    name: &'static str,
    work: Work,
}

impl Conversion {
    /// Returns a conversion of the inputs, which `prepare` makes from their values.
    pub fn new<I: 'static, T>(
        name: &'static str,
        prepare: impl Fn(u64) -> I,
        convert: impl Fn(&I) -> T + 'static,
    ) -> Self {
        let inputs: Vec<I> = inputs().map(prepare).collect();
        let work = move |n| {
            for i in 0..n {
                black_box(convert(black_box(&inputs[i % INPUTS])));
            }
        };
        Self { name, work: Box::new(work) }
    }
}

/// Ids of the `twitter` layout from 2010 to 2079, the same in every run.
fn inputs() -> impl Iterator<Item = u64> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ state >> 29) >> 1
    })
    .take(INPUTS)
}

/// Measures, prints and records the figures.
pub fn run(settings: &Settings, figures: &mut Figures, measured: Vec<Conversion>) {
    let mut conversions = measured;
    conversions.retain(|conversion| settings.wants(conversion.name));

    let (rounds, time) = settings.rounds();
    let time = time.min(Duration::from_millis(2));
    let mut ns: Vec<Vec<f64>> = vec![Vec::new(); conversions.len()];
    let mut allocated = vec![0.0; conversions.len()];
    for _ in 0..rounds {
        for (i, conversion) in conversions.iter_mut().enumerate() {
            let before = allocations::count();
            let (spent, done) = measure(&mut conversion.work, time);
            allocated[i] = (allocations::count() - before) as f64 / done as f64;
            ns[i].push(spent.as_nanos() as f64 / done as f64);
        }
    }

    let mut table = Table::new("Fields and texts", &["conversion", "ns", "allocations"]);
    for (i, conversion) in conversions.iter().enumerate() {
        let middle = median(&ns[i]);
        figures.note("text", conversion.name, "ns", middle);
        figures.note("text", conversion.name, "allocations", allocated[i]);
        table.row(&[conversion.name.into(), figure(middle), format!("{:.0}", allocated[i])]);
    }
    table.print();
}

fn measure(work: &mut Work, time: Duration) -> (Duration, usize) {
    let started = Instant::now();
    let mut done = 0;
    loop {
        work(8 * INPUTS);
        done += 8 * INPUTS;
        let spent = started.elapsed();
        if spent >= time {
            return (spent, done);
        }
    }
}
