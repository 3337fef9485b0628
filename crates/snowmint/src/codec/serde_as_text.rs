//! An id in serde's formats: decimal text where people read it, a number elsewhere.

use core::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use super::decimal;
use crate::{Id, serde_as_number};

/// A string of decimal digits in human-readable formats, a number in binary ones. For a number in every
/// format, see [`serde_as_number`].
impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(decimal::encode(*self).as_str())
        } else {
            serde_as_number::serialize(self, serializer)
        }
    }
}

/// A string of decimal digits in human-readable formats, which reject a bare number: a JavaScript client may
/// have rounded it. A number in binary formats.
///
/// Under `#[serde(flatten)]`, `tag` or `untagged`, serde buffers the value and loses its format, so a
/// buffered number is accepted as well as a string. One gap remains: `MessagePack` buffers a number from 256
/// to 4294967295 in a width that serde does not pass on here, and reading fails. Fields that hold such small
/// ids need `#[serde(with = "snowmint::serde_as_number")]`.
impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            // JSON offers only strings here; serde's buffer, which calls itself human-readable, also offers
            // numbers.
            deserializer.deserialize_identifier(TextVisitor)
        } else {
            serde_as_number::deserialize(deserializer)
        }
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id as a string of decimal digits, at most \"9223372036854775807\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Id, E> {
        Id::new(value).map_err(E::custom)
    }
}
