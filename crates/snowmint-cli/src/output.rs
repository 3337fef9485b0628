//! Output for people: buffered standard output, colours, numbers and times.

use std::borrow::Cow;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::sync::OnceLock;

use jiff::tz::TimeZone;
use snowmint::Layout;
use snowmint::field::Field;
use snowmint::foreign::{Most, shown, shown_in_json};
use snowmint::utc::MS_PER_YEAR;
pub(crate) use snowmint_admin::format::{age, date, thousands};

use crate::error::Failure;

/// Size of the output buffer.
const BUFFER: usize = 64 * 1024;

/// Standard output of a command.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    pub(crate) paint: Paint,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            out: BufWriter::with_capacity(BUFFER, io::stdout().lock()),
            paint: Paint { on: wants_colour(&io::stdout()) },
        }
    }

    /// Writes a line. What others wrote into a store, or a node answered, reaches no terminal as a control
    /// character.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        for line in text.split('\n') {
            let clean =
                if self.paint.on { clean_line(line, Most::Output) } else { shown(line, Most::Output) };
            self.bytes(clean.as_bytes())?;
            self.bytes(b"\n")?;
        }
        Ok(())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|error| Failure::output(&error))
    }

    /// Writes a value as a line of JSON.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(value).map_err(Failure::runtime)?;
        self.bytes(shown_in_json(&line, Most::Output).as_bytes())?;
        self.bytes(b"\n")
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::output(&error))
    }
}

/// Returns a line with the colours that this program writes, and no other control characters.
pub(crate) fn clean_line(line: &str, most: Most) -> Cow<'_, str> {
    if !line.contains('\x1b') {
        return shown(line, most);
    }
    let mut clean = String::with_capacity(line.len());
    for (nth, part) in line.split('\x1b').enumerate() {
        let colour = part.split_once('m').map(|(code, _)| code).filter(|_| nth > 0);
        match colour.filter(|code| COLOURS.contains(&code.trim_start_matches('['))) {
            Some(_) => clean.push('\x1b'),
            None if nth > 0 => clean.push_str(&shown("\x1b", most)),
            None => {}
        }
        clean.push_str(&shown(part, most));
    }
    Cow::Owned(clean)
}

/// Whether output is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless `NO_COLOR` is set
    #[default]
    Auto,
    /// Always, also in a pipe
    Always,
    /// Never
    Never,
}

/// Returns the number of columns of the terminal, if standard output is one.
#[cfg(unix)]
pub(crate) fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    // Some terminals do not know their size.
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// Returns `None`: this system is not asked.
#[cfg(not(unix))]
pub(crate) fn columns() -> Option<usize> {
    None
}

static COLOUR: OnceLock<Colour> = OnceLock::new();

/// Sets whether output is coloured, once per process.
pub(crate) fn choose_colour(colour: Colour) {
    // A second call from the same command line has the same value.
    let _ = COLOUR.set(colour);
}

/// Returns whether output to a stream is coloured.
pub(crate) fn wants_colour(stream: &impl io::IsTerminal) -> bool {
    match COLOUR.get().copied().unwrap_or_default() {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => {
            stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    }
}

/// The codes of all colours, and of their end.
const COLOURS: [&str; 10] = ["0", "1", "2", "3", "31", "32", "33", "34", "35", "36"];
/// The sequence that ends a colour.
const END: &str = "\x1b[0m";

/// Colours text if the output is a terminal.
#[derive(Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// Colours the bits, the name or the value of a field.
    pub(crate) fn field(self, field: Field, text: &str) -> String {
        self.with(
            match field {
                Field::Timestamp => "36",
                Field::Datacenter => "35",
                Field::Worker => "32",
                Field::Generation => "34",
                Field::Sequence => "33",
            },
            text,
        )
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn alarm(self, text: &str) -> String {
        self.with("31", text)
    }

    /// Returns the escape sequences before and after the text of a field.
    pub(crate) fn field_marks(self, field: Field) -> (String, &'static str) {
        let marked = self.field(field, "");
        let end = if self.on { END } else { "" };
        (marked.strip_suffix(end).unwrap_or_default().to_owned(), end)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}{END}") } else { text.to_owned() }
    }

    #[cfg(test)]
    pub(crate) const fn forced(on: bool) -> Self {
        Self { on }
    }
}

/// Formats ids per second; layouts may make less than one.
pub(crate) fn rate(ids_per_second: impl Into<u128>) -> String {
    match ids_per_second.into() {
        0 => "less than 1".to_owned(),
        rate => thousands(rate),
    }
}

/// Returns the tenths of a year from `now_unix_ms` to the end of the layout; 0 after it.
pub(crate) fn tenths_of_years_left(layout: &Layout, now_unix_ms: u64) -> u64 {
    let tenths = layout.left_at(now_unix_ms).as_millis() / u128::from(MS_PER_YEAR / 10);
    u64::try_from(tenths).unwrap_or(u64::MAX)
}

/// Formats an instant as `2022-06-28T18:07:40.105+02:00 Europe/Berlin`, in the zone of `TZ` or of this
/// machine.
pub(crate) fn local(unix_ms: u64) -> String {
    let Ok(zone) = TimeZone::try_system() else {
        return "unknown: no time zone in TZ or in the system".to_owned();
    };
    let instant = i64::try_from(unix_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let Some(instant) = instant else {
        return "beyond the year 9999".to_owned();
    };
    let name = zone.iana_name().unwrap_or_default().to_owned();
    let text = instant.to_zoned_datetime(zone).strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string();
    format!("{text} {name}").trim_end().to_owned()
}
