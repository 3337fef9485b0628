//! The metrics of the service, for Prometheus: counters of requests and connections, and latency histograms.
//! A connection counts for itself and adds up here once for each write, so that no request pays for it.
//! Gauges of leases, namespaces and the process are read when they are scraped: see `collectors`.

mod collectors;
mod rendering;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::histogram::Histogram;
use crate::load::memory_trimmer::MemoryTrimmer;
use crate::mint::Mint;
use crate::protocol::Protocol;
use crate::settings::Settings;
use crate::status::ErrorKind;
use crate::store_label::StoreLabel;
use collectors::{
    AdminCollector, CertificateCollector, LeaseCollector, LogCollector, NamespaceCollector, ProcessCollector,
    StoreCallCollector, StoreCollector, TokenCollector,
};
pub(crate) use rendering::Rendering;
use rendering::Renderings;

/// The upper bounds of the time of a request, in microseconds: an id takes tens, a wait for a tick thousands.
const REQUEST_BOUNDS_US: [u64; 16] = [
    25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    10_000_000,
];

/// The counters of one protocol.
#[derive(Debug)]
struct PerProtocol {
    /// Whether a port speaks it.
    is_on: AtomicBool,
    ok: AtomicU64,
    failed: [AtomicU64; ErrorKind::ALL.len()],
    open: Gauge,
    took: Histogram,
}

/// The metrics of the service.
pub(crate) struct Metrics {
    registry: Registry,
    /// The standard metrics of a process, which have no prefix.
    process: Registry,
    protocols: Arc<[PerProtocol; Protocol::ALL.len()]>,
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
        let Settings { clock, tls, access, admin, log, store_calls, .. } = settings;
        let mut registry = Registry::with_prefix("snowmint");
        let build = Info::new(vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("layout", mint.layout().to_string()),
            ("datacenter", mint.datacenter().to_string()),
        ]);
        registry.register("build", "Version and layout of this node", build);
        registry.register_collector(Box::new(LeaseCollector::new(Arc::clone(mint), Arc::clone(clock))));
        registry.register_collector(Box::new(NamespaceCollector::new(Arc::clone(mint), Arc::clone(clock))));
        registry.register_collector(Box::new(StoreCollector(Arc::clone(store))));
        if let Some(calls) = store_calls {
            registry.register_collector(Box::new(StoreCallCollector(Arc::clone(calls))));
        }
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
        let protocols: Arc<[PerProtocol; Protocol::ALL.len()]> = Arc::default();
        registry.register_collector(Box::new(ProtocolCollector(Arc::clone(&protocols))));
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

    /// Notes that a port speaks a protocol: its requests are shown from now on.
    pub(crate) fn serves(&self, protocol: Protocol) {
        self.protocols[protocol as usize].is_on.store(true, Ordering::Relaxed);
    }

    /// Counts successful requests.
    pub(crate) fn succeeded(&self, protocol: Protocol, requests: u64) {
        self.protocols[protocol as usize].ok.fetch_add(requests, Ordering::Relaxed);
    }

    /// Records requests that took `time` each.
    pub(crate) fn took(&self, protocol: Protocol, requests: u64, time: Duration) {
        self.protocols[protocol as usize].took.record(requests, time);
    }

    /// Counts a failed request.
    pub(crate) fn failed(&self, protocol: Protocol, kind: ErrorKind) {
        self.protocols[protocol as usize].failed[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the gauge of open connections.
    pub(crate) fn open(&self, protocol: Protocol) -> &Gauge {
        &self.protocols[protocol as usize].open
    }

    /// Returns the number of requests answered since the start, failed ones included.
    pub(crate) fn requests(&self, protocol: Protocol) -> u64 {
        self.protocols[protocol as usize].answered()
    }

    /// Returns the number of requests that failed on this side since the start: those with a status of 500 or
    /// above over HTTP.
    pub(crate) fn failed_here(&self) -> u64 {
        let of_server: Vec<_> = ErrorKind::ALL.into_iter().filter(|kind| kind.status().http >= 500).collect();
        let counts =
            self.protocols.iter().flat_map(|it| of_server.iter().map(|kind| &it.failed[*kind as usize]));
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
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

impl Default for PerProtocol {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::default(),
            ok: AtomicU64::default(),
            failed: ErrorKind::ALL.map(|_| AtomicU64::default()),
            open: Gauge::default(),
            took: Histogram::new(&REQUEST_BOUNDS_US),
        }
    }
}

impl PerProtocol {
    /// Returns the number of requests answered since the start, failed ones included.
    fn answered(&self) -> u64 {
        self.failed.iter().chain([&self.ok]).map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// The failures that are shown before they occur: an alert on their rate would miss the first one, since a
/// rate needs two samples.
const ALARMING: [ErrorKind; 4] =
    [ErrorKind::NotReady, ErrorKind::Busy, ErrorKind::TooManyClients, ErrorKind::TooManyUnread];

/// Encodes the connections and requests of each protocol that a port speaks.
#[derive(Debug)]
struct ProtocolCollector(Arc<[PerProtocol; Protocol::ALL.len()]>);

impl ProtocolCollector {
    fn shown(&self) -> impl Iterator<Item = (&'static str, &PerProtocol)> {
        let all = Protocol::ALL.into_iter().map(Protocol::name).zip(&*self.0);
        all.filter(|(_, it)| it.is_on.load(Ordering::Relaxed))
    }
}

impl Collector for ProtocolCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut family =
            encoder.encode_descriptor("connections", "Open connections", None, MetricType::Gauge)?;
        for (protocol, it) in self.shown() {
            it.open.encode(family.encode_family(&[("protocol", protocol)])?)?;
        }
        let help = "Requests answered, by outcome";
        let mut family = encoder.encode_descriptor("requests", help, None, MetricType::Counter)?;
        for (protocol, it) in self.shown() {
            let failed = ErrorKind::ALL.into_iter().zip(&it.failed);
            let failed = failed.map(|(kind, count)| (kind.status().name, count, ALARMING.contains(&kind)));
            for (outcome, count, is_always_shown) in std::iter::once(("ok", &it.ok, true)).chain(failed) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 || is_always_shown {
                    let labels = [("protocol", protocol), ("outcome", outcome)];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let help = "Time from the arrival of a request to its answer";
        let mut family =
            encoder.encode_descriptor("request_duration_seconds", help, None, MetricType::Histogram)?;
        for (protocol, it) in self.shown() {
            it.took.encode_if_any(&mut family, &[("protocol", protocol)])?;
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
}
