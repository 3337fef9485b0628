//! How a running node runs admin operations on its store, and the log of refused requests.

pub(crate) mod node_admin;
pub(crate) mod refusals;

pub use node_admin::{NodeAdmin, Refresher};
