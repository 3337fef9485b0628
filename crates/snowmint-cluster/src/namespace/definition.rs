//! What a namespace is, checked: its scheme with all that belongs to it, and its text form.
//! What passes here cannot produce duplicates by itself; whether it may follow another definition says `change.rs`.

use std::fmt;

use snowmint::{Layout, Rule, Start};
use snowmint_store::{MAX_NUMBER, Visibility};

use super::counter_source::CounterSource;
use super::name::NamespaceName;
use super::text_form::TextForm;
use crate::segment::{Mode, Reset, SegmentConfig, SegmentConfigError, Stripe};

/// Smallest and largest size of a segment unless they are set.
const SIZES: std::ops::RangeInclusive<u64> = 1000..=10_000_000;
/// Stores that numbers of one namespace may come from.
const MAX_SOURCES: usize = 16;

/// What a namespace is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// How its ids are made.
    pub scheme: Scheme,
    /// How they are written; `None` for plain numbers, or the text form of the scheme.
    pub text: Option<TextForm>,
}

/// How ids are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// 64-bit ids of a layout, under leases of workers.
    Snowflake {
        /// Which bits hold what.
        layout: Layout,
        /// What to do when the clock goes back; `None` for the rule of the service.
        rule: Option<Rule>,
        /// Where the sequence of a fresh tick starts; `None` for the start of the service.
        sequence_start: Option<Start>,
    },
    /// Plain numbers, reserved in segments.
    Segment(SegmentScheme),
    /// Ids of 96 or 128 bits, which need no coordination.
    Wide(snowmint::scheme::Scheme),
}

/// Plain numbers, reserved in segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentScheme {
    /// Where numbers are taken from when they are asked for.
    pub mode: Mode,
    /// Where they are reserved.
    pub source: NumberSource,
    /// The first number is not below it.
    pub start: u64,
    /// No number is above it.
    pub maximum: u64,
    /// How often numbers restart, if they do.
    pub reset: Option<Reset>,
    /// Between which sizes a segment follows demand.
    pub size: SizeBounds,
    /// Which series of numbers it is: one more each time it was told to start over.
    pub series: u32,
}

/// Where numbers of a namespace are reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumberSource {
    /// The store of the service, and there one stripe.
    Own(Stripe),
    /// Other stores, or counters that another system left.
    Other(Vec<CounterSource>),
}

/// Between which sizes a segment follows demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeBounds {
    /// The size it begins with and does not go below.
    pub min: Option<u64>,
    /// The size it does not go above.
    pub max: Option<u64>,
}

/// What is wrong with a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// No scheme of this name.
    #[error("there is no scheme {scheme}: there are snowflake, segment, uuid7, uuid4, ulid and objectid")]
    NoScheme {
        /// What was given.
        scheme: snowmint::error::Snippet,
    },
    /// A setting that the scheme does not have.
    #[error("`{setting}` has no meaning for scheme {scheme}, {why}: leave it out")]
    Foreign {
        /// The setting.
        setting: &'static str,
        /// The scheme.
        scheme: &'static str,
        /// What it belongs to.
        why: &'static str,
    },
    /// Numbers, sizes or their bounds are out of range.
    #[error(transparent)]
    Segment(#[from] SegmentConfigError),
    /// Stripes, sources and mode do not go together.
    #[error("{0}")]
    Sources(String),
    /// The text form does not go with the scheme.
    #[error("text form `{form}`: {why}")]
    Text {
        /// The form.
        form: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl Definition {
    /// Checks that the parts go together.
    pub(super) fn checked(self) -> Result<Self, DefinitionError> {
        if let Scheme::Segment(segment) = &self.scheme {
            segment.check()?;
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
            Scheme::Wide(_) if form.is_of_numbers() => {
                refuse("ids of this scheme are no numbers, write {id} for them")
            }
            Scheme::Wide(_) => Ok(self),
            _ if !form.is_of_numbers() => refuse("ids of this scheme are numbers, write {number} for them"),
            scheme if scheme.reset().is_some_and(|reset| !form.tells(reset)) => refuse(needed),
            _ => Ok(self),
        }
    }

    /// As [`SegmentScheme::check_sources`]; other schemes have no sources.
    ///
    /// # Errors
    ///
    /// [`DefinitionError::Sources`] names the sources and says what to do.
    pub fn check_sources(&self, reach: Visibility) -> Result<(), DefinitionError> {
        match &self.scheme {
            Scheme::Segment(segment) => segment.check_sources(reach),
            _ => Ok(()),
        }
    }

    /// Whether an id is a number and written as one.
    pub const fn is_plain_number(&self) -> bool {
        self.text.is_none() && !matches!(self.scheme, Scheme::Wide(_))
    }
}

impl Scheme {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Snowflake { .. } => "snowflake",
            Self::Segment(_) => "segment",
            Self::Wide(scheme) => scheme.name(),
        }
    }

    /// How often its numbers restart, if they do.
    pub const fn reset(&self) -> Option<Reset> {
        match self {
            Self::Segment(segment) => segment.reset,
            _ => None,
        }
    }
}

impl SegmentScheme {
    /// Plain numbers from 1 on, in the store of the service.
    pub const fn new() -> Self {
        Self {
            mode: Mode::Cached,
            source: NumberSource::Own(Stripe::WHOLE),
            start: 1,
            maximum: MAX_NUMBER,
            reset: None,
            size: SizeBounds { min: None, max: None },
            series: 1,
        }
    }

    /// The key of its counter in a store; each period has one below it, `KEY/2026-11-21`.
    ///
    /// A series has a key of its own: to start over is to count at another one.
    pub fn counter_key(&self, name: &NamespaceName) -> String {
        match self.series {
            0 | 1 => format!("segments/{name}"),
            series => format!("segments/{name}/series-{series}"),
        }
    }

    /// How its numbers are reserved and handed out.
    pub fn config(&self) -> SegmentConfig {
        let min = self.size.min.unwrap_or_else(|| *SIZES.start().min(&self.size.max.unwrap_or(u64::MAX)));
        let max = self.size.max.unwrap_or_else(|| *SIZES.end().max(&min));
        SegmentConfig::new().mode(self.mode).sizes(min..=max).first(self.start).maximum(self.maximum)
    }

    /// Checks that its numbers count by one without an end, as Redis' INCR does.
    ///
    /// # Errors
    ///
    /// The reason why they do not, to follow the name of the namespace.
    pub fn counts_by_one(&self) -> Result<(), &'static str> {
        let has_steps = |stripe: Stripe| stripe.of() > 1;
        match &self.source {
            _ if self.reset.is_some() => Err("its numbers restart with each period"),
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

    /// Checks that no two sources of its numbers can give the same one, as far as their texts say, and that all nodes of
    /// a store with this reach count in the same places.
    ///
    /// What a source really gives is known only once it is open; whoever opens several compares that.
    ///
    /// # Errors
    ///
    /// [`DefinitionError::Sources`] names the sources and says what to do.
    pub fn check_sources(&self, reach: Visibility) -> Result<(), DefinitionError> {
        self.sources_disjoint(Some(reach))
    }

    /// As [`check_sources`](Self::check_sources); without a reach, where the store is not known yet.
    pub(super) fn sources_disjoint(&self, reach: Option<Visibility>) -> Result<(), DefinitionError> {
        let NumberSource::Other(sources) = &self.source else { return Ok(()) };
        CounterSource::check_disjoint(sources, reach).map_err(DefinitionError::Sources)
    }

    fn check(&self) -> Result<(), DefinitionError> {
        self.config().check()?;
        let NumberSource::Other(sources) = &self.source else { return Ok(()) };
        self.check_stripes(sources)
    }

    fn check_stripes(&self, sources: &[CounterSource]) -> Result<(), DefinitionError> {
        let refuse = |why: String| Err(DefinitionError::Sources(why));
        if !(1..=MAX_SOURCES).contains(&sources.len()) {
            return refuse(format!("there are 1 to {MAX_SOURCES} sources, not {}", sources.len()));
        }
        if self.mode == Mode::Direct && sources.len() > 1 {
            return refuse(
                "mode `direct` has one source: numbers of several stores do not grow in one order".to_owned(),
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

/// The word for a mode, in files and flags.
pub(super) const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Cached => "cached",
        Mode::Direct => "direct",
    }
}

impl fmt::Display for Definition {
    /// All of it in one line, for people: `segment cached 1/2 from 1 as ORD-{number:6}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scheme {
            Scheme::Snowflake { layout, rule, sequence_start } => {
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
        match &self.text {
            Some(text) => write!(f, ", as {text}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for SegmentScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", mode_name(self.mode), self.source)?;
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
