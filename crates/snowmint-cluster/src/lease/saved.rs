//! Leases that survive their process: a node that restarts while the store is down goes on under the one it had.
//! The rule by which that is safe stands here; `file` keeps what is written, `ahead` how far a generator may go.
//!
//! # The rule
//!
//! A saved lease is the right to the timestamps `[mark, until)` of one worker, and whoever holds the lock of the folder
//! has it. Three things make that true at every instant, so that a process may die at any of them. **`mark` is ahead of
//! use**: a timestamp is used only after a file whose mark lies above it is on the disk, so whatever the dead process
//! used lies below the mark, whatever its clock showed. **`until` is behind the store**: it is written only after the
//! store confirmed it. **The file goes first**: before a lease is given back early, its file is removed, and that is on
//! the disk too. Where the file can neither be written nor removed, ids stop at the mark. The clock of the next process
//! decides only when it reaches the mark and when it stops: stepped back, it waits; ahead, it has less left or nothing.
//!
//! # What could be in two places
//!
//! Two processes on one folder: the second does not get the lock, which ends with the process that holds it, however
//! that ends. Two keepers of one process, through clones of the handle or because somebody removed the lock file:
//! `places` gives each place of a folder one owner. A forked child, which shares the lock: it saves nothing. A copy of the folder: the file names the folder's identity (the lock file's inode, which differs within
//! one file system, and its birth, which no tool that copies files can set) and the holder; a copy has another identity
//! and is refused, and where files have no birth time nothing is saved. A copy of a whole disk, started on a host of
//! the same name, cannot be told from the original; it can repeat ids only until the `until` that it carries, so for no
//! longer than a window after it was made. Do not use saved leases where running disks are cloned. The folder must lie
//! on a local file system, or on one whose locks hold.

mod ahead;
mod file;
mod places;
mod saver;
mod served;

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use snowmint::utc::Utc;

use super::pool::Pool;
pub use places::SavedPlaceError;
pub(super) use saver::Saver;
pub use served::SavedList;

use crate::Holder;
use file::LeaseFile;
use places::{FolderId, Place};

const LOCK: &str = "leases.lock";

/// A folder in which the leases of one node are saved, locked for this process.
///
/// Cloning it gives another handle on the same lock, which is let go with the last of them. One keeper at a time saves
/// its leases there: a second one does not start, until the first has ended or was dropped.
#[derive(Clone, Debug)]
pub struct SavedLeases {
    folder: Arc<LockedFolder>,
}

#[derive(Debug)]
struct LockedFolder {
    path: PathBuf,
    id: FolderId,
    /// The process that took the lock: a forked child inherits it, too.
    process: u32,
    /// What tells this folder from a copy of it.
    identity: String,
    /// The store and whatever else a lease is void without.
    origin: String,
    _lock: File,
}

/// Why leases cannot be saved in a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedLeasesError {
    /// Another process has it.
    #[error(
        "leases are saved in {} by another process: give each node a data directory of its own, or stop that process", .folder.display()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// It cannot be used.
    #[error("leases cannot be saved in {}: {error}", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

/// Why a saved lease is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// It ended.
    #[error("it ended at {}", Utc(*.until_unix_ms))]
    Lapsed {
        /// Its end, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// All of it may have been used.
    #[error("all of it may have been used, up to its end at {}", Utc(*.until_unix_ms))]
    NothingLeft {
        /// Its end, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The clock is far behind what was used.
    #[error(
        "timestamps up to {} may have been used, and this clock shows {}: it went back", Utc(*.mark_unix_ms), Utc(*.now_unix_ms)
    )]
    ClockBehind {
        /// The first instant that was not used, in unix milliseconds.
        mark_unix_ms: u64,
        /// What the clock shows, in unix milliseconds.
        now_unix_ms: u64,
    },
    /// It is another node's, or was granted for something else.
    #[error("its {what} is {saved:?}, this node's {wanted:?}")]
    Other {
        /// What differs.
        what: &'static str,
        /// What the file says.
        saved: String,
        /// What this node has.
        wanted: String,
    },
    /// The folder is a copy.
    #[error("it was written in another folder, of which this is a copy: the original may be in use")]
    Copied,
    /// It cannot be read.
    #[error("{path} cannot be read: {reason}")]
    Damaged {
        /// The file.
        path: String,
        /// Why not.
        reason: String,
    },
}

impl SavedLeases {
    /// Locks a folder, which is created if it is not there.
    ///
    /// `origin` is what a lease is void without, as text: the store, without a password, and the namespaces. A lease that
    /// was saved under another text is not used.
    ///
    /// # Errors
    ///
    /// [`SavedLeasesError::InUse`] while another process has it.
    pub fn open(folder: &Path, origin: &str) -> Result<Self, SavedLeasesError> {
        let failed = |error| SavedLeasesError::Folder { folder: folder.to_owned(), error };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let lock = File::options().create(true).truncate(false).write(true).open(folder.join(LOCK));
        let lock = lock.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(SavedLeasesError::InUse { folder: folder.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let identity = identity_of(&lock).map_err(failed)?;
        let id = FolderId::of(folder).map_err(failed)?;
        let (path, origin, process) = (folder.to_owned(), origin.to_owned(), std::process::id());
        Ok(Self { folder: Arc::new(LockedFolder { path, id, process, identity, origin, _lock: lock }) })
    }

    /// Whether a node may go on under the lease that was saved in its first place, and until when (unix milliseconds);
    /// `None` where none was saved.
    ///
    /// # Errors
    ///
    /// [`Unusable`] says why the one that was saved is not used.
    pub fn usable(&self, pool: &Pool, holder: &Holder, now_unix_ms: u64) -> Result<Option<u64>, Unusable> {
        let saved = self.file(0).read(pool, holder)?;
        saved.map(|saved| saved.check(now_unix_ms).map(|()| saved.until_unix_ms)).transpose()
    }

    /// Makes the caller the one that saves the lease of a place, counted from 0.
    fn place(&self, place: usize) -> Result<Place, SavedPlaceError> {
        let LockedFolder { path, id, process, .. } = &*self.folder;
        if *process != std::process::id() {
            return Err(SavedPlaceError::Forked { folder: path.clone() });
        }
        Place::take(id, place).ok_or_else(|| SavedPlaceError::Taken { folder: path.clone() })
    }

    /// The file of one of the node's leases, counted from 0.
    pub(super) fn file(&self, place: usize) -> LeaseFile {
        LeaseFile::new(Arc::clone(&self.folder), place)
    }
}

/// Of two files that exist at one time, no two have the same: inodes differ within a file system, births between two.
///
/// # Errors
///
/// Where the file system does not tell a birth time: the inode alone is the same on two fresh volumes.
fn identity_of(lock: &File) -> io::Result<String> {
    let metadata = lock.metadata()?;
    identity(inode_of(&metadata), metadata.created())
}

fn identity(inode: u64, born: io::Result<SystemTime>) -> io::Result<String> {
    let since = born.and_then(|born| born.duration_since(UNIX_EPOCH).map_err(io::Error::other));
    let since = since.map_err(|error| {
        let remedy = "without the time at which a file was made, a copy of the folder cannot be told from it: choose a \
                      folder on a local disk (ext4, XFS, Btrfs)";
        io::Error::new(error.kind(), format!("{error}; {remedy}"))
    })?;
    Ok(format!("{inode}-{}", since.as_nanos()))
}

#[cfg(unix)]
fn inode_of(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

/// Elsewhere copies are told by their birth alone.
#[cfg(not(unix))]
fn inode_of(_metadata: &Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn files_of_one_inode_on_two_disks_are_told_apart_by_their_birth() {
        let born = UNIX_EPOCH + Duration::new(1_790_000_000, 123_456_789);
        let first = identity(12, Ok(born)).unwrap();
        assert_eq!(first, "12-1790000000123456789");
        assert_eq!(first, identity(12, Ok(born)).unwrap());
        assert_ne!(first, identity(12, Ok(born + Duration::from_nanos(100))).unwrap());
        assert_ne!(first, identity(13, Ok(born)).unwrap());
    }

    #[test]
    fn a_forked_child_saves_nothing_in_its_parents_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mut saved = SavedLeases::open(folder.path(), "o").unwrap();
        saved.place(0).unwrap();
        Arc::get_mut(&mut saved.folder).unwrap().process += 1;
        let refused = saved.place(0).unwrap_err();
        assert_eq!(refused, SavedPlaceError::Forked { folder: folder.path().to_owned() });
    }

    #[test]
    fn each_place_of_a_folder_has_one_owner_at_a_time() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let saved = SavedLeases::open(folder.path(), "o").unwrap();
        let first = saved.place(0).unwrap();
        let taken = saved.clone().place(0).unwrap_err();
        assert_eq!(taken, SavedPlaceError::Taken { folder: folder.path().to_owned() });
        let second = saved.place(1).unwrap();
        SavedLeases::open(other.path(), "o").unwrap().place(0).unwrap();
        drop(first);
        saved.place(0).unwrap();
        assert!(saved.place(1).is_err(), "still {second:?}");
    }

    #[test]
    fn without_a_birth_time_nothing_is_saved() {
        let untold = io::Error::new(io::ErrorKind::Unsupported, "no creation time");
        let refused = identity(12, Err(untold)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        assert!(refused.to_string().contains("no creation time; without the time"), "{refused}");
        assert!(identity(12, Ok(UNIX_EPOCH - Duration::from_secs(1))).is_err());
    }

    #[test]
    fn a_lock_keeps_its_identity_and_one_made_later_has_another() {
        let folder = tempfile::tempdir().unwrap();
        let open = || SavedLeases::open(folder.path(), "o").unwrap().folder.identity.clone();
        let first = open();
        assert_eq!(first, open());
        std::fs::remove_file(folder.path().join(LOCK)).unwrap();
        // Births are told in ticks of the system, of 10 ms at most.
        std::thread::sleep(Duration::from_millis(20));
        assert_ne!(first, open(), "though it may have the same inode");
    }
}
