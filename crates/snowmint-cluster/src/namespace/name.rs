//! The name of a namespace: plain enough for a key of every store, a path of HTTP and a label of a metric.

use std::fmt;

/// Longest name, in bytes.
const MAX_LEN: usize = 64;

/// The name of a namespace: 1 to 64 letters, digits, `.`, `_`, `-` or `:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceName(String);

/// Why a text is not the name of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is not the name of a namespace: give 1 to {MAX_LEN} letters, digits, `.`, `_`, `-` or `:`", snowmint::error::Snippet::of(.name))]
pub struct NamespaceNameError {
    /// What was given.
    pub name: String,
}

impl NamespaceName {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`NamespaceNameError`] when it is empty, too long, or has other characters.
    pub fn new(name: &str) -> Result<Self, NamespaceNameError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-:".contains(&b);
        if (1..=MAX_LEN).contains(&name.len()) && name.bytes().all(allowed) {
            Ok(Self(name.to_owned()))
        } else {
            Err(NamespaceNameError { name: name.to_owned() })
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl std::str::FromStr for NamespaceName {
    type Err = NamespaceNameError;

    fn from_str(name: &str) -> Result<Self, NamespaceNameError> {
        Self::new(name)
    }
}
