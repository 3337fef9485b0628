//! Decimal: what every database and log shows.
//! No sign, no blanks, at most 19 digits.

use super::radix::Radix;
use super::{CodecError, Text};
use crate::Id;

/// Characters of the largest id.
pub const LEN: usize = 19;

static RADIX: Radix = Radix::new("decimal", b"0123456789");

/// Writes an id in decimal, without leading zeros.
#[inline]
pub fn encode(id: Id) -> Text<LEN> {
    RADIX.encode(id)
}

/// Writes an id as exactly 19 decimal digits: these texts sort like the numbers.
///
/// ```
/// use snowmint::{codec::decimal, Id};
/// assert_eq!(decimal::encode_padded(Id::new(42)?).as_str(), "0000000000000000042");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[inline]
pub fn encode_padded(id: Id) -> Text<LEN> {
    RADIX.encode_padded(id)
}

/// Reads a decimal id; leading zeros are allowed within 19 digits.
///
/// # Errors
///
/// [`CodecError`] for an empty text, a foreign character, or a number from 2^63 on.
#[inline]
pub fn decode(text: &str) -> Result<Id, CodecError> {
    RADIX.decode(text)
}
