//! What a failed call on a store behind a network means: it may have changed a record, or it cannot have.

use std::error::Error;

use crate::StoreErrorKind;

/// Whether a failed call could have changed a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    Reads,
    Writes,
}

impl Effect {
    /// What it means that no answer came to a call that was sent.
    pub(crate) const fn lost(self) -> StoreErrorKind {
        match self {
            Self::Reads => StoreErrorKind::Unavailable,
            Self::Writes => StoreErrorKind::OutcomeUnknown,
        }
    }
}

/// An error with all its causes, on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        // Many errors repeat their cause.
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text.replace('\n', " ")
}
