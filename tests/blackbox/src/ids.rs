//! What the tests know of ids by themselves: the bits of Twitter's layout, and what "no duplicates" means.

use std::ops::RangeInclusive;

/// Milliseconds since 1970 of Twitter's epoch, 2010-11-04T01:42:54.657Z.
const TWITTER_EPOCH: u64 = 1_288_834_974_657;

/// When an id of Twitter's layout was made, in unix milliseconds.
pub const fn unix_ms(id: u64) -> u64 {
    (id >> 22) + TWITTER_EPOCH
}

/// The worker of an id of Twitter's layout.
pub const fn worker(id: u64) -> u64 {
    (id >> 12) & 31
}

/// The datacenter of an id of Twitter's layout.
pub const fn datacenter(id: u64) -> u64 {
    (id >> 17) & 31
}

/// Ids from any number of sources, to be checked once all are there.
#[derive(Clone, Debug, Default)]
pub struct Ids(Vec<u64>);

impl Ids {
    /// None yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds ids.
    pub fn add(&mut self, ids: &[u64]) {
        self.0.extend_from_slice(ids);
    }

    /// Adds what another has.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that no two are equal and that each fits a signed 64-bit column.
    ///
    /// # Panics
    ///
    /// If it is not so; the message shows the first few duplicates and when and by whom they were made.
    pub fn assert_unique(mut self) {
        self.0.sort_unstable();
        let twice: Vec<u64> =
            self.0.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        let shown: Vec<String> = twice
            .iter()
            .take(10)
            .map(|&id| format!("{id} (worker {}, {} ms)", worker(id), unix_ms(id)))
            .collect();
        assert!(
            twice.is_empty(),
            "{} of {} ids are duplicates: {}",
            twice.len(),
            self.0.len(),
            shown.join(", ")
        );
        assert!(self.0.last().is_none_or(|&id| id > 0 && id < 1 << 63));
    }

    /// The first and the last instant at which they were made, by Twitter's layout.
    pub fn made_within(&self) -> Option<RangeInclusive<u64>> {
        let first = self.0.iter().min()?;
        let last = self.0.iter().max()?;
        Some(unix_ms(*first)..=unix_ms(*last))
    }
}

/// Whether each is greater than the one before it.
pub fn increase(ids: &[u64]) -> bool {
    ids.windows(2).all(|pair| pair[0] < pair[1])
}
