//! A wall clock that can be stepped while a process runs: libfaketime, which answers for the C library.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The clock of one process, as an offset from the real one.
#[derive(Debug)]
pub struct FakeClock {
    file: PathBuf,
}

impl FakeClock {
    /// A clock kept in a file of `folder`, with an offset such as `+0`, `+1h` or `-1h`.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn new(folder: &Path, offset: &str) -> Self {
        let file =
            tempfile::Builder::new().prefix("clock-").tempfile_in(folder).expect("the folder can be written");
        let file = file.into_temp_path().keep().expect("the file can be kept");
        let clock = Self { file };
        clock.step(offset);
        clock
    }

    /// Steps the clock, also of a process that runs with it: its next reading shows the new time.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn step(&self, offset: &str) {
        // Renamed over the old one, so that the process never reads half an offset.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{offset}\n")).expect("the clock's file can be written");
        fs::rename(&new, &self.file).expect("the clock's file can be replaced");
    }

    /// The environment of a process that is to live by this clock.
    ///
    /// # Panics
    ///
    /// If libfaketime is not installed.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("LD_PRELOAD".into(), library().into()),
            ("FAKETIME_TIMESTAMP_FILE".into(), self.file.clone().into()),
            ("FAKETIME_NO_CACHE".into(), "1".into()),
            // A faked monotonic clock freezes at a step back, and with it every timer.
            ("FAKETIME_DONT_FAKE_MONOTONIC".into(), "1".into()),
        ]
    }
}

fn library() -> PathBuf {
    let found = ["/usr/lib", "/usr/lib64", "/usr/local/lib"]
        .into_iter()
        .flat_map(|lib| {
            let folders = fs::read_dir(lib).into_iter().flatten().flatten().map(|it| it.path());
            [PathBuf::from(lib)].into_iter().chain(folders).collect::<Vec<_>>()
        })
        .map(|lib| lib.join("faketime/libfaketime.so.1"))
        .find(|path| path.is_file());
    found.expect("libfaketime is missing: install it with `apt-get install libfaketime`")
}

/// Removes what libfaketime leaves behind for a process that was killed.
pub(crate) fn tidy_up_after(pid: u32) {
    for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        fs::remove_file(Path::new("/dev/shm").join(name)).ok();
    }
}
