//! Takes connections in, up to the most there may be, and gives each a task of its own.
//! It outlives whatever a connection does and whatever `accept` says: a full descriptor table passes.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::limits::{KEEPALIVE, LINGER, UNSENT};
use crate::memory::Crowd;
use crate::metrics::{Metrics, Protocol};
use crate::shutdown::{self, Draining};
use crate::status::ErrorKind;

/// Pause after `accept` failed for want of something that only time brings back.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// Between two log lines about one trouble.
const AGAIN: Duration = Duration::from_mins(1);

/// Which place a connection was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// One of those for clients.
    Client,
    /// One of the few beyond them: for health and metrics, and for saying why the rest is refused.
    Reserved,
}

/// Accepts one protocol's connections until the service ends, then drains them: how many had to be cut.
pub(crate) struct Acceptor<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) metrics: &'a Metrics,
    pub(crate) crowd: &'a Arc<Crowd>,
    /// One permit a connection, over all protocols.
    pub(crate) places: Arc<Semaphore>,
    /// Connections of this protocol beyond those.
    pub(crate) reserved: usize,
    pub(crate) write_timeout: Duration,
    pub(crate) draining: Draining,
    pub(crate) drain: Duration,
}

/// Connections in reserved places, oldest first.
#[derive(Default)]
struct Reserved {
    tasks: JoinSet<()>,
    oldest_first: VecDeque<AbortHandle>,
}

impl Acceptor<'_> {
    pub(crate) async fn run<F, Fut>(self, listener: TcpListener, connection: F) -> usize
    where
        F: Fn(TcpStream, Place) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let mut connections = JoinSet::new();
        let mut reserved = Reserved::default();
        let (mut failing, mut full) = (Trouble::default(), Trouble::default());
        let mut ends = std::pin::pin!(self.draining.clone().begun());
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut ends => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                Some(_) = reserved.tasks.join_next(), if !reserved.tasks.is_empty() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    if let Some(failures) = failing.ended() {
                        tracing::info!(
                            protocol = self.protocol.name(),
                            failures,
                            "accepting connections again"
                        );
                    }
                    match Arc::clone(&self.places).try_acquire_owned() {
                        Ok(place) => {
                            if let Some(refused) = full.ended() {
                                tracing::info!(
                                    protocol = self.protocol.name(),
                                    refused,
                                    "below the connection limit again"
                                );
                            }
                            self.spawn(&mut connections, stream, Some(place), &connection);
                        }
                        Err(_) => self.admit(&mut reserved, &mut full, stream, &connection).await,
                    }
                }
                Err(error) => self.after_failure(&error, &mut failing).await,
            }
        }
        self.take_the_rest(listener, &mut connections, &connection);
        let cut = shutdown::drain(&mut connections, self.drain).await;
        tracing::debug!(protocol = self.protocol.name(), cut, "connections ended");
        cut
    }

    fn spawn<F, Fut>(
        &self,
        tasks: &mut JoinSet<()>,
        stream: TcpStream,
        permit: Option<OwnedSemaphorePermit>,
        connection: &F,
    ) -> AbortHandle
    where
        F: Fn(TcpStream, Place) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.prepare(&stream);
        let open = Open::new(self.metrics.open(self.protocol).clone(), Arc::clone(self.crowd));
        let place = if permit.is_some() { Place::Client } else { Place::Reserved };
        let serving = connection(stream, place);
        tasks.spawn(async move {
            match place {
                Place::Client => serving.await,
                // Whoever takes longer is closed all the same.
                Place::Reserved => drop(tokio::time::timeout(LINGER, serving).await),
            }
            drop((permit, open));
        })
    }

    /// Takes in a connection for which there is no place any more: the oldest of its kind gives way, for a health check
    /// sends its request at once and one of a flood often never.
    #[cold]
    async fn admit<F, Fut>(
        &self,
        reserved: &mut Reserved,
        full: &mut Trouble,
        stream: TcpStream,
        connection: &F,
    ) where
        F: Fn(TcpStream, Place) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        if let Some(since) = full.met() {
            tracing::warn!(
                protocol = self.protocol.name(),
                refused = since,
                "connection limit reached: new clients are refused, health and metrics are answered; raise \
                 --max-connections, or lower --idle-timeout"
            );
        }
        // Joined, for its file is not free before it is gone.
        loop {
            reserved.oldest_first.retain(|task| !task.is_finished());
            if reserved.tasks.len() < self.reserved {
                break;
            }
            if let Some(oldest) = reserved.oldest_first.pop_front() {
                oldest.abort();
                self.metrics.failed(self.protocol, ErrorKind::TooManyClients);
            }
            reserved.tasks.join_next().await;
        }
        let task = self.spawn(&mut reserved.tasks, stream, None, connection);
        reserved.oldest_first.push_back(task);
    }

    #[cold]
    async fn after_failure(&self, error: &io::Error, failing: &mut Trouble) {
        // A peer that was gone before it was accepted is its own affair.
        let passing =
            [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::Interrupted];
        if passing.contains(&error.kind()) {
            return;
        }
        if let Some(failures) = failing.met() {
            tracing::warn!(
                protocol = self.protocol.name(),
                %error,
                failures,
                "cannot accept connections now; with too many open files, raise the limit (ulimit -n)"
            );
        }
        tokio::time::sleep(AFTER_FAILURE).await;
    }

    /// Takes in the clients that the system has connected already: closing the listener would reset them, with the
    /// requests they have sent.
    fn take_the_rest<F, Fut>(&self, listener: TcpListener, connections: &mut JoinSet<()>, connection: &F)
    where
        F: Fn(TcpStream, Place) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let Ok(listener) = listener.into_std() else { return };
        while let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            let Ok((stream, _)) = listener.accept() else { return };
            let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            if let Ok(stream) = stream {
                self.spawn(connections, stream, Some(place), connection);
            }
        }
    }

    /// Replies are small and awaited, so they must not wait for more; a vanished peer must not hold its place.
    fn prepare(&self, stream: &TcpStream) {
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 10);
        let socket = SockRef::from(stream);
        let set = stream.set_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive));
        // A peer that takes nothing of what was sent is cut by the kernel, in the middle of a body too; and it holds no
        // more of an answer than this, where it would take megabytes.
        #[cfg(target_os = "linux")]
        let set = set
            .and_then(|()| socket.set_tcp_user_timeout(Some(self.write_timeout)))
            .and_then(|()| socket.set_tcp_notsent_lowat(UNSENT));
        if let Err(error) = set {
            tracing::debug!(%error, "cannot set options of a connection");
        }
    }
}

/// Says why, and reads what the client still sends: closing over unread input would take the words back.
pub(crate) async fn say_and_close(mut stream: TcpStream, why: &[u8]) {
    let saying = async {
        stream.write_all(why).await?;
        stream.shutdown().await?;
        // On the heap: every connection's task would be larger by what is inline here.
        let mut ignored = vec![0; 4096];
        while stream.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    // Whoever does not listen within the bound is closed all the same.
    let _ = tokio::time::timeout(LINGER, saying).await;
}

/// Something that goes wrong again and again, and is logged when it begins and once a minute while it lasts.
#[derive(Debug, Default)]
struct Trouble {
    logged: Option<Instant>,
    times: u64,
}

impl Trouble {
    /// It was met once more: how often so far, if that is to be logged now.
    fn met(&mut self) -> Option<u64> {
        self.times += 1;
        let now = Instant::now();
        if self.logged.is_some_and(|logged| now.duration_since(logged) < AGAIN) {
            return None;
        }
        self.logged = Some(now);
        Some(self.times)
    }

    /// It is over for now: how often it was met, if it was and is to be logged. One that comes and goes is still logged
    /// once a minute.
    fn ended(&mut self) -> Option<u64> {
        let quiet = self.logged.is_some_and(|logged| logged.elapsed() >= AGAIN);
        quiet.then(|| {
            self.logged = None;
            std::mem::take(&mut self.times)
        })
    }
}

/// Counts a connection for as long as it is held, however its task ends.
struct Open(prometheus_client::metrics::gauge::Gauge, Arc<Crowd>);

impl Open {
    fn new(gauge: prometheus_client::metrics::gauge::Gauge, crowd: Arc<Crowd>) -> Self {
        gauge.inc();
        crowd.came();
        Self(gauge, crowd)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
        self.1.went();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_trouble_that_comes_and_goes_is_logged_once_a_minute() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.ended(), None);
        let mut logged = Vec::new();
        for second in 0..150 {
            logged.extend(trouble.met().map(|times| (second, times)));
            assert_eq!(trouble.ended(), None, "{second}");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [(0, 1), (60, 61), (120, 121)]);
        tokio::time::advance(AGAIN).await;
        assert_eq!(trouble.ended(), Some(150));
        assert_eq!((trouble.ended(), trouble.met()), (None, Some(1)));
    }
}
