//! The lease protocol as a pure state machine: it takes a time and a store answer, and returns the next call.
//! It does no I/O and has no clock, so the background task and the simulation drive the same code.
//!
//! ```text
//!            look            swap                    window / 3
//!  Seek ───────────▶ Claim ────────▶ Hold ◀──────────────────────┐
//!    ▲  none free: wait │ conflict:   │ renew: swap              │
//!    │                  │ next one    ▼                          │
//!    ├──────────────────┘           Renew ───────────────────────┘
//!    │ lost: another node wrote       │ unknown outcome or conflict: load, and decide by the tag
//!    └────────────────────────────────┘
//! ```
//!
//! `seek` finds a worker. This file claims it, and holds, renews and releases its lease. `clock_jumps`
//! decides whether a clock that jumped forward may grant. A claim is conditional on the revision that the
//! node saw, and begins after the end that this revision shows.
//!
//! # When a renewal's answer is lost
//!
//! The write may have happened, or may still arrive. The node loads the record:
//!
//! - The tag of this write: it succeeded.
//! - The tag that was known before: nothing has been written yet. The node tries again. If the first attempt
//!   still arrives, the second one conflicts, and the next load shows the outcome.
//! - An older tag of this node, or no record: the store forgot, see below.
//! - Any other tag: it belongs to another node, and the lease is lost.
//!
//! # Stores that may lose acknowledged writes
//!
//! A store whose [`may_lose`](snowmint_store::Store::may_lose) is L may fail over to a copy without the
//! newest writes: it loses the end of its history, never a part in the middle, and only writes that it
//! acknowledged less than L before. Over such a store a node uses a lease only as far as it has *settled*: a
//! load or a conditional write, sent at least L after the answer that showed the grant, still found it. The
//! time from that answer to this call is measured by a steady clock. A renewal settles the grant before it,
//! so renewals cost no extra call. A claim settles with the first renewal, L later, and is reported only
//! then.
//!
//! Why no instant is used twice:
//!
//! 1. *What has settled stays.* If the store had lost the grant, it would have lost it within L of the
//!    acknowledgement, and the confirming call would not have found it. A grant that was found is older than
//!    L, so no later failover loses it.
//! 2. *Everything that is used lies on one line of history.* Every node uses settled grants only. By 1, all
//!    of them are in the history that survives, in one order for each worker.
//! 3. *On one line, ranges do not overlap.* A claim begins at `max(now, old.until)`, a renewal never shortens
//!    a lease, and a release ends it after the last used timestamp. Each write was conditional on the one
//!    before it.
//!
//! A claim over a lapsed record whose renewal was lost is therefore harmless: its holder had not settled that
//! renewal and did not use it. A lost release only wastes time: whatever was written after it is lost with
//! it. A grant that nobody settled is never used, in whatever order late writes arrive.
//!
//! # A store that forgot
//!
//! If a node finds its record older than what the store had acknowledged (a tag of its own line, or no
//! record), the store forgot: it failed over or was restored. The node writes its lease again from what it
//! found, and uses nothing new until that has settled. It claims no other worker for one window, because
//! other nodes need that long to write their leases again. If another holder's grant begins before the end of
//! what this node may use, the two overlap, and this node stops immediately. Records contain the beginning of
//! the lease for this purpose only.
//!
//! These two rules detect losses that the store must not have. They do not make a loss of more than L safe.
//! After such a loss, another node may claim the worker, or wake and renew a lease that had ended, before the
//! holder's next renewal: it can then repeat up to that much of the lease.
//!
//! # A clock that was ahead
//!
//! A clock that is far ahead is granted a lease in the future, and leaves a gap that nobody was granted. Each
//! record shows the gaps ([`Granted`]), so that a node with a correct clock can be granted a part of one:
//! from the time of its clock, or the beginning of the gap, for a window, and never beyond the next grant.
//! The record still ends where its last grant does. A lease in a gap is renewed up to the next grant. Then
//! the node takes another worker, as if it had lost this one.
//!
//! Point 3 holds for gaps too: a gap of a record was granted to nobody on the history that led to this
//! record, each write replaces the record whose gaps it read, and takes from them what it grants. Only the
//! unused end of a grant is given back, by its holder. The holder of the last grant loses the worker to a
//! lease in a gap, and uses its own lease to the end.
//!
//! A node takes a gap below a lease that is in the future only if it saw the record unchanged for longer than
//! a renewal takes: both clocks may be wrong, and the node that was there first keeps its worker.

pub(super) mod clock_jumps;
mod messages;
pub(super) mod seek;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::marker::PhantomData;

use snowmint::WorkerId;
use snowmint_store::{Expected, Revision, Swap};

use super::record::{Block, BlockSize, Granted, Record, Tag, WorkerPool};
use crate::Holder;
use crate::segment::high_water_mark::Forgot;
pub use messages::{
    CallFailure, LeaseCall, LeaseEvent, LeaseInput, LeaseNext, LeaseTurn, Listing, LookScope, StoreTime,
    WorkerEntry,
};
use snowmint::random::SplitMix64;

use clock_jumps::{Jumped, LEAST_JUMP_MS};
use seek::{Probing, WorkerCandidate};

/// Which worker a node leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerChoice {
    /// Any free worker.
    Any,
    /// This worker; fail if another node holds it.
    Only(WorkerId),
}

/// The settings of a lease, fixed while the node runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseSettings {
    /// The layout and the datacenter.
    pub pool: WorkerPool,
    /// The worker to lease.
    pub choice: WorkerChoice,
    /// The name in records.
    pub holder: Holder,
    /// How far ahead of the clock a lease reaches when it is granted or renewed, in milliseconds.
    pub window_ms: u64,
    /// How far the clock may be ahead of the store's clock when the node takes a lease, or renews it after a
    /// jump of the clock, in milliseconds. A clock that is far ahead would block the worker for other nodes.
    pub max_skew_ms: u64,
    /// The age of the newest writes that the store may lose, in milliseconds: a grant settles after this
    /// time. 0 for a store that keeps everything it acknowledges.
    pub may_lose_ms: u64,
    /// The node lists a pool of at most this many workers at once, and looks at a few workers of a larger
    /// one.
    pub small_pool: u32,
}

/// The time of a step, by three clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The clock of the ids, in unix milliseconds. It may be stepped, slewed or wrong.
    pub unix_ms: u64,
    /// What that clock would show by boot time, without steps since the process started, in unix
    /// milliseconds. The difference reveals a step forward.
    pub unstepped_unix_ms: u64,
    /// A steady clock, in milliseconds since any instant, by which grants settle. It may show less time than
    /// has passed, for example without the time of a suspension, and never more.
    pub steady_ms: u64,
}

/// Where a grant begins and ends: the rules on which uniqueness rests.
///
/// It is a type parameter only so that the simulation can plant a fault, and must then find duplicates.
pub trait Begin: fmt::Debug {
    /// Returns the first instant of a grant, from the clock and the end of the last grant.
    fn begin(now_unix_ms: u64, granted_until_unix_ms: u64) -> u64;

    /// Returns the first instant after a grant, from the wanted one and the beginning of the next grant.
    fn end(until_unix_ms: u64, next_grant_unix_ms: u64) -> u64 {
        until_unix_ms.min(next_grant_unix_ms)
    }
}

/// `max(now, old.until)`: the ranges granted for one worker never overlap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AfterLastGrant;

impl Begin for AfterLastGrant {
    fn begin(now_unix_ms: u64, granted_until_unix_ms: u64) -> u64 {
        now_unix_ms.max(granted_until_unix_ms)
    }
}

/// How many abandoned claims, and how many recent tags, to remember: only the last few writes can still
/// arrive.
const MAX_REMEMBERED: usize = 16;
/// The longest wait for a store that refuses calls, or for a worker that may become free. Ids return this
/// soon after the store does, however long the window.
const LONGEST_WAIT_MS: u64 = 2_000;
/// A failed call that took this long got no answer. A store that is down refuses calls at once.
const UNANSWERED_MS: u64 = 2_000;
/// The longest wait for a store that does not answer, for each worker of the layout: a node in each of them
/// may wait for it, with up to three reads a try. A store that executes 400 reads a second then gets through.
const UNANSWERED_WAIT_MS: u64 = 10;
/// The longest wait for a store that does not answer, however large the layout.
const LONGEST_UNANSWERED_WAIT_MS: u64 = 300_000;
/// After this number of calls in a row without an answer, the wait no longer grows.
const MOST_UNANSWERED: u8 = 16;

/// One attempt to write. A later load may show that it succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct WriteAttempt {
    tag: Tag,
    from_unix_ms: u64,
    until_unix_ms: u64,
}

/// Attempts to change a record at one revision: at most one of them can succeed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PendingWrite {
    purpose: WritePurpose,
    worker: WorkerId,
    expected: Expected,
    /// The tag of the record to replace, if there is one and it is known.
    known_tag: Option<Tag>,
    /// The first instant of the lease to renew or release; `None` for a claim.
    lease_from_unix_ms: Option<u64>,
    /// The first instant that a claim may grant, or the end of the lease to renew or release.
    granted_until_unix_ms: u64,
    /// Every grant of the worker by the record to replace.
    granted: Granted,
    attempts: Vec<WriteAttempt>,
    /// Whether an attempt may have succeeded unnoticed.
    may_have_succeeded: bool,
}

impl PendingWrite {
    /// Returns the claim of a worker.
    const fn claim(candidate: WorkerCandidate) -> Self {
        let WorkerCandidate { worker, expected, granted_until_unix_ms, granted } = candidate;
        Self {
            purpose: WritePurpose::Claim,
            worker,
            expected,
            known_tag: None,
            lease_from_unix_ms: None,
            granted_until_unix_ms,
            granted,
            attempts: Vec::new(),
            may_have_succeeded: false,
        }
    }

    /// Returns the same write of a record that was found at another revision: no attempt can succeed any
    /// more.
    fn at(&self, expected: Expected, known_tag: Option<Tag>) -> Self {
        Self { expected, known_tag, attempts: Vec::new(), may_have_succeeded: false, ..*self }
    }

    /// Returns every grant of the worker after this attempt.
    fn granted_after(&self, from_unix_ms: u64, until_unix_ms: u64) -> Granted {
        if self.lease_from_unix_ms.is_some() && until_unix_ms < self.granted_until_unix_ms {
            self.granted.without(until_unix_ms..self.granted_until_unix_ms)
        } else {
            self.granted.and(from_unix_ms..until_unix_ms)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WritePurpose {
    Claim,
    Renew,
    Release { used_until_unix_ms: u64 },
}

/// A lease as far as it has settled: this part is usable. Over a store that loses nothing, that is all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SettledLease {
    /// The worker.
    pub worker: WorkerId,
    /// The record's revision.
    pub revision: Revision,
    /// The tag of the write that granted or renewed it.
    pub tag: Tag,
    /// The first usable instant, in unix milliseconds.
    pub from_unix_ms: u64,
    /// The first instant after it, in unix milliseconds: the end of the newest grant that has settled.
    pub until_unix_ms: u64,
    /// Whether it lies in a gap, below a grant to another clock. Such a lease must not be saved: a process of
    /// an earlier version would resume it, and forget that grant.
    pub is_in_gap: bool,
}

/// Failed attempts in a row that are an outage of the store. After fewer, as a slow store causes them,
/// earlier renewals would only be more calls for it.
const OUTAGE: u32 = 4;

/// When the next renewal comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// As long after this one as this one after the last.
    Steady,
    /// At any time up to then.
    Scattered,
}

/// [`LeaseEvent::Granted`] or [`LeaseEvent::Extended`].
type SettledEvent = fn(SettledLease) -> LeaseEvent;

/// A lease as its record in the store shows it: claimed, and settled up to some instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RecordedLease {
    /// The lease as far as it has settled; empty if no part of it has.
    settled: SettledLease,
    /// Whether any part of it has settled.
    is_usable: bool,
    /// Whether the tag is still that of the previous process, which may have written another one since.
    resumed: bool,
    /// The tag at which this process resumed the lease. The previous process had counted up to this number,
    /// and this one continues from a random number: only numbers up to this one are certainly older than the
    /// lease.
    resumed_from: Option<Tag>,
    /// The end of the newest grant that was acknowledged.
    acknowledged_until_unix_ms: u64,
    /// Every grant of the worker by the record, this lease among them.
    granted: Granted,
    /// When it was acknowledged, by the steady clock; `None` once it has settled or the store forgot it.
    acknowledged_steady_ms: Option<u64>,
}

impl RecordedLease {
    /// Returns whether the lease lies in a gap, reaches to its end, and has settled.
    fn ends_at_next_grant(&self) -> bool {
        let until = self.acknowledged_until_unix_ms;
        self.is_usable && self.settled.until_unix_ms == until && self.granted.limit_of(until) == until
    }

    /// Returns who wrote a record whose tag is neither that of this lease nor that of a pending attempt.
    fn writer_of(&self, found: Tag) -> Writer {
        let (ours, found_number) = (self.settled.tag.number(), found.number());
        let is_after = |first: u64, then: u64| (1..=u64::from(u32::MAX)).contains(&then.wrapping_sub(first));
        let is_up_to = |last: u64| found_number == last || is_after(found_number, last);
        if !self.is_of_our_line(found) {
            Writer::Another
        } else if !self.resumed && is_after(ours, found_number) {
            Writer::UsSince
        } else if is_up_to(ours) || self.resumed_from.is_some_and(|tag| is_up_to(tag.number())) {
            Writer::UsBefore
        } else {
            // Either a process that resumed this lease, or the one from which this process resumed it. Both
            // may be alive. If each took the other's record for an older one of its own, both would use the
            // lease.
            Writer::Another
        }
    }

    const fn is_of_our_line(&self, found: Tag) -> bool {
        self.settled.tag.line() == found.line()
    }
}

/// The writer of a record, by its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// This line of processes, no later than the newest grant: the store forgot that grant, perhaps only for
    /// a while.
    UsBefore,
    /// This process, after the newest grant, although the store said that nothing was written; or a copy of
    /// it.
    UsSince,
    /// Another node.
    Another,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Seek,
    /// Waits between two looks.
    BetweenLooks,
    /// Waits for the records of these workers.
    AwaitLook(LookScope),
    AwaitSwap(PendingWrite),
    /// Holds back a grant, because the clock jumped forward and nothing confirms that.
    ClockDoubted(PendingWrite),
    /// The same, while waiting for the store's time and the records of other nodes.
    AwaitTime(PendingWrite),
    /// Has to load the record to learn the outcome of a write.
    MustLoad(PendingWrite),
    AwaitLoad(PendingWrite),
    Hold,
    Stopped,
}

/// The state machine of one lease: see the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseProtocol<B = AfterLastGrant> {
    settings: LeaseSettings,
    state: State,
    /// The lease that is claimed, used and renewed.
    lease: Option<RecordedLease>,
    candidates: VecDeque<WorkerCandidate>,
    probing: Probing,
    /// The last few claims that the node abandoned without knowing their outcome. A record with one of these
    /// tags belongs to this node after all.
    abandoned_claims: VecDeque<(WorkerId, WriteAttempt)>,
    /// The revision at which the required worker was last seen with another node.
    watched: Option<Revision>,
    /// The revisions of records with a gap now and a lease in the future, by worker, and since when they are
    /// the same, by the steady clock.
    unrenewed: BTreeMap<u32, (Revision, u64)>,
    /// The end of the last lease, which the node may still use although it has left it; 0 if there is none.
    lost_until_unix_ms: u64,
    /// The first instant after every used timestamp, once the lease is to be released.
    release_from_unix_ms: Option<u64>,
    failures: u32,
    /// Calls in a row that got no answer, up to the number that matters. A store may answer reads although it
    /// answers no writes.
    unanswered_reads: u8,
    unanswered_writes: u8,
    /// When the current call was sent, by the steady clock.
    sent_steady_ms: u64,
    /// The node claims no worker before this time of the steady clock.
    claim_nothing_before_steady_ms: u64,
    /// How far the clock was ahead of the unstepped clock when it was last confirmed, in milliseconds.
    /// Negative if the process started with a clock that was ahead.
    confirmed_ahead_ms: i64,
    /// How long the clock has been further ahead than that.
    jumped: Jumped,
    next_tag: u128,
    /// The tags of the last few attempts, the newest last. A later tag of this line that is not among them is
    /// a copy's.
    recent_tags: VecDeque<Tag>,
    /// The number of tags that the next attempt skips.
    salt: u8,
    random: SplitMix64,
    events: Vec<LeaseEvent>,
    begin: PhantomData<fn() -> B>,
}

impl LeaseProtocol {
    /// Makes a machine that seeks a lease.
    ///
    /// `seed` must be fresh and random for each machine, because its tags count up from it. All tags of a
    /// machine, and of those that resume its lease, have the same upper half.
    pub fn new(settings: LeaseSettings, seed: u128) -> Self {
        Self::with_begin(settings, seed)
    }

    /// Makes a machine that holds the lease of a dead process of this node. Its first step renews the lease.
    ///
    /// The caller guarantees that nobody else may use any instant of `lease`, and that no id was made with
    /// one. As in any renewal, a record that was written since belongs to another node.
    pub fn resume(settings: LeaseSettings, seed: u128, lease: SettledLease) -> Self {
        Self::resume_with_begin(settings, seed, lease)
    }
}

impl<B: Begin> LeaseProtocol<B> {
    /// As [`new`](LeaseProtocol::new), with another rule for the beginning of grants.
    pub fn with_begin(settings: LeaseSettings, seed: u128) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "both halves are mixed into the seed")]
        let random = SplitMix64::of((seed >> 64) as u64 ^ seed as u64);
        Self {
            settings,
            state: State::Seek,
            lease: None,
            candidates: VecDeque::new(),
            probing: Probing::default(),
            abandoned_claims: VecDeque::new(),
            watched: None,
            unrenewed: BTreeMap::new(),
            lost_until_unix_ms: 0,
            release_from_unix_ms: None,
            failures: 0,
            unanswered_reads: 0,
            unanswered_writes: 0,
            sent_steady_ms: 0,
            claim_nothing_before_steady_ms: 0,
            confirmed_ahead_ms: 0,
            jumped: Jumped::default(),
            next_tag: seed,
            recent_tags: VecDeque::new(),
            salt: 0,
            random,
            events: Vec::new(),
            begin: PhantomData,
        }
    }

    /// As [`resume`](LeaseProtocol::resume), with another rule for the beginning of grants.
    pub fn resume_with_begin(settings: LeaseSettings, seed: u128, lease: SettledLease) -> Self {
        let recorded = RecordedLease {
            settled: lease,
            is_usable: true,
            resumed: true,
            resumed_from: Some(lease.tag),
            acknowledged_until_unix_ms: lease.until_unix_ms,
            // A saved lease lies in no gap. Gaps that the record shows are forgotten.
            granted: Granted::up_to(lease.until_unix_ms),
            acknowledged_steady_ms: None,
        };
        // Continues the line of the previous process at a random number.
        let next_tag = lease.tag.line() | u128::from(Tag(seed).number());
        Self { state: State::Hold, lease: Some(recorded), next_tag, ..Self::with_begin(settings, seed) }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &LeaseSettings {
        &self.settings
    }

    /// Returns the lease as far as it has settled; `None` if no part of it has.
    pub fn settled_lease(&self) -> Option<SettledLease> {
        self.lease.filter(|lease| lease.is_usable).map(|lease| lease.settled)
    }

    /// Returns whether a claim was sent that is neither granted nor given up: its answer is awaited or was
    /// lost, or it has not settled.
    pub fn is_claiming(&self) -> bool {
        let is_sent = matches!(
            &self.state,
            State::AwaitSwap(write) | State::MustLoad(write) | State::AwaitLoad(write)
                if write.purpose == WritePurpose::Claim
        );
        is_sent || self.lease.is_some_and(|lease| !lease.is_usable)
    }

    /// Sets the store's `may_lose`, of a store that was opened after the machine was made.
    pub const fn store_may_lose(&mut self, may_lose_ms: u64) {
        self.settings.may_lose_ms = may_lose_ms;
    }

    /// Claims no worker before this time of the steady clock: another lease of the node found that the store
    /// forgot.
    pub fn claim_nothing_before(&mut self, steady_ms: u64) {
        self.claim_nothing_before_steady_ms = self.claim_nothing_before_steady_ms.max(steady_ms);
    }

    /// Returns the time of the steady clock before which the machine claims no worker; 0 or past if it may.
    pub const fn claim_nothing_before_steady_ms(&self) -> u64 {
        self.claim_nothing_before_steady_ms
    }

    /// Sets random bits for the tag of the next attempt.
    ///
    /// A copy of this process, for example in a virtual machine restored from a snapshot, gets other bits.
    /// Without them, both would take each other's writes for their own.
    pub const fn salt(&mut self, salt: u8) {
        self.salt = salt;
    }
}

// Steps.
impl<B: Begin> LeaseProtocol<B> {
    /// Takes the time and an input; returns what changed and what to do next.
    pub fn step(&mut self, now: Now, input: LeaseInput) -> LeaseTurn {
        let state = std::mem::replace(&mut self.state, State::Stopped);
        self.jumped.look(self.jump_ms(now), now.steady_ms, self.settings.window_ms);
        self.count_unanswered(now, &input);
        let next = match (state, input) {
            (State::Stopped, _) => LeaseNext::Stop,
            (state, LeaseInput::Release { used_until_unix_ms }) => {
                // At the second release, no generator is left that knows which timestamps were used.
                self.release_from_unix_ms = self.release_from_unix_ms.max(Some(used_until_unix_ms));
                self.proceed(now, state)
            }
            (State::AwaitLook(scope), LeaseInput::Looked(answer)) => self.looked(now, scope, answer),
            (State::AwaitSwap(write), LeaseInput::Swapped(answer)) => self.swapped(now, write, answer),
            (State::AwaitLoad(write), LeaseInput::Loaded(answer)) => self.loaded(now, write, answer),
            (State::AwaitTime(write), LeaseInput::Looked(answer)) => self.looked_for_time(now, write, answer),
            (state, _) => self.proceed(now, state),
        };
        if let LeaseNext::Call(_) = next {
            self.sent_steady_ms = now.steady_ms;
        }
        LeaseTurn { events: std::mem::take(&mut self.events), next }
    }

    /// Continues after a wait.
    fn proceed(&mut self, now: Now, state: State) -> LeaseNext {
        match (state, self.release_from_unix_ms, self.lease) {
            (State::Hold, Some(used_until_unix_ms), Some(lease)) => {
                self.begin_write(now, WritePurpose::Release { used_until_unix_ms }, &lease)
            }
            (State::Hold, None, Some(lease)) => {
                let settles = lease.acknowledged_steady_ms.map(|at| at + self.settings.may_lose_ms);
                match settles.map_or(0, |settles| settles.saturating_sub(now.steady_ms)) {
                    _ if lease.ends_at_next_grant() => self.leave_gap(now, &lease),
                    0 => self.begin_write(now, WritePurpose::Renew, &lease),
                    // A call sent now would settle nothing.
                    left_ms => self.wait_at_least(State::Hold, left_ms),
                }
            }
            // A claim holds nothing yet.
            (State::ClockDoubted(write) | State::AwaitTime(write), None, Some(_)) => {
                self.try_write(now, write)
            }
            (State::MustLoad(write) | State::AwaitLoad(write) | State::AwaitSwap(write), ..)
            | (State::ClockDoubted(write) | State::AwaitTime(write), Some(_), Some(_)) => {
                let call = LeaseCall::Load(write.worker);
                self.state = State::AwaitLoad(write);
                LeaseNext::Call(call)
            }
            (_, Some(_), _) => self.stop(),
            (state, ..) => match self.claim_pause_ms(now) {
                0 if state == State::BetweenLooks => self.look_on(now),
                0 => self.seek(now),
                left_ms => self.wait_at_least(State::Seek, left_ms),
            },
        }
    }

    const fn claim_pause_ms(&self, now: Now) -> u64 {
        self.claim_nothing_before_steady_ms.saturating_sub(now.steady_ms)
    }
}

// Claim, which begins in `seek`, and every other write: an attempt is sent, and its answer or a load shows
// the outcome.
impl<B: Begin> LeaseProtocol<B> {
    /// Sends one more attempt of a write. If it is a grant, and the clock jumped forward or was never
    /// compared, the machine first asks the store for the time.
    fn try_write(&mut self, now: Now, write: PendingWrite) -> LeaseNext {
        let grants = match write.purpose {
            WritePurpose::Claim | WritePurpose::Renew => true,
            WritePurpose::Release { .. } => false,
        };
        // A process that resumed a saved lease has not compared its clock with anything yet.
        let begins = self.lease.is_some_and(|lease| lease.resumed);
        if !grants || (self.jump_ms(now) <= LEAST_JUMP_MS && !begins) {
            return self.send_attempt(now, write);
        }
        let scope = match BlockSize::Hundred {
            size if self.settings.pool.workers() > size.workers() => {
                LookScope::Block(Block::of(write.worker, size))
            }
            _ => LookScope::Pool,
        };
        self.state = State::AwaitTime(write);
        LeaseNext::Call(LeaseCall::Look { scope, time: StoreTime::Wanted })
    }

    /// Sends one more attempt of a write, under a fresh tag.
    fn send_attempt(&mut self, now: Now, mut write: PendingWrite) -> LeaseNext {
        let (clock, granted) = (now, write.granted_until_unix_ms);
        let (now, limit_unix_ms) = (now.unix_ms, write.granted.limit_of(granted));
        let layout = *self.settings.pool.layout();
        let now_tick =
            layout.timestamp_at(now).map_or(layout.epoch_unix_ms().max(now), |tick| layout.unix_ms(tick));
        let from_unix_ms = write.lease_from_unix_ms.unwrap_or_else(|| B::begin(now_tick, granted));
        let until_unix_ms = match write.purpose {
            WritePurpose::Claim => {
                B::end(self.whole_ticks(from_unix_ms + self.settings.window_ms), limit_unix_ms)
            }
            // A window from now, not from the old end: early renewals must not reach further and further
            // ahead.
            WritePurpose::Renew => {
                let until_unix_ms = B::begin(self.whole_ticks(now + self.settings.window_ms), granted);
                B::end(until_unix_ms, limit_unix_ms)
            }
            // The time before the lease belonged to another node: the record never goes back behind the
            // lease.
            WritePurpose::Release { used_until_unix_ms } => used_until_unix_ms.max(from_unix_ms).min(granted),
        };
        if write.purpose == WritePurpose::Claim && until_unix_ms <= from_unix_ms {
            // The gap has passed since the node looked.
            return self.claim_failed(clock);
        }
        let tag = Tag(self.next_tag).after(self.salt);
        self.next_tag = tag.0;
        self.recent_tags.push_back(tag);
        self.recent_tags.drain(..self.recent_tags.len().saturating_sub(MAX_REMEMBERED));
        let attempt = WriteAttempt { tag, from_unix_ms, until_unix_ms };
        let holder = self.settings.holder.clone();
        let granted = write.granted_after(from_unix_ms, until_unix_ms);
        let released = matches!(write.purpose, WritePurpose::Release { .. });
        let record =
            Record { holder, from_unix_ms: Some(from_unix_ms), until_unix_ms, tag, granted, released };
        let call = LeaseCall::Swap { worker: write.worker, expected: write.expected, record };
        write.attempts.push(attempt);
        self.state = State::AwaitSwap(write);
        LeaseNext::Call(call)
    }

    /// Rounds up to whole ticks, because two leases cannot share a tick.
    fn whole_ticks(&self, unix_ms: u64) -> u64 {
        let layout = self.settings.pool.layout();
        let tick_ms = u64::try_from(layout.tick().as_millis()).unwrap_or(u64::MAX);
        match unix_ms.checked_sub(layout.epoch_unix_ms()) {
            Some(since) => layout.epoch_unix_ms() + since.div_ceil(tick_ms) * tick_ms,
            None => layout.epoch_unix_ms(),
        }
    }

    fn swapped(&mut self, now: Now, mut write: PendingWrite, answer: Result<Swap, CallFailure>) -> LeaseNext {
        match answer {
            Ok(Swap::Done(revision)) => {
                let attempt = write.attempts.pop();
                self.succeeded(now, &write, attempt, revision)
            }
            // Every attempt is known to have failed, so the record belongs to another node.
            Ok(Swap::Conflict) if write.purpose == WritePurpose::Claim && !write.may_have_succeeded => {
                self.claim_failed(now)
            }
            Ok(Swap::Conflict) => {
                let call = LeaseCall::Load(write.worker);
                self.state = State::AwaitLoad(write);
                LeaseNext::Call(call)
            }
            Err(CallFailure::Unknown) => {
                write.may_have_succeeded = true;
                self.wait_after_failure(now, State::MustLoad(write))
            }
            Err(CallFailure::NotDone) => {
                if !write.may_have_succeeded {
                    write.attempts.clear();
                }
                self.wait_after_failure(now, State::MustLoad(write))
            }
        }
    }

    /// A load shows the outcome of a write: it succeeded if the record has one of its tags.
    fn loaded(
        &mut self,
        now: Now,
        write: PendingWrite,
        answer: Result<Option<WorkerEntry>, CallFailure>,
    ) -> LeaseNext {
        let Ok(entry) = answer else {
            return self.wait_after_failure(now, State::MustLoad(write));
        };
        let tag = entry.as_ref().and_then(|entry| Some(entry.record.as_ref()?.tag));
        let revision = entry.as_ref().map(|entry| entry.revision);
        let ours = write.attempts.iter().find(|attempt| Some(attempt.tag) == tag).copied();
        if let (Some(attempt), Some(revision)) = (ours, revision) {
            return self.succeeded(now, &write, Some(attempt), revision);
        }
        let found = revision.map_or(Expected::Absent, Expected::Revision);
        if write.purpose == WritePurpose::Claim {
            if found == write.expected {
                // The claim may still arrive: then the next list shows it.
                self.abandoned_claims.extend(write.attempts.iter().map(|attempt| (write.worker, *attempt)));
                self.abandoned_claims.drain(..self.abandoned_claims.len().saturating_sub(MAX_REMEMBERED));
            }
            return self.claim_failed(now);
        }
        let readable = entry.as_ref().is_none_or(|entry| entry.record.is_some());
        if tag == write.known_tag && readable {
            return self.not_written_yet(now, write, found);
        }
        match (entry, self.lease) {
            (None, Some(lease)) => self.write_again(now, &write, &lease, None),
            (Some(WorkerEntry { revision, record: Some(record), .. }), Some(lease)) => {
                match lease.writer_of(record.tag) {
                    Writer::UsBefore => self.write_again(now, &write, &lease, Some((revision, record))),
                    Writer::UsSince if self.recent_tags.contains(&record.tag) => {
                        self.written_after_all(now, &write, revision, &record)
                    }
                    Writer::UsSince | Writer::Another => self.lose(now, &write, &lease, Some(&record)),
                }
            }
            (_, Some(lease)) => self.lose(now, &write, &lease, None),
            // Without a lease, only a claim is written.
            (_, None) => self.proceed(now, State::Seek),
        }
    }

    /// The record is unchanged, perhaps at another revision, for example because somebody labelled a
    /// Kubernetes object. An attempt may still arrive: then the next one conflicts, and the load after it
    /// shows that.
    fn not_written_yet(&mut self, now: Now, write: PendingWrite, found: Expected) -> LeaseNext {
        if write.known_tag == self.lease.map(|lease| lease.settled.tag) {
            let settled = self.settle_if_due();
            self.report_settled(settled);
        }
        let write = if found == write.expected { write } else { write.at(found, write.known_tag) };
        let purpose = self.purpose_now();
        self.try_write(now, PendingWrite { purpose, ..write })
    }

    /// The record belongs to this process although the store said that nothing was written, for example
    /// because a proxy sent a request twice and the second one was rejected. Nothing of that grant was used,
    /// because it was never reported. The renewal does not shorten it.
    fn written_after_all(
        &mut self,
        now: Now,
        write: &PendingWrite,
        revision: Revision,
        record: &Record,
    ) -> LeaseNext {
        let granted_until_unix_ms = write.granted_until_unix_ms.max(record.until_unix_ms);
        let from_unix_ms = write.lease_from_unix_ms.unwrap_or(granted_until_unix_ms);
        let again = PendingWrite {
            purpose: self.purpose_now(),
            granted_until_unix_ms,
            granted: record.granted.and(from_unix_ms..granted_until_unix_ms),
            ..write.at(Expected::Revision(revision), Some(record.tag))
        };
        self.try_write(now, again)
    }

    fn succeeded(
        &mut self,
        now: Now,
        write: &PendingWrite,
        attempt: Option<WriteAttempt>,
        revision: Revision,
    ) -> LeaseNext {
        let is_in_step =
            self.failures < OUTAGE && self.lease.is_some_and(|lease| lease.is_usable && !lease.resumed);
        self.failures = 0;
        self.watched = None;
        self.unrenewed.clear();
        self.probing = Probing::default();
        let Some(attempt) = attempt else {
            return self.wait_after_failure(now, State::Seek);
        };
        let WriteAttempt { tag, from_unix_ms, until_unix_ms } = attempt;
        let is_claim = write.purpose == WritePurpose::Claim;
        // A renewal replaced the grant before it, so that grant was still there.
        let settled = if is_claim { None } else { self.settle_if_due() };
        let (is_usable, settled_until_unix_ms) = match self.lease {
            Some(RecordedLease { is_usable: true, settled, .. }) => (true, settled.until_unix_ms),
            _ => (false, from_unix_ms),
        };
        let resumed_from = self.lease.filter(|_| !is_claim).and_then(|lease| lease.resumed_from);
        let granted = write.granted_after(from_unix_ms, until_unix_ms);
        self.lease = Some(RecordedLease {
            settled: SettledLease {
                worker: write.worker,
                revision,
                tag,
                from_unix_ms,
                until_unix_ms: settled_until_unix_ms,
                is_in_gap: until_unix_ms < granted.until_unix_ms(),
            },
            is_usable,
            resumed: false,
            resumed_from,
            acknowledged_until_unix_ms: until_unix_ms,
            granted,
            acknowledged_steady_ms: Some(now.steady_ms),
        });
        self.report_settled(settled);
        match write.purpose {
            // Granted too late: it is not reported, so none of it is used.
            WritePurpose::Claim if self.release_from_unix_ms.is_some() => {
                self.release_from_unix_ms = Some(from_unix_ms);
            }
            WritePurpose::Release { used_until_unix_ms }
                if until_unix_ms <= used_until_unix_ms.max(from_unix_ms) =>
            {
                return self.stop();
            }
            // The record shows a renewal; the release is still to be written.
            WritePurpose::Claim | WritePurpose::Renew | WritePurpose::Release { .. } => {}
        }
        if self.release_from_unix_ms.is_some() {
            return self.proceed(now, State::Hold);
        }
        let settles_in_ms = self.settings.may_lose_ms;
        if settles_in_ms == 0 {
            let settled = self.settle();
            self.report_settled(settled);
        } else if is_claim {
            self.events.push(LeaseEvent::Claimed { worker: write.worker, settles_in_ms });
        }
        let pace = if is_in_step { Pace::Steady } else { Pace::Scattered };
        self.wait_to_renew(now, until_unix_ms, pace)
    }

    fn claim_failed(&mut self, now: Now) -> LeaseNext {
        if self.release_from_unix_ms.is_some() { self.stop() } else { self.claim_next(now) }
    }
}

// Renew, and settle.
impl<B: Begin> LeaseProtocol<B> {
    fn begin_write(&mut self, now: Now, purpose: WritePurpose, lease: &RecordedLease) -> LeaseNext {
        let RecordedLease { settled, acknowledged_until_unix_ms, granted, .. } = lease;
        self.try_write(
            now,
            PendingWrite {
                purpose,
                worker: settled.worker,
                expected: Expected::Revision(settled.revision),
                known_tag: Some(settled.tag),
                lease_from_unix_ms: Some(settled.from_unix_ms),
                granted_until_unix_ms: *acknowledged_until_unix_ms,
                granted: *granted,
                attempts: Vec::new(),
                may_have_succeeded: false,
            },
        )
    }

    /// The lease reaches to the next grant of its worker, which was granted to a clock that was ahead: looks
    /// for another worker.
    fn leave_gap(&mut self, now: Now, lease: &RecordedLease) -> LeaseNext {
        let SettledLease { worker, until_unix_ms, .. } = lease.settled;
        self.lease = None;
        self.lost_until_unix_ms = until_unix_ms;
        self.events.push(LeaseEvent::GapEnds { worker, until_unix_ms });
        self.proceed(now, State::Seek)
    }

    const fn purpose_now(&self) -> WritePurpose {
        match self.release_from_unix_ms {
            Some(used_until_unix_ms) => WritePurpose::Release { used_until_unix_ms },
            None => WritePurpose::Renew,
        }
    }

    /// Waits until a third of the window has passed, counted back from the granted end: a late answer has
    /// used up some of it.
    ///
    /// The first wait is any part of that: nodes that started at the same time, or whose store has come back,
    /// would otherwise renew in the same seconds for many windows.
    ///
    /// Over a store that may lose writes, a grant becomes usable one renewal later. Renewals are twice as
    /// frequent there, so that the store may be down for as long, but not so frequent that they could not
    /// settle the grant before them.
    fn wait_to_renew(&mut self, now: Now, until_unix_ms: u64, pace: Pace) -> LeaseNext {
        let left_ms = until_unix_ms.saturating_sub(now.unix_ms);
        let LeaseSettings { window_ms, may_lose_ms, .. } = self.settings;
        let third_ms = window_ms / 3;
        match self.lease {
            Some(RecordedLease { is_usable: false, .. }) => self.wait_at_least(State::Hold, may_lose_ms),
            _ if may_lose_ms == 0 => {
                let wait_ms = left_ms.saturating_sub(2 * third_ms).min(third_ms);
                let sooner_ms = self.sooner_ms(wait_ms, pace);
                self.wait_about(State::Hold, wait_ms - sooner_ms)
            }
            _ => {
                let every_ms = may_lose_ms.max(window_ms / 6);
                let wait_ms = left_ms.saturating_sub(window_ms.saturating_sub(every_ms)).min(every_ms);
                let wait_ms = wait_ms.max(may_lose_ms);
                let sooner_ms = self.sooner_ms(wait_ms - may_lose_ms, pace);
                let later_ms = self.random.below(every_ms / 8 + 1);
                self.wait_at_least(State::Hold, wait_ms - sooner_ms + later_ms)
            }
        }
    }

    /// Returns how much of this time the next renewal comes early.
    fn sooner_ms(&mut self, ms: u64, pace: Pace) -> u64 {
        match pace {
            Pace::Steady => 0,
            Pace::Scattered => self.random.below(ms + 1),
        }
    }

    /// The answer shows the newest grant, which has settled if the call was sent long enough after the
    /// acknowledgement.
    fn settle_if_due(&mut self) -> Option<SettledEvent> {
        let acknowledged_steady_ms = self.lease?.acknowledged_steady_ms?;
        let is_due = self.sent_steady_ms >= acknowledged_steady_ms + self.settings.may_lose_ms;
        if is_due { self.settle() } else { None }
    }

    /// Makes the newest grant usable. Returns the event to report, with the lease as the store shows it by
    /// then.
    fn settle(&mut self) -> Option<SettledEvent> {
        // The generator has ended: the grant is not reported, so nothing more is used.
        let lease = self.lease.as_mut().filter(|_| self.release_from_unix_ms.is_none())?;
        lease.acknowledged_steady_ms = None;
        lease.settled.until_unix_ms = lease.acknowledged_until_unix_ms;
        Some(if std::mem::replace(&mut lease.is_usable, true) {
            LeaseEvent::Extended
        } else {
            LeaseEvent::Granted
        })
    }

    fn report_settled(&mut self, settled: Option<SettledEvent>) {
        self.events.extend(settled.zip(self.lease).map(|(event, lease)| event(lease.settled)));
    }
}

// Lose: the store forgot the lease, or another node has it.
impl<B: Begin> LeaseProtocol<B> {
    /// The store has an older record of this lease, or none: writes the lease again from there.
    fn write_again(
        &mut self,
        now: Now,
        write: &PendingWrite,
        lease: &RecordedLease,
        found: Option<(Revision, Record)>,
    ) -> LeaseNext {
        let found_until_unix_ms = found.as_ref().map(|(_, record)| record.until_unix_ms);
        // The gaps that this lease has left are on the history of what was found, and smaller.
        let granted = found
            .as_ref()
            .map_or(lease.granted, |(_, record)| lease.granted.at_least(record.granted.until_unix_ms()));
        self.store_forgot(now, lease, found_until_unix_ms, found_until_unix_ms.unwrap_or(0));
        // What had not settled is lost. The new grant settles on its own.
        self.lease = Some(RecordedLease { acknowledged_steady_ms: None, ..*lease });
        let known_tag = found.as_ref().map(|(_, record)| record.tag);
        let expected = found.map_or(Expected::Absent, |(revision, _)| Expected::Revision(revision));
        let purpose = self.purpose_now();
        self.try_write(now, PendingWrite { purpose, granted, ..write.at(expected, known_tag) })
    }

    /// Reports that the store forgot a part of what it had acknowledged, and kept the lease up to an instant.
    fn store_forgot(
        &mut self,
        now: Now,
        lease: &RecordedLease,
        found_until_unix_ms: Option<u64>,
        kept_until_unix_ms: u64,
    ) {
        let kept = !lease.is_usable || kept_until_unix_ms >= lease.settled.until_unix_ms;
        self.claim_nothing_before(now.steady_ms + self.settings.window_ms);
        self.events.push(LeaseEvent::StoreForgot {
            worker: lease.settled.worker,
            acknowledged_until_unix_ms: lease.acknowledged_until_unix_ms,
            found_until_unix_ms,
            forgot: if kept { Forgot::Unsettled } else { Forgot::Settled },
        });
    }

    /// The record belongs to another node, or is unreadable. What has settled stays usable, unless the other
    /// grant overlaps it.
    fn lose(
        &mut self,
        now: Now,
        write: &PendingWrite,
        lease: &RecordedLease,
        record: Option<&Record>,
    ) -> LeaseNext {
        self.lease = None;
        let SettledLease { worker, until_unix_ms, .. } = lease.settled;
        let is_a_copy = !lease.resumed && record.is_some_and(|record| lease.is_of_our_line(record.tag));
        if is_a_copy && lease.is_usable && self.release_from_unix_ms.is_none() {
            self.events.push(LeaseEvent::Copied { worker, until_unix_ms });
            return self.proceed(now, State::Seek);
        }
        // A release with an unknown outcome may already have given up the rest.
        let given_back_from = write.attempts.iter().map(|attempt| attempt.until_unix_ms).min();
        let covers_until =
            |end_unix_ms: u64| given_back_from.map_or(end_unix_ms, |from| from.min(end_unix_ms));
        let begins = record.and_then(|record| Some((record, record.from_unix_ms?)));
        if let Some((record, from_unix_ms)) = begins
            && from_unix_ms < covers_until(lease.acknowledged_until_unix_ms)
            // A lease in a gap below this one.
            && lease.settled.from_unix_ms < record.until_unix_ms
            // The previous process renewed the lease after it was saved.
            && !lease.is_of_our_line(record.tag)
        {
            // A node that saw what the store had acknowledged would not start there.
            let overlaps = lease.is_usable && from_unix_ms < covers_until(until_unix_ms);
            // Nobody uses a released timestamp, so another node may have it.
            self.store_forgot(now, lease, None, if overlaps { from_unix_ms } else { until_unix_ms });
            if overlaps {
                let holder = record.holder.clone();
                self.events.push(LeaseEvent::Overlap { worker, holder, from_unix_ms, until_unix_ms });
                return self.proceed(now, State::Seek);
            }
        }
        if lease.is_usable {
            self.lost_until_unix_ms = until_unix_ms;
            self.events.push(LeaseEvent::Lost { worker, until_unix_ms });
        }
        self.proceed(now, State::Seek)
    }
}

// Release.
impl<B: Begin> LeaseProtocol<B> {
    fn stop(&mut self) -> LeaseNext {
        self.state = State::Stopped;
        if self.lease.take().is_some() {
            self.events.push(LeaseEvent::Released);
        }
        LeaseNext::Stop
    }
}

// Wait.
impl<B: Begin> LeaseProtocol<B> {
    /// Waits longer after each failure in a row: 1/200 of the window at first, at most 1/6 of it and 2 s.
    ///
    /// A store that does not answer may be busy with calls that other nodes have given up, and more of them
    /// would keep it busy forever. So from the second such call in a row on, the wait doubles, up to what a
    /// layout full of nodes needs. A call and its wait take at most half the window: a store that bears the
    /// renewals bears a try in that time too.
    ///
    /// With a lease, the wait is at most a quarter of the remaining time, less two such calls, so that the
    /// lease does not end in a wait after the store has recovered.
    ///
    /// A random part, up to half, is subtracted, so that nodes that failed at the same time do not retry at
    /// the same time.
    fn wait_after_failure(&mut self, now: Now, state: State) -> LeaseNext {
        let LeaseSettings { window_ms, pool, .. } = &self.settings;
        let longest_ms = (window_ms / 6).min(LONGEST_WAIT_MS);
        let first_ms = (window_ms / 200 + 1).min(longest_ms);
        let refused_ms = (first_ms << self.failures.min(10)).min(longest_ms);
        let took_ms = self.call_took_ms(now);
        // Of all datacenters: they may share a store.
        let workers = pool.layout().workers();
        let longest_unanswered_ms = workers
            .saturating_mul(UNANSWERED_WAIT_MS)
            .clamp(LONGEST_WAIT_MS, LONGEST_UNANSWERED_WAIT_MS)
            .min(window_ms / 2 - took_ms.min(window_ms / 4));
        let unanswered_ms = match self.unanswered_reads.max(self.unanswered_writes) {
            // A node that stops has little time to release its worker.
            _ if self.release_from_unix_ms.is_some() => 0,
            0 | 1 => 0,
            calls => (LONGEST_WAIT_MS << (calls - 2)).min(longest_unanswered_ms),
        };
        let ends_unix_ms = self.settled_lease().map_or(self.lost_until_unix_ms, |lease| lease.until_unix_ms);
        let most_ms = match ends_unix_ms.saturating_sub(now.unix_ms) {
            // There is no lease, or it has ended, so there is no hurry.
            0 => u64::MAX,
            left_ms => first_ms.max(left_ms.saturating_sub(2 * took_ms) / 4),
        };
        let wait_ms = refused_ms.max(unanswered_ms).min(most_ms);
        self.failures = self.failures.saturating_add(1);
        let sooner_ms = self.random.below(wait_ms / 2 + 1);
        self.wait_at_least(state, wait_ms - sooner_ms)
    }

    /// Counts the calls in a row without an answer.
    fn count_unanswered(&mut self, now: Now, input: &LeaseInput) {
        let took_ms = self.call_took_ms(now);
        let (calls, is_failure) = match input {
            LeaseInput::Wake | LeaseInput::Release { .. } => return,
            LeaseInput::Looked(answer) => (&mut self.unanswered_reads, answer.is_err()),
            LeaseInput::Loaded(answer) => (&mut self.unanswered_reads, answer.is_err()),
            LeaseInput::Swapped(answer) => (&mut self.unanswered_writes, answer.is_err()),
        };
        match (is_failure, took_ms) {
            (true, UNANSWERED_MS..) => *calls = (*calls + 1).min(MOST_UNANSWERED),
            // A store that refuses calls is not busy.
            (true, _) => (self.unanswered_reads, self.unanswered_writes) = (0, 0),
            (false, _) => *calls = 0,
        }
    }

    /// Returns how long the last call took, if it has just ended.
    const fn call_took_ms(&self, now: Now) -> u64 {
        now.steady_ms.saturating_sub(self.sent_steady_ms)
    }

    fn wait_about(&mut self, state: State, wait_ms: u64) -> LeaseNext {
        self.state = state;
        LeaseNext::Wait(self.jittered(wait_ms.max(1)))
    }

    /// Waits at least this long.
    fn wait_at_least(&mut self, state: State, wait_ms: u64) -> LeaseNext {
        self.state = state;
        LeaseNext::Wait(wait_ms.max(1))
    }

    /// Returns 7/8 to 8/8 of the time, so that nodes that started at the same time drift apart.
    fn jittered(&mut self, ms: u64) -> u64 {
        ms - self.random.below(ms / 8 + 1)
    }
}

#[cfg(test)]
mod model_check;
#[cfg(test)]
mod tests;
