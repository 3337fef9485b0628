//! Files that are read again when they change: TLS files and the tokens file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::sleep;

/// Interval between two checks of the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Files that belong together, as they were when they were read first.
#[derive(Debug)]
pub(crate) struct WatchedFiles {
    paths: Vec<PathBuf>,
    /// The stamp before the files were read: they may change before the first check.
    first: Stamp,
}

/// Identifies a version of the files: the times of the last changes of content and of owner or mode, and the
/// length.
type Stamp = Vec<Option<(SystemTime, i64, u64)>>;

impl WatchedFiles {
    /// Records the state of the files; call it before they are read.
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        let first = stamp_of_all(&paths);
        Self { paths, first }
    }

    /// Reads the files by `read` at each `reload` and when they change; never ends.
    ///
    /// After a failure it reads them again every few seconds, since a disk may have failed for a moment. It
    /// calls `report` for each error once, and after each `reload`.
    pub(crate) async fn follow<F: Future<Output = Result<(), String>>>(
        &self,
        reload: &Notify,
        mut read: impl FnMut() -> F,
        report: impl Fn(&str),
    ) -> ! {
        let (mut changes, mut reported) = (self.changes(), None);
        loop {
            let asked = changes.next(reload).await == Cause::Asked;
            match read().await {
                Ok(()) => reported = None,
                Err(error) => {
                    changes.failed = true;
                    if asked || reported.as_ref() != Some(&error) {
                        report(&error);
                        reported = Some(error);
                    }
                }
            }
        }
    }

    /// Returns the changes from now on.
    fn changes(&self) -> Changes<'_> {
        Changes { files: self, loaded: self.first.clone(), seen: self.first.clone(), failed: false }
    }

    async fn stamp(&self) -> Stamp {
        let paths = self.paths.clone();
        // A failure counts as a change, which is checked again.
        tokio::task::spawn_blocking(move || stamp_of_all(&paths)).await.unwrap_or_default()
    }
}

/// The changes of files, one after the other.
#[derive(Debug)]
struct Changes<'a> {
    files: &'a WatchedFiles,
    loaded: Stamp,
    seen: Stamp,
    failed: bool,
}

impl Changes<'_> {
    /// Returns when and why the files should be read again.
    async fn next(&mut self, reload: &Notify) -> Cause {
        loop {
            let asked = tokio::select! {
                () = reload.notified() => true,
                () = sleep(LOOK_INTERVAL) => false,
            };
            let now = self.files.stamp().await;
            // Files are replaced one after the other: all are complete once nothing changes between two
            // checks.
            let settled = now == self.seen;
            self.seen.clone_from(&now);
            if asked || (settled && (self.failed || now != self.loaded)) {
                self.loaded = now;
                self.failed = false;
                return if asked { Cause::Asked } else { Cause::Changed };
            }
        }
    }
}

/// Why files are read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// An operator asked for it.
    Asked,
    /// They have changed, or could not be read before.
    Changed,
}

fn stamp_of_all(paths: &[PathBuf]) -> Stamp {
    paths.iter().map(|path| stamp_of(path).ok()).collect()
}

fn stamp_of(path: &Path) -> io::Result<(SystemTime, i64, u64)> {
    let file = fs::metadata(path)?;
    #[cfg(unix)]
    let changed = {
        use std::os::unix::fs::MetadataExt as _;
        file.ctime().wrapping_mul(1_000_000_000).wrapping_add(file.ctime_nsec())
    };
    #[cfg(not(unix))]
    let changed = 0;
    Ok((file.modified()?, changed, file.len()))
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Goal: a file that could not be read is read again, even if it does not change, and each error is
    /// reported once; one that was read is left alone. Method: the first three reads fail, the last of them
    /// with another error.
    #[tokio::test(start_paused = true)]
    async fn a_file_that_could_not_be_read_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        fs::write(&path, "first").unwrap();
        let files = WatchedFiles::new(vec![path.clone()]);
        fs::write(&path, "longer than the first").unwrap();
        let (reads, reported, nobody) = (Cell::new(0), RefCell::new(Vec::new()), Notify::new());
        let read = || async {
            reads.set(reads.get() + 1);
            match reads.get() {
                1 | 2 => Err("slow disk".to_owned()),
                3 => Err("no disk".to_owned()),
                _ => Ok(()),
            }
        };
        let following = files.follow(&nobody, read, |error| reported.borrow_mut().push(error.to_owned()));
        assert!(tokio::time::timeout(100 * LOOK_INTERVAL, following).await.is_err());
        assert_eq!(reads.get(), 4);
        assert_eq!(*reported.borrow(), ["slow disk", "no disk"]);
    }

    /// Goal: an operator who asks for a reload learns of an error that was reported before.
    #[tokio::test(start_paused = true)]
    async fn each_reload_that_was_asked_for_is_reported() {
        let files = WatchedFiles::new(Vec::new());
        let (reported, reload) = (Cell::new(0), Notify::new());
        let read = || async { Err("still invalid".to_owned()) };
        let following = files.follow(&reload, read, |_| reported.set(reported.get() + 1));
        let asking = async {
            for times in 1..=3 {
                reload.notify_one();
                sleep(10 * LOOK_INTERVAL).await;
                assert_eq!(reported.get(), times);
            }
        };
        tokio::select! {
            never = following => never,
            () = asking => {}
        }
    }

    /// Goal: a change of owner or mode is noticed, after which the node may be able to read the file.
    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn a_change_of_the_mode_is_a_change() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        fs::write(&path, "same").unwrap();
        let files = WatchedFiles::new(vec![path.clone()]);
        // The clock of the file system may be coarse.
        std::thread::sleep(Duration::from_millis(20));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let noticed = tokio::time::timeout(100 * LOOK_INTERVAL, files.changes().next(&Notify::new())).await;
        assert!(noticed.is_ok());
    }
}
