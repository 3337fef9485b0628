//! Text forms of an id: decimal, hexadecimal, eight bytes, and the digits of any [`Alphabet`] such as base62.
//!
//! Each form has `encode` and `decode`. None allocates; each rejects foreign characters and numbers above the
//! largest id.

use core::fmt;
use core::ops::Deref;

use crate::error::Snippet;

mod alphabet;
pub mod bytes;
pub mod decimal;
#[cfg(feature = "std")]
mod digits;
pub mod hex;
mod radix;
#[cfg(feature = "serde")]
mod serde_as_text;

pub use alphabet::{Alphabet, AlphabetError, encode_scru64};
#[cfg(feature = "std")]
pub use digits::{Digits, DigitsError};

/// The length of the longest text: binary, in an alphabet of two characters.
pub const MAX_LEN: usize = 64;

/// The text of an id, on the stack: at most `N` ASCII characters, right-aligned. `N` is below 256.
///
/// Texts compare, sort and hash like their characters.
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    start: u8,
}

impl<const N: usize> Text<N> {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        // Only the codecs fill `bytes`, with ASCII digits and letters.
        core::str::from_utf8(self.as_bytes()).unwrap_or("")
    }

    /// Returns the text as ASCII bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }

    /// The empty text.
    #[cfg(feature = "schemes")]
    pub(crate) const EMPTY: Self = Self::of_ascii(b"");

    /// Keeps ASCII characters, at most `N` of them.
    #[cfg(feature = "schemes")]
    pub(crate) const fn of_ascii(text: &[u8]) -> Self {
        let mut bytes = [0; N];
        let start = N - text.len();
        bytes.split_at_mut(start).1.copy_from_slice(text);
        #[expect(clippy::cast_possible_truncation, reason = "start is at most N, which is below 256")]
        Self { bytes, start: start as u8 }
    }

    /// Returns the same text with more room; `M` is at least `N`.
    #[cfg(feature = "std")]
    fn widened<const M: usize>(&self) -> Text<M> {
        let text = self.as_bytes();
        let start = M - text.len();
        let mut bytes = [0; M];
        bytes[start..].copy_from_slice(text);
        // `M` is below 256, as every `N` is.
        #[expect(clippy::cast_possible_truncation, reason = "start is at most M, which is below 256")]
        Text { bytes, start: start as u8 }
    }
}

/// Not derived: bytes before the first character are not part of the text.
impl<const N: usize> PartialEq for Text<N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<const N: usize> Eq for Text<N> {}

impl<const N: usize> PartialOrd for Text<N> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<const N: usize> Ord for Text<N> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl<const N: usize> core::hash::Hash for Text<N> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl<const N: usize> Deref for Text<N> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Why a text is not a valid id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseIdError {
    /// The text is empty.
    Empty {
        /// The form.
        form: Form,
    },
    /// The text is longer than the largest id in this form.
    TooLong {
        /// The form.
        form: Form,
        /// The length, in bytes.
        len: usize,
        /// The largest number of digits, of one byte each.
        limit: usize,
    },
    /// A character is not a digit of the form.
    Foreign {
        /// The form.
        form: Form,
        /// The first character that is not a digit of the form.
        character: char,
        /// Its position, from 0. All characters before it are digits of one byte each.
        at: usize,
    },
    /// The number is 2^63 or more.
    Overflow {
        /// The form.
        form: Form,
        /// The input; bytes are shown in hexadecimal.
        text: Snippet,
    },
    /// The text is not the one that this form writes for its id.
    NotCanonical {
        /// The form.
        form: Form,
        /// The input.
        text: Snippet,
    },
}

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { form } => write!(f, "invalid {form} id: empty text, expected at least one digit"),
            Self::TooLong { form, len, limit } => {
                write!(
                    f,
                    "invalid {form} id of {len} bytes: expected at most {limit} digits and nothing around them"
                )
            }
            Self::Foreign { form, character, at } => write!(
                f,
                "invalid {form} id: `{}` at position {at} is not a digit; remove it, or choose another text form",
                character.escape_debug()
            ),
            Self::Overflow { form, text } => write!(
                f,
                "{form} id {text} is too large: expected at most 9223372036854775807 (2^63 - 1); check the text form"
            ),
            Self::NotCanonical { form, text } => {
                write!(f, "invalid {form} id {text}: check its padding and leading zeros")
            }
        }
    }
}

impl core::error::Error for ParseIdError {}

/// A text form, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// [`Alphabet::new`].
    Alphabet,
    /// [`Alphabet::BASE36`].
    Base36,
    /// [`Alphabet::BASE58_BITCOIN`].
    Base58Bitcoin,
    /// [`Alphabet::BASE58_FLICKR`].
    Base58Flickr,
    /// [`Alphabet::BASE62`].
    Base62,
    /// [`decimal::encode_base64`].
    Base64OfDecimal,
    /// [`Alphabet::BINARY`].
    Binary,
    /// [`bytes`](mod@bytes).
    Bytes,
    /// [`Alphabet::CROCKFORD32`].
    Crockford32,
    /// [`decimal`](mod@decimal).
    Decimal,
    /// [`hex`](mod@hex).
    Hex,
    /// [`Alphabet::ZBASE32`].
    ZBase32,
}

impl Form {
    /// Returns its name in error messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alphabet => "custom-alphabet",
            Self::Base36 => "base36",
            Self::Base58Bitcoin => "base58 (Bitcoin)",
            Self::Base58Flickr => "base58 (Flickr)",
            Self::Base62 => "base62",
            Self::Base64OfDecimal => "base64-of-decimal",
            Self::Binary => "binary",
            Self::Bytes => "big-endian",
            Self::Crockford32 => "Crockford base32",
            Self::Decimal => "decimal",
            Self::Hex => "hexadecimal",
            Self::ZBase32 => "z-base-32",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
