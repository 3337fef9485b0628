//! What the store holds for one worker: who has it, until when, and which write said so.
//! JSON, so that an operator can read it with the store's own tools at 3 a.m.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Holder;

/// The mark of one write attempt: a record that bears a tag I made is mine, whatever name it shows.
///
/// 128 random bits when the process starts, counted up for each attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub u128);

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({:032x})", self.0)
    }
}

/// The record `workers/<pool>/<worker>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Who has the worker, for people to read.
    pub holder: Holder,
    /// The first instant that is not granted, in unix milliseconds.
    pub until_unix_ms: u64,
    /// Which write this is.
    pub tag: Tag,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    holder: String,
    until: u64,
    tag: String,
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("not a lease record: {0}")]
pub struct RecordError(String);

impl Record {
    /// `{"holder":"web-3:8080","until":1790000000000,"tag":"32 hexadecimal digits"}`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let wire = Wire {
            holder: self.holder.as_str().to_owned(),
            until: self.until_unix_ms,
            tag: format!("{:032x}", self.tag.0),
        };
        // Two strings and a number always become JSON.
        serde_json::to_vec(&wire).unwrap_or_default()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    ///
    /// [`RecordError`] with what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let wire: Wire = serde_json::from_slice(bytes).map_err(|error| RecordError(error.to_string()))?;
        let holder = Holder::new(wire.holder).map_err(|error| RecordError(error.to_string()))?;
        let tag =
            u128::from_str_radix(&wire.tag, 16).map_err(|error| RecordError(format!("tag: {error}")))?;
        Ok(Self { holder, until_unix_ms: wire.until, tag: Tag(tag) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_is_plain_json() {
        let record =
            Record { holder: Holder::new("a:1").unwrap(), until_unix_ms: 1_790_000_000_000, tag: Tag(0xab) };
        let bytes = record.to_bytes();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            r#"{"holder":"a:1","until":1790000000000,"tag":"000000000000000000000000000000ab"}"#
        );
        assert_eq!(Record::from_bytes(&bytes).unwrap(), record);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bad in [
            "",
            "{}",
            "7",
            r#"{"holder":"a b","until":1,"tag":"0"}"#,
            r#"{"holder":"a","until":-1,"tag":"0"}"#,
            r#"{"holder":"a","until":1,"tag":"x"}"#,
        ] {
            assert!(Record::from_bytes(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
