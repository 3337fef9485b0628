//! The table of served namespaces. It never changes: a new one replaces it.

use std::sync::Arc;

use snowmint::error::Snippet;
use snowmint_cluster::NamespaceName;

use super::error::MintError;
use super::namespace::Namespace;

/// Names that a text lists before it only counts the rest.
const NAMES_SHOWN: usize = 10;

/// The namespaces that are served at one moment.
#[derive(Debug)]
pub struct NamespaceTable {
    /// Sorted, so that a name is found without hashing.
    pub(super) namespaces: Box<[Arc<Namespace>]>,
}

impl NamespaceTable {
    pub(super) fn new(mut namespaces: Vec<Arc<Namespace>>) -> Self {
        namespaces.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        namespaces.dedup_by(|a, b| a.name() == b.name());
        Self { namespaces: namespaces.into() }
    }

    /// Returns the namespaces, sorted by name.
    pub fn namespaces(&self) -> &[Arc<Namespace>] {
        &self.namespaces
    }

    /// Returns the namespace of this name, if it is served.
    pub fn get(&self, name: &NamespaceName) -> Option<&Arc<Namespace>> {
        let found = self.namespaces.binary_search_by(|it| it.name().cmp(name));
        found.ok().map(|index| &self.namespaces[index])
    }

    /// Returns the namespace of this name.
    ///
    /// # Errors
    ///
    /// [`MintError::UnknownNamespace`] and [`MintError::BadNamespace`].
    pub fn find(&self, name: &[u8]) -> Result<&Arc<Namespace>, MintError> {
        self.position(name).map(|index| &self.namespaces[index])
    }

    pub(super) fn position(&self, name: &[u8]) -> Result<usize, MintError> {
        let found = self.namespaces.binary_search_by(|it| it.name().as_str().as_bytes().cmp(name));
        found.map_err(|_| self.unknown(name))
    }

    /// Returns the error for a name that is not in the table.
    #[cold]
    pub(super) fn unknown(&self, name: &[u8]) -> MintError {
        self.unknown_among(name, |_| true)
    }

    /// Returns the same error for a client that may know only some names.
    #[cold]
    pub(crate) fn unknown_among(&self, name: &[u8], sees: impl Fn(&[u8]) -> bool) -> MintError {
        let text = String::from_utf8_lossy(name);
        let name = Snippet::of(&text);
        if NamespaceName::new(&text).is_err() {
            return MintError::BadNamespace { name };
        }
        let names = self.namespaces.iter().map(|it| it.name().as_str());
        let names: Vec<_> = names.filter(|name| sees(name.as_bytes())).collect();
        let known = if names.is_empty() { "no namespace".to_owned() } else { some_of(names.into_iter()) };
        MintError::UnknownNamespace { name, known }
    }
}

/// Returns the first names of a list as text, and the number of the others.
pub(crate) fn some_of<'a>(mut names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let first: Vec<_> = names.by_ref().take(NAMES_SHOWN).collect();
    match names.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
