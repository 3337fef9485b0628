//! An id in serde's formats: a string where people read it, since JavaScript keeps only 53 bits of a number, else a number.
//! Neither is taken for the other.

use core::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use super::{Id, serde_as_number};

/// A string of decimal digits in human-readable formats, a number in binary ones. For a number in every format, see
/// [`serde_as_number`].
impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(crate::codec::decimal::encode(*self).as_str())
        } else {
            serde_as_number::serialize(self, serializer)
        }
    }
}

/// A string of decimal digits in human-readable formats, where a bare number is refused; a number in binary ones.
impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(TextVisitor)
        } else {
            serde_as_number::deserialize(deserializer)
        }
    }
}

/// Takes no number: some formats offer one where a string was asked for.
struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id as a string of decimal digits, at most \"9223372036854775807\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
        text.parse().map_err(E::custom)
    }
}
