//! The text form of a namespace's ids: `ORD-{date}-{number:6}` produces `ORD-20261121-000042`.
//!
//! A template is checked when it is parsed, so writing an id cannot fail. To add a field of the number, add a
//! variant of [`Part`], parse it in `Part::field`, write it in `Display` and in `TextForm::write`, and tell
//! `can_meet` which characters it has. A field of the date is a row of `DATE_PARTS`.
//!
//! `can_meet` decides whether two text forms can write two different ids as the same text. It compares what
//! all texts of a form have in common. So "no" is a proof, and "yes" may be a false alarm.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use snowmint::Id;
use snowmint::codec::{Digits, DigitsError};
use snowmint::error::Snippet;
use snowmint::utc::Utc;

use crate::segment::Reset;

const MS_PER_DAY: u64 = 86_400_000;
/// The longest template in bytes, without its alphabet.
const MAX_TEMPLATE: usize = 64;
/// The length of the longest text of an id with 96 or 128 bits, that of a UUID.
pub(super) const LONGEST_ID: usize = 36;
/// The largest width of a number.
const MAX_WIDTH: u8 = 32;

/// The form in which the ids of a namespace are written.
///
/// | field | meaning |
/// |---|---|
/// | `{number}`, `{number:6}` | the number in decimal, padded with zeros to 6 digits |
/// | `{hex}`, `{base32}`, `{base36}`, `{base58}`, `{base62}`, optionally with a width | the number in those [`Digits`] |
/// | `{alphabet=CHARS}`, `{alphabet=CHARS:11}` | the number in an alphabet of your own: 2 to 94 characters, except `{`, `}`, `:`, quotes and `\\` |
/// | `{id}` | an id of 96 or 128 bits, in the text of its scheme |
/// | `{date}` | the day in the time zone of the namespace as `20261121`; `{yyyy}`, `{mm}`, `{dd}` are its parts |
///
/// Everything else is literal text. A template has exactly one number or `{id}`, so that a text can be
/// parsed. A number with more digits than its width is written in full.
///
/// A shuffled alphabet hides the number from people who see a text. It does not hide it from people who can
/// call the service, or who know the numbers of several texts: see [`Alphabet`](snowmint::codec::Alphabet).
///
/// # Examples
///
/// ```
/// use snowmint_cluster::namespace::TextForm;
/// let form: TextForm = "ORD-{date}-{number:6}".parse()?;
/// let mut text = Vec::new();
/// form.write_number(42, 1_795_219_200_000, &mut text);
/// assert_eq!(text, b"ORD-20261121-000042");
/// assert_eq!(form.read_number("ORD-20261121-000042"), Some(42));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TextForm {
    parts: Box<[Part]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    Literal(Box<str>),
    Number { digits: Digits, width: u8 },
    Id,
    Date(DatePart),
}

/// A field of a date, and its digits in `yyyymmdd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct DatePart {
    field: &'static str,
    from: usize,
    to: usize,
}

const DATE_PARTS: [DatePart; 4] = [
    DatePart { field: "date", from: 0, to: 8 },
    DatePart { field: "yyyy", from: 0, to: 4 },
    DatePart { field: "mm", from: 4, to: 6 },
    DatePart { field: "dd", from: 6, to: 8 },
];
const YEAR: Range<usize> = 0..4;
const MONTH: Range<usize> = 4..6;
const DAY: Range<usize> = 6..8;

/// An invalid text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextFormError {
    /// It is empty or too long.
    #[error("invalid text form of {len} characters: expected 1 to {MAX_TEMPLATE}, not counting an alphabet")]
    Length {
        /// Its length in bytes, without its alphabet.
        len: usize,
    },
    /// It has a character that may need an escape somewhere.
    #[error(
        "invalid character {character:?} in a text form: expected visible ASCII characters, except quotes and `\\`"
    )]
    Character {
        /// The character.
        character: char,
    },
    /// It has a brace without its partner.
    #[error("unmatched brace at {at} in a text form: write a field as {{number}} or {{number:6}}")]
    Brace {
        /// The text from the brace on, up to the next closing brace.
        at: Snippet,
    },
    /// It has an unknown field.
    #[error(
        "unknown field {field} in a text form: expected {{number}}, {{hex}}, {{base32}}, {{base36}}, {{base58}}, {{base62}}, \
         {{alphabet=CHARS}} (each also with a width up to {MAX_WIDTH}, as in {{number:6}}), {{id}}, {{date}}, {{yyyy}}, {{mm}} \
         or {{dd}}"
    )]
    Field {
        /// The field.
        field: Snippet,
    },
    /// The alphabet is invalid.
    #[error("invalid alphabet in a text form: {why}")]
    Alphabet {
        /// The reason.
        why: DigitsError,
    },
    /// The alphabet has a character with a meaning in templates.
    #[error("invalid alphabet in a text form: expected characters without {{, }} and :")]
    AlphabetCharacter,
    /// It has no field that identifies an id, or several.
    #[error(
        "invalid text form with {found} fields that identify an id: expected exactly one of {{number}}, {{hex}}, {{base32}}, \
         {{base36}}, {{base58}}, {{base62}}, {{alphabet=CHARS}} and {{id}}"
    )]
    Numbers {
        /// The number of such fields.
        found: usize,
    },
}

/// A day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Day {
    /// `yyyymmdd`, with the last four digits of the year.
    digits: [u8; 8],
}

impl Day {
    /// Returns the day of an instant.
    pub fn of(unix_ms: u64) -> Self {
        let text = Utc(unix_ms).to_string();
        let mut digits = [b'0'; 8];
        // From the end: a year after 9999 loses its first digits.
        let date = text.split('T').next().unwrap_or_default();
        for (to, from) in digits.iter_mut().rev().zip(date.bytes().rev().filter(u8::is_ascii_digit)) {
            *to = from;
        }
        Self { digits }
    }

    /// Returns the day as `20261121`.
    pub fn as_str(&self) -> &str {
        // Always ASCII digits.
        std::str::from_utf8(&self.digits).unwrap_or_default()
    }

    fn part(&self, part: DatePart) -> &[u8] {
        &self.digits[part.from..part.to]
    }
}

impl TextForm {
    /// The length of the longest text in bytes: of a number in base 2, with 63 digits, among dates, which are
    /// two characters longer than their field.
    pub const MAX_LEN: usize = MAX_TEMPLATE + 2 * (MAX_TEMPLATE / "{date}".len()) + 64;

    /// Returns the length of the longest text of this form in bytes.
    pub fn longest(&self) -> usize {
        let longest_of = |part: &Part| match part {
            Part::Number { digits, width } => digits.encode(Id::MAX).len().max(usize::from(*width)),
            Part::Id => LONGEST_ID,
            part => part.len(),
        };
        self.parts.iter().map(longest_of).sum()
    }

    /// Appends the text of a number of at most 63 bits that was made at an instant: unix milliseconds, or
    /// those of [`TimeZone::local_ms`](super::TimeZone::local_ms).
    pub fn write_number(&self, number: u64, unix_ms: u64, out: &mut Vec<u8>) {
        self.write(unix_ms, out, |part, out| match part {
            Part::Number { digits, width } => write_number(digits, number, *width, out),
            _ => write_number(&Digits::Decimal, number, 0, out),
        });
    }

    /// Appends the text of an id that was made at an instant, as for [`write_number`](Self::write_number),
    /// and has a text of its own.
    pub fn write_id(&self, id: impl fmt::Display, unix_ms: u64, out: &mut Vec<u8>) {
        self.write(unix_ms, out, |_, out| out.extend_from_slice(id.to_string().as_bytes()));
    }

    fn write(&self, unix_ms: u64, out: &mut Vec<u8>, mut id: impl FnMut(&Part, &mut Vec<u8>)) {
        let mut day = None;
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Part::Date(part) => {
                    let day: &Day = day.get_or_insert_with(|| Day::of(unix_ms / MS_PER_DAY * MS_PER_DAY));
                    out.extend_from_slice(day.part(*part));
                }
                part => id(part, out),
            }
        }
    }

    /// Parses the number in a text; `None` if the text does not have this form.
    pub fn read_number(&self, text: &str) -> Option<u64> {
        let found = self.find(text)?;
        let (digits, width) = self.number()?;
        (found.len() >= usize::from(width)).then(|| read_number(digits, found)).flatten()
    }

    /// Returns the part of a text that is an id of its scheme; `None` if the text does not have this form.
    pub fn read_id<'t>(&self, text: &'t str) -> Option<&'t str> {
        if self.is_of_numbers() { None } else { self.find(text) }
    }

    /// Returns the digits of its numbers; `None` if its ids are not numbers.
    pub fn digits(&self) -> Option<&Digits> {
        self.number().map(|(digits, _)| digits)
    }

    /// Returns the template without the characters of an alphabet, which clients must not learn.
    pub fn template(&self) -> String {
        let full = self.to_string();
        match self.digits() {
            Some(digits @ Digits::Alphabet(_)) => full.replacen(&format!("{{{digits}"), "{alphabet", 1),
            _ => full,
        }
    }

    fn number(&self) -> Option<(&Digits, u8)> {
        self.parts.iter().find_map(|part| match part {
            Part::Number { digits, width } => Some((digits, *width)),
            _ => None,
        })
    }

    /// Returns the number or the id within a text; the other parts have fixed lengths.
    fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        if text.len() > Self::MAX_LEN {
            return None;
        }
        let is_id = |part: &Part| matches!(part, Part::Number { .. } | Part::Id);
        let at = self.parts.iter().position(is_id)?;
        let mut rest = text;
        for part in &self.parts[..at] {
            let (head, tail) = rest.split_at_checked(part.len())?;
            rest = part.fits(head).then_some(tail)?;
        }
        for part in self.parts[at + 1..].iter().rev() {
            let (head, tail) = rest.split_at_checked(rest.len().checked_sub(part.len())?)?;
            rest = part.fits(tail).then_some(head)?;
        }
        Some(rest)
    }

    /// Returns whether texts of different periods differ.
    pub(super) fn shows_period(&self, reset: Reset) -> bool {
        let has = |digits: &Range<usize>| {
            self.parts.iter().any(|part| matches!(part, Part::Date(part) if part.has(digits)))
        };
        match reset {
            Reset::Yearly => has(&YEAR),
            Reset::Monthly => has(&YEAR) && has(&MONTH),
            Reset::Daily => has(&YEAR) && has(&MONTH) && has(&DAY),
        }
    }

    /// Returns whether the form shows a part of the date.
    pub(super) fn has_date(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Date(_)))
    }

    /// Returns whether the form writes numbers, rather than ids with their own text.
    pub(super) fn is_of_numbers(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Number { .. }))
    }
}

impl Part {
    /// Returns the length of the part; 0 for a number or an id, which have no fixed length.
    fn len(&self) -> usize {
        match self {
            Self::Literal(text) => text.len(),
            Self::Date(part) => part.to - part.from,
            Self::Number { .. } | Self::Id => 0,
        }
    }

    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => **literal == *text,
            Self::Date(part) => text.bytes().all(|b| b.is_ascii_digit()) && part.is_possible(text),
            _ => text.bytes().all(|b| b.is_ascii_digit()),
        }
    }
}

impl DatePart {
    /// Returns whether digits name a month from 1 to 12 and a day from 1 to 31, as far as they name them.
    fn is_possible(self, digits: &str) -> bool {
        [(MONTH, 12), (DAY, 31)].into_iter().all(|(place, most)| {
            let number = || digits.get(place.start - self.from..place.end - self.from)?.parse().ok();
            !self.has(&place) || number().is_some_and(|number: u8| (1..=most).contains(&number))
        })
    }

    /// Returns whether it has these digits of `yyyymmdd`.
    const fn has(self, digits: &Range<usize>) -> bool {
        self.from <= digits.start && digits.end <= self.to
    }
}

/// Writes a number, padded with zeros up to a width.
fn write_number(digits: &Digits, number: u64, width: u8, out: &mut Vec<u8>) {
    // Every counter and every layout ends at 2^63, as ids do.
    let text = digits.encode(Id::new(number).unwrap_or(Id::MAX));
    let (zero, text) = (digits.zero(), text.as_bytes());
    // Keeps the last digit, even if the number is 0.
    let first = text.iter().position(|digit| *digit != zero).unwrap_or(text.len() - 1);
    let text = &text[first..];
    out.extend(std::iter::repeat_n(zero, usize::from(width).saturating_sub(text.len())));
    out.extend_from_slice(text);
}

/// Reads a number, however many zeros it is padded with.
fn read_number(digits: &Digits, text: &str) -> Option<u64> {
    let significant = text.trim_start_matches(char::from(digits.zero()));
    if significant.is_empty() {
        return (!text.is_empty()).then_some(0);
    }
    let id = match digits {
        // Pads to all 16 digits, because the digits of an id have no `0x`.
        Digits::Hex => digits.decode(&format!("{significant:0>16}")),
        digits => digits.decode(significant),
    };
    Some(id.ok()?.get())
}

/// The prefix of a field with an alphabet.
const ALPHABET: &str = "{alphabet=";

impl Part {
    /// Parses a field with its braces.
    fn field(field: &str) -> Result<Self, TextFormError> {
        let unknown = || TextFormError::Field { field: Snippet::of(field) };
        let unmatched = TextFormError::Brace { at: Snippet::of(field) };
        let name = field.strip_prefix('{').and_then(|it| it.strip_suffix('}')).ok_or(unmatched)?;
        let (name, width) = name.split_once(':').map_or((name, None), |(name, width)| (name, Some(width)));
        let in_range = |width: &u8| (1..=MAX_WIDTH).contains(width);
        let width = match width {
            None => 0,
            Some(width) => width.parse().ok().filter(in_range).ok_or_else(unknown)?,
        };
        if let Some(part) = DATE_PARTS.into_iter().find(|part| part.field == name && width == 0) {
            return Ok(Self::Date(part));
        }
        match (name, width) {
            ("id", 0) => Ok(Self::Id),
            ("number", _) => Ok(Self::Number { digits: Digits::Decimal, width }),
            // A decimal number is called `number` here.
            ("decimal" | "dec", _) => Err(unknown()),
            (digits, _) => match digits.parse() {
                Ok(Digits::Alphabet(_)) if digits.contains('{') => Err(TextFormError::AlphabetCharacter),
                Ok(digits) => Ok(Self::Number { digits, width }),
                Err(why @ DigitsError::Alphabet(_)) => Err(TextFormError::Alphabet { why }),
                Err(_) => Err(unknown()),
            },
        }
    }
}

/// The length of a template without its alphabet, which may be long.
fn len_without_alphabet(template: &str) -> usize {
    let alphabet = template.split_once(ALPHABET).and_then(|(_, rest)| rest.find([':', '}'])).unwrap_or(0);
    template.len() - alphabet
}

impl FromStr for TextForm {
    type Err = TextFormError;

    fn from_str(template: &str) -> Result<Self, TextFormError> {
        let len = len_without_alphabet(template);
        if !(1..=MAX_TEMPLATE).contains(&len) {
            return Err(TextFormError::Length { len });
        }
        let refused = |c: char| !c.is_ascii_graphic() || matches!(c, '"' | '\'' | '\\');
        if let Some(character) = template.chars().find(|c| refused(*c)) {
            return Err(TextFormError::Character { character });
        }
        let mut parts = Vec::new();
        let mut rest = template;
        while !rest.is_empty() {
            let (literal, field) = rest.split_at(rest.find(['{', '}']).unwrap_or(rest.len()));
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.into()));
            }
            if field.is_empty() {
                break;
            }
            let end = field.find('}').map_or(field.len(), |at| at + 1);
            let (field, after) = field.split_at(end);
            parts.push(Part::field(field)?);
            rest = after;
        }
        let found = parts.iter().filter(|part| matches!(part, Part::Number { .. } | Part::Id)).count();
        if found != 1 {
            return Err(TextFormError::Numbers { found });
        }
        Ok(Self { parts: parts.into() })
    }
}

impl fmt::Display for TextForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Literal(text) => f.write_str(text)?,
                Part::Number { digits, width } => {
                    match digits {
                        Digits::Decimal => f.write_str("{number")?,
                        digits => write!(f, "{{{digits}")?,
                    }
                    if *width > 0 {
                        write!(f, ":{width}")?;
                    }
                    f.write_str("}")?;
                }
                Part::Id => f.write_str("{id}")?,
                Part::Date(part) => write!(f, "{{{}}}", part.field)?,
            }
        }
        Ok(())
    }
}

/// The characters that may be at one position of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextPosition {
    Literal(u8),
    /// A digit of a date, by its index in `yyyymmdd`.
    Date(usize),
    /// A digit of a number, or a character of an id with a text of its own.
    Body(Characters),
}

/// A set of ASCII characters, one bit for each.
type Characters = u128;

/// A form, position by position: the number or id is between `before` and `after`.
struct Shape {
    before: Vec<TextPosition>,
    body: Option<Digits>,
    width: usize,
    after: Vec<TextPosition>,
}

/// Returns whether two forms of one scheme can write two different ids as the same text.
///
/// `None` is the plain form: decimal numbers, or ids in the text of their scheme. With [`Periods::Many`],
/// equal numbers of two periods are two ids.
pub(in crate::namespace) fn can_meet(
    one: Option<&TextForm>,
    other: Option<&TextForm>,
    periods: Periods,
    plain: Plain,
) -> bool {
    if one == other {
        // A text of one form is parsed as one number, and shows its period.
        return false;
    }
    let (one, other) = (Shape::of(one, plain), Shape::of(other, plain));
    !(one.is_read_alike(&other, periods) || one.is_apart(&other) || other.is_apart(&one))
}

/// Whether the numbers of a namespace restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::namespace) enum Periods {
    One,
    Many,
}

/// The ids of a namespace without a text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::namespace) enum Plain {
    Number,
    Id,
}

impl Shape {
    fn of(form: Option<&TextForm>, plain: Plain) -> Self {
        let body = if plain == Plain::Number { Some(Digits::Decimal) } else { None };
        let mut shape = Self { before: Vec::new(), body, width: 0, after: Vec::new() };
        let Some(form) = form else { return shape };
        let mut is_before = true;
        for part in &form.parts {
            let mut positions = Vec::new();
            match part {
                Part::Literal(text) => positions.extend(text.bytes().map(TextPosition::Literal)),
                Part::Date(part) => positions.extend((part.from..part.to).map(TextPosition::Date)),
                Part::Number { digits, width } => {
                    (shape.body, shape.width, is_before) = (Some(digits.clone()), usize::from(*width), false);
                }
                Part::Id => (shape.body, is_before) = (None, false),
            }
            if is_before { shape.before.extend(positions) } else { shape.after.extend(positions) }
        }
        shape
    }

    /// Returns whether both forms parse a text in the same way: the number or id at the same position, and
    /// also the date if periods are part of an id.
    fn is_read_alike(&self, other: &Self, periods: Periods) -> bool {
        let dates = |positions: &[TextPosition]| -> Vec<_> {
            let date = |position: &TextPosition| {
                if let TextPosition::Date(digit) = position { Some(*digit) } else { None }
            };
            positions.iter().map(date).collect()
        };
        let same_dates =
            || dates(&self.before) == dates(&other.before) && dates(&self.after) == dates(&other.after);
        self.body == other.body
            && self.before.len() == other.before.len()
            && self.after.len() == other.after.len()
            && (periods == Periods::One || same_dates())
    }

    /// Returns whether no text can have both forms: their lengths differ, or their characters at a position
    /// from either end, or one has a character that the other never has.
    fn is_apart(&self, other: &Self) -> bool {
        let ((_, longest), (shortest, _)) = (self.lengths(), other.lengths());
        longest < shortest
            || self.forwards().zip(other.forwards()).any(|(a, b)| !a.meets(b))
            || self.backwards().zip(other.backwards()).any(|(a, b)| !a.meets(b))
            || self.fixed().any(|position| !other.all().any(|it| it.meets(position)))
    }

    /// Returns the minimum and maximum length of a text.
    fn lengths(&self) -> (usize, usize) {
        let (least, most) = self.body_lengths();
        let rest = self.before.len() + self.after.len();
        (least + rest, most + rest)
    }

    /// Returns the minimum and maximum length of a number up to 2^63. All ids with their own text have one
    /// length, at least 24.
    fn body_lengths(&self) -> (usize, usize) {
        let Some(digits) = &self.body else { return (24, 24) };
        let most = digits.width();
        (self.width.max(1), self.width.max(most))
    }

    /// Returns the characters of a number or id.
    fn characters(&self) -> Characters {
        let writes = |byte: &u8| match &self.body {
            Some(digits) => digits.writes(*byte),
            None => byte.is_ascii_alphanumeric() || *byte == b'-',
        };
        (0..128).filter(writes).fold(0, |all, byte| all | 1 << byte)
    }

    fn body(&self) -> impl Iterator<Item = TextPosition> {
        std::iter::repeat_n(TextPosition::Body(self.characters()), self.body_lengths().0)
    }

    /// Returns the positions from the start that all texts have.
    fn forwards(&self) -> impl Iterator<Item = TextPosition> {
        self.before.iter().copied().chain(self.body())
    }

    /// Returns the positions from the end that all texts have.
    fn backwards(&self) -> impl Iterator<Item = TextPosition> {
        self.after.iter().rev().copied().chain(self.body())
    }

    /// Returns the literal characters, which every text contains.
    fn fixed(&self) -> impl Iterator<Item = TextPosition> {
        self.before
            .iter()
            .chain(&self.after)
            .copied()
            .filter(|position| matches!(position, TextPosition::Literal(_)))
    }

    fn all(&self) -> impl Iterator<Item = TextPosition> {
        self.before.iter().chain(&self.after).copied().chain([TextPosition::Body(self.characters())])
    }
}

impl TextPosition {
    /// Returns whether both positions may have the same character.
    const fn meets(self, other: Self) -> bool {
        self.characters() & other.characters() != 0
    }

    /// Returns the possible characters; templates are ASCII.
    const fn characters(self) -> Characters {
        match self {
            Self::Literal(byte) => 1 << (byte & 127),
            Self::Date(_) => 0x3ff << b'0',
            Self::Body(characters) => characters,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// 2026-11-21T00:00:00Z.
    const DAY: u64 = 1_795_219_200_000;

    fn text(template: &str, number: u64) -> String {
        let form: TextForm = template.parse().unwrap();
        let mut out = Vec::new();
        form.write_number(number, DAY + 1234, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(form.read_number(&text), Some(number), "{template}");
        assert_eq!(form.to_string(), template);
        text
    }

    #[test]
    fn the_longest_text_is_read_back() {
        let template = format!("{}ABCD-{{alphabet=01}}", "{date}".repeat(8));
        let longest = text(&template, u64::MAX >> 1);
        assert!(longest.len() > 130 && longest.len() <= TextForm::MAX_LEN, "{}", longest.len());
        assert_eq!(template.parse::<TextForm>().unwrap().longest(), longest.len());
    }

    #[test]
    fn texts_are_written_and_read_back() {
        for (template, number, wanted) in [
            ("{number}", 0, "0"),
            ("{number:6}", 42, "000042"),
            ("{number:6}", 1_234_567, "1234567"),
            ("ORD-{date}-{number:6}", 42, "ORD-20261121-000042"),
            ("{yyyy}/{mm}/{dd}.{base62}", 61, "2026/11/21.z"),
            ("{base36:4}x", 35, "000Zx"),
            ("{base32}", 1_541_815_603_606_036_480, "1ASD13XH1F800"),
            ("{base32:13}", 33, "0000000000011"),
            ("T-{base58:11}", 0, "T-11111111111"),
            ("{base58}", u64::MAX >> 1, "NQm6nKp8qFC"),
            ("{base58_flickr}", 57, "Z"),
            (
                "T-{alphabet=ohrfjdgPzp3T2XkNulQBFas9eJDmW7VKSC51cbUL8tRiOqIwZn406YEMyGxHAv:11}",
                62,
                "T-oooooooooho",
            ),
            (
                "{alphabet=ohrfjdgPzp3T2XkNulQBFas9eJDmW7VKSC51cbUL8tRiOqIwZn406YEMyGxHAv}",
                u64::MAX >> 1,
                "3vazno5dzZP",
            ),
            ("{alphabet=ba}-{yyyy}", 5, "aba-2026"),
            ("{hex:4}", 255, "00ff"),
            ("{hex}", u64::MAX >> 1, "7fffffffffffffff"),
            ("{base62:32}", u64::MAX >> 1, "000000000000000000000AzL8n0Y58m7"),
        ] {
            assert_eq!(text(template, number), wanted);
        }
    }

    #[test]
    fn other_texts_are_not_read() {
        let form: TextForm = "A-{date}-{number:3}".parse().unwrap();
        for bad in [
            "",
            "A-",
            "A-20261121-",
            "A-20261121-42",
            "A-2026112x-042",
            "A-20261321-042",
            "A-20260021-042",
            "A-20261132-042",
            "B-20261121-042",
            "A-20261121-0x2",
            "é",
        ] {
            assert_eq!(form.read_number(bad), None, "{bad}");
        }
    }

    #[test]
    fn bad_templates_are_rejected_with_what_is_expected() {
        for (bad, words) in [
            ("", "of 0 characters"),
            ("plain", "with 0 fields"),
            ("{number}{hex}", "with 2 fields"),
            ("{number", "unmatched brace at `{number`"),
            ("ORD-{number:6", "unmatched brace at `{number:6`"),
            ("number}", "unmatched brace at `}`"),
            ("{nummer}", "expected {number}, {hex}, {base32}"),
            ("{decimal}", "unknown field `{decimal}`"),
            ("{base64}", "unknown field `{base64}`"),
            ("{number:0}", "unknown field"),
            ("{number:33}", "unknown field"),
            ("{date:3}{number}", "unknown field `{date:3}`"),
            ("{alphabet=a}", "an alphabet of 1 characters"),
            ("{alphabet=}", "an alphabet of 0 characters"),
            ("{alphabet}", "unknown field `{alphabet}`"),
            ("{alphabet=aba}", "`a` appears at positions 0 and 2"),
            ("{alphabet=a{b}", "without {, } and :"),
            ("{alphabet=ab:99}", "unknown field"),
            ("{number} x", "invalid character ' '"),
            ("\"{number}", "invalid character '\"'"),
            ("é{number}", "invalid character 'é'"),
        ] {
            let error = bad.parse::<TextForm>().unwrap_err().to_string();
            assert!(error.contains(words), "{bad}: {error}");
        }
        assert!("x".repeat(65).parse::<TextForm>().is_err());
        let long = format!("{}{{alphabet=0123456789abcdef}}", "x".repeat(60));
        assert!(long.parse::<TextForm>().unwrap_err().to_string().contains("of 71 characters"));
    }

    #[test]
    fn an_id_with_a_text_of_its_own_replaces_its_field() {
        let form: TextForm = "usr_{id}".parse().unwrap();
        let mut out = Vec::new();
        form.write_id("abc", DAY, &mut out);
        assert_eq!(out, b"usr_abc");
        assert_eq!(form.read_number("usr_abc"), None);
        assert_eq!((form.read_id("usr_abc"), form.read_id("abc")), (Some("abc"), None));
    }

    #[test]
    fn a_template_for_others_does_not_show_the_alphabet() {
        for (template, shown) in [
            ("T-{alphabet=zxy:11}", "T-{alphabet:11}"),
            ("{alphabet=zxy}{date}", "{alphabet}{date}"),
            ("ORD-{base58:11}", "ORD-{base58:11}"),
        ] {
            assert_eq!(template.parse::<TextForm>().unwrap().template(), shown);
        }
    }

    proptest::proptest! {
        /// Goal: every number is read back from its text, in digits of any kind and width. Method: alphabets
        /// of any size, shuffled.
        #[test]
        fn numbers_come_back_from_any_alphabet(
            number in 0..=u64::MAX >> 1,
            mut characters in proptest::sample::subsequence(
                ('!'..='~').filter(|c| !"{}:\"'\\".contains(*c)).collect::<Vec<_>>(), 2..=80),
            turn in 0..80_usize,
            width in 0..=32_u8,
            named in proptest::sample::select(vec!["", "number", "hex", "base32", "base36", "base58", "base58_flickr", "base62"]),
        ) {
            let at = turn % characters.len();
            characters.rotate_left(at);
            characters.reverse();
            let alphabet = format!("alphabet={}", String::from_iter(characters));
            let digits = if named.is_empty() { &alphabet } else { named };
            let width = if width == 0 { String::new() } else { format!(":{width}") };
            let template = format!("A{{{digits}{width}}}-{{date}}");
            let form: TextForm = template.parse().unwrap();
            let mut text = Vec::new();
            form.write_number(number, DAY, &mut text);
            let text = String::from_utf8(text).unwrap();
            proptest::prop_assert_eq!(form.read_number(&text), Some(number), "{}", text);
            proptest::prop_assert_eq!(form.to_string(), template);
        }
    }

    fn form(text: &str) -> Option<TextForm> {
        (!text.is_empty()).then(|| text.parse().unwrap())
    }

    fn meet(one: &str, other: &str, periods: Periods) -> bool {
        let plain = if one.contains("{id}") || other.contains("{id}") { Plain::Id } else { Plain::Number };
        let forms = (form(one), form(other));
        let met = can_meet(forms.0.as_ref(), forms.1.as_ref(), periods, plain);
        assert_eq!(met, can_meet(forms.1.as_ref(), forms.0.as_ref(), periods, plain), "{one} and {other}");
        met
    }

    #[test]
    fn forms_that_can_write_one_text_are_told_from_those_that_cannot() {
        for (one, other) in [
            ("", "{number:6}"),
            ("A-{number:6}", "A-{number:8}"),
            ("A{number}", "B{number}"),
            ("", "ORD-{number:6}"),
            ("", "{number}x"),
            ("{base62}", "{base62}-v2"),
            ("{number}", "{hex:20}"),
            ("{date}{number}", "{date}-{number}"),
            ("{id}", "usr_{id}"),
            ("", "usr_{id}"),
            ("A{hex}", "B{number}"),
            ("{base32}", "{base32:13}"),
            ("{alphabet=xyz}", "{number}"),
            ("{base58}0", "{base58}-"),
            ("{alphabet=ab}", "{alphabet=ab:9}"),
            ("{yyyy}{mm}{dd}-{number}", "{date}-{number}"),
        ] {
            assert!(!meet(one, other, Periods::One), "{one} and {other}");
        }
        for (one, other) in [
            ("", "{hex}"),
            ("{number:6}", "{base62:6}"),
            ("{number}", "{number}0"),
            ("{number}", "1{number}"),
            ("A{number}", "A1{number}"),
            ("{date}{number}", "{number}"),
            ("{hex}", "a{hex}"),
            ("x{id}", "{id}x"),
            ("{base58}", "{base62}"),
            ("{base32}", "{base36}"),
            ("{alphabet=01}", "{alphabet=10}"),
        ] {
            assert!(meet(one, other, Periods::One), "{one} and {other}");
        }
        // 10 December and 12 October.
        assert!(meet("{yyyy}{mm}{dd}-{number}", "{yyyy}{dd}{mm}-{number}", Periods::Many));
        assert!(!meet("{yyyy}{mm}{dd}-{number}", "{yyyy}{dd}{mm}-{number}", Periods::One));
        assert!(!meet("{date}-{number}", "{date}-{number:6}", Periods::Many));
    }

    fn template() -> impl Strategy<Value = String> {
        let literal =
            || prop_oneof![Just(""), Just("1"), Just("a"), Just("-"), Just("0a"), Just("{mm}"), Just("{dd}")];
        let number = prop_oneof![
            Just("number"),
            Just("hex"),
            Just("base32"),
            Just("base36"),
            Just("base58"),
            Just("base62"),
            Just("alphabet=10"),
            Just("alphabet=a0-1m"),
        ];
        let width = prop_oneof![Just(""), Just(":2"), Just(":3")];
        (literal(), number, width, literal())
            .prop_map(|(before, number, width, after)| format!("{before}{{{number}{width}}}{after}"))
    }

    proptest! {
        /// Goal: allowed forms never write one text for two numbers. Method: all texts of small numbers and
        /// of some around 2^63 under both forms, on several days.
        #[test]
        fn forms_that_cannot_meet_do_not(one in template(), other in template()) {
            prop_assume!(!meet(&one, &other, Periods::One));
            let (one, other) = (form(&one).unwrap(), form(&other).unwrap());
            let numbers = (0..4000_u64).chain((u64::MAX >> 1) - 50..=u64::MAX >> 1);
            let days = [1_795_219_200_000, 1_765_324_800_000];
            let mut texts = HashMap::new();
            for number in numbers {
                for form in [&one, &other] {
                    for day in days {
                        let mut text = Vec::new();
                        form.write_number(number, day, &mut text);
                        let before = texts.insert(text, number);
                        prop_assert!(before.is_none_or(|before| before == number), "{} and {}", before.unwrap(), number);
                    }
                }
            }
        }
    }
}
