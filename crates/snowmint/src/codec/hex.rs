//! Hexadecimal: 16 lower-case digits that sort like the number.
//! Reading takes either case and an optional `0x`.

use super::radix::Radix;
use super::{Form, ParseIdError, Text};
use crate::Id;
use crate::error::Snippet;

/// Characters of every id in this form.
pub const LEN: usize = 16;

/// The digits, in the order of their values.
pub(super) const DIGITS: &[u8; 16] = b"0123456789abcdef";

static RADIX: Radix = Radix::new(Form::Hex, DIGITS).either_case();

/// Writes an id as 16 lower-case hexadecimal digits.
#[inline]
pub fn encode(id: Id) -> Text<LEN> {
    RADIX.encode_padded(id)
}

/// Reads 1 to 16 hexadecimal digits of either case, after an optional `0x`.
///
/// # Errors
///
/// [`ParseIdError`] for an empty text, a foreign character, or a number from 2^63 on.
#[inline]
pub fn decode(text: &str) -> Result<Id, ParseIdError> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    match read_all(digits.as_bytes()).and_then(|value| Id::new(value).ok()) {
        Some(id) => Ok(id),
        None => RADIX.decode(digits).map_err(|error| of_whole(error, text, text.len() - digits.len())),
    }
}

/// Returns the error for the whole text, including its prefix.
#[cold]
fn of_whole(mut error: ParseIdError, whole: &str, prefix: usize) -> ParseIdError {
    match &mut error {
        ParseIdError::Foreign { at, .. } => *at += prefix,
        ParseIdError::TooLong { len, .. } => *len += prefix,
        ParseIdError::Overflow { text, .. } => *text = Snippet::of(whole),
        ParseIdError::Empty { .. } | ParseIdError::NotCanonical { .. } => {}
    }
    error
}

/// Returns the number that exactly 16 digits stand for, the length of every written id.
#[inline]
fn read_all(text: &[u8]) -> Option<u64> {
    let (high, low) = text.split_first_chunk()?;
    Some(read_eight(*high)? << 32 | read_eight(low.try_into().ok()?)?)
}

/// Returns a word with this byte in each place.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

const TOP: u64 = each(0x80);

/// Returns the number that eight digits of either case stand for; `None` if one of them is not a digit.
///
/// A word holds a digit in each byte. Neighbouring digits are combined into pairs, pairs into fours, and
/// fours into the number.
#[inline]
fn read_eight(digits: [u8; 8]) -> Option<u64> {
    let word = u64::from_be_bytes(digits);
    // Letters a to f of either case become 1 to 6 in `letter`, digits become 0 to 9 in `digit`. Any other
    // byte becomes larger, or 0.
    let letter = (word | each(0x20)) ^ each(0x60);
    let digit = word ^ each(b'0');
    // With the top bits clear, a sum sets the top bit of its byte where the byte reaches a bound, and never
    // carries.
    let (letter, digit) = (letter & !TOP, digit & !TOP);
    let is_letter = (letter + each(0x80 - 1)) & !(letter + each(0x80 - 7));
    let is_digit = !(digit + each(0x80 - 10));
    if (is_letter | is_digit) & !word & TOP != TOP {
        return None;
    }
    // A letter's low half is 1 to 6 and stands for 10 to 15.
    let nibbles = (word & each(0x0f)) + ((word >> 6) & each(1)) * 9;
    let pairs = (nibbles | nibbles >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    Some((fours | fours >> 16) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    //! Goal: working on a whole word gives the same result as digit by digit. Method: every byte in every
    //! place, between the smallest and the largest digits, against the standard library.

    use super::*;

    #[test]
    fn every_byte_in_every_place() {
        for byte in (0..=255_u8).step_by(if cfg!(miri) { 15 } else { 1 }) {
            for place in 0..8 {
                for others in [b'0', b'9', b'a', b'F'] {
                    let mut digits = [others; 8];
                    digits[place] = byte;
                    let number = digits.iter().try_fold(0, |number, digit| {
                        Some(number << 4 | u64::from(char::from(*digit).to_digit(16)?))
                    });
                    assert_eq!(read_eight(digits), number, "{byte} at {place}");
                }
            }
        }
    }
}
