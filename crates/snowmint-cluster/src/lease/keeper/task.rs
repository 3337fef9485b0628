//! The task behind a keeper: performs the protocol's calls, applies its events, keeps the status.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use snowmint::utc::Utc;
use snowmint::{AnchoredClock, Clock, Generator, Lease, WorkerId};
use snowmint_store::{Key, KeyError, Store, StoreError, StoreErrorKind, Swap, Versioned};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::{KeeperConfig, LeaseFailure, LeaseStatus, LeasedGenerator};
use crate::lease::protocol::{Call, Entry, Event, Failure, Input, Listing, Next, Protocol, Swapped};
use crate::lease::record::Record;

pub(super) struct Task {
    store: Arc<dyn Store>,
    protocol: Protocol,
    config: KeeperConfig,
    clock: Arc<AnchoredClock>,
    current: Arc<ArcSwapOption<LeasedGenerator>>,
    status: watch::Sender<LeaseStatus>,
}

/// Nothing is held any more, however the task ended.
impl Drop for Task {
    fn drop(&mut self) {
        self.status.send_modify(|status| {
            status.worker = None;
            status.until_unix_ms = None;
        });
    }
}

impl Task {
    pub(super) fn new(
        store: Arc<dyn Store>,
        protocol: Protocol,
        config: KeeperConfig,
        clock: Arc<AnchoredClock>,
        current: Arc<ArcSwapOption<LeasedGenerator>>,
        status: watch::Sender<LeaseStatus>,
    ) -> Self {
        Self { store, protocol, config, clock, current, status }
    }

    /// Runs until the lease was given back; `release` asks for that.
    pub(super) async fn run(mut self, mut release: oneshot::Receiver<()>) {
        let mut asked_to_release = false;
        let mut input = Input::Wake;
        loop {
            let turn = self.protocol.step(self.clock.unix_ms(), input);
            for event in turn.events {
                self.apply(event);
            }
            input = match turn.next {
                Next::Call(call) => self.perform(call).await,
                Next::Stop => break,
                Next::Wait(ms) if asked_to_release => {
                    sleep(Duration::from_millis(ms)).await;
                    Input::Wake
                }
                Next::Wait(ms) => tokio::select! {
                    biased;
                    // A keeper that was dropped without a release keeps its lease until it runs out.
                    asked = &mut release => {
                        if asked.is_err() {
                            break;
                        }
                        asked_to_release = true;
                        Input::Release { used_until_unix_ms: self.end_generator() }
                    }
                    () = sleep(Duration::from_millis(ms)) => Input::Wake,
                },
            };
        }
    }

    /// The first instant after every timestamp used: 0 where nothing was made, the end of the lease where the
    /// generator cannot tell.
    fn end_generator(&self) -> u64 {
        self.current.swap(None).map_or(0, |generator| generator.end().unwrap_or(u64::MAX))
    }

    async fn perform(&self, call: Call) -> Input {
        let patience = self.config.call_timeout();
        match call {
            Call::List => {
                let answer = timeout(patience, self.list()).await;
                Input::Listed(self.judged(answer, "list"))
            }
            Call::Load(worker) => {
                let answer = timeout(patience, self.load(worker)).await;
                Input::Loaded(self.judged(answer, "load"))
            }
            Call::Swap { worker, expected, record } => {
                let swap = async {
                    let key = self.key(worker)?;
                    self.store.compare_and_set(&key, expected, &record.to_bytes()).await
                };
                let answer = timeout(patience, swap).await;
                Input::Swapped(self.judged(answer, "compare_and_set").map(|swap| match swap {
                    Swap::Done(revision) => Swapped::Done(revision),
                    Swap::Conflict => Swapped::Conflict,
                }))
            }
        }
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        let pool = self.protocol.settings().pool;
        let records = self.store.list(&pool.prefix()).await?;
        // Read last: what the listing took must not look like a clock that is ahead.
        let store_unix_ms = self.store.unix_ms().await?;
        let entry = |(key, value): (Key, Versioned)| Some(entry(pool.worker_of(&key)?, &value));
        Ok(Listing { entries: records.into_iter().filter_map(entry).collect(), store_unix_ms })
    }

    async fn load(&self, worker: WorkerId) -> Result<Option<Entry>, StoreError> {
        let record = self.store.load(&self.key(worker)?).await?;
        Ok(record.map(|value| entry(worker, &value)))
    }

    fn key(&self, worker: WorkerId) -> Result<Key, StoreError> {
        let key = self.protocol.settings().pool.key(worker);
        key.map_err(|error: KeyError| {
            StoreError::new(StoreErrorKind::Other, "key", self.store.describe(), error)
        })
    }

    /// Counts and tells failures; a time-out says nothing about whether a write happened.
    fn judged<T>(
        &self,
        answer: Result<Result<T, StoreError>, tokio::time::error::Elapsed>,
        operation: &'static str,
    ) -> Result<T, Failure> {
        let error = match answer {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            Err(elapsed) => {
                StoreError::new(StoreErrorKind::OutcomeUnknown, operation, self.store.describe(), elapsed)
            }
        };
        let failure = match error.kind() {
            StoreErrorKind::OutcomeUnknown => Failure::Unknown,
            _ => Failure::NotDone,
        };
        tracing::warn!(%error, "the store did not do what was asked; trying again");
        self.status.send_modify(|status| {
            status.store_errors += 1;
            if !error.is_temporary() {
                status.failure = Some(LeaseFailure::Store(Arc::new(error)));
            } else if status.worker.is_none() {
                status.waiting = Some(error.to_string());
            }
        });
        Err(failure)
    }

    fn apply(&self, event: Event) {
        match event {
            Event::Granted(lease) => self.granted(lease),
            Event::Extended { until_unix_ms } => self.extended(until_unix_ms),
            Event::Lost { worker, until_unix_ms } => {
                tracing::warn!(
                    %worker,
                    until = %Utc(until_unix_ms),
                    "this worker was taken away, by another node or by hand; minting goes on until then, another is sought"
                );
                self.status.send_modify(|status| status.lost += 1);
            }
            Event::RecordsAhead { worker, holder, ahead_ms } => {
                self.records_ahead(worker, holder.as_str(), ahead_ms);
            }
            Event::NoneFree { first } => {
                let why = match first {
                    Some((worker, holder, until)) => format!(
                        "no worker is free; worker {worker} frees first, at {}, if {holder} does not renew it",
                        Utc(until)
                    ),
                    None => "no worker is free, and no record says when one will be".to_owned(),
                };
                self.waiting(why);
            }
            Event::Awaited { worker, holder, until_unix_ms } => self.waiting(format!(
                "worker {worker} is granted to {holder} until {}: waiting to see whether it is renewed",
                Utc(until_unix_ms)
            )),
            Event::ClockAhead { ahead_ms, max_skew_ms } => {
                self.failed(LeaseFailure::ClockAhead { ahead_ms, max_skew_ms });
            }
            Event::Taken { worker, holder, until_unix_ms } => {
                self.failed(LeaseFailure::Taken { worker, holder: holder.to_string(), until_unix_ms });
            }
            Event::Released => tracing::info!("the lease was given back"),
        }
    }

    fn granted(&self, lease: Lease) {
        // The one before is ended first and the next begins after its last timestamp: ids go on increasing.
        let last = self.current.load_full();
        let used_until = last.and_then(|generator| generator.end()).unwrap_or(0);
        let pool = self.protocol.settings().pool;
        let built = Generator::builder(*pool.layout())
            .datacenter(pool.datacenter())
            .lease(lease)
            .not_before_unix_ms(used_until)
            .rule(self.config.generator_rule())
            .build(Arc::clone(&self.clock));
        match built {
            Ok(generator) => self.current.store(Some(Arc::new(generator))),
            // Checked when the keeper was configured; were it to happen, no id is made.
            Err(error) => {
                self.current.store(None);
                tracing::error!(%error, "no generator can be made under the lease");
                return;
            }
        }
        tracing::info!(worker = %lease.worker, until = %Utc(lease.until_unix_ms), %pool, "lease granted");
        self.status.send_modify(|status| {
            status.worker = Some(lease.worker);
            status.until_unix_ms = Some(lease.until_unix_ms);
            status.waiting = None;
            status.failure = None;
        });
    }

    fn extended(&self, until_unix_ms: u64) {
        if let Some(generator) = self.current.load_full() {
            generator.extend_lease(until_unix_ms);
        }
        tracing::debug!(until = %Utc(until_unix_ms), "lease renewed");
        self.status.send_modify(|status| {
            status.until_unix_ms = Some(until_unix_ms);
            status.renewals += 1;
            status.failure = None;
        });
    }

    fn records_ahead(&self, worker: WorkerId, holder: &str, ahead_ms: u64) {
        let told = self.status.borrow().records_ahead_ms;
        // Told again only when it grows: while no worker is free the records are read many times a second.
        if told == 0 || ahead_ms > told + 60_000 {
            tracing::warn!(
                %worker,
                holder,
                ahead_ms,
                "records reach further ahead than this clock: either it is behind or that node's was ahead; \
                 taking another worker"
            );
        }
        self.status.send_modify(|status| status.records_ahead_ms = ahead_ms);
    }

    /// Tells that waiting alone does not help, and goes on trying: somebody may mend it.
    fn failed(&self, failure: LeaseFailure) {
        self.waiting(failure.to_string());
        self.status.send_modify(|status| status.failure = Some(failure));
    }

    fn waiting(&self, why: String) {
        if self.status.borrow().waiting.as_ref() != Some(&why) {
            tracing::warn!("{why}");
        }
        self.status.send_modify(|status| status.waiting = Some(why));
    }
}

fn entry(worker: WorkerId, value: &Versioned) -> Entry {
    let record = Record::from_bytes(&value.value);
    if let Err(error) = &record {
        tracing::warn!(%worker, %error, "this worker's record cannot be read; the worker is left alone");
    }
    Entry { worker, revision: value.revision, record: record.ok() }
}
