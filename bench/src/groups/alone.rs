//! One thread, not throttled: ns per id.

use std::time::{Duration, Instant};

use crate::settings::Settings;
use crate::stats::{Figures, median, median_ratio, quantile};
use crate::subject::{Draw, Pace, Subject};
use crate::table::{Table, figure};
use crate::timing::wait_for_next_ms;

/// The bare atomic operation that is the baseline.
pub const FETCH_ADD: &str = "`AtomicU64::fetch_add`";

/// Measures, prints and records the figures.
pub fn run(settings: &Settings, figures: &mut Figures, measured: Vec<Subject>) {
    let mut subjects = baselines();
    subjects.extend(measured);
    subjects.retain(|subject| subject.baseline || settings.wants(subject.name));

    let (rounds, time) = settings.rounds();
    let mut draws: Vec<Draw> = subjects.iter().map(Subject::draw).collect();
    let counts: Vec<u64> =
        subjects.iter().zip(&mut draws).map(|(subject, draw)| ids_in(subject.pace, draw, time)).collect();
    let mut ns: Vec<Vec<f64>> = vec![Vec::new(); subjects.len()];
    for _ in 0..rounds {
        for (i, subject) in subjects.iter().enumerate() {
            ns[i].push(round(subject.pace, &mut draws[i], counts[i]));
        }
    }

    let mut table =
        Table::new("One thread, not throttled", &["subject", "ns an id", "p10 to p90", "x fetch_add"]);
    for (subject, ns_of) in subjects.iter().zip(&ns) {
        let (middle, ratio) = (median(ns_of), median_ratio(ns_of, &ns[0]));
        figures.note("alone", subject.name, "ns", middle);
        figures.note("alone", subject.name, "x fetch_add", ratio);
        let spread = format!("{} to {}", figure(quantile(ns_of, 0.1)), figure(quantile(ns_of, 0.9)));
        table.row(&[subject.name.into(), figure(middle), spread, figure(ratio)]);
    }
    // The rounds of each subject, for targets that compare two subjects.
    if let Some(counter) = subjects.iter().position(|subject| subject.name == COUNTER) {
        for (subject, ns_of) in subjects.iter().zip(&ns) {
            figures.note("alone", subject.name, "x counter", median_ratio(ns_of, &ns[counter]));
        }
    }
    table.print();
}

/// The name of the bare reading of the CPU's time stamp counter.
pub const COUNTER: &str = "processor's counter (rdtsc)";

/// The name of an addition to a variable that no other thread uses.
pub const PLAIN_ADD: &str = "plain add";

fn baselines() -> Vec<Subject> {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::SystemTime;

    use crate::timing::{counter, nanos};
    use rustix::time::ClockId;

    vec![
        Subject::shared(FETCH_ADD, AtomicU64::new(0), |word| word.fetch_add(1, Ordering::Relaxed)).baseline(),
        Subject::own(PLAIN_ADD, || {
            let mut word = 0_u64;
            move || {
                word += 1;
                word
            }
        })
        .baseline(),
        Subject::own("`SystemTime::now`", || SystemTime::now).baseline(),
        Subject::own("`clock_gettime(BOOTTIME)`", || || nanos(ClockId::Boottime)).baseline(),
        Subject::own("`clock_gettime(REALTIME_COARSE)`", || || nanos(ClockId::RealtimeCoarse)).baseline(),
        Subject::own(COUNTER, || counter).baseline(),
    ]
}

/// Returns the number of ids in a round of this length; the first call also warms up.
fn ids_in(pace: Pace, draw: &mut Draw, time: Duration) -> u64 {
    if let Pace::EachMs(ids) = pace {
        // Most of each millisecond is a pause, so use fewer milliseconds: then all subjects take about as
        // long.
        return ids * u64::try_from(time.as_millis()).unwrap_or(1);
    }
    let mut ids = 256;
    loop {
        let started = Instant::now();
        draw(ids);
        let elapsed = started.elapsed();
        if elapsed >= time / 8 {
            return (ids as f64 * time.as_secs_f64() / elapsed.as_secs_f64()) as u64 + 1;
        }
        ids *= 2;
    }
}

/// Returns the nanoseconds per id over one round.
fn round(pace: Pace, draw: &mut Draw, ids: u64) -> f64 {
    let burst = match pace {
        Pace::Free => ids,
        Pace::EachMs(burst) => burst,
    };
    let mut measured = Duration::ZERO;
    for _ in 0..ids / burst {
        if pace != Pace::Free {
            wait_for_next_ms();
        }
        let started = Instant::now();
        draw(burst);
        measured += started.elapsed();
    }
    measured.as_nanos() as f64 / ids as f64
}
