//! Watches the fleet for all viewers together. One task reads the store while anybody watches, so many viewers cost the store no
//! more than one. A viewer that reads slowly misses states, and delays nobody.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use snowmint::{Clock as _, WallClock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::{Issued, LastRead, LeaseRecords, OtherRecords};
use crate::admin::node_admin::{TokenScope, boxed};
use crate::admin::{AdminError, NodeAdmin};
use crate::limits::fleet::{AT_LEAST_EVERY, EVERY, OTHERS_EVERY, VIEWERS, WITHIN};
use crate::state::ServerState;

/// The state of the fleet at one moment, as JSON.
#[derive(Clone, Debug)]
struct State {
    json: Bytes,
    at: Instant,
    /// When the next read begins.
    until: Instant,
}

impl State {
    /// Returns `true` if a new viewer gets this state at once. A slow store is read rarely, and its state stays current as long.
    fn is_current(&self) -> bool {
        self.at.elapsed() < EVERY || Instant::now() < self.until
    }
}

/// The watch of a node.
#[derive(Debug)]
pub(crate) struct FleetWatch {
    states: watch::Sender<Option<State>>,
    /// Whether a task reads the store. Viewers are added and the task ends under this lock, so no viewer waits for a task that
    /// has ended.
    is_reading: Mutex<bool>,
    viewers: Arc<Semaphore>,
}

/// One viewer: receives the state now, and each one after it.
#[derive(Debug)]
pub(crate) struct Viewer {
    states: watch::Receiver<Option<State>>,
    _permit: OwnedSemaphorePermit,
}

/// Too many viewers watch this node.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("viewer limit ({VIEWERS}) reached: close another console of this node, or watch another node")]
pub(crate) struct TooManyViewers;

impl Default for FleetWatch {
    fn default() -> Self {
        Self {
            states: watch::Sender::new(None),
            is_reading: Mutex::new(false),
            viewers: Arc::new(Semaphore::new(VIEWERS)),
        }
    }
}

impl FleetWatch {
    /// Adds a viewer of `server`.
    pub(crate) fn view(
        self: &Arc<Self>,
        server: &Arc<ServerState>,
        node: &NodeAdmin,
    ) -> Result<Viewer, TooManyViewers> {
        let permit = Arc::clone(&self.viewers).try_acquire_owned().map_err(|_| TooManyViewers)?;
        let mut is_reading = self.lock();
        let mut states = self.states.subscribe();
        if self.states.borrow().as_ref().is_some_and(State::is_current) {
            states.mark_changed();
        }
        if !*is_reading {
            *is_reading = true;
            tokio::spawn(Reader::new(Arc::clone(self), Arc::clone(server), node.clone()).run());
        }
        Ok(Viewer { states, _permit: permit })
    }

    /// Returns `true` if nobody watches, so that the task must end.
    fn ends(&self) -> bool {
        let mut is_reading = self.lock();
        *is_reading = self.states.receiver_count() > 0;
        !*is_reading
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        // A panic elsewhere leaves the flag valid.
        self.is_reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Viewer {
    /// Returns the next state. A viewer that was slow gets the newest one.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        self.states.changed().await.ok()?;
        self.states.borrow_and_update().as_ref().map(|state| state.json.clone())
    }
}

type Reading<T> = Pin<Box<dyn Future<Output = Result<T, AdminError>> + Send>>;

/// A read of the store. At most one is in progress, so a store that hangs does not get more and more calls.
struct Pending<T>(Option<Reading<T>>);

impl<T> Pending<T> {
    /// Waits for the read in progress, or starts one with `begin`.
    async fn get(&mut self, begin: impl FnOnce() -> Reading<T>) -> Result<T, String> {
        let reading = self.0.get_or_insert_with(begin);
        let Ok(read) = timeout(WITHIN, reading).await else {
            return Err(format!("no answer within {WITHIN:?}"));
        };
        self.0 = None;
        read.map_err(|error| error.to_string())
    }
}

/// The task that reads the store.
struct Reader {
    watch: Arc<FleetWatch>,
    server: Arc<ServerState>,
    node: NodeAdmin,
    read: LastRead,
    leases: Pending<LeaseRecords>,
    others: Pending<OtherRecords>,
}

impl Reader {
    fn new(watch: Arc<FleetWatch>, server: Arc<ServerState>, node: NodeAdmin) -> Self {
        Self { watch, server, node, read: LastRead::default(), leases: Pending(None), others: Pending(None) }
    }

    async fn run(mut self) {
        let (watch, server) = (Arc::clone(&self.watch), Arc::clone(&self.server));
        // The interval also applies to viewers that come one after the other.
        let due = watch.states.borrow().as_ref().map_or_else(Instant::now, |state| state.at + EVERY);
        sleep_until(due).await;
        let mut ended = Box::pin(server.shutdown.listener().ended());
        let mut before: Option<Issued> = None;
        let mut reads = 0_u32;
        loop {
            let began = Instant::now();
            tokio::select! {
                biased;
                () = &mut ended => break,
                () = self.read_store(reads.is_multiple_of(OTHERS_EVERY)) => {}
            }
            reads = reads.wrapping_add(1);
            let until = began + (began.elapsed() * 4).clamp(EVERY, AT_LEAST_EVERY).max(began.elapsed());
            let issued = Issued::of(&server.mint);
            let store = self.node.describe();
            let json = self.read.fleet(&server, store, (&issued, before.as_ref()), until - Instant::now());
            before = Some(issued);
            watch.states.send_replace(Some(State { json: json.into(), at: Instant::now(), until }));
            tokio::select! {
                biased;
                () = &mut ended => break,
                () = sleep_until(until) => {}
            }
            if watch.ends() {
                return;
            }
        }
        *watch.lock() = false;
    }

    async fn read_store(&mut self, with_others: bool) {
        let node = self.node.clone();
        let leases = self.leases.get(|| {
            Box::pin(async move {
                node.read(TokenScope::All, |store| boxed(async move { LeaseRecords::read(&*store).await }))
                    .await
            })
        });
        match leases.await {
            Ok(leases) => self.read.has_leases(leases, WallClock.unix_ms()),
            Err(error) => return self.read.failed(error, WallClock.unix_ms()),
        }
        // After a failure, only a whole read shows that the store answers again.
        if !with_others && self.read.others.is_some() && self.read.error.is_none() {
            return;
        }
        let node = self.node.clone();
        let others = self.others.get(|| {
            Box::pin(async move {
                node.read(TokenScope::All, |store| boxed(async move { OtherRecords::read(&*store).await }))
                    .await
            })
        });
        match others.await {
            Ok(others) => self.read.succeeded(others),
            Err(error) => self.read.failed(error, WallClock.unix_ms()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Goal: a new viewer gets the last state at once until the next read begins. Method: the age of a state on both sides of
    /// each limit.
    #[tokio::test(start_paused = true)]
    async fn a_state_is_current_until_the_next_read() {
        let of = |until: Duration| {
            let at = Instant::now();
            State { json: Bytes::new(), at, until: at + until }
        };
        let (fast, slow) = (of(Duration::ZERO), of(AT_LEAST_EVERY));
        assert!(fast.is_current() && slow.is_current());
        tokio::time::advance(EVERY).await;
        assert!(!fast.is_current() && slow.is_current());
        tokio::time::advance(AT_LEAST_EVERY.saturating_sub(EVERY + Duration::from_millis(1))).await;
        assert!(slow.is_current());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!slow.is_current());
    }
}
