//! Eight big-endian bytes, which sort like the number in a key-value store or a BINARY(8) column.
//! bwmarrin/snowflake's `IntBytes` has the same bytes.

use super::{Form, ParseIdError};
use crate::Id;
use crate::error::Snippet;

/// Bytes of every id in this form.
pub const LEN: usize = 8;

/// Writes an id as 8 big-endian bytes: these sort like the numbers.
///
/// ```
/// use snowmint::{codec::bytes, Id};
/// assert_eq!(bytes::encode(Id::new(13587)?), [0, 0, 0, 0, 0, 0, 0x35, 0x13]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[inline]
pub const fn encode(id: Id) -> [u8; LEN] {
    id.get().to_be_bytes()
}

/// Reads 8 big-endian bytes.
///
/// # Errors
///
/// [`ParseIdError::Overflow`] if the top bit is set: the number is 2^63 or more.
#[inline]
pub const fn decode(bytes: [u8; LEN]) -> Result<Id, ParseIdError> {
    match Id::new(u64::from_be_bytes(bytes)) {
        Ok(id) => Ok(id),
        Err(_) => Err(ParseIdError::Overflow { form: Form::Bytes, text: hexadecimal(bytes) }),
    }
}

const fn hexadecimal(bytes: [u8; LEN]) -> Snippet {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = *b"0x0000000000000000";
    let mut i = 0;
    while i < LEN {
        text[2 + 2 * i] = DIGITS[(bytes[i] >> 4) as usize];
        text[3 + 2 * i] = DIGITS[(bytes[i] & 15) as usize];
        i += 1;
    }
    Snippet::of_ascii(&text)
}
