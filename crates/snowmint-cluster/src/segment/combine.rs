//! Callers that ask at the same time, combined into one call: how numbers come straight from a counter.
//! Pure, like `protocol`: callers, answers and the time in, calls and what each caller gets out.
//!
//! Numbers grow in real time over all nodes: a caller gets numbers only from a call that was made after it asked. So
//! whoever asks after another caller, of whatever node, has got its numbers, gets greater ones.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use snowmint_store::Segment;

use super::protocol::{Counters, Failure, Forgot, Pick, Raise, Range, Seen, Why, Within};

/// The most numbers of one call for several callers; one that asks for more gets a call of its own.
const MOST: u64 = 1 << 40;
/// The most numbers by which a counter that cannot be raised is moved on in one call.
const MOST_BELOW: u64 = 1 << 20;

/// One caller, until it is answered; counted up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Caller(pub u64);

/// Whether the numbers have to follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// They may come in parts.
    Any,
    /// They are consecutive.
    Consecutive,
}

/// What a caller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Some of its numbers; more follow.
    Part(Segment),
    /// The last of its numbers.
    Done(Segment),
    /// Nothing: the numbers are used up.
    Exhausted,
    /// Nothing: the store has no room for so many.
    NoRoom,
    /// Nothing: the counter went back and cannot be raised.
    Stuck {
        /// The greatest number received from it.
        highest: u64,
    },
    /// Nothing: the counter gave only so many at once.
    TooMany {
        /// How many it gave.
        given: u64,
    },
    /// Nothing: the counter's numbers do not follow one another.
    Apart {
        /// From one to the next.
        step: NonZeroU64,
    },
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Reserve so many numbers, and give the answer.
    Reserve {
        /// How many.
        count: NonZeroU64,
        /// After how many milliseconds to give up.
        timeout_ms: u64,
    },
    /// Make every number to come greater than this one, and give the answer.
    Raise {
        /// The number.
        above: u64,
        /// After how many milliseconds to give up.
        timeout_ms: u64,
    },
    /// Look again after this many milliseconds.
    Wait(u64),
    /// Tell this caller that the numbers are used up, and look again.
    Refuse(Caller),
    /// Tell this caller that the counter went back and cannot be raised, and look again.
    GiveUp {
        /// The caller.
        caller: Caller,
        /// The greatest number received from it.
        highest: u64,
    },
    /// Nothing: nobody asks.
    Idle,
}

/// How the counter does, where that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Its call failed after one that did not.
    Failing,
    /// Its call succeeded after some that did not.
    Recovered {
        /// How many.
        failures: u32,
    },
    /// It gave numbers that it had given before: none of them is used.
    WentBack {
        /// What it gave.
        segment: Segment,
        /// The greatest number received from it before.
        highest: u64,
        /// What it forgot.
        forgot: Forgot,
    },
    /// It went back, and was raised.
    Raised {
        /// Above this number.
        above: u64,
    },
    /// It went back, and cannot be raised.
    Stuck {
        /// The greatest number received from it.
        highest: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    caller: Caller,
    missing: NonZeroU64,
    order: Order,
}

/// A call that is under way, and for how many of the callers, from the front.
#[derive(Clone, Copy, Debug)]
struct Asked {
    callers: usize,
    count: NonZeroU64,
    at_ms: u64,
    /// The answer may not begin below this number.
    least: u64,
}

/// The state machine; see the module's page.
#[derive(Debug)]
pub struct Combiner {
    range: Range,
    counter: Counters,
    asks: VecDeque<Ask>,
    asked: Option<Asked>,
    seen: Seen,
    /// The counter is to be raised before it is asked again.
    raise: Option<Raise>,
    /// It is being raised since then.
    raising_since_ms: Option<u64>,
    /// It cannot be raised.
    fixed: bool,
    /// It went back and cannot be raised.
    stuck: Option<u64>,
    /// How far a counter that cannot be raised is below the first number.
    below: u64,
    /// Whether the first caller is served alone, since there was no room for all.
    alone: bool,
}

impl Combiner {
    /// A machine for one counter; `seed` decides how long it waits after failures.
    pub fn new(range: Range, seed: u64) -> Self {
        Self {
            range,
            counter: Counters::new(1, seed),
            asks: VecDeque::new(),
            asked: None,
            seen: Seen::default(),
            raise: None,
            raising_since_ms: None,
            fixed: false,
            stuck: None,
            below: 0,
            alone: false,
        }
    }

    /// The same machine, which shares with others what was received from the counter.
    #[must_use]
    pub fn sharing(mut self, seen: Seen) -> Self {
        self.seen = seen;
        self
    }

    /// A caller asks for numbers.
    pub fn ask(&mut self, caller: Caller, count: NonZeroU64, order: Order) {
        self.asks.push_back(Ask { caller, missing: count, order });
    }

    /// Forgets callers that have gone. Not while a call is under way.
    pub fn keep(&mut self, mut waits: impl FnMut(Caller) -> bool) {
        if self.asked.is_none() {
            self.asks.retain(|ask| waits(ask.caller));
        }
    }

    /// What to do next. While a call is under way, only its answer.
    pub fn next(&mut self, now_ms: u64) -> Task {
        if self.asks.is_empty() || self.asked.is_some() || self.raising_since_ms.is_some() {
            return Task::Idle;
        }
        if let Some(highest) = self.stuck {
            let refused = self.asks.pop_front();
            return refused.map_or(Task::Idle, |ask| Task::GiveUp { caller: ask.caller, highest });
        }
        match (self.counter.pick(now_ms), self.raise) {
            (Pick::Ask { timeout_ms, .. }, Some(raise)) => {
                self.raising_since_ms = Some(now_ms);
                Task::Raise { above: raise.above, timeout_ms }
            }
            (Pick::Ask { timeout_ms, .. }, None) => {
                let (callers, count) = self.batch();
                let least = self.seen.end();
                self.asked = Some(Asked { callers, count, at_ms: now_ms, least });
                Task::Reserve { count, timeout_ms }
            }
            (Pick::Wait(ms), _) => Task::Wait(ms),
            // The counter would only run further beyond the maximum.
            (Pick::Exhausted, _) => self.asks.pop_front().map_or(Task::Idle, |ask| Task::Refuse(ask.caller)),
        }
    }

    /// How many callers the next call is for, and how many numbers.
    fn batch(&self) -> (usize, NonZeroU64) {
        let (mut callers, mut count) = (0, 0_u64);
        for ask in &self.asks {
            let sum = count.saturating_add(ask.missing.get());
            if callers > 0 && (sum > MOST || self.alone) {
                break;
            }
            (callers, count) = (callers + 1, sum);
        }
        (
            callers,
            NonZeroU64::new(count.saturating_add(self.below.min(MOST_BELOW))).unwrap_or(NonZeroU64::MIN),
        )
    }

    /// Takes the answer to the call: what each caller gets, and whether the counter does better or worse.
    pub fn answered(
        &mut self,
        now_ms: u64,
        answer: Result<Segment, Failure>,
    ) -> (Vec<(Caller, Outcome)>, Option<Health>) {
        let Some(asked) = self.asked.take() else { return (Vec::new(), None) };
        match answer {
            Ok(segment) => {
                let failures = self.counter.succeeded(0, now_ms.saturating_sub(asked.at_ms));
                if let Some(forgot) = self.seen.forgot(segment, asked.least) {
                    let above = self.seen.end().saturating_sub(1);
                    self.raise = Some(Raise { above, why: Why::WentBack });
                    let highest = asked.least - 1;
                    return (Vec::new(), Some(Health::WentBack { segment, highest, forgot }));
                }
                self.seen.received(segment);
                self.seen.settled(segment);
                let health = (failures > 0).then_some(Health::Recovered { failures });
                (self.hand_out(asked.callers, segment), health)
            }
            Err(failure) => self.failed(now_ms, asked, failure),
        }
    }

    /// Takes the answer to the call that raises the counter: whether it can be raised.
    pub fn raised(&mut self, now_ms: u64, answer: Result<bool, Failure>) -> Option<Health> {
        let (since_ms, raise) = (self.raising_since_ms.take()?, self.raise?);
        let can = match answer {
            Ok(can) => can,
            Err(failure) => {
                if failure == Failure::TimedOut {
                    self.counter.timed_out(0);
                }
                return self.counter.failed(0, now_ms).then_some(Health::Failing);
            }
        };
        self.raise = None;
        let failures = self.counter.succeeded(0, now_ms.saturating_sub(since_ms));
        match (can, raise.why) {
            (true, Why::WentBack) => return Some(Health::Raised { above: raise.above }),
            (false, Why::WentBack) => {
                self.stuck = Some(raise.above);
                return Some(Health::Stuck { highest: raise.above });
            }
            (false, Why::Start) => self.fixed = true,
            (true, Why::Start) => {}
        }
        (failures > 0).then_some(Health::Recovered { failures })
    }

    fn hand_out(&mut self, callers: usize, segment: Segment) -> Vec<(Caller, Outcome)> {
        self.below = 0;
        self.alone = false;
        if segment.last().saturating_add(segment.step().get()) > self.range.maximum {
            self.counter.exhausted(0);
        }
        let mut rest = match self.range.cut(segment) {
            Within::Some(segment) => Some(segment),
            Within::Below { missing } => {
                if self.fixed {
                    self.below = missing;
                } else {
                    let above = self.range.first.saturating_sub(1);
                    self.raise = Some(Raise { above, why: Why::Start });
                }
                return Vec::new();
            }
            Within::Above => None,
        };
        let cut_off = rest.is_none_or(|rest| rest.last() < segment.last());
        let mut outcomes = Vec::new();
        let mut served: Vec<Ask> = self.asks.drain(..callers).collect();
        served.reverse();
        while let Some(ask) = served.pop() {
            let outcome = match rest {
                None if cut_off => Outcome::Exhausted,
                None => {
                    served.push(ask);
                    break;
                }
                Some(numbers) => give(ask, numbers, cut_off, &mut rest),
            };
            outcomes.push((ask.caller, outcome));
            if let Outcome::Part(part) = outcome
                && let Some(missing) = NonZeroU64::new(ask.missing.get() - part.count().get())
            {
                served.push(Ask { missing, ..ask });
            }
        }
        // The counter gave fewer than it was asked for: these are first next time.
        for ask in served {
            self.asks.push_front(ask);
        }
        outcomes
    }

    fn failed(
        &mut self,
        now_ms: u64,
        asked: Asked,
        failure: Failure,
    ) -> (Vec<(Caller, Outcome)>, Option<Health>) {
        match failure {
            Failure::Full if asked.callers > 1 => {
                // One may have asked for more than there is; the others need not suffer.
                self.alone = true;
                return (Vec::new(), None);
            }
            Failure::Full if asked.count > NonZeroU64::MIN => {
                self.alone = false;
                let refused = self.asks.pop_front();
                return (refused.into_iter().map(|ask| (ask.caller, Outcome::NoRoom)).collect(), None);
            }
            Failure::TimedOut => self.counter.timed_out(0),
            Failure::Full | Failure::Failed => {}
        }
        let first = self.counter.failed(0, now_ms);
        (Vec::new(), first.then_some(Health::Failing))
    }
}

/// Gives one caller its share of what is there, and leaves the rest.
fn give(ask: Ask, numbers: Segment, cut_off: bool, rest: &mut Option<Segment>) -> Outcome {
    let (there, wanted) = (numbers.count(), ask.missing);
    if ask.order == Order::Consecutive && wanted > NonZeroU64::MIN {
        if numbers.step() > NonZeroU64::MIN {
            return Outcome::Apart { step: numbers.step() };
        }
        if there < wanted {
            return if cut_off { Outcome::Exhausted } else { Outcome::TooMany { given: there.get() } };
        }
    }
    let count = there.min(wanted);
    *rest = NonZeroU64::new(there.get() - count.get()).and_then(|left| {
        Segment::new(numbers.first() + count.get() * numbers.step().get(), numbers.step(), left)
    });
    match Segment::new(numbers.first(), numbers.step(), count) {
        Some(part) if count == wanted => Outcome::Done(part),
        Some(part) => Outcome::Part(part),
        // A part of a segment is one.
        None => Outcome::Exhausted,
    }
}

#[cfg(test)]
mod tests;
