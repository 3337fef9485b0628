//! What identifies an ensemble: the creation of its fence.

use std::fmt;

use super::wire::Stat;

/// Where and when a fence was created. No two ensembles have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EnsembleOrigin {
    transaction: i64,
    unix_ms: i64,
}

impl EnsembleOrigin {
    pub(super) const fn of(fence: &Stat) -> Self {
        Self { transaction: fence.czxid, unix_ms: fence.ctime }
    }
}

impl fmt::Display for EnsembleOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "created by transaction {} at {} ms", self.transaction, self.unix_ms)
    }
}
