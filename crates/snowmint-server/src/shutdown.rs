//! The end of the service: connections hear of it, finish what they have begun, and are cut after a bound.
//! A connection that waits for its client's next request is idle, and ends at once.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

/// Tells every connection that the service ends.
#[derive(Debug)]
pub(crate) struct Shutdown(watch::Sender<bool>);

/// What a connection listens to.
#[derive(Clone, Debug)]
pub(crate) struct Draining(watch::Receiver<bool>);

impl Shutdown {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(crate) fn listener(&self) -> Draining {
        Draining(self.0.subscribe())
    }

    pub(crate) fn begin(&self) {
        self.0.send_replace(true);
    }
}

impl Draining {
    /// Returns once the service ends; also when it was dropped without a word, for then nobody would ever say.
    pub(crate) async fn begun(mut self) {
        let _ = self.0.wait_for(|ends| *ends).await;
    }

    /// Whether it ends.
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
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
