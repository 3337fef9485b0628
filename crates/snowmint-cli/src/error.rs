//! How a command ends: 0 done, 1 the world failed, 2 what was asked cannot be.
//! Every error is one line on standard error that begins with `error: `.

use std::error::Error as _;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde::Serialize;
use snowmint::utc::Utc;
use snowmint::{Clock as _, WallClock};

/// The exit code where the world failed.
const FAILED: u8 = 1;
/// The exit code where what was asked cannot be.
const REFUSED: u8 = 2;

/// A line of a JSON log, as those of a server.
#[derive(Serialize)]
struct Line {
    timestamp: String,
    level: &'static str,
    message: String,
    target: &'static str,
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Store, port, lease, disk: the same command may succeed another time.
    Runtime(String),
    /// Bad input or settings: the same command never succeeds.
    Usage(String),
    /// Bad input that was told where it was met.
    Told,
    /// What was told in a line of the log; the exit code.
    Logged(u8),
    /// Whoever read the output has had enough.
    ClosedPipe,
}

impl Failure {
    pub(crate) fn runtime(what: impl Display) -> Self {
        Self::Runtime(what.to_string())
    }

    pub(crate) fn usage(what: impl Display) -> Self {
        Self::Usage(what.to_string())
    }

    /// A setting that cannot be, named by its flag.
    pub(crate) fn flag(flag: &str, why: impl Display) -> Self {
        Self::Usage(format!("{flag}: {why}"))
    }

    /// Tells it on standard error as a line of a JSON log.
    pub(crate) fn told_in_json(self) -> Self {
        let (message, code) = match self {
            Self::Runtime(what) => (what, FAILED),
            Self::Usage(what) => (what, REFUSED),
            told => return told,
        };
        let timestamp = Utc(WallClock.unix_ms()).to_string();
        let line = Line { timestamp, level: "ERROR", message, target: "snowmint" };
        if let Ok(line) = serde_json::to_string(&line) {
            say(&line);
        }
        Self::Logged(code)
    }

    /// Standard output could not be written.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::Runtime(format!("cannot write to standard output: {error}"))
        }
    }
}

/// Tells what went wrong and gives the exit code.
pub(crate) fn finish(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) | Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Runtime(what)) => {
            tell("error", &what);
            ExitCode::from(FAILED)
        }
        Err(Failure::Usage(what)) => {
            tell("error", &what);
            ExitCode::from(REFUSED)
        }
        Err(Failure::Told) => ExitCode::from(REFUSED),
        Err(Failure::Logged(code)) => ExitCode::from(code),
    }
}

/// Writes one line to standard error; if that is closed there is nobody to tell.
pub(crate) fn tell(kind: &str, what: &str) {
    let line = what.split_whitespace().collect::<Vec<_>>().join(" ");
    say(&format!("{kind}: {line}"));
}

fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints help or the version; turns everything else into one line.
pub(crate) fn explain(error: &clap::Error) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => print(error),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // To standard error, where there may be nobody to read it.
            let _ = error.print();
            Err(Failure::Told)
        }
        _ => Err(Failure::Usage(one_line(error))),
    }
}

fn print(error: &clap::Error) -> Result<(), Failure> {
    error.print().map_err(|error| Failure::output(&error))?;
    io::stdout().flush().map_err(|error| Failure::output(&error))
}

fn one_line(error: &clap::Error) -> String {
    let line = invalid_value(error).unwrap_or_else(|| first_lines(error));
    variable(error).map_or_else(
        || format!("{line}; see --help"),
        |name| format!("{line}; set by the environment variable {name}"),
    )
}

/// A value that does not parse, named by its flag: what clap writes, without saying twice that the value is invalid.
fn invalid_value(error: &clap::Error) -> Option<String> {
    let why = error.source()?.to_string();
    let (Some(ContextValue::String(argument)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return None;
    };
    let flag = argument.split_whitespace().next()?;
    // The parsers of the library quote the value themselves.
    Some(if why.contains('`') {
        format!("{flag}: {why}")
    } else {
        format!("{flag}: invalid value {value:?}: {why}")
    })
}

/// What clap writes above the usage, as one line.
fn first_lines(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty());
    let mut line = String::new();
    for part in lines {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        if part.starts_with("tip:") {
            line.push(';');
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(part);
    }
    line
}

/// The environment variable that a refused value came from, if it did not come from the command line.
fn variable(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = argument.split_whitespace().next()?;
    let name = format!("SNOWMINT_{}", flag.strip_prefix("--")?.replace('-', "_").to_uppercase());
    let given = std::env::args()
        .any(|arg| arg.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')));
    (!given && std::env::var_os(&name).is_some()).then_some(name)
}
