//! Decimal, which every database and log shows: no sign, no blanks, at most 19 digits.
//! Also base64 of the decimal text, which bwmarrin/snowflake calls Base64.

use core::fmt;
use core::str::FromStr;

use super::radix::Radix;
use super::{Form, ParseIdError, Text};
use crate::Id;
use crate::error::Snippet;

/// Characters of the largest id.
pub const LEN: usize = 19;

static RADIX: Radix = Radix::new(Form::Decimal, b"0123456789");

/// Writes an id in decimal, without leading zeros.
#[inline]
pub fn encode(id: Id) -> Text<LEN> {
    RADIX.without_leading_zeros(encode_padded(id))
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
    let (above, low) = (id.get() / EIGHT_DIGITS, id.get() % EIGHT_DIGITS);
    let (top, middle) = (above / EIGHT_DIGITS, above % EIGHT_DIGITS);
    let mut bytes = [0; LEN];
    // An id has 19 digits: only three of the top eight.
    bytes[..3].copy_from_slice(&write_eight(top)[5..]);
    bytes[3..11].copy_from_slice(&write_eight(middle));
    bytes[11..].copy_from_slice(&write_eight(low));
    Text { bytes, start: 0 }
}

/// Reads a decimal id; leading zeros are allowed within 19 digits.
///
/// # Errors
///
/// [`ParseIdError`] for an empty text, a foreign character, or a number from 2^63 on.
#[inline]
pub fn decode(text: &str) -> Result<Id, ParseIdError> {
    match read(text.as_bytes()).and_then(|value| Id::new(value).ok()) {
        Some(id) => Ok(id),
        None => RADIX.decode(text),
    }
}

/// Returns the number that 1 to 19 digits stand for. It is below 10^19, so its parts and their sum fit.
#[inline]
fn read(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > LEN {
        return None;
    }
    let (mut rest, mut sum, mut weight) = (text, 0, 1);
    while let Some((above, digits)) = rest.split_last_chunk() {
        sum += read_eight(*digits)? * weight;
        weight *= EIGHT_DIGITS;
        rest = above;
    }
    let mut top = 0;
    for byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        top = top * 10 + u64::from(digit);
    }
    Some(top * weight + sum)
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad_integral(true, "", encode(*self).as_str())
    }
}

impl FromStr for Id {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        decode(text)
    }
}

/// Characters of the largest id in base64.
pub const BASE64_LEN: usize = 28;

static BASE64: Radix = Radix::new(Form::Base64OfDecimal, BASE64_DIGITS);
const BASE64_DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes the decimal text of an id in base64 (the standard digits, padded with `=`): up to 28 characters,
/// longer than the number itself.
///
/// For ids that come from bwmarrin/snowflake; do not choose it for new ones.
///
/// ```
/// use snowmint::{codec::decimal, Id};
/// let id = Id::new(890399407000784896)?;
/// assert_eq!(decimal::encode_base64(id).as_str(), "ODkwMzk5NDA3MDAwNzg0ODk2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
///
/// bwmarrin/snowflake, `ID.Base64`.
#[inline]
pub fn encode_base64(id: Id) -> Text<BASE64_LEN> {
    let decimal = encode(id);
    let mut bytes = [b'='; BASE64_LEN];
    let start = BASE64_LEN - decimal.as_bytes().len().div_ceil(3) * 4;
    for (group, out) in decimal.as_bytes().chunks(3).zip(bytes[start..].chunks_exact_mut(4)) {
        let bits =
            group.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte)) << (24 - 8 * group.len());
        for (i, place) in out.iter_mut().take(group.len() + 1).enumerate() {
            *place = BASE64_DIGITS[bits >> (18 - 6 * i) & 63];
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "start is below BASE64_LEN, which is 28")]
    Text { bytes, start: start as u8 }
}

/// Reads what [`encode_base64`] writes, and only that.
///
/// # Errors
///
/// [`ParseIdError`] for an empty text, a character that is not base64, a number from 2^63 on, or wrong
/// padding.
#[inline]
pub fn decode_base64(text: &str) -> Result<Id, ParseIdError> {
    if text.len() > BASE64_LEN {
        return Err(ParseIdError::TooLong {
            form: Form::Base64OfDecimal,
            len: text.len(),
            limit: BASE64_LEN,
        });
    }
    if text.is_empty() {
        return Err(ParseIdError::Empty { form: Form::Base64OfDecimal });
    }
    let not_canonical = ParseIdError::NotCanonical { form: Form::Base64OfDecimal, text: Snippet::of(text) };
    let digits = text.trim_end_matches('=');
    let mut decimal = [0; BASE64_LEN / 4 * 3];
    let mut len = 0;
    for group in digits.as_bytes().chunks(4) {
        let mut bits = 0;
        for (j, byte) in group.iter().enumerate() {
            let digit = BASE64.digit(*byte).ok_or_else(|| BASE64.foreign(digits).unwrap_or(not_canonical))?;
            bits |= u32::from(digit) << (18 - 6 * j);
        }
        for k in 0..group.len() - 1 {
            #[expect(clippy::cast_possible_truncation, reason = "one byte of three is asked for")]
            let byte = (bits >> (16 - 8 * k)) as u8;
            decimal[len] = byte;
            len += 1;
        }
    }
    match core::str::from_utf8(&decimal[..len]).map(decode) {
        // Wrong padding, bits left over and leading zeros would give one id several texts.
        Ok(Ok(id)) if encode_base64(id).as_str() == text => Ok(id),
        Ok(Err(ParseIdError::Overflow { .. })) => {
            Err(ParseIdError::Overflow { form: Form::Base64OfDecimal, text: Snippet::of(text) })
        }
        // An error about the decoded id would have no position in this text.
        _ => Err(not_canonical),
    }
}

/// The smallest number of nine digits.
const EIGHT_DIGITS: u64 = 100_000_000;

const ZEROS: u64 = u64::from_ne_bytes([b'0'; 8]);

/// Returns the number that eight digits stand for; `None` if one of them is not a digit.
///
/// A word holds a digit in each byte. Neighbouring digits are combined into pairs, pairs into fours, and
/// fours into the number; writing does the reverse.
///
/// # Source
///
/// Daniel Lemire, "Quickly parsing eight digits", 2018; Johnny Lee, "Fast numeric string to int", 2016.
#[inline]
fn read_eight(digits: [u8; 8]) -> Option<u64> {
    // The first digit in the lowest byte.
    let word = u64::from_le_bytes(digits) ^ ZEROS;
    // A value above 9 carries into the top bit of its byte; a value above 127 already has that bit.
    if (word.wrapping_add(0x7676_7676_7676_7676) | word) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = (word.wrapping_mul(10) + (word >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours.wrapping_mul(10_000) + (fours >> 32)) & 0xffff_ffff)
}

/// Returns the eight digits of a number below [`EIGHT_DIGITS`].
///
/// The quotients in all parts of the word are multiplications by a rounded reciprocal, which is exact for
/// numbers of that length.
#[inline]
const fn write_eight(number: u64) -> [u8; 8] {
    let (above, below) = (number / 10_000, number % 10_000);
    let fours = above | below << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | (fours - hundreds * 100) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | (pairs - tens * 10) << 8;
    (digits | ZEROS).to_le_bytes()
}

#[cfg(test)]
mod tests {
    //! Goal: working on all parts of a word at once gives the same result as digit by digit. Method: every
    //! number of four digits in both halves, since the halves are independent, and each foreign byte at each
    //! place.

    use super::*;

    #[test]
    fn every_number_of_four_digits_in_either_half() {
        let step = if cfg!(miri) { 997 } else { 1 };
        for four in (0..10_000_u64).step_by(step) {
            for number in [four, four * 10_000, four * 10_000 + 9_999, 99_990_000 + four] {
                let text = format!("{number:08}");
                assert_eq!(write_eight(number), text.as_bytes());
                assert_eq!(read_eight(write_eight(number)), Some(number));
            }
        }
    }

    #[test]
    fn a_foreign_byte_is_seen_in_every_place() {
        let step = if cfg!(miri) { 15 } else { 1 };
        for byte in (0..=255_u8).step_by(step).filter(|byte| !byte.is_ascii_digit()) {
            for place in 0..8 {
                for digit in [b'0', b'9'] {
                    let mut digits = [digit; 8];
                    digits[place] = byte;
                    assert_eq!(read_eight(digits), None, "{byte} at {place}");
                }
            }
        }
    }
}
