//! Runs the command in a new folder, without settings from outside.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// A new folder to run in, with the data directory of a machine in it: `snowmint`.
pub(crate) struct Sandbox {
    folder: TempDir,
    env: Vec<(&'static str, String)>,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().display().to_string();
        Self { folder, env: vec![("TZ", "UTC".to_owned()), ("XDG_STATE_HOME", state)] }
    }

    /// A sandbox with an initialised store.
    pub(crate) fn with_store() -> Self {
        let sandbox = Self::new();
        sandbox.out(&["store", "init"]);
        sandbox
    }

    pub(crate) fn with_env(mut self, name: &'static str, value: &str) -> Self {
        self.env.push((name, value.to_owned()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snowmint"));
        for (name, _) in std::env::vars() {
            if name.starts_with("SNOWMINT_") || name == "NO_COLOR" {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.folder.path())
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// The command as a process that the modes of files and folders apply to, also if the tests run as root.
    pub(crate) fn command_under_permissions(&self, args: &[&str]) -> Command {
        let command = self.command(args);
        if !rustix::process::geteuid().is_root() {
            return command;
        }
        let mut setpriv = Command::new("setpriv");
        setpriv.arg("--bounding-set=-dac_override,-dac_read_search").arg(command.get_program());
        setpriv.args(command.get_args()).current_dir(self.folder.path());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => setpriv.env(name, value),
                None => setpriv.env_remove(name),
            };
        }
        setpriv.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        setpriv
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &str) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // On another thread: the command blocks if its output is not read.
        std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input.as_bytes()).unwrap());
            child.wait_with_output().unwrap().into()
        })
    }

    /// Runs the command, which must succeed and write nothing to standard error.
    pub(crate) fn out(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
        ran.out
    }

    /// Runs the command, which must fail with one line on standard error and nothing on standard output.
    pub(crate) fn refused(&self, args: &[&str], code: i32) -> String {
        let ran = self.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("error: ") && ran.err.ends_with('\n'), "{args:?}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
        ran.err
    }

    /// Starts a server on free ports and waits until it is ready.
    pub(crate) fn serve(&self, args: &[&str]) -> Server {
        let mut server = self.start(args);
        server.wait_for("ready: ids are served");
        server
    }

    /// Starts a server on free ports.
    pub(crate) fn start(&self, args: &[&str]) -> Server {
        self.spawn(self.command(&["serve", "--log-format", "json"]).args(args))
    }

    /// Starts a server like systemd does, with a notification socket and a watchdog.
    pub(crate) fn watched(&self, socket: &Path, watchdog: Duration, args: &[&str]) -> Server {
        let mut command = Command::new("sh");
        let script = "WATCHDOG_PID=$$ exec \"$0\" serve --log-format json \"$@\"";
        command.args(["-c", script]).arg(self.command(&[]).get_program()).args(args);
        command.current_dir(self.folder.path());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        self.spawn(&mut command)
    }

    fn spawn(&self, command: &mut Command) -> Server {
        let log = tempfile::NamedTempFile::new_in(self.folder.path()).unwrap();
        // Variables rather than flags, so that a test can set the flags.
        let child = command
            .envs([("SNOWMINT_HTTP", "127.0.0.1:0"), ("SNOWMINT_RESP", "127.0.0.1:0")])
            .stderr(File::create(log.path()).unwrap())
            .spawn()
            .unwrap();
        Server { child, log }
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A server that is killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    log: tempfile::NamedTempFile,
}

impl Server {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    /// Waits for the first log line with this message, for at most a minute.
    pub(crate) fn wait_for(&mut self, message: &str) -> Value {
        for _ in 0..12_000 {
            let ended = self.child.try_wait().unwrap();
            let found = self.line(message);
            match (found, ended) {
                (Some(line), _) => return line,
                (None, Some(status)) => panic!("{status} without {message:?}: {}", self.log()),
                (None, None) => sleep(Duration::from_millis(5)),
            }
        }
        panic!("a minute without {message:?}: {}", self.log());
    }

    fn line(&self, message: &str) -> Option<Value> {
        self.log()
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|line| line["message"].as_str().is_some_and(|text| text.contains(message)))
    }

    /// Returns a field of the log line that reports that the server is ready.
    pub(crate) fn ready(&mut self, field: &str) -> String {
        match &self.wait_for("ready: ids are served")[field] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    pub(crate) fn http(&mut self, path: &str) -> (u16, String) {
        let address = self.ready("http");
        get(&address, path)
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent =
            Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends one HTTP/1.0 request, whose answer is never chunked. Returns the status and the body.
pub(crate) fn get(address: &str, path: &str) -> (u16, String) {
    ask(TcpStream::connect(address).unwrap(), path)
}

/// Sends one HTTP/1.0 request on an open connection, like [`get`].
pub(crate) fn ask(mut stream: impl Read + Write, path: &str) -> (u16, String) {
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

pub(crate) fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:.300}"))
}
