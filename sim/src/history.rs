//! Every id that was made, and what else happened: the evidence that a run is judged by.

use std::fmt;

use snowmint::Id;

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The scenario's seed.
    pub seed: u64,
    /// Ids made.
    pub ids: u64,
    /// Leases granted.
    pub grants: u64,
    /// Leases renewed.
    pub renewals: u64,
    /// Workers lost to another node.
    pub losses: u64,
    /// Leases given back.
    pub releases: u64,
    /// Times no worker was free, a wanted one was taken, or records were ahead.
    pub refusals: u64,
    /// Outcomes the nodes never got to know.
    pub unknown_outcomes: u64,
    /// Writes that reached the store after their node had given up on them.
    pub late_writes: u64,
    /// Crashes.
    pub crashes: u64,
    /// Pauses.
    pub pauses: u64,
    /// Steps of a clock.
    pub steps: u64,
    /// Ids that came twice; the first few.
    pub duplicates: Vec<Duplicate>,
    /// Ids that were not larger than the one before from the same process.
    pub disorder: u64,
    /// A hash over all that happened, in order.
    pub trace: u64,
}

impl Report {
    /// Grants, renewals, losses and releases: what changes who holds what until when.
    pub fn lease_events(&self) -> u64 {
        self.grants + self.renewals + self.losses + self.releases
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {} ids, {} lease events ({} grants, {} renewals, {} losses, {} releases), {} refusals, \
             {} unknown outcomes, {} late writes, {} crashes, {} pauses, {} clock steps, {} duplicates, \
             {} out of order, trace {:016x}",
            self.seed,
            self.ids,
            self.lease_events(),
            self.grants,
            self.renewals,
            self.losses,
            self.releases,
            self.refusals,
            self.unknown_outcomes,
            self.late_writes,
            self.crashes,
            self.pauses,
            self.steps,
            self.duplicates.len(),
            self.disorder,
            self.trace,
        )?;
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
    pub(crate) report: Report,
}

impl History {
    pub(crate) fn made(&mut self, id: Id, maker: Maker) {
        self.trace(id.get());
        self.ids.push((id, maker));
    }

    /// Mixes a number into the trace's hash.
    pub(crate) fn trace(&mut self, word: u64) {
        self.report.trace = (self.report.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    pub(crate) fn judged(mut self) -> Report {
        const SHOWN: usize = 5;
        self.ids.sort_unstable();
        self.report.ids = self.ids.len() as u64;
        let twice = self.ids.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        self.report.duplicates = twice
            .take(SHOWN)
            .map(|pair| Duplicate { id: pair[0].0, makers: [pair[0].1, pair[1].1] })
            .collect();
        self.report
    }
}
