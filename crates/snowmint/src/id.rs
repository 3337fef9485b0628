//! The id: a number in `0..2^63`, so that it fits a signed 64-bit column everywhere.
//! Its text is decimal; [`crate::codec`] has other text forms.

use core::fmt;

/// A unique id, always in `0..2^63`.
///
/// Ids compare as numbers. If the layout has its timestamp on top, that is the order of time.
///
/// # Examples
///
/// ```
/// use snowmint::Id;
/// let id: Id = "1541815603606036480".parse()?;
/// assert_eq!(id.to_string(), "1541815603606036480");
/// assert!(Id::new(1 << 63).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Id(u64);

impl Id {
    /// The smallest id, 0. Use it to initialize a buffer for [`fill`](crate::Generator::fill).
    pub const MIN: Self = Self(0);

    /// The largest id, 2^63 - 1.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// Makes an id from a number.
    ///
    /// # Errors
    ///
    /// [`IdError::TooLarge`] from 2^63 on, which a signed 64-bit column cannot hold.
    pub const fn new(value: u64) -> Result<Self, IdError> {
        if value > i64::MAX as u64 { Err(IdError::TooLarge { value }) } else { Ok(Self(value)) }
    }

    /// Makes an id from a value of a checked layout, which has at most 63 bits.
    pub(crate) const fn from_layout(value: u64) -> Self {
        debug_assert!(value <= i64::MAX as u64);
        Self(value)
    }

    /// Returns the id as an unsigned number, in `0..2^63`.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the id as a signed number for a BIGINT column; never negative.
    pub const fn as_i64(self) -> i64 {
        self.0.cast_signed()
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.0)
    }
}

impl From<Id> for u64 {
    fn from(id: Id) -> Self {
        id.0
    }
}

impl From<Id> for i64 {
    fn from(id: Id) -> Self {
        id.as_i64()
    }
}

impl TryFrom<u64> for Id {
    type Error = IdError;

    fn try_from(value: u64) -> Result<Self, IdError> {
        Self::new(value)
    }
}

impl TryFrom<i64> for Id {
    type Error = IdError;

    fn try_from(value: i64) -> Result<Self, IdError> {
        u64::try_from(value).map(Self).map_err(|_| IdError::Negative { value })
    }
}

/// Why a number is not a valid id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdError {
    /// The number needs the sign bit.
    TooLarge {
        /// The number.
        value: u64,
    },
    /// The number is negative.
    Negative {
        /// The number.
        value: i64,
    },
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { value } => {
                write!(
                    f,
                    "invalid id {value}: the largest id is 9223372036854775807, the largest signed 64-bit number"
                )
            }
            Self::Negative { value } => write!(f, "invalid id {value}: the smallest id is 0"),
        }
    }
}

impl core::error::Error for IdError {}

#[cfg(feature = "sqlx")]
mod column {
    //! An id as a column of a SQL database: a `BIGINT`, the same as an `i64` in sqlx.
    //! Reading a negative number from a column is an error.
    //!
    //! To sqlx, MySQL's `BIGINT UNSIGNED` is another type: reading an id from such a column is a type error.
    //! Ids fit the signed `BIGINT`: declare the column that way, or read it as `CAST(id AS SIGNED)`.

    use sqlx::decode::Decode;
    use sqlx::encode::{Encode, IsNull};
    use sqlx::error::BoxDynError;
    use sqlx::{Database, Type};

    use super::Id;

    impl<DB: Database> Type<DB> for Id
    where
        i64: Type<DB>,
    {
        fn type_info() -> DB::TypeInfo {
            <i64 as Type<DB>>::type_info()
        }

        fn compatible(column: &DB::TypeInfo) -> bool {
            <i64 as Type<DB>>::compatible(column)
        }
    }

    impl<'q, DB: Database> Encode<'q, DB> for Id
    where
        i64: Encode<'q, DB>,
    {
        fn encode_by_ref(&self, buffer: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
            self.as_i64().encode(buffer)
        }
    }

    impl<'r, DB: Database> Decode<'r, DB> for Id
    where
        i64: Decode<'r, DB>,
    {
        fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
            Ok(Self::try_from(i64::decode(value)?)?)
        }
    }

    /// `WHERE id = ANY($1)` with a `Vec<Id>`, columns of type `BIGINT[]`, and transparent newtypes.
    #[cfg(feature = "sqlx-postgres")]
    impl sqlx::postgres::PgHasArrayType for Id {
        fn array_type_info() -> sqlx::postgres::PgTypeInfo {
            <i64 as sqlx::postgres::PgHasArrayType>::array_type_info()
        }
    }
}

#[cfg(feature = "serde")]
pub mod serde_as_number {
    //! An [`Id`] as a number in every format, JSON too: `#[serde(with = "snowmint::serde_as_number")]` on a
    //! field.
    //!
    //! **JavaScript reads JSON numbers as 64-bit floats**, which hold whole numbers only up to 2^53. It
    //! changes the last digits of a larger id without an error, and two ids may become one. Use this module
    //! only if no JavaScript reads the number, nor another program that reads numbers as floats, such as `jq`
    //! before 1.7, or if [`Layout::is_safe_in_javascript`](crate::Layout::is_safe_in_javascript) holds for
    //! the layout. Without this module an id is a string in JSON, which every program keeps.
    //!
    //! Strings are rejected, as are numbers that are negative, have a fraction, or are 2^63 or more.
    //!
    //! ```
    //! use snowmint::Id;
    //!
    //! #[derive(serde::Serialize, serde::Deserialize)]
    //! struct Order {
    //!     #[serde(with = "snowmint::serde_as_number")]
    //!     id: Id,
    //!     customer: Id,
    //! }
    //!
    //! let order: Order = serde_json::from_str(r#"{"id":13587,"customer":"1541815603606036480"}"#)?;
    //! assert_eq!(order.id, Id::new(13587)?);
    //! assert_eq!(serde_json::to_string(&order)?, r#"{"id":13587,"customer":"1541815603606036480"}"#);
    //! # Ok::<(), Box<dyn std::error::Error>>(())
    //! ```

    use core::fmt;

    use serde::de::{self, Deserializer, Visitor};
    use serde::ser::Serializer;

    use super::Id;

    /// Writes an id as an unsigned 64-bit number.
    ///
    /// # Errors
    ///
    /// Those of the format.
    pub fn serialize<S: Serializer>(id: &Id, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(id.get())
    }

    /// Reads an id from a number.
    ///
    /// # Errors
    ///
    /// Those of the format, and an error for anything but a whole number in `0..2^63`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        deserializer.deserialize_u64(NumberVisitor)
    }

    /// An `Option<Id>` as a number or null: `#[serde(with = "snowmint::serde_as_number::option")]` on a
    /// field.
    ///
    /// A missing field is an error, as with every `with`; add `default` to the attribute to read it as
    /// `None`.
    ///
    /// ```
    /// use snowmint::Id;
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Order {
    ///     #[serde(with = "snowmint::serde_as_number::option", default)]
    ///     parent: Option<Id>,
    /// }
    ///
    /// let order: Order = serde_json::from_str(r#"{"parent":13587}"#)?;
    /// assert_eq!(order.parent, Some(Id::new(13587)?));
    /// assert_eq!(serde_json::from_str::<Order>("{}")?.parent, None);
    /// assert_eq!(serde_json::to_string(&Order { parent: None })?, r#"{"parent":null}"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub mod option {
        use super::{Deserializer, Id, OptionVisitor, Serializer};

        /// Writes an id as an unsigned 64-bit number, or nothing.
        ///
        /// # Errors
        ///
        /// Those of the format.
        pub fn serialize<S: Serializer>(id: &Option<Id>, serializer: S) -> Result<S::Ok, S::Error> {
            match id {
                Some(id) => serializer.serialize_some(&id.get()),
                None => serializer.serialize_none(),
            }
        }

        /// Reads an id from a number, or nothing.
        ///
        /// # Errors
        ///
        /// As for [`super::deserialize`].
        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Id>, D::Error> {
            deserializer.deserialize_option(OptionVisitor)
        }
    }

    struct OptionVisitor;

    impl<'de> Visitor<'de> for OptionVisitor {
        type Value = Option<Id>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an id as a whole number from 0 to 9223372036854775807, or nothing")
        }

        fn visit_none<E: de::Error>(self) -> Result<Option<Id>, E> {
            Ok(None)
        }

        fn visit_unit<E: de::Error>(self) -> Result<Option<Id>, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Id>, D::Error> {
            deserialize(deserializer).map(Some)
        }
    }

    struct NumberVisitor;

    impl Visitor<'_> for NumberVisitor {
        type Value = Id;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an id as a whole number from 0 to 9223372036854775807")
        }

        fn visit_u64<E: de::Error>(self, value: u64) -> Result<Id, E> {
            Id::new(value).map_err(E::custom)
        }

        /// Formats without unsigned numbers call this.
        fn visit_i64<E: de::Error>(self, value: i64) -> Result<Id, E> {
            Id::try_from(value).map_err(E::custom)
        }
    }
}
