//! What is built on a store: leases of worker ids, numbers in segments, and namespaces.
//!
//! A node may only use a timestamp that was granted to it beforehand. A lease is the right to use one worker
//! for ids whose timestamps lie in `[from, until)`. Leases are granted by compare-and-set on one record per
//! worker, and the ranges granted for one worker never overlap: so uniqueness depends on no clock, no time-out,
//! and not on how long a process was paused. Clocks decide only how fresh a timestamp is and whether a node can
//! go on.
//!
//! The protocol is a pure state machine, [`lease::protocol::Protocol`]: the simulation drives the very code
//! that ships. [`Keeper`] is its driver: it asks the store and keeps a generator under the lease.
//! Numbers are reserved from a counter before they are used: see [`segment`].

mod dice;
mod identity;
pub mod lease;
pub mod namespace;
mod node_clock;
pub mod segment;
mod wall_watch;

pub use identity::{Holder, HolderError, IdentityError, Ipv4Network, WorkerSource};
pub use lease::protocol::WorkerChoice;
pub use lease::{
    Caller, Keeper, KeeperConfig, KeeperConfigError, Keepers, LeaseFailure, LeaseStatus, NoId, Pool,
    SavedLeases, SavedLeasesError, SavedList, SavedPlaceError, Unusable, Workers, WorkersError,
};
pub use namespace::{NamespaceError, NamespaceName, NamespaceNameError, pin};
pub use node_clock::NodeClock;
pub use segment::{NoNumberError, SegmentConfig, SegmentConfigError, SegmentStatus, Segments};
