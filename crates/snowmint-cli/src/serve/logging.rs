//! Log lines on standard error, for people or for machines. Their level can change while the service runs.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io;
use std::panic::{self, PanicHookInfo};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use snowmint::error::Snippet;
use snowmint::foreign::{Most, shown_in_json};
use snowmint_admin::node::LogControl;
use tracing::Metadata;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::{MakeWriter, layer};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{Handle, Layer};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, registry};

use super::config_file;
use crate::argv;
use crate::error::Failure;
use crate::foreign_flags::SERVE;
use crate::log_queue::{self, ACCESS, Lines, LogQueue};
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
}

/// Returns the format that the command line or the environment asks for. Works with invalid flags, in order to report them.
pub(crate) fn requested_format() -> Format {
    const FLAG: &str = "--log-format";
    let words = argv::words();
    // A global flag may precede the command, which has several names.
    if !words.iter().skip(1).take(3).any(|word| SERVE.contains(&word.as_str())) {
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

/// The flags for logging.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) format: Format,
    pub(crate) filter: Filter,
    pub(crate) access: AccessLog,
    /// The configuration file, if it sets the level.
    pub(crate) filter_file: Option<PathBuf>,
    /// The configuration file, if it sets the access log.
    pub(crate) access_file: Option<PathBuf>,
}

impl Log {
    fn targets(&self) -> Targets {
        let level = if self.access == AccessLog::On { LevelFilter::INFO } else { LevelFilter::OFF };
        self.filter.0.clone().with_target(ACCESS, level)
    }

    /// Rereads the settings that come from the configuration file.
    fn read_again(&self) -> Result<Self, String> {
        let mut log = self.clone();
        if let Some(path) = &self.filter_file {
            log.filter = config_file::log_of(path)?;
        }
        if let Some(path) = &self.access_file {
            log.access = config_file::access_log_of(path)?;
        }
        Ok(log)
    }
}

/// The running log. Clones change the same log.
#[derive(Clone, Debug)]
pub(crate) struct Logging {
    handle: Handle<Targets, Registry>,
    state: Arc<Mutex<State>>,
    queue: Arc<LogQueue>,
}

/// The settings of the running log.
#[derive(Debug)]
struct State {
    configured: Log,
    /// The level that an operator has set, until the next reload.
    set: Option<Filter>,
}

impl State {
    fn targets(&self) -> Targets {
        let mut log = self.configured.clone();
        if let Some(filter) = &self.set {
            log.filter = filter.clone();
        }
        log.targets()
    }
}

/// A writer of log lines without the control characters of the texts in them: a name from a client or a store could forge a
/// line, or give orders to a terminal.
struct CleanLines<M> {
    inner: M,
    format: Format,
}

/// The writer of one line.
struct CleanLine<W> {
    inner: W,
    format: Format,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for CleanLines<M> {
    type Writer = CleanLine<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        CleanLine { inner: self.inner.make_writer(), format: self.format }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Self::Writer {
        CleanLine { inner: self.inner.make_writer_for(about), format: self.format }
    }
}

impl<W: io::Write> io::Write for CleanLine<W> {
    /// Writes a line, which the formatter passes as a whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let body = text.strip_suffix('\n').unwrap_or(&text);
        let end = &text[body.len()..];
        let clean = match self.format {
            Format::Json => shown_in_json(body, Most::Line),
            Format::Text => clean_line(body, Most::Line),
        };
        self.inner.write_all(format!("{clean}{end}").as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Starts to log. From here on only the thread of the log writes to standard error, and panics are log lines.
pub(crate) fn start(log: &Log) -> Result<Logging, Failure> {
    let queue = log_queue::start().map_err(Failure::runtime)?;
    let writer = CleanLines { inner: Lines(Arc::clone(&queue)), format: log.format };
    let lines = layer().with_writer(writer).with_ansi(wants_colour(&io::stderr()));
    let (filter, handle) = Layer::new(log.targets());
    let filtered = registry().with(filter);
    match log.format {
        Format::Text => filtered.with(lines).init(),
        Format::Json => filtered.with(lines.json().flatten_event(true).with_span_list(false)).init(),
    }
    panic::set_hook(Box::new(log_panic));
    let state = State { configured: log.clone(), set: None };
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
    /// Rereads level and access log from the configuration file, and discards the level that an operator has set. An invalid file
    /// changes nothing.
    pub(crate) fn reload(&self) {
        let mut state = self.state();
        let changed = state.configured.read_again().and_then(|configured| {
            let next = State { configured, set: None };
            self.change(&state, &next)?;
            Ok(next)
        });
        match changed {
            Ok(next) => *state = next,
            Err(error) => tracing::warn!(error, "log level not changed; the previous one stays in use"),
        }
    }

    fn change(&self, before: &State, next: &State) -> Result<(), String> {
        let (before, after) = (before.targets(), next.targets());
        if before != after {
            // Logged under the old filter: the new one may suppress it.
            tracing::info!(level = %after, "log level changed");
            self.handle.reload(after).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
        let next = State { configured: state.configured.clone(), set: set.transpose()? };
        self.change(&state, &next)?;
        *state = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no text in a log line forges another line or reaches a terminal as an order. Method: a line with a name that tries.
    #[test]
    fn a_log_line_is_one_clean_line() {
        let hostile = "WARN unknown namespace a\nERROR forged \u{202e} \u{9b}2J\n";
        for (format, clean) in [
            (Format::Text, "WARN unknown namespace a\\nERROR forged \\u{202e} \\u{9b}2J\n"),
            (Format::Json, "WARN unknown namespace a\\u000aERROR forged \\u202e \\u009b2J\n"),
        ] {
            let mut line = CleanLine { inner: Vec::new(), format };
            io::Write::write_all(&mut line, hostile.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(line.inner).unwrap(), clean);
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
