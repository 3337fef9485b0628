//! Sockets that systemd opens and passes on. The test plays systemd: it holds the sockets, and starts the
//! service with them as descriptors 3 and 4.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use snowmint_test_servers::snowmint::third_party::output;
use snowmint_test_servers::snowmint::{STATE, binary, clean, workspace};
use snowmint_test_servers::time;

const PATIENCE: Duration = Duration::from_secs(30);

/// The shell becomes the service, so that `LISTEN_PID` is right.
const LAUNCH: &str = "exec 3<&0 4<&1 </dev/null >/dev/null\n\
                      export LISTEN_FDS=2 LISTEN_PID=$$ LISTEN_FDNAMES=$1; shift\n\
                      exec \"$@\"";

struct Activated {
    child: Child,
    log: PathBuf,
}

impl Activated {
    /// Starts the service with two sockets of these names, such as `http:resp`.
    fn start(folder: &Path, names: &str, sockets: [OwnedFd; 2], args: &[&str]) -> Self {
        let [first, second] = sockets;
        let log = folder.join("log");
        let mut command = clean(Command::new("sh"));
        command.args(["-c", LAUNCH, "sh", names]).arg(binary()).arg("serve").args(args).current_dir(folder);
        let child = command
            .env(STATE, folder)
            .stdin(first)
            .stdout(second)
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn wait_for(&self, text: &str) {
        time::eventually(&format!("`{text}` in the log"), PATIENCE, || {
            self.log().contains(text).then_some(())
        });
    }

    fn stop(mut self) -> ExitStatus {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }

    fn ended(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        (status.code(), self.log())
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

const REQUEST: &[u8] = b"GET /v1/ids/default HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

fn answer(stream: &mut (impl Read + Write)) -> String {
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

/// Goal: the service serves the sockets that it receives, leaves the file of a Unix socket alone, and a
/// client that connects while the service restarts is answered by the next process.
#[test]
fn clients_of_a_restart_wait_and_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resp.sock");
    let (http, resp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
    let address = http.local_addr().unwrap();
    let start = || {
        let sockets = [http.try_clone().unwrap().into(), resp.try_clone().unwrap().into()];
        Activated::start(folder.path(), "http:resp", sockets, &["--http", "systemd", "--resp", "systemd"])
    };
    let first = start();
    first.wait_for("ready: ids are served");
    assert!(
        first.log().contains(&format!("http=\"{address}\" resp=\"unix:{}\"", path.display())),
        "{}",
        first.log()
    );
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"ID.NEXT default\r\nQUIT\r\n").unwrap();
    assert!(answer(&mut client).starts_with("$19\r\n"));
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(REQUEST).unwrap();
    assert!(answer(&mut client).starts_with("HTTP/1.1 200 "));
    assert!(first.stop().success());

    assert!(path.exists());
    let mut over_tcp = TcpStream::connect(address).unwrap();
    over_tcp.write_all(REQUEST).unwrap();
    let mut over_unix = UnixStream::connect(&path).unwrap();
    over_unix.write_all(b"ID.NEXT default\r\nQUIT\r\n").unwrap();
    let second = start();
    over_tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    over_unix.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(answer(&mut over_tcp).starts_with("HTTP/1.1 200 "));
    assert!(answer(&mut over_unix).starts_with("$19\r\n"));
    assert!(second.stop().success());
}

/// Goal: mismatched sockets are rejected before anything is opened, with the socket and the remedy. An
/// address that other machines reach needs explicit permission here too.
#[test]
fn sockets_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let tcp = |address: &str| OwnedFd::from(TcpListener::bind(address).unwrap());
    let client = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        OwnedFd::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap())
    };
    let local = || tcp("127.0.0.1:0");
    let file = || OwnedFd::from(File::open(folder.path()).unwrap());
    let both = &["--http", "systemd", "--resp", "systemd"][..];
    for (names, sockets, args, wanted) in [
        ("http:web", [local(), local()], both, "--resp: systemd passed no socket named \"resp\""),
        ("http:http", [local(), local()], both, "systemd passed two sockets named \"http\""),
        (
            "http:resp",
            [local(), local()],
            &both[..2],
            "systemd passed a socket named \"resp\" that no flag uses",
        ),
        ("http:resp", [local(), file()], both, "systemd passed \"resp\", which is not a TCP or Unix socket"),
        ("http:resp", [local(), client()], both, "--resp systemd: the socket does not listen"),
        ("http:resp", [tcp("0.0.0.0:0"), local()], both, "other machines can connect"),
        ("http", [local(), local()], both, "LISTEN_FDS: "),
    ] {
        let (code, log) = Activated::start(folder.path(), names, sockets, args).ended();
        assert!(code == Some(2) && log.contains(wanted), "{wanted}: {code:?} {log}");
    }
    let mut command = clean(Command::new(binary()));
    let alone = command.args(["serve", "--http", "systemd"]).current_dir(folder.path()).output().unwrap();
    let told = String::from_utf8_lossy(&alone.stderr);
    assert!(alone.status.code() == Some(2) && told.contains("FileDescriptorName=http"), "{told}");
}

/// Goal: the shipped units use flags that exist, and name the sockets as the service expects.
#[test]
fn the_units_fit_the_service() {
    let packaging = workspace().join("packaging");
    let text = |name: &str| std::fs::read_to_string(packaging.join(name)).unwrap();
    let (service, settings) = (text("systemd/snowmint.service"), text("snowmint.toml"));
    for name in ["http", "resp"] {
        let socket = text(&format!("systemd/snowmint-{name}.socket"));
        for line in [format!("FileDescriptorName={name}\n"), "Service=snowmint.service\n".to_owned()] {
            assert!(socket.contains(&line), "{line}{socket}");
        }
        // Both ways serve the same address.
        let address = socket.lines().find_map(|line| line.strip_prefix("ListenStream=")).unwrap();
        assert!(settings.contains(&format!("{name} = \"{address}\"\n")), "{settings}");
    }
    let line =
        service.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/snowmint serve ")).unwrap();
    let help = output(binary().to_str().unwrap(), ["serve", "--help"]);
    for flag in line.split(' ').filter(|word| word.starts_with("--")) {
        assert!(help.contains(flag), "{flag}");
    }
    let settings = packaging.join("snowmint.toml");
    output(binary().to_str().unwrap(), ["config", "check", settings.to_str().unwrap()]);
}
