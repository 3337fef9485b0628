//! The background task of one lease: it makes the protocol's store calls, and keeps a generator under the
//! lease.

mod lease_clock;
mod other_nodes;
mod report;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use snowmint::generator::{GeneratorPool, PoolError};
use snowmint::utc::Utc;
use snowmint::{Clock, Generator, Lease, WorkerId};
use snowmint_store::{Key, Store, StoreError, StoreErrorKind, Versioned};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};

use super::config::{LeaseConfig, LeaseConfigError, settle_ms};
use super::protocol::clock_jumps::Jumped;
use super::protocol::{
    CallFailure, LeaseCall, LeaseEvent, LeaseInput, LeaseNext, LeaseProtocol, LeaseSettings, LeaseTurn,
    Listing, LookScope, Now, SettledLease, StoreTime, WorkerChoice, WorkerEntry,
};
use super::record::Record;
use super::saved::Saver;
use super::status::LeaseStatus;
use crate::store_calls::before_call;
use crate::{Holder, NodeClock, RandomnessError, fork};
use lease_clock::{CountedBy, watch_wall};
use report::{Outage, Reason, Reported, StoreAccess};

/// How long the slot of a saved lease may take to become free after its task has ended: a disk may hang.
const SLOT_FREE_WITHIN: Duration = Duration::from_secs(1);
/// The interval between two looks at the store while a saved lease cannot be used yet.
const LOOK_AGAIN_MS: u64 = 1_000;

/// What all leases of a node share.
pub(super) struct LeaseNode {
    store: Arc<dyn Store>,
    settings: LeaseSettings,
    config: LeaseConfig,
    clock: NodeClock,
    /// Where callers find the generators of the leases.
    generators: GeneratorPool<NodeClock>,
    /// The origin of the steady clock by which grants settle.
    started: Instant,
    /// Until this time of the steady clock, no lease of this node claims a worker, because one of them found
    /// that the store had lost writes.
    claim_nothing_before_ms: AtomicU64,
    /// Whether this clock was compared with the store's, or with those of other nodes.
    clock_compared: Mutex<bool>,
}

/// A lease that is sought or held, until it is released.
#[derive(Debug)]
pub(super) struct RunningLease {
    status: watch::Receiver<LeaseStatus>,
    release: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    /// Closed when the saver of this lease has ended.
    saver_lives: watch::Receiver<()>,
}

impl LeaseNode {
    pub(super) fn new(
        store: Arc<dyn Store>,
        settings: LeaseSettings,
        config: LeaseConfig,
        clock: NodeClock,
        generators: GeneratorPool<NodeClock>,
    ) -> Self {
        let (started, claim_nothing_before_ms) = (Instant::now(), AtomicU64::new(0));
        let clock_compared = Mutex::new(false);
        Self { store, settings, config, clock, generators, started, claim_nothing_before_ms, clock_compared }
    }

    pub(super) const fn settings(&self) -> &LeaseSettings {
        &self.settings
    }

    pub(super) const fn clock(&self) -> &NodeClock {
        &self.clock
    }

    /// Returns the latest time that the store's clock can show, in Unix milliseconds, if it has one.
    async fn latest_store_unix_ms(&self) -> Result<Option<u64>, StoreError> {
        let unix_ms = self.store.unix_ms().await?;
        Ok(unix_ms.map(|unix_ms| unix_ms.saturating_add(self.store_clock_error_ms())))
    }

    /// Returns how far a reading of the store's clock may be off, in milliseconds.
    fn store_clock_error_ms(&self) -> u64 {
        u64::try_from(self.store.clock_error().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns at most the milliseconds that have passed. The time during which the machine was suspended may
    /// be missing.
    fn steady_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Starts to seek one of the node's leases, counted from 0, on the current tokio runtime.
    ///
    /// The leases of a node differ in the suffix of the holder's name and in their tags. Each lease treats
    /// the record of another one like that of another node: it neither prefers nor adopts it.
    pub(super) fn start(self: &Arc<Self>, number: usize) -> Result<RunningLease, LeaseConfigError> {
        let settings =
            LeaseSettings { holder: self.settings.holder.of_slot(number), ..self.settings.clone() };
        let seed = random_seed()?;
        let (sender, status) = watch::channel(LeaseStatus::seeking(&settings.pool));
        // One watcher is enough, and the first lease stays.
        let watcher =
            (number == 0).then(|| AbortOnDrop(fork::spawn(watch_wall(self.clock.clone(), sender.clone()))));
        let (lives, saver_lives) = watch::channel(());
        let saver = self.config.saved.as_ref().map(|saved| {
            let (settings, clock) = (settings.clone(), self.clock.clone());
            Saver::new(saved, number, settings, clock, sender.clone(), lives).map(Arc::new)
        });
        let saver = saver.transpose()?;
        let task = LeaseTask::new(Arc::clone(self), settings, seed, sender, saver);
        let (release, released) = oneshot::channel();
        let task = fork::spawn(async move {
            // The watcher ends with the task, even if the task is aborted.
            let _watching = watcher;
            task.run(released).await;
        });
        Ok(RunningLease { status, release: Some(release), task, saver_lives })
    }

    /// Replaces `old`, which has ended, by `new`.
    fn replace_generator(
        &self,
        old: Option<&Arc<Generator<NodeClock>>>,
        new: Arc<Generator<NodeClock>>,
    ) -> Result<(), PoolError> {
        match old {
            Some(old) => self.generators.replace(old, new),
            None => self.generators.add(new),
        }
    }
}

/// Returns fresh random bits for the tags of one lease.
fn random_seed() -> Result<u128, RandomnessError> {
    let mut seed = [0; 16];
    RandomnessError::of(getrandom::fill(&mut seed))?;
    Ok(u128::from_ne_bytes(seed))
}

impl RunningLease {
    pub(super) fn status(&self) -> watch::Receiver<LeaseStatus> {
        self.status.clone()
    }

    pub(super) fn is_held(&self) -> bool {
        self.status.borrow().worker.is_some()
    }

    /// Ends the generator and begins to release the lease; [`gone`](Self::gone) waits for the store.
    pub(super) fn release(&mut self) {
        if let Some(release) = self.release.take() {
            // If the task has ended, it holds nothing.
            let _ = release.send(());
        }
    }

    /// Returns whether the release has begun.
    pub(super) const fn is_releasing(&self) -> bool {
        self.release.is_none()
    }

    /// Returns whether the lease was released or abandoned, and another one may be saved in its slot.
    pub(super) fn is_gone(&self) -> bool {
        self.task.is_finished() && self.saver_lives.has_changed().is_err()
    }

    /// Waits until the lease is released, or abandons it after `patience`.
    pub(super) async fn gone(&mut self, patience: Duration) {
        if !self.task.is_finished() && timeout(patience, &mut self.task).await.is_err() {
            self.abandon();
            // After the task has ended, no new generator can appear. The error says that it was aborted.
            let _ = (&mut self.task).await;
        }
        // A disk write that has begun ends by itself. This fails when it has ended, and times out if the disk
        // hangs.
        let _ = timeout(SLOT_FREE_WITHIN, self.saver_lives.changed()).await;
    }

    /// Abandons the lease, which then expires.
    pub(super) fn abandon(&self) {
        if self.task.is_finished() {
            // Only the file of the saved lease is still in use.
            return;
        }
        tracing::warn!("the store did not answer in time: the lease was not released and ends by itself");
        self.task.abort();
    }
}

/// Ends a task that would otherwise run forever.
#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The task that seeks and keeps one lease.
struct LeaseTask {
    node: Arc<LeaseNode>,
    protocol: LeaseProtocol,
    seed: u128,
    /// Receives jumps forward of the clock.
    clock_jumps: watch::Receiver<u64>,
    counted_by: CountedBy,
    /// How long the wall clock has been ahead by the same amount.
    wall_jumped: Jumped,
    current: Option<ActiveGenerator>,
    /// The first instant after everything that the generators used, in unix milliseconds.
    used_until_unix_ms: u64,
    status: watch::Sender<LeaseStatus>,
    saver: Option<Arc<Saver>>,
    outage: Outage,
    /// The last worker with an unreadable record, which is reported once.
    unreadable: Option<WorkerId>,
    /// Why the store has no clock, as logged.
    clock_missing: Option<String>,
    /// Why the task waits for a lease, as logged.
    reported: Reported,
    /// The worker whose lease is being released.
    released: Option<WorkerId>,
}

/// The generator of the current lease, with the worker and the first instant of that lease.
struct ActiveGenerator {
    generator: Arc<Generator<NodeClock>>,
    worker: WorkerId,
    from_unix_ms: u64,
    /// Extends the generator once its lease is saved; `None` if it is not saved. Decided when the lease
    /// begins.
    saver: Option<Arc<Saver>>,
}

impl ActiveGenerator {
    /// Returns whether the generator was made for this lease: a renewal changes only the end.
    fn is_under(&self, held: SettledLease) -> bool {
        (self.worker, self.from_unix_ms) == (held.worker, held.from_unix_ms)
    }
}

/// Ensures that no generator is left, however the task ends.
impl Drop for LeaseTask {
    fn drop(&mut self) {
        self.remove_generator();
    }
}

impl LeaseTask {
    fn new(
        node: Arc<LeaseNode>,
        settings: LeaseSettings,
        seed: u128,
        status: watch::Sender<LeaseStatus>,
        saver: Option<Arc<Saver>>,
    ) -> Self {
        let clock_jumps = node.clock.jumps();
        Self {
            node,
            protocol: LeaseProtocol::new(settings, seed),
            seed,
            clock_jumps,
            counted_by: CountedBy::NodeClock,
            wall_jumped: Jumped::default(),
            current: None,
            used_until_unix_ms: 0,
            status,
            saver,
            outage: Outage::default(),
            unreadable: None,
            clock_missing: None,
            reported: Reported::default(),
            released: None,
        }
    }

    /// Runs until the lease is released; `release` requests that.
    async fn run(mut self, mut release: oneshot::Receiver<()>) {
        let saver = self.saver.clone();
        let _saving = saver.map(|saver| AbortOnDrop(fork::spawn(async move { saver.run().await })));
        let mut asked_to_release = tokio::select! {
            biased;
            asked = &mut release => {
                if asked.is_err() {
                    return;
                }
                true
            }
            () = async {
                self.resume().await;
                self.compare_with_other_nodes().await;
            } => false,
        };
        let mut input = if asked_to_release { self.release().await } else { LeaseInput::Wake };
        loop {
            if !asked_to_release {
                self.look_at_wall(&input).await;
            }
            let turn = self.step(input);
            for event in turn.events {
                self.apply(event).await;
            }
            input = match turn.next {
                LeaseNext::Call(call) => self.perform(call).await,
                LeaseNext::Stop => break,
                LeaseNext::Wait(ms) if asked_to_release => {
                    sleep(Duration::from_millis(ms)).await;
                    LeaseInput::Wake
                }
                LeaseNext::Wait(ms) => tokio::select! {
                    biased;
                    // If nobody can request a release any more, the lease is kept until it ends.
                    asked = &mut release => {
                        if asked.is_err() {
                            break;
                        }
                        asked_to_release = true;
                        self.release().await
                    }
                    // The jump may have ended a lease.
                    Ok(()) = self.clock_jumps.changed() => LeaseInput::Wake,
                    () = sleep(Duration::from_millis(ms)) => LeaseInput::Wake,
                },
            };
        }
    }

    fn step(&mut self, input: LeaseInput) -> LeaseTurn {
        // A store that is opened late knows only now what it may lose.
        self.protocol.store_may_lose(settle_ms(self.node.store.may_lose()));
        self.protocol.claim_nothing_before(self.node.claim_nothing_before_ms.load(Ordering::Relaxed));
        let mut salt = [0];
        // Without random bits, a copy of this process is detected later, if at all.
        if getrandom::fill(&mut salt).is_ok() {
            self.protocol.salt(salt[0]);
        }
        // The order matters: if the process pauses in between, the clock does not seem to have jumped.
        let unix_ms = self.count_by();
        let unstepped_unix_ms = match self.counted_by {
            CountedBy::NodeClock => self.node.clock.unstepped_unix_ms(),
            // The jump was judged already.
            CountedBy::WallClock { .. } => unix_ms,
        };
        let now = Now { unix_ms, unstepped_unix_ms, steady_ms: self.node.steady_ms() };
        let turn = self.protocol.step(now, input);
        let claim_nothing_before_ms = self.protocol.claim_nothing_before_steady_ms();
        self.node.claim_nothing_before_ms.fetch_max(claim_nothing_before_ms, Ordering::Relaxed);
        turn
    }

    async fn perform(&mut self, call: LeaseCall) -> LeaseInput {
        let patience = self.node.config.call_timeout();
        match call {
            LeaseCall::Look { scope, time } => {
                let answer = timeout(patience, self.look(scope, time)).await;
                let listed = self.outcome(answer, "list", StoreAccess::Reads);
                if let Ok(listing) = &listed {
                    self.report_unreadable(scope, listing);
                    if time == StoreTime::Wanted && listing.store_unix_ms.is_none() {
                        self.report_missing_clock();
                    }
                }
                LeaseInput::Looked(listed)
            }
            LeaseCall::Load(worker) => {
                let answer = timeout(patience, self.load(worker)).await;
                LeaseInput::Loaded(self.outcome(answer, "load", StoreAccess::Reads))
            }
            LeaseCall::Swap { worker, expected, record } => {
                let swap = async {
                    let key = self.key(worker)?;
                    self.node.store.compare_and_set(&key, expected, &record.to_bytes()).await
                };
                let answer = timeout(patience, swap).await;
                LeaseInput::Swapped(self.outcome(answer, "compare_and_set", StoreAccess::Writes))
            }
        }
    }

    /// Returns the answer of a call, or whether the call may have taken effect: a write may have if its
    /// answer was lost, or if this node did not wait for it any longer. Reports both.
    fn outcome<T>(
        &mut self,
        answer: Result<Result<T, StoreError>, Elapsed>,
        operation: &'static str,
        access: StoreAccess,
    ) -> Result<T, CallFailure> {
        let error = match answer {
            Ok(Ok(value)) => {
                self.call_succeeded(access);
                return Ok(value);
            }
            Ok(Err(error)) => error,
            Err(_) => {
                let kind = match access {
                    StoreAccess::Reads => StoreErrorKind::Unavailable,
                    StoreAccess::Writes => StoreErrorKind::OutcomeUnknown,
                };
                let limit = self.node.config.call_timeout().as_millis();
                let text = format!("no answer within {limit} ms, this node's limit for a call");
                StoreError::new(kind, operation, self.node.store.describe(), text)
            }
        };
        let failure = match error.kind() {
            StoreErrorKind::OutcomeUnknown => CallFailure::Unknown,
            _ => CallFailure::NotDone,
        };
        self.call_failed(access, error);
        Err(failure)
    }

    async fn look(&self, scope: LookScope, time: StoreTime) -> Result<Listing, StoreError> {
        let pool = self.protocol.settings().pool;
        let entries = match scope {
            LookScope::Worker(worker) => self.load(worker).await?.into_iter().collect(),
            LookScope::Block(block) => self.list(&pool.prefix_of(block)).await?,
            LookScope::Pool => self.list(&pool.prefix()).await?,
        };
        // Read last, so that the duration of the list does not look like a clock that is ahead.
        let store_unix_ms = match time {
            StoreTime::Wanted => self.node.latest_store_unix_ms().await?,
            StoreTime::Known => None,
        };
        Ok(Listing { entries, store_unix_ms })
    }

    async fn list(&self, prefix: &str) -> Result<Vec<WorkerEntry>, StoreError> {
        let pool = self.protocol.settings().pool;
        let entry = |(key, value): (Key, Versioned)| Some(entry(pool.worker_of(&key)?, &value));
        Ok(self.node.store.list(prefix).await?.into_iter().filter_map(entry).collect())
    }

    async fn load(&self, worker: WorkerId) -> Result<Option<WorkerEntry>, StoreError> {
        let record = self.node.store.load(&self.key(worker)?).await?;
        Ok(record.map(|value| entry(worker, &value)))
    }

    fn key(&self, worker: WorkerId) -> Result<Key, StoreError> {
        let key = self.protocol.settings().pool.key(worker);
        key.map_err(|error| before_call(&*self.node.store, "key", error))
    }

    /// Applies what the protocol decided to the generator and the saved lease; `report` covers the rest.
    async fn apply(&mut self, event: LeaseEvent) {
        match event {
            LeaseEvent::Granted(held) => self.granted(held).await,
            LeaseEvent::Extended(held) => self.extended(held).await,
            LeaseEvent::Overlap { worker, holder, from_unix_ms, until_unix_ms } => {
                self.overlap(worker, &holder, from_unix_ms..until_unix_ms).await;
            }
            LeaseEvent::Copied { worker, until_unix_ms } => self.copied(worker, until_unix_ms).await,
            event => self.report(event),
        }
    }

    async fn granted(&mut self, held: SettledLease) {
        if self.start_generator(held).await {
            let pool = self.protocol.settings().pool;
            tracing::info!(worker = %held.worker, until = %Utc(held.until_unix_ms), %pool, "lease granted");
        }
    }

    /// Replaces the current generator by one for a new lease. Returns whether it can make ids; otherwise
    /// there is none.
    async fn start_generator(&mut self, held: SettledLease) -> bool {
        let SettledLease { worker, from_unix_ms, mut until_unix_ms, .. } = held;
        let saver = self.saver.clone().filter(|_| !held.is_in_gap);
        match &saver {
            Some(saver) => until_unix_ms = saver.begin(held).await,
            None => self.forget_saved().await,
        }
        if until_unix_ms <= from_unix_ms {
            let why = format!("the lease of worker {worker} can neither be saved nor its file removed");
            self.wait_for(Reason::Unsaved, why);
            self.remove_generator();
            return false;
        }
        // The old generator ends first, and the new one begins after its last timestamp, so that ids keep
        // increasing.
        self.end_generator();
        self.advance_clock(held);
        let pool = self.protocol.settings().pool;
        let built = Generator::builder(*pool.layout())
            .datacenter(pool.datacenter())
            .lease(Lease { worker, from_unix_ms, until_unix_ms })
            .not_before_unix_ms(self.used_until_unix_ms)
            .rule(self.node.config.rule)
            .start(self.node.config.sequence_start)
            .build(self.node.clock.clone());
        let generator = match built {
            Ok(generator) => Arc::new(generator),
            // The settings were checked. If this fails nevertheless, no id is made.
            Err(error) => {
                tracing::error!(%error, "no generator can be made for the lease");
                self.remove_generator();
                return false;
            }
        };
        let old = self.current.as_ref().map(|current| &current.generator);
        if let Err(error) = self.node.replace_generator(old, Arc::clone(&generator)) {
            // Another lease of this process used the worker, up to a later time: the store lost that lease,
            // and the clock went back. The next renewal tries again, above this lease.
            self.wait_for(Reason::Refused, format!("no ids of worker {worker} under its lease: {error}"));
            self.remove_generator();
            self.used_until_unix_ms = self.used_until_unix_ms.max(until_unix_ms);
            // A later process would not know of the other lease.
            self.forget_saved().await;
            return false;
        }
        // Before the next await: if the task ends there, it ends this generator.
        let current =
            ActiveGenerator { generator: Arc::clone(&generator), worker, from_unix_ms, saver: saver.clone() };
        self.current = Some(current);
        if let Some(saver) = saver {
            saver.attach(generator).await;
        }
        self.clock_confirmed();
        self.reported.clear();
        self.status.send_modify(|status| {
            status.worker = Some(worker);
            status.until_unix_ms = Some(held.until_unix_ms);
            status.clear();
        });
        true
    }

    async fn extended(&mut self, held: SettledLease) {
        let until_unix_ms = held.until_unix_ms;
        let usable = match self.current.as_ref().filter(|current| current.is_under(held)) {
            // The lease could not be saved when it was granted.
            None => self.start_generator(held).await,
            Some(current) => {
                let saver = current.saver.clone();
                if saver.is_none() {
                    current.generator.extend_lease(until_unix_ms);
                }
                self.advance_clock(held);
                if let Some(saver) = saver {
                    saver.extended(held).await;
                }
                true
            }
        };
        // An error was logged when it ended.
        let now_unix_ms = self.node.clock.unix_ms();
        let before = self.status.borrow().until_unix_ms;
        if usable && brings_ids_back(before, until_unix_ms, now_unix_ms) {
            let worker = held.worker;
            tracing::info!(%worker, until = %Utc(until_unix_ms), "lease renewed after it had ended; ids are made again");
        } else {
            tracing::debug!(until = %Utc(until_unix_ms), "lease renewed");
        }
        self.clock_confirmed();
        self.status.send_modify(|status| {
            status.renewals += 1;
            if usable {
                status.until_unix_ms = Some(until_unix_ms);
                status.clear();
            }
        });
    }

    /// Resumes the lease that the previous process saved, if there is one.
    async fn resume(&mut self) {
        let Some(file) = self.saver.clone() else { return };
        let saved = match file.read().await {
            Ok(Some(lease)) => lease,
            Ok(None) => return,
            Err(why) => {
                tracing::debug!("the saved lease is not used: {why}");
                return;
            }
        };
        let settings = self.protocol.settings().clone();
        if matches!(settings.choice, WorkerChoice::Only(worker) if worker != saved.worker) {
            tracing::info!(worker = %saved.worker, "the saved lease is not used: it is for another worker");
            return;
        }
        if self.store_answers_before(saved.worker, saved.mark_unix_ms).await {
            tracing::info!(
                "the saved lease is not used: the store is available, and a new lease begins earlier"
            );
            return;
        }
        let held = saved.settled();
        if self.start_generator(held).await {
            tracing::warn!(
                worker = %held.worker,
                until = %Utc(held.until_unix_ms),
                "resumed the saved lease; ids end with it unless the store renews it"
            );
            // The replaced protocol made no call yet, so no tag of the seed was used.
            self.protocol = LeaseProtocol::resume(settings, self.seed, held);
        }
    }

    /// Waits for the first unused instant of a saved lease. Returns whether the store answered first: a new
    /// lease is then usable immediately.
    async fn store_answers_before(&self, worker: WorkerId, mark_unix_ms: u64) -> bool {
        let why = format!(
            "the saved lease is used from {} on; the last process may have used the time before that",
            Utc(mark_unix_ms)
        );
        let left = || Duration::from_millis(mark_unix_ms.saturating_sub(self.node.clock.unix_ms()));
        loop {
            if left().is_zero() {
                return false;
            }
            let patience = self.node.config.call_timeout().min(left());
            if matches!(timeout(patience, self.load(worker)).await, Ok(Ok(_))) {
                return true;
            }
            self.status.send_modify(|status| status.wait(why.clone()));
            sleep(left().min(Duration::from_millis(LOOK_AGAIN_MS))).await;
        }
    }

    /// Ends the generator. Returns the input for the protocol, with the first unused instant.
    ///
    /// That instant is 0 if no id was made. It is the end of the lease if the generator cannot tell, or if
    /// the lease is still saved: then another process may use the rest.
    async fn release(&mut self) -> LeaseInput {
        self.released = self.current.as_ref().map(|current| current.worker);
        // Also what was used of the worker before this lease, if its generator was refused.
        let used_until_unix_ms = self.remove_generator().max(self.used_until_unix_ms);
        let removed = match &self.saver {
            Some(saver) => saver.remove().await,
            None => Ok(()),
        };
        match removed {
            Ok(()) => LeaseInput::Release { used_until_unix_ms },
            Err(error) => {
                tracing::warn!(%error, "the saved lease cannot be removed: the lease is kept until it ends");
                LeaseInput::Release { used_until_unix_ms: u64::MAX }
            }
        }
    }

    /// Another node was granted time that this lease covers: no further id is made under it, and no process
    /// resumes it.
    async fn overlap(&mut self, worker: WorkerId, holder: &Holder, both: Range<u64>) {
        let used_until_unix_ms = self.remove_generator();
        let (from, until) = (Utc(both.start), Utc(both.end));
        if used_until_unix_ms > both.start {
            tracing::error!(
                %worker, %holder, %from, until = %Utc(used_until_unix_ms.min(both.end)),
                "duplicate ids are possible: the store forgot this node's lease and granted its worker to another node; \
                 check ids of this worker with timestamps between these instants; this node stopped using the worker"
            );
        } else {
            tracing::error!(
                %worker, %holder, %from, %until,
                "the store forgot this node's lease and granted its worker to another node; this node stopped using the \
                 worker before that grant began, so there are no duplicate ids"
            );
        }
        self.give_up(format!(
            "the store forgot the lease of worker {worker} and granted it to {holder}; this node claims no other worker for \
             one window"
        ))
        .await;
    }

    /// A copy of this process uses the same lease: no further id is made under it here.
    async fn copied(&mut self, worker: WorkerId, until_unix_ms: u64) {
        let used_until_unix_ms = self.remove_generator();
        if used_until_unix_ms > 0 {
            tracing::error!(
                %worker, until = %Utc(used_until_unix_ms.min(until_unix_ms)),
                "duplicate ids are possible: a copy of this process renewed the same lease, for example a virtual machine \
                 that was cloned or restored with its memory; check ids of this worker with timestamps from the copy to this \
                 instant; this node stopped using the worker"
            );
        } else {
            tracing::warn!(
                %worker,
                "a copy of this process renewed the same lease; this node made no id under it, so there are no duplicate ids"
            );
        }
        self.give_up(format!(
            "a copy of this process holds worker {worker}; this node looks for another worker"
        ))
        .await;
    }

    /// Ends a lease whose worker somebody else uses.
    async fn give_up(&mut self, why: String) {
        self.forget_saved().await;
        self.status.send_modify(|status| {
            status.overlaps += 1;
            status.wait(why);
        });
    }

    /// Removes the file of a lease that must not be resumed.
    async fn forget_saved(&self) {
        if let Some(saver) = &self.saver
            && let Err(error) = saver.remove().await
        {
            tracing::error!(%error, "the file of a lease that must not be resumed cannot be removed: remove it before the next start");
        }
    }

    /// Ends and removes the generator. Returns the first instant after every used timestamp, in unix
    /// milliseconds, or 0 if there was no generator.
    fn remove_generator(&mut self) -> u64 {
        let used_until = self.end_generator();
        let Some(ActiveGenerator { generator, .. }) = self.current.take() else { return 0 };
        self.node.generators.remove(&generator);
        self.status.send_modify(|status| (status.worker, status.until_unix_ms) = (None, None));
        used_until.unwrap_or(u64::MAX)
    }

    /// Ends the generator, which stays in the pool until another one replaces it.
    fn end_generator(&mut self) -> Option<u64> {
        let used_until = self.current.as_ref()?.generator.end();
        self.used_until_unix_ms = self.used_until_unix_ms.max(used_until.unwrap_or_default());
        used_until
    }
}

/// Returns whether a renewal ends a time without ids: the lease had ended, and lasts now. After an outage, a
/// renewal may first confirm the end that has passed.
fn brings_ids_back(before_unix_ms: Option<u64>, until_unix_ms: u64, now_unix_ms: u64) -> bool {
    before_unix_ms.is_some_and(|before| before <= now_unix_ms) && until_unix_ms > now_unix_ms
}

fn entry(worker: WorkerId, value: &Versioned) -> WorkerEntry {
    WorkerEntry { worker, revision: value.revision, record: Record::from_bytes(&value.value).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_back_once_the_lease_lasts_again() {
        for (before, until, back) in [
            (None, 30, false),
            (Some(9), 30, true),
            (Some(20), 30, true),
            (Some(21), 30, false),
            (Some(9), 20, false),
        ] {
            assert_eq!(brings_ids_back(before, until, 20), back, "{before:?} {until}");
        }
    }
}
