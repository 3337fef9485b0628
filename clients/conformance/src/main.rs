//! Runs the scenarios against a driver.

use std::io::Write as _;
use std::process::ExitCode;

use snowmint_conformance::black_box::kill_each_node_in_turn;
use snowmint_conformance::{run, scenario};

const USAGE: &str = "\
usage: snowmint-conformance [--black-box] [--only NAME]... [--at-once N] -- DRIVER [ARG]...
       snowmint-conformance --list

Runs the scenarios against a driver, a program that speaks the protocol of clients/conformance/README.md.

  --only NAME  Run this scenario, or those whose names begin so
  --at-once N  Number of scenarios, and of driver processes, at a time (default 4)
  --list       Print the scenarios with their rules
  --black-box  Instead of scenarios, kill two real nodes in turn while the driver draws 2 million ids
";

struct Args {
    only: Vec<String>,
    at_once: usize,
    list: bool,
    black_box: bool,
    driver: Vec<String>,
}

fn parse(words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args { only: Vec::new(), at_once: 4, list: false, black_box: false, driver: Vec::new() };
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        match &*word {
            "--only" => args.only.push(words.next()?),
            "--at-once" => args.at_once = words.next()?.parse().ok()?,
            "--list" => args.list = true,
            "--black-box" => args.black_box = true,
            "--" => args.driver.extend(words.by_ref()),
            _ => return None,
        }
    }
    (args.list || !args.driver.is_empty()).then_some(args)
}

/// Runs the black box.
fn black_box(driver: &[String]) -> ExitCode {
    match kill_each_node_in_turn(driver) {
        Ok(report) => {
            eprintln!("{report:?}");
            if report.duplicates == 0 && report.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let Some(args) = parse(words) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    if args.black_box {
        return black_box(&args.driver);
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
    if args.list {
        for it in &scenarios {
            print(format!("{:<34} {:<12} {}\n", it.name, it.rules.join(" "), it.why));
        }
        return ExitCode::SUCCESS;
    }
    if scenarios.is_empty() {
        eprintln!("no scenario begins with {:?}: see --list", args.only);
        return ExitCode::from(2);
    }
    let outcomes = run::run(&args.driver, &scenarios, args.at_once, run::print);
    let failed = outcomes.iter().filter(|it| !it.problems.is_empty()).count();
    print(format!("{} scenarios, {failed} failed\n", outcomes.len()));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
