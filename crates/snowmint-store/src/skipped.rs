//! What lists skip in a store: names that are no keys, and records that cannot be read. Kept for people to be told.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// How many are kept; where there are more, whoever looks after these finds the others.
const MOST: usize = 100;

/// What lists skipped since the store was opened, each once.
#[derive(Debug, Default)]
pub(crate) struct Skipped(Mutex<BTreeSet<String>>);

impl Skipped {
    /// Notes what a list skips, and why.
    pub(crate) fn note(&self, name: &str, why: &str) {
        // Each change is one insertion: a panic elsewhere leaves the set whole.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST {
            all.insert(format!("`{name}`: {why}"));
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
