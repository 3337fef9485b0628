//! ULID, by the crate `ulid`: 48 bits of milliseconds and 80 random bits, which grow by 1 within a
//! millisecond. The crate's own generator does not fit: it reads the clock itself, and its randomness repeats
//! in a forked child.

use ulid::Ulid;

use super::{Scheme, SchemeField, SchemeGenerateError, SchemeId, random};

pub(super) const FIELDS: &[SchemeField] =
    &[SchemeField::number("timestamp", 80, 48), SchemeField::random("random", 0, 80)];

pub(super) fn parse(text: &str) -> Option<SchemeId> {
    // 26 digits hold 130 bits, and the crate drops the top two.
    let fits = text.as_bytes().first().is_some_and(|byte| matches!(byte, b'0'..=b'7'));
    let ulid = Ulid::from_string(text).ok().filter(|_| fits)?;
    Some(SchemeId { scheme: Scheme::Ulid, value: ulid.0 })
}

/// The last ULID.
///
/// # Source
///
/// ulid/spec, "Monotonicity". A clock that goes back counts as the same millisecond.
#[derive(Debug)]
pub(super) struct UlidState(Option<Ulid>);

impl UlidState {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    pub(super) fn next(&mut self, unix_ms: u64) -> Result<u128, SchemeGenerateError> {
        if unix_ms >> 48 != 0 {
            return Err(SchemeGenerateError::TimestampOverflow {
                scheme: Scheme::Ulid,
                now_unix_ms: unix_ms,
                ends_unix_ms: 1 << 48,
            });
        }
        let next = match self.0 {
            Some(last) if last.timestamp_ms() >= unix_ms => {
                last.increment().map_err(|_| SchemeGenerateError::Exhausted)?
            }
            _ => Ulid::from_parts(unix_ms, u128::from_be_bytes(random()?)),
        };
        self.0 = Some(next);
        Ok(next.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "a minute of JSON")]
    fn every_ulid_monotonic_next_case() {
        let all: Vec<serde_json::Value> =
            serde_json::from_str(include_str!("../../tests/vectors.json")).unwrap();
        let cases: Vec<_> = all.iter().filter(|case| case["kind"] == "ulid-monotonic-next").collect();
        assert_eq!(cases.len(), 2);
        for case in cases {
            let last = parse(case["id"].as_str().unwrap()).unwrap();
            let mut state = UlidState(Some(Ulid(last.value)));
            let next = state.next(last.unix_ms().unwrap());
            match case["expected"]["next_same_ms"].as_str() {
                Some(text) => assert_eq!(next, Ok(parse(text).unwrap().value)),
                None => assert_eq!(next, Err(SchemeGenerateError::Exhausted)),
            }
        }
    }

    #[test]
    fn a_new_millisecond_has_new_random_bits() {
        let mut state = UlidState::new();
        let (one, other) = (state.next(1).unwrap(), state.next(2).unwrap());
        assert_ne!(one & u128::from(u64::MAX), other & u128::from(u64::MAX));
    }
}
