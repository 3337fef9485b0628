//! What the store holds for one worker: who has it, until when, and which write said so.
//! JSON, so that an operator can read it with the store's own tools at 3 a.m.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Holder;

/// The mark of one write attempt: a record that bears a tag I made is mine, whatever name it shows.
///
/// 128 random bits when the process starts; the lower half is counted up for each attempt, by random steps. A process that goes on under a
/// saved lease keeps the upper half of the one before it: the *line* to which its tags belong.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub u128);

impl Tag {
    /// The line, with zeros below.
    pub(super) const fn line(self) -> u128 {
        self.0 & !(u64::MAX as u128)
    }

    /// The number of the attempt within the line.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    pub(super) const fn number(self) -> u64 {
        self.0 as u64
    }

    /// The tag of a later attempt, of the same line; the next one where nothing is passed over.
    pub(super) const fn after(self, passed_over: u8) -> Self {
        Self(self.line() | self.number().wrapping_add(1 + passed_over as u64) as u128)
    }
}

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
    /// The first instant of the holder's lease, in unix milliseconds: by it a node sees whether another's lease overlaps its
    /// own. `None` in the records of an earlier version.
    pub from_unix_ms: Option<u64>,
    /// The first instant that is not granted, in unix milliseconds.
    pub until_unix_ms: u64,
    /// Which write this is.
    pub tag: Tag,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    holder: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    until: u64,
    tag: String,
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("not a lease record: {0}")]
pub struct RecordError(String);

impl Record {
    /// `{"holder":"web-3:8080","from":1790000000000,"until":1790000010000,"tag":"32 hexadecimal digits"}`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let wire = Wire {
            holder: self.holder.as_str().to_owned(),
            from: self.from_unix_ms,
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
        Ok(Self { holder, from_unix_ms: wire.from, until_unix_ms: wire.until, tag: Tag(tag) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_is_plain_json() {
        let record = Record {
            holder: Holder::new("a:1").unwrap(),
            from_unix_ms: Some(1_790_000_000_000),
            until_unix_ms: 1_790_000_010_000,
            tag: Tag(0xab),
        };
        let bytes = record.to_bytes();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            r#"{"holder":"a:1","from":1790000000000,"until":1790000010000,"tag":"000000000000000000000000000000ab"}"#
        );
        assert_eq!(Record::from_bytes(&bytes).unwrap(), record);
    }

    #[test]
    fn a_record_of_an_earlier_version_names_no_begin_and_one_of_a_later_version_is_read() {
        let earlier = br#"{"holder":"a","until":7,"tag":"0"}"#;
        assert_eq!(Record::from_bytes(earlier).unwrap().from_unix_ms, None);
        let later = br#"{"holder":"a","from":3,"until":7,"tag":"0","more":[]}"#;
        assert_eq!(Record::from_bytes(later).unwrap().from_unix_ms, Some(3));
    }

    #[test]
    fn tags_count_up_within_their_line() {
        let last = Tag(7 << 64 | u128::from(u64::MAX));
        assert_eq!((last.after(0), last.after(0).after(2)), (Tag(7 << 64), Tag(7 << 64 | 3)));
        assert_eq!((last.line(), last.number()), (7 << 64, u64::MAX));
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
