//! The template of a text form as text: read, checked, and written back.

use std::fmt;
use std::str::FromStr;

use snowmint::codec::{Digits, DigitsError};
use snowmint::error::Snippet;

use super::{DatePart, MAX_TEMPLATE, MAX_WIDTH, Part, TextForm, TextFormError};

/// What the field of an alphabet begins with.
const ALPHABET: &str = "{alphabet=";

impl Part {
    /// A field with its braces.
    fn field(field: &str) -> Result<Self, TextFormError> {
        let unknown = || TextFormError::Field { field: Snippet::of(field) };
        let name = field.strip_prefix('{').and_then(|it| it.strip_suffix('}')).ok_or_else(unknown)?;
        let (name, width) = name.split_once(':').map_or((name, None), |(name, width)| (name, Some(width)));
        let in_range = |width: &u8| (1..=MAX_WIDTH).contains(width);
        let width = match width {
            None => 0,
            Some(width) => width.parse().ok().filter(in_range).ok_or_else(unknown)?,
        };
        match (name, width) {
            ("id", 0) => Ok(Self::Id),
            ("date", 0) => Ok(Self::Date(DatePart::Date)),
            ("yyyy", 0) => Ok(Self::Date(DatePart::Year)),
            ("mm", 0) => Ok(Self::Date(DatePart::Month)),
            ("dd", 0) => Ok(Self::Date(DatePart::Day)),
            ("number", _) => Ok(Self::Number { digits: Digits::Decimal, width }),
            // Only `number` is decimal here.
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

/// The length of a template without its alphabet, which may be as long as the rest.
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

impl TryFrom<String> for TextForm {
    type Error = TextFormError;

    fn try_from(template: String) -> Result<Self, TextFormError> {
        template.parse()
    }
}

impl From<TextForm> for String {
    fn from(form: TextForm) -> Self {
        form.to_string()
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
                Part::Date(DatePart::Date) => f.write_str("{date}")?,
                Part::Date(DatePart::Year) => f.write_str("{yyyy}")?,
                Part::Date(DatePart::Month) => f.write_str("{mm}")?,
                Part::Date(DatePart::Day) => f.write_str("{dd}")?,
            }
        }
        Ok(())
    }
}
