//! How a command ends: 0 done, 1 the world failed, 2 what was asked cannot be.
//! Every error is one line on standard error that begins with `error: `.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Store, port, lease, disk: the same command may succeed another time.
    Runtime(String),
    /// Bad input or settings: the same command never succeeds.
    Usage(String),
    /// Bad input that was told where it was met.
    Told,
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
            ExitCode::from(1)
        }
        Err(Failure::Usage(what)) => {
            tell("error", &what);
            ExitCode::from(2)
        }
        Err(Failure::Told) => ExitCode::from(2),
    }
}

/// Writes one line to standard error; if that is closed there is nobody to tell.
pub(crate) fn tell(kind: &str, what: &str) {
    use std::io::Write as _;
    let line = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(io::stderr(), "{kind}: {line}");
}
