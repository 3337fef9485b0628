//! Accepts connections up to the limit, makes the TLS handshake, and runs each connection in a task of its
//! own. Neither a failed connection nor a failed `accept` stops it: a full table of file descriptors is
//! temporary.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::limits::{KEEPALIVE, LAST_REQUESTS, LINGER, NEW_AT_ONCE, UNSENT};
use crate::load::memory_trimmer::MemoryTrimmer;
use crate::metrics::Metrics;
use crate::protocol::{Admission, Protocol};
use crate::state::ServerState;
use crate::state::shutdown::{self, ShutdownListener};
use crate::status::ErrorKind;
use crate::telemetry::access_log;
use crate::telemetry::recurring_problem::RecurringProblem;
use crate::tls::Tls;
use crate::wire::listener::{Listener, Socket};
use crate::wire::stream::{FirstRead, HANDSHAKE_RECORD, Stream};

/// Pause after `accept` failed for a temporary reason.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// How many connections a port accepts.
#[derive(Clone, Debug)]
pub(crate) enum Capacity {
    Shared {
        /// One permit for each connection, over all protocols.
        permits: Arc<Semaphore>,
        /// The number of reserved connections of this protocol, beyond the permits.
        reserved: usize,
    },
    /// A limit of its own, independent of other ports; a new connection replaces the oldest. For the port for
    /// health and metrics.
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
        let mut at_once = 0;
        loop {
            if at_once == NEW_AT_ONCE {
                at_once = 0;
                tokio::task::yield_now().await;
            }
            let accepted = tokio::select! {
                biased;
                () = &mut ends => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                Some(_) = replaceable.tasks.join_next(), if !replaceable.tasks.is_empty() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok(socket) => {
                    at_once += 1;
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
        // `map` keeps the future where it is. An async block would hold it a second time, which doubles the
        // memory of every connection.
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

    /// Admits a connection, and closes the oldest one if there are too many. A health check sends its request
    /// at once; a client of a flood often never does.
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
        sleep(AFTER_FAILURE).await;
    }

    /// Accepts the clients that the system has already connected. Closing the listener would reset them and
    /// lose the requests that they have sent.
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

    /// Sets the socket options. Replies are small and sent at once; a client that vanished must not keep its
    /// connection.
    fn prepare(&self, socket: &Socket) {
        #[cfg_attr(not(unix), expect(irrefutable_let_patterns, reason = "there are no other sockets"))]
        let Socket::Tcp(stream) = socket else { return };
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 10);
        let socket = SockRef::from(stream);
        let set = stream.set_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive));
        // The kernel closes the connection of a client that reads nothing, even within a body, and buffers
        // only this much of an answer.
        #[cfg(target_os = "linux")]
        let set = set
            .and_then(|()| socket.set_tcp_user_timeout(Some(self.write_timeout)))
            .and_then(|()| socket.set_tcp_notsent_lowat(UNSENT));
        if let Err(error) = set {
            tracing::debug!(%error, "cannot set socket options");
        }
    }
}

/// Sends a last reply, then reads what the client still sends: closing with unread input would discard the
/// reply.
pub(crate) async fn reply_and_close(stream: &mut Stream, reply: &[u8]) {
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

/// A client that was accepted, before its handshake.
pub(crate) struct Accepted {
    pub(crate) socket: Socket,
    pub(crate) protocol: Protocol,
    pub(crate) tls: Option<Arc<Tls>>,
}

/// Why there is no connection after a handshake.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("the client does not speak TLS, which this port requires")]
    Plain,
    #[error("the handshake took longer than {0:?}")]
    Late(Duration),
    #[error("{0}")]
    Failed(io::Error),
}

impl Accepted {
    /// Returns the connection, after the handshake if the port requires TLS. Without one, the failure was
    /// counted.
    pub(crate) async fn establish(
        self,
        server: &Arc<ServerState>,
        shutdown: &ShutdownListener,
    ) -> Option<Stream> {
        let Self { socket, protocol, tls } = self;
        let stream = match socket {
            Socket::Tcp(stream) => stream,
            #[cfg(unix)]
            Socket::Unix(stream) => return Some(Stream::Unix(stream)),
        };
        let Some(tls) = tls else {
            let first = FirstRead { server: Arc::clone(server), protocol };
            return Some(Stream::Tcp { stream, first: Some(first) });
        };
        let within = server.settings.timeouts.request;
        // Boxed, so that a connection without TLS does not carry it.
        let handshake = Box::pin(handshake(stream, tls.config(protocol), protocol, within));
        let established = tokio::select! {
            biased;
            established = handshake => established,
            () = ends(shutdown) => return None,
        };
        match established {
            Ok(established) => established,
            Err(error) => {
                server.handshake_failed(protocol, &error);
                None
            }
        }
    }
}

/// Returns when a client that has not finished its handshake is closed at shutdown.
async fn ends(shutdown: &ShutdownListener) {
    shutdown.clone().ended().await;
    sleep(LAST_REQUESTS).await;
}

/// Returns the connection, or `None` if the client left before it said anything, as some health checks do.
async fn handshake(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    protocol: Protocol,
    within: Duration,
) -> Result<Option<Stream>, HandshakeError> {
    let deadline = Instant::now() + within;
    let late = |_| HandshakeError::Late(within);
    let mut first = [0];
    match timeout_at(deadline, stream.peek(&mut first)).await.map_err(late)? {
        Ok(0) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(HandshakeError::Failed(error)),
    }
    if first[0] != HANDSHAKE_RECORD {
        let mut stream = Stream::Tcp { stream, first: None };
        reply_and_close(&mut stream, plain_answer(protocol).as_bytes()).await;
        return Err(HandshakeError::Plain);
    }
    let accepting = TlsAcceptor::from(config).accept(stream).into_fallible();
    match timeout_at(deadline, accepting).await.map_err(late)? {
        Ok(stream) => Ok(Some(Stream::Tls(Box::new(stream)))),
        Err((error, stream)) => {
            // The client was sent an alert, and may be sending its first request.
            reply_and_close(&mut Stream::Tcp { stream, first: None }, b"").await;
            Err(HandshakeError::Failed(error))
        }
    }
}

/// Returns the answer to a client without TLS.
fn plain_answer(protocol: Protocol) -> String {
    let status = ErrorKind::BadTls.status();
    match protocol {
        Protocol::Http => {
            let body = serde_json::json!({
                "type": format!("urn:snowmint:{}", status.name),
                "title": status.title,
                "status": status.http,
                "detail": "this port requires TLS: connect with https://",
            });
            let body = body.to_string();
            format!(
                "HTTP/1.1 {} Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\nconnection: \
                 close\r\n\r\n{body}",
                status.http,
                body.len()
            )
        }
        Protocol::Resp => format!(
            "-{} this port requires TLS: connect with TLS, such as rediss:// or redis-cli --tls\r\n",
            status.resp
        ),
        // An answer needs a request.
        Protocol::Thrift | Protocol::Grpc | Protocol::Probe => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::testing;

    /// Goal: a flood of new connections is not accepted before what is ready runs. Method: all clients are
    /// there before the port accepts; another task counts those that are accepted between two of its turns.
    #[test]
    fn few_connections_are_accepted_before_others_run() {
        const CLIENTS: u32 = 40;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().event_interval(1).build().unwrap().block_on(async {
            // For a task, which has its turns in line with the other one.
            let server: &ServerState = Box::leak(Box::new(ServerState::for_tests(testing::mint())));
            let listener = crate::bind("127.0.0.1:0", "--resp").await.unwrap();
            let address: std::net::SocketAddr = listener.address().parse().unwrap();
            let connect = |_| std::net::TcpStream::connect(address).unwrap();
            let _clients: Vec<_> = (0..CLIENTS).map(connect).collect();
            let accepted = Arc::new(AtomicU32::new(0));
            let other = tokio::spawn({
                let accepted = Arc::clone(&accepted);
                async move {
                    let (mut before, mut most) = (0, 0);
                    while before < CLIENTS {
                        tokio::task::yield_now().await;
                        let now = accepted.load(Ordering::Relaxed);
                        most = most.max(now - before);
                        before = now;
                    }
                    most
                }
            });
            let acceptor = Acceptor {
                protocol: Protocol::Resp,
                metrics: &server.metrics,
                memory: &server.memory,
                capacity: Capacity::Shared { permits: Arc::new(Semaphore::new(100)), reserved: 1 },
                write_timeout: Duration::from_secs(1),
                tls: None,
                shutdown: server.shutdown.listener(),
                drain: Duration::ZERO,
            };
            tokio::spawn(acceptor.run(listener, move |_, _| {
                accepted.fetch_add(1, Ordering::Relaxed);
                std::future::pending()
            }));
            let most = other.await.unwrap();
            assert!(most <= 2 * NEW_AT_ONCE, "{most}");
        });
    }
}
