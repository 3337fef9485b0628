//! The outcome of a command. Exit code 0: done. 1: something outside failed. 2: invalid input or settings.
//! Every error is one line on standard error that begins with `error: `.

use std::error::Error as _;
use std::fmt::{self, Display};
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde::Serialize;
use snowmint::foreign::{Most, shown, shown_in_json};
use snowmint::utc::Utc;
use snowmint::{Clock as _, WallClock};
use snowmint_cluster::audit::ChangeFailure;

use crate::log_queue::write_line;
use crate::{advice, argv};

/// Exit code if a store, port, lease or disk failed.
const FAILED: u8 = 1;
/// Exit code for invalid input or settings.
const INVALID: u8 = 2;

/// A log line in the JSON format of `snowmint serve`.
#[derive(Serialize)]
struct JsonLogLine {
    timestamp: String,
    level: &'static str,
    message: String,
    target: &'static str,
}

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A store, port, lease or disk failed: the same command may succeed later.
    Runtime(String),
    /// Invalid input or settings: the same command fails again.
    Usage(String),
    /// Invalid input that was reported already.
    Reported,
    /// A failure that was logged already, with its exit code.
    Logged(u8),
    /// The reader of the output closed it.
    ClosedPipe,
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(what) | Self::Usage(what) => f.write_str(what),
            Self::Reported | Self::Logged(_) => f.write_str("reported already"),
            Self::ClosedPipe => f.write_str("the output was closed"),
        }
    }
}

impl From<&Failure> for ChangeFailure {
    fn from(failure: &Failure) -> Self {
        let why = failure.to_string();
        // A command with several steps may have completed some of them.
        if matches!(failure, Failure::Usage(_)) { Self::Refused(why) } else { Self::Unknown(why) }
    }
}

impl Failure {
    pub(crate) fn runtime(what: impl Display) -> Self {
        Self::Runtime(what.to_string())
    }

    pub(crate) fn usage(what: impl Display) -> Self {
        Self::Usage(what.to_string())
    }

    /// An invalid setting, named by its flag.
    pub(crate) fn flag(flag: &str, why: impl Display) -> Self {
        Self::Usage(format!("{flag}: {why}"))
    }

    /// Writes the failure to standard error as a line of a JSON log.
    pub(crate) fn logged_as_json(self) -> Self {
        let (message, code) = match self {
            Self::Runtime(what) => (what, FAILED),
            Self::Usage(what) => (what, INVALID),
            reported => return reported,
        };
        let timestamp = Utc(WallClock.unix_ms()).to_string();
        let line = JsonLogLine { timestamp, level: "ERROR", message, target: "snowmint" };
        if let Ok(line) = serde_json::to_string(&line) {
            write_line(&shown_in_json(&line, Most::Line));
        }
        Self::Logged(code)
    }

    /// A failure to write to standard output.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::Runtime(format!("cannot write to standard output: {error}"))
        }
    }
}

/// Reports the failure, if any, and returns the exit code.
pub(crate) fn finish(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) | Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Runtime(what)) => {
            report("error", &what);
            ExitCode::from(FAILED)
        }
        Err(Failure::Usage(what)) => {
            report("error", &what);
            ExitCode::from(INVALID)
        }
        Err(Failure::Reported) => ExitCode::from(INVALID),
        Err(Failure::Logged(code)) => ExitCode::from(code),
    }
}

/// Writes `kind: what` to standard error as one line.
pub(crate) fn report(kind: &str, what: &str) {
    let line = what.split_whitespace().collect::<Vec<_>>().join(" ");
    // It may quote a server, or records that others wrote.
    write_line(&format!("{kind}: {}", shown(&line, Most::Message)));
}

/// Prints the help or version text from clap; turns its errors into one line.
pub(crate) fn explain(error: &clap::Error) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => print(error),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // If standard error is closed, nobody is listening.
            let _ = error.print();
            Err(Failure::Reported)
        }
        _ => Err(Failure::Usage(advice::advice(error).unwrap_or_else(|| one_line(error)))),
    }
}

fn print(error: &clap::Error) -> Result<(), Failure> {
    error.print().map_err(|error| Failure::output(&error))?;
    io::stdout().flush().map_err(|error| Failure::output(&error))
}

fn one_line(error: &clap::Error) -> String {
    let line = invalid_value(error).unwrap_or_else(|| format!("{}; see --help", first_lines(error)));
    match variable(error) {
        Some(name) => format!("{line}; set by the environment variable {name}"),
        None => line,
    }
}

/// Returns the error for an invalid value, with the name of its flag.
fn invalid_value(error: &clap::Error) -> Option<String> {
    let why = error.source()?.to_string();
    let (Some(ContextValue::String(argument)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return None;
    };
    let flag = argument.split_whitespace().next()?;
    // The errors of the library name the value.
    let names_value = why.contains('`') || (why.starts_with("invalid ") && why.contains(value.as_str()));
    Some(if names_value {
        format!("{flag}: {why}")
    } else {
        format!("{flag}: invalid value {value:?}: {why}")
    })
}

/// Returns the lines of a clap error above its usage, as one line.
fn first_lines(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        // This tip is left out: an unknown flag is a typo, not a value that begins with a dash.
        .filter(|line| !line.starts_with("tip: to pass '"));
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

/// Returns the environment variable that an invalid value came from, if it did not come from the command
/// line.
fn variable(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = argument.split_whitespace().next()?;
    let name = format!("SNOWMINT_{}", flag.strip_prefix("--")?.replace('-', "_").to_uppercase());
    (!argv::has_flag(flag) && std::env::var_os(&name).is_some()).then_some(name)
}
