//! The template of a text form as text: read, checked, and written back.

use std::fmt;
use std::str::FromStr;

use snowmint::Snippet;

use super::{DatePart, Digits, MAX_TEMPLATE, MAX_WIDTH, Part, TextForm, TextFormError};

impl Part {
    fn field(name: &str) -> Option<Self> {
        let (name, width) = name.split_once(':').map_or((name, None), |(name, width)| (name, Some(width)));
        let width = match width {
            None => 0,
            Some(width) => width.parse().ok().filter(|width| (1..=MAX_WIDTH).contains(width))?,
        };
        let number = |digits| Some(Self::Number { digits, width });
        match (name, width) {
            ("number", _) => number(Digits::Decimal),
            ("base62", _) => number(Digits::Base62),
            ("base36", _) => number(Digits::Base36),
            ("hex", _) => number(Digits::Hex),
            ("id", 0) => Some(Self::Id),
            ("date", 0) => Some(Self::Date(DatePart::Date)),
            ("yyyy", 0) => Some(Self::Date(DatePart::Year)),
            ("mm", 0) => Some(Self::Date(DatePart::Month)),
            ("dd", 0) => Some(Self::Date(DatePart::Day)),
            _ => None,
        }
    }
}

impl FromStr for TextForm {
    type Err = TextFormError;

    fn from_str(template: &str) -> Result<Self, TextFormError> {
        if !(1..=MAX_TEMPLATE).contains(&template.len()) {
            return Err(TextFormError::Length { len: template.len() });
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
            let name = field.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
            let part = name.and_then(Part::field);
            parts.push(part.ok_or(TextFormError::Field { field: Snippet::of(field) })?);
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
                Part::Number { digits, width: 0 } => write!(f, "{{{}}}", digits.name())?,
                Part::Number { digits, width } => write!(f, "{{{}:{width}}}", digits.name())?,
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
