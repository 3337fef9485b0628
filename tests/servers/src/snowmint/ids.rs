//! The tests' own implementation of ids: the bits of Twitter's layout, and the check for duplicates.

use std::ops::RangeInclusive;

/// Milliseconds since 1970 of Twitter's epoch, 2010-11-04T01:42:54.657Z.
const TWITTER_EPOCH: u64 = 1_288_834_974_657;

/// Returns the time at which an id of Twitter's layout was made, in Unix milliseconds.
pub const fn unix_ms(id: u64) -> u64 {
    (id >> 22) + TWITTER_EPOCH
}

/// Returns the worker of an id of Twitter's layout.
pub const fn worker(id: u64) -> u64 {
    (id >> 12) & 31
}

/// Returns the datacenter of an id of Twitter's layout.
pub const fn datacenter(id: u64) -> u64 {
    (id >> 17) & 31
}

/// Ids from any number of sources, checked when all are collected.
#[derive(Clone, Debug, Default)]
pub struct Ids(Vec<u64>);

impl Ids {
    /// Creates an empty collection.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds ids.
    pub fn add(&mut self, ids: &[u64]) {
        self.0.extend_from_slice(ids);
    }

    /// Adds another collection.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Returns the number of ids.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no ids.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that there are no duplicates and that each id fits a signed 64-bit column.
    ///
    /// # Panics
    ///
    /// If the check fails; the message shows the first few duplicates and when they were made.
    pub fn assert_unique(self) {
        let count = self.len();
        let greatest = self.0.iter().max().copied();
        let twice = self.duplicates();
        let shown: Vec<String> = twice
            .iter()
            .take(10)
            .map(|&id| format!("{id} (at {} ms, node and sequence {:#x})", unix_ms(id), id & 0x3f_ffff))
            .collect();
        assert!(twice.is_empty(), "{} of {count} ids are duplicates: {}", twice.len(), shown.join(", "));
        assert!(greatest.is_none_or(|id| id < 1 << 63), "{greatest:?} does not fit a signed column");
    }

    /// Returns each duplicate id, once for each extra occurrence, in order.
    pub fn duplicates(mut self) -> Vec<u64> {
        // In place: twenty million ids take 160 MB.
        self.0.sort_unstable();
        self.0.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect()
    }

    /// Returns the earliest and the latest time of the ids, by Twitter's layout.
    pub fn made_within(&self) -> Option<RangeInclusive<u64>> {
        let first = self.0.iter().min()?;
        let last = self.0.iter().max()?;
        Some(unix_ms(*first)..=unix_ms(*last))
    }
}

/// Returns whether each id is greater than the one before it.
pub fn increase(ids: &[u64]) -> bool {
    ids.windows(2).all(|pair| pair[0] < pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snowmint::SplitMix64;

    /// Goal: a chaos test would find a duplicate. Method: a million unique ids from four sources, collected
    /// like those of clients; then the same with one id in two sources.
    #[test]
    fn one_duplicate_in_a_million_is_found() {
        let harvest = |planted: Option<u64>| {
            let mut all = Ids::new();
            for source in 0..4 {
                let mut random = SplitMix64::new(source);
                let mut ids = Ids::new();
                // Each number once over all sources.
                let next = |nth: u64| (nth << 24) | (random.next() & 0x3f_ffff) | (source << 22);
                ids.add(&(0..250_000).map(next).collect::<Vec<_>>());
                all.append(ids);
            }
            all.add(planted.as_slice());
            all
        };
        let victim = harvest(None).0[700_000];
        assert!(harvest(None).duplicates().is_empty());
        assert_eq!(harvest(Some(victim)).duplicates(), [victim]);
        harvest(None).assert_unique();
        let found = std::panic::catch_unwind(|| harvest(Some(victim)).assert_unique()).unwrap_err();
        let said = found.downcast::<String>().unwrap();
        assert!(
            said.contains("1 of 1000001 ids are duplicates") && said.contains(&victim.to_string()),
            "{said}"
        );
    }
}
