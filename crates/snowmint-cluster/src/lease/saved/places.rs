//! Who saves a lease where: one live owner for each place of a folder, in the whole process.
//! The lock of the folder keeps other processes out; what shares the lock, or lost its file, is kept apart here.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Every place that is owned in this process.
static OWNED: Mutex<BTreeSet<(FolderId, usize)>> = Mutex::new(BTreeSet::new());

/// Why a keeper cannot save its leases in a folder that is locked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SavedPlaceError {
    /// Another keeper of this process saves leases there, and two would go on under the same lease.
    #[error(
        "another keeper of this process saves its leases in {}: give each keeper a folder of its own, or drop that one first", .folder.display()
    )]
    Taken {
        /// The folder.
        folder: PathBuf,
    },
    /// The process that forked this one locked it, and both would go on under the same lease.
    #[error(
        "{} was locked by the parent of this process, before the fork: open a folder of its own in each process", .folder.display()
    )]
    Forked {
        /// The folder.
        folder: PathBuf,
    },
}

/// What all paths to one folder have in common: links and mounts lead to the same.
#[cfg(unix)]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FolderId {
    device: u64,
    inode: u64,
}

#[cfg(unix)]
impl FolderId {
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = folder.metadata()?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// The path without links, elsewhere.
#[cfg(not(unix))]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FolderId(PathBuf);

#[cfg(not(unix))]
impl FolderId {
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        folder.canonicalize().map(Self)
    }
}

/// The right to save the lease of one place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place((FolderId, usize));

impl Place {
    /// `None` while another has it.
    pub(super) fn take(folder: &FolderId, place: usize) -> Option<Self> {
        let key = (folder.clone(), place);
        let free = owned().insert(key.clone());
        // Not made where another has it: dropped, it would take that one's right away.
        free.then(|| Self(key))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        owned().remove(&self.0);
    }
}

fn owned() -> MutexGuard<'static, BTreeSet<(FolderId, usize)>> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}
