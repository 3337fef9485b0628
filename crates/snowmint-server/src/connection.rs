//! What the connections of RESP and Thrift share: the time limits of a client, sending to one that may not read, and counts
//! that are not added up yet.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

use crate::limits::REST;
use crate::metrics::{Metrics, Protocol};
use crate::mint::Namespace;
use crate::settings::Timeouts;
use crate::stream::Stream;

/// Sends all of `out`. Returns the number of bytes.
///
/// # Errors
///
/// The connection failed, or the client read nothing `within` this time.
pub(crate) async fn send(stream: &mut Stream, out: &[u8], within: Duration) -> io::Result<usize> {
    let mut sent = 0;
    while sent < out.len() {
        let rest = &out[sent..];
        sent += match stream.try_write(rest) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Only a client that does not read needs the timer.
                timeout(within, stream.write(rest)).await.map_err(|_| stalled(within))??
            }
            Err(error) => return Err(error),
        };
    }
    if stream.needs_flush() {
        timeout(within, stream.flush()).await.map_err(|_| stalled(within))??;
    }
    Ok(sent)
}

#[cold]
fn stalled(within: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the client read nothing for {within:?}"))
}

/// The time limits of a client. One timer sleeps from deadline to deadline, so that a command needs none of its own.
pub(crate) struct ClientTimer {
    timeouts: Timeouts,
    /// When the last command was answered.
    answered: Instant,
    /// When the incomplete command began.
    begun: Option<Instant>,
    /// Whether nothing has arrived yet.
    pub(crate) fresh: bool,
    /// Whether the buffers were freed.
    pub(crate) rests: bool,
}

/// What to do when the timer fires.
pub(crate) enum TimerAction {
    /// Nothing yet.
    Early,
    /// Free the buffers.
    Rest,
    /// Close: the client was idle for too long.
    Idle,
    /// Fail: the command takes too long to arrive.
    Late,
}

impl ClientTimer {
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        Self { timeouts, answered: Instant::now(), begun: None, fresh: true, rests: true }
    }

    /// Input arrived: `any` complete command, and a `part` of another one.
    pub(crate) fn answered(&mut self, now: Instant, any: bool, part: bool) {
        (self.fresh, self.rests, self.answered) = (false, false, now);
        self.begun = match self.begun.filter(|_| !any) {
            Some(begun) => Some(begun),
            None => part.then_some(now),
        };
    }

    /// Returns when to look next.
    pub(crate) fn next(&self) -> Instant {
        /// Far enough for a timer that is never needed.
        const NEVER: Duration = Duration::from_hours(24 * 365);
        match (self.begun, self.rests) {
            (Some(begun), _) => begun + self.timeouts.request,
            (None, false) => self.answered + REST,
            (None, true) => self.answered + self.timeouts.idle.unwrap_or(NEVER),
        }
    }

    pub(crate) fn look(&mut self) -> TimerAction {
        let now = Instant::now();
        if let Some(begun) = self.begun {
            return if now >= begun + self.timeouts.request { TimerAction::Late } else { TimerAction::Early };
        }
        if self.timeouts.idle.is_some_and(|idle| now >= self.answered + idle) {
            return TimerAction::Idle;
        }
        if !self.rests && now >= self.answered + REST {
            self.rests = true;
            return TimerAction::Rest;
        }
        TimerAction::Early
    }
}

/// The counts of a connection since its last write. Adding them up for every request would cost more than parsing.
#[derive(Debug)]
pub(crate) struct PendingCounts {
    protocol: Protocol,
    /// The successful requests.
    pub(crate) succeeded: u64,
    issued: u64,
    /// The namespace of the ids.
    namespace: Option<Arc<Namespace>>,
}

impl PendingCounts {
    pub(crate) const fn new(protocol: Protocol) -> Self {
        Self { protocol, succeeded: 0, issued: 0, namespace: None }
    }

    /// Counts a successful request for ids.
    #[inline]
    pub(crate) fn issued(&mut self, metrics: &Metrics, namespace: &Arc<Namespace>, ids: u64) {
        self.issued_by(metrics, namespace, ids, 1);
    }

    /// Counts successful requests for one id each.
    pub(crate) fn issued_one_each(&mut self, metrics: &Metrics, namespace: &Arc<Namespace>, requests: u64) {
        self.issued_by(metrics, namespace, requests, requests);
    }

    #[inline]
    fn issued_by(&mut self, metrics: &Metrics, namespace: &Arc<Namespace>, ids: u64, requests: u64) {
        if self.namespace.as_ref().is_none_or(|last| !Arc::ptr_eq(last, namespace)) {
            self.add_up(metrics);
            self.namespace = Some(Arc::clone(namespace));
        }
        self.issued += ids;
        self.succeeded += requests;
    }

    pub(crate) fn add_up(&mut self, metrics: &Metrics) {
        if self.succeeded > 0 {
            metrics.succeeded(self.protocol, std::mem::take(&mut self.succeeded));
        }
        if let (1.., Some(namespace)) = (self.issued, &self.namespace) {
            namespace.add_issued(std::mem::take(&mut self.issued));
        }
    }
}
