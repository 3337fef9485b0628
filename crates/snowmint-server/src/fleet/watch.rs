//! Watches the fleet for all viewers together. One task reads the store while anybody watches, so many
//! viewers cost the store no more than one. A viewer that reads slowly misses states, and delays nobody.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use snowmint::{Clock as _, WallClock};
use snowmint_admin::AdminError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::peers::Peers;
use super::{Issued, LastRead, LeaseRecords, OtherRecords};
use crate::admin::NodeAdmin;
use crate::admin::node_admin::{TokenScope, boxed};
use crate::limits::fleet::{AT_LEAST_EVERY, EVERY, OTHERS_EVERY, PATIENCE, VIEWERS, WITHIN};
use crate::state::ServerState;

/// The state of the fleet at one moment, as JSON.
#[derive(Clone, Debug)]
struct State {
    json: Bytes,
    at: Instant,
    /// When the next read of the store begins.
    until: Instant,
}

impl State {
    /// Returns `true` if a new viewer gets this state at once. A slow store is read rarely, and its state
    /// stays current as long.
    fn is_current(&self) -> bool {
        self.at.elapsed() < EVERY || Instant::now() < self.until
    }
}

/// The watch of a node.
#[derive(Debug)]
pub(crate) struct FleetWatch {
    states: watch::Sender<Option<State>>,
    /// Whether a task reads the store. Viewers are added and the task ends under this lock, so no viewer
    /// waits for a task that has ended.
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
struct Pending<T>(Option<(Instant, Reading<T>)>);

impl<T> Pending<T> {
    /// Waits for the read in progress, or starts one with `begin`. Returns `None` if it is still in progress
    /// at `until`, or once it is late.
    async fn get(&mut self, until: Instant, begin: impl FnOnce() -> Reading<T>) -> Option<Result<T, String>> {
        let (since, reading) = self.0.get_or_insert_with(|| (Instant::now(), begin()));
        let read = timeout_at(until.min(*since + WITHIN), reading).await.ok()?;
        self.0 = None;
        Some(read.map_err(|error| error.to_string()))
    }

    /// Returns why the store counts as one that does not answer, if the read takes too long.
    fn late(&self) -> Option<String> {
        let (since, _) = self.0.as_ref()?;
        (since.elapsed() >= WITHIN).then(|| format!("no answer within {WITHIN:?}"))
    }
}

/// The task that reads the store.
///
/// It publishes a state every few seconds, also while a read is in progress: what this node does itself does
/// not depend on the store.
struct Reader {
    watch: Arc<FleetWatch>,
    server: Arc<ServerState>,
    node: NodeAdmin,
    read: LastRead,
    leases: Pending<LeaseRecords>,
    others: Pending<OtherRecords>,
    /// When the next read begins.
    due: Instant,
    /// When the read in progress began.
    began: Option<Instant>,
    /// Whether the read in progress has the leases.
    is_halfway: bool,
    reads: u32,
}

impl Drop for Reader {
    /// A panic must not keep the next viewer from starting a task.
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.watch.lock() = false;
        }
    }
}

impl Reader {
    fn new(watch: Arc<FleetWatch>, server: Arc<ServerState>, node: NodeAdmin) -> Self {
        Self {
            watch,
            server,
            node,
            read: LastRead::default(),
            leases: Pending(None),
            others: Pending(None),
            due: Instant::now(),
            began: None,
            is_halfway: false,
            reads: 0,
        }
    }

    async fn run(mut self) {
        let (watch, server) = (Arc::clone(&self.watch), Arc::clone(&self.server));
        // The interval also applies to viewers that come one after the other.
        let due = watch.states.borrow().as_ref().map_or_else(Instant::now, |state| state.at + EVERY);
        sleep_until(due).await;
        let mut ended = Box::pin(server.shutdown.listener().ended());
        let mut before: Option<Issued> = None;
        let mut peers = Peers::new(Arc::clone(&server), self.node.peers());
        loop {
            // The first state waits for the store and the peers, so that a single request gets everything.
            let patience = if self.read.has_outcome() { PATIENCE } else { 2 * WITHIN };
            let until = Instant::now() + patience;
            tokio::select! {
                biased;
                () = &mut ended => break,
                _ = async { tokio::join!(self.read_store(until), peers.update(until)) } => {}
            }
            self.read.has_peers(peers.last());
            let issued = Issued::of(&server.mint);
            let store = self.node.describe();
            let json = self.read.fleet(&server, store, (&issued, before.as_ref()), EVERY);
            before = Some(issued);
            let at = Instant::now();
            watch.states.send_replace(Some(State { json: json.into(), at, until: self.due }));
            tokio::select! {
                biased;
                () = &mut ended => break,
                () = sleep_until(at + EVERY) => {}
            }
            if watch.ends() {
                return;
            }
        }
        *watch.lock() = false;
    }

    /// Reads the store if a read is due, and waits for it until `until`. A read that takes longer continues
    /// at the next call.
    async fn read_store(&mut self, until: Instant) {
        if Instant::now() < self.due {
            return;
        }
        let began = *self.began.get_or_insert_with(Instant::now);
        if self.continue_read(until).await {
            self.began = None;
            let took = began.elapsed();
            self.due = began + (took * 4).clamp(EVERY, AT_LEAST_EVERY).max(took);
        }
    }

    /// Continues the read in progress until `until`. Returns `true` if it has succeeded or failed.
    async fn continue_read(&mut self, until: Instant) -> bool {
        if !self.is_halfway {
            let node = self.node.clone();
            let leases = self.leases.get(until, || {
                Box::pin(async move {
                    node.read(TokenScope::All, |store| {
                        boxed(async move { LeaseRecords::read(&*store).await })
                    })
                    .await
                })
            });
            match leases.await {
                Some(Ok(leases)) => self.read.has_leases(leases),
                outcome => return self.has_failed(outcome.and_then(Result::err), self.leases.late()),
            }
            let with_others = self.reads.is_multiple_of(OTHERS_EVERY);
            self.reads = self.reads.wrapping_add(1);
            // After a failure, only a whole read shows that the store answers again.
            if !with_others && self.read.others.is_some() && self.read.error.is_none() {
                return true;
            }
            self.is_halfway = true;
        }
        let node = self.node.clone();
        let others = self.others.get(until, || {
            Box::pin(async move {
                node.read(TokenScope::All, |store| boxed(async move { OtherRecords::read(&*store).await }))
                    .await
            })
        });
        let has_ended = match others.await {
            Some(Ok(others)) => {
                self.read.succeeded(others);
                true
            }
            outcome => self.has_failed(outcome.and_then(Result::err), self.others.late()),
        };
        self.is_halfway = !has_ended;
        has_ended
    }

    /// Notes why a read failed, or is late. Returns `true` if it failed, so that no read is in progress.
    fn has_failed(&mut self, error: Option<String>, late: Option<String>) -> bool {
        let has_failed = error.is_some();
        if let Some(error) = error.or(late) {
            self.read.failed(error, WallClock.unix_ms());
        }
        has_failed
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use async_trait::async_trait;
    use serde_json::Value;
    use snowmint_store::{Expected, Key, Store, StoreError, Swap, Versioned};
    use tokio::runtime::Handle;

    use super::*;
    use crate::admin::Refresher;
    use crate::testing;

    /// A store that never answers.
    #[derive(Debug)]
    struct Hanging;

    #[async_trait]
    impl Store for Hanging {
        fn describe(&self) -> String {
            "hanging".to_owned()
        }

        async fn load(&self, _: &Key) -> Result<Option<Versioned>, StoreError> {
            pending().await
        }

        async fn compare_and_set(&self, _: &Key, _: Expected, _: &[u8]) -> Result<Swap, StoreError> {
            pending().await
        }

        async fn list(&self, _: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            pending().await
        }
    }

    fn watched() -> (Arc<FleetWatch>, Arc<ServerState>, NodeAdmin) {
        let server = Arc::new(ServerState::for_tests(testing::mint()));
        (Arc::default(), server, NodeAdmin::new(Arc::new(Hanging), Handle::current(), Refresher::new().0))
    }

    /// Goal: the state of this node stays current while the store hangs, and the store counts as one that
    /// does not answer after the limit, and no earlier. Method: a store that never answers; the clock of the
    /// runtime.
    #[tokio::test(start_paused = true)]
    async fn a_hanging_store_does_not_delay_the_state_of_the_node() {
        let (watch, server, node) = watched();
        let began = Instant::now();
        let mut viewer = watch.view(&server, &node).unwrap();
        let mut next = async || serde_json::from_slice::<Value>(&viewer.next().await.unwrap()).unwrap();
        let first = next().await;
        assert_eq!((began.elapsed(), &first["store"]["answers"]), (WITHIN, &false.into()));
        for _ in 0..20 {
            let before = Instant::now();
            server.mint.table().find(b"default").unwrap().add_issued(10);
            let state = next().await;
            assert!(before.elapsed() <= EVERY + PATIENCE, "{:?}", before.elapsed());
            assert!(state["node"]["ids_per_second"].as_f64().unwrap() > 3.0, "{}", state["node"]);
            assert_eq!(state["store"]["answers"], false);
        }
    }

    /// Goal: after a panic of the task, the next viewer starts another one.
    #[tokio::test(start_paused = true)]
    async fn a_panic_does_not_end_all_states() {
        let (watch, server, node) = watched();
        *watch.lock() = true;
        let reader = Reader::new(Arc::clone(&watch), Arc::clone(&server), node.clone());
        let ended = tokio::spawn(async move {
            let _reader = reader;
            panic!("planted");
        });
        assert!(ended.await.unwrap_err().is_panic());
        let mut viewer = watch.view(&server, &node).unwrap();
        assert!(viewer.next().await.is_some());
    }

    /// Goal: a new viewer gets the last state at once until the next read begins. Method: the age of a state
    /// on both sides of each limit.
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
