//! What each namespace counts, and how its numbers stand, read when somebody looks.
//! Namespaces come and go, so nothing is kept of them here.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use snowmint_cluster::SegmentStatus;
use snowmint_cluster::namespace::Scheme;

use crate::mint::{HighestReceived, Mint, Namespace};
use crate::settings::SharedClock;

/// Tells of the namespaces that are served at the moment it is asked.
pub(super) struct NamespaceCollector {
    mint: Arc<Mint>,
    clock: SharedClock,
}

/// A namespace with segments, as it stands.
struct Standing {
    name: String,
    status: SegmentStatus,
}

impl NamespaceCollector {
    pub(super) const fn new(mint: Arc<Mint>, clock: SharedClock) -> Self {
        Self { mint, clock }
    }
}

impl fmt::Debug for NamespaceCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NamespaceCollector")
    }
}

impl Collector for NamespaceCollector {
    #[expect(clippy::cast_precision_loss, reason = "a graph needs no more than 52 bits")]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let served = self.mint.served();
        let unrecorded = ConstGauge::new(self.mint.unrecorded().len() as f64);
        let says = "Namespaces that are served though the store has lost their records";
        unrecorded.encode(encoder.encode_descriptor(
            "namespaces_unrecorded",
            says,
            None,
            MetricType::Gauge,
        )?)?;
        let lost = ConstCounter::new(self.mint.records_lost());
        let says = "Records of served namespaces that the store has lost";
        lost.encode(encoder.encode_descriptor("namespace_records_lost", says, None, MetricType::Counter)?)?;
        issued(&mut encoder, served.namespaces())?;
        received(&mut encoder, &self.mint.received().highest())?;
        layouts(&mut encoder, served.namespaces(), self.clock.unix_ms())?;
        let standing = |namespace: &Arc<Namespace>| {
            Some(Standing { name: namespace.name().to_string(), status: namespace.segment_status()? })
        };
        let all: Vec<_> = served.namespaces().iter().filter_map(standing).collect();
        if all.is_empty() {
            return Ok(());
        }
        let mut table = Table { encoder, all: &all };
        table.gauge("numbers_left", "Numbers in memory", |it| it.left as f64)?;
        table.gauge("segment_size", "The size of the next segment", |it| it.size as f64)?;
        table.gauge("numbers_used_ratio", "How much of the range up to the maximum is reserved", |it| {
            it.used
        })?;
        table.gauge("counters_failing", "Counters left out since their last call failed", |it| {
            it.counters_failing as f64
        })?;
        table.whole_gauge("numbers_highest", "The greatest number received from the counters", |it| {
            it.highest.cast_signed()
        })?;
        table.highest_of_periods()?;
        table.counter(
            "segments_refused",
            "Segments that were not used, since their counter had gone back or their reservation was not found again",
            |it| it.refused,
        )?;
        table.counter("segment_refills", "Segments that were reserved", |it| it.refills)?;
        table.counter("segment_store_errors", "Calls to a counter that failed", |it| it.store_errors)?;
        table.counter("segment_misses", "Times there was no number in memory when one was asked for", |it| {
            it.misses
        })
    }
}

fn issued(encoder: &mut DescriptorEncoder<'_>, all: &[Arc<Namespace>]) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(
        "ids_issued",
        "Ids that were given to clients",
        None,
        MetricType::Counter,
    )?;
    for namespace in all {
        let labels = [("namespace", namespace.name().as_str())];
        ConstCounter::new(namespace.issued()).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// By counter, and also of namespaces that are served no longer: `snowmint store recover` raises these counters.
fn received(encoder: &mut DescriptorEncoder<'_>, all: &[HighestReceived]) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    let says = "The greatest number received from a counter since the start";
    let mut family = encoder.encode_descriptor("counter_numbers_highest", says, None, MetricType::Gauge)?;
    for HighestReceived { key, source, stripe, number } in all {
        let source = source.map_or_else(String::new, |source| source.to_string());
        let stripe = stripe.to_string();
        let labels = [("counter", key.as_str()), ("source", source.as_str()), ("stripe", stripe.as_str())];
        ConstGauge::new(number.cast_signed()).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn layouts(encoder: &mut DescriptorEncoder<'_>, all: &[Arc<Namespace>], now_unix_ms: u64) -> fmt::Result {
    let left = |namespace: &Arc<Namespace>| match &namespace.definition().scheme {
        Scheme::Snowflake { layout, .. } => Some((namespace.name().to_string(), layout.left_at(now_unix_ms))),
        _ => None,
    };
    let all: Vec<_> = all.iter().filter_map(left).collect();
    if all.is_empty() {
        return Ok(());
    }
    let says = "Until the timestamps of the namespace's layout run out";
    let mut family = encoder.encode_descriptor("layout_seconds_left", says, None, MetricType::Gauge)?;
    for (name, left) in all {
        let labels = [("namespace", name.as_str())];
        ConstGauge::new(left.as_secs_f64()).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Writes one metric over all namespaces with segments.
struct Table<'a, 'e> {
    encoder: DescriptorEncoder<'e>,
    all: &'a [Standing],
}

impl Table<'_, '_> {
    fn gauge(&mut self, name: &str, help: &str, value: impl Fn(&SegmentStatus) -> f64) -> fmt::Result {
        self.metric(name, help, MetricType::Gauge, |status, row| ConstGauge::new(value(status)).encode(row))
    }

    /// One whose every digit counts.
    fn whole_gauge(&mut self, name: &str, help: &str, value: impl Fn(&SegmentStatus) -> i64) -> fmt::Result {
        self.metric(name, help, MetricType::Gauge, |status, row| ConstGauge::new(value(status)).encode(row))
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Fn(&SegmentStatus) -> u64) -> fmt::Result {
        self.metric(name, help, MetricType::Counter, |status, row| {
            ConstCounter::new(value(status)).encode(row)
        })
    }

    /// A metric of its own: versions that read the one above at other nodes know no period.
    fn highest_of_periods(&mut self) -> fmt::Result {
        let rows = self.all.iter().flat_map(|Standing { name, status }| {
            status.highest_by_period.iter().map(move |(period, highest)| (name, period.to_string(), *highest))
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return Ok(());
        }
        let says = "The greatest number received for a period: the previous, the current and the next";
        let mut family =
            self.encoder.encode_descriptor("numbers_highest_of_period", says, None, MetricType::Gauge)?;
        for (name, period, highest) in rows {
            let labels = [("namespace", name.as_str()), ("period", period.as_str())];
            ConstGauge::new(highest.cast_signed()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn metric(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        write: impl Fn(&SegmentStatus, MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, kind)?;
        for Standing { name, status } in self.all {
            let labels = [("namespace", name.as_str())];
            write(status, family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
