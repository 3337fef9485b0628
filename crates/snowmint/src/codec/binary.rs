//! Binary text, as the fields of an id are drawn: at most 63 characters `0` and `1`.
//! The padded form sorts like the number.

use super::radix::Radix;
use super::{Form, ParseIdError, Text};
use crate::Id;

/// Characters of the largest id.
pub const LEN: usize = 63;

static RADIX: Radix = Radix::new(Form::Binary, b"01");

/// Writes an id in binary, without leading zeros.
///
/// ```
/// use snowmint::{codec::binary, Id};
/// assert_eq!(binary::encode(Id::new(10)?).as_str(), "1010");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[inline]
pub fn encode(id: Id) -> Text<LEN> {
    let leading = id.get().leading_zeros().min(63) - 1;
    let padded = encode_padded(id);
    #[expect(clippy::cast_possible_truncation, reason = "at most 62")]
    Text { start: leading as u8, ..padded }
}

/// Writes an id as exactly 63 binary digits: these texts sort like the numbers.
#[inline]
pub fn encode_padded(id: Id) -> Text<LEN> {
    let mut bytes = [b'0'; LEN];
    // Independent places, unlike a division by 2: the compiler makes vectors of them.
    for (i, place) in bytes.iter_mut().enumerate() {
        *place |= u8::from(id.get() >> (LEN - 1 - i) & 1 != 0);
    }
    Text { bytes, start: 0 }
}

/// Reads 1 to 63 binary digits, padded or not.
///
/// # Errors
///
/// [`ParseIdError`] for an empty text, a foreign character, or more than 63 digits.
#[inline]
pub fn decode(text: &str) -> Result<Id, ParseIdError> {
    RADIX.decode(text)
}
