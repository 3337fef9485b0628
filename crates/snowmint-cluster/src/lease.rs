//! Leases of worker ids: the right to use one worker for the timestamps in `[from, until)`.
//! `protocol` decides, without I/O; `keeper` asks the store and keeps a generator under the lease.

pub mod directory;
mod keeper;
mod pool;
pub mod protocol;
mod record;

pub use keeper::{Keeper, KeeperConfig, KeeperConfigError, LeaseFailure, LeaseStatus, NoId};
pub use pool::Pool;
pub use record::{Record, RecordError, Tag};
