//! Runs the simulation over many seeds and prints what came of it.
//! `snowmint-sim --seeds 1000` for more than the tests do; `--from SEED --seeds 1` to see one again.

use clap::Parser;
use snowmint_sim::{Scenario, run};

/// Simulates Snowmint nodes under clock faults, pauses, crashes and a faulty store.
#[derive(Parser)]
struct Arguments {
    /// How many seeds to run, one after the other.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Print every seed's scenario and report, not only the sums.
    #[arg(long)]
    verbose: bool,
}

#[expect(clippy::print_stdout, reason = "printing is what it is for")]
fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let (mut ids, mut events, mut bad) = (0, 0, 0);
    for seed in (0..arguments.seeds).map(|n| arguments.from.wrapping_add(n)) {
        let report = run(seed);
        ids += report.ids;
        events += report.lease_events();
        let wrong = !report.duplicates.is_empty() || report.disorder > 0;
        bad += u64::from(wrong);
        if wrong || arguments.verbose {
            println!("{}\n{report}", Scenario::of(seed));
        }
    }
    println!(
        "{} seeds from {}: {ids} ids, {events} lease events, {bad} seeds with duplicates or disorder",
        arguments.seeds, arguments.from
    );
    if bad == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
