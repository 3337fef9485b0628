//! The files behind a store, as the file system sees them: who may write, and whether they are still in place.
//! Nothing here opens the file: closing it again would drop the locks that SQLite holds for this process.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The path of a store and the identity of the files that SQLite has open for it.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    watched: Vec<(PathBuf, Identity)>,
}

impl Files {
    /// Notes which files are there now. SQLite must have read the file once, so that its two companions exist; it
    /// keeps all three until the last process has closed them.
    pub(super) fn note(path: PathBuf) -> io::Result<Self> {
        // SQLite puts the companions beside the file itself, not beside a link to it.
        let real = path.canonicalize()?;
        let paths = [path.clone(), beside(&real, "-wal"), beside(&real, "-shm")];
        let watched = paths.into_iter().map(|it| identity(&it).map(|identity| (it, identity)));
        let watched = watched.collect::<io::Result<_>>()?;
        Ok(Self { path, watched })
    }

    /// As [`note`](Self::note), of a file that is only read: its companions may be missing.
    pub(super) fn note_what_is_there(path: PathBuf) -> io::Result<Self> {
        let real = path.canonicalize()?;
        let companions = [beside(&real, "-wal"), beside(&real, "-shm")].into_iter().filter(|it| it.exists());
        let watched = std::iter::once(path.clone()).chain(companions);
        let watched =
            watched.map(|it| identity(&it).map(|identity| (it, identity))).collect::<io::Result<_>>()?;
        Ok(Self { path, watched })
    }

    /// The path that was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the paths still lead to the noted files. Costs a few microseconds.
    pub(super) fn in_place(&self) -> bool {
        self.watched.iter().all(|(path, noted)| identity(path).is_ok_and(|now| now == *noted))
    }
}

/// Syncs the write-ahead log, if there is one. SQLite locks the other two files and not this one, so it may be opened.
pub(super) fn sync_log(path: &Path) -> io::Result<()> {
    match std::fs::File::open(beside(&path.canonicalize()?, "-wal")) {
        Ok(log) => log.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the length of a file that ends inside a page. With a log beside it that is the sign of a crash, which SQLite
/// repairs; without one the rest of the page is lost.
pub(super) fn cut_length(path: &Path, page_bytes: u64) -> Option<u64> {
    let real = path.canonicalize().ok()?;
    let length = real.metadata().ok()?.len();
    let log_is_empty = beside(&real, "-wal").metadata().map_or(true, |it| it.len() == 0);
    (log_is_empty && !length.is_multiple_of(page_bytes)).then_some(length)
}

/// Whether records may be in the write-ahead log rather than in the file.
pub(super) fn has_log(path: &Path) -> bool {
    path.canonicalize().and_then(|real| beside(&real, "-wal").metadata()).is_ok_and(|log| log.len() > 0)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(unix)]
use self::unix::{Identity, identity};
#[cfg(unix)]
pub(super) use self::unix::{create_folder, user, write_problem};

#[cfg(unix)]
mod unix {
    use std::fs::DirBuilder;
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    use std::path::Path;

    use rustix::fs::{Access, access};

    /// Device and inode: what a path leads to, whatever its name.
    pub(super) type Identity = (u64, u64);

    pub(super) fn identity(path: &Path) -> io::Result<Identity> {
        path.metadata().map(|it| (it.dev(), it.ino()))
    }

    /// Creates a folder and the missing ones above it, for their owner only.
    pub(in super::super) fn create_folder(folder: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)
    }

    /// Returns why this process cannot write to the file or create others beside it; `None` if it can.
    pub(in super::super) fn write_problem(path: &Path) -> Option<String> {
        let folder = path.parent()?;
        let refused =
            |it: &Path| access(it, Access::WRITE_OK).err().map(|why| format!("{}: {why}", it.display()));
        refused(folder).or_else(|| if path.exists() { refused(path) } else { None })
    }

    /// The user this process runs as.
    pub(in super::super) fn user() -> String {
        format!("uid {}", rustix::process::geteuid().as_raw())
    }
}

#[cfg(not(unix))]
use self::portable::{Identity, identity};
#[cfg(not(unix))]
pub(super) use self::portable::{create_folder, user, write_problem};

/// Windows keeps an open file in place, and refuses by itself what may not be written.
#[cfg(not(unix))]
mod portable {
    use std::io;
    use std::path::Path;

    pub(super) type Identity = ();

    pub(super) fn identity(path: &Path) -> io::Result<Identity> {
        path.metadata().map(drop)
    }

    pub(in super::super) fn create_folder(folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)
    }

    pub(in super::super) fn write_problem(_path: &Path) -> Option<String> {
        None
    }

    pub(in super::super) fn user() -> String {
        "this user".to_owned()
    }
}
