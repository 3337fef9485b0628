//! The task behind a keeper: performs the protocol's calls, applies its events, keeps the status.

use std::sync::Arc;
use std::time::Duration;

use snowmint::utc::Utc;
use snowmint::{AnchoredClock, Clock, Generator, Lease, WorkerId};
use snowmint_store::{Key, KeyError, Store, StoreError, StoreErrorKind, Swap, Versioned};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::mount::Mount;
use super::outage::{Outage, Tell};
use super::{AbortOnDrop, KeeperConfig, LeaseFailure, LeaseStatus, LeasedGenerator};
use crate::lease::protocol::{
    Call, Entry, Event, Failure, Held, Input, Listing, Next, Protocol, Settings, Swapped, WorkerChoice,
};
use crate::lease::record::Record;
use crate::lease::saved::Saver;

/// What a task is made of.
pub(in crate::lease) struct Parts {
    pub(in crate::lease) store: Arc<dyn Store>,
    pub(in crate::lease) settings: Settings,
    pub(in crate::lease) seed: u128,
    pub(in crate::lease) config: KeeperConfig,
    pub(in crate::lease) clock: Arc<AnchoredClock>,
    pub(in crate::lease) mount: Arc<dyn Mount>,
    pub(in crate::lease) status: watch::Sender<LeaseStatus>,
    pub(in crate::lease) saver: Option<Arc<Saver>>,
}

pub(in crate::lease) struct Task {
    store: Arc<dyn Store>,
    protocol: Protocol,
    seed: u128,
    config: KeeperConfig,
    clock: Arc<AnchoredClock>,
    mount: Arc<dyn Mount>,
    /// The one that is mounted.
    generator: Option<Arc<LeasedGenerator>>,
    status: watch::Sender<LeaseStatus>,
    saver: Option<Arc<Saver>>,
    outage: Outage,
    /// The last worker whose record could not be read: told once.
    unreadable: Option<WorkerId>,
}

/// Nothing is held any more, however the task ended, and no generator is left behind.
impl Drop for Task {
    fn drop(&mut self) {
        self.end_generator();
        self.status.send_modify(|status| {
            status.worker = None;
            status.until_unix_ms = None;
        });
    }
}

impl Task {
    pub(in crate::lease) fn new(parts: Parts) -> Self {
        let Parts { store, settings, seed, config, clock, mount, status, saver } = parts;
        let protocol = Protocol::new(settings, seed);
        let (generator, outage, unreadable) = (None, Outage::default(), None);
        Self { store, protocol, seed, config, clock, mount, generator, status, saver, outage, unreadable }
    }

    /// Runs until the lease was given back; `release` asks for that.
    pub(in crate::lease) async fn run(mut self, mut release: oneshot::Receiver<()>) {
        let saver = self.saver.clone();
        let _saving = saver.map(|saver| AbortOnDrop(tokio::spawn(async move { saver.run().await })));
        let mut asked_to_release = tokio::select! {
            biased;
            asked = &mut release => {
                if asked.is_err() {
                    return;
                }
                true
            }
            () = self.resume() => false,
        };
        let mut input = if asked_to_release { self.release().await } else { Input::Wake };
        loop {
            let turn = self.protocol.step(self.clock.unix_ms(), input);
            for event in turn.events {
                self.apply(event).await;
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
                        self.release().await
                    }
                    () = sleep(Duration::from_millis(ms)) => Input::Wake,
                },
            };
        }
    }

    /// Goes on under the lease that the process before this one saved, if there is one.
    async fn resume(&mut self) {
        let Some(file) = self.saver.clone() else { return };
        let saved = match file.read() {
            Ok(Some(lease)) => lease,
            Ok(None) => return,
            Err(why) => {
                tracing::debug!("the saved lease is not used: {why}");
                return;
            }
        };
        let settings = self.protocol.settings().clone();
        if matches!(settings.choice, WorkerChoice::Only(worker) if worker != saved.worker) {
            tracing::info!(worker = %saved.worker, "the saved lease is not used: it is of another worker");
            return;
        }
        let wait_ms = saved.mark_unix_ms.saturating_sub(self.clock.unix_ms());
        // A new lease can be used at once.
        let store_answers =
            wait_ms > 0 && matches!(timeout(self.config.call_timeout(), self.list()).await, Ok(Ok(_)));
        if store_answers {
            tracing::info!(
                "the saved lease is not used: the store is there, and another lease begins earlier"
            );
            return;
        }
        self.status.send_modify(|status| {
            let from = Utc(saved.mark_unix_ms);
            status.waiting = Some(format!(
                "the saved lease is used from {from} on, before that the last process may have used it"
            ));
        });
        sleep(Duration::from_millis(wait_ms)).await;
        let held = saved.held();
        if self.mount_under(held).await {
            tracing::warn!(
                worker = %held.worker,
                until = %Utc(held.until_unix_ms),
                "going on under the lease that was saved; it ends then, unless the store renews it"
            );
            // The machine before it was not asked anything yet: no tag of the seed is used.
            self.protocol = Protocol::resume(settings, self.seed, held);
        }
    }

    /// Ends the generator; gives what the store is to be told.
    ///
    /// That is 0 where nothing was made, and the end of the lease where the generator cannot tell, or where the lease
    /// is still saved: then another process may use the rest.
    async fn release(&mut self) -> Input {
        let used_until_unix_ms = self.end_generator();
        let removed = match &self.saver {
            Some(saver) => saver.remove().await,
            None => Ok(()),
        };
        match removed {
            Ok(()) => Input::Release { used_until_unix_ms },
            Err(error) => {
                tracing::warn!(%error, "the saved lease could not be removed: the lease is kept until it runs out");
                Input::Release { used_until_unix_ms: u64::MAX }
            }
        }
    }

    fn end_generator(&mut self) -> u64 {
        let Some(generator) = self.generator.take() else { return 0 };
        let used_until = generator.end();
        self.mount.put(Some(&generator), None);
        used_until.unwrap_or(u64::MAX)
    }

    async fn perform(&mut self, call: Call) -> Input {
        let patience = self.config.call_timeout();
        match call {
            Call::List => {
                let answer = timeout(patience, self.list()).await;
                let listed = self.judged(answer, "list");
                if let Ok(listing) = &listed {
                    self.tell_unreadable(listing);
                }
                Input::Listed(listed)
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
        &mut self,
        answer: Result<Result<T, StoreError>, tokio::time::error::Elapsed>,
        operation: &'static str,
    ) -> Result<T, Failure> {
        let now = self.clock.unix_ms();
        let error = match answer {
            Ok(Ok(value)) => {
                if let Some((ms, failed_calls)) = self.outage.succeeded(now) {
                    tracing::info!(after_ms = ms, failed_calls, "the store answers again");
                }
                return Ok(value);
            }
            Ok(Err(error)) => error,
            Err(elapsed) => {
                StoreError::new(StoreErrorKind::OutcomeUnknown, operation, self.store.describe(), elapsed)
            }
        };
        match self.outage.failed(now) {
            Tell::Begins => tracing::warn!(%error, "the store did not do what was asked; trying again"),
            Tell::Lasts { ms, failed_calls } => {
                tracing::warn!(%error, for_ms = ms, failed_calls, "the store still does not do what is asked");
            }
            Tell::Nothing => tracing::debug!(%error, "the store did not do what was asked"),
        }
        let failure = match error.kind() {
            StoreErrorKind::OutcomeUnknown => Failure::Unknown,
            _ => Failure::NotDone,
        };
        self.status.send_modify(|status| {
            status.store_errors += 1;
            if !error.is_temporary() {
                status.failure = Some(LeaseFailure::Store(Arc::new(error)));
            } else if status.worker.is_none() {
                status.waiting = Some(error.to_string());
            } else {
                status.trouble = Some(error.to_string());
            }
        });
        Err(failure)
    }

    async fn apply(&mut self, event: Event) {
        match event {
            Event::Granted(lease) => self.granted(lease).await,
            Event::Extended { until_unix_ms } => self.extended(until_unix_ms).await,
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
            Event::NoneFree { first } => self.none_free(first.map(|(worker, holder, until)| {
                format!(
                    "no worker is free; worker {worker} frees first, at {}, if {holder} does not renew it",
                    Utc(until)
                )
            })),
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

    /// Without a record that tells when a worker frees, there is none that can be read.
    fn none_free(&self, first: Option<String>) {
        let Settings { choice, pool, .. } = self.protocol.settings();
        match (first, choice) {
            (Some(why), _) => self.waiting(why),
            (None, WorkerChoice::Only(worker)) => {
                let key = pool.key(*worker).map(|key| key.to_string()).unwrap_or_default();
                self.failed(LeaseFailure::Unreadable { worker: *worker, key });
            }
            (None, WorkerChoice::Any) => {
                self.waiting("no worker is free, and no record of this pool can be read".to_owned());
            }
        }
    }

    async fn granted(&mut self, lease: Lease) {
        // The machine that tells of a grant holds it.
        let Some(held) = self.protocol.held() else { return };
        if self.mount_under(held).await {
            let pool = self.protocol.settings().pool;
            tracing::info!(worker = %lease.worker, until = %Utc(lease.until_unix_ms), %pool, "lease granted");
        }
    }

    /// Puts a generator under a lease in the place of the one before. Gives whether ids can be made.
    async fn mount_under(&mut self, held: Held) -> bool {
        let Held { worker, from_unix_ms, mut until_unix_ms, .. } = held;
        if let Some(saver) = &self.saver {
            until_unix_ms = saver.begin(held).await;
        }
        if until_unix_ms <= from_unix_ms {
            self.waiting(format!("the lease of worker {worker} can neither be saved nor its file removed"));
            return false;
        }
        // The one before is ended first and the next begins after its last timestamp: ids go on increasing.
        let used_until = self.generator.as_ref().and_then(|generator| generator.end()).unwrap_or(0);
        let pool = self.protocol.settings().pool;
        let built = Generator::builder(*pool.layout())
            .datacenter(pool.datacenter())
            .lease(Lease { worker, from_unix_ms, until_unix_ms })
            .not_before_unix_ms(used_until)
            .rule(self.config.generator_rule())
            .build(Arc::clone(&self.clock));
        let generator = match built {
            Ok(generator) => Arc::new(generator),
            // Checked when the keeper was configured; were it to happen, no id is made.
            Err(error) => {
                self.end_generator();
                tracing::error!(%error, "no generator can be made under the lease");
                return false;
            }
        };
        self.mount.put(self.generator.as_ref(), Some(Arc::clone(&generator)));
        if let Some(saver) = &self.saver {
            saver.attach(Arc::clone(&generator)).await;
        }
        self.generator = Some(generator);
        self.status.send_modify(|status| {
            status.worker = Some(worker);
            status.until_unix_ms = Some(held.until_unix_ms);
            (status.waiting, status.trouble, status.failure) = (None, None, None);
        });
        true
    }

    async fn extended(&mut self, until_unix_ms: u64) {
        match (&self.saver, &self.generator, self.protocol.held()) {
            (Some(_), None, Some(held)) => {
                self.mount_under(held).await;
            }
            (Some(saver), Some(_), Some(held)) => saver.extended(held).await,
            (None, Some(generator), _) => generator.extend_lease(until_unix_ms),
            _ => {}
        }
        tracing::debug!(until = %Utc(until_unix_ms), "lease renewed");
        self.status.send_modify(|status| {
            status.until_unix_ms = Some(until_unix_ms);
            status.renewals += 1;
            (status.trouble, status.failure) = (None, None);
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

    /// Told once: while a worker is sought the records are read many times a second.
    fn tell_unreadable(&mut self, listing: &Listing) {
        let unreadable =
            listing.entries.iter().find(|entry| entry.record.is_none()).map(|entry| entry.worker);
        if self.unreadable != unreadable
            && let Some(worker) = unreadable
        {
            tracing::warn!(%worker, "this worker's record cannot be read; the worker is left alone");
        }
        self.unreadable = unreadable;
    }

    fn waiting(&self, why: String) {
        if self.status.borrow().waiting.as_ref() != Some(&why) {
            tracing::warn!("{why}");
        }
        self.status.send_modify(|status| status.waiting = Some(why));
    }
}

fn entry(worker: WorkerId, value: &Versioned) -> Entry {
    Entry { worker, revision: value.revision, record: Record::from_bytes(&value.value).ok() }
}
