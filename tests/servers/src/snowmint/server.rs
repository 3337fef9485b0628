//! Servers under test: started on free ports, stopped in every possible way, never left behind.
//!
//! A server dies with the *thread* that started it, even if that is killed: start it from the thread of the
//! test, not from a short-lived one.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::net::SocketAddrV4;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, setrlimit};

use super::clock_and_disk::{Disk, FakeClock, tidy_up_after};
use super::http::{self, Answer};
use super::{Resp, third_party};
use crate::{port, process, time};

/// Time limit for a start in a test. Another test checks the promised 2 s.
const START_WITHIN: Duration = Duration::from_secs(20);
const EXIT_WITHIN: Duration = Duration::from_secs(30);
/// Number of retries on other ports if another program takes one.
const TRIES: usize = 5;

/// The configuration of a `snowmint serve` under test.
#[derive(Clone, Debug)]
#[must_use]
pub struct Serve {
    folder: PathBuf,
    data: PathBuf,
    args: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    ports: Option<(SocketAddrV4, SocketAddrV4)>,
    sockets: Option<(PathBuf, PathBuf)>,
    disk: Option<Disk>,
    open_files: Option<(u64, u64)>,
}

impl Serve {
    /// A server with its data in `folder/data` and its log in `folder`.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            data: folder.join("data"),
            args: Vec::new(),
            environment: Vec::new(),
            ports: None,
            sockets: None,
            disk: None,
            open_files: None,
        }
    }

    /// Stores its data in another folder.
    pub fn data(mut self, data: &Path) -> Self {
        data.clone_into(&mut self.data);
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Uses a wall clock that the test can step.
    pub fn clock(mut self, clock: &FakeClock) -> Self {
        self.environment.extend(clock.environment());
        self
    }

    /// Listens on these addresses only.
    pub const fn ports(mut self, http: SocketAddrV4, resp: SocketAddrV4) -> Self {
        self.ports = Some((http, resp));
        self
    }

    /// Listens on Unix sockets instead of ports. The harness cannot call such a server: use
    /// [`spawn`](Self::spawn).
    pub fn sockets(mut self, http: &Path, resp: &Path) -> Self {
        self.sockets = Some((http.to_owned(), resp.to_owned()));
        self
    }

    /// Sets a soft and a hard limit of open files.
    pub const fn open_files(mut self, soft: u64, hard: u64) -> Self {
        self.open_files = Some((soft, hard));
        self
    }

    /// Gives the server its own disk.
    pub fn on(mut self, disk: &Disk) -> Self {
        self.disk = Some(disk.clone());
        self
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Panics
    ///
    /// If it exits, or takes longer than 20 s; the message shows its log.
    pub fn start(&self) -> Server {
        for _ in 1..TRIES {
            let mut server = self.spawn();
            match server.ready_or_ended() {
                None => return server,
                // Retries only if another program took a port that the harness chose.
                Some(_) if self.ports.is_none() && server.port_was_taken() => {}
                Some(status) => {
                    panic!("the server ended with {status} instead of serving:\n{}", server.log())
                }
            }
        }
        panic!("every port that was free a moment ago is taken");
    }

    /// Starts it without waiting.
    ///
    /// # Panics
    ///
    /// If the process cannot be started.
    pub fn spawn(&self) -> Server {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (http, resp) = self.ports.unwrap_or_else(|| (port::free(), port::free()));
        let addresses = match &self.sockets {
            Some((http, resp)) => [http, resp].map(|path| format!("unix:{}", path.display())),
            None => [http, resp].map(|address| address.to_string()),
        };
        let log = format!("server-{}.log", COUNT.fetch_add(1, Ordering::Relaxed));
        let log = self.folder.join(log);
        let file = File::create(&log).expect("the folder can be written");
        let mut command = self.command();
        command
            .args(["serve", "--http", &addresses[0], "--resp", &addresses[1], "--data"])
            .arg(&self.data)
            .args(&self.args)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdout(file.try_clone().expect("a file can be shared"))
            .stderr(file);
        let spawned_at = time::now();
        if let Some(limits) = self.open_files {
            limit_open_files(&mut command, limits);
        }
        let child = spawn_bound_to_this_thread(&mut command);
        Server { child, http, resp, log, spawned_at }
    }

    /// Starts a server that must refuse to serve, and returns how it ended.
    ///
    /// # Panics
    ///
    /// If it serves, or still runs after 30 s.
    pub fn refused(&self) -> Ended {
        let mut server = self.spawn();
        let started = time::now();
        loop {
            if let Some(status) = server.exit_status() {
                return Ended { status, log: server.log(), after: server.spawned_at.elapsed() };
            }
            assert!(!server.says_ready(), "the server serves, it should have refused:\n{}", server.log());
            assert!(started.elapsed() < EXIT_WITHIN, "it neither serves nor ends:\n{}", server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn command(&self) -> Command {
        let Some(disk) = &self.disk else {
            let mut command = super::command();
            command.current_dir(&self.folder);
            return command;
        };
        let words = disk.wrapper();
        let mut command = super::clean(Command::new(&words[0]));
        command.args(&words[1..]).arg(super::binary()).current_dir(&self.folder);
        command
    }
}

/// How a server ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its whole output.
    pub log: String,
    /// The time from its start to its end.
    pub after: Duration,
}

impl Ended {
    /// Checks that it exited by itself with an error that contains each of these words.
    ///
    /// # Panics
    ///
    /// If it did not.
    pub fn assert_says(&self, words: &[&str]) {
        assert!(
            self.status.code().is_some_and(|code| code == 1 || code == 2),
            "it ended with {}, expected 1 or 2:\n{}",
            self.status,
            self.log
        );
        assert_says(&self.log, words);
    }
}

/// Checks that a text has each of these words, and no sign of a crash.
///
/// # Panics
///
/// If it does not.
pub fn assert_says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "expected `{word}` in:\n{text}");
    }
    for trace in ["panicked at", "RUST_BACKTRACE", "Os {", "Err(", "Some("] {
        assert!(!text.contains(trace), "a user must not see `{trace}`:\n{text}");
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    http: SocketAddrV4,
    resp: SocketAddrV4,
    log: PathBuf,
    spawned_at: Instant,
}

impl Server {
    /// Its address for HTTP.
    pub const fn http(&self) -> SocketAddrV4 {
        self.http
    }

    /// Its address for RESP.
    pub const fn resp(&self) -> SocketAddrV4 {
        self.resp
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// When it was started.
    pub const fn spawned_at(&self) -> Instant {
        self.spawned_at
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits for a text in its log.
    ///
    /// # Panics
    ///
    /// If the text does not appear within `patience`.
    pub fn log_with(&self, text: &str, patience: Duration) -> String {
        time::eventually(&format!("`{text}` in the log"), patience, || {
            Some(self.log()).filter(|log| log.contains(text))
        })
    }

    /// Requests a path over HTTP.
    ///
    /// # Panics
    ///
    /// If there is no answer.
    pub fn get(&self, path: &str) -> Answer {
        http::get(self.http, path).unwrap_or_else(|error| panic!("GET {path}: {error}\n{}", self.log()))
    }

    /// A metric's value: the sum over its labels.
    ///
    /// # Panics
    ///
    /// If there is no metric of that name.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let samples: Vec<f64> = text
            .lines()
            .filter_map(|line| line.strip_prefix(name))
            .filter(|rest| rest.starts_with([' ', '{']))
            .filter_map(|rest| rest.rsplit(' ').next()?.parse().ok())
            .collect();
        assert!(!samples.is_empty(), "there is no metric {name}:\n{text}");
        samples.iter().sum()
    }

    /// Connects over RESP.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn client(&self) -> Resp {
        let connected = Resp::connect(self.resp, Duration::from_secs(10));
        connected.unwrap_or_else(|error| panic!("{}: {error}\n{}", self.resp, self.log()))
    }

    /// Takes ids of the namespace `default` over a new RESP connection.
    ///
    /// # Panics
    ///
    /// If it gets none.
    pub fn take(&self, count: usize) -> Vec<u64> {
        let ids = self.client().next("default", count);
        ids.expect("a reply").unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Requests ids over new connections until it gets one. Returns the time since the start, and the id.
    ///
    /// # Panics
    ///
    /// If it gets none within 20 s.
    pub fn first_id(&mut self) -> (Duration, u64) {
        loop {
            if let Some(answer) = self.ask_once() {
                return answer;
            }
            if let Some(status) = self.exit_status() {
                panic!("the server ended with {status}:\n{}", self.log());
            }
            assert!(self.spawned_at.elapsed() < START_WITHIN, "no id yet:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Requests an id once, over a new connection. Returns the time from the start to the answer, and the id.
    pub fn ask_once(&self) -> Option<(Duration, u64)> {
        self.ask_once_of("default")
    }

    /// Like [`ask_once`](Self::ask_once), for another namespace.
    pub fn ask_once_of(&self, namespace: &str) -> Option<(Duration, u64)> {
        let mut client = Resp::connect(self.resp, Duration::from_millis(500)).ok()?;
        let ids = client.next(namespace, 1).ok()?.ok()?;
        Some((self.spawned_at.elapsed(), ids[0]))
    }

    /// Sends SIGTERM, which asks it to exit.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGHUP, which makes it reload its files.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    ///
    /// # Panics
    ///
    /// If the system cannot confirm that it is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
        tidy_up_after(self.pid());
    }

    /// Pauses it (SIGSTOP) and waits until every thread is stopped.
    ///
    /// # Panics
    ///
    /// If it does not stop.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        time::eventually("the server is paused", START_WITHIN, || {
            (process::runs(self.pid()) && process::stands_still(self.pid())).then_some(())
        });
    }

    /// Resumes it (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    ///
    /// If it still runs after 30 s.
    pub fn ended(&mut self) -> Ended {
        let status = time::eventually("the server ends", EXIT_WITHIN, || self.exit_status());
        Ended { status, log: self.log(), after: self.spawned_at.elapsed() }
    }

    /// Asks it to exit, and checks that it exits cleanly.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn stop(mut self) -> Ended {
        self.terminate();
        let ended = self.ended();
        assert!(ended.status.success(), "{} after SIGTERM:\n{}", ended.status, ended.log);
        ended
    }

    /// Returns how it ended, if it has.
    ///
    /// # Panics
    ///
    /// If the system cannot tell.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the system knows its children")
    }

    /// Returns whether it reports that it is ready.
    pub fn ready(&self) -> bool {
        http::get(self.http, "/readyz").is_ok_and(|answer| answer.status == 200)
    }

    fn ready_or_ended(&mut self) -> Option<ExitStatus> {
        loop {
            // Another program may answer on this port, so the server must also say in its log that it is
            // ready.
            let ready = self.says_ready() && self.ready();
            if let Some(status) = self.exit_status() {
                return Some(status);
            }
            if ready {
                return None;
            }
            assert!(self.spawned_at.elapsed() < START_WITHIN, "not ready yet:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn says_ready(&self) -> bool {
        self.log().contains("ready: ids are served")
    }

    fn port_was_taken(&self) -> bool {
        let log = self.log();
        log.contains("another program uses this port") || log.contains("in use")
    }

    /// Sends it a signal.
    ///
    /// # Panics
    ///
    /// If the process id is invalid.
    pub fn signal(&self, signal: Signal) {
        // Our child, not yet waited for: its id cannot belong to another process.
        let pid =
            i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process has a number");
        rustix::process::kill_process(pid, signal).ok();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(30)..];
            println!("--- the end of {}\n{}", self.log.display(), last.join("\n"));
        }
        self.child.kill().ok();
        self.child.wait().ok();
        tidy_up_after(self.child.id());
    }
}

#[expect(unsafe_code, reason = "only the child itself can be limited, between fork and exec")]
fn limit_open_files(command: &mut Command, (soft, hard): (u64, u64)) {
    let limits = Rlimit { current: Some(soft), maximum: Some(hard) };
    // SAFETY: the closure makes one system call and allocates nothing, so it may run between fork and exec.
    unsafe { command.pre_exec(move || Ok(setrlimit(Resource::Nofile, limits)?)) };
}

/// Starts a process that the system kills when this thread ends, however it ends.
#[expect(unsafe_code, reason = "only the child itself can ask for that, between fork and exec")]
pub(super) fn spawn_bound_to_this_thread(command: &mut Command) -> Child {
    let parent = rustix::process::getpid();
    let bind = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the parent died before the line above, the signal would never come.
        let parent_lives = rustix::process::getppid() == Some(parent);
        if parent_lives { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
    };
    // SAFETY: the closure makes two system calls and allocates nothing, so it may run between fork and exec.
    unsafe { command.pre_exec(bind) };
    let name = command.get_program().to_string_lossy().into_owned();
    command.spawn().unwrap_or_else(|error| panic!("{}: {error}", third_party::missing(&name)))
}

/// Returns the resident memory of a process, in KiB.
///
/// # Panics
///
/// If the process is gone.
pub fn rss_kib(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// Returns the maximum resident memory of a process since its start, in KiB.
///
/// # Panics
///
/// If the process is gone.
pub fn peak_rss_kib(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/status"), "VmHWM:")
}

/// Returns the memory of a process in KiB, with its share of shared memory.
///
/// # Panics
///
/// If the process is gone.
pub fn pss_kib(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Returns the number of threads of a process.
///
/// # Panics
///
/// If the process is gone.
pub fn threads(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/status"), "Threads:")
}

/// Returns whether a process holds a write lock on any file now.
///
/// # Panics
///
/// If the system cannot tell.
pub fn holds_write_lock(pid: u32) -> bool {
    let locks = fs::read_to_string("/proc/locks").expect("the system tells its locks");
    locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(3) == Some(&"WRITE") && words.get(4) == Some(&pid.to_string().as_str())
    })
}

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let line = text.lines().find(|line| line.starts_with(name));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.unwrap_or_else(|| panic!("{path} has no {name}"))
}
