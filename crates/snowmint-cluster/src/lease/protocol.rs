//! The lease protocol as a pure state machine: (clock, what the store answered) in, the next call out.
//! No I/O, no time of its own: the driver and the simulation drive the same code.
//!
//! ```text
//!            list            swap                    window / 3
//!  Seek ───────────▶ Claim ────────▶ Hold ◀──────────────────────┐
//!    ▲  none free: wait │ conflict:   │ renew: swap              │
//!    │                  │ next one    ▼                          │
//!    ├──────────────────┘           Renew ───────────────────────┘
//!    │ lost: another node wrote       │ unknown outcome: load, and settle by the tag
//!    └────────────────────────────────┘
//! ```

mod candidates;
mod messages;

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

use snowmint::{Lease, WorkerId};
use snowmint_store::{Expected, Revision};

use super::pool::Pool;
use super::record::{Record, Tag};
use crate::Holder;
use crate::dice::Dice;
pub use messages::{Call, Entry, Event, Failure, Input, Listing, Next, Swapped, Turn};

use candidates::{Candidate, Choice};

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
    /// How far the clock may be ahead of the store's own time when a lease is sought, in milliseconds: a clock far
    /// ahead would take a worker's future with it.
    pub max_skew_ms: u64,
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
    /// The first instant that may not, in unix milliseconds.
    pub until_unix_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Seek,
    Listing,
    Swapping(Write),
    /// A write whose outcome a load will tell.
    Settle(Write),
    Settling(Write),
    Hold,
    Stopped,
}

/// The state machine of one lease; see the module's page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Protocol<B = AfterLastGrant> {
    settings: Settings,
    state: State,
    held: Option<Held>,
    candidates: VecDeque<Candidate>,
    /// Claims that were given up without knowing what became of them, the last few: a record that bears the tag of
    /// one is ours after all.
    abandoned: VecDeque<(WorkerId, Attempt)>,
    /// The revision at which a worker that we want alone was last seen with another node.
    watched: Option<Revision>,
    release: Option<u64>,
    failures: u32,
    next_tag: u128,
    dice: Dice,
    events: Vec<Event>,
    begin: PhantomData<fn() -> B>,
}

impl Protocol {
    /// A machine that seeks a lease; `seed` must be fresh and random for each one: tags are counted up from it.
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
            abandoned: VecDeque::new(),
            watched: None,
            release: None,
            failures: 0,
            next_tag: seed,
            dice,
            events: Vec::new(),
            begin: PhantomData,
        }
    }

    /// As [`resume`](Protocol::resume), with another rule for where grants begin.
    pub fn resume_with_begin(settings: Settings, seed: u128, held: Held) -> Self {
        Self { state: State::Hold, held: Some(held), ..Self::with_begin(settings, seed) }
    }

    /// What the machine was told to ask for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The lease that is held, if any.
    pub fn held(&self) -> Option<Held> {
        self.held
    }

    /// Takes the time and an answer, says what changed and what to do next.
    pub fn step(&mut self, now_unix_ms: u64, input: Input) -> Turn {
        let state = std::mem::replace(&mut self.state, State::Stopped);
        let next = match (state, input) {
            (State::Stopped, _) => Next::Stop,
            (state, Input::Release { used_until_unix_ms }) => {
                // Asked twice, the second time there is no generator left to tell what was used.
                self.release = self.release.max(Some(used_until_unix_ms));
                self.go_on(now_unix_ms, state)
            }
            (State::Listing, Input::Listed(answer)) => self.listed(now_unix_ms, answer),
            (State::Swapping(write), Input::Swapped(answer)) => self.swapped(now_unix_ms, write, answer),
            (State::Settling(write), Input::Loaded(answer)) => self.settled(now_unix_ms, write, answer),
            (state, _) => self.go_on(now_unix_ms, state),
        };
        Turn { events: std::mem::take(&mut self.events), next }
    }

    /// Goes on after a wait.
    fn go_on(&mut self, now: u64, state: State) -> Next {
        match (state, self.release, self.held) {
            (State::Hold, Some(used_until_unix_ms), Some(held)) => {
                self.write(now, Purpose::Release { used_until_unix_ms }, held)
            }
            (State::Hold, None, Some(held)) => self.write(now, Purpose::Renew, held),
            (State::Settle(write) | State::Settling(write) | State::Swapping(write), ..) => {
                let call = Call::Load(write.worker);
                self.state = State::Settling(write);
                Next::Call(call)
            }
            (_, Some(_), _) => self.stop(),
            _ => {
                self.state = State::Listing;
                Next::Call(Call::List)
            }
        }
    }

    fn stop(&mut self) -> Next {
        self.state = State::Stopped;
        if self.held.take().is_some() {
            self.events.push(Event::Released);
        }
        Next::Stop
    }

    fn write(&mut self, now: u64, purpose: Purpose, held: Held) -> Next {
        self.attempt(
            now,
            Write {
                purpose,
                worker: held.worker,
                expected: Expected::Revision(held.revision),
                held_from_unix_ms: Some(held.from_unix_ms),
                granted_until_unix_ms: held.until_unix_ms,
                attempts: Vec::new(),
                doubtful: false,
            },
        )
    }

    /// Sends one more attempt of a write, under a fresh tag.
    fn attempt(&mut self, now: u64, mut write: Write) -> Next {
        let granted = write.granted_until_unix_ms;
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
        self.next_tag = self.next_tag.wrapping_add(1);
        let attempt = Attempt { tag: Tag(self.next_tag), from_unix_ms, until_unix_ms };
        let record = Record { holder: self.settings.holder.clone(), until_unix_ms, tag: attempt.tag };
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

    fn listed(&mut self, now: u64, answer: Result<Listing, Failure>) -> Next {
        let Ok(Listing { entries, store_unix_ms }) = answer else {
            return self.wait_after_failure(now, State::Seek);
        };
        self.failures = 0;
        if self.release.is_some() {
            return self.stop();
        }
        let max_skew_ms = self.settings.max_skew_ms;
        let ahead_ms = store_unix_ms.map_or(0, |store| now.saturating_sub(store));
        if ahead_ms > max_skew_ms {
            self.events.push(Event::ClockAhead { ahead_ms, max_skew_ms });
            return self.wait(State::Seek, self.settings.window_ms / 12);
        }
        if let Some(event) = candidates::records_ahead(&entries, now, self.settings.window_ms) {
            self.events.push(event);
        }
        if let Some((write, attempt, revision)) = self.arrived_after_all(now, &entries) {
            return self.succeeded(now, &write, Some(attempt), revision);
        }
        match candidates::choose(&self.settings, &entries, now, &mut self.dice) {
            Choice::Claim(candidates) => {
                self.candidates = candidates;
                self.claim_next(now)
            }
            Choice::NoneFree { first } => {
                let wait_ms = match &first {
                    Some((_, _, until)) => until.saturating_sub(now).min(self.settings.window_ms / 12),
                    None => self.settings.window_ms / 12,
                };
                self.events.push(Event::NoneFree { first });
                self.wait(State::Seek, wait_ms)
            }
            Choice::Watch { worker, revision, holder, until_unix_ms } => {
                self.watch(now, worker, revision, holder, until_unix_ms)
            }
        }
    }

    /// A claim that was given up and has been written since, if its grant lasts: nobody minted under it, so it is
    /// as good as one that was answered.
    fn arrived_after_all(&mut self, now: u64, entries: &[Entry]) -> Option<(Write, Attempt, Revision)> {
        let (entry, attempt) = entries.iter().find_map(|entry| {
            let tag = entry.record.as_ref()?.tag;
            let of_entry =
                |(worker, attempt): &&(WorkerId, Attempt)| *worker == entry.worker && attempt.tag == tag;
            self.abandoned.iter().find(of_entry).map(|(_, attempt)| (entry, *attempt))
        })?;
        if attempt.until_unix_ms <= now {
            return None;
        }
        let write = Write {
            purpose: Purpose::Claim,
            worker: entry.worker,
            expected: Expected::Revision(entry.revision),
            held_from_unix_ms: None,
            granted_until_unix_ms: attempt.until_unix_ms,
            attempts: Vec::new(),
            doubtful: false,
        };
        self.abandoned.clear();
        Some((write, attempt, entry.revision))
    }

    /// The only worker wanted is granted to someone: it is taken if they renew it, free once it lapses.
    fn watch(&mut self, now: u64, worker: WorkerId, revision: Revision, holder: Holder, until: u64) -> Next {
        let renewed = self.watched.replace(revision).is_some_and(|seen| seen != revision);
        let far_ahead = until.saturating_sub(now) > 2 * self.settings.window_ms;
        if renewed || far_ahead {
            self.events.push(Event::Taken { worker, holder, until_unix_ms: until });
        } else {
            self.events.push(Event::Awaited { worker, holder, until_unix_ms: until });
        }
        self.wait(State::Seek, until.saturating_sub(now).min(self.settings.window_ms / 12))
    }

    fn claim_next(&mut self, now: u64) -> Next {
        let Some(candidate) = self.candidates.pop_front() else {
            // All were snatched away since they were listed.
            return self.wait_after_failure(now, State::Seek);
        };
        self.attempt(
            now,
            Write {
                purpose: Purpose::Claim,
                worker: candidate.worker,
                expected: candidate.expected,
                held_from_unix_ms: None,
                granted_until_unix_ms: candidate.granted_until_unix_ms,
                attempts: Vec::new(),
                doubtful: false,
            },
        )
    }

    fn swapped(&mut self, now: u64, mut write: Write, answer: Result<Swapped, Failure>) -> Next {
        match answer {
            Ok(Swapped::Done(revision)) => {
                let attempt = write.attempts.pop();
                self.succeeded(now, &write, attempt, revision)
            }
            // Every attempt is known to have failed, so the record is another's.
            Ok(Swapped::Conflict) if !write.doubtful => self.another_was_first(now, &write),
            Ok(Swapped::Conflict) => {
                let call = Call::Load(write.worker);
                self.state = State::Settling(write);
                Next::Call(call)
            }
            Err(Failure::Unknown) => {
                write.doubtful = true;
                self.wait_after_failure(now, State::Settle(write))
            }
            Err(Failure::NotDone) => {
                if !write.doubtful {
                    write.attempts.clear();
                }
                self.wait_after_failure(now, State::Settle(write))
            }
        }
    }

    /// A load tells what became of a write: a record that bears one of its tags is ours.
    fn settled(&mut self, now: u64, write: Write, answer: Result<Option<Entry>, Failure>) -> Next {
        let Ok(entry) = answer else {
            return self.wait_after_failure(now, State::Settle(write));
        };
        let ours = entry.as_ref().and_then(|entry| {
            let tag = entry.record.as_ref()?.tag;
            let attempt = write.attempts.iter().find(|attempt| attempt.tag == tag)?;
            Some((*attempt, entry.revision))
        });
        if let Some((attempt, revision)) = ours {
            return self.succeeded(now, &write, Some(attempt), revision);
        }
        let found = entry.map_or(Expected::Absent, |entry| Expected::Revision(entry.revision));
        if found != write.expected {
            return self.another_was_first(now, &write);
        }
        if write.purpose == Purpose::Claim {
            // The worker may become ours later: the next listing shows it.
            self.abandoned.extend(write.attempts.iter().map(|attempt| (write.worker, *attempt)));
            self.abandoned.drain(..self.abandoned.len().saturating_sub(MAX_ABANDONED));
            return if self.release.is_some() { self.stop() } else { self.claim_next(now) };
        }
        // Not written yet. It may still arrive; then the next attempt conflicts and the load after it tells.
        let purpose = match self.release {
            Some(used_until_unix_ms) => Purpose::Release { used_until_unix_ms },
            None => Purpose::Renew,
        };
        self.attempt(now, Write { purpose, ..write })
    }

    fn succeeded(&mut self, now: u64, write: &Write, attempt: Option<Attempt>, revision: Revision) -> Next {
        self.failures = 0;
        self.watched = None;
        let Some(attempt) = attempt else {
            return self.wait_after_failure(now, State::Seek);
        };
        let Attempt { tag, from_unix_ms, until_unix_ms } = attempt;
        self.held = Some(Held { worker: write.worker, revision, tag, from_unix_ms, until_unix_ms });
        match write.purpose {
            // Granted too late: nobody is told, so nothing of it is used.
            Purpose::Claim if self.release.is_some() => self.release = Some(from_unix_ms),
            Purpose::Claim => {
                self.events.push(Event::Granted(Lease { worker: write.worker, from_unix_ms, until_unix_ms }));
            }
            // Its generator has ended: what was granted further is given back.
            Purpose::Renew if self.release.is_some() => {}
            Purpose::Renew => self.events.push(Event::Extended { until_unix_ms }),
            Purpose::Release { used_until_unix_ms }
                if until_unix_ms <= used_until_unix_ms.max(from_unix_ms) =>
            {
                return self.stop();
            }
            // The record shows an earlier attempt, a renewal: the release is still to be written.
            Purpose::Release { .. } => {}
        }
        if self.release.is_some() {
            return self.go_on(now, State::Hold);
        }
        // Counted from the end that was granted: an answer that came late has used up some of it, or all.
        let third_ms = self.settings.window_ms / 3;
        let left_ms = until_unix_ms.saturating_sub(now);
        self.wait(State::Hold, left_ms.saturating_sub(2 * third_ms).min(third_ms))
    }

    fn another_was_first(&mut self, now: u64, write: &Write) -> Next {
        if write.purpose == Purpose::Claim {
            return if self.release.is_some() { self.stop() } else { self.claim_next(now) };
        }
        if let Some(held) = self.held.take() {
            self.events.push(Event::Lost { worker: held.worker, until_unix_ms: held.until_unix_ms });
        }
        self.go_on(now, State::Seek)
    }

    /// Waits longer after each failure in a row: 1/200 of the window at first, at most 1/6 of it, and of a lease that is
    /// held at most a quarter of what is left: its end must not pass in a wait while the store is there again.
    fn wait_after_failure(&mut self, now: u64, state: State) -> Next {
        let first = self.settings.window_ms / 200 + 1;
        let left_ms = self.held.map_or(0, |held| held.until_unix_ms.saturating_sub(now));
        let most_ms = match left_ms {
            // None is held, or it has ended: there is nothing to hurry for.
            0 => u64::MAX,
            left_ms => first.max(left_ms / 4),
        };
        let wait_ms = (first << self.failures.min(10)).min(self.settings.window_ms / 6).min(most_ms);
        self.failures = self.failures.saturating_add(1);
        self.wait(state, wait_ms)
    }

    fn wait(&mut self, state: State, wait_ms: u64) -> Next {
        self.state = state;
        Next::Wait(self.jittered(wait_ms.max(1)))
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
