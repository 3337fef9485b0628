//! The task behind a keeper: performs the protocol's calls, applies its events, keeps the status.

mod catching_up;
mod leasing;
mod telling;

use std::sync::Arc;
use std::time::Duration;

use snowmint::WorkerId;
use snowmint::utc::Utc;
use snowmint_store::{Key, KeyError, Store, StoreError, StoreErrorKind, Swap, Versioned};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::config::settle_ms;
use super::mount::Mount;
use super::outage::Outage;
use super::quiet::Quiet;
use super::{AbortOnDrop, KeeperConfig, LeaseFailure, LeaseStatus};
use crate::NodeClock;
use crate::lease::protocol::jumps::Jumped;
use crate::lease::protocol::{
    Call, Entry, Event, Input, Listing, Next, Now, Protocol, Scope, Settings, StoreTime, Swapped, Turn,
};
use crate::lease::record::Record;
use crate::lease::saved::Saver;
use catching_up::ByWall;
use leasing::Mounted;
use telling::{Reason, Said};

/// What a task is made of.
pub(in crate::lease) struct Parts {
    pub(in crate::lease) store: Arc<dyn Store>,
    pub(in crate::lease) settings: Settings,
    pub(in crate::lease) seed: u128,
    pub(in crate::lease) config: KeeperConfig,
    pub(in crate::lease) clock: NodeClock,
    pub(in crate::lease) mount: Arc<dyn Mount>,
    pub(in crate::lease) status: watch::Sender<LeaseStatus>,
    pub(in crate::lease) saver: Option<Arc<Saver>>,
    pub(super) quiet: Arc<Quiet>,
}

pub(in crate::lease) struct Task {
    store: Arc<dyn Store>,
    protocol: Protocol,
    seed: u128,
    config: KeeperConfig,
    clock: NodeClock,
    /// Hears when it jumped forward.
    jumps: watch::Receiver<u64>,
    /// Whether leases are counted by the wall clock, which is ahead, until one is granted.
    by_wall: ByWall,
    /// How long the wall clock has been ahead by the same.
    jumped: Jumped,
    mount: Arc<dyn Mount>,
    mounted: Option<Mounted>,
    /// The first instant after all that its generators used, in unix milliseconds.
    used_until_unix_ms: u64,
    status: watch::Sender<LeaseStatus>,
    saver: Option<Arc<Saver>>,
    quiet: Arc<Quiet>,
    outage: Outage,
    /// The last worker whose record could not be read: told once.
    unreadable: Option<WorkerId>,
    /// Why a lease is waited for, as the log says it.
    said: Option<Said>,
    /// The worker whose lease is being given back.
    released: Option<WorkerId>,
}

/// Nothing is held any more, however the task ended, and no generator is left behind.
impl Drop for Task {
    fn drop(&mut self) {
        self.unmount();
    }
}

impl Task {
    pub(in crate::lease) fn new(parts: Parts) -> Self {
        let Parts { store, settings, seed, config, clock, mount, status, saver, quiet } = parts;
        let protocol = Protocol::new(settings, seed);
        Self {
            store,
            protocol,
            seed,
            config,
            jumps: clock.jumps(),
            clock,
            by_wall: ByWall::No,
            jumped: Jumped::default(),
            mount,
            mounted: None,
            used_until_unix_ms: 0,
            status,
            saver,
            quiet,
            outage: Outage::default(),
            unreadable: None,
            said: None,
            released: None,
        }
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
            if !asked_to_release {
                self.look_at_wall(&input).await;
            }
            let turn = self.step(input);
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
                    // A lease may have ended by that.
                    Ok(()) = self.jumps.changed() => Input::Wake,
                    () = sleep(Duration::from_millis(ms)) => Input::Wake,
                },
            };
        }
    }

    fn step(&mut self, input: Input) -> Turn {
        // A store that is opened late says only then what it may lose.
        self.protocol.store_may_lose(settle_ms(self.store.may_lose()));
        self.protocol.claim_nothing_before(self.quiet.until_steady_ms());
        let mut salt = [0];
        // Without random bits a copy of this process is noticed later, if it is.
        if getrandom::fill(&mut salt).is_ok() {
            self.protocol.salt(salt[0]);
        }
        // In this order: where the process stands still in between, the clock does not seem to have jumped.
        let unix_ms = self.count_by();
        let unstepped_unix_ms = match self.by_wall {
            ByWall::No => self.clock.unstepped_unix_ms(),
            // It was judged.
            ByWall::Yes { .. } => unix_ms,
        };
        let now = Now { unix_ms, unstepped_unix_ms, steady_ms: self.quiet.steady_ms() };
        let turn = self.protocol.step(now, input);
        self.quiet.until(self.protocol.quiet_until_steady_ms());
        turn
    }

    async fn perform(&mut self, call: Call) -> Input {
        let patience = self.config.call_timeout();
        match call {
            Call::Look { scope, time } => {
                let answer = timeout(patience, self.look(scope, time)).await;
                let listed = self.judged(answer, "list");
                if let Ok(listing) = &listed {
                    self.tell_unreadable(scope, listing);
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

    async fn look(&self, scope: Scope, time: StoreTime) -> Result<Listing, StoreError> {
        let pool = self.protocol.settings().pool;
        let entries = match scope {
            Scope::Worker(worker) => self.load(worker).await?.into_iter().collect(),
            Scope::Block(block) => self.list(&pool.prefix_of(block)).await?,
            Scope::Pool => self.list(&pool.prefix()).await?,
        };
        // Read last: what the look took must not seem to be a clock that is ahead.
        let store_unix_ms = match time {
            StoreTime::Wanted => self.store.unix_ms().await?,
            StoreTime::Known => None,
        };
        Ok(Listing { entries, store_unix_ms })
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        let pool = self.protocol.settings().pool;
        let entry = |(key, value): (Key, Versioned)| Some(entry(pool.worker_of(&key)?, &value));
        Ok(self.store.list(prefix).await?.into_iter().filter_map(entry).collect())
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

    async fn apply(&mut self, event: Event) {
        match event {
            Event::Granted(lease) => self.granted(lease).await,
            Event::Extended { until_unix_ms } => self.extended(until_unix_ms).await,
            Event::Claimed { worker, settles_in_ms } => self.claimed(worker, settles_in_ms),
            Event::StoreForgot { worker, acknowledged_until_unix_ms, found_until_unix_ms, forgot } => {
                self.store_forgot(worker, acknowledged_until_unix_ms, found_until_unix_ms, forgot);
            }
            Event::Overlap { worker, holder, from_unix_ms, until_unix_ms } => {
                self.overlap(worker, &holder, from_unix_ms..until_unix_ms).await;
            }
            Event::Lost { worker, until_unix_ms } => {
                tracing::warn!(
                    %worker,
                    until = %Utc(until_unix_ms),
                    "another node, `snowmint workers release` or `snowmint store recover` took this worker; ids go on until the \
                     lease ends, and another worker is sought"
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
            Event::Awaited { worker, holder, until_unix_ms } => self.waiting(
                Reason::Awaited,
                format!(
                    "worker {worker} is granted to {holder} until {}: waiting to see whether it is renewed",
                    Utc(until_unix_ms)
                ),
            ),
            Event::ClockAhead { ahead_ms, max_skew_ms } => {
                self.failed(Reason::ClockAhead, LeaseFailure::ClockAhead { ahead_ms, max_skew_ms });
                self.clock_ahead(ahead_ms);
            }
            Event::ClockJumped { by_ms, followed_in_ms } => {
                let why = format!(
                    "this clock jumped forward by {by_ms} ms, and neither the store nor another node confirms that: leases are \
                     not renewed by it for another {followed_in_ms} ms; correct the clock, or if it is right, wait or restart \
                     this node"
                );
                self.waiting(Reason::ClockJumped, why);
                self.clock_ahead(by_ms);
            }
            Event::Taken { worker, holder, until_unix_ms } => {
                self.failed(
                    Reason::Taken,
                    LeaseFailure::Taken { worker, holder: holder.to_string(), until_unix_ms },
                );
            }
            Event::Released => {
                tracing::info!(
                    worker = self.released.map(tracing::field::display),
                    "the lease was given back"
                );
            }
        }
    }
}

fn entry(worker: WorkerId, value: &Versioned) -> Entry {
    Entry { worker, revision: value.revision, record: Record::from_bytes(&value.value).ok() }
}
