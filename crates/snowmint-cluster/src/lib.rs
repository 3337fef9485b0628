//! What a node needs on top of a store to make unique ids: leases of workers, numbers in segments, and namespaces.
//!
//! A node uses a timestamp only after the store has granted it. A **lease** is the right to use one worker for the timestamps
//! `[from, until)`. The store grants leases by compare-and-set on one record per worker, and the leases of one worker never
//! overlap. So uniqueness does not depend on any clock or timeout, nor on how long a process was paused. Clocks decide only how
//! fresh a timestamp is, and whether a node can continue.
//!
//! # From a store's URL to an id
//!
//! ```
//! use snowmint::Layout;
//! use snowmint_cluster::{Holder, LeaseConfig, Leases};
//! # use std::time::Duration;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let store = snowmint_store::open("memory:").await?;
//! let leases = Leases::start(store, LeaseConfig::new(Layout::TWITTER, Holder::of_this_host("8080")))?;
//! leases.ready().await?;
//!
//! let mut handle = leases.handle(); // one for each connection or thread
//! let id = handle.next_id().await?;
//! # assert!(handle.next_id().await? > id);
//! # leases.release(Duration::from_secs(1)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! For production, use the URL of a store that all nodes share, and call [`Leases::release`] before the process exits.
//!
//! # Terms
//!
//! | term | meaning |
//! |---|---|
//! | worker | the number in an id that distinguishes generators |
//! | pool | the workers of one layout in one datacenter: [`WorkerPool`] |
//! | holder | the name under which a node holds a lease: [`Holder`] |
//! | grant | a claim or a renewal that the store has acknowledged |
//! | claim | the first grant of a lease; later grants are renewals |
//! | window | how far ahead of the clock a grant reaches |
//! | settle | over a store that may lose its newest writes: to be old enough that no failover can lose it |
//! | saved lease | a lease on the node's disk, for a restart without the store: [`SavedLeases`] |
//! | segment | a range of plain numbers, reserved from a counter in the store: [`segment`] |
//! | namespace | a named source of ids with its own scheme and layout: [`namespace`] |
//! | audit log | who changed what in a store, when and from where: [`audit`] |
//!
//! # Where to look
//!
//! - [`Leases`] holds the leases of a node; [`LeaseHandle`] takes ids. [`lease`] lists the modules behind them.
//! - [`Segments`] hands out plain numbers, reserved before use.
//! - [`namespace`] defines, stores and checks named id sources.
//! - [`WorkerSource`] derives a fixed worker from the host.
//! - [`audit`] records who changed what in a store.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod audit;
mod fork;
mod identity;
pub mod lease;
#[cfg(test)]
mod lost_answers;
pub mod namespace;
mod node_clock;
pub mod segment;

pub use identity::{Holder, HolderError, IdentityError, Ipv4Network, WorkerSource};
pub use lease::{
    LeaseConfig, LeaseConfigError, LeaseError, LeaseHandle, LeaseStatus, Leases, NextIdError, ResumeError,
    SavedLeases, SavedLeasesError, SavedList, SavedSlotError, WorkerChoice, WorkerCount, WorkerCountError,
    WorkerPool,
};
pub use namespace::{NamespaceError, NamespaceName, NamespaceNameError, pin};
pub use node_clock::NodeClock;
pub use segment::{NoNumberError, SegmentConfig, SegmentConfigError, SegmentStatus, Segments};

/// Compiles the example in this crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// A sequence of random numbers derived from a seed, for choices that no promise depends on: what to try first, and how long to
/// wait.
///
/// The lease and segment protocols share it. Tags and keys take their random numbers from the operating system.
///
/// # Source
///
/// `SplitMix64`: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number below `bound`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference_implementation() {
        // The first outputs for seed 0 of Sebastiano Vigna's `splitmix64.c`: their upper half.
        let mut random = SplitMix64::of(0);
        for upper in [0xe220_a839, 0x6e78_9e6a, 0x06c4_5d18] {
            assert_eq!(random.below(u64::MAX) >> 32, upper);
        }
    }
}
