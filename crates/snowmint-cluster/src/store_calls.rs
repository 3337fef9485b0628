//! What calls about single records have in common: errors before and after them, and the wait after a write
//! without an answer.

use std::error::Error;
use std::time::Duration;

use snowmint_store::{Store, StoreError, StoreErrorKind};

/// The wait after a write with an unknown outcome, before the record is read.
pub(crate) const BEFORE_LOOKING: Duration = Duration::from_millis(100);

/// Returns the error of a write that got no answer, and may have taken place.
pub(crate) fn unknown_outcome(store: &dyn Store, cause: String) -> StoreError {
    StoreError::new(StoreErrorKind::OutcomeUnknown, "compare_and_set", store.describe(), cause)
}

/// Returns what a later call found, without the statement that nothing was written.
pub(crate) fn cause(error: &StoreError) -> String {
    error.cause().to_string()
}

/// Returns the error of a step before a call, such as the key of a record.
pub(crate) fn before_call(
    store: &dyn Store,
    step: &'static str,
    error: impl Into<Box<dyn Error + Send + Sync>>,
) -> StoreError {
    StoreError::new(StoreErrorKind::Other, step, store.describe(), error)
}
