//! The mint: makes ids for the served namespaces and decodes ids. No protocol appears here.
//!
//! An id request takes this path: `table` finds the namespace, `namespace` asks its backend, and for
//! snowflake ids `id_pool` draws through the connection's handle. Namespaces may change at any time; each
//! request sees one table.

mod connection_state;
mod error;
mod id_pool;
mod ids;
mod namespace;
mod namespace_table;
mod received_numbers;
mod write_numbers;

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use snowmint::error::Snippet;
use snowmint::inspect::{Candidate, Decoded, Inspection, cell};
use snowmint::utc::Utc;
use snowmint::{Clock as _, DatacenterId, GenerateError, Id, Layout, WallClock};
use snowmint_admin::namespaces::raise_maximum;
use snowmint_cluster::namespace::{Definition, Scheme};
use snowmint_cluster::{LeaseStatus, NamespaceName};
use tokio::sync::{mpsc, oneshot};

pub use connection_state::ConnectionState;
pub use error::{InvalidIdError, MintError, Quota};
pub use id_pool::{IdHandle, IdHandles, IdPool, IdSource};
pub use ids::{IdRange, Ids, Minted};
pub use namespace::{Backend, Namespace, PartialIds, Taken};
pub use namespace_table::NamespaceTable;
pub(crate) use namespace_table::some_of;
pub(crate) use received_numbers::{HighestReceived, ReceivedNumbers};
pub(crate) use write_numbers::Entry;

use crate::clock::SharedClock;
use crate::limits::{MAX_COUNT, MAX_RANGE_COUNT, MAX_SERVED_NAMESPACES, MAX_WAIT};

/// Makes ids for the served namespaces, and decodes ids.
#[derive(Debug)]
pub struct Mint {
    table: Arc<ArcSwap<NamespaceTable>>,
    /// The workers of the service's own layout.
    pool: Arc<IdPool>,
    datacenter: DatacenterId,
    /// The slot of the next pool.
    slots: AtomicUsize,
    /// Served namespaces whose records the store has lost.
    unrecorded: ArcSwap<Vec<NamespaceName>>,
    records_lost: AtomicU64,
    /// Namespaces of the store that are not served, because there are too many.
    left_out: ArcSwap<Vec<NamespaceName>>,
    received: Arc<ReceivedNumbers>,
    creator: OnceLock<mpsc::Sender<CreateRequest>>,
}

/// How to decode an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectBy<'a> {
    /// By whatever it matches, the served namespaces first.
    Anything,
    /// By the text form and the scheme of the namespace of this name.
    Namespace(&'a [u8]),
    /// By the layout of this name or text.
    Layout(&'a [u8]),
}

/// A request to create the namespace of an unknown name.
#[derive(Debug)]
pub struct CreateRequest {
    /// The name.
    pub name: NamespaceName,
    /// Receives the outcome.
    pub done: oneshot::Sender<Result<(), MintError>>,
}

impl Mint {
    /// Returns a mint of these namespaces, which must be pinned to `layout` in the store.
    pub fn new(
        namespaces: impl IntoIterator<Item = NamespaceName>,
        source: impl IdSource,
        layout: Layout,
        datacenter: DatacenterId,
    ) -> Self {
        let pool = Arc::new(IdPool::new(Box::new(source), layout, 0));
        let wall: SharedClock = Arc::new(WallClock);
        let namespace = |name| {
            let backend = Backend::Snowflake(Arc::clone(&pool));
            Arc::new(Namespace::new(name, Definition::snowflake(layout), backend, &wall))
        };
        let table = NamespaceTable::new(namespaces.into_iter().map(namespace).collect());
        Self {
            table: Arc::new(ArcSwap::from_pointee(table)),
            pool,
            datacenter,
            slots: AtomicUsize::new(1),
            unrecorded: ArcSwap::default(),
            records_lost: AtomicU64::new(0),
            left_out: ArcSwap::default(),
            received: Arc::default(),
            creator: OnceLock::new(),
        }
    }

    /// Returns the state of a new connection.
    pub fn connection_state(&self) -> ConnectionState {
        ConnectionState::new(Arc::clone(&self.table))
    }

    /// Replaces the served namespaces. Requests in flight may still use the previous ones.
    pub fn serve(&self, namespaces: Vec<Arc<Namespace>>) {
        self.table.store(Arc::new(NamespaceTable::new(namespaces)));
    }

    /// Returns the served namespaces.
    pub fn table(&self) -> Arc<NamespaceTable> {
        self.table.load_full()
    }

    /// Stores the served namespaces whose records the store has lost, and counts the records lost since the
    /// last call.
    pub(crate) fn note_unrecorded(&self, names: Vec<NamespaceName>, newly_lost: u64) {
        self.unrecorded.store(Arc::new(names));
        self.records_lost.fetch_add(newly_lost, Ordering::Relaxed);
    }

    /// Returns the served namespaces whose records the store has lost.
    pub fn unrecorded(&self) -> Arc<Vec<NamespaceName>> {
        self.unrecorded.load_full()
    }

    /// Returns the number of records of served namespaces that the store has lost since the start.
    pub fn records_lost(&self) -> u64 {
        self.records_lost.load(Ordering::Relaxed)
    }

    /// Stores the namespaces of the store that are not served, because there are too many.
    pub(crate) fn note_left_out(&self, names: Vec<NamespaceName>) {
        self.left_out.store(Arc::new(names));
    }

    /// Returns the numbers that this process has received, by counter.
    pub(crate) const fn received(&self) -> &Arc<ReceivedNumbers> {
        &self.received
    }

    /// Returns the problems of a node that still makes ids but needs attention; `None` if there are none.
    pub fn trouble(&self) -> Option<String> {
        let table = self.table();
        let ended = |namespace: &Arc<Namespace>| {
            Some(format!("{}: {}", namespace.numbers_ended()?, raise_maximum(namespace.name().as_str())))
        };
        let ended: Vec<String> = table.namespaces().iter().filter_map(ended).collect();
        let ended = (!ended.is_empty()).then(|| some_of(ended.iter().map(String::as_str)));
        let trouble: Vec<_> = self.trouble_besides_ended_numbers().into_iter().chain(ended).collect();
        (!trouble.is_empty()).then(|| trouble.join("; "))
    }

    /// Returns the problems of [`trouble`](Self::trouble) without the namespaces whose maximum is reached.
    pub(crate) fn trouble_besides_ended_numbers(&self) -> Option<String> {
        let unrecorded = self.unrecorded();
        let names: Vec<_> = unrecorded.iter().map(NamespaceName::as_str).collect();
        let lost = (!names.is_empty())
            .then(|| format!("the store has lost the records of served namespaces: {}", names.join(", ")));
        let table = self.table();
        let unavailable =
            table.namespaces().iter().filter(|it| matches!(it.backend(), Backend::Unavailable(_)));
        let unavailable: Vec<_> = unavailable.map(|it| it.name().as_str()).collect();
        let unavailable = (!unavailable.is_empty())
            .then(|| format!("unavailable namespaces, see the log: {}", unavailable.join(", ")));
        let left_out = self.left_out.load();
        let left_out = (!left_out.is_empty()).then(|| {
            let (names, limit) = (some_of(left_out.iter().map(NamespaceName::as_str)), MAX_SERVED_NAMESPACES);
            format!("not served, because the store has more than {limit} namespaces: {names}")
        });
        let without_ids = self.without_ids(&table);
        let without_ids = (!without_ids.is_empty()).then(|| some_of(without_ids.iter().map(String::as_str)));
        let numbers: Vec<String> =
            table.namespaces().iter().filter_map(|it| it.reserves_no_numbers()).collect();
        let numbers = (!numbers.is_empty()).then(|| some_of(numbers.iter().map(String::as_str)));
        let trouble = self.of_leases(&table).into_iter().chain(lost).chain(unavailable);
        let trouble: Vec<_> = trouble.chain(without_ids).chain(numbers).chain(left_out).collect();
        (!trouble.is_empty()).then(|| trouble.join("; "))
    }

    /// Returns the errors of the store since the leases of any layout were last renewed.
    fn of_leases(&self, table: &NamespaceTable) -> Vec<String> {
        let pools = table.namespaces().iter().filter_map(|namespace| match namespace.backend().plain() {
            Backend::Snowflake(pool) => Some(pool),
            _ => None,
        });
        let mut slots = BTreeSet::new();
        let pools = [&self.pool].into_iter().chain(pools).filter(|pool| slots.insert(pool.slot));
        let mut found: Vec<String> = Vec::new();
        for trouble in pools.filter_map(|pool| pool.status().trouble) {
            // The leases of all layouts are in one store.
            if !found.contains(&trouble) {
                found.push(trouble);
            }
        }
        found
    }

    /// Returns a new pool, for namespaces of another layout or rule.
    pub fn add_pool(&self, source: Box<dyn IdSource>, layout: Layout) -> Arc<IdPool> {
        // Slots only have to differ, so no ordering is needed.
        Arc::new(IdPool::new(source, layout, self.slots.fetch_add(1, Ordering::Relaxed)))
    }

    /// Returns the pool of the service's own layout.
    pub const fn pool(&self) -> &Arc<IdPool> {
        &self.pool
    }

    /// Sends requests for unknown names to `creator` from now on. Without a creator they are rejected.
    pub fn set_creator(&self, creator: mpsc::Sender<CreateRequest>) {
        // The namespace sync sets it once.
        let _ = self.creator.set(creator);
    }

    /// Creates the namespace of an unknown name, if that is allowed.
    ///
    /// # Errors
    ///
    /// `unknown` if it is not allowed, else the reason why it failed.
    pub async fn create(&self, name: &[u8], unknown: MintError) -> Result<(), MintError> {
        let name = std::str::from_utf8(name).ok().and_then(|name| NamespaceName::new(name).ok());
        let (Some(creator), Some(name), MintError::UnknownNamespace { .. }) =
            (self.creator.get(), name, &unknown)
        else {
            return Err(unknown);
        };
        let (done, outcome) = oneshot::channel();
        let created = async {
            creator.send(CreateRequest { name, done }).await.ok()?;
            outcome.await.ok()
        };
        // Boxed, since few requests create a namespace.
        match Box::pin(tokio::time::timeout(MAX_WAIT, created)).await {
            Ok(Some(created)) => created,
            Ok(None) => Err(unknown),
            Err(_) => Err(MintError::NotReady { why: "the store did not answer in time".to_owned() }),
        }
    }

    /// Returns the error for an unknown name.
    pub(crate) fn unknown(&self, name: &NamespaceName) -> MintError {
        self.table().unknown(name.as_str().as_bytes())
    }

    /// Returns `true` if unknown names become namespaces.
    pub fn creates(&self) -> bool {
        self.creator.get().is_some_and(|creator| !creator.is_closed())
    }

    /// Checks that this node can make ids as well as another node could. A namespace whose ids have ended, or
    /// whose workers other nodes hold, is in [`trouble`](Self::trouble) instead: otherwise one namespace
    /// would take every node out of a load balancer.
    ///
    /// # Errors
    ///
    /// [`MintError`] says what is missing. If no namespace has ids, it is the error of one of them.
    pub fn check_ready(&self) -> Result<(), MintError> {
        let table = self.table();
        let (mut has_ids, mut without_ids) = (false, None);
        for namespace in table.namespaces() {
            match namespace.check_ready() {
                Ok(()) => has_ids = true,
                Err(error) if self.blames_this_node(namespace, &error) => return Err(error),
                Err(error) => without_ids = without_ids.or(Some(error)),
            }
        }
        match without_ids {
            Some(error) if !has_ids => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns whether another node may have ids of a namespace when this one has none. A node without a
    /// worker of the service's own layout is always to blame.
    fn blames_this_node(&self, namespace: &Namespace, error: &MintError) -> bool {
        let other_pool = match namespace.backend().plain() {
            Backend::Snowflake(pool) if !Arc::ptr_eq(pool, &self.pool) => Some(pool),
            _ => None,
        };
        match error {
            MintError::LayoutEnded { .. } => false,
            // By the service's own layout, the clock is wrong.
            MintError::ClockBehind { refusal: GenerateError::NotBegun { .. } } => other_pool.is_none(),
            _ => !other_pool.is_some_and(|pool| pool.none_free()),
        }
    }

    /// Returns the namespaces that have no ids on any node, with the reasons.
    fn without_ids(&self, table: &NamespaceTable) -> Vec<String> {
        let reason = |namespace: &Arc<Namespace>| {
            let error = namespace.check_ready().err()?;
            let reason = || format!("{}: {}", namespace.name(), error.answer());
            (!self.blames_this_node(namespace, &error)).then(reason)
        };
        table.namespaces().iter().filter_map(reason).collect()
    }

    /// Decodes an id, in any text form and scheme. Never creates a namespace.
    ///
    /// # Errors
    ///
    /// [`MintError::BadId`] and [`MintError::NotOfNamespace`] if the text is not such an id,
    /// [`MintError::BadLayout`] if the layout is invalid, [`MintError::UnknownNamespace`] and
    /// [`MintError::BadNamespace`].
    pub fn inspect(&self, text: &[u8], by: InspectBy<'_>) -> Result<Inspection, MintError> {
        self.inspect_among(text, by, |_| true)
    }

    /// Decodes an id. [`InspectBy::Anything`] considers only the namespaces that the client `sees`.
    pub(crate) fn inspect_among(
        &self,
        text: &[u8],
        by: InspectBy<'_>,
        sees: impl Fn(&[u8]) -> bool,
    ) -> Result<Inspection, MintError> {
        let text = String::from_utf8_lossy(text);
        let bad = |why: InvalidIdError| MintError::BadId { text: Snippet::of(&text), why };
        match by {
            InspectBy::Anything => self.inspect_anything(&text, sees).ok_or_else(|| {
                bad(text.parse::<Id>().map_or_else(InvalidIdError::Text, |_| InvalidIdError::Nothing))
            }),
            InspectBy::Namespace(name) => {
                let table = self.table();
                let namespace = table.find(name)?;
                match namespace.inspect(&text).or_else(|why| namespace.inspect(&cell(&text)).map_err(|_| why))
                {
                    Ok((decoded, form)) => Ok(Inspection::known(decoded, form)),
                    Err(why) => {
                        let name = Snippet::of(namespace.name().as_str());
                        Err(MintError::NotOfNamespace { text: Snippet::of(&text), name, why })
                    }
                }
            }
            InspectBy::Layout(layout) => {
                let layout = String::from_utf8_lossy(layout);
                let layout: Layout = layout.parse().map_err(|why| MintError::BadLayout {
                    layout: Snippet::of(&layout),
                    why: Box::new(why),
                })?;
                let id: Id = cell(&text).parse().map_err(|error| bad(InvalidIdError::Text(error)))?;
                let decoded = Decoded::by_layout(id, layout).map_err(|error| bad(error.into()))?;
                Ok(Inspection::known(decoded, "decimal"))
            }
        }
    }

    /// Returns the smallest and the largest id that a namespace can make within a time range, for `WHERE id
    /// BETWEEN`. The range is in unix milliseconds. Never creates a namespace.
    ///
    /// # Errors
    ///
    /// [`MintError::NotByTime`] if its ids do not sort by time, [`MintError::BadTimeRange`],
    /// [`MintError::OutsideLayout`], [`MintError::UnknownNamespace`] and [`MintError::BadNamespace`].
    pub fn time_bounds(
        &self,
        namespace: &[u8],
        unix_ms: Range<u64>,
    ) -> Result<RangeInclusive<Id>, MintError> {
        let table = self.table();
        let namespace = table.find(namespace)?;
        let name = Snippet::of(namespace.name().as_str());
        let Scheme::Snowflake { layout, .. } = &namespace.definition().scheme else {
            return Err(MintError::NotByTime { name, why: "its scheme is not snowflake" });
        };
        if namespace.definition().scheme.hide().is_some() {
            return Err(MintError::NotByTime { name, why: "they are hidden" });
        }
        if !layout.sorts_by_time() {
            return Err(MintError::NotByTime { name, why: "the time is not the top field of its layout" });
        }
        let Range { start: from_unix_ms, end: until_unix_ms } = unix_ms;
        if unix_ms.is_empty() {
            return Err(MintError::BadTimeRange { from_unix_ms, until_unix_ms });
        }
        let (begin_unix_ms, end_unix_ms) = (layout.epoch_unix_ms(), layout.ends_at_unix_ms());
        let outside = |unix_ms| MintError::OutsideLayout { name, unix_ms, begin_unix_ms, end_unix_ms };
        let first = layout.first_id_at(Utc(from_unix_ms)).ok_or_else(|| outside(from_unix_ms))?;
        let last = layout.last_id_at(Utc(until_unix_ms - 1)).ok_or_else(|| outside(until_unix_ms))?;
        Ok(first..=last)
    }

    /// Decodes a text as the likeliest id. A cell of a spreadsheet is read without its quotes and separators.
    fn inspect_anything(&self, text: &str, sees: impl Fn(&[u8]) -> bool) -> Option<Inspection> {
        let now_unix_ms = WallClock.unix_ms();
        let inspect = |text: &str| {
            let (of_namespaces, hidden) = self.candidates(text, now_unix_ms, &sees);
            let inspection = Inspection::of_text(text, of_namespaces, now_unix_ms)?;
            Some(with_hidden(inspection, &hidden))
        };
        inspect(text).or_else(|| inspect(&cell(text)))
    }

    /// Decodes a text by each served namespace. The readings of hidden namespaces are apart: any number could
    /// be one of their ids.
    fn candidates(
        &self,
        text: &str,
        now_unix_ms: u64,
        sees: impl Fn(&[u8]) -> bool,
    ) -> (Vec<Candidate>, Vec<Candidate>) {
        let table = self.table();
        let read = |namespace: &Arc<Namespace>| {
            let name = namespace.name().as_str();
            let (decoded, form) = sees(name.as_bytes()).then(|| namespace.inspect(text).ok())??;
            let is_hidden = namespace.definition().scheme.hide().is_some();
            Some((is_hidden, Candidate::of_namespace(name, decoded, form, now_unix_ms)))
        };
        let (hidden, plain): (Vec<_>, Vec<_>) =
            table.namespaces().iter().filter_map(read).partition(|(is_hidden, _)| *is_hidden);
        let only = |read: Vec<(bool, Candidate)>| read.into_iter().map(|(_, candidate)| candidate).collect();
        (only(plain), only(hidden))
    }

    /// Returns the layout of the service.
    pub fn layout(&self) -> &Layout {
        &self.pool.layout
    }

    /// Returns the datacenter of every id.
    pub const fn datacenter(&self) -> DatacenterId {
        self.datacenter
    }

    /// Returns the state of the lease of the service's own layout; several leases are summed up as one.
    pub fn status(&self) -> LeaseStatus {
        self.pool.source.status()
    }

    /// Returns the state of each lease of the service's own layout.
    pub fn leases(&self) -> Vec<LeaseStatus> {
        self.pool.source.leases()
    }

    /// Returns the state of each lease, those of namespaces with their own layout or rule included.
    pub fn leases_of_all_layouts(&self) -> Vec<LeaseStatus> {
        self.pools(&self.table()).iter().flat_map(|pool| pool.source.leases()).collect()
    }

    /// Returns each layout with the leases for it; a layout comes once for each of its rules.
    pub(crate) fn leases_by_layout(&self) -> Vec<(Layout, Vec<LeaseStatus>)> {
        self.pools(&self.table()).iter().map(|pool| (pool.layout, pool.source.leases())).collect()
    }

    /// Returns the pools of the service and of these namespaces, each once.
    fn pools(&self, table: &NamespaceTable) -> Vec<Arc<IdPool>> {
        let mut pools = vec![Arc::clone(&self.pool)];
        for namespace in table.namespaces() {
            if let Backend::Snowflake(pool) = namespace.backend().plain()
                && pools.iter().all(|it| it.slot != pool.slot)
            {
                pools.push(Arc::clone(pool));
            }
        }
        pools
    }

    /// Stops making ids and releases all leases and unused numbers, within `patience`.
    pub async fn release(&self, patience: Duration) {
        let table = self.table();
        self.serve(Vec::new());
        let mut tasks = tokio::task::JoinSet::new();
        for namespace in table.namespaces() {
            if let Backend::Segment(segments) = namespace.backend().plain() {
                let segments = segments.clone();
                tasks.spawn(async move { segments.release(patience).await });
            }
        }
        for pool in self.pools(&table) {
            tasks.spawn(async move { pool.source.release(patience).await });
        }
        tasks.join_all().await;
    }
}

/// Parses the number of requested ids: a plain whole number from 1 to [`MAX_COUNT`].
///
/// # Errors
///
/// [`MintError::BadCount`] for everything else, signs and spaces included.
pub fn parse_count(text: &[u8]) -> Result<usize, MintError> {
    parse_count_within(text, MAX_COUNT)
}

/// Parses the number of ids requested as ranges: a plain whole number from 1 to [`MAX_RANGE_COUNT`].
///
/// # Errors
///
/// As [`parse_count`].
pub fn parse_range_count(text: &[u8]) -> Result<usize, MintError> {
    parse_count_within(text, MAX_RANGE_COUNT)
}

fn parse_count_within(text: &[u8], limit: usize) -> Result<usize, MintError> {
    let digits = !text.is_empty() && text.len() <= 20 && text.iter().all(u8::is_ascii_digit);
    let value = digits.then(|| {
        text.iter().fold(0_usize, |n, b| n.saturating_mul(10).saturating_add(usize::from(b - b'0')))
    });
    match value {
        Some(count) if (1..=limit).contains(&count) => Ok(count),
        _ => Err(MintError::BadCount { value: Snippet::of(&String::from_utf8_lossy(text)), limit }),
    }
}

/// How much likelier a hidden namespace has to make a number than the likeliest reading does, in bits: of
/// sixteen numbers that nothing else explains, one is then noted though it is not its id.
const HIDDEN_EVIDENCE_BITS: f64 = 4.0;

/// Notes which namespaces may have hidden the id: under their keys it is a plausible id, which chance seldom
/// makes.
fn with_hidden(inspection: Inspection, hidden: &[Candidate]) -> Inspection {
    let cost = |candidate: &Candidate| candidate.cost_bits.unwrap_or(f64::INFINITY);
    let likeliest = cost(inspection.likeliest());
    let is_plausible = |it: &&Candidate| cost(it) + HIDDEN_EVIDENCE_BITS < likeliest;
    let names: Vec<&str> =
        hidden.iter().filter(is_plausible).flat_map(|it| &it.namespaces).map(String::as_str).collect();
    if names.is_empty() {
        return inspection;
    }
    inspection.with_note(format!(
        "may be hidden by namespace {}: name the namespace to reveal it",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use snowmint::GenerateError;
    use snowmint_cluster::NextIdError;
    use snowmint_cluster::namespace::{Fields, HideKeys};

    use super::*;
    use crate::status::ErrorKind;
    use crate::testing::{TestSource, mint, mint_of};

    const LAYOUT: Layout = Layout::TWITTER;

    fn one(mint: &Mint, name: &[u8]) -> Result<Option<Id>, MintError> {
        let mut connection = mint.connection_state();
        let (namespace, handles) = connection.find(name)?;
        Ok(namespace.try_one(handles)?.map(|number| Id::new(number).unwrap()))
    }

    fn try_take(mint: &Mint, count: usize) -> Result<Taken, MintError> {
        let mut connection = mint.connection_state();
        let (namespace, handles) = connection.find(b"default")?;
        namespace.try_take(handles, count)
    }

    async fn take(mint: &Mint, name: &[u8], count: usize) -> Result<Ids, MintError> {
        let mut connection = mint.connection_state();
        let (namespace, handles) = connection.find(name)?;
        namespace.take(handles, count).await
    }

    /// Goal: ranges hold the same ids as a list: no duplicate, no id in between that others could get, and
    /// the steps of the layout.
    #[tokio::test]
    async fn ranges_hold_every_id_once() {
        // Twitter's layout has the sequence last; in the second one the worker follows it, so ids are 32
        // apart.
        let behind: Layout = "time:41,sequence:12,datacenter:5,worker:5,epoch:1288834974657".parse().unwrap();
        for (layout, step) in [(LAYOUT, 1), (behind, 1024)] {
            let mint = mint_of(TestSource::new(layout), layout);
            let mut connection = mint.connection_state();
            let (namespace, handles) = connection.find(b"default").unwrap();
            let mut last = 0;
            for count in [1, 10, 4096, 4097, 100_001, MAX_RANGE_COUNT] {
                let mut ids = match namespace.try_take_ranges(handles, count).unwrap() {
                    Taken::All(ids) => ids,
                    Taken::Partial(partial) => namespace.wait(handles, partial, MAX_WAIT).await.unwrap(),
                };
                let (mut seen, mut ranges) = (0, 0);
                while let Some(range) = ids.next_range() {
                    assert!(range.first > last && range.step == step, "{range:?} after {last}");
                    last = range.first + (range.count - 1) * range.step;
                    assert_eq!(layout.split(Id::new(last).unwrap()).unwrap().worker.0, 3);
                    (seen, ranges) = (seen + usize::try_from(range.count).unwrap(), ranges + 1);
                }
                assert_eq!((seen, ids.len()), (count, 0));
                assert!(ranges <= count / 4096 + 2, "{ranges} ranges for {count} ids");
            }
            let one = namespace.try_one(handles).unwrap().unwrap();
            assert!(one > last);
            let error = namespace.try_take_ranges(handles, MAX_RANGE_COUNT + 1).unwrap_err();
            assert!(error.to_string().contains("expected 1 to 1000000"), "{error}");
        }
    }

    #[tokio::test]
    async fn ids_increase_over_calls_and_ticks() {
        let mint = mint();
        let mut last = one(&mint, b"default").unwrap().unwrap();
        for count in [1, 4096, MAX_COUNT] {
            let ids = take(&mint, b"default", count).await.unwrap();
            assert_eq!(ids.len(), count);
            let mut seen = 0;
            for id in ids {
                let Minted::Number(id) = id else { panic!("{id:?} of a layout") };
                let id = Id::new(id).unwrap();
                assert!(id > last, "{id} after {last}");
                last = id;
                seen += 1;
            }
            assert_eq!(seen, count);
        }
    }

    #[tokio::test]
    async fn a_count_out_of_range_takes_nothing() {
        let mint = mint();
        let before = one(&mint, b"default").unwrap().unwrap();
        for count in [0, MAX_COUNT + 1, usize::MAX] {
            let error = take(&mint, b"default", count).await.unwrap_err();
            assert!(matches!(error, MintError::BadCount { limit: MAX_COUNT, .. }), "{error}");
        }
        let after = one(&mint, b"default").unwrap().unwrap();
        assert!(
            after > before
                && LAYOUT.split(after).unwrap().timestamp == LAYOUT.split(before).unwrap().timestamp
        );
    }

    #[test]
    fn namespaces_are_found_by_their_whole_name() {
        let mint = mint();
        let mut connection = mint.connection_state();
        for name in ["default", "orders", "orders", "default"] {
            assert_eq!(connection.find(name.as_bytes()).unwrap().0.name().as_str(), name);
        }
        for unknown in ["Default", "defaul", "defaultx", "a"] {
            let error = connection.find(unknown.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownNamespace, "{unknown}");
            assert!(error.to_string().contains("this server has default, orders;"), "{error}");
        }
        for bad in [&b""[..], b"a b", b"\xff", b"a/b", &[b'a'; 65]] {
            assert_eq!(
                connection.find(bad).unwrap_err().kind(),
                ErrorKind::BadNamespace,
                "{}",
                bad.escape_ascii()
            );
        }
    }

    #[test]
    fn long_lists_of_namespaces_are_cut() {
        let names = (10..30).map(|n| NamespaceName::new(&format!("n{n}")).unwrap());
        let mint = Mint::new(names, TestSource::new(LAYOUT), LAYOUT, DatacenterId(1));
        let error = mint.connection_state().find(b"x").unwrap_err().to_string();
        assert!(error.contains("n19 and 10 more"), "{error}");
    }

    #[test]
    fn without_a_lease_the_error_says_why() {
        let source = TestSource::new(LAYOUT);
        let mint = mint_of(source.clone(), LAYOUT);
        source.set_lease(false);
        let error = one(&mint, b"default").unwrap_err();
        assert_eq!(error.to_string(), "no ids can be made now: no lease is held: the store does not answer");
        assert_eq!(error.kind(), ErrorKind::NotReady);
        assert_eq!(try_take(&mint, 5).unwrap_err().kind(), ErrorKind::NotReady);
        assert!(mint.check_ready().is_err());
        source.set_lease(true);
        assert!(mint.check_ready().is_ok());
    }

    /// Goal: checks of readiness use up no ids. Method: ids before and after many checks, under a clock that
    /// stands still; a check in a used-up tick and with a clock that is far behind.
    #[test]
    fn checks_of_readiness_use_up_no_ids() {
        let source = TestSource::new(LAYOUT);
        let mint = mint_of(source.clone(), LAYOUT);
        let first = one(&mint, b"default").unwrap().unwrap();
        for _ in 0..10_000 {
            mint.check_ready().unwrap();
        }
        assert_eq!(one(&mint, b"orders").unwrap().unwrap().get(), first.get() + 1);
        try_take(&mint, 5000).unwrap();
        assert!(mint.check_ready().is_ok(), "the next tick is near");
        source.clock().set_unix_ms(crate::testing::START_UNIX_MS - 5000);
        assert_eq!(mint.check_ready().unwrap_err().kind(), ErrorKind::ClockBehind);
    }

    /// Goal: one namespace without ids leaves the node ready, and is named. Method: namespaces of other
    /// layouts, which have ended, have not begun, and whose workers other nodes hold; the last one too
    /// without a word from the store; one alone.
    #[test]
    fn a_namespace_that_no_node_has_ids_for_leaves_the_node_ready() {
        let wall: SharedClock = Arc::new(WallClock);
        let mint = mint_of(TestSource::new(LAYOUT), LAYOUT);
        let of = |name: &str, layout: &str, source: &TestSource| {
            let layout: Layout = layout.parse().unwrap();
            let backend = Backend::Snowflake(mint.add_pool(Box::new(source.clone()), layout));
            let name = NamespaceName::new(name).unwrap();
            Arc::new(Namespace::new(name, Definition::snowflake(layout), backend, &wall))
        };
        let with = |more: &Arc<Namespace>| {
            let table = mint.table();
            let others = table.namespaces().iter().filter(|it| it.name().as_str() == "default").cloned();
            mint.serve(others.chain([Arc::clone(more)]).collect());
        };
        for (name, layout, why) in [
            ("ended", "time:20@1s datacenter:3 worker:7 sequence:12 epoch:2019-01-01", "the layout ended"),
            (
                "early",
                "time:41@1ms datacenter:3 worker:7 sequence:12 epoch:2040-01-01",
                "before the first instant",
            ),
        ] {
            with(&of(name, layout, &TestSource::new(layout.parse().unwrap())));
            assert!(mint.check_ready().is_ok(), "{name}");
            let trouble = mint.trouble().unwrap();
            assert!(trouble.contains(&format!("{name}: ")) && trouble.contains(why), "{trouble}");
        }
        let held = "time:41@1ms datacenter:1 worker:2 sequence:19 epoch:2020-01-01";
        let source = TestSource::new(held.parse().unwrap());
        source.set_lease(false);
        let full = of("full", held, &source);
        with(&full);
        assert_eq!(mint.check_ready().unwrap_err().kind(), ErrorKind::NotReady, "the store has not answered");
        assert_eq!(mint.trouble(), None);
        source.set_none_free();
        assert!(mint.check_ready().is_ok());
        assert!(mint.trouble().unwrap().contains("full: no ids can be made now: no lease is held"));
        mint.serve(vec![full]);
        assert!(mint.check_ready().is_err());
    }

    #[test]
    fn a_clock_far_behind_gives_a_time_to_retry() {
        let source = TestSource::new(LAYOUT);
        let mint = mint_of(source.clone(), LAYOUT);
        one(&mint, b"default").unwrap();
        source.clock().set_unix_ms(crate::testing::START_UNIX_MS - 5000);
        let error = one(&mint, b"default").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ClockBehind);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
    }

    /// Goal: a client returns soon after somebody has corrected the clock. Method: a clock that went back by
    /// an hour, and one that is years before its layout.
    #[test]
    fn a_clock_very_far_behind_keeps_no_client_away_for_long() {
        let source = TestSource::new(LAYOUT);
        let mint = mint_of(source.clone(), LAYOUT);
        one(&mint, b"default").unwrap();
        source.clock().set_unix_ms(crate::testing::START_UNIX_MS - 3_600_000);
        let error = one(&mint, b"default").unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(10)), "{error}");
        let not_begun = GenerateError::NotBegun { from_unix_ms: 1_700_000_000_000, now_unix_ms: 5 };
        let error = MintError::from_no_id(NextIdError::Refused(not_begun), 1, 1);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(10)), "{error}");
    }

    /// Goal: a request that takes too long fails with the rate of a worker. Method: only the timer advances.
    #[tokio::test(start_paused = true)]
    async fn a_wait_is_bounded() {
        let source = TestSource::new(LAYOUT);
        let mint = mint_of(source.clone(), LAYOUT);
        source.set_stuck(true);
        let error = take(&mint, b"default", MAX_COUNT).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "100000 ids could not be made within 10s: one worker of this layout makes 4096000 a second; retry, or request \
             fewer ids at once"
        );
    }

    /// Goal: no way to take ids of a hidden namespace gives them unhidden. Method: each way in turn, with the
    /// service's own layout, whose worker the revealed ids must have.
    #[tokio::test]
    async fn every_id_of_a_hidden_namespace_is_hidden() {
        let mint = mint();
        let wall: SharedClock = Arc::new(WallClock);
        let keys = HideKeys::parse("k = '00112233445566778899aabbccddeeff'").unwrap();
        let fields = Fields { hide: "k".parse().ok(), ..fields("snowflake", "", "T-{base62}") };
        let text = fields.clone().define(&LAYOUT).unwrap().with_hide_check(&keys).unwrap();
        let plain = Definition { text: None, ..text.clone() };
        let hider = Arc::new(keys.hider(text.scheme.hide().unwrap()).unwrap().clone());
        let namespace = |name: &str, definition: &Definition| {
            let backend = Backend::Snowflake(Arc::clone(mint.pool())).hidden(Arc::clone(&hider));
            let name = NamespaceName::new(name).unwrap();
            Arc::new(Namespace::new(name, definition.clone(), backend, &wall))
        };
        mint.serve(vec![namespace("plain", &plain), namespace("text", &text)]);
        let mut last = Id::new(0).unwrap();
        let mut check = |id: Minted| {
            let Minted::Number(hidden) = id else { panic!("{id:?}") };
            let id = hider.reveal(Id::new(hidden).unwrap());
            assert!(id > last && LAYOUT.split(id).unwrap().worker.0 == 3, "{id} after {last}");
            last = id;
            id
        };
        let mut connection = mint.connection_state();
        for name in [&b"plain"[..], b"text"] {
            let (namespace, handles) = connection.find(name).unwrap();
            assert_eq!(namespace.try_one(handles).unwrap(), None, "it would not be hidden");
            for count in [1, 4095, 10_000] {
                let mut ids = namespace.take(handles, count).await.unwrap();
                let first = ids.next_range().unwrap();
                assert_eq!((first.count, ids.len()), (1, count - 1));
                check(Minted::Number(first.first));
                for id in ids {
                    check(id);
                }
            }
            let error = namespace.try_take_ranges(handles, 5).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotCounting, "{error}");
            assert!(error.to_string().contains("they are hidden"), "{error}");
            assert!(namespace.try_increment().unwrap_err().to_string().contains("its ids are hidden"));
            assert!(namespace.check_ready().is_ok());
            let error = mint.time_bounds(name, 1..2).unwrap_err();
            assert!(error.to_string().contains("they are hidden"), "{error}");

            let mut ids = take(&mint, name, 1).await.unwrap();
            let (id, mut shown) = (ids.next().unwrap(), Vec::new());
            ids.write(id, &mut shown);
            let id = check(id);
            let known = mint.inspect(&shown, InspectBy::Namespace(name)).unwrap();
            assert_eq!(known.likeliest().decoded, Decoded::by_layout(id, LAYOUT).unwrap());
            // Any number could be hidden: it is no candidate, but the answer says so.
            if let Ok(guesses) = anything(&mint, &shown) {
                assert!(guesses.candidates().iter().all(|it| it.namespaces.is_empty()), "{guesses:?}");
                let note =
                    format!("may be hidden by namespace {}", if name == b"plain" { "plain" } else { "text" });
                assert!(guesses.notes().iter().any(|it| it.starts_with(&note)), "{guesses:?}");
            }
        }
    }

    fn anything(mint: &Mint, text: &[u8]) -> Result<Inspection, MintError> {
        mint.inspect(text, InspectBy::Anything)
    }

    #[test]
    fn inspect_reads_what_the_mint_wrote_and_no_other_text() {
        let mint = mint();
        let id = one(&mint, b"default").unwrap().unwrap();
        let inspection = anything(&mint, id.to_string().as_bytes()).unwrap();
        let likeliest = inspection.likeliest();
        let Decoded::Snowflake { parts, .. } = likeliest.decoded else { panic!("{inspection:?}") };
        assert_eq!((parts.worker.0, parts.datacenter.0), (3, 1));
        assert_eq!(likeliest.decoded.unix_ms(), Some(crate::testing::START_UNIX_MS));
        assert_eq!(likeliest.namespaces, ["default", "orders"]);
        for bad in [&b""[..], b"x", b"-1", b"9223372036854775808", b"1.0", b"\xff"] {
            assert_eq!(anything(&mint, bad).unwrap_err().kind(), ErrorKind::BadId, "{}", bad.escape_ascii());
        }
    }

    /// Returns a mint whose namespaces can only decode ids.
    fn mint_of_definitions(definitions: &[(&str, Fields)]) -> Mint {
        let mint = mint();
        let wall: SharedClock = Arc::new(WallClock);
        let namespace = |(name, fields): &(&str, Fields)| {
            let name = NamespaceName::new(name).unwrap();
            let definition = fields.clone().define(&LAYOUT).unwrap();
            Arc::new(Namespace::new(name, definition, Backend::Unavailable("".into()), &wall))
        };
        mint.serve(definitions.iter().map(namespace).collect());
        mint
    }

    fn fields(scheme: &str, layout: &str, text: &str) -> Fields {
        Fields {
            scheme: scheme.to_owned(),
            layout: layout.parse().ok(),
            text: text.parse().ok(),
            ..Fields::default()
        }
    }

    /// Goal: an id is decoded by the given namespace or layout, and without one by the best match. Method: an
    /// id of layout `game`, which the service's own layout decodes as one of 2013, and one text of each kind.
    #[test]
    fn inspect_uses_the_given_namespace_or_layout_else_what_matches() {
        let game: Layout = "game".parse().unwrap();
        let now = WallClock.unix_ms();
        let timestamp = game.timestamp_at(now).unwrap();
        let id =
            game.compose(&snowmint::Parts { timestamp, ..snowmint::Parts::default() }).unwrap().to_string();
        let mint = mint_of_definitions(&[
            ("default", fields("snowflake", "", "")),
            ("keys", fields("uuid7", "", "key_{id}")),
            ("orders", fields("segment", "", "ORD-{alphabet=zyxwvutsrq}")),
            ("players", fields("snowflake", "game", "")),
            ("users", fields("snowflake", "", "U{base58:11}")),
        ]);
        let shown = |inspection: Inspection| {
            let likeliest = inspection.likeliest();
            (likeliest.decoded.name().into_owned(), likeliest.form, likeliest.namespaces.clone())
        };
        let named = |name: &str, form, namespaces: &[&str]| {
            (name.to_owned(), form, namespaces.iter().map(|&it| it.to_owned()).collect::<Vec<_>>())
        };
        let by = |text: &str, by| shown(mint.inspect(text.as_bytes(), by).unwrap());
        let key = "key_017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
        for (text, name, form, namespace) in [
            (&*id, "game", "decimal", "players"),
            (key, "uuid7", "uuid7", "keys"),
            ("ORD-yz", "number", "alphabet", "orders"),
            ("U4aaW4SzAyQK", "twitter", "base58", "users"),
        ] {
            assert_eq!(by(text, InspectBy::Anything), named(name, form, &[namespace]), "{text}");
            let known = mint.inspect(text.as_bytes(), InspectBy::Namespace(namespace.as_bytes())).unwrap();
            assert!(known.candidates().is_empty(), "{known:?}");
            assert_eq!(shown(known), named(name, form, &[]), "{text}");
        }
        assert_eq!(by(&id, InspectBy::Layout(b"twitter")), named("twitter", "decimal", &[]));
        assert_eq!(by("01ARZ3NDEKTSV4RRFFQ69G5FAV", InspectBy::Anything), named("ulid", "ulid", &[]));
        let all = anything(&mint, id.as_bytes()).unwrap();
        let listed: Vec<_> = all.candidates().iter().map(|it| it.decoded.name().into_owned()).collect();
        assert_eq!(listed[..2], ["game", "twitter"], "both are listed");
    }

    #[test]
    fn inspect_says_what_is_wrong_with_the_given_namespace_or_layout() {
        let mint = mint_of_definitions(&[
            ("default", fields("snowflake", "", "")),
            ("orders", fields("segment", "", "ORD-{alphabet=zyxwvutsrq:6}")),
        ]);
        for (text, by, kind, words) in [
            (
                "7",
                InspectBy::Namespace(b"nope"),
                ErrorKind::UnknownNamespace,
                "this server has default, orders",
            ),
            ("7", InspectBy::Namespace(b"a b"), ErrorKind::BadNamespace, "invalid namespace name `a b`"),
            (
                "7",
                InspectBy::Namespace(b"orders"),
                ErrorKind::BadId,
                "`7` is not an id of namespace `orders`: its ids are written as ORD-{alphabet:6}",
            ),
            (
                "x",
                InspectBy::Namespace(b"default"),
                ErrorKind::BadId,
                "`x` is not an id of namespace `default`: invalid decimal id: `x` at position 0",
            ),
            ("7", InspectBy::Layout(b"time:99"), ErrorKind::BadRequest, "invalid layout `time:99`: "),
            ("7", InspectBy::Layout(b"gane"), ErrorKind::BadRequest, "invalid layout `gane`: "),
            ("7", InspectBy::Layout(b""), ErrorKind::BadRequest, "invalid layout ``: "),
            (
                "x",
                InspectBy::Layout(b"twitter"),
                ErrorKind::BadId,
                "invalid id `x`: invalid decimal id: `x` at position 0",
            ),
            ("9223372036854775807", InspectBy::Layout(b"js53"), ErrorKind::BadId, "another layout made it"),
        ] {
            let error = mint.inspect(text.as_bytes(), by).unwrap_err();
            assert!(error.kind() == kind && error.answer().contains(words), "{text} {by:?}: {error}");
        }
        let long = "z".repeat(60_000);
        assert_eq!(anything(&mint, long.as_bytes()).unwrap_err().kind(), ErrorKind::BadId);
    }

    #[test]
    fn counts_end_at_both_bounds() {
        for (text, count) in [("1", 1), ("007", 7), ("100000", 100_000)] {
            assert_eq!(parse_count(text.as_bytes()).unwrap(), count);
        }
        // A sign is shown, or the error would name a valid count.
        for (bad, shown) in [
            ("", "``"),
            ("0", "0"),
            ("100001", "100001"),
            ("-1", "-1"),
            ("+1", "`+1`"),
            (" 1", "` 1`"),
            ("1e9", "`1e9`"),
            ("1.0", "`1.0`"),
            ("abc", "`abc`"),
            ("18446744073709551617", "18446744073709551617"),
            ("99999999999999999999999", "99999999999999999999999"),
            ("000000000000000000001", "`000000000000000000001`"),
        ] {
            let error = parse_count(bad.as_bytes()).unwrap_err();
            assert!(matches!(error, MintError::BadCount { limit: MAX_COUNT, .. }), "{bad}");
            assert_eq!(error.to_string(), format!("invalid count {shown}: expected 1 to 100000"));
        }
        assert!(parse_count(b"\xff\xfe").is_err());
    }
}
