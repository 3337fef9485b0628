//! Base64 of the decimal text, for those who come from bwmarrin/snowflake, whose Base64 is that.
//! Up to 28 characters, longer than the number itself: nothing to choose for new ids.

use super::radix::Radix;
use super::{Form, ParseIdError, Text, decimal};
use crate::{Id, Snippet};

/// Characters of the largest id.
pub const LEN: usize = 28;

const FORM: Form = Form::Base64OfDecimal;
static RADIX: Radix = Radix::new(FORM, DIGITS);
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes the decimal text of an id in base64 (the standard digits, padded with `=`).
///
/// ```
/// use snowmint::{codec::base64_of_decimal, Id};
/// let id = Id::new(890399407000784896)?;
/// assert_eq!(base64_of_decimal::encode(id).as_str(), "ODkwMzk5NDA3MDAwNzg0ODk2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
///
/// bwmarrin/snowflake, `ID.Base64`.
#[inline]
pub fn encode(id: Id) -> Text<LEN> {
    let decimal = decimal::encode(id);
    let mut bytes = [b'='; LEN];
    let start = LEN - decimal.as_bytes().len().div_ceil(3) * 4;
    for (group, out) in decimal.as_bytes().chunks(3).zip(bytes[start..].chunks_exact_mut(4)) {
        let bits =
            group.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte)) << (24 - 8 * group.len());
        for (i, place) in out.iter_mut().take(group.len() + 1).enumerate() {
            *place = DIGITS[bits >> (18 - 6 * i) & 63];
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "start is below LEN, which is 28")]
    Text { bytes, start: start as u8 }
}

/// Reads what [`encode`] writes, and only that.
///
/// # Errors
///
/// [`ParseIdError`] for an empty text, a character that is not base64, a number from 2^63 on, or wrong padding.
#[inline]
pub fn decode(text: &str) -> Result<Id, ParseIdError> {
    if text.len() > LEN {
        return Err(ParseIdError::TooLong { form: FORM, len: text.len(), limit: LEN });
    }
    if text.is_empty() {
        return Err(ParseIdError::Empty { form: FORM });
    }
    let not_canonical = ParseIdError::NotCanonical { form: FORM, text: Snippet::of(text) };
    let digits = text.trim_end_matches('=');
    let mut decimal = [0; LEN / 4 * 3];
    let mut len = 0;
    for group in digits.as_bytes().chunks(4) {
        let mut bits = 0;
        for (j, byte) in group.iter().enumerate() {
            let digit = RADIX.digit(*byte).ok_or_else(|| RADIX.foreign(digits).unwrap_or(not_canonical))?;
            bits |= u32::from(digit) << (18 - 6 * j);
        }
        for k in 0..group.len() - 1 {
            #[expect(clippy::cast_possible_truncation, reason = "one byte of three is asked for")]
            let byte = (bits >> (16 - 8 * k)) as u8;
            decimal[len] = byte;
            len += 1;
        }
    }
    match core::str::from_utf8(&decimal[..len]).map(decimal::decode) {
        // Wrong padding, bits left over and leading zeros would give one id several texts.
        Ok(Ok(id)) if encode(id).as_str() == text => Ok(id),
        Ok(Err(ParseIdError::Overflow { .. })) => {
            Err(ParseIdError::Overflow { form: FORM, text: Snippet::of(text) })
        }
        // What is wrong with what it holds has no place in the text itself.
        _ => Err(not_canonical),
    }
}
