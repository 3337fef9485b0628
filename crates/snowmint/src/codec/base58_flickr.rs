//! Base58 in Flickr's order, `1-9a-zA-Z` without `0`, `O`, `I` and `l`: at most 11 characters.
//! What bwmarrin/snowflake calls Base58. It does not sort like the number, since lower case comes first.
//!
//! The other order in use is [`base58_bitcoin`](super::base58_bitcoin). A text of one read as the other gives a
//! wrong number, not an error: that is why neither is called just base58.

use super::radix::Radix;
use super::{Form, ParseIdError, Text};
use crate::Id;

/// Characters of the largest id.
pub const LEN: usize = 11;

static RADIX: Radix =
    Radix::new(Form::Base58Flickr, b"123456789abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ");

/// Writes an id in base58, without leading zeros (the digit `1`).
///
/// ```
/// use snowmint::{codec::base58_flickr, Id};
/// assert_eq!(base58_flickr::encode(Id::new(1428076403798048768)?).as_str(), "4jgmnx8Js8A");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
///
/// bwmarrin/snowflake, `encodeBase58Map`.
#[inline]
pub fn encode(id: Id) -> Text<LEN> {
    RADIX.encode(id)
}

/// Reads 1 to 11 base58 digits.
///
/// # Errors
///
/// [`ParseIdError`] for an empty text, a foreign character, or a number from 2^63 on.
#[inline]
pub fn decode(text: &str) -> Result<Id, ParseIdError> {
    RADIX.decode(text)
}
