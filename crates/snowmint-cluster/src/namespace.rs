//! Namespaces: the names under which ids are asked for, each with its scheme, its layout or counter, and its text form.
//! Each is pinned in the store: two layouts or two counters in one namespace can produce duplicates.

mod counter_source;
mod definition;
mod record;
pub mod registry;
mod settings;
mod text_form;

use std::fmt;

use snowmint::Layout;
use snowmint_store::Store;

pub use counter_source::{CounterSource, CounterSourceError};
pub use definition::{
    ChangeError, Definition, DefinitionError, InspectError, NumberSource, Scheme, SegmentScheme, SizeBounds,
    TextChangeError,
};
pub use record::{NamespaceRecord, Numbers, NumbersError, Reach};
pub use registry::NamespaceError;
pub use settings::{AutoCreate, Fields, MAX_NAMESPACES, ModeWord, NamespaceFile, NamespaceFileError};
pub use text_form::{Day, TextForm, TextFormError};

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

/// Pins a namespace to a layout, or checks that it is pinned to this one, and waits until that has settled: for as long as the
/// store [may lose](Store::may_lose) it.
///
/// # Errors
///
/// [`NamespaceError::Mismatch`] with both texts when another layout or scheme is pinned.
pub async fn pin(store: &dyn Store, name: &NamespaceName, layout: &Layout) -> Result<(), NamespaceError> {
    loop {
        let pinned = registry::pin(store, name, &Definition::snowflake(*layout)).await?;
        match registry::settle(store, name, &pinned).await {
            // What is there now decides.
            Err(NamespaceError::Unsettled { .. }) => {}
            settled => return settled,
        }
    }
}
