//! Measures ids of Snowmint and its peers in one run, and prints Markdown.

use std::process::ExitCode;
use std::time::Instant;

use snowmint_bench::allocations::Counting;
use snowmint_bench::groups::{alone, bulk, call, pair, saturated, text};
use snowmint_bench::settings::Settings;
use snowmint_bench::stats::Figures;
use snowmint_bench::timing::{cpu_ns, machine_busy_ticks};
use snowmint_bench::{ours, peers, targets};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Measures, prints, and records figures.
type Group = fn(&Settings, &mut Figures);

fn all<T>(mut ours: Vec<T>, peers: Vec<T>) -> Vec<T> {
    ours.extend(peers);
    ours
}

fn main() -> ExitCode {
    let settings = match Settings::parse(std::env::args().skip(1)) {
        Ok(settings) => settings,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    let mut figures = Figures::default();
    let (started, busy) = (Instant::now(), machine_busy_ticks());
    // Saturated comes first: once started, ferroid's ticker thread never ends.
    let groups: [(&str, Group); 6] = [
        ("saturated", |settings, figures| {
            saturated::run(settings, figures, all(ours::saturated(), peers::saturated()))
        }),
        ("alone", |settings, figures| alone::run(settings, figures, all(ours::alone(), peers::alone()))),
        ("pair", |settings, figures| pair::run(settings, figures, all(ours::pair(), peers::pair()))),
        ("bulk", |settings, figures| bulk::run(settings, figures, all(ours::bulk(), peers::bulk()))),
        ("call", |settings, figures| call::run(settings, figures, all(ours::call(), peers::call()))),
        ("text", |settings, figures| text::run(settings, figures, all(ours::text(), peers::text()))),
    ];
    for (name, run) in groups {
        if settings.wants_group(name) {
            run(&settings, &mut figures);
            ours::report_refusals();
        }
    }
    targets::print(&figures);
    if let Some((before, after)) = busy.zip(machine_busy_ticks()) {
        let others = (after - before) as f64 * 1e7 - cpu_ns() as f64;
        let share = others.max(0.0) / started.elapsed().as_nanos() as f64 * 100.0;
        println!(
            "\nMeanwhile all else on this machine took {share:.0}% of a core; above 5% or so, measure again."
        );
    }
    ExitCode::SUCCESS
}
