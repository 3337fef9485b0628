//! What is counted in a world, and over many: how often each thing happened.
//! A fault that is never counted was never simulated.

use std::fmt;
use std::ops::{AddAssign, Index, IndexMut};

/// Something that is counted.
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
    /// Leases given back.
    Releases,
    /// Times no worker was free, a wanted one was taken, a clock was too far ahead or records were.
    Refusals,
    /// Outcomes that a fault on the way kept from the nodes.
    UnknownOutcomes,
    /// Writes that reached the store after their node had given up on them.
    LateWrites,
    /// Reads that showed an older state than the newest.
    StaleReads,
    /// Writes, answered with success, that the store forgot.
    ForgottenWrites,
    /// Times a node found that the store had forgotten what it had acknowledged of its lease.
    Forgotten,
    /// Leases that ended at once, since another node had been granted the same.
    Overlaps,
    /// Failures of the store itself.
    StoreFaults,
    /// Calls that found the store down.
    CallsWhileDown,
    /// Workers that an operator took away.
    Evictions,
    /// Crashes.
    Crashes,
    /// Processes that went on under the lease that the one before had saved.
    Resumed,
    /// Pauses.
    Pauses,
    /// Steps of a clock.
    Steps,
    /// Grants that reach further ahead than a clock that agrees with the store's would take them.
    FutureTaken,
    /// Ids that came twice.
    Duplicates,
    /// Ids that were not larger than the one before from the same process.
    Disorder,
}

impl Count {
    /// All that is counted, and what it is called.
    pub const ALL: [(Self, &'static str); 22] = [
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
        (Self::StoreFaults, "store faults"),
        (Self::CallsWhileDown, "calls while down"),
        (Self::Evictions, "evictions"),
        (Self::Crashes, "crashes"),
        (Self::Resumed, "resumed"),
        (Self::Pauses, "pauses"),
        (Self::Steps, "clock steps"),
        (Self::FutureTaken, "of the future"),
        (Self::Duplicates, "duplicates"),
        (Self::Disorder, "out of order"),
    ];
}

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures([u64; Count::ALL.len()]);

impl Figures {
    /// Grants, renewals, losses and releases: what changes who holds what until when.
    pub fn lease_events(&self) -> u64 {
        self[Count::Grants] + self[Count::Renewals] + self[Count::Losses] + self[Count::Releases]
    }

    /// Whether no id came twice, and each process counted up.
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
