//! Creates and checks the text of a token, `smt_NAME_SECRET`, and the hash of it that is stored.
//!
//! The prefix lets secret scanners find a token that was published by mistake. The name finds its row without
//! a look at the others. The secret ends with a checksum, which distinguishes an incomplete copy from an
//! unknown token.
//!
//! Only a SHA-256 of the text is stored. Passwords need a slow hash, since people choose guessable ones. A
//! secret has 256 random bits, which nobody can guess, so a fast hash is just as safe and cannot be used to
//! overload the server.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use snowmint::error::Snippet;
use subtle::ConstantTimeEq as _;

/// The start of every token.
const PREFIX: &str = "smt_";
/// Random characters of a secret: 43 digits of base 62 have 256 bits.
const RANDOM: usize = 43;
/// Characters of the checksum: 6 digits of base 62 have 35 bits, of which a CRC-32 needs 32.
const CHECKSUM: usize = 6;
/// The longest name of a token, in characters.
const MAX_NAME: usize = 64;
const MAX_TEXT: usize = PREFIX.len() + MAX_NAME + 1 + RANDOM + CHECKSUM;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The name of a token: 1 to 64 letters, digits and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenName(String);

/// A text is not the name of a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid token name {0}: expected 1 to {MAX_NAME} letters, digits or `-`, such as orders-service")]
pub struct TokenNameError(Snippet);

impl TokenName {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`TokenNameError`] if it is empty, too long, or has other characters.
    pub fn new(name: &str) -> Result<Self, TokenNameError> {
        if is_name(name.as_bytes()) {
            Ok(Self(name.to_owned()))
        } else {
            Err(TokenNameError(Snippet::of(name)))
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for TokenName {
    type Err = TokenNameError;

    fn from_str(name: &str) -> Result<Self, TokenNameError> {
        Self::new(name)
    }
}

/// A table of tokens is searched by the name in a client's text.
impl std::borrow::Borrow<str> for TokenName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Returns `true` for a valid name. It contains no `_`, which ends the name in a token, and nothing that a
/// TOML key would have to quote.
fn is_name(name: &[u8]) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// The whole text of a token, which its holder keeps secret. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The text cannot be a token, whichever tokens exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It does not have the form of a token.
    #[error(
        "invalid token: expected the text that `snowmint token create` printed, which begins with {PREFIX}"
    )]
    Form,
    /// It has the form of a token, but its checksum does not match.
    #[error("invalid token: its checksum does not match, so it is incomplete or mistyped; copy it again")]
    Checksum,
}

impl Secret {
    /// Returns a new token of this name, from the random numbers of the system.
    ///
    /// # Errors
    ///
    /// The error of the system, if it has no random numbers.
    pub fn generate(name: &TokenName) -> Result<Self, getrandom::Error> {
        let mut text = format!("{PREFIX}{name}_");
        let end = text.len() + RANDOM;
        let mut random = [0; 2 * RANDOM];
        while text.len() < end {
            getrandom::fill(&mut random)?;
            // Bytes above the last multiple of 62 would make some digits more likely.
            let digits = random.iter().filter(|byte| **byte < 248).take(end - text.len());
            text.extend(digits.map(|byte| digit(usize::from(*byte))));
        }
        let checksum = checksum(text.as_bytes());
        text.extend(checksum.map(char::from));
        Ok(Self(text))
    }

    /// Returns the text, for the holder of the token.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hash that is stored.
    pub fn digest(&self) -> SecretDigest {
        SecretDigest::of(self.0.as_bytes())
    }
}

/// Returns the name in the text of a token. Checks only the form and the checksum, so it computes no SHA-256.
///
/// # Errors
///
/// [`SecretError`] if the text is not a token.
pub fn name_in(text: &[u8]) -> Result<&str, SecretError> {
    let split = || {
        let rest = text.strip_prefix(PREFIX.as_bytes()).filter(|_| text.len() <= MAX_TEXT)?;
        let at = rest.len().checked_sub(RANDOM + CHECKSUM + 1)?;
        let (name, tail) = rest.split_at(at);
        let digits = tail.strip_prefix(b"_")?;
        let valid = is_name(name) && digits.iter().all(u8::is_ascii_alphanumeric);
        std::str::from_utf8(name).ok().filter(|_| valid)
    };
    let cut = text.starts_with(PREFIX.as_bytes()) && text.len() <= MAX_TEXT && text.is_ascii();
    // A token that was cut short does not have the form, but its prefix shows what it was.
    let name = split().ok_or(if cut { SecretError::Checksum } else { SecretError::Form })?;
    let (covered, given) = text.split_at(text.len() - CHECKSUM);
    if checksum(covered) == given { Ok(name) } else { Err(SecretError::Checksum) }
}

fn digit(value: usize) -> char {
    char::from(DIGITS[value % DIGITS.len()])
}

/// Returns the CRC-32 of a text (polynomial 0xEDB88320, as in zip) as six digits of base 62.
fn checksum(text: &[u8]) -> [u8; CHECKSUM] {
    let crc =
        text.iter().fold(u32::MAX, |crc, byte| CRC[((crc ^ u32::from(*byte)) & 0xFF) as usize] ^ crc >> 8);
    let mut rest = (!crc) as usize;
    let mut digits = [0; CHECKSUM];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[rest % DIGITS.len()];
        rest /= DIGITS.len();
    }
    digits
}

const CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "it is below 256")]
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The SHA-256 of a token; the server stores nothing else of it.
#[derive(Clone, Copy)]
pub struct SecretDigest([u8; 32]);

/// A text is not a SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 64 hexadecimal digits, as `snowmint token create` writes them")]
pub struct DigestError;

impl SecretDigest {
    /// Hashes the text of a token.
    pub fn of(text: &[u8]) -> Self {
        Self(Sha256::digest(text).into())
    }
}

/// Takes the same time wherever the digests differ.
impl PartialEq for SecretDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for SecretDigest {}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for SecretDigest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(DigestError);
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            // All are hexadecimal digits, which are ASCII.
            let digits = std::str::from_utf8(digits).map_err(|_| DigestError)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| DigestError)?;
        }
        Ok(Self(bytes))
    }
}

/// Compares a text with one that was verified before, in a time that depends only on their lengths: clients
/// behind a proxy may share a connection.
#[inline]
pub(crate) fn same_text(given: &[u8], verified: &[u8]) -> bool {
    if given.len() != verified.len() {
        return false;
    }
    let word = |chunk: &[u8]| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(bytes)
    };
    let pairs = given.chunks(8).zip(verified.chunks(8));
    let difference = pairs.fold(0, |all, (one, other)| all | (word(one) ^ word(other)));
    difference.ct_eq(&0).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secret(name: &str) -> Secret {
        Secret::generate(&TokenName::new(name).unwrap()).unwrap()
    }

    #[test]
    fn a_token_has_a_prefix_its_name_and_256_random_bits() {
        let (one, other) = (secret("orders-1"), secret("orders-1"));
        assert_ne!(one, other);
        assert_eq!(name_in(one.as_str().as_bytes()), Ok("orders-1"));
        let digits = one.as_str().strip_prefix("smt_orders-1_").unwrap();
        assert_eq!(digits.len(), RANDOM + CHECKSUM);
        // 62^43 > 2^256.
        assert!(43.0 * 62_f64.log2() >= 256.0);
        assert_eq!(format!("{one:?}"), "Secret");
        assert!(one.digest() == one.digest() && one.digest() != other.digest());
    }

    /// Goal: the checksum never changes, since a change would make every token in use invalid. Method: the
    /// check value of CRC-32.
    #[test]
    fn the_checksum_is_crc_32() {
        let digits = checksum(b"123456789");
        let value = digits.iter().fold(0, |value, digit| {
            value * 62 + DIGITS.iter().position(|known| known == digit).unwrap() as u64
        });
        assert_eq!(value, 0xCBF4_3926);
    }

    #[test]
    fn wrong_texts_are_told_from_incomplete_ones() {
        let whole = secret("web").as_str().to_owned();
        let longest = secret(&"n".repeat(MAX_NAME)).as_str().to_owned();
        assert_eq!((longest.len(), name_in(longest.as_bytes()).is_ok()), (MAX_TEXT, true));
        for end in PREFIX.len()..whole.len() {
            assert_eq!(name_in(&whole.as_bytes()[..end]), Err(SecretError::Checksum), "{end}");
        }
        for wrong in ["", "smt", "secret", "Bearer x", &format!(" {whole}"), &format!("{longest}x")] {
            assert_eq!(name_in(wrong.as_bytes()), Err(SecretError::Form), "{wrong}");
        }
        assert_eq!(name_in(format!("{whole}x").as_bytes()), Err(SecretError::Checksum));
        assert_eq!(name_in(whole.replace("web", "wab").as_bytes()), Err(SecretError::Checksum));
    }

    #[test]
    fn names_have_letters_digits_and_hyphens() {
        for good in ["a", "orders-service", "A-1", &"n".repeat(64)] {
            assert_eq!(TokenName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a_b", "a.b", "a b", "ä", &"n".repeat(65)] {
            assert!(TokenName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_digest_has_64_digits() {
        let digest = secret("a").digest();
        assert_eq!(digest.to_string().parse(), Ok(digest));
        // The SHA-256 of no bytes, from FIPS 180.
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(SecretDigest::of(b"").to_string(), empty);
        for bad in ["", "e3", &empty[1..], &empty.replace('e', "g"), &empty.replace("e3", "é")] {
            assert_eq!(bad.parse::<SecretDigest>(), Err(DigestError), "{bad}");
        }
    }

    proptest! {
        /// Goal: the checksum detects every single changed character. Method: each position and character;
        /// CRC-32 detects every change of up to 32 adjacent bits.
        #[test]
        fn one_mistyped_character_is_noticed(at in 0_usize..56, to in 0_usize..62) {
            let mut text = secret("abc").as_str().as_bytes().to_vec();
            let at = at % text.len();
            prop_assume!(text[at] != DIGITS[to]);
            text[at] = DIGITS[to];
            prop_assert!(name_in(&text).is_err());
        }

        #[test]
        fn texts_are_compared_whole(one in ".{0,40}", other in ".{0,40}") {
            prop_assert!(same_text(one.as_bytes(), one.as_bytes()));
            prop_assert_eq!(same_text(one.as_bytes(), other.as_bytes()), one == other);
        }
    }
}
