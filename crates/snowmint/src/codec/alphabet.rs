//! Any alphabet: 2 to 94 distinct characters in an order of one's own, checked when it is made.
//! For texts of other systems (base 43, base62 with lower case first), and for a shuffled base62.

use core::fmt;

use super::radix::{Radix, width_of_bits};
use super::{Form, ParseIdError, Text};
use crate::Id;

/// The longest text: base 2.
pub const MAX_LEN: usize = 64;

/// Distinct ASCII characters, each standing for its position.
///
/// A shuffled alphabet keeps passers-by from reading ids, not more: a few ids whose numbers are known give the
/// order away, and neighbouring ids still look alike. Where nobody may learn how many ids were made in a day, use
/// `Hider` (feature `hide`) and any text form.
///
/// Padded texts are as wide as the largest unsigned 64-bit number, since other systems use all of it; in most
/// bases that is no wider than for ids.
///
/// # Examples
///
/// ```
/// use snowmint::{codec::alphabet::Alphabet, Id};
/// const SHUFFLED: &str = "ohrfjdgPzp3T2XkNulQBFas9eJDmW7VKSC51cbUL8tRiOqIwZn406YEMyGxHAv";
/// let alphabet = Alphabet::new(SHUFFLED)?;
/// let text = alphabet.encode(Id::MAX);
/// assert_eq!(text.as_str(), "3vazno5dzZP");
/// assert_eq!(alphabet.decode(&text)?, Id::MAX);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Alphabet(Radix);

impl Alphabet {
    /// Checks an alphabet. A `const` context checks it when the program is compiled.
    ///
    /// # Errors
    ///
    /// [`AlphabetError`] for fewer than two characters, one that stands twice, or one that is not a visible ASCII
    /// character (a blank is none). More than 94 characters cannot be distinct.
    pub const fn new(digits: &str) -> Result<Self, AlphabetError> {
        let digits = digits.as_bytes();
        if digits.len() < 2 {
            return Err(AlphabetError::TooShort { len: digits.len() });
        }
        let mut first_at = [usize::MAX; 128];
        let mut at = 0;
        while at < digits.len() {
            let byte = digits[at];
            if !byte.is_ascii_graphic() {
                return Err(AlphabetError::NotGraphic { byte, at });
            }
            if first_at[byte as usize] != usize::MAX {
                return Err(AlphabetError::Twice { byte, first: first_at[byte as usize], again: at });
            }
            first_at[byte as usize] = at;
            at += 1;
        }
        Ok(Self(Radix::for_bits(Form::Alphabet, digits, 64)))
    }

    /// Its characters, in their order.
    pub fn as_str(&self) -> &str {
        // Checked to be ASCII when it was made.
        core::str::from_utf8(self.0.digits()).unwrap_or_default()
    }

    /// How many characters the alphabet has.
    pub const fn base(&self) -> u64 {
        self.0.base()
    }

    /// Characters of a padded text.
    #[expect(clippy::len_without_is_empty, reason = "the length of its texts, which are never empty")]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Characters that the largest number of `bits` bits needs; `bits` is at most 127.
    ///
    /// ```
    /// use snowmint::codec::alphabet::Alphabet;
    /// let hex = Alphabet::new("0123456789abcdef")?;
    /// assert_eq!((hex.width_of_bits(41), hex.width_of_bits(63)), (11, 16));
    /// # Ok::<(), snowmint::codec::alphabet::AlphabetError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When `bits` is 128 or more.
    pub const fn width_of_bits(&self, bits: u32) -> usize {
        width_of_bits(self.0.base(), bits)
    }

    /// Writes an id without leading zeros (the alphabet's first character).
    #[inline]
    pub fn encode(&self, id: Id) -> Text<MAX_LEN> {
        self.0.encode(id)
    }

    /// Writes an id as exactly [`len`](Self::len) characters. These texts sort like the numbers where the
    /// alphabet is in ASCII order.
    #[inline]
    pub fn encode_padded(&self, id: Id) -> Text<MAX_LEN> {
        self.0.encode_padded(id)
    }

    /// Reads 1 to [`len`](Self::len) characters, padded or not.
    ///
    /// # Errors
    ///
    /// [`ParseIdError`] for an empty text, a foreign character, or a number from 2^63 on.
    #[inline]
    pub fn decode(&self, text: &str) -> Result<Id, ParseIdError> {
        self.0.decode(text)
    }
}

impl PartialEq for Alphabet {
    fn eq(&self, other: &Self) -> bool {
        self.0.digits() == other.0.digits()
    }
}

impl Eq for Alphabet {}

impl core::hash::Hash for Alphabet {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.0.digits().hash(state);
    }
}

impl fmt::Debug for Alphabet {
    /// The order may be a secret: only the base is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alphabet(base {})", self.base())
    }
}

/// Why a text is not an alphabet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlphabetError {
    /// Fewer than two characters.
    TooShort {
        /// How many there are.
        len: usize,
    },
    /// A character stands twice.
    Twice {
        /// The character.
        byte: u8,
        /// Its first position, from 0.
        first: usize,
        /// Its second position.
        again: usize,
    },
    /// A character that is a blank, a control character or not ASCII.
    NotGraphic {
        /// The first byte of it.
        byte: u8,
        /// Its position, from 0.
        at: usize,
    },
}

impl fmt::Display for AlphabetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooShort { len } => {
                write!(f, "an alphabet of {len} characters cannot write numbers: it needs 2 to 94")
            }
            Self::Twice { byte, first, again } => write!(
                f,
                "`{}` stands at positions {first} and {again} of the alphabet: each character may stand once",
                char::from(byte)
            ),
            Self::NotGraphic { byte, at } => write!(
                f,
                "byte {byte:#04x} at position {at} of the alphabet is not a visible ASCII character: use ! to ~"
            ),
        }
    }
}

impl core::error::Error for AlphabetError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_alphabet_is_refused_with_the_remedy() {
        for (digits, words) in [
            ("", "an alphabet of 0 characters cannot write numbers: it needs 2 to 94"),
            ("a", "an alphabet of 1 characters cannot write numbers: it needs 2 to 94"),
            ("abca", "`a` stands at positions 0 and 3 of the alphabet: each character may stand once"),
            ("ab c", "byte 0x20 at position 2 of the alphabet is not a visible ASCII character: use ! to ~"),
            ("0é", "byte 0xc3 at position 1 of the alphabet is not a visible ASCII character: use ! to ~"),
        ] {
            assert_eq!(Alphabet::new(digits).unwrap_err().to_string(), words);
        }
    }

    #[test]
    fn every_graphic_character_can_be_a_digit() {
        let all: String = ('!'..='~').collect();
        let alphabet = Alphabet::new(&all).unwrap();
        assert_eq!((alphabet.base(), alphabet.len()), (94, 10));
        assert_eq!(alphabet.decode(&alphabet.encode(Id::MAX)), Ok(Id::MAX));
        assert_eq!(format!("{alphabet:?}"), "Alphabet(base 94)");
    }
}
