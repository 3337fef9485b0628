//! Generators: a cursor, a clock and the limits of a lease.
//!
//! | type | for |
//! |---|---|
//! | [`Generator`] | any number of threads, in one order |
//! | [`OwnedGenerator`] | one owner, without atomics |
//! | [`BlockGenerator`] | a thread that makes many ids: its own blocks of a shared generator |
//! | [`GeneratorPool`] | several workers behind one interface |

mod batch;
mod blocks;
mod builder;
mod generations;
mod owned;
#[cfg(feature = "std")]
mod pool;
mod shared;

pub use batch::{Batch, IdRun};
pub use blocks::BlockGenerator;
pub use builder::{BuildError, GeneratorBuilder};
pub use owned::OwnedGenerator;
#[cfg(feature = "std")]
pub use pool::{GeneratorPool, PoolError, PoolHandle};
pub use shared::Generator;

use crate::WorkerId;

/// The right to use one worker for ids whose timestamps lie in `[from, until)`.
///
/// Leases come from a store; see the crate `snowmint-cluster`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The worker.
    pub worker: WorkerId,
    /// The first instant of the lease, in unix milliseconds.
    pub from_unix_ms: u64,
    /// The first instant after the lease, in unix milliseconds.
    pub until_unix_ms: u64,
}

/// Sleeps as long as the error advises; returns the error if waiting does not help.
#[cfg(feature = "std")]
#[cold]
fn sleep_for(error: crate::GenerateError) -> Result<(), crate::GenerateError> {
    let ms = error.retry_after_ms().ok_or(error)?;
    std::thread::sleep(core::time::Duration::from_millis(ms.get()));
    Ok(())
}
