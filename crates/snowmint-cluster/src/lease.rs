//! Leases of worker ids: the right to use one worker for the timestamps `[from, until)`.
//!
//! | module | what it does |
//! |---|---|
//! | `leases` | [`Leases`] of a node, and the [`LeaseHandle`]s through which callers take ids |
//! | `config` | checks the settings |
//! | `scaling` | takes more leases and releases them by demand |
//! | `task` | keeps one lease: makes store calls and runs its generator |
//! | `protocol` | decides, without I/O, what to claim, renew and release |
//! | `record` | the records in the store and their keys |
//! | `saved` | leases on the disk, for restarts without the store |
//! | `status` | what a node reports about its leases |
//! | [`admin`] | lists and revokes leases, for tools |

pub mod admin;
mod config;
mod leases;
#[doc(hidden)]
pub mod protocol;
mod record;
mod saved;
mod scaling;
mod status;
mod task;

pub use config::{LeaseConfig, LeaseConfigError, WorkerCount, WorkerCountError};
pub use leases::{LeaseHandle, Leases};
#[doc(inline)]
pub use protocol::WorkerChoice;
#[doc(hidden)]
pub use record::{Block, BlockSize};
pub use record::{Granted, Record, RecordError, Tag, WorkerPool};
pub use saved::{ResumeError, SavedLeases, SavedLeasesError, SavedList, SavedSlotError};
pub use status::{LeaseError, LeaseStatus, NextIdError};
