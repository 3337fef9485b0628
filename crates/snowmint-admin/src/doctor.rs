//! Checks a store, its leases, namespaces and counters, and the nodes that use it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use snowmint::utc::{MS_PER_YEAR, Utc};
use snowmint::{Clock as _, WallClock};
use snowmint_cluster::lease::Record;
use snowmint_cluster::lease::admin::{LeaseEntry, leases, strange_keys};
use snowmint_cluster::namespace::registry::{self, Listed, Room};
use snowmint_cluster::namespace::{MAX_NAMESPACES, Scheme};
use snowmint_store::{Expected, Key, Store, StoreErrorKind, StoreId, Swap, Versioned, Visibility};

use crate::AdminError;
use crate::clock_offset::ClockOffset;
use crate::format::{age, date, thousands};
use crate::limits::MAX_SERVED_NAMESPACES;
use crate::namespaces::all_reserved;
use crate::node_reports::{self, NodeError, NodeReadiness, NodeReports};
use crate::recovery::{Behind, behind};
use crate::workers::workers_of;

/// No lease that ends within this time from now is a problem.
const FAR_AHEAD_MS: u64 = 60_000;
/// The longest window of a node.
const LONGEST_WINDOW_MS: u64 = 86_400_000;
/// Few workers are left if fewer than one in this many are free.
const FEW_LEFT: u64 = 8;
/// Nodes that are asked at the same time: each may take 5 s and send up to 64 MiB of metrics.
pub const NODES: usize = 32;
/// Workers that one finding names.
const NAMED: usize = 10;
/// Number of calls to measure.
const CALLS: usize = 5;
/// The key of the record that is written as a test.
const RECORD: &str = "doctor";
/// The prefix of the keys of counters.
const COUNTERS: &str = "segments/";
/// The metrics of a node that count lost writes of the store, and their descriptions.
const LOSSES: [(&str, &str); 5] = [
    ("snowmint_leases_forgotten_total", "lease records that the store lost"),
    // Its name in earlier builds.
    ("snowmint_store_forgot_total", "lease records that the store lost"),
    (
        "snowmint_lease_overlaps_total",
        "leases that the store granted to another node too (duplicates are possible)",
    ),
    ("snowmint_namespace_records_lost_total", "namespace records that the store lost"),
    (
        "snowmint_segments_refused_total",
        "segments rejected because their counter went back or their reservation was lost",
    ),
];

/// The counters of a store by key.
type Counters = BTreeMap<Key, Versioned>;

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The name of the check.
    pub check: Cow<'static, str>,
    /// Whether it found no problem.
    pub ok: bool,
    /// What it found.
    pub text: String,
}

/// What all checks found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// What each check found.
    pub findings: Vec<Finding>,
}

/// A finding, and what changes from moment to moment, such as the time left: a view that lasts shows the
/// finding alone.
struct FullFinding {
    finding: Finding,
    detail: String,
}

impl FullFinding {
    const fn of(finding: Finding) -> Self {
        Self { finding, detail: String::new() }
    }

    fn in_full(mut self) -> Finding {
        self.finding.text.push_str(&self.detail);
        self.finding
    }
}

fn ok(check: &'static str, text: impl Into<String>) -> Finding {
    Finding { check: Cow::Borrowed(check), ok: true, text: text.into() }
}

fn problem(check: &'static str, text: impl Into<String>) -> Finding {
    Finding { check: Cow::Borrowed(check), ok: false, text: text.into() }
}

/// Checks a store, and the nodes at these addresses: `http://HOST:PORT`.
///
/// It writes one record, `doctor`. If the store fails, that is a problem among the others, and the nodes are
/// asked all the same.
///
/// # Errors
///
/// The error of the store, if no node is named; an error of the setting `nodes`, if an address is invalid.
pub async fn examine(store: &dyn Store, nodes: &[String]) -> Result<Findings, AdminError> {
    let mut findings = Vec::new();
    let checked = check_store(store, &mut findings).await;
    let asked = AskedNodes::ask(nodes, Some(store)).await?;
    let compared = match checked {
        Ok(before) => compare(store, before, asked.leases, asked.reports).await,
        Err(error) => Err(error),
    };
    match compared {
        Ok(compared) => {
            findings.extend(asked.findings);
            findings.extend(compared);
        }
        Err(error) if nodes.is_empty() => return Err(error),
        Err(error) => {
            findings.push(problem("store", error.to_string()));
            findings.extend(asked.findings);
        }
    }
    Ok(Findings { findings })
}

/// Checks the nodes at these addresses, whose store did not open.
///
/// # Errors
///
/// An error of the setting `nodes`, if an address is invalid.
pub async fn examine_without_store(why: &str, nodes: &[String]) -> Result<Findings, AdminError> {
    let mut findings = vec![problem("store", why)];
    findings.extend(AskedNodes::ask(nodes, None).await?.findings);
    Ok(Findings { findings })
}

/// Adds what the checks of the store find, until one of them fails. Returns the ends of its leases.
async fn check_store(store: &dyn Store, findings: &mut Vec<Finding>) -> Result<LeaseEnds, AdminError> {
    findings.push(latency(store).await?);
    findings.extend([identity(store), write(store).await]);
    findings.extend(store.warnings().await.into_iter().map(|warning| problem("store", warning)));
    let offset = ClockOffset::measure(store).await?;
    findings.push(match offset {
        Some(offset) => clocks(offset).in_full(),
        None => ok("clock", without_clock(store.clock_missing())),
    });
    let entries = leases(store).await?;
    // This clock may be wrong.
    let now_unix_ms = WallClock.unix_ms();
    let now_unix_ms = offset.map_or(now_unix_ms, |offset| offset.of_store(now_unix_ms));
    findings.extend(of_leases(&entries, now_unix_ms).into_iter().map(FullFinding::in_full));
    let namespaces = registry::list(store).await?;
    let counters = store.list(COUNTERS).await?.into_iter().collect();
    let checked =
        |listed: &Listed| numbers(listed, &counters, now_unix_ms).or_else(|| namespace(listed, now_unix_ms));
    findings.extend(namespaces.iter().filter_map(checked));
    findings.extend(room(&namespaces));
    findings.extend(without_namespace(&counters, &namespaces));
    let strange = strange_keys(store).await?;
    findings.extend(
        strange.iter().map(|key| problem("records", format!("`{key}`: its key names no worker; remove it"))),
    );
    findings.extend(store.skipped().into_iter().map(|what| problem("records", format!("skipped {what}"))));
    findings.extend(of_pools(&entries, now_unix_ms).into_iter().map(FullFinding::in_full));
    lease_ends(store).await
}

fn without_clock(why: Option<String>) -> String {
    let none = "this store has no clock to compare with";
    why.map_or_else(|| none.to_owned(), |why| format!("{none}: {why}"))
}

#[expect(clippy::disallowed_methods, reason = "the check measures how long a call takes")]
async fn latency(store: &dyn Store) -> Result<Finding, AdminError> {
    let mut slowest = Duration::ZERO;
    for _ in 0..CALLS {
        let started = std::time::Instant::now();
        store.list("namespaces/").await?;
        slowest = slowest.max(started.elapsed());
    }
    let text = format!("{} answers; the slowest of {CALLS} calls took {slowest:.1?}", store.describe());
    Ok(if slowest < Duration::from_secs(1) { ok("store", text) } else { problem("store", text) })
}

/// Shows the identity of the store, for comparisons by people.
fn identity(store: &dyn Store) -> Finding {
    match store.identity() {
        Some(identity) => ok("identity", identity.id.to_string()),
        None => ok("identity", "this store has none yet: the first node that uses it writes one"),
    }
}

/// The problem of a store that did not apply a write, although nobody else had changed the record.
const NOT_APPLIED: &str =
    "the store did not apply a write; check that it accepts durable writes, as docs/stores.md says";

/// Writes a record: only a write detects a full disk or a read-only database.
#[expect(clippy::disallowed_methods, reason = "the check measures how long a call takes")]
async fn write(store: &dyn Store) -> Finding {
    let written = async {
        let key = Key::new(RECORD).map_err(|error| AdminError::Failed(error.to_string()))?;
        let before = store.load(&key).await?.map(|found| found.revision);
        let expected = before.map_or(Expected::Absent, Expected::Revision);
        let value = format!("{{\"written\":\"{}\"}}", Utc(WallClock.unix_ms()));
        let started = std::time::Instant::now();
        let swap = store.compare_and_set(&key, expected, value.as_bytes()).await?;
        let took = started.elapsed();
        // A conflict is a success only if another doctor wrote it: a server may drop writes that it is not to
        // accept.
        if matches!(swap, Swap::Conflict) && store.load(&key).await?.map(|found| found.revision) == before {
            return Err(AdminError::Failed(NOT_APPLIED.to_owned()));
        }
        Ok::<_, AdminError>(took)
    };
    match written.await {
        Ok(took) => ok("write", format!("a write took {took:.1?}")),
        // The rights on a file differ between users.
        Err(AdminError::Store(error))
            if error.kind() == StoreErrorKind::ReadOnly && store.visibility() == Visibility::Machine =>
        {
            let text = format!(
                "this process cannot write, which says nothing about nodes of another user: run doctor as the user of the nodes \
                 ({error})"
            );
            problem("write", text)
        }
        Err(why) => problem("write", format!("nodes cannot renew leases or reserve numbers: {why}")),
    }
}

/// Checks the clock of this machine against that of the store.
fn clocks(offset: ClockOffset) -> FullFinding {
    let certain_ms = offset.certain_ms();
    if certain_ms == 0 {
        let text =
            format!("this machine's clock equals the store's, within {} ms", offset.within_ms().max(1));
        return FullFinding::of(ok("clock", text));
    }
    let way = if certain_ms > 0 { "ahead of" } else { "behind" };
    let text = format!("this machine's clock is {way} the store's");
    let detail = format!(", by at least {} ms", certain_ms.unsigned_abs());
    FullFinding {
        finding: if certain_ms.abs() < 1000 { ok("clock", text) } else { problem("clock", text) },
        detail,
    }
}

/// Returns the problem of the clock of this machine, in a text that stays the same while it lasts.
pub fn wrong_clock(offset: ClockOffset) -> Option<Finding> {
    Some(clocks(offset).finding).filter(|finding| !finding.ok)
}

/// Checks the leases of a store: their ends, and whether their records are readable.
fn of_leases(entries: &[LeaseEntry], now_unix_ms: u64) -> Vec<FullFinding> {
    let unreadable = unreadable(entries).map(FullFinding::of);
    far_ahead(entries, now_unix_ms).into_iter().chain(unreadable).collect()
}

/// Checks how many workers of each pool are free.
fn of_pools(entries: &[LeaseEntry], now_unix_ms: u64) -> Vec<FullFinding> {
    let mut pools: Vec<&str> = entries.iter().map(|entry| entry.pool.as_str()).collect();
    pools.dedup();
    pools.into_iter().map(|pool| workers_left(pool, entries, now_unix_ms)).collect()
}

/// Returns the problems of the leases and workers of a store, in texts that stay the same while a problem
/// lasts.
pub fn wrong_with_leases(entries: &[LeaseEntry], now_unix_ms: u64) -> Vec<Finding> {
    let all = of_leases(entries, now_unix_ms).into_iter().chain(of_pools(entries, now_unix_ms));
    all.map(|checked| checked.finding).filter(|finding| !finding.ok).collect()
}

/// Checks whether leases end much later than others of their pool, and which one ends last.
fn far_ahead(entries: &[LeaseEntry], now_unix_ms: u64) -> Option<FullFinding> {
    let records: Vec<(&LeaseEntry, &Record)> =
        entries.iter().filter_map(|entry| Some((entry, entry.record.as_ref().ok()?))).collect();
    let is_over = |record: &Record| record.until_unix_ms > now_unix_ms && !record.is_held_at(now_unix_ms);
    let records: Vec<_> = records.into_iter().filter(|(_, record)| !is_over(record)).collect();
    let ahead = |record: &Record| record.frees_unix_ms(now_unix_ms, 1).saturating_sub(now_unix_ms);
    let Some((last, last_record)) =
        records.iter().max_by_key(|(_, record)| record.frees_unix_ms(now_unix_ms, 1))
    else {
        let all_over = entries.iter().any(|entry| entry.record.is_ok());
        return all_over
            .then(|| FullFinding::of(ok("leases", "no worker is held: all leases were released")));
    };
    if ahead(last_record) == 0 {
        let text = format!("no worker is held; the last lease ended at {}", Utc(last_record.until_unix_ms));
        return Some(FullFinding::of(ok("leases", text)));
    }
    let far: Vec<_> = records
        .chunk_by(|(one, _), (other, _)| one.pool == other.pool)
        .flat_map(|of_pool| far_of_pool(of_pool, now_unix_ms))
        .collect();
    let Some((entry, record)) = far.first() else {
        let (worker, pool, holder) = (last.worker, &last.pool, &last_record.holder);
        let seconds = ahead(last_record) / 1000;
        let text = format!("worker {worker} of {pool} is held by {holder} for the next {seconds} s");
        return Some(FullFinding::of(ok("leases", format!("{text}; every other lease ends earlier"))));
    };
    let more = match far.len() - 1 {
        0 => String::new(),
        1 => ", as is 1 other".to_owned(),
        more => format!(", as are {more} others"),
    };
    let way_out = match record.granted.gap_at(now_unix_ms, 1) {
        Some(_) => format!(
            "once that node is stopped or its clock is correct, `snowmint workers release {} --force` frees the worker",
            entry.worker
        ),
        None => "no node takes the worker before that".to_owned(),
    };
    let what = format!(
        "worker {} of {} is held by {} far beyond a window{more}: this clock is behind, the clock of that node was ahead, or an \
         operator took the worker from it; {way_out}",
        entry.worker, entry.pool, record.holder
    );
    let detail = format!("; the lease ends in {} s, at {}", ahead(record) / 1000, Utc(record.until_unix_ms));
    Some(FullFinding { finding: problem("leases", what), detail })
}

/// Returns the leases of a pool that reach further ahead than their window.
///
/// A record does not say how long its window is, and it may be a day. Nodes renew early, so most leases of a
/// pool end within a window, and not before half of it: one that ends much later, or that has not begun, was
/// written by another clock.
fn far_of_pool<'a>(
    of_pool: &[(&'a LeaseEntry, &'a Record)],
    now_unix_ms: u64,
) -> impl Iterator<Item = (&'a LeaseEntry, &'a Record)> {
    let ahead = move |record: &Record| record.frees_unix_ms(now_unix_ms, 1).saturating_sub(now_unix_ms);
    let mut held: Vec<u64> =
        of_pool.iter().map(|(_, record)| ahead(record)).filter(|ahead| *ahead > 0).collect();
    held.sort_unstable();
    let median = held.get(held.len().saturating_sub(1) / 2).copied().unwrap_or(0);
    let limit = (3 * median).clamp(FAR_AHEAD_MS, LONGEST_WINDOW_MS + FAR_AHEAD_MS);
    let is_far = move |record: &Record| {
        let begins_in = record.from_unix_ms.map_or(0, |from| from.saturating_sub(now_unix_ms));
        ahead(record) > limit || begins_in > FAR_AHEAD_MS
    };
    of_pool.iter().copied().filter(move |(_, record)| is_far(record)).collect::<Vec<_>>().into_iter()
}

fn unreadable(entries: &[LeaseEntry]) -> Option<Finding> {
    let bad = || entries.iter().filter(|entry| entry.record.is_err());
    let mut names: Vec<String> =
        bad().take(NAMED).map(|entry| format!("worker {} of {}", entry.worker, entry.pool)).collect();
    let more = bad().count() - names.len();
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    (!names.is_empty())
        .then(|| problem("records", format!("unreadable: {}; no node takes these workers", names.join(", "))))
}

/// Checks the record of a namespace, and when its layout ends.
pub fn namespace((name, record): &Listed, now_unix_ms: u64) -> Option<Finding> {
    let record = match record {
        Ok(record) if record.dropped_unix_ms.is_some() => return None,
        Ok(record) => record,
        Err(why) => {
            let text = format!("{name}: unreadable record, so no node can make ids there: {why}");
            return Some(problem("namespace", text));
        }
    };
    let Scheme::Snowflake { layout, .. } = &record.definition.scheme else {
        return Some(ok("namespace", format!("{name} is {}", record.definition)));
    };
    let ends = layout.ends_at_unix_ms();
    let left = age(ends, now_unix_ms);
    let text = if ends > now_unix_ms {
        format!("{name} is pinned to `{layout}`, which ends on {} ({left})", date(ends))
    } else {
        format!("{name} makes no more ids: its layout `{layout}` ended on {} ({left})", date(ends))
    };
    if ends <= now_unix_ms + 5 * MS_PER_YEAR {
        return Some(problem("namespace", text));
    }
    Some(match layout.expiry_warning(now_unix_ms) {
        Some(warning) => problem("namespace", format!("{text}; {warning}")),
        None => ok("namespace", text),
    })
}

/// Checks that the store has room for further namespaces, and that nodes serve all that it has.
pub fn room(listed: &[Listed]) -> Option<Finding> {
    let taken = Room::among(listed).taken();
    if taken < MAX_NAMESPACES {
        return None;
    }
    let count = |count: usize| thousands(count as u64);
    let mut text = format!(
        "every node serves {} namespaces, and the limit is {}: no more can be added; drop those that are not needed",
        count(taken),
        count(MAX_NAMESPACES)
    );
    if taken > MAX_SERVED_NAMESPACES {
        text = format!(
            "{} namespaces are for every node, and a node serves {}: the others are in `trouble` of its /readyz; drop those that \
             are not needed",
            count(taken),
            count(MAX_SERVED_NAMESPACES)
        );
    }
    Some(problem("namespace", text))
}

fn workers_left(pool: &str, entries: &[LeaseEntry], now_unix_ms: u64) -> FullFinding {
    let of_pool = || entries.iter().filter(|entry| entry.pool == pool);
    // No node takes a worker whose record is unreadable.
    let unreadable = of_pool().filter(|entry| entry.record.is_err()).count() as u64;
    let held = of_pool().filter_map(|entry| Some((entry.worker, entry.record.as_ref().ok()?)));
    let held: Vec<_> = held.filter(|(_, record)| record.is_held_at(now_unix_ms)).collect();
    let workers = workers_of(pool);
    let left = workers.saturating_sub(held.len() as u64 + unreadable);
    let text = format!("{left} of {workers} workers of {pool} are free");
    let first = held.iter().min_by_key(|(_, record)| record.until_unix_ms);
    let detail = first.map_or_else(String::new, |(worker, record)| {
        let (holder, until) = (&record.holder, Utc(record.until_unix_ms));
        format!("; the first lease to end is that of worker {worker}, held by {holder} until {until} unless renewed")
    });
    let enough = left.saturating_mul(FEW_LEFT) >= workers;
    FullFinding { finding: if enough { ok("workers", text) } else { problem("workers", text) }, detail }
}

/// Finds a namespace without numbers. One that was dropped needs none.
fn numbers((name, record): &Listed, counters: &Counters, now_unix_ms: u64) -> Option<Finding> {
    let record = record.as_ref().ok().filter(|record| record.dropped_unix_ms.is_none())?;
    all_reserved(name, record, counters, now_unix_ms).map(|text| problem("namespace", text))
}

/// Finds counters whose namespace has no record. A drop leaves the record.
fn without_namespace(counters: &Counters, namespaces: &[Listed]) -> Option<Finding> {
    let mut lost: Vec<&str> = counters
        .keys()
        .filter_map(|key| key.as_str().strip_prefix(COUNTERS)?.split('/').next())
        .filter(|counted| namespaces.iter().all(|(name, _)| name != counted))
        .collect();
    lost.dedup();
    let text = || {
        format!(
            "{} gave numbers but has no record, so the store lost it: restore the store, or add the namespace again as it \
             was (its counter continues)",
            lost.join(", ")
        )
    };
    (!lost.is_empty()).then(|| problem("namespace", text()))
}

/// What nodes say of themselves.
struct AskedNodes {
    findings: Vec<Finding>,
    /// The leases of each node that uses the store.
    leases: Vec<(String, Vec<ReportedLease>)>,
    /// The numbers that these nodes received.
    reports: NodeReports,
}

impl AskedNodes {
    /// Asks nodes, and finds those that use another store than this one.
    async fn ask(nodes: &[String], store: Option<&dyn Store>) -> Result<Self, AdminError> {
        let mut asked = Self { findings: Vec::new(), leases: Vec::new(), reports: NodeReports::default() };
        let own = store.and_then(|store| Some((store.identity()?.id, store.describe())));
        let calls: Vec<_> = nodes
            .iter()
            .map(|node| join(node_reports::fetch(node), node_reports::fetch_readiness(node)))
            .collect();
        // In the order of the nodes.
        let mut answers = stream::iter(calls).buffered(NODES);
        for node in nodes {
            let Some(answer) = answers.next().await else { break };
            asked.findings.push(match answer {
                (Ok(metrics), readiness) => match (node_reports::store_of(&metrics), &own) {
                    (Some(other), Some((own, store))) if other != *own => {
                        on_another_store(node, other, *own, store)
                    }
                    _ => {
                        asked.leases.push((node.clone(), node_reports::leases_of(&metrics)));
                        asked.reports.add(&metrics);
                        node_met(node, &metrics, readiness.map(|(readiness, _)| readiness))
                    }
                },
                (Err(error @ NodeError::Address { .. }), _) => {
                    return Err(AdminError::setting("nodes", error));
                }
                (Err(error), _) => problem("node", error.to_string()),
            });
        }
        Ok(asked)
    }
}

/// Compares the leases and numbers that nodes report with the records. `before` is from before the nodes were
/// asked.
async fn compare(
    store: &dyn Store,
    before: LeaseEnds,
    reported: Vec<(String, Vec<ReportedLease>)>,
    reports: NodeReports,
) -> Result<Vec<Finding>, AdminError> {
    let mut findings = ReportedLeases { before, reported }.disagreements(store).await?;
    // Read after the nodes were asked: a reported number that the store does not have is lost.
    for Behind { key, given, at_least } in behind(store, reports).await? {
        let text = format!(
            "{key} has given {} numbers and nodes received {}: the store lost writes; see \"Restore a store\" in \
             docs/restore.md",
            thousands(given),
            thousands(at_least)
        );
        findings.push(problem("counter", text));
    }
    Ok(findings)
}

/// Returns the finding of a node on another store, whose numbers and leases say nothing about this one.
fn on_another_store(node: &str, other: StoreId, own: StoreId, store: &str) -> Finding {
    let text = format!(
        "{node} uses another store: {other}, and {store} is {own}; both may give one worker to two nodes, which make duplicates: \
         stop the node, and start it with the right --store"
    );
    problem("identity", text)
}

/// The leases that nodes report, to compare with the records. In a copy of the store, or in one that lost
/// records, they differ.
struct ReportedLeases {
    /// The records before the nodes were asked.
    before: LeaseEnds,
    /// Each node with its leases.
    reported: Vec<(String, Vec<ReportedLease>)>,
}

/// The end of each readable lease in a store, by pool and worker.
type LeaseEnds = BTreeMap<(String, u32), u64>;
/// Pool, worker and end of a lease.
type ReportedLease = (String, u32, u64);

async fn lease_ends(store: &dyn Store) -> Result<LeaseEnds, AdminError> {
    let end = |entry: LeaseEntry| Some(((entry.pool, entry.worker.0), entry.record.ok()?.until_unix_ms));
    Ok(leases(store).await?.into_iter().filter_map(end).collect())
}

impl ReportedLeases {
    /// Returns a problem for each node whose leases are not those of the store, and for nodes that hold one
    /// worker.
    async fn disagreements(mut self, store: &dyn Store) -> Result<Vec<Finding>, AdminError> {
        let mut after = lease_ends(store).await?;
        let mut suspects = self.suspects(&after, store.may_lose());
        if !suspects.is_empty() {
            // A lease may have been renewed or released meanwhile: only what is still so at a second look
            // counts.
            self.before = after;
            self.reported.clear();
            for (node, _) in &suspects {
                if let Ok(metrics) = node_reports::fetch(node).await {
                    self.reported.push((node.clone(), node_reports::leases_of(&metrics)));
                }
            }
            after = lease_ends(store).await?;
            suspects = self.suspects(&after, store.may_lose());
        }
        Ok(suspects.into_iter().map(|(node, why)| problem("identity", format!("{node}: {why}"))).collect())
    }

    /// Returns the nodes with leases that disagree with the records, or with those of another node, and how.
    fn suspects(&self, after: &LeaseEnds, may_lose: Duration) -> Vec<(String, String)> {
        let now_unix_ms = WallClock.unix_ms();
        let mut suspects = Vec::new();
        let mut held: BTreeMap<(&str, u32), (&str, u64)> = BTreeMap::new();
        for (node, leases) in &self.reported {
            let of_now = leases.iter().filter(|(.., until)| *until > now_unix_ms);
            let mut wrong = Vec::new();
            for (pool, worker, until) in of_now {
                let key = (pool.clone(), *worker);
                let ends = [self.before.get(&key), after.get(&key)];
                // A grant that has not settled is not reported yet.
                let is_recorded = if may_lose.is_zero() {
                    ends.contains(&Some(until))
                } else {
                    ends[1].is_some_and(|end| end >= until)
                };
                if !is_recorded {
                    let shown = after
                        .get(&key)
                        .map_or_else(|| "has none".to_owned(), |end| format!("has one until {}", Utc(*end)));
                    wrong.push(format!(
                        "it holds worker {worker} of {pool} until {}, and this store {shown}: it uses another store or a copy of this \
                         one, or the store lost records",
                        Utc(*until)
                    ));
                }
                // One node may be named by two addresses.
                if let Some((other, end)) = held.insert((pool, *worker), (node, *until))
                    && end != *until
                {
                    wrong.push(format!(
                        "it holds worker {worker} of {pool}, as {other} does: one of them uses a copy of this store"
                    ));
                    suspects.push((
                        other.to_owned(),
                        format!("it holds worker {worker} of {pool}, as {node} does"),
                    ));
                }
            }
            if !wrong.is_empty() {
                suspects.push((node.clone(), wrong.join("; ")));
            }
        }
        suspects
    }
}

fn node_met(node: &str, metrics: &str, readiness: Result<NodeReadiness, NodeError>) -> Finding {
    let mut problems = Vec::new();
    match readiness {
        Ok(NodeReadiness::Ready { trouble: None }) => {}
        Ok(NodeReadiness::Ready { trouble: Some(trouble) }) => {
            problems.push(format!("it makes ids, but {trouble}"));
        }
        Ok(NodeReadiness::NotReady { why }) => problems.push(format!("it is not ready: {why}")),
        Err(error) => problems.push(error.to_string()),
    }
    let met: Vec<String> = LOSSES
        .iter()
        .map(|(metric, what)| (node_reports::sum_of(metrics, metric), what))
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{what}: {}", thousands(count)))
        .collect();
    if !met.is_empty() {
        problems.push(format!("since this node started, {}; see its log", met.join(", ")));
    }
    if problems.is_empty() {
        let text = format!("{node}: it makes ids, and the store has lost nothing since this node started");
        return ok("node", text);
    }
    problem("node", format!("{node}: {}", problems.join("; ")))
}

#[cfg(test)]
mod tests {
    use snowmint_store::MemoryStore;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::altered_store::{AlteredStore, Writes};

    const NOW: u64 = 1_800_000_000_000;

    /// Returns what is wrong with leases that begin and end so long after `NOW`.
    async fn wrong(leases_of: &[(u32, i64, u64)]) -> Vec<String> {
        let store = MemoryStore::new();
        for (worker, from, until) in leases_of {
            let (from, until) = (NOW.checked_add_signed(*from).unwrap(), NOW + until);
            let value = format!(
                r#"{{"holder":"n{worker}","from":{from},"until":{until},"tag":"{}"}}"#,
                "0".repeat(32)
            );
            let key = format!("workers/time41@1ms.worker10.sequence12.1767225600000/{worker:010}");
            let _ = store
                .compare_and_set(&Key::new(key).unwrap(), Expected::Absent, value.as_bytes())
                .await
                .unwrap();
        }
        let entries = leases(&store).await.unwrap();
        wrong_with_leases(&entries, NOW).into_iter().map(|finding| finding.text).collect()
    }

    #[tokio::test]
    async fn a_write_that_was_never_applied_is_a_problem() {
        let store = MemoryStore::new();
        assert!(write(&store).await.ok && write(&store).await.ok);
        for inner in [store, MemoryStore::new()] {
            let dropping = AlteredStore { inner, writes: Writes::Dropped, ..AlteredStore::default() };
            assert!(!write(&dropping).await.ok);
        }
    }

    /// Goal: a store whose leases were all released before their ends says so, and not that one of them is held.
    /// Method: a lease in a gap, the only kind whose time another node may get.
    #[tokio::test]
    async fn leases_that_were_all_released_are_not_held() {
        let store = MemoryStore::new();
        let [before, from, until, last] = [NOW - 60_000, NOW + 5000, NOW + 10_000, NOW + 60_000];
        let times = format!(
            r#""until":{last},"lease":[{from},{until}],"unused":[[{before},{from}],[{until},{last}]]"#
        );
        let value = format!(r#"{{"holder":"n1",{times},"tag":"{}","released":true}}"#, "0".repeat(32));
        let key = Key::new("workers/time41@1ms.worker10.sequence12.1767225600000/0000000001").unwrap();
        let _ = store.compare_and_set(&key, Expected::Absent, value.as_bytes()).await.unwrap();
        let entries = leases(&store).await.unwrap();
        let text = far_ahead(&entries, NOW).map(|found| found.finding.text);
        assert_eq!(text.as_deref(), Some("no worker is held: all leases were released"));
    }

    /// Goal: a long window is no problem, and a lease by another clock is one, also among long windows.
    /// Method: leases of nodes that renew at thirds of their window, and leases that fit no window.
    #[tokio::test]
    async fn long_windows_are_no_problem() {
        let day = 86_400_000;
        for healthy in [
            &[(1, -5000, 10_000)][..],
            &[(1, -5000, 60_000), (2, -5000, 41_000), (3, -9000, 55_000)],
            &[(1, -5000, 3_600_000), (2, -5000, 2_401_000)],
            &[(1, -5000, day)],
        ] {
            assert_eq!(wrong(healthy).await, [""; 0], "{healthy:?}");
        }
        for (far, worker) in [
            (&[(1, -5000, 10_000), (2, -5000, 8000), (3, -5000, 900_000)][..], 3),
            (&[(1, -5000, 60_000), (2, -5000, 50_000), (3, -5000, 3_600_000)], 3),
            (&[(1, -5000, day + 61_000)], 1),
            (&[(1, 61_000, 71_000)], 1),
        ] {
            let found = wrong(far).await;
            let [text] = &*found else { panic!("{far:?}: {found:?}") };
            assert!(text.contains(&format!("held by n{worker} far beyond a window: ")), "{text}");
        }
    }

    /// Goal: the text of a problem stays the same while it lasts, so that a view that announces changes is
    /// quiet. Method: a store with each problem, a moment later, with leases renewed.
    #[tokio::test]
    async fn texts_of_problems_do_not_change() {
        let full = |moment: u64| -> Vec<(u32, i64, u64)> {
            let renewed = (0..1020).map(|worker| (worker, -5000, 7000 + (moment + u64::from(worker)) % 3000));
            renewed.chain([(1020, -5000, 900_000 - moment), (1021, -5000, 901_000 - moment)]).collect()
        };
        let first = wrong(&full(0)).await;
        assert_eq!(first.len(), 2, "{first:?}");
        assert!(first[0].contains("far beyond a window, as is 1 other: "), "{}", first[0]);
        assert_eq!(first, wrong(&full(1234)).await);
        for (early, late) in [(2000, 2017), (-2000, -2023)] {
            let text = |ahead: i64| {
                let now = NOW.checked_add_signed(ahead).unwrap();
                wrong_clock(ClockOffset::of(now, NOW, now)).unwrap().text
            };
            assert_eq!(text(early), text(late));
        }
    }

    /// Goal: nodes are asked concurrently, and findings keep the order of the nodes. Method: nodes that
    /// answer only once all were asked for all that is asked, the last one first.
    #[tokio::test]
    async fn nodes_are_asked_at_the_same_time() {
        let (mut listeners, mut nodes) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            nodes.push(format!("http://{}", listener.local_addr().unwrap()));
            listeners.push(listener);
        }
        tokio::spawn(async move {
            let mut asked = Vec::new();
            for listener in listeners.iter().chain(&listeners) {
                let mut client = listener.accept().await.unwrap().0;
                let mut request = [0; 512];
                let read = client.read(&mut request).await.unwrap();
                let is_metrics = request[..read].starts_with(b"GET /metrics ");
                asked.push((client, is_metrics));
            }
            for (mut client, is_metrics) in asked.into_iter().rev() {
                let body =
                    if is_metrics { "snowmint_build_info{version=\"1\"} 1\n" } else { "{\"ready\":true}" };
                let head = format!("HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                client.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
        });
        let found = AskedNodes::ask(&nodes, None).await.unwrap().findings;
        assert_eq!(found.len(), 3);
        for (finding, node) in found.iter().zip(&nodes) {
            assert!(finding.ok && finding.text.starts_with(node.as_str()), "{node}: {finding:?}");
        }
    }
}
