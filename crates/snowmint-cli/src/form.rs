//! The text forms of an id that the command reads and writes.

use clap::ValueEnum;
use snowmint::Id;
use snowmint::codec::{CodecError, base62, hex};

/// A text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Decimal, what databases and logs show
    Dec,
    /// Up to 11 characters of 0-9A-Za-z
    Base62,
    /// 16 digits of 0-9a-f
    Hex,
}

impl Form {
    /// The form's name in the library.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dec => "decimal",
            Self::Base62 => "base62",
            Self::Hex => "hex",
        }
    }

    pub(crate) fn read(self, text: &str) -> Result<Id, CodecError> {
        match self {
            Self::Dec => text.parse(),
            Self::Base62 => base62::decode(text),
            Self::Hex => hex::decode(text),
        }
    }

    /// Appends the text of an id, without allocating for each.
    pub(crate) fn write(self, id: Id, to: &mut Vec<u8>) {
        match self {
            Self::Dec => to.extend_from_slice(snowmint::codec::decimal::encode(id).as_bytes()),
            Self::Base62 => to.extend_from_slice(base62::encode(id).as_bytes()),
            Self::Hex => to.extend_from_slice(hex::encode(id).as_bytes()),
        }
    }
}
