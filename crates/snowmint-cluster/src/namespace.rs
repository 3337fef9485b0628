//! Namespaces: the names under which ids are asked for, each pinned in the store to its scheme and layout.
//! Two layouts in one namespace can make equal ids, so a node that would mint there with another is refused.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snowmint::Layout;
use snowmint_store::{Expected, Key, Store, StoreError, StoreErrorKind, Swap};

/// Longest name, in bytes.
const MAX_LEN: usize = 64;

/// The name of a namespace: 1 to 64 letters, digits, `.`, `_` or `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceName(String);

/// Why a text is not the name of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is not the name of a namespace: give 1 to {MAX_LEN} letters, digits, `.`, `_` or `-`", snowmint::Snippet::of(.name))]
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
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
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
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for NamespaceName {
    type Err = NamespaceNameError;

    fn from_str(name: &str) -> Result<Self, NamespaceNameError> {
        Self::new(name)
    }
}

/// After a write whose outcome is unknown.
const BEFORE_LOOKING: Duration = Duration::from_millis(100);

/// What a namespace's record holds.
#[derive(Serialize, Deserialize)]
struct Pin {
    scheme: String,
    layout: String,
}

impl Pin {
    fn text(&self) -> String {
        format!("{} {}", self.scheme, self.layout)
    }
}

const SNOWFLAKE: &str = "snowflake";

/// Why a node may not mint in a namespace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The store's record carries another scheme or layout.
    #[error(
        "namespace {name} is pinned to `{pinned}`, this node would mint `{wanted}`: ids of two layouts in one \
         namespace can be equal; start with the pinned layout, or take a new namespace"
    )]
    Mismatch {
        /// The namespace.
        name: NamespaceName,
        /// What the store says.
        pinned: String,
        /// What this node would do.
        wanted: String,
    },
    /// The store's record cannot be read.
    #[error("the record of namespace {name} in {store} cannot be read: {reason}")]
    Unreadable {
        /// The namespace.
        name: NamespaceName,
        /// The store.
        store: String,
        /// Why not.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Every namespace that a store pins, with its scheme and layout as text; `None` where the record cannot be read.
///
/// # Errors
///
/// The store's.
pub async fn pins(store: &dyn Store) -> Result<Vec<(String, Option<String>)>, StoreError> {
    let records = store.list("namespaces/").await?;
    let pin = |value: &[u8]| serde_json::from_slice::<Pin>(value).ok().map(|pin| pin.text());
    let named = records.into_iter().filter_map(|(key, value)| {
        let name = key.as_str().strip_prefix("namespaces/")?.to_owned();
        Some((name, pin(&value.value)))
    });
    Ok(named.collect())
}

/// Pins a namespace to a layout, or checks that it is pinned to this one.
///
/// # Errors
///
/// [`PinError::Mismatch`] with both texts when another layout is pinned.
pub async fn pin(store: &dyn Store, name: &NamespaceName, layout: &Layout) -> Result<(), PinError> {
    // A name has only characters that a key may have, and is shorter.
    let key = Key::new(format!("namespaces/{name}")).map_err(|error| PinError::Unreadable {
        name: name.clone(),
        store: store.describe(),
        reason: error.to_string(),
    })?;
    let wanted = Pin { scheme: SNOWFLAKE.to_owned(), layout: layout.to_string() };
    loop {
        if let Some(record) = store.load(&key).await? {
            return check(name, &wanted, &record.value, store);
        }
        let value = serde_json::to_vec(&wanted).map_err(|error| PinError::Unreadable {
            name: name.clone(),
            store: store.describe(),
            reason: error.to_string(),
        })?;
        match store.compare_and_set(&key, Expected::Absent, &value).await {
            Ok(Swap::Done(_)) => return Ok(()),
            // Another node was first: what is there now decides.
            Ok(Swap::Conflict) => {}
            // The write may have happened, or may yet.
            Err(error) if error.kind() == StoreErrorKind::OutcomeUnknown => {
                tokio::time::sleep(BEFORE_LOOKING).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn check(name: &NamespaceName, wanted: &Pin, value: &[u8], store: &dyn Store) -> Result<(), PinError> {
    let pinned: Pin = serde_json::from_slice(value).map_err(|error| PinError::Unreadable {
        name: name.clone(),
        store: store.describe(),
        reason: error.to_string(),
    })?;
    // Compared as layouts, so that a later version may print the same one differently.
    let same = pinned.scheme == wanted.scheme
        && (pinned.layout == wanted.layout
            || matches!((pinned.layout.parse::<Layout>(), wanted.layout.parse::<Layout>()), (Ok(a), Ok(b)) if a == b));
    if same {
        return Ok(());
    }
    Err(PinError::Mismatch { name: name.clone(), pinned: pinned.text(), wanted: wanted.text() })
}
