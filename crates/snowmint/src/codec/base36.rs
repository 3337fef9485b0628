//! Base36 with the digits `0-9A-Z`: at most 13 characters that survive where case is lost, such as host names.
//! The padded form sorts like the number.
//!
//! Two conventions are in use: `CosId` writes upper case and refuses lower case; Go's `strconv`, bwmarrin/snowflake
//! and SCRU64 write lower case. [`decode`] is the strict one, so that an id has exactly one text in this form (as
//! a cache key, say); [`decode_either_case`] reads both.

use super::radix::Radix;
use super::{Form, ParseIdError, Text, decimal};
use crate::{Id, Snippet};

/// Characters of the largest id.
pub const LEN: usize = 13;

static UPPER: Radix = Radix::new(Form::Base36, b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");
static LOWER: Radix = Radix::new(Form::Base36, b"0123456789abcdefghijklmnopqrstuvwxyz").either_case();

/// 62 bits, of which its ids use a little less: 12 digits.
static SCRU64: Radix = Radix::for_bits(Form::Base36, b"0123456789abcdefghijklmnopqrstuvwxyz", 62);

/// Writes an id in base36, in upper case, without leading zeros.
///
/// ```
/// use snowmint::{codec::base36, Id};
/// assert_eq!(base36::encode(Id::MAX).as_str(), "1Y2P0IJ32E8E7");
/// ```
#[inline]
pub fn encode(id: Id) -> Text<LEN> {
    UPPER.encode(id)
}

/// Writes an id as exactly 13 base36 digits in upper case: these texts sort like the numbers.
#[inline]
pub fn encode_padded(id: Id) -> Text<LEN> {
    UPPER.encode_padded(id)
}

/// Writes an id in base36, in lower case, without leading zeros, as bwmarrin/snowflake does.
#[inline]
pub fn encode_lower(id: Id) -> Text<LEN> {
    LOWER.encode(id)
}

/// Digits of a SCRU64 id.
pub const SCRU64_LEN: usize = 12;

/// Writes an id as exactly 12 base36 digits in lower case, as SCRU64 does: these texts sort like the numbers.
///
/// [`decode_either_case`] reads them.
///
/// # Errors
///
/// [`ParseIdError::Overflow`] from 36^12 (4,738,381,338,321,616,896) on: SCRU64's ids are smaller.
///
/// # Source
///
/// SCRU64 specification, "Textual Representation".
///
/// ```
/// use snowmint::{codec::base36, Id};
/// assert_eq!(base36::encode_scru64(Id::new(4_738_381_338_304_839_680)?)?.as_str(), "zzzzzzzq0em8");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn encode_scru64(id: Id) -> Result<Text<SCRU64_LEN>, ParseIdError> {
    if id.get() >= 36_u64.pow(12) {
        return Err(ParseIdError::Overflow { form: Form::Base36, text: Snippet::of(&decimal::encode(id)) });
    }
    Ok(SCRU64.encode_padded(id))
}

/// Reads 1 to 13 base36 digits in upper case, padded or not.
///
/// # Errors
///
/// [`ParseIdError`] for an empty text, a foreign character (a lower-case letter is one), or a number from 2^63 on.
#[inline]
pub fn decode(text: &str) -> Result<Id, ParseIdError> {
    UPPER.decode(text)
}

/// Reads 1 to 13 base36 digits of either case, padded or not.
///
/// # Errors
///
/// As [`decode`], but no letter is foreign.
#[inline]
pub fn decode_either_case(text: &str) -> Result<Id, ParseIdError> {
    LOWER.decode(text)
}
