//! The end from outside: the first signal asks for an orderly end, the second one ends at once.

use std::io;

use tokio::sync::watch;

/// Hears of the signals that ask a process to end.
pub(super) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Listens from here on; before, a signal ends the process.
    pub(super) fn listen() -> io::Result<Self> {
        let mut signals = Signals::listen()?;
        let (asked, stop) = watch::channel(false);
        tokio::spawn(async move {
            let first = signals.next().await;
            tracing::info!("{first}: ending; a second signal ends at once");
            asked.send_replace(true);
            let second = signals.next().await;
            tracing::warn!("{second}: ended at once; the lease runs out by itself");
            std::process::exit(1);
        });
        Ok(Self(stop))
    }

    /// Returns once a signal has come.
    pub(super) async fn asked(&self) {
        // The sender lives as long as the process.
        let _ = self.0.clone().wait_for(|asked| *asked).await;
    }
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        // Nobody means the end by these, and the system would take them for it. A handler stays, heard or not.
        for harmless in [SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()] {
            drop(signal(harmless)?);
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
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        // Without a handler the system's own ends the process, which is what was asked for.
        let _ = tokio::signal::ctrl_c().await;
        "Ctrl-C"
    }
}
