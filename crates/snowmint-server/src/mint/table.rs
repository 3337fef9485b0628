//! The table of served namespaces, and how a connection finds a namespace in it.
//! A table never changes: a new one replaces it, and a connection notices with one load of a pointer.

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use snowmint::error::Snippet;
use snowmint_cluster::NamespaceName;

use super::error::MintError;
use super::id_pool::IdHandles;
use super::namespace::Namespace;

/// Names that an error lists before it only counts the rest.
const NAMES_SHOWN: usize = 10;

/// The namespaces that are served at one moment.
#[derive(Debug)]
pub struct NamespaceTable {
    /// Sorted, so that a name is found without hashing.
    namespaces: Box<[Arc<Namespace>]>,
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

    fn position(&self, name: &[u8]) -> Result<usize, MintError> {
        let found = self.namespaces.binary_search_by(|it| it.name().as_str().as_bytes().cmp(name));
        found.map_err(|_| self.unknown(name))
    }

    /// The error for a name that is not in the table.
    #[cold]
    pub(super) fn unknown(&self, name: &[u8]) -> MintError {
        self.unknown_among(name, |_| true)
    }

    /// The same, for a client that may know only some names.
    #[cold]
    pub(crate) fn unknown_among(&self, name: &[u8], sees: impl Fn(&[u8]) -> bool) -> MintError {
        let text = String::from_utf8_lossy(name);
        let name = Snippet::of(&text);
        if NamespaceName::new(&text).is_err() {
            return MintError::BadNamespace { name };
        }
        let names = self.namespaces.iter().map(|it| it.name().as_str());
        let names: Vec<_> = names.filter(|name| sees(name.as_bytes())).collect();
        let known = match names.len() {
            0 => "no namespace".to_owned(),
            n if n > NAMES_SHOWN => {
                format!("{} and {} more", names[..NAMES_SHOWN].join(", "), n - NAMES_SHOWN)
            }
            _ => names.join(", "),
        };
        MintError::UnknownNamespace { name, known }
    }
}

/// The state that one connection keeps between its requests.
pub struct ConnectionState {
    table: Cache<Arc<ArcSwap<NamespaceTable>>, Arc<NamespaceTable>>,
    /// The index of the namespace that the last request used.
    last: usize,
    handles: IdHandles,
}

impl fmt::Debug for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionState").field("handles", &self.handles).finish_non_exhaustive()
    }
}

impl ConnectionState {
    pub(super) fn new(table: Arc<ArcSwap<NamespaceTable>>) -> Self {
        Self { table: Cache::new(table), last: 0, handles: IdHandles::default() }
    }

    /// Finds a namespace by its name, with this connection's handles to draw ids through. Creates nothing.
    ///
    /// # Errors
    ///
    /// [`MintError::UnknownNamespace`] lists those that exist; [`MintError::BadNamespace`] if the name is invalid.
    #[inline]
    pub fn find(&mut self, name: &[u8]) -> Result<(&Arc<Namespace>, &mut IdHandles), MintError> {
        let table = self.table.load();
        let again = table.namespaces.get(self.last).is_some_and(|it| it.name().as_str().as_bytes() == name);
        if !again {
            self.last = table.position(name)?;
        }
        match table.namespaces.get(self.last) {
            Some(namespace) => Ok((namespace, &mut self.handles)),
            None => Err(table.unknown(name)),
        }
    }

    /// Returns this connection's handles.
    pub(crate) const fn handles(&mut self) -> &mut IdHandles {
        &mut self.handles
    }
}
