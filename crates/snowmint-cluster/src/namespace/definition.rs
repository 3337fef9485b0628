//! The definition of a namespace: its scheme with all settings, and its text form; which changes of it are
//! safe; and how its ids are parsed.
//!
//! A definition that passes the checks cannot produce duplicates by itself. [`Definition::may_become`]
//! rejects a change that could.

use std::fmt;

use snowmint::codec::ParseIdError;
use snowmint::error::Snippet;
use snowmint::hide::Hider;
use snowmint::inspect::Decoded;
use snowmint::layout::SplitError;
use snowmint::scheme::SchemeError;
use snowmint::{Id, Layout, Rule, Start};
use snowmint_store::{MAX_NUMBER, Visibility};

use super::NamespaceName;
use super::counter_source::CounterSource;
use super::hide::{Hide, HideKeyName};
use super::text_form::{LONGEST_ID, TextForm};
use super::text_form::{Periods, Plain, can_meet};
use super::time_zone::{TimeZone, TimeZoneError};
use crate::segment::{Mode, Reset, SegmentConfig, SegmentConfigError, Stripe};

/// The default bounds of a segment's size.
const SIZES: std::ops::RangeInclusive<u64> = 1000..=10_000_000;
/// The maximum number of stores that the numbers of one namespace may come from.
const MAX_SOURCES: usize = 16;
/// The longest description of a namespace, in characters.
const MAX_DESCRIPTION: usize = 256;
/// The longest owner of a namespace, in characters.
const MAX_OWNER: usize = 128;

/// The definition of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// How its ids are made.
    pub scheme: Scheme,
    /// How they are written; `None` for plain numbers, or the scheme's own text.
    pub text: Option<TextForm>,
    /// The time zone of the dates in the text form, and of the reset period.
    pub time_zone: TimeZone,
    /// What it is for, and who is responsible. Ids do not depend on it.
    pub about: About,
}

/// What a namespace is for, and who is responsible for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// What it is for, at most 256 characters.
    pub description: Option<String>,
    /// The team or person to ask, at most 128 characters.
    pub owner: Option<String>,
}

impl About {
    /// No description and no owner.
    pub const NONE: Self = Self { description: None, owner: None };

    fn check(&self) -> Result<(), DefinitionError> {
        let all = [("description", &self.description, MAX_DESCRIPTION), ("owner", &self.owner, MAX_OWNER)];
        for (setting, value, limit) in all {
            let Some(value) = value else { continue };
            if value.chars().count() > limit || value.chars().any(char::is_control) {
                return Err(DefinitionError::About { setting, value: Snippet::of(value), limit });
            }
        }
        Ok(())
    }
}

/// A way to make ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// 64-bit ids of a layout, under leases of workers.
    Snowflake {
        /// Which bits hold what.
        layout: Layout,
        /// What to do when the clock goes back; `None` for the service's rule.
        rule: Option<Rule>,
        /// Where the sequence of a new tick starts; `None` for the service's setting.
        sequence_start: Option<Start>,
        /// How its ids are hidden, if they are.
        hide: Option<Hide>,
    },
    /// Plain numbers, reserved in segments.
    Segment(SegmentScheme),
    /// Ids of 96 or 128 bits, which need no coordination between nodes.
    Wide(snowmint::scheme::Scheme),
}

/// The settings of scheme segment: plain numbers, reserved in segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentScheme {
    /// Whether numbers come from memory or directly from the store.
    pub mode: Mode,
    /// Where they are reserved.
    pub source: NumberSource,
    /// The smallest number.
    pub start: u64,
    /// The greatest number.
    pub maximum: u64,
    /// The reset period, if numbers restart.
    pub reset: Option<Reset>,
    /// The bounds of a segment's size, which follows demand.
    pub size: SizeBounds,
    /// The series of numbers: one more each time the namespace started over.
    pub series: u32,
    /// How its numbers are hidden, if they are.
    pub hide: Option<Hide>,
}

/// Where numbers of a namespace are reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumberSource {
    /// One stripe in the service's own store.
    Own(Stripe),
    /// Other stores, or counters of other systems.
    Other(Vec<CounterSource>),
}

/// The bounds of a segment's size, which follows demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeBounds {
    /// The size of the first segment and the smallest one.
    pub min: Option<u64>,
    /// The largest size.
    pub max: Option<u64>,
}

/// An invalid definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The scheme is unknown.
    #[error("unknown scheme {scheme}: expected snowflake, segment, uuid7, uuid4, ulid or objectid")]
    NoScheme {
        /// The name.
        scheme: Snippet,
    },
    /// The scheme does not have this setting.
    #[error("invalid setting `{setting}` for scheme {scheme}: {why}; omit it")]
    Foreign {
        /// The setting.
        setting: &'static str,
        /// The scheme.
        scheme: &'static str,
        /// The scheme that it belongs to.
        why: &'static str,
    },
    /// Numbers, sizes or their bounds are out of range.
    #[error(transparent)]
    Segment(#[from] SegmentConfigError),
    /// The stripes, sources and mode do not fit together.
    #[error("{0}")]
    Sources(String),
    /// The description or the owner is too long, or has control characters.
    #[error("invalid {setting} {value}: expected at most {limit} characters without control characters")]
    About {
        /// The setting.
        setting: &'static str,
        /// The start of the text.
        value: Snippet,
        /// The longest text, in characters.
        limit: usize,
    },
    /// The ids cannot be hidden.
    #[error("invalid setting `hide`: {0}")]
    Hide(&'static str),
    /// This machine does not have the rules of the time zone.
    #[error(transparent)]
    TimeZone(#[from] TimeZoneError),
    /// The ids show no date, so they have no time zone.
    #[error(
        "invalid setting `time_zone` {time_zone}: the text form shows no date; add {{date}}, or set `time_zone` to UTC"
    )]
    UnusedTimeZone {
        /// The time zone.
        time_zone: TimeZone,
    },
    /// The text form does not fit the scheme.
    #[error("invalid text form `{form}`: {why}")]
    Text {
        /// The form.
        form: String,
        /// The reason.
        why: &'static str,
    },
}

impl Definition {
    /// Returns a definition of 64-bit ids of a layout, with the service's rule and sequence start, written as
    /// numbers.
    pub const fn snowflake(layout: Layout) -> Self {
        Self {
            scheme: Scheme::Snowflake { layout, rule: None, sequence_start: None, hide: None },
            text: None,
            time_zone: TimeZone::UTC,
            about: About::NONE,
        }
    }

    /// Checks that the parts fit together.
    pub(super) fn checked(self) -> Result<Self, DefinitionError> {
        if let Scheme::Segment(segment) = &self.scheme {
            segment.check()?;
        }
        self.about.check()?;
        if self.scheme.hide().is_some() {
            if self.scheme.reset().is_some() {
                let why = "numbers restart with `reset`, so each hidden number would return each period; omit one of them";
                return Err(DefinitionError::Hide(why));
            }
            if self.text.as_ref().is_some_and(TextForm::has_date) {
                let why = "the text form shows the date, which a hidden id must not reveal; omit one of them";
                return Err(DefinitionError::Hide(why));
            }
        }
        if self.time_zone != TimeZone::UTC && !self.text.as_ref().is_some_and(TextForm::has_date) {
            return Err(DefinitionError::UnusedTimeZone { time_zone: self.time_zone });
        }
        let needed = self.scheme.reset().map_or("", date_for);
        let Some(form) = &self.text else {
            return match needed {
                "" => Ok(self),
                why => Err(DefinitionError::Text { form: "{number}".to_owned(), why }),
            };
        };
        let refuse = |why| Err(DefinitionError::Text { form: form.to_string(), why });
        match &self.scheme {
            Scheme::Wide(_) if form.is_of_numbers() => refuse("ids of this scheme are not numbers: use {id}"),
            Scheme::Wide(_) => Ok(self),
            _ if !form.is_of_numbers() => refuse("ids of this scheme are numbers: use {number}"),
            scheme if scheme.reset().is_some_and(|reset| !form.shows_period(reset)) => refuse(needed),
            _ => Ok(self),
        }
    }

    /// Checks the sources as [`SegmentScheme::check_sources`] does; other schemes have none.
    ///
    /// # Errors
    ///
    /// [`DefinitionError::Sources`] with the sources and the remedy.
    pub fn check_sources(&self, visibility: Visibility) -> Result<(), DefinitionError> {
        match &self.scheme {
            Scheme::Segment(segment) => segment.check_sources(visibility),
            _ => Ok(()),
        }
    }

    /// Returns whether an id is a number and is written as a decimal number.
    pub const fn is_plain_number(&self) -> bool {
        self.text.is_none() && !matches!(self.scheme, Scheme::Wide(_))
    }

    /// Returns the length of the longest text of an id in bytes.
    pub fn longest_text(&self) -> usize {
        match (&self.text, &self.scheme) {
            (Some(form), _) => form.longest(),
            (None, Scheme::Wide(_)) => LONGEST_ID,
            // 2^63 - 1.
            (None, _) => 19,
        }
    }
}

impl Scheme {
    /// Returns its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Snowflake { .. } => "snowflake",
            Self::Segment(_) => "segment",
            Self::Wide(scheme) => scheme.name(),
        }
    }

    /// Returns the reset period, if its numbers restart.
    pub const fn reset(&self) -> Option<Reset> {
        match self {
            Self::Segment(segment) => segment.reset,
            _ => None,
        }
    }
}

impl SegmentScheme {
    /// Returns the defaults: cached numbers from 1, in the service's own store.
    pub const fn new() -> Self {
        Self {
            mode: Mode::Cached,
            source: NumberSource::Own(Stripe::WHOLE),
            start: 1,
            maximum: MAX_NUMBER,
            reset: None,
            size: SizeBounds { min: None, max: None },
            series: 1,
            hide: None,
        }
    }

    /// Returns the key of its counter in a store. Each period has a key below it, such as `KEY/2026-11-21`.
    ///
    /// Each series has a key of its own, so a namespace that starts over uses a new counter.
    pub fn counter_key(&self, name: &NamespaceName) -> String {
        match self.series {
            0 | 1 => format!("segments/{name}"),
            series => format!("segments/{name}/series-{series}"),
        }
    }

    /// Returns the configuration of its source of numbers.
    pub fn config(&self) -> SegmentConfig {
        let min = self.size.min.unwrap_or_else(|| *SIZES.start().min(&self.size.max.unwrap_or(u64::MAX)));
        let max = self.size.max.unwrap_or_else(|| *SIZES.end().max(&min));
        SegmentConfig::new().mode(self.mode).sizes(min..=max).first(self.start).maximum(self.maximum)
    }

    /// Checks that its numbers increase by 1 and never restart, as Redis' INCR needs.
    ///
    /// # Errors
    ///
    /// The reason why they do not, as a clause about the namespace's numbers.
    pub fn counts_by_one(&self) -> Result<(), &'static str> {
        let has_steps = |stripe: Stripe| stripe.of() > 1;
        match &self.source {
            _ if self.reset.is_some() => Err("its numbers restart with each period"),
            _ if self.hide.is_some() => Err("its numbers are hidden"),
            NumberSource::Own(stripe) if has_steps(*stripe) => Err("its numbers are more than 1 apart"),
            NumberSource::Other(sources) if sources.len() > 1 => Err("its numbers come from several stores"),
            NumberSource::Other(sources)
                if sources.iter().filter_map(CounterSource::stripe).any(has_steps) =>
            {
                Err("its numbers are more than 1 apart")
            }
            NumberSource::Own(_) | NumberSource::Other(_) => Ok(()),
        }
    }

    /// Checks that no two sources return the same number, as far as their URLs show, and that every node of a
    /// store with this visibility uses the same counters.
    ///
    /// Only an open source shows which numbers it really returns: a caller that opens several must compare
    /// them.
    ///
    /// # Errors
    ///
    /// [`DefinitionError::Sources`] with the sources and the remedy.
    pub fn check_sources(&self, visibility: Visibility) -> Result<(), DefinitionError> {
        self.sources_disjoint(Some(visibility))
    }

    /// Checks as [`check_sources`](Self::check_sources); the visibility is `None` while the store is not
    /// known.
    pub(super) fn sources_disjoint(&self, visibility: Option<Visibility>) -> Result<(), DefinitionError> {
        let NumberSource::Other(sources) = &self.source else { return Ok(()) };
        CounterSource::check_disjoint(sources, visibility).map_err(DefinitionError::Sources)
    }

    fn check(&self) -> Result<(), DefinitionError> {
        self.config().check()?;
        let NumberSource::Other(sources) = &self.source else { return Ok(()) };
        self.check_stripes(sources)
    }

    fn check_stripes(&self, sources: &[CounterSource]) -> Result<(), DefinitionError> {
        let refuse = |why: String| Err(DefinitionError::Sources(why));
        if !(1..=MAX_SOURCES).contains(&sources.len()) {
            return refuse(format!(
                "invalid number of sources {}: expected 1 to {MAX_SOURCES}",
                sources.len()
            ));
        }
        if self.mode == Mode::Direct && sources.len() > 1 {
            return refuse(
                "mode `direct` has one source: numbers of several stores do not increase in one order"
                    .to_owned(),
            );
        }
        let takes_over = sources.iter().any(CounterSource::is_takeover);
        if takes_over && self.reset.is_some() {
            return refuse("a counter of another system does not restart: omit `reset`".to_owned());
        }
        CounterSource::check_stripes(sources).map_err(DefinitionError::Sources)
    }
}

impl Default for SegmentScheme {
    fn default() -> Self {
        Self::new()
    }
}

const fn date_for(reset: Reset) -> &'static str {
    match reset {
        Reset::Daily => "numbers restart each day, so the text must show it: add {date}",
        Reset::Monthly => "numbers restart each month, so the text must show it: add {yyyy}{mm}",
        Reset::Yearly => "numbers restart each year, so the text must show it: add {yyyy}",
    }
}

impl fmt::Display for Definition {
    /// Writes all settings that ids depend on in one line for people, such as
    /// `segment cached, stripe 1/2, as ORD-{number:6}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scheme {
            Scheme::Snowflake { layout, rule, sequence_start, hide: _ } => {
                write!(f, "snowflake {layout}")?;
                if let Some(rule) = rule {
                    write!(f, ", {rule}")?;
                }
                if let Some(start) = sequence_start {
                    write!(f, ", sequence start {start}")?;
                }
            }
            Scheme::Segment(segment) => write!(f, "segment {segment}")?,
            Scheme::Wide(scheme) => write!(f, "{scheme}")?,
        }
        if let Some(text) = &self.text {
            write!(f, ", as {text}")?;
        }
        if self.time_zone != TimeZone::UTC {
            write!(f, ", dates of {}", self.time_zone)?;
        }
        match self.scheme.hide() {
            Some(hide) => write!(f, ", {hide}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for SegmentScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.mode, self.source)?;
        if self.start != 1 {
            write!(f, ", from {}", self.start)?;
        }
        if self.maximum != MAX_NUMBER {
            write!(f, ", to {}", self.maximum)?;
        }
        if let Some(reset) = self.reset {
            write!(f, ", reset {reset}")?;
        }
        match self.size {
            SizeBounds { min: None, max: None } => {}
            SizeBounds { min: Some(min), max: None } => write!(f, ", size {min} or more")?,
            SizeBounds { min: None, max: Some(max) } => write!(f, ", size up to {max}")?,
            SizeBounds { min: Some(min), max: Some(max) } => write!(f, ", size {min} to {max}")?,
        }
        if self.series != 1 {
            write!(f, ", series {}", self.series)?;
        }
        Ok(())
    }
}

impl fmt::Display for NumberSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(Stripe::WHOLE) => f.write_str("all numbers"),
            Self::Own(stripe) => write!(f, "stripe {stripe}"),
            Self::Other(sources) => {
                for (index, source) in sources.iter().enumerate() {
                    write!(f, "{}{source}", if index == 0 { "of " } else { " and " })?;
                }
                Ok(())
            }
        }
    }
}

/// A change of a definition that could produce duplicates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("namespace {name} is pinned to `{pinned}` and cannot become `{wanted}`: {}", consequence(.what))]
pub struct ChangeError {
    /// The namespace.
    pub name: NamespaceName,
    /// The definition in the store.
    pub pinned: String,
    /// The new definition.
    pub wanted: String,
    /// The setting that cannot change.
    pub what: &'static str,
}

/// The setting that nodes may not set each for themselves, although a change of it produces no duplicates.
const TIME_ZONE: &str = "time zone";

/// Returns why a setting cannot change, and what to do.
fn consequence(what: &str) -> String {
    if what == TIME_ZONE {
        "with another time zone, nodes would write different dates at the same time; keep the pinned time zone, or change it for \
         all nodes with `snowmint ns set NAME --time-zone ZONE`"
            .to_owned()
    } else {
        format!("another {what} could produce duplicates; keep the pinned definition, or use a new namespace")
    }
}

/// A new text form that could write an id like an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "namespace {name} cannot change its text form to `{wanted}`: a new id could get the text of an earlier id, written as \
     `{earlier}`; change only the width of the number, or start with a literal that no earlier text starts with, such as \
     `B-`, or use a new namespace"
)]
pub struct TextChangeError {
    /// The namespace.
    pub name: NamespaceName,
    /// The text form of the earlier ids.
    pub earlier: String,
    /// The new text form.
    pub wanted: String,
}

impl Definition {
    /// Checks that ids may be written in text form `text`, after earlier ids were written in the current one.
    ///
    /// A namespace counts as used from the start: nothing shows that it has no ids yet.
    ///
    /// # Errors
    ///
    /// [`TextChangeError`] with both forms, if two ids could get the same text.
    pub(super) fn may_be_written_as(
        &self,
        text: Option<&TextForm>,
        name: &NamespaceName,
    ) -> Result<(), TextChangeError> {
        let plain = if matches!(self.scheme, Scheme::Wide(_)) { Plain::Id } else { Plain::Number };
        let periods = if self.scheme.reset().is_some() { Periods::Many } else { Periods::One };
        if !can_meet(self.text.as_ref(), text, periods, plain) {
            return Ok(());
        }
        let shown = |form: Option<&TextForm>| {
            let plain = if plain == Plain::Id { "{id}" } else { "{number}" };
            form.map_or_else(|| plain.to_owned(), ToString::to_string)
        };
        Err(TextChangeError { name: name.clone(), earlier: shown(self.text.as_ref()), wanted: shown(text) })
    }

    /// Checks that a namespace with this definition may change to `wanted`.
    ///
    /// | setting | may change? |
    /// |---|---|
    /// | scheme, layout, stripe, source, reset, series, hide key | no |
    /// | how a source is reached: user (not for PostgreSQL), TLS, files, timeouts | yes |
    /// | mode, sizes, start, maximum | yes: a counter only goes up, whatever the start |
    /// | rule, sequence start | yes: another sequence start uses another worker |
    /// | time zone | only by [`registry::set`](super::registry::set), for all nodes; numbers are unique within a date |
    /// | description, owner | yes |
    /// | text form | checked by the record, which has all earlier forms |
    ///
    /// # Errors
    ///
    /// [`ChangeError`] with both definitions.
    pub fn may_become(&self, wanted: &Self, name: &NamespaceName) -> Result<(), ChangeError> {
        let differs = self.scheme.differs(&wanted.scheme);
        match differs.or((self.time_zone != wanted.time_zone).then_some(TIME_ZONE)) {
            None => Ok(()),
            Some(what) => Err(ChangeError {
                name: name.clone(),
                pinned: self.to_string(),
                wanted: wanted.to_string(),
                what,
            }),
        }
    }
}

impl Scheme {
    pub(super) fn differs(&self, other: &Self) -> Option<&'static str> {
        match (self, other) {
            (Self::Snowflake { layout, hide, .. }, Self::Snowflake { layout: other, hide: key, .. }) => {
                if layout == other {
                    (hide != key).then_some("hide key")
                } else {
                    Some("layout")
                }
            }
            (Self::Segment(segment), Self::Segment(other)) => segment.differs(other),
            (Self::Wide(scheme), Self::Wide(other)) if scheme == other => None,
            _ => Some("scheme"),
        }
    }
}

impl SegmentScheme {
    fn differs(&self, other: &Self) -> Option<&'static str> {
        [
            ("stripe or source", !self.source.is_same(&other.source)),
            ("reset", self.reset != other.reset),
            ("series", self.series != other.series),
            ("hide key", self.hide != other.hide),
        ]
        .into_iter()
        .find_map(|(what, differs)| differs.then_some(what))
    }
}

impl NumberSource {
    /// Returns whether both use the same counters, however those are reached.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own(stripe), Self::Own(other)) => stripe == other,
            (Self::Other(sources), Self::Other(others)) => {
                sources.len() == others.len()
                    && sources.iter().zip(others).all(|(one, other)| one.is_same(other))
            }
            _ => false,
        }
    }
}

/// A text that is not an id of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The text has another form.
    #[error("its ids are written as {template}")]
    Form {
        /// The text form, without the characters of an alphabet.
        template: String,
    },
    /// The ids are hidden, and this process does not have the key.
    #[error("its ids are hidden by key {key}, which is missing here: add it to the file of --hide-keys-file")]
    Hidden {
        /// The name of the key.
        key: HideKeyName,
    },
    /// The text is not a decimal number.
    #[error(transparent)]
    Number(#[from] ParseIdError),
    /// The number has bits that the layout does not have.
    #[error(transparent)]
    Layout(#[from] SplitError),
    /// The text is not one of the scheme.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
}

impl Definition {
    /// Parses a text of this namespace; also returns the digits that it is written in, such as `base62`.
    ///
    /// The text may have one of the `earlier` forms from the namespace's record. No text stands for two ids,
    /// because a text form that could repeat a text was rejected when it was set. If its ids are hidden,
    /// `hider` reveals them.
    ///
    /// # Errors
    ///
    /// [`InspectError`] if the text has neither the current nor an earlier form; it describes the current
    /// one.
    pub fn inspect(
        &self,
        text: &str,
        earlier: &[Option<TextForm>],
        hider: Option<&Hider>,
    ) -> Result<(Decoded, &'static str), InspectError> {
        self.inspect_as(self.text.as_ref(), text, hider).or_else(|error| {
            let read = earlier.iter().find_map(|form| self.inspect_as(form.as_ref(), text, hider).ok());
            read.ok_or(error)
        })
    }

    fn inspect_as(
        &self,
        form: Option<&TextForm>,
        text: &str,
        hider: Option<&Hider>,
    ) -> Result<(Decoded, &'static str), InspectError> {
        let of_other_form = |form: &TextForm| InspectError::Form { template: form.template() };
        if let Scheme::Wide(scheme) = &self.scheme {
            let id = match form {
                Some(form) => form.read_id(text).ok_or_else(|| of_other_form(form))?,
                None => text,
            };
            return Ok((Decoded::Scheme(scheme.parse(id)?), scheme.name()));
        }
        let (id, form) = match form {
            Some(form) => {
                let number = form.read_number(text).and_then(|number| Id::new(number).ok());
                let digits = form.digits().map_or("decimal", snowmint::codec::Digits::name);
                (number.ok_or_else(|| of_other_form(form))?, digits)
            }
            None => (text.parse::<Id>()?, "decimal"),
        };
        let id = match (self.scheme.hide(), hider) {
            (None, _) => id,
            (Some(_), Some(hider)) => hider.reveal(id),
            (Some(Hide { key, .. }), None) => return Err(InspectError::Hidden { key: key.clone() }),
        };
        match &self.scheme {
            Scheme::Snowflake { layout, .. } => Ok((Decoded::by_layout(id, *layout)?, form)),
            _ => Ok((Decoded::Number(id), form)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Fields;

    fn defined(toml: &str) -> Definition {
        toml::from_str::<Fields>(toml).unwrap().define(&Layout::TWITTER).unwrap()
    }

    /// Goal: each setting is either safe to change or rejected. Method: one change at a time, from one base
    /// per scheme.
    #[test]
    fn what_could_produce_duplicates_may_not_change() {
        let segment = "scheme = 'segment'\n";
        let name = NamespaceName::new("orders").unwrap();
        for (base, change, refused) in [
            ("", "text = 'A{number}'", None),
            ("", "mode = 'direct'", None),
            ("", "start = 1000", None),
            ("", "maximum = 1000", None),
            ("", "size_min = 5", None),
            ("", "size_max = 5000", None),
            ("start = 1000", "start = 5", None),
            ("", "stripe = '1/2'", Some("stripe or source")),
            ("stripe = '1/2'", "stripe = '2/2'", Some("stripe or source")),
            ("", "sources = ['leaf:mysql://h/l?tag=a']", Some("stripe or source")),
            ("", "description = 'of the web shop'\nowner = 'team-web'", None),
            ("", "series = 2", Some("series")),
            ("", "reset = 'daily'\ntext = '{date}{number}'", Some("reset")),
        ] {
            let changed = defined(&format!("{segment}{base}"))
                .may_become(&defined(&format!("{segment}{change}")), &name);
            assert_eq!(changed.as_ref().err().map(|error| error.what), refused, "{base} to {change}");
        }
        let sources = |source: &str| format!("sources = ['{source}']");
        for (source, other, may) in [
            (
                "leaf:mysql://u@h/l?tag=a",
                "leaf:mysql://v@h:3306/l?tag=a&ssl-mode=required&timeout_ms=9",
                true,
            ),
            ("1/2 mysql://h/i", "1/2 mariadb://h/i?login=shop", true),
            ("1/2 mysql://h/i", "2/2 mysql://h/i", false),
            // Each user may have its own table there, by `search_path`.
            ("1/2 postgres://u@h/i", "1/2 postgresql://v@h/i", false),
            ("1/2 postgres://u@h/i", "1/2 postgres://h/i", false),
            ("1/2 postgres://u@h/i", "1/2 postgresql://%75@h:5432/i?sslmode=require", true),
            ("leaf:mysql://h/l?tag=a", "leaf:mysql://h/l?tag=b", false),
            ("leaf:mysql://h/l?tag=a", "leaf:mysql://g/l?tag=a", false),
            ("leaf:mysql://h/l?tag=a", "tinyid:mysql://h/l?biz_type=a", false),
            ("1/2 mysql://g,h/i", "1/2 mysql://h/i", false),
            ("1/2 mysql://localhost/i", "1/2 mysql://127.0.0.1/i", false),
            ("1/2 redis://h/0", "1/2 redis://h/0?may_lose=0", false),
            ("1/2 redis://h/0?prefix=a", "1/2 redis://h/0", false),
        ] {
            let (one, other) = (sources(source), sources(other));
            let changed =
                defined(&format!("{segment}{one}")).may_become(&defined(&format!("{segment}{other}")), &name);
            assert_eq!(changed.is_ok(), may, "{one} to {other}");
        }
        let snowflake = defined("scheme = 'snowflake'");
        for change in ["rule = 'reject'", "sequence_start = 'random'"] {
            assert!(
                snowflake.may_become(&defined(&format!("scheme = 'snowflake'\n{change}")), &name).is_ok()
            );
        }
        let error = snowflake
            .may_become(&defined("scheme = 'snowflake'\nlayout = 'sonyflake'"), &name)
            .unwrap_err()
            .to_string();
        assert!(error.contains("time:41@1ms") && error.contains("another layout"), "{error}");
        for other in ["scheme = 'segment'", "scheme = 'uuid7'"] {
            assert_eq!(snowflake.may_become(&defined(other), &name).unwrap_err().what, "scheme");
        }
        assert_eq!(
            defined("scheme = 'uuid7'").may_become(&defined("scheme = 'uuid4'"), &name).unwrap_err().what,
            "scheme"
        );
    }

    /// Goal: a time zone is shown, fits the text form, and nodes with other zones are refused by both
    /// definitions. Method: a definition in a zone, and the same one in UTC.
    #[test]
    fn a_time_zone_is_pinned_and_needs_a_date() {
        let name = NamespaceName::new("orders").unwrap();
        let daily = "scheme = 'segment'\nreset = 'daily'\ntext = '{date}{number}'\n";
        let (utc, shanghai) = (defined(daily), defined(&format!("{daily}time_zone = 'Asia/Shanghai'")));
        assert_eq!(defined(&format!("{daily}time_zone = 'UTC'")), utc);
        assert_eq!(
            shanghai.to_string(),
            "segment cached, all numbers, reset daily, as {date}{number}, dates of Asia/Shanghai"
        );
        for (pinned, wanted) in [(&utc, &shanghai), (&shanghai, &utc)] {
            let error = pinned.may_become(wanted, &name).unwrap_err();
            assert_eq!(error.what, "time zone");
            let text = error.to_string();
            assert!(
                text.contains("`snowmint ns set NAME --time-zone ZONE`") && !text.contains("duplicates"),
                "{text}"
            );
        }
        for (toml, words) in [
            (
                "time_zone = 'Asia/Shanghai'",
                "invalid setting `time_zone` Asia/Shanghai: the text form shows no date",
            ),
            ("text = 'A{number}'\ntime_zone = 'Asia/Shanghai'", "add {date}, or set `time_zone` to UTC"),
            ("text = '{date}{number}'\ntime_zone = 'Asia/Shangai'", "unknown time zone Asia/Shangai"),
        ] {
            for scheme in ["segment", "snowflake"] {
                let fields: Fields = toml::from_str(&format!("scheme = '{scheme}'\n{toml}")).unwrap();
                let error = fields.define(&Layout::TWITTER).unwrap_err().to_string();
                assert!(error.contains(words), "{toml}: {error}");
            }
        }
        let error =
            toml::from_str::<Fields>("scheme = 'segment'\ntime_zone = 'CST 8'").unwrap_err().to_string();
        assert!(error.contains("invalid time zone `CST 8`"), "{error}");
    }

    /// Goal: ids of every scheme are read in every text form, current and earlier. Method: one definition of
    /// each kind.
    #[test]
    fn texts_of_every_scheme_are_parsed() {
        let earlier = [None, "A-{base58}".parse().ok(), "old_{id}".parse().ok()];
        for (toml, text, name, form, id) in [
            ("scheme = 'snowflake'", "1541815603606036480", "twitter", "decimal", "1541815603606036480"),
            (
                "scheme = 'snowflake'\nlayout = 'game'",
                "1541815603606036480",
                "game",
                "decimal",
                "1541815603606036480",
            ),
            (
                "scheme = 'snowflake'\ntext = 'T-{base32}'",
                "T-1ASD13XH1F800",
                "twitter",
                "base32",
                "1541815603606036480",
            ),
            (
                "scheme = 'snowflake'\ntext = 'T-{base32}'",
                "A-4aaW4SzAyQK",
                "twitter",
                "base58",
                "1541815603606036480",
            ),
            (
                "scheme = 'snowflake'\ntext = 'T-{base32}'",
                "1541815603606036480",
                "twitter",
                "decimal",
                "1541815603606036480",
            ),
            ("scheme = 'segment'", "42", "number", "decimal", "42"),
            (
                "scheme = 'segment'\nreset = 'daily'\ntext = 'ORD-{date}-{number:6}'",
                "ORD-20261121-000042",
                "number",
                "decimal",
                "42",
            ),
            (
                "scheme = 'segment'\nreset = 'daily'\ntext = 'ORD-{date}-{number:6}'\ntime_zone = 'Asia/Shanghai'",
                "ORD-20261122-000042",
                "number",
                "decimal",
                "42",
            ),
            ("scheme = 'segment'\ntext = '{alphabet=zyx}'", "yz", "number", "alphabet", "3"),
            ("scheme = 'ulid'", "01arz3ndektsv4rrffq69g5fav", "ulid", "ulid", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
            (
                "scheme = 'ulid'\ntext = 'usr_{id}'",
                "usr_01ARZ3NDEKTSV4RRFFQ69G5FAV",
                "ulid",
                "ulid",
                "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            ),
            (
                "scheme = 'ulid'\ntext = 'usr_{id}'",
                "old_01ARZ3NDEKTSV4RRFFQ69G5FAV",
                "ulid",
                "ulid",
                "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            ),
            (
                "scheme = 'objectid'",
                "507f1f77bcf86cd799439011",
                "objectid",
                "objectid",
                "507f1f77bcf86cd799439011",
            ),
            (
                "scheme = 'uuid4'",
                "919108f7-52d1-4320-9bac-f847db4148a8",
                "uuid4",
                "uuid4",
                "919108f7-52d1-4320-9bac-f847db4148a8",
            ),
            (
                "scheme = 'uuid7'",
                "017F22E279B07CC398C4DC0C0C07398F",
                "uuid7",
                "uuid7",
                "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
            ),
        ] {
            let (decoded, read_as) = defined(toml).inspect(text, &earlier, None).unwrap();
            assert_eq!((&*decoded.name(), read_as), (name, form), "{toml} {text}");
            assert_eq!(decoded.values()[0], ("id", snowmint::inspect::Value::Text(id.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_foreign_text_is_rejected_with_the_form_of_the_namespace() {
        for (toml, text, words) in [
            ("scheme = 'snowflake'", "x", "invalid decimal id: `x` at position 0"),
            ("scheme = 'snowflake'\nlayout = 'js53'", "9223372036854775807", "another layout made it"),
            ("scheme = 'segment'\ntext = 'A-{number:6}'", "42", "its ids are written as A-{number:6}"),
            (
                "scheme = 'segment'\ntext = 'A-{alphabet=zyx:3}'",
                "A-zaz",
                "its ids are written as A-{alphabet:3}",
            ),
            (
                "scheme = 'uuid7'",
                "919108f7-52d1-4320-9bac-f847db4148a8",
                "has version 4, uuid7 has version 7",
            ),
            ("scheme = 'ulid'\ntext = 'usr_{id}'", "usr_x", "26 Crockford digits"),
        ] {
            let error = defined(toml).inspect(text, &[], None).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("zyx"), "{toml} {text}: {error}");
        }
    }
}
