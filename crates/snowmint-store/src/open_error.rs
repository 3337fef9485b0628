//! Why a store did not open: an invalid URL, or a failed call.

use std::fmt;

use crate::url_scheme::StoreScheme;
use crate::{StoreError, StoreId};

/// The reason why [`open`](crate::open) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is invalid: a mistake in the settings.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The URL is valid, and the store could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store was opened, and is not the one that [`open_expecting`](crate::open_expecting) was to open.
    #[error("{store} is another store: its identity is {}, expected {expected}", ShownIdentity(*.found))]
    AnotherStore {
        /// The store, as [`Store::describe`](crate::Store::describe) names it.
        store: String,
        /// The expected identity.
        expected: StoreId,
        /// Its identity; `None` for a store that was never used.
        found: Option<StoreId>,
    },
}

/// Displays the identity of a store, which it may lack.
struct ShownIdentity(Option<StoreId>);

impl fmt::Display for ShownIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => id.fmt(f),
            None => f.write_str("missing"),
        }
    }
}

impl OpenError {
    /// Returns whether the same call may succeed later without an operator. False for an invalid URL and for
    /// another store than the expected one.
    pub const fn is_temporary(&self) -> bool {
        match self {
            Self::Url(_) | Self::AnotherStore { .. } => false,
            Self::Store(error) => error.is_temporary(),
        }
    }
}

/// The error in the URL of a store. No variant contains a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// There is no `:` and so no scheme.
    #[error("invalid store `{text}`: expected one of {}; for a file, use sqlite:{text}", BuiltForms)]
    NoScheme {
        /// The whole text.
        text: String,
    },
    /// This build has no store with that scheme.
    #[error("unknown store `{scheme}:`: this build has {}", BuiltForms)]
    UnknownScheme {
        /// The text before the first `:`.
        scheme: String,
    },
    /// This build has no counter of that kind.
    #[error("unknown counter `{source_name}:`: this build has {known}")]
    UnknownCounter {
        /// The text before the first `:`.
        source_name: String,
        /// The forms that this build accepts.
        known: String,
    },
    /// `sqlite:` alone.
    #[error("sqlite: missing path: expected a file, such as sqlite:/var/lib/snowmint/leases.db")]
    NoPath,
    /// `sqlite::memory:`.
    #[error("sqlite::memory: keeps nothing after the process ends; use memory: if that is intended")]
    SqliteInMemory,
    /// A `?` in the path of a file.
    #[error(
        "sqlite: invalid path `{path}`: expected a path without parameters; remove the `?` and the text after it"
    )]
    Parameters {
        /// The text after the scheme.
        path: String,
    },
    /// The file of `password_file` contains no password.
    #[error("password_file {path}: {problem}")]
    PasswordFile {
        /// The file.
        path: String,
        /// What is wrong with it, without its content.
        problem: String,
    },
    /// A part of the URL of a store on the network is missing, invalid or unknown.
    #[error("{scheme}: {problem}")]
    Malformed {
        /// The text before the first `:`.
        scheme: String,
        /// What is wrong and what is expected, without anything that may be a password.
        problem: String,
    },
    /// Text after `memory:`.
    #[error("invalid store `memory:{rest}`: expected memory: alone")]
    MemoryTakesNothing {
        /// The text after it.
        rest: String,
    },
}

/// Displays the URL forms that this build accepts.
struct BuiltForms;

impl fmt::Display for BuiltForms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let built = StoreScheme::ALL.into_iter().filter(|scheme| scheme.is_built());
        let forms: Vec<&str> = built.map(StoreScheme::form).collect();
        f.write_str(&if forms.is_empty() { "none".to_owned() } else { forms.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreErrorKind;

    #[test]
    fn an_invalid_url_is_never_temporary() {
        let store = |kind| OpenError::from(StoreError::new(kind, "open", "redis://h", "why"));
        assert!(store(StoreErrorKind::Unavailable).is_temporary());
        assert!(!store(StoreErrorKind::ReadOnly).is_temporary());
        assert!(!OpenError::from(UrlError::NoPath).is_temporary());
    }
}
