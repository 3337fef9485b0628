//! The end of the service: it first tells balancers that it leaves, then connections finish what they have begun, and are
//! cut after a bound. A connection that waits for its client's next request is idle, and ends at once.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

/// How far the service is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// Every request is served, but the service is not ready, so that balancers send new clients elsewhere.
    Leaving,
    Ending,
}

/// Tells every connection that the service leaves, and then that it ends.
#[derive(Debug)]
pub(crate) struct Shutdown(watch::Sender<Phase>);

/// What a connection listens to.
#[derive(Clone, Debug)]
pub(crate) struct Draining(watch::Receiver<Phase>);

impl Shutdown {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Phase::Serving))
    }

    pub(crate) fn listener(&self) -> Draining {
        Draining(self.0.subscribe())
    }

    /// From now on the service is not ready, and asks HTTP clients to connect elsewhere.
    pub(crate) fn leave(&self) {
        self.0.send_replace(Phase::Leaving);
    }

    pub(crate) fn begin(&self) {
        self.0.send_replace(Phase::Ending);
    }
}

impl Draining {
    /// Returns once the service ends; also when it was dropped without a word, for then nobody would ever say.
    pub(crate) async fn begun(mut self) {
        let _ = self.0.wait_for(|phase| *phase == Phase::Ending).await;
    }

    /// Whether it ends.
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow() == Phase::Ending
    }

    /// Whether it leaves or ends.
    pub(crate) fn is_leaving(&self) -> bool {
        *self.0.borrow() >= Phase::Leaving
    }
}

/// Waits until every connection ended by itself, `bound` at most, and cuts those that did not: how many.
pub(crate) async fn drain(connections: &mut JoinSet<()>, bound: Duration) -> usize {
    let all = async { while connections.join_next().await.is_some() {} };
    let in_time = tokio::time::timeout(bound, all).await.is_ok();
    let cut = if in_time { 0 } else { connections.len() };
    connections.shutdown().await;
    cut
}
