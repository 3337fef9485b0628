//! Log lines on standard error, for people or for machines. Their level can change while the service runs.

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{Handle, Layer};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, registry};

use crate::config;
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

/// The target of the lines about requests.
const ACCESS: &str = "snowmint::access";

/// Selects the log lines to write.
#[derive(Clone, Debug)]
pub(crate) struct Filter(Targets);

/// Whether each request is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessLog {
    Off,
    On,
}

impl From<bool> for AccessLog {
    fn from(is_on: bool) -> Self {
        if is_on { Self::On } else { Self::Off }
    }
}

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
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) format: Format,
    pub(crate) filter: Filter,
    pub(crate) access: AccessLog,
    /// The configuration file, if it decides the level.
    pub(crate) filter_file: Option<PathBuf>,
    /// The configuration file, if it decides about the access log.
    pub(crate) access_file: Option<PathBuf>,
}

impl Log {
    fn targets(&self) -> Targets {
        let level = if self.access == AccessLog::On { LevelFilter::INFO } else { LevelFilter::OFF };
        self.filter.0.clone().with_target(ACCESS, level)
    }

    /// Reads the settings again that the configuration file decides.
    fn read_again(&self) -> Result<Self, String> {
        let mut log = self.clone();
        if let Some(path) = &self.filter_file {
            log.filter = config::log_of(path)?;
        }
        if let Some(path) = &self.access_file {
            log.access = config::access_log_of(path)?;
        }
        Ok(log)
    }
}

/// The running log. Clones change the same log.
#[derive(Clone, Debug)]
pub(crate) struct Logging {
    handle: Handle<Targets, Registry>,
    log: Arc<Mutex<Log>>,
}

/// Starts logging.
pub(crate) fn start(log: &Log) -> Logging {
    let lines = layer().with_writer(io::stderr).with_ansi(wants_colour(&io::stderr()));
    let (filter, handle) = Layer::new(log.targets());
    let filtered = registry().with(filter);
    match log.format {
        Format::Text => filtered.with(lines).init(),
        Format::Json => filtered.with(lines.json().flatten_event(true).with_span_list(false)).init(),
    }
    Logging { handle, log: Arc::new(Mutex::new(log.clone())) }
}

impl Logging {
    /// Reads level and access log from the configuration file again. A file that cannot be used changes nothing.
    pub(crate) fn reload(&self) {
        // Each change is one assignment: a panic elsewhere leaves it whole.
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = log.read_again().and_then(|read| {
            let (before, after) = (log.targets(), read.targets());
            if before == after {
                return Ok(None);
            }
            // Logged under the old filter: under the new one it may not be written.
            tracing::info!(level = %after, "log level changed");
            self.handle.reload(after).map_err(|error| error.to_string())?;
            Ok(Some(read))
        });
        match changed {
            Ok(Some(changed)) => *log = changed,
            Ok(None) => {}
            Err(error) => tracing::warn!(error, "log level not changed; the previous one stays in use"),
        }
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
