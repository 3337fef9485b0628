//! The files behind a store: who may write them, and whether they are still in place.
//!
//! This code never opens the main file itself: closing it again would drop the locks that SQLite holds for
//! this process.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The path of a store and the identity of the files that SQLite has open for it.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    pub(super) watched: Vec<(PathBuf, FileIdentity)>,
}

impl Files {
    /// Records which files are there now. SQLite must have read the file once, so that its two companions
    /// exist; it keeps all three until the last process has closed them.
    pub(super) fn note(path: PathBuf) -> io::Result<Self> {
        Self::watch(path, |_| true)
    }

    /// As [`note`](Self::note), for a file that is only read: its companions may be missing.
    pub(super) fn note_what_is_there(path: PathBuf) -> io::Result<Self> {
        Self::watch(path, |companion| companion.exists())
    }

    fn watch(path: PathBuf, counts: impl Fn(&Path) -> bool) -> io::Result<Self> {
        // SQLite puts the companions beside the file itself, not beside a link to it.
        let real = path.canonicalize()?;
        let companions = [beside(&real, "-wal"), beside(&real, "-shm")].into_iter().filter(|it| counts(it));
        let watched = std::iter::once(path.clone()).chain(companions);
        let watched =
            watched.map(|it| identity(&it).map(|identity| (it, identity))).collect::<io::Result<_>>()?;
        Ok(Self { path, watched })
    }

    /// The path that was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the paths still lead to the recorded files. Costs a few microseconds.
    pub(super) fn check_in_place(&self) -> Result<(), NotInPlace> {
        for (path, noted) in &self.watched {
            match identity(path) {
                Ok(now) if now == *noted => {}
                Ok(_) => return Err(NotInPlace::Moved),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    return Err(NotInPlace::Moved);
                }
                Err(error) => return Err(NotInPlace::Unknown { path: path.clone(), error }),
            }
        }
        Ok(())
    }
}

/// Why the files of a store are not known to be those that it opened.
#[derive(Debug)]
pub(super) enum NotInPlace {
    /// Another file, or none, is in the place of one of them.
    Moved,
    /// The system does not say which file is there.
    Unknown { path: PathBuf, error: io::Error },
}

/// Syncs the write-ahead log, if there is one. SQLite locks the other two files but not this one, so it is
/// safe to open it.
pub(super) fn sync_log(path: &Path) -> io::Result<()> {
    match std::fs::File::open(beside(&path.canonicalize()?, "-wal")) {
        Ok(log) => log.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the length of a file that ends inside a page. With a log beside it that is a sign of a crash,
/// which SQLite repairs; without a log the rest of the page is lost.
pub(super) fn cut_length(path: &Path, page_bytes: u64) -> Option<u64> {
    let real = path.canonicalize().ok()?;
    let length = real.metadata().ok()?.len();
    let log_is_empty = beside(&real, "-wal").metadata().map_or(true, |it| it.len() == 0);
    (log_is_empty && !length.is_multiple_of(page_bytes)).then_some(length)
}

/// Returns whether records may be in the write-ahead log rather than in the file.
pub(super) fn has_log(path: &Path) -> bool {
    beside(&behind_links(path), "-wal").metadata().is_ok_and(|log| log.len() > 0)
}

/// Returns whether the index of the write-ahead log is missing and cannot be created, as on a read-only disk.
/// SQLite deletes it before the log, so a process that ends while it closes the file leaves the log alone.
pub(super) fn lacks_index(path: &Path) -> bool {
    let index = path.canonicalize().map(|real| beside(&real, "-shm"));
    index.is_ok_and(|index| !index.exists() && write_problem(&index).is_some())
}

/// Returns the path of the file itself, which SQLite puts the companions beside. If there is no file, follows
/// one link.
pub(super) fn behind_links(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (std::fs::read_link(path), path.parent()) {
        (Ok(target), Some(folder)) => folder.join(target),
        _ => path.to_owned(),
    }
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(unix)]
pub(super) use self::unix::*;

#[cfg(unix)]
mod unix {
    use std::fs::DirBuilder;
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    use std::path::Path;

    use rustix::fs::{Access, access};
    use rustix::io::Errno;

    /// Device and inode: the file that a path leads to, whatever its name.
    pub(in super::super) type FileIdentity = (u64, u64);

    pub(in super::super) fn identity(path: &Path) -> io::Result<FileIdentity> {
        path.metadata().map(|it| (it.dev(), it.ino()))
    }

    /// Returns the number of names (hard links) of a file.
    pub(in super::super) fn names(path: &Path) -> io::Result<u64> {
        path.metadata().map(|it| it.nlink())
    }

    /// Creates a folder and its missing parents, accessible only to their owner.
    pub(in super::super) fn create_private_folder(folder: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)
    }

    /// Returns why this process cannot write to the file or create others beside it; `None` if it can.
    pub(in super::super) fn write_problem(path: &Path) -> Option<String> {
        let folder = path.parent()?;
        let refused =
            |it: &Path| access(it, Access::WRITE_OK).err().map(|why| format!("{}: {why}", it.display()));
        refused(folder).or_else(|| if path.exists() { refused(path) } else { None })
    }

    /// Returns the owner of the file, or of its folder if there is no file, if permissions keep this process
    /// from writing and it runs as another user.
    pub(in super::super) fn owner_with_more_rights(path: &Path) -> Option<String> {
        let folder = path.parent()?;
        let target = if path.exists() { path } else { folder };
        let owner = target.metadata().ok()?.uid();
        let denied = |it: &Path| access(it, Access::WRITE_OK) == Err(Errno::ACCESS);
        let is_other = owner != rustix::process::geteuid().as_raw();
        (is_other && (denied(folder) || denied(target))).then(|| format!("uid {owner}"))
    }

    /// Returns the user that this process runs as.
    pub(in super::super) fn user() -> String {
        format!("uid {}", rustix::process::geteuid().as_raw())
    }
}

#[cfg(not(unix))]
pub(super) use self::portable::*;

/// Windows keeps an open file in place, and itself rejects writes that are not allowed.
#[cfg(not(unix))]
mod portable {
    use std::io;
    use std::path::Path;

    pub(in super::super) type FileIdentity = ();

    pub(in super::super) fn identity(path: &Path) -> io::Result<FileIdentity> {
        path.metadata().map(drop)
    }

    pub(in super::super) fn names(_path: &Path) -> io::Result<u64> {
        Ok(1)
    }

    pub(in super::super) fn create_private_folder(folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)
    }

    pub(in super::super) fn write_problem(_path: &Path) -> Option<String> {
        None
    }

    pub(in super::super) fn owner_with_more_rights(_path: &Path) -> Option<String> {
        None
    }

    pub(in super::super) fn user() -> String {
        "this user".to_owned()
    }
}
