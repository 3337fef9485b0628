//! Namespaces: named sources of ids, each with a scheme, a layout or counter, and a text form.
//!
//! The store pins each namespace to its definition, because two layouts or two counters in one namespace can
//! produce duplicates.
//!
//! | term | meaning |
//! |---|---|
//! | scheme | how ids are made: snowflake (by a layout), segment (plain numbers), or a UUID-like one |
//! | definition | scheme, settings and text form of a namespace: [`Definition`] |
//! | text form | how an id is written, such as `ORD-{date}-{number:6}`: [`TextForm`] |
//! | time zone | the zone of the dates in ids, and of the reset period: [`TimeZone`] |
//! | source | a store or foreign counter, other than the service's own store, that numbers come from: [`CounterSource`] |
//! | login | a server to which a node sends a password, by the name that sources use: [`Logins`] |
//! | hide key | the secret under which a namespace serves its ids as other numbers: [`HideKeys`] |
//! | record | a namespace as the store holds it: [`NamespaceRecord`] |
//! | registry | the records of all namespaces of a store: [`registry`] |
//!
//! | module | what it does |
//! |---|---|
//! | `definition` | checks a definition, decides which changes are safe, and parses ids |
//! | `text_form` | parses templates, writes and reads ids by them |
//! | `time_zone` | finds the rules of a zone, and tells its date |
//! | `logins` | the servers that a node trusts with secrets, and the URLs that open sources |
//! | `hide` | the keys that hide ids, and which one a namespace has |
//! | `counter_source` | parses the URLs of sources and finds two that overlap |
//! | `record` | the record in the store, and the settings that a definition is written as |
//! | `file` | the TOML file of namespaces |
//! | [`registry`] | changes records, and follows them |

mod counter_source;
mod definition;
mod file;
mod hide;
mod logins;
mod record;
pub mod registry;
mod text_form;
mod time_zone;

use std::fmt;
use std::ops::Range;

use snowmint::Layout;
use snowmint_store::Store;

pub use counter_source::{CounterSource, CounterSourceError};
pub use definition::{
    About, ChangeError, Definition, DefinitionError, InspectError, NumberSource, Scheme, SegmentScheme,
    SizeBounds, TextChangeError,
};
pub use file::{AutoCreate, NamespaceFile};
pub use hide::{Hide, HideCheck, HideCheckError, HideError, HideKeyName, HideKeyNameError, HideKeys};
pub use logins::{Logins, SourceRefusal, SourceUrl};
pub use record::{Fields, NamespaceRecord, Numbers, NumbersError, ReadText, ServedBy, Setting, SettingKind};
pub use registry::NamespaceError;
pub use text_form::{Day, TextForm, TextFormError};
pub use time_zone::{LocalClock, TimeZone, TimeZoneError, TimeZoneNameError};

/// The maximum number of namespaces in a file, and of those in a store that [every node](ServedBy::EveryNode)
/// serves.
pub const MAX_NAMESPACES: usize = 10_000;

/// Longest name, in bytes.
const MAX_LEN: usize = 64;

/// The name of a namespace: 1 to 64 letters, digits, `.`, `_`, `-` or `:`, but not `.` or `..`, which URLs
/// drop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceName(String);

/// An invalid name of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid namespace name {}: expected 1 to {MAX_LEN} letters, digits, `.`, `_`, `-` or `:`, not only `.` or `..`",
    snowmint::error::Snippet::of(.name)
)]
pub struct NamespaceNameError {
    /// The name.
    pub name: String,
}

/// An invalid text of namespaces, hide keys or logins, such as a file. It never shows a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", .line.map_or_else(String::new, |line| format!("line {line}: ")))]
pub struct ConfigTextError {
    /// The line of a file, from 1, if it is known.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl ConfigTextError {
    fn at(text: &str, span: Option<Range<usize>>, message: String) -> Self {
        let line = span.map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        Self { line, message }
    }
}

impl NamespaceName {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`NamespaceNameError`] if it is empty, too long, has other characters, or is `.` or `..`.
    pub fn new(name: &str) -> Result<Self, NamespaceNameError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-:".contains(&b);
        let is_path = matches!(name, "." | "..");
        if (1..=MAX_LEN).contains(&name.len()) && name.bytes().all(allowed) && !is_path {
            Ok(Self(name.to_owned()))
        } else {
            Err(NamespaceNameError { name: name.to_owned() })
        }
    }

    /// Returns the name.
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

/// Pins a namespace to a layout, or checks that it is pinned to this one.
///
/// Waits until the record has settled, for as long as the store [may lose](Store::may_lose) it.
///
/// # Errors
///
/// [`NamespaceError::Mismatch`] with both definitions if another layout or scheme is pinned.
pub async fn pin(store: &dyn Store, name: &NamespaceName, layout: &Layout) -> Result<(), NamespaceError> {
    loop {
        let pinned = registry::pin(store, name, &Definition::snowflake(*layout)).await?;
        match registry::settle(store, name, &pinned).await {
            // The current record decides.
            Err(NamespaceError::Unsettled { .. }) => {}
            settled => return settled,
        }
    }
}
