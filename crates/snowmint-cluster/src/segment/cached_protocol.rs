//! The segment protocol as a pure state machine: the time, the state of memory and a counter's answer go in,
//! the next call comes out. It does no I/O and has no clock, so the driver and the simulation run the same
//! code.
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
//! A number is used only after the counter has confirmed its reservation. If the answer to a call is lost,
//! the numbers that the call may have reserved are never used.
//!
//! If a store may lose acknowledged writes, a number is used only once its reservation has *settled*: a
//! `Confirm` call, sent at least `may_lose` after the answer arrived, finds it. Other calls continue in the
//! meantime. The time that measures this must never run ahead of real time. It may stand still while the
//! machine is suspended: the wait is then longer.

mod demand;

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use snowmint_store::{Mark, Segment};

use self::demand::NumberDemand;
use super::Unused;
use super::counters::{CounterRotation, Pick, TO_NOTICE_MS};
use super::high_water_mark::{HighWaterMark, NumberRange, Within};
use super::known_counter::{AskedNumbers, KnownCounter};
pub use super::known_counter::{CounterEvent, CounterFailure};
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
    pub range: NumberRange,
}

/// A call to a counter; its answer is the next [`SegmentInput`]. Counters are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterCall {
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
    /// Give numbers back. Never retry this: a second call could take back numbers that another node has
    /// reserved since.
    GiveBack {
        /// The numbers and their counter.
        unused: Unused,
        /// The timeout, in milliseconds.
        timeout_ms: u64,
    },
}

/// The input of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentInput {
    /// The first step; or a wait is over, or few numbers are left.
    Wake,
    /// The answer to [`CounterCall::Reserve`].
    Reserved(Result<Segment, CounterFailure>),
    /// The answer to [`CounterCall::Reserve`] of a counter that may lose acknowledged writes.
    ReservedMarked {
        /// The numbers, not to be used before they have settled.
        segment: Segment,
        /// The mark that finds the reservation again.
        mark: Mark,
        /// How long after this answer the reservation must still be there, in milliseconds.
        settle_ms: u64,
    },
    /// The answer to [`CounterCall::Confirm`]: whether the reservation is there.
    Confirmed(Result<bool, CounterFailure>),
    /// The answer to [`CounterCall::Raise`]: whether this counter can be raised at all.
    Raised(Result<bool, CounterFailure>),
    /// The answer to [`CounterCall::GiveBack`]: whether the counter took the numbers back.
    GaveBack(Result<bool, CounterFailure>),
    /// The source was released: give back the unused numbers. Valid at any time, even while a call is in
    /// flight.
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
    pub room: MemoryRoom,
    /// How many times a caller found no number, since the start.
    pub misses: u64,
    /// The numbers skipped since the start, because greater ones were handed out before: they do not count as
    /// demand.
    pub skipped: u64,
    /// The numbers handed out since the start that never were in memory: they count as demand.
    pub bypassed: u64,
}

/// Whether memory has room for another segment, besides the one being reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryRoom {
    /// There is room.
    #[default]
    Left,
    /// There is no room: it holds too many short segments.
    Full,
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentNext {
    /// Make this call and pass on its answer.
    Call(CounterCall),
    /// Keep waiting for the answer to the previous call.
    Await,
    /// Pass [`SegmentInput::Wake`] after this many milliseconds, not earlier.
    Wait(u64),
    /// Pass [`SegmentInput::Wake`] when fewer numbers than this are left.
    Idle {
        /// The numbers to keep in memory.
        keep: u64,
    },
    /// Nothing: every number that can be given back was given back.
    Stop,
}

/// The output of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentTurn {
    /// The changes, in order.
    pub events: Vec<CounterEvent>,
    /// What to do next.
    pub next: SegmentNext,
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

#[derive(Clone, Copy, Debug)]
enum RefillState {
    Idle,
    Reserving(AskedNumbers),
    Confirming(Settling),
    Raising { counter: usize, at_ms: u64 },
    GivingBack(Unused),
    Stopped,
}

/// The state machine of one source of numbers; see the module's page.
#[derive(Debug)]
pub struct SegmentProtocol {
    range: NumberRange,
    state: RefillState,
    counters: CounterRotation,
    demand: NumberDemand,
    /// How many numbers were ever added to memory.
    put: u64,
    /// One for each counter.
    known: Vec<KnownCounter>,
    /// Oldest first.
    settling: VecDeque<Settling>,
    /// The unused numbers to give back, oldest first, after a release.
    release: Option<Vec<Unused>>,
    reported_nearly_exhausted: bool,
    reported_exhausted: bool,
    /// A counter went back and cannot be raised.
    stuck: bool,
    events: Vec<CounterEvent>,
}

impl SegmentProtocol {
    /// Returns a machine without numbers. `seed` only decides which counter is first and how long it waits
    /// after failures.
    pub fn new(settings: &SegmentSettings, seed: u64) -> Self {
        let reserve_ms = match settings.reserve_ms {
            0 => 0,
            away_ms => away_ms.saturating_add(TO_NOTICE_MS).saturating_add(settings.settle_ms),
        };
        let demand =
            NumberDemand::new(settings.sizes.clone(), settings.first_size, settings.target_ms, reserve_ms);
        Self::at(settings.counters, settings.range, demand, seed)
    }

    /// Returns a machine without numbers for other counters, at the demand measured so far. A new period
    /// begins like this.
    #[must_use]
    pub fn restart(&self, counters: usize, seed: u64) -> Self {
        let mut demand = self.demand.clone();
        demand.restart();
        Self::at(counters, self.range, demand, seed)
    }

    fn at(counters: usize, range: NumberRange, demand: NumberDemand, seed: u64) -> Self {
        Self {
            range,
            state: RefillState::Idle,
            counters: CounterRotation::new(counters, seed),
            demand,
            put: 0,
            known: (0..counters).map(KnownCounter::new).collect(),
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
        assert_eq!(self.known.len(), high_water_marks.len(), "a mark for each counter");
        for (known, shared) in self.known.iter_mut().zip(high_water_marks) {
            known.high_water_mark = shared.clone();
        }
        self
    }

    /// Takes one step: the time, the state of memory and an input go in, the changes and the next call come
    /// out.
    pub fn step(&mut self, now_ms: u64, memory: Memory, input: SegmentInput) -> SegmentTurn {
        let drawn = (self.put + memory.bypassed).saturating_sub(memory.left).saturating_sub(memory.skipped);
        self.demand.observe(now_ms, drawn, memory.misses);
        let mut memory = memory;
        match (std::mem::replace(&mut self.state, RefillState::Idle), input) {
            (RefillState::Stopped, _) => {
                self.state = RefillState::Stopped;
                return self.turn(SegmentNext::Stop);
            }
            (RefillState::Reserving(asked), SegmentInput::Reserved(Ok(segment))) => {
                memory.left += self.reserved(now_ms, asked, segment, None);
            }
            (RefillState::Reserving(asked), SegmentInput::ReservedMarked { segment, mark, settle_ms }) => {
                // Add 1 ms, because instants are cut to whole milliseconds.
                let due_ms = now_ms.saturating_add(settle_ms).saturating_add(1);
                self.reserved(now_ms, asked, segment, Some((mark, due_ms)));
            }
            (RefillState::Reserving(asked), SegmentInput::Reserved(Err(failure))) => {
                self.failed(now_ms, asked, failure);
            }
            (RefillState::Confirming(settling), SegmentInput::Confirmed(answer)) => {
                memory.left += self.confirmed(now_ms, settling, answer);
            }
            (RefillState::Raising { counter, at_ms }, SegmentInput::Raised(answer)) => {
                self.raised(now_ms, counter, now_ms.saturating_sub(at_ms), answer);
            }
            (RefillState::GivingBack(unused), SegmentInput::GaveBack(answer)) => {
                self.gave_back(unused, answer);
            }
            (state, SegmentInput::Release { unused }) => {
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
    pub const fn range(&self) -> NumberRange {
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

    fn turn(&mut self, next: SegmentNext) -> SegmentTurn {
        SegmentTurn { events: std::mem::take(&mut self.events), next }
    }

    fn next(&mut self, now_ms: u64, memory: Memory) -> SegmentNext {
        match self.state {
            RefillState::Idle => {}
            RefillState::Reserving(_)
            | RefillState::Confirming(_)
            | RefillState::Raising { .. }
            | RefillState::GivingBack(_) => {
                return SegmentNext::Await;
            }
            RefillState::Stopped => return SegmentNext::Stop,
        }
        if let Some(unused) = &mut self.release {
            let known = &self.known;
            unused.retain(|it| known[it.counter].high_water_mark.may_give_back(it.segment));
            let newest = unused.pop();
            return self.give_back(newest);
        }
        let keep = self.demand.keep();
        if memory.room == MemoryRoom::Full && (memory.left < keep || !self.settling.is_empty()) {
            // There is room again once about one segment is drawn.
            return SegmentNext::Idle { keep: memory.left - memory.left / ROOM };
        }
        if let Some(settling) = self.take_due(now_ms) {
            self.state = RefillState::Confirming(settling);
            let Settling { counter, mark, .. } = settling;
            return SegmentNext::Call(CounterCall::Confirm { counter, mark, timeout_ms: CONFIRM_TIMEOUT_MS });
        }
        let coming: u64 = self.settling.iter().map(|it| it.segment.count().get()).sum();
        let left = memory.left.saturating_add(coming);
        if left >= keep || self.settling.len() >= MAX_SETTLING {
            return self.wait_for_settling(now_ms, None).unwrap_or(SegmentNext::Idle { keep });
        }
        match self.counters.pick(now_ms) {
            Pick::Ask { counter, timeout_ms } => match self.known[counter].raise {
                Some(raise) => {
                    self.state = RefillState::Raising { counter, at_ms: now_ms };
                    SegmentNext::Call(CounterCall::Raise { counter, above: raise.above, timeout_ms })
                }
                None => self.reserve(now_ms, counter, timeout_ms, left),
            },
            Pick::Wait(ms) => self.wait_for_settling(now_ms, Some(ms)).unwrap_or(SegmentNext::Wait(ms)),
            Pick::Exhausted => {
                if let Some(wait) = self.wait_for_settling(now_ms, None) {
                    return wait;
                }
                if !self.stuck && !std::mem::replace(&mut self.reported_exhausted, true) {
                    self.events.push(CounterEvent::Exhausted);
                }
                SegmentNext::Idle { keep: 0 }
            }
        }
    }

    /// Waits until the next reservation can be confirmed, but only briefly: callers keep drawing from memory
    /// in the meantime.
    fn wait_for_settling(&self, now_ms: u64, most_ms: Option<u64>) -> Option<SegmentNext> {
        let due_ms = self.settling.iter().map(|it| it.due_ms).min()?;
        let wait_ms = due_ms.saturating_sub(now_ms).min(SETTLING_WAIT_MS).min(most_ms.unwrap_or(u64::MAX));
        Some(SegmentNext::Wait(wait_ms.max(1)))
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

    fn reserve(&mut self, now_ms: u64, counter: usize, timeout_ms: u64, left: u64) -> SegmentNext {
        let known = &self.known[counter];
        let wanted = self.demand.wanted(left).saturating_add(known.below).min(self.demand.largest());
        // Near the maximum, request no more than remains, so that a counter does not run far beyond it.
        let room = self.range.maximum.saturating_sub(known.highest).max(1);
        let most = known.most.map_or(u64::MAX, NonZeroU64::get);
        let count = NonZeroU64::new(wanted.min(room).min(most)).unwrap_or(NonZeroU64::MIN);
        self.state = RefillState::Reserving(known.ask(count, now_ms));
        SegmentNext::Call(CounterCall::Reserve { counter, count, timeout_ms })
    }

    /// Handles a reservation; returns how many of its numbers may be used now.
    fn reserved(
        &mut self,
        now_ms: u64,
        asked: AskedNumbers,
        segment: Segment,
        settle: Option<(Mark, u64)>,
    ) -> u64 {
        let counter = asked.counter;
        self.succeeded(counter, now_ms.saturating_sub(asked.at_ms));
        let within = match self.known[counter].received(asked, segment, self.range) {
            Ok(within) => within,
            Err(went_back) => {
                self.events.push(went_back);
                return 0;
            }
        };
        if settle.is_none() {
            self.known[counter].high_water_mark.settled(segment);
        }
        self.report_nearly_exhausted();
        match (within, settle) {
            (Within::Some(segment), None) if self.release.is_none() => return self.put(counter, segment),
            // The source was released, so nobody can draw.
            (Within::Some(segment), None) => {
                self.release.get_or_insert_default().push(Unused { counter, segment });
            }
            (Within::Some(segment), Some((mark, due_ms))) => {
                self.settling.push_back(Settling { counter, segment, mark, due_ms });
            }
            (Within::Below { .. }, _) => {}
            (Within::Above, _) => self.counters.exhausted(counter),
        }
        0
    }

    fn put(&mut self, counter: usize, segment: Segment) -> u64 {
        let count = segment.count().get();
        self.put += count;
        self.events.push(CounterEvent::Reserved { counter, segment });
        count
    }

    fn succeeded(&mut self, counter: usize, took_ms: u64) {
        self.events.extend(self.counters.call_succeeded(counter, took_ms));
    }

    /// Handles a confirmation; returns how many numbers have settled.
    fn confirmed(&mut self, now_ms: u64, settling: Settling, answer: Result<bool, CounterFailure>) -> u64 {
        let Settling { counter, segment, .. } = settling;
        match answer {
            Ok(true) if self.release.is_none() => {
                self.known[counter].high_water_mark.settled(segment);
                return self.put(counter, segment);
            }
            // The source was released, and other nodes see the numbers as taken.
            Ok(true) => {}
            Ok(false) => {
                // The next reservation shows how far the counter went back.
                self.events.push(CounterEvent::Lost { counter, segment });
            }
            Err(_) => {
                let due_ms = now_ms.saturating_add(CONFIRM_AGAIN_MS);
                self.settling.push_front(Settling { due_ms, ..settling });
            }
        }
        0
    }

    fn raised(&mut self, now_ms: u64, counter: usize, took_ms: u64, answer: Result<bool, CounterFailure>) {
        let can = match answer {
            Ok(can) => can,
            Err(failure) => {
                self.events.extend(self.counters.call_failed(counter, now_ms, failure));
                return;
            }
        };
        self.succeeded(counter, took_ms);
        let event = self.known[counter].raised(can);
        if matches!(event, Some(CounterEvent::Stuck { .. })) {
            self.stuck = true;
            self.counters.exhausted(counter);
        }
        self.events.extend(event);
    }

    fn failed(&mut self, now_ms: u64, asked: AskedNumbers, failure: CounterFailure) {
        match failure {
            CounterFailure::Full if asked.count > NonZeroU64::MIN => {
                // There may be room for fewer: the last numbers are worth a few more calls.
                self.known[asked.counter].most = NonZeroU64::new(asked.count.get() / 2);
            }
            CounterFailure::Full if self.is_at_its_end(asked.counter) => {
                self.counters.exhausted(asked.counter);
            }
            failure => self.events.extend(self.counters.call_failed(asked.counter, now_ms, failure)),
        }
    }

    /// Returns whether the next number of a counter would exceed the maximum. A store can be full for other
    /// reasons.
    fn is_at_its_end(&self, counter: usize) -> bool {
        let KnownCounter { highest, step, .. } = &self.known[counter];
        step.is_some_and(|step| highest.saturating_add(step.get()) > self.range.maximum)
    }

    fn report_nearly_exhausted(&mut self) {
        let highest = self.highest();
        if self.range.is_nearly_exhausted(highest)
            && !std::mem::replace(&mut self.reported_nearly_exhausted, true)
        {
            self.events.push(CounterEvent::NearlyExhausted { highest });
        }
    }

    fn give_back(&mut self, newest: Option<Unused>) -> SegmentNext {
        let Some(unused) = newest else {
            self.state = RefillState::Stopped;
            return SegmentNext::Stop;
        };
        self.known[unused.counter].high_water_mark.giving_back(unused.segment);
        self.state = RefillState::GivingBack(unused);
        SegmentNext::Call(CounterCall::GiveBack { unused, timeout_ms: GIVE_BACK_TIMEOUT_MS })
    }

    /// Never gives these numbers back again, whatever the answer: another node may have reserved them in the
    /// meantime.
    fn gave_back(&mut self, unused: Unused, answer: Result<bool, CounterFailure>) {
        if answer == Ok(true) {
            self.events.push(CounterEvent::GivenBack { count: unused.segment.count().get() });
            return;
        }
        if answer == Ok(false) {
            self.known[unused.counter].high_water_mark.received(unused.segment);
        }
        if let Some(older) = &mut self.release {
            // Another node reserved after these, so also after the older ones of this counter.
            older.retain(|older| older.counter != unused.counter);
        }
    }
}

#[cfg(test)]
mod tests;
