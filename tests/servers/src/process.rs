//! Programs and processes: finds a program and the user that runs it, starts it so that it dies with this
//! process, and signals it with all its children.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{LazyLock, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::time::holds_within;

/// A command to start, and a channel for the result.
type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// The only thread that starts servers. The system ends a child when the *thread* that started it ends. A
/// thread of a test or a pool may end long before the server is done; this one lives as long as the process.
static STARTER: LazyLock<Mutex<mpsc::Sender<Job>>> = LazyLock::new(|| {
    let (sender, jobs) = mpsc::channel::<Job>();
    let starter = move || {
        for (mut command, answer) in jobs {
            answer.send(command.spawn()).ok();
        }
    };
    thread::Builder::new().name("start-servers".to_owned()).spawn(starter).unwrap();
    Mutex::new(sender)
});

/// Starts a command on a thread that lives as long as this process.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let (sender, answer) = mpsc::channel();
    STARTER.lock().unwrap().send((command, sender)).unwrap();
    answer.recv().unwrap()
}

/// Sends SIGKILL to the process and all its descendants; returns when none of them runs.
pub(crate) fn kill(child: &mut Child) {
    // Stopped first, so that it starts no others meanwhile.
    let family = stop(child);
    for pid in &family {
        signal(*pid, Signal::KILL);
    }
    child.wait().unwrap();
    // We cannot wait for the descendants, and a server that finds them alive may refuse to start.
    let gone = holds_within(Duration::from_secs(20), || family.iter().all(|pid| !runs(*pid)));
    assert!(gone, "processes {family:?} still run after SIGKILL");
}

/// Sends SIGSTOP to the process and all its descendants; returns when all their threads are stopped.
pub(crate) fn pause(child: &Child) {
    let family = stop(child);
    // The call returns when the signal is sent, not when it has taken effect: a thread on another core may
    // answer one more request.
    let still = holds_within(Duration::from_secs(20), || family.iter().all(|pid| stands_still(*pid)));
    assert!(still, "processes {family:?} still run after SIGSTOP");
}

/// Sends SIGCONT to the process and all its descendants.
pub(crate) fn resume(child: &Child) {
    for pid in family(child.id()) {
        signal(pid, Signal::CONT);
    }
}

/// Stops them all, parents first, until no new ones appear, and returns their ids.
fn stop(child: &Child) -> Vec<u32> {
    let mut stopped: Vec<u32> = Vec::new();
    loop {
        let new: Vec<u32> = family(child.id()).into_iter().filter(|pid| !stopped.contains(pid)).collect();
        if new.is_empty() {
            return stopped;
        }
        for pid in &new {
            signal(*pid, Signal::STOP);
        }
        stopped.extend(new);
    }
}

/// The process and all its descendants, parents first.
fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(parent) = family.get(next) {
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let found: Vec<u32> = children
            .flat_map(|line| line.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
            .collect();
        family.extend(found);
        next += 1;
    }
    family
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process id");
    // One that has already ended needs no signal.
    kill_process(pid, signal).ok();
}

/// Returns whether no thread of the process runs: each is stopped, or gone.
pub(crate) fn stands_still(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|it| state(&it.path())).all(|it| matches!(it, 'T' | 'Z' | 'X'))
}

/// Returns whether a process runs: it is neither gone nor a zombie.
pub(crate) fn runs(pid: u32) -> bool {
    state(Path::new(&format!("/proc/{pid}"))).is_some_and(|it| !matches!(it, 'Z' | 'X'))
}

/// Returns the letter for the state of a process or a thread, if it exists.
fn state(folder: &Path) -> Option<char> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    // The name in brackets may contain anything, so search after the last bracket.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Folders with server programs that are often not in a user's PATH.
const FOLDERS: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin"];

/// Returns the path of a program.
///
/// Panics with the command that installs it if it is missing.
pub(crate) fn find(program: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
    let found = folders.map(|folder| folder.join(program)).find(|it| it.is_file());
    found.unwrap_or_else(|| panic!("{}", missing(program, package)))
}

/// The folder with another system whose servers are tested instead of those of this system; `newest.sh` makes
/// one.
static ROOT: LazyLock<Option<PathBuf>> =
    LazyLock::new(|| std::env::var_os("SNOWMINT_TEST_SERVERS_ROOT").map(PathBuf::from));

/// Where the other system has programs. MariaDB is in a folder of its own, since MySQL has files of the same
/// names.
const ROOT_FOLDERS: [&str; 4] = ["usr/sbin", "usr/bin", "mdb/usr/sbin", "mdb/usr/bin"];

/// Returns the other system, if its servers are tested.
pub(crate) fn root() -> Option<&'static Path> {
    ROOT.as_deref()
}

/// Returns whether tests that start this server use a compatible one instead: `mysql` for MariaDB, `valkey`
/// for Redis.
pub(crate) fn is_replaced_by(product: &str) -> bool {
    std::env::var("SNOWMINT_TEST_SERVERS").is_ok_and(|all| all.split(' ').any(|it| it == product))
}

/// Returns the path of the program of a server: of the other system, if there is one.
///
/// Panics with the command that installs it if it is missing.
pub(crate) fn find_server(program: &str, package: &str) -> PathBuf {
    let Some(root) = root() else { return find(program, package) };
    // A link may lead to a file of the other system.
    let found = ROOT_FOLDERS
        .iter()
        .map(|folder| root.join(folder).join(program))
        .find(|it| it.symlink_metadata().is_ok());
    found.unwrap_or_else(|| panic!("{} has no {program}: see tests/servers/newest.sh", root.display()))
}

/// Returns the path of a file in a package of a server.
///
/// Panics with the command that installs it if it is missing.
pub(crate) fn find_file(path: &str, package: &str) -> PathBuf {
    let below = path.trim_start_matches('/');
    let found = match root() {
        Some(root) => {
            ["", "mdb"].map(|folder| root.join(folder).join(below)).into_iter().find(|it| it.exists())
        }
        None => Some(PathBuf::from(path)).filter(|it| it.is_file()),
    };
    found.unwrap_or_else(|| panic!("{}", missing(path, package)))
}

/// Returns the message for a program that is not installed.
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

/// The user that a server needs when tests run as root, because it refuses to run as root.
#[derive(Clone, Debug)]
pub(crate) struct User {
    name: &'static str,
    uid: u32,
    gid: u32,
}

impl User {
    /// Returns that user if this process is root; otherwise the server runs as the user of the test.
    ///
    /// Panics with the command that installs the package if it has not created that user.
    pub(crate) fn unless_own(name: &'static str, package: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let users = fs::read_to_string(root().unwrap_or(Path::new("/")).join("etc/passwd")).unwrap();
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

/// Returns a command that runs as a user, if given, and dies with this process.
///
/// `setpriv` starts it, because a process that changes its user loses the death signal that its parent set.
/// See [`spawn`] for the thread whose death matters. A program of the other system runs inside that system,
/// where each path below its folder is the same path.
pub(crate) fn mortal(user: Option<&User>, program: impl AsRef<OsStr>) -> Command {
    let mut command = match root().filter(|root| Path::new(program.as_ref()).starts_with(root)) {
        Some(root) => {
            let mut command = Command::new(root.join("enter"));
            command.arg("setpriv");
            command
        }
        None => Command::new(find("setpriv", "util-linux")),
    };
    command.arg("--pdeathsig").arg("KILL");
    if let Some(user) = user {
        command.arg(format!("--reuid={}", user.name)).arg(format!("--regid={}", user.name));
        command.arg("--init-groups").arg("--reset-env");
    }
    command.arg("--").arg(program.as_ref());
    command
}
