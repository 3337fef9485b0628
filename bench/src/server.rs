//! The built server as a process: started on free ports, measured from outside, stopped with the measurement.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

/// The limit for any step before a measurement gives up.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The limit for a start: the first one with 10,000 namespaces writes as many records.
const START_PATIENCE: Duration = Duration::from_mins(5);

/// The result of a measurement of the server.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A directory that is deleted when this is dropped.
#[derive(Debug)]
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Creates a new directory.
    ///
    /// # Errors
    ///
    /// An error of the system.
    pub fn new(name: &str) -> Outcome<Self> {
        let path = std::env::temp_dir().join(format!("snowmint-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// The address of its HTTP port.
    pub http: SocketAddr,
    /// The address of its RESP port.
    pub resp: SocketAddr,
    /// The address of its port for probes.
    pub probe: SocketAddr,
}

impl Server {
    /// Starts a server and draws one id. Returns the time from just before the start to the answer.
    ///
    /// # Errors
    ///
    /// The server ends, or returns no id in time.
    pub fn start(binary: &Path, data: &Path, flags: &[&str]) -> Outcome<(Self, Duration)> {
        Self::start_until(binary, data, flags, |server| Ok(draw(server.resp)?))
    }

    /// Starts a server, and returns the time from just before the start until it is ready. An error says that
    /// it is not ready yet.
    ///
    /// # Errors
    ///
    /// The server ends, or is not ready in time.
    pub fn start_until(
        binary: &Path,
        data: &Path,
        flags: &[&str],
        is_ready: impl Fn(&Self) -> Outcome<bool>,
    ) -> Outcome<(Self, Duration)> {
        let (http, resp, probe) = (free_port()?, free_port()?, free_port()?);
        let started = Instant::now();
        let child = Command::new(binary)
            .args(["serve", "--http", &http.to_string(), "--resp", &resp.to_string()])
            .args(["--probe", &probe.to_string(), "--data"])
            .arg(data)
            // The same node name each time, as with a fixed port.
            .args(["--holder", "bench"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut server = Self { child, http, resp, probe };
        loop {
            if let Ok(true) = is_ready(&server) {
                return Ok((server, started.elapsed()));
            }
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("snowmint serve ended: {status}").into());
            }
            if started.elapsed() > START_PATIENCE {
                return Err(format!("not ready within {START_PATIENCE:?}").into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Stops it with a signal.
    ///
    /// # Errors
    ///
    /// An error of the system.
    pub fn stop(mut self, signal: Signal) -> Outcome<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal)?;
        self.child.wait()?;
        Ok(())
    }

    fn proc(&self, file: &str) -> Outcome<String> {
        Ok(fs::read_to_string(format!("/proc/{}/{file}", self.child.id()))?)
    }

    /// Returns a field of a file in `/proc`, in KiB.
    ///
    /// # Errors
    ///
    /// The field is missing.
    pub fn kib(&self, file: &str, field: &str) -> Outcome<f64> {
        let text = self.proc(file)?;
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        Ok(line.and_then(|rest| rest.split_whitespace().next()).ok_or(format!("no {field}"))?.parse()?)
    }

    /// Returns the CPU time of all threads so far, in milliseconds.
    ///
    /// # Errors
    ///
    /// The process is gone.
    pub fn cpu_ms(&self) -> Outcome<f64> {
        cpu_ms(self.child.id())
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// Returns the CPU time of all threads of a process so far, in milliseconds.
///
/// # Errors
///
/// The process is gone.
pub fn cpu_ms(pid: u32) -> Outcome<f64> {
    let mut ms = 0.0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let ns: f64 = text.split_whitespace().next().ok_or("an empty schedstat")?.parse()?;
        ms += ns / 1e6;
    }
    Ok(ms)
}

/// Returns the ticks of 10 ms that the host took from all processors so far ("steal" in proc(5)).
///
/// # Errors
///
/// The system does not report it.
pub fn stolen_ticks() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/stat")?;
    let ticks = text.split_whitespace().nth(8).ok_or("/proc/stat has no column for steal")?;
    Ok(ticks.parse()?)
}

/// Another server to compare with, such as Redis. It is killed when this is dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    /// The address on which it listens.
    pub address: SocketAddr,
}

impl Peer {
    /// Starts `command` with arguments for a free port, and waits until it listens.
    ///
    /// # Errors
    ///
    /// The command ends, or does not listen in time.
    pub fn start(command: impl FnOnce(SocketAddr) -> Command) -> Outcome<Self> {
        let address = free_port()?;
        let child =
            command(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut peer = Self { child, address };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = peer.child.try_wait()? {
                return Err(format!("the peer ended: {status}").into());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("the peer does not listen on {address}").into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(peer)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the process was already stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests one id. Returns `false` if the answer is an error, for example because there is no lease yet.
fn draw(resp: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(resp)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\n")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer.starts_with('$'))
}

/// Lets this process, and those that it starts, open as many files as the system allows.
///
/// # Errors
///
/// An error of the system.
pub fn raise_open_files() -> Outcome<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Returns an address on which nothing listens.
///
/// # Errors
///
/// An error of the system.
pub fn free_port() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
