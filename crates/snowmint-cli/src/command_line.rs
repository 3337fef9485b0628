//! The command line of `snowmint`: its subcommands, and the flags that all of them have.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::error::Failure;
use crate::serve::config_file::{ConfigFile, setting};
use crate::serve::logging::SettingFile;
use crate::{
    argv, audit, bench, completions, config, convert, doctor, error, explain, health, hide_key, import,
    inspect, layout, log_level, new, ns, output, range, serve, sql, store, token, version, workers,
};

const EXAMPLES: &str = "\
Start with:
  snowmint serve                          serve ids over HTTP and the Redis protocol
  snowmint new -n 3                       make three ids
  snowmint inspect 1541815603606036480    explain an id
  snowmint layouts                        list the named layouts
  snowmint ns list                        list the namespaces of a store
  snowmint workers                        list workers and their holders
  snowmint doctor                         check a store
  snowmint health                         ask a node whether it can make ids
  snowmint audit                          list who changed a store
  snowmint config check FILE              check a configuration file of serve
  snowmint token create NAME --help       make a token for a client
  snowmint sql postgres --layout twitter  print SQL functions for ids
  snowmint explain                        list the errors, and explain one
  snowmint help COMMAND                   the flags of a command, with examples

--json writes one JSON object per line, on every command that prints results. Ids
in JSON are strings: JavaScript keeps only 53 bits of a number.

Exit codes. 0: done. 1: something outside failed (store, port, lease). 2: invalid input or settings.";

/// Unique, time-ordered 64-bit ids
#[derive(Debug, Parser)]
#[command(
    name = "snowmint",
    version,
    after_help = EXAMPLES,
    arg_required_else_help = true,
    disable_version_flag = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
    /// Colour of output: auto (on a terminal, unless `NO_COLOR` is set), always or never
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        alias = "colour",
        global = true,
        help_heading = "Global options"
    )]
    pub(crate) color: output::Colour,
    /// Print the version
    #[arg(short = 'V', short_alias = 'v', long, action = clap::ArgAction::Version, help_heading = "Global options")]
    version: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    #[command(aliases = ["server", "start", "run"])]
    Serve(Box<serve::Args>),
    Config(config::Args),
    #[command(aliases = ["generate", "gen", "next", "mint"])]
    New(new::Args),
    #[command(aliases = ["decode", "parse", "show"])]
    Inspect(inspect::Args),
    Convert(convert::Args),
    Range(range::Args),
    Layout(layout::Args),
    Layouts(layout::ListArgs),
    #[command(aliases = ["namespace", "namespaces"])]
    Ns(ns::Args),
    HideKey(hide_key::Args),
    Import(import::Args),
    #[command(alias = "worker")]
    Workers(workers::Args),
    #[command(alias = "check")]
    Doctor(doctor::Args),
    Health(health::Args),
    Audit(audit::Args),
    LogLevel(log_level::Args),
    Store(store::Args),
    Sql(sql::Args),
    #[command(alias = "tokens")]
    Token(token::Args),
    #[command(alias = "benchmark")]
    Bench(bench::Args),
    Explain(explain::Args),
    #[command(alias = "completion")]
    Completions(completions::CompletionArgs),
    Man(completions::ManArgs),
    Version(version::Args),
}

impl Cli {
    /// The flags of `serve`, if the command takes them.
    fn serve_args(&self) -> Option<&serve::Args> {
        match &self.command {
            CliCommand::Serve(args) => Some(args),
            CliCommand::Config(args) => args.serve_args(),
            _ => None,
        }
    }

    fn serve_args_mut(&mut self) -> Option<&mut serve::Args> {
        match &mut self.command {
            CliCommand::Serve(args) => Some(args),
            CliCommand::Config(args) => args.serve_args_mut(),
            _ => None,
        }
    }
}

/// Parses the command line. If `serve` has a configuration file, its values are the defaults.
pub(crate) fn parse_command_line() -> Result<(Cli, ArgMatches), clap::Error> {
    parse(Cli::command().color(argv::colour_of_help()))
}

/// Parses the command line again, with the values of its configuration file.
pub(crate) fn with_file(cli: Cli, matches: ArgMatches) -> Result<(Cli, ArgMatches), Failure> {
    let Some(path) = cli.serve_args().and_then(|args| args.config.clone()) else { return Ok((cli, matches)) };
    let file = ConfigFile::read(&path)?;
    let command = Cli::command()
        .mut_subcommand("serve", |serve| file.apply(serve))
        .mut_subcommand("config", |config| config.mut_subcommand("print", |print| file.apply(print)));
    let (mut cli, matches) = parse(command).map_err(|error| match error::explain(&error) {
        Err(failure) => failure,
        Ok(()) => Failure::Reported,
    })?;
    let serve = matches.subcommand_matches("serve");
    let from_file = |key| {
        let source = serve.and_then(|serve| serve.value_source(key));
        (source == Some(ValueSource::DefaultValue)).then(|| SettingFile { path: path.clone(), read: setting })
    };
    let (log, access_log) = (from_file("log"), from_file("access_log"));
    if let Some(args) = cli.serve_args_mut() {
        (args.from_config.log, args.from_config.access_log) = (log, access_log);
        file.give_tokens(args, path.clone())?;
        file.give_namespaces(args, path)?;
    }
    Ok((cli, matches))
}

fn parse(mut command: Command) -> Result<(Cli, ArgMatches), clap::Error> {
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok((cli, matches))
}
