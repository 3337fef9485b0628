//! A definition as it stands in files and in the store: flat, every setting a word of its own.
//! Reading it is where a setting of another scheme is refused.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use snowmint::error::Snippet;
use snowmint::{Layout, Rule, Start};
use snowmint_store::MAX_NUMBER;

use super::counter_source::CounterSource;
use super::definition::{Definition, DefinitionError, NumberSource, Scheme, SegmentScheme, SizeBounds};
use super::text_form::TextForm;
use crate::segment::{Mode, Reset, Stripe};

/// The settings of a namespace, as a file, a record and flags have them: see the fields.
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
    /// `snowflake`, `segment`, `uuid7`, `uuid4`, `ulid` or `objectid`.
    pub scheme: String,
    /// Of snowflake: which bits hold what; without it the layout of the service.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// Of snowflake: what to do when the clock goes back; without it the rule of the service.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// Of snowflake: where the sequence of a fresh tick starts, `zero`, `random`, `random(100)` or `rolling`; without it
    /// the start of the service.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub sequence_start: Option<Start>,
    /// Of segments: `cached` or `direct`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeWord>,
    /// Of segments in the store of the service: which numbers, `1/2`.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub stripe: Option<Stripe>,
    /// Of segments: other stores, each with its stripe, or counters of another system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<CounterSource>>,
    /// Of segments: the first number is not below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// Of segments: no number is above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<u64>,
    /// Of segments: `daily`, `monthly` or `yearly`, where numbers restart.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub reset: Option<Reset>,
    /// Of segments: the size that a segment begins with and does not go below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_min: Option<u64>,
    /// Of segments: the size that a segment does not go above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_max: Option<u64>,
    /// Of segments: which series of numbers, one more each time it was told to start over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<u32>,
    /// How ids are written: `ORD-{date}-{number:6}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextForm>,
}

/// A mode, as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModeWord {
    /// From a segment in memory.
    Cached,
    /// From the store, each time.
    Direct,
}

impl FromStr for ModeWord {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "cached" => Ok(Self::Cached),
            "direct" => Ok(Self::Direct),
            _ => Err(
                "give cached (from memory: fast, growing per node) or direct (from the store: growing over all nodes)",
            ),
        }
    }
}

impl Fields {
    /// What they define; `layout` for a snowflake namespace that names none.
    ///
    /// # Errors
    ///
    /// [`DefinitionError`] says which setting does not go with the others.
    pub fn define(self, layout: &Layout) -> Result<Definition, DefinitionError> {
        let definition = self.define_pinned(layout)?;
        if let Scheme::Segment(segment) = &definition.scheme {
            segment.sources_disjoint(None)?;
        }
        Ok(definition)
    }

    /// As [`define`](Self::define), of a record: sources that overlap stay readable, so that the namespace can be listed
    /// and dropped; nobody serves it.
    pub(super) fn define_pinned(self, layout: &Layout) -> Result<Definition, DefinitionError> {
        let scheme = match self.scheme.as_str() {
            "snowflake" => {
                self.refuse_segment("snowflake")?;
                Scheme::Snowflake {
                    layout: self.layout.unwrap_or(*layout),
                    rule: self.rule,
                    sequence_start: self.sequence_start,
                }
            }
            "segment" => {
                self.refuse_snowflake("segment")?;
                Scheme::Segment(self.segment()?)
            }
            other => {
                let wide: snowmint::scheme::Scheme =
                    other.parse().map_err(|_| DefinitionError::NoScheme { scheme: Snippet::of(other) })?;
                self.refuse_snowflake(wide.name())?;
                self.refuse_segment(wide.name())?;
                Scheme::Wide(wide)
            }
        };
        Definition { scheme, text: self.text }.checked()
    }

    fn segment(&self) -> Result<SegmentScheme, DefinitionError> {
        let source = match (&self.sources, self.stripe) {
            (Some(_), Some(_)) => {
                let why = "with `sources`, the stripe stands in each of them: leave `stripe` out";
                return Err(DefinitionError::Sources(why.to_owned()));
            }
            (Some(sources), None) => NumberSource::Other(sources.clone()),
            (None, stripe) => NumberSource::Own(stripe.unwrap_or(Stripe::WHOLE)),
        };
        Ok(SegmentScheme {
            mode: match self.mode {
                None | Some(ModeWord::Cached) => Mode::Cached,
                Some(ModeWord::Direct) => Mode::Direct,
            },
            source,
            start: self.start.unwrap_or(1),
            maximum: self.maximum.unwrap_or(MAX_NUMBER),
            reset: self.reset,
            size: SizeBounds { min: self.size_min, max: self.size_max },
            series: self.series.unwrap_or(1),
        })
    }

    fn refuse_snowflake(&self, scheme: &'static str) -> Result<(), DefinitionError> {
        let given = [
            ("layout", self.layout.is_some()),
            ("rule", self.rule.is_some()),
            ("sequence_start", self.sequence_start.is_some()),
        ];
        refuse(given, scheme, "it belongs to snowflake")
    }

    fn refuse_segment(&self, scheme: &'static str) -> Result<(), DefinitionError> {
        let given = [
            ("mode", self.mode.is_some()),
            ("stripe", self.stripe.is_some()),
            ("sources", self.sources.is_some()),
            ("start", self.start.is_some()),
            ("maximum", self.maximum.is_some()),
            ("reset", self.reset.is_some()),
            ("size_min", self.size_min.is_some()),
            ("size_max", self.size_max.is_some()),
            ("series", self.series.is_some()),
        ];
        refuse(given, scheme, "it belongs to segment")
    }
}

fn refuse<const N: usize>(
    given: [(&'static str, bool); N],
    scheme: &'static str,
    why: &'static str,
) -> Result<(), DefinitionError> {
    match given.into_iter().find(|(_, given)| *given) {
        Some((setting, _)) => Err(DefinitionError::Foreign { setting, scheme, why }),
        None => Ok(()),
    }
}

impl From<&Definition> for Fields {
    fn from(definition: &Definition) -> Self {
        let mut fields = Self {
            scheme: definition.scheme.name().to_owned(),
            text: definition.text.clone(),
            ..Self::default()
        };
        match &definition.scheme {
            Scheme::Wide(_) => {}
            Scheme::Snowflake { layout, rule, sequence_start } => {
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
    /// Only what differs from what it would be without being set.
    fn set_segment(&mut self, segment: &SegmentScheme) {
        let plain = SegmentScheme::new();
        self.mode = (segment.mode == Mode::Direct).then_some(ModeWord::Direct);
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

/// Optional values that are written as their text.
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
}
