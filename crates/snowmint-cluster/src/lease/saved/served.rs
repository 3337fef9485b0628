//! The list of namespaces that a node served under its saved leases, as the store had them when it last answered.
//!
//! A saved lease alone would let a node that restarts without its store serve what its flags say, though the namespace was
//! dropped since, or became one of another layout: another node may then make the same ids. So the list is on the disk
//! before the node follows a change, and without the store only what it names is served.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use super::file::{remove, replace};
use super::{LockedFolder, SavedLeases};
use crate::NamespaceName;

const FILE: &str = "served.json";

/// What became of the list of namespaces that a node saves with its leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedList {
    /// It is on the disk.
    Written,
    /// It could not be written, and the one before was removed: without the store the node serves nothing.
    Removed,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    namespaces: BTreeSet<String>,
    origin: String,
    folder: String,
}

impl SavedLeases {
    /// The namespaces that may be served under a saved lease: none where no list was saved, it cannot be read, or it is of
    /// another folder or [`origin`](Self::open).
    pub fn served(&self) -> BTreeSet<NamespaceName> {
        let LockedFolder { path, identity, origin, .. } = &*self.folder;
        let read =
            fs::read(path.join(FILE)).ok().and_then(|bytes| serde_json::from_slice::<Wire>(&bytes).ok());
        let own = read.filter(|wire| wire.folder == *identity && wire.origin == *origin);
        let names = own.map(|wire| wire.namespaces).unwrap_or_default();
        names.iter().filter_map(|name| NamespaceName::new(name).ok()).collect()
    }

    /// Saves the namespaces that may be served under a saved lease. Once it returns, the list is on the disk, or where it
    /// could not be written, there is none.
    ///
    /// # Errors
    ///
    /// The file system's, where the list can be neither written nor removed: the one before may still be there.
    pub fn save_served(&self, namespaces: &BTreeSet<NamespaceName>) -> io::Result<SavedList> {
        let LockedFolder { path, identity, origin, .. } = &*self.folder;
        let namespaces = namespaces.iter().map(|name| name.as_str().to_owned()).collect();
        let wire = Wire { namespaces, origin: origin.clone(), folder: identity.clone() };
        let file = path.join(FILE);
        match replace(&file, &serde_json::to_vec(&wire)?) {
            Ok(()) => Ok(SavedList::Written),
            Err(_) => remove(&file).map(|()| SavedList::Removed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<NamespaceName> {
        names.iter().map(|name| NamespaceName::new(name).unwrap()).collect()
    }

    #[test]
    fn a_list_reads_back_where_it_was_saved_and_nowhere_else() {
        let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let saved = SavedLeases::open(folder.path(), "redis://r default").unwrap();
        assert_eq!(saved.served(), names(&[]));
        saved.save_served(&names(&["default", "orders"])).unwrap();
        assert_eq!(saved.served(), names(&["default", "orders"]));
        saved.save_served(&names(&["orders"])).unwrap();
        assert_eq!(saved.served(), names(&["orders"]));
        for name in [FILE, "leases.lock"] {
            fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
        }
        drop(saved);
        assert_eq!(SavedLeases::open(copy.path(), "redis://r default").unwrap().served(), names(&[]));
        assert_eq!(SavedLeases::open(folder.path(), "redis://other").unwrap().served(), names(&[]));
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(SavedLeases::open(folder.path(), "redis://r default").unwrap().served(), names(&[]));
    }

    #[test]
    fn a_list_that_cannot_be_written_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let saved = SavedLeases::open(folder.path(), "o").unwrap();
        saved.save_served(&names(&["default"])).unwrap();
        // In the way of the file that is written first.
        fs::create_dir(folder.path().join("served.json.new")).unwrap();
        assert_eq!(saved.save_served(&names(&["default", "orders"])).unwrap(), SavedList::Removed);
        assert_eq!(saved.served(), names(&[]));
        fs::remove_dir(folder.path().join("served.json.new")).unwrap();
        assert_eq!(saved.save_served(&names(&["default", "orders"])).unwrap(), SavedList::Written);
        assert_eq!(saved.served(), names(&["default", "orders"]));
    }
}
