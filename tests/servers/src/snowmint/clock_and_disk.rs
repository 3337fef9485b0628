//! The environment of a server under test: a wall clock that the test steps, and a disk that is read-only or
//! full.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::third_party;

/// The clock of one process, as an offset from the real one.
#[derive(Debug)]
pub struct FakeClock {
    file: PathBuf,
}

impl FakeClock {
    /// Creates a clock, kept in a file of `folder`, with an offset such as `+0`, `+1h` or `-1h`.
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

    /// Steps the clock, also for a running process: its next reading shows the new time.
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

    /// The environment variables of a process that uses this clock.
    ///
    /// # Panics
    ///
    /// If libfaketime is not installed.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("LD_PRELOAD".into(), library().into()),
            ("FAKETIME_TIMESTAMP_FILE".into(), self.file.clone().into()),
            ("FAKETIME_NO_CACHE".into(), "1".into()),
            // A faked monotonic clock freezes when it is stepped back, and every timer with it.
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
pub(super) fn tidy_up_after(pid: u32) {
    for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        fs::remove_file(Path::new("/dev/shm").join(name)).ok();
    }
}

/// A disk mounted on a folder; only the process started with it sees it.
#[derive(Clone, Debug)]
pub struct Disk {
    folder: PathBuf,
    script: String,
}

impl Disk {
    /// Mounts the folder read-only.
    ///
    /// # Panics
    ///
    /// If this process may not create mount namespaces.
    pub fn read_only(folder: &Path) -> Self {
        let at = quoted(folder);
        Self::new(folder, format!("mount --bind {at} {at} && mount -o remount,bind,ro {at}"))
    }

    /// Mounts an empty disk of this size in KiB on the folder.
    ///
    /// # Panics
    ///
    /// If this process may not create mount namespaces.
    pub fn small(folder: &Path, kib: u64) -> Self {
        Self::new(folder, format!("mount -t tmpfs -o size={kib}k tmpfs {}", quoted(folder)))
    }

    /// Adds a line of shell that runs once the disk is mounted: copy files onto it, fill it.
    #[must_use]
    pub fn then(mut self, line: &str) -> Self {
        self.script = format!("{} && {line}", self.script);
        self
    }

    fn new(folder: &Path, script: String) -> Self {
        let allowed = third_party::run("unshare", ["-m", "true"]);
        assert!(
            allowed.status.success(),
            "this test mounts file systems in a namespace of its own: run it as root, or in a container with \
             CAP_SYS_ADMIN ({})",
            String::from_utf8_lossy(&allowed.stderr).trim()
        );
        Self { folder: folder.to_owned(), script }
    }

    /// Runs the binary under test to its end on this disk.
    ///
    /// # Panics
    ///
    /// If it cannot be run.
    pub fn run(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
        let words = self.wrapper();
        let mut command = super::clean(Command::new(&words[0]));
        command.args(&words[1..]).arg(super::binary()).args(args).output().expect("the binary can be run")
    }

    /// The command prefix that starts a program on this disk, under the same process id.
    pub(super) fn wrapper(&self) -> Vec<String> {
        let words = ["unshare", "-m", "--propagation", "private", "sh", "-c"].map(ToOwned::to_owned);
        let script = format!("{} && exec \"$0\" \"$@\"", self.script);
        words.into_iter().chain([script]).collect()
    }

    /// The disk's folder as that process sees it.
    pub fn seen_by(&self, pid: u32) -> PathBuf {
        let inside = self.folder.strip_prefix("/").expect("an absolute folder");
        Path::new("/proc").join(pid.to_string()).join("root").join(inside)
    }
}

/// Fills the disk of a folder to its last byte with one file, and returns that file.
///
/// # Panics
///
/// If that fails.
pub fn fill(folder: &Path) -> PathBuf {
    let path = folder.join("ballast");
    let mut file = File::create(&path).unwrap();
    for size in [1 << 16, 1 << 12, 1] {
        let piece = vec![b'x'; size];
        loop {
            match file.write(&piece) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }
    path
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_str().expect("a folder of tests has a plain name"))
}
