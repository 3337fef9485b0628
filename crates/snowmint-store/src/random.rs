//! Random numbers for what only has to differ: steps of revisions, and waits of those that meet at one record.
//! The standard library's seed of a hash map does for both; nothing here keeps a secret.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A number from 0 up to and without `limit`, and 0 where the limit is 0.
pub(crate) fn below(limit: u64) -> u64 {
    RandomState::new().build_hasher().finish().checked_rem(limit).unwrap_or(0)
}
