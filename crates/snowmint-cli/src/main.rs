//! The command `snowmint`: serve, mint, inspect and lay out ids.
//! Wiring only: each subcommand is a file of its own.

// That the task which opens stores may move between threads is proven through every type of their TLS.
#![recursion_limit = "256"]

mod changing;
mod doctor;
mod drawing;
mod exit;
mod guesses;
mod import;
mod inspect;
mod instants;
mod layout;
mod layouts;
mod lease;
mod lifetime;
mod new;
mod nodes;
mod ns;
mod numbers;
mod output;
mod serve;
mod store;
mod store_init;
mod store_recover;
mod tokens;
mod usage;
mod values;
mod workers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Start with:
  snowmint serve                          ids over HTTP and the Redis protocol
  snowmint new -n 3                       ids here and now
  snowmint inspect 1541815603606036480    what an id says
  snowmint layouts                        which layouts there are
  snowmint ns list                        which namespaces there are
  snowmint workers                        who holds which worker
  snowmint doctor                         whether the store can be relied on

Exit codes: 0 done; 1 something outside failed (store, port, lease); 2 bad input or settings.
Colours are used on a terminal only, and not where NO_COLOR is set.";

/// Unique, time-ordered 64-bit ids
#[derive(Debug, Parser)]
#[command(name = "snowmint", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::Args>),
    New(new::Args),
    Inspect(inspect::Args),
    Layout(layout::Args),
    Layouts(layouts::Args),
    Ns(ns::Args),
    Import(import::Args),
    Workers(workers::Args),
    Doctor(doctor::Args),
    Store(store_init::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => match cli.command {
            Command::Serve(args) => serve::start(*args),
            Command::New(args) => new::run(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Layout(args) => layout::run(&args),
            Command::Layouts(args) => layouts::run(&args),
            Command::Ns(args) => ns::run(&args),
            Command::Import(args) => import::run(&args),
            Command::Workers(args) => workers::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Store(args) => store_init::run(&args),
        },
        Err(error) => serve::told_as_logged(usage::explain(&error)),
    };
    exit::finish(outcome)
}
