//! A histogram of times: plain counters, since one with a lock would slow down every request.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, MetricEncoder, NoLabelSet};

/// The times of requests or calls.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// The upper bounds of the buckets, in microseconds.
    bounds_us: &'static [u64],
    /// The number of each bucket; the last one has no upper bound.
    buckets: Box<[AtomicU64]>,
    sum_us: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(bounds_us: &'static [u64]) -> Self {
        let buckets = (0..=bounds_us.len()).map(|_| AtomicU64::default()).collect();
        Self { bounds_us, buckets, sum_us: AtomicU64::default() }
    }

    /// Records `times` that took `time` each.
    pub(crate) fn record(&self, times: u64, time: Duration) {
        if times > 0 {
            let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            let bucket = self.bounds_us.partition_point(|bound| *bound < us);
            self.buckets[bucket].fetch_add(times, Ordering::Relaxed);
            self.sum_us.fetch_add(us.saturating_mul(times), Ordering::Relaxed);
        }
    }

    /// Returns how many there were, and how long all of them took together, in microseconds.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let count = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum();
        (count, self.sum_us.load(Ordering::Relaxed))
    }

    /// Returns the sum in seconds, the count, and the upper bound of each bucket with its own count.
    #[expect(clippy::cast_precision_loss, reason = "a graph needs no more than 52 bits")]
    pub(crate) fn snapshot(&self) -> (f64, u64, Vec<(f64, u64)>) {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let bounds = self.bounds_us.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let sum = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        (sum, counts.iter().sum(), bounds.zip(counts).collect())
    }

    /// Encodes it as a member of a family, unless it is empty: nobody needs its zeros.
    pub(crate) fn encode_if_any(
        &self,
        family: &mut MetricEncoder<'_>,
        labels: &impl EncodeLabelSet,
    ) -> fmt::Result {
        let (sum, count, buckets) = self.snapshot();
        if count == 0 {
            return Ok(());
        }
        family.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_goes_to_the_bucket_that_ends_at_or_above_it() {
        let histogram = Histogram::new(&[25, 50, 10_000_000]);
        for (us, times) in [(0, 1), (25, 2), (26, 3), (10_000_000, 4), (u64::MAX / 1000, 1)] {
            histogram.record(times, Duration::from_micros(us));
        }
        histogram.record(0, Duration::from_secs(1));
        let (_, count, buckets) = histogram.snapshot();
        let counted: Vec<u64> = buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!((count, histogram.totals().0, counted), (11, 11, vec![3, 3, 4, 1]));
    }
}
