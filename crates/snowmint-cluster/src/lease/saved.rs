//! Saved leases: a node that restarts while the store is down resumes the lease of the previous process. This file states the
//! rule that makes this safe; `saver` writes the file and keeps it ahead of the generator.
//!
//! # The rule
//!
//! A saved lease is the right to the timestamps `[mark, until)` of one worker. The holder of the directory's lock has that right.
//! Three things keep this true at every instant, so a process may die at any time:
//!
//! - **`mark` is ahead of use.** A timestamp is used only after a file with a greater mark is on the disk. So everything that the
//!   dead process used lies below the mark, whatever its clock showed.
//! - **`until` is behind the store.** It is written only after the store has confirmed it.
//! - **The file goes first.** Before a lease is released early, its file is removed, and the removal is on the disk too.
//!
//! If the file can neither be written nor removed, ids stop at the mark. The clock of the next process decides only when it
//! reaches the mark and when it stops: a clock that went back makes it wait, and a clock that is ahead leaves it less time.
//!
//! # What could be in two places
//!
//! - **Two processes with one directory.** The second one does not get the lock. The lock ends with its process, however the
//!   process ends.
//! - **Two [`Leases`](super::Leases) in one process**, with clones of the handle, or because somebody removed the lock file. Each
//!   slot of a directory has one owner in the process.
//! - **A forked child**, which shares the lock. It saves nothing.
//! - **A copy of the directory.** The file contains the holder and the identity of the directory: the lock file's inode, which is
//!   unique in a file system, and its creation time, which no copying tool can set. A copy has another identity and is rejected.
//!   On file systems without creation times nothing is saved.
//! - **A copy of a whole disk**, started on a host of the same name. It looks like the original, and can repeat ids until the
//!   `until` in the file, for at most a window after the copy was made. Do not save leases on disks that are cloned while their
//!   nodes run.
//!
//! The directory must be on a local file system, or on one whose locks work.

mod saver;

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use snowmint::utc::Utc;

use self::saver::LeaseFile;
use super::record::WorkerPool;
use crate::lock_file::{AfterUse, LockFile};
use crate::{Holder, NamespaceName};
pub(super) use saver::Saver;

const LOCK: &str = "leases.lock";
/// The file with the namespaces that the node serves.
const SERVED: &str = "served.json";
/// All slots that have an owner in this process.
static OWNED: Mutex<BTreeSet<(DirectoryId, usize)>> = Mutex::new(BTreeSet::new());

/// A directory with the saved leases of one node, locked for this process.
///
/// A clone refers to the same lock, which is released with the last of them. One [`Leases`](super::Leases) at a time saves its
/// leases there: a second one does not start until the first has ended.
#[derive(Clone, Debug)]
pub struct SavedLeases {
    directory: Arc<LockedDirectory>,
}

#[derive(Debug)]
struct LockedDirectory {
    path: PathBuf,
    id: DirectoryId,
    /// The process that took the lock: a forked child inherits it.
    process: u32,
    /// Distinguishes this directory from a copy of it.
    identity: String,
    /// The store and whatever else a lease depends on.
    origin: String,
    _lock: LockFile,
}

/// Why a directory cannot be locked for saved leases.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedLeasesError {
    /// Another process uses it.
    #[error(
        "leases are saved in {} by another process: give each node a data directory of its own, or stop that process", .directory.display()
    )]
    InUse {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory is unusable.
    #[error("leases cannot be saved in {}", .directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        #[source]
        error: io::Error,
    },
}

/// Why leases cannot be saved in a locked directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SavedSlotError {
    /// Other [`Leases`](super::Leases) of this process are saved there, and both would use the same lease.
    #[error(
        "other leases of this process are saved in {}: use another directory, or drop those leases first", .directory.display()
    )]
    Taken {
        /// The directory.
        directory: PathBuf,
    },
    /// The parent process locked the directory before the fork, and both would use the same lease.
    #[error(
        "the parent of this process locked {} before the fork: open another directory in each process", .directory.display()
    )]
    Forked {
        /// The directory.
        directory: PathBuf,
    },
}

/// Why a saved lease is not resumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The lease has ended.
    #[error("it ended at {}", Utc(*.until_unix_ms))]
    Lapsed {
        /// The end, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The whole lease may have been used.
    #[error("all of it may have been used, up to its end at {}", Utc(*.until_unix_ms))]
    NothingLeft {
        /// The end, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The clock is far behind the used part.
    #[error(
        "timestamps up to {} may have been used, and this clock shows {}: it went back", Utc(*.mark_unix_ms), Utc(*.now_unix_ms)
    )]
    ClockBehind {
        /// The first unused instant, in unix milliseconds.
        mark_unix_ms: u64,
        /// The clock, in unix milliseconds.
        now_unix_ms: u64,
    },
    /// The lease belongs to another node, or was granted for something else.
    #[error("its {what} is {saved:?}, this node's {wanted:?}")]
    Other {
        /// What differs.
        what: &'static str,
        /// The value in the file.
        saved: String,
        /// The value of this node.
        wanted: String,
    },
    /// The directory is a copy.
    #[error("it was written in another directory, of which this is a copy: the original may be in use")]
    Copied,
    /// The file is unreadable.
    #[error("{path} cannot be read: {reason}")]
    Damaged {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
}

/// What happened to the list of namespaces that a node saves with its leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedList {
    /// It is on the disk.
    Written,
    /// It could not be written, and the last one was removed: without the store, the node serves no namespace.
    Removed,
}

impl SavedLeases {
    /// Locks a directory, and creates it if it does not exist.
    ///
    /// `origin` is a text for everything that a lease depends on: the store, without a password, and the namespaces. A lease that
    /// was saved with another text is not resumed.
    ///
    /// # Errors
    ///
    /// [`SavedLeasesError::InUse`] while another process uses it.
    pub fn open(directory: &Path, origin: &str) -> Result<Self, SavedLeasesError> {
        let failed = |error| SavedLeasesError::Directory { directory: directory.to_owned(), error };
        fs::create_dir_all(directory).map_err(failed)?;
        // The file stays: it is the identity of the directory.
        let lock = LockFile::try_take(&directory.join(LOCK), AfterUse::Keep).map_err(failed)?;
        let lock = lock.ok_or_else(|| SavedLeasesError::InUse { directory: directory.to_owned() })?;
        let identity = identity_of(lock.file()).map_err(failed)?;
        let id = DirectoryId::of(directory).map_err(failed)?;
        let (path, origin, process) = (directory.to_owned(), origin.to_owned(), std::process::id());
        Ok(Self { directory: Arc::new(LockedDirectory { path, id, process, identity, origin, _lock: lock }) })
    }

    /// Returns the end of the lease in the first slot, in unix milliseconds, if this node can resume it; `None` if none was saved.
    ///
    /// # Errors
    ///
    /// [`ResumeError`] if a lease was saved but cannot be resumed.
    pub fn usable(
        &self,
        pool: &WorkerPool,
        holder: &Holder,
        now_unix_ms: u64,
    ) -> Result<Option<u64>, ResumeError> {
        let saved = self.file(0).read(pool, holder)?;
        saved.map(|saved| saved.check(now_unix_ms).map(|()| saved.until_unix_ms)).transpose()
    }

    /// Returns the namespaces that the node may serve under a saved lease.
    ///
    /// A saved lease alone would let a node that restarts without its store serve what its flags say. But a namespace may have
    /// been dropped since, or may have another layout now, and then another node could make the same ids. Therefore the node
    /// saves the list of namespaces before it follows a change, and without the store it serves only these.
    ///
    /// It is empty if no list was saved, if the list is unreadable, or if it has another directory or [`origin`](Self::open).
    pub fn served(&self) -> BTreeSet<NamespaceName> {
        let LockedDirectory { path, identity, origin, .. } = &*self.directory;
        let read = fs::read(path.join(SERVED))
            .ok()
            .and_then(|bytes| serde_json::from_slice::<ServedWire>(&bytes).ok());
        let own = read.filter(|wire| wire.folder == *identity && wire.origin == *origin);
        let names = own.map(|wire| wire.namespaces).unwrap_or_default();
        names.iter().filter_map(|name| NamespaceName::new(name).ok()).collect()
    }

    /// Saves the namespaces that the node may serve under a saved lease. When it returns, the list is on the disk; if it could not
    /// be written, there is no list.
    ///
    /// # Errors
    ///
    /// The file system's error if the list can neither be written nor removed: the last one may still exist.
    pub fn save_served(&self, namespaces: &BTreeSet<NamespaceName>) -> io::Result<SavedList> {
        let LockedDirectory { path, identity, origin, .. } = &*self.directory;
        let namespaces = namespaces.iter().map(|name| name.as_str().to_owned()).collect();
        let wire = ServedWire { namespaces, origin: origin.clone(), folder: identity.clone() };
        let file = path.join(SERVED);
        match saver::replace(&file, &serde_json::to_vec(&wire)?) {
            Ok(()) => Ok(SavedList::Written),
            Err(_) => saver::remove(&file).map(|()| SavedList::Removed),
        }
    }

    /// Takes a slot, counted from 0, to save one of the node's leases.
    fn slot(&self, number: usize) -> Result<SlotGuard, SavedSlotError> {
        let LockedDirectory { path, id, process, .. } = &*self.directory;
        if *process != std::process::id() {
            return Err(SavedSlotError::Forked { directory: path.clone() });
        }
        SlotGuard::take(id, number).ok_or_else(|| SavedSlotError::Taken { directory: path.clone() })
    }

    /// Returns the file of a slot.
    fn file(&self, slot: usize) -> LeaseFile {
        LeaseFile::new(Arc::clone(&self.directory), slot)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServedWire {
    namespaces: BTreeSet<String>,
    origin: String,
    folder: String,
}

/// The right to save a lease in a slot of a directory, until it is dropped.
#[derive(Debug)]
struct SlotGuard((DirectoryId, usize));

impl SlotGuard {
    /// Returns `None` while the slot has another owner.
    fn take(directory: &DirectoryId, slot: usize) -> Option<Self> {
        let key = (directory.clone(), slot);
        let free = owned_slots().insert(key.clone());
        // Created only if the slot was free: dropping it would free the other owner's slot.
        free.then(|| Self(key))
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        owned_slots().remove(&self.0);
    }
}

fn owned_slots() -> MutexGuard<'static, BTreeSet<(DirectoryId, usize)>> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all paths to one directory share, through links and mounts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DirectoryId(
    /// Device and inode.
    #[cfg(unix)]
    (u64, u64),
    /// The path without links.
    #[cfg(not(unix))]
    PathBuf,
);

impl DirectoryId {
    #[cfg(unix)]
    fn of(directory: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        directory.metadata().map(|metadata| Self((metadata.dev(), metadata.ino())))
    }

    #[cfg(not(unix))]
    fn of(directory: &Path) -> io::Result<Self> {
        directory.canonicalize().map(Self)
    }
}

/// Returns the identity of a directory: its lock file's inode, unique in a file system, and the creation time, which
/// distinguishes file systems.
///
/// # Errors
///
/// Fails if the file system has no creation times: the inode alone is the same on two fresh volumes.
fn identity_of(lock: &File) -> io::Result<String> {
    let metadata = lock.metadata()?;
    identity(inode_of(&metadata), metadata.created())
}

fn identity(inode: u64, created: io::Result<SystemTime>) -> io::Result<String> {
    let since = created.and_then(|created| created.duration_since(UNIX_EPOCH).map_err(io::Error::other));
    let since = since.map_err(|error| {
        let remedy = "without the creation time of files, a copy of the directory looks like the original: choose a directory \
                      on a local disk (ext4, XFS, Btrfs)";
        io::Error::new(error.kind(), format!("{error}; {remedy}"))
    })?;
    Ok(format!("{inode}-{}", since.as_nanos()))
}

#[cfg(unix)]
fn inode_of(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

/// Other systems detect copies by the creation time alone.
#[cfg(not(unix))]
fn inode_of(_metadata: &Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn files_of_one_inode_on_two_disks_differ_by_their_creation_time() {
        let created = UNIX_EPOCH + Duration::new(1_790_000_000, 123_456_789);
        let first = identity(12, Ok(created)).unwrap();
        assert_eq!(first, "12-1790000000123456789");
        assert_eq!(first, identity(12, Ok(created)).unwrap());
        assert_ne!(first, identity(12, Ok(created + Duration::from_nanos(100))).unwrap());
        assert_ne!(first, identity(13, Ok(created)).unwrap());
    }

    /// Goal: another user can neither keep a node from starting, nor choose which file it opens.
    #[cfg(unix)]
    #[test]
    fn the_lock_is_the_owners_and_no_link() {
        use std::os::unix::fs::PermissionsExt as _;

        let (folder, linked) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let _saved = SavedLeases::open(folder.path(), "o").unwrap();
        let mode = fs::metadata(folder.path().join(LOCK)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::os::unix::fs::symlink("target", linked.path().join(LOCK)).unwrap();
        assert!(matches!(SavedLeases::open(linked.path(), "o"), Err(SavedLeasesError::Directory { .. })));
        assert!(!linked.path().join("target").exists());
    }

    #[test]
    fn a_forked_child_saves_nothing_in_its_parents_directory() {
        let folder = tempfile::tempdir().unwrap();
        let mut saved = SavedLeases::open(folder.path(), "o").unwrap();
        saved.slot(0).unwrap();
        Arc::get_mut(&mut saved.directory).unwrap().process += 1;
        let refused = saved.slot(0).unwrap_err();
        assert_eq!(refused, SavedSlotError::Forked { directory: folder.path().to_owned() });
    }

    #[test]
    fn each_slot_of_a_directory_has_one_owner_at_a_time() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let saved = SavedLeases::open(folder.path(), "o").unwrap();
        let first = saved.slot(0).unwrap();
        let taken = saved.clone().slot(0).unwrap_err();
        assert_eq!(taken, SavedSlotError::Taken { directory: folder.path().to_owned() });
        let second = saved.slot(1).unwrap();
        SavedLeases::open(other.path(), "o").unwrap().slot(0).unwrap();
        drop(first);
        saved.slot(0).unwrap();
        assert!(saved.slot(1).is_err(), "still {second:?}");
    }

    #[test]
    fn without_a_creation_time_nothing_is_saved() {
        let unknown = io::Error::new(io::ErrorKind::Unsupported, "no creation time");
        let refused = identity(12, Err(unknown)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        assert!(refused.to_string().contains("no creation time; without the creation time"), "{refused}");
        assert!(identity(12, Ok(UNIX_EPOCH - Duration::from_secs(1))).is_err());
    }

    #[test]
    fn a_lock_keeps_its_identity_and_one_made_later_has_another() {
        let folder = tempfile::tempdir().unwrap();
        let open_identity = || SavedLeases::open(folder.path(), "o").unwrap().directory.identity.clone();
        let first = open_identity();
        assert_eq!(first, open_identity());
        fs::remove_file(folder.path().join(LOCK)).unwrap();
        // Creation times have a resolution of 10 ms or better.
        std::thread::sleep(Duration::from_millis(20));
        assert_ne!(first, open_identity(), "though it may have the same inode");
    }

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
        for name in [SERVED, LOCK] {
            fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
        }
        drop(saved);
        assert_eq!(SavedLeases::open(copy.path(), "redis://r default").unwrap().served(), names(&[]));
        assert_eq!(SavedLeases::open(folder.path(), "redis://other").unwrap().served(), names(&[]));
        fs::write(folder.path().join(SERVED), "{").unwrap();
        assert_eq!(SavedLeases::open(folder.path(), "redis://r default").unwrap().served(), names(&[]));
    }

    #[test]
    fn a_list_that_cannot_be_written_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let saved = SavedLeases::open(folder.path(), "o").unwrap();
        saved.save_served(&names(&["default"])).unwrap();
        // A folder in the way of the file that is written first.
        fs::create_dir(folder.path().join("served.json.new")).unwrap();
        assert_eq!(saved.save_served(&names(&["default", "orders"])).unwrap(), SavedList::Removed);
        assert_eq!(saved.served(), names(&[]));
        fs::remove_dir(folder.path().join("served.json.new")).unwrap();
        assert_eq!(saved.save_served(&names(&["default", "orders"])).unwrap(), SavedList::Written);
        assert_eq!(saved.served(), names(&["default", "orders"]));
    }
}
