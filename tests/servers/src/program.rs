//! Where the programs of the servers are, how they are installed, and as whom they run.
//! A program that is missing fails the test and says what to do.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Folders that hold servers but are often not in the path of a user.
const FOLDERS: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin"];

/// The path of a program.
///
/// Panics with the line that installs it if it is not there.
pub(crate) fn find(program: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
    let found = folders.map(|folder| folder.join(program)).find(|it| it.is_file());
    found.unwrap_or_else(|| panic!("{}", missing(program, package)))
}

/// A file that a package brings.
///
/// Panics with the line that installs it if it is not there.
pub(crate) fn find_file(path: &str, package: &str) -> PathBuf {
    let found = PathBuf::from(path);
    assert!(found.is_file(), "{}", missing(path, package));
    found
}

/// What to say when a program is not installed.
pub(crate) fn missing(program: &str, package: &str) -> String {
    format!("{program} is missing: install it with `apt-get install --no-install-recommends {package}`")
}

/// Runs a program to its end; it must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{command:?} failed: {}\n{said}", output.status);
    output
}

/// A user that a server wants to be where tests run as root, because it refuses to run as root itself.
#[derive(Clone, Debug)]
pub(crate) struct User {
    name: &'static str,
    uid: u32,
    gid: u32,
}

impl User {
    /// The user of that name if this process is root, else none: the server then runs as whoever runs the test.
    ///
    /// Panics with the line that installs the package if it has not made that user.
    pub(crate) fn unless_own(name: &'static str, package: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap();
        let entry = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|it| it[0] == name);
        let entry = entry.unwrap_or_else(|| panic!("{}", missing(&format!("the user {name}"), package)));
        Some(Self { name, uid: entry[2].parse().unwrap(), gid: entry[3].parse().unwrap() })
    }

    /// Gives a file or a folder to the user, if there is one.
    pub(crate) fn own(user: Option<&Self>, path: &Path) {
        if let Some(user) = user {
            std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)).unwrap();
        }
    }
}

/// A command that runs as a user, if any, and dies with this process.
///
/// By `setpriv`, since what a parent sets for the death of its child is lost where that changes its user. See
/// [`process::spawn`](crate::process::spawn) for whose death it is.
pub(crate) fn mortal(user: Option<&User>, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(find("setpriv", "util-linux"));
    command.arg("--pdeathsig").arg("KILL");
    if let Some(user) = user {
        command.arg(format!("--reuid={}", user.name)).arg(format!("--regid={}", user.name));
        command.arg("--init-groups").arg("--reset-env");
    }
    command.arg("--").arg(program.as_ref());
    command
}
