//! Revisions for stores that do not count writes themselves: each is a random step above the one before.
//! The step is what makes a store that forgot its latest writes tell so.

use crate::{Expected, Revision, random};

/// The most that a revision grows by; after 2^44 writes of one key there would be none left.
const STEP: u64 = 1 << 20;

/// The revisions before and after a write; before is 0 where there was no record.
///
/// A store that goes back to an older state (a failover to a copy that lags) breaks its promise. If revisions grew by
/// one, the next writer would then use the revision of a lost write anew, and whoever made that write would take the
/// record for its own. With random steps it meets a conflict, but for a chance of one in a million.
///
/// `None` for a revision that no record can have, or that none can follow.
pub(crate) fn before_and_after(expected: Expected) -> Option<(i64, i64)> {
    let before = match expected {
        Expected::Absent => 0,
        Expected::Revision(Revision(revision)) => i64::try_from(revision).ok().filter(|it| *it > 0)?,
    };
    Some((before, before.checked_add(step())?))
}

/// From the revision of a write to that of the next.
pub(crate) fn step() -> i64 {
    (random::below(STEP) + 1).cast_signed()
}

/// A revision that a store returned.
pub(crate) fn from_store(revision: i64) -> Option<Revision> {
    u64::try_from(revision).ok().filter(|it| *it > 0).map(Revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_grow_by_a_random_step() {
        let revision = |it| before_and_after(Expected::Revision(Revision(it)));
        for none in [0, i64::MAX as u64, 1 << 63, u64::MAX] {
            assert_eq!(revision(none), None, "{none}");
        }
        let after: Vec<i64> = (0..100).map(|_| revision(7).unwrap().1).collect();
        assert!(after.iter().all(|it| (8..=7 + (1 << 20)).contains(it)), "{after:?}");
        assert!(after.iter().any(|it| *it != after[0]));
        let (before, first) = before_and_after(Expected::Absent).unwrap();
        assert!(before == 0 && first > 0);
        assert_eq!(from_store(first), Some(Revision(first.cast_unsigned())));
        assert_eq!((from_store(0), from_store(-1)), (None, None));
    }
}
