//! The lease protocol as a pure state machine: (clock, what the store answered) in, the next call out.
//! No I/O, no time of its own: the driver and the simulation drive the same code.
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
//! A worker that is wanted alone is loaded. A small pool is listed. In a larger one a node looks at two workers, then at ten,
//! then at a hundred, until it finds one to claim: first where its name leads, where it finds its own again. Whichever way a
//! record was found, the claim is conditional on the revision that was seen, and begins after the end that this revision
//! shows.
//!
//! # Stores that may lose acknowledged writes
//!
//! A store whose [`may_lose`](snowmint_store::Store::may_lose) is L may fail over to a copy without the newest writes:
//! the end of its history, never a part of its middle, and only writes that it acknowledged less than L before. Over such
//! a store a lease is used only as far as it has *settled*: a load or a conditional write, sent at least L after the
//! answer that showed the grant, still found it. Time is counted from the arrival of the one to the sending of the other,
//! by a steady clock. A renewal settles the grant before it, so renewals cost no extra call. A claim settles with the
//! first renewal, L later, and nobody is told of it before.
//!
//! Why no instant is used twice:
//!
//! 1. *What has settled stays.* If the grant had been lost, it was lost within L of its acknowledgement, so the confirming
//!    call met the history without it and did not find it. Found, it is older than L and no later failover loses it.
//! 2. *All that is used lies on one line of history.* Every node uses settled grants only. By 1 all of them are in the
//!    history that survives, in one order for each worker.
//! 3. *On one line, ranges do not overlap.* A claim begins at `max(now, old.until)`, a renewal never shortens, and a
//!    release ends after the last timestamp used. Each write was conditional on the one before it.
//!
//! A claim over a lapsed record whose renewal was lost is therefore harmless: its holder had not settled that renewal and
//! did not use it. A lost release only wastes time: whatever was written after it is lost with it. What nobody settled is
//! never used, whatever order late writes arrive in.
//!
//! # A store that forgot
//!
//! A node that finds its record older than what was acknowledged (a tag of its own line, or no record) knows that the store
//! forgot, by a failover or a restore. It writes its lease again from what it found, uses nothing new until that has
//! settled, and claims no other worker for one window: nodes that still hold leases need that long to write theirs again.
//! If another holder's grant begins before the end of what this node may use, the two overlap: the node stops at once.
//! Records carry where their lease begins for this purpose alone.
//!
//! These two rules detect what the store must not do. They do not make a loss of more than L safe: a node that claims a
//! worker after the loss, or wakes and renews a lease that had ended, before the holder's next renewal can repeat up to that
//! much of it.
//!
//! # A clock that jumps forward
//!
//! A grant by a clock that is wrong and ahead repeats nothing, but takes the worker's future: see `protocol/jumps.rs`. Before each grant
//! the clock is compared with boot time, and a jump has to be confirmed.

mod candidates;
pub(crate) mod jumps;
mod messages;
mod probing;

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

use snowmint::{Lease, WorkerId};
use snowmint_store::{Expected, Revision};

use super::pool::Pool;
use super::record::{Record, Tag};
use crate::Holder;
use crate::dice::Dice;
use crate::segment::protocol::Forgot;
pub use messages::{
    Block, BlockSize, Call, Entry, Event, Failure, Input, Listing, Next, Scope, StoreTime, Swapped, Turn,
};

use candidates::{Candidate, Choice, Found};
use jumps::{Jumped, LEAST_JUMP_MS};
use probing::Probing;

/// Which worker a node wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerChoice {
    /// Any that is free.
    Any,
    /// This one or none.
    Only(WorkerId),
}

/// What a node asks for, fixed while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Layout and datacenter.
    pub pool: Pool,
    /// Which worker.
    pub choice: WorkerChoice,
    /// The name to write into records.
    pub holder: Holder,
    /// How far ahead of now a lease reaches when it is granted or renewed, in milliseconds.
    pub window_ms: u64,
    /// How far the clock may be ahead of the store's own time when a lease is sought, or renewed after it jumped, in
    /// milliseconds: a clock far ahead would take a worker's future with it.
    pub max_skew_ms: u64,
    /// How much of its newest writes the store may lose, in milliseconds: a grant is used once it has settled for so long. 0 for a
    /// store that keeps what it acknowledges.
    pub may_lose_ms: u64,
    /// A pool of at most so many workers is listed at once; in a larger one only a few are looked at.
    pub small_pool: u32,
}

/// When a step is taken, by three clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The clock that timestamps are made by, in unix milliseconds. It may be stepped, slewed or wrong.
    pub unix_ms: u64,
    /// What that clock would show if it had not been stepped since the process started, by boot time, in unix milliseconds: by
    /// the difference a step forward is noticed.
    pub unstepped_unix_ms: u64,
    /// A clock that only ever counts time that has passed, in milliseconds since any instant: grants settle by it. It may
    /// show less than has passed, for instance while the machine was suspended, never more.
    pub steady_ms: u64,
}

/// Where a granted range begins: the rule on which uniqueness rests.
///
/// It is a type parameter only so that the simulation can plant a fault in it and must then find duplicates.
pub trait Begin: fmt::Debug {
    /// The first instant of a grant, from the clock and the end of what was granted before.
    fn begin(now_unix_ms: u64, granted_until_unix_ms: u64) -> u64;
}

/// `max(now, old.until)`: the ranges granted for one worker never overlap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AfterLastGrant;

impl Begin for AfterLastGrant {
    fn begin(now_unix_ms: u64, granted_until_unix_ms: u64) -> u64 {
        now_unix_ms.max(granted_until_unix_ms)
    }
}

/// Claims that are remembered after they were given up; a late write is a matter of the last few.
const MAX_ABANDONED: usize = 16;
/// The longest wait for a store that fails, or for a worker that may become free: however long the window, ids are back so
/// soon after the store.
const LONGEST_WAIT_MS: u64 = 2_000;

/// One attempt to write, which may turn out to have happened long after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    tag: Tag,
    from_unix_ms: u64,
    until_unix_ms: u64,
}

/// Attempts to bring one record from one revision to the next: at most one of them can succeed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Write {
    purpose: Purpose,
    worker: WorkerId,
    expected: Expected,
    /// The tag of the record to replace, where that is known and there is one.
    known_tag: Option<Tag>,
    /// Where the lease that is held begins; for a claim, nothing is held yet.
    held_from_unix_ms: Option<u64>,
    granted_until_unix_ms: u64,
    attempts: Vec<Attempt>,
    /// Whether an attempt may have happened without our knowing.
    doubtful: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    Claim,
    Renew,
    Release { used_until_unix_ms: u64 },
}

/// A lease that is held, and the record that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The worker.
    pub worker: WorkerId,
    /// The record's revision.
    pub revision: Revision,
    /// The mark of the write that granted or renewed it.
    pub tag: Tag,
    /// The first instant that may be used, in unix milliseconds.
    pub from_unix_ms: u64,
    /// The first instant that may not, in unix milliseconds: the end of the newest grant that has settled.
    pub until_unix_ms: u64,
}

/// A lease in the store, and how much of it may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holding {
    /// Up to what has settled.
    held: Held,
    /// Whether anything of it has settled.
    granted: bool,
    /// Whether the tag is still that of a process before this one, which may have written another since.
    resumed: bool,
    /// The tag under which this process resumed the lease of one before it. That one counted up to here, this one counts
    /// on from a random number: only of numbers up to this one is it known that the lease was held after them.
    resumed_from: Option<Tag>,
    /// The end of the newest grant that was acknowledged.
    acknowledged_until_unix_ms: u64,
    /// When that was, by the steady clock; `None` once it has settled or was forgotten.
    acknowledged_steady_ms: Option<u64>,
}

impl Holding {
    /// Who wrote a record that bears neither the tag that is held nor one that may be on its way.
    fn writer_of(&self, found: Tag) -> Writer {
        let (held, found_number) = (self.held.tag.number(), found.number());
        let is_after = |first: u64, then: u64| (1..=u64::from(u32::MAX)).contains(&then.wrapping_sub(first));
        let is_up_to = |last: u64| found_number == last || is_after(found_number, last);
        if !self.is_of_our_line(found) {
            Writer::Another
        } else if !self.resumed && is_after(held, found_number) {
            Writer::UsSince
        } else if is_up_to(held) || self.resumed_from.is_some_and(|tag| is_up_to(tag.number())) {
            Writer::UsBefore
        } else {
            // A process that resumed this lease, or the one that this process resumed it from: both may live, and if each took
            // the other's record for an older one of its own, both would use the lease.
            Writer::Another
        }
    }

    const fn is_of_our_line(&self, found: Tag) -> bool {
        self.held.tag.line() == found.line()
    }
}

/// Who wrote a record, by its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// This line of processes, no later than the grant that is held: the store forgot that grant, or forgot it for a while.
    UsBefore,
    /// This process, after the grant that is held, though the store said that nothing was written; or a copy of it.
    UsSince,
    /// Somebody else.
    Another,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Seek,
    /// The next look is put off for a while.
    BetweenLooks,
    /// A look at these, of which one may be free.
    Looked(Scope),
    Swapping(Write),
    /// A grant that waits because the clock jumped forward and nothing confirms that.
    Doubted(Write),
    /// The same, while the store is asked for its time and the records of other nodes.
    Asking(Write),
    /// A write whose outcome a load will tell.
    Look(Write),
    Looking(Write),
    Hold,
    Stopped,
}

/// The state machine of one lease; see the module's page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Protocol<B = AfterLastGrant> {
    settings: Settings,
    state: State,
    held: Option<Holding>,
    candidates: VecDeque<Candidate>,
    probing: Probing,
    /// Claims that were given up without knowing what became of them, the last few: a record that bears the tag of
    /// one is ours after all.
    abandoned: VecDeque<(WorkerId, Attempt)>,
    /// The revision at which a worker that we want alone was last seen with another node.
    watched: Option<Revision>,
    release: Option<u64>,
    failures: u32,
    /// When the call that is on its way was sent, by the steady clock.
    sent_steady_ms: u64,
    /// No worker is claimed before, by the steady clock.
    quiet_until_steady_ms: u64,
    /// How far the clock may be ahead of what it would show without steps: as far as it was when it was confirmed, in milliseconds.
    /// Negative where the process started with a clock that was ahead.
    confirmed_ahead_ms: i64,
    /// For how long it has been further ahead.
    jumped: Jumped,
    next_tag: u128,
    /// How many tags the next attempt passes over.
    salt: u8,
    dice: Dice,
    events: Vec<Event>,
    begin: PhantomData<fn() -> B>,
}

impl Protocol {
    /// A machine that seeks a lease; `seed` must be fresh and random for each one: tags are counted up from it. Its upper
    /// half stays the same in all tags of a machine and of those that resume its lease.
    pub fn new(settings: Settings, seed: u128) -> Self {
        Self::with_begin(settings, seed)
    }

    /// A machine that holds a lease from the start: the one that a process of this node held when it died. Its first
    /// step renews it.
    ///
    /// The caller answers for `held`: nobody else may use any of `[from, until)`, and no id may have been made of it.
    /// A record that was written since is another's, as in any renewal.
    pub fn resume(settings: Settings, seed: u128, held: Held) -> Self {
        Self::resume_with_begin(settings, seed, held)
    }
}

impl<B: Begin> Protocol<B> {
    /// As [`new`](Protocol::new), with another rule for where grants begin.
    pub fn with_begin(settings: Settings, seed: u128) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "both halves are mixed into the dice")]
        let dice = Dice::of((seed >> 64) as u64 ^ seed as u64);
        Self {
            settings,
            state: State::Seek,
            held: None,
            candidates: VecDeque::new(),
            probing: Probing::default(),
            abandoned: VecDeque::new(),
            watched: None,
            release: None,
            failures: 0,
            sent_steady_ms: 0,
            quiet_until_steady_ms: 0,
            confirmed_ahead_ms: 0,
            jumped: Jumped::default(),
            next_tag: seed,
            salt: 0,
            dice,
            events: Vec::new(),
            begin: PhantomData,
        }
    }

    /// As [`resume`](Protocol::resume), with another rule for where grants begin.
    pub fn resume_with_begin(settings: Settings, seed: u128, held: Held) -> Self {
        let holding = Holding {
            held,
            granted: true,
            resumed: true,
            resumed_from: Some(held.tag),
            acknowledged_until_unix_ms: held.until_unix_ms,
            acknowledged_steady_ms: None,
        };
        // The line of the process before, continued at a random place of its own.
        let next_tag = held.tag.line() | u128::from(Tag(seed).number());
        Self { state: State::Hold, held: Some(holding), next_tag, ..Self::with_begin(settings, seed) }
    }

    /// What the machine was told to ask for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The lease that is held, as far as it has settled, if any.
    pub fn held(&self) -> Option<Held> {
        self.held.filter(|holding| holding.granted).map(|holding| holding.held)
    }

    /// The store's `may_lose` is this from now on: of a store that was opened after the machine was made.
    pub const fn store_may_lose(&mut self, may_lose_ms: u64) {
        self.settings.may_lose_ms = may_lose_ms;
    }

    /// Claims no worker before an instant of the steady clock: another lease of this node found that the store forgot.
    pub fn claim_nothing_before(&mut self, steady_ms: u64) {
        self.quiet_until_steady_ms = self.quiet_until_steady_ms.max(steady_ms);
    }

    /// Random bits for the tag of the next attempt. A copy of this process, as of a virtual machine that is restored from its memory,
    /// draws others: without them both would take each other's writes for their own.
    pub const fn salt(&mut self, salt: u8) {
        self.salt = salt;
    }

    /// Until when no worker is claimed, by the steady clock; 0 or past where one may be.
    pub const fn quiet_until_steady_ms(&self) -> u64 {
        self.quiet_until_steady_ms
    }

    /// Takes the time and an answer, says what changed and what to do next.
    pub fn step(&mut self, now: Now, input: Input) -> Turn {
        let state = std::mem::replace(&mut self.state, State::Stopped);
        self.jumped.look(self.jump_ms(now), now.steady_ms, self.settings.window_ms);
        let next = match (state, input) {
            (State::Stopped, _) => Next::Stop,
            (state, Input::Release { used_until_unix_ms }) => {
                // Asked twice, the second time there is no generator left to tell what was used.
                self.release = self.release.max(Some(used_until_unix_ms));
                self.go_on(now, state)
            }
            (State::Looked(scope), Input::Listed(answer)) => self.listed(now, scope, answer),
            (State::Swapping(write), Input::Swapped(answer)) => self.swapped(now, write, answer),
            (State::Looking(write), Input::Loaded(answer)) => self.looked(now, write, answer),
            (State::Asking(write), Input::Listed(answer)) => self.asked(now, write, answer),
            (state, _) => self.go_on(now, state),
        };
        if let Next::Call(_) = next {
            self.sent_steady_ms = now.steady_ms;
        }
        Turn { events: std::mem::take(&mut self.events), next }
    }

    /// Goes on after a wait.
    fn go_on(&mut self, now: Now, state: State) -> Next {
        match (state, self.release, self.held) {
            (State::Hold, Some(used_until_unix_ms), Some(holding)) => {
                self.write(now, Purpose::Release { used_until_unix_ms }, &holding)
            }
            (State::Hold, None, Some(holding)) => {
                let settles = holding.acknowledged_steady_ms.map(|at| at + self.settings.may_lose_ms);
                match settles.map_or(0, |settles| settles.saturating_sub(now.steady_ms)) {
                    0 => self.write(now, Purpose::Renew, &holding),
                    // Sent now, it would settle nothing.
                    left_ms => self.wait_all(State::Hold, left_ms),
                }
            }
            // For a claim nothing is held.
            (State::Doubted(write) | State::Asking(write), None, Some(_)) => self.attempt(now, write),
            (State::Look(write) | State::Looking(write) | State::Swapping(write), ..)
            | (State::Doubted(write) | State::Asking(write), Some(_), Some(_)) => {
                let call = Call::Load(write.worker);
                self.state = State::Looking(write);
                Next::Call(call)
            }
            (_, Some(_), _) => self.stop(),
            (state, ..) => match self.quiet_ms(now) {
                0 if state == State::BetweenLooks => self.look_on(now),
                0 => self.seek(now),
                left_ms => self.wait_all(State::Seek, left_ms),
            },
        }
    }

    /// Looks for a worker, from the beginning.
    fn seek(&mut self, now: Now) -> Next {
        self.candidates.clear();
        if self.lists_at_once() {
            return self.look_at(now, Scope::Pool);
        }
        self.probing.begin(&self.settings);
        self.look_on(now)
    }

    fn lists_at_once(&self) -> bool {
        let Settings { choice, pool, small_pool, .. } = &self.settings;
        *choice == WorkerChoice::Any && pool.workers() <= *small_pool
    }

    /// Looks at what is next; after the last one claims what was found, or looks further.
    fn look_on(&mut self, now: Now) -> Next {
        if let Some(scope) = self.probing.next.pop_front() {
            return self.look_at(now, scope);
        }
        if !self.candidates.is_empty() {
            return self.claim_next(now);
        }
        let paused_ms = self.probing.hundred_from_steady_ms.saturating_sub(now.steady_ms);
        let frees_first = self.probing.frees_first;
        let frees_ms = frees_first.map_or(u64::MAX, |(_, until)| until.saturating_sub(now.unix_ms));
        if frees_ms < paused_ms {
            let later_ms = self.dice.below(frees_ms / 8 + 1);
            return self.wait_all(State::Seek, frees_ms + later_ms);
        }
        let workers = self.settings.pool.workers();
        let hundred = self.probing.next_hundred(workers, &mut self.dice);
        self.probing.next.push_back(hundred);
        let spread_ms = self.probing.spread_ms(workers, &mut self.dice);
        self.wait_all(State::BetweenLooks, paused_ms + spread_ms)
    }

    fn look_at(&mut self, now: Now, scope: Scope) -> Next {
        let compared_lately =
            |compared: u64| now.steady_ms.saturating_sub(compared) < self.settings.window_ms;
        let time = match scope {
            Scope::Worker(_) | Scope::Block(_) if self.settings.choice == WorkerChoice::Any => {
                if self.probing.compared_steady_ms.is_some_and(compared_lately) {
                    StoreTime::Known
                } else {
                    StoreTime::Wanted
                }
            }
            _ => StoreTime::Wanted,
        };
        self.state = State::Looked(scope);
        Next::Call(Call::Look { scope, time })
    }

    const fn quiet_ms(&self, now: Now) -> u64 {
        self.quiet_until_steady_ms.saturating_sub(now.steady_ms)
    }

    fn stop(&mut self) -> Next {
        self.state = State::Stopped;
        if self.held.take().is_some() {
            self.events.push(Event::Released);
        }
        Next::Stop
    }

    fn write(&mut self, now: Now, purpose: Purpose, holding: &Holding) -> Next {
        let Holding { held, acknowledged_until_unix_ms, .. } = holding;
        self.attempt(
            now,
            Write {
                purpose,
                worker: held.worker,
                expected: Expected::Revision(held.revision),
                known_tag: Some(held.tag),
                held_from_unix_ms: Some(held.from_unix_ms),
                granted_until_unix_ms: *acknowledged_until_unix_ms,
                attempts: Vec::new(),
                doubtful: false,
            },
        )
    }

    /// Sends one more attempt of a write, unless it is a grant by a clock that jumped forward or was not compared yet: the store
    /// is asked first.
    fn attempt(&mut self, now: Now, write: Write) -> Next {
        let grants = match write.purpose {
            Purpose::Claim | Purpose::Renew => true,
            Purpose::Release { .. } => false,
        };
        // This process has compared its clock with nothing yet: it went on under a lease that was saved.
        let begins = self.held.is_some_and(|holding| holding.resumed);
        if !grants || (self.jump_ms(now) <= LEAST_JUMP_MS && !begins) {
            return self.send(now, write);
        }
        let scope = match BlockSize::Hundred {
            size if self.settings.pool.workers() > size.workers() => {
                Scope::Block(Block::of(write.worker, size))
            }
            _ => Scope::Pool,
        };
        self.state = State::Asking(write);
        Next::Call(Call::Look { scope, time: StoreTime::Wanted })
    }

    /// How far the clock is ahead of what was confirmed.
    const fn jump_ms(&self, now: Now) -> u64 {
        let confirmed_unix_ms = now.unstepped_unix_ms.saturating_add_signed(self.confirmed_ahead_ms);
        now.unix_ms.saturating_sub(confirmed_unix_ms)
    }

    /// What others show of the time: the grant is sent, or it waits.
    fn asked(&mut self, now: Now, write: Write, answer: Result<Listing, Failure>) -> Next {
        // A claim is chosen again: others may have the worker by then.
        let again = match write.purpose {
            Purpose::Claim => State::Seek,
            Purpose::Renew | Purpose::Release { .. } => State::Doubted(write.clone()),
        };
        let Ok(listing) = answer else {
            return self.wait_after_failure(now, again);
        };
        self.failures = 0;
        if self.release.is_some() || (again == State::Seek && self.quiet_ms(now) > 0) {
            return self.go_on(now, again);
        }
        match self.confirm(now, &listing) {
            Ok(()) => self.send(now, write),
            Err(event) => {
                self.events.push(event);
                let wait_ms = self.look_again_ms();
                self.wait(again, wait_ms)
            }
        }
    }

    /// Whether a lease may be granted by this clock; see the page of [`jumps`].
    fn confirm(&mut self, now: Now, listing: &Listing) -> Result<(), Event> {
        let Settings { max_skew_ms, window_ms, .. } = self.settings;
        let by_ms = self.jump_ms(now);
        if let Some(store_unix_ms) = listing.store_unix_ms {
            self.compared(now, store_unix_ms)?;
        } else if jumps::clock_of_another(&self.settings, &listing.entries, now.unix_ms)
            .is_some_and(|other| other.abs_diff(now.unix_ms) <= max_skew_ms)
            || self.jumped.left_ms(window_ms) == 0
        {
            self.confirmed_ahead_ms = self.confirmed_ahead_ms.saturating_add_unsigned(by_ms);
        } else if by_ms > max_skew_ms {
            return Err(Event::ClockJumped { by_ms, followed_in_ms: self.jumped.left_ms(window_ms) });
        }
        Ok(())
    }

    /// Compares the clock with the store's.
    fn compared(&mut self, now: Now, store_unix_ms: u64) -> Result<(), Event> {
        let max_skew_ms = self.settings.max_skew_ms;
        let ahead_ms = now.unix_ms.saturating_sub(store_unix_ms);
        if ahead_ms > max_skew_ms {
            self.probing.compared_steady_ms = None;
            return Err(Event::ClockAhead { ahead_ms, max_skew_ms });
        }
        self.probing.compared_steady_ms = Some(now.steady_ms);
        self.confirmed_ahead_ms = now.unix_ms.cast_signed().wrapping_sub(now.unstepped_unix_ms.cast_signed());
        Ok(())
    }

    /// Sends one more attempt of a write, under a fresh tag.
    fn send(&mut self, now: Now, mut write: Write) -> Next {
        let (now, granted) = (now.unix_ms, write.granted_until_unix_ms);
        let layout = *self.settings.pool.layout();
        let now_tick =
            layout.timestamp_at(now).map_or(layout.epoch_unix_ms().max(now), |tick| layout.unix_ms(tick));
        let from_unix_ms = write.held_from_unix_ms.unwrap_or_else(|| B::begin(now_tick, granted));
        let until_unix_ms = match write.purpose {
            Purpose::Claim => self.whole_ticks(from_unix_ms + self.settings.window_ms),
            // Not a window beyond the old end: renewing early must not reach further and further ahead.
            Purpose::Renew => B::begin(self.whole_ticks(now + self.settings.window_ms), granted),
            // What lies before the lease was another's: the record never goes back behind its begin.
            Purpose::Release { used_until_unix_ms } => used_until_unix_ms.max(from_unix_ms).min(granted),
        };
        let tag = Tag(self.next_tag).after(self.salt);
        self.next_tag = tag.0;
        let attempt = Attempt { tag, from_unix_ms, until_unix_ms };
        let holder = self.settings.holder.clone();
        let record = Record { holder, from_unix_ms: Some(from_unix_ms), until_unix_ms, tag };
        let call = Call::Swap { worker: write.worker, expected: write.expected, record };
        write.attempts.push(attempt);
        self.state = State::Swapping(write);
        Next::Call(call)
    }

    /// Grants end on a tick: a tick shared by two leases would be usable by neither.
    fn whole_ticks(&self, unix_ms: u64) -> u64 {
        let layout = self.settings.pool.layout();
        let tick_ms = u64::try_from(layout.tick().as_millis()).unwrap_or(u64::MAX);
        match unix_ms.checked_sub(layout.epoch_unix_ms()) {
            Some(since) => layout.epoch_unix_ms() + since.div_ceil(tick_ms) * tick_ms,
            None => layout.epoch_unix_ms(),
        }
    }

    fn listed(&mut self, now: Now, scope: Scope, answer: Result<Listing, Failure>) -> Next {
        let Ok(listing) = answer else {
            if !self.lists_at_once() && scope.is_wide() {
                self.probing.looked_in_vain(now.steady_ms, &mut self.dice);
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
            Scope::Worker(worker) => self.saw_one(now, worker, entries.first()),
            Scope::Block(_) | Scope::Pool => self.choose_of_some(now, scope, &entries),
        }
    }

    fn saw_one(&mut self, now: Now, worker: WorkerId, entry: Option<&Entry>) -> Next {
        match candidates::find(&self.settings, worker, entry, now.unix_ms) {
            Found::Free(candidate) | Found::Own(candidate) => {
                self.candidates.push_front(candidate);
                return self.claim_next(now);
            }
            Found::Lapsed(candidate) => self.candidates.push_back(candidate),
            Found::Taken { until_unix_ms } => self.probing.found_taken(worker, until_unix_ms),
            Found::Unreadable => {}
        }
        self.look_on(now)
    }

    /// What comes before any choice, whatever was read: `None` if a worker may be claimed by it.
    fn before_a_choice(&mut self, now: Now, listing: &Listing) -> Option<Next> {
        let Listing { entries, store_unix_ms } = listing;
        self.failures = 0;
        if self.release.is_some() {
            return Some(self.stop());
        }
        if let Some(store_unix_ms) = store_unix_ms
            && let Err(event) = self.compared(now, *store_unix_ms)
        {
            self.events.push(event);
            let wait_ms = self.look_again_ms();
            return Some(self.wait(State::Seek, wait_ms));
        }
        if self.quiet_ms(now) > 0 {
            return Some(self.go_on(now, State::Seek));
        }
        if let Some(event) = candidates::records_ahead(entries, now.unix_ms, self.settings.window_ms) {
            self.events.push(event);
        }
        let (write, attempt, revision) = self.arrived_after_all(now, entries)?;
        Some(self.succeeded(now, &write, Some(attempt), revision))
    }

    /// These are all that could be claimed.
    fn choose_of_all(&mut self, now: Now, scope: Scope, entries: &[Entry]) -> Next {
        match candidates::choose(&self.settings, scope, entries, now.unix_ms, &mut self.dice) {
            Choice::Claim(candidates) => {
                self.candidates = candidates;
                self.claim_next(now)
            }
            Choice::NoneFree { first } => {
                let until = first.as_ref().map(|(.., until)| *until);
                self.events.push(Event::NoneFree { first });
                self.wait_until_free(now, until)
            }
            Choice::Watch { worker, revision, holder, until_unix_ms } => {
                self.watch(now, worker, revision, holder, until_unix_ms)
            }
        }
    }

    /// There are others: a large pool is never looked through at once.
    fn choose_of_some(&mut self, now: Now, scope: Scope, entries: &[Entry]) -> Next {
        match candidates::choose(&self.settings, scope, entries, now.unix_ms, &mut self.dice) {
            Choice::Claim(candidates) => {
                let seen_before = std::mem::replace(&mut self.candidates, candidates);
                self.candidates.extend(seen_before);
            }
            Choice::NoneFree { first } => {
                if let Some((worker, _, until_unix_ms)) = &first {
                    self.probing.found_taken(*worker, *until_unix_ms);
                }
                if self.candidates.is_empty() && scope.is_wide() {
                    self.probing.looked_in_vain(now.steady_ms, &mut self.dice);
                    self.events.push(Event::NoneFree { first });
                }
            }
            // Only where one worker is wanted.
            Choice::Watch { .. } => {}
        }
        if self.candidates.is_empty() { self.look_on(now) } else { self.claim_next(now) }
    }

    /// Waits for the first worker that may become free, and looks again before that: one may be given back.
    ///
    /// Not before its end, and nodes that wait for the same one come one after the other.
    fn wait_until_free(&mut self, now: Now, until_unix_ms: Option<u64>) -> Next {
        let most_ms = self.look_again_ms();
        let left_ms = until_unix_ms.map_or(most_ms, |until| until.saturating_sub(now.unix_ms)).min(most_ms);
        let later_ms = self.dice.below(left_ms / 8 + 1);
        self.wait_all(State::Seek, left_ms + later_ms)
    }

    /// How long at most until a node looks again for a worker: the longer, the more a look at all of them costs.
    fn look_again_ms(&self) -> u64 {
        let Settings { choice, pool, window_ms, small_pool, .. } = self.settings;
        let times = match choice {
            WorkerChoice::Any => 1 + u64::from(pool.workers() / small_pool.max(1)),
            WorkerChoice::Only(_) => 1,
        };
        (window_ms / 12 * times).min(LONGEST_WAIT_MS)
    }

    /// A claim that was given up and has been written since, if its grant lasts: nobody minted under it, so it is
    /// as good as one that was answered.
    fn arrived_after_all(&mut self, now: Now, entries: &[Entry]) -> Option<(Write, Attempt, Revision)> {
        let (entry, attempt) = entries.iter().find_map(|entry| {
            let tag = entry.record.as_ref()?.tag;
            let of_entry =
                |(worker, attempt): &&(WorkerId, Attempt)| *worker == entry.worker && attempt.tag == tag;
            self.abandoned.iter().find(of_entry).map(|(_, attempt)| (entry, *attempt))
        })?;
        if attempt.until_unix_ms <= now.unix_ms {
            return None;
        }
        let write = Write {
            purpose: Purpose::Claim,
            worker: entry.worker,
            expected: Expected::Revision(entry.revision),
            known_tag: Some(attempt.tag),
            held_from_unix_ms: None,
            granted_until_unix_ms: attempt.until_unix_ms,
            attempts: Vec::new(),
            doubtful: false,
        };
        self.abandoned.clear();
        Some((write, attempt, entry.revision))
    }

    /// The only worker wanted is granted to someone: it is taken if they renew it, free once it lapses.
    fn watch(&mut self, now: Now, worker: WorkerId, revision: Revision, holder: Holder, until: u64) -> Next {
        let renewed = self.watched.replace(revision).is_some_and(|seen| seen != revision);
        let far_ahead = until.saturating_sub(now.unix_ms) > 2 * self.settings.window_ms;
        if renewed || far_ahead {
            self.events.push(Event::Taken { worker, holder, until_unix_ms: until });
        } else {
            self.events.push(Event::Awaited { worker, holder, until_unix_ms: until });
        }
        self.wait_until_free(now, Some(until))
    }

    fn claim_next(&mut self, now: Now) -> Next {
        if self.quiet_ms(now) > 0 {
            return self.go_on(now, State::Seek);
        }
        let Some(candidate) = self.candidates.pop_front() else {
            // All were snatched away since they were seen.
            if self.settings.choice != WorkerChoice::Any || self.lists_at_once() {
                return self.wait_after_failure(now, State::Seek);
            }
            let wait_ms = self.probing.snatched_ms(self.settings.pool.workers(), &mut self.dice);
            return self.wait_all(State::BetweenLooks, wait_ms);
        };
        self.attempt(
            now,
            Write {
                purpose: Purpose::Claim,
                worker: candidate.worker,
                expected: candidate.expected,
                known_tag: None,
                held_from_unix_ms: None,
                granted_until_unix_ms: candidate.granted_until_unix_ms,
                attempts: Vec::new(),
                doubtful: false,
            },
        )
    }

    fn swapped(&mut self, now: Now, mut write: Write, answer: Result<Swapped, Failure>) -> Next {
        match answer {
            Ok(Swapped::Done(revision)) => {
                let attempt = write.attempts.pop();
                self.succeeded(now, &write, attempt, revision)
            }
            // Every attempt is known to have failed, so the record is another's.
            Ok(Swapped::Conflict) if write.purpose == Purpose::Claim && !write.doubtful => {
                self.claim_failed(now)
            }
            Ok(Swapped::Conflict) => {
                let call = Call::Load(write.worker);
                self.state = State::Looking(write);
                Next::Call(call)
            }
            Err(Failure::Unknown) => {
                write.doubtful = true;
                self.wait_after_failure(now, State::Look(write))
            }
            Err(Failure::NotDone) => {
                if !write.doubtful {
                    write.attempts.clear();
                }
                self.wait_after_failure(now, State::Look(write))
            }
        }
    }

    /// A load tells what became of a write: a record that bears one of its tags is ours.
    fn looked(&mut self, now: Now, write: Write, answer: Result<Option<Entry>, Failure>) -> Next {
        let Ok(entry) = answer else {
            return self.wait_after_failure(now, State::Look(write));
        };
        let tag = entry.as_ref().and_then(|entry| Some(entry.record.as_ref()?.tag));
        let revision = entry.as_ref().map(|entry| entry.revision);
        let ours = write.attempts.iter().find(|attempt| Some(attempt.tag) == tag).copied();
        if let (Some(attempt), Some(revision)) = (ours, revision) {
            return self.succeeded(now, &write, Some(attempt), revision);
        }
        let found = revision.map_or(Expected::Absent, Expected::Revision);
        if write.purpose == Purpose::Claim {
            if found == write.expected {
                // The worker may become ours later: the next listing shows it.
                self.abandoned.extend(write.attempts.iter().map(|attempt| (write.worker, *attempt)));
                self.abandoned.drain(..self.abandoned.len().saturating_sub(MAX_ABANDONED));
            }
            return self.claim_failed(now);
        }
        let readable = entry.as_ref().is_none_or(|entry| entry.record.is_some());
        if tag == write.known_tag && readable {
            return self.not_written_yet(now, write, found);
        }
        match (entry, self.held) {
            (None, Some(holding)) => self.write_again(now, &write, &holding, None),
            (Some(Entry { revision, record: Some(record), .. }), Some(holding)) => {
                match holding.writer_of(record.tag) {
                    Writer::UsBefore => self.write_again(now, &write, &holding, Some((revision, record))),
                    Writer::UsSince if self.has_drawn(record.tag) => {
                        self.written_after_all(now, &write, revision, &record)
                    }
                    // A copy of this process goes on under the lease, or did.
                    Writer::UsSince | Writer::Another => {
                        self.another_has_it(now, &write, &holding, Some(&record))
                    }
                }
            }
            (_, Some(holding)) => self.another_has_it(now, &write, &holding, None),
            // Only a claim is written without a lease.
            (_, None) => self.go_on(now, State::Seek),
        }
    }

    /// Whether a tag of this line is of an attempt that was made, and not of a later one.
    fn has_drawn(&self, tag: Tag) -> bool {
        Tag(self.next_tag).number().wrapping_sub(tag.number()) < 1 << 63
    }

    /// The record is as it was, though perhaps at another revision, as when somebody labels an object. An attempt may still
    /// arrive; then the next one conflicts and the load after it tells.
    fn not_written_yet(&mut self, now: Now, write: Write, found: Expected) -> Next {
        if write.known_tag == self.held.map(|holding| holding.held.tag) {
            self.still_there();
        }
        let write = if found == write.expected {
            write
        } else {
            Write { expected: found, attempts: Vec::new(), doubtful: false, ..write }
        };
        let purpose = self.purpose_now();
        self.attempt(now, Write { purpose, ..write })
    }

    /// The record is ours though the store said that nothing was written, as when a proxy sends a request twice and the
    /// second one is refused. Nobody was told of that grant, so nothing of it was used; it is not shortened by a renewal.
    fn written_after_all(&mut self, now: Now, write: &Write, revision: Revision, record: &Record) -> Next {
        let again = Write {
            purpose: self.purpose_now(),
            expected: Expected::Revision(revision),
            known_tag: Some(record.tag),
            granted_until_unix_ms: write.granted_until_unix_ms.max(record.until_unix_ms),
            attempts: Vec::new(),
            doubtful: false,
            ..*write
        };
        self.attempt(now, again)
    }

    const fn purpose_now(&self) -> Purpose {
        match self.release {
            Some(used_until_unix_ms) => Purpose::Release { used_until_unix_ms },
            None => Purpose::Renew,
        }
    }

    /// An older record of our own, or none: the lease is written again from there.
    fn write_again(
        &mut self,
        now: Now,
        write: &Write,
        holding: &Holding,
        found: Option<(Revision, Record)>,
    ) -> Next {
        let found_until_unix_ms = found.as_ref().map(|(_, record)| record.until_unix_ms);
        self.store_forgot(now, holding, found_until_unix_ms, found_until_unix_ms.unwrap_or(0));
        // What had not settled is lost; the new grant settles by itself.
        self.held = Some(Holding { acknowledged_steady_ms: None, ..*holding });
        let known_tag = found.as_ref().map(|(_, record)| record.tag);
        let expected = found.map_or(Expected::Absent, |(revision, _)| Expected::Revision(revision));
        let (purpose, attempts) = (self.purpose_now(), Vec::new());
        let again = Write { purpose, expected, known_tag, attempts, doubtful: false, ..*write };
        self.attempt(now, again)
    }

    /// The store shows less than it had acknowledged, and has kept this node's right up to an instant.
    fn store_forgot(
        &mut self,
        now: Now,
        holding: &Holding,
        found_until_unix_ms: Option<u64>,
        kept_until_unix_ms: u64,
    ) {
        let kept = !holding.granted || kept_until_unix_ms >= holding.held.until_unix_ms;
        self.claim_nothing_before(now.steady_ms + self.settings.window_ms);
        self.events.push(Event::StoreForgot {
            worker: holding.held.worker,
            acknowledged_until_unix_ms: holding.acknowledged_until_unix_ms,
            found_until_unix_ms,
            forgot: if kept { Forgot::Unsettled } else { Forgot::Settled },
        });
    }

    fn succeeded(&mut self, now: Now, write: &Write, attempt: Option<Attempt>, revision: Revision) -> Next {
        self.failures = 0;
        self.watched = None;
        self.probing = Probing::default();
        let Some(attempt) = attempt else {
            return self.wait_after_failure(now, State::Seek);
        };
        let Attempt { tag, from_unix_ms, until_unix_ms } = attempt;
        if write.purpose != Purpose::Claim {
            // It replaced the grant before it, which therefore was there.
            self.still_there();
        }
        let (granted, settled_until_unix_ms) = match self.held {
            Some(Holding { granted: true, held, .. }) => (true, held.until_unix_ms),
            _ => (false, from_unix_ms),
        };
        let resumed_from = match write.purpose {
            Purpose::Claim => None,
            Purpose::Renew | Purpose::Release { .. } => self.held.and_then(|holding| holding.resumed_from),
        };
        self.held = Some(Holding {
            held: Held {
                worker: write.worker,
                revision,
                tag,
                from_unix_ms,
                until_unix_ms: settled_until_unix_ms,
            },
            granted,
            resumed: false,
            resumed_from,
            acknowledged_until_unix_ms: until_unix_ms,
            acknowledged_steady_ms: Some(now.steady_ms),
        });
        match write.purpose {
            // Granted too late: nobody is told, so nothing of it is used.
            Purpose::Claim if self.release.is_some() => self.release = Some(from_unix_ms),
            Purpose::Release { used_until_unix_ms }
                if until_unix_ms <= used_until_unix_ms.max(from_unix_ms) =>
            {
                return self.stop();
            }
            // A record that shows a renewal instead of the release: the release is still to be written.
            Purpose::Claim | Purpose::Renew | Purpose::Release { .. } => {}
        }
        if self.release.is_some() {
            return self.go_on(now, State::Hold);
        }
        let settles_in_ms = self.settings.may_lose_ms;
        if settles_in_ms == 0 {
            self.settle();
        } else if write.purpose == Purpose::Claim {
            self.events.push(Event::Claimed { worker: write.worker, settles_in_ms });
        }
        self.wait_to_renew(now, until_unix_ms)
    }

    /// The answer shows the newest grant: it has settled if the call was sent long enough after it was acknowledged.
    fn still_there(&mut self) {
        let acknowledged = self.held.and_then(|holding| holding.acknowledged_steady_ms);
        if acknowledged.is_some_and(|at| self.sent_steady_ms >= at + self.settings.may_lose_ms) {
            self.settle();
        }
    }

    /// The newest grant may be used.
    fn settle(&mut self) {
        // Its generator has ended: nobody is told, so nothing more is used.
        if self.release.is_some() {
            return;
        }
        let Some(Holding { held, granted, acknowledged_until_unix_ms, acknowledged_steady_ms, .. }) =
            &mut self.held
        else {
            return;
        };
        *acknowledged_steady_ms = None;
        held.until_unix_ms = *acknowledged_until_unix_ms;
        let Held { worker, from_unix_ms, until_unix_ms, .. } = *held;
        self.events.push(if std::mem::replace(granted, true) {
            Event::Extended { until_unix_ms }
        } else {
            Event::Granted(Lease { worker, from_unix_ms, until_unix_ms })
        });
    }

    /// Counted from the end that was granted: an answer that came late has used up some of it, or all.
    ///
    /// Over a store that may lose writes, a grant is of use one renewal later; they come twice as often there, so that the
    /// store may be away for as long, but not before they can settle the one before.
    fn wait_to_renew(&mut self, now: Now, until_unix_ms: u64) -> Next {
        let left_ms = until_unix_ms.saturating_sub(now.unix_ms);
        let Settings { window_ms, may_lose_ms, .. } = self.settings;
        let third_ms = window_ms / 3;
        match self.held {
            Some(Holding { granted: false, .. }) => self.wait_all(State::Hold, may_lose_ms),
            _ if may_lose_ms == 0 => {
                self.wait(State::Hold, left_ms.saturating_sub(2 * third_ms).min(third_ms))
            }
            _ => {
                let every_ms = may_lose_ms.max(window_ms / 6);
                let wait_ms = left_ms.saturating_sub(window_ms.saturating_sub(every_ms)).min(every_ms);
                let later_ms = self.dice.below(every_ms / 8 + 1);
                self.wait_all(State::Hold, wait_ms.max(may_lose_ms) + later_ms)
            }
        }
    }

    fn claim_failed(&mut self, now: Now) -> Next {
        if self.release.is_some() { self.stop() } else { self.claim_next(now) }
    }

    /// The record is another's, or cannot be read: what has settled lasts, unless the other's grant overlaps it.
    fn another_has_it(
        &mut self,
        now: Now,
        write: &Write,
        holding: &Holding,
        record: Option<&Record>,
    ) -> Next {
        self.held = None;
        let Held { worker, until_unix_ms, .. } = holding.held;
        // A release whose outcome is unknown may have given the rest back already.
        let given_back_from = write.attempts.iter().map(|attempt| attempt.until_unix_ms).min();
        let covers_until =
            |end_unix_ms: u64| given_back_from.map_or(end_unix_ms, |from| from.min(end_unix_ms));
        let begins = record.and_then(|record| Some((record, record.from_unix_ms?)));
        if let Some((record, from_unix_ms)) = begins
            && from_unix_ms < covers_until(holding.acknowledged_until_unix_ms)
            // The process before this one renewed it after it was saved.
            && !holding.is_of_our_line(record.tag)
        {
            // No node that saw what the store had acknowledged would begin there.
            let overlaps = holding.granted && from_unix_ms < covers_until(until_unix_ms);
            // What was given back may be another's, and nobody uses it.
            self.store_forgot(now, holding, None, if overlaps { from_unix_ms } else { until_unix_ms });
            if overlaps {
                let holder = record.holder.clone();
                self.events.push(Event::Overlap { worker, holder, from_unix_ms, until_unix_ms });
                return self.go_on(now, State::Seek);
            }
        }
        if holding.granted {
            self.events.push(Event::Lost { worker, until_unix_ms });
        }
        self.go_on(now, State::Seek)
    }

    /// Waits longer after each failure in a row: 1/200 of the window at first, at most 1/6 of it and 2 s, and of a lease
    /// that is held at most a quarter of what is left: its end must not pass in a wait while the store is there again.
    ///
    /// Half of it at least: nodes that failed together do not come back together.
    fn wait_after_failure(&mut self, now: Now, state: State) -> Next {
        let longest_ms = (self.settings.window_ms / 6).min(LONGEST_WAIT_MS);
        let first = (self.settings.window_ms / 200 + 1).min(longest_ms);
        let left_ms = self.held().map_or(0, |held| held.until_unix_ms.saturating_sub(now.unix_ms));
        let most_ms = match left_ms {
            // None is held, or it has ended: there is nothing to hurry for.
            0 => u64::MAX,
            left_ms => first.max(left_ms / 4),
        };
        let wait_ms = (first << self.failures.min(10)).min(longest_ms).min(most_ms);
        self.failures = self.failures.saturating_add(1);
        let sooner_ms = self.dice.below(wait_ms / 2 + 1);
        self.wait_all(state, wait_ms - sooner_ms)
    }

    fn wait(&mut self, state: State, wait_ms: u64) -> Next {
        self.state = state;
        Next::Wait(self.jittered(wait_ms.max(1)))
    }

    /// Waits no less than so long.
    fn wait_all(&mut self, state: State, wait_ms: u64) -> Next {
        self.state = state;
        Next::Wait(wait_ms.max(1))
    }

    /// Between 7/8 of the time and all of it, so that nodes that started together do not stay together.
    fn jittered(&mut self, ms: u64) -> u64 {
        ms - self.dice.below(ms / 8 + 1)
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
