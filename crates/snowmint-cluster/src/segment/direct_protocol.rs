//! Batching of requests that wait at the same time into one call to a counter, as a pure state machine.
//! Requests, answers and the time go in; calls and the outcome of each request come out.
//!
//! Numbers increase in real time over all nodes: a request gets numbers only from a call that was made after the request arrived.
//! So a request that arrives after another one was answered, on any node, gets greater numbers.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use snowmint_store::{MAX_NUMBER, Segment};

use super::cached_protocol::{CounterFailure, Event, Raise, RaiseReason};
use super::counters::{Counters, Pick};
use super::high_water_mark::{HighWaterMark, Range, Within};

/// The maximum count of one call for several requests; a larger request gets its own call.
const MAX_BATCH: u64 = 1 << 40;
/// How many numbers one call may skip at a counter that is below the first number and cannot be raised.
const MAX_SKIPPED: u64 = 1 << 20;
/// The index of the only counter, in events.
const COUNTER: usize = 0;

/// A request until it is answered; the values increase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Whether the numbers of a request have to be consecutive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// They may come in parts.
    Any,
    /// They are consecutive.
    Consecutive,
}

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Some of its numbers; more follow.
    Part(Segment),
    /// The last of its numbers.
    Done(Segment),
    /// Nothing: the numbers are used up.
    Exhausted,
    /// Nothing, and the counter is as it was: fewer numbers are left.
    TooFewLeft {
        /// At most this many are left.
        left: u64,
    },
    /// Nothing: the store has no room for this many.
    NoRoom,
    /// Nothing: the counter went back and cannot be raised.
    Stuck {
        /// The greatest number received from it.
        highest: u64,
    },
    /// Nothing: the counter returned fewer consecutive numbers.
    TooMany {
        /// The number of numbers it returned.
        given: u64,
    },
    /// Nothing: the numbers of the counter are not consecutive.
    Apart {
        /// The distance from one number to the next.
        step: NonZeroU64,
    },
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reserve numbers and pass on the answer.
    Reserve {
        /// The count.
        count: NonZeroU64,
        /// The timeout, in milliseconds.
        timeout_ms: u64,
    },
    /// [Peek](snowmint_store::Counter::peek) at the counter, and pass on the answer.
    Peek {
        /// The timeout, in milliseconds.
        timeout_ms: u64,
    },
    /// Raise the counter above a number and pass on the answer.
    Raise {
        /// The number.
        above: u64,
        /// The timeout, in milliseconds.
        timeout_ms: u64,
    },
    /// Call `next` again after this many milliseconds.
    Wait(u64),
    /// Tell this request that the numbers are used up, and call `next` again.
    Refuse(RequestId),
    /// Tell this request that fewer numbers are left, and call `next` again.
    RefuseTooMany {
        /// The request.
        id: RequestId,
        /// At most this many are left.
        left: u64,
    },
    /// Tell this request that the counter went back and cannot be raised, and call `next` again.
    GiveUp {
        /// The request.
        id: RequestId,
        /// The greatest number received from the counter.
        highest: u64,
    },
    /// Nothing: no request waits.
    Idle,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    id: RequestId,
    missing: NonZeroU64,
    order: Order,
}

/// A call in flight, for the first requests in the queue.
#[derive(Clone, Copy, Debug)]
struct Asked {
    requests: usize,
    count: NonZeroU64,
    at_ms: u64,
    /// The smallest expected number; an answer that begins below it shows that the counter went back.
    least: u64,
}

/// The state machine of one counter; see the module's page.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and any combination can be")]
pub struct Batching {
    range: Range,
    counter: Counters,
    requests: VecDeque<Request>,
    asked: Option<Asked>,
    high_water_mark: HighWaterMark,
    /// The counter has to be raised before the next reservation.
    raise: Option<Raise>,
    /// When the raise in flight was sent.
    raising_since_ms: Option<u64>,
    /// A peek is in flight.
    peeking: bool,
    /// How many numbers are left at most, once the counter was looked at for the next reservation.
    left: Option<u64>,
    /// The distance from one number to the next, as far as known.
    step: NonZeroU64,
    /// The counter cannot be raised.
    fixed: bool,
    /// The greatest number received, once the counter went back and cannot be raised.
    stuck: Option<u64>,
    /// How far a counter that cannot be raised is below the first number.
    below: u64,
    /// The first request gets its own call, because there was no room for all.
    alone: bool,
    reported_nearly_exhausted: bool,
}

impl Batching {
    /// A machine for one counter; `seed` only decides how long it waits after failures.
    pub fn new(range: Range, seed: u64) -> Self {
        Self {
            range,
            counter: Counters::new(1, seed),
            requests: VecDeque::new(),
            asked: None,
            high_water_mark: HighWaterMark::default(),
            raise: None,
            raising_since_ms: None,
            peeking: false,
            left: None,
            step: NonZeroU64::MIN,
            fixed: false,
            stuck: None,
            below: 0,
            alone: false,
            reported_nearly_exhausted: false,
        }
    }

    /// Returns the same machine, which shares the high-water mark of its counter with others.
    #[must_use]
    pub fn sharing(mut self, high_water_mark: HighWaterMark) -> Self {
        self.high_water_mark = high_water_mark;
        self
    }

    /// Adds a request.
    pub fn request(&mut self, id: RequestId, count: NonZeroU64, order: Order) {
        self.requests.push_back(Request { id, missing: count, order });
    }

    /// Drops requests whose callers were cancelled. Does nothing while a call is in flight.
    pub fn retain(&mut self, mut waits: impl FnMut(RequestId) -> bool) {
        if self.asked.is_none() {
            self.requests.retain(|request| waits(request.id));
        }
    }

    /// Returns what to do next; nothing while a call is in flight.
    pub fn next(&mut self, now_ms: u64) -> Action {
        let calling = self.asked.is_some() || self.raising_since_ms.is_some() || self.peeking;
        if self.requests.is_empty() && !calling {
            // What was left then says nothing about a later request.
            self.left = None;
        }
        if self.requests.is_empty() || calling {
            return Action::Idle;
        }
        if let Some(highest) = self.stuck {
            let refused = self.requests.pop_front();
            return refused.map_or(Action::Idle, |request| Action::GiveUp { id: request.id, highest });
        }
        match (self.counter.pick(now_ms), self.raise) {
            (Pick::Ask { timeout_ms, .. }, Some(raise)) => {
                self.raising_since_ms = Some(now_ms);
                Action::Raise { above: raise.above, timeout_ms }
            }
            (Pick::Ask { timeout_ms, .. }, None) if self.left.is_none() && self.must_peek() => {
                self.peeking = true;
                Action::Peek { timeout_ms }
            }
            (Pick::Ask { timeout_ms, .. }, None) => {
                if let Some(refusal) = self.refuse_too_many() {
                    return refusal;
                }
                let (requests, count) = self.batch();
                self.left = None;
                let least = self.high_water_mark.end();
                self.asked = Some(Asked { requests, count, at_ms: now_ms, least });
                Action::Reserve { count, timeout_ms }
            }
            (Pick::Wait(ms), _) => {
                self.left = None;
                Action::Wait(ms)
            }
            // Another call would only move the counter further beyond the maximum.
            (Pick::Exhausted, _) => {
                self.requests.pop_front().map_or(Action::Idle, |request| Action::Refuse(request.id))
            }
        }
    }

    /// Returns whether a request for several numbers waits that may be more than are left. A reservation beyond the maximum would
    /// use up the numbers below it for everybody.
    fn must_peek(&self) -> bool {
        let near_the_first = self.range.first > 1 && self.high_water_mark.end() <= self.range.first;
        let bounded = self.range.maximum < MAX_NUMBER;
        (bounded || near_the_first) && self.requests.iter().any(|request| request.missing > NonZeroU64::MIN)
    }

    /// Refuses a request for more numbers than are left. The counter may be further than is known here, but not less far.
    fn refuse_too_many(&mut self) -> Option<Action> {
        let known = self.range.left_at_most(self.high_water_mark.end(), self.step);
        let left = known.min(self.left.unwrap_or(u64::MAX));
        let is_too_large = |it: &Request| it.missing > NonZeroU64::MIN && it.missing.get() > left;
        let refused = self.requests.remove(self.requests.iter().position(is_too_large)?)?;
        Some(match left {
            0 => Action::Refuse(refused.id),
            left => Action::RefuseTooMany { id: refused.id, left },
        })
    }

    /// Takes the answer to [`Action::Peek`], and returns what changed. A peek that succeeds says nothing about reservations, which
    /// may fail or be slow all the same.
    pub fn peeked(&mut self, now_ms: u64, answer: Result<Option<Segment>, CounterFailure>) -> Option<Event> {
        if !std::mem::take(&mut self.peeking) {
            return None;
        }
        let next = match answer {
            Ok(next) => next,
            Err(failure) => return self.unanswered(now_ms, failure),
        };
        self.left = Some(next.map_or(u64::MAX, |next| self.range.left_from(next.first(), next.step())));
        if next.is_some_and(|next| next.first() < self.range.first) && !self.fixed {
            self.raise_to_first();
        }
        None
    }

    fn raise_to_first(&mut self) {
        let above = self.range.first.saturating_sub(1);
        self.raise = Some(Raise { above, reason: RaiseReason::BelowFirst });
    }

    /// Returns how many requests the next call is for, and its count: no more than are left, unless one number each.
    fn batch(&self) -> (usize, NonZeroU64) {
        let (mut requests, mut count) = (0, 0_u64);
        let most = self.left.unwrap_or(u64::MAX).min(MAX_BATCH);
        for request in &self.requests {
            let sum = count.saturating_add(request.missing.get());
            if requests > 0 && (sum > most || self.alone) {
                break;
            }
            (requests, count) = (requests + 1, sum);
        }
        let count = count.saturating_add(self.below.min(MAX_SKIPPED));
        (requests, NonZeroU64::new(count).unwrap_or(NonZeroU64::MIN))
    }

    /// Takes the answer to [`Action::Reserve`] and returns what each request gets, and what changed.
    pub fn answered(
        &mut self,
        now_ms: u64,
        answer: Result<Segment, CounterFailure>,
    ) -> (Vec<(RequestId, RequestOutcome)>, Vec<Event>) {
        let Some(asked) = self.asked.take() else { return (Vec::new(), Vec::new()) };
        match answer {
            Ok(segment) => {
                let failures = self.counter.succeeded(COUNTER, now_ms.saturating_sub(asked.at_ms));
                if let Some(forgot) = self.high_water_mark.forgot(segment, asked.least) {
                    let above = self.high_water_mark.highest();
                    self.raise = Some(Raise { above, reason: RaiseReason::WentBack });
                    let highest = asked.least - 1;
                    let went_back = Event::WentBack { counter: COUNTER, segment, highest, forgot };
                    return (Vec::new(), vec![went_back]);
                }
                self.high_water_mark.received(segment);
                self.high_water_mark.settled(segment);
                self.step = segment.step();
                let mut events = Vec::from_iter(recovered(failures));
                let highest = segment.last().min(self.range.maximum);
                if self.range.is_nearly_exhausted(highest)
                    && !std::mem::replace(&mut self.reported_nearly_exhausted, true)
                {
                    events.push(Event::NearlyExhausted { highest });
                }
                (self.hand_out(asked.requests, segment), events)
            }
            Err(failure) => self.failed(now_ms, asked, failure),
        }
    }

    /// Takes the answer to [`Action::Raise`], which says whether the counter can be raised, and returns what changed.
    pub fn raised(&mut self, now_ms: u64, answer: Result<bool, CounterFailure>) -> Option<Event> {
        let (since_ms, raise) = (self.raising_since_ms.take()?, self.raise?);
        let can = match answer {
            Ok(can) => can,
            Err(failure) => return self.unanswered(now_ms, failure),
        };
        self.raise = None;
        let failures = self.counter.succeeded(COUNTER, now_ms.saturating_sub(since_ms));
        match (can, raise.reason) {
            (true, RaiseReason::WentBack) => {
                return Some(Event::Raised { counter: COUNTER, above: raise.above });
            }
            (false, RaiseReason::WentBack) => {
                self.stuck = Some(raise.above);
                return Some(Event::Stuck { counter: COUNTER, highest: raise.above });
            }
            (false, RaiseReason::BelowFirst) => self.fixed = true,
            (true, RaiseReason::BelowFirst) => {}
        }
        recovered(failures)
    }

    fn hand_out(&mut self, requests: usize, segment: Segment) -> Vec<(RequestId, RequestOutcome)> {
        self.below = 0;
        self.alone = false;
        if segment.last().saturating_add(segment.step().get()) > self.range.maximum {
            self.counter.exhausted(COUNTER);
        }
        let mut rest = match self.range.cut(segment) {
            Within::Some(segment) => Some(segment),
            Within::Below { missing } => {
                if self.fixed {
                    self.below = missing;
                } else {
                    self.raise_to_first();
                }
                return Vec::new();
            }
            Within::Above => None,
        };
        let cut_off = rest.is_none_or(|rest| rest.last() < segment.last());
        if !cut_off && rest.is_some_and(|rest| rest.first() > segment.first() && self.splits_the_first(rest))
        {
            // The counter was below the first number. Now it is above, so the next call gives a whole run.
            return Vec::new();
        }
        let mut outcomes = Vec::new();
        let mut served: Vec<Request> = self.requests.drain(..requests).collect();
        served.reverse();
        while let Some(request) = served.pop() {
            let outcome = match rest {
                None if cut_off => RequestOutcome::Exhausted,
                None => {
                    served.push(request);
                    break;
                }
                Some(numbers) => give(request, numbers, cut_off, &mut rest),
            };
            outcomes.push((request.id, outcome));
            if let RequestOutcome::Part(part) = outcome
                && let Some(missing) = NonZeroU64::new(request.missing.get() - part.count().get())
            {
                served.push(Request { missing, ..request });
            }
        }
        // The counter returned fewer numbers than requested: these requests come first in the next call.
        for request in served {
            self.requests.push_front(request);
        }
        outcomes
    }

    /// Returns whether numbers are too few for the first request, which needs consecutive ones.
    fn splits_the_first(&self, numbers: Segment) -> bool {
        let first = self.requests.front();
        first.is_some_and(|it| it.order == Order::Consecutive && it.missing > numbers.count())
    }

    fn failed(
        &mut self,
        now_ms: u64,
        asked: Asked,
        failure: CounterFailure,
    ) -> (Vec<(RequestId, RequestOutcome)>, Vec<Event>) {
        match failure {
            CounterFailure::Full if asked.requests > 1 => {
                // One request may be too large; the others need not fail with it.
                self.alone = true;
                return (Vec::new(), Vec::new());
            }
            CounterFailure::Full if asked.count > NonZeroU64::MIN => {
                self.alone = false;
                let refused = self.requests.pop_front();
                return (refused.into_iter().map(|it| (it.id, RequestOutcome::NoRoom)).collect(), Vec::new());
            }
            CounterFailure::TimedOut => self.counter.timed_out(COUNTER),
            CounterFailure::Full | CounterFailure::Failed => {}
        }
        (Vec::new(), Vec::from_iter(self.failing(now_ms)))
    }

    /// Records that a call which reserves nothing has failed.
    fn unanswered(&mut self, now_ms: u64, failure: CounterFailure) -> Option<Event> {
        if failure == CounterFailure::TimedOut {
            self.counter.timed_out(COUNTER);
        }
        self.failing(now_ms)
    }

    fn failing(&mut self, now_ms: u64) -> Option<Event> {
        self.counter.failed(COUNTER, now_ms).then_some(Event::Failing { counter: COUNTER })
    }
}

fn recovered(failures: u32) -> Option<Event> {
    (failures > 0).then_some(Event::Recovered { counter: COUNTER, failures })
}

/// Gives one request its share of the numbers, and leaves the rest.
fn give(request: Request, numbers: Segment, cut_off: bool, rest: &mut Option<Segment>) -> RequestOutcome {
    let (available, wanted) = (numbers.count(), request.missing);
    if request.order == Order::Consecutive && wanted > NonZeroU64::MIN {
        if numbers.step() > NonZeroU64::MIN {
            return RequestOutcome::Apart { step: numbers.step() };
        }
        if available < wanted {
            return if cut_off {
                RequestOutcome::Exhausted
            } else {
                RequestOutcome::TooMany { given: available.get() }
            };
        }
    }
    let count = available.min(wanted);
    *rest = NonZeroU64::new(available.get() - count.get()).and_then(|left| {
        Segment::new(numbers.first() + count.get() * numbers.step().get(), numbers.step(), left)
    });
    match Segment::new(numbers.first(), numbers.step(), count) {
        Some(part) if count == wanted => RequestOutcome::Done(part),
        Some(part) => RequestOutcome::Part(part),
        // Unreachable: a part of a segment is a segment.
        None => RequestOutcome::Exhausted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::high_water_mark::Forgot;

    fn n(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }

    fn numbers(first: u64, count: u64) -> Segment {
        Segment::new(first, NonZeroU64::MIN, n(count)).unwrap()
    }

    fn batching() -> Batching {
        Batching::new(Range { first: 1, maximum: MAX_NUMBER }, 1)
    }

    fn up_to_1000() -> Batching {
        Batching::new(Range { first: 1, maximum: 1000 }, 1)
    }

    fn peek(batching: &mut Batching, next: Option<u64>) {
        assert!(matches!(batching.next(0), Action::Peek { .. }));
        assert_eq!(batching.next(0), Action::Idle, "one call at a time");
        assert_eq!(batching.peeked(0, Ok(next.map(|first| numbers(first, 1)))), None);
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
            batching.request(RequestId(caller), n(count), Order::Consecutive);
        }
        assert_eq!(reserve(&mut batching), 8);
        let (given, _) = batching.answered(1, Ok(numbers(10, 8)));
        let expected = [(1, numbers(10, 2)), (2, numbers(12, 1)), (3, numbers(13, 5))];
        assert_eq!(given, expected.map(|(caller, part)| (RequestId(caller), RequestOutcome::Done(part))));
        assert_eq!(batching.next(0), Action::Idle);
    }

    #[test]
    fn a_request_during_a_call_gets_nothing_from_it() {
        let mut batching = batching();
        batching.request(RequestId(1), n(1), Order::Any);
        assert_eq!(reserve(&mut batching), 1);
        batching.request(RequestId(2), n(1), Order::Any);
        assert_eq!(batching.next(0), Action::Idle, "one call at a time");
        // The counter returned more than was requested: the rest is lost.
        let (given, _) = batching.answered(1, Ok(numbers(10, 5)));
        assert_eq!(given, [(RequestId(1), RequestOutcome::Done(numbers(10, 1)))]);
        assert_eq!(reserve(&mut batching), 1);
    }

    #[test]
    fn a_lost_answer_is_asked_again_for_everybody_who_still_waits() {
        let mut batching = batching();
        batching.request(RequestId(1), n(1), Order::Any);
        batching.request(RequestId(2), n(2), Order::Any);
        assert_eq!(reserve(&mut batching), 3);
        assert_eq!(
            batching.answered(0, Err(CounterFailure::TimedOut)),
            (vec![], vec![Event::Failing { counter: 0 }])
        );
        batching.request(RequestId(3), n(4), Order::Any);
        batching.retain(|id| id != RequestId(2));
        let Action::Wait(ms) = batching.next(0) else { panic!() };
        let Action::Reserve { count, timeout_ms } = batching.next(ms) else { panic!() };
        assert_eq!((count.get(), timeout_ms), (5, 2000));
        let (given, events) = batching.answered(ms, Ok(numbers(4, 5)));
        assert_eq!(given.len(), 2);
        assert_eq!(events, [Event::Recovered { counter: 0, failures: 1 }]);
    }

    #[test]
    fn a_counter_that_gives_fewer_is_asked_again_for_the_rest() {
        let mut batching = batching();
        batching.request(RequestId(1), n(3), Order::Any);
        batching.request(RequestId(2), n(3), Order::Any);
        batching.request(RequestId(3), n(3), Order::Any);
        assert_eq!(reserve(&mut batching), 9);
        let (given, _) = batching.answered(0, Ok(numbers(1, 4)));
        let expected = [(1, RequestOutcome::Done(numbers(1, 3))), (2, RequestOutcome::Part(numbers(4, 1)))];
        assert_eq!(given, expected.map(|(caller, outcome)| (RequestId(caller), outcome)));
        assert_eq!(reserve(&mut batching), 5);
        let (given, _) = batching.answered(0, Ok(numbers(5, 5)));
        let expected = [(2, numbers(5, 2)), (3, numbers(7, 3))];
        assert_eq!(given, expected.map(|(caller, part)| (RequestId(caller), RequestOutcome::Done(part))));
    }

    #[test]
    fn numbers_that_cannot_be_consecutive_are_refused() {
        let mut batching = batching();
        batching.request(RequestId(1), n(3), Order::Consecutive);
        reserve(&mut batching);
        let (given, _) = batching.answered(0, Ok(numbers(1, 2)));
        assert_eq!(given, [(RequestId(1), RequestOutcome::TooMany { given: 2 })]);
        batching.request(RequestId(2), n(2), Order::Consecutive);
        batching.request(RequestId(3), n(1), Order::Consecutive);
        reserve(&mut batching);
        let (given, _) = batching.answered(0, Ok(Segment::new(3, n(2), n(3)).unwrap()));
        let one = Segment::new(3, n(2), n(1)).unwrap();
        assert_eq!(
            given,
            [(RequestId(2), RequestOutcome::Apart { step: n(2) }), (RequestId(3), RequestOutcome::Done(one))]
        );
    }

    #[test]
    fn beyond_the_maximum_there_is_nothing() {
        let mut batching = up_to_1000();
        for caller in 1..=3 {
            batching.request(RequestId(caller), n(2), Order::Any);
        }
        // The counter cannot tell how far it is.
        peek(&mut batching, None);
        reserve(&mut batching);
        let (given, _) = batching.answered(0, Ok(numbers(998, 6)));
        let last = RequestOutcome::Part(numbers(1000, 1));
        let first = RequestOutcome::Done(numbers(998, 2));
        let expected =
            [(1, first), (2, last), (2, RequestOutcome::Exhausted), (3, RequestOutcome::Exhausted)];
        assert_eq!(given, expected.map(|(caller, outcome)| (RequestId(caller), outcome)));
        batching.request(RequestId(4), n(1), Order::Any);
        assert_eq!(batching.next(0), Action::Refuse(RequestId(4)), "without another call");
        assert_eq!(batching.next(0), Action::Idle);
    }

    /// Goal: a reservation does not go beyond the maximum for a request that is too large. Method: a counter that others have moved
    /// on, and requests that fit one by one, not together.
    #[test]
    fn nobody_gets_more_than_are_left_and_no_call_goes_beyond_them() {
        let mut batching = up_to_1000();
        for (id, count) in [(1, 60), (2, 101), (3, 60), (4, 1)] {
            batching.request(RequestId(id), n(count), Order::Consecutive);
        }
        peek(&mut batching, Some(901));
        assert_eq!(batching.next(0), Action::RefuseTooMany { id: RequestId(2), left: 100 });
        assert_eq!(reserve(&mut batching), 60, "the next would go beyond the maximum");
        let (given, _) = batching.answered(0, Ok(numbers(901, 60)));
        assert_eq!(given, [(RequestId(1), RequestOutcome::Done(numbers(901, 60)))]);
        peek(&mut batching, Some(961));
        assert_eq!(batching.next(0), Action::RefuseTooMany { id: RequestId(3), left: 40 });
        assert_eq!(reserve(&mut batching), 1);
        let (given, _) = batching.answered(0, Ok(numbers(961, 1)));
        assert_eq!(given, [(RequestId(4), RequestOutcome::Done(numbers(961, 1)))]);
        // A look that is behind what this node knows, and one that fails.
        batching.request(RequestId(5), n(40), Order::Any);
        assert!(matches!(batching.next(0), Action::Peek { .. }));
        let failed = batching.peeked(0, Err(CounterFailure::TimedOut));
        assert_eq!(failed, Some(Event::Failing { counter: COUNTER }));
        let Action::Wait(ms) = batching.next(0) else { panic!() };
        assert!(matches!(batching.next(ms), Action::Peek { .. }));
        assert_eq!(batching.peeked(ms, Ok(Some(numbers(1, 1)))), None);
        assert_eq!(batching.next(ms), Action::RefuseTooMany { id: RequestId(5), left: 39 });
        assert_eq!(batching.next(ms), Action::Idle);
    }

    /// Goal: a look counts for the requests that waited then. Method: requests that are refused or whose callers leave, and others
    /// after them.
    #[test]
    fn a_look_of_earlier_requests_does_not_count() {
        let mut batching = up_to_1000();
        batching.request(RequestId(1), n(200), Order::Any);
        peek(&mut batching, Some(901));
        assert_eq!(batching.next(0), Action::RefuseTooMany { id: RequestId(1), left: 100 });
        assert_eq!(batching.next(0), Action::Idle);
        batching.request(RequestId(2), n(80), Order::Any);
        assert!(matches!(batching.next(0), Action::Peek { .. }));
        batching.retain(|_| false);
        batching.peeked(0, Ok(Some(numbers(901, 1))));
        assert_eq!(batching.next(0), Action::Idle);
        batching.request(RequestId(3), n(80), Order::Any);
        peek(&mut batching, Some(961));
        assert_eq!(batching.next(0), Action::RefuseTooMany { id: RequestId(3), left: 40 });
    }

    /// Goal: reservations that are slower than peeks get the time that they need.
    #[test]
    fn a_peek_does_not_shorten_the_time_of_a_reservation() {
        let mut batching = up_to_1000();
        batching.request(RequestId(1), n(2), Order::Any);
        let (mut now_ms, mut limits) = (0, Vec::new());
        while limits.len() < 3 {
            match batching.next(now_ms) {
                Action::Peek { .. } => drop(batching.peeked(now_ms, Ok(Some(numbers(1, 1))))),
                Action::Reserve { timeout_ms, .. } => {
                    limits.push(timeout_ms);
                    batching.answered(now_ms, Err(CounterFailure::TimedOut));
                }
                Action::Wait(ms) => now_ms += ms,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(limits, [1000, 2000, 4000]);
    }

    /// Goal: a run that would cross the first number begins at it, or above it if the counter cannot be raised.
    #[test]
    fn a_run_does_not_cross_the_first_number() {
        let mut batching = Batching::new(Range { first: 5, maximum: MAX_NUMBER }, 1);
        batching.request(RequestId(1), n(10), Order::Consecutive);
        peek(&mut batching, Some(1));
        assert!(matches!(batching.next(0), Action::Raise { above: 4, .. }));
        assert_eq!(batching.raised(0, Ok(false)), None);
        assert_eq!(reserve(&mut batching), 10);
        assert_eq!(batching.answered(0, Ok(numbers(1, 10))).0, []);
        assert_eq!(reserve(&mut batching), 10);
        let (given, _) = batching.answered(0, Ok(numbers(11, 10)));
        assert_eq!(given, [(RequestId(1), RequestOutcome::Done(numbers(11, 10)))]);
    }

    #[test]
    fn one_that_asks_for_more_than_there_is_does_not_harm_the_others() {
        let mut batching = batching();
        batching.request(RequestId(1), n(1), Order::Any);
        batching.request(RequestId(2), n(MAX_BATCH - 1), Order::Any);
        assert_eq!(reserve(&mut batching), MAX_BATCH);
        assert_eq!(batching.answered(0, Err(CounterFailure::Full)).0, []);
        assert_eq!(reserve(&mut batching), 1);
        assert_eq!(
            batching.answered(0, Ok(numbers(1, 1))).0,
            [(RequestId(1), RequestOutcome::Done(numbers(1, 1)))]
        );
        assert_eq!(reserve(&mut batching), MAX_BATCH - 1);
        assert_eq!(
            batching.answered(0, Err(CounterFailure::Full)).0,
            [(RequestId(2), RequestOutcome::NoRoom)]
        );
    }

    #[test]
    fn a_counter_below_the_first_number_is_moved_on() {
        let mut batching = Batching::new(Range { first: 500, maximum: 1000 }, 1);
        batching.request(RequestId(1), n(1), Order::Any);
        reserve(&mut batching);
        assert_eq!(batching.answered(0, Ok(numbers(1, 1))).0, []);
        let Action::Raise { above: 499, .. } = batching.next(0) else { panic!() };
        assert_eq!(batching.next(0), Action::Idle);
        assert_eq!(batching.raised(0, Ok(true)), None);
        assert_eq!(reserve(&mut batching), 1);
        let (given, _) = batching.answered(0, Ok(numbers(500, 1)));
        assert_eq!(given, [(RequestId(1), RequestOutcome::Done(numbers(500, 1)))]);
    }

    #[test]
    fn a_counter_that_cannot_be_raised_to_the_first_number_is_moved_on_by_addition() {
        let mut batching = Batching::new(Range { first: 500, maximum: 1000 }, 1);
        batching.request(RequestId(1), n(1), Order::Any);
        reserve(&mut batching);
        batching.answered(0, Ok(numbers(1, 1)));
        batching.next(0);
        batching.raised(0, Ok(false));
        assert_eq!(reserve(&mut batching), 1);
        batching.answered(0, Ok(numbers(2, 1)));
        assert_eq!(reserve(&mut batching), 498);
        let (given, _) = batching.answered(0, Ok(numbers(3, 498)));
        assert_eq!(given, [(RequestId(1), RequestOutcome::Done(numbers(500, 1)))]);
    }

    #[test]
    fn from_a_counter_that_went_back_nobody_gets_a_number() {
        let mut batching = batching();
        batching.request(RequestId(1), n(2), Order::Any);
        reserve(&mut batching);
        batching.answered(0, Ok(numbers(100, 2)));
        batching.request(RequestId(2), n(2), Order::Any);
        reserve(&mut batching);
        let forgot = Forgot::Settled;
        let went_back = Event::WentBack { counter: 0, segment: numbers(101, 2), highest: 101, forgot };
        assert_eq!(batching.answered(0, Ok(numbers(101, 2))), (vec![], vec![went_back]));
        let Action::Raise { above: 101, .. } = batching.next(0) else { panic!() };
        assert_eq!(batching.raised(0, Ok(true)), Some(Event::Raised { counter: 0, above: 101 }));
        assert_eq!(reserve(&mut batching), 2);
        let (given, _) = batching.answered(0, Ok(numbers(102, 2)));
        assert_eq!(given, [(RequestId(2), RequestOutcome::Done(numbers(102, 2)))]);
    }

    #[test]
    fn a_request_at_a_counter_that_went_back_and_cannot_be_raised_fails() {
        let mut batching = batching();
        batching.request(RequestId(1), n(2), Order::Any);
        reserve(&mut batching);
        batching.answered(0, Ok(numbers(100, 2)));
        batching.request(RequestId(2), n(2), Order::Any);
        reserve(&mut batching);
        batching.answered(0, Ok(numbers(1, 2)));
        batching.next(0);
        assert_eq!(batching.raised(0, Ok(false)), Some(Event::Stuck { counter: 0, highest: 101 }));
        assert_eq!(batching.next(0), Action::GiveUp { id: RequestId(2), highest: 101 });
        assert_eq!(batching.next(0), Action::Idle);
    }

    #[test]
    fn nine_tenths_are_reported_once() {
        let mut batching = up_to_1000();
        let mut reported = Vec::new();
        for first in [880, 890, 899, 900] {
            batching.request(RequestId(first), n(1), Order::Any);
            reserve(&mut batching);
            reported.push(batching.answered(0, Ok(numbers(first, 1))).1);
        }
        assert_eq!(reported, [vec![], vec![], vec![], vec![Event::NearlyExhausted { highest: 900 }]]);
        batching.request(RequestId(901), n(1), Order::Any);
        reserve(&mut batching);
        assert_eq!(batching.answered(0, Ok(numbers(901, 1))).1, []);
    }
}
