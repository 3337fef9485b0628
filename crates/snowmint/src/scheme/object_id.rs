//! `ObjectId`: seconds, a random number of the process, a counter; 12 bytes, the highest first.
//! Implemented here, because the existing crate contains all of BSON.
//!
//! ```text
//! bit 95 ...... 64  63 ........ 24  23 ........ 0
//!     timestamp 32  random 40       counter 24
//!     (1 s)         one a process   starts random
//! ```

use super::{Scheme, SchemeField, SchemeGenerateError, SchemeId, random};

pub(super) const FIELDS: &[SchemeField] = &[
    SchemeField::number("timestamp", 64, 32),
    SchemeField::random("random", 24, 40),
    SchemeField::number("counter", 0, 24),
];

const COUNTER_BITS: u32 = 24;
const COUNTER_MAX: u128 = (1 << COUNTER_BITS) - 1;
const TIMESTAMP_MAX: u128 = u32::MAX as u128;

pub(super) fn parse(text: &str) -> Option<SchemeId> {
    let is_form = text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = u128::from_str_radix(text, 16).ok().filter(|_| is_form)?;
    Some(SchemeId { scheme: Scheme::ObjectId, value })
}

/// The state from which a process makes its next `ObjectId`.
///
/// # Source
///
/// `MongoDB` specifications, "ObjectID": each process has a random number, and a new one after a fork; the
/// counter starts at random and wraps to 0. There the ids repeat after 2^24 in a second. Here time and
/// counter are one number that only grows, so the timestamp moves ahead instead.
#[derive(Debug)]
pub(super) struct ObjectIdState {
    random: u128,
    /// The last id's `timestamp << 24 | counter`; wide enough for any time of a clock.
    cursor: u128,
}

impl ObjectIdState {
    pub(super) fn new() -> Result<Self, SchemeGenerateError> {
        let random = u128::from(u64::from_be_bytes(random()?));
        Ok(Self { random: random >> COUNTER_BITS, cursor: random & COUNTER_MAX })
    }

    pub(super) fn next(&mut self, unix_ms: u64) -> Result<u128, SchemeGenerateError> {
        // The counter continues across seconds, as the specification requires.
        let counter = self.cursor.wrapping_add(1) & COUNTER_MAX;
        let fresh = u128::from(unix_ms / 1000) << COUNTER_BITS | counter;
        let next = if fresh >> COUNTER_BITS > self.cursor >> COUNTER_BITS { fresh } else { self.cursor + 1 };
        let timestamp = next >> COUNTER_BITS;
        if timestamp > TIMESTAMP_MAX {
            return Err(SchemeGenerateError::TimestampOverflow {
                scheme: Scheme::ObjectId,
                now_unix_ms: unix_ms,
                ends_unix_ms: (1 << 32) * 1000,
            });
        }
        self.cursor = next;
        Ok(timestamp << 64 | self.random << COUNTER_BITS | next & COUNTER_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_carries_into_the_next_second_and_nothing_repeats() {
        let mut state = ObjectIdState { random: 0xab, cursor: 1_700_000_000 << 24 | (COUNTER_MAX - 1) };
        for (unix_ms, timestamp, counter) in [
            (1_700_000_000_500, 1_700_000_000, COUNTER_MAX),
            (1_700_000_000_500, 1_700_000_001, 0),
            (1_700_000_001_000, 1_700_000_001, 1),
            (1_700_000_002_000, 1_700_000_002, 2),
        ] {
            let value = state.next(unix_ms).unwrap();
            let id = SchemeId { scheme: Scheme::ObjectId, value };
            let values: Vec<u128> = id.values().map(|(_, value)| value).collect();
            assert_eq!(values, [timestamp, 0xab, counter]);
        }
    }

    #[test]
    fn two_sources_differ_in_the_random_number() {
        assert_ne!(ObjectIdState::new().unwrap().random, ObjectIdState::new().unwrap().random);
    }
}
