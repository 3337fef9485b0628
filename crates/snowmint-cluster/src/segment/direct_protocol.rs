//! Batching of requests that wait at the same time into one call to a counter, as a pure state machine.
//! Requests, answers and the time go in; calls and the outcome of each request come out.
//!
//! Numbers increase in real time over all nodes: a request gets numbers only from a call that was made after
//! the request arrived. So a request that arrives after another one was answered, on any node, gets greater
//! numbers.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use snowmint_store::{MAX_NUMBER, Segment};

use super::counters::{CounterRotation, Pick};
use super::high_water_mark::{HighWaterMark, NumberRange, Within};
use super::known_counter::{AskedNumbers, CounterEvent, CounterFailure, KnownCounter};

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
pub enum DirectNext {
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
    /// Tell this request that it gets nothing, and call `next` again.
    Refuse(RequestId, RequestOutcome),
    /// Nothing: no request waits.
    Idle,
}

#[derive(Clone, Copy, Debug)]
struct QueuedRequest {
    id: RequestId,
    missing: NonZeroU64,
    order: Order,
}

/// A call in flight.
#[derive(Clone, Copy, Debug)]
enum InFlight {
    /// A reservation for this number of requests, the first ones in the queue.
    Reserve(usize, AskedNumbers),
    Peek,
    Raise {
        since_ms: u64,
    },
}

/// The state machine of one counter; see the module's page.
#[derive(Debug)]
pub struct Batching {
    range: NumberRange,
    /// When to call the only counter.
    calls: CounterRotation,
    counter: KnownCounter,
    requests: VecDeque<QueuedRequest>,
    in_flight: Option<InFlight>,
    /// How many numbers are left at most, once the counter was looked at for the next reservation.
    left: Option<u64>,
    /// The greatest number received, once the counter went back and cannot be raised.
    stuck: Option<u64>,
    /// The first request gets its own call, because there was no room for all.
    alone: bool,
    reported_nearly_exhausted: bool,
}

impl Batching {
    /// A machine for one counter; `seed` only decides how long it waits after failures.
    pub fn new(range: NumberRange, seed: u64) -> Self {
        Self {
            range,
            calls: CounterRotation::new(1, seed),
            counter: KnownCounter::new(COUNTER),
            requests: VecDeque::new(),
            in_flight: None,
            left: None,
            stuck: None,
            alone: false,
            reported_nearly_exhausted: false,
        }
    }

    /// Returns the same machine, which shares the high-water mark of its counter with others.
    #[must_use]
    pub fn sharing(mut self, high_water_mark: HighWaterMark) -> Self {
        self.counter.high_water_mark = high_water_mark;
        self
    }

    /// Adds a request.
    pub fn request(&mut self, id: RequestId, count: NonZeroU64, order: Order) {
        self.requests.push_back(QueuedRequest { id, missing: count, order });
    }

    /// Drops requests whose callers were cancelled. Does nothing while a reservation is in flight.
    pub fn retain(&mut self, mut waits: impl FnMut(RequestId) -> bool) {
        if !matches!(self.in_flight, Some(InFlight::Reserve(..))) {
            self.requests.retain(|request| waits(request.id));
        }
    }

    /// Returns what to do next; nothing while a call is in flight.
    pub fn next(&mut self, now_ms: u64) -> DirectNext {
        if self.in_flight.is_some() {
            return DirectNext::Idle;
        }
        if self.requests.is_empty() {
            // What was left then says nothing about a later request.
            self.left = None;
            return DirectNext::Idle;
        }
        if let Some(highest) = self.stuck {
            return self.refuse_first(RequestOutcome::Stuck { highest });
        }
        match (self.calls.pick(now_ms), self.counter.raise) {
            (Pick::Ask { timeout_ms, .. }, Some(raise)) => {
                self.in_flight = Some(InFlight::Raise { since_ms: now_ms });
                DirectNext::Raise { above: raise.above, timeout_ms }
            }
            (Pick::Ask { timeout_ms, .. }, None) if self.left.is_none() && self.must_peek() => {
                self.in_flight = Some(InFlight::Peek);
                DirectNext::Peek { timeout_ms }
            }
            (Pick::Ask { timeout_ms, .. }, None) => {
                if let Some(refusal) = self.refuse_too_many() {
                    return refusal;
                }
                let (requests, count) = self.batch();
                self.left = None;
                self.in_flight = Some(InFlight::Reserve(requests, self.counter.ask(count, now_ms)));
                DirectNext::Reserve { count, timeout_ms }
            }
            (Pick::Wait(ms), _) => {
                self.left = None;
                DirectNext::Wait(ms)
            }
            // Another call would only move the counter further beyond the maximum.
            (Pick::Exhausted, _) => self.refuse_first(RequestOutcome::Exhausted),
        }
    }

    fn refuse_first(&mut self, outcome: RequestOutcome) -> DirectNext {
        self.requests.pop_front().map_or(DirectNext::Idle, |request| DirectNext::Refuse(request.id, outcome))
    }

    /// Returns whether a request for several numbers waits that may be more than are left. A reservation
    /// beyond the maximum would use up the numbers below it for everybody.
    fn must_peek(&self) -> bool {
        let near_the_first = self.range.first > 1 && self.counter.high_water_mark.end() <= self.range.first;
        let bounded = self.range.maximum < MAX_NUMBER;
        (bounded || near_the_first) && self.requests.iter().any(|request| request.missing > NonZeroU64::MIN)
    }

    /// Refuses a request for more numbers than are left. The counter may be further than is known here, but
    /// not less far.
    fn refuse_too_many(&mut self) -> Option<DirectNext> {
        let step = self.counter.step.unwrap_or(NonZeroU64::MIN);
        let known = self.range.left_at_most(self.counter.high_water_mark.end(), step);
        let left = known.min(self.left.unwrap_or(u64::MAX));
        let is_too_large = |it: &QueuedRequest| it.missing > NonZeroU64::MIN && it.missing.get() > left;
        let refused = self.requests.remove(self.requests.iter().position(is_too_large)?)?;
        let outcome = if left == 0 { RequestOutcome::Exhausted } else { RequestOutcome::TooFewLeft { left } };
        Some(DirectNext::Refuse(refused.id, outcome))
    }

    /// Takes the answer to [`DirectNext::Peek`], and returns what changed. A peek that succeeds says nothing
    /// about reservations, which may fail or be slow all the same.
    pub fn peeked(
        &mut self,
        now_ms: u64,
        answer: Result<Option<Segment>, CounterFailure>,
    ) -> Option<CounterEvent> {
        self.in_flight.take_if(|it| matches!(it, InFlight::Peek))?;
        let next = match answer {
            Ok(next) => next,
            Err(failure) => return self.calls.call_failed(COUNTER, now_ms, failure),
        };
        self.left = Some(next.map_or(u64::MAX, |next| self.range.left_from(next.first(), next.step())));
        if next.is_some_and(|next| next.first() < self.range.first) {
            // Else the next reservation skips the numbers below.
            self.counter.raise_to_first(self.range);
        }
        None
    }

    /// Returns how many requests the next call is for, and its count: no more than are left, unless one
    /// number each.
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
        let count = count.saturating_add(self.counter.below.min(MAX_SKIPPED));
        (requests, NonZeroU64::new(count).unwrap_or(NonZeroU64::MIN))
    }

    /// Takes the answer to [`DirectNext::Reserve`] and returns what each request gets, and what changed.
    pub fn answered(
        &mut self,
        now_ms: u64,
        answer: Result<Segment, CounterFailure>,
    ) -> (Vec<(RequestId, RequestOutcome)>, Vec<CounterEvent>) {
        let Some(InFlight::Reserve(requests, asked)) =
            self.in_flight.take_if(|it| matches!(it, InFlight::Reserve(..)))
        else {
            return (Vec::new(), Vec::new());
        };
        let segment = match answer {
            Ok(segment) => segment,
            Err(failure) => return self.failed(now_ms, requests, asked, failure),
        };
        let recovered = self.calls.call_succeeded(COUNTER, now_ms.saturating_sub(asked.at_ms));
        let within = match self.counter.received(asked, segment, self.range) {
            Ok(within) => within,
            Err(went_back) => return (Vec::new(), vec![went_back]),
        };
        self.counter.high_water_mark.settled(segment);
        let mut events = Vec::from_iter(recovered);
        let highest = self.counter.highest;
        if self.range.is_nearly_exhausted(highest)
            && !std::mem::replace(&mut self.reported_nearly_exhausted, true)
        {
            events.push(CounterEvent::NearlyExhausted { highest });
        }
        (self.hand_out(requests, segment, within), events)
    }

    /// Takes the answer to [`DirectNext::Raise`], which says whether the counter can be raised, and returns
    /// what changed.
    pub fn raised(&mut self, now_ms: u64, answer: Result<bool, CounterFailure>) -> Option<CounterEvent> {
        let Some(InFlight::Raise { since_ms }) =
            self.in_flight.take_if(|it| matches!(it, InFlight::Raise { .. }))
        else {
            return None;
        };
        let can = match answer {
            Ok(can) => can,
            Err(failure) => return self.calls.call_failed(COUNTER, now_ms, failure),
        };
        let recovered = self.calls.call_succeeded(COUNTER, now_ms.saturating_sub(since_ms));
        let event = self.counter.raised(can);
        if let Some(CounterEvent::Stuck { highest, .. }) = event {
            self.stuck = Some(highest);
        }
        event.or(recovered)
    }

    fn hand_out(
        &mut self,
        requests: usize,
        segment: Segment,
        within: Within,
    ) -> Vec<(RequestId, RequestOutcome)> {
        self.alone = false;
        if segment.last().saturating_add(segment.step().get()) > self.range.maximum {
            self.calls.exhausted(COUNTER);
        }
        let mut rest = match within {
            Within::Some(segment) => Some(segment),
            Within::Below { .. } => return Vec::new(),
            Within::Above => None,
        };
        let cut_off = rest.is_none_or(|rest| rest.last() < segment.last());
        if !cut_off && rest.is_some_and(|rest| rest.first() > segment.first() && self.splits_the_first(rest))
        {
            // The counter was below the first number. Now it is above, so the next call gives a whole run.
            return Vec::new();
        }
        let mut outcomes = Vec::new();
        let mut served: Vec<QueuedRequest> = self.requests.drain(..requests).collect();
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
                served.push(QueuedRequest { missing, ..request });
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
        requests: usize,
        asked: AskedNumbers,
        failure: CounterFailure,
    ) -> (Vec<(RequestId, RequestOutcome)>, Vec<CounterEvent>) {
        match failure {
            CounterFailure::Full if requests > 1 => {
                // One request may be too large; the others need not fail with it.
                self.alone = true;
                (Vec::new(), Vec::new())
            }
            CounterFailure::Full if asked.count > NonZeroU64::MIN => {
                self.alone = false;
                let refused = self.requests.pop_front();
                (refused.into_iter().map(|it| (it.id, RequestOutcome::NoRoom)).collect(), Vec::new())
            }
            failure => (Vec::new(), Vec::from_iter(self.calls.call_failed(COUNTER, now_ms, failure))),
        }
    }
}

/// Gives one request its share of the numbers, and leaves the rest.
fn give(
    request: QueuedRequest,
    numbers: Segment,
    cut_off: bool,
    rest: &mut Option<Segment>,
) -> RequestOutcome {
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
        Batching::new(NumberRange { first: 1, maximum: MAX_NUMBER }, 1)
    }

    fn up_to_1000() -> Batching {
        Batching::new(NumberRange { first: 1, maximum: 1000 }, 1)
    }

    fn peek(batching: &mut Batching, next: Option<u64>) {
        assert!(matches!(batching.next(0), DirectNext::Peek { .. }));
        assert_eq!(batching.next(0), DirectNext::Idle, "one call at a time");
        assert_eq!(batching.peeked(0, Ok(next.map(|first| numbers(first, 1)))), None);
    }

    fn reserve(batching: &mut Batching) -> u64 {
        match batching.next(0) {
            DirectNext::Reserve { count, .. } => count.get(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn callers_that_wait_share_a_call_in_the_order_they_came() {
        let mut batching = batching();
        assert_eq!(batching.next(0), DirectNext::Idle);
        for (caller, count) in [(1, 2), (2, 1), (3, 5)] {
            batching.request(RequestId(caller), n(count), Order::Consecutive);
        }
        assert_eq!(reserve(&mut batching), 8);
        let (given, _) = batching.answered(1, Ok(numbers(10, 8)));
        let expected = [(1, numbers(10, 2)), (2, numbers(12, 1)), (3, numbers(13, 5))];
        assert_eq!(given, expected.map(|(caller, part)| (RequestId(caller), RequestOutcome::Done(part))));
        assert_eq!(batching.next(0), DirectNext::Idle);
    }

    #[test]
    fn a_request_during_a_call_gets_nothing_from_it() {
        let mut batching = batching();
        batching.request(RequestId(1), n(1), Order::Any);
        assert_eq!(reserve(&mut batching), 1);
        batching.request(RequestId(2), n(1), Order::Any);
        assert_eq!(batching.next(0), DirectNext::Idle, "one call at a time");
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
            (vec![], vec![CounterEvent::Failing { counter: 0 }])
        );
        batching.request(RequestId(3), n(4), Order::Any);
        batching.retain(|id| id != RequestId(2));
        let DirectNext::Wait(ms) = batching.next(0) else { panic!() };
        let DirectNext::Reserve { count, timeout_ms } = batching.next(ms) else { panic!() };
        assert_eq!((count.get(), timeout_ms), (5, 2000));
        let (given, events) = batching.answered(ms, Ok(numbers(4, 5)));
        assert_eq!(given.len(), 2);
        assert_eq!(events, [CounterEvent::Recovered { counter: 0, failures: 1 }]);
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
        assert_eq!(
            batching.next(0),
            DirectNext::Refuse(RequestId(4), RequestOutcome::Exhausted),
            "without another call"
        );
        assert_eq!(batching.next(0), DirectNext::Idle);
    }

    /// Goal: a reservation does not go beyond the maximum for a request that is too large. Method: a counter
    /// that others have moved on, and requests that fit one by one, not together.
    #[test]
    fn nobody_gets_more_than_are_left_and_no_call_goes_beyond_them() {
        let mut batching = up_to_1000();
        for (id, count) in [(1, 60), (2, 101), (3, 60), (4, 1)] {
            batching.request(RequestId(id), n(count), Order::Consecutive);
        }
        peek(&mut batching, Some(901));
        assert_eq!(
            batching.next(0),
            DirectNext::Refuse(RequestId(2), RequestOutcome::TooFewLeft { left: 100 })
        );
        assert_eq!(reserve(&mut batching), 60, "the next would go beyond the maximum");
        let (given, _) = batching.answered(0, Ok(numbers(901, 60)));
        assert_eq!(given, [(RequestId(1), RequestOutcome::Done(numbers(901, 60)))]);
        peek(&mut batching, Some(961));
        assert_eq!(
            batching.next(0),
            DirectNext::Refuse(RequestId(3), RequestOutcome::TooFewLeft { left: 40 })
        );
        assert_eq!(reserve(&mut batching), 1);
        let (given, _) = batching.answered(0, Ok(numbers(961, 1)));
        assert_eq!(given, [(RequestId(4), RequestOutcome::Done(numbers(961, 1)))]);
        // A look that is behind what this node knows, and one that fails.
        batching.request(RequestId(5), n(40), Order::Any);
        assert!(matches!(batching.next(0), DirectNext::Peek { .. }));
        let failed = batching.peeked(0, Err(CounterFailure::TimedOut));
        assert_eq!(failed, Some(CounterEvent::Failing { counter: COUNTER }));
        let DirectNext::Wait(ms) = batching.next(0) else { panic!() };
        assert!(matches!(batching.next(ms), DirectNext::Peek { .. }));
        assert_eq!(batching.peeked(ms, Ok(Some(numbers(1, 1)))), None);
        assert_eq!(
            batching.next(ms),
            DirectNext::Refuse(RequestId(5), RequestOutcome::TooFewLeft { left: 39 })
        );
        assert_eq!(batching.next(ms), DirectNext::Idle);
    }

    /// Goal: a look counts for the requests that waited then. Method: requests that are refused or whose
    /// callers leave, and others after them.
    #[test]
    fn a_look_of_earlier_requests_does_not_count() {
        let mut batching = up_to_1000();
        batching.request(RequestId(1), n(200), Order::Any);
        peek(&mut batching, Some(901));
        assert_eq!(
            batching.next(0),
            DirectNext::Refuse(RequestId(1), RequestOutcome::TooFewLeft { left: 100 })
        );
        assert_eq!(batching.next(0), DirectNext::Idle);
        batching.request(RequestId(2), n(80), Order::Any);
        assert!(matches!(batching.next(0), DirectNext::Peek { .. }));
        batching.retain(|_| false);
        batching.peeked(0, Ok(Some(numbers(901, 1))));
        assert_eq!(batching.next(0), DirectNext::Idle);
        batching.request(RequestId(3), n(80), Order::Any);
        peek(&mut batching, Some(961));
        assert_eq!(
            batching.next(0),
            DirectNext::Refuse(RequestId(3), RequestOutcome::TooFewLeft { left: 40 })
        );
    }

    /// Goal: reservations that are slower than peeks get the time that they need.
    #[test]
    fn a_peek_does_not_shorten_the_time_of_a_reservation() {
        let mut batching = up_to_1000();
        batching.request(RequestId(1), n(2), Order::Any);
        let (mut now_ms, mut limits) = (0, Vec::new());
        while limits.len() < 3 {
            match batching.next(now_ms) {
                DirectNext::Peek { .. } => drop(batching.peeked(now_ms, Ok(Some(numbers(1, 1))))),
                DirectNext::Reserve { timeout_ms, .. } => {
                    limits.push(timeout_ms);
                    batching.answered(now_ms, Err(CounterFailure::TimedOut));
                }
                DirectNext::Wait(ms) => now_ms += ms,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(limits, [1000, 2000, 4000]);
    }

    /// Goal: a run that would cross the first number begins at it, or above it if the counter cannot be
    /// raised.
    #[test]
    fn a_run_does_not_cross_the_first_number() {
        let mut batching = Batching::new(NumberRange { first: 5, maximum: MAX_NUMBER }, 1);
        batching.request(RequestId(1), n(10), Order::Consecutive);
        peek(&mut batching, Some(1));
        assert!(matches!(batching.next(0), DirectNext::Raise { above: 4, .. }));
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
        let mut batching = Batching::new(NumberRange { first: 500, maximum: 1000 }, 1);
        batching.request(RequestId(1), n(1), Order::Any);
        reserve(&mut batching);
        assert_eq!(batching.answered(0, Ok(numbers(1, 1))).0, []);
        let DirectNext::Raise { above: 499, .. } = batching.next(0) else { panic!() };
        assert_eq!(batching.next(0), DirectNext::Idle);
        assert_eq!(batching.raised(0, Ok(true)), None);
        assert_eq!(reserve(&mut batching), 1);
        let (given, _) = batching.answered(0, Ok(numbers(500, 1)));
        assert_eq!(given, [(RequestId(1), RequestOutcome::Done(numbers(500, 1)))]);
    }

    #[test]
    fn a_counter_that_cannot_be_raised_to_the_first_number_is_moved_on_by_addition() {
        let mut batching = Batching::new(NumberRange { first: 500, maximum: 1000 }, 1);
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
        let went_back = CounterEvent::WentBack { counter: 0, segment: numbers(101, 2), highest: 101, forgot };
        assert_eq!(batching.answered(0, Ok(numbers(101, 2))), (vec![], vec![went_back]));
        let DirectNext::Raise { above: 101, .. } = batching.next(0) else { panic!() };
        assert_eq!(batching.raised(0, Ok(true)), Some(CounterEvent::Raised { counter: 0, above: 101 }));
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
        assert_eq!(batching.raised(0, Ok(false)), Some(CounterEvent::Stuck { counter: 0, highest: 101 }));
        assert_eq!(
            batching.next(0),
            DirectNext::Refuse(RequestId(2), RequestOutcome::Stuck { highest: 101 })
        );
        assert_eq!(batching.next(0), DirectNext::Idle);
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
        assert_eq!(reported, [vec![], vec![], vec![], vec![CounterEvent::NearlyExhausted { highest: 900 }]]);
        batching.request(RequestId(901), n(1), Order::Any);
        reserve(&mut batching);
        assert_eq!(batching.answered(0, Ok(numbers(901, 1))).1, []);
    }
}
