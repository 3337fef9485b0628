//! The segment protocol as a pure state machine: (time, what is in memory, what a counter answered) in, the next call
//! out. No I/O, no time of its own: the driver and the simulation drive the same code.
//!
//! ```text
//!         few numbers left            numbers: put them in line, look again
//!  Idle ───────────────────▶ Reserve ──────────────────────────────────────▶ Idle
//!    │                        │   ▲
//!    │                 failed │   │ after a while, longer each time; or at once, at another counter
//!    │                        ▼   │
//!    │ release               Wait ┘
//!    └──────────▶ GiveBack, newest first, each once ──────────▶ Stop
//! ```
//!
//! A number is used only after the counter said that it is reserved. A call whose answer is lost costs the numbers it
//! may have reserved: they are nobody's.

mod counters;
mod demand;
mod messages;
mod range;

use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use snowmint_store::Segment;

pub use messages::{Call, Event, Failure, Input, Memory, Next, Room, Turn};
pub use range::Range;

pub(super) use counters::{Counters, Pick};
pub(super) use range::Within;

use super::Unused;
use counters::TO_NOTICE_MS;
use demand::Demand;

/// How soon to look again where numbers are few and there is room for no other segment, in milliseconds.
const ROOM_WAIT_MS: u64 = 10;
/// How long giving back may take, in milliseconds, for each segment.
const GIVE_BACK_TIMEOUT_MS: u64 = 2000;

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
    /// The numbers that may be handed out.
    pub range: Range,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    counter: usize,
    count: NonZeroU64,
    at_ms: u64,
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
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    Reserving(Asked),
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
    /// What nobody drew, oldest first, once it is to be given back.
    release: Option<Vec<Unused>>,
    told_nearly: bool,
    told_exhausted: bool,
    events: Vec<Event>,
}

impl Protocol {
    /// A machine that has no numbers yet; `seed` decides how long it waits after failures, and nothing that matters.
    pub fn new(settings: &Settings, seed: u64) -> Self {
        let reserve_ms = match settings.reserve_ms {
            0 => 0,
            away_ms => away_ms.saturating_add(TO_NOTICE_MS),
        };
        let demand = Demand::new(settings.sizes.clone(), settings.first_size, settings.target_ms, reserve_ms);
        Self::at(settings.counters, settings.range, demand, seed)
    }

    /// The same demand at other counters, with no numbers yet: how a period begins.
    #[must_use]
    pub fn begin_anew(&self, counters: usize, seed: u64) -> Self {
        let mut demand = self.demand.clone();
        demand.begin_anew();
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
            release: None,
            told_nearly: false,
            told_exhausted: false,
            events: Vec::new(),
        }
    }

    /// Takes the time, what is in memory and an answer, says what changed and what to do next.
    pub fn step(&mut self, now_ms: u64, memory: Memory, input: Input) -> Turn {
        self.demand.observe(now_ms, self.put.saturating_sub(memory.left), memory.misses);
        let mut memory = memory;
        match (std::mem::replace(&mut self.state, State::Idle), input) {
            (State::Stopped, _) => {
                self.state = State::Stopped;
                return self.turn(Next::Stop);
            }
            (State::Reserving(asked), Input::Reserved(answer)) => {
                memory.left += self.reserved(now_ms, asked, answer);
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

    fn turn(&mut self, next: Next) -> Turn {
        Turn { events: std::mem::take(&mut self.events), next }
    }

    fn next(&mut self, now_ms: u64, memory: Memory) -> Next {
        match self.state {
            State::Idle => {}
            State::Reserving(_) | State::GivingBack(_) => return Next::Await,
            State::Stopped => return Next::Stop,
        }
        if let Some(unused) = &mut self.release {
            let newest = unused.pop();
            return self.give_back(newest);
        }
        let keep = self.demand.keep();
        if memory.left >= keep {
            return Next::Idle { keep };
        }
        if memory.room == Room::Full {
            return Next::Wait(ROOM_WAIT_MS);
        }
        match self.counters.pick(now_ms) {
            Pick::Ask { counter, timeout_ms } => self.reserve(now_ms, counter, timeout_ms, memory.left),
            Pick::Wait(ms) => Next::Wait(ms),
            Pick::Exhausted => {
                if !std::mem::replace(&mut self.told_exhausted, true) {
                    self.events.push(Event::Exhausted);
                }
                Next::Idle { keep: 0 }
            }
        }
    }

    fn reserve(&mut self, now_ms: u64, counter: usize, timeout_ms: u64, left: u64) -> Next {
        let known = self.known[counter];
        let wanted = self.demand.wanted(left).saturating_add(known.below);
        // Close to the maximum no more than there is, so that a counter does not run far beyond it.
        let room = self.range.maximum.saturating_sub(known.highest).max(1);
        let most = known.most.map_or(u64::MAX, NonZeroU64::get);
        let count = NonZeroU64::new(wanted.min(room).min(most)).unwrap_or(NonZeroU64::MIN);
        self.state = State::Reserving(Asked { counter, count, at_ms: now_ms });
        Next::Call(Call::Reserve { counter, count, timeout_ms })
    }

    /// How many numbers came.
    fn reserved(&mut self, now_ms: u64, asked: Asked, answer: Result<Segment, Failure>) -> u64 {
        let counter = asked.counter;
        let segment = match answer {
            Ok(segment) => segment,
            Err(failure) => {
                self.failed(now_ms, asked, failure);
                return 0;
            }
        };
        let failures = self.counters.succeeded(counter, now_ms.saturating_sub(asked.at_ms));
        if failures > 0 {
            self.events.push(Event::Recovered { counter, failures });
        }
        let highest = self.known[counter].highest.max(segment.last().min(self.range.maximum));
        self.known[counter] = Known { highest, step: segment.step().get(), below: 0, most: None };
        self.tell_nearly_exhausted();
        match self.range.cut(segment) {
            Within::Some(segment) if self.release.is_none() => {
                let count = segment.count().get();
                self.put += count;
                self.events.push(Event::Reserved { counter, segment });
                return count;
            }
            // Too late for anybody to draw from it.
            Within::Some(segment) => self.release.get_or_insert_default().push(Unused { counter, segment }),
            Within::Below { missing } => self.known[counter].below = missing,
            Within::Above => self.counters.exhausted(counter),
        }
        0
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

    fn tell_nearly_exhausted(&mut self) {
        let highest = self.highest();
        if self.range.is_nearly_exhausted(highest) && !std::mem::replace(&mut self.told_nearly, true) {
            self.events.push(Event::NearlyExhausted { highest });
        }
    }

    fn give_back(&mut self, newest: Option<Unused>) -> Next {
        let Some(unused) = newest else {
            self.state = State::Stopped;
            return Next::Stop;
        };
        self.state = State::GivingBack(unused);
        Next::Call(Call::GiveBack { unused, timeout_ms: GIVE_BACK_TIMEOUT_MS })
    }

    /// Whatever the answer, these numbers are not given back again: they may be somebody else's by now.
    fn gave_back(&mut self, unused: Unused, answer: Result<bool, Failure>) {
        if answer == Ok(true) {
            self.events.push(Event::GivenBack { count: unused.segment.count().get() });
        } else if let Some(older) = &mut self.release {
            // Somebody reserved after these, so after the older ones of this counter too.
            older.retain(|older| older.counter != unused.counter);
        }
    }
}

#[cfg(test)]
mod tests;
