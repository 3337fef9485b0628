//! The figures of many worlds, by kind of store.
//! A kind that loses no more than its nodes were told must show no duplicate in any of its seeds.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Figures, Report, StoreProfile};

/// The sums over the seeds of one kind of store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many seeds.
    pub seeds: u64,
    /// In how many of them an id came twice or a process did not count up.
    pub broken: u64,
    /// All that happened.
    pub figures: Figures,
}

/// The sums over many worlds, by kind of store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums(BTreeMap<StoreProfile, Sum>);

impl Sums {
    /// Counts a world.
    pub fn add(&mut self, report: &Report) {
        let sum = self.0.entry(report.store).or_default();
        sum.seeds += 1;
        sum.broken += u64::from(!report.figures.promise_kept());
        sum.figures += report.figures;
    }

    /// The sum of one kind.
    pub fn of(&self, store: StoreProfile) -> Sum {
        self.0.get(&store).copied().unwrap_or_default()
    }

    /// The sum of all kinds that lose no more than their nodes were told.
    pub fn of_those_that_lose_no_more(&self) -> Sum {
        let mut all = Sum::default();
        for sum in self.0.iter().filter(|(store, _)| store.loses_no_more_than_told()).map(|(_, sum)| sum) {
            all.seeds += sum.seeds;
            all.broken += sum.broken;
            all.figures += sum.figures;
        }
        all
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} seeds, {} broken: {}", self.seeds, self.broken, self.figures)
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(store, sum)| writeln!(f, "{store}: {sum}"))?;
        write!(f, "all that lose no more than told: {}", self.of_those_that_lose_no_more())
    }
}
