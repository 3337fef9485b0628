//! Base32 with Crockford's digits: 13 characters without `I`, `L`, `O` and `U`, easy to read out and to type.
//! The same text as TSID's and ferroid's; it sorts like the number.

use super::radix::Radix;
use super::{Form, ParseIdError, Text};
use crate::Id;

/// Characters of every id in this form.
pub const LEN: usize = 13;

// Reading takes what people mistake for a digit: the letters I and L for 1, and O for 0.
static RADIX: Radix = Radix::new(Form::Crockford32, b"0123456789ABCDEFGHJKMNPQRSTVWXYZ")
    .alias(b'I', 1)
    .alias(b'L', 1)
    .alias(b'O', 0)
    .either_case();

/// Writes an id as 13 Crockford digits: these texts sort like the numbers.
///
/// ```
/// use snowmint::{codec::crockford32, Id};
/// assert_eq!(crockford32::encode(Id::new(2424242424242424242)?).as_str(), "23953MG16DJDJ");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
///
/// Douglas Crockford, "Base 32"; f4b6a3/tsid-creator, `Tsid.toString`; s0l0ist/ferroid, `base32`.
#[inline]
pub fn encode(id: Id) -> Text<LEN> {
    RADIX.encode_padded(id)
}

/// Reads 1 to 13 Crockford digits of either case; `I` and `L` are read as 1, `O` as 0.
///
/// Hyphens and check characters, which Crockford allows, are refused, as TSID does.
///
/// # Errors
///
/// [`ParseIdError`] for an empty text, a foreign character, or a number from 2^63 on.
#[inline]
pub fn decode(text: &str) -> Result<Id, ParseIdError> {
    RADIX.decode(text)
}
