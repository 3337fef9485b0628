//! What clap has to say, cut to this program's form: help as it is, an error as one line.

use std::io::{self, Write as _};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::Failure;

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
    let text = error.render().to_string();
    let said = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty());
    let mut line = String::new();
    for part in said {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        if part.starts_with("tip:") {
            line.push(';');
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(part);
    }
    line.push_str(&variable(error).map_or_else(
        || "; --help tells more".to_owned(),
        |name| format!("; it was set by the variable {name}"),
    ));
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
