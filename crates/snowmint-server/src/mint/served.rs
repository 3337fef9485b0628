//! The namespaces that are served at one moment, sorted by name: replaced as a whole, never changed.

use std::sync::Arc;

use snowmint::error::Snippet;
use snowmint_cluster::NamespaceName;

use super::error::MintError;
use super::namespace::Namespace;

/// Names that an error lists before it says how many more there are.
const NAMES_SHOWN: usize = 10;

/// The namespaces that are served.
#[derive(Debug)]
pub struct Served {
    /// Sorted, so that a name is found without hashing.
    pub(super) namespaces: Box<[Arc<Namespace>]>,
}

impl Served {
    pub(super) fn new(mut namespaces: Vec<Arc<Namespace>>) -> Self {
        namespaces.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        namespaces.dedup_by(|a, b| a.name() == b.name());
        Self { namespaces: namespaces.into() }
    }

    /// The namespaces, sorted by name.
    pub fn namespaces(&self) -> &[Arc<Namespace>] {
        &self.namespaces
    }

    pub(super) fn position(&self, name: &[u8]) -> Result<usize, MintError> {
        let found = self.namespaces.binary_search_by(|it| it.name().as_str().as_bytes().cmp(name));
        found.map_err(|_| self.unknown(name))
    }

    #[cold]
    pub(super) fn unknown(&self, name: &[u8]) -> MintError {
        let text = String::from_utf8_lossy(name);
        let name = Snippet::of(&text);
        if NamespaceName::new(&text).is_err() {
            return MintError::BadNamespace { name };
        }
        let shown: Vec<_> = self.namespaces.iter().take(NAMES_SHOWN).map(|it| it.name().as_str()).collect();
        let known = match self.namespaces.len() {
            0 => "none".to_owned(),
            n if n > NAMES_SHOWN => format!("{} and {} more", shown.join(", "), n - NAMES_SHOWN),
            _ => shown.join(", "),
        };
        MintError::UnknownNamespace { name, known }
    }
}
