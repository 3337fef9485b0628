//! The segment protocol as a pure state machine: the time, the state of memory and a counter's answer go in, the next call
//! comes out. It does no I/O and has no clock, so the driver and the simulation run the same code.
//!
//! ```text
//!        few numbers left             numbers: add them to memory, look again
//!  Idle ───────────────────▶ Reserve ──────────────────────────────────────▶ Idle
//!    │                        │   ▲ │ below the first number, or below the
//!    │                 failed │   │ │ high-water mark: no number is used
//!    │                        ▼   │ ▼
//!    │ release               Wait ┴ Raise
//!    └──────────▶ GiveBack, newest first, each once ──────────▶ Stop
//! ```
//!
//! A number is used only after the counter has confirmed its reservation. If the answer to a call is lost, the numbers that the
//! call may have reserved are never used.
//!
//! If a store may lose acknowledged writes, a number is used only once its reservation has *settled*: a `Confirm` call, sent at
//! least `may_lose` after the answer arrived, finds it. Other calls continue in the meantime. The time that measures this must
//! never run ahead of real time. It may stand still while the machine is suspended: the wait is then longer.

mod demand;

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use snowmint_store::{Mark, Segment};

use self::demand::Demand;
use super::Unused;
use super::counters::{Counters, Pick, TO_NOTICE_MS};
use super::high_water_mark::{Forgot, HighWaterMark, Range, Within};
use super::sync::ROOM;

/// The timeout for giving back one segment, in milliseconds.
const GIVE_BACK_TIMEOUT_MS: u64 = 2000;
/// The timeout of a confirmation, and the wait before a retry, in milliseconds.
const CONFIRM_TIMEOUT_MS: u64 = 2000;
const CONFIRM_AGAIN_MS: u64 = 200;
/// How often to check memory while reservations settle, in milliseconds.
const SETTLING_WAIT_MS: u64 = 100;
/// The maximum number of reservations that may settle at a time.
const MAX_SETTLING: usize = 64;

/// The settings of a source of numbers, fixed while it runs.
#[derive(Clone, Debug)]
pub struct SegmentSettings {
    /// The number of counters, at least one.
    pub counters: usize,
    /// The smallest and the largest size of a segment.
    pub sizes: RangeInclusive<u64>,
    /// The size of the first segment, clamped to `sizes`.
    pub first_size: u64,
    /// How long a segment should last, in milliseconds.
    pub target_ms: u64,
    /// The outage of a counter that callers do not notice, in milliseconds; 0 keeps one segment in reserve.
    pub reserve_ms: u64,
    /// How long a reservation takes to settle, in milliseconds; 0 if the store keeps acknowledged writes.
    pub settle_ms: u64,
    /// The numbers that may be handed out.
    pub range: Range,
}

/// A call to a counter; its answer is the next [`Input`]. Counters are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Reserve numbers.
    Reserve {
        /// The counter.
        counter: usize,
        /// The count.
        count: NonZeroU64,
        /// The timeout, in milliseconds.
        timeout_ms: u64,
    },
    /// Check that a reservation is still there, if the store may lose it.
    Confirm {
        /// The counter.
        counter: usize,
        /// The mark of the reservation.
        mark: Mark,
        /// The timeout, in milliseconds.
        timeout_ms: u64,
    },
    /// Raise the counter: all further numbers are greater than this one.
    Raise {
        /// The counter.
        counter: usize,
        /// The number.
        above: u64,
        /// The timeout, in milliseconds.
        timeout_ms: u64,
    },
    /// Give numbers back. Never retry this: a second call could take back numbers that another node has reserved since.
    GiveBack {
        /// The numbers and their counter.
        unused: Unused,
        /// The timeout, in milliseconds.
        timeout_ms: u64,
    },
}

/// Why a call failed. The numbers that it may have reserved are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterFailure {
    /// A retry may succeed.
    Failed,
    /// No answer came in time.
    TimedOut,
    /// The counter has no room for that many numbers; a request for fewer may succeed.
    Full,
}

/// The input of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The first step; or a wait is over, or few numbers are left.
    Wake,
    /// The answer to [`Call::Reserve`].
    Reserved(Result<Segment, CounterFailure>),
    /// The answer to [`Call::Reserve`] of a counter that may lose acknowledged writes.
    ReservedMarked {
        /// The numbers, not to be used before they have settled.
        segment: Segment,
        /// The mark that finds the reservation again.
        mark: Mark,
        /// How long after this answer the reservation must still be there, in milliseconds.
        settle_ms: u64,
    },
    /// The answer to [`Call::Confirm`]: whether the reservation is there.
    Confirmed(Result<bool, CounterFailure>),
    /// The answer to [`Call::Raise`]: whether this counter can be raised at all.
    Raised(Result<bool, CounterFailure>),
    /// The answer to [`Call::GiveBack`]: whether the counter took the numbers back.
    GaveBack(Result<bool, CounterFailure>),
    /// The source was released: give back the unused numbers. Valid at any time, even while a call is in flight.
    Release {
        /// The unused numbers, oldest first.
        unused: Vec<Unused>,
    },
}

/// The state of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The numbers left.
    pub left: u64,
    /// Whether memory has room for another segment.
    pub room: Room,
    /// How many times a caller found no number, since the start.
    pub misses: u64,
    /// The numbers skipped since the start, because greater ones were handed out before: they do not count as demand.
    pub skipped: u64,
    /// The numbers handed out since the start that never were in memory: they count as demand.
    pub bypassed: u64,
}

/// Whether memory has room for another segment, besides the one being reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// There is room.
    #[default]
    Left,
    /// There is no room: it holds too many short segments.
    Full,
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make this call and pass on its answer.
    Call(Call),
    /// Keep waiting for the answer to the previous call.
    Await,
    /// Pass [`Input::Wake`] after this many milliseconds, not earlier.
    Wait(u64),
    /// Pass [`Input::Wake`] when fewer numbers than this are left.
    Idle {
        /// The numbers to keep in memory.
        keep: u64,
    },
    /// Nothing: every number that can be given back was given back.
    Stop,
}

/// A change that the driver applies to memory, status and log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Numbers were reserved: add them to memory.
    Reserved {
        /// The counter that returned them.
        counter: usize,
        /// The numbers.
        segment: Segment,
    },
    /// A counter began to fail. It is skipped for a while, then retried.
    Failing {
        /// The counter.
        counter: usize,
    },
    /// A counter answers again.
    Recovered {
        /// The counter.
        counter: usize,
        /// The number of calls that failed in a row.
        failures: u32,
    },
    /// Nine tenths of the numbers up to the maximum are reserved. Reported once.
    NearlyExhausted {
        /// The greatest number reserved.
        highest: u64,
    },
    /// Every number up to the maximum is reserved, at every counter. Reported once.
    Exhausted,
    /// A counter returned numbers that it had returned before. None of them is used, and the counter is raised next.
    WentBack {
        /// The counter.
        counter: usize,
        /// The numbers it returned.
        segment: Segment,
        /// The greatest number received from it before.
        highest: u64,
        /// Which reservations its store lost.
        forgot: Forgot,
    },
    /// A reservation was not found when it should have settled: the store lost it, or later ones pushed it out of the record.
    /// Its numbers are not used.
    Lost {
        /// The counter.
        counter: usize,
        /// The numbers.
        segment: Segment,
    },
    /// A counter that went back was raised.
    Raised {
        /// The counter.
        counter: usize,
        /// It was raised above this number.
        above: u64,
    },
    /// A counter that went back cannot be raised: it is not used any more.
    Stuck {
        /// The counter.
        counter: usize,
        /// The greatest number received from it.
        highest: u64,
    },
    /// Numbers were given back.
    GivenBack {
        /// The number of numbers.
        count: u64,
    },
}

/// The output of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The changes, in order.
    pub events: Vec<Event>,
    /// What to do next.
    pub next: Next,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    counter: usize,
    count: NonZeroU64,
    at_ms: u64,
    /// The smallest expected number; an answer that begins below it shows that the counter went back.
    least: u64,
}

/// A reservation that its store may still lose.
#[derive(Clone, Copy, Debug)]
struct Settling {
    counter: usize,
    segment: Segment,
    mark: Mark,
    /// When to confirm it, not earlier.
    due_ms: u64,
}

/// Why a counter is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RaiseReason {
    /// It is below the first number that may be handed out.
    BelowFirst,
    /// It returned numbers that it had returned before.
    WentBack,
}

/// A pending raise of a counter above a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    pub(super) above: u64,
    pub(super) reason: RaiseReason,
}

/// What is known about a counter.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The greatest number it returned.
    highest: u64,
    /// The distance from one number to the next; 0 before the first answer.
    step: u64,
    /// How many numbers it is below the first that may be handed out, if it cannot be raised.
    below: u64,
    /// The maximum count to request, because the counter had no room for more.
    most: Option<NonZeroU64>,
    /// The counter has to be raised before the next reservation.
    raise: Option<Raise>,
    /// The counter cannot be raised.
    fixed: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    Reserving(Asked),
    Confirming(Settling),
    Raising { counter: usize, at_ms: u64, raise: Raise },
    GivingBack(Unused),
    Stopped,
}

/// The state machine of one source of numbers; see the module's page.
#[derive(Debug)]
pub struct Protocol {
    range: Range,
    state: State,
    counters: Counters,
    demand: Demand,
    /// How many numbers were ever added to memory.
    put: u64,
    /// One for each counter.
    known: Vec<Known>,
    /// One for each counter.
    high_water_marks: Vec<HighWaterMark>,
    /// Oldest first.
    settling: VecDeque<Settling>,
    /// The unused numbers to give back, oldest first, after a release.
    release: Option<Vec<Unused>>,
    reported_nearly_exhausted: bool,
    reported_exhausted: bool,
    /// A counter went back and cannot be raised.
    stuck: bool,
    events: Vec<Event>,
}

impl Protocol {
    /// Returns a machine without numbers. `seed` only decides which counter is first and how long it waits after failures.
    pub fn new(settings: &SegmentSettings, seed: u64) -> Self {
        let reserve_ms = match settings.reserve_ms {
            0 => 0,
            away_ms => away_ms.saturating_add(TO_NOTICE_MS).saturating_add(settings.settle_ms),
        };
        let demand = Demand::new(settings.sizes.clone(), settings.first_size, settings.target_ms, reserve_ms);
        Self::at(settings.counters, settings.range, demand, seed)
    }

    /// Returns a machine without numbers for other counters, at the demand measured so far. A new period begins like this.
    #[must_use]
    pub fn restart(&self, counters: usize, seed: u64) -> Self {
        let mut demand = self.demand.clone();
        demand.restart();
        Self::at(counters, self.range, demand, seed)
    }

    fn at(counters: usize, range: Range, demand: Demand, seed: u64) -> Self {
        Self {
            range,
            state: State::Idle,
            counters: Counters::new(counters, seed),
            demand,
            put: 0,
            known: vec![Known::default(); counters],
            high_water_marks: (0..counters).map(|_| HighWaterMark::default()).collect(),
            settling: VecDeque::new(),
            release: None,
            reported_nearly_exhausted: false,
            reported_exhausted: false,
            stuck: false,
            events: Vec::new(),
        }
    }

    /// Returns this machine with high-water marks that it shares with others, one for each counter.
    #[must_use]
    pub fn sharing(mut self, high_water_marks: &[HighWaterMark]) -> Self {
        self.high_water_marks.clone_from_slice(high_water_marks);
        self
    }

    /// Takes one step: the time, the state of memory and an input go in, the changes and the next call come out.
    pub fn step(&mut self, now_ms: u64, memory: Memory, input: Input) -> Output {
        let drawn = (self.put + memory.bypassed).saturating_sub(memory.left).saturating_sub(memory.skipped);
        self.demand.observe(now_ms, drawn, memory.misses);
        let mut memory = memory;
        match (std::mem::replace(&mut self.state, State::Idle), input) {
            (State::Stopped, _) => {
                self.state = State::Stopped;
                return self.turn(Next::Stop);
            }
            (State::Reserving(asked), Input::Reserved(Ok(segment))) => {
                memory.left += self.reserved(now_ms, asked, segment, None);
            }
            (State::Reserving(asked), Input::ReservedMarked { segment, mark, settle_ms }) => {
                // Add 1 ms, because instants are cut to whole milliseconds.
                let due_ms = now_ms.saturating_add(settle_ms).saturating_add(1);
                self.reserved(now_ms, asked, segment, Some((mark, due_ms)));
            }
            (State::Reserving(asked), Input::Reserved(Err(failure))) => self.failed(now_ms, asked, failure),
            (State::Confirming(settling), Input::Confirmed(answer)) => {
                memory.left += self.confirmed(now_ms, settling, answer);
            }
            (State::Raising { counter, at_ms, raise }, Input::Raised(answer)) => {
                self.raised(now_ms, counter, now_ms.saturating_sub(at_ms), raise, answer);
            }
            (State::GivingBack(unused), Input::GaveBack(answer)) => self.gave_back(unused, answer),
            (state, Input::Release { unused }) => {
                self.state = state;
                self.release.get_or_insert_default().extend(unused);
            }
            // An answer without a call, or a wake-up during a call, changes nothing.
            (state, _) => self.state = state,
        }
        let next = self.next(now_ms, memory);
        self.turn(next)
    }

    /// Returns the numbers that may be handed out.
    pub const fn range(&self) -> Range {
        self.range
    }

    /// Returns the size of the next segment.
    pub fn size(&self) -> u64 {
        self.demand.size()
    }

    /// Returns the greatest number reserved so far; 0 before the first.
    pub fn highest(&self) -> u64 {
        self.known.iter().map(|known| known.highest).max().unwrap_or(0)
    }

    /// Returns the measured demand, in numbers a second.
    pub fn demand_per_second(&self) -> u64 {
        self.demand.per_second()
    }

    /// Returns how long these numbers last at the measured demand, in milliseconds; `None` without demand.
    pub fn lasts_ms(&self, left: u64) -> Option<u64> {
        self.demand.lasts_ms(left)
    }

    /// Returns the number of counters that are skipped because their last call failed.
    pub fn failing(&self) -> usize {
        self.counters.failing()
    }

    fn turn(&mut self, next: Next) -> Output {
        Output { events: std::mem::take(&mut self.events), next }
    }

    fn next(&mut self, now_ms: u64, memory: Memory) -> Next {
        match self.state {
            State::Idle => {}
            State::Reserving(_) | State::Confirming(_) | State::Raising { .. } | State::GivingBack(_) => {
                return Next::Await;
            }
            State::Stopped => return Next::Stop,
        }
        if let Some(unused) = &mut self.release {
            let marks = &self.high_water_marks;
            unused.retain(|it| marks[it.counter].may_give_back(it.segment));
            let newest = unused.pop();
            return self.give_back(newest);
        }
        let keep = self.demand.keep();
        if memory.room == Room::Full && (memory.left < keep || !self.settling.is_empty()) {
            // There is room again once about one segment is drawn.
            return Next::Idle { keep: memory.left - memory.left / ROOM };
        }
        if let Some(settling) = self.take_due(now_ms) {
            self.state = State::Confirming(settling);
            let Settling { counter, mark, .. } = settling;
            return Next::Call(Call::Confirm { counter, mark, timeout_ms: CONFIRM_TIMEOUT_MS });
        }
        let coming: u64 = self.settling.iter().map(|it| it.segment.count().get()).sum();
        let left = memory.left.saturating_add(coming);
        if left >= keep || self.settling.len() >= MAX_SETTLING {
            return self.wait_for_settling(now_ms, None).unwrap_or(Next::Idle { keep });
        }
        match self.counters.pick(now_ms) {
            Pick::Ask { counter, timeout_ms } => match self.known[counter].raise {
                Some(raise) => {
                    self.state = State::Raising { counter, at_ms: now_ms, raise };
                    Next::Call(Call::Raise { counter, above: raise.above, timeout_ms })
                }
                None => self.reserve(now_ms, counter, timeout_ms, left),
            },
            Pick::Wait(ms) => self.wait_for_settling(now_ms, Some(ms)).unwrap_or(Next::Wait(ms)),
            Pick::Exhausted => {
                if let Some(wait) = self.wait_for_settling(now_ms, None) {
                    return wait;
                }
                if !self.stuck && !std::mem::replace(&mut self.reported_exhausted, true) {
                    self.events.push(Event::Exhausted);
                }
                Next::Idle { keep: 0 }
            }
        }
    }

    /// Waits until the next reservation can be confirmed, but only briefly: callers keep drawing from memory in the meantime.
    fn wait_for_settling(&self, now_ms: u64, most_ms: Option<u64>) -> Option<Next> {
        let due_ms = self.settling.iter().map(|it| it.due_ms).min()?;
        let wait_ms = due_ms.saturating_sub(now_ms).min(SETTLING_WAIT_MS).min(most_ms.unwrap_or(u64::MAX));
        Some(Next::Wait(wait_ms.max(1)))
    }

    /// Takes a reservation that can be confirmed: the oldest one of its counter, so that numbers increase.
    fn take_due(&mut self, now_ms: u64) -> Option<Settling> {
        let is_first = |at: &usize| {
            let counter = self.settling[*at].counter;
            self.settling.iter().position(|it| it.counter == counter) == Some(*at)
        };
        let due = (0..self.settling.len()).filter(is_first).find(|at| self.settling[*at].due_ms <= now_ms)?;
        self.settling.remove(due)
    }

    fn reserve(&mut self, now_ms: u64, counter: usize, timeout_ms: u64, left: u64) -> Next {
        let known = self.known[counter];
        let wanted = self.demand.wanted(left).saturating_add(known.below).min(self.demand.largest());
        // Near the maximum, request no more than remains, so that a counter does not run far beyond it.
        let room = self.range.maximum.saturating_sub(known.highest).max(1);
        let most = known.most.map_or(u64::MAX, NonZeroU64::get);
        let count = NonZeroU64::new(wanted.min(room).min(most)).unwrap_or(NonZeroU64::MIN);
        let least = self.high_water_marks[counter].end();
        self.state = State::Reserving(Asked { counter, count, at_ms: now_ms, least });
        Next::Call(Call::Reserve { counter, count, timeout_ms })
    }

    /// Handles a reservation; returns how many of its numbers may be used now.
    fn reserved(&mut self, now_ms: u64, asked: Asked, segment: Segment, settle: Option<(Mark, u64)>) -> u64 {
        let counter = asked.counter;
        self.succeeded(counter, now_ms.saturating_sub(asked.at_ms));
        if let Some(forgot) = self.high_water_marks[counter].forgot(segment, asked.least) {
            self.went_back(counter, segment, asked.least - 1, forgot);
            return 0;
        }
        self.high_water_marks[counter].received(segment);
        if settle.is_none() {
            self.high_water_marks[counter].settled(segment);
        }
        let known = &mut self.known[counter];
        known.highest = known.highest.max(segment.last().min(self.range.maximum));
        (known.step, known.below, known.most) = (segment.step().get(), 0, None);
        self.report_nearly_exhausted();
        match (self.range.cut(segment), settle) {
            (Within::Some(segment), None) if self.release.is_none() => return self.put(counter, segment),
            // The source was released, so nobody can draw.
            (Within::Some(segment), None) => {
                self.release.get_or_insert_default().push(Unused { counter, segment });
            }
            (Within::Some(segment), Some((mark, due_ms))) => {
                self.settling.push_back(Settling { counter, segment, mark, due_ms });
            }
            (Within::Below { missing }, _) => self.is_below(counter, missing),
            (Within::Above, _) => self.counters.exhausted(counter),
        }
        0
    }

    fn put(&mut self, counter: usize, segment: Segment) -> u64 {
        let count = segment.count().get();
        self.put += count;
        self.events.push(Event::Reserved { counter, segment });
        count
    }

    fn succeeded(&mut self, counter: usize, took_ms: u64) {
        let failures = self.counters.succeeded(counter, took_ms);
        if failures > 0 {
            self.events.push(Event::Recovered { counter, failures });
        }
    }

    /// The numbers are not given back either: they may be in use elsewhere.
    fn went_back(&mut self, counter: usize, segment: Segment, highest: u64, forgot: Forgot) {
        self.events.push(Event::WentBack { counter, segment, highest, forgot });
        self.known[counter].raise = Some(self.above_all(counter));
    }

    fn above_all(&self, counter: usize) -> Raise {
        Raise { above: self.high_water_marks[counter].highest(), reason: RaiseReason::WentBack }
    }

    /// Raises the counter to the first number. If each node added the missing count instead, the counter would run too far.
    fn is_below(&mut self, counter: usize, missing: u64) {
        let known = &mut self.known[counter];
        if known.fixed {
            known.below = missing;
        } else {
            known.raise =
                Some(Raise { above: self.range.first.saturating_sub(1), reason: RaiseReason::BelowFirst });
        }
    }

    /// Handles a confirmation; returns how many numbers have settled.
    fn confirmed(&mut self, now_ms: u64, settling: Settling, answer: Result<bool, CounterFailure>) -> u64 {
        let Settling { counter, segment, .. } = settling;
        match answer {
            Ok(true) if self.release.is_none() => {
                self.high_water_marks[counter].settled(segment);
                return self.put(counter, segment);
            }
            // The source was released, and other nodes see the numbers as taken.
            Ok(true) => {}
            Ok(false) => {
                // The next reservation shows how far the counter went back.
                self.events.push(Event::Lost { counter, segment });
            }
            Err(_) => {
                let due_ms = now_ms.saturating_add(CONFIRM_AGAIN_MS);
                self.settling.push_front(Settling { due_ms, ..settling });
            }
        }
        0
    }

    fn raised(
        &mut self,
        now_ms: u64,
        counter: usize,
        took_ms: u64,
        raise: Raise,
        answer: Result<bool, CounterFailure>,
    ) {
        match answer {
            Ok(can) => {
                self.succeeded(counter, took_ms);
                self.known[counter].raise = None;
                match (can, raise.reason) {
                    (true, RaiseReason::BelowFirst) => {}
                    (false, RaiseReason::BelowFirst) => self.known[counter].fixed = true,
                    (true, RaiseReason::WentBack) => {
                        self.events.push(Event::Raised { counter, above: raise.above });
                    }
                    (false, RaiseReason::WentBack) => {
                        self.stuck = true;
                        self.counters.exhausted(counter);
                        self.events.push(Event::Stuck { counter, highest: raise.above });
                    }
                }
            }
            Err(failure) => {
                if failure == CounterFailure::TimedOut {
                    self.counters.timed_out(counter);
                }
                if self.counters.failed(counter, now_ms) {
                    self.events.push(Event::Failing { counter });
                }
            }
        }
    }

    fn failed(&mut self, now_ms: u64, asked: Asked, failure: CounterFailure) {
        match failure {
            CounterFailure::Full if asked.count > NonZeroU64::MIN => {
                // There may be room for fewer: the last numbers are worth a few more calls.
                self.known[asked.counter].most = NonZeroU64::new(asked.count.get() / 2);
                return;
            }
            CounterFailure::Full if self.is_at_its_end(asked.counter) => {
                self.counters.exhausted(asked.counter);
                return;
            }
            CounterFailure::TimedOut => self.counters.timed_out(asked.counter),
            CounterFailure::Full | CounterFailure::Failed => {}
        }
        if self.counters.failed(asked.counter, now_ms) {
            self.events.push(Event::Failing { counter: asked.counter });
        }
    }

    /// Returns whether the next number of a counter would exceed the maximum. A store can be full for other reasons.
    fn is_at_its_end(&self, counter: usize) -> bool {
        let Known { highest, step, .. } = self.known[counter];
        step > 0 && highest.saturating_add(step) > self.range.maximum
    }

    fn report_nearly_exhausted(&mut self) {
        let highest = self.highest();
        if self.range.is_nearly_exhausted(highest)
            && !std::mem::replace(&mut self.reported_nearly_exhausted, true)
        {
            self.events.push(Event::NearlyExhausted { highest });
        }
    }

    fn give_back(&mut self, newest: Option<Unused>) -> Next {
        let Some(unused) = newest else {
            self.state = State::Stopped;
            return Next::Stop;
        };
        self.high_water_marks[unused.counter].giving_back(unused.segment);
        self.state = State::GivingBack(unused);
        Next::Call(Call::GiveBack { unused, timeout_ms: GIVE_BACK_TIMEOUT_MS })
    }

    /// Never gives these numbers back again, whatever the answer: another node may have reserved them in the meantime.
    fn gave_back(&mut self, unused: Unused, answer: Result<bool, CounterFailure>) {
        if answer == Ok(true) {
            self.events.push(Event::GivenBack { count: unused.segment.count().get() });
            return;
        }
        if answer == Ok(false) {
            self.high_water_marks[unused.counter].received(unused.segment);
        }
        if let Some(older) = &mut self.release {
            // Another node reserved after these, so also after the older ones of this counter.
            older.retain(|older| older.counter != unused.counter);
        }
    }
}

#[cfg(test)]
mod tests;
