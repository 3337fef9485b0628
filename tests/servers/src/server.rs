//! Shared by all servers: a folder, ports, a process that can be killed and restarted, and its log. Each kind
//! of server supplies its command; the readiness probes are here.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use crate::port::Port;
use crate::process;
use crate::time::{holds_within, now};

/// Time limit for a server to become ready; the slowest takes 1 s on an idle machine.
const START_WITHIN: Duration = Duration::from_mins(1);
/// Number of tries to start a server on other ports if another program took one of its ports.
const TRIES: u32 = 5;

/// A server that runs or can be started again.
///
/// All methods take `&self`, so that a test can share it between tasks. Dropped, it is killed and its folder
/// deleted.
pub struct Server {
    name: &'static str,
    ports: Vec<Port>,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    ready: Box<dyn Fn() -> bool + Send + Sync>,
    child: Mutex<Option<Child>>,
    // Last, so that it is deleted when nothing uses it.
    folder: TempDir,
}

/// A server whose process did not become ready, and its log.
pub(crate) struct NotReady(String);

impl Server {
    /// Creates a server that does not run yet. The first port is the one for clients.
    pub(crate) fn new(
        name: &'static str,
        ports: Vec<Port>,
        folder: TempDir,
        command: impl Fn() -> Command + Send + Sync + 'static,
        ready: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let (command, ready) = (Box::new(command), Box::new(ready));
        Self { name, ports, command, ready, child: Mutex::new(None), folder }
    }

    /// Creates and starts a server; on other ports if another program took the first ones meanwhile.
    pub(crate) fn start<T>(make: impl Fn() -> T, start: impl Fn(&T) -> Result<(), NotReady>) -> T {
        for _ in 1..TRIES {
            let server = make();
            match start(&server) {
                Ok(()) => return server,
                Err(NotReady(log)) if log.to_lowercase().contains("address already in use") => {}
                Err(NotReady(log)) => panic!("{log}"),
            }
        }
        let server = make();
        start(&server).unwrap_or_else(|NotReady(log)| panic!("{log}"));
        server
    }

    /// Starts the process and waits until it is ready.
    pub(crate) fn up(&self) -> Result<(), NotReady> {
        self.spawn();
        self.await_ready()
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.ports[0].address()
    }

    /// Returns the port for clients, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.ports[0].number()
    }

    /// Returns the second port, for servers that report their health on it.
    pub(crate) fn side_address(&self) -> SocketAddr {
        self.ports[1].address()
    }

    /// Returns the folder with all data of the server.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the server's log since the first start.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    /// Returns whether the process exists, running or paused.
    pub fn is_running(&self) -> bool {
        self.child().as_mut().is_some_and(|it| it.try_wait().unwrap().is_none())
    }

    /// Sends SIGKILL, as in a crash; returns when the process is gone. Does nothing if the server is down.
    pub fn kill9(&self) {
        if let Some(mut child) = self.child().take() {
            process::kill(&mut child);
        }
    }

    /// Sends SIGSTOP: connections stay open and new ones are accepted, but nothing is answered.
    ///
    /// # Panics
    ///
    /// If the server is down.
    pub fn pause(&self) {
        process::pause(self.child().as_ref().expect("a server that runs"));
    }

    /// Sends SIGCONT: the server continues where it was paused.
    ///
    /// # Panics
    ///
    /// If the server is down.
    pub fn resume(&self) {
        process::resume(self.child().as_ref().expect("a server that runs"));
    }

    /// Kills the server if it runs, starts it on the same data and ports, and waits until it is ready.
    ///
    /// # Panics
    ///
    /// With its log if it does not come up.
    pub fn restart(&self) {
        self.restart_without_waiting();
        self.wait_ready();
    }

    /// Restores a folder of the server from a copy: kills the server and replaces the folder. The server
    /// stays down.
    ///
    /// # Panics
    ///
    /// If the folder cannot be copied.
    pub fn replace(&self, name: &str, from: &Path) {
        self.kill9();
        let old = self.folder().join(name);
        fs::remove_dir_all(&old).unwrap();
        process::run(Command::new("cp").arg("-a").args([from, &old]));
        // The user of the server must be able to read the copy.
        let owner = format!("--reference={}", self.folder().display());
        process::run(Command::new("chown").args(["-R", &owner]).arg(&old));
    }

    /// As [`restart`](Self::restart), but returns at once: a member of a cluster without a majority is not
    /// ready.
    ///
    /// # Panics
    ///
    /// If the program cannot be run.
    pub fn restart_without_waiting(&self) {
        self.kill9();
        self.spawn();
    }

    /// Waits until the server is ready.
    ///
    /// # Panics
    ///
    /// With its log if that takes more than a minute, or if the process ends.
    pub fn wait_ready(&self) {
        self.await_ready().unwrap_or_else(|NotReady(log)| panic!("{log}"));
    }

    pub(crate) fn spawn(&self) {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path()).unwrap();
        let mut command = (self.command)();
        command.current_dir(self.folder()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child =
            process::spawn(command).unwrap_or_else(|error| panic!("{} does not run: {error}", self.name));
        *self.child() = Some(child);
    }

    pub(crate) fn await_ready(&self) -> Result<(), NotReady> {
        let started = now();
        let ready = holds_within(START_WITHIN, || !self.is_running() || (self.ready)());
        // Checks again: another program may have answered on the port.
        if ready && self.is_running() {
            return Ok(());
        }
        let state = if self.is_running() { "is not ready" } else { "has ended" };
        let (name, log) = (self.name, self.log());
        Err(NotReady(format!("{name} {state} after {:?}; its log:\n{log}", started.elapsed())))
    }

    fn log_path(&self) -> PathBuf {
        self.folder().join("log")
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill9();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.name, self.address())
    }
}

/// Creates a folder that the users of all servers may enter; `tempfile` restricts it to its owner.
pub(crate) fn folder(name: &str) -> TempDir {
    let folder = tempfile::Builder::new().prefix(&format!("snowmint-{name}-")).tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    // Opened here, so that a server with another user writes to the inherited file.
    File::create(folder.path().join("log")).unwrap();
    folder
}

const PATIENCE: Duration = Duration::from_secs(1);

/// Returns whether Redis answers; a request for a password counts as ready.
pub(crate) fn probe_redis(address: SocketAddr) -> bool {
    let answer = ask(address, b"PING\r\n", |answer| answer.ends_with(b"\r\n"));
    answer.starts_with(b"+PONG") || answer.starts_with(b"-NOAUTH")
}

/// Returns whether PostgreSQL accepts sessions: before that, it answers with SQLSTATE 57P03.
pub(crate) fn probe_postgres(address: SocketAddr) -> bool {
    let mut startup = vec![0, 0, 0, 0, 0, 3, 0, 0];
    startup.extend(b"user\0postgres\0database\0postgres\0\0");
    startup[3] = u8::try_from(startup.len()).unwrap();
    let answer = ask(address, &startup, |answer| answer.len() >= 5 && answer.len() > usize::from(answer[4]));
    let starting = answer.windows(5).any(|it| it == b"57P03");
    matches!(answer.first(), Some(b'R' | b'E')) && !starting
}

/// Returns whether MariaDB sends its greeting: a packet that begins with protocol version 10. A new MySQL has no
/// user for this address, and sends an error.
pub(crate) fn probe_mariadb(address: SocketAddr) -> bool {
    matches!(ask(address, b"", |answer| answer.len() >= 5).get(4), Some(10 | 0xff))
}

/// Returns the mode of a ZooKeeper: `standalone`, `leader` or `follower`; nothing before it serves.
pub(crate) fn zookeeper_mode(address: SocketAddr) -> Option<String> {
    let answer = ask(address, b"srvr", |_| false);
    let answer = String::from_utf8_lossy(&answer);
    answer.lines().find_map(|line| line.strip_prefix("Mode: ").map(str::to_owned))
}

/// Returns the body of the answer to an HTTP GET.
pub(crate) fn get(address: SocketAddr, path: &str) -> Option<String> {
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    let answer = ask(address, request.as_bytes(), |_| false);
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}

/// Sends a request and reads until the answer is complete, the server closes, or the time is up.
fn ask(address: SocketAddr, question: &[u8], complete: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut answer = Vec::new();
    let Ok(mut stream) = TcpStream::connect_timeout(&address, PATIENCE) else {
        return answer;
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    if stream.write_all(question).is_err() {
        return answer;
    }
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..count]);
        if complete(&answer) {
            break;
        }
    }
    answer
}
