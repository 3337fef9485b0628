//! The state of the store and of this node, for operators: workers and their holders, namespaces, clocks, the
//! newest changes, and problems. `watch` reads it for all viewers together.

mod nodes;
pub(crate) mod peer_stores;
mod peers;
mod problems;
pub(crate) mod recorder;
pub(crate) mod watch;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::Serialize;
use snowmint::layout::PRESETS;
use snowmint::utc::Utc;
use snowmint::{Clock as _, DatacenterId, WallClock};
use snowmint_admin::audit::{self, AuditLine};
use snowmint_admin::clock_offset::ClockOffset;
use snowmint_admin::doctor::{self, Finding};
use snowmint_admin::workers::{WorkerState, workers_of};
use snowmint_admin::{AdminError, namespaces};
use snowmint_cluster::lease::Tag;
use snowmint_cluster::lease::admin::{LeaseEntry, leases};
use snowmint_cluster::namespace::registry::{self, Listed};
use snowmint_cluster::namespace::{Definition, NamespaceRecord, Scheme};
use snowmint_cluster::{Holder, LeaseStatus, WorkerPool};
use snowmint_store::Store;
use tokio::time::Instant;

use crate::fleet::nodes::NodeRow;
use crate::fleet::peers::Peer;
use crate::fleet::problems::{Problem, Severity};
use crate::limits::fleet::{CHANGES, LAPSED_FOR, NAMESPACES, SLOW_CALL, WORKERS, WORKERS_OF_POOL};
use crate::mint::{Backend, Mint, Namespace};
use crate::state::ServerState;

const MS_PER_DAY: u64 = 86_400_000;

/// The records of workers, which change every few seconds.
#[derive(Debug)]
pub(crate) struct LeaseRecords {
    /// All workers, by pool and number.
    workers: Vec<WorkerRow>,
    pools: Vec<PoolRow>,
    findings: Vec<Finding>,
    /// How far the clock of this machine is ahead of the store's; `None` if the store has no clock.
    clock: Option<ClockOffset>,
    took: Duration,
    /// When the store answered.
    read_unix_ms: u64,
}

/// The records that change when an operator changes them, or as numbers are reserved.
#[derive(Debug)]
pub(crate) struct OtherRecords {
    namespaces: Vec<NamespaceRow>,
    more_namespaces: usize,
    problems: Vec<Problem>,
    changes: Vec<AuditLine>,
    warnings: Vec<String>,
}

/// The state of everything at one moment, as `GET /v1/admin/fleet` shows it.
#[derive(Debug, Serialize)]
pub(crate) struct Fleet<'a> {
    at_unix_ms: u64,
    /// Time until the next state.
    next_in_ms: u64,
    /// The problems, worst first; empty if there are none.
    problems: Vec<Problem>,
    /// The number of problems that `problems` leaves out.
    more_problems: usize,
    node: Node,
    /// All nodes: this one, those of `--peers`, and those whose leases are in the store. What is wrong comes
    /// first.
    nodes: Vec<NodeRow>,
    more_nodes: usize,
    /// The nodes of `--peers`.
    peers: &'a [Peer],
    store: StoreState<'a>,
    /// The workers that have or had a holder, up to a limit for each pool: those with unreadable records,
    /// those of this node, held ones, and then free ones; `None` until the store has answered.
    workers: Option<Vec<&'a WorkerRow>>,
    pools: Vec<PoolState<'a>>,
    namespaces: Vec<NamespaceState<'a>>,
    more_namespaces: usize,
    changes: &'a [AuditLine],
    warnings: &'a [String],
}

/// A worker and its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct WorkerRow {
    pool: String,
    worker: u32,
    state: WorkerState,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    /// The first instant of the lease; unknown in records of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_unix_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until_unix_ms: Option<u64>,
    /// Whether its last lease ended without a release.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    lapsed: bool,
    /// The mark of the write of its record.
    #[serde(skip)]
    tag: Option<Tag>,
    /// How long the lease lasts, and how long it lasted at most since its node renews it.
    #[serde(skip)]
    left_ms: u64,
    #[serde(skip)]
    longest_ms: u64,
    /// When its record was first seen as it is; 0 if that was the first look.
    #[serde(skip)]
    changed_unix_ms: u64,
}

/// The workers of a layout in a datacenter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct PoolRow {
    pool: String,
    /// The name of the layout, and the datacenter, if the layout has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    datacenter: Option<u32>,
    workers: u64,
    held: u64,
    /// Workers with unreadable records, which no node takes.
    unreadable: u64,
}

/// A pool in a state.
#[derive(Debug, Serialize)]
struct PoolState<'a> {
    #[serde(flatten)]
    row: &'a PoolRow,
    /// The number of workers that the state leaves out, and how many of them are held.
    more_workers: usize,
    more_held: usize,
}

/// The store.
#[derive(Debug, Serialize)]
struct StoreState<'a> {
    name: String,
    /// Its identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// The identity of the store that answers in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    another: Option<String>,
    answers: bool,
    /// Why it does not answer, and since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failing_since_unix_ms: Option<u64>,
    /// When it last answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_unix_ms: Option<u64>,
    /// How long it took to list the workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<f64>,
    /// How far the clock of this machine is ahead of the store's at least, and how exact that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_ahead_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_within_ms: Option<u64>,
}

/// This node.
#[derive(Debug, Serialize)]
struct Node {
    /// Its name in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    version: &'static str,
    started_unix_ms: u64,
    ready: bool,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    unready: Option<String>,
    drained: bool,
    leases: Vec<HeldLease>,
    /// Ids given to clients since the start.
    issued: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids_per_second: Option<f64>,
    /// How far the wall clock is ahead of the clock of the ids.
    wall_ahead_ms: i64,
    /// How far the records in the store are ahead of what this node's clock would write.
    records_ahead_ms: u64,
    /// Failed store calls since the start.
    store_errors: u64,
}

#[derive(Debug, Serialize)]
struct HeldLease {
    pool: String,
    worker: u32,
    until_unix_ms: u64,
}

/// A namespace, by its record.
#[derive(Clone, Debug, Serialize)]
struct NamespaceRow {
    name: String,
    /// Its scheme; empty if its record is unreadable.
    scheme: &'static str,
    /// Its definition in one line, or the reason why its record is unreadable.
    summary: String,
    /// Which nodes serve it; `None` until the store has answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<namespaces::NamespaceState>,
    /// The end of its layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_unix_ms: Option<u64>,
    /// The highest number that the store has reserved for any node, in the current period if numbers restart,
    /// as a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

/// A namespace in the store and on this node.
#[derive(Debug, Serialize)]
struct NamespaceState<'a> {
    #[serde(flatten)]
    row: Cow<'a, NamespaceRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    days_left: Option<u64>,
    /// Its state on this node; `None` if this node does not serve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    here: Option<Served>,
}

/// A namespace on this node.
#[derive(Debug, Serialize)]
struct Served {
    available: bool,
    /// Whether every number up to the maximum is reserved. Some may still be in memory.
    exhausted: bool,
    issued: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids_per_second: Option<f64>,
    /// Numbers in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
    /// How long they last at the current demand.
    #[serde(skip_serializing_if = "Option::is_none")]
    lasts_s: Option<f64>,
    /// The reserved share of all numbers up to the maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<f64>,
}

impl LeaseRecords {
    /// Reads the workers and the clock of a store: two or three calls, whatever the number of nodes.
    async fn read(store: &dyn Store) -> Result<Self, AdminError> {
        let started = Instant::now();
        let entries = leases(store).await?;
        // The answer may wait long until somebody takes it.
        let (took, read_unix_ms) = (started.elapsed(), WallClock.unix_ms());
        let clock = ClockOffset::measure(store).await?;
        Ok(Self::of(&entries, clock, took, read_unix_ms))
    }

    fn of(entries: &[LeaseEntry], clock: Option<ClockOffset>, took: Duration, now_unix_ms: u64) -> Self {
        // This clock may be wrong.
        let store_unix_ms = clock.map_or(now_unix_ms, |clock| clock.of_store(now_unix_ms));
        let mut findings = doctor::wrong_with_leases(entries, store_unix_ms);
        findings.extend(clock.and_then(doctor::wrong_clock));
        let row = |entry| WorkerRow::of(entry, store_unix_ms);
        let workers: Vec<WorkerRow> = entries.iter().map(row).collect();
        let pools = workers.chunk_by(|one, other| one.pool == other.pool).map(PoolRow::of).collect();
        Self { workers, pools, findings, clock, took, read_unix_ms: now_unix_ms }
    }
}

impl LeaseRecords {
    /// Marks the workers whose leases ended without a release since `before` was read, or had ended so by
    /// then, and those whose records changed.
    fn mark_lapsed(&mut self, before: &Self) {
        let key = |worker: &WorkerRow| (worker.pool.clone(), worker.worker);
        let before: HashMap<_, &WorkerRow> =
            before.workers.iter().map(|worker| (key(worker), worker)).collect();
        for worker in &mut self.workers {
            worker.changed_unix_ms = self.read_unix_ms;
            let Some(before) = before.get(&key(worker)) else { continue };
            worker.lapsed = worker.has_lapsed(before);
            // A renewal shows the window, which may be another one after a restart.
            if worker.tag == before.tag {
                worker.longest_ms = worker.longest_ms.max(before.longest_ms);
                worker.changed_unix_ms = before.changed_unix_ms;
            }
        }
    }

    /// Returns the problem of nodes whose leases ended without a release not long ago, and that hold no other
    /// worker since.
    fn lapsed(&self) -> Option<Problem> {
        let lapsed = self.lapsed_workers();
        let (WorkerRow { worker, pool, holder, .. }, others) = lapsed.split_first()?;
        let more = match others.len() {
            0 => String::new(),
            1 => ", as did that of 1 other worker".to_owned(),
            more => format!(", as did those of {more} other workers"),
        };
        let holder = holder.as_deref().unwrap_or_default();
        Some(Problem {
            severity: Severity::Warning,
            check: Cow::Borrowed("lapsed"),
            what: format!("the lease of worker {worker} of {pool} ended without a release by {holder}{more}"),
            remedy: Some("the node was killed, hangs, or cannot reach the store: see its log".to_owned()),
        })
    }

    /// Returns the workers whose leases ended without a release not long ago, and whose nodes hold no other
    /// worker of the pool since.
    fn lapsed_workers(&self) -> Vec<&WorkerRow> {
        let since =
            self.read_unix_ms.saturating_sub(u64::try_from(LAPSED_FOR.as_millis()).unwrap_or(u64::MAX));
        let held = self.workers.iter().filter(|it| it.state == WorkerState::Held);
        let held: HashSet<_> = held.map(|it| (&it.pool, &it.holder)).collect();
        let shows = |it: &&WorkerRow| {
            it.lapsed && it.until_unix_ms > Some(since) && !held.contains(&(&it.pool, &it.holder))
        };
        self.workers.iter().filter(shows).collect()
    }

    /// Returns the workers and pools that a state of this node shows.
    fn shown(&self, node: &Node) -> (Vec<&WorkerRow>, Vec<PoolState<'_>>) {
        let limit = (WORKERS / self.pools.len().max(1)).clamp(1, WORKERS_OF_POOL);
        let (mut workers, mut pools) = (Vec::new(), Vec::new());
        let of_pools = self.workers.chunk_by(|one, other| one.pool == other.pool);
        for (row, of_pool) in self.pools.iter().zip(of_pools) {
            let mut of_pool: Vec<&WorkerRow> = of_pool.iter().collect();
            of_pool.sort_by_key(|worker| worker.rank(node));
            let left_out = of_pool.split_off(limit.min(of_pool.len()));
            let more_held = left_out.iter().filter(|worker| worker.state == WorkerState::Held).count();
            pools.push(PoolState { row, more_workers: left_out.len(), more_held });
            workers.append(&mut of_pool);
        }
        (workers, pools)
    }
}

impl PoolRow {
    fn of(workers: &[WorkerRow]) -> Self {
        let pool = workers.first().map_or_else(String::new, |worker| worker.pool.clone());
        let count = |state| workers.iter().filter(|worker| worker.state == state).count() as u64;
        let (name, datacenter) = layout_of(&pool);
        Self {
            name,
            datacenter,
            workers: workers_of(&pool),
            held: count(WorkerState::Held),
            unreadable: count(WorkerState::Unreadable),
            pool,
        }
    }
}

/// Returns the name of the layout of a pool, if it has one, and its datacenter, if the layout has any.
fn layout_of(pool: &str) -> (Option<&'static str>, Option<u32>) {
    let datacenter = pool.rsplit_once(".in").and_then(|(_, datacenter)| datacenter.parse().ok());
    let is_of = |layout| WorkerPool::new(layout, DatacenterId(datacenter.unwrap_or(0))).to_string() == pool;
    let preset = PRESETS.iter().find(|preset| is_of(preset.layout));
    (preset.map(|preset| preset.name), datacenter)
}

impl WorkerRow {
    fn of(entry: &LeaseEntry, now_unix_ms: u64) -> Self {
        let record = entry.record.as_ref().ok();
        let left_ms = record.map_or(0, |record| record.until_unix_ms.saturating_sub(now_unix_ms));
        Self {
            pool: entry.pool.clone(),
            worker: entry.worker.0,
            state: match record {
                None => WorkerState::Unreadable,
                Some(record) if record.is_held_at(now_unix_ms) => WorkerState::Held,
                Some(_) => WorkerState::Free,
            },
            holder: record.map(|record| record.holder.to_string()),
            from_unix_ms: record.and_then(|record| record.from_unix_ms),
            until_unix_ms: record.map(|record| record.until_unix_ms),
            lapsed: false,
            tag: record.map(|record| record.tag),
            left_ms,
            longest_ms: left_ms,
            changed_unix_ms: 0,
        }
    }

    /// Returns whether its lease should have been renewed by now: nodes renew when a third of the window has
    /// passed.
    const fn is_overdue(&self) -> bool {
        self.left_ms < self.longest_ms / 2
    }

    /// Returns whether its lease ended without a release: a release changes the record, and so does a
    /// renewal. One look does not show it. `before` is the same worker at an earlier look.
    fn has_lapsed(&self, before: &Self) -> bool {
        // The record of an evicted worker grants nothing.
        let grants = self.from_unix_ms.is_none_or(|from| Some(from) < self.until_unix_ms);
        let same = self.tag.is_some() && self.tag == before.tag;
        same && grants
            && self.state == WorkerState::Free
            && (before.state == WorkerState::Held || before.lapsed)
    }

    /// Returns its place in its pool: what an operator must not miss comes first. Free ones are ordered by
    /// the end of their lease, the latest first, and others by number, so that renewals move no row.
    fn rank(&self, node: &Node) -> (u8, Reverse<Option<u64>>, u32) {
        let is_here = || node.leases.iter().any(|it| it.worker == self.worker && it.pool == self.pool);
        let (group, until) = match self.state {
            WorkerState::Unreadable => (0, None),
            _ if is_here() => (1, None),
            WorkerState::Held => (2, None),
            WorkerState::Free => (3, self.until_unix_ms),
        };
        (group, Reverse(until), self.worker)
    }
}

impl OtherRecords {
    /// Reads namespaces, counters and the newest changes of a store: three calls, whatever the number of
    /// namespaces.
    async fn read(store: &dyn Store) -> Result<Self, AdminError> {
        let now_unix_ms = WallClock.unix_ms();
        let listed = registry::list(store).await?;
        let of_namespace = |listed: &Listed| {
            let problem = Problem::of(&doctor::namespace(listed, now_unix_ms)?)?;
            let has_ended = end_of(listed).is_some_and(|ends| ends <= now_unix_ms);
            Some(if has_ended { Problem { severity: Severity::Error, ..problem } } else { problem })
        };
        let mut problems: Vec<Problem> = listed.iter().filter_map(of_namespace).collect();
        problems.extend(doctor::room(&listed).and_then(|finding| Problem::of(&finding)));
        let counters: HashMap<String, String> = store
            .list("segments/")
            .await?
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_string(), String::from_utf8(value.value).ok()?)))
            .collect();
        let more_namespaces = listed.len().saturating_sub(NAMESPACES);
        let of_name = |(name, record): &(String, Result<NamespaceRecord, String>)| {
            NamespaceRow::of(name, record.as_ref(), &counters, now_unix_ms)
        };
        let namespaces = listed.iter().take(NAMESPACES).map(of_name).collect();
        let audit::AuditLog { changes, warnings } = audit::list(store, CHANGES, None).await?;
        Ok(Self { namespaces, more_namespaces, problems, changes, warnings })
    }
}

/// Returns the end of the layout of a namespace.
fn end_of((_, record): &Listed) -> Option<u64> {
    match &record.as_ref().ok()?.definition.scheme {
        Scheme::Snowflake { layout, .. } => Some(layout.ends_at_unix_ms()),
        _ => None,
    }
}

impl NamespaceRow {
    fn of(
        name: &str,
        record: Result<&NamespaceRecord, &String>,
        counters: &HashMap<String, String>,
        now_unix_ms: u64,
    ) -> Self {
        let record = match record {
            Ok(record) => record,
            Err(why) => {
                return Self {
                    name: name.to_owned(),
                    scheme: "",
                    summary: why.clone(),
                    state: Some(namespaces::NamespaceState::Unreadable),
                    ends_unix_ms: None,
                    reserved_to: None,
                    owner: None,
                    description: None,
                };
            }
        };
        let counter = namespaces::own_counter(name, record, now_unix_ms);
        let last = counter.and_then(|(key, stripe)| {
            namespaces::last_number(counters.get(&key).map(String::as_str), stripe)
        });
        // Nodes reserve beyond the maximum and never use those numbers.
        let last = match &record.definition.scheme {
            Scheme::Segment(segment) => last.map(|last| last.min(segment.maximum)),
            _ => last,
        };
        Self {
            state: Some(namespaces::NamespaceState::of(record)),
            reserved_to: last.map(|number| number.to_string()),
            ..Self::of_definition(name, &record.definition)
        }
    }

    fn of_definition(name: &str, definition: &Definition) -> Self {
        Self {
            name: name.to_owned(),
            scheme: definition.scheme.name(),
            summary: definition.to_string(),
            state: None,
            ends_unix_ms: match &definition.scheme {
                Scheme::Snowflake { layout, .. } => Some(layout.ends_at_unix_ms()),
                _ => None,
            },
            reserved_to: None,
            owner: definition.about.owner.clone(),
            description: definition.about.description.clone(),
        }
    }
}

/// Ids of each namespace that were issued until an instant, to compute rates.
#[derive(Debug)]
pub(crate) struct Issued {
    at: Instant,
    by_name: HashMap<String, u64>,
}

impl Issued {
    fn of(mint: &Mint) -> Self {
        let table = mint.table();
        let by_name =
            table.namespaces().iter().map(|it| (it.name().as_str().to_owned(), it.issued())).collect();
        Self { at: Instant::now(), by_name }
    }

    /// Returns the ids a second of all namespaces since `before`, and of the ones with the most ids.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
    fn busiest_since(&self, before: &Self, most: usize) -> (f64, Vec<(Box<str>, f64)>) {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let rate = |ids: u64| if seconds > 0.0 { (ids as f64 / seconds * 10.0).round() / 10.0 } else { 0.0 };
        let since = |(name, issued): (&String, &u64)| {
            let ids = issued.saturating_sub(before.by_name.get(name).copied().unwrap_or(0));
            (ids > 0).then(|| (Box::from(name.as_str()), ids))
        };
        let mut all: Vec<(Box<str>, u64)> = self.by_name.iter().filter_map(since).collect();
        let sum = all.iter().map(|(_, ids)| ids).sum();
        all.sort_by(|(one, ids), (other, more)| more.cmp(ids).then_with(|| one.cmp(other)));
        all.truncate(most);
        (rate(sum), all.into_iter().map(|(name, ids)| (name, rate(ids))).collect())
    }

    /// Returns the ids a second of a namespace since `before`.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
    fn rate_since(&self, before: Option<&Self>, name: &str) -> Option<f64> {
        let before = before?;
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let ids = self.by_name.get(name)?.saturating_sub(*before.by_name.get(name)?);
        (seconds > 0.0).then(|| (ids as f64 / seconds * 10.0).round() / 10.0)
    }
}

/// The records that were last read from the store.
#[derive(Debug, Default)]
pub(crate) struct LastRead {
    leases: Option<LeaseRecords>,
    others: Option<OtherRecords>,
    peers: Vec<Peer>,
    error: Option<String>,
    failing_since_unix_ms: Option<u64>,
}

impl LastRead {
    /// Stores the first half of a read. The second half may still fail, so an earlier error stays.
    fn has_leases(&mut self, mut leases: LeaseRecords) {
        if let Some(before) = &self.leases {
            leases.mark_lapsed(before);
        }
        self.leases = Some(leases);
    }

    /// Stores what the peers last answered.
    fn has_peers(&mut self, peers: &[Peer]) {
        if self.peers != peers {
            self.peers = peers.to_vec();
        }
    }

    /// Returns `true` if a read has succeeded or failed.
    const fn has_outcome(&self) -> bool {
        self.others.is_some() || self.error.is_some()
    }

    /// Stores the second half of a read. The store has answered, so the error is cleared.
    fn succeeded(&mut self, others: OtherRecords) {
        self.others = Some(others);
        (self.error, self.failing_since_unix_ms) = (None, None);
    }

    fn failed(&mut self, error: String, now_unix_ms: u64) {
        self.failing_since_unix_ms.get_or_insert(now_unix_ms);
        self.error = Some(error);
    }

    /// Returns the state of everything, as JSON.
    fn fleet(
        &self,
        server: &ServerState,
        store: String,
        (issued, before): (&Issued, Option<&Issued>),
        next_in: Duration,
    ) -> Vec<u8> {
        let now_unix_ms = WallClock.unix_ms();
        let node = Node::of(server, issued, before, server.settings.clock.unix_ms());
        let (workers, pools) = self.leases.as_ref().map(|leases| leases.shown(&node)).unzip();
        let clock = self.leases.as_ref().and_then(|leases| leases.clock);
        let identity = server.store.identity();
        let (problems, more_problems) = problems::shown(self.problems(server, &node, &store));
        let (nodes, more_nodes) = nodes::list(&node, server.store.text(), &self.peers, self.leases.as_ref());
        let fleet = Fleet {
            at_unix_ms: now_unix_ms,
            next_in_ms: u64::try_from(next_in.as_millis()).unwrap_or(u64::MAX),
            problems,
            more_problems,
            store: StoreState {
                name: store,
                id: identity.map(|it| it.id.to_string()),
                another: identity.and_then(|it| it.another).map(|another| another.to_string()),
                answers: self.error.is_none(),
                error: self.error.as_deref(),
                failing_since_unix_ms: self.failing_since_unix_ms,
                read_unix_ms: self.leases.as_ref().map(|leases| leases.read_unix_ms),
                took_ms: self
                    .leases
                    .as_ref()
                    .map(|leases| (leases.took.as_secs_f64() * 10_000.0).round() / 10.0),
                clock_ahead_ms: clock.map(ClockOffset::certain_ms),
                clock_within_ms: clock.map(ClockOffset::within_ms),
            },
            node,
            nodes,
            more_nodes,
            peers: &self.peers,
            workers,
            pools: pools.unwrap_or_default(),
            namespaces: self.namespaces(&server.mint, issued, before, now_unix_ms),
            more_namespaces: self.others.as_ref().map_or(0, |others| others.more_namespaces),
            changes: self.others.as_ref().map_or(&[], |others| &others.changes),
            warnings: self.others.as_ref().map_or(&[], |others| &others.warnings),
        };
        // Strings and numbers always serialize.
        serde_json::to_vec(&fleet).unwrap_or_default()
    }

    fn namespaces<'a>(
        &'a self,
        mint: &Mint,
        issued: &Issued,
        before: Option<&Issued>,
        now_unix_ms: u64,
    ) -> Vec<NamespaceState<'a>> {
        let table = mint.table();
        let here = |name: &str| {
            let namespace = table.find(name.as_bytes()).ok()?;
            Some(Served::of(namespace, issued.rate_since(before, name)))
        };
        let state = |row: Cow<'a, NamespaceRow>| NamespaceState {
            days_left: row.ends_unix_ms.map(|ends| ends.saturating_sub(now_unix_ms) / MS_PER_DAY),
            here: here(&row.name),
            row,
        };
        match &self.others {
            Some(others) => others.namespaces.iter().map(|row| state(Cow::Borrowed(row))).collect(),
            // What this node knows without the store.
            None => table
                .namespaces()
                .iter()
                .take(NAMESPACES)
                .map(|it| NamespaceRow::of_definition(it.name().as_str(), it.definition()))
                .map(|row| state(Cow::Owned(row)))
                .collect(),
        }
    }

    /// Returns what fails on this node, without the error of the store if that is shown already, and without
    /// numbers that have ended, which have problems of their own.
    fn trouble_of(&self, mint: &Mint) -> Option<String> {
        let of_store = self.error.as_ref().and_then(|_| mint.status().trouble).unwrap_or_default();
        without(&mint.trouble_besides_ended_numbers()?, &of_store)
    }

    /// Lists the problems by check.
    fn problems(&self, server: &ServerState, node: &Node, store: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add = |severity, what: String, remedy: Option<String>| {
            problems.push(Problem { severity, check: Cow::Borrowed("node"), what, remedy });
        };
        if let Some(error) = &self.error {
            let since =
                self.failing_since_unix_ms.map_or_else(String::new, |since| format!(" since {}", Utc(since)));
            let until = node.leases.iter().map(|lease| lease.until_unix_ms).min();
            let lasts = match until {
                Some(until) => format!("this node makes ids until {} at least", Utc(until)),
                None => "this node holds no lease and makes no ids of layouts".to_owned(),
            };
            add(
                Severity::Error,
                format!("{store} does not answer{since}: {error}"),
                Some(format!("{lasts}; check that the store runs and that this node can reach it")),
            );
        }
        if node.drained {
            let remedy = "DELETE /v1/admin/drain makes it ready again";
            add(Severity::Warning, "an operator has drained this node".to_owned(), Some(remedy.to_owned()));
        }
        let mint = &server.mint;
        if let Some(why) = &node.unready {
            let remedy = "other nodes serve meanwhile; the log of this node has the details";
            add(Severity::Error, format!("this node is not ready: {why}"), Some(remedy.to_owned()));
        }
        if let Some(trouble) = self.trouble_of(mint) {
            add(Severity::Warning, trouble, Some("see the log of this node".to_owned()));
        }
        if self.error.is_none() && self.leases.as_ref().is_some_and(|leases| leases.took > SLOW_CALL) {
            let what = format!("{store} is slow: a list of the workers takes longer than {SLOW_CALL:?}");
            add(Severity::Warning, what, None);
        }
        problems.extend(server.store.troubles().into_iter().map(Problem::of_store));
        problems.extend(mint.table().namespaces().iter().filter_map(|it| Problem::of_numbers(it)));
        problems.extend(self.peers.iter().filter_map(Peer::problem));
        problems.extend(self.leases.as_ref().and_then(LeaseRecords::lapsed));
        let findings = self.leases.iter().flat_map(|leases| &leases.findings);
        problems.extend(findings.filter_map(Problem::of));
        problems.extend(self.others.iter().flat_map(|others| &others.problems).cloned());
        problems
    }
}

/// Returns the rest of a list of troubles that begins with one that is shown already; `None` if there is no
/// rest.
fn without(trouble: &str, shown: &str) -> Option<String> {
    let rest = trouble.strip_prefix(shown).unwrap_or(trouble).trim_start_matches("; ");
    (!rest.is_empty()).then(|| rest.to_owned())
}

impl Served {
    fn of(namespace: &Namespace, ids_per_second: Option<f64>) -> Self {
        let status = namespace.segment_status();
        Self {
            available: !matches!(namespace.backend(), Backend::Unavailable(_)),
            exhausted: status.as_ref().is_some_and(|status| status.exhausted),
            issued: namespace.issued(),
            ids_per_second,
            left: status.as_ref().map(|status| status.left),
            lasts_s: status.as_ref().and_then(|status| Some(status.lasts?.as_secs_f64().round())),
            used: status.as_ref().map(|status| status.used),
        }
    }
}

impl Node {
    /// `id_clock_ms` is the time of the clock of the ids, by which leases end.
    fn of(server: &ServerState, issued: &Issued, before: Option<&Issued>, id_clock_ms: u64) -> Self {
        let mint = &server.mint;
        let status = mint.status();
        let table = mint.table();
        let held = |status: &LeaseStatus| HeldLease::of(status, id_clock_ms);
        let mut leases: Vec<HeldLease> = mint.leases().iter().filter_map(held).collect();
        for namespace in table.namespaces() {
            if let Backend::Snowflake(pool) = namespace.backend().plain()
                && let Some(lease) = held(&pool.status())
                && !leases.iter().any(|it| it.pool == lease.pool && it.worker == lease.worker)
            {
                leases.push(lease);
            }
        }
        let rates = table.namespaces().iter().map(|it| issued.rate_since(before, it.name().as_str()));
        let is_drained = server.shutdown.is_drained();
        let is_leaving = server.shutdown.listener().is_leaving();
        let unready = if is_leaving && !is_drained {
            Some("it is shutting down".to_owned())
        } else {
            mint.check_ready().err().map(|error| error.answer())
        };
        Self {
            holder: server.settings.holder.as_ref().map(Holder::to_string),
            version: env!("CARGO_PKG_VERSION"),
            started_unix_ms: server.started_unix_ms,
            ready: !is_leaving && unready.is_none(),
            unready,
            drained: is_drained,
            leases,
            issued: table.namespaces().iter().map(|it| it.issued()).sum(),
            ids_per_second: before.is_some().then(|| rates.flatten().sum()),
            wall_ahead_ms: status.wall_ahead_ms,
            records_ahead_ms: status.records_ahead_ms,
            store_errors: status.store_errors,
        }
    }
}

impl HeldLease {
    fn of(status: &LeaseStatus, now_unix_ms: u64) -> Option<Self> {
        let (worker, until_unix_ms) = status.held_at(now_unix_ms)?;
        Some(Self { pool: status.pool.clone(), worker: worker.0, until_unix_ms })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use snowmint::{Layout, ManualClock};
    use snowmint_cluster::NamespaceName;
    use snowmint_cluster::namespace::Fields;
    use snowmint_cluster::namespace::registry::IfDropped;
    use snowmint_cluster::segment::{SegmentConfig, Segments, Stripe};
    use snowmint_store::{Counter, Expected, Key, MemoryStore};

    use super::*;
    use crate::clock::SharedClock;
    use crate::testing;

    const POOL: &str = "time41@1ms.worker10.sequence12.1767225600000";

    async fn store(records: impl IntoIterator<Item = (String, String)>) -> MemoryStore {
        let store = MemoryStore::new();
        for (key, value) in records {
            let key = Key::new(key).unwrap();
            let _ = store.compare_and_set(&key, Expected::Absent, value.as_bytes()).await.unwrap();
        }
        store
    }

    fn lease(worker: u32, until_unix_ms: u64) -> (String, String) {
        let tag = "0".repeat(32);
        let value =
            format!("{{\"holder\":\"n{worker}\",\"from\":1,\"until\":{until_unix_ms},\"tag\":\"{tag}\"}}");
        (format!("workers/{POOL}/{worker}"), value)
    }

    /// Goal: a node that stops renewing is late, and then gone, and comes before those that live; a peer that
    /// does not answer is gone under the name that it had, unless it renews. Method: the leases of two nodes at
    /// instants that are chosen, without peers and with some.
    #[tokio::test]
    async fn nodes_are_alive_late_or_gone() {
        const START: u64 = 1_800_000_000_000;
        let server = ServerState::for_tests(testing::mint());
        let node = Node::of(&server, &Issued::of(&server.mint), None, 0);
        let mut read: Option<LeaseRecords> = None;
        let mut look = async |after_ms, peers: &[Peer], ends: [u64; 2]| {
            let records = [lease(1, START + ends[0]), lease(2, START + ends[1])];
            let entries = leases(&store(records).await).await.unwrap();
            let mut next = LeaseRecords::of(&entries, None, Duration::ZERO, START + after_ms);
            if let Some(before) = &read {
                next.mark_lapsed(before);
            }
            let (rows, more) = nodes::list(&node, None, peers, Some(&next));
            read = Some(next);
            assert_eq!(more, 0);
            let shown = |row: NodeRow| {
                let row = serde_json::to_value(row).unwrap();
                (!row["here"].is_boolean())
                    .then(|| format!("{} {} {}", row["name"], row["state"], row["workers"]).replace('"', ""))
            };
            rows.into_iter().filter_map(shown).collect::<Vec<_>>()
        };
        assert_eq!(look(0, &[], [10_000, 10_000]).await, ["n1 alive [1]", "n2 alive [2]"]);
        assert_eq!(look(6000, &[], [16_000, 10_000]).await, ["n2 late [2]", "n1 alive [1]"]);
        let silent = [("a:1", Some("n1")), ("b:1", Some("n2")), ("c:1", None)];
        let peers = silent.map(|(address, name)| Peer::silent(address, name));
        assert_eq!(look(7000, &peers, [16_000, 10_000]).await, ["c:1 gone []", "n2 gone [2]", "n1 late [1]"]);
        assert_eq!(look(11_000, &[], [20_000, 10_000]).await, ["n2 gone []", "n1 alive [1]"]);
    }

    /// Goal: each node has one row, whatever its name: further leases of a node count for it, and a name that
    /// looks like one of them is a node. Method: holders with and without the node whose name they begin with;
    /// a node with an address that no longer answers and one that does.
    #[tokio::test]
    async fn each_node_has_one_row() {
        const START: u64 = 1_800_000_000_000;
        let server = ServerState::for_tests(testing::mint());
        let node = Node::of(&server, &Issued::of(&server.mint), None, 0);
        let rows = async |holders: [&str; 2], peers: &[Peer]| {
            let records = [lease(1, START + 10_000), lease(2, START + 10_000)];
            let entries = leases(&store(records).await).await.unwrap();
            let mut read = LeaseRecords::of(&entries, None, Duration::ZERO, START);
            for (worker, holder) in read.workers.iter_mut().zip(holders) {
                worker.holder = Some(holder.to_owned());
            }
            let (rows, _) = nodes::list(&node, None, peers, Some(&read));
            let rows = rows.into_iter().map(|row| serde_json::to_value(row).unwrap());
            let others = rows.filter(|row| !row["here"].is_boolean());
            others
                .map(|row| format!("{} {}", row["name"], row["workers"]).replace('"', ""))
                .collect::<Vec<_>>()
        };
        assert_eq!(rows(["n1", "n1/2"], &[]).await, ["n1 [1,2]"]);
        assert_eq!(rows(["n1", "n1~orders"], &[]).await, ["n1 [1,2]"]);
        assert_eq!(rows(["rack/1", "rack/2"], &[]).await, ["rack/1 [1]", "rack/2 [2]"]);
        let named = [Peer::silent("a:1", Some("n1/2"))];
        assert_eq!(rows(["n1", "n1/2"], &named).await, ["n1/2 [2]", "n1 [1]"]);
        let moved = [
            Peer::silent("old:1", Some("n1")),
            Peer { state: peers::PeerState::Ready, ..Peer::silent("new:1", Some("n1")) },
        ];
        let read = LeaseRecords::of(&[], None, Duration::ZERO, START);
        let (listed, _) = nodes::list(&node, None, &moved, Some(&read));
        let listed: Vec<_> = listed.iter().map(|row| serde_json::to_value(row).unwrap()).collect();
        let of_n1: Vec<_> = listed.iter().filter(|row| row["name"] == "n1").collect();
        assert!(
            matches!(&of_n1[..], [one] if one["address"] == "new:1" && one["state"] == "alive"),
            "{listed:?}"
        );
    }

    /// Goal: nodes that share a name have a row each, which says so. Method: two workers under one name, held by
    /// nodes that are no peers, by peers at two addresses, and by a node and this one; a node at two addresses.
    #[tokio::test]
    async fn nodes_of_one_name_have_a_row_each() {
        const START: u64 = 1_800_000_000_000;
        let server = ServerState::for_tests(testing::mint());
        let mut node = Node::of(&server, &Issued::of(&server.mint), None, 0);
        let entries =
            leases(&store([lease(1, START + 10_000), lease(2, START + 10_000)]).await).await.unwrap();
        let mut read = LeaseRecords::of(&entries, None, Duration::ZERO, START);
        for worker in &mut read.workers {
            worker.holder = Some("twin".to_owned());
            worker.from_unix_ms = Some(START - 5_000);
            worker.changed_unix_ms = START;
        }
        let peer = |address: &str, instance: &str, worker| Peer {
            state: peers::PeerState::Ready,
            instance: Some(instance.to_owned()),
            workers: vec![worker],
            ..Peer::silent(address, Some("twin"))
        };
        let rows = |node: &Node, peers: &[Peer]| {
            let (rows, _) = nodes::list(node, None, peers, Some(&read));
            let rows = rows.into_iter().map(|row| serde_json::to_value(row).unwrap());
            let twins = rows.filter(|row| row["name"] == "twin");
            let shown = |row: serde_json::Value| {
                format!("{} {} {}", row["address"], row["workers"], row["namesake"]).replace('"', "")
            };
            twins.map(shown).collect::<Vec<_>>()
        };
        assert_eq!(rows(&node, &[]), ["null [1] true", "null [2] true"]);
        let two = [peer("a:1", "x", 1), peer("b:1", "y", 2)];
        assert_eq!(rows(&node, &two), ["a:1 [1] true", "b:1 [2] true"]);
        assert_eq!(rows(&node, &[peer("b:1", "y", 2)]), ["null [1] true", "b:1 [2] true"]);
        let one = [peer("a:1", "x", 1), peer("a:2", "x", 1)];
        assert_eq!(rows(&node, &one), ["a:1 [1] true", "null [2] true"]);
        node.holder = Some("twin".to_owned());
        let held = HeldLease { pool: POOL.to_owned(), worker: 1, until_unix_ms: START + 10_000 };
        node.leases = vec![held];
        assert_eq!(rows(&node, &two[1..]), ["null [1] true", "b:1 [2] true"]);
        // Not renewed since the other began: that of a process that ended.
        read.workers[0].from_unix_ms = Some(START + 1);
        let (rows, _) = nodes::list(&node, None, &[], Some(&read));
        assert_eq!(rows.len(), 1, "{rows:?}");
    }

    #[test]
    fn a_pool_has_the_name_of_its_layout() {
        let pool = WorkerPool::new(Layout::TWITTER, DatacenterId(7)).to_string();
        assert_eq!(layout_of(&pool), (Some("twitter"), Some(7)));
        assert_eq!(layout_of("time41@1ms.worker10.sequence12.1"), (None, None));
    }

    /// Goal: whatever the number of workers, the state stays small, leaves out no worker that an operator
    /// must not miss, and says what it leaves out. Method: a pool with unreadable, held and free workers,
    /// this node's among them, and another pool.
    #[tokio::test]
    async fn the_workers_that_matter_are_shown() {
        let now = WallClock.unix_ms();
        let server = ServerState::for_tests(testing::mint());
        let node = Node::of(&server, &Issued::of(&server.mint), None, 0);
        let own = &node.leases[0];
        let held = u32::try_from(WORKERS_OF_POOL).unwrap() + 26;
        let mut records: Vec<_> = (100..100 + held).map(|worker| lease(worker, now + 10_000)).collect();
        records.extend((700..720).map(|worker| lease(worker, now - u64::from(worker))));
        records.push((format!("workers/{POOL}/1000"), "x".to_owned()));
        records.push((format!("workers/{}/{}", own.pool, own.worker), lease(0, now - 5).1));
        let read = LeaseRecords::read(&store(records).await).await.unwrap();
        let (workers, pools) = read.shown(&node);
        let of_pool: Vec<_> = workers.iter().filter(|it| it.pool == POOL).collect();
        assert_eq!(of_pool.len(), WORKERS_OF_POOL);
        let first: Vec<_> = of_pool.iter().take(3).map(|it| (it.worker, it.state)).collect();
        let wanted = [(1000, WorkerState::Unreadable), (100, WorkerState::Held), (101, WorkerState::Held)];
        assert_eq!(first, wanted);
        let shown = |pool: &str| {
            let found = pools.iter().find(|it| it.row.pool == pool).unwrap();
            (found.row.held, found.row.unreadable, found.more_workers, found.more_held)
        };
        assert_eq!(shown(POOL), (u64::from(held), 1, 47, 27));
        assert_eq!(shown(&own.pool), (0, 0, 0, 0));
        assert!(workers.iter().any(|it| (it.worker, &it.pool) == (own.worker, &own.pool)));
        // The free one whose lease ended last comes first.
        let few = store([lease(7, now - 7), lease(8, now - 8), lease(6, now - 9)]).await;
        let few = LeaseRecords::read(&few).await.unwrap();
        assert_eq!(few.shown(&node).0.iter().map(|it| it.worker).collect::<Vec<_>>(), [7, 8, 6]);
    }

    /// Goal: problems that `snowmint doctor` finds in records are shown here too, and a healthy store shows
    /// none.
    #[tokio::test]
    async fn wrong_records_are_problems() {
        let now = WallClock.unix_ms();
        let held = store([lease(3, now + 10_000)]).await;
        let read = LeaseRecords::read(&held).await.unwrap();
        assert!(read.findings.iter().all(|finding| finding.ok), "{:?}", read.findings);
        assert_eq!((read.workers[0].state, read.pools[0].held), (WorkerState::Held, 1));
        let broken = (format!("workers/{POOL}/4"), "x".to_owned());
        let store = store([lease(3, now + 900_000), lease(5, now + 10_000), broken]).await;
        let read = LeaseRecords::read(&store).await.unwrap();
        let wrong: Vec<&str> =
            read.findings.iter().filter(|finding| !finding.ok).map(|finding| &*finding.text).collect();
        assert!(wrong.iter().any(|text| text.contains("held by n3 far beyond a window")), "{wrong:?}");
        assert!(wrong.iter().any(|text| text.contains("unreadable: worker 4")), "{wrong:?}");
    }

    /// Goal: a node whose lease ended without a release is named for an hour, and no other node is. Method:
    /// what two looks find: records that end unchanged, are released, renewed, evicted, taken by another
    /// node, or whose holder has another worker.
    #[tokio::test]
    async fn leases_that_end_without_a_release_are_named() {
        let start = WallClock.unix_ms();
        let record = |(worker, holder, tag, from, until): (u32, &str, u32, u64, u64)| {
            let value = format!(
                "{{\"holder\":\"{holder}\",\"from\":{from},\"until\":{until},\"tag\":\"{tag:032x}\"}}"
            );
            (format!("workers/{POOL}/{worker}"), value)
        };
        let until = start + 10_000;
        let renewed = until + 10_000;
        let first = (1..).zip(["killed", "released", "renewed", "evicted", "n5", "moved", "killed-too"]);
        let first: Vec<_> = first.map(|(worker, holder)| (worker, holder, worker, 1, until)).collect();
        let second = [
            first[0],
            (2, "released", 12, 1, start),
            (3, "renewed", 13, 1, renewed),
            (4, "evicted", 14, until, until),
            (5, "other", 15, until, renewed),
            first[5],
            first[6],
            (8, "moved", 18, until, renewed),
        ];
        let read = async |records: &[(u32, &'static str, u32, u64, u64)], now_unix_ms| {
            let store = store(records.iter().copied().map(record)).await;
            LeaseRecords::of(&leases(&store).await.unwrap(), None, Duration::ZERO, now_unix_ms)
        };
        let mut last = LastRead::default();
        let problem = |last: &LastRead| last.leases.as_ref().unwrap().lapsed().map(|problem| problem.what);
        let lapsed = |last: &LastRead| -> Vec<u32> {
            last.leases.as_ref().unwrap().workers.iter().filter(|it| it.lapsed).map(|it| it.worker).collect()
        };
        last.has_leases(read(&first, until - 1).await);
        assert_eq!((problem(&last), lapsed(&last)), (None, vec![]));
        last.has_leases(read(&second, until).await);
        let what = format!(
            "the lease of worker 1 of {POOL} ended without a release by killed, as did that of 1 other worker"
        );
        assert_eq!((problem(&last), lapsed(&last)), (Some(what.clone()), vec![1, 6, 7]));
        // It stays, in the same words, for an hour, in which the others renew.
        let renews = |(worker, holder, tag, from, end)| {
            let (tag, end) = if end == renewed { (tag + 100, end + 3_600_000) } else { (tag, end) };
            (worker, holder, tag, from, end)
        };
        let later = second.map(renews);
        last.has_leases(read(&later, until + 3_599_999).await);
        assert_eq!(problem(&last), Some(what));
        last.has_leases(read(&later, until + 3_600_000).await);
        assert_eq!(problem(&last), None);
        // A single look does not show it.
        let mut late = LastRead::default();
        late.has_leases(read(&second, until).await);
        assert_eq!(problem(&late), None);
    }

    /// Goal: a store that does not answer is shown as an error with its start and a remedy, and the last
    /// workers stay. Half a read does not clear the error; a whole read does.
    #[tokio::test]
    async fn a_store_that_fails_is_shown_until_it_answers() {
        let server = ServerState::for_tests(testing::mint());
        let now = WallClock.unix_ms();
        let store = store([lease(3, now + 10_000)]).await;
        let records =
            async |read_unix_ms| LeaseRecords { read_unix_ms, ..LeaseRecords::read(&store).await.unwrap() };
        let mut read = LastRead::default();
        let shown = |read: &LastRead| -> serde_json::Value {
            let issued = Issued::of(&server.mint);
            let json = read.fleet(&server, "redis://x".to_owned(), (&issued, None), Duration::from_secs(2));
            serde_json::from_slice(&json).unwrap()
        };
        let before = shown(&read);
        assert_eq!(
            (&before["workers"], &before["store"]["answers"]),
            (&serde_json::Value::Null, &true.into())
        );
        assert_eq!(before["namespaces"][0]["name"], "default", "this node knows it without the store");
        read.has_leases(records(5).await);
        read.failed("no answer".to_owned(), 1_000);
        read.failed("no answer at all".to_owned(), 2_000);
        let failing = shown(&read);
        let problem = &failing["problems"][0];
        assert_eq!(problem["severity"], "error");
        assert_eq!(
            problem["what"],
            "redis://x does not answer since 1970-01-01T00:00:01.000Z: no answer at all"
        );
        assert!(problem["remedy"].as_str().unwrap().contains("check that the store runs"), "{problem}");
        assert_eq!(
            (&failing["workers"][0]["worker"], &failing["store"]["read_unix_ms"]),
            (&3.into(), &5.into())
        );
        read.has_leases(records(9).await);
        let half = shown(&read);
        assert_eq!(
            (&half["problems"][0]["what"], &half["store"]["failing_since_unix_ms"]),
            (&problem["what"], &1_000.into())
        );
        read.succeeded(OtherRecords::read(&store).await.unwrap());
        let healthy = shown(&read);
        assert_eq!(
            (&healthy["problems"], &healthy["store"]["answers"]),
            (&serde_json::json!([]), &true.into())
        );
    }

    /// Goal: an error of the store is shown once, and what else fails is still shown. Method: the troubles of
    /// a node with and without the error, alone and among others.
    #[test]
    fn the_error_of_the_store_is_shown_once() {
        for (trouble, shown, wanted) in [
            ("load failed", "load failed", None),
            ("load failed; the store lost n", "load failed", Some("the store lost n")),
            ("the store lost n", "load failed", Some("the store lost n")),
            ("load failed; the store lost n", "", Some("load failed; the store lost n")),
        ] {
            assert_eq!(without(trouble, shown).as_deref(), wanted, "{trouble:?} {shown:?}");
        }
    }

    /// Goal: a namespace that makes no ids is an error, and its reserved numbers stop at the maximum. Method:
    /// a layout that ended, one that ends soon, and numbers whose counter is beyond their maximum.
    #[tokio::test]
    async fn namespaces_without_ids_are_errors() {
        let store = store([("segments/used".to_owned(), "21".to_owned())]).await;
        let mint = testing::mint();
        let add = async |name: &str, fields: Fields| {
            let name = NamespaceName::new(name).unwrap();
            let definition = fields.define(&Layout::TWITTER).unwrap();
            registry::add(&store, &name, &definition, IfDropped::Resume).await.unwrap();
            (name, definition)
        };
        let snowflake = |layout: String| Fields {
            scheme: "snowflake".to_owned(),
            layout: Some(layout.parse().unwrap()),
            ..Fields::default()
        };
        let soon = Utc(WallClock.unix_ms()).to_string();
        let soon = format!("time:36 worker:10 sequence:12 epoch:{}", &soon[..10]);
        add("ended", snowflake("time:30 worker:10 sequence:12 epoch:2015-01-01".to_owned())).await;
        add("ends", snowflake(soon)).await;
        let numbers = Fields { scheme: "segment".to_owned(), maximum: Some(10), ..Fields::default() };
        let (name, definition) = add("used", numbers).await;

        let read = OtherRecords::read(&store).await.unwrap();
        let found: Vec<_> =
            read.problems.iter().map(|it| (it.severity, it.what.split(' ').next().unwrap())).collect();
        assert_eq!(found, [(Severity::Error, "ended"), (Severity::Warning, "ends")]);
        assert!(read.problems[0].what.contains("makes no more ids"), "{}", read.problems[0].what);
        let used = read.namespaces.iter().find(|row| row.name == "used").unwrap();
        assert_eq!(used.reserved_to.as_deref(), Some("10"));

        let clock: SharedClock = Arc::new(ManualClock::at_unix_ms(0));
        let counter = Stripe::WHOLE.counter(Arc::new(store), Key::new("segments/used").unwrap(), 1);
        let counters: Vec<Arc<dyn Counter>> = vec![Arc::new(counter)];
        let config = SegmentConfig::new().maximum(10);
        let segments = Segments::start(counters, config, ManualClock::at_unix_ms(0)).unwrap();
        assert!(segments.take(1).await.is_err());
        let used = Namespace::new(name, definition, Backend::Segment(segments), &clock);
        let mut namespaces = mint.table().namespaces().to_vec();
        namespaces.push(Arc::new(used));
        mint.serve(namespaces);
        let server = ServerState::for_tests(mint);
        let node = Node::of(&server, &Issued::of(&server.mint), None, 0);
        let problems = LastRead::default().problems(&server, &node, "memory");
        let [problem] = &*problems else { panic!("{problems:?}") };
        assert_eq!(
            (problem.severity, &*problem.what),
            (Severity::Error, "every number of used up to its maximum, 10, is used")
        );
    }

    /// Goal: a lease that ended is not held, and a node that shuts down is not ready. Method: a lease up to
    /// its last millisecond, and each phase of a shutdown.
    #[tokio::test]
    async fn a_node_shows_what_it_has_now() {
        let mint = testing::mint();
        let until = mint.status().until_unix_ms.unwrap();
        let server = ServerState::for_tests(mint);
        let node = |now_unix_ms| Node::of(&server, &Issued::of(&server.mint), None, now_unix_ms);
        assert!(node(until - 1).leases.iter().any(|it| (it.worker, it.until_unix_ms) == (3, until)));
        assert!(node(until).leases.is_empty());
        assert!(node(until).ready);
        server.shutdown.drain();
        assert!(!node(until).ready && node(until).drained);
        server.shutdown.leave();
        assert!(!node(until).ready && !node(until).drained);
        assert_eq!(node(until).unready.as_deref(), Some("it is shutting down"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_of_the_time_between_two_states() {
        let mint = testing::mint();
        let before = Issued::of(&mint);
        mint.table().find(b"default").unwrap().add_issued(300);
        tokio::time::advance(Duration::from_secs(2)).await;
        let after = Issued::of(&mint);
        assert_eq!(after.rate_since(Some(&before), "default"), Some(150.0));
        assert_eq!(
            (after.rate_since(None, "default"), after.rate_since(Some(&before), "nope")),
            (None, None)
        );
    }
}
