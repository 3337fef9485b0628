//! The record of a namespace in the store: `namespaces/<name>`, with its definition as JSON.
//!
//! A dropped namespace keeps its record, so that its numbers do not restart by accident. A record also
//! remembers the numbers that each source returned, so that two sources are compared even if no node ever
//! uses both.
//!
//! The definition is written as settings: a flat list in flags, in records and in a TOML file of namespaces.
//! A setting of another scheme is rejected when the settings are read.

use std::fmt::{self, Display};
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use snowmint::error::Snippet;
use snowmint::utc::Utc;
use snowmint::{Layout, Rule, Start, utc};
use snowmint_store::{Key, KeyError, MAX_NUMBER, Surveyed};

use super::NamespaceName;
use super::counter_source::CounterSource;
use super::definition::{
    About, Definition, DefinitionError, NumberSource, Scheme, SegmentScheme, SizeBounds, TextChangeError,
};
use super::hide::{Hide, HideCheck, HideKeyName};
use super::text_form::TextForm;
use super::time_zone::TimeZone;
use crate::segment::{Mode, Reset, Stripe};

/// The prefix of the keys of all records.
pub(super) const PREFIX: &str = "namespaces/";
const EVERYWHERE: &str = "everywhere";
const DROPPED: &str = "dropped";
const EARLIER_TEXTS: &str = "earlier_texts";
const NUMBERS: &str = "numbers";
const EDITION: &str = "edition";
const PAST_SERIES: &str = "past_series";

/// A namespace as the store holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceRecord {
    /// Its definition.
    pub definition: Definition,
    /// Which nodes serve it.
    pub served_by: ServedBy,
    /// When it was dropped, in unix milliseconds; `None` if it was not.
    pub dropped_unix_ms: Option<u64>,
    /// Its earlier text forms, in which existing ids are written; `None` for ids without a text form.
    pub earlier_texts: Vec<Option<TextForm>>,
    /// The numbers of each source, in order, as they were first found. `None` for a source that was not used
    /// yet, and for a source with a stripe.
    pub numbers: Vec<Option<Numbers>>,
    /// How many times the record was written: of two records, the one with the greater edition is newer.
    /// Unlike the store's revision, it survives a restore of the store.
    pub edition: u64,
    /// The last series of numbers before this namespace started over; 0 if there was none. Its counter is
    /// still in the store, so numbers never return to it.
    pub past_series: u32,
}

/// Which nodes serve a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedBy {
    /// The nodes that name it in a flag or a file. The record only pins its definition.
    ConfiguredNodes,
    /// Every node of the store, because the namespace was added to the store.
    EveryNode,
}

impl NamespaceRecord {
    /// Returns the first record of a namespace.
    pub const fn new(definition: Definition, served_by: ServedBy) -> Self {
        Self {
            definition,
            served_by,
            dropped_unix_ms: None,
            earlier_texts: Vec::new(),
            numbers: Vec::new(),
            edition: 1,
            past_series: 0,
        }
    }

    /// Returns the last series of numbers under this name; 0 if there was none.
    pub(super) fn last_series(&self) -> u32 {
        match &self.definition.scheme {
            Scheme::Segment(segment) => segment.series.max(self.past_series),
            _ => self.past_series,
        }
    }

    /// Checks that ids may be written in the text form of `wanted` from now on.
    ///
    /// # Errors
    ///
    /// [`TextChangeError`] if a new text could repeat one of the current form or of an earlier one.
    pub fn may_be_written_as(
        &self,
        wanted: &Definition,
        name: &NamespaceName,
    ) -> Result<(), TextChangeError> {
        let text = wanted.text.as_ref();
        self.definition.may_be_written_as(text, name)?;
        for earlier in &self.earlier_texts {
            let earlier = Definition { text: earlier.clone(), ..self.definition.clone() };
            earlier.may_be_written_as(text, name)?;
        }
        Ok(())
    }

    /// Returns the record with another definition, and remembers the current text form. The caller has
    /// checked the change.
    ///
    /// # Errors
    ///
    /// As for [`may_be_written_as`](Self::may_be_written_as).
    pub(super) fn redefined(self, wanted: Definition, name: &NamespaceName) -> Result<Self, TextChangeError> {
        self.may_be_written_as(&wanted, name)?;
        let text = self.definition.text.clone();
        let mut record = Self { definition: wanted, ..self };
        record.remember(text);
        Ok(record)
    }

    /// Remembers a text form that ids were written in.
    fn remember(&mut self, text: Option<TextForm>) {
        if self.definition.text != text && !self.earlier_texts.contains(&text) {
            self.earlier_texts.push(text);
        }
    }

    /// Returns whether this record is older than one that was `seen` before, because the store went back.
    pub const fn is_older_than(&self, seen: &Self) -> bool {
        self.edition < seen.edition
    }

    /// Returns whether one of the two started over, with other ids or with numbers from the start.
    fn is_another_than(&self, seen: &Self) -> bool {
        match (&self.definition.scheme, &seen.definition.scheme) {
            (Scheme::Segment(one), Scheme::Segment(other)) => one.series != other.series,
            (one, other) => one.differs(other).is_some(),
        }
    }

    /// Returns the record to write so that the store's record is not older than one that was `seen` before,
    /// and keeps its text forms; `None` if the store's record is already up to date.
    pub fn brought_up_to(&self, seen: &Self) -> Option<Self> {
        if self.is_another_than(seen) {
            // A namespace that started over has its own texts, and the greater edition. Otherwise the store
            // went back.
            return self.is_older_than(seen).then(|| seen.clone());
        }
        let (newer, older) = if seen.edition > self.edition { (seen, self) } else { (self, seen) };
        let mut record = newer.clone();
        for text in older.earlier_texts.iter().chain([&older.definition.text]) {
            record.remember(text.clone());
        }
        // The numbers that were first found of a source stay. Nodes already compare with the claims in the
        // store, so a claim that was seen is added only if it overlaps none of them.
        record.numbers.clone_from(&self.numbers);
        record.numbers.resize(self.numbers.len().max(seen.numbers.len()), None);
        for (nth, seen) in seen.numbers.iter().enumerate() {
            let Some(seen) = *seen else { continue };
            if !record.numbers.iter().flatten().any(|kept| kept.overlaps(seen)) {
                record.numbers[nth].get_or_insert(seen);
            }
        }
        if older.served_by == ServedBy::EveryNode {
            record.served_by = ServedBy::EveryNode;
        }
        (record != *self).then_some(record)
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut value = serde_json::to_value(Fields::from(&self.definition))?;
        if let Value::Object(fields) = &mut value {
            let (texts, numbers) = (&self.earlier_texts, &self.numbers);
            let own = [
                (EVERYWHERE, (self.served_by == ServedBy::EveryNode).then_some(Value::Bool(true))),
                (EARLIER_TEXTS, (!texts.is_empty()).then(|| serde_json::to_value(texts)).transpose()?),
                (NUMBERS, (!numbers.is_empty()).then(|| serde_json::to_value(numbers)).transpose()?),
                (EDITION, (self.edition > 1).then(|| Value::from(self.edition))),
                (PAST_SERIES, (self.past_series > 0).then(|| Value::from(self.past_series))),
                (DROPPED, self.dropped_unix_ms.map(|unix_ms| Value::String(Utc(unix_ms).to_string()))),
            ];
            fields.extend(own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        }
        serde_json::to_vec(&value)
    }

    /// Parses a record, including one of a version that only pinned layouts. Returns the reason if it is
    /// invalid.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let mut fields: Map<String, Value> =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let served_by = match fields.remove(EVERYWHERE) {
            Some(Value::Bool(true)) => ServedBy::EveryNode,
            _ => ServedBy::ConfiguredNodes,
        };
        let dropped_unix_ms = match fields.remove(DROPPED) {
            None => None,
            Some(when) => {
                Some(utc::parse(when.as_str().unwrap_or_default()).map_err(|error| error.to_string())?)
            }
        };
        let earlier_texts = take(&mut fields, EARLIER_TEXTS)?.unwrap_or_default();
        let numbers = take(&mut fields, NUMBERS)?.unwrap_or_default();
        let edition = match fields.remove(EDITION) {
            None => 1,
            Some(edition) => {
                edition.as_u64().ok_or_else(|| format!("invalid edition {edition}: expected a number"))?
            }
        };
        let past_series = take(&mut fields, PAST_SERIES);
        let past_series = past_series.map_err(|error| format!("invalid past_series: {error}"))?.unwrap_or(0);
        let snowflake = fields.get("scheme").and_then(Value::as_str) == Some("snowflake");
        if snowflake && !fields.contains_key("layout") {
            return Err("missing layout: a snowflake record always has one".to_owned());
        }
        let fields = Fields::deserialize(Value::Object(fields)).map_err(|error| error.to_string())?;
        // A snowflake record always has a layout, so this one is never used.
        let definition = fields.define_pinned(&Layout::TWITTER).map_err(|error| error.to_string())?;
        definition.check_hide().map_err(|error| error.to_string())?;
        Ok(Self { definition, served_by, dropped_unix_ms, earlier_texts, numbers, edition, past_series })
    }
}

/// Removes and reads a field of a record.
fn take<T: DeserializeOwned>(fields: &mut Map<String, Value>, name: &str) -> Result<Option<T>, String> {
    fields.remove(name).map(serde_json::from_value).transpose().map_err(|error| error.to_string())
}

pub(super) fn key(name: &NamespaceName) -> Result<Key, KeyError> {
    Key::new(format!("{PREFIX}{name}"))
}

/// The numbers that a source returns: those that are `remainder` modulo `delta`. 0 modulo 1 is every number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "Unchecked")]
pub struct Numbers {
    remainder: u64,
    delta: NonZeroU64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    remainder: u64,
    delta: NonZeroU64,
}

impl TryFrom<Unchecked> for Numbers {
    type Error = String;

    fn try_from(Unchecked { remainder, delta }: Unchecked) -> Result<Self, String> {
        if remainder < delta.get() {
            return Ok(Self { remainder, delta });
        }
        Err(format!("invalid remainder {remainder}: expected 0 to {} for delta {delta}", delta.get() - 1))
    }
}

/// Why a source is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumbersError {
    /// Another source of the namespace returns some of the same numbers.
    #[error(
        "sources {one} (numbers that are {one_numbers}) and {other} ({other_numbers}) overlap, so numbers would be given twice: \
         configure disjoint numbers (remainder and delta of TinyID, auto_increment_offset and auto_increment_increment of \
         ticket servers), or remove one of them"
    )]
    Overlap {
        /// The first source.
        one: String,
        /// Its numbers.
        one_numbers: Numbers,
        /// The source that is not used.
        other: String,
        /// Its numbers.
        other_numbers: Numbers,
    },
    /// The source returns other numbers than when it was first used.
    #[error(
        "source {source_text} returns numbers that are {found}, and returned those that are {recorded} when it was first used: \
         another source may return these; restore its remainder and delta, or auto_increment_offset and \
         auto_increment_increment"
    )]
    Changed {
        /// The source.
        source_text: String,
        /// The numbers in the record.
        recorded: Numbers,
        /// The numbers it returns now.
        found: Numbers,
    },
}

impl Numbers {
    /// Returns the numbers that a survey found at a source.
    pub const fn of(found: &Surveyed) -> Self {
        Self { remainder: found.remainder % found.delta.get(), delta: found.delta }
    }

    /// Returns the same numbers as a survey.
    pub const fn surveyed(self) -> Surveyed {
        Surveyed::numbers(self.remainder, self.delta)
    }

    /// Returns whether some number is in both sets.
    pub fn overlaps(self, other: Self) -> bool {
        self.surveyed().overlaps(&other.surveyed())
    }

    /// Returns whether this set contains the other one.
    pub const fn contains(self, other: Self) -> bool {
        other.delta.get().is_multiple_of(self.delta.get())
            && other.remainder % self.delta.get() == self.remainder
    }
}

impl Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} modulo {}", self.remainder, self.delta)
    }
}

/// A setting of a namespace, as [`Fields::SETTINGS`] lists it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Setting {
    /// Its name in JSON, files and records.
    pub name: &'static str,
    /// What it is: the help of its flag.
    pub help: &'static str,
    /// The name of its flag's value; `None` if it has no flag.
    pub value_name: Option<&'static str>,
    /// Reads the text of its flag; `None` if JSON has a number or a list.
    pub text: Option<ReadText>,
    /// The only scheme that has it.
    pub scheme: Option<&'static str>,
    /// Whether an operator can change it.
    pub kind: SettingKind,
}

/// Reads the text of a flag. Returns it as JSON has it, or what is wrong.
pub type ReadText = fn(&str) -> Result<String, String>;

/// Whether operators can change a setting of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingKind {
    /// Only a new namespace can have it: a change could produce duplicates.
    Fixed,
    /// It can change.
    Changeable,
    /// Operations set it.
    Internal,
}

impl Setting {
    /// Returns the name of its flag without the dashes in front.
    pub fn flag(&self) -> String {
        // One flag for each source.
        if self.name == "sources" { "source".to_owned() } else { self.name.replace('_', "-") }
    }
}

/// Declares [`Fields`] and its table. A new setting is a row in the list below, and is read in
/// [`Fields::define_pinned`] and written in `From<&Definition>`.
///
/// A row has the help of the flag, the kind, the name of the flag's value, the name and the type. `as "text"`
/// is for a setting that is serialized as text; the word in brackets is the only scheme that has the setting.
macro_rules! fields {
    (@option) => { None };
    (@option $($some:tt)+) => { Some($($some)+) };
    (@text $type:ty) => { None };
    (@text $type:ty, $text:literal) => { Some(text::canonical::<$type>) };
    (
        $(#[doc = $scheme_doc:literal])* $scheme_value:literal scheme;
        $($(#[doc = $doc:literal])* $kind:ident $($value:literal)? $name:ident: $type:ty
            $(as $text:literal)? $([$scheme:ident])?;)*
    ) => {
        /// The settings of a namespace in a file, a record or flags.
        ///
        /// # Examples
        ///
        /// ```
        /// use snowmint::Layout;
        /// use snowmint_cluster::namespace::Fields;
        /// let fields = Fields { scheme: "segment".to_owned(), start: Some(1000), ..Fields::default() };
        /// assert_eq!(fields.define(&Layout::TWITTER)?.to_string(), "segment cached, all numbers, from 1000");
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Fields {
            $(#[doc = $scheme_doc])*
            pub scheme: String,
            $(
                $(#[doc = $doc])*
                #[serde(default, $(with = $text,)? skip_serializing_if = "Option::is_none")]
                pub $name: Option<$type>,
            )*
        }

        impl Fields {
            /// Every setting, in the order of the fields. Requests, flags, messages and checks of the
            /// documentation draw on it.
            pub const SETTINGS: &[Setting] = &[
                Setting {
                    name: "scheme",
                    help: concat!($($scheme_doc),*),
                    value_name: Some($scheme_value),
                    text: Some(text::canonical::<String>),
                    scheme: None,
                    kind: SettingKind::Fixed,
                },
                $(Setting {
                    name: stringify!($name),
                    help: concat!($($doc),*),
                    value_name: fields!(@option $($value)?),
                    text: fields!(@text $type $(, $text)?),
                    scheme: fields!(@option $(stringify!($scheme))?),
                    kind: SettingKind::$kind,
                },)*
            ];

            /// Refuses the first setting that is given and belongs to another scheme.
            fn refuse_foreign(&self, scheme: &'static str) -> Result<(), DefinitionError> {
                $($(
                    if self.$name.is_some() && scheme != stringify!($scheme) {
                        let (setting, why) = (stringify!($name), concat!("it belongs to ", stringify!($scheme)));
                        return Err(DefinitionError::Foreign { setting, scheme, why });
                    }
                )?)*
                Ok(())
            }
        }
    };
}

fields! {
    /// Scheme: snowflake (implied by --layout), segment, uuid7, uuid4, ulid or objectid
    "SCHEME" scheme;
    /// Layout (snowflake): a name (see `snowmint layouts`) or its fields (see `snowmint layout --help`)
    Fixed "SPEC|NAME" layout: Layout as "text" [snowflake];
    /// Rule for a clock that goes back (snowflake); default: the rule of the service
    Changeable "RULE" rule: Rule as "text" [snowflake];
    /// Start of the sequence in each new tick (snowflake): zero, random, random(N) or rolling (see `snowmint
    /// serve --help`). With zero, rare ids are even. Default: the start of the service
    Changeable "START" sequence_start: Start as "text" [snowflake];
    /// Mode (segment): cached (from memory: fast, increasing on each node) or direct (from the store each
    /// time: increasing over all nodes)
    Changeable "MODE" mode: Mode as "text" [segment];
    /// Stripe (segment, in the store of the service): only numbers that are I modulo N, such as 1/2
    Fixed "I/N" stripe: Stripe as "text" [segment];
    /// Source of numbers (segment) instead of the store of the service: a stripe and the URL of a store, or
    /// the URL of a counter of another system, without a password (login=NAME names a login of each node);
    /// once for each source
    Fixed "SOURCE" sources: Vec<CounterSource> [segment];
    /// Smallest number (segment); raises a counter below it
    Changeable "N" start: u64 [segment];
    /// Largest number (segment)
    Changeable "N" maximum: u64 [segment];
    /// Reset period (segment): daily, monthly or yearly, in the time zone. The text form must contain the
    /// date
    Fixed "PERIOD" reset: Reset as "text" [segment];
    /// Smallest and first size of a reservation (segment)
    Changeable "N" size_min: u64 [segment];
    /// Largest size of a reservation (segment)
    Changeable "N" size_max: u64 [segment];
    /// Series of numbers (segment): one more each time the namespace started over
    Internal series: u32 [segment];
    /// Write ids in this form: literal text around {number}, {number:6}, {hex}, {base32}, {base36}, {base58},
    /// {base62}, {alphabet=CHARS}, or {id} (of uuid7, uuid4, ulid, objectid), with {date}, {yyyy}, {mm}, {dd}
    Changeable "TEMPLATE" text: TextForm as "text";
    /// Time zone of {date} in --text and of --reset: a name such as Asia/Shanghai, from the time zone
    /// database of the system (package tzdata), or UTC, the default
    Changeable "ZONE" time_zone: TimeZone as "text";
    /// Name of the key that hides the ids (snowflake, segment; see `snowmint hide-key --help`): they reveal
    /// neither time nor count, and are in no order. Fixed for good
    Fixed "KEY" hide: HideKeyName as "text";
    /// Check value of that key; records have it, and a file may have it
    Fixed hide_check: HideCheck as "text";
    /// What the namespace is for, at most 256 characters; an empty text removes it
    Changeable "TEXT" description: String as "text";
    /// Team or person to ask, at most 128 characters; an empty text removes it
    Changeable "TEXT" owner: String as "text";
}

impl Fields {
    /// Returns the definition; `layout` is for a snowflake namespace without one.
    ///
    /// # Errors
    ///
    /// [`DefinitionError`] with the setting that is invalid or does not fit the others.
    pub fn define(self, layout: &Layout) -> Result<Definition, DefinitionError> {
        let definition = self.define_pinned(layout)?;
        definition.time_zone.check()?;
        if let Scheme::Segment(segment) = &definition.scheme {
            segment.sources_disjoint(None)?;
        }
        Ok(definition)
    }

    /// Returns the definition of a record, as [`define`](Self::define) does. It accepts sources that overlap,
    /// and a time zone without rules here, so that the namespace can be listed, dropped and inspected; no
    /// node serves it.
    ///
    /// # Errors
    ///
    /// [`DefinitionError`] with the setting that is invalid or does not fit the others.
    pub fn define_pinned(self, layout: &Layout) -> Result<Definition, DefinitionError> {
        let hide = match (&self.hide, self.hide_check) {
            (Some(key), check) => Some(Hide { key: key.clone(), check }),
            (None, Some(_)) => {
                return Err(DefinitionError::Hide("`hide_check` needs `hide`, the name of the key"));
            }
            (None, None) => None,
        };
        let scheme = match self.scheme.as_str() {
            "snowflake" => {
                self.refuse_foreign("snowflake")?;
                Scheme::Snowflake {
                    layout: self.layout.unwrap_or(*layout),
                    rule: self.rule,
                    sequence_start: self.sequence_start,
                    hide,
                }
            }
            "segment" => {
                self.refuse_foreign("segment")?;
                Scheme::Segment(SegmentScheme { hide, ..self.segment()? })
            }
            other => {
                let wide: snowmint::scheme::Scheme =
                    other.parse().map_err(|_| DefinitionError::NoScheme { scheme: Snippet::of(other) })?;
                let scheme = wide.name();
                self.refuse_foreign(scheme)?;
                if hide.is_some() {
                    let why = "its ids are wider than the numbers that can be hidden";
                    return Err(DefinitionError::Foreign { setting: "hide", scheme, why });
                }
                Scheme::Wide(wide)
            }
        };
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let about = About { description: given(self.description), owner: given(self.owner) };
        let time_zone = self.time_zone.unwrap_or_default();
        Definition { scheme, text: self.text, time_zone, about }.checked()
    }

    fn segment(&self) -> Result<SegmentScheme, DefinitionError> {
        let source = match (&self.sources, self.stripe) {
            (Some(_), Some(_)) => {
                let why = "each of `sources` has a stripe of its own: omit `stripe`";
                return Err(DefinitionError::Sources(why.to_owned()));
            }
            (Some(sources), None) => NumberSource::Other(sources.clone()),
            (None, stripe) => NumberSource::Own(stripe.unwrap_or(Stripe::WHOLE)),
        };
        Ok(SegmentScheme {
            mode: self.mode.unwrap_or_default(),
            source,
            start: self.start.unwrap_or(1),
            maximum: self.maximum.unwrap_or(MAX_NUMBER),
            reset: self.reset,
            size: SizeBounds { min: self.size_min, max: self.size_max },
            series: self.series.unwrap_or(1),
            hide: None,
        })
    }
}

impl From<&Definition> for Fields {
    fn from(definition: &Definition) -> Self {
        let mut fields = Self {
            scheme: definition.scheme.name().to_owned(),
            text: definition.text.clone(),
            time_zone: Some(definition.time_zone.clone()).filter(|zone| *zone != TimeZone::UTC),
            description: definition.about.description.clone(),
            owner: definition.about.owner.clone(),
            ..Self::default()
        };
        if let Some(Hide { key, check }) = definition.scheme.hide() {
            fields.hide = Some(key.clone());
            fields.hide_check = *check;
        }
        match &definition.scheme {
            Scheme::Wide(_) => {}
            Scheme::Snowflake { layout, rule, sequence_start, hide: _ } => {
                fields.layout = Some(*layout);
                fields.rule = *rule;
                fields.sequence_start = *sequence_start;
            }
            Scheme::Segment(segment) => fields.set_segment(segment),
        }
        fields
    }
}

impl Fields {
    /// Sets only what differs from the defaults.
    fn set_segment(&mut self, segment: &SegmentScheme) {
        let plain = SegmentScheme::new();
        self.mode = (segment.mode != plain.mode).then_some(segment.mode);
        match &segment.source {
            NumberSource::Own(Stripe::WHOLE) => {}
            NumberSource::Own(stripe) => self.stripe = Some(*stripe),
            NumberSource::Other(sources) => self.sources = Some(sources.clone()),
        }
        self.start = (segment.start != plain.start).then_some(segment.start);
        self.maximum = (segment.maximum != plain.maximum).then_some(segment.maximum);
        self.reset = segment.reset;
        self.size_min = segment.size.min;
        self.size_max = segment.size.max;
        self.series = (segment.series != plain.series).then_some(segment.series);
    }
}

/// Implements serde for a type by its text.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

serde_as_text!(CounterSource);
serde_as_text!(TextForm);

/// Optional values that are serialized as text.
mod text {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
    pub(super) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Some).map_err(serde::de::Error::custom)
    }

    /// Returns a text as it is serialized.
    pub(super) fn canonical<T: FromStr<Err: Display> + Display>(text: &str) -> Result<String, String> {
        text.parse::<T>().map(|value| value.to_string()).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_back() {
        for toml in [
            "scheme = 'snowflake'\nrule = 'reject'",
            "scheme = 'snowflake'\nsequence_start = 'random(100)'",
            "scheme = 'segment'",
            "scheme = 'segment'\nmode = 'direct'\nstripe = '2/3'\nstart = 5\nmaximum = 500\nseries = 3\nsize_min = 4\nsize_max = 9",
            "scheme = 'segment'\nsources = ['1/2 mysql://a/i', '2/2 mysql://b/i']\nreset = 'yearly'\ntext = '{yyyy}-{base62:4}'",
            "scheme = 'segment'\nreset = 'daily'\ntext = '{date}-{number}'\ntime_zone = 'Asia/Shanghai'",
            "scheme = 'snowflake'\ntext = '{date}-{base62}'\ntime_zone = 'America/New_York'",
            "scheme = 'segment'\nhide = 'public'\nhide_check = '0011223344556677'",
            "scheme = 'snowflake'\nhide = 'a:b'\nhide_check = 'ff11223344556677'\ntext = 'T{base62}'",
            "scheme = 'ulid'\ntext = 'usr_{id}'\ndescription = 'users of the \"shop\"'\nowner = 'team-web'",
        ] {
            let definition = toml::from_str::<Fields>(toml).unwrap().define(&Layout::TWITTER).unwrap();
            for (served_by, dropped_unix_ms) in
                [(ServedBy::ConfiguredNodes, None), (ServedBy::EveryNode, Some(1_795_219_200_000))]
            {
                let earlier_texts = vec![None, "A{number}".parse().ok()];
                let numbers = vec![None, serde_json::from_str(r#"{"remainder":1,"delta":2}"#).unwrap()];
                let definition = definition.clone();
                let edition = 7;
                let record = NamespaceRecord {
                    definition,
                    served_by,
                    dropped_unix_ms,
                    earlier_texts,
                    numbers,
                    edition,
                    past_series: 2,
                };
                assert_eq!(NamespaceRecord::from_bytes(&record.to_bytes().unwrap()), Ok(record), "{toml}");
            }
        }
    }

    /// Goal: records of earlier versions stay readable, and are written in the same way.
    #[test]
    fn a_pin_of_an_earlier_version_is_read() {
        let pin = br#"{"layout":"time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z","scheme":"snowflake"}"#;
        let record = NamespaceRecord::from_bytes(pin).unwrap();
        assert_eq!(record.definition, Definition::snowflake(Layout::TWITTER));
        assert_eq!((record.served_by, record.dropped_unix_ms), (ServedBy::ConfiguredNodes, None));
        let written: Value = serde_json::from_slice(&record.to_bytes().unwrap()).unwrap();
        assert_eq!(written, serde_json::from_slice::<Value>(pin).unwrap());
    }

    /// Goal: no version reads dates in the wrong zone. Method: a record in a zone has a field that versions
    /// without zones reject as unknown; a record in UTC has none, as before; a machine without the rules of
    /// the zone reads it, to list it.
    #[test]
    fn a_time_zone_is_in_the_record_unless_it_is_utc() {
        let record = |zone: &str| {
            let toml = format!("scheme = 'segment'\ntext = '{{date}}{{number}}'\ntime_zone = '{zone}'");
            let definition =
                toml::from_str::<Fields>(&toml).unwrap().define_pinned(&Layout::TWITTER).unwrap();
            NamespaceRecord::new(definition, ServedBy::EveryNode)
        };
        for (zone, written) in
            [("UTC", None), ("Asia/Shanghai", Some("Asia/Shanghai")), ("Test/None", Some("Test/None"))]
        {
            let bytes = record(zone).to_bytes().unwrap();
            let json: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(json.get("time_zone").and_then(Value::as_str), written);
            assert_eq!(NamespaceRecord::from_bytes(&bytes).unwrap(), record(zone));
        }
        assert!(record("Test/None").definition.time_zone.check().is_err());
    }

    #[test]
    fn an_invalid_record_is_rejected_with_the_reason() {
        for (bad, words) in [
            ("", "EOF"),
            ("[]", "invalid type"),
            (r#"{"scheme":"snowflake"}"#, "missing layout"),
            (r#"{"scheme":"later"}"#, "unknown scheme `later`"),
            (r#"{"scheme":"segment","shuffle":"x"}"#, "unknown field `shuffle`"),
            (r#"{"scheme":"segment","stripe":"3/2"}"#, "invalid stripe 3/2"),
            (r#"{"scheme":"segment","sequence_start":"zero"}"#, "for scheme segment"),
            (r#"{"scheme":"segment","dropped":"yesterday"}"#, "invalid instant"),
            (r#"{"scheme":"segment","numbers":[{"remainder":2,"delta":2}]}"#, "invalid remainder 2"),
            (r#"{"scheme":"segment","edition":"2"}"#, "invalid edition"),
            (r#"{"scheme":"segment","time_zone":"../x"}"#, "invalid time zone `../x`"),
            (r#"{"scheme":"segment","hide":"public"}"#, "hide key public was not checked"),
            (r#"{"scheme":"segment","hide":"public","hide_check":"7"}"#, "invalid check value `7`"),
        ] {
            let error = NamespaceRecord::from_bytes(bad.as_bytes()).unwrap_err();
            assert!(error.contains(words), "{bad}: {error}");
        }
    }

    /// Goal: whichever record the store has, what a node saw before is kept, and a newer record stays.
    /// Method: two records of one namespace, in each order.
    #[test]
    fn a_record_is_brought_up_to_what_was_seen() {
        let defined = |toml: &str| toml::from_str::<Fields>(toml).unwrap().define(&Layout::TWITTER).unwrap();
        let name = NamespaceName::new("n").unwrap();
        let first = NamespaceRecord::new(defined("scheme = 'segment'"), ServedBy::EveryNode);
        let second =
            first.clone().redefined(defined("scheme = 'segment'\ntext = 'A{number}'"), &name).unwrap();
        let second = NamespaceRecord { edition: 2, ..second };
        assert_eq!(first.brought_up_to(&second), Some(second.clone()));
        assert_eq!((second.brought_up_to(&first), first.brought_up_to(&first)), (None, None));
        // Another node wrote it from its flags alone, and then it was changed.
        let pinned = NamespaceRecord::new(
            defined("scheme = 'segment'\ntext = 'B{number}'"),
            ServedBy::ConfiguredNodes,
        );
        for edition in [1, 2, 9] {
            let found = NamespaceRecord { edition, ..pinned.clone() };
            let texts = [None, "A{number}".parse().ok(), "B{number}".parse().ok()];
            let record = found.brought_up_to(&second).unwrap();
            assert_eq!(record.served_by, ServedBy::EveryNode);
            let newer = if edition < 2 { &second } else { &found };
            assert_eq!(record.definition, newer.definition, "{edition}");
            for text in texts {
                assert!(record.definition.text == text || record.earlier_texts.contains(&text), "{record:?}");
            }
            assert_eq!(record.brought_up_to(&second), None);
        }
        let over = NamespaceRecord::new(defined("scheme = 'segment'\nseries = 2"), ServedBy::EveryNode);
        let over = NamespaceRecord { edition: 2, ..over };
        assert_eq!(over.brought_up_to(&second), None, "equal editions say nothing");
        // A record from before the namespace started over shows that the store went back, whatever the
        // namespace became.
        for fields in ["scheme = 'segment'\nseries = 2", "scheme = 'snowflake'", "scheme = 'uuid7'"] {
            let over = NamespaceRecord::new(defined(fields), ServedBy::EveryNode);
            let over = NamespaceRecord { edition: 4, ..over };
            assert_eq!(second.brought_up_to(&over), Some(over.clone()), "{fields}");
            assert_eq!(over.brought_up_to(&second), None, "{fields}");
        }
        // The numbers of sources are kept in both directions.
        let numbers = |json: &str| serde_json::from_str::<Option<Numbers>>(json).unwrap();
        let (odd, even) = (numbers(r#"{"remainder":1,"delta":2}"#), numbers(r#"{"remainder":0,"delta":2}"#));
        let older = NamespaceRecord { numbers: vec![odd, None], ..first.clone() };
        let newer = NamespaceRecord { numbers: vec![None, even, None], ..second };
        for (found, seen) in [(&older, &newer), (&newer, &older)] {
            assert_eq!(found.brought_up_to(seen).unwrap().numbers, [odd, even, None]);
        }
        // Two overlapping claims are never in one record: the store's stays, whichever record is newer.
        let other = NamespaceRecord { numbers: vec![None, odd], ..first };
        for edition in [1, 9] {
            let found = NamespaceRecord { edition, ..other.clone() };
            let record = found.brought_up_to(&NamespaceRecord { edition: 5, ..older.clone() });
            assert_eq!(record.unwrap_or(found).numbers, [None, odd], "{edition}");
        }
    }

    fn numbers(remainder: u64, delta: u64) -> Numbers {
        Numbers::of(&Surveyed::numbers(remainder, NonZeroU64::new(delta).unwrap()))
    }

    /// Goal: comparing the remembered sets of sources gives the same result as comparing their numbers.
    /// Method: all small sets, number by number.
    #[test]
    fn sets_are_compared_by_their_numbers() {
        let all = || (1..=6_u64).flat_map(|delta| (0..delta).map(move |remainder| (remainder, delta)));
        for ((a, by_a), (b, by_b)) in all().flat_map(|one| all().map(move |other| (one, other))) {
            let mut in_b = (0..120_u64).filter(|it| it % by_b == b);
            let in_a = |it: u64| it % by_a == a;
            assert_eq!(
                numbers(a, by_a).overlaps(numbers(b, by_b)),
                in_b.clone().any(in_a),
                "{a}/{by_a} {b}/{by_b}"
            );
            assert_eq!(numbers(a, by_a).contains(numbers(b, by_b)), in_b.all(in_a), "{a}/{by_a} {b}/{by_b}");
        }
    }

    #[test]
    fn they_read_back_and_no_other_is_read() {
        let text = serde_json::to_string(&numbers(1, 2)).unwrap();
        assert_eq!(text, r#"{"remainder":1,"delta":2}"#);
        assert_eq!(serde_json::from_str::<Numbers>(&text).unwrap(), numbers(1, 2));
        for bad in [r#"{"remainder":2,"delta":2}"#, r#"{"remainder":0,"delta":0}"#, r#"{"remainder":0}"#] {
            assert!(serde_json::from_str::<Numbers>(bad).is_err(), "{bad}");
        }
    }
}
