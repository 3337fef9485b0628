//! The registry of a store: namespaces are pinned, added, changed and dropped by one compare-and-set on one
//! record.
//!
//! The second of two writers sees what the first one wrote, and is rejected if the two could produce
//! duplicates.
//!
//! A store that [may lose](Store::may_lose) its newest writes may lose an acknowledged definition, and
//! another node could then define the same name differently. So a definition is served only once it has
//! *settled*: a read, sent at least that long after the record was first seen, still finds it at the same
//! revision. [`Follower`] and [`settle`] check that.
//!
//! Nodes follow one record, `versions/namespaces`, and list the namespaces when it has changed. A writer
//! changes it *after* it has written a namespace. So a node that reads the new version lists after the write,
//! and a node that listed too early has remembered the previous version. A writer may crash in between, and
//! older versions of Snowmint do not change the record at all, so nodes also list once a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use snowmint::utc::Utc;
use snowmint_store::{Expected, Key, Revision, Store, StoreError, StoreErrorKind, Swap, Versioned};
use tokio::time::Instant;

use super::counter_source::CounterSource;
use super::definition::{ChangeError, Definition, DefinitionError, NumberSource, Scheme, TextChangeError};
use super::hide::HideError;
use super::record::{NamespaceRecord, Numbers, NumbersError, PREFIX, ServedBy, key};
use super::{MAX_NAMESPACES, NamespaceName};
use crate::store_calls::{BEFORE_LOOKING, before_call, cause, unknown_outcome};

/// The record that changes with every namespace: random digits, so that no version repeats, whatever the
/// store lost.
const VERSION: &str = "versions/namespaces";
/// How often a node lists without a new version; it does so up to an eighth earlier.
const LIST_EACH: Duration = Duration::from_mins(1);
/// Why an operation on a namespace failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The record has another scheme, layout or source.
    #[error(transparent)]
    Mismatch(#[from] ChangeError),
    /// A new id could get the text of an earlier one.
    #[error(transparent)]
    Text(#[from] TextChangeError),
    /// Two of its sources return the same numbers, or nodes would use different counters.
    #[error("namespace {name}: {error}")]
    Sources {
        /// The namespace.
        name: NamespaceName,
        /// The sources and the remedy.
        error: DefinitionError,
    },
    /// Another command changed its sources after they were compared with the new ones.
    #[error(
        "the sources of namespace {name} were changed meanwhile, it is `{found}` now: nothing was written; run the command \
         again to compare the new sources with these"
    )]
    OtherSources {
        /// The namespace.
        name: NamespaceName,
        /// Its definition now.
        found: String,
    },
    /// A source returns numbers of another source, or other numbers than at first.
    #[error("namespace {name}: {error}")]
    Numbers {
        /// The namespace.
        name: NamespaceName,
        /// The source and the remedy.
        error: NumbersError,
    },
    /// The namespace was dropped.
    #[error(
        "namespace {name} was dropped on {}: `snowmint ns add {name}` resumes it where its numbers ended",
        Utc(*.dropped_unix_ms)
    )]
    Dropped {
        /// The namespace.
        name: NamespaceName,
        /// When, in unix milliseconds.
        dropped_unix_ms: u64,
    },
    /// The namespace already exists.
    #[error("namespace {name} already exists as `{found}`: `snowmint ns set {name}` changes it")]
    Exists {
        /// The namespace.
        name: NamespaceName,
        /// Its definition.
        found: String,
    },
    /// The store has no room for another namespace that every node serves.
    #[error(
        "namespace {name} not added: {found} namespaces in {store} are served by every node, and the limit is {MAX_NAMESPACES}; \
         drop one (`snowmint ns drop`), or name {name} only on the nodes that serve it (--namespaces or a namespace file)"
    )]
    TooMany {
        /// The namespace.
        name: NamespaceName,
        /// The store.
        store: String,
        /// The number of its namespaces that every node serves.
        found: usize,
    },
    /// The record is not the one that the change requires.
    #[error("namespace {name} was changed meanwhile: nothing was written; read it again, then retry")]
    Edition {
        /// The namespace.
        name: NamespaceName,
    },
    /// The namespace does not exist.
    #[error("unknown namespace {name} in {store}: `snowmint ns list` shows the existing ones")]
    Missing {
        /// The namespace.
        name: NamespaceName,
        /// The store.
        store: String,
    },
    /// Its ids cannot be hidden here.
    #[error("namespace {name}: {error}")]
    Hide {
        /// The namespace.
        name: NamespaceName,
        /// The key and the remedy.
        error: HideError,
    },
    /// The record is invalid.
    #[error("invalid record of namespace {name} in {store}: {reason}")]
    Unreadable {
        /// The namespace.
        name: NamespaceName,
        /// The store.
        store: String,
        /// The reason.
        reason: String,
    },
    /// Before it had settled, the store lost the change or another one followed.
    #[error(
        "namespace {name} in {store} changed again or was lost within {may_lose:?} (may_lose): `snowmint ns list` shows its \
         present state; retry"
    )]
    Unsettled {
        /// The namespace.
        name: NamespaceName,
        /// The store.
        store: String,
        /// The `may_lose` of the store.
        may_lose: Duration,
    },
    /// The store call failed.
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

/// A namespace of a store: its name in the key, and its record or the reason why that is invalid.
pub type Listed = (String, Result<NamespaceRecord, String>);

/// Lists every namespace of a store by name, including the dropped ones.
///
/// # Errors
///
/// The store's error.
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

/// Follows the namespaces of a store, and returns those that have settled.
#[derive(Debug, Default)]
pub struct Follower {
    sightings: BTreeMap<String, Sighting>,
    /// The version read before the last list, and when to list again.
    seen: Option<SeenVersion>,
}

#[derive(Debug)]
struct SeenVersion {
    version: Option<Versioned>,
    list_again: Instant,
}

/// A record since it was first seen, and the newest record of that name that has settled.
#[derive(Debug)]
struct Sighting {
    revision: Revision,
    since: Instant,
    has_settled: bool,
    settled: Option<Result<NamespaceRecord, String>>,
}

impl Follower {
    /// Lists like [`list`], with each namespace as it was when it last settled.
    ///
    /// A later call returns a new or changed namespace once it finds the record again.
    ///
    /// # Errors
    ///
    /// The store's error; nothing changed.
    pub async fn list(&mut self, store: &dyn Store) -> Result<Vec<Listed>, StoreError> {
        let version = version(store).await?;
        self.list_after(store, version).await
    }

    /// Returns the same as [`list`](Self::list), but reads only one record if nothing changed.
    ///
    /// It lists if the version has changed, if a record has not settled yet, or after a minute.
    ///
    /// # Errors
    ///
    /// The store's error; nothing changed.
    pub async fn follow(&mut self, store: &dyn Store) -> Result<Vec<Listed>, StoreError> {
        let version = version(store).await?;
        let is_seen = |seen: &SeenVersion| seen.version == version && Instant::now() < seen.list_again;
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
        // Jitter, so that nodes that started together do not always list together.
        let earlier = LIST_EACH / 8 * (getrandom::u32().unwrap_or_default() >> 24) / 256;
        self.seen = Some(SeenVersion { version, list_again: arrived + LIST_EACH - earlier });
        Ok(all)
    }

    /// Lists twice, far enough apart that every unchanged record has settled. Lists once if the store keeps
    /// acknowledged writes.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn settle(&mut self, store: &dyn Store) -> Result<Vec<Listed>, StoreError> {
        if !store.may_lose().is_zero() {
            self.list(store).await?;
            tokio::time::sleep(store.may_lose()).await;
        }
        self.list(store).await
    }
}

/// Loads the record of the version.
async fn version(store: &dyn Store) -> Result<Option<Versioned>, StoreError> {
    store.load(&version_key(store)?).await
}

fn version_key(store: &dyn Store) -> Result<Key, StoreError> {
    Key::new(VERSION).map_err(|error| before_call(store, "key", error))
}

/// Announces a change to the nodes that follow the namespaces, after it was written.
///
/// A conflict does no harm: another change was announced after this one was written.
async fn announce_change(store: &dyn Store) {
    let announced = async {
        let before = version(store).await?;
        let expected = before.map_or(Expected::Absent, |before| Expected::Revision(before.revision));
        let random = getrandom::u64().map_err(|error| before_call(store, "random number", error))?;
        let value = format!("{random:016x}");
        store.compare_and_set(&version_key(store)?, expected, value.as_bytes()).await
    };
    if let Err(error) = announced.await {
        tracing::warn!(%error, "a change of a namespace could not be announced; running nodes see it within a minute");
    }
}

/// Waits until a record that was just read or written has settled. Returns immediately if the store keeps
/// acknowledged writes.
///
/// # Errors
///
/// [`NamespaceError::Unsettled`] if the record is another one by then, or is gone.
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

/// Pins a namespace to a definition, or checks that its definition may change to `wanted`; returns its
/// record.
///
/// An existing record is not changed.
///
/// # Errors
///
/// [`NamespaceError::Mismatch`] with both definitions, [`NamespaceError::Dropped`], or the store's error.
pub async fn pin(
    store: &dyn Store,
    name: &NamespaceName,
    wanted: &Definition,
) -> Result<NamespaceRecord, NamespaceError> {
    let decide = |found: Option<NamespaceRecord>| match found {
        None => Ok(RecordUpdate::Write(NamespaceRecord::new(wanted.clone(), ServedBy::ConfiguredNodes))),
        Some(record) => {
            check(name, &record, wanted)?;
            Ok(RecordUpdate::Keep(record))
        }
    };
    update(store, name, decide).await
}

/// Pins a namespace like [`pin`], and changes an existing one to `wanted`.
///
/// # Errors
///
/// As [`pin`].
pub async fn define(
    store: &dyn Store,
    name: &NamespaceName,
    wanted: &Definition,
) -> Result<NamespaceRecord, NamespaceError> {
    let decide = |found: Option<NamespaceRecord>| {
        let Some(record) = found else {
            return Ok(RecordUpdate::Write(NamespaceRecord::new(wanted.clone(), ServedBy::ConfiguredNodes)));
        };
        check(name, &record, wanted)?;
        if record.definition == *wanted {
            return Ok(RecordUpdate::Keep(record));
        }
        Ok(RecordUpdate::Write(record.redefined(wanted.clone(), name)?))
    };
    update(store, name, decide).await
}

/// The record that a change requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Required {
    /// Any, or none.
    #[default]
    Any,
    /// Some record.
    Present,
    /// No record.
    Absent,
    /// The record with this edition.
    Edition(u64),
}

impl Required {
    /// Checks the record that was found.
    ///
    /// # Errors
    ///
    /// [`NamespaceError::Edition`].
    pub fn check(self, name: &NamespaceName, found: Option<&NamespaceRecord>) -> Result<(), NamespaceError> {
        let is_met = match self {
            Self::Any => true,
            Self::Present => found.is_some(),
            Self::Absent => found.is_none(),
            Self::Edition(edition) => found.is_some_and(|record| record.edition == edition),
        };
        if is_met { Ok(()) } else { Err(NamespaceError::Edition { name: name.clone() }) }
    }
}

/// The room that a store has for namespaces that every node serves: at most [`MAX_NAMESPACES`].
///
/// Namespaces that are dropped, or that only the configured nodes serve, take no room.
///
/// A writer counts before it writes, so writers at the same moment may exceed the limit. Nodes should
/// therefore serve more than that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    taken: usize,
}

impl Room {
    /// Counts the namespaces of a list.
    pub fn among(listed: &[Listed]) -> Self {
        let is_for_all = |record: &NamespaceRecord| {
            record.served_by == ServedBy::EveryNode && record.dropped_unix_ms.is_none()
        };
        let for_all = listed.iter().filter(|(_, record)| record.as_ref().is_ok_and(is_for_all));
        Self { taken: for_all.count() }
    }

    /// Returns the room that is left once this many more namespaces have been added.
    #[must_use]
    pub const fn after(self, added: usize) -> Self {
        Self { taken: self.taken.saturating_add(added) }
    }

    /// Returns the number of namespaces that every node serves.
    pub const fn taken(self) -> usize {
        self.taken
    }

    /// Checks that one more namespace may be added.
    ///
    /// # Errors
    ///
    /// [`NamespaceError::TooMany`].
    pub fn check(self, store: &dyn Store, name: &NamespaceName) -> Result<(), NamespaceError> {
        if self.taken < MAX_NAMESPACES {
            return Ok(());
        }
        Err(NamespaceError::TooMany { name: name.clone(), store: store.describe(), found: self.taken })
    }
}

/// Adds a namespace, which every node of the store then serves; `if_dropped` decides about one that was
/// dropped.
///
/// # Errors
///
/// [`NamespaceError::Exists`]; [`NamespaceError::TooMany`] if the store has no [`Room`] for it;
/// [`NamespaceError::Mismatch`] if a dropped namespace had another definition and is not restarted.
pub async fn add(
    store: &dyn Store,
    name: &NamespaceName,
    wanted: &Definition,
    if_dropped: IfDropped,
) -> Result<NamespaceRecord, NamespaceError> {
    add_if(store, name, wanted, if_dropped, Required::Any).await
}

/// Adds a namespace like [`add`], if its record is as required.
///
/// # Errors
///
/// As [`add`], and [`NamespaceError::Edition`].
pub async fn add_if(
    store: &dyn Store,
    name: &NamespaceName,
    wanted: &Definition,
    if_dropped: IfDropped,
    required: Required,
) -> Result<NamespaceRecord, NamespaceError> {
    let room = Room::among(&list(store).await?);
    add_within(store, room, name, wanted, if_dropped, required).await
}

/// Adds a namespace like [`add_if`], within the room that the caller has counted: for a caller that adds
/// many.
///
/// # Errors
///
/// As [`add_if`].
pub async fn add_within(
    store: &dyn Store,
    room: Room,
    name: &NamespaceName,
    wanted: &Definition,
    if_dropped: IfDropped,
    required: Required,
) -> Result<NamespaceRecord, NamespaceError> {
    let added = |found: Option<NamespaceRecord>| {
        required.check(name, found.as_ref())?;
        let mut definition = wanted.clone();
        let Some(record) = found else {
            room.check(store, name)?;
            return Ok(RecordUpdate::Write(NamespaceRecord::new(definition, ServedBy::EveryNode)));
        };
        let Some(dropped_unix_ms) = record.dropped_unix_ms else {
            let found = record.definition.to_string();
            return Err(NamespaceError::Exists { name: name.clone(), found });
        };
        let last_series = record.last_series();
        let record = match if_dropped {
            IfDropped::Refuse => return Err(NamespaceError::Dropped { name: name.clone(), dropped_unix_ms }),
            IfDropped::Resume => {
                definition.set_series(last_series);
                record.definition.may_become(&definition, name)?;
                let record = record.redefined(definition, name)?;
                NamespaceRecord { served_by: ServedBy::EveryNode, dropped_unix_ms: None, ..record }
            }
            IfDropped::Restart => {
                definition.set_series(last_series + 1);
                let past_series = last_series;
                NamespaceRecord { past_series, ..NamespaceRecord::new(definition, ServedBy::EveryNode) }
            }
        };
        room.check(store, name)?;
        Ok(RecordUpdate::Write(record))
    };
    update(store, name, added).await
}

/// Writes the record of a namespace back as a node last saw it, if the store lost it or has an older one.
/// Returns the resulting record.
///
/// If another node was faster, the newer of the two records stays, with the text forms of both. An older
/// record is replaced even if it has another layout or an earlier series, or was dropped.
///
/// # Errors
///
/// As [`pin`], if the store's record is not older.
pub async fn put_back(
    store: &dyn Store,
    name: &NamespaceName,
    seen: &NamespaceRecord,
) -> Result<NamespaceRecord, NamespaceError> {
    let put = |found: Option<NamespaceRecord>| {
        let Some(found) = found else { return Ok(RecordUpdate::Write(seen.clone())) };
        if !found.is_older_than(seen) {
            check(name, &found, &seen.definition)?;
        }
        Ok(found.brought_up_to(seen).map_or(RecordUpdate::Keep(found), RecordUpdate::Write))
    };
    update(store, name, put).await
}

/// Changes an existing namespace.
///
/// # Errors
///
/// The error of `change`, [`NamespaceError::Mismatch`] for a change that could produce duplicates,
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
        let time_zone = definition.time_zone.clone();
        let in_that_zone = Definition { time_zone, ..record.definition.clone() };
        in_that_zone.may_become(&definition, name).map_err(NamespaceError::from)?;
        let record = record.redefined(definition, name).map_err(NamespaceError::from)?;
        Ok(RecordUpdate::Write(record))
    };
    update(store, name, changed).await
}

/// Drops a namespace, so that no node serves it. Its record stays, so that it does not restart by accident.
///
/// # Errors
///
/// [`NamespaceError::Missing`] and [`NamespaceError::Dropped`].
pub async fn drop_namespace(
    store: &dyn Store,
    name: &NamespaceName,
    now_unix_ms: u64,
) -> Result<NamespaceRecord, NamespaceError> {
    drop_namespace_if(store, name, now_unix_ms, Required::Any).await
}

/// Drops a namespace like [`drop_namespace`], if its record is as required.
///
/// # Errors
///
/// As [`drop_namespace`], and [`NamespaceError::Edition`].
pub async fn drop_namespace_if(
    store: &dyn Store,
    name: &NamespaceName,
    now_unix_ms: u64,
    required: Required,
) -> Result<NamespaceRecord, NamespaceError> {
    let dropped = |found: Option<NamespaceRecord>| {
        let record = found.ok_or_else(|| missing(store, name))?;
        required.check(name, Some(&record))?;
        alive(name, &record)?;
        Ok(RecordUpdate::Write(NamespaceRecord { dropped_unix_ms: Some(now_unix_ms), ..record }))
    };
    update(store, name, dropped).await
}

/// The numbers that a source may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The numbers.
    pub numbers: Numbers,
    /// Whether the record already had the numbers, or was written for them.
    pub was: Recorded,
}

/// When a record got the numbers of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Before the call.
    Before,
    /// By the call.
    Now,
}

/// Records the numbers that a source of a namespace returns, or compares them with the record. Returns the
/// numbers that the source may return, once the record has settled.
///
/// `wanted` is the definition that this node serves, and `nth` the index of the source in it. Use a source
/// only after this call, and only for the returned numbers.
///
/// # Errors
///
/// [`NamespaceError::Numbers`] if the source overlaps another source of the namespace, even one that is
/// unavailable now, or returns other numbers than at first; [`NamespaceError::Missing`],
/// [`NamespaceError::Dropped`] and [`NamespaceError::Mismatch`] if this node's definition is out of date; or
/// the store's error.
pub async fn claim_numbers(
    store: &dyn Store,
    name: &NamespaceName,
    wanted: &Definition,
    nth: usize,
    found: Numbers,
) -> Result<Claimed, NamespaceError> {
    let mut was = Recorded::Before;
    let mut claimed = |record: Option<NamespaceRecord>| -> Result<RecordUpdate, NamespaceError> {
        let mut record = record.ok_or_else(|| missing(store, name))?;
        check(name, &record, wanted)?;
        if may_give(name, &record, nth, found)?.is_some() {
            return Ok(RecordUpdate::Keep(record));
        }
        if record.numbers.len() <= nth {
            record.numbers.resize(nth + 1, None);
        }
        record.numbers[nth] = Some(found);
        was = Recorded::Now;
        Ok(RecordUpdate::Write(record))
    };
    loop {
        let record = update(store, name, &mut claimed).await?;
        match settle(store, name, &record).await {
            // Another source was claimed in the meantime, or the claim was lost.
            Err(NamespaceError::Unsettled { .. }) => {}
            Ok(()) => {
                let numbers = record.numbers.get(nth).copied().flatten().unwrap_or(found);
                return Ok(Claimed { numbers, was });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Changes the locations of a namespace's sources, with the same stripes. The recorded numbers stay.
///
/// The caller has checked that each new location is the same counter as the one in `compared`, or continues
/// above all its numbers after it was stopped. This function compares only their texts.
///
/// # Errors
///
/// [`NamespaceError::Mismatch`] for another number of sources, another stripe, or another system;
/// [`NamespaceError::OtherSources`] if its sources are no longer those in `compared`;
/// [`NamespaceError::Missing`], [`NamespaceError::Dropped`], [`NamespaceError::Sources`], or the store's
/// error.
pub async fn move_sources(
    store: &dyn Store,
    name: &NamespaceName,
    compared: &[CounterSource],
    sources: &[CounterSource],
) -> Result<NamespaceRecord, NamespaceError> {
    let moved = |record: Option<NamespaceRecord>| -> Result<RecordUpdate, NamespaceError> {
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
                return Ok(RecordUpdate::Write(record));
            }
        }
        before.may_become(&record.definition, name)?;
        Ok(RecordUpdate::Keep(record))
    };
    update(store, name, moved).await
}

/// Returns the recorded numbers of a source that returns `found` now; `None` if there are none.
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
    let refused = |error| Err(NamespaceError::Numbers { name: name.clone(), error });
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
    // Even if they are recorded: a record of an older version may have two that overlap.
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

/// Whether an update writes a record.
enum RecordUpdate {
    Keep(NamespaceRecord),
    Write(NamespaceRecord),
}

async fn update<E: From<NamespaceError>>(
    store: &dyn Store,
    name: &NamespaceName,
    mut decide: impl FnMut(Option<NamespaceRecord>) -> Result<RecordUpdate, E>,
) -> Result<NamespaceRecord, E> {
    let unreadable =
        |reason: String| NamespaceError::Unreadable { name: name.clone(), store: store.describe(), reason };
    // A valid name always makes a valid key.
    let key = key(name).map_err(|error| unreadable(error.to_string()))?;
    // After the first write with an unknown outcome, no failure proves that nothing was changed.
    let unknown = |cause: String| NamespaceError::Store(unknown_outcome(store, cause));
    let mut attempted: Option<(NamespaceRecord, Expected)> = None;
    loop {
        let found = match store.load(&key).await {
            Ok(found) => found,
            Err(error) if attempted.is_some() => return Err(unknown(cause(&error)).into()),
            Err(error) => return Err(NamespaceError::from(error).into()),
        };
        let read = |value: &Versioned| NamespaceRecord::from_bytes(&value.value).map_err(unreadable);
        let record = found.as_ref().map(read).transpose()?;
        let expected = found.map_or(Expected::Absent, |found| Expected::Revision(found.revision));
        let mut is_overwritten = false;
        if let Some((written, at)) = &attempted {
            // The write with an unknown outcome took place.
            if record.as_ref() == Some(written) {
                announce_change(store).await;
                return record.ok_or_else(|| missing(store, name).into());
            }
            is_overwritten = expected != *at;
        }
        let edition = record.as_ref().map_or(1, |record| record.edition.saturating_add(1));
        let record = match decide(record) {
            Ok(RecordUpdate::Keep(record)) => return Ok(record),
            Ok(RecordUpdate::Write(record)) => {
                NamespaceRecord { edition: record.edition.max(edition), ..record }
            }
            Err(_) if is_overwritten => {
                let why = format!("no answer, and namespace {name} was changed again since");
                return Err(unknown(why).into());
            }
            Err(error) => return Err(error),
        };
        if record.dropped_unix_ms.is_none() {
            let checked = record.definition.check_sources(store.visibility());
            checked.map_err(|error| NamespaceError::Sources { name: name.clone(), error })?;
        }
        let checked = record.definition.check_hide();
        checked.map_err(|error| NamespaceError::Hide { name: name.clone(), error })?;
        let value = record.to_bytes().map_err(|error| unreadable(error.to_string()))?;
        match store.compare_and_set(&key, expected, &value).await {
            Ok(Swap::Done(_)) => {
                announce_change(store).await;
                return Ok(record);
            }
            // Another writer was faster: its record decides.
            Ok(Swap::Conflict) => {}
            // The write may have happened, or may still happen.
            Err(error) if error.kind() == StoreErrorKind::OutcomeUnknown => {
                attempted = Some((record, expected));
                tokio::time::sleep(BEFORE_LOOKING).await;
            }
            Err(error) if attempted.is_some() => return Err(unknown(cause(&error)).into()),
            Err(error) => return Err(NamespaceError::from(error).into()),
        }
    }
}

/// Checks that a namespace is not dropped and that its definition may change to `wanted`.
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

/// Checks as [`check`] does, and that ids may be written in the text form of `wanted`.
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

/// Loads the record of a namespace, dropped or not, or the reason why that is invalid; `None` without a
/// record.
///
/// # Errors
///
/// The store's error.
pub async fn load(
    store: &dyn Store,
    name: &NamespaceName,
) -> Result<Option<Result<NamespaceRecord, String>>, StoreError> {
    match key(name) {
        Ok(key) => Ok(store.load(&key).await?.map(|found| NamespaceRecord::from_bytes(&found.value))),
        Err(error) => Ok(Some(Err(error.to_string()))),
    }
}

/// Returns the record of a namespace for a change. Checks that the namespace exists and is not dropped.
///
/// # Errors
///
/// [`NamespaceError::Missing`], [`NamespaceError::Unreadable`] and [`NamespaceError::Dropped`], or the
/// store's error.
pub async fn existing(store: &dyn Store, name: &NamespaceName) -> Result<NamespaceRecord, NamespaceError> {
    let found = load(store, name).await?.ok_or_else(|| missing(store, name))?;
    let record = found.map_err(|reason| NamespaceError::Unreadable {
        name: name.clone(),
        store: store.describe(),
        reason,
    })?;
    alive(name, &record)?;
    Ok(record)
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

impl Definition {
    fn set_series(&mut self, series: u32) {
        if let Scheme::Segment(segment) = &mut self.scheme {
            segment.series = series.max(1);
        }
    }
}

#[cfg(test)]
mod tests;
