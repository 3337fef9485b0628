//! Log lines on standard error, for people or for machines.

use std::io;
use std::str::FromStr;

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::error::Failure;
use crate::human::wants_colour;

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

impl Format {
    /// Reports why the process ends in this format: a JSON log must contain nothing but JSON.
    pub(crate) fn report(self, failure: Failure) -> Failure {
        match self {
            Self::Text => failure,
            Self::Json => failure.logged_as_json(),
        }
    }
}

/// Returns the format that the command line or the environment asks for. It works without valid flags, to report that they are
/// invalid.
pub(crate) fn requested_format() -> Format {
    const FLAG: &str = "--log-format";
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if words.get(1).is_none_or(|command| command != "serve") {
        return Format::Text;
    }
    let named = words.iter().enumerate().rev().find_map(|(at, word)| match word.strip_prefix(FLAG)? {
        "" => words.get(at + 1).cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    });
    let named = named.or_else(|| std::env::var("SNOWMINT_LOG_FORMAT").ok());
    named.and_then(|named| Format::from_str(&named, false).ok()).unwrap_or(Format::Text)
}

/// Selects the log lines to write.
#[derive(Clone, Debug)]
pub(crate) struct Filter(Targets);

impl FromStr for Filter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected off, error, warn, info, debug or trace, also per module as in \
                               warn,snowmint_cluster=debug";
        // tracing would take any other word for the name of a module, and log everything of it.
        let known =
            |part: &str| part.contains('=') || (!part.is_empty() && part.parse::<LevelFilter>().is_ok());
        if text.split(',').all(|part| known(part.trim())) {
            text.parse().map(Self).map_err(|_| EXPECTED)
        } else {
            Err(EXPECTED)
        }
    }
}

/// The flags for logging.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) format: Format,
    pub(crate) filter: Filter,
}

/// Starts logging.
pub(crate) fn start(log: &Log) {
    let lines = layer().with_writer(io::stderr).with_ansi(wants_colour(&io::stderr()));
    let filtered = registry().with(log.filter.0.clone());
    match log.format {
        Format::Text => filtered.with(lines).init(),
        Format::Json => filtered.with(lines.json().flatten_event(true).with_span_list(false)).init(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_a_module_with_one() {
        for good in ["info", "off", "WARN", "warn,snowmint_cluster=debug"] {
            assert!(good.parse::<Filter>().is_ok(), "{good}");
        }
        for bad in ["", "loud", "info,loud", "a=loud", "info,"] {
            assert!(bad.parse::<Filter>().is_err(), "{bad}");
        }
    }
}
