//! What a node needs on top of a store to make unique ids: leases of workers, numbers in segments, and
//! namespaces.
//!
//! A node uses a timestamp only after the store has granted it. A **lease** is the right to use one worker
//! for the timestamps `[from, until)`. The store grants leases by compare-and-set on one record per worker,
//! and the leases of one worker never overlap. So uniqueness does not depend on any clock or timeout, nor on
//! how long a process was paused. Clocks decide only how fresh a timestamp is, and whether a node can
//! continue.
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
//! For production, use the URL of a store that all nodes share, and call [`Leases::release`] before the
//! process exits.
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
//! - [`Leases`] holds the leases of a node; [`LeaseHandle`] takes ids. [`lease`] lists the modules behind
//!   them.
//! - [`Segments`] hands out plain numbers, reserved before use.
//! - [`namespace`] defines, stores and checks named id sources.
//! - [`WorkerSource`] derives a fixed worker from the host.
//! - [`audit`] records who changed what in a store.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod audit;
mod fork;
mod identity;
pub mod lease;
#[doc(hidden)]
pub mod lock_file;
pub mod namespace;
mod node_clock;
pub mod segment;
mod store_calls;
#[cfg(test)]
mod test_store;

pub use identity::{Holder, HolderError, IdentityError, Ipv4Network, WorkerSource};
pub use lease::{
    LeaseConfig, LeaseConfigError, LeaseError, LeaseHandle, LeaseStatus, Leases, NextIdError, ResumeError,
    SavedLeases, SavedLeasesError, SavedList, SavedSlotError, WorkerChoice, WorkerCount, WorkerCountError,
    WorkerPool,
};
pub use namespace::{NamespaceError, NamespaceName, NamespaceNameError, pin};
pub use node_clock::NodeClock;
pub use segment::{NoNumberError, SegmentConfig, SegmentConfigError, SegmentStatus, Segments};

/// The operating system returned no random bits, which tags and seeds need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system returned no random bits")]
pub struct RandomnessError(#[source] getrandom::Error);

impl RandomnessError {
    fn of<T>(random: Result<T, getrandom::Error>) -> Result<T, Self> {
        random.map_err(Self)
    }
}

/// Compiles the example in this crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
