//! The identity of a store, and its text.

use std::fmt;
use std::str::FromStr;

use snowmint::foreign::{Most, shown};

/// Every text of an identity begins with this.
const PREFIX: &str = "smst_";
/// The digits of Crockford's base 32, without letters that look like a digit.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const BITS_PER_DIGIT: u32 = 5;
/// 26 digits of 5 bits hold 128 bits.
const LENGTH: u32 = 26;

/// The identity of a store: 128 random bits, written when the store is first used. A copy or restored backup
/// has the same one.
///
/// # Examples
///
/// ```
/// use snowmint_store::StoreId;
/// let id: StoreId = "smst_2hs8sknr1g0v9aqz5ffk4twv3c".parse()?;
/// assert_eq!(id.to_string(), "smst_2hs8sknr1g0v9aqz5ffk4twv3c");
/// assert!("smst_2hs8".parse::<StoreId>().is_err());
/// # Ok::<(), snowmint_store::StoreIdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StoreId(u128);

impl StoreId {
    /// Returns the identity with these 128 bits.
    pub const fn new(bits: u128) -> Self {
        Self(bits)
    }

    /// Returns a fresh identity.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)?;
        Ok(Self(u128::from_be_bytes(bits)))
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        for place in (0..LENGTH).rev() {
            let digit = (self.0 >> (place * BITS_PER_DIGIT)) & 31;
            write!(f, "{}", char::from(DIGITS[digit as usize]))?;
        }
        Ok(())
    }
}

impl FromStr for StoreId {
    type Err = StoreIdError;

    fn from_str(text: &str) -> Result<Self, StoreIdError> {
        let refused = || StoreIdError { text: shown(text, Most::Name).to_string() };
        let digits =
            text.strip_prefix(PREFIX).filter(|digits| digits.len() == LENGTH as usize).ok_or_else(refused)?;
        let mut bits = 0_u128;
        for byte in digits.bytes() {
            let digit = DIGITS.iter().position(|digit| *digit == byte).ok_or_else(refused)?;
            // The first of 26 digits has room for 3 bits only.
            if bits >> (u128::BITS - BITS_PER_DIGIT) > 0 {
                return Err(refused());
            }
            bits = bits << BITS_PER_DIGIT | digit as u128;
        }
        Ok(Self(bits))
    }
}

/// The error of a text that is not a [`StoreId`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "invalid store identity {text:?}: expected {PREFIX} and {LENGTH} digits, as `snowmint doctor` and GET /v1/server show it"
)]
pub struct StoreIdError {
    text: String,
}

/// Which store a process uses, and whether another one answers in its place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// The identity of the store that this process uses.
    pub id: StoreId,
    /// The identity of the store that answers at its address instead.
    pub another: Option<StoreId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_an_identity_is_exact() {
        for bits in [0, 1, 31, 32, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let text = StoreId::new(bits).to_string();
            assert_eq!((text.len(), text.parse()), (31, Ok(StoreId::new(bits))), "{text}");
        }
        assert_eq!(StoreId::new(u128::MAX).to_string(), "smst_7zzzzzzzzzzzzzzzzzzzzzzzzz");
        let digits = "0".repeat(25);
        for bad in ["", "smst_", "smst_8zzzzzzzzzzzzzzzzzzzzzzzzz", "SMST_7zzzzzzzzzzzzzzzzzzzzzzzzz"] {
            assert!(bad.parse::<StoreId>().is_err(), "{bad}");
        }
        for last in ["", "00", "i", "l", "o", "u", "Z", "é", " "] {
            let error = format!("smst_{digits}{last}").parse::<StoreId>().unwrap_err();
            assert!(error.to_string().contains("expected smst_ and 26 digits"), "{error}");
        }
    }
}
