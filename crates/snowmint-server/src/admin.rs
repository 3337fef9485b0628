//! The admin operations of a running node: their limits, the log of refused ones, and what they may change of the process.

pub(crate) mod node_admin;
pub(crate) mod refusals;

pub use node_admin::{NodeAdmin, Refresher};

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
