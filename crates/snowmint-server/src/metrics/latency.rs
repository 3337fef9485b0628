//! How long requests took, as a histogram of plain counters: one that takes a lock would be asked for by every request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::metrics::Protocol;

/// The upper ends of the buckets, in microseconds: an id takes tens, a wait for a tick thousands.
const BOUNDS_US: [u64; 16] = [
    25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    10_000_000,
];

/// How long the requests of one protocol took.
#[derive(Debug, Default)]
pub(super) struct Latency {
    /// Requests of each bucket, those beyond the last bound at the end.
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Latency {
    /// Adds requests that took so long each.
    pub(super) fn took(&self, requests: u64, time: Duration) {
        if requests > 0 {
            let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
            self.buckets[bucket].fetch_add(requests, Ordering::Relaxed);
            self.sum_us.fetch_add(us.saturating_mul(requests), Ordering::Relaxed);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a graph needs no more than 52 bits")]
    fn buckets(&self) -> (f64, u64, Vec<(f64, u64)>) {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let sum = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        (sum, counts.iter().sum(), bounds.zip(counts).collect())
    }
}

/// Shows the histograms of all protocols.
#[derive(Debug)]
pub(super) struct LatencyCollector(pub(super) [(Protocol, Arc<Latency>); 2]);

impl Collector for LatencyCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let says = "How long requests took, from when they had come until they were answered";
        let mut family =
            encoder.encode_descriptor("request_duration_seconds", says, None, MetricType::Histogram)?;
        for (protocol, latency) in &self.0 {
            let (sum, count, buckets) = latency.buckets();
            let labels = [("protocol", protocol.name())];
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_goes_to_the_bucket_that_ends_at_or_above_it() {
        let latency = Latency::default();
        for (us, requests) in [(0, 1), (25, 2), (26, 3), (10_000_000, 4), (u64::MAX / 1000, 1)] {
            latency.took(requests, Duration::from_micros(us));
        }
        latency.took(0, Duration::from_secs(1));
        let (_, count, buckets) = latency.buckets();
        let counted: Vec<u64> = buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!((count, &counted[..3], &counted[15..]), (11, &[3, 3, 0][..], &[4, 1][..]));
    }
}
