//! An id or text decoded by one layout or scheme: its values by name, in the order in which they are shown.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::field::Field;
use crate::layout::{PRESETS, SplitError};
#[cfg(feature = "schemes")]
use crate::scheme::{ForeignId, SchemeField, SchemeId};
use crate::utc::Utc;
use crate::{Id, Layout, Parts};

/// A decoded text.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Decoded {
    /// An id of a layout.
    Snowflake {
        /// The id.
        id: Id,
        /// The layout that decoded it.
        layout: Layout,
        /// Its fields.
        parts: Parts,
    },
    /// An id of a scheme, such as a UUID.
    #[cfg(feature = "schemes")]
    Scheme(SchemeId),
    /// An id of another system that Snowmint does not make, such as a KSUID.
    #[cfg(feature = "schemes")]
    Foreign(ForeignId),
    /// A plain number, such as one of a segment or a database sequence.
    Number(Id),
}

/// A named value of an id.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Number(u64),
    /// A number that may have a fraction, rounded.
    Real(f64),
    /// A text. The id is one too: JavaScript numbers hold only 53 bits.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
    /// Several sets of values.
    List(Vec<Values>),
}

/// Values by name; their order is part of every format that shows them.
pub type Values = Vec<(&'static str, Value)>;

impl Decoded {
    /// Decodes an id by a layout.
    ///
    /// # Errors
    ///
    /// [`SplitError`] for an id with bits that the layout does not have.
    pub fn by_layout(id: Id, layout: Layout) -> Result<Self, SplitError> {
        layout.split(id).map(|parts| Self::Snowflake { id, layout, parts })
    }

    /// Returns the name of the preset or scheme, the text of a layout without a name, or `number`.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Snowflake { layout, .. } => PRESETS
                .iter()
                .find(|preset| preset.layout == *layout)
                .map_or_else(|| layout.to_string().into(), |preset| preset.name.into()),
            #[cfg(feature = "schemes")]
            Self::Scheme(id) => id.scheme().name().into(),
            #[cfg(feature = "schemes")]
            Self::Foreign(id) => id.kind().name().into(),
            Self::Number(_) => "number".into(),
        }
    }

    /// Returns the instant at which the id was made, in unix milliseconds: the start of its tick.
    pub const fn unix_ms(&self) -> Option<u64> {
        match self {
            Self::Snowflake { layout, parts, .. } => Some(layout.unix_ms(parts.timestamp)),
            #[cfg(feature = "schemes")]
            Self::Scheme(id) => id.unix_ms(),
            #[cfg(feature = "schemes")]
            Self::Foreign(id) => id.unix_ms(),
            Self::Number(_) => None,
        }
    }

    /// Returns all values of the id, in display order; only the fields that its layout has.
    pub fn values(&self) -> Values {
        match self {
            Self::Snowflake { id, layout, parts } => snowflake_values(*id, layout, parts),
            #[cfg(feature = "schemes")]
            Self::Scheme(id) => wide_values(&id.to_string(), id.scheme().name(), id.unix_ms(), id.values()),
            #[cfg(feature = "schemes")]
            Self::Foreign(id) => wide_values(&id.to_string(), id.kind().name(), id.unix_ms(), id.values()),
            Self::Number(id) => vec![("id", Value::Text(id.to_string()))],
        }
    }
}

fn snowflake_values(id: Id, layout: &Layout, parts: &Parts) -> Values {
    let unix_ms = layout.unix_ms(parts.timestamp);
    let mut values = vec![
        ("id", Value::Text(id.to_string())),
        ("layout", Value::Text(layout.to_string())),
        ("timestamp", Value::Number(parts.timestamp.0)),
        ("unix_ms", Value::Number(unix_ms)),
        ("utc", Value::Text(Utc(unix_ms).to_string())),
    ];
    for field in [Field::Datacenter, Field::Worker, Field::Generation, Field::Sequence] {
        if layout.width(field) > 0 {
            values.push((field.name(), Value::Number(parts.value(field))));
        }
    }
    values.push(("binary", Value::Text(binary(layout, parts))));
    values
}

/// Returns the 64 bits, with a space before each field.
fn binary(layout: &Layout, parts: &Parts) -> String {
    let mut bits = "0".repeat((u64::BITS - layout.bits()) as usize);
    for field in layout.fields() {
        let width = layout.width(field) as usize;
        // Writing to a `String` never fails.
        let _ = write!(bits, " {:0width$b}", parts.value(field));
    }
    bits
}

/// Returns the values of an id with fields of its own. Numbers of at most 64 bits stay numbers; random bits
/// and wider values are texts.
#[cfg(feature = "schemes")]
fn wide_values(
    id: &str,
    scheme: &str,
    unix_ms: Option<u64>,
    fields: impl Iterator<Item = (&'static SchemeField, u128)>,
) -> Values {
    let mut values = vec![("id", Value::Text(id.to_owned())), ("scheme", Value::Text(scheme.to_owned()))];
    if let Some(unix_ms) = unix_ms {
        values.push(("unix_ms", Value::Number(unix_ms)));
        values.push(("utc", Value::Text(Utc(unix_ms).to_string())));
    }
    values.extend(fields.map(|(field, value)| match u64::try_from(value) {
        Ok(value) if field.is_number => (field.name, Value::Number(value)),
        _ => (field.name, Value::Text(field.show(value).to_string())),
    }));
    values
}

#[cfg(feature = "serde")]
pub(crate) use json::ValuesObject;

#[cfg(feature = "serde")]
mod json {
    use serde::ser::{Serialize, SerializeMap as _, Serializer};

    use super::{Value, Values};

    /// Values as one object, in their order.
    pub(crate) struct ValuesObject<'a>(pub(crate) &'a Values);

    impl Serialize for ValuesObject<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(Some(self.0.len()))?;
            for (name, value) in self.0 {
                map.serialize_entry(name, value)?;
            }
            map.end()
        }
    }

    impl Serialize for Value {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            match self {
                Self::Number(number) => serializer.serialize_u64(*number),
                Self::Real(number) => serializer.serialize_f64(*number),
                Self::Text(text) => serializer.serialize_str(text),
                Self::Texts(texts) => serializer.collect_seq(texts),
                Self::List(list) => serializer.collect_seq(list.iter().map(ValuesObject)),
            }
        }
    }
}
