//! Notifies systemd of the service's state: ready, waiting, stopping, alive. Also takes over the sockets that
//! systemd has opened for it.
//!
//! For units with `Type=notify`, with or without `WatchdogSec`. Without the variable `NOTIFY_SOCKET`, nothing
//! is sent. Source: `sd_notify(3)`, `sd_watchdog_enabled(3)` and `sd_listen_fds(3)`.

use std::convert::Infallible;
use std::time::Duration;

#[cfg(unix)]
use sd_notify::NotifyState;
use snowmint_server::Listener;
use tokio::runtime::Handle;

use crate::error::Failure;
use crate::flag_values::Listen;

/// The reports of a service. Systems other than Unix have no systemd, and nothing sends them there.
#[cfg(not(unix))]
#[expect(dead_code, reason = "nothing reads them")]
enum NotifyState<'a> {
    Ready,
    Stopping,
    Watchdog,
    Status(&'a str),
    ExtendTimeoutUsec(u32),
}

/// Time beyond the next attempt for which systemd waits for a start that makes no progress.
const PATIENCE: Duration = Duration::from_secs(30);

/// The sockets that systemd has opened for this process, by name: `FileDescriptorName=` of the unit.
#[derive(Debug, Default)]
pub(super) struct Sockets(Vec<(String, PassedSocket)>);

#[derive(Debug)]
enum PassedSocket {
    Tcp(std::net::TcpListener),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixListener),
}

impl Sockets {
    /// Takes over the sockets that this process was started with. Call it once, at the start.
    #[cfg(unix)]
    pub(super) fn take() -> Result<Self, Failure> {
        let passed = sd_notify::listen_fds_with_names()
            .map_err(|error| Failure::usage(format!("LISTEN_FDS: {error}: expected systemd's value")))?;
        let mut sockets = Vec::<(String, PassedSocket)>::new();
        for (number, name) in passed {
            if sockets.iter().any(|(other, _)| *other == name) {
                return Err(Failure::usage(format!(
                    "systemd passed two sockets named {name:?}: expected one; keep one ListenStream= in the unit"
                )));
            }
            let socket = PassedSocket::of(number).ok_or_else(|| {
                Failure::usage(format!("systemd passed {name:?}, which is not a TCP or Unix socket"))
            })?;
            sockets.push((name, socket));
        }
        Ok(Self(sockets))
    }

    /// Returns no sockets: this system has no systemd.
    #[cfg(not(unix))]
    pub(super) fn take() -> Result<Self, Failure> {
        Ok(Self::default())
    }

    /// Replaces `systemd` in each of these flags by the address of the socket with the same name as the flag.
    pub(super) fn resolve(&self, flags: &mut [(&'static str, &mut Listen)]) -> Result<(), Failure> {
        let mut used = Vec::new();
        for (flag, listen) in flags.iter_mut().filter(|(_, listen)| **listen == Listen::Systemd) {
            let name = flag.trim_start_matches('-');
            let Some((_, socket)) = self.0.iter().find(|(it, _)| it == name) else {
                let why = format!(
                    "systemd passed no socket named {name:?}: start the service by a socket unit with FileDescriptorName={name}"
                );
                return Err(Failure::flag(flag, why));
            };
            **listen = Listen::Passed(socket.address());
            used.push(name);
        }
        // Clients of an unused socket would wait forever.
        match self.0.iter().find(|(name, _)| !used.contains(&name.as_str())) {
            Some((name, _)) => Err(Failure::usage(format!(
                "systemd passed a socket named {name:?} that no flag uses: use it as in `--http systemd` with \
                 FileDescriptorName=http, or remove its unit"
            ))),
            None => Ok(()),
        }
    }

    /// Opens the socket of a flag on the threads of this runtime. It also stays open in systemd: clients that
    /// connect during a restart wait.
    pub(super) fn open(&self, flag: &'static str) -> Result<Option<Listener>, Failure> {
        let name = flag.trim_start_matches('-');
        let Some((_, socket)) = self.0.iter().find(|(it, _)| it == name) else { return Ok(None) };
        let opened = match socket {
            PassedSocket::Tcp(socket) => socket.try_clone().and_then(Listener::try_from),
            #[cfg(unix)]
            PassedSocket::Unix(socket) => socket.try_clone().and_then(Listener::try_from),
        };
        opened.map(Some).map_err(|error| Failure::usage(format!("{flag} systemd: {error}")))
    }
}

#[cfg(unix)]
impl PassedSocket {
    #[expect(
        unsafe_code,
        reason = "nothing else makes a socket of its number, which is how systemd passes it"
    )]
    fn of(number: std::os::fd::RawFd) -> Option<Self> {
        use std::os::fd::{FromRawFd as _, OwnedFd};
        // SAFETY: systemd opened this number for this process, as LISTEN_PID says, and each number is taken
        // once.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        let tcp = std::net::TcpListener::from(descriptor);
        if tcp.local_addr().is_ok() {
            return Some(Self::Tcp(tcp));
        }
        let unix = std::os::unix::net::UnixListener::from(OwnedFd::from(tcp));
        unix.local_addr().is_ok().then_some(Self::Unix(unix))
    }
}

impl PassedSocket {
    fn address(&self) -> String {
        match self {
            Self::Tcp(socket) => {
                socket.local_addr().map_or_else(|_| "unknown:0".to_owned(), |it| it.to_string())
            }
            #[cfg(unix)]
            Self::Unix(socket) => {
                let path = socket
                    .local_addr()
                    .ok()
                    .and_then(|it| it.as_pathname().map(|it| it.display().to_string()));
                format!("unix:{}", path.unwrap_or_default())
            }
        }
    }
}

/// Reports why the start waits, and that the next attempt or report follows after `wait`: systemd then
/// extends its start timeout.
pub(super) fn waits(problem: &str, wait: Duration) {
    let micros = u32::try_from((wait + PATIENCE).as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Status(problem), NotifyState::ExtendTimeoutUsec(micros)]);
}

/// Reports that the ports are open and served, with or without a lease.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Reports the state in a few words, for `systemctl status`.
pub(super) fn status(words: &str) {
    tell(&[NotifyState::Status(words)]);
}

pub(super) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing the requests in flight")]);
}

/// Reports at half the requested interval that the service is alive. This task proves that the lease thread
/// runs, and a task on the request threads proves that they run. If a thread hangs, the reports end, and
/// systemd restarts the service.
pub(super) async fn watchdog(serving: &Handle) -> Infallible {
    #[cfg(unix)]
    let limit = sd_notify::watchdog_enabled();
    #[cfg(not(unix))]
    let limit = None::<Duration>;
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        tokio::time::sleep(limit / 2).await;
        if serving.spawn(async {}).await.is_ok() {
            tell(&[NotifyState::Watchdog]);
        }
    }
}

#[cfg(not(unix))]
const fn tell(_states: &[NotifyState<'_>]) {}

#[cfg(unix)]
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}
