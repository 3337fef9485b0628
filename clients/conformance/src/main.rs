//! Runs the scenarios against a driver.

use std::io::Write as _;
use std::process::ExitCode;

use snowmint_conformance::black_box::kill_each_node_in_turn;
use snowmint_conformance::{application, run, scenario};

const USAGE: &str = "\
usage: snowmint-conformance [--black-box] [--only NAME]... [--at-once N] -- DRIVER [ARG]...
       snowmint-conformance --application -- PROGRAM [ARG]...
       snowmint-conformance --list

Runs the scenarios against a driver, a program that speaks the protocol of clients/conformance/README.md.

  --only NAME  Run this scenario, or those whose names begin so
  --at-once N  Number of scenarios, and of driver processes, at a time (default 4)
  --list       Print the scenarios with their rules
  --black-box  Instead of scenarios, kill two real nodes in turn while the driver draws 2 million ids
  --application
               Run a program beside two real nodes and PostgreSQL, with SNOWMINT_SERVERS, SNOWMINT_SERVER, DATABASE_URL
               and DATABASE_URL_2 in its environment
";

enum Mode {
    Scenarios,
    List,
    BlackBox,
    Application,
}

struct Args {
    mode: Mode,
    only: Vec<String>,
    at_once: usize,
    command: Vec<String>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args { mode: Mode::Scenarios, only: Vec::new(), at_once: 4, command: Vec::new() };
    while let Some(word) = words.next() {
        match &*word {
            "--only" => args.only.push(words.next()?),
            "--at-once" => args.at_once = words.next()?.parse().ok()?,
            "--list" => args.mode = Mode::List,
            "--black-box" => args.mode = Mode::BlackBox,
            "--application" => args.mode = Mode::Application,
            "--" => args.command.extend(words.by_ref()),
            _ => return None,
        }
    }
    (matches!(args.mode, Mode::List) || !args.command.is_empty()).then_some(args)
}

fn failed(why: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

/// Runs the black box.
fn black_box(driver: &[String]) -> ExitCode {
    match kill_each_node_in_turn(driver) {
        Ok(report) => {
            eprintln!("{report:?}");
            if report.duplicates == 0 && report.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => failed(&error),
    }
}

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let Some(args) = parse(words) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    match args.mode {
        Mode::BlackBox => return black_box(&args.command),
        Mode::Application => {
            return match application::run(&args.command) {
                Ok(status) if status.success() => ExitCode::SUCCESS,
                Ok(status) => failed(&status),
                Err(error) => failed(&error),
            };
        }
        Mode::Scenarios | Mode::List => {}
    }
    let mut scenarios = match scenario::all() {
        Ok(scenarios) => scenarios,
        Err(error) => {
            eprintln!("invalid scenario: {error}");
            return ExitCode::from(2);
        }
    };
    scenarios.retain(|it| args.only.is_empty() || args.only.iter().any(|only| it.name.starts_with(only)));
    // Without a reader there is nobody to tell.
    let print = |text: String| drop(std::io::stdout().write_all(text.as_bytes()));
    if matches!(args.mode, Mode::List) {
        for it in &scenarios {
            print(format!("{:<34} {:<12} {}\n", it.name, it.rules.join(" "), it.why));
        }
        return ExitCode::SUCCESS;
    }
    if scenarios.is_empty() {
        eprintln!("no scenario begins with {:?}: see --list", args.only);
        return ExitCode::from(2);
    }
    let outcomes = run::run(&args.command, &scenarios, args.at_once, run::print);
    let failed = outcomes.iter().filter(|it| !it.problems.is_empty()).count();
    print(format!("{} scenarios, {failed} failed\n", outcomes.len()));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
