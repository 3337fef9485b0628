//! Chooses the counter to ask next, and how long to wait for it: round robin over those that answer. One that failed is skipped
//! for a while, with exponential backoff.

use snowmint::random::SplitMix64;

use super::known_counter::{CounterEvent, CounterFailure};

/// The wait after the first failure, in milliseconds; it doubles with each further one in a row.
const FIRST_WAIT_MS: u64 = 20;
const MAX_WAIT_MS: u64 = 2000;
/// The timeout of the first call, in milliseconds.
const FIRST_TIMEOUT_MS: u64 = 1000;
const MAX_TIMEOUT_MS: u64 = 6000;
/// How long it may take to notice that a counter answers again: the timeout of a call, and the wait after it.
pub(super) const TO_NOTICE_MS: u64 = MAX_TIMEOUT_MS + MAX_WAIT_MS;

#[derive(Clone, Copy, Debug)]
struct CounterHealth {
    failures: u32,
    /// Until then, the counter is skipped.
    out_until_ms: u64,
    timeout_ms: u64,
    exhausted: bool,
}

/// The counters and their failures so far.
#[derive(Debug)]
pub(crate) struct CounterRotation {
    states: Vec<CounterHealth>,
    /// The first counter to consider.
    next: usize,
    random: SplitMix64,
}

/// The counter to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Ask this counter, with this timeout.
    Ask { counter: usize, timeout_ms: u64 },
    /// Ask none for this many milliseconds.
    Wait(u64),
    /// All counters are exhausted.
    Exhausted,
}

impl CounterRotation {
    pub(crate) fn new(count: usize, seed: u64) -> Self {
        let state =
            CounterHealth { failures: 0, out_until_ms: 0, timeout_ms: FIRST_TIMEOUT_MS, exhausted: false };
        let mut random = SplitMix64::of(seed);
        // A random start, so that not every node begins with the same counter.
        let next = usize::try_from(random.below(count as u64)).unwrap_or(0);
        Self { states: vec![state; count], next, random }
    }

    /// Picks the next counter that is not skipped.
    pub(crate) fn pick(&mut self, now_ms: u64) -> Pick {
        let count = self.states.len();
        let in_turn = (0..count).map(|n| (self.next + n) % count);
        let found = in_turn.into_iter().find(|n| {
            let state = &self.states[*n];
            !state.exhausted && state.out_until_ms <= now_ms
        });
        if let Some(counter) = found {
            self.next = (counter + 1) % count;
            return Pick::Ask { counter, timeout_ms: self.timeout_ms(counter) };
        }
        let usable = self.states.iter().filter(|state| !state.exhausted);
        match usable.map(|state| state.out_until_ms.saturating_sub(now_ms)).min() {
            Some(wait_ms) => Pick::Wait(wait_ms.max(1)),
            None => Pick::Exhausted,
        }
    }

    /// Returns the timeout of a call. A slow store gets more time, unless another one answers.
    fn timeout_ms(&self, counter: usize) -> u64 {
        let others = self.states.iter().enumerate().filter(|(other, _)| *other != counter);
        let another_answers = others.into_iter().any(|(_, state)| !state.exhausted && state.failures == 0);
        if another_answers { FIRST_TIMEOUT_MS } else { self.states[counter].timeout_ms }
    }

    /// Records an answer; returns how many calls had failed in a row.
    fn succeeded(&mut self, counter: usize, took_ms: u64) -> u32 {
        let state = &mut self.states[counter];
        state.timeout_ms = took_ms.saturating_mul(4).clamp(FIRST_TIMEOUT_MS, MAX_TIMEOUT_MS);
        state.out_until_ms = 0;
        std::mem::take(&mut state.failures)
    }

    /// Records a failure; returns whether it is the first in a row.
    fn failed(&mut self, counter: usize, now_ms: u64) -> bool {
        let state = &mut self.states[counter];
        let wait_ms = (FIRST_WAIT_MS << state.failures.min(10)).min(MAX_WAIT_MS);
        // Between half and all of the wait, so that nodes that failed together do not retry together.
        state.out_until_ms = now_ms + wait_ms / 2 + self.random.below(wait_ms / 2 + 1);
        state.failures = state.failures.saturating_add(1);
        state.failures == 1
    }

    /// Records an answer that took this long; returns what to report.
    pub(crate) fn call_succeeded(&mut self, counter: usize, took_ms: u64) -> Option<CounterEvent> {
        let failures = self.succeeded(counter, took_ms);
        (failures > 0).then_some(CounterEvent::Recovered { counter, failures })
    }

    /// Records the failure of a call; returns what to report.
    pub(crate) fn call_failed(
        &mut self,
        counter: usize,
        now_ms: u64,
        failure: CounterFailure,
    ) -> Option<CounterEvent> {
        if failure == CounterFailure::TimedOut {
            self.timed_out(counter);
        }
        self.failed(counter, now_ms).then_some(CounterEvent::Failing { counter })
    }

    /// Gives the next call a longer timeout.
    fn timed_out(&mut self, counter: usize) {
        let state = &mut self.states[counter];
        state.timeout_ms = (state.timeout_ms * 2).min(MAX_TIMEOUT_MS);
    }

    pub(crate) fn exhausted(&mut self, counter: usize) {
        self.states[counter].exhausted = true;
    }

    pub(crate) fn failing(&self) -> usize {
        self.states.iter().filter(|state| state.failures > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(counters: &mut CounterRotation, now_ms: u64) -> usize {
        match counters.pick(now_ms) {
            Pick::Ask { counter, .. } => counter,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_is_asked_in_turn_and_one_that_failed_is_skipped_for_a_while() {
        let mut counters = CounterRotation::new(3, 7);
        let first = asked(&mut counters, 0);
        let round: Vec<usize> = (0..5).map(|_| asked(&mut counters, 0)).collect();
        assert_eq!(round, [1, 2, 3, 4, 5].map(|n| (first + n) % 3));
        assert!(counters.failed(1, 0) && !counters.failed(1, 0), "the first in a row is reported");
        assert!((0..6).all(|_| asked(&mut counters, 0) != 1));
        assert!((0..3).any(|_| asked(&mut counters, MAX_WAIT_MS) == 1), "and asked again later");
        assert_eq!((counters.succeeded(1, 1), counters.failing()), (2, 0));
    }

    #[test]
    fn one_alone_is_waited_for_longer_and_longer() {
        let mut counters = CounterRotation::new(1, 7);
        let (mut now_ms, mut last_wait) = (0, 0);
        for _ in 0..12 {
            let Pick::Ask { counter: 0, .. } = counters.pick(now_ms) else { panic!() };
            counters.failed(0, now_ms);
            let Pick::Wait(wait) = counters.pick(now_ms) else { panic!() };
            assert!(wait <= MAX_WAIT_MS && (wait >= last_wait / 2));
            last_wait = wait;
            now_ms += wait;
        }
        assert!(last_wait >= MAX_WAIT_MS / 2);
    }

    #[test]
    fn a_slow_store_is_given_time_unless_another_answers() {
        let timeout = |counters: &mut CounterRotation| match counters.pick(1 << 40) {
            Pick::Ask { timeout_ms, .. } => timeout_ms,
            other => panic!("{other:?}"),
        };
        let mut alone = CounterRotation::new(1, 7);
        assert_eq!(timeout(&mut alone), FIRST_TIMEOUT_MS);
        for expected in [2000, 4000, MAX_TIMEOUT_MS, MAX_TIMEOUT_MS] {
            alone.timed_out(0);
            assert_eq!(timeout(&mut alone), expected);
        }
        alone.succeeded(0, 1200);
        assert_eq!(timeout(&mut alone), 4800, "what answered in 1.2 s is not given up after 1 s");
        let mut two = CounterRotation::new(2, 7);
        two.timed_out(0);
        two.timed_out(1);
        assert_eq!((timeout(&mut two), timeout(&mut two)), (FIRST_TIMEOUT_MS, FIRST_TIMEOUT_MS));
    }

    #[test]
    fn exhausted_counters_are_not_asked() {
        let mut counters = CounterRotation::new(2, 7);
        counters.exhausted(0);
        assert!((0..4).all(|_| asked(&mut counters, 0) == 1));
        counters.exhausted(1);
        assert_eq!(counters.pick(0), Pick::Exhausted);
    }
}
