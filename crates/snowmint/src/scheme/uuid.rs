//! UUID v4 and v7, by the crate `uuid`; v7 with its counter, so that ids of one millisecond increase too.
//! Randomness comes from the operating system for every id.

use uuid::{Builder, ContextV7, Timestamp, Uuid, Variant};

use super::{Scheme, SchemeError, SchemeField, SchemeId, SchemeRefusal, random};

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

/// `None` where the text is no UUID at all.
pub(super) fn parse(scheme: Scheme, text: &str) -> Option<Result<SchemeId, SchemeError>> {
    let uuid = Uuid::try_parse(text).ok()?;
    let wanted = if scheme == Scheme::Uuid4 { 4 } else { 7 };
    let of_rfc = uuid.get_variant() == Variant::RFC4122;
    #[expect(clippy::cast_possible_truncation, reason = "a version has 4 bits")]
    let found = if of_rfc { uuid.get_version_num() as u8 } else { 0 };
    if found != wanted {
        return Some(Err(SchemeError::Version { scheme, found }));
    }
    Some(Ok(SchemeId { scheme, value: uuid.as_u128() }))
}

pub(super) fn next_v4() -> Result<u128, SchemeRefusal> {
    Ok(Builder::from_random_bytes(random()?).into_uuid().as_u128())
}

/// The counter of v7: 41 random bits in each new millisecond, then one more for each id; the rest is random.
#[derive(Debug)]
pub(super) struct State(ContextV7);

impl State {
    pub(super) fn new() -> Result<Self, SchemeRefusal> {
        // The crate panics without randomness: find that out here.
        random::<1>()?;
        Ok(Self(ContextV7::new()))
    }

    pub(super) fn next(&mut self, unix_ms: u64) -> Result<u128, SchemeRefusal> {
        if unix_ms >> 48 != 0 {
            return Err(SchemeRefusal::TimestampOverflow {
                scheme: Scheme::Uuid7,
                now_unix_ms: unix_ms,
                ends_unix_ms: 1 << 48,
            });
        }
        let nanos = (unix_ms % 1000) as u32 * 1_000_000;
        let timestamp = Timestamp::from_unix(&self.0, unix_ms / 1000, nanos);
        Ok(Uuid::new_v7(timestamp).as_u128())
    }
}
