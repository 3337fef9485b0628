//! Chooses which counter to ask and for how many numbers, and checks whether its answer counts.
//!
//! - The next counter: round robin over those that answer. One that failed is skipped for a while, with exponential backoff.
//! - The demand for numbers decides the size of a segment, and how many numbers to keep in memory.
//! - The numbers of an answer are cut to the range, and must lie above the high-water mark. The mark shows that a counter went
//!   back, because its store was restored or lost writes.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use snowmint_store::Segment;

use snowmint::random::SplitMix64;

/// The wait after the first failure, in milliseconds; it doubles with each further one in a row.
const FIRST_WAIT_MS: u64 = 20;
const MAX_WAIT_MS: u64 = 2000;
/// The timeout of the first call, in milliseconds.
const FIRST_TIMEOUT_MS: u64 = 1000;
const MAX_TIMEOUT_MS: u64 = 6000;
/// How long it may take to notice that a counter answers again: the timeout of a call, and the wait after it.
pub(super) const TO_NOTICE_MS: u64 = MAX_TIMEOUT_MS + MAX_WAIT_MS;

#[derive(Clone, Copy, Debug)]
struct State {
    failures: u32,
    /// Until then, the counter is skipped.
    out_until_ms: u64,
    timeout_ms: u64,
    exhausted: bool,
}

/// The counters and their failures so far.
#[derive(Debug)]
pub(crate) struct Counters {
    states: Vec<State>,
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

impl Counters {
    pub(crate) fn new(count: usize, seed: u64) -> Self {
        let state = State { failures: 0, out_until_ms: 0, timeout_ms: FIRST_TIMEOUT_MS, exhausted: false };
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
    pub(crate) fn succeeded(&mut self, counter: usize, took_ms: u64) -> u32 {
        let state = &mut self.states[counter];
        state.timeout_ms = took_ms.saturating_mul(4).clamp(FIRST_TIMEOUT_MS, MAX_TIMEOUT_MS);
        state.out_until_ms = 0;
        std::mem::take(&mut state.failures)
    }

    /// Records a failure; returns whether it is the first in a row.
    pub(crate) fn failed(&mut self, counter: usize, now_ms: u64) -> bool {
        let state = &mut self.states[counter];
        let wait_ms = (FIRST_WAIT_MS << state.failures.min(10)).min(MAX_WAIT_MS);
        // Between half and all of the wait, so that nodes that failed together do not retry together.
        state.out_until_ms = now_ms + wait_ms / 2 + self.random.below(wait_ms / 2 + 1);
        state.failures = state.failures.saturating_add(1);
        state.failures == 1
    }

    /// Gives the next call a longer timeout.
    pub(crate) fn timed_out(&mut self, counter: usize) {
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

/// The demand is measured over at least this long, so that a short burst does not count as a rate.
const WINDOW_MS: u64 = 1000;
/// The maximum number of segments of the largest size that memory holds.
const MAX_KEPT: u64 = 16;

/// The numbers drawn in a span of time.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    numbers: u64,
    over_ms: u64,
}

impl Rate {
    fn within(self, ms: u64) -> u64 {
        let numbers = u128::from(self.numbers) * u128::from(ms) / u128::from(self.over_ms.max(1));
        u64::try_from(numbers).unwrap_or(u64::MAX)
    }
}

/// An instant, and the numbers drawn until then.
#[derive(Clone, Copy, Debug)]
struct Point {
    at_ms: u64,
    drawn: u64,
}

impl Point {
    fn until(self, later: Self) -> Rate {
        Rate {
            numbers: later.drawn.saturating_sub(self.drawn),
            over_ms: later.at_ms.saturating_sub(self.at_ms),
        }
    }
}

/// The measured demand and the size of segments.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    sizes: RangeInclusive<u64>,
    target_ms: u64,
    reserve_ms: u64,
    size: u64,
    /// When the size was last adjusted, and the misses until then.
    adjusted: Option<(Point, u64)>,
    /// The start of the current measurement.
    window: Option<Point>,
    rate: Rate,
}

impl Demand {
    pub(crate) fn new(sizes: RangeInclusive<u64>, first_size: u64, target_ms: u64, reserve_ms: u64) -> Self {
        let size = first_size.clamp(*sizes.start(), *sizes.end());
        Self { sizes, target_ms, reserve_ms, size, adjusted: None, window: None, rate: Rate::default() }
    }

    /// Updates the rate and the size by the numbers drawn and the misses since the start.
    pub(crate) fn observe(&mut self, now_ms: u64, drawn: u64, misses: u64) {
        let now = Point { at_ms: now_ms, drawn };
        let window = *self.window.get_or_insert(now);
        let rate = window.until(now);
        if rate.over_ms >= WINDOW_MS {
            self.window = Some(now);
            self.rate = rate;
        } else {
            // A window that has just begun can already show a higher rate.
            let so_far = Rate { over_ms: WINDOW_MS, ..rate };
            if so_far.within(WINDOW_MS) > self.rate.within(WINDOW_MS) {
                self.rate = so_far;
            }
        }
        self.adjust(now, misses);
    }

    /// Doubles the size if it was spent in less than half the target, or ran out; halves it if it lasted more than twice the
    /// target.
    fn adjust(&mut self, now: Point, misses: u64) {
        let (adjusted, misses_before) = *self.adjusted.get_or_insert((now, misses));
        let spent = adjusted.until(now);
        if spent.numbers < self.size {
            return;
        }
        let in_target = u128::from(spent.numbers) * u128::from(self.target_ms);
        let of_size = u128::from(self.size) * u128::from(spent.over_ms);
        if misses > misses_before || in_target > of_size * 2 {
            self.size = self.size.saturating_mul(2).min(*self.sizes.end());
        } else if in_target * 2 < of_size {
            self.size = (self.size / 2).max(*self.sizes.start());
        }
        self.adjusted = Some((now, misses));
    }

    /// Returns how many numbers to keep in memory at least: a segment, or what the reserve needs at this demand.
    pub(crate) fn keep(&self) -> u64 {
        self.size.max(self.rate.within(self.reserve_ms)).min(self.sizes.end().saturating_mul(MAX_KEPT))
    }

    /// Returns how many numbers to reserve if `left` are in memory: at least a sixteenth of the reserve, so that calls are few.
    pub(crate) fn wanted(&self, left: u64) -> u64 {
        let least = self.size.max(self.keep() / MAX_KEPT);
        self.keep().saturating_sub(left).clamp(least, *self.sizes.end())
    }

    /// Returns the largest size of a segment.
    pub(crate) const fn largest(&self) -> u64 {
        *self.sizes.end()
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the demand in numbers per second, rounded up.
    pub(crate) fn per_second(&self) -> u64 {
        let second = u128::from(self.rate.numbers) * 1000;
        u64::try_from(second.div_ceil(u128::from(self.rate.over_ms.max(1)))).unwrap_or(u64::MAX)
    }

    /// Returns how long these numbers last, in milliseconds; `None` without demand.
    pub(crate) fn lasts_ms(&self, left: u64) -> Option<u64> {
        let ms =
            (u128::from(left) * u128::from(self.rate.over_ms)).checked_div(u128::from(self.rate.numbers))?;
        Some(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// Keeps the demand while the counts of drawn numbers start from 0.
    pub(crate) fn restart(&mut self) {
        self.adjusted = None;
        self.window = None;
    }
}

/// The numbers that may be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The smallest number to hand out.
    pub first: u64,
    /// The greatest number to hand out.
    pub maximum: u64,
}

/// The part of a segment within the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    /// These numbers.
    Some(Segment),
    /// None: the counter is below the first number by this many steps.
    Below { missing: u64 },
    /// None: all are above the maximum.
    Above,
}

impl Range {
    pub(crate) fn cut(self, segment: Segment) -> Within {
        let step = segment.step().get();
        if segment.first() > self.maximum {
            return Within::Above;
        }
        let skipped = self.first.saturating_sub(segment.first()).div_ceil(step);
        if skipped >= segment.count().get() {
            return Within::Below { missing: skipped - segment.count().get() };
        }
        let first = segment.first() + skipped * step;
        let Some(room) = self.maximum.checked_sub(first) else { return Within::Above };
        let count = (segment.count().get() - skipped).min(room / step + 1);
        let cut = NonZeroU64::new(count).and_then(|count| Segment::new(first, segment.step(), count));
        cut.map_or(Within::Above, Within::Some)
    }

    /// Returns whether nine tenths of the numbers are used, if those up to `highest` are.
    pub(crate) fn is_nearly_exhausted(self, highest: u64) -> bool {
        let all = self.maximum - self.first + 1;
        (highest + 1).saturating_sub(self.first) >= all - all / 10
    }

    /// Returns the share of the numbers up to `highest`, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a part, for people")]
    pub(crate) fn used(self, highest: u64) -> f64 {
        let all = self.maximum - self.first + 1;
        (highest + 1).saturating_sub(self.first).min(all) as f64 / all as f64
    }
}

/// The ends of the numbers received from one counter, and of those that may be in use. Clones share the mark.
///
/// A counter returns greater numbers to a call that begins after another one has returned. So a segment that begins below
/// the numbers received before its call was made shows that the counter went back. If it begins above all that had settled,
/// the store lost no more than `may_lose` allows, and no number in use.
#[derive(Clone, Debug, Default)]
pub struct HighWaterMark(Arc<Ends>);

#[derive(Debug, Default)]
struct Ends {
    received: AtomicU64,
    settled: AtomicU64,
}

/// Which reservations a store has lost after it acknowledged them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forgot {
    /// Only reservations that had not settled: none of their numbers was used.
    Unsettled,
    /// Reservations whose numbers may be in use.
    Settled,
}

impl HighWaterMark {
    /// Returns the smallest number that the answer to a call may begin with, if the call is made now.
    pub fn end(&self) -> u64 {
        self.0.received.load(Ordering::SeqCst)
    }

    /// Returns the greatest number received, 0 for none.
    pub fn highest(&self) -> u64 {
        self.end().saturating_sub(1)
    }

    /// Records a segment that was received. It may not be used before it has settled.
    pub fn received(&self, segment: Segment) {
        // At most 2^63.
        self.0.received.fetch_max(segment.last() + 1, Ordering::SeqCst);
    }

    /// Records that a received segment has settled: it may be used.
    pub fn settled(&self, segment: Segment) {
        self.0.settled.fetch_max(segment.last() + 1, Ordering::SeqCst);
    }

    /// Records that an unused segment is about to be given back: the counter may go back to its start.
    pub fn giving_back(&self, segment: Segment) {
        for end in [&self.0.settled, &self.0.received] {
            // If more was received in the meantime, the counter is beyond the segment and does not take it back.
            let (last, first) = (segment.last() + 1, segment.first());
            let _ = end.compare_exchange(last, first, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Returns what the store forgot, if a segment shows that the counter went back. `least` is what [`end`](Self::end) returned
    /// when the call was made.
    pub fn forgot(&self, segment: Segment, least: u64) -> Option<Forgot> {
        // Numbers that were given back while the call was in flight may return.
        let least = least.min(self.end());
        let settled = self.0.settled.load(Ordering::SeqCst);
        (segment.first() < least)
            .then(|| if segment.first() < settled { Forgot::Settled } else { Forgot::Unsettled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(counters: &mut Counters, now_ms: u64) -> usize {
        match counters.pick(now_ms) {
            Pick::Ask { counter, .. } => counter,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_is_asked_in_turn_and_one_that_failed_is_skipped_for_a_while() {
        let mut counters = Counters::new(3, 7);
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
        let mut counters = Counters::new(1, 7);
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
        let timeout = |counters: &mut Counters| match counters.pick(1 << 40) {
            Pick::Ask { timeout_ms, .. } => timeout_ms,
            other => panic!("{other:?}"),
        };
        let mut alone = Counters::new(1, 7);
        assert_eq!(timeout(&mut alone), FIRST_TIMEOUT_MS);
        for expected in [2000, 4000, MAX_TIMEOUT_MS, MAX_TIMEOUT_MS] {
            alone.timed_out(0);
            assert_eq!(timeout(&mut alone), expected);
        }
        alone.succeeded(0, 1200);
        assert_eq!(timeout(&mut alone), 4800, "what answered in 1.2 s is not given up after 1 s");
        let mut two = Counters::new(2, 7);
        two.timed_out(0);
        two.timed_out(1);
        assert_eq!((timeout(&mut two), timeout(&mut two)), (FIRST_TIMEOUT_MS, FIRST_TIMEOUT_MS));
    }

    #[test]
    fn exhausted_counters_are_not_asked() {
        let mut counters = Counters::new(2, 7);
        counters.exhausted(0);
        assert!((0..4).all(|_| asked(&mut counters, 0) == 1));
        counters.exhausted(1);
        assert_eq!(counters.pick(0), Pick::Exhausted);
    }

    const TARGET_MS: u64 = 10_000;

    fn demand() -> Demand {
        Demand::new(100..=6400, 0, TARGET_MS, 30_000)
    }

    /// Draws `numbers` every `ms`, and returns the sizes.
    fn sizes_at(demand: &mut Demand, numbers: u64, ms: u64, times: u64) -> Vec<u64> {
        let (begin, _) = demand.adjusted.unwrap();
        let mut draw = |n: u64| {
            demand.observe(begin.at_ms + n * ms, begin.drawn + n * numbers, 0);
            demand.size()
        };
        (1..=times).map(&mut draw).collect()
    }

    #[test]
    fn the_size_follows_the_demand_between_its_bounds() {
        let mut demand = demand();
        demand.observe(0, 0, 0);
        // 200 a second: 10 s take 2000.
        let up = sizes_at(&mut demand, 100, 500, 200);
        assert_eq!(up.last(), Some(&1600), "within a factor of two of what the target takes");
        assert!(up.is_sorted());
        let high = sizes_at(&mut demand, 10_000, 100, 20);
        assert_eq!(high.last(), Some(&6400), "not beyond the largest");
        // 1 a second: 10 s take 10.
        let down = sizes_at(&mut demand, 100, 100_000, 1000);
        assert_eq!(down.last(), Some(&100), "not below the smallest");
    }

    #[test]
    fn a_size_that_lasts_from_half_to_twice_the_target_stays() {
        for lasts_ms in [TARGET_MS / 2, TARGET_MS, TARGET_MS * 2] {
            let mut demand = demand();
            demand.size = 400;
            demand.observe(0, 0, 0);
            assert_eq!(sizes_at(&mut demand, 400, lasts_ms, 1), [400], "{lasts_ms} ms");
        }
        let mut demand = demand();
        demand.size = 400;
        demand.observe(0, 0, 0);
        assert_eq!(sizes_at(&mut demand, 400, TARGET_MS / 2 - 1, 1), [800]);
        assert_eq!(sizes_at(&mut demand, 800, TARGET_MS * 2 + 60, 1), [400]);
    }

    #[test]
    fn a_size_that_ran_out_doubles_however_long_it_lasted() {
        let mut demand = demand();
        demand.observe(0, 0, 0);
        demand.observe(1_000_000, 100, 1);
        assert_eq!(demand.size(), 200);
    }

    #[test]
    fn the_reserve_is_what_the_demand_takes_and_a_segment_at_least() {
        let mut demand = demand();
        demand.observe(0, 0, 0);
        assert_eq!((demand.keep(), demand.wanted(0), demand.wanted(99)), (100, 100, 100));
        demand.observe(2000, 20, 0);
        assert_eq!((demand.per_second(), demand.keep()), (10, 300), "10 a second for 30 s");
        assert_eq!((demand.wanted(0), demand.wanted(150), demand.wanted(290)), (300, 150, 100));
        assert_eq!(demand.lasts_ms(50), Some(5000));
        demand.observe(4000, 2_000_000, 0);
        assert_eq!((demand.keep(), demand.wanted(0)), (6400 * 16, 6400), "bounded");
        demand.observe(400_000, 2_000_000, 0);
        assert_eq!((demand.per_second(), demand.lasts_ms(50)), (0, None));
    }

    #[test]
    fn a_burst_counts_as_a_second_of_it() {
        let mut demand = demand();
        demand.observe(0, 0, 0);
        demand.observe(1, 90, 0);
        assert_eq!(demand.per_second(), 90);
    }

    fn segment(first: u64, step: u64, count: u64) -> Segment {
        Segment::new(first, NonZeroU64::new(step).unwrap(), NonZeroU64::new(count).unwrap()).unwrap()
    }

    #[test]
    fn a_segment_is_cut_to_the_range() {
        let range = Range { first: 10, maximum: 20 };
        for (given, cut) in [
            (segment(10, 1, 11), Within::Some(segment(10, 1, 11))),
            (segment(0, 1, 100), Within::Some(segment(10, 1, 11))),
            (segment(1, 3, 5), Within::Some(segment(10, 3, 2))),
            (segment(12, 3, 50), Within::Some(segment(12, 3, 3))),
            (segment(20, 7, 1), Within::Some(segment(20, 7, 1))),
            (segment(21, 1, 1), Within::Above),
            (segment(0, 1, 10), Within::Below { missing: 0 }),
            (segment(0, 1, 9), Within::Below { missing: 1 }),
            (segment(1, 3, 1), Within::Below { missing: 2 }),
            (segment(5, 100, 2), Within::Above),
        ] {
            assert_eq!(range.cut(given), cut, "{given:?}");
        }
    }

    #[test]
    fn nine_tenths_count_from_the_first_number_on() {
        let range = Range { first: 1000, maximum: 2000 };
        assert!(!range.is_nearly_exhausted(1899) && range.is_nearly_exhausted(1900));
        assert!(!range.is_nearly_exhausted(0));
        let whole = Range { first: 1, maximum: snowmint_store::MAX_NUMBER };
        assert!(!whole.is_nearly_exhausted(7 << 60) && whole.is_nearly_exhausted(u64::MAX >> 1));
    }

    fn numbers(first: u64, count: u64) -> Segment {
        Segment::new(first, NonZeroU64::MIN, NonZeroU64::new(count).unwrap()).unwrap()
    }

    #[test]
    fn only_numbers_that_were_given_back_may_return() {
        let mark = HighWaterMark::default();
        for segment in [numbers(1, 10), numbers(11, 10)] {
            mark.received(segment);
            mark.settled(segment);
        }
        let least = mark.end();
        mark.giving_back(numbers(1, 10));
        assert_eq!(mark.end(), 21, "more was received since");
        mark.giving_back(numbers(15, 6));
        assert_eq!(mark.end(), 15);
        // A call from before the numbers were given back is answered afterwards.
        assert_eq!(mark.forgot(numbers(15, 3), least), None);
        assert_eq!(mark.forgot(numbers(14, 3), least), Some(Forgot::Settled));
        // The counter did not take them back.
        mark.received(numbers(15, 6));
        assert_eq!(
            mark.forgot(numbers(15, 3), mark.end()),
            Some(Forgot::Unsettled),
            "none of these was used"
        );
    }

    #[test]
    fn unsettled_reservations_are_told_from_settled_ones() {
        let mark = HighWaterMark::default();
        mark.received(numbers(1, 10));
        mark.settled(numbers(1, 10));
        mark.received(numbers(11, 10));
        for (first, forgot) in [
            (21, None),
            (20, Some(Forgot::Unsettled)),
            (11, Some(Forgot::Unsettled)),
            (10, Some(Forgot::Settled)),
            (1, Some(Forgot::Settled)),
        ] {
            assert_eq!(mark.forgot(numbers(first, 5), mark.end()), forgot, "{first}");
        }
    }
}
