//! How a command ends: 0 done, 1 the world failed, 2 what was asked cannot be.
//! Every error is one line on standard error that begins with `error: `.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

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
    use std::io::Write as _;
    let _ = writeln!(io::stderr(), "{line}");
}
