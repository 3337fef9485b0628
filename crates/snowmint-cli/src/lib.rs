//! The command `snowmint`. Each subcommand is a file; this one calls it.

// The compiler checks that the task that opens stores is `Send`, through every type in their TLS.
#![recursion_limit = "256"]

mod admin_failure;
mod advice;
mod argv;
mod audit;
mod bench;
mod bit_picture;
mod client_credentials;
mod command_line;
mod completions;
mod config;
mod convert;
mod data_directory;
mod doctor;
mod error;
mod explain;
mod flag_values;
#[cfg(all(target_os = "linux", target_env = "gnu", target_feature = "crt-static"))]
mod glibc_resolver;
mod health;
mod hide_key;
mod import;
mod input;
mod inspect;
mod instants;
mod layout;
mod log_level;
mod log_queue;
mod new;
mod node_client;
mod ns;
mod numbers;
mod open_store;
mod output;
mod range;
mod runtime;
mod serve;
mod shared_file;
mod sql;
mod store;
mod target;
mod token;
mod version;
mod workers;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory as _};

use command_line::{Cli, CliCommand, parse_command_line, with_file};
use error::Failure;
use runtime::runtime;

#[doc(hidden)]
pub use serve::config_file;

/// Runs the command in the arguments of this process, and returns its exit code.
pub fn main() -> ExitCode {
    #[cfg(all(target_os = "linux", target_env = "gnu", target_feature = "crt-static"))]
    glibc_resolver::use_built_in_services();
    let outcome = match parse_command_line() {
        Ok((cli, matches)) => {
            serve::report_in_log_format(with_file(cli, matches)).and_then(|(cli, matches)| run(cli, &matches))
        }
        Err(error) => serve::report_in_log_format(error::explain(&error)),
    };
    let code = error::finish(outcome);
    log_queue::flush();
    code
}

fn run(cli: Cli, matches: &ArgMatches) -> Result<(), Failure> {
    output::choose_colour(cli.color);
    let parser = Cli::command();
    serve::misspelt_variables::refuse(&parser, matches, std::env::vars_os())?;
    match cli.command {
        CliCommand::Serve(args) => serve::start(*args, &parser),
        CliCommand::Config(args) => config::run(&args, matches),
        CliCommand::New(args) => new::run(&args),
        CliCommand::Inspect(args) => inspect::run(&args),
        CliCommand::Convert(args) => convert::run(&args),
        CliCommand::Range(args) => range::run(&args),
        CliCommand::Layout(args) => layout::show(&args),
        CliCommand::Layouts(args) => layout::list(&args),
        CliCommand::Ns(args) => ns::run(&args),
        CliCommand::HideKey(args) => hide_key::run(&args),
        CliCommand::Import(args) => import::run(&args),
        CliCommand::Workers(args) => workers::run(&args),
        CliCommand::Doctor(args) => doctor::run(&args),
        CliCommand::Health(args) => health::run(&args),
        CliCommand::Audit(args) => audit::run(&args),
        CliCommand::LogLevel(args) => log_level::run(&args),
        CliCommand::Store(args) => store::run(&args),
        CliCommand::Sql(args) => sql::run(&args),
        CliCommand::Token(args) => token::run(&args),
        CliCommand::Bench(args) => bench::run(&args),
        CliCommand::Explain(args) => explain::run(&args),
        CliCommand::Completions(args) => completions::print(&args, parser),
        CliCommand::Man(args) => completions::write_man(&args, parser),
        CliCommand::Version(args) => version::run(&args),
    }
}
