//! How a node finds a worker to claim.
//!
//! A required worker is loaded. A small pool is listed. A large pool would cost too much to list: there a
//! node looks at one worker, then at ten, then at a hundred, until it finds one to claim.
//!
//! The first looks are derived from the node's name, so that a node finds its worker again after a restart,
//! even if others start in the same second. Nodes of one name look at the same places, so the hundred is
//! random. If no worker is free, the node looks at all hundreds in turn, and thus finds a released worker
//! wherever it is. Each node has its own order: if all looked at the same hundred, none would look at the
//! others.
//!
//! However a node found a record, the claim is conditional on the revision that it saw.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use snowmint::WorkerId;
use snowmint_store::{Expected, Revision};

use super::{
    Begin, CallFailure, LONGEST_WAIT_MS, LeaseCall, LeaseEvent, LeaseNext, LeaseProtocol, LeaseSettings,
    Listing, LookScope, Now, PendingWrite, State, StoreTime, WorkerChoice, WorkerEntry, WriteAttempt,
};
use crate::Holder;
use crate::lease::record::{Block, BlockSize, Granted, Record};
use snowmint::random::SplitMix64;

/// The number of candidates of each kind to try before the next look.
const TRIES: usize = 4;
/// The node's own record counts as lapsed if it ends within this time: a node that released its lease in this
/// millisecond and starts again keeps its worker. The grant begins where the record ends.
const OWN_SLACK_MS: u64 = 5;
/// The maximum delay of the first look at a hundred, for each worker of the pool: nodes that find their pool
/// full at the same time do not read all of it at the same time.
const SPREAD_MS: u64 = 1;
const LONGEST_SPREAD_MS: u64 = 1_000;
/// After another node claimed the same worker first, the next look is delayed by up to 1 ms for each `CROWD`
/// workers, and twice as long each time.
const CROWD: u64 = 4;
/// The pause after a hundred without a free worker, and up to half of that longer.
const PAUSE_MS: u64 = 200;
/// After this number of hundreds without a free worker, the pause doubles with each hundred. By then a node
/// has seen a whole pool of 1,024 workers, so 1,000 nodes that start at the same time find the last free
/// workers without longer pauses.
const ONE_PASS: u32 = 10;
/// How often the pause doubles: up to 1.6 to 2.4 s, like every wait of a node without a lease.
const DOUBLINGS: u32 = 3;

impl<B: Begin> LeaseProtocol<B> {
    /// Starts to look for a worker, from the beginning.
    pub(super) fn seek(&mut self, now: Now) -> LeaseNext {
        self.candidates.clear();
        if self.lists_at_once() {
            return self.look_at(now, LookScope::Pool);
        }
        self.probing.begin(&self.settings);
        self.look_on(now)
    }

    fn lists_at_once(&self) -> bool {
        let LeaseSettings { choice, pool, small_pool, .. } = &self.settings;
        *choice == WorkerChoice::Any && pool.workers() <= *small_pool
    }

    /// Looks at the next scope. After the last one, claims a candidate or looks further.
    pub(super) fn look_on(&mut self, now: Now) -> LeaseNext {
        if let Some(scope) = self.probing.next.pop_front() {
            return self.look_at(now, scope);
        }
        if !self.candidates.is_empty() {
            return self.claim_next(now);
        }
        let paused_ms = self.probing.hundred_from_steady_ms.saturating_sub(now.steady_ms);
        let frees_first = self.probing.frees_first;
        let frees_ms = frees_first.map_or(u64::MAX, |it| it.frees_unix_ms.saturating_sub(now.unix_ms));
        if frees_ms < paused_ms {
            let later_ms = self.random.below(frees_ms / 8 + 1);
            return self.wait_at_least(State::Seek, frees_ms + later_ms);
        }
        let workers = self.settings.pool.workers();
        let hundred = self.probing.next_hundred(workers, &mut self.random);
        self.probing.next.push_back(hundred);
        let spread_ms = self.probing.spread_ms(workers, &mut self.random);
        self.wait_at_least(State::BetweenLooks, paused_ms + spread_ms)
    }

    fn look_at(&mut self, now: Now, scope: LookScope) -> LeaseNext {
        let compared_lately =
            |compared: u64| now.steady_ms.saturating_sub(compared) < self.settings.window_ms;
        let time = match scope {
            LookScope::Worker(_) | LookScope::Block(_) if self.settings.choice == WorkerChoice::Any => {
                if self.probing.compared_steady_ms.is_some_and(compared_lately) {
                    StoreTime::Known
                } else {
                    StoreTime::Wanted
                }
            }
            _ => StoreTime::Wanted,
        };
        self.state = State::AwaitLook(scope);
        LeaseNext::Call(LeaseCall::Look { scope, time })
    }

    pub(super) fn looked(
        &mut self,
        now: Now,
        scope: LookScope,
        answer: Result<Listing, CallFailure>,
    ) -> LeaseNext {
        let Ok(listing) = answer else {
            if !self.lists_at_once() && scope.is_wide() {
                self.probing.looked_in_vain(now.steady_ms, &mut self.random);
            }
            return self.wait_after_failure(now, State::Seek);
        };
        if let Some(next) = self.before_a_choice(now, &listing) {
            return next;
        }
        let entries = listing.entries;
        match scope {
            _ if self.settings.choice != WorkerChoice::Any || self.lists_at_once() => {
                self.choose_of_all(now, scope, &entries)
            }
            LookScope::Worker(worker) => self.saw_one(now, worker, entries.first()),
            LookScope::Block(_) | LookScope::Pool => self.choose_of_some(now, scope, &entries),
        }
    }

    fn saw_one(&mut self, now: Now, worker: WorkerId, entry: Option<&WorkerEntry>) -> LeaseNext {
        match find(&self.settings, worker, entry, now.unix_ms) {
            FoundWorker::Free(candidate) | FoundWorker::Own(candidate) => {
                self.candidates.push_front(candidate);
                return self.claim_next(now);
            }
            FoundWorker::Lapsed(candidate) => self.candidates.push_back(candidate),
            // One in a gap is taken only if no other worker is free.
            FoundWorker::InGap { frees_unix_ms, .. } | FoundWorker::Taken { frees_unix_ms } => {
                let holder = entry.and_then(|entry| Some(&entry.record.as_ref()?.holder));
                let whose = Whose::of(holder, &self.settings.holder);
                self.probing.found_taken(Awaited { whose, frees_unix_ms, worker });
            }
            FoundWorker::Unreadable => {}
        }
        self.look_on(now)
    }

    /// Checks what comes before any choice. Returns `None` if the node may claim a worker now.
    fn before_a_choice(&mut self, now: Now, listing: &Listing) -> Option<LeaseNext> {
        let Listing { entries, store_unix_ms } = listing;
        self.failures = 0;
        if self.release_from_unix_ms.is_some() {
            return Some(self.stop());
        }
        if let Some(store_unix_ms) = store_unix_ms
            && let Err(event) = self.compared(now, *store_unix_ms)
        {
            self.events.push(event);
            let wait_ms = self.look_again_ms();
            return Some(self.wait_about(State::Seek, wait_ms));
        }
        if self.claim_pause_ms(now) > 0 {
            return Some(self.proceed(now, State::Seek));
        }
        self.watch_renewals(now, entries);
        if let Some(event) = records_ahead(entries, now.unix_ms, self.settings.window_ms) {
            self.events.push(event);
        }
        let (write, attempt, revision) = self.arrived_after_all(now, entries)?;
        Some(self.succeeded(now, &write, Some(attempt), revision))
    }

    /// Chooses a worker if these are all workers that the node may claim.
    fn choose_of_all(&mut self, now: Now, scope: LookScope, entries: &[WorkerEntry]) -> LeaseNext {
        let (settings, unrenewed) = (&self.settings, &self.unrenewed);
        match (SeenRecords { settings, scope, entries, now, unrenewed }).choose(&mut self.random) {
            Choice::Claim(candidates) => {
                self.candidates = candidates;
                self.claim_next(now)
            }
            Choice::NoneFree { first } => {
                let until = first.as_ref().map(|(.., until)| *until);
                self.events.push(LeaseEvent::NoneFree { first });
                self.wait_until_free(now, until)
            }
            Choice::Watch(watched) => self.await_worker(now, watched),
        }
    }

    /// Chooses a worker if there are others too: the node never reads a large pool in one call.
    fn choose_of_some(&mut self, now: Now, scope: LookScope, entries: &[WorkerEntry]) -> LeaseNext {
        let (settings, unrenewed) = (&self.settings, &self.unrenewed);
        let seen = SeenRecords { settings, scope, entries, now, unrenewed };
        match seen.choose(&mut self.random) {
            Choice::Claim(candidates) => {
                let seen_before = std::mem::replace(&mut self.candidates, candidates);
                self.candidates.extend(seen_before);
            }
            Choice::NoneFree { first } => {
                if let Some(awaited) = seen.awaited() {
                    self.probing.found_taken(awaited);
                }
                if self.candidates.is_empty() && scope.is_wide() {
                    self.probing.looked_in_vain(now.steady_ms, &mut self.random);
                    self.events.push(LeaseEvent::NoneFree { first });
                }
            }
            // Happens only with a required worker.
            Choice::Watch(_) => {}
        }
        if self.candidates.is_empty() { self.look_on(now) } else { self.claim_next(now) }
    }

    /// Waits for the first worker that may become free, but not longer than until the next look: a worker may
    /// be released.
    ///
    /// Never wakes before the end of that lease, and spreads nodes that wait for the same one.
    fn wait_until_free(&mut self, now: Now, until_unix_ms: Option<u64>) -> LeaseNext {
        let most_ms = self.look_again_ms();
        let left_ms = until_unix_ms.map_or(most_ms, |until| until.saturating_sub(now.unix_ms)).min(most_ms);
        let later_ms = self.random.below(left_ms / 8 + 1);
        self.wait_at_least(State::Seek, left_ms + later_ms)
    }

    /// Returns the longest time until the next look. It grows with the size of the pool, because a look then
    /// costs more.
    pub(super) fn look_again_ms(&self) -> u64 {
        let LeaseSettings { choice, pool, window_ms, small_pool, .. } = self.settings;
        let times = match choice {
            WorkerChoice::Any => 1 + u64::from(pool.workers() / small_pool.max(1)),
            WorkerChoice::Only(_) => 1,
        };
        (window_ms / 12 * times).min(LONGEST_WAIT_MS)
    }

    /// Finds an abandoned claim that was written later, if its grant lasts. Nobody used the grant, so it is
    /// as good as an acknowledged one.
    fn arrived_after_all(
        &mut self,
        now: Now,
        entries: &[WorkerEntry],
    ) -> Option<(PendingWrite, WriteAttempt, Revision)> {
        let (entry, attempt) = entries.iter().find_map(|entry| {
            let tag = entry.record.as_ref()?.tag;
            let of_entry =
                |(worker, attempt): &&(WorkerId, WriteAttempt)| *worker == entry.worker && attempt.tag == tag;
            self.abandoned_claims.iter().find(of_entry).map(|(_, attempt)| (entry, *attempt))
        })?;
        if attempt.until_unix_ms <= now.unix_ms {
            return None;
        }
        let granted = entry.record.as_ref()?.granted;
        let write = PendingWrite::claim(WorkerCandidate::of(entry, attempt.until_unix_ms, granted));
        self.abandoned_claims.clear();
        Some((write, attempt, entry.revision))
    }

    /// Remembers since when leases in the future, with a gap now, have not been renewed.
    fn watch_renewals(&mut self, now: Now, entries: &[WorkerEntry]) {
        for entry in entries {
            let in_gap = in_gap(entry, now.unix_ms, self.settings.window_ms).is_some();
            let seen = self.unrenewed.get(&entry.worker.0).map(|(revision, _)| *revision);
            if !in_gap {
                self.unrenewed.remove(&entry.worker.0);
            } else if seen != Some(entry.revision) {
                self.unrenewed.insert(entry.worker.0, (entry.revision, now.steady_ms));
            }
        }
    }

    /// Another node holds the required worker. If it renews the lease, the worker is taken; otherwise it
    /// becomes free.
    fn await_worker(&mut self, now: Now, watched: Watched) -> LeaseNext {
        let Watched { worker, revision, holder, until_unix_ms, frees_unix_ms } = watched;
        let renewed = self.watched.replace(revision).is_some_and(|seen| seen != revision);
        let far_ahead = frees_unix_ms.saturating_sub(now.unix_ms) > 2 * self.settings.window_ms;
        self.events.push(if renewed || far_ahead {
            LeaseEvent::Taken { worker, holder, until_unix_ms }
        } else {
            LeaseEvent::Awaited { worker, holder, until_unix_ms }
        });
        self.wait_until_free(now, Some(frees_unix_ms))
    }

    pub(super) fn claim_next(&mut self, now: Now) -> LeaseNext {
        if self.claim_pause_ms(now) > 0 {
            return self.proceed(now, State::Seek);
        }
        let Some(candidate) = self.candidates.pop_front() else {
            // Other nodes claimed all candidates first.
            if self.settings.choice != WorkerChoice::Any || self.lists_at_once() {
                return self.wait_after_failure(now, State::Seek);
            }
            let wait_ms = self.probing.outrun_ms(self.settings.pool.workers(), &mut self.random);
            return self.wait_at_least(State::BetweenLooks, wait_ms);
        };
        self.try_write(now, PendingWrite::claim(candidate))
    }
}

/// A worker that the node may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WorkerCandidate {
    pub(super) worker: WorkerId,
    pub(super) expected: Expected,
    /// The end of the last grant, or of the one before the gap; 0 if there was none.
    pub(super) granted_until_unix_ms: u64,
    /// Every grant by its record.
    pub(super) granted: Granted,
}

impl WorkerCandidate {
    const fn of(entry: &WorkerEntry, granted_until_unix_ms: u64, granted: Granted) -> Self {
        let expected = Expected::Revision(entry.revision);
        Self { worker: entry.worker, expected, granted_until_unix_ms, granted }
    }
}

/// Returns how long a lease in the future has to stay unrenewed before its worker is taken: a holder with the
/// same window renews after a third of it, and its call may take a quarter.
pub(in crate::lease) const fn unrenewed_ms(window_ms: u64) -> u64 {
    window_ms * 7 / 12
}

/// What to do after a look.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// Try these candidates in order; there is at least one.
    Claim(VecDeque<WorkerCandidate>),
    /// No worker is free.
    NoneFree { first: Option<(WorkerId, Holder, u64)> },
    /// Another node holds the required worker.
    Watch(Watched),
}

/// A required worker that another node holds.
#[derive(Debug, PartialEq, Eq)]
struct Watched {
    worker: WorkerId,
    revision: Revision,
    holder: Holder,
    /// The end of its lease; above an ended gap, the end of all grants.
    until_unix_ms: u64,
    /// When it may be free.
    frees_unix_ms: u64,
}

/// The state of a worker by its record.
#[derive(Debug, PartialEq, Eq)]
enum FoundWorker {
    /// There is no record: no node ever held the worker.
    Free(WorkerCandidate),
    /// This node held it, and the lease has ended.
    Own(WorkerCandidate),
    /// Another node held it, and the lease has ended.
    Lapsed(WorkerCandidate),
    /// It is granted in the future only, to a node whose clock is ahead of this one. That node may live.
    InGap { candidate: WorkerCandidate, frees_unix_ms: u64 },
    /// It is granted.
    Taken { frees_unix_ms: u64 },
    /// The record is unreadable.
    Unreadable,
}

fn find(settings: &LeaseSettings, worker: WorkerId, entry: Option<&WorkerEntry>, now: u64) -> FoundWorker {
    let Some(entry) = entry else { return FoundWorker::Free(free(worker)) };
    let Some(record) = &entry.record else { return FoundWorker::Unreadable };
    let is_own = record.holder == settings.holder;
    let now = if is_own { now + OWN_SLACK_MS } else { now };
    let in_gap = in_gap(entry, now, settings.window_ms);
    let ended = in_gap.filter(|_| record.released || record.until_unix_ms <= now);
    match (lapsed(entry, now).or(ended), in_gap) {
        (Some(candidate), _) if is_own => FoundWorker::Own(candidate),
        (Some(candidate), _) => FoundWorker::Lapsed(candidate),
        (None, Some(candidate)) => {
            FoundWorker::InGap { candidate, frees_unix_ms: frees_unix_ms(record, now, settings.window_ms) }
        }
        (None, None) => FoundWorker::Taken { frees_unix_ms: frees_unix_ms(record, now, settings.window_ms) },
    }
}

/// Returns the candidate in a gap around this time, if a window of it is left.
fn in_gap(entry: &WorkerEntry, now: u64, window_ms: u64) -> Option<WorkerCandidate> {
    let granted = entry.record.as_ref()?.granted;
    Some(WorkerCandidate::of(entry, granted.gap_at(now, window_ms)?.start, granted))
}

/// Returns when a node may claim a worker that is not free: one in a gap once its holder was seen not to
/// renew it.
fn frees_unix_ms(record: &Record, now: u64, window_ms: u64) -> u64 {
    match record.granted.gap_at(now, window_ms) {
        Some(_) => now + unrenewed_ms(window_ms),
        None => record.frees_unix_ms(now, window_ms),
    }
}

/// The records of a look, and what the node knows about them.
#[derive(Clone, Copy, Debug)]
struct SeenRecords<'a> {
    settings: &'a LeaseSettings,
    scope: LookScope,
    entries: &'a [WorkerEntry],
    now: Now,
    /// Since when leases in the future were not renewed.
    unrenewed: &'a BTreeMap<u32, (Revision, u64)>,
}

impl SeenRecords<'_> {
    /// Chooses among the workers of the scope: first this node's own worker, then free ones, then lapsed
    /// ones, then those that are granted in the future only, and that nobody renews.
    fn choose(&self, random: &mut SplitMix64) -> Choice {
        match self.settings.choice {
            WorkerChoice::Any => self.choose_any(random),
            WorkerChoice::Only(worker) => self.choose_only(worker),
        }
    }

    fn choose_only(&self, worker: WorkerId) -> Choice {
        let Some(entry) = self.entries.iter().find(|entry| entry.worker == worker) else {
            return Choice::Claim([free(worker)].into());
        };
        let now = self.now.unix_ms;
        let Some(record) = &entry.record else { return Choice::NoneFree { first: None } };
        let in_gap = in_gap(entry, now, self.settings.window_ms);
        let is_free = record.released || record.until_unix_ms <= now || self.is_abandoned(entry);
        if let Some(candidate) = lapsed(entry, now).or(in_gap.filter(|_| is_free)) {
            return Choice::Claim([candidate].into());
        }
        let frees_unix_ms = frees_unix_ms(record, now, self.settings.window_ms);
        Choice::Watch(Watched {
            worker,
            revision: entry.revision,
            holder: record.holder.clone(),
            until_unix_ms: record.until_unix_ms.max(frees_unix_ms),
            frees_unix_ms,
        })
    }

    fn choose_any(&self, random: &mut SplitMix64) -> Choice {
        let (mut own, mut lapsed, mut in_gaps) = (Vec::new(), Vec::new(), Vec::new());
        for entry in self.entries {
            match find(self.settings, entry.worker, Some(entry), self.now.unix_ms) {
                FoundWorker::Own(candidate) => own.push(candidate),
                FoundWorker::Lapsed(candidate) => lapsed.push(candidate),
                FoundWorker::InGap { candidate, .. } if self.is_abandoned(entry) => in_gaps.push(candidate),
                FoundWorker::Free(_)
                | FoundWorker::InGap { .. }
                | FoundWorker::Taken { .. }
                | FoundWorker::Unreadable => {}
            }
        }
        for candidates in [&mut own, &mut lapsed] {
            candidates.sort_by_key(|it: &WorkerCandidate| (it.granted_until_unix_ms, it.worker));
        }
        let free = free_workers(self.scope.range(self.settings.pool.workers()), self.entries, random);
        // Nodes that start at the same time look at the same hundred, and prefer different ones of the half
        // that lapsed first.
        let others = if self.scope.is_wide() { (lapsed.len() / 2).saturating_sub(TRIES) } else { 0 };
        let start = random.below(others as u64 + 1);
        let lapsed = lapsed.into_iter().skip(usize::try_from(start).unwrap_or_default()).take(TRIES);
        let mut candidates: VecDeque<_> = own.into_iter().take(TRIES).chain(free).chain(lapsed).collect();
        if candidates.is_empty() {
            candidates.extend(in_gaps.into_iter().take(TRIES));
        }
        if candidates.is_empty() {
            Choice::NoneFree { first: self.frees_first() }
        } else {
            Choice::Claim(candidates)
        }
    }

    /// Returns whether a holder that lives would have renewed this record by now: after a third of its
    /// window.
    fn is_abandoned(&self, entry: &WorkerEntry) -> bool {
        let since = self.unrenewed.get(&entry.worker.0).filter(|(revision, _)| *revision == entry.revision);
        let unrenewed_ms = unrenewed_ms(self.settings.window_ms);
        since.is_some_and(|(_, since)| self.now.steady_ms.saturating_sub(*since) >= unrenewed_ms)
    }

    /// Returns the worker that frees first.
    fn frees_first(&self) -> Option<(WorkerId, Holder, u64)> {
        let (first, record) = self.taken().min_by_key(|(taken, _)| taken.frees_unix_ms)?;
        Some((first.worker, record.holder.clone(), first.frees_unix_ms))
    }

    /// Returns the worker to wait for.
    fn awaited(&self) -> Option<Awaited> {
        self.taken().map(|(taken, _)| taken).min()
    }

    fn taken(&self) -> impl Iterator<Item = (Awaited, &Record)> {
        self.entries.iter().filter_map(|entry| {
            let record = entry.record.as_ref()?;
            let whose = Whose::of(Some(&record.holder), &self.settings.holder);
            let frees_unix_ms = frees_unix_ms(record, self.now.unix_ms, self.settings.window_ms);
            Some((Awaited { whose, frees_unix_ms, worker: entry.worker }, record))
        })
    }
}

const fn free(worker: WorkerId) -> WorkerCandidate {
    WorkerCandidate {
        worker,
        expected: Expected::Absent,
        granted_until_unix_ms: 0,
        granted: Granted::up_to(0),
    }
}

fn lapsed(entry: &WorkerEntry, now: u64) -> Option<WorkerCandidate> {
    let granted = entry.record.as_ref()?.granted;
    let until = granted.until_unix_ms();
    (until <= now).then_some(WorkerCandidate::of(entry, until, granted))
}

/// Returns a few workers without a record, from a random one on: nodes that start at the same time prefer
/// different ones.
fn free_workers(
    workers: Range<u32>,
    entries: &[WorkerEntry],
    random: &mut SplitMix64,
) -> Vec<WorkerCandidate> {
    let taken: BTreeSet<u32> = entries.iter().map(|entry| entry.worker.0).collect();
    let count = u64::from(workers.end - workers.start);
    let start = random.below(count);
    (0..count)
        .filter_map(|i| Some(workers.start + u32::try_from((start + i) % count).ok()?))
        .filter(|worker| !taken.contains(worker))
        .take(TRIES)
        .map(|worker| free(WorkerId(worker)))
        .collect()
}

/// Reports a record that reaches more than two windows ahead: a clock like this one did not write it. What an
/// operator took is known.
fn records_ahead(entries: &[WorkerEntry], now: u64, window_ms: u64) -> Option<LeaseEvent> {
    let records = entries.iter().filter_map(|entry| Some((entry.worker, entry.record.as_ref()?)));
    let records = records.filter(|(_, record)| !record.is_evicted());
    let (worker, record) = records.max_by_key(|(_, record)| record.until_unix_ms)?;
    let ahead_ms = record.until_unix_ms.saturating_sub(now + window_ms);
    (ahead_ms > window_ms).then(|| LeaseEvent::RecordsAhead {
        worker,
        holder: record.holder.clone(),
        ahead_ms,
    })
}

/// A worker that is not free yet; of two, a node waits for the smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Awaited {
    whose: Whose,
    frees_unix_ms: u64,
    pub(super) worker: WorkerId,
}

/// Who holds a worker that is not free yet.
///
/// A node waits for its own worker first: after a crash of all nodes, each then waits for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Whose {
    /// The previous process of this node.
    Own,
    /// Another node.
    Another,
}

impl Whose {
    fn of(holder: Option<&Holder>, own: &Holder) -> Self {
        if holder == Some(own) { Self::Own } else { Self::Another }
    }
}

/// What the node looks at in this round, and when it may look at a hundred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Probing {
    /// The remaining scopes to look at, in order.
    next: VecDeque<LookScope>,
    /// The worker of this round to wait for, and when it frees, in unix milliseconds.
    pub(super) frees_first: Option<Awaited>,
    /// When the node last compared its clock with the store's, by the steady clock.
    pub(super) compared_steady_ms: Option<u64>,
    /// The node looks at no hundred before this time of the steady clock.
    pub(super) hundred_from_steady_ms: u64,
    /// The number of hundreds in a row without a free worker, up to the last one that matters.
    pub(super) in_vain: u32,
    /// The next hundred, and the step to the one after it; `None` before the first.
    hundred: Option<(u32, u32)>,
    /// How many times in a row another node was faster.
    pub(super) outrun: u32,
}

impl Probing {
    /// Starts a round.
    fn begin(&mut self, settings: &LeaseSettings) {
        let workers = settings.pool.workers();
        let home = |nth: u8| WorkerId(home(&settings.holder, nth, workers));
        self.next.clear();
        self.outrun = 0;
        match (settings.choice, self.frees_first.take()) {
            (WorkerChoice::Only(worker), _) => self.next.push_back(LookScope::Worker(worker)),
            // A moment ago, none of the others was free.
            (WorkerChoice::Any, Some(first)) if self.in_vain > 0 => {
                self.next.extend([LookScope::Worker(first.worker), LookScope::Worker(home(0))]);
            }
            (WorkerChoice::Any, _) => {
                self.next.push_back(LookScope::Worker(home(0)));
                if workers > BlockSize::Ten.workers() {
                    self.next.push_back(LookScope::Block(Block::of(home(1), BlockSize::Ten)));
                }
            }
        }
        if let [first, second] = self.next.make_contiguous()
            && first == second
        {
            self.next.pop_back();
        }
    }

    /// Returns the next hundred, or the whole pool if it is not larger.
    fn next_hundred(&mut self, workers: u32, random: &mut SplitMix64) -> LookScope {
        if workers <= BlockSize::Hundred.workers() {
            return LookScope::Pool;
        }
        let blocks = workers.div_ceil(BlockSize::Hundred.workers());
        let (block, step) = self.hundred.unwrap_or_else(|| {
            let steps = 1 + below(u64::from(blocks), random)..;
            // A step that is coprime to the number of blocks reaches all of them; 1 always is.
            let step = steps.into_iter().find(|step| common_divisor(*step, blocks) == 1).unwrap_or(1);
            (below(u64::from(blocks), random), step)
        });
        self.hundred = Some(((block + step) % blocks, step));
        LookScope::Block(Block::of(WorkerId(block * BlockSize::Hundred.workers()), BlockSize::Hundred))
    }

    /// Records a worker that is not free yet.
    fn found_taken(&mut self, found: Awaited) {
        self.frees_first = Some(self.frees_first.map_or(found, |first| first.min(found)));
    }

    /// Returns the delay before a look at a hundred, in milliseconds, without its pause.
    fn spread_ms(&self, workers: u32, random: &mut SplitMix64) -> u64 {
        match self.in_vain {
            0 => random.below((u64::from(workers) * SPREAD_MS).min(LONGEST_SPREAD_MS)),
            _ => 0,
        }
    }

    /// Returns the delay before the next look after another node claimed the worker first, in milliseconds.
    fn outrun_ms(&mut self, workers: u32, random: &mut SplitMix64) -> u64 {
        let most_ms = (u64::from(workers) / CROWD).saturating_mul(1 << self.outrun.min(8));
        self.outrun = self.outrun.saturating_add(1);
        random.below(most_ms.min(LONGEST_SPREAD_MS))
    }

    /// Records that a look at a hundred failed or found no free worker.
    fn looked_in_vain(&mut self, steady_ms: u64, random: &mut SplitMix64) {
        let pause_ms = PAUSE_MS << self.in_vain.saturating_sub(ONE_PASS);
        self.hundred_from_steady_ms = steady_ms + pause_ms + random.below(pause_ms / 2);
        self.in_vain = (self.in_vain + 1).min(ONE_PASS + DOUBLINGS);
    }
}

/// Returns a worker derived from the holder's name alone: the same on every machine and in every version.
///
/// FNV-1a, and one step of `SplitMix64`, which spreads it over all bits.
pub(super) fn home(holder: &Holder, nth: u8, workers: u32) -> u32 {
    let hash = holder.as_str().bytes().chain([nth]).fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    below(u64::from(workers), &mut SplitMix64::of(hash))
}

/// Returns the greatest common divisor.
fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

fn below(bound: u64, random: &mut SplitMix64) -> u32 {
    // The bound is a number of workers, which has at most 31 bits.
    u32::try_from(random.below(bound)).unwrap_or_default()
}
