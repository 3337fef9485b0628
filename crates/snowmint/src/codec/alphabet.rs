//! Text forms that write an id in the digits of an alphabet: base62, base58, base36, base32 and binary as
//! constants, and any 2 to 94 characters of your own.

use core::fmt;

use super::radix::{Radix, width_of_bits};
use super::{Form, MAX_LEN, ParseIdError, Text, decimal};
use crate::Id;
use crate::error::Snippet;

/// The digits of a text form: distinct ASCII characters, each of which stands for its position.
///
/// | constant | digits | length | the padded text sorts like the number |
/// |---|---|--:|---|
/// | [`BINARY`](Alphabet::BINARY) | `01` | 1 to 63 | yes |
/// | [`CROCKFORD32`](Alphabet::CROCKFORD32) | `0-9A-Z` without `I`, `L`, `O`, `U` | always 13 | yes |
/// | [`ZBASE32`](Alphabet::ZBASE32) | `ybndrfg8ejkmcpqxot1uwisza345h769` | 1 to 13 | no |
/// | [`BASE36`](Alphabet::BASE36) | `0-9A-Z` | 1 to 13 | yes |
/// | [`BASE36_LOWER`](Alphabet::BASE36_LOWER) | `0-9a-z` | 1 to 13 | yes |
/// | [`BASE58_BITCOIN`](Alphabet::BASE58_BITCOIN) | `1-9A-Za-z` without `O`, `I`, `l` | 1 to 11 | yes |
/// | [`BASE58_FLICKR`](Alphabet::BASE58_FLICKR) | `1-9a-zA-Z` without `l`, `I`, `O` | 1 to 11 | no |
/// | [`BASE62`](Alphabet::BASE62) | `0-9A-Za-z` | 1 to 11 | yes |
///
/// [`new`](Alphabet::new) takes any other alphabet, such as one of another system (base 43, base62 with lower
/// case first) or a shuffled base62. `LEN` is the length of the longest text: 64 for an alphabet of your own.
///
/// A shuffled alphabet is not encryption: a few ids whose numbers are known reveal the order, and
/// neighbouring ids still look alike. To hide how many ids you make a day, use `Hider` (feature `hide`) and
/// any text form.
///
/// With an alphabet of your own, padded texts are as wide as the largest unsigned 64-bit number, since other
/// systems use all of it; in most bases that is no wider than for ids.
///
/// # Examples
///
/// ```
/// use snowmint::{codec::Alphabet, Id};
/// assert_eq!(Alphabet::BASE62.encode(Id::MAX).as_str(), "AzL8n0Y58m7");
/// assert_eq!(Alphabet::BASE62.decode("AzL8n0Y58m7")?, Id::MAX);
///
/// const SHUFFLED: &str = "ohrfjdgPzp3T2XkNulQBFas9eJDmW7VKSC51cbUL8tRiOqIwZn406YEMyGxHAv";
/// let alphabet = Alphabet::new(SHUFFLED)?;
/// let text = alphabet.encode(Id::MAX);
/// assert_eq!(text.as_str(), "3vazno5dzZP");
/// assert_eq!(alphabet.decode(&text)?, Id::MAX);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Alphabet<const LEN: usize = MAX_LEN> {
    radix: Radix,
    zeros: LeadingZeros,
}

/// Whether a text form writes the zeros before the first digit of a small number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeadingZeros {
    Left,
    Written,
}

impl Alphabet {
    /// Binary, for diagrams of an id's fields: at most 63 characters.
    pub const BINARY: Alphabet<63> = Alphabet::of(Form::Binary, b"01");

    /// Base32 with Crockford's digits: always 13 characters, without `I`, `L`, `O` and `U`, easy to read out
    /// and to type. Its texts sort like the numbers.
    ///
    /// Reading takes either case, `I` and `L` as 1 and `O` as 0. It rejects hyphens and check characters,
    /// which Crockford allows and TSID does not.
    ///
    /// ```
    /// use snowmint::{codec::Alphabet, Id};
    /// let id = Id::new(2424242424242424242)?;
    /// assert_eq!(Alphabet::CROCKFORD32.encode(id).as_str(), "23953MG16DJDJ");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Source
    ///
    /// Douglas Crockford, "Base 32"; f4b6a3/tsid-creator, `Tsid.toString`; s0l0ist/ferroid, `base32`.
    pub const CROCKFORD32: Alphabet<13> = Alphabet {
        radix: Radix::new(Form::Crockford32, b"0123456789ABCDEFGHJKMNPQRSTVWXYZ")
            .alias(b'I', 1)
            .alias(b'L', 1)
            .alias(b'O', 0)
            .either_case(),
        zeros: LeadingZeros::Written,
    };

    /// z-base-32, which bwmarrin/snowflake calls Base32: at most 13 characters, in lower case.
    ///
    /// # Source
    ///
    /// bwmarrin/snowflake, `encodeBase32Map`.
    pub const ZBASE32: Alphabet<13> = Alphabet::of(Form::ZBase32, b"ybndrfg8ejkmcpqxot1uwisza345h769");

    /// Base36 in upper case: at most 13 characters that survive where case is lost, such as in host names.
    ///
    /// Reading rejects lower case, as `CosId` does, so that an id has exactly one text (a cache key, say).
    /// [`BASE36_LOWER`](Self::BASE36_LOWER) reads both.
    pub const BASE36: Alphabet<13> = Alphabet::of(Form::Base36, b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");

    /// Base36 in lower case, as Go's `strconv`, bwmarrin/snowflake and SCRU64 write it. Reading takes either
    /// case.
    pub const BASE36_LOWER: Alphabet<13> = Alphabet {
        radix: Radix::new(Form::Base36, b"0123456789abcdefghijklmnopqrstuvwxyz").either_case(),
        zeros: LeadingZeros::Left,
    };

    /// Base58 in Bitcoin's order: at most 11 characters.
    ///
    /// A text of one order of base58, read as the other, gives a wrong number, not an error: that is why
    /// neither is called just base58.
    pub const BASE58_BITCOIN: Alphabet<11> =
        Alphabet::of(Form::Base58Bitcoin, b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz");

    /// Base58 in Flickr's order, which bwmarrin/snowflake calls Base58: at most 11 characters.
    ///
    /// ```
    /// use snowmint::{codec::Alphabet, Id};
    /// let id = Id::new(1428076403798048768)?;
    /// assert_eq!(Alphabet::BASE58_FLICKR.encode(id).as_str(), "4jgmnx8Js8A");
    /// assert_eq!(Alphabet::BASE58_BITCOIN.encode(id).as_str(), "4KGMNY8jT8b");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Source
    ///
    /// bwmarrin/snowflake, `encodeBase58Map`.
    pub const BASE58_FLICKR: Alphabet<11> =
        Alphabet::of(Form::Base58Flickr, b"123456789abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ");

    /// Base62 in ASCII order: at most 11 characters, as in `CosId`, tsid and boundary/flake.
    ///
    /// Many Java programs put lower case first: read their texts with an alphabet in that order.
    pub const BASE62: Alphabet<11> =
        Alphabet::of(Form::Base62, b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");

    /// Makes an alphabet of 2 to 94 characters. A `const` context checks it at compile time.
    ///
    /// # Errors
    ///
    /// [`AlphabetError`] for fewer than 2 characters, a character that appears twice, or one that is not
    /// visible ASCII. There are 94 visible ASCII characters; the blank is not one of them.
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
        Ok(Self { radix: Radix::for_bits(Form::Alphabet, digits, 64), zeros: LeadingZeros::Left })
    }
}

#[expect(
    clippy::inline_always,
    reason = "inlined where it is used, a constant's figures are folded: base62 takes 6 ns, the same as an alphabet 13 ns"
)]
impl<const LEN: usize> Alphabet<LEN> {
    /// A text form for ids, whose longest text has `LEN` digits.
    const fn of(form: Form, digits: &[u8]) -> Self {
        Self { radix: Radix::new(form, digits), zeros: LeadingZeros::Left }
    }

    /// Returns its characters, in their order.
    pub fn as_str(&self) -> &str {
        // Checked to be ASCII when it was made.
        core::str::from_utf8(self.radix.digits()).unwrap_or_default()
    }

    /// Returns the number of characters.
    pub const fn base(&self) -> u64 {
        self.radix.base()
    }

    /// Returns the length of a padded text.
    #[expect(clippy::len_without_is_empty, reason = "the length of its texts, which are never empty")]
    pub const fn len(&self) -> usize {
        self.radix.len()
    }

    /// Returns the length of the largest number of `bits` bits; `bits` is at most 127.
    ///
    /// ```
    /// use snowmint::codec::Alphabet;
    /// let hex = Alphabet::new("0123456789abcdef")?;
    /// assert_eq!((hex.width_of_bits(41), hex.width_of_bits(63)), (11, 16));
    /// # Ok::<(), snowmint::codec::AlphabetError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When `bits` is 128 or more.
    pub const fn width_of_bits(&self, bits: u32) -> usize {
        width_of_bits(self.radix.base(), bits)
    }

    /// Writes an id, without leading zeros (the alphabet's first character) except in Crockford's base32.
    #[inline(always)]
    pub fn encode(&self, id: Id) -> Text<LEN> {
        match self.zeros {
            LeadingZeros::Left => self.radix.encode(id),
            LeadingZeros::Written => self.radix.encode_padded(id),
        }
    }

    /// Writes an id as exactly [`len`](Self::len) characters. If the alphabet is in ASCII order, these texts
    /// sort like the numbers.
    #[inline(always)]
    pub fn encode_padded(&self, id: Id) -> Text<LEN> {
        self.radix.encode_padded(id)
    }

    /// Reads 1 to [`len`](Self::len) characters, padded or not.
    ///
    /// # Errors
    ///
    /// [`ParseIdError`] for an empty text, a foreign character, or a number from 2^63 on.
    #[inline(always)]
    pub fn decode(&self, text: &str) -> Result<Id, ParseIdError> {
        self.radix.decode(text)
    }
}

/// SCRU64's ids have 62 bits: 12 digits.
const SCRU64: Alphabet<12> = Alphabet {
    radix: Radix::for_bits(Form::Base36, b"0123456789abcdefghijklmnopqrstuvwxyz", 62),
    zeros: LeadingZeros::Written,
};

/// Writes an id as exactly 12 base36 digits in lower case, as SCRU64 does: these texts sort like the numbers.
///
/// [`Alphabet::BASE36_LOWER`] reads them.
///
/// # Errors
///
/// [`ParseIdError::Overflow`] from 36^12 (4,738,381,338,321,616,896) on: SCRU64's ids are smaller.
///
/// # Source
///
/// SCRU64 specification, "Textual Representation".
///
/// ```
/// use snowmint::{codec::encode_scru64, Id};
/// assert_eq!(encode_scru64(Id::new(4_738_381_338_304_839_680)?)?.as_str(), "zzzzzzzq0em8");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn encode_scru64(id: Id) -> Result<Text<12>, ParseIdError> {
    if id.get() >= 36_u64.pow(12) {
        return Err(ParseIdError::Overflow { form: Form::Base36, text: Snippet::of(&decimal::encode(id)) });
    }
    Ok(SCRU64.encode(id))
}

impl<const LEN: usize> PartialEq for Alphabet<LEN> {
    fn eq(&self, other: &Self) -> bool {
        self.radix.digits() == other.radix.digits()
    }
}

impl<const LEN: usize> Eq for Alphabet<LEN> {}

impl<const LEN: usize> core::hash::Hash for Alphabet<LEN> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.radix.digits().hash(state);
    }
}

impl<const LEN: usize> fmt::Debug for Alphabet<LEN> {
    /// Prints only the base, since the order may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alphabet(base {})", self.base())
    }
}

/// Why a text is not a valid alphabet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlphabetError {
    /// Fewer than two characters.
    TooShort {
        /// The number of characters.
        len: usize,
    },
    /// A character appears twice.
    Twice {
        /// The character.
        byte: u8,
        /// Its first position, from 0.
        first: usize,
        /// Its second position.
        again: usize,
    },
    /// A character is a blank, a control character or not ASCII.
    NotGraphic {
        /// Its first byte.
        byte: u8,
        /// Its position, from 0.
        at: usize,
    },
}

impl fmt::Display for AlphabetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooShort { len } => {
                write!(f, "an alphabet of {len} characters is too short: expected 2 to 94")
            }
            Self::Twice { byte, first, again } => write!(
                f,
                "`{}` appears at positions {first} and {again} of the alphabet: each character may appear once",
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
            ("", "an alphabet of 0 characters is too short: expected 2 to 94"),
            ("a", "an alphabet of 1 characters is too short: expected 2 to 94"),
            ("abca", "`a` appears at positions 0 and 3 of the alphabet: each character may appear once"),
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
