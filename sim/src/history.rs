//! The history of a simulated world: every id, the counts, the report of one seed and the sums over many.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{AddAssign, Index, IndexMut};

use snowmint::Id;

use crate::StoreProfile;

/// The process that made an id, and the world's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Maker {
    /// The node.
    pub node: usize,
    /// The process of the node; the number grows at each restart.
    pub process: u32,
    /// The world's time, in milliseconds.
    pub at_ms: u64,
}

/// A duplicate id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The id.
    pub id: Id,
    /// The processes that made it.
    pub makers: [Maker; 2],
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The scenario's seed.
    pub seed: u64,
    /// Its kind of store.
    pub store: StoreProfile,
    /// Counts of everything that happened.
    pub figures: Figures,
    /// The first few duplicate ids.
    pub duplicates: Vec<Duplicate>,
    /// A hash over all events, in order.
    pub trace: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}, trace {:016x}", self.seed, self.figures, self.trace)?;
        for duplicate in &self.duplicates {
            write!(f, "\n  {} is a duplicate: {:?}", duplicate.id, duplicate.makers)?;
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

/// An event that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Ids made.
    Ids,
    /// Leases granted.
    Grants,
    /// Leases renewed.
    Renewals,
    /// Workers lost to another node, or taken away by an operator.
    Losses,
    /// Leases released.
    Releases,
    /// Times that no worker was free, a required one was taken, or a clock or records were too far ahead.
    Refusals,
    /// Outcomes that a lost or late answer hid from the nodes.
    UnknownOutcomes,
    /// Writes that reached the store after their node had given up on them.
    LateWrites,
    /// Reads that showed an older state than the newest.
    StaleReads,
    /// Writes, answered with success, that the store forgot.
    ForgottenWrites,
    /// Times that a node noticed that the store had lost an acknowledged write of its lease.
    Forgotten,
    /// Leases that ended at once, because another node had been granted the same timestamps.
    Overlaps,
    /// Leases that ended at once, because a copy of the process seemed to renew them. The simulation copies
    /// no process.
    Copies,
    /// Failures of the store itself.
    StoreFaults,
    /// Calls that found the store down.
    CallsWhileDown,
    /// Workers that an operator took away.
    Evictions,
    /// Crashes.
    Crashes,
    /// Processes that continued under the saved lease of the previous one.
    Resumed,
    /// Pauses.
    Pauses,
    /// Steps of a clock.
    Steps,
    /// Grants that reach further ahead than a grant by any clock within `max_skew` of the store's clock.
    FutureTaken,
    /// Grants in a gap below a grant to a clock that was ahead.
    GrantsInGaps,
    /// Leases in a gap that reached the next grant.
    GapEnds,
    /// Nodes without a lease at the end of a world in which nothing fails any more.
    Stranded,
    /// Ids that the client dropped, because they were of another store.
    OfAnotherStore,
    /// Duplicate ids.
    Duplicates,
    /// Ids that were not larger than the one before from the same process.
    Disorder,
}

impl Count {
    /// Every count, with its name.
    pub const ALL: [(Self, &'static str); 27] = [
        (Self::Ids, "ids"),
        (Self::Grants, "grants"),
        (Self::Renewals, "renewals"),
        (Self::Losses, "losses"),
        (Self::Releases, "releases"),
        (Self::Refusals, "refusals"),
        (Self::UnknownOutcomes, "unknown outcomes"),
        (Self::LateWrites, "late writes"),
        (Self::StaleReads, "stale reads"),
        (Self::ForgottenWrites, "forgotten writes"),
        (Self::Forgotten, "found forgotten"),
        (Self::Overlaps, "overlaps"),
        (Self::Copies, "taken for copies"),
        (Self::StoreFaults, "store faults"),
        (Self::CallsWhileDown, "calls while down"),
        (Self::Evictions, "evictions"),
        (Self::Crashes, "crashes"),
        (Self::Resumed, "resumed"),
        (Self::Pauses, "pauses"),
        (Self::Steps, "clock steps"),
        (Self::FutureTaken, "of the future"),
        (Self::GrantsInGaps, "in gaps"),
        (Self::GapEnds, "gap ends"),
        (Self::Stranded, "stranded"),
        (Self::OfAnotherStore, "of another store"),
        (Self::Duplicates, "duplicates"),
        (Self::Disorder, "out of order"),
    ];
}

/// Counts of everything that happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures([u64; Count::ALL.len()]);

impl Figures {
    /// Returns the number of grants, renewals, losses and releases: all events that change who holds which
    /// worker.
    pub fn lease_events(&self) -> u64 {
        self[Count::Grants] + self[Count::Renewals] + self[Count::Losses] + self[Count::Releases]
    }

    /// Returns whether there is no duplicate, and the ids of each process increased.
    pub fn promise_kept(&self) -> bool {
        self[Count::Duplicates] == 0 && self[Count::Disorder] == 0
    }
}

impl Index<Count> for Figures {
    type Output = u64;

    fn index(&self, count: Count) -> &u64 {
        &self.0[count as usize]
    }
}

impl IndexMut<Count> for Figures {
    fn index_mut(&mut self, count: Count) -> &mut u64 {
        &mut self.0[count as usize]
    }
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        for (sum, figure) in self.0.iter_mut().zip(other.0) {
            *sum += figure;
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lease events", self.lease_events())?;
        Count::ALL.iter().try_for_each(|(count, name)| write!(f, ", {} {name}", self[*count]))
    }
}

/// The sums over the seeds of one kind of store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of seeds.
    pub seeds: u64,
    /// Number of seeds with a duplicate id, or with ids of a process that did not increase.
    pub broken: u64,
    /// The sums of all counts.
    pub figures: Figures,
}

/// The sums over many worlds, by kind of store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums(BTreeMap<StoreProfile, Sum>);

impl Sums {
    /// Counts one world.
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

    /// Returns the sum of all kinds that lose no more than their nodes expect.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_a_place_of_its_own() {
        for (place, (count, _)) in Count::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, place);
        }
    }
}
