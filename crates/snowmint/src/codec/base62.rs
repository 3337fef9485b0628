//! Base62 with the digits `0-9A-Za-z`: at most 11 characters, in ASCII order,
//! so that the padded form sorts like the number.
//!
//! The same digits as in `CosId`, tsid and boundary/flake; many Java programs put lower case first
//! (read those with an [`Alphabet`](super::alphabet::Alphabet)).

use super::radix::Radix;
use super::{Form, ParseIdError, Text};
use crate::Id;

/// Characters of the largest id.
pub const LEN: usize = 11;

static RADIX: Radix =
    Radix::new(Form::Base62, b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");

/// Writes an id in base62, without leading zeros.
///
/// ```
/// use snowmint::{codec::base62, Id};
/// assert_eq!(base62::encode(Id::MAX).as_str(), "AzL8n0Y58m7");
/// ```
#[inline]
pub fn encode(id: Id) -> Text<LEN> {
    RADIX.encode(id)
}

/// Writes an id as exactly 11 base62 digits: these texts sort like the numbers.
#[inline]
pub fn encode_padded(id: Id) -> Text<LEN> {
    RADIX.encode_padded(id)
}

/// Reads 1 to 11 base62 digits, padded or not.
///
/// # Errors
///
/// [`ParseIdError`] for an empty text, a foreign character, or a number from 2^63 on.
#[inline]
pub fn decode(text: &str) -> Result<Id, ParseIdError> {
    RADIX.decode(text)
}
