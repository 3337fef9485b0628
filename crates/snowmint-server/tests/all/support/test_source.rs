//! An id source without a store, for unit and integration tests: a generator under a clock that advances over
//! each wait. Nothing here sleeps, so no test depends on the speed of the machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    unreachable_pub,
    reason = "unit tests and integration tests use different parts"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use snowmint::generator::{Batch, GeneratorPool};
use snowmint::{DatacenterId, Generator, Layout, ManualClock, WorkerId};
use snowmint_cluster::{LeaseStatus, NamespaceName, NextIdError, WorkerPool};
use snowmint_server::{IdHandle, IdSource, Mint};
use tokio::sync::watch;

/// The start of the test clock.
pub const START_UNIX_MS: u64 = 1_700_000_000_000;

/// Makes ids of worker 3 of datacenter 1, under a clock that advances over each wait. Clones share
/// everything.
#[derive(Clone)]
pub struct TestSource(Arc<Inner>);

struct Inner {
    generator: Arc<Generator<ManualClock>>,
    /// Of this generator.
    pool: GeneratorPool<ManualClock>,
    lease: AtomicBool,
    none_free: AtomicBool,
    /// While this is set, no wait ends.
    stuck: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
}

impl std::fmt::Debug for TestSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestSource")
    }
}

impl TestSource {
    /// Returns a source that holds a lease.
    pub fn new(layout: Layout) -> Self {
        let clock = ManualClock::at_unix_ms(START_UNIX_MS);
        let builder = Generator::builder(layout).datacenter(DatacenterId(1)).worker(WorkerId(3));
        let (generator, pool) = (Arc::new(builder.build(clock).unwrap()), GeneratorPool::new(layout));
        pool.add(Arc::clone(&generator)).unwrap();
        Self(Arc::new(Inner {
            generator,
            pool,
            lease: AtomicBool::new(true),
            none_free: AtomicBool::new(false),
            stuck: watch::Sender::new(false),
            waiting: watch::Sender::new(0),
        }))
    }

    /// Removes or restores the lease.
    pub fn set_lease(&self, held: bool) {
        self.0.lease.store(held, Ordering::SeqCst);
    }

    /// Other nodes hold all workers from now on.
    pub fn set_none_free(&self) {
        self.0.none_free.store(true, Ordering::SeqCst);
    }

    fn check_lease(&self) -> Result<(), NextIdError> {
        let why = || "the store does not answer".to_owned();
        self.0.lease.load(Ordering::SeqCst).then_some(()).ok_or_else(|| NextIdError::NoLease { why: why() })
    }

    /// Blocks all waits, or ends the block.
    pub fn set_stuck(&self, stuck: bool) {
        self.0.stuck.send_replace(stuck);
    }

    /// Returns once `requests` requests have begun to wait.
    pub async fn waiting(&self, requests: usize) {
        self.0.waiting.subscribe().wait_for(|waiting| *waiting >= requests).await.unwrap();
    }

    /// Returns the number of requests that have begun to wait so far.
    pub fn waits(&self) -> usize {
        *self.0.waiting.borrow()
    }

    /// Returns the clock.
    pub fn clock(&self) -> &ManualClock {
        self.0.generator.clock()
    }
}

#[async_trait]
impl IdHandle for TestSource {
    fn try_take(&mut self, count: usize) -> Result<Batch, NextIdError> {
        self.check_lease()?;
        self.0.generator.try_take(count).map_err(NextIdError::Refused)
    }

    async fn take(&mut self, count: usize) -> Result<Vec<Batch>, NextIdError> {
        self.0.waiting.send_modify(|waiting| *waiting += 1);
        let (mut batches, mut missing) = (Vec::new(), count);
        while missing > 0 {
            self.0.stuck.subscribe().wait_for(|stuck| !stuck).await.unwrap();
            match self.try_take(missing) {
                Ok(batch) => {
                    missing -= batch.len();
                    batches.push(batch);
                }
                Err(NextIdError::Refused(refusal)) if refusal.retry_after_ms().is_some() => {
                    self.clock().advance_ms(refusal.retry_after_ms().unwrap().get());
                }
                Err(no_id) => return Err(no_id),
            }
        }
        Ok(batches)
    }
}

#[async_trait]
impl IdSource for TestSource {
    fn handle(&self) -> Box<dyn IdHandle> {
        Box::new(self.clone())
    }

    fn check_ready(&self) -> Result<(), NextIdError> {
        self.check_lease()?;
        self.0.pool.check_ready().map_err(NextIdError::Refused)
    }

    async fn release(&self, _: std::time::Duration) {
        self.set_lease(false);
    }

    fn status(&self) -> LeaseStatus {
        let held = self.0.lease.load(Ordering::SeqCst);
        let mut status = LeaseStatus::default();
        status.worker = held.then_some(WorkerId(3));
        status.none_free = self.0.none_free.load(Ordering::SeqCst);
        status.pool = WorkerPool::new(*self.0.generator.layout(), DatacenterId(1)).to_string();
        status.until_unix_ms = held.then_some(START_UNIX_MS + 60_000);
        (status.renewals, status.lost, status.store_errors) = (5, 1, 2);
        status.wall_ahead_ms = -1500;
        status.waiting = (!held).then(|| "the store does not answer".to_owned());
        status
    }
}

/// Returns a mint of the namespaces `default` and `orders` in Twitter's layout.
pub fn mint() -> Mint {
    mint_of(TestSource::new(Layout::TWITTER), Layout::TWITTER)
}

/// Returns a mint of the namespaces `default` and `orders`.
pub fn mint_of(source: TestSource, layout: Layout) -> Mint {
    let names = ["orders", "default"].map(|name| NamespaceName::new(name).unwrap());
    Mint::new(names, source, layout, DatacenterId(1))
}
