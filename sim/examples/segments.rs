//! Runs the simulation of number segments over many seeds and prints the results.
//! `cargo run -p snowmint-sim --example segments -- --seeds 10000`; `--from SEED --seeds 1 --verbose` repeats
//! one seed.

use clap::Parser;
use snowmint_sim::{SegmentScenario, run_segments};

/// Simulates nodes that reserve number segments at faulty counters.
#[derive(Parser)]
struct Arguments {
    /// Number of seeds to run.
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
    let Arguments { seeds, from, verbose } = Arguments::parse();
    let (mut numbers, mut broken) = (0, 0);
    for seed in (0..seeds).map(|n| from.wrapping_add(n)) {
        let scenario = SegmentScenario::of(seed);
        let report = run_segments(&scenario);
        numbers += report.numbers;
        broken += u64::from(!report.promise_kept());
        if verbose || !report.promise_kept() {
            println!("{scenario:?}\n{report}");
        }
    }
    println!("{seeds} seeds from {from}: {numbers} numbers, {broken} seeds with duplicates or disorder");
    if broken == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
