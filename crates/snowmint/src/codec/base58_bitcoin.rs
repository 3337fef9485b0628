//! Base58 in Bitcoin's order, `1-9A-Za-z` without `0`, `O`, `I` and `l`: at most 11 characters.
//! ASCII order, so that the padded form sorts like the number.
//!
//! The other order in use is [`base58_flickr`](super::base58_flickr). A text of one read as the other gives a
//! wrong number, not an error: that is why neither is called just base58.

use super::radix::Radix;
use super::{Form, ParseIdError, Text};
use crate::Id;

/// Characters of the largest id.
pub const LEN: usize = 11;

static RADIX: Radix =
    Radix::new(Form::Base58Bitcoin, b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz");

/// Writes an id in base58, without leading zeros (the digit `1`).
///
/// ```
/// use snowmint::{codec::base58_bitcoin, Id};
/// assert_eq!(base58_bitcoin::encode(Id::MAX).as_str(), "NQm6nKp8qFC");
/// ```
#[inline]
pub fn encode(id: Id) -> Text<LEN> {
    RADIX.encode(id)
}

/// Writes an id as exactly 11 base58 digits: these texts sort like the numbers.
#[inline]
pub fn encode_padded(id: Id) -> Text<LEN> {
    RADIX.encode_padded(id)
}

/// Reads 1 to 11 base58 digits, padded or not.
///
/// # Errors
///
/// [`ParseIdError`] for an empty text, a foreign character, or a number from 2^63 on.
#[inline]
pub fn decode(text: &str) -> Result<Id, ParseIdError> {
    RADIX.decode(text)
}
