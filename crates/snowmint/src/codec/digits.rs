//! A text form chosen at run time, by a flag or by the text form of a namespace.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use super::{Alphabet, AlphabetError, MAX_LEN, ParseIdError, Text, decimal, hex};
use crate::Id;
use crate::error::Snippet;

/// The prefix of a custom alphabet in its text form.
const ALPHABET: &str = "alphabet=";

/// The digits of ids, chosen at run time.
///
/// | text | digits | as |
/// |---|---|---|
/// | `decimal` or `dec` | `0-9` | [`decimal`] |
/// | `hex` | `0-9a-f`, 16 of them | [`hex`] |
/// | `base32` | Crockford's, 13 of them | [`Alphabet::CROCKFORD32`] |
/// | `base36` | `0-9A-Z` | [`Alphabet::BASE36`] |
/// | `base58` | Bitcoin's order, `1-9A-Za-z` without `0`, `O`, `I`, `l` | [`Alphabet::BASE58_BITCOIN`] |
/// | `base58_flickr` | Flickr's order, with lower case first | [`Alphabet::BASE58_FLICKR`] |
/// | `base62` | `0-9A-Za-z` | [`Alphabet::BASE62`] |
/// | `alphabet=CHARS` | 2 to 94 characters in an order of your own | [`Alphabet::new`] |
///
/// [`Display`](fmt::Display) writes the text that [`FromStr`] reads.
///
/// # Examples
///
/// ```
/// use snowmint::{Id, codec::Digits};
/// let digits: Digits = "base58".parse()?;
/// assert_eq!(digits.encode(Id::MAX).as_str(), "NQm6nKp8qFC");
/// assert_eq!(digits.decode("NQm6nKp8qFC")?, Id::MAX);
/// let shuffled: Digits = "alphabet=q7PzVw3".parse()?;
/// assert_eq!(shuffled.encode(Id::new(50)?).as_str(), "7q7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Digits {
    /// Decimal.
    Decimal,
    /// Hexadecimal, in lower case.
    Hex,
    /// Crockford's base32.
    Base32,
    /// Base36, in upper case.
    Base36,
    /// Base58 in Bitcoin's order.
    Base58,
    /// Base58 in Flickr's order.
    Base58Flickr,
    /// Base62.
    Base62,
    /// A custom alphabet, such as a shuffled one.
    Alphabet(Arc<Alphabet>),
}

impl Digits {
    /// All digits with a name of their own.
    pub const NAMED: [Self; 7] = [
        Self::Decimal,
        Self::Hex,
        Self::Base32,
        Self::Base36,
        Self::Base58,
        Self::Base58Flickr,
        Self::Base62,
    ];

    /// Returns the name without the characters of an alphabet, which may be a secret.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Decimal => "decimal",
            Self::Hex => "hex",
            Self::Base32 => "base32",
            Self::Base36 => "base36",
            Self::Base58 => "base58",
            Self::Base58Flickr => "base58_flickr",
            Self::Base62 => "base62",
            Self::Alphabet(_) => "alphabet",
        }
    }

    /// Writes an id: hex and base32 with leading zeros, the others without.
    pub fn encode(&self, id: Id) -> Text<MAX_LEN> {
        match self {
            Self::Decimal => decimal::encode(id).widened(),
            Self::Hex => hex::encode(id).widened(),
            Self::Base32 => Alphabet::CROCKFORD32.encode(id).widened(),
            Self::Base36 => Alphabet::BASE36.encode(id).widened(),
            Self::Base58 => Alphabet::BASE58_BITCOIN.encode(id).widened(),
            Self::Base58Flickr => Alphabet::BASE58_FLICKR.encode(id).widened(),
            Self::Base62 => Alphabet::BASE62.encode(id).widened(),
            Self::Alphabet(alphabet) => alphabet.encode(id),
        }
    }

    /// Reads an id, padded or not. Hex and base32 accept letters of either case; hex accepts a `0x` prefix.
    ///
    /// # Errors
    ///
    /// [`ParseIdError`] for an empty text, a foreign character, or a number from 2^63 on.
    pub fn decode(&self, text: &str) -> Result<Id, ParseIdError> {
        match self {
            Self::Decimal => decimal::decode(text),
            Self::Hex => hex::decode(text),
            Self::Base32 => Alphabet::CROCKFORD32.decode(text),
            Self::Base36 => Alphabet::BASE36.decode(text),
            Self::Base58 => Alphabet::BASE58_BITCOIN.decode(text),
            Self::Base58Flickr => Alphabet::BASE58_FLICKR.decode(text),
            Self::Base62 => Alphabet::BASE62.decode(text),
            Self::Alphabet(alphabet) => alphabet.decode(text),
        }
    }

    /// Returns the digits of this form in the order of their values. `zero` and `writes` follow from it, so
    /// that a new form cannot pad with a digit that is not its zero.
    fn in_order(&self) -> &[u8] {
        match self {
            Self::Decimal => b"0123456789",
            Self::Hex => hex::DIGITS,
            Self::Base32 => const { &Alphabet::CROCKFORD32 }.as_str().as_bytes(),
            Self::Base36 => const { &Alphabet::BASE36 }.as_str().as_bytes(),
            Self::Base58 => const { &Alphabet::BASE58_BITCOIN }.as_str().as_bytes(),
            Self::Base58Flickr => const { &Alphabet::BASE58_FLICKR }.as_str().as_bytes(),
            Self::Base62 => const { &Alphabet::BASE62 }.as_str().as_bytes(),
            Self::Alphabet(alphabet) => alphabet.as_str().as_bytes(),
        }
    }

    /// Returns the digit for 0, which pads texts.
    pub fn zero(&self) -> u8 {
        // Every form has at least two digits.
        self.in_order()[0]
    }

    /// Returns the number of digits of the largest id.
    pub fn width(&self) -> usize {
        self.encode(Id::MAX).len()
    }

    /// Returns whether a text of these digits can contain this character.
    pub fn writes(&self, byte: u8) -> bool {
        self.in_order().contains(&byte)
    }
}

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alphabet(alphabet) => write!(f, "{ALPHABET}{}", alphabet.as_str()),
            named => f.pad(named.name()),
        }
    }
}

impl FromStr for Digits {
    type Err = DigitsError;

    fn from_str(text: &str) -> Result<Self, DigitsError> {
        if let Some(alphabet) = text.strip_prefix(ALPHABET) {
            return Ok(Self::Alphabet(Arc::new(Alphabet::new(alphabet)?)));
        }
        let name = if text == "dec" { "decimal" } else { text };
        let named = Self::NAMED.into_iter().find(|digits| digits.name() == name);
        named.ok_or(DigitsError::Unknown { text: Snippet::of(text) })
    }
}

/// Why a text is not the name of digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DigitsError {
    /// The name is unknown.
    Unknown {
        /// The input.
        text: Snippet,
    },
    /// The characters after `alphabet=` are not a valid alphabet.
    Alphabet(AlphabetError),
}

impl From<AlphabetError> for DigitsError {
    fn from(error: AlphabetError) -> Self {
        Self::Alphabet(error)
    }
}

impl fmt::Display for DigitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { text } => {
                write!(f, "unknown text form {text}: expected ")?;
                Digits::NAMED.iter().try_for_each(|digits| write!(f, "{digits}, "))?;
                f.write_str("or alphabet=CHARS")
            }
            Self::Alphabet(error) => error.fmt(f),
        }
    }
}

// The text is that of the inner error, which therefore is no source.
impl core::error::Error for DigitsError {}

#[cfg(test)]
mod tests {
    use super::*;

    const SHUFFLED: &str = "alphabet=ohrfjdgPzp3T2XkNulQBFas9eJDmW7VKSC51cbUL8tRiOqIwZn406YEMyGxHAv";

    #[test]
    fn digits_are_what_their_text_names() {
        for text in ["decimal", "hex", "base32", "base36", "base58", "base58_flickr", "base62", SHUFFLED] {
            let digits: Digits = text.parse().unwrap();
            assert_eq!(digits.to_string(), text);
            assert!(text.starts_with(digits.name()) && !format!("{digits:?}").contains("ohrf"), "{digits:?}");
            for id in [0, 61, 1_541_815_603_606_036_480, Id::MAX.get()].map(|id| Id::new(id).unwrap()) {
                let written = digits.encode(id);
                assert_eq!(digits.decode(&written), Ok(id), "{text} {written}");
                assert!(written.bytes().all(|byte| digits.writes(byte)), "{text} {written}");
                let padded = format!(
                    "{}{}",
                    char::from(digits.zero()).to_string().repeat(digits.width() - written.len()),
                    written
                );
                assert_eq!(digits.decode(&padded), Ok(id), "{text} {padded}");
            }
        }
        assert_eq!("dec".parse(), Ok(Digits::Decimal));
        assert_eq!(SHUFFLED.parse::<Digits>(), SHUFFLED.parse());
        assert_ne!("alphabet=01".parse::<Digits>(), "alphabet=10".parse());
    }

    /// Goal: padding, the digits and the written texts of a form agree. Method: every digit of every form, by
    /// its value.
    #[test]
    fn the_digits_of_a_form_are_those_that_it_writes() {
        let shuffled = SHUFFLED.parse().unwrap();
        for digits in Digits::NAMED.into_iter().chain([shuffled]) {
            for (value, digit) in digits.in_order().iter().enumerate() {
                let written = digits.encode(Id::new(value as u64).unwrap());
                assert_eq!(written.bytes().last(), Some(*digit), "{digits} {value}");
            }
            assert_eq!(digits.encode(Id::MIN).bytes().last(), Some(digits.zero()), "{digits}");
            let all = (0..=u8::MAX).filter(|byte| digits.writes(*byte)).count();
            let base = digits.in_order().len();
            assert_eq!(all, base, "{digits}");
            assert_eq!(
                digits
                    .encode(Id::new(base as u64).unwrap())
                    .trim_start_matches(char::from(digits.zero()))
                    .len(),
                2,
                "{digits}"
            );
        }
    }

    #[test]
    fn an_unknown_name_is_rejected_with_the_known_ones() {
        for (bad, words) in [
            (
                "base64",
                "unknown text form `base64`: expected decimal, hex, base32, base36, base58, base58_flickr, base62, or alphabet=CHARS",
            ),
            ("", "unknown text form ``"),
            ("BASE58", "unknown text form `BASE58`"),
            ("alphabet=", "an alphabet of 0 characters"),
            ("alphabet=aba", "`a` appears at positions 0 and 2"),
        ] {
            let error = bad.parse::<Digits>().unwrap_err().to_string();
            assert!(error.contains(words), "{bad}: {error}");
        }
    }
}
