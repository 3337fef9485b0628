//! UUID v4 and v7, by the crate `uuid`; v7 with a counter, so that the ids of one millisecond increase too.
//! Randomness comes from the operating system: with the crate's feature `fast-rng`, which any crate of a
//! build may enable, forked children share it.

use uuid::{Builder, Uuid, Variant};

use super::{Scheme, SchemeError, SchemeField, SchemeGenerateError, SchemeId, random};

pub(super) const FIELDS_V4: &[SchemeField] = &[
    SchemeField::random("random_a", 80, 48),
    SchemeField::number("version", 76, 4),
    SchemeField::random("random_b", 64, 12),
    SchemeField::number("variant", 62, 2),
    SchemeField::random("random_c", 0, 62),
];

pub(super) const FIELDS_V7: &[SchemeField] = &[
    SchemeField::number("timestamp", 80, 48),
    SchemeField::number("version", 76, 4),
    SchemeField::random("rand_a", 64, 12),
    SchemeField::number("variant", 62, 2),
    SchemeField::random("rand_b", 0, 62),
];

/// Parses a UUID; `None` if the text is not a UUID.
pub(super) fn parse(scheme: Scheme, text: &str) -> Option<Result<SchemeId, SchemeError>> {
    // The crate also reads braces and `urn:uuid:`, which `Scheme::parse` does not promise.
    if !matches!(text.len(), 32 | 36) {
        return None;
    }
    Uuid::try_parse(text).ok().map(|uuid| of_version(scheme, uuid))
}

/// Rejects a UUID of another version, or of a variant other than that of RFC 9562.
pub(super) fn of_version(scheme: Scheme, uuid: Uuid) -> Result<SchemeId, SchemeError> {
    let wanted = if scheme == Scheme::Uuid4 { 4 } else { 7 };
    let of_rfc = uuid.get_variant() == Variant::RFC4122;
    #[expect(clippy::cast_possible_truncation, reason = "a version has 4 bits")]
    let found = if of_rfc { uuid.get_version_num() as u8 } else { 0 };
    if found != wanted {
        return Err(SchemeError::Version { scheme, found });
    }
    Ok(SchemeId { scheme, value: uuid.as_u128() })
}

pub(super) fn next_v4() -> Result<u128, SchemeGenerateError> {
    Ok(Builder::from_random_bytes(random()?).into_uuid().as_u128())
}

const COUNTER_BITS: u32 = 42;
const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;
/// Random bits below the counter.
const TAIL_BITS: u32 = 32;
const RAND_B_BITS: u32 = 62;

/// The counter of v7: it starts at 41 random bits in each new millisecond and grows by 1 per id. The other
/// bits are random.
///
/// ```text
/// bit 127 ... 80  79 ... 76  75 .... 64  63 .. 62  61 .... 32  31 ..... 0
///     ms 48       version 7  counter 12  variant   counter 30  random 32
/// ```
///
/// # Source
///
/// RFC 9562, 6.2, "Fixed Bit-Length Dedicated Counter", with the widths of the crate `uuid`. A clock that
/// goes back counts as the same millisecond, and a counter that overflows continues in the next one.
#[derive(Debug)]
pub(super) struct Uuid7State(Option<LastUuid>);

#[derive(Clone, Copy, Debug)]
struct LastUuid {
    unix_ms: u64,
    /// At most [`COUNTER_MAX`].
    counter: u64,
}

impl Uuid7State {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    pub(super) fn next(&mut self, unix_ms: u64) -> Result<u128, SchemeGenerateError> {
        self.next_with(unix_ms, u128::from_be_bytes(random()?))
    }

    fn next_with(&mut self, now_unix_ms: u64, random: u128) -> Result<u128, SchemeGenerateError> {
        let next = match self.0 {
            Some(last) if last.unix_ms >= now_unix_ms && last.counter < COUNTER_MAX => {
                LastUuid { counter: last.counter + 1, ..last }
            }
            Some(last) if last.unix_ms >= now_unix_ms => LastUuid::fresh(last.unix_ms + 1, random),
            _ => LastUuid::fresh(now_unix_ms, random),
        };
        if next.unix_ms >> 48 != 0 {
            return Err(SchemeGenerateError::TimestampOverflow {
                scheme: Scheme::Uuid7,
                now_unix_ms,
                ends_unix_ms: 1 << 48,
            });
        }
        self.0 = Some(next);
        Ok(next.with_tail(random))
    }
}

impl LastUuid {
    /// Starts a millisecond. The counter's top bit is 0, so that it has room to grow.
    const fn fresh(unix_ms: u64, random: u128) -> Self {
        Self { unix_ms, counter: (random >> (u128::BITS - (COUNTER_BITS - 1))) as u64 }
    }

    /// Places the counter on both sides of the variant, below the version.
    fn with_tail(self, random: u128) -> u128 {
        const TAIL: u128 = (1 << TAIL_BITS) - 1;
        const RAND_B: u128 = (1 << RAND_B_BITS) - 1;
        let payload = u128::from(self.counter) << TAIL_BITS | random & TAIL;
        let around = (payload >> RAND_B_BITS) << 64 | payload & RAND_B;
        let [_, _, _, _, _, _, low @ ..] = around.to_be_bytes();
        Builder::from_unix_timestamp_millis(self.unix_ms, &low).into_uuid().as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(value: u128) -> [u128; 5] {
        let mut values = [0; 5];
        let id = SchemeId { scheme: Scheme::Uuid7, value };
        for (place, (_, value)) in values.iter_mut().zip(id.values()) {
            *place = value;
        }
        values
    }

    #[test]
    fn counter_and_random_bits_stand_where_they_should() {
        let mut state = Uuid7State(Some(LastUuid { unix_ms: 5, counter: 0x2bc_1234_5677 }));
        let id = state.next_with(5, u128::MAX / 3).unwrap();
        // 42 bits of counter: 12, then 30; then the 32 lowest random ones.
        let counter = 0x2bc_1234_5678_u128;
        assert_eq!(fields(id), [5, 7, counter >> 30, 2, (counter & 0x3fff_ffff) << 32 | 0x5555_5555]);
    }

    #[test]
    fn a_new_millisecond_has_a_fresh_counter_of_41_bits() {
        let mut state = Uuid7State::new();
        assert_eq!(fields(state.next_with(0, u128::MAX).unwrap()), [0, 7, 0x7ff, 2, 0x3fff_ffff_ffff_ffff]);
        assert_eq!(fields(state.next_with(2, 0).unwrap()), [2, 7, 0, 2, 0]);
        // One more in the same millisecond, and in one that the clock has left.
        assert_eq!(fields(state.next_with(2, u128::MAX).unwrap()), [2, 7, 0, 2, 0x1_ffff_ffff]);
        assert_eq!(fields(state.next_with(1, 0).unwrap()), [2, 7, 0, 2, 0x2_0000_0000]);
    }

    #[test]
    fn a_counter_at_its_end_goes_on_in_the_next_millisecond() {
        let mut state = Uuid7State(Some(LastUuid { unix_ms: 7, counter: COUNTER_MAX - 1 }));
        assert_eq!(fields(state.next_with(7, 0).unwrap()), [7, 7, 0xfff, 2, 0x3fff_ffff_0000_0000]);
        assert_eq!(fields(state.next_with(7, 0).unwrap()), [8, 7, 0, 2, 0]);
        assert_eq!(fields(state.next_with(7, 0).unwrap()), [8, 7, 0, 2, 0x1_0000_0000]);
    }

    #[test]
    fn after_the_last_counter_of_the_last_millisecond_there_is_none() {
        let last = (1 << 48) - 1;
        let mut state = Uuid7State(Some(LastUuid { unix_ms: last, counter: COUNTER_MAX }));
        let refused = SchemeGenerateError::TimestampOverflow {
            scheme: Scheme::Uuid7,
            now_unix_ms: last,
            ends_unix_ms: 1 << 48,
        };
        assert_eq!(state.next_with(last, 0), Err(refused));
        assert_eq!(state.next_with(last, 0), Err(refused), "nothing was used up");
    }
}
