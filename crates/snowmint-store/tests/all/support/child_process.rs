//! Child processes of tests: each has a role, and some have their own mount namespace. Also waits for an
//! SQLite file to be closed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use snowmint_store::{SqliteStore, Store, Versioned};

use crate::support::key;
use crate::{failing, sqlite_processes};

const ROLE: &str = "SNOWMINT_TEST_ROLE";
const PATH: &str = "SNOWMINT_TEST_PATH";

/// Runs the role of a child process, for all tests.
#[test]
#[ignore = "the other tests run it as a child process"]
fn child() {
    let (role, path) = role();
    match role.as_str() {
        "count once" | "count" | "add until killed" | "write until killed" => {
            sqlite_processes::child(&role, &path);
        }
        "read-only" | "full" | "no-access" => sqlite_processes::child_on_a_mount(&role, &path),
        _ => failing::child(&role, &path),
    }
}

/// Returns the role and the path that [`start`] gave this process.
fn role() -> (String, PathBuf) {
    let role = std::env::var(ROLE).expect("not a separate test: other tests run it as a child process");
    (role, std::env::var_os(PATH).unwrap().into())
}

/// Returns this test program as a process that runs the test `child` in a role.
fn command(role: &str, path: &Path) -> (PathBuf, Vec<&'static str>, [(&'static str, std::ffi::OsString); 2]) {
    let arguments =
        vec!["support::child_process::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"];
    let environment = [(ROLE, role.into()), (PATH, path.into())];
    (std::env::current_exe().unwrap(), arguments, environment)
}

/// A child that waits for a line on its standard input and reports lines that begin with `@`.
pub(crate) struct Running {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

pub(crate) fn start(role: &str, path: &Path) -> Running {
    let (program, arguments, environment) = command(role, path);
    let mut command = Command::new(program);
    command.args(arguments).envs(environment).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut running = Running { child, stdin, stdout };
    assert_eq!(running.report().as_deref(), Some("ready"));
    running
}

impl Running {
    pub(crate) fn go(&mut self) {
        writeln!(self.stdin, "go").unwrap();
    }

    /// The next report, or `None` when the child has ended.
    pub(crate) fn report(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // A line that a kill cut short is not a report.
            if let (Some((_, report)), true) = (line.split_once('@'), line.ends_with('\n')) {
                return Some(report.trim_end().to_owned());
            }
        }
    }

    pub(crate) fn reports(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.report()).collect()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    pub(crate) fn wait(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

/// In the child: reports that it is up and waits for its parent.
pub(crate) fn wait_for_go() {
    println!("@ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Runs a child to its end in its own mount namespace, after a shell script in which `$0` is the folder.
///
/// Panics with the child's output unless it succeeds: a machine that cannot run this must not pass the test.
pub(crate) fn run_mounted(role: &str, folder: &Path, script: &str) {
    let (program, arguments, environment) = command(role, folder);
    let root = rustix::process::geteuid().is_root();
    let output = Command::new("unshare")
        .args(if root { &["--mount"][..] } else { &["--map-root-user", "--mount"][..] })
        .args(["sh", "-ec", &format!("{script}; exec \"$@\"")])
        .arg(folder)
        .arg(program)
        .args(arguments)
        .envs(environment)
        .output()
        .expect("this test needs `unshare` of util-linux");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    print!("{said}");
    assert!(
        output.status.success() && said.contains("@done"),
        "failed, or could not mount: this test needs root, or a user namespace that may mount"
    );
}

/// Runs a future on its own runtime, as each process has one.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

pub(crate) async fn load(store: &SqliteStore, name: &str) -> Option<Versioned> {
    store.load(&key(name)).await.unwrap()
}

/// Drops the store and waits until its thread has closed the file; then SQLite removes the log.
pub(crate) async fn close(store: SqliteStore, path: &Path) {
    drop(store);
    let log = PathBuf::from(format!("{}-wal", path.display()));
    for _ in 0..30_000 {
        if !log.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{} is still open", path.display());
}
