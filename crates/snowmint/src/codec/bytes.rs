//! Eight bytes, the highest first: what sorts like the number in a key-value store or a BINARY(8) column.
//! The same bytes as bwmarrin/snowflake's `IntBytes` and noeqd's answer.

use super::CodecError;
use crate::Id;

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
/// [`CodecError::Overflow`] when the top bit is set: the number is 2^63 or more.
#[inline]
pub const fn decode(bytes: [u8; LEN]) -> Result<Id, CodecError> {
    match Id::new(u64::from_be_bytes(bytes)) {
        Ok(id) => Ok(id),
        Err(_) => Err(CodecError::Overflow { form: "big-endian" }),
    }
}
