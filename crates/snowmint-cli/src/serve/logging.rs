//! Log lines on standard error, for people or for machines. Their level can change while the service runs.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io;
use std::panic::{self, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use snowmint::error::Snippet;
use snowmint::foreign::{Most, shown_in_json};
use snowmint_admin::node::LogControl;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{Handle, Layer};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, registry};

use crate::argv;
use crate::error::Failure;
use crate::log_queue::{self, ACCESS, CleanLine, Lines, LogQueue};
use crate::output::{clean_line, wants_colour};

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

impl Format {
    /// Reports in this format why the process ends: a JSON log must contain only JSON.
    pub(crate) fn report(self, failure: Failure) -> Failure {
        match self {
            Self::Text => failure,
            Self::Json => failure.logged_as_json(),
        }
    }

    /// Returns the way to write a line without the control characters of the texts in it: a name from a
    /// client or a store could forge a line, or give orders to a terminal.
    fn clean(self) -> CleanLine {
        match self {
            Self::Text => |line| clean_line(line, Most::Line),
            Self::Json => |line| shown_in_json(line, Most::Line),
        }
    }
}

/// Returns the format that the command line or the environment asks for. Works with invalid flags, in order
/// to report them.
pub(crate) fn requested_format() -> Format {
    const FLAG: &str = "--log-format";
    let words = argv::words();
    // A global flag may precede the command, which has several names.
    if !words.iter().skip(1).take(3).any(|word| argv::SERVE.contains(&word.as_str())) {
        return Format::Text;
    }
    let named = words.iter().enumerate().rev().find_map(|(at, word)| match word.strip_prefix(FLAG)? {
        "" => words.get(at + 1).cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    });
    let named = named.or_else(|| std::env::var("SNOWMINT_LOG_FORMAT").ok());
    named.and_then(|named| Format::from_str(&named, false).ok()).unwrap_or(Format::Text)
}

/// Maximum bytes of a level that is set while the service runs.
const MAX_LEVEL: usize = 1024;

/// Selects the log lines to write.
#[derive(Clone, Debug)]
pub(crate) struct Filter(Targets);

/// Whether to log each request.
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
        // tracing would treat any other word as a module name, and log everything from it.
        let known =
            |part: &str| part.contains('=') || (!part.is_empty() && part.parse::<LevelFilter>().is_ok());
        if text.split(',').all(|part| known(part.trim())) {
            text.parse().map(Self).map_err(|_| EXPECTED)
        } else {
            Err(EXPECTED)
        }
    }
}

/// A configuration file that sets values, and how to read one of them again.
#[derive(Clone, Debug)]
pub(crate) struct SettingFile {
    pub(crate) path: PathBuf,
    pub(crate) read: fn(&Path, &str) -> Result<Option<String>, String>,
}

impl SettingFile {
    fn read(&self, key: &str) -> Result<Option<String>, String> {
        (self.read)(&self.path, key)
    }
}

/// The flags for logging.
#[derive(Clone, Debug)]
pub(crate) struct LogSettings {
    pub(crate) format: Format,
    pub(crate) filter: Filter,
    pub(crate) access: AccessLog,
    /// The configuration file, if it sets the level.
    pub(crate) filter_file: Option<SettingFile>,
    /// The configuration file, if it sets the access log.
    pub(crate) access_file: Option<SettingFile>,
}

impl LogSettings {
    fn targets(&self) -> Targets {
        let level = if self.access == AccessLog::On { LevelFilter::INFO } else { LevelFilter::OFF };
        self.filter.0.clone().with_target(ACCESS, level)
    }

    /// Rereads the settings that come from the configuration file.
    fn read_again(&self) -> Result<Self, String> {
        let mut log = self.clone();
        if let Some(file) = &self.filter_file {
            let level = file.read("log")?;
            log.filter = level.as_deref().unwrap_or("info").parse()?;
        }
        if let Some(file) = &self.access_file {
            log.access = AccessLog::from(file.read("access_log")?.as_deref() == Some("true"));
        }
        Ok(log)
    }
}

/// The running log. Clones change the same log.
#[derive(Clone, Debug)]
pub(crate) struct Logging {
    handle: Handle<Targets, Registry>,
    state: Arc<Mutex<LevelState>>,
    queue: Arc<LogQueue>,
}

/// The settings of the running log.
#[derive(Debug)]
struct LevelState {
    configured: LogSettings,
    /// The level that an operator has set, until the next reload.
    set: Option<Filter>,
}

impl LevelState {
    fn targets(&self) -> Targets {
        let mut log = self.configured.clone();
        if let Some(filter) = &self.set {
            log.filter = filter.clone();
        }
        log.targets()
    }
}

/// Starts to log. From here on only the thread of the log writes to standard error, and panics are log lines.
pub(crate) fn start(log: &LogSettings) -> Result<Logging, Failure> {
    let queue = log_queue::start().map_err(Failure::runtime)?;
    let writer = Lines { queue: Arc::clone(&queue), clean: log.format.clean() };
    let lines = layer().with_writer(writer).with_ansi(wants_colour(&io::stderr()));
    let (filter, handle) = Layer::new(log.targets());
    let filtered = registry().with(filter);
    match log.format {
        Format::Text => filtered.with(lines).init(),
        Format::Json => filtered.with(lines.json().flatten_event(true).with_span_list(false)).init(),
    }
    panic::set_hook(Box::new(log_panic));
    let state = LevelState { configured: log.clone(), set: None };
    Ok(Logging { handle, state: Arc::new(Mutex::new(state)), queue })
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let why = panic.payload_as_str().unwrap_or("no reason");
    let location = panic.location().map(ToString::to_string);
    // Captured if the environment asks for it.
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    let thread = std::thread::current();
    tracing::error!(location, thread = thread.name(), backtrace, "a thread panicked: {why}");
}

impl Logging {
    /// Rereads level and access log from the configuration file, and discards the level that an operator has
    /// set. An invalid file changes nothing.
    pub(crate) fn reload(&self) {
        let mut state = self.state();
        let changed = state.configured.read_again().and_then(|configured| {
            let next = LevelState { configured, set: None };
            self.change(&state, &next)?;
            Ok(next)
        });
        match changed {
            Ok(next) => *state = next,
            Err(error) => tracing::warn!(error, "log level not changed; the previous one stays in use"),
        }
    }

    fn change(&self, before: &LevelState, next: &LevelState) -> Result<(), String> {
        let (before, after) = (before.targets(), next.targets());
        if before != after {
            // Logged under the old filter: the new one may suppress it.
            tracing::info!(level = %after, "log level changed");
            self.handle.reload(after).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, LevelState> {
        // Each change is one assignment, so a panic cannot leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogControl for Logging {
    fn lines_dropped(&self) -> u64 {
        self.queue.dropped()
    }

    fn level(&self) -> String {
        let state = self.state();
        state.set.as_ref().unwrap_or(&state.configured.filter).0.to_string()
    }

    fn configured(&self) -> String {
        self.state().configured.filter.0.to_string()
    }

    fn set(&self, level: Option<&str>) -> Result<(), String> {
        let set = level.map(|level| match level.parse() {
            Ok(filter) if level.len() <= MAX_LEVEL => Ok(filter),
            Ok(_) => Err(format!("{} bytes: expected at most {MAX_LEVEL}", level.len())),
            Err(why) => Err(format!("invalid log level {}: {why}", Snippet::of(level))),
        });
        let mut state = self.state();
        let next = LevelState { configured: state.configured.clone(), set: set.transpose()? };
        self.change(&state, &next)?;
        *state = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::fmt::MakeWriter as _;

    use super::*;

    /// Goal: no text in a log line forges another line or reaches a terminal as an order. Method: a line with
    /// a name that tries.
    #[test]
    fn a_log_line_is_one_clean_line() {
        let hostile = "WARN unknown namespace a\nERROR forged \u{202e} \u{9b}2J\n";
        for (format, clean) in [
            (Format::Text, "WARN unknown namespace a\\nERROR forged \\u{202e} \\u{9b}2J\n"),
            (Format::Json, "WARN unknown namespace a\\u000aERROR forged \\u202e \\u009b2J\n"),
        ] {
            let queue = Arc::new(LogQueue::default());
            let lines = Lines { queue: Arc::clone(&queue), clean: format.clean() };
            io::Write::write_all(&mut lines.make_writer(), hostile.as_bytes()).unwrap();
            assert_eq!(queue.waiting(), clean);
        }
    }

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
