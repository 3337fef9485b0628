//! Lists, adds, changes and drops the namespaces of a store while nodes serve them.
//!
//! Settings have one form everywhere: that of a namespace file, as JSON. A change is a merge patch of that
//! form (RFC 7396): a setting that is `null` is removed.

mod check_sources;
mod details;

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use snowmint::utc::Utc;
use snowmint::{Clock as _, Layout, WallClock};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::audit::Action;
use snowmint_cluster::namespace::registry::{self, IfDropped, Listed, Required, Room};
use snowmint_cluster::namespace::{
    ChangeError, CounterSource, Definition, DefinitionError, Fields, Logins, NamespaceError, NamespaceRecord,
    NumberSource, Scheme, ServedBy, Setting, SettingKind,
};
use snowmint_cluster::segment::{Mode, Period, SegmentConfig, Stripe};
use snowmint_store::{Key, Store, Versioned};

use self::details::details_of;
use crate::format::{date, thousands};
use crate::nearest::{unknown_name, with_nearest_field};
use crate::{AdminError, Author, node_reports, warnings_of_skipped};

/// Settings of a namespace in the form of a namespace file, as a JSON object.
pub type Settings = Map<String, Value>;

const SCHEME: &str = "scheme";
const LAYOUT: &str = "layout";
/// The setting of other counters.
pub const SOURCES: &str = "sources";
/// The prefix of the keys of counters.
const COUNTERS: &str = "segments/";

/// Which nodes serve a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamespaceState {
    /// Every node of the store.
    Served,
    /// Nodes whose flags or file name it.
    Named,
    /// None: it was dropped.
    Dropped,
    /// None: its record is unreadable.
    Unreadable,
}

impl NamespaceState {
    /// Returns the state of a namespace by its record.
    pub const fn of(record: &NamespaceRecord) -> Self {
        match (record.dropped_unix_ms, record.served_by) {
            (Some(_), _) => Self::Dropped,
            (None, ServedBy::EveryNode) => Self::Served,
            (None, ServedBy::ConfiguredNodes) => Self::Named,
        }
    }

    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Named => "named",
            Self::Dropped => "dropped",
            Self::Unreadable => "unreadable",
        }
    }
}

/// A namespace of a store as `snowmint ns list --json` and the admin API show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamespaceView {
    /// Its name.
    pub name: String,
    /// Which nodes serve it.
    pub state: NamespaceState,
    /// When it was dropped, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
    /// The highest number reserved in this store, in the current period if numbers restart; `None` if numbers
    /// come from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_to: Option<u64>,
    /// Why its record is unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// Its settings; `None` if its record is unreadable.
    #[serde(flatten)]
    pub settings: Option<Fields>,
    /// The number of times its record was written, if it was read alone.
    #[serde(skip)]
    pub edition: Option<u64>,
}

impl NamespaceView {
    /// Returns its definition in one line, or the reason why its record is unreadable.
    pub fn summary(&self) -> String {
        let Some(settings) = &self.settings else { return self.unreadable.clone().unwrap_or_default() };
        // A record always has a layout, so this one is never used.
        let defined = match settings.clone().define(&Layout::TWITTER) {
            // Nodes need its rules, not the machine that lists it.
            Err(DefinitionError::TimeZone(_)) => settings.clone().define_pinned(&Layout::TWITTER),
            defined => defined,
        };
        match defined {
            Ok(definition) => definition.to_string(),
            Err(error) => format!("{}, but {error}", settings.scheme),
        }
    }

    async fn of(
        counters: &CounterReader<'_>,
        name: &str,
        record: &Result<NamespaceRecord, String>,
    ) -> Result<Self, AdminError> {
        let name = name.to_owned();
        let record = match record {
            Ok(record) => record,
            Err(why) => {
                let unreadable = Some(why.clone());
                let state = NamespaceState::Unreadable;
                return Ok(Self {
                    name,
                    state,
                    dropped: None,
                    reserved_to: None,
                    unreadable,
                    settings: None,
                    edition: None,
                });
            }
        };
        let reserved_to = reserved_to(counters, &name, record).await?;
        Ok(Self::from_record(name, record, reserved_to))
    }

    fn from_record(name: String, record: &NamespaceRecord, reserved_to: Option<u64>) -> Self {
        Self {
            name,
            state: NamespaceState::of(record),
            dropped: record.dropped_unix_ms.map(|when| Utc(when).to_string()),
            reserved_to,
            unreadable: None,
            settings: Some(Fields::from(&record.definition)),
            edition: None,
        }
    }
}

/// The namespaces of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Namespaces {
    /// All of them by name, including the dropped ones.
    pub namespaces: Vec<NamespaceView>,
    /// The records that were skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// The namespace after the change.
    pub namespace: NamespaceView,
    /// The store that has recorded it.
    pub store: String,
    /// The number of times its record was written.
    pub edition: u64,
    /// If a dropped namespace was resumed: the number above which it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_above: Option<u64>,
    /// Warnings for the operator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Whether the node that ran the operation serves the namespace now; `None` without a node.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub served_here: Option<bool>,
}

impl Changed {
    async fn of(
        store: &dyn Store,
        name: &NamespaceName,
        record: NamespaceRecord,
        mut warnings: Vec<String>,
    ) -> Self {
        let edition = record.edition;
        // The change is already made, even if this read fails.
        let reserved_to =
            reserved_to(&CounterReader::Of(store), name.as_str(), &record).await.unwrap_or_else(|error| {
                warnings.push(format!("{name} is changed, but its counter cannot be read: {error}"));
                None
            });
        let namespace = NamespaceView::from_record(name.to_string(), &record, reserved_to);
        Self { namespace, store: store.describe(), edition, resumed_above: None, warnings, served_here: None }
    }
}

/// How a dropped namespace starts over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartOver {
    /// Nodes that must not serve the namespace any more: `http://HOST:PORT`.
    #[serde(default)]
    pub nodes: Vec<String>,
}

/// A namespace to add, or a dropped one to resume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Addition {
    /// Its settings. Without a scheme, they change the settings of the dropped namespace.
    pub settings: Settings,
    /// Restart a dropped namespace from the beginning: it repeats earlier ids.
    pub start_over: Option<StartOver>,
    /// The condition that the existing record must meet.
    pub required: Required,
    /// The logins with which this process checks its sources.
    pub logins: Logins,
}

/// A change of a namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// The changed settings; `null` removes one.
    pub settings: Settings,
    /// With new `sources`: the highest number that the old server of a source may have given.
    pub above: Option<u64>,
    /// The condition that the existing record must meet.
    pub required: Required,
    /// The logins with which this process checks its sources.
    pub logins: Logins,
}

/// Lists the namespaces of a store.
///
/// # Errors
///
/// The error of the store.
pub async fn list(store: &dyn Store) -> Result<Namespaces, AdminError> {
    let namespaces = list_some(store, |_| true).await?;
    Ok(Namespaces { namespaces, warnings: warnings_of_skipped(store) })
}

/// Lists the namespaces with certain names.
///
/// # Errors
///
/// The error of the store.
pub async fn list_some(
    store: &dyn Store,
    shows: impl Fn(&str) -> bool,
) -> Result<Vec<NamespaceView>, AdminError> {
    let listed = registry::list(store).await?;
    // One call for all, since a store may have thousands.
    let counters = CounterReader::Listed(store.list(COUNTERS).await?.into_iter().collect());
    let mut views = Vec::new();
    for (name, record) in listed.iter().filter(|(name, _)| shows(name)) {
        views.push(NamespaceView::of(&counters, name, record).await?);
    }
    Ok(views)
}

/// Returns a namespace. It reads one record, and its counter.
///
/// # Errors
///
/// [`NamespaceError::Missing`], or the error of the store.
pub async fn get(store: &dyn Store, name: &NamespaceName) -> Result<NamespaceView, AdminError> {
    let found = registry::load(store, name).await?;
    let record =
        found.ok_or_else(|| NamespaceError::Missing { name: name.clone(), store: store.describe() })?;
    let view = NamespaceView::of(&CounterReader::Of(store), name.as_str(), &record).await?;
    Ok(NamespaceView { edition: record.ok().map(|record| record.edition), ..view })
}

/// Adds a namespace that every node of the store serves, or resumes or restarts a dropped one. Warnings name
/// only other namespaces that `shows` allows.
///
/// # Errors
///
/// [`AdminError`] names what is invalid, or what could produce duplicates.
pub async fn add(
    store: &dyn Store,
    author: &Author,
    name: &NamespaceName,
    addition: &Addition,
    shows: impl Fn(&str) -> bool,
) -> Result<Changed, AdminError> {
    let listed = registry::list(store).await?;
    let room = Room::among(&listed);
    let before = named(name, &listed);
    let required = addition.required;
    if let (Required::Absent, Some(before)) = (required, &before) {
        let dropped = before.dropped_unix_ms.is_some();
        return Err(AdminError::NotNew { name: name.to_string(), dropped });
    }
    required.check(name, before.as_ref())?;
    let if_dropped = if addition.start_over.is_some() { IfDropped::Restart } else { IfDropped::Resume };
    let definition = definition_to_add(name, &addition.settings, before.as_ref())?;
    let mut warnings = Vec::new();
    if before.is_none()
        && let Scheme::Snowflake { layout, .. } = &definition.scheme
    {
        warnings.extend(check_time(name, layout, WallClock.unix_ms())?);
    }
    let resumes = before.as_ref().filter(|_| if_dropped == IfDropped::Resume);
    let found = check_sources::check(name, &definition, resumes, &addition.logins, &mut warnings).await?;
    check_mode(store, &definition)?;
    if let Some(before) = resumes {
        warnings.extend(low_maximum(store, name, before, &definition).await?);
    }
    warnings.extend(shared_key(name, &definition, &listed, shows));
    let nodes = addition.start_over.as_ref().map_or(&[][..], |over| &over.nodes);
    let action = match &before {
        None => Action::NamespaceAdd,
        Some(before) if before.dropped_unix_ms.is_none() => {
            let found = before.definition.to_string();
            return Err(NamespaceError::Exists { name: name.clone(), found }.into());
        }
        Some(_) if if_dropped == IfDropped::Restart => Action::NamespaceStartOver,
        Some(_) => Action::NamespaceResume,
    };
    // Checked before the entry is written, and counted again before the namespace is.
    room.check(store, name)?;
    nobody_serves(name, nodes).await?;
    let added = registry::add_if(store, name, &definition, if_dropped, required);
    let details = details_of(&definition, before.as_ref().map(|it| &it.definition));
    let added = author.record(store, action, name, details, added).await?;
    let record = added.map_err(|error| match error {
        NamespaceError::Mismatch(error) => AdminError::OnlyOver(error),
        error => error.into(),
    })?;
    check_sources::remember(store, name, &record.definition, &found).await?;
    if before.is_some() && if_dropped == IfDropped::Restart {
        let others = if nodes.is_empty() { "a node" } else { "a node that is not in `nodes` and" };
        warnings.push(format!(
            "{name} starts over: it may repeat earlier ids. Stop every node that has not seen the drop: {others} that cannot \
             reach the store continues to give the old numbers"
        ));
    }
    let mut changed = Changed::of(store, name, record, warnings).await;
    if before.is_some() && if_dropped == IfDropped::Resume {
        // Numbers that restart are above it in this period only.
        let restarts = changed.namespace.settings.as_ref().is_some_and(|settings| settings.reset.is_some());
        changed.resumed_above = changed.namespace.reserved_to.filter(|_| !restarts);
    }
    Ok(changed)
}

/// Refuses a layout that has ended. Returns a warning if it ends soon or has not begun.
fn check_time(name: &NamespaceName, layout: &Layout, now_unix_ms: u64) -> Result<Option<String>, AdminError> {
    let ends = layout.ends_at_unix_ms();
    if ends <= now_unix_ms {
        let why = format!("`{layout}` ended on {}: choose a later epoch, or more bits of time", date(ends));
        return Err(AdminError::setting(LAYOUT, why));
    }
    Ok(layout.expiry_warning(now_unix_ms).map(|warning| format!("{name}: {warning}")))
}

/// Changes the settings of a namespace.
///
/// # Errors
///
/// [`AdminError`] names what is invalid, or what could produce duplicates.
pub async fn set(
    store: &dyn Store,
    author: &Author,
    name: &NamespaceName,
    change: &Change,
) -> Result<Changed, AdminError> {
    let Change { settings, above, required, logins: _ } = change;
    if settings.is_empty() {
        return Err(AdminError::Request("nothing to change: expected at least one setting".to_owned()));
    }
    check_names(settings, &[])?;
    // An unreadable one is refused below.
    let before = registry::load(store, name).await?.and_then(Result::ok);
    if before.is_some() {
        required.check(name, before.as_ref())?;
    }
    if settings.contains_key(SOURCES) {
        return move_sources(store, author, name, change, before).await;
    }
    if above.is_some() {
        return Err(AdminError::setting("above", "belongs to new `sources`: omit it, or name them"));
    }
    let (mut details, mut warnings) = (String::new(), Vec::new());
    if let Some(before) = &before {
        let wanted = changed(name, settings, &before.definition)?;
        check_mode(store, &wanted)?;
        if wanted == before.definition && before.dropped_unix_ms.is_none() {
            // Nothing changes, so there is no log entry and no new edition. The read makes `SettledStore`
            // wait until an earlier change by another command has settled.
            let found = registry::existing(store, name).await?;
            if found.definition == wanted {
                return Ok(Changed::of(store, name, found, Vec::new()).await);
            }
        }
        warnings.extend(low_maximum(store, name, before, &wanted).await?);
        details = details_of(&wanted, Some(&before.definition));
    }
    // Checked before the entry is written: requests that cannot change anything would push real changes out
    // of the log.
    registry::existing(store, name).await?;
    let patch = |definition: &Definition| {
        let is_same = before.as_ref().is_some_and(|before| before.definition == *definition);
        if matches!(required, Required::Edition(_)) && !is_same {
            return Err(NamespaceError::Edition { name: name.clone() }.into());
        }
        changed(name, settings, definition)
    };
    let set = registry::set(store, name, patch);
    let record = author.record(store, Action::NamespaceSet, name, details, set).await??;
    Ok(Changed::of(store, name, record, warnings).await)
}

/// Drops a namespace: nodes stop serving it, its record stays.
///
/// # Errors
///
/// [`AdminError::Namespace`].
pub async fn drop_namespace(
    store: &dyn Store,
    author: &Author,
    name: &NamespaceName,
    required: Required,
) -> Result<Changed, AdminError> {
    // As for `set`.
    required.check(name, Some(&registry::existing(store, name).await?))?;
    let dropped = registry::drop_namespace_if(store, name, WallClock.unix_ms(), required);
    let record = author.record(store, Action::NamespaceDrop, name, "", dropped).await??;
    Ok(Changed::of(store, name, record, Vec::new()).await)
}

fn definition_to_add(
    name: &NamespaceName,
    settings: &Settings,
    before: Option<&NamespaceRecord>,
) -> Result<Definition, AdminError> {
    check_names(settings, &[])?;
    let mut settings = settings.clone();
    if !settings.contains_key(SCHEME) && settings.contains_key(LAYOUT) {
        settings.insert(SCHEME.to_owned(), Value::from("snowflake"));
    }
    if settings.contains_key(SCHEME) {
        return define(settings);
    }
    let of = |kind| Fields::SETTINGS.iter().filter(move |setting| setting.kind == kind);
    let is_given = |setting: &Setting| settings.contains_key(setting.name);
    let why = match before {
        Some(before) if !of(SettingKind::Fixed).any(is_given) => {
            return changed(name, &settings, &before.definition);
        }
        Some(_) => {
            // A layout would have implied the scheme.
            let defining = of(SettingKind::Fixed).filter(|it| ![SCHEME, LAYOUT].contains(&it.name));
            let defining = in_words(defining);
            format!(
                "missing: {defining} define a new namespace; add `scheme`, or omit them to resume {name} as it was"
            )
        }
        None => {
            let of_segment = || {
                let all = of(SettingKind::Fixed).chain(of(SettingKind::Changeable));
                all.filter(|setting| setting.scheme == Some("segment"))
            };
            let segment = if of_segment().any(is_given) {
                format!("; {} belong to segment", in_words(of_segment()))
            } else {
                String::new()
            };
            format!(
                "missing for the new namespace {name}: expected snowflake, segment, uuid7, uuid4, ulid or objectid{segment}"
            )
        }
    };
    Err(AdminError::setting(SCHEME, why))
}

/// Returns the settings in words: "`a`, `b` and `c`", without those that have no flag.
fn in_words<'a>(settings: impl Iterator<Item = &'a Setting>) -> String {
    let shown = settings.filter(|setting| setting.value_name.is_some());
    let mut names: Vec<_> = shown.map(|setting| format!("`{}`", setting.name)).collect();
    let last = names.pop().unwrap_or_default();
    format!("{} and {last}", names.join(", "))
}

/// Returns the definition of a namespace with some settings changed. The scheme is fixed: another scheme, or
/// a setting of another scheme, conflicts with the record.
fn changed(
    name: &NamespaceName,
    settings: &Settings,
    definition: &Definition,
) -> Result<Definition, AdminError> {
    let is_scheme = |text: &str| {
        ["snowflake", "segment"].contains(&text) || text.parse::<snowmint::scheme::Scheme>().is_ok()
    };
    let wanted = settings.get(SCHEME).and_then(Value::as_str);
    if let Some(other) = wanted.filter(|it| *it != definition.scheme.name() && is_scheme(it)) {
        let (pinned, wanted) = (definition.to_string(), other.to_owned());
        let error = ChangeError { name: name.clone(), pinned, wanted, what: SCHEME };
        return Err(NamespaceError::Mismatch(error).into());
    }
    patched(settings, definition).map_err(|error| match error {
        AdminError::Definition(error @ DefinitionError::Foreign { .. }) => AdminError::OtherScheme(error),
        error => error,
    })
}

/// Returns the definition with some settings changed.
fn patched(settings: &Settings, definition: &Definition) -> Result<Definition, AdminError> {
    let Ok(Value::Object(mut patched)) = serde_json::to_value(Fields::from(definition)) else {
        return Err(AdminError::Failed("cannot write the settings as JSON".to_owned()));
    };
    patched.extend(settings.iter().map(|(name, value)| (name.clone(), value.clone())));
    define(patched)
}

/// Returns the definition of these settings. `null` stands for a missing setting.
fn define(mut settings: Settings) -> Result<Definition, AdminError> {
    settings.retain(|_, value| !value.is_null());
    let fields = Fields::deserialize(Value::Object(settings.clone())).map_err(|error| {
        // The error of all settings together does not name the one that is invalid.
        let is_invalid = |(name, value): (&String, &Value)| {
            let mut one = Settings::from_iter([(SCHEME.to_owned(), Value::from("segment"))]);
            one.insert(name.clone(), value.clone());
            let invalid = Fields::deserialize(Value::Object(one)).err()?;
            Some((known().find(|known| known == name)?, invalid))
        };
        match settings.iter().find_map(is_invalid) {
            Some((setting, error)) => AdminError::setting(setting, error),
            None => AdminError::Request(with_nearest_field(&format!("invalid settings: {error}"))),
        }
    })?;
    // The layout of the service is for its own namespaces. A namespace of the store without a layout gets
    // Twitter's, as on every node.
    Ok(fields.define(&Layout::TWITTER)?)
}

/// Returns the names of the settings that a namespace may have.
fn known<'a>() -> impl Iterator<Item = &'a str> {
    Fields::SETTINGS.iter().map(|setting| setting.name)
}

/// Checks that every setting is known, or one of `others`.
///
/// # Errors
///
/// [`AdminError::Request`] suggests the nearest name.
pub fn check_names(settings: &Settings, others: &[&str]) -> Result<(), AdminError> {
    let is_known = |name: &str| known().chain(others.iter().copied()).any(|known| known == name);
    match settings.keys().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(unknown) => {
            let known = known().chain(others.iter().copied());
            Err(AdminError::Request(unknown_name("setting", unknown, known)))
        }
    }
}

/// Moves the sources of a namespace to other places.
async fn move_sources(
    store: &dyn Store,
    author: &Author,
    name: &NamespaceName,
    change: &Change,
    before: Option<NamespaceRecord>,
) -> Result<Changed, AdminError> {
    if change.settings.len() > 1 {
        return Err(AdminError::setting(SOURCES, "changes alone: change the other settings in another step"));
    }
    let given = change.settings.get(SOURCES).cloned().unwrap_or_default();
    let wanted: Vec<CounterSource> =
        serde_json::from_value(given).map_err(|error| AdminError::setting(SOURCES, error))?;
    // As for `set`.
    registry::existing(store, name).await?;
    let (mut compared, mut warnings) = (Vec::new(), Vec::new());
    if let Some(before) = &before {
        let mut definition = before.definition.clone();
        if let Scheme::Segment(segment) = &mut definition.scheme {
            let old = std::mem::replace(&mut segment.source, NumberSource::Other(wanted.clone()));
            if let NumberSource::Other(old) = old {
                compared = old;
            }
        }
        check_sources::check(name, &definition, Some(before), &change.logins, &mut warnings).await?;
    }
    let moved = async {
        if let Some(before) = &before {
            // Raises the new counter, so it is a part of the change.
            check_sources::check_move(name, before, &wanted, change).await?;
        }
        Ok::<_, AdminError>(registry::move_sources(store, name, &compared, &wanted).await?)
    };
    let details = NumberSource::Other(wanted.clone());
    let record = author.record(store, Action::NamespaceSet, name, details, moved).await??;
    Ok(Changed::of(store, name, record, warnings).await)
}

fn named(name: &NamespaceName, listed: &[Listed]) -> Option<NamespaceRecord> {
    let (_, record) = listed.iter().find(|(it, _)| it == name.as_str())?;
    record.as_ref().ok().cloned()
}

/// Returns a warning if the key that hides the ids of a namespace also hides those of others. Dropped ones
/// count: their ids are still in use.
///
/// This is a warning, because the ids of each namespace stay unique. Changing the key of one namespace is an
/// error.
fn shared_key(
    name: &NamespaceName,
    definition: &Definition,
    listed: &[Listed],
    shows: impl Fn(&str) -> bool,
) -> Option<String> {
    /// The number of names in the warning.
    const NAMED: usize = 3;
    let key_of = |definition: &Definition| definition.scheme.hide().and_then(|hide| hide.check);
    let key = key_of(definition)?;
    let is_same = |record: &NamespaceRecord| key_of(&record.definition) == Some(key);
    let others: Vec<_> = listed
        .iter()
        .filter(|(other, record)| other != name.as_str() && record.as_ref().is_ok_and(is_same))
        .map(|(other, _)| other.as_str())
        .collect();
    let known: Vec<_> = others.iter().copied().filter(|other| shows(other)).take(NAMED).collect();
    let names = match (others.len() - known.len(), known.is_empty()) {
        (0, _) => known.join(", "),
        (hidden, true) => format!("{hidden} other namespaces"),
        (hidden, false) => format!("{} and {hidden} more", known.join(", ")),
    };
    (!others.is_empty()).then(|| {
        format!(
            "the hide key of {name} also hides the ids of {names}: equal numbers get the same hidden id, so an id of one \
             reveals which number of another it is. The key of a namespace is fixed: to have a key of its own (`snowmint \
             hide-key`), drop {name} and add a namespace of another name"
        )
    })
}

/// Checks that no node still gives the numbers of a namespace that is to start over.
async fn nobody_serves(name: &NamespaceName, nodes: &[String]) -> Result<(), AdminError> {
    let asked: Vec<_> = nodes.iter().map(|node| (node, node_reports::fetch(node))).collect();
    let answered = asked.into_iter().map(|(node, fetched)| async move {
        let metrics = fetched.await.map_err(|error| match error {
            node_reports::NodeError::Address { .. } => AdminError::setting("nodes", error),
            error @ node_reports::NodeError::Node { .. } => AdminError::Unanswered(error),
        })?;
        if node_reports::serves(&metrics, name) {
            return Err(AdminError::StillServed { node: node.clone(), name: name.to_string() });
        }
        Ok(())
    });
    try_join_all(answered).await.map(|_| ())
}

/// Checks that the store allows the mode `direct`.
fn check_mode(store: &dyn Store, definition: &Definition) -> Result<(), AdminError> {
    let Scheme::Segment(segment) = &definition.scheme else { return Ok(()) };
    match (segment.mode, &segment.source) {
        (Mode::Direct, NumberSource::Own(_)) => {
            SegmentConfig::check_direct(store.may_lose(), &store.describe())
                .map_err(|error| AdminError::setting("mode", error))
        }
        _ => Ok(()),
    }
}

/// Returns a warning about a new maximum below the numbers that are reserved already: the namespace has no
/// more to reserve.
async fn low_maximum(
    store: &dyn Store,
    name: &NamespaceName,
    before: &NamespaceRecord,
    wanted: &Definition,
) -> Result<Option<String>, AdminError> {
    let (Scheme::Segment(old), Scheme::Segment(new)) = (&before.definition.scheme, &wanted.scheme) else {
        return Ok(None);
    };
    if new.maximum == old.maximum {
        return Ok(None);
    }
    let reserved = reserved_to(&CounterReader::Of(store), name.as_str(), before).await?;
    Ok(reserved.filter(|reserved| *reserved > new.maximum).map(|reserved| {
        let (maximum, reserved) = (thousands(new.maximum), thousands(reserved));
        let until = if new.reset.is_some() { " until the next period" } else { "" };
        format!(
            "nodes have reserved numbers of {name} up to {reserved}, beyond the new maximum {maximum}: it has no more numbers{until}; \
             for more, set a maximum above {reserved}"
        )
    }))
}

/// Returns that the numbers of a namespace are used or reserved, in the current period if `is_of_period`.
pub fn numbers_ended(name: &str, maximum: u64, what: &str, is_of_period: bool) -> String {
    let until = if is_of_period { " in this period" } else { "" };
    format!("every number of {name} up to its maximum, {maximum}, is {what}{until}")
}

/// Returns what to do about numbers that have ended.
pub fn raise_maximum(name: &str) -> String {
    format!("raise it with `snowmint ns set {name} --maximum`, or use a new namespace")
}

/// Returns that all numbers of a namespace up to its maximum are reserved, if they are, by the counter of
/// this store.
pub(crate) fn all_reserved(
    name: &str,
    record: &NamespaceRecord,
    counters: &BTreeMap<Key, Versioned>,
    now_unix_ms: u64,
) -> Option<String> {
    let Scheme::Segment(segment) = &record.definition.scheme else { return None };
    let (key, stripe) = own_counter(name, record, now_unix_ms)?;
    let slots = counters.get(&Key::new(key).ok()?).map(|value| String::from_utf8_lossy(&value.value));
    let last = last_number(slots.as_deref(), stripe).filter(|last| *last > 0)?;
    let next = last.saturating_add(stripe.of().into());
    (next > segment.maximum).then(|| {
        let ended = numbers_ended(name, segment.maximum, "reserved", segment.reset.is_some());
        format!("{ended}: {}", raise_maximum(name))
    })
}

/// Access to the counters of a store.
enum CounterReader<'a> {
    /// Loads each counter when it is needed.
    Of(&'a dyn Store),
    /// All counters, listed in advance.
    Listed(BTreeMap<Key, Versioned>),
}

/// Returns the highest number reserved in this store, in the current period if numbers restart; `None` if
/// numbers come from elsewhere.
async fn reserved_to(
    counters: &CounterReader<'_>,
    name: &str,
    record: &NamespaceRecord,
) -> Result<Option<u64>, AdminError> {
    let Some((key, stripe)) = own_counter(name, record, WallClock.unix_ms()) else { return Ok(None) };
    let key = Key::new(key).map_err(|error| AdminError::Failed(error.to_string()))?;
    let loaded;
    let value = match counters {
        CounterReader::Of(store) => {
            loaded = store.load(&key).await?;
            loaded.as_ref()
        }
        CounterReader::Listed(all) => all.get(&key),
    };
    let slots = value.map(|value| String::from_utf8_lossy(&value.value));
    Ok(last_number(slots.as_deref(), stripe))
}

/// Returns the key and the stripe of the namespace's counter in this store, of the current period if its
/// numbers restart; `None` if they come from elsewhere, or if this machine does not know its time zone.
pub fn own_counter(name: &str, record: &NamespaceRecord, now_unix_ms: u64) -> Option<(String, Stripe)> {
    let Scheme::Segment(segment) = &record.definition.scheme else { return None };
    let NumberSource::Own(stripe) = &segment.source else { return None };
    let key = segment.counter_key(&NamespaceName::new(name).ok()?);
    let key = match segment.reset {
        Some(reset) => {
            let time_zone = &record.definition.time_zone;
            // Without its rules, the current period is not known here.
            time_zone.check().ok()?;
            format!("{key}/{}", Period::at(reset, time_zone.local_ms(now_unix_ms)))
        }
        None => key,
    };
    Some((key, *stripe))
}

/// Returns the highest number of a counter from its record; 0 without a record.
pub fn last_number(slots: Option<&str>, stripe: Stripe) -> Option<u64> {
    match slots.map_or(Ok(0), str::parse::<u64>).ok()? {
        0 => Some(0),
        slots => (slots - 1).checked_mul(stripe.of().into())?.checked_add(stripe.index().into()),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::details::SHOWN;
    use crate::AdminErrorKind;
    use crate::audit::AuditLine;
    use async_trait::async_trait;
    use snowmint_cluster::audit::{self, AuthorRights};
    use snowmint_cluster::segment::Reset;
    use snowmint_store::{Expected, MemoryStore, StoreError, Swap};

    use super::*;
    use crate::limits::MAX_SERVED_NAMESPACES;

    /// Goal: a new maximum below the reserved numbers is a warning, since the namespace has none left.
    /// Numbers that are all reserved are a problem for `doctor`. Method: counters written by hand.
    #[tokio::test]
    async fn a_maximum_below_the_reserved_numbers_is_a_warning() {
        let store = MemoryStore::new();
        let author = Author { who: "ann".to_owned(), from: "test".to_owned(), rights: AuthorRights::All };
        let now = WallClock.unix_ms();
        let today = Period::at(Reset::Daily, now);
        for (name, more, keys) in [
            ("n", Value::Null, vec!["segments/n".to_owned()]),
            (
                "daily",
                "daily".into(),
                [today, today.next()].map(|it| format!("segments/daily/{it}")).to_vec(),
            ),
        ] {
            let settings = serde_json::json!({ "scheme": "segment", "reset": more, "maximum": 1000,
                                               "text": if more.is_null() { "{number}" } else { "{date}-{number}" } });
            let Value::Object(settings) = settings else { unreachable!() };
            let addition = Addition { settings, ..Addition::default() };
            add(&store, &author, &name.parse().unwrap(), &addition, |_| true).await.unwrap();
            for key in keys {
                let _ =
                    store.compare_and_set(&Key::new(key).unwrap(), Expected::Absent, b"700").await.unwrap();
            }
        }
        let set_maximum = async |name: &str, maximum: u64| {
            let settings = Settings::from_iter([("maximum".to_owned(), maximum.into())]);
            let change = Change { settings, ..Change::default() };
            set(&store, &author, &name.parse().unwrap(), &change).await
        };
        let used_up = async || -> Vec<String> {
            let counters = store.list(COUNTERS).await.unwrap().into_iter().collect();
            let listed = registry::list(&store).await.unwrap();
            let checked =
                |(name, record): &Listed| all_reserved(name, record.as_ref().unwrap(), &counters, now);
            listed.iter().filter_map(checked).collect()
        };
        assert_eq!(used_up().await, [""; 0]);
        let changed = set_maximum("n", 699).await.unwrap();
        assert!(
            changed.warnings[0].contains("up to 700, beyond the new maximum 699"),
            "{:?}",
            changed.warnings
        );
        assert_eq!(used_up().await.len(), 1);
        assert_eq!(set_maximum("n", 700).await.unwrap().warnings, [""; 0]);
        let texts = used_up().await;
        assert!(texts.len() == 1 && texts[0].contains("n up to its maximum, 700, is reserved"), "{texts:?}");
        let changed = set_maximum("daily", 500).await.unwrap();
        assert!(
            changed.warnings[0].contains("no more numbers until the next period"),
            "{:?}",
            changed.warnings
        );
        assert_eq!(used_up().await.len(), 2);
        set_maximum("n", 5000).await.unwrap();
        assert_eq!(used_up().await.len(), 1);
    }

    #[tokio::test]
    async fn reserved_numbers_follow_the_stripe() {
        let store = MemoryStore::new();
        let key = Key::new("segments/a").unwrap();
        let record =
            |toml: Fields| NamespaceRecord::new(toml.define(&Layout::TWITTER).unwrap(), ServedBy::EveryNode);
        let plain = record(Fields { scheme: "segment".to_owned(), ..Fields::default() });
        let striped =
            Fields { scheme: "segment".to_owned(), stripe: "2/3".parse().ok(), ..Fields::default() };
        assert_eq!(reserved_to(&CounterReader::Of(&store), "a", &plain).await.unwrap(), Some(0));
        let _ = store.compare_and_set(&key, Expected::Absent, b"10").await.unwrap();
        assert_eq!(reserved_to(&CounterReader::Of(&store), "a", &plain).await.unwrap(), Some(10));
        assert_eq!(reserved_to(&CounterReader::Of(&store), "a", &record(striped)).await.unwrap(), Some(29));
        let daily = Fields {
            scheme: "segment".to_owned(),
            reset: "daily".parse().ok(),
            text: "{date}-{number}".parse().ok(),
            ..Fields::default()
        };
        let daily = record(daily);
        assert_eq!(reserved_to(&CounterReader::Of(&store), "a", &daily).await.unwrap(), Some(0));
        // A counter of tomorrow too, so that midnight does not matter.
        let today = Period::at(Reset::Daily, WallClock.unix_ms());
        for (period, value) in [(today.previous().unwrap(), &b"5"[..]), (today, b"7"), (today.next(), b"7")] {
            let key = Key::new(format!("segments/a/{period}")).unwrap();
            let _ = store.compare_and_set(&key, Expected::Absent, value).await.unwrap();
        }
        assert_eq!(reserved_to(&CounterReader::Of(&store), "a", &daily).await.unwrap(), Some(7));
        let other = NamespaceRecord::new(Definition::snowflake(Layout::TWITTER), ServedBy::ConfiguredNodes);
        assert_eq!(reserved_to(&CounterReader::Of(&store), "a", &other).await.unwrap(), None);
    }

    fn settings(json: &str) -> Settings {
        serde_json::from_str(json).unwrap()
    }

    fn author() -> Author {
        Author { who: "ops".to_owned(), from: "10.0.0.9".to_owned(), rights: AuthorRights::All }
    }

    fn name(text: &str) -> NamespaceName {
        NamespaceName::new(text).unwrap()
    }

    async fn added(store: &MemoryStore, of: &str, json: &str) -> Result<Changed, AdminError> {
        let addition = Addition { settings: settings(json), ..Addition::default() };
        add(store, &author(), &name(of), &addition, |_| true).await
    }

    async fn set_to(store: &MemoryStore, of: &str, json: &str) -> Result<Changed, AdminError> {
        set(store, &author(), &name(of), &Change { settings: settings(json), ..Change::default() }).await
    }

    #[test]
    fn an_unknown_setting_names_the_nearest_one() {
        let settings = Settings::from_iter([("schema".to_owned(), Value::from("segment"))]);
        let error = define(settings).unwrap_err().to_string();
        assert!(error.contains("unknown field `schema`: did you mean `scheme`?"), "{error}");
    }

    /// Goal: at the limit of the store no author adds a namespace, resumes one, or pushes entries out of the
    /// audit log by trying. Doctor reports the limit. Method: a store that is filled without a check.
    #[tokio::test]
    async fn at_the_limit_of_the_store_nobody_adds_a_namespace() {
        use snowmint_cluster::namespace::MAX_NAMESPACES;
        let store = MemoryStore::new();
        added(&store, "gone", r#"{"scheme":"segment"}"#).await.unwrap();
        drop_namespace(&store, &author(), &name("gone"), Required::Any).await.unwrap();
        let definition = Definition::snowflake(Layout::TWITTER);
        let record = NamespaceRecord::new(definition, ServedBy::EveryNode);
        let write = async |count: std::ops::Range<usize>| {
            for nth in count {
                registry::put_back(&store, &name(&format!("n-{nth}")), &record).await.unwrap();
            }
        };
        write(1..MAX_NAMESPACES).await;
        let found = async || crate::doctor::room(&registry::list(&store).await.unwrap());
        assert_eq!(found().await, None);
        added(&store, "last", r#"{"scheme":"segment"}"#).await.unwrap();
        let entries = audit::list(&store, 1000).await.unwrap().len();
        for (of, json) in [("more", r#"{"scheme":"segment"}"#), ("gone", "{}")] {
            let full = added(&store, of, json).await.unwrap_err();
            assert_eq!(full.kind(), AdminErrorKind::TooManyNamespaces, "{full}");
            assert!(full.to_string().contains("the limit is 10000; drop one"), "{full}");
        }
        assert_eq!(audit::list(&store, 1000).await.unwrap().len(), entries);
        let full = found().await.unwrap();
        assert!(!full.ok && full.text.contains("the limit is 10,000: no more can be added"), "{full:?}");
        write(MAX_NAMESPACES..MAX_SERVED_NAMESPACES + 1).await;
        let beyond = found().await.unwrap();
        assert!(
            !beyond.ok && beyond.text.contains("11,001 namespaces") && beyond.text.contains("serves 11,000")
        );
    }

    /// Goal: a client can send a namespace in the form in which it reads it. Method: each scheme and most
    /// settings, written as JSON and read back.
    #[tokio::test]
    async fn a_namespace_is_read_in_the_form_in_which_it_was_added() {
        let store = MemoryStore::new();
        for (at, json) in [
            r#"{"scheme":"segment","mode":"direct","stripe":"1/2","start":5,"maximum":900,"size_min":3,"size_max":7}"#,
            r#"{"scheme":"segment","reset":"daily","text":"ORD-{date}-{number:6}"}"#,
            r#"{"scheme":"snowflake","layout":"sonyflake","rule":"reject","sequence_start":"rolling"}"#,
            r#"{"scheme":"ulid","text":"usr_{id}"}"#,
        ]
        .into_iter()
        .enumerate()
        {
            let added = added(&store, &format!("n{at}"), json).await.unwrap();
            let view = serde_json::to_string(&added.namespace).unwrap();
            assert_eq!(serde_json::from_str::<NamespaceView>(&view).unwrap(), added.namespace, "{view}");
            let Value::Object(mut sent) = serde_json::to_value(added.namespace.settings).unwrap() else {
                panic!("no object");
            };
            let wanted = settings(json);
            sent.retain(|name, _| name != LAYOUT && wanted.contains_key(name));
            assert!(sent.iter().all(|(name, value)| wanted[name] == *value), "{sent:?}");
        }
    }

    /// Goal: an error names the invalid setting, and suggests the nearest name for a misspelt one.
    #[tokio::test]
    async fn an_invalid_setting_is_named() {
        let store = MemoryStore::new();
        for (json, wanted) in [
            (r#"{"scheme":"segment","maximun":3}"#, "unknown setting `maximun`: did you mean `maximum`?"),
            (r#"{"scheme":"segment","maximum":"3"}"#, "maximum: invalid type: string \"3\", expected u64"),
            (r#"{"scheme":"segment","stripe":"3/2"}"#, "stripe: invalid stripe 3/2"),
            (r#"{"scheme":7}"#, "scheme: invalid type: integer `7`"),
            (r#"{"layout":"leaf","maximum":3}"#, "invalid setting `maximum` for scheme snowflake"),
            (r#"{"maximum":3}"#, "scheme: missing for the new namespace n: expected snowflake"),
            ("{}", "scheme: missing for the new namespace n"),
            (
                r#"{"layout":"time:18@1s worker:10 sequence:12 epoch:2019-01-01"}"#,
                "layout: `time:18@1s worker:10 sequence:12 epoch:2019-01-01T00:00:00.000Z` ended on 2019-01-04: choose",
            ),
        ] {
            let error = added(&store, "n", json).await.unwrap_err();
            assert!(error.to_string().starts_with(wanted), "{json}: {error}");
            assert_eq!(error.kind(), AdminErrorKind::BadRequest, "{error}");
        }
        assert!(list(&store).await.unwrap().namespaces.is_empty());
    }

    /// Goal: who adds a namespace learns when its ids begin and end. Method: layouts before, near the end of
    /// and within their time.
    #[test]
    fn the_time_of_a_new_layout_is_checked() {
        let check =
            |layout: &str| check_time(&name("n"), &layout.parse().unwrap(), 1_750_000_000_000).unwrap();
        assert_eq!(check("twitter"), None);
        let early = check("time:41@1ms sequence:22 epoch:2040-01-01").unwrap();
        assert!(early.starts_with("n: the layout begins on 2040-01-01: it has no ids before"), "{early}");
        let digit_too_many = check("time:41@1ms sequence:22 epoch:14200070400000").unwrap();
        assert!(digit_too_many.starts_with("n: the layout begins on 2419-12-"), "{digit_too_many}");
        let late = check("time:28@1s sequence:22 epoch:2018-01-01").unwrap();
        assert!(late.starts_with("n: the layout ends on 2026-"), "{late}");
    }

    /// Goal: a change keeps what it does not name, removes what is null, and is rejected if it could produce
    /// duplicates.
    #[tokio::test]
    async fn a_change_is_a_merge_patch() {
        let store = MemoryStore::new();
        added(&store, "n", r#"{"scheme":"segment","maximum":90,"text":"A{number}"}"#).await.unwrap();
        let wider = set_to(&store, "n", r#"{"maximum":900,"text":"A{number:6}"}"#).await.unwrap();
        assert_eq!(wider.namespace.summary(), "segment cached, all numbers, to 900, as A{number:6}");
        let open = set_to(&store, "n", r#"{"maximum":null}"#).await.unwrap();
        assert_eq!(open.namespace.settings.unwrap().maximum, None);
        for (json, kind, wanted) in [
            (r#"{"stripe":"1/2"}"#, "conflict", "another stripe or source could produce duplicates"),
            (r#"{"scheme":"ulid","maximum":null,"text":null}"#, "conflict", "another scheme"),
            // Also with settings that another scheme does not have.
            (r#"{"scheme":"snowflake"}"#, "conflict", "cannot become `snowflake`: another scheme"),
            (r#"{"scheme":"snowflakes"}"#, "bad-request", "unknown scheme `snowflakes`"),
            (r#"{"rule":"reject"}"#, "conflict", "invalid setting `rule` for scheme segment"),
            (r#"{"text":null,"reset":"daily"}"#, "bad-request", "add {date}"),
            ("{}", "bad-request", "nothing to change"),
            (r#"{"scheme":null}"#, "bad-request", "scheme"),
            (r#"{"sources":["1/1 sqlite:x"],"mode":"direct"}"#, "bad-request", "sources: changes alone"),
        ] {
            let error = set_to(&store, "n", json).await.unwrap_err();
            assert_eq!(error.kind().status().0, kind, "{json}: {error}");
            assert!(error.to_string().contains(wanted), "{json}: {error}");
        }
        let same = set_to(&store, "n", r#"{"scheme":"segment","maximum":80}"#).await.unwrap();
        assert_eq!(same.namespace.settings.unwrap().maximum, Some(80));
        let missing = set_to(&store, "m", r#"{"maximum":3}"#).await.unwrap_err();
        assert_eq!(missing.kind().status().0, "unknown-namespace");
    }

    /// Goal: a key that hides the ids of another namespace too is reported, whatever its name. Method:
    /// namespaces with and without a key, of which one was dropped.
    #[tokio::test]
    async fn a_hide_key_of_two_namespaces_is_reported() {
        let store = MemoryStore::new();
        for (of, key, check, wanted) in [
            ("a", "public", "0011223344556677", None),
            ("b", "public", "8899aabbccddeeff", None),
            ("c", "renamed", "0011223344556677", Some("also hides the ids of a:")),
            ("d", "public", "0011223344556677", Some("also hides the ids of a, c:")),
            ("e", "public", "0011223344556677", Some("also hides the ids of a, c, d:")),
            ("f", "public", "0011223344556677", Some("also hides the ids of a, c, d and 1 more:")),
        ] {
            let json = format!(r#"{{"scheme":"segment","hide":"{key}","hide_check":"{check}"}}"#);
            let warnings = added(&store, of, &json).await.unwrap().warnings;
            assert_eq!(warnings.len(), usize::from(wanted.is_some()), "{of}: {warnings:?}");
            assert!(wanted.is_none_or(|wanted| warnings[0].contains(wanted)), "{of}: {warnings:?}");
            if of == "a" {
                drop_namespace(&store, &author(), &name(of), Required::Any).await.unwrap();
            }
        }
        // A token for some namespaces learns the names of no others.
        let json = r#"{"scheme":"segment","hide":"public","hide_check":"0011223344556677"}"#;
        for (of, shown, wanted) in [
            ("h", "", "also hides the ids of 5 other namespaces:"),
            ("i", "c", "also hides the ids of c and 5 more:"),
        ] {
            let addition = Addition { settings: settings(json), ..Addition::default() };
            let added = add(&store, &author(), &name(of), &addition, |other| other == shown).await.unwrap();
            assert!(added.warnings[0].contains(wanted), "{:?}", added.warnings);
        }
        let plain = added(&store, "g", r#"{"scheme":"segment"}"#).await.unwrap();
        assert!(plain.warnings.is_empty(), "{:?}", plain.warnings);
    }

    /// Goal: the audit log shows what changed, including the owner and the description, and what it was
    /// before. Method: changes of one setting, with a long value and one whose characters must not reach a
    /// terminal.
    #[tokio::test]
    async fn the_log_shows_what_changed() {
        let store = MemoryStore::new();
        added(&store, "n", r#"{"scheme":"segment","owner":"team-web"}"#).await.unwrap();
        set_to(&store, "n", r#"{"owner":"evil-team"}"#).await.unwrap();
        set_to(&store, "n", r#"{"maximum":90,"owner":null}"#).await.unwrap();
        let long = Value::from(format!("a\u{202e}b\"{}", "x".repeat(250)));
        set_to(&store, "n", &format!(r#"{{"description":{long}}}"#)).await.unwrap();
        let mut details: Vec<_> =
            audit::list(&store, 9).await.unwrap().into_iter().map(AuditLine::from).collect();
        details.reverse();
        let details = details.into_iter().map(|line| match line {
            AuditLine::Entry { details, .. } => details,
            AuditLine::Unreadable { unreadable, .. } => unreadable,
        });
        let x = "x".repeat(SHOWN - 4);
        assert_eq!(
            details.collect::<Vec<_>>(),
            [
                "segment cached, all numbers, owner \"team-web\"".to_owned(),
                "segment cached, all numbers, owner \"evil-team\"; before: owner \"team-web\"".to_owned(),
                "segment cached, all numbers, to 90; before: no maximum, owner \"evil-team\"".to_owned(),
                format!(
                    "segment cached, all numbers, to 90, description \"a\\u{{202e}}b\\\"{x}…\"; before: no description"
                ),
            ]
        );
    }

    /// A store that counts the calls that read it.
    #[derive(Debug, Default)]
    struct Counting {
        store: MemoryStore,
        lists: AtomicUsize,
        loads: AtomicUsize,
    }

    #[async_trait]
    impl Store for Counting {
        async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
            self.loads.fetch_add(1, Ordering::Relaxed);
            self.store.load(key).await
        }

        async fn compare_and_set(&self, key: &Key, at: Expected, value: &[u8]) -> Result<Swap, StoreError> {
            self.store.compare_and_set(key, at, value).await
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            assert!(!["namespaces/", COUNTERS].contains(&prefix), "{prefix} is listed");
            self.lists.fetch_add(1, Ordering::Relaxed);
            self.store.list(prefix).await
        }

        async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
            self.store.add(key, count).await
        }

        fn describe(&self) -> String {
            self.store.describe()
        }
    }

    /// Goal: to show, change or drop one namespace costs no more in a store of thousands. Method: a store
    /// that counts the calls, and lists no namespaces.
    #[tokio::test]
    async fn one_namespace_is_read_without_the_others() {
        let store = Counting::default();
        added(&store.store, "n", r#"{"scheme":"segment"}"#).await.unwrap();
        let shown = get(&store, &name("n")).await.unwrap();
        assert_eq!(shown.reserved_to, Some(0));
        let calls = [&store.loads, &store.lists].map(|it| it.load(Ordering::Relaxed));
        assert_eq!(calls, [2, 0], "its record and its counter");
        let missing = get(&store, &name("m")).await.unwrap_err();
        assert_eq!(missing.kind(), AdminErrorKind::UnknownNamespace, "{missing}");
        let change = Change { settings: settings(r#"{"maximum":9}"#), ..Change::default() };
        set(&store, &author(), &name("n"), &change).await.unwrap();
        drop_namespace(&store, &author(), &name("n"), Required::Any).await.unwrap();
        assert_eq!(get(&store, &name("n")).await.unwrap().state, NamespaceState::Dropped);
    }

    /// Goal: of two changes that require the same edition, one is rejected.
    #[tokio::test]
    async fn a_required_edition_rejects_the_second_change() {
        let store = MemoryStore::new();
        added(&store, "n", r#"{"scheme":"segment"}"#).await.unwrap();
        let NamespaceView { edition, .. } = get(&store, &name("n")).await.unwrap();
        assert!(edition.is_some());
        let to = |maximum: u64| Change {
            settings: Settings::from_iter([("maximum".to_owned(), maximum.into())]),
            required: Required::Edition(edition.unwrap()),
            ..Change::default()
        };
        set(&store, &author(), &name("n"), &to(5)).await.unwrap();
        let error = set(&store, &author(), &name("n"), &to(6)).await.unwrap_err();
        assert_eq!(error.kind().status().0, "changed", "{error}");
        let view = get(&store, &name("n")).await.unwrap();
        assert_eq!(view.settings.unwrap().maximum, Some(5));
    }

    /// Goal: a dropped namespace is resumed with its settings, and starts over only if the request says so.
    #[tokio::test]
    async fn a_dropped_namespace_is_resumed_or_starts_over() {
        let store = MemoryStore::new();
        added(&store, "n", r#"{"scheme":"segment","maximum":90}"#).await.unwrap();
        let exists = added(&store, "n", r#"{"maximum":80}"#).await.unwrap_err();
        assert!(exists.to_string().contains("already exists"), "{exists}");
        let dropped = drop_namespace(&store, &author(), &name("n"), Required::Any).await.unwrap();
        assert_eq!(dropped.namespace.state, NamespaceState::Dropped);
        let pinned = added(&store, "n", r#"{"stripe":"1/2"}"#).await.unwrap_err();
        assert!(
            pinned.to_string().starts_with("scheme: missing: `stripe`, `sources`, `reset` and `hide`"),
            "{pinned}"
        );
        let other = added(&store, "n", r#"{"scheme":"segment","stripe":"1/2"}"#).await.unwrap_err();
        assert!(other.to_string().contains("`start_over` repeats earlier ids"), "{other}");
        let resumed = added(&store, "n", "{}").await.unwrap();
        assert_eq!((resumed.namespace.state, resumed.resumed_above), (NamespaceState::Served, Some(0)));
        assert_eq!(resumed.namespace.settings.unwrap().maximum, Some(90));
        drop_namespace(&store, &author(), &name("n"), Required::Any).await.unwrap();
        let over = Addition { start_over: Some(StartOver::default()), ..Addition::default() };
        let over = add(&store, &author(), &name("n"), &over, |_| true).await.unwrap();
        assert!(over.warnings[0].contains("n starts over"), "{:?}", over.warnings);
    }

    /// Goal: an addition that must be new says that the namespace exists, not that it was changed.
    #[tokio::test]
    async fn an_addition_that_must_be_new_says_that_the_name_exists() {
        let store = MemoryStore::new();
        let new = |name: NamespaceName| {
            let settings = settings(r#"{"scheme":"segment"}"#);
            let (store, required) = (&store, Required::Absent);
            async move {
                add(store, &author(), &name, &Addition { settings, required, ..Addition::default() }, |_| {
                    true
                })
                .await
            }
        };
        new(name("n")).await.unwrap();
        for words in
            ["namespace n already exists: nothing", "namespace n already exists as a dropped one: nothing"]
        {
            let error = new(name("n")).await.unwrap_err();
            assert!(error.to_string().starts_with(words), "{error}");
            assert_eq!(error.kind(), AdminErrorKind::Changed);
            drop_namespace(&store, &author(), &name("n"), Required::Any).await.ok();
        }
    }

    /// Goal: requests for a namespace that does not exist do not push changes out of the audit log. Method:
    /// changes and drops of one that is missing, dropped or unreadable.
    #[tokio::test]
    async fn a_change_of_a_namespace_that_is_not_there_is_not_in_the_log() {
        let store = MemoryStore::new();
        added(&store, "dropped", r#"{"scheme":"segment"}"#).await.unwrap();
        drop_namespace(&store, &author(), &name("dropped"), Required::Any).await.unwrap();
        let key = Key::new("namespaces/damaged").unwrap();
        let _ = store.compare_and_set(&key, Expected::Absent, b"{").await.unwrap();
        let before = audit::list(&store, 99).await.unwrap();
        assert_eq!(before.len(), 2);
        for (of, kind, words) in [
            ("missing", "unknown-namespace", "unknown namespace missing"),
            ("dropped", "conflict", "namespace dropped was dropped on"),
            ("damaged", "unreadable", "invalid record of namespace damaged"),
        ] {
            for error in [
                set_to(&store, of, r#"{"maximum":3}"#).await.unwrap_err(),
                set_to(&store, of, r#"{"sources":["1/1 sqlite:x"]}"#).await.unwrap_err(),
                drop_namespace(&store, &author(), &name(of), Required::Any).await.unwrap_err(),
            ] {
                assert_eq!(error.kind().status().0, kind, "{of}: {error}");
                assert!(error.to_string().starts_with(words), "{of}: {error}");
            }
        }
        assert_eq!(audit::list(&store, 99).await.unwrap(), before);
    }
}
