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

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A line for people
    Text,
    /// A JSON object a line
    Json,
}

impl Format {
    /// Tells why the process ends as its log would: where that is JSON, nothing else stands between its lines.
    pub(crate) fn tell(self, failure: Failure) -> Failure {
        match self {
            Self::Text => failure,
            Self::Json => failure.told_in_json(),
        }
    }
}

/// The format that the command line or the environment of `serve` names, before they are known to be right.
pub(crate) fn asked_for() -> Format {
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

/// Which lines are written.
#[derive(Clone, Debug)]
pub(crate) struct Filter(Targets);

impl FromStr for Filter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const REFUSED: &str = "give off, error, warn, info, debug or trace, or apart for a module as in \
                               warn,snowmint_cluster=debug";
        // Alone, any other word would be taken for a module's name and everything of it be logged.
        let known =
            |part: &str| part.contains('=') || (!part.is_empty() && part.parse::<LevelFilter>().is_ok());
        if text.split(',').all(|part| known(part.trim())) {
            text.parse().map(Self).map_err(|_| REFUSED)
        } else {
            Err(REFUSED)
        }
    }
}

/// What the flags say of logging.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) format: Format,
    pub(crate) filter: Filter,
}

/// Logs from here on.
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
    fn only_levels_and_modules_with_one_are_filters() {
        for good in ["info", "off", "WARN", "warn,snowmint_cluster=debug"] {
            assert!(good.parse::<Filter>().is_ok(), "{good}");
        }
        for bad in ["", "loud", "info,loud", "a=loud", "info,"] {
            assert!(bad.parse::<Filter>().is_err(), "{bad}");
        }
    }
}
