//! Files that several commands may change at the same time, while nodes read them: tokens and hide keys.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use snowmint_cluster::lock_file::{AfterUse, LockFile};

use crate::error::Failure;

/// The users who may read a file that a command creates. An existing file keeps its permissions and its
/// owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// As the umask says.
    Umask,
    /// Only its owner.
    Owner,
}

/// Replaces a whole file: a reader sees the text before or after, and two concurrent commands lose nothing. A
/// missing file counts as empty.
///
/// # Errors
///
/// That of `edit`, or [`Failure`] if the file cannot be read or written; then it is as it was.
pub(crate) fn change<T>(
    path: &Path,
    readers: Readers,
    edit: impl FnOnce(&str) -> Result<(String, T), Failure>,
) -> Result<T, Failure> {
    // If the path is a link, it keeps pointing to the file.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let unwritable = |error: &io::Error| unwritable(path, error);
    let lock = beside(path, "lock");
    let _locked = LockFile::take(&lock, AfterUse::Remove).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => is_held(&lock),
        _ => unwritable(&error),
    })?;
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| unreadable(path, &error))?,
    };
    let (changed, outcome) = edit(&text)?;
    replace(path, readers, &changed).map_err(|error| unwritable(&error))?;
    Ok(outcome)
}

/// Returns the error for a file that cannot be read.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("--file: cannot read {}: {error}", path.display()))
}

fn is_held(lock: &Path) -> Failure {
    let lock = lock.display();
    Failure::runtime(format!(
        "--file: another process has held the lock {lock} for 5 s; nothing was changed: stop that process, or remove {lock} if \
         it is not a `snowmint` command"
    ))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "nothing was changed: free space on the disk, then retry"
        }
        _ => "check the path and who may write there",
    };
    Failure::runtime(format!("--file: cannot write {}: {error}; {advice}", path.display()))
}

/// Writes a file next to the old one, and renames it once it is on disk. If that fails, nothing is left of
/// it.
fn replace(path: &Path, readers: Readers, text: &str) -> io::Result<()> {
    let new = beside(path, "new");
    write_new(path, readers, &new, text).inspect_err(|_| {
        // The first error counts.
        let _ = fs::remove_file(&new);
    })?;
    // Sync the folder too, so that the rename is durable. Some systems cannot open a folder.
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty())
        && let Ok(folder) = File::open(folder)
    {
        folder.sync_all()?;
    }
    Ok(())
}

fn write_new(path: &Path, readers: Readers, new: &Path, text: &str) -> io::Result<()> {
    let old = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        old => Some(old?),
    };
    // A file that a crashed command left would keep its permissions, and who has it open could read the text.
    match fs::remove_file(new) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed?,
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if readers == Readers::Owner || old.is_some() {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = readers;
    let mut file = options.open(new)?;
    if let Some(old) = old {
        // A node that could no longer read the file would keep a revoked token valid.
        keep_owner(&file, &old)?;
        file.set_permissions(old.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)
}

#[cfg(unix)]
fn keep_owner(new: &File, old: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    let made = new.metadata()?;
    let other = |old: u32, made: u32| (old != made).then_some(old);
    let (owner, group) = (other(old.uid(), made.uid()), other(old.gid(), made.gid()));
    if owner.is_none() && group.is_none() {
        return Ok(());
    }
    fchown(new, owner, group).map_err(|error| {
        let (uid, gid) = (old.uid(), old.gid());
        io::Error::new(
            error.kind(),
            format!("{error}: only the owner {uid}:{gid} or root can replace this file"),
        )
    })
}

#[cfg(not(unix))]
fn keep_owner(_: &File, _: &fs::Metadata) -> io::Result<()> {
    Ok(())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a failed change leaves no file behind. Method: the path is a folder, so that the rename fails.
    #[test]
    fn a_failed_change_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, Readers::Umask, "text").is_err());
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, ["tokens.toml"]);
    }

    /// Goal: no other user can block a change or choose what is written. Method: a lock that is held, a link
    /// and a FIFO in the place of the lock file.
    #[cfg(unix)]
    #[test]
    fn a_change_waits_for_no_other_user() {
        let folder = tempfile::tempdir().unwrap();
        let (path, lock) = (folder.path().join("tokens.toml"), folder.path().join("tokens.toml.lock"));
        let target = folder.path().join("target");
        let change = || change(&path, Readers::Umask, |_| Ok(("new".to_owned(), ())));
        let held = File::create(&lock).unwrap();
        held.lock().unwrap();
        let error = change().unwrap_err().to_string();
        assert!(error.contains("another process has held the lock") && error.contains(".lock"), "{error}");
        drop(held);
        fs::remove_file(&lock).unwrap();
        fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &lock).unwrap();
        let error = change().unwrap_err().to_string();
        assert!(error.contains("the lock file is a link"), "{error}");
        assert!(!path.exists());
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        fs::remove_file(&lock).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&lock).status().unwrap().success());
        let error = change().unwrap_err().to_string();
        assert!(error.contains("not a file, as a lock has to be"), "{error}");
        fs::remove_file(&lock).unwrap();
        change().unwrap();
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["target", "tokens.toml"], "the lock is removed");
    }

    #[test]
    fn a_full_disk_is_not_blamed_on_rights() {
        let why = |kind: io::ErrorKind| unwritable(Path::new("t"), &kind.into()).to_string();
        let full = why(io::ErrorKind::StorageFull);
        assert!(full.contains("free space on the disk") && !full.contains("who may write"), "{full}");
        let denied = why(io::ErrorKind::PermissionDenied);
        assert!(denied.contains("check the path and who may write there"), "{denied}");
    }
}
