//! A lock between processes, in a file of its own: anyone who may read a file or folder may lock it.
//!
//! Only the owner may open the file, no link is followed, and nobody waits for longer than five seconds. So
//! no other user can keep a command or a node waiting, nor choose which file is opened.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How long another process may hold a lock that is waited for. Those that are waited for are held for
/// microseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between two attempts to get the lock.
const INTERVAL: Duration = Duration::from_millis(10);
/// Number of attempts to lock a file that is not removed at the same moment.
const TRIES: u32 = 100;
/// Only the owner may open the file, so that nobody else can hold the lock.
#[cfg(unix)]
const MODE: u32 = 0o600;

/// What becomes of the file when the lock is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterUse {
    /// It stays, with its identity.
    Keep,
    /// It is removed: it would keep another user from taking the lock later.
    Remove,
}

/// A held lock.
#[derive(Debug)]
pub struct LockFile {
    file: File,
    path: PathBuf,
    after: AfterUse,
}

impl LockFile {
    /// Takes the lock; blocks the thread for up to five seconds while another process holds it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::ResourceBusy`] if another process still holds it, [`io::ErrorKind::Unsupported`] if
    /// the file system has no locks, and what is wrong if the path leads to a link or to something else than
    /// a file.
    pub fn take(path: &Path, after: AfterUse) -> io::Result<Self> {
        for _ in 0..PATIENCE.as_millis() / INTERVAL.as_millis() {
            if let Some(lock) = Self::try_take(path, after)? {
                return Ok(lock);
            }
            thread::sleep(INTERVAL);
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Takes the lock; `None` if another process holds it.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    pub fn try_take(path: &Path, after: AfterUse) -> io::Result<Option<Self>> {
        // A lock counts only if its file is still there: its last holder may have removed it.
        for _ in 0..TRIES {
            let file = open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => {
                    if after == AfterUse::Remove && error.kind() == io::ErrorKind::Unsupported {
                        // Nobody can hold a lock of it. The first error counts.
                        let _ = fs::remove_file(path);
                    }
                    return Err(error);
                }
            }
            if is_in_place(&file, path) {
                return Ok(Some(Self { file, path: path.to_owned(), after }));
            }
        }
        Ok(None)
    }

    /// Returns the locked file.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if self.after == AfterUse::Remove && is_in_place(&self.file, &self.path) {
            // A file that is left can still be locked by the same user.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};

    use rustix::fs::OFlags;

    // Without a wait for the reader of a FIFO.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(MODE).custom_flags(flags.bits().cast_signed());
    let invalid = |why: &str| io::Error::other(format!("{}: {why}", path.display()));
    let file = options.open(path).map_err(|error| match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => invalid("the lock file is a link; remove it"),
        Ok(found) if !found.is_file() => invalid("not a file, as a lock has to be; remove it"),
        _ => error,
    })?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(invalid("not a file, as a lock has to be; remove it"));
    }
    // Another user may have linked a file of ours here, whose mode would change below.
    if found.nlink() > 1 {
        return Err(invalid("the lock file has another name, by a hard link; remove it"));
    }
    if found.permissions().mode() & 0o777 != MODE {
        // Earlier versions let others open it. If another user owns it, it stays as it is.
        let _ = file.set_permissions(fs::Permissions::from_mode(MODE));
    }
    Ok(file)
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

/// Returns `true` if the path leads to the locked file.
#[cfg(unix)]
fn is_in_place(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    let identity = |file: fs::Metadata| (file.dev(), file.ino());
    let locked = file.metadata().ok().map(identity);
    locked.is_some() && fs::symlink_metadata(path).ok().map(identity) == locked
}

/// A locked file cannot be removed here.
#[cfg(not(unix))]
fn is_in_place(_: &File, _: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Goal: the lock of a removed file locks nothing: many holders have the lock one after the other.
    /// Method: each records that it has the lock, leaves the others time for a mistake, and checks that no
    /// other had it.
    #[test]
    fn one_at_a_time_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (path, holders) = (folder.path().join("lock"), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let lock = loop {
                            if let Some(lock) = LockFile::try_take(&path, AfterUse::Remove).unwrap() {
                                break lock;
                            }
                            thread::yield_now();
                        };
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                        thread::yield_now();
                        assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
                        drop(lock);
                    }
                });
            }
        });
        assert!(!path.exists());
    }

    /// Goal: nobody waits for ever, and a holder that leaves is waited for.
    #[test]
    fn a_lock_that_is_held_is_waited_for_but_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = LockFile::take(&path, AfterUse::Keep).unwrap();
        assert!(LockFile::try_take(&path, AfterUse::Keep).unwrap().is_none());
        assert_eq!(LockFile::take(&path, AfterUse::Keep).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| LockFile::take(&path, AfterUse::Remove).map(drop));
            drop(held);
            waiter.join().unwrap().unwrap();
        });
        assert!(!path.exists());
    }

    /// Goal: another user can neither hold the lock, nor choose the file, nor block the opening. Method: the
    /// file of an earlier version, links and a FIFO in its place.
    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_open_the_file_and_it_is_no_link() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("old"), "").unwrap();
        fs::set_permissions(path("old"), fs::Permissions::from_mode(0o644)).unwrap();
        for name in ["old", "new"] {
            let lock = LockFile::take(&path(name), AfterUse::Remove).unwrap();
            assert_eq!(fs::metadata(path(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
            drop(lock);
            assert!(!path(name).exists());
        }
        fs::write(path("target"), "kept").unwrap();
        fs::set_permissions(path("target"), fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink("target", path("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", path("dangling")).unwrap();
        fs::hard_link(path("target"), path("hard")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let reader = OpenOptions::new().read(true).write(true).open(path("fifo")).unwrap();
        for name in ["link", "dangling", "hard", "fifo"] {
            let error = LockFile::take(&path(name), AfterUse::Remove).unwrap_err();
            assert!(error.to_string().contains("remove it"), "{name}: {error}");
            assert!(fs::symlink_metadata(path(name)).is_ok(), "{name} is left alone");
        }
        drop(reader);
        let unread = LockFile::take(&path("fifo"), AfterUse::Remove).unwrap_err();
        assert!(unread.to_string().contains("remove it"), "{unread}");
        assert!(!path("nowhere").exists());
        assert_eq!(fs::read_to_string(path("target")).unwrap(), "kept");
        assert_eq!(fs::metadata(path("target")).unwrap().permissions().mode() & 0o777, 0o644);
    }
}
