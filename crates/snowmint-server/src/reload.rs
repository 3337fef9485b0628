//! Files that are read again when they change: those of TLS, and that of the tokens.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::sleep;

/// Interval between two looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Files that belong together, as they were when they were read first.
#[derive(Debug)]
pub(crate) struct WatchedFiles {
    paths: Vec<PathBuf>,
    /// The files may change before anybody looks for changes.
    first: Stamp,
}

/// What tells changed files from the earlier ones.
type Stamp = Vec<Option<(SystemTime, u64)>>;

impl WatchedFiles {
    /// Notes how the files are now: call it before they are read.
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        let first = stamp_of_all(&paths);
        Self { paths, first }
    }

    /// Returns the changes from now on.
    pub(crate) fn changes(&self) -> Changes<'_> {
        Changes { files: self, loaded: self.first.clone(), seen: self.first.clone() }
    }

    async fn stamp(&self) -> Stamp {
        let paths = self.paths.clone();
        // Without an answer it is a change, which is looked at again.
        tokio::task::spawn_blocking(move || stamp_of_all(&paths)).await.unwrap_or_default()
    }
}

/// The changes of files, one after the other.
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    files: &'a WatchedFiles,
    loaded: Stamp,
    seen: Stamp,
}

impl Changes<'_> {
    /// Returns when the files should be read again: they have changed, or somebody asked for it.
    pub(crate) async fn next(&mut self, reload: &Notify) {
        loop {
            let asked = tokio::select! {
                () = reload.notified() => true,
                () = sleep(LOOK_INTERVAL) => false,
            };
            let now = self.files.stamp().await;
            // Files are replaced one after the other: all are there once nothing changes between two looks.
            let settled = now == self.seen;
            self.seen.clone_from(&now);
            if asked || (settled && now != self.loaded) {
                self.loaded = now;
                return;
            }
        }
    }
}

fn stamp_of_all(paths: &[PathBuf]) -> Stamp {
    paths.iter().map(|path| stamp_of(path).ok()).collect()
}

fn stamp_of(path: &Path) -> io::Result<(SystemTime, u64)> {
    let file = fs::metadata(path)?;
    Ok((file.modified()?, file.len()))
}
