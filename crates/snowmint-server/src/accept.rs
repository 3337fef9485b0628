//! Takes connections in, up to the most there may be, and gives each a task of its own.
//! It outlives whatever a connection does and whatever `accept` says: a full descriptor table passes.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::limits::{KEEPALIVE, WRITE_STALL};
use crate::metrics::{Metrics, Protocol};
use crate::shutdown::{self, Draining};
use crate::status::Kind;

/// Pause after `accept` failed for want of something that only time brings back.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// Refusals that are written at once; beyond, a connection is closed without a word.
const REFUSALS: usize = 64;
/// How long a peer that is being refused may take to read why.
const LINGER: Duration = Duration::from_secs(1);

/// Accepts one protocol's connections until the service ends, then drains them: how many had to be cut.
pub(crate) struct Acceptor<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) metrics: &'a Metrics,
    /// One permit a connection, over all protocols.
    pub(crate) places: Arc<Semaphore>,
    /// What a client is told that finds no place.
    pub(crate) refusal: &'static [u8],
    pub(crate) draining: Draining,
    pub(crate) drain: Duration,
}

impl Acceptor<'_> {
    pub(crate) async fn run<F, Fut>(self, listener: TcpListener, connection: F) -> usize
    where
        F: Fn(TcpStream) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let mut connections = JoinSet::new();
        let mut refused = JoinSet::new();
        let mut ends = std::pin::pin!(self.draining.clone().begun());
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut ends => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                Some(_) = refused.join_next(), if !refused.is_empty() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => match Arc::clone(&self.places).try_acquire_owned() {
                    Ok(place) => {
                        prepare(&stream);
                        let open = Open::new(self.metrics.open(self.protocol).clone());
                        let serving = connection(stream);
                        connections.spawn(async move {
                            serving.await;
                            drop((place, open));
                        });
                    }
                    Err(_) => self.refuse(&mut refused, stream),
                },
                Err(error) => self.after_failure(&error).await,
            }
        }
        drop(listener);
        let cut = shutdown::drain(&mut connections, self.drain).await;
        tracing::debug!(protocol = self.protocol.name(), cut, "connections ended");
        cut
    }

    #[cold]
    fn refuse(&self, refused: &mut JoinSet<()>, stream: TcpStream) {
        self.metrics.failed(self.protocol, Kind::TooManyClients);
        tracing::debug!(protocol = self.protocol.name(), "connection refused: as many as there may be");
        if refused.len() < REFUSALS {
            let why = self.refusal;
            refused.spawn(async move { say_and_close(stream, why).await });
        }
    }

    #[cold]
    async fn after_failure(&self, error: &io::Error) {
        // A peer that was gone before it was accepted is its own affair.
        let passing =
            [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::Interrupted];
        if !passing.contains(&error.kind()) {
            tracing::warn!(
                protocol = self.protocol.name(),
                %error,
                "cannot accept connections now; with too many open files, raise the limit (ulimit -n)"
            );
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }
}

/// Replies are small and awaited, so they must not wait for more; a vanished peer must not hold its place.
fn prepare(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 10);
    let socket = SockRef::from(stream);
    let set = stream.set_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive));
    // A peer that takes nothing of what was sent is cut by the kernel, in the middle of a body too.
    #[cfg(target_os = "linux")]
    let set = set.and_then(|()| socket.set_tcp_user_timeout(Some(WRITE_STALL)));
    if let Err(error) = set {
        tracing::debug!(%error, "cannot set options of a connection");
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

/// Counts a connection for as long as it is held, however its task ends.
struct Open(prometheus_client::metrics::gauge::Gauge);

impl Open {
    fn new(gauge: prometheus_client::metrics::gauge::Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
