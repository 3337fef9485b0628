//! Every id that was made, and what else happened: the evidence that a run is judged by.

use std::fmt;

use snowmint::Id;

use crate::{Count, Figures, StoreProfile};

/// Which process made an id, and when by the world's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Maker {
    /// The node.
    pub node: usize,
    /// Its process: counted up at each restart.
    pub process: u32,
    /// The world's time, in milliseconds.
    pub at_ms: u64,
}

/// An id that came twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The id.
    pub id: Id,
    /// Who made it.
    pub makers: [Maker; 2],
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The scenario's seed.
    pub seed: u64,
    /// Its kind of store.
    pub store: StoreProfile,
    /// How often what happened.
    pub figures: Figures,
    /// The first few of the ids that came twice.
    pub duplicates: Vec<Duplicate>,
    /// A hash over all that happened, in order.
    pub trace: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}, trace {:016x}", self.seed, self.figures, self.trace)?;
        for duplicate in &self.duplicates {
            write!(f, "\n  {} was made twice: {:?}", duplicate.id, duplicate.makers)?;
        }
        Ok(())
    }
}

/// Collects ids and the trace while a world runs.
#[derive(Debug, Default)]
pub(crate) struct History {
    ids: Vec<(Id, Maker)>,
    pub(crate) figures: Figures,
    trace: u64,
}

impl History {
    pub(crate) fn made(&mut self, id: Id, maker: Maker) {
        self.trace(id.get());
        self.ids.push((id, maker));
    }

    /// Mixes a number into the trace's hash.
    pub(crate) fn trace(&mut self, word: u64) {
        self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    pub(crate) fn judged(mut self, seed: u64, store: StoreProfile) -> Report {
        const SHOWN: usize = 5;
        self.ids.sort_unstable();
        self.figures[Count::Ids] = self.ids.len() as u64;
        let twice = || self.ids.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        self.figures[Count::Duplicates] = twice().count() as u64;
        let duplicates = twice()
            .take(SHOWN)
            .map(|pair| Duplicate { id: pair[0].0, makers: [pair[0].1, pair[1].1] })
            .collect();
        Report { seed, store, figures: self.figures, duplicates, trace: self.trace }
    }
}
