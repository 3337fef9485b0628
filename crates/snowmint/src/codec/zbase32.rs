//! z-base-32, what bwmarrin/snowflake calls Base32: the digits `ybndrfg8ejkmcpqxot1uwisza345h769`, lower case.
//! At most 13 characters; it does not sort like the number.

use super::radix::Radix;
use super::{Form, ParseIdError, Text};
use crate::Id;

/// Characters of the largest id.
pub const LEN: usize = 13;

static RADIX: Radix = Radix::new(Form::ZBase32, b"ybndrfg8ejkmcpqxot1uwisza345h769");

/// Writes an id in z-base-32, without leading zeros (the digit `y`).
///
/// ```
/// use snowmint::{codec::zbase32, Id};
/// assert_eq!(zbase32::encode(Id::new(1427970479175499776)?).as_str(), "b8wjm1zroyyyy");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
///
/// bwmarrin/snowflake, `encodeBase32Map`.
#[inline]
pub fn encode(id: Id) -> Text<LEN> {
    RADIX.encode(id)
}

/// Reads 1 to 13 z-base-32 digits in lower case.
///
/// # Errors
///
/// [`ParseIdError`] for an empty text, a foreign character, or a number from 2^63 on.
#[inline]
pub fn decode(text: &str) -> Result<Id, ParseIdError> {
    RADIX.decode(text)
}
