//! Accepts connections up to the limit, runs each in a task of its own, and returns memory to the system after a flood. Neither a
//! failed connection nor a failed `accept` stops it: a full table of file descriptors is temporary.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::access_log;
use crate::limits::{KEEPALIVE, LINGER, UNSENT};
use crate::listener::{Listener, Socket};
use crate::metrics::{Metrics, Protocol};
use crate::shutdown::{self, ShutdownListener};
use crate::status::ErrorKind;
use crate::stream::Stream;
use crate::tls::{Accepted, Tls};

/// Pause after `accept` failed for a temporary reason.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// Interval between two log lines about one problem.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// How a connection was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Within the connection limit.
    Client,
    /// Beyond the limit, on one of a few reserved connections: for health and metrics, and for errors.
    Reserved,
    /// On the port for health and metrics, which has a limit of its own.
    Probe,
}

impl Admission {
    /// Returns the protocol under which a request is counted. Requests on the port for health and metrics are counted separately.
    pub(crate) const fn protocol(self, spoken: Protocol) -> Protocol {
        if matches!(self, Self::Probe) { Protocol::Probe } else { spoken }
    }
}

/// How many connections a port accepts.
#[derive(Clone, Debug)]
pub(crate) enum Capacity {
    Shared {
        /// One permit for each connection, over all protocols.
        permits: Arc<Semaphore>,
        /// The number of reserved connections of this protocol, beyond the permits.
        reserved: usize,
    },
    /// A limit of its own, independent of other ports; a new connection replaces the oldest. For the port for health and metrics.
    Own(usize),
}

/// Accepts the connections of one protocol until the service ends, then drains them.
pub(crate) struct Acceptor<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) metrics: &'a Metrics,
    pub(crate) memory: &'a Arc<MemoryTrimmer>,
    pub(crate) capacity: Capacity,
    pub(crate) write_timeout: Duration,
    /// For TCP ports. The mode of its file controls access to a Unix socket.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) shutdown: ShutdownListener,
    pub(crate) drain: Duration,
}

/// The open connections of a port on which a new connection replaces the oldest.
#[derive(Default)]
struct Replaceable {
    tasks: JoinSet<()>,
    oldest_first: VecDeque<AbortHandle>,
}

impl Acceptor<'_> {
    /// Returns the number of connections that had to be closed.
    pub(crate) async fn run<F, Fut>(self, listener: Listener, connection: F) -> usize
    where
        F: Fn(Accepted, Admission) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let mut connections = JoinSet::new();
        let mut replaceable = Replaceable::default();
        let (mut failing, mut full) = (RecurringProblem::default(), RecurringProblem::default());
        let mut ends = std::pin::pin!(self.shutdown.clone().ended());
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut ends => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                Some(_) = replaceable.tasks.join_next(), if !replaceable.tasks.is_empty() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok(socket) => {
                    if let Some(failures) = failing.ended() {
                        tracing::info!(
                            protocol = self.protocol.name(),
                            failures,
                            "accepting connections again"
                        );
                    }
                    let permit = match &self.capacity {
                        Capacity::Shared { permits, .. } => Arc::clone(permits).try_acquire_owned().ok(),
                        Capacity::Own(_) => None,
                    };
                    if permit.is_some() {
                        self.note_room(&mut full);
                        self.spawn(&mut connections, socket, permit, &connection);
                    } else {
                        self.admit(&mut replaceable, &mut full, socket, &connection).await;
                    }
                }
                Err(error) => self.after_failure(&error, &mut failing).await,
            }
        }
        if let Capacity::Own(_) = self.capacity {
            connections = replaceable.tasks;
        }
        self.take_the_rest(listener, &mut connections, &connection);
        let cut = shutdown::drain(&mut connections, self.drain).await;
        tracing::debug!(protocol = self.protocol.name(), cut, "connections ended");
        cut
    }

    fn spawn<F, Fut>(
        &self,
        tasks: &mut JoinSet<()>,
        socket: Socket,
        permit: Option<OwnedSemaphorePermit>,
        connection: &F,
    ) -> AbortHandle
    where
        F: Fn(Accepted, Admission) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.prepare(&socket);
        let peer = socket.peer();
        let open = Open::new(self.metrics.open(self.protocol).clone(), Arc::clone(self.memory));
        let admission = match (&self.capacity, &permit) {
            (Capacity::Own(_), _) => Admission::Probe,
            (Capacity::Shared { .. }, Some(_)) => Admission::Client,
            (Capacity::Shared { .. }, None) => Admission::Reserved,
        };
        let accepted = Accepted { socket, protocol: self.protocol, tls: self.tls.clone() };
        let serving = access_log::of_client(peer, connection(accepted, admission));
        let held = (permit, open);
        // `map` keeps the future where it is. An async block would hold it a second time, which doubles the memory of every
        // connection.
        match admission {
            Admission::Client | Admission::Probe => tasks.spawn(serving.map(move |()| drop(held))),
            // A slower client is closed without an answer.
            Admission::Reserved => tasks.spawn(timeout(LINGER, serving).map(move |_| drop(held))),
        }
    }

    /// Records that the port is below its connection limit.
    fn note_room(&self, full: &mut RecurringProblem) {
        if let Some(refused) = full.ended() {
            tracing::info!(protocol = self.protocol.name(), refused, "below the connection limit again");
        }
    }

    /// Admits a connection, and closes the oldest one if there are too many. A health check sends its request at once; a client
    /// of a flood often never does.
    #[cold]
    async fn admit<F, Fut>(
        &self,
        replaceable: &mut Replaceable,
        full: &mut RecurringProblem,
        socket: Socket,
        connection: &F,
    ) where
        F: Fn(Accepted, Admission) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let limit = match self.capacity {
            Capacity::Shared { reserved, .. } => {
                if let Some(since) = full.occurred() {
                    tracing::warn!(
                        protocol = self.protocol.name(),
                        refused = since,
                        "connection limit reached; new clients are rejected, health and metrics are answered; raise \
                         --max-connections, or lower --idle-timeout"
                    );
                }
                reserved
            }
            Capacity::Own(limit) => limit,
        };
        // Waits for its task, which frees its file descriptor.
        let mut is_full = false;
        loop {
            while replaceable.tasks.try_join_next().is_some() {}
            replaceable.oldest_first.retain(|task| !task.is_finished());
            if replaceable.tasks.len() < limit {
                break;
            }
            if let Some(oldest) = replaceable.oldest_first.pop_front() {
                oldest.abort();
                self.metrics.failed(self.protocol, ErrorKind::TooManyClients);
                access_log::refused(self.protocol, ErrorKind::TooManyClients.status().name);
                is_full = true;
            }
            replaceable.tasks.join_next().await;
        }
        if let Capacity::Own(limit) = self.capacity {
            if !is_full {
                self.note_room(full);
            } else if let Some(closed) = full.occurred() {
                tracing::warn!(
                    closed,
                    "connection limit of --probe ({limit}) reached; each new client closes the oldest connection"
                );
            }
        }
        let task = self.spawn(&mut replaceable.tasks, socket, None, connection);
        replaceable.oldest_first.push_back(task);
    }

    #[cold]
    async fn after_failure(&self, error: &io::Error, failing: &mut RecurringProblem) {
        // The client left before it was accepted.
        let passing =
            [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::Interrupted];
        if passing.contains(&error.kind()) {
            return;
        }
        if let Some(failures) = failing.occurred() {
            tracing::warn!(
                protocol = self.protocol.name(),
                %error,
                failures,
                "cannot accept connections; retrying. If too many files are open, raise the limit (ulimit -n)"
            );
        }
        tokio::time::sleep(AFTER_FAILURE).await;
    }

    /// Accepts the clients that the system has already connected. Closing the listener would reset them and lose the requests
    /// that they have sent.
    fn take_the_rest<F, Fut>(&self, listener: Listener, connections: &mut JoinSet<()>, connection: &F)
    where
        F: Fn(Accepted, Admission) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        loop {
            let permit = match &self.capacity {
                Capacity::Shared { permits, .. } => match Arc::clone(permits).try_acquire_owned() {
                    Ok(permit) => Some(permit),
                    Err(_) => break,
                },
                Capacity::Own(limit) if connections.len() < *limit => None,
                Capacity::Own(_) => break,
            };
            let Ok(socket) = listener.accept_waiting() else { break };
            self.spawn(connections, socket, permit, connection);
        }
        // From here on the system refuses clients, and the next process can have the port.
        drop(listener);
    }

    /// Sets the socket options. Replies are small and sent at once; a client that vanished must not keep its connection.
    fn prepare(&self, socket: &Socket) {
        #[cfg_attr(not(unix), expect(irrefutable_let_patterns, reason = "there are no other sockets"))]
        let Socket::Tcp(stream) = socket else { return };
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 10);
        let socket = SockRef::from(stream);
        let set = stream.set_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive));
        // The kernel closes the connection of a client that reads nothing, even within a body, and buffers only this much of an
        // answer.
        #[cfg(target_os = "linux")]
        let set = set
            .and_then(|()| socket.set_tcp_user_timeout(Some(self.write_timeout)))
            .and_then(|()| socket.set_tcp_notsent_lowat(UNSENT));
        if let Err(error) = set {
            tracing::debug!(%error, "cannot set socket options");
        }
    }
}

/// Sends a last reply, then reads what the client still sends: closing with unread input would discard the reply.
pub(crate) async fn reply_and_close(mut stream: Stream, reply: &[u8]) {
    let replying = async {
        stream.write_all(reply).await?;
        stream.shutdown().await?;
        // On the heap: an array here would enlarge the task of every connection.
        let mut ignored = vec![0; 4096];
        while stream.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    // A client that does not read in time is closed.
    let _ = timeout(LINGER, replying).await;
}

/// A recurring problem, which is logged when it begins and once a minute while it lasts.
#[derive(Debug, Default)]
pub(crate) struct RecurringProblem {
    logged: Option<Instant>,
    times: u64,
}

impl RecurringProblem {
    /// Counts one occurrence. Returns the number so far if it should be logged now.
    pub(crate) fn occurred(&mut self) -> Option<u64> {
        self.times += 1;
        let now = Instant::now();
        if self.logged.is_some_and(|logged| now.duration_since(logged) < LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(now);
        Some(self.times)
    }

    /// Records that the problem is absent. Returns the number of occurrences if its end should be logged. The end is logged only
    /// a minute after the problem was last logged, since the problem may come and go.
    pub(crate) fn ended(&mut self) -> Option<u64> {
        let quiet = self.logged.is_some_and(|logged| logged.elapsed() >= LOG_INTERVAL);
        quiet.then(|| {
            self.logged = None;
            std::mem::take(&mut self.times)
        })
    }
}

/// Counts a connection while it is open, however its task ends.
struct Open(prometheus_client::metrics::gauge::Gauge, Arc<MemoryTrimmer>);

impl Open {
    fn new(gauge: prometheus_client::metrics::gauge::Gauge, memory: Arc<MemoryTrimmer>) -> Self {
        gauge.inc();
        memory.opened();
        Self(gauge, memory)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
        self.1.closed();
    }
}

/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of closed or resting connections that justifies a walk through the free memory.
const MANY: usize = 250;
/// Minimum interval between two walks caused only by resting connections: some connections always rest.
const RESTED_INTERVAL: Duration = Duration::from_secs(10);

/// Returns memory to the system after many connections have closed or freed their buffers.
///
/// The allocator keeps the memory that thousands of connections have freed, because blocks in use lie between. Without trimming,
/// a node that was flooded once would hold this memory until it restarts.
#[derive(Debug, Default)]
pub(crate) struct MemoryTrimmer {
    open: AtomicUsize,
    /// The maximum number of open connections since memory was last returned.
    peak: AtomicUsize,
    /// The number of connections that have freed their buffers since then.
    rested: AtomicUsize,
}

impl MemoryTrimmer {
    fn opened(&self) {
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(open, Ordering::Relaxed);
    }

    fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records that an idle connection has freed its buffers.
    pub(crate) fn rested(&self) {
        self.rested.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns `true` if memory should be returned now, and then resets the counts.
    fn is_due(&self, since_last: Duration) -> bool {
        let open = self.open.load(Ordering::Relaxed);
        let gone = self.peak.load(Ordering::Relaxed).saturating_sub(open);
        let rested = self.rested.load(Ordering::Relaxed);
        let is_due = gone >= MANY || (rested >= MANY && since_last >= RESTED_INTERVAL);
        if is_due {
            self.peak.store(open, Ordering::Relaxed);
            self.rested.store(0, Ordering::Relaxed);
        }
        is_due
    }

    /// Returns memory to the system whenever it is due; never ends.
    pub(crate) async fn run(&self) -> ! {
        let mut checks = interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        loop {
            checks.tick().await;
            if self.is_due(last.elapsed()) {
                // `trim` waits for locks of the allocator and makes many system calls.
                let _ = tokio::task::spawn_blocking(trim).await;
                last = Instant::now();
            }
        }
    }
}

/// Returns free pages to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "measured: 6,000 closed connections left 115 MB resident, 25 MB with it")]
fn trim() {
    // SAFETY: `malloc_trim` takes the allocator's own locks and touches no memory that is in use.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators return pages by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_problem_that_comes_and_goes_is_logged_once_a_minute() {
        let mut problem = RecurringProblem::default();
        assert_eq!(problem.ended(), None);
        let mut logged = Vec::new();
        for second in 0..150 {
            logged.extend(problem.occurred().map(|times| (second, times)));
            assert_eq!(problem.ended(), None, "{second}");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [(0, 1), (60, 61), (120, 121)]);
        tokio::time::advance(LOG_INTERVAL).await;
        assert_eq!(problem.ended(), Some(150));
        assert_eq!((problem.ended(), problem.occurred()), (None, Some(1)));
    }

    #[test]
    fn memory_is_returned_once_after_many_connections_have_closed() {
        let memory = MemoryTrimmer::default();
        (0..MANY).for_each(|_| memory.opened());
        (1..MANY).for_each(|_| memory.closed());
        assert!(!memory.is_due(RESTED_INTERVAL), "one too few");
        memory.closed();
        assert!(memory.is_due(Duration::ZERO));
        assert!(!memory.is_due(RESTED_INTERVAL), "they were counted before");
        (0..10_000).for_each(|_| {
            memory.opened();
            memory.closed();
        });
        assert!(!memory.is_due(RESTED_INTERVAL), "never many at once");
        (0..MANY).for_each(|_| memory.rested());
        assert!(
            !memory.is_due(RESTED_INTERVAL / 2)
                && memory.is_due(RESTED_INTERVAL)
                && !memory.is_due(RESTED_INTERVAL)
        );
    }
}
