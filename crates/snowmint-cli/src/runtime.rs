//! The runtime of the commands that are no services.

use tokio::runtime::{Builder, Runtime};

use crate::error::Failure;

/// Returns the runtime of a command: one thread, since commands mostly wait.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(Failure::runtime)
}
