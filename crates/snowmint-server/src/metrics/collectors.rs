//! Collectors: metrics that are read when Prometheus scrapes, from the leases, the namespaces and the
//! process. Namespaces come and go, so nothing about them is kept here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use snowmint::Layout;
use snowmint::field::Field;
use snowmint_admin::audit::ChangeOutcome;
use snowmint_admin::node::LogControl;
use snowmint_cluster::namespace::Scheme;
use snowmint_cluster::{LeaseStatus, SegmentStatus};

use crate::access::Access;
use crate::admin::NodeAdmin;
use crate::clock::SharedClock;
use crate::mint::{Backend, HighestReceived, Mint, Namespace};
use crate::store_calls::StoreCalls;
use crate::store_label::StoreLabel;
use crate::tls::Tls;

/// Encodes the state of the leases.
pub(super) struct LeaseCollector {
    mint: Arc<Mint>,
    clock: SharedClock,
}

impl LeaseCollector {
    pub(super) const fn new(mint: Arc<Mint>, clock: SharedClock) -> Self {
        Self { mint, clock }
    }
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
        encode_workers(&mut encoder, &self.mint.leases_by_layout(), self.clock.unix_ms())?;
        encode_ends(&mut encoder, &self.mint.leases_of_all_layouts())?;
        let mut counter = |name: &str, help: &str, value: u64| {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
        };
        counter("lease_renewals", "Renewals of the lease that the store confirmed", status.renewals)?;
        counter("leases_lost", "Leases that another node took over or that expired", status.lost)?;
        counter(
            "leases_forgotten",
            "Times the store lost an acknowledged write of a lease",
            status.store_forgot,
        )?;
        let overlaps = "Leases that ended at once, because the store had lost them and granted them to another node, or a copy of this process had renewed them";
        counter("lease_overlaps", overlaps, status.overlaps)?;
        counter("store_errors", "Calls to the store that failed", status.store_errors)?;
        counter("clock_steps", "Detected steps of the wall clock", status.clock_steps)
    }
}

/// Encodes the workers of each pool, and how many of them this node holds.
fn encode_workers(
    encoder: &mut DescriptorEncoder<'_>,
    leases: &[(Layout, Vec<LeaseStatus>)],
    now_unix_ms: u64,
) -> fmt::Result {
    // Rules that share a layout share its workers.
    let mut pools = BTreeMap::<&str, (i64, i64)>::new();
    for (layout, leases) in leases {
        for lease in leases {
            let (workers, held) = pools.entry(&lease.pool).or_default();
            *workers = i64::try_from(layout.max(Field::Worker) + 1).unwrap_or(i64::MAX);
            *held += i64::from(lease.held_at(now_unix_ms).is_some());
        }
    }
    let mut encode = |name: &str, help: &str, value: fn(&(i64, i64)) -> i64| {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (pool, counts) in &pools {
            ConstGauge::new(value(counts)).encode(family.encode_family(&[("pool", *pool)])?)?;
        }
        fmt::Result::Ok(())
    };
    encode("leases", "Held leases", |(_, held)| *held)?;
    let help = "Workers of a layout for all nodes of a datacenter; subtract the sum of their leases to get the free ones";
    encode("workers", help, |(workers, _)| *workers)
}

/// Encodes the end of each lease, by its worker and pool.
#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^52")]
fn encode_ends(encoder: &mut DescriptorEncoder<'_>, leases: &[LeaseStatus]) -> fmt::Result {
    // `store recover` keeps workers reserved to the last of these, so an ended lease is shown until it is
    // renewed or given up.
    let mut ends = BTreeMap::<_, u64>::new();
    for lease in leases {
        if let Some((worker, until_unix_ms)) = lease.worker.zip(lease.until_unix_ms) {
            let end = ends.entry((lease.pool.as_str(), worker)).or_default();
            *end = until_unix_ms.max(*end);
        }
    }
    if ends.is_empty() {
        return Ok(());
    }
    let about = "End of the lease of a worker if it is not renewed, in seconds since 1970";
    let mut family =
        encoder.encode_descriptor("lease_until_timestamp_seconds", about, None, MetricType::Gauge)?;
    for ((pool, worker), until_unix_ms) in ends {
        let until = ConstGauge::new(until_unix_ms as f64 / 1e3);
        let worker = worker.to_string();
        until.encode(family.encode_family(&[("worker", worker.as_str()), ("pool", pool)])?)?;
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
    gauge(
        "lease_remaining_seconds",
        "Time until the lease ends if it is not renewed",
        remaining_ms as f64 / 1e3,
    )?;
    gauge(
        "clock_wall_ahead_seconds",
        "Seconds that the wall clock is ahead of the clock that ids are made by",
        status.wall_ahead_ms as f64 / 1e3,
    )?;
    gauge(
        "clock_ahead_seconds",
        "Seconds that the clock is ahead while no lease is granted or renewed by it",
        status.clock_ahead_ms as f64 / 1e3,
    )?;
    gauge(
        "records_ahead_seconds",
        "Seconds that the records in the store are ahead of the clock of this node",
        status.records_ahead_ms as f64 / 1e3,
    )
}

/// Encodes the state of the served namespaces.
pub(super) struct NamespaceCollector {
    mint: Arc<Mint>,
    clock: SharedClock,
}

/// The state of a namespace with segments.
struct SegmentState {
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
        let table = self.mint.table();
        let unrecorded = ConstGauge::new(self.mint.unrecorded().len() as f64);
        let help = "Served namespaces whose records the store has lost";
        unrecorded.encode(encoder.encode_descriptor(
            "namespaces_unrecorded",
            help,
            None,
            MetricType::Gauge,
        )?)?;
        let lost = ConstCounter::new(self.mint.records_lost());
        let help = "Records of served namespaces that the store has lost";
        lost.encode(encoder.encode_descriptor("namespace_records_lost", help, None, MetricType::Counter)?)?;
        issued(&mut encoder, table.namespaces())?;
        received(&mut encoder, &self.mint.received().highest())?;
        layouts(&mut encoder, table.namespaces(), self.clock.unix_ms())?;
        borrowed(&mut encoder, table.namespaces())?;
        let state = |namespace: &Arc<Namespace>| {
            Some(SegmentState { name: namespace.name().to_string(), status: namespace.segment_status()? })
        };
        let all: Vec<_> = table.namespaces().iter().filter_map(state).collect();
        if all.is_empty() {
            return Ok(());
        }
        let mut table = Table { encoder, all: &all };
        table.gauge("numbers_left", "Numbers in memory", |it| it.left as f64)?;
        table.gauge("segment_size", "Size of the next segment", |it| it.size as f64)?;
        table.gauge("numbers_used_ratio", "Reserved share of the range up to the maximum", |it| it.used)?;
        table.gauge(
            "counters_failing",
            "Counters that are skipped because their last call failed",
            |it| it.counters_failing as f64,
        )?;
        table.whole_gauge("numbers_highest", "Highest number received from the counters", |it| {
            it.highest.cast_signed()
        })?;
        table.highest_of_periods()?;
        table.counter(
            "segments_refused",
            "Segments not used because their counter went back or their reservation was lost",
            |it| it.refused,
        )?;
        table.counter("segment_refills", "Reserved segments", |it| it.refills)?;
        table.counter("segment_store_errors", "Failed calls to a counter", |it| it.store_errors)?;
        table.counter("segment_misses", "Requests that found no number in memory", |it| it.misses)
    }
}

fn issued(encoder: &mut DescriptorEncoder<'_>, all: &[Arc<Namespace>]) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    let mut family =
        encoder.encode_descriptor("ids_issued", "Ids given to clients", None, MetricType::Counter)?;
    for namespace in all {
        let labels = [("namespace", namespace.name().as_str())];
        ConstCounter::new(namespace.issued()).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Encodes the highest numbers by counter, including those of namespaces that are no longer served: `snowmint
/// store recover` raises these counters.
fn received(encoder: &mut DescriptorEncoder<'_>, all: &[HighestReceived]) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    let help = "Highest number received from a counter since the start";
    let mut family = encoder.encode_descriptor("numbers_highest_received", help, None, MetricType::Gauge)?;
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
    let help = "Time until the layout of the namespace has no timestamps left";
    let mut family = encoder.encode_descriptor("layout_remaining_seconds", help, None, MetricType::Gauge)?;
    for (name, left) in all {
        let labels = [("namespace", name.as_str())];
        ConstGauge::new(left.as_secs_f64()).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Encodes how many ticks the workers of a namespace have borrowed.
fn borrowed(encoder: &mut DescriptorEncoder<'_>, all: &[Arc<Namespace>]) -> fmt::Result {
    let ticks = |namespace: &Arc<Namespace>| match namespace.backend().plain() {
        Backend::Snowflake(pool) => Some((namespace.name().to_string(), pool.borrowed_ticks())),
        _ => None,
    };
    // Most namespaces never borrow.
    let all: Vec<_> = all.iter().filter_map(ticks).filter(|(_, ticks)| *ticks > 0).collect();
    if all.is_empty() {
        return Ok(());
    }
    let help = "Ticks ahead of the clock in which ids were made; namespaces with the same workers show the same number";
    let mut family = encoder.encode_descriptor("borrowed_ticks", help, None, MetricType::Counter)?;
    for (name, ticks) in all {
        let labels = [("namespace", name.as_str())];
        ConstCounter::new(ticks).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Encodes one metric after the other over all namespaces with segments.
struct Table<'a, 'e> {
    encoder: DescriptorEncoder<'e>,
    all: &'a [SegmentState],
}

impl Table<'_, '_> {
    fn gauge(&mut self, name: &str, help: &str, value: impl Fn(&SegmentStatus) -> f64) -> fmt::Result {
        self.metric(name, help, MetricType::Gauge, |status, row| ConstGauge::new(value(status)).encode(row))
    }

    /// Encodes an integer without rounding it.
    fn whole_gauge(&mut self, name: &str, help: &str, value: impl Fn(&SegmentStatus) -> i64) -> fmt::Result {
        self.metric(name, help, MetricType::Gauge, |status, row| ConstGauge::new(value(status)).encode(row))
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Fn(&SegmentStatus) -> u64) -> fmt::Result {
        self.metric(name, help, MetricType::Counter, |status, row| {
            ConstCounter::new(value(status)).encode(row)
        })
    }

    /// Encodes the highest numbers by period: a metric of its own, since older versions read the one without
    /// a period.
    fn highest_of_periods(&mut self) -> fmt::Result {
        let rows = self.all.iter().flat_map(|SegmentState { name, status }| {
            status.highest_by_period.iter().map(move |(period, highest)| (name, period.to_string(), *highest))
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return Ok(());
        }
        let help = "Highest number received for a period: the previous, the current and the next";
        let mut family =
            self.encoder.encode_descriptor("numbers_highest_of_period", help, None, MetricType::Gauge)?;
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
        for SegmentState { name, status } in self.all {
            let labels = [("namespace", name.as_str())];
            write(status, family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Encodes when the TLS certificate expires.
#[derive(Debug)]
pub(super) struct CertificateCollector(pub(super) Arc<Tls>);

impl Collector for CertificateCollector {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds up to the year 9999 are below 2^52")]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(expires_unix_ms) = self.0.expires_unix_ms() else { return Ok(()) };
        let expires = ConstGauge::new(expires_unix_ms as f64 / 1e3);
        let name = "tls_certificate_expires_timestamp_seconds";
        let help = "End of the validity of the TLS certificate, or of the first one of its chain, in seconds since 1970";
        expires.encode(encoder.encode_descriptor(name, help, None, expires.metric_type())?)
    }
}

/// Encodes the changes that operators requested.
#[derive(Debug)]
pub(super) struct AdminCollector(pub(super) NodeAdmin);

impl Collector for AdminCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Changes requested over the admin API, by outcome; unknown: it may have taken place";
        let mut family = encoder.encode_descriptor("admin_changes", help, None, MetricType::Counter)?;
        // Few nodes change anything. An unknown outcome is shown before it occurs, for alerts.
        let is_shown = |(outcome, changes): &(_, u64)| *changes > 0 || *outcome == ChangeOutcome::Unknown;
        for (outcome, changes) in self.0.outcomes().filter(is_shown) {
            let labels = [("outcome", outcome.as_str())];
            ConstCounter::new(changes).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Encodes the identity of the store, and what shows a second one.
#[derive(Debug)]
pub(super) struct StoreCollector(pub(super) Arc<StoreLabel>);

impl Collector for StoreCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(identity) = self.0.identity() else { return Ok(()) };
        let id = identity.id.to_string();
        let help = "Identity of the store of this node";
        let family = encoder.encode_descriptor("store", help, None, MetricType::Info)?;
        Info::new([("store", id)]).encode(family)?;
        let mut gauge = |name: &str, help: &str, value: usize| {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
        };
        let help = "1 while another store answers at the address of this node's store, else 0";
        gauge("store_replaced", help, usize::from(identity.another.is_some()))?;
        let peers = self.0.peers();
        gauge("peers_of_other_stores", "Peers that use another store", peers.other_stores.len())?;
        let help = "Peers that hold a worker of this node: their store is a copy, or lost records";
        gauge("peers_with_same_worker", help, peers.same_workers.len())
    }
}

/// Encodes how long the calls to the store took.
#[derive(Debug)]
pub(super) struct StoreCallCollector(pub(super) Arc<StoreCalls>);

impl Collector for StoreCallCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time of a call to the store, by operation and result";
        let mut family =
            encoder.encode_descriptor("store_call_duration_seconds", help, None, MetricType::Histogram)?;
        for (operation, result, took) in self.0.histograms() {
            took.encode_if_any(&mut family, &[("operation", operation), ("result", result)])?;
        }
        Ok(())
    }
}

/// Encodes the state of the log.
pub(super) struct LogCollector(pub(super) Arc<dyn LogControl>);

impl fmt::Debug for LogCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogCollector")
    }
}

impl Collector for LogCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let dropped = ConstCounter::new(self.0.lines_dropped());
        let help = "Log lines that were dropped, because nobody read standard error in time";
        dropped.encode(encoder.encode_descriptor("log_lines_dropped", help, None, MetricType::Counter)?)
    }
}

/// Encodes what each token has used: as many series as the file has rows, for each outcome that occurred.
#[derive(Debug)]
pub(super) struct TokenCollector {
    access: Arc<Access>,
}

impl TokenCollector {
    pub(super) const fn new(access: Arc<Access>) -> Self {
        Self { access }
    }
}

impl Collector for TokenCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let tokens = self.access.tokens();
        if tokens.is_empty() {
            return Ok(());
        }
        let help = "Requests with a token, by outcome";
        let mut family = encoder.encode_descriptor("token_requests", help, None, MetricType::Counter)?;
        for token in &tokens {
            for (outcome, requests) in token.usage.requests() {
                let labels = [("token", token.name.as_str()), ("outcome", outcome)];
                ConstCounter::new(requests).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Ids given to clients with a token";
        let mut family = encoder.encode_descriptor("token_ids", help, None, MetricType::Counter)?;
        for token in &tokens {
            let labels = [("token", token.name.as_str())];
            ConstCounter::new(token.usage.ids()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Encodes what the system reports of this process, under the standard names. Missing values are left out.
#[derive(Debug)]
pub(super) struct ProcessCollector {
    started_unix_ms: u64,
}

impl ProcessCollector {
    pub(super) const fn new(started_unix_ms: u64) -> Self {
        Self { started_unix_ms }
    }
}

impl Collector for ProcessCollector {
    #[expect(clippy::cast_precision_loss, reason = "bytes, files and milliseconds are far below 2^52")]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cpu = ConstCounter::new(system::cpu_seconds());
        cpu.encode(encoder.encode_descriptor(
            "process_cpu_seconds",
            "Total user and system CPU time spent in seconds",
            None,
            cpu.metric_type(),
        )?)?;
        let started = self.started_unix_ms as f64 / 1e3;
        for (name, help, value) in [
            (
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds",
                Some(started),
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory size in bytes",
                system::resident_bytes().map(|it| it as f64),
            ),
            ("process_open_fds", "Number of open file descriptors", system::open_files().map(|it| it as f64)),
            (
                "process_max_fds",
                "Maximum number of open file descriptors",
                system::most_files().map(|it| it as f64),
            ),
        ] {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(unix)]
mod system {
    use std::fs;

    use rustix::process::{Resource, getrlimit};
    use rustix::time::{ClockId, clock_gettime};

    #[expect(clippy::cast_precision_loss, reason = "seconds and nanoseconds are far below 2^52")]
    pub(super) fn cpu_seconds() -> f64 {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }

    pub(super) fn resident_bytes() -> Option<u64> {
        let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }

    pub(super) fn open_files() -> Option<u64> {
        // Minus the descriptor of the directory that is being read.
        Some((fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
    }

    pub(super) fn most_files() -> Option<u64> {
        getrlimit(Resource::Nofile).current
    }
}

#[cfg(not(unix))]
mod system {
    pub(super) fn cpu_seconds() -> f64 {
        0.0
    }

    pub(super) fn resident_bytes() -> Option<u64> {
        None
    }

    pub(super) fn open_files() -> Option<u64> {
        None
    }

    pub(super) fn most_files() -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use snowmint::ManualClock;
    use snowmint_cluster::NamespaceName;
    use snowmint_cluster::namespace::Definition;

    use super::*;
    use crate::testing::{START_UNIX_MS, TestSource, mint_of};

    /// Goal: a layout whose workers run out is seen, also beside the node's own. Method: a namespace with a
    /// layout of its own, and two namespaces that share a layout under different rules.
    #[test]
    fn workers_are_counted_by_pool() {
        let clock: SharedClock = Arc::new(ManualClock::at_unix_ms(START_UNIX_MS));
        let mint = mint_of(TestSource::new(Layout::TWITTER), Layout::TWITTER);
        let mut namespaces = mint.table().namespaces().to_vec();
        for (name, layout) in [
            ("small", "time:41 datacenter:3 worker:4 sequence:12 epoch:2020-01-01"),
            ("large", "time:41 datacenter:1 worker:9 sequence:12 epoch:2020-01-01"),
            ("large-borrows", "time:41 datacenter:1 worker:9 sequence:12 epoch:2020-01-01"),
        ] {
            let layout: Layout = layout.parse().unwrap();
            let source = TestSource::new(layout);
            source.set_lease(name != "small");
            let backend = Backend::Snowflake(mint.add_pool(Box::new(source), layout));
            let name = NamespaceName::new(name).unwrap();
            namespaces.push(Arc::new(Namespace::new(name, Definition::snowflake(layout), backend, &clock)));
        }
        mint.serve(namespaces);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(LeaseCollector::new(Arc::new(mint), clock)));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let of_pools: Vec<&str> =
            text.lines().filter(|line| line.starts_with("leases{") || line.starts_with("workers{")).collect();
        let wanted = [
            r#"leases{pool="time41@1ms.datacenter1.worker9.sequence12.1577836800000.in1"} 2"#,
            r#"leases{pool="time41@1ms.datacenter3.worker4.sequence12.1577836800000.in1"} 0"#,
            r#"leases{pool="time41@1ms.datacenter5.worker5.sequence12.1288834974657.in1"} 1"#,
            r#"workers{pool="time41@1ms.datacenter1.worker9.sequence12.1577836800000.in1"} 512"#,
            r#"workers{pool="time41@1ms.datacenter3.worker4.sequence12.1577836800000.in1"} 16"#,
            r#"workers{pool="time41@1ms.datacenter5.worker5.sequence12.1288834974657.in1"} 32"#,
        ];
        assert_eq!(of_pools, wanted);
    }
}
