//! What operators do with a store of Snowmint: namespaces, workers, checks, recovery and the audit log.
//!
//! The command line runs these operations on a store that it opens itself; the admin API of a node runs them
//! on the node's store. Both have the same inputs, results and errors.
//!
//! This crate has no stable interface: any version may change it. Use the command or the admin API.

#[cfg(test)]
mod altered_store;
pub mod audit;
pub mod clock_offset;
pub mod doctor;
mod error;
pub mod format;
pub mod limits;
pub mod namespaces;
pub mod nearest;
pub mod node;
pub mod node_reports;
pub mod operations;
pub mod recovery;
mod settled_store;
pub mod url_without_credentials;
pub mod workers;

pub use audit::Author;
pub use error::{AdminError, AdminErrorKind};
pub use settled_store::SettledStore;

use snowmint_store::Store;

/// Returns a warning for each record that the store skipped in its lists.
pub fn warnings_of_skipped(store: &dyn Store) -> Vec<String> {
    store.skipped().into_iter().map(|what| format!("skipped {what}")).collect()
}
