//! Decimal: what every database and log shows.
//! No sign, no blanks, at most 19 digits.

mod eight;

use super::radix::Radix;
use super::{Form, ParseIdError, Text};
use crate::Id;

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
    let (above, low) = (id.get() / eight::LIMIT, id.get() % eight::LIMIT);
    let (top, middle) = (above / eight::LIMIT, above % eight::LIMIT);
    let mut bytes = [0; LEN];
    // Of the top eight digits, an id has three.
    bytes[..3].copy_from_slice(&eight::write(top)[5..]);
    bytes[3..11].copy_from_slice(&eight::write(middle));
    bytes[11..].copy_from_slice(&eight::write(low));
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

/// The number of 1 to 19 digits: below 10^19, so that its parts and their sum fit.
#[inline]
fn read(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > LEN {
        return None;
    }
    let (mut rest, mut sum, mut weight) = (text, 0, 1);
    while let Some((above, digits)) = rest.split_last_chunk() {
        sum += eight::read(*digits)? * weight;
        weight *= eight::LIMIT;
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
