//! Hexadecimal: 16 lower-case digits that sort like the number.
//! Reading takes either case and an optional `0x`.

mod eight;

use super::radix::Radix;
use super::{Form, ParseIdError, Text};
use crate::{Id, Snippet};

/// Characters of every id in this form.
pub const LEN: usize = 16;

static RADIX: Radix = Radix::new(Form::Hex, b"0123456789abcdef").either_case();

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

/// The same error of the text with its prefix.
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

/// The number of exactly 16 digits, which is how ids are written.
#[inline]
fn read_all(text: &[u8]) -> Option<u64> {
    let (high, low) = text.split_first_chunk()?;
    Some(eight::read(*high)? << 32 | eight::read(*low.as_array()?)?)
}
