//! Runs the simulation over many seeds and prints the results by kind of store.
//! `snowmint-sim --seeds 14000` runs more than the tests do; `--from SEED --seeds 1` repeats one seed;
//! `snowmint-sim scale` simulates large fleets.

mod tables;

use std::time::Instant;

use clap::{Parser, Subcommand};
use snowmint_sim::{Scenario, StoreProfile, Sums, for_each_seed, run};

/// Simulates Snowmint nodes under clock faults, pauses, crashes and faulty stores.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Number of seeds to run.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The kind of store for all seeds; by default the kinds take turns.
    #[arg(long)]
    store: Option<StoreProfile>,
    /// Let some processes start with a clock that is 20 years ahead.
    #[arg(long)]
    years_ahead: bool,
    /// Print every seed's scenario and report, not only the sums.
    #[arg(long)]
    verbose: bool,
}

#[derive(Subcommand)]
enum Command {
    Scale(tables::ScaleArguments),
}

impl Arguments {
    fn scenario(&self, seed: u64) -> Scenario {
        let scenario = self.store.map_or_else(|| Scenario::of(seed), |it| Scenario::with_store(seed, it));
        if self.years_ahead { scenario.with_years_ahead() } else { scenario }
    }
}

#[expect(clippy::print_stdout, reason = "printing is what it is for")]
#[expect(
    clippy::disallowed_methods,
    reason = "how long it took is for people; the worlds have their own time"
)]
fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Scale(scale)) = &arguments.command {
        return if tables::print(scale) {
            std::process::ExitCode::SUCCESS
        } else {
            std::process::ExitCode::FAILURE
        };
    }
    let started = Instant::now();
    let mut sums = Sums::default();
    for_each_seed(
        arguments.from,
        arguments.seeds,
        |seed| run(&arguments.scenario(seed)),
        |report| {
            sums.add(&report);
            let wrong = report.store.loses_no_more_than_told() && !report.figures.promise_kept();
            if wrong || arguments.verbose {
                println!("{}\n{report}", arguments.scenario(report.seed));
            }
        },
    );
    let Arguments { seeds, from, .. } = arguments;
    println!("{sums}\n{seeds} seeds from {from} in {:.0} s", started.elapsed().as_secs_f64());
    match sums.of_those_that_lose_no_more().broken {
        0 => std::process::ExitCode::SUCCESS,
        _ => std::process::ExitCode::FAILURE,
    }
}
