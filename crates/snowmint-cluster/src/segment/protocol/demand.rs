//! How fast numbers are used, and what follows: the size of a segment, and how many numbers to keep in memory.

use std::ops::RangeInclusive;

/// The demand is measured over at least this, so that a burst is not taken for a rate.
const WINDOW_MS: u64 = 1000;
/// At most this many segments of the largest size are kept.
const MAX_KEPT: u64 = 16;

/// A number of numbers in a time.
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

/// An instant, and what was drawn until then.
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

/// What is measured, and what is made of it.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    sizes: RangeInclusive<u64>,
    target_ms: u64,
    reserve_ms: u64,
    size: u64,
    /// Where the size was last judged, and the misses until then.
    judged: Option<(Point, u64)>,
    /// Where the rate is measured from.
    window: Option<Point>,
    rate: Rate,
}

impl Demand {
    pub(crate) fn new(sizes: RangeInclusive<u64>, first_size: u64, target_ms: u64, reserve_ms: u64) -> Self {
        let size = first_size.clamp(*sizes.start(), *sizes.end());
        Self { sizes, target_ms, reserve_ms, size, judged: None, window: None, rate: Rate::default() }
    }

    /// Measures, from the numbers drawn and the misses since the start.
    pub(crate) fn observe(&mut self, now_ms: u64, drawn: u64, misses: u64) {
        let now = Point { at_ms: now_ms, drawn };
        let window = *self.window.get_or_insert(now);
        let rate = window.until(now);
        if rate.over_ms >= WINDOW_MS {
            self.window = Some(now);
            self.rate = rate;
        } else {
            // What a window that has only begun shows already.
            let so_far = Rate { over_ms: WINDOW_MS, ..rate };
            if so_far.within(WINDOW_MS) > self.rate.within(WINDOW_MS) {
                self.rate = so_far;
            }
        }
        self.judge(now, misses);
    }

    /// Doubles the size when it was spent in under half the target, or ran out; halves it when it lasted over twice.
    fn judge(&mut self, now: Point, misses: u64) {
        let (judged, judged_misses) = *self.judged.get_or_insert((now, misses));
        let spent = judged.until(now);
        if spent.numbers < self.size {
            return;
        }
        let in_target = u128::from(spent.numbers) * u128::from(self.target_ms);
        let of_size = u128::from(self.size) * u128::from(spent.over_ms);
        if misses > judged_misses || in_target > of_size * 2 {
            self.size = self.size.saturating_mul(2).min(*self.sizes.end());
        } else if in_target * 2 < of_size {
            self.size = (self.size / 2).max(*self.sizes.start());
        }
        self.judged = Some((now, misses));
    }

    /// How many numbers are to be in memory at least: a segment, and what the reserve takes at this demand.
    pub(crate) fn keep(&self) -> u64 {
        self.size.max(self.rate.within(self.reserve_ms)).min(self.sizes.end().saturating_mul(MAX_KEPT))
    }

    /// How many to reserve where `left` are in memory: no small part of a large reserve.
    pub(crate) fn wanted(&self, left: u64) -> u64 {
        let least = self.size.max(self.keep() / MAX_KEPT);
        self.keep().saturating_sub(left).clamp(least, *self.sizes.end())
    }

    /// The largest size of a segment.
    pub(crate) const fn largest(&self) -> u64 {
        *self.sizes.end()
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Numbers a second, rounded up.
    pub(crate) fn per_second(&self) -> u64 {
        let second = u128::from(self.rate.numbers) * 1000;
        u64::try_from(second.div_ceil(u128::from(self.rate.over_ms.max(1)))).unwrap_or(u64::MAX)
    }

    /// How long so many numbers last, in milliseconds; `None` without demand.
    pub(crate) fn lasts_ms(&self, left: u64) -> Option<u64> {
        let ms =
            (u128::from(left) * u128::from(self.rate.over_ms)).checked_div(u128::from(self.rate.numbers))?;
        Some(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// The same demand, where counting restarts.
    pub(crate) fn restart(&mut self) {
        self.judged = None;
        self.window = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET_MS: u64 = 10_000;

    fn demand() -> Demand {
        Demand::new(100..=6400, 0, TARGET_MS, 30_000)
    }

    /// Draws `numbers` every `ms`, and gives the sizes.
    fn sizes_at(demand: &mut Demand, numbers: u64, ms: u64, times: u64) -> Vec<u64> {
        let (begin, _) = demand.judged.unwrap();
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
}
