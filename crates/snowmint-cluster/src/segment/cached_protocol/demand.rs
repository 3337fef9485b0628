//! Measures the demand for numbers, which decides the size of a segment and how many numbers to keep in memory.

use std::ops::RangeInclusive;

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
pub(crate) struct NumberDemand {
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

impl NumberDemand {
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

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET_MS: u64 = 10_000;

    fn demand() -> NumberDemand {
        NumberDemand::new(100..=6400, 0, TARGET_MS, 30_000)
    }

    /// Draws `numbers` every `ms`, and returns the sizes.
    fn sizes_at(demand: &mut NumberDemand, numbers: u64, ms: u64, times: u64) -> Vec<u64> {
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
}
