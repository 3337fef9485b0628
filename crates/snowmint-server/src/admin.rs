//! The operations of operators on a store: namespaces, workers and checks.
//!
//! The command line runs them on a store that it opens itself; the admin API of a node runs them on the node's store. Both have
//! the same inputs, results and errors.

pub mod audit;
mod check_sources;
pub(crate) mod clock_offset;
pub mod doctor;
mod error;
pub mod format;
pub mod namespaces;
pub(crate) mod node_admin;
pub mod node_reports;
pub mod recovery;
pub(crate) mod refusals;
mod settled_store;
pub mod workers;

pub use audit::Author;
pub use error::AdminError;
pub use node_admin::{NodeAdmin, Refresher};
pub use settled_store::SettledStore;

use snowmint_store::Store;

/// The log of a process. Operators change its level while the process runs.
pub trait LogControl: Send + Sync {
    /// Returns the number of lines that were dropped since the start, because nobody read the log in time.
    fn lines_dropped(&self) -> u64;

    /// Returns the level in use.
    fn level(&self) -> String;

    /// Returns the level that the process was configured with.
    fn configured(&self) -> String;

    /// Changes the level; `None` restores the configured one.
    ///
    /// # Errors
    ///
    /// What is wrong with the level, and what is allowed.
    fn set(&self, level: Option<&str>) -> Result<(), String>;
}

/// Returns a warning for each record that the store skipped in its lists.
pub fn warnings_of_skipped(store: &dyn Store) -> Vec<String> {
    store.skipped().into_iter().map(|what| format!("skipped {what}")).collect()
}
