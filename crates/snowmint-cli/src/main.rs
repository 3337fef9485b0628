//! The command `snowmint`: serve, mint, inspect and lay out ids.
//! Wiring only: each subcommand is a file of its own.

// That the task which opens stores may move between threads is proven through every type of their TLS.
#![recursion_limit = "256"]

mod connect;
mod doctor;
mod drawing;
mod error;
mod flags;
mod human;
mod import;
mod inspect;
mod layout;
mod new;
mod node_metrics;
mod ns;
mod serve;
mod store;
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
    Layouts(layout::ListArgs),
    Ns(ns::Args),
    Import(import::Args),
    Workers(workers::Args),
    Doctor(doctor::Args),
    Store(store::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => match cli.command {
            Command::Serve(args) => serve::start(*args),
            Command::New(args) => new::run(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Layout(args) => layout::show(&args),
            Command::Layouts(args) => layout::list(&args),
            Command::Ns(args) => ns::run(&args),
            Command::Import(args) => import::run(&args),
            Command::Workers(args) => workers::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Store(args) => store::run(&args),
        },
        Err(error) => serve::told_as_logged(error::explain(&error)),
    };
    error::finish(outcome)
}
