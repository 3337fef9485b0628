//! The namespaces of a store: pinned, added, changed, dropped, each by one compare-and-set on one record.
//! The second of two writers sees what the first wrote, and is refused where the two could produce duplicates.
//!
//! A store that [may lose](Store::may_lose) its newest writes may lose a definition after it was acknowledged; another node
//! could then define the same name otherwise. So a definition is served only once it has *settled*: a read that was sent at
//! least that long after the record was first seen still finds it, at the same revision. [`Follower`] and [`settle`] do that.
//!
//! Nodes that follow the namespaces read one record, `versions/namespaces`, and list the others when it has moved. Whoever
//! writes a namespace moves it *afterwards*: a node that reads the new version lists later than the write, and one that
//! listed too early for the write remembers the version before. A writer may die in between, and versions before this one do
//! not move it at all, so nodes list once a minute anyway.

use std::collections::BTreeMap;
use std::time::Duration;

use snowmint::utc::Utc;
use snowmint_store::{Expected, Key, Revision, Store, StoreError, StoreErrorKind, Swap, Versioned};
use tokio::time::Instant;

use super::NamespaceName;
use super::counter_source::CounterSource;
use super::definition::{ChangeError, Definition, DefinitionError, NumberSource, Scheme, TextChangeError};
use super::record::{NamespaceRecord, Numbers, NumbersError, PREFIX, ServedBy, key};

/// The record that moves with every change: fresh random digits, so that no two versions are alike, whatever the store lost.
const VERSION: &str = "versions/namespaces";
/// A node lists at least so often, though no change was told, and up to an eighth of that earlier.
const LIST_EACH: Duration = Duration::from_mins(1);
/// After a write whose outcome is unknown.
const BEFORE_LOOKING: Duration = Duration::from_millis(100);

/// Why a namespace is not as wanted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The store's record carries another scheme, layout or source.
    #[error(transparent)]
    Mismatch(#[from] ChangeError),
    /// A new id could get the text of an earlier one.
    #[error(transparent)]
    Text(#[from] TextChangeError),
    /// Two of its sources can give one number, or not every node counts in the same place.
    #[error("namespace {name}: {source}")]
    Sources {
        /// The namespace.
        name: NamespaceName,
        /// Which sources, and why.
        source: DefinitionError,
    },
    /// Somebody changed its sources after they were compared with those that are wanted.
    #[error(
        "the sources of namespace {name} were changed meanwhile, it is `{found}` now: nothing was written; compare the new \
         sources with these, by the same command again"
    )]
    OtherSources {
        /// The namespace.
        name: NamespaceName,
        /// What it is now.
        found: String,
    },
    /// A source gives numbers of another one, or others than at first.
    #[error("namespace {name}: {source}")]
    Numbers {
        /// The namespace.
        name: NamespaceName,
        /// Which source, and what to do.
        source: NumbersError,
    },
    /// It was dropped.
    #[error(
        "namespace {name} was dropped on {}: `snowmint ns add {name}` takes it up again, where its numbers ended",
        Utc(*.dropped_unix_ms)
    )]
    Dropped {
        /// The namespace.
        name: NamespaceName,
        /// When, in unix milliseconds.
        dropped_unix_ms: u64,
    },
    /// It is there already.
    #[error("namespace {name} is there already, as `{found}`: `snowmint ns set {name}` changes it")]
    Exists {
        /// The namespace.
        name: NamespaceName,
        /// What it is.
        found: String,
    },
    /// It is not there.
    #[error("there is no namespace {name} in {store}: `snowmint ns list` shows those that there are")]
    Missing {
        /// The namespace.
        name: NamespaceName,
        /// The store.
        store: String,
    },
    /// The store's record cannot be read.
    #[error("the record of namespace {name} in {store} cannot be read: {reason}")]
    Unreadable {
        /// The namespace.
        name: NamespaceName,
        /// The store.
        store: String,
        /// Why not.
        reason: String,
    },
    /// The store lost it, or another change followed, before it had settled.
    #[error(
        "namespace {name} in {store} changed again or was lost within {may_lose:?} (may_lose): `snowmint ns list` shows what \
         there is now; try again"
    )]
    Unsettled {
        /// The namespace.
        name: NamespaceName,
        /// The store.
        store: String,
        /// What the store may lose.
        may_lose: Duration,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What [`add`] does if the namespace was dropped before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfDropped {
    /// Reject it: the namespace stays dropped.
    Refuse,
    /// Resume it: its numbers continue, and no number is handed out twice.
    Resume,
    /// Restart it, with any definition: ids that were handed out may be produced again.
    Restart,
}

/// A namespace of a store: its name as it stands there, and its record or why that cannot be read.
pub type Listed = (String, Result<NamespaceRecord, String>);

/// Every namespace that a store has a record of, dropped ones too, by name.
///
/// # Errors
///
/// The store's.
pub async fn list(store: &dyn Store) -> Result<Vec<Listed>, StoreError> {
    let listed = list_versioned(store).await?;
    Ok(listed.into_iter().map(|(name, _, record)| (name, record)).collect())
}

async fn list_versioned(
    store: &dyn Store,
) -> Result<Vec<(String, Revision, Result<NamespaceRecord, String>)>, StoreError> {
    let records = store.list(PREFIX).await?;
    let named = records.into_iter().filter_map(|(key, value)| {
        let name = key.as_str().strip_prefix(PREFIX)?.to_owned();
        Some((name, value.revision, NamespaceRecord::from_bytes(&value.value)))
    });
    Ok(named.collect())
}

/// Follows the namespaces of a store, and tells which of them have settled.
#[derive(Debug, Default)]
pub struct Follower {
    sightings: BTreeMap<String, Sighting>,
    /// What the last list showed, until when it need not be repeated, and the version that was read before it.
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    version: Option<Versioned>,
    list_again: Instant,
}

/// A record since it was first seen, and the newest one of that name that has settled.
#[derive(Debug)]
struct Sighting {
    revision: Revision,
    since: Instant,
    has_settled: bool,
    settled: Option<Result<NamespaceRecord, String>>,
}

impl Follower {
    /// As [`list`], each namespace as it was when it last settled: one that is new, or whose change is, stays out or as it was
    /// until a later call finds it again.
    ///
    /// # Errors
    ///
    /// The store's; nothing changed.
    pub async fn list(&mut self, store: &dyn Store) -> Result<Vec<Listed>, StoreError> {
        let version = version(store).await?;
        self.list_after(store, version).await
    }

    /// As [`list`](Self::list), but lists only if a change was told, if something has not settled yet, or if the last time was
    /// a minute ago. Else it reads one record.
    ///
    /// # Errors
    ///
    /// The store's; nothing changed.
    pub async fn follow(&mut self, store: &dyn Store) -> Result<Vec<Listed>, StoreError> {
        let version = version(store).await?;
        let is_seen = |seen: &Seen| seen.version == version && Instant::now() < seen.list_again;
        if self.seen.as_ref().is_some_and(is_seen) && self.sightings.values().all(|it| it.has_settled) {
            let known = self.sightings.iter();
            return Ok(known.filter_map(|(name, it)| Some((name.clone(), it.settled.clone()?))).collect());
        }
        self.list_after(store, version).await
    }

    async fn list_after(
        &mut self,
        store: &dyn Store,
        version: Option<Versioned>,
    ) -> Result<Vec<Listed>, StoreError> {
        let sent = Instant::now();
        let listed = list_versioned(store).await?;
        let (arrived, may_lose) = (Instant::now(), store.may_lose());
        let mut next = BTreeMap::new();
        let mut all = Vec::with_capacity(listed.len());
        for (name, revision, record) in listed {
            let mut sighting = match self.sightings.remove(&name) {
                Some(known) if known.revision == revision => known,
                known => {
                    let settled = known.and_then(|known| known.settled);
                    Sighting { revision, since: arrived, has_settled: false, settled }
                }
            };
            if may_lose.is_zero() || sent.saturating_duration_since(sighting.since) >= may_lose {
                sighting.has_settled = true;
                sighting.settled = Some(record);
            }
            all.extend(sighting.settled.clone().map(|record| (name.clone(), record)));
            next.insert(name, sighting);
        }
        self.sightings = next;
        // Nodes that started together do not list together for ever.
        let earlier = LIST_EACH / 8 * (getrandom::u32().unwrap_or_default() >> 24) / 256;
        self.seen = Some(Seen { version, list_again: arrived + LIST_EACH - earlier });
        Ok(all)
    }

    /// Looks twice, so far apart that all that the first look found has settled unless it changed meanwhile. Returns at once
    /// for a store that keeps what it acknowledges.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn settle(&mut self, store: &dyn Store) -> Result<Vec<Listed>, StoreError> {
        if !store.may_lose().is_zero() {
            self.list(store).await?;
            tokio::time::sleep(store.may_lose()).await;
        }
        self.list(store).await
    }
}

/// What the record of the version holds.
async fn version(store: &dyn Store) -> Result<Option<Versioned>, StoreError> {
    store.load(&version_key(store)?).await
}

fn version_key(store: &dyn Store) -> Result<Key, StoreError> {
    let key = Key::new(VERSION);
    key.map_err(|error| StoreError::new(StoreErrorKind::Other, "key", store.describe(), error))
}

/// Tells nodes that follow the namespaces of a change, after it was written.
///
/// A conflict is as good: another change was told after this one was written.
async fn tell_of_change(store: &dyn Store) {
    let told = async {
        let before = version(store).await?;
        let expected = before.map_or(Expected::Absent, |before| Expected::Revision(before.revision));
        let random = getrandom::u64().map_err(|error| {
            StoreError::new(StoreErrorKind::Other, "random number", store.describe(), error)
        })?;
        let value = format!("{random:016x}");
        store.compare_and_set(&version_key(store)?, expected, value.as_bytes()).await
    };
    if let Err(error) = told.await {
        tracing::warn!(%error, "the change of a namespace could not be told to running nodes; they see it within a minute");
    }
}

/// Waits until a record that was just read or written has settled. Returns at once for a store that keeps what it
/// acknowledges.
///
/// # Errors
///
/// [`NamespaceError::Unsettled`] where another record is there by then, or none.
pub async fn settle(
    store: &dyn Store,
    name: &NamespaceName,
    record: &NamespaceRecord,
) -> Result<(), NamespaceError> {
    let may_lose = store.may_lose();
    if may_lose.is_zero() {
        return Ok(());
    }
    let unreadable =
        |reason: String| NamespaceError::Unreadable { name: name.clone(), store: store.describe(), reason };
    let key = key(name).map_err(|error| unreadable(error.to_string()))?;
    let seen = store.load(&key).await?;
    let is_it = |found: &Versioned| NamespaceRecord::from_bytes(&found.value).as_ref() == Ok(record);
    if seen.as_ref().is_some_and(is_it) {
        tokio::time::sleep(may_lose).await;
        if store.load(&key).await? == seen {
            return Ok(());
        }
    }
    Err(NamespaceError::Unsettled { name: name.clone(), store: store.describe(), may_lose })
}

/// Pins a namespace to a definition, or checks that it is pinned to one that `wanted` may follow: what it is.
///
/// An earlier record keeps its text form and all that may change.
///
/// # Errors
///
/// [`NamespaceError::Mismatch`] with both texts, [`NamespaceError::Dropped`], or the store's.
pub async fn pin(
    store: &dyn Store,
    name: &NamespaceName,
    wanted: &Definition,
) -> Result<NamespaceRecord, NamespaceError> {
    let there = |found: Option<NamespaceRecord>| match found {
        None => Ok(Decision::Write(NamespaceRecord::new(wanted.clone(), ServedBy::ConfiguredNodes))),
        Some(record) => {
            check(name, &record, wanted)?;
            Ok(Decision::Keep(record))
        }
    };
    update(store, name, there).await
}

/// As [`pin`], and all that may change becomes as in `wanted`.
///
/// # Errors
///
/// As [`pin`].
pub async fn define(
    store: &dyn Store,
    name: &NamespaceName,
    wanted: &Definition,
) -> Result<NamespaceRecord, NamespaceError> {
    let there = |found: Option<NamespaceRecord>| {
        let Some(record) = found else {
            return Ok(Decision::Write(NamespaceRecord::new(wanted.clone(), ServedBy::ConfiguredNodes)));
        };
        check(name, &record, wanted)?;
        if record.definition == *wanted {
            return Ok(Decision::Keep(record));
        }
        Ok(Decision::Write(record.redefined(wanted.clone(), name)?))
    };
    update(store, name, there).await
}

/// Adds a namespace, which every node of the store serves from then on; one that was dropped is taken up again.
///
/// # Errors
///
/// [`NamespaceError::Exists`]; [`NamespaceError::Mismatch`] for one that was dropped and was something else, unless it
/// is to start over.
pub async fn add(
    store: &dyn Store,
    name: &NamespaceName,
    wanted: &Definition,
    if_dropped: IfDropped,
) -> Result<NamespaceRecord, NamespaceError> {
    let added = |found: Option<NamespaceRecord>| {
        let mut definition = wanted.clone();
        match found {
            None => {}
            Some(record) if record.dropped_unix_ms.is_none() => {
                let found = record.definition.to_string();
                return Err(NamespaceError::Exists { name: name.clone(), found });
            }
            Some(record) if if_dropped == IfDropped::Refuse => alive(name, &record)?,
            Some(record) => {
                let last = record.definition.scheme.series();
                definition.set_series(if if_dropped == IfDropped::Restart { last + 1 } else { last });
                if if_dropped == IfDropped::Resume {
                    record.definition.may_become(&definition, name)?;
                    let record = record.redefined(definition, name)?;
                    return Ok(Decision::Write(NamespaceRecord {
                        served_by: ServedBy::EveryNode,
                        dropped_unix_ms: None,
                        ..record
                    }));
                }
            }
        }
        Ok(Decision::Write(NamespaceRecord::new(definition, ServedBy::EveryNode)))
    };
    update(store, name, added).await
}

/// Writes a namespace back as a node last saw it, where the store has lost its record or has an older one: what it is then.
///
/// Where another was first, the newer of the two records stays, and the text forms of both are kept in mind. An older one is
/// replaced whatever it is: another layout, an earlier series, a drop.
///
/// # Errors
///
/// As [`pin`], for a record that is no older.
pub async fn put_back(
    store: &dyn Store,
    name: &NamespaceName,
    seen: &NamespaceRecord,
) -> Result<NamespaceRecord, NamespaceError> {
    let put = |found: Option<NamespaceRecord>| {
        let Some(found) = found else { return Ok(Decision::Write(seen.clone())) };
        if !found.is_older_than(seen) {
            check(name, &found, &seen.definition)?;
        }
        Ok(found.brought_up_to(seen).map_or(Decision::Keep(found), Decision::Write))
    };
    update(store, name, put).await
}

/// Changes a namespace that is there.
///
/// # Errors
///
/// What `change` says, [`NamespaceError::Mismatch`] for a change that could produce duplicates,
/// [`NamespaceError::Missing`] and [`NamespaceError::Dropped`].
pub async fn set<E: From<NamespaceError>>(
    store: &dyn Store,
    name: &NamespaceName,
    mut change: impl FnMut(&Definition) -> Result<Definition, E>,
) -> Result<NamespaceRecord, E> {
    let changed = |found: Option<NamespaceRecord>| {
        let record = found.ok_or_else(|| missing(store, name))?;
        alive(name, &record)?;
        let definition = change(&record.definition)?;
        record.definition.may_become(&definition, name).map_err(NamespaceError::from)?;
        let record = record.redefined(definition, name).map_err(NamespaceError::from)?;
        Ok(Decision::Write(record))
    };
    update(store, name, changed).await
}

/// Drops a namespace: no node serves it any more. Its record stays, so that it is not begun again by accident.
///
/// # Errors
///
/// [`NamespaceError::Missing`] and [`NamespaceError::Dropped`].
pub async fn drop_namespace(
    store: &dyn Store,
    name: &NamespaceName,
    now_unix_ms: u64,
) -> Result<NamespaceRecord, NamespaceError> {
    let dropped = |found: Option<NamespaceRecord>| {
        let record = found.ok_or_else(|| missing(store, name))?;
        alive(name, &record)?;
        Ok(Decision::Write(NamespaceRecord { dropped_unix_ms: Some(now_unix_ms), ..record }))
    };
    update(store, name, dropped).await
}

/// What a source may give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// These numbers.
    pub numbers: Numbers,
    /// Whether the record remembered it before, or was written for it.
    pub was: Recorded,
}

/// Whether a record remembered the numbers of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It did.
    Before,
    /// It was written for it.
    Now,
}

/// Remembers which numbers a source of a namespace gives, or compares them with what is remembered: what it may give, once
/// that has settled. `wanted` is the namespace as this node serves it, and `nth` the place of the source in it.
///
/// A source is used only after this, and then gives no number outside of what is returned.
///
/// # Errors
///
/// [`NamespaceError::Numbers`] where it overlaps another source of the namespace, whether that is there now or not, or gives
/// other numbers than at first; [`NamespaceError::Missing`], [`NamespaceError::Dropped`] and [`NamespaceError::Mismatch`]
/// where the namespace is not what this node serves any more; or the store's.
pub async fn claim_numbers(
    store: &dyn Store,
    name: &NamespaceName,
    wanted: &Definition,
    nth: usize,
    found: Numbers,
) -> Result<Claimed, NamespaceError> {
    let mut was = Recorded::Before;
    let mut claimed = |record: Option<NamespaceRecord>| -> Result<Decision, NamespaceError> {
        let mut record = record.ok_or_else(|| missing(store, name))?;
        check(name, &record, wanted)?;
        if may_give(name, &record, nth, found)?.is_some() {
            return Ok(Decision::Keep(record));
        }
        if record.numbers.len() <= nth {
            record.numbers.resize(nth + 1, None);
        }
        record.numbers[nth] = Some(found);
        was = Recorded::Now;
        Ok(Decision::Write(record))
    };
    loop {
        let record = update(store, name, &mut claimed).await?;
        match settle(store, name, &record).await {
            // Another source of it was claimed meanwhile, or the claim was lost.
            Err(NamespaceError::Unsettled { .. }) => {}
            Ok(()) => {
                let numbers = record.numbers.get(nth).copied().flatten().unwrap_or(found);
                return Ok(Claimed { numbers, was });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Changes where the sources of a namespace are, under the same stripes. What is remembered of their numbers stays.
///
/// The caller knows that each new place is the same counter as the one in `compared`, or goes on above all that this gave
/// while it gives no more: here their texts alone are compared.
///
/// # Errors
///
/// [`NamespaceError::Mismatch`] for another number of sources, another stripe, or another system;
/// [`NamespaceError::OtherSources`] where its sources are not those in `compared` any more;
/// [`NamespaceError::Missing`], [`NamespaceError::Dropped`], [`NamespaceError::Sources`], or the store's.
pub async fn move_sources(
    store: &dyn Store,
    name: &NamespaceName,
    compared: &[CounterSource],
    sources: &[CounterSource],
) -> Result<NamespaceRecord, NamespaceError> {
    let moved = |record: Option<NamespaceRecord>| -> Result<Decision, NamespaceError> {
        let mut record = record.ok_or_else(|| missing(store, name))?;
        alive(name, &record)?;
        let before = record.definition.clone();
        if let Scheme::Segment(segment) = &mut record.definition.scheme {
            let may_move = match &segment.source {
                NumberSource::Own(_) => false,
                NumberSource::Other(old) if old != compared && old != sources => {
                    let found = before.to_string();
                    return Err(NamespaceError::OtherSources { name: name.clone(), found });
                }
                NumberSource::Other(old) => {
                    old.len() == sources.len() && old.iter().zip(sources).all(|(old, new)| old.is_alike(new))
                }
            };
            segment.source = NumberSource::Other(sources.to_vec());
            if may_move {
                return Ok(Decision::Write(record));
            }
        }
        before.may_become(&record.definition, name)?;
        Ok(Decision::Keep(record))
    };
    update(store, name, moved).await
}

/// What is remembered of a source that gives these numbers now; `None` where nothing is.
///
/// # Errors
///
/// [`NamespaceError::Numbers`], as for [`claim_numbers`].
pub fn may_give(
    name: &NamespaceName,
    record: &NamespaceRecord,
    nth: usize,
    found: Numbers,
) -> Result<Option<Numbers>, NamespaceError> {
    let refused = |source| Err(NamespaceError::Numbers { name: name.clone(), source });
    let text = |nth: usize| match &record.definition.scheme {
        Scheme::Segment(segment) => match &segment.source {
            NumberSource::Other(sources) => sources.get(nth).map(ToString::to_string),
            NumberSource::Own(_) => None,
        },
        _ => None,
    };
    let shown = |nth| text(nth).unwrap_or_else(|| format!("number {nth}"));
    let recorded = record.numbers.get(nth).copied().flatten();
    if let Some(recorded) = recorded.filter(|recorded| !recorded.contains(found)) {
        return refused(NumbersError::Changed { source_text: shown(nth), recorded, found });
    }
    // Also where it is recorded: a record of an earlier version may hold two that overlap.
    let given = recorded.unwrap_or(found);
    let others = record.numbers.iter().enumerate().filter_map(|(at, it)| Some((at, (*it)?)));
    match others.into_iter().find(|(at, theirs)| *at != nth && theirs.overlaps(given)) {
        Some((at, theirs)) => refused(NumbersError::Overlap {
            one: shown(at),
            one_numbers: theirs,
            other: shown(nth),
            other_numbers: given,
        }),
        None => Ok(recorded),
    }
}

/// What becomes of a record.
enum Decision {
    Keep(NamespaceRecord),
    Write(NamespaceRecord),
}

async fn update<E: From<NamespaceError>>(
    store: &dyn Store,
    name: &NamespaceName,
    mut decide: impl FnMut(Option<NamespaceRecord>) -> Result<Decision, E>,
) -> Result<NamespaceRecord, E> {
    let unreadable =
        |reason: String| NamespaceError::Unreadable { name: name.clone(), store: store.describe(), reason };
    // A name has only characters that a key may have, and is shorter.
    let key = key(name).map_err(|error| unreadable(error.to_string()))?;
    let mut attempted: Option<NamespaceRecord> = None;
    loop {
        let found = store.load(&key).await.map_err(NamespaceError::from)?;
        let read = |value: &Versioned| NamespaceRecord::from_bytes(&value.value).map_err(unreadable);
        let record = found.as_ref().map(read).transpose()?;
        // A write of an unknown outcome that happened after all.
        if attempted.is_some() && record == attempted {
            tell_of_change(store).await;
            return record.ok_or_else(|| missing(store, name).into());
        }
        let edition = record.as_ref().map_or(1, |record| record.edition.saturating_add(1));
        let record = match decide(record)? {
            Decision::Keep(record) => return Ok(record),
            Decision::Write(record) => NamespaceRecord { edition: record.edition.max(edition), ..record },
        };
        if record.dropped_unix_ms.is_none() {
            let checked = record.definition.check_sources(store.visibility());
            checked.map_err(|source| NamespaceError::Sources { name: name.clone(), source })?;
        }
        let value = record.to_bytes().map_err(|error| unreadable(error.to_string()))?;
        let expected = found.map_or(Expected::Absent, |found| Expected::Revision(found.revision));
        match store.compare_and_set(&key, expected, &value).await {
            Ok(Swap::Done(_)) => {
                tell_of_change(store).await;
                return Ok(record);
            }
            // Another was first: what is there now decides.
            Ok(Swap::Conflict) => {}
            // The write may have happened, or may yet.
            Err(error) if error.kind() == StoreErrorKind::OutcomeUnknown => {
                attempted = Some(record);
                tokio::time::sleep(BEFORE_LOOKING).await;
            }
            Err(error) => return Err(NamespaceError::from(error).into()),
        }
    }
}

/// Checks that a namespace is there and may go on as `wanted`.
///
/// # Errors
///
/// [`NamespaceError::Dropped`] and [`NamespaceError::Mismatch`].
pub fn check(
    name: &NamespaceName,
    record: &NamespaceRecord,
    wanted: &Definition,
) -> Result<(), NamespaceError> {
    alive(name, record)?;
    Ok(record.definition.may_become(wanted, name)?)
}

/// As [`check`], and that ids may be written as in `wanted`.
///
/// # Errors
///
/// As [`check`], and [`NamespaceError::Text`].
pub fn check_with_text(
    name: &NamespaceName,
    record: &NamespaceRecord,
    wanted: &Definition,
) -> Result<(), NamespaceError> {
    check(name, record, wanted)?;
    Ok(record.may_be_written_as(wanted, name)?)
}

fn alive(name: &NamespaceName, record: &NamespaceRecord) -> Result<(), NamespaceError> {
    match record.dropped_unix_ms {
        Some(dropped_unix_ms) => Err(NamespaceError::Dropped { name: name.clone(), dropped_unix_ms }),
        None => Ok(()),
    }
}

fn missing(store: &dyn Store, name: &NamespaceName) -> NamespaceError {
    NamespaceError::Missing { name: name.clone(), store: store.describe() }
}

impl Scheme {
    pub(super) const fn series(&self) -> u32 {
        match self {
            Self::Segment(segment) => segment.series,
            _ => 0,
        }
    }
}

impl Definition {
    fn set_series(&mut self, series: u32) {
        if let Scheme::Segment(segment) = &mut self.scheme {
            segment.series = series.max(1);
        }
    }
}

#[cfg(test)]
mod tests;
