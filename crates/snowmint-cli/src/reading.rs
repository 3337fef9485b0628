//! What an id was read as: the fields of a layout, the fields of a scheme, or a number without any.
//! As JSON each is one object, whose members `snowmint inspect --help` lists.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use snowmint::Id;
use snowmint::guess::Guess;
use snowmint::scheme::SchemeId;
use snowmint::utc::Utc;
use snowmint_server::mint::Inspection;

/// What an id was read as.
#[derive(Debug)]
pub(crate) enum Reading {
    Layout(Inspection),
    Scheme(SchemeId),
    Number(Id),
}

impl Reading {
    /// What a guess reads its text as; `None` for a kind that this command does not know.
    pub(crate) fn of(guess: &Guess) -> Option<Self> {
        if let Some(id) = guess.scheme_id() {
            return Some(Self::Scheme(id));
        }
        let id = guess.id()?;
        Some(match guess.layout() {
            Some((preset, parts)) => Self::Layout(Inspection { id, layout: preset.layout, parts }),
            None => Self::Number(id),
        })
    }
}

impl Serialize for Reading {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Layout(inspection) => inspection.serialize(serializer),
            Self::Scheme(id) => scheme(id, serializer),
            Self::Number(id) => serializer.collect_map([("id", id.to_string())]),
        }
    }
}

/// Numbers that JSON has stay numbers; random bits, and what is wider than 64, are texts.
fn scheme<S: Serializer>(id: &SchemeId, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("id", &id.to_string())?;
    map.serialize_entry("scheme", id.scheme().name())?;
    if let Some(unix_ms) = id.unix_ms() {
        map.serialize_entry("unix_ms", &unix_ms)?;
        map.serialize_entry("utc", &Utc(unix_ms).to_string())?;
    }
    for (field, value) in id.values() {
        match u64::try_from(value) {
            Ok(value) if field.is_number => map.serialize_entry(field.name, &value)?,
            _ => map.serialize_entry(field.name, &field.show(value).to_string())?,
        }
    }
    map.end()
}
