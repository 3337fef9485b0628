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
    /// The smallest id, 0: what a buffer for [`fill`](crate::Generator::fill) starts with.
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
mod column;

#[cfg(feature = "serde")]
pub mod serde_as_number;
