//! Leases of worker ids: the right to use one worker for the timestamps in `[from, until)`.
//! `protocol` decides, without I/O; `keeper` asks the store and keeps a generator under the lease, `keepers` as many
//! as a node needs.

pub mod directory;
mod keeper;
mod keepers;
mod pool;
pub mod protocol;
mod record;
mod saved;

pub use keeper::{Keeper, KeeperConfig, KeeperConfigError, LeaseFailure, LeaseStatus, NoId};
pub use keepers::{Caller, Keepers, Workers, WorkersError};
pub use pool::Pool;
pub use record::{Record, RecordError, Tag};
pub use saved::{SavedLeases, SavedLeasesError, SavedList, SavedPlaceError, Unusable};
