//! One call at about 100,000 per second: the latency for a caller that is not in a loop.

use std::hint::black_box;

use crate::settings::Settings;
use crate::stats::{Figures, quantile};
use crate::table::{Table, figure};
use crate::timing::{counter, counter_after, counter_before, counter_step_ns};

/// Calls at the start of a round that do not count: the caches still hold data of other subjects.
const WARM_UP: usize = 200;

/// Takes samples: the counter steps of one call, with one call every given number of steps.
type Sample = Box<dyn FnMut(usize, u64, &mut Vec<f64>)>;

/// One thing whose single calls are measured.
pub struct Call {
    name: &'static str,
    baseline: bool,
    sample: Sample,
}

impl Call {
    /// Returns a call that is measured separately.
    pub fn new<T>(name: &'static str, mut id: impl FnMut() -> T + 'static) -> Self {
        let sample = move |calls: usize, every: u64, steps: &mut Vec<f64>| {
            let mut due = counter() + every;
            for call in 0..WARM_UP + calls {
                while counter() < due {
                    std::hint::spin_loop();
                }
                let before = counter_before();
                black_box(id());
                let after = counter_after();
                if call >= WARM_UP {
                    steps.push((after - before) as f64);
                }
                due = after + every;
            }
        };
        Self { name, baseline: false, sample: Box::new(sample) }
    }

    fn baseline(mut self) -> Self {
        self.baseline = true;
        self
    }
}

/// The name of the reading of the wall clock, the baseline.
pub const WALL: &str = "`SystemTime::now`";

/// Measures, prints and records the figures.
pub fn run(settings: &Settings, figures: &mut Figures, measured: Vec<Call>) {
    let mut calls = vec![
        Call::new("nothing", || ()).baseline(),
        Call::new(WALL, std::time::SystemTime::now).baseline(),
        Call::new("processor's counter (rdtsc)", counter).baseline(),
    ];
    calls.extend(measured);
    calls.retain(|call| call.baseline || settings.wants(call.name));

    let step_ns = counter_step_ns();
    let every = (10_000.0 / step_ns) as u64;
    let (rounds, calls_each) = if settings.quick { (2, 1000) } else { (20, 2000) };
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); calls.len()];
    for _ in 0..rounds {
        for (call, samples) in calls.iter_mut().zip(&mut samples) {
            (call.sample)(calls_each, every, samples);
        }
    }

    // The time of the two readings of the counter.
    let nothing = quantile(&samples[0], 0.5);
    let wall_p50 = quantile(&samples[1], 0.5) - nothing;
    let heading = "One call at about 100,000 a second: ns";
    let mut table = Table::new(heading, &["subject", "p50", "p99", "p99.9", "p50 x `SystemTime::now`"]);
    for (call, steps) in calls.iter().zip(&samples) {
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| (quantile(steps, share) - nothing) * step_ns);
        let ratio = p50 / step_ns / wall_p50;
        figures.note("call", call.name, "p50", p50);
        figures.note("call", call.name, "p99.9", p999);
        figures.note("call", call.name, "x wall", ratio);
        table.row(&[call.name.into(), figure(p50), figure(p99), figure(p999), format!("{ratio:.2}")]);
    }
    table.print();
}
