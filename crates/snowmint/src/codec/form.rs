//! Which text form an error speaks of: one byte, so that there is room for what was given.

use core::fmt;

/// A text form, by the name that errors show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// [`alphabet`](super::alphabet).
    Alphabet,
    /// [`base36`](super::base36).
    Base36,
    /// [`base58_bitcoin`](super::base58_bitcoin).
    Base58Bitcoin,
    /// [`base58_flickr`](super::base58_flickr).
    Base58Flickr,
    /// [`base62`](super::base62).
    Base62,
    /// [`base64_of_decimal`](super::base64_of_decimal).
    Base64OfDecimal,
    /// [`binary`](super::binary).
    Binary,
    /// [`bytes`](super::bytes).
    Bytes,
    /// [`crockford32`](super::crockford32).
    Crockford32,
    /// [`decimal`](super::decimal).
    Decimal,
    /// [`hex`](super::hex).
    Hex,
    /// [`zbase32`](super::zbase32).
    ZBase32,
}

impl Form {
    /// Its name in messages.
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
