//! The segment protocol as a pure state machine: (time, what is in memory, what a counter answered) in, the next call
//! out. No I/O, no time of its own: the driver and the simulation drive the same code.
//!
//! ```text
//!         few numbers left            numbers: put them in line, look again
//!  Idle ───────────────────▶ Reserve ──────────────────────────────────────▶ Idle
//!    │                        │   ▲ │ below the first number, or below what
//!    │                 failed │   │ │ was received before: none is used
//!    │                        ▼   │ ▼
//!    │ release               Wait ┴ Raise
//!    └──────────▶ GiveBack, newest first, each once ──────────▶ Stop
//! ```
//!
//! A number is used only after the counter said that it is reserved. A call whose answer is lost costs the numbers it
//! may have reserved: they are nobody's.
//!
//! Where a store may lose what it acknowledged, a number is used only once its reservation has *settled*: `Confirm`,
//! sent at least that long after the answer arrived, finds it. Other calls go on meanwhile. The time has to be one that
//! never runs ahead of real time: one that stands still while the machine sleeps only makes the wait longer.

mod answer;
mod counters;
mod demand;

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use snowmint_store::{Mark, Segment};

pub use answer::{Forgot, HighWaterMark, Range};

pub(super) use answer::Within;
pub(super) use counters::{Counters, Pick};

use super::Unused;
use super::sync::ROOM;
use counters::TO_NOTICE_MS;
use demand::Demand;

/// How long giving back may take, in milliseconds, for each segment.
const GIVE_BACK_TIMEOUT_MS: u64 = 2000;
/// How long the look at a reservation may take, in milliseconds, and how soon it is tried again.
const CONFIRM_TIMEOUT_MS: u64 = 2000;
const CONFIRM_AGAIN_MS: u64 = 200;
/// How soon to look again at the numbers in memory while others settle, in milliseconds.
const SETTLING_WAIT_MS: u64 = 100;
/// How many reservations may settle at a time.
const MAX_SETTLING: usize = 64;

/// What a source of numbers asks for, fixed while it runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many counters there are, at least one.
    pub counters: usize,
    /// The smallest and the largest size of a segment.
    pub sizes: RangeInclusive<u64>,
    /// The size of the first segment, where it lies between them.
    pub first_size: u64,
    /// How long a segment should last, in milliseconds.
    pub target_ms: u64,
    /// How long a counter may be away with no effect, in milliseconds; 0 for no more than a segment in reserve.
    pub reserve_ms: u64,
    /// How long a reservation takes to settle, in milliseconds; 0 where the store keeps what it acknowledged.
    pub settle_ms: u64,
    /// The numbers that may be handed out.
    pub range: Range,
}

/// One call to a counter; its answer is the next [`Input`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Reserve numbers.
    Reserve {
        /// At which counter, from 0.
        counter: usize,
        /// How many.
        count: NonZeroU64,
        /// After how many milliseconds to give up.
        timeout_ms: u64,
    },
    /// Look whether a reservation is still there, for a store that may lose it.
    Confirm {
        /// At which counter.
        counter: usize,
        /// The mark of the reservation.
        mark: Mark,
        /// After how many milliseconds to give up.
        timeout_ms: u64,
    },
    /// Make every number to come greater than this one.
    Raise {
        /// Which counter.
        counter: usize,
        /// The number.
        above: u64,
        /// After how many milliseconds to give up.
        timeout_ms: u64,
    },
    /// Give numbers back. The answer that it is unknown is final too: asked again, it could take back numbers that
    /// somebody else has by then.
    GiveBack {
        /// The numbers and their counter.
        unused: Unused,
        /// After how many milliseconds to give up.
        timeout_ms: u64,
    },
}

/// How a call failed. Numbers that it may have reserved are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may go better next time.
    Failed,
    /// No answer came in time.
    TimedOut,
    /// The counter cannot give so many: fewer may do.
    Full,
}

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The wait is over, it begins, or few numbers are left.
    Wake,
    /// The answer to [`Call::Reserve`].
    Reserved(Result<Segment, Failure>),
    /// The answer to [`Call::Reserve`] of a counter that may lose what it acknowledged.
    ReservedMarked {
        /// The numbers, not to be used before they have settled.
        segment: Segment,
        /// What finds the reservation again.
        mark: Mark,
        /// How long after this answer the reservation has to be there still, in milliseconds.
        settle_ms: u64,
    },
    /// The answer to [`Call::Confirm`]: whether the reservation is there.
    Confirmed(Result<bool, Failure>),
    /// The answer to [`Call::Raise`]: whether the counter can be raised.
    Raised(Result<bool, Failure>),
    /// The answer to [`Call::GiveBack`]: whether the numbers were taken back.
    GaveBack(Result<bool, Failure>),
    /// The line was ended: give back what nobody drew. At any time, also while an answer is awaited.
    Release {
        /// What nobody drew, oldest first.
        unused: Vec<Unused>,
    },
}

/// What is in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// How many numbers are left.
    pub left: u64,
    /// Whether another segment could be put in line.
    pub room: Room,
    /// How many times there was none when one was asked for, since the start.
    pub misses: u64,
    /// How many were left out since the start, as greater ones were handed out before them: they are no demand.
    pub skipped: u64,
    /// How many were handed out since the start that never were in memory: they are.
    pub bypassed: u64,
}

/// Whether another segment could be put in line, besides one whose numbers are on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// It could.
    #[default]
    Left,
    /// It could not: too many short ones are there.
    Full,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make this call and give its answer.
    Call(Call),
    /// Go on waiting for the answer to the call before.
    Await,
    /// Give [`Input::Wake`] after this many milliseconds, not before.
    Wait(u64),
    /// Give [`Input::Wake`] when fewer numbers than this are left.
    Idle {
        /// How many are to be kept.
        keep: u64,
    },
    /// Nothing: all is given back that could be.
    Stop,
}

/// What has changed for whoever hands numbers out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Numbers were reserved: put them at the end of the line.
    Reserved {
        /// The counter they are from.
        counter: usize,
        /// The numbers.
        segment: Segment,
    },
    /// A counter's call failed after one that did not. It is left out for a while, and asked again.
    Failing {
        /// The counter.
        counter: usize,
    },
    /// A counter's call succeeded after one that did not.
    Recovered {
        /// The counter.
        counter: usize,
        /// How many calls failed.
        failures: u32,
    },
    /// Nine tenths of the numbers up to the maximum are reserved. Told once.
    NearlyExhausted {
        /// The greatest number reserved.
        highest: u64,
    },
    /// Every number up to the maximum is reserved, at every counter. Told once.
    Exhausted,
    /// A counter gave numbers that it had given before: none of them is used, and the counter is to be raised.
    WentBack {
        /// The counter.
        counter: usize,
        /// What it gave.
        segment: Segment,
        /// The greatest number received from it before.
        highest: u64,
        /// What it forgot.
        forgot: Forgot,
    },
    /// A reservation was not found once it should have settled: the store lost it, or others had pushed it out of the record
    /// by then. Its numbers are not used.
    Lost {
        /// The counter.
        counter: usize,
        /// The numbers.
        segment: Segment,
    },
    /// A counter that had gone back was raised.
    Raised {
        /// The counter.
        counter: usize,
        /// Above this number.
        above: u64,
    },
    /// A counter that went back cannot be raised: it is not asked again.
    Stuck {
        /// The counter.
        counter: usize,
        /// The greatest number received from it.
        highest: u64,
    },
    /// Numbers were given back.
    GivenBack {
        /// How many.
        count: u64,
    },
}

/// What one step of the machine comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// What changed, in order.
    pub events: Vec<Event>,
    /// What to do next.
    pub next: Next,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    counter: usize,
    count: NonZeroU64,
    at_ms: u64,
    /// The answer may not begin below this number.
    least: u64,
}

/// A reservation that a store may still lose.
#[derive(Clone, Copy, Debug)]
struct Settling {
    counter: usize,
    segment: Segment,
    mark: Mark,
    /// When to look whether it is there, not before.
    due_ms: u64,
}

/// Why a counter is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RaiseReason {
    /// It is below the first number that may be handed out.
    BelowFirst,
    /// It gave numbers that it had given before.
    WentBack,
}

/// A counter is raised above this number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    pub(super) above: u64,
    pub(super) reason: RaiseReason,
}

/// What is known of a counter's numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The greatest that it has given.
    highest: u64,
    /// From one to the next; 0 before the first.
    step: u64,
    /// How many are missing to the first that may be handed out.
    below: u64,
    /// How many to ask for at most, since there was no room for more.
    most: Option<NonZeroU64>,
    /// It is to be raised before it is asked again.
    raise: Option<Raise>,
    /// It cannot be raised.
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
    /// How many numbers were put in line, ever.
    put: u64,
    /// By counter.
    known: Vec<Known>,
    /// By counter.
    high_water_marks: Vec<HighWaterMark>,
    /// Oldest first.
    settling: VecDeque<Settling>,
    /// What nobody drew, oldest first, once it is to be given back.
    release: Option<Vec<Unused>>,
    reported_nearly_exhausted: bool,
    reported_exhausted: bool,
    /// A counter went back and cannot be raised.
    stuck: bool,
    events: Vec<Event>,
}

impl Protocol {
    /// A machine that has no numbers yet; `seed` decides how long it waits after failures, and nothing that matters.
    pub fn new(settings: &Settings, seed: u64) -> Self {
        let reserve_ms = match settings.reserve_ms {
            0 => 0,
            away_ms => away_ms.saturating_add(TO_NOTICE_MS).saturating_add(settings.settle_ms),
        };
        let demand = Demand::new(settings.sizes.clone(), settings.first_size, settings.target_ms, reserve_ms);
        Self::at(settings.counters, settings.range, demand, seed)
    }

    /// The same demand at other counters, with no numbers yet: how a period begins.
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

    /// The same machine, which shares with others what was received from each counter.
    #[must_use]
    pub fn sharing(mut self, high_water_marks: &[HighWaterMark]) -> Self {
        self.high_water_marks.clone_from_slice(high_water_marks);
        self
    }

    /// Takes the time, what is in memory and an answer, says what changed and what to do next.
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
                // One more, since the instants are whole milliseconds.
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
            // An answer to nothing that was asked, or a wake-up while an answer is awaited: nothing changes.
            (state, _) => self.state = state,
        }
        let next = self.next(now_ms, memory);
        self.turn(next)
    }

    /// Returns the numbers that may be handed out.
    pub const fn range(&self) -> Range {
        self.range
    }

    /// The size of the next segment.
    pub fn size(&self) -> u64 {
        self.demand.size()
    }

    /// The greatest number reserved so far; 0 before the first.
    pub fn highest(&self) -> u64 {
        self.known.iter().map(|known| known.highest).max().unwrap_or(0)
    }

    /// The demand measured, in numbers a second.
    pub fn demand_per_second(&self) -> u64 {
        self.demand.per_second()
    }

    /// How long so many numbers last at the demand measured, in milliseconds; `None` without demand.
    pub fn lasts_ms(&self, left: u64) -> Option<u64> {
        self.demand.lasts_ms(left)
    }

    /// How many counters are left out because their last call failed.
    pub fn failing(&self) -> usize {
        self.counters.failing()
    }

    /// How many numbers to reserve at first for the demand of now.
    pub fn first_count(&self) -> NonZeroU64 {
        NonZeroU64::new(self.demand.wanted(0)).unwrap_or(NonZeroU64::MIN)
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
            let newest = unused.pop();
            return self.give_back(newest);
        }
        let keep = self.demand.keep();
        if memory.room == Room::Full && (memory.left < keep || !self.settling.is_empty()) {
            // There is room again once about a segment of them is drawn.
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

    /// Until the next reservation may be looked at, and not for long: the numbers in memory become fewer meanwhile.
    fn wait_for_settling(&self, now_ms: u64, most_ms: Option<u64>) -> Option<Next> {
        let due_ms = self.settling.iter().map(|it| it.due_ms).min()?;
        let wait_ms = due_ms.saturating_sub(now_ms).min(SETTLING_WAIT_MS).min(most_ms.unwrap_or(u64::MAX));
        Some(Next::Wait(wait_ms.max(1)))
    }

    /// A reservation that may be looked at: of each counter the oldest first, so that its numbers come in order.
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
        // Close to the maximum no more than there is, so that a counter does not run far beyond it.
        let room = self.range.maximum.saturating_sub(known.highest).max(1);
        let most = known.most.map_or(u64::MAX, NonZeroU64::get);
        let count = NonZeroU64::new(wanted.min(room).min(most)).unwrap_or(NonZeroU64::MIN);
        let least = self.high_water_marks[counter].end();
        self.state = State::Reserving(Asked { counter, count, at_ms: now_ms, least });
        Next::Call(Call::Reserve { counter, count, timeout_ms })
    }

    /// How many numbers came that may be used now; those that have to settle come later.
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
            // Too late for anybody to draw from it.
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

    /// What nobody can use is not given back either: it may be somebody else's.
    fn went_back(&mut self, counter: usize, segment: Segment, highest: u64, forgot: Forgot) {
        self.events.push(Event::WentBack { counter, segment, highest, forgot });
        self.known[counter].raise = Some(self.above_all(counter));
    }

    fn above_all(&self, counter: usize) -> Raise {
        Raise { above: self.high_water_marks[counter].highest(), reason: RaiseReason::WentBack }
    }

    /// Each node would add what is missing: raised, the counter comes to the first number and no further.
    fn is_below(&mut self, counter: usize, missing: u64) {
        let known = &mut self.known[counter];
        if known.fixed {
            known.below = missing;
        } else {
            known.raise =
                Some(Raise { above: self.range.first.saturating_sub(1), reason: RaiseReason::BelowFirst });
        }
    }

    /// How many numbers have settled.
    fn confirmed(&mut self, now_ms: u64, settling: Settling, answer: Result<bool, Failure>) -> u64 {
        let Settling { counter, segment, .. } = settling;
        match answer {
            Ok(true) if self.release.is_none() => {
                self.high_water_marks[counter].settled(segment);
                return self.put(counter, segment);
            }
            // Nobody draws any more, and others see the reservation as taken.
            Ok(true) => {}
            Ok(false) => {
                // How far the counter went back, the next reservation shows.
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
        answer: Result<bool, Failure>,
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
                if failure == Failure::TimedOut {
                    self.counters.timed_out(counter);
                }
                if self.counters.failed(counter, now_ms) {
                    self.events.push(Event::Failing { counter });
                }
            }
        }
    }

    fn failed(&mut self, now_ms: u64, asked: Asked, failure: Failure) {
        match failure {
            Failure::Full if asked.count > NonZeroU64::MIN => {
                // There may be room for fewer; the last numbers are worth a few calls.
                self.known[asked.counter].most = NonZeroU64::new(asked.count.get() / 2);
                return;
            }
            Failure::Full if self.is_at_its_end(asked.counter) => {
                self.counters.exhausted(asked.counter);
                return;
            }
            Failure::TimedOut => self.counters.timed_out(asked.counter),
            Failure::Full | Failure::Failed => {}
        }
        if self.counters.failed(asked.counter, now_ms) {
            self.events.push(Event::Failing { counter: asked.counter });
        }
    }

    /// Whether a counter's next number would be beyond the maximum; a store can be full for other reasons.
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

    /// Whatever the answer, these numbers are not given back again: they may be somebody else's by now.
    fn gave_back(&mut self, unused: Unused, answer: Result<bool, Failure>) {
        if answer == Ok(true) {
            self.events.push(Event::GivenBack { count: unused.segment.count().get() });
            return;
        }
        if answer == Ok(false) {
            self.high_water_marks[unused.counter].received(unused.segment);
        }
        if let Some(older) = &mut self.release {
            // Somebody reserved after these, so after the older ones of this counter too.
            older.retain(|older| older.counter != unused.counter);
        }
    }
}

#[cfg(test)]
mod tests;
