//! What the service counts, and how the lease stands when it is asked: the Prometheus side.
//! Connections count for themselves and add up here once for each write, so that no request pays for it.

mod exposition;
mod latency;
mod namespaces;
mod process;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use snowmint::field::Field;
use snowmint_cluster::LeaseStatus;

use crate::http::Exposition;
use crate::metrics::latency::{Latency, LatencyCollector};
use crate::metrics::namespaces::NamespaceCollector;
use crate::metrics::process::ProcessCollector;
use crate::mint::Mint;
use crate::settings::SharedClock;
use crate::status::Kind;

/// Which listener a connection came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Resp,
}

impl Protocol {
    pub(crate) const ALL: [Self; 2] = [Self::Http, Self::Resp];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Resp => "resp",
        }
    }
}

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter<u64, AtomicU64>>;

/// The counters of one protocol, looked up once: a family's own look-up takes a lock.
struct PerProtocol {
    ok: Counter<u64, AtomicU64>,
    failed: [Counter<u64, AtomicU64>; Kind::ALL.len()],
    open: Gauge,
    latency: Arc<Latency>,
}

/// Every counter of the service.
pub(crate) struct Metrics {
    registry: Registry,
    /// What every program tells of itself under the same names.
    process: Registry,
    protocols: [PerProtocol; 2],
}

impl Metrics {
    pub(crate) fn new(mint: &Arc<Mint>, clock: &SharedClock) -> Self {
        let mut registry = Registry::with_prefix("snowmint");
        let requests = Counters::default();
        registry.register("requests", "Requests answered, by how they ended", requests.clone());
        let open = Family::<Labels, Gauge>::default();
        registry.register("connections", "Connections that are open", open.clone());
        let build = Info::new(vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("layout", mint.layout().to_string()),
            ("datacenter", mint.datacenter().to_string()),
        ]);
        registry.register("build", "What runs here", build);
        registry.register_collector(Box::new(LeaseCollector {
            mint: Arc::clone(mint),
            clock: Arc::clone(clock),
        }));
        registry.register_collector(Box::new(NamespaceCollector::new(Arc::clone(mint), Arc::clone(clock))));
        let protocols = Protocol::ALL.map(|protocol| PerProtocol::new(protocol, &requests, &open));
        let latencies =
            Protocol::ALL.map(|protocol| (protocol, Arc::clone(&protocols[protocol as usize].latency)));
        registry.register_collector(Box::new(LatencyCollector(latencies)));
        let mut process = Registry::default();
        process.register_collector(Box::new(ProcessCollector::new(clock.unix_ms())));
        Self { registry, process, protocols }
    }

    /// Adds requests that were answered as asked.
    pub(crate) fn succeeded(&self, protocol: Protocol, requests: u64) {
        self.protocols[protocol as usize].ok.inc_by(requests);
    }

    /// Adds requests that took so long each.
    pub(crate) fn took(&self, protocol: Protocol, requests: u64, time: Duration) {
        self.protocols[protocol as usize].latency.took(requests, time);
    }

    /// Adds one request that was not.
    pub(crate) fn failed(&self, protocol: Protocol, kind: Kind) {
        self.protocols[protocol as usize].failed[kind as usize].inc();
    }

    /// Connections that are open.
    pub(crate) fn open(&self, protocol: Protocol) -> &Gauge {
        &self.protocols[protocol as usize].open
    }

    /// Requests of one protocol that were answered since the start, well or not.
    pub(crate) fn requests(&self, protocol: Protocol) -> u64 {
        let counters = &self.protocols[protocol as usize];
        counters.ok.get() + counters.failed.iter().map(Counter::get).sum::<u64>()
    }

    /// Everything, in one of the two text forms.
    pub(crate) fn text(&self, exposition: Exposition) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(16 * 1024);
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, &self.process)?;
        if exposition == Exposition::Text {
            return Ok(exposition::classic(&text));
        }
        encode_eof(&mut text)?;
        Ok(text)
    }
}

impl PerProtocol {
    fn new(protocol: Protocol, requests: &Counters, open: &Family<Labels, Gauge>) -> Self {
        let labels = vec![("protocol", protocol.name().to_owned())];
        let outcome = |name: &str| {
            let mut labels = labels.clone();
            labels.push(("outcome", name.to_owned()));
            requests.get_or_create_owned(&labels)
        };
        Self {
            ok: outcome("ok"),
            failed: Kind::ALL.map(|kind| outcome(kind.status().name)),
            open: open.get_or_create_owned(&labels),
            latency: Arc::default(),
        }
    }
}

/// Asks the keeper how the lease stands, when somebody looks.
struct LeaseCollector {
    mint: Arc<Mint>,
    clock: SharedClock,
}

impl fmt::Debug for LeaseCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseCollector")
    }
}

impl Collector for LeaseCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = self.mint.status();
        encode_lease(&mut encoder, &status, self.clock.unix_ms())?;
        encode_leases(&mut encoder, &self.mint.leases())?;
        let workers = i64::try_from(self.mint.layout().max(Field::Worker) + 1).unwrap_or(i64::MAX);
        let workers = ConstGauge::new(workers);
        let says = "Workers that the layout has for all nodes of a datacenter: less the sum of their leases, those that are left";
        workers.encode(encoder.encode_descriptor("workers", says, None, workers.metric_type())?)?;
        let mut counter = |name: &str, help: &str, value: u64| {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
        };
        counter("lease_renewals", "Renewals of the lease that the store confirmed", status.renewals)?;
        counter("leases_lost", "Leases that another node took over or that ran out", status.lost)?;
        counter(
            "store_forgot",
            "Times the store had lost what it acknowledged of a lease",
            status.store_forgot,
        )?;
        let overlaps = "Leases ended at once since the store forgot them and granted them to another node";
        counter("lease_overlaps", overlaps, status.overlaps)?;
        counter("store_errors", "Calls to the store that failed", status.store_errors)?;
        counter("clock_steps", "Steps of the wall clock that were seen", status.clock_steps)
    }
}

/// Each lease that is held, by its worker.
#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^52")]
fn encode_leases(encoder: &mut DescriptorEncoder<'_>, leases: &[LeaseStatus]) -> fmt::Result {
    let held: Vec<(String, u64)> =
        leases.iter().filter_map(|lease| Some((lease.worker?.to_string(), lease.until_unix_ms?))).collect();
    let count = ConstGauge::new(held.len() as f64);
    count.encode(encoder.encode_descriptor(
        "leases",
        "Leases that are held",
        None,
        count.metric_type(),
    )?)?;
    if held.is_empty() {
        return Ok(());
    }
    let says = "When the lease of a worker ends if it is not renewed, in seconds since 1970";
    let mut family = encoder.encode_descriptor("lease_until_seconds", says, None, MetricType::Gauge)?;
    for (worker, until_unix_ms) in held {
        let until = ConstGauge::new(until_unix_ms as f64 / 1e3);
        until.encode(family.encode_family(&[("worker", worker.as_str())])?)?;
    }
    Ok(())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of a lease or a clock's error are far below 2^52"
)]
fn encode_lease(encoder: &mut DescriptorEncoder<'_>, status: &LeaseStatus, now_unix_ms: u64) -> fmt::Result {
    let mut gauge = |name: &str, help: &str, value: f64| {
        let gauge = ConstGauge::new(value);
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
    };
    let remaining_ms = status.until_unix_ms.unwrap_or_default().saturating_sub(now_unix_ms);
    let held = status.worker.is_some() && remaining_ms > 0;
    gauge("lease_held", "1 while a lease is held, else 0", f64::from(u8::from(held)))?;
    // Without a lease there is no worker; a 0 here would name one.
    if let Some(worker) = status.worker {
        gauge("lease_worker", "The worker of the lease", f64::from(worker.0))?;
    }
    gauge("lease_remaining_seconds", "Until the lease ends if it is not renewed", remaining_ms as f64 / 1e3)?;
    gauge(
        "clock_wall_ahead_seconds",
        "How far the wall clock is ahead of the clock that ids are made by",
        status.wall_ahead_ms as f64 / 1e3,
    )?;
    gauge(
        "clock_ahead_seconds",
        "How far the clock is ahead while no lease is granted or renewed by it",
        status.clock_ahead_ms as f64 / 1e3,
    )?;
    gauge(
        "records_ahead_seconds",
        "How far the store's records are ahead of this node's clock",
        status.records_ahead_ms as f64 / 1e3,
    )
}
