//! The admin operations of a running node: their limits, the log of refused ones, and what they may change of
//! the process.

pub(crate) mod node_admin;
pub(crate) mod refusals;

pub use node_admin::{NodeAdmin, Refresher};
