//! Shutdown: the service first becomes not ready, so that load balancers move on. Then connections finish
//! their requests, and are closed after a time limit. An idle connection is closed at once.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

/// The phases of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// Like `Leaving`, but an operator requested it and may end it.
    Drained,
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

    /// Makes the service not ready until [`end_drain`](Self::end_drain), unless it shuts down already.
    pub(crate) fn drain(&self) {
        self.step(Phase::Serving, Phase::Drained);
    }

    /// Makes the service ready again, unless it shuts down.
    pub(crate) fn end_drain(&self) {
        self.step(Phase::Drained, Phase::Serving);
    }

    /// Returns `true` if an operator has drained the service.
    pub(crate) fn is_drained(&self) -> bool {
        *self.0.borrow() == Phase::Drained
    }

    fn step(&self, from: Phase, to: Phase) {
        self.0.send_if_modified(|phase| {
            let is_from = *phase == from;
            if is_from {
                *phase = to;
            }
            is_from
        });
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

    /// Returns `true` if an operator has drained the service.
    pub(crate) fn is_drained(&self) -> bool {
        *self.0.borrow() == Phase::Drained
    }

    /// Returns `true` if the service is not ready any more.
    pub(crate) fn is_leaving(&self) -> bool {
        *self.0.borrow() > Phase::Serving
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an operator cannot call off a shutdown. Method: each phase, with a drain and its end.
    #[test]
    fn a_drain_ends_only_by_its_end_and_a_shutdown_never() {
        let shutdown = Shutdown::new();
        let listener = shutdown.listener();
        shutdown.end_drain();
        assert!(!listener.is_leaving());
        shutdown.drain();
        assert!(listener.is_leaving() && listener.is_drained() && !listener.is_ending());
        shutdown.end_drain();
        assert!(!listener.is_leaving());
        shutdown.drain();
        shutdown.leave();
        shutdown.end_drain();
        assert!(listener.is_leaving() && !listener.is_drained());
        shutdown.begin();
        shutdown.drain();
        shutdown.end_drain();
        assert!(listener.is_ending());
    }
}
