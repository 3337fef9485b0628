//! Decides how many ids to keep in memory: what the caller uses in half of the maximum age. Pure.
//!
//! It measures the use between two requests. The target grows immediately, so that a burst is served from
//! memory, but to 16 times the ids of the burst at most. It shrinks by half at most until it has covered a
//! whole horizon, so that the first caller after a rest requests only what it needs.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

use crate::buffer::BufferedRange;

/// The use that the buffer covers at most.
const LONGEST_HORIZON: Duration = Duration::from_secs(1);
/// The number of ids in the first request.
const AT_FIRST: u64 = 16;
/// The part of the horizon over which the use is measured at least: a shorter time says little about the
/// rate.
const SHORTEST_PART: u32 = 16;

/// How many ids to keep, and to request at a time.
#[derive(Debug)]
pub(crate) struct BufferTarget {
    bounds: RangeInclusive<u64>,
    horizon: Duration,
    size: u64,
    /// When ids were last requested, and how many had been drawn before.
    last: Option<(Instant, u64)>,
    /// The maximum count of one request. It shrinks when no server returns that many.
    most: u64,
}

impl BufferTarget {
    /// Makes the target of a buffer of `bounds` ids, which are at most `max_age` old.
    pub(crate) fn new(bounds: RangeInclusive<u64>, max_age: Duration) -> Self {
        let size = AT_FIRST.clamp(*bounds.start(), *bounds.end());
        let horizon = (max_age / 2).min(LONGEST_HORIZON);
        Self { bounds, horizon, size, last: None, most: MAX_REQUEST }
    }

    /// Adapts to the use: `drawn` is the number of ids since the client was built, and with `ran_dry` callers
    /// are waiting.
    pub(crate) fn adapt(&mut self, now: Instant, drawn: u64, ran_dry: bool) {
        if let Some((then, before)) = self.last {
            let since = (now - then).max(self.horizon / SHORTEST_PART);
            let is_part = since < self.horizon;
            let used = u128::from(drawn.saturating_sub(before));
            let in_horizon = used * self.horizon.as_nanos() / since.as_nanos();
            let mut size = u64::try_from(in_horizon).unwrap_or(u64::MAX);
            // If nothing was drawn, callers are waiting because servers fail.
            if ran_dry && used > 0 && is_part {
                size = size.max(self.size.saturating_mul(2));
            }
            if is_part {
                size = size.max(self.size / 2);
            }
            self.size = size.clamp(*self.bounds.start(), *self.bounds.end());
        }
        self.last = Some((now, drawn));
    }

    /// Returns the number of ids below which the buffer is refilled: half of the target.
    pub(crate) const fn low(&self) -> u64 {
        self.size / 2
    }

    /// Returns the number of ids to request: those that callers are waiting for, plus what the buffer lacks.
    pub(crate) fn request(&self, wanted: u64, left: u64) -> u64 {
        wanted.saturating_add(self.size.saturating_sub(left)).clamp(1, self.most)
    }

    /// Records that a server returned as many ids as requested.
    pub(crate) fn fitted(&mut self) {
        self.most = self.most.saturating_mul(2).min(MAX_REQUEST);
    }

    /// Records that no server returned this many ids.
    pub(crate) fn too_many(&mut self, requested: u64) {
        self.most = (requested / 4).max(1);
    }
}

/// The maximum number of ids in one request, the same as the server's.
pub(crate) const MAX_REQUEST: u64 = 1_000_000;
const _: () = assert!(MAX_REQUEST <= BufferedRange::MAX_COUNT);

#[cfg(test)]
mod tests {
    use super::*;

    fn target(max_age: Duration) -> BufferTarget {
        BufferTarget::new(0..=MAX_REQUEST, max_age)
    }

    /// Requests at a steady rate, each time that half of the target was used.
    fn run(target: &mut BufferTarget, per_second: u64, requests: u32) {
        let (mut now, mut drawn) = (Instant::now(), 0);
        for _ in 0..requests {
            target.adapt(now, drawn, false);
            let used = (target.size / 2).max(1);
            now += Duration::from_nanos(used * 1_000_000_000 / per_second);
            drawn += used;
        }
    }

    #[test]
    fn a_steady_use_is_kept_for_half_the_age() {
        for (per_second, max_age, expected) in
            [(2000, 1000, 1000), (2000, 100, 100), (500, 60_000, 500), (10, 1000, 5)]
        {
            let mut target = target(Duration::from_millis(max_age));
            run(&mut target, per_second, 50);
            assert!(target.size.abs_diff(expected) <= 1, "{per_second} {max_age}: {}", target.size);
        }
        let mut huge = target(Duration::MAX);
        run(&mut huge, 1_000_000_000, 50);
        assert_eq!(huge.size, 1_000_000);
    }

    #[test]
    fn a_burst_is_not_taken_for_a_rate() {
        for max_age in [Duration::from_millis(1), Duration::from_secs(1), Duration::MAX] {
            let mut target = target(max_age);
            let now = Instant::now();
            target.adapt(now, 0, true);
            target.adapt(now + Duration::from_micros(10), 100, true);
            assert_eq!(target.size, 1600, "{max_age:?}");
        }
    }

    #[test]
    fn after_a_rest_only_the_use_counts() {
        let mut target = target(Duration::from_secs(1));
        run(&mut target, 1_000_000_000, 50);
        let (now, drawn) = target.last.unwrap();
        target.adapt(now + Duration::from_millis(499), drawn, false);
        assert_eq!(target.size, 500_000);
        target.adapt(now + Duration::from_millis(999), drawn + 30, true);
        assert_eq!((target.size, target.request(1, 0)), (30, 31));
    }

    #[test]
    fn a_rare_use_keeps_nothing() {
        let mut target = target(Duration::from_secs(1));
        let now = Instant::now();
        for minute in 0..10 {
            target.adapt(now + Duration::from_mins(1) * minute, u64::from(minute), true);
        }
        assert_eq!((target.request(1, 0), target.low()), (1, 0));
    }

    #[test]
    fn a_buffer_that_runs_dry_grows_at_once() {
        let mut target = target(Duration::from_secs(1));
        let now = Instant::now();
        for (request, drawn) in [0, 16, 48, 112].into_iter().enumerate() {
            let request = u32::try_from(request).unwrap();
            target.adapt(now + Duration::from_millis(400) * request, drawn, true);
        }
        assert_eq!(target.size, 128);
        target.adapt(now + Duration::from_millis(1201), 112, true);
        assert_eq!(target.size, 64, "servers that fail do not make it grow");
    }

    #[test]
    fn without_a_buffer_only_what_is_wanted_is_requested() {
        let mut target = BufferTarget::new(0..=0, Duration::from_secs(1));
        run(&mut target, 1000, 3);
        assert_eq!((target.request(1, 0), target.request(500, 0), target.low()), (1, 500, 0));
    }

    #[test]
    fn a_slow_layout_is_asked_for_fewer() {
        let mut target = target(Duration::from_secs(1));
        assert_eq!(target.request(u64::MAX, 0), 1_000_000);
        target.too_many(1_000_000);
        target.too_many(250_000);
        assert_eq!(target.request(u64::MAX, 0), 62_500);
        target.fitted();
        assert_eq!(target.request(u64::MAX, 0), 125_000);
        target.too_many(1);
        assert_eq!(target.request(100, 0), 1);
    }
}
