//! The text form of a layout: `time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z`.
//! `Layout` parses and prints it; the name of a preset stands for that preset.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use super::error::TIMESTAMP_BITS;
use super::{FIELD_BITS, Layout, LayoutBuilder, LayoutError, PRESETS, TickText};
use crate::error::Snippet;
use crate::field::Field;
use crate::utc::{self, MAX_UNIX_MS, Utc, UtcError};

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for field in self.fields() {
            write!(f, "{field}:{}", self.width(field))?;
            if field == Field::Timestamp {
                write!(f, "@{}", TickText(self.tick_ms))?;
            }
            f.write_str(" ")?;
        }
        write!(f, "epoch:{}", Utc(self.epoch_unix_ms))
    }
}

/// Prints `time41@1ms.datacenter5.worker5.sequence12.1288834974657`.
pub(super) struct Fingerprint(pub(super) Layout);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for field in self.0.fields() {
            write!(f, "{field}{}", self.0.width(field))?;
            if field == Field::Timestamp {
                write!(f, "@{}", TickText(self.0.tick_ms))?;
            }
            f.write_str(".")?;
        }
        write!(f, "{}", self.0.epoch_unix_ms)
    }
}

impl FromStr for Layout {
    type Err = LayoutParseError;

    fn from_str(text: &str) -> Result<Self, LayoutParseError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(LayoutParseError::Empty);
        }
        if !text.contains(':') {
            let preset = PRESETS.iter().find(|preset| preset.name == text);
            return preset.map(|p| p.layout).ok_or(LayoutParseError::NoPreset { text: Snippet::of(text) });
        }
        let words = text.split(|c: char| c.is_ascii_whitespace() || c == ',').filter(|word| !word.is_empty());
        let builder = words.clone().try_fold(Layout::builder(), read_word)?;
        Ok(builder.build()?)
    }
}

fn read_word(builder: LayoutBuilder, word: &str) -> Result<LayoutBuilder, LayoutParseError> {
    let unknown = LayoutParseError::UnknownWord { text: Snippet::of(word) };
    let (name, value) = word.split_once(':').ok_or(unknown)?;
    if name == "epoch" {
        if builder.epoch_unix_ms.is_some() {
            return Err(LayoutParseError::EpochTwice);
        }
        return Ok(builder.epoch_unix_ms(utc::parse(value)?));
    }
    let field = Field::ALL.into_iter().find(|field| field.name() == name).ok_or(unknown)?;
    let (width, tick) = match (field, value.split_once('@')) {
        (Field::Timestamp, Some((width, tick))) => (width, Some(read_tick(tick)?)),
        _ => (value, None),
    };
    let bits = read_number(width).and_then(|bits| u32::try_from(bits).ok());
    let bits = bits.ok_or(LayoutParseError::Width { field, text: Snippet::of(width) })?;
    let builder = builder.field(field, bits);
    Ok(tick.map_or(builder, |tick| builder.tick(tick)))
}

fn read_tick(text: &str) -> Result<Duration, LayoutParseError> {
    let malformed = LayoutParseError::Tick { text: Snippet::of(text) };
    let (digits, ms_per_unit) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s').ok_or(malformed)?, 1000),
    };
    let ms = read_number(digits).and_then(|n| n.checked_mul(ms_per_unit)).ok_or(malformed)?;
    Ok(Duration::from_millis(ms))
}

/// Reads digits only; the standard library would also accept a sign.
fn read_number(digits: &str) -> Option<u64> {
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// Why a text is not a valid layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutParseError {
    /// The text is empty.
    Empty,
    /// The text is one word, but not the name of a preset.
    NoPreset {
        /// The word.
        text: Snippet,
    },
    /// A word is not a field or the epoch.
    UnknownWord {
        /// The word.
        text: Snippet,
    },
    /// A width is not a number.
    Width {
        /// The field.
        field: Field,
        /// The text instead of the number.
        text: Snippet,
    },
    /// A tick is not of the form `10ms` or `1s`.
    Tick {
        /// The input.
        text: Snippet,
    },
    /// The epoch appears twice.
    EpochTwice,
    /// The epoch is not an instant.
    Epoch(UtcError),
    /// The words are valid, but the layout is not.
    Layout(LayoutError),
}

impl From<LayoutError> for LayoutParseError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl From<UtcError> for LayoutParseError {
    fn from(error: UtcError) -> Self {
        Self::Epoch(error)
    }
}

impl fmt::Display for LayoutParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => {
                f.write_str("an empty text is not a layout: name a preset, or fields such as time:41@1ms")
            }
            Self::NoPreset { text } => {
                write!(f, "unknown layout {text}: ")?;
                if let Some(name) = nearest_preset(text.as_str()) {
                    return write!(f, "did you mean {name}?");
                }
                f.write_str("expected ")?;
                for (i, preset) in PRESETS.iter().enumerate() {
                    write!(f, "{}{}", if i == 0 { "" } else { ", " }, preset.name)?;
                }
                f.write_str(", or its fields, such as time:41@1ms worker:10 sequence:12 epoch:2026-01-01")
            }
            Self::UnknownWord { text } => write!(
                f,
                "{text} is not part of a layout: it has time:BITS@TICK, datacenter:BITS, worker:BITS, \
                 generation:BITS, sequence:BITS and epoch:INSTANT"
            ),
            Self::Width { field, text } => {
                let widest = if *field == Field::Timestamp { TIMESTAMP_BITS } else { FIELD_BITS };
                write!(f, "{text} is not a width for {field}: give 1 to {widest} bits, such as {field}:10")
            }
            Self::Tick { text } => {
                write!(f, "{text} is not a tick: write it like 1ms, 10ms or 1s, at most {MAX_UNIX_MS}ms")
            }
            Self::EpochTwice => f.write_str("duplicate epoch: it may appear once"),
            Self::Epoch(error) => write!(f, "the epoch: {error}"),
            Self::Layout(error) => write!(f, "{error}"),
        }
    }
}

/// Returns the preset whose name differs from a text by at most two letters, and by less than half of them.
fn nearest_preset(text: &str) -> Option<&'static str> {
    let names = PRESETS.iter().map(|preset| (distance(text.as_bytes(), preset.name.as_bytes()), preset.name));
    let near = names.filter(|(typos, name)| *typos <= 2 && typos * 2 < name.len());
    near.min_by_key(|(typos, _)| *typos).map(|(_, name)| name)
}

/// Returns the number of letters to insert, remove or replace in one name to get the other (Levenshtein).
fn distance(one: &[u8], other: &[u8]) -> usize {
    /// Longer texts are no names.
    const LONGEST: usize = 32;
    if one.len() > LONGEST || other.len() > LONGEST {
        return usize::MAX;
    }
    let mut row = [0; LONGEST + 1];
    for (at, cost) in row.iter_mut().enumerate() {
        *cost = at;
    }
    for (at, letter) in one.iter().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], at + 1);
        for (to, wanted) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != wanted);
            diagonal = row[to + 1];
            row[to + 1] = replaced.min(diagonal + 1).min(row[to] + 1);
        }
    }
    row[other.len()]
}

// The text contains that of the inner error, which therefore is no source.
impl core::error::Error for LayoutParseError {}
