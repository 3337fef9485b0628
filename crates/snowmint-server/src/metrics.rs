//! The metrics of the service, for Prometheus: counters of requests and connections, and latency histograms.
//! A connection counts for itself and adds up here once for each write, so that no request pays for it.
//! Gauges of leases, namespaces and the process are read when they are scraped: see `collectors`.

mod collectors;
mod rendering;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::load::memory_trimmer::MemoryTrimmer;
use crate::mint::Mint;
use crate::protocol::Protocol;
use crate::settings::Settings;
use crate::status::ErrorKind;
use crate::store_label::StoreLabel;
use collectors::{
    AdminCollector, CertificateCollector, LeaseCollector, LogCollector, NamespaceCollector, ProcessCollector,
    StoreCollector, TokenCollector,
};
pub(crate) use rendering::Rendering;
use rendering::Renderings;

type Labels = Vec<(&'static str, String)>;

/// The counters of one protocol.
struct PerProtocol {
    requests: Arc<Requests>,
    /// Looked up once, since the lookup of a family takes a lock.
    open: Gauge,
    latency: Arc<Latency>,
}

/// The metrics of the service.
pub(crate) struct Metrics {
    registry: Registry,
    /// The standard metrics of a process, which have no prefix.
    process: Registry,
    protocols: [PerProtocol; Protocol::ALL.len()],
    /// The renderings of each [`Exposition`].
    renderings: [Arc<Renderings>; 2],
    #[cfg(feature = "otlp")]
    pub(crate) spans: Option<crate::telemetry::otlp::SpanCounters>,
}

impl Metrics {
    pub(crate) fn new(
        mint: &Arc<Mint>,
        settings: &Settings,
        trimmer: &Arc<MemoryTrimmer>,
        store: &Arc<StoreLabel>,
    ) -> Self {
        let Settings { clock, tls, access, admin, log, .. } = settings;
        let mut registry = Registry::with_prefix("snowmint");
        let open = Family::<Labels, Gauge>::default();
        registry.register("connections", "Open connections", open.clone());
        let build = Info::new(vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("layout", mint.layout().to_string()),
            ("datacenter", mint.datacenter().to_string()),
        ]);
        registry.register("build", "Version and layout of this node", build);
        registry.register_collector(Box::new(LeaseCollector::new(Arc::clone(mint), Arc::clone(clock))));
        registry.register_collector(Box::new(NamespaceCollector::new(Arc::clone(mint), Arc::clone(clock))));
        registry.register_collector(Box::new(StoreCollector(Arc::clone(store))));
        if let Some(tls) = tls {
            registry.register_collector(Box::new(CertificateCollector(Arc::clone(tls))));
        }
        if let Some(admin) = admin {
            registry.register_collector(Box::new(AdminCollector(admin.clone())));
        }
        if let Some(log) = log {
            registry.register_collector(Box::new(LogCollector(Arc::clone(log))));
        }
        if let Some(access) = access {
            registry.register_collector(Box::new(TokenCollector::new(Arc::clone(access))));
        }
        let protocols = Protocol::ALL.map(|protocol| PerProtocol::new(protocol, &open));
        let requests =
            Protocol::ALL.map(|protocol| (protocol, Arc::clone(&protocols[protocol as usize].requests)));
        registry.register_collector(Box::new(RequestCollector(requests)));
        let latencies =
            Protocol::ALL.map(|protocol| (protocol, Arc::clone(&protocols[protocol as usize].latency)));
        registry.register_collector(Box::new(LatencyCollector(latencies)));
        #[cfg(feature = "otlp")]
        let spans =
            settings.traces.as_ref().map(|_| crate::telemetry::otlp::SpanCounters::register(&mut registry));
        let mut process = Registry::default();
        process.register_collector(Box::new(ProcessCollector::new(clock.unix_ms())));
        Self {
            registry,
            process,
            protocols,
            renderings: [(); 2].map(|()| Renderings::new(trimmer)),
            #[cfg(feature = "otlp")]
            spans,
        }
    }

    /// Counts successful requests.
    pub(crate) fn succeeded(&self, protocol: Protocol, requests: u64) {
        self.protocols[protocol as usize].requests.ok.fetch_add(requests, Ordering::Relaxed);
    }

    /// Records requests that took `time` each.
    pub(crate) fn took(&self, protocol: Protocol, requests: u64, time: Duration) {
        self.protocols[protocol as usize].latency.took(requests, time);
    }

    /// Counts a failed request.
    pub(crate) fn failed(&self, protocol: Protocol, kind: ErrorKind) {
        self.protocols[protocol as usize].requests.failed[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the gauge of open connections.
    pub(crate) fn open(&self, protocol: Protocol) -> &Gauge {
        &self.protocols[protocol as usize].open
    }

    /// Returns the number of requests answered since the start, failed ones included.
    pub(crate) fn requests(&self, protocol: Protocol) -> u64 {
        let Requests { ok, failed } = &*self.protocols[protocol as usize].requests;
        failed.iter().chain([ok]).map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns a rendering of all metrics that begins after this call.
    pub(crate) async fn rendering(
        self: &Arc<Self>,
        exposition: Exposition,
    ) -> Result<Arc<Rendering>, fmt::Error> {
        let metrics = Arc::clone(self);
        self.renderings[exposition as usize].next(move || metrics.text(exposition)).await
    }

    /// Returns all metrics as text.
    pub(crate) fn text(&self, exposition: Exposition) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(16 * 1024);
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, &self.process)?;
        if exposition == Exposition::Text {
            return Ok(classic(&text));
        }
        encode_eof(&mut text)?;
        Ok(text)
    }
}

impl PerProtocol {
    fn new(protocol: Protocol, open: &Family<Labels, Gauge>) -> Self {
        let labels = vec![("protocol", protocol.name().to_owned())];
        Self { requests: Arc::default(), open: open.get_or_create_owned(&labels), latency: Arc::default() }
    }
}

/// The requests of one protocol, by outcome.
#[derive(Debug)]
struct Requests {
    ok: AtomicU64,
    failed: [AtomicU64; ErrorKind::ALL.len()],
}

impl Default for Requests {
    fn default() -> Self {
        Self { ok: AtomicU64::new(0), failed: ErrorKind::ALL.map(|_| AtomicU64::new(0)) }
    }
}

/// The failures that are shown before they occur: an alert on their rate would miss the first one, since a
/// rate needs two samples.
const ALARMING: [ErrorKind; 4] =
    [ErrorKind::NotReady, ErrorKind::Busy, ErrorKind::TooManyClients, ErrorKind::TooManyUnread];

/// Encodes the requests of all protocols. Other failures appear once they occur: most never do.
#[derive(Debug)]
struct RequestCollector([(Protocol, Arc<Requests>); Protocol::ALL.len()]);

impl Collector for RequestCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests answered, by outcome";
        let mut family = encoder.encode_descriptor("requests", help, None, MetricType::Counter)?;
        for (protocol, Requests { ok, failed }) in self.0.iter().map(|(protocol, it)| (protocol, &**it)) {
            let failed = ErrorKind::ALL.into_iter().zip(failed);
            let failed = failed.map(|(kind, count)| (kind.status().name, count, ALARMING.contains(&kind)));
            for (outcome, count, is_always_shown) in std::iter::once(("ok", ok, true)).chain(failed) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 || is_always_shown {
                    let labels = [("protocol", protocol.name()), ("outcome", outcome)];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

/// The text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposition {
    /// The text format of Prometheus 0.0.4.
    Text,
    OpenMetrics,
}

/// Converts `OpenMetrics` to the text format of Prometheus 0.0.4, which every tool reads. The samples are the
/// same; the lines that describe them differ.
///
/// # Source
///
/// `OpenMetrics` 1.0: the name of a counter lacks the `_total` of its samples, and that of an info lacks
/// `_info`. In the older format both are part of the name; it has no infos, no units and no end mark.
fn classic(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let described = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '));
        // The type follows the help.
        let Some((name, help)) = described else {
            if !line.starts_with("# ") {
                push(&mut out, &[line]);
            }
            continue;
        };
        let kind = lines.next_if(|line| line.starts_with("# TYPE ")).and_then(|line| line.rsplit(' ').next());
        let (suffix, kind) = match kind.unwrap_or("unknown") {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            "unknown" => ("", "untyped"),
            kind => ("", kind),
        };
        push(&mut out, &["# HELP ", name, suffix, " ", help]);
        push(&mut out, &["# TYPE ", name, suffix, " ", kind]);
    }
    out
}

fn push(out: &mut String, parts: &[&str]) {
    for part in parts {
        out.push_str(part);
    }
    out.push('\n');
}

/// The upper bounds of the buckets, in microseconds: an id takes tens, a wait for a tick thousands.
const BOUNDS_US: [u64; 16] = [
    25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    10_000_000,
];

/// The latency of the requests of one protocol: plain counters, since a histogram with a lock would slow down
/// every request.
#[derive(Debug, Default)]
struct Latency {
    /// The requests of each bucket; the last one has no upper bound.
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Latency {
    /// Records requests that took `time` each.
    fn took(&self, requests: u64, time: Duration) {
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

/// Encodes the histograms of all protocols.
#[derive(Debug)]
struct LatencyCollector([(Protocol, Arc<Latency>); Protocol::ALL.len()]);

impl Collector for LatencyCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time from the arrival of a request to its answer";
        let mut family =
            encoder.encode_descriptor("request_duration_seconds", help, None, MetricType::Histogram)?;
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
    fn only_the_descriptions_differ() {
        let text = "# HELP a_requests Requests.\n# TYPE a_requests counter\na_requests_total{b=\"c d\"} 1\n\
                    # HELP a_build What.\n# TYPE a_build info\na_build_info{v=\"1\"} 1\n\
                    # HELP a_open Open ones.\n# TYPE a_open gauge\n# UNIT a_open seconds\na_open 2.5\n# EOF\n";
        let wanted = "# HELP a_requests_total Requests.\n# TYPE a_requests_total counter\na_requests_total{b=\"c d\"} 1\n\
                      # HELP a_build_info What.\n# TYPE a_build_info gauge\na_build_info{v=\"1\"} 1\n\
                      # HELP a_open Open ones.\n# TYPE a_open gauge\na_open 2.5\n";
        assert_eq!(classic(text), wanted);
    }

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
