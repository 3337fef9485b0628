//! Callers that ask at the same time, combined into one call: how numbers come straight from a counter.
//! Pure, like `protocol`: callers, answers and the time in, calls and what each caller gets out.
//!
//! Numbers grow in real time over all nodes: a caller gets numbers only from a call that was made after it asked. So
//! whoever asks after another caller, of whatever node, has got its numbers, gets greater ones.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use snowmint_store::Segment;

use super::protocol::{Counters, Failure, Forgot, HighWaterMark, Pick, Raise, RaiseReason, Range, Within};

/// The most numbers of one call for several callers; one that asks for more gets a call of its own.
const MOST: u64 = 1 << 40;
/// The most numbers by which a counter that cannot be raised is moved on in one call.
const MOST_BELOW: u64 = 1 << 20;

/// One caller, until it is answered; counted up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

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
pub enum Action {
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
    Refuse(RequestId),
    /// Tell this caller that the counter went back and cannot be raised, and look again.
    GiveUp {
        /// The caller.
        caller: RequestId,
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
    caller: RequestId,
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
pub struct Batching {
    range: Range,
    counter: Counters,
    asks: VecDeque<Ask>,
    asked: Option<Asked>,
    seen: HighWaterMark,
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

impl Batching {
    /// A machine for one counter; `seed` decides how long it waits after failures.
    pub fn new(range: Range, seed: u64) -> Self {
        Self {
            range,
            counter: Counters::new(1, seed),
            asks: VecDeque::new(),
            asked: None,
            seen: HighWaterMark::default(),
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
    pub fn sharing(mut self, seen: HighWaterMark) -> Self {
        self.seen = seen;
        self
    }

    /// A caller asks for numbers.
    pub fn ask(&mut self, caller: RequestId, count: NonZeroU64, order: Order) {
        self.asks.push_back(Ask { caller, missing: count, order });
    }

    /// Forgets callers that have gone. Not while a call is under way.
    pub fn keep(&mut self, mut waits: impl FnMut(RequestId) -> bool) {
        if self.asked.is_none() {
            self.asks.retain(|ask| waits(ask.caller));
        }
    }

    /// What to do next. While a call is under way, only its answer.
    pub fn next(&mut self, now_ms: u64) -> Action {
        if self.asks.is_empty() || self.asked.is_some() || self.raising_since_ms.is_some() {
            return Action::Idle;
        }
        if let Some(highest) = self.stuck {
            let refused = self.asks.pop_front();
            return refused.map_or(Action::Idle, |ask| Action::GiveUp { caller: ask.caller, highest });
        }
        match (self.counter.pick(now_ms), self.raise) {
            (Pick::Ask { timeout_ms, .. }, Some(raise)) => {
                self.raising_since_ms = Some(now_ms);
                Action::Raise { above: raise.above, timeout_ms }
            }
            (Pick::Ask { timeout_ms, .. }, None) => {
                let (callers, count) = self.batch();
                let least = self.seen.end();
                self.asked = Some(Asked { callers, count, at_ms: now_ms, least });
                Action::Reserve { count, timeout_ms }
            }
            (Pick::Wait(ms), _) => Action::Wait(ms),
            // The counter would only run further beyond the maximum.
            (Pick::Exhausted, _) => {
                self.asks.pop_front().map_or(Action::Idle, |ask| Action::Refuse(ask.caller))
            }
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
    ) -> (Vec<(RequestId, Outcome)>, Option<Health>) {
        let Some(asked) = self.asked.take() else { return (Vec::new(), None) };
        match answer {
            Ok(segment) => {
                let failures = self.counter.succeeded(0, now_ms.saturating_sub(asked.at_ms));
                if let Some(forgot) = self.seen.forgot(segment, asked.least) {
                    let above = self.seen.end().saturating_sub(1);
                    self.raise = Some(Raise { above, reason: RaiseReason::WentBack });
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
            (true, RaiseReason::WentBack) => return Some(Health::Raised { above: raise.above }),
            (false, RaiseReason::WentBack) => {
                self.stuck = Some(raise.above);
                return Some(Health::Stuck { highest: raise.above });
            }
            (false, RaiseReason::Start) => self.fixed = true,
            (true, RaiseReason::Start) => {}
        }
        (failures > 0).then_some(Health::Recovered { failures })
    }

    fn hand_out(&mut self, callers: usize, segment: Segment) -> Vec<(RequestId, Outcome)> {
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
                    self.raise = Some(Raise { above, reason: RaiseReason::Start });
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
    ) -> (Vec<(RequestId, Outcome)>, Option<Health>) {
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
mod tests {
    use super::*;

    fn n(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }

    fn numbers(first: u64, count: u64) -> Segment {
        Segment::new(first, NonZeroU64::MIN, n(count)).unwrap()
    }

    fn batching() -> Batching {
        Batching::new(Range { first: 1, maximum: 1000 }, 1)
    }

    fn reserve(batching: &mut Batching) -> u64 {
        match batching.next(0) {
            Action::Reserve { count, .. } => count.get(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn callers_that_wait_share_a_call_in_the_order_they_came() {
        let mut batching = batching();
        assert_eq!(batching.next(0), Action::Idle);
        for (caller, count) in [(1, 2), (2, 1), (3, 5)] {
            batching.ask(RequestId(caller), n(count), Order::Consecutive);
        }
        assert_eq!(reserve(&mut batching), 8);
        let (given, _) = batching.answered(1, Ok(numbers(10, 8)));
        let expected = [(1, numbers(10, 2)), (2, numbers(12, 1)), (3, numbers(13, 5))];
        assert_eq!(given, expected.map(|(caller, part)| (RequestId(caller), Outcome::Done(part))));
        assert_eq!(batching.next(0), Action::Idle);
    }

    #[test]
    fn who_asks_while_a_call_is_under_way_gets_nothing_from_it() {
        let mut batching = batching();
        batching.ask(RequestId(1), n(1), Order::Any);
        assert_eq!(reserve(&mut batching), 1);
        batching.ask(RequestId(2), n(1), Order::Any);
        assert_eq!(batching.next(0), Action::Idle, "one call at a time");
        // The counter gave more than was asked for: the rest is nobody's.
        let (given, _) = batching.answered(1, Ok(numbers(10, 5)));
        assert_eq!(given, [(RequestId(1), Outcome::Done(numbers(10, 1)))]);
        assert_eq!(reserve(&mut batching), 1);
    }

    #[test]
    fn a_lost_answer_is_asked_again_for_everybody_who_still_waits() {
        let mut batching = batching();
        batching.ask(RequestId(1), n(1), Order::Any);
        batching.ask(RequestId(2), n(2), Order::Any);
        assert_eq!(reserve(&mut batching), 3);
        assert_eq!(batching.answered(0, Err(Failure::TimedOut)), (vec![], Some(Health::Failing)));
        batching.ask(RequestId(3), n(4), Order::Any);
        batching.keep(|caller| caller != RequestId(2));
        let Action::Wait(ms) = batching.next(0) else { panic!() };
        let Action::Reserve { count, timeout_ms } = batching.next(ms) else { panic!() };
        assert_eq!((count.get(), timeout_ms), (5, 2000));
        let (given, health) = batching.answered(ms, Ok(numbers(4, 5)));
        assert_eq!(given.len(), 2);
        assert_eq!(health, Some(Health::Recovered { failures: 1 }));
    }

    #[test]
    fn a_counter_that_gives_fewer_is_asked_again_for_the_rest() {
        let mut batching = batching();
        batching.ask(RequestId(1), n(3), Order::Any);
        batching.ask(RequestId(2), n(3), Order::Any);
        batching.ask(RequestId(3), n(3), Order::Any);
        assert_eq!(reserve(&mut batching), 9);
        let (given, _) = batching.answered(0, Ok(numbers(1, 4)));
        let expected = [(1, Outcome::Done(numbers(1, 3))), (2, Outcome::Part(numbers(4, 1)))];
        assert_eq!(given, expected.map(|(caller, outcome)| (RequestId(caller), outcome)));
        assert_eq!(reserve(&mut batching), 5);
        let (given, _) = batching.answered(0, Ok(numbers(5, 5)));
        let expected = [(2, numbers(5, 2)), (3, numbers(7, 3))];
        assert_eq!(given, expected.map(|(caller, part)| (RequestId(caller), Outcome::Done(part))));
    }

    #[test]
    fn what_cannot_be_consecutive_is_refused() {
        let mut batching = batching();
        batching.ask(RequestId(1), n(3), Order::Consecutive);
        reserve(&mut batching);
        let (given, _) = batching.answered(0, Ok(numbers(1, 2)));
        assert_eq!(given, [(RequestId(1), Outcome::TooMany { given: 2 })]);
        batching.ask(RequestId(2), n(2), Order::Consecutive);
        batching.ask(RequestId(3), n(1), Order::Consecutive);
        reserve(&mut batching);
        let (given, _) = batching.answered(0, Ok(Segment::new(3, n(2), n(3)).unwrap()));
        let one = Segment::new(3, n(2), n(1)).unwrap();
        assert_eq!(
            given,
            [(RequestId(2), Outcome::Apart { step: n(2) }), (RequestId(3), Outcome::Done(one))]
        );
    }

    #[test]
    fn beyond_the_maximum_there_is_nothing() {
        let mut batching = batching();
        for caller in 1..=3 {
            batching.ask(RequestId(caller), n(2), Order::Any);
        }
        reserve(&mut batching);
        let (given, _) = batching.answered(0, Ok(numbers(998, 6)));
        let last = Outcome::Part(numbers(1000, 1));
        let first = Outcome::Done(numbers(998, 2));
        let expected = [(1, first), (2, last), (2, Outcome::Exhausted), (3, Outcome::Exhausted)];
        assert_eq!(given, expected.map(|(caller, outcome)| (RequestId(caller), outcome)));
        batching.ask(RequestId(4), n(1), Order::Any);
        assert_eq!(batching.next(0), Action::Refuse(RequestId(4)), "without another call");
        assert_eq!(batching.next(0), Action::Idle);
    }

    #[test]
    fn one_that_asks_for_more_than_there_is_does_not_harm_the_others() {
        let mut batching = batching();
        batching.ask(RequestId(1), n(1), Order::Any);
        batching.ask(RequestId(2), n(MOST - 1), Order::Any);
        assert_eq!(reserve(&mut batching), MOST);
        assert_eq!(batching.answered(0, Err(Failure::Full)).0, []);
        assert_eq!(reserve(&mut batching), 1);
        assert_eq!(batching.answered(0, Ok(numbers(1, 1))).0, [(RequestId(1), Outcome::Done(numbers(1, 1)))]);
        assert_eq!(reserve(&mut batching), MOST - 1);
        assert_eq!(batching.answered(0, Err(Failure::Full)).0, [(RequestId(2), Outcome::NoRoom)]);
    }

    #[test]
    fn a_counter_below_the_first_number_is_moved_on() {
        let mut batching = Batching::new(Range { first: 500, maximum: 1000 }, 1);
        batching.ask(RequestId(1), n(1), Order::Any);
        reserve(&mut batching);
        assert_eq!(batching.answered(0, Ok(numbers(1, 1))).0, []);
        let Action::Raise { above: 499, .. } = batching.next(0) else { panic!() };
        assert_eq!(batching.next(0), Action::Idle);
        assert_eq!(batching.raised(0, Ok(true)), None);
        assert_eq!(reserve(&mut batching), 1);
        let (given, _) = batching.answered(0, Ok(numbers(500, 1)));
        assert_eq!(given, [(RequestId(1), Outcome::Done(numbers(500, 1)))]);
    }

    #[test]
    fn a_counter_that_cannot_be_raised_to_the_first_number_is_moved_on_by_addition() {
        let mut batching = Batching::new(Range { first: 500, maximum: 1000 }, 1);
        batching.ask(RequestId(1), n(1), Order::Any);
        reserve(&mut batching);
        batching.answered(0, Ok(numbers(1, 1)));
        batching.next(0);
        batching.raised(0, Ok(false));
        assert_eq!(reserve(&mut batching), 1);
        batching.answered(0, Ok(numbers(2, 1)));
        assert_eq!(reserve(&mut batching), 498);
        let (given, _) = batching.answered(0, Ok(numbers(3, 498)));
        assert_eq!(given, [(RequestId(1), Outcome::Done(numbers(500, 1)))]);
    }

    #[test]
    fn from_a_counter_that_went_back_nobody_gets_a_number() {
        let mut batching = batching();
        batching.ask(RequestId(1), n(2), Order::Any);
        reserve(&mut batching);
        batching.answered(0, Ok(numbers(100, 2)));
        batching.ask(RequestId(2), n(2), Order::Any);
        reserve(&mut batching);
        let forgot = Forgot::Settled;
        let went_back = Health::WentBack { segment: numbers(101, 2), highest: 101, forgot };
        assert_eq!(batching.answered(0, Ok(numbers(101, 2))), (vec![], Some(went_back)));
        let Action::Raise { above: 101, .. } = batching.next(0) else { panic!() };
        assert_eq!(batching.raised(0, Ok(true)), Some(Health::Raised { above: 101 }));
        assert_eq!(reserve(&mut batching), 2);
        let (given, _) = batching.answered(0, Ok(numbers(102, 2)));
        assert_eq!(given, [(RequestId(2), Outcome::Done(numbers(102, 2)))]);
    }

    #[test]
    fn who_asks_a_counter_that_went_back_and_cannot_be_raised_is_told() {
        let mut batching = batching();
        batching.ask(RequestId(1), n(2), Order::Any);
        reserve(&mut batching);
        batching.answered(0, Ok(numbers(100, 2)));
        batching.ask(RequestId(2), n(2), Order::Any);
        reserve(&mut batching);
        batching.answered(0, Ok(numbers(1, 2)));
        batching.next(0);
        assert_eq!(batching.raised(0, Ok(false)), Some(Health::Stuck { highest: 101 }));
        assert_eq!(batching.next(0), Action::GiveUp { caller: RequestId(2), highest: 101 });
        assert_eq!(batching.next(0), Action::Idle);
    }
}
