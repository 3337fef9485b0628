//! Shutdown: the service first becomes not ready, so that load balancers move on. Then connections finish their requests,
//! and are closed after a time limit. An idle connection is closed at once.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

/// The phases of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// All requests are served, but the service is not ready, so that load balancers use other nodes.
    Leaving,
    Ending,
}

/// Announces the phases of a shutdown to all connections.
#[derive(Debug)]
pub(crate) struct Shutdown(watch::Sender<Phase>);

/// A connection's view of the shutdown.
#[derive(Clone, Debug)]
pub(crate) struct ShutdownListener(watch::Receiver<Phase>);

impl Shutdown {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Phase::Serving))
    }

    pub(crate) fn listener(&self) -> ShutdownListener {
        ShutdownListener(self.0.subscribe())
    }

    /// Makes the service not ready. HTTP clients are asked to reconnect.
    pub(crate) fn leave(&self) {
        self.0.send_replace(Phase::Leaving);
    }

    pub(crate) fn begin(&self) {
        self.0.send_replace(Phase::Ending);
    }
}

impl ShutdownListener {
    /// Returns once the service ends, or if its [`Shutdown`] was dropped.
    pub(crate) async fn ended(mut self) {
        let _ = self.0.wait_for(|phase| *phase == Phase::Ending).await;
    }

    /// Returns `true` if the service ends.
    pub(crate) fn is_ending(&self) -> bool {
        *self.0.borrow() == Phase::Ending
    }

    /// Returns `true` if the service is not ready any more.
    pub(crate) fn is_leaving(&self) -> bool {
        *self.0.borrow() >= Phase::Leaving
    }
}

/// Waits until all connections have ended, for `limit` at most. Closes the others and returns their number.
pub(crate) async fn drain(connections: &mut JoinSet<()>, limit: Duration) -> usize {
    let all = async { while connections.join_next().await.is_some() {} };
    let in_time = tokio::time::timeout(limit, all).await.is_ok();
    let cut = if in_time { 0 } else { connections.len() };
    connections.shutdown().await;
    cut
}
