//! Ids as rows of a table or as lines of JSON. For a known layout nothing is allocated and only the digits
//! change from row to row, so that long input is processed fast.

use snowmint::field::Field;
use snowmint::inspect::Inspection;
use snowmint::utc::Utc;
use snowmint::{Id, Layout, Parts};
use std::fmt::Write as _;

use super::percent;
use crate::output::{self, Paint};

/// Fields other than the timestamp, in the order of JSON.
const FIELDS: [Field; 4] = [Field::Datacenter, Field::Worker, Field::Generation, Field::Sequence];
const GAP: &[u8] = b"  ";
/// Characters of an instant before the year 10000.
const UTC: usize = 24;

/// Writes ids of one layout.
pub(super) struct Rows {
    layout: Layout,
    /// The width of the largest id.
    id_width: usize,
    columns: Vec<FieldColumn>,
    /// A bit mask: the highest bit of each field.
    field_begins: u64,
    /// `","layout":"…","timestamp":`.
    json_layout: String,
    instant: InstantText,
    paint: Paint,
}

/// A field other than the timestamp.
struct FieldColumn {
    field: Field,
    width: usize,
    /// The escape sequences of the terminal before and after the text of the field.
    colour: (String, &'static str),
    /// `,"worker":`.
    json_name: String,
}

impl Rows {
    pub(super) fn new(layout: Layout, paint: Paint) -> Self {
        let has = |field: &Field| layout.width(*field) > 0;
        let column = |field: Field| FieldColumn {
            field,
            width: digits(layout.max(field)).max(field.name().len()),
            colour: paint.field_marks(field),
            json_name: format!(",\"{}\":", field.name()),
        };
        Self {
            layout,
            id_width: digits((1 << layout.bits()) - 1).max(2),
            columns: FIELDS.into_iter().filter(has).map(column).collect(),
            field_begins: layout
                .fields()
                .fold(0, |bits, field| bits | 1 << (layout.shift(field) + layout.width(field) - 1)),
            json_layout: format!("\",\"layout\":\"{layout}\",\"timestamp\":"),
            instant: InstantText::default(),
            paint,
        }
    }

    /// Writes the names of the columns.
    pub(super) fn heading(&self, out: &mut Vec<u8>) {
        let mut line = format!("{:>1$}  {2:<UTC$}", "id", self.id_width, "utc");
        for column in &self.columns {
            let _ = write!(line, "  {:>1$}", column.field.name(), column.width);
        }
        out.extend_from_slice(self.paint.faint(&line).as_bytes());
        out.push(b'\n');
    }

    /// Writes an id as a row.
    pub(super) fn row(&mut self, id: Id, parts: &Parts, out: &mut Vec<u8>) {
        push_number(out, id.get(), self.id_width);
        out.extend_from_slice(GAP);
        self.instant.push(self.layout.unix_ms(parts.timestamp), out);
        for column in &self.columns {
            out.extend_from_slice(GAP);
            out.extend_from_slice(column.colour.0.as_bytes());
            push_number(out, parts.value(column.field), column.width);
            out.extend_from_slice(column.colour.1.as_bytes());
        }
        out.push(b'\n');
    }

    /// Writes an id as a line of JSON, as `Inspection` does.
    pub(super) fn json(&mut self, id: Id, parts: &Parts, out: &mut Vec<u8>) {
        let unix_ms = self.layout.unix_ms(parts.timestamp);
        out.extend_from_slice(b"{\"id\":\"");
        push_number(out, id.get(), 0);
        out.extend_from_slice(self.json_layout.as_bytes());
        push_number(out, parts.timestamp.0, 0);
        out.extend_from_slice(b",\"unix_ms\":");
        push_number(out, unix_ms, 0);
        out.extend_from_slice(b",\"utc\":\"");
        self.instant.push(unix_ms, out);
        out.push(b'"');
        for column in &self.columns {
            out.extend_from_slice(column.json_name.as_bytes());
            push_number(out, parts.value(column.field), 0);
        }
        out.extend_from_slice(b",\"binary\":\"");
        for bit in (0..u64::BITS).rev() {
            // A space before each field.
            if self.field_begins >> bit & 1 == 1 {
                out.push(b' ');
            }
            out.push(if id.get() >> bit & 1 == 1 { b'1' } else { b'0' });
        }
        out.extend_from_slice(b"\"}\n");
    }
}

/// The text of the last instant: consecutive ids mostly share everything but the milliseconds.
#[derive(Default)]
struct InstantText {
    second: Option<u64>,
    /// The text up to the point before the milliseconds.
    text: String,
}

impl InstantText {
    fn push(&mut self, unix_ms: u64, out: &mut Vec<u8>) {
        let second = unix_ms / 1000;
        if self.second != Some(second) {
            let text = Utc(second * 1000).to_string();
            text.strip_suffix("000Z").unwrap_or(&text).clone_into(&mut self.text);
            self.second = Some(second);
        }
        out.extend_from_slice(self.text.as_bytes());
        let ms = unix_ms % 1000;
        out.extend_from_slice(&[digit(ms / 100), digit(ms / 10), digit(ms), b'Z']);
    }
}

/// Returns the last digit of a number.
fn digit(number: u64) -> u8 {
    b'0' + u8::try_from(number % 10).unwrap_or_default()
}

/// Returns how many digits a number has.
fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| usize::try_from(log).unwrap_or_default() + 1)
}

/// Digits of the largest number.
const MOST: usize = 20;

/// Writes a number, with spaces before it up to a width.
fn push_number(out: &mut Vec<u8>, mut number: u64, width: usize) {
    let mut text = [b' '; MOST];
    let mut at = MOST;
    loop {
        at -= 1;
        text[at] = digit(number);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at.min(MOST - width.min(MOST))..]);
}

/// A row for an id whose layout was guessed.
pub(super) struct GuessedRow<'a>(pub(super) &'a Inspection);

/// Width of the column of ids: a ULID fits.
const TEXT: usize = 26;

impl GuessedRow<'_> {
    pub(super) fn heading(paint: Paint) -> String {
        paint.faint(&format!("{:>TEXT$}  {:<UTC$}  {:>8}  reading", "id", "utc", "likely"))
    }

    pub(super) fn line(&self, now_unix_ms: u64) -> String {
        let likeliest = self.0.likeliest();
        let id = match likeliest.decoded.values().into_iter().next() {
            Some((_, snowmint::inspect::Value::Text(id))) => id,
            _ => String::new(),
        };
        let (utc, age) = match likeliest.decoded.unix_ms() {
            Some(unix_ms) => (Utc(unix_ms).to_string(), format!(", {}", output::age(unix_ms, now_unix_ms))),
            None => ("-".to_owned(), String::new()),
        };
        let likely = likeliest.likelihood.map_or_else(|| "-".to_owned(), percent);
        let name = likeliest.decoded.name();
        let form = if likeliest.form == "decimal" || likeliest.form == name {
            String::new()
        } else {
            format!(", read as {}", likeliest.form)
        };
        let near_ties = self.0.near_ties();
        let or = if near_ties.is_empty() { String::new() } else { format!(" or {}", near_ties.join(", ")) };
        let notes = self.0.notes().iter().filter_map(|note| note.split_once(':'));
        let notes = notes.fold(String::new(), |notes, (note, _)| notes + "; " + note);
        format!("{id:>TEXT$}  {utc:<UTC$}  {likely:>8}  {name}{or}{form}{age}{notes}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowmint::inspect::Decoded;
    use snowmint::layout::PRESETS;

    /// Goal: the fast lines equal those of the library. Method: every named layout, ids with small, large and
    /// mixed fields.
    #[test]
    fn json_is_that_of_an_inspection() {
        for preset in PRESETS {
            let layout = preset.layout;
            let mut rows = Rows::new(layout, Paint::forced(false));
            let all = (1_u64 << layout.bits()) - 1;
            let mixed = [0x1565_a11f_6217_a000, 0x2aaa_5555_0f0f_1234, 0x7fff_0000_ffff_0001];
            let ids = mixed.into_iter().chain([0, 1, 7, all, all / 2, all / 3, all / 7, all / 1000]);
            for id in ids.map(|id| Id::new(id & all).unwrap()) {
                let parts = layout.split(id).unwrap();
                let mut line = Vec::new();
                rows.json(id, &parts, &mut line);
                let decoded = Decoded::by_layout(id, layout).unwrap();
                let wanted = serde_json::to_string(&Inspection::known(decoded, "decimal")).unwrap();
                assert_eq!(String::from_utf8(line).unwrap(), wanted + "\n", "{}", preset.name);
            }
        }
    }

    #[test]
    fn columns_are_aligned_and_colours_change_no_character() {
        for preset in PRESETS {
            let layout = preset.layout;
            let table = |on: bool| {
                let mut rows = Rows::new(layout, Paint::forced(on));
                let mut text = Vec::new();
                rows.heading(&mut text);
                for id in [0, 1000, (1 << layout.bits()) - 1] {
                    let id = Id::new(id).unwrap();
                    // Beyond the year 9999 an instant is wider.
                    let parts = layout.split(id).unwrap();
                    if layout.unix_ms(parts.timestamp) <= snowmint::utc::MAX_UNIX_MS {
                        rows.row(id, &parts, &mut text);
                    }
                }
                String::from_utf8(text).unwrap()
            };
            let plain = table(false);
            let widths: Vec<_> = plain.lines().map(str::len).collect();
            assert!(widths.len() > 2 && widths.iter().all(|width| *width == widths[0]), "{plain}");
            let mut stripped = table(true);
            assert!(stripped.contains('\x1b'));
            for code in ["0", "2", "32", "33", "34", "35", "36"] {
                stripped = stripped.replace(&format!("\x1b[{code}m"), "");
            }
            assert_eq!(stripped, plain);
        }
    }

    #[test]
    fn numbers_are_padded_and_never_cut() {
        for (number, width, wanted) in
            [(0, 0, "0"), (0, 3, "  0"), (1234, 3, "1234"), (u64::MAX, 20, "18446744073709551615")]
        {
            let mut out = Vec::new();
            push_number(&mut out, number, width);
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
        assert_eq!([0, 9, 10, u64::MAX].map(digits), [1, 1, 2, 20]);
    }
}
