//! Places that only root can make: a disk that is read-only or full, in a mount namespace of the server's own, so
//! that nothing on this machine is touched and nothing is left behind.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{binary, external};

/// A disk under a folder, seen only by the process that is started on it.
#[derive(Clone, Debug)]
pub struct Disk {
    folder: PathBuf,
    script: String,
}

impl Disk {
    /// The folder as it is, but read-only.
    ///
    /// # Panics
    ///
    /// If this process may not make mount namespaces.
    pub fn read_only(folder: &Path) -> Self {
        let at = quoted(folder);
        Self::new(folder, format!("mount --bind {at} {at} && mount -o remount,bind,ro {at}"))
    }

    /// An empty disk of so many KiB, on the folder.
    ///
    /// # Panics
    ///
    /// If this process may not make mount namespaces.
    pub fn small(folder: &Path, kib: u64) -> Self {
        Self::new(folder, format!("mount -t tmpfs -o size={kib}k tmpfs {}", quoted(folder)))
    }

    /// Does more once the disk is there, as a line of shell: copy files onto it, fill it.
    #[must_use]
    pub fn then(mut self, line: &str) -> Self {
        self.script = format!("{} && {line}", self.script);
        self
    }

    fn new(folder: &Path, script: String) -> Self {
        let allowed = external::run("unshare", ["-m", "true"]);
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
        let mut command = binary::clean(Command::new(&words[0]));
        command.args(&words[1..]).arg(binary::snowmint()).args(args).output().expect("the binary can be run")
    }

    /// The words before a program's own that start it on this disk, under the process id that was started.
    pub(crate) fn wrapper(&self) -> Vec<String> {
        let words = ["unshare", "-m", "--propagation", "private", "sh", "-c"].map(ToOwned::to_owned);
        let script = format!("{} && exec \"$0\" \"$@\"", self.script);
        words.into_iter().chain([script]).collect()
    }

    /// The disk's folder as the process sees it that was started there.
    pub fn seen_by(&self, pid: u32) -> PathBuf {
        let inside = self.folder.strip_prefix("/").expect("an absolute folder");
        Path::new("/proc").join(pid.to_string()).join("root").join(inside)
    }
}

/// Fills the disk that holds a folder to its last byte, with one file that is returned.
///
/// # Panics
///
/// If that does not work.
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
    fs::metadata(&path).unwrap();
    path
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_str().expect("a folder of tests has a plain name"))
}
