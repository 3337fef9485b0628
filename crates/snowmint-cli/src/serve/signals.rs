//! The signals that stop the service, and the one that makes it read its files again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::logging::Logging;
use crate::log_queue;

/// Time after the first signal in which others belong to it: `timeout` signals the process and then its
/// group, and Ctrl-C reaches both a supervisor, which passes it on, and the process itself.
const SAME_STOP: Duration = Duration::from_millis(200);

/// The files and settings that SIGHUP reloads. Systems without SIGHUP never reload.
#[derive(Debug, Default)]
pub(super) struct Reload {
    pub(super) namespaces: Arc<Notify>,
    pub(super) tls: Arc<Notify>,
    pub(super) tokens: Arc<Notify>,
}

impl Reload {
    #[cfg(unix)]
    pub(super) fn on_hangup(logging: Logging) -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut hangups = signal(SignalKind::hangup())?;
        let reload = Self::default();
        let all = [&reload.namespaces, &reload.tls, &reload.tokens].map(Arc::clone);
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                tracing::info!("SIGHUP: reloading namespaces, TLS files, tokens and log level");
                for reload in &all {
                    reload.notify_one();
                }
                // The disk may hang, and this thread renews the lease.
                let logging = logging.clone();
                let read = tokio::task::spawn_blocking(move || logging.reload()).await;
                if let Err(error) = read {
                    tracing::error!(%error, "log level not changed; the previous one stays in use");
                }
            }
        });
        Ok(reload)
    }

    #[cfg(not(unix))]
    pub(super) fn on_hangup(_: Logging) -> io::Result<Self> {
        Ok(Self::default())
    }
}

/// The signals that stop the process: the first one shuts it down in order, the second one at once.
pub(super) struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Starts to listen. Before that, a signal kills the process.
    pub(super) fn listen() -> io::Result<Self> {
        let mut signals = EndSignals::listen()?;
        let (asked, stop) = watch::channel(false);
        tokio::spawn(async move {
            let mut requests = StopRequests::default();
            loop {
                let signal = signals.next().await;
                match requests.of_signal_at(tokio::time::Instant::now()) {
                    StopRequest::Stop => {
                        tracing::info!("{signal}: shutting down; a second signal exits at once");
                        asked.send_replace(true);
                    }
                    StopRequest::Same => {}
                    StopRequest::Exit => {
                        tracing::warn!("{signal}: exiting at once; the lease expires by itself");
                        log_queue::flush();
                        std::process::exit(1);
                    }
                }
            }
        });
        Ok(Self(stop))
    }

    /// Waits for the first signal.
    pub(super) async fn asked(&self) {
        // The sender lives as long as the process.
        let _ = self.0.clone().wait_for(|asked| *asked).await;
    }
}

/// What a signal asks for.
#[derive(Debug, PartialEq, Eq)]
enum StopRequest {
    /// To stop in order.
    Stop,
    /// The same as the signal just before.
    Same,
    /// To exit at once.
    Exit,
}

/// The signals so far: until when others belong to the first one.
#[derive(Default)]
struct StopRequests(Option<tokio::time::Instant>);

impl StopRequests {
    fn of_signal_at(&mut self, now: tokio::time::Instant) -> StopRequest {
        match self.0 {
            None => {
                self.0 = Some(now + SAME_STOP);
                StopRequest::Stop
            }
            Some(same_until) if now < same_until => StopRequest::Same,
            Some(_) => StopRequest::Exit,
        }
    }
}

/// The signals that stop a process on this system.
struct EndSignals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl EndSignals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        // Without a handler, these signals would kill the process. A handler stays installed after its drop.
        for ignored in [SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()] {
            drop(signal(ignored)?);
        }
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(not(unix))]
impl EndSignals {
    fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    async fn next(&mut self) -> &'static str {
        // If the handler cannot be installed, the system ends the process, as requested.
        let _ = tokio::signal::ctrl_c().await;
        "Ctrl-C"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `timeout` sends two signals at once, a supervisor and a terminal one each: they stop in order. A later
    /// one exits.
    #[test]
    fn signals_that_arrive_together_are_one() {
        let first = tokio::time::Instant::now();
        let mut requests = StopRequests::default();
        for (after_ms, request) in [
            (0, StopRequest::Stop),
            (0, StopRequest::Same),
            (199, StopRequest::Same),
            (200, StopRequest::Exit),
            (60_000, StopRequest::Exit),
        ] {
            assert_eq!(requests.of_signal_at(first + Duration::from_millis(after_ms)), request, "{after_ms}");
        }
    }
}
