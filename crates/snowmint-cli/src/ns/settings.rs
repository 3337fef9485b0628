//! The settings of a namespace as flags; each the word that files and records have for it.

use snowmint::{Layout, Rule, Start};
use snowmint_cluster::namespace::{CounterSource, Definition, DefinitionError, Fields, ModeWord, TextForm};
use snowmint_cluster::segment::{Reset, Stripe};

/// What `add` and `set` both take.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Safe {
    /// Write ids in this form: literal text around {number}, {number:6}, {hex}, {base32}, {base36}, {base58}, {base62},
    /// {alphabet=CHARS}, or {id} (of uuid7, uuid4, ulid, objectid), with {date}, {yyyy}, {mm}, {dd}
    #[arg(long, value_name = "TEMPLATE")]
    text: Option<TextForm>,
    /// Rule for a clock that goes back (snowflake); without it the rule of the service
    #[arg(long, value_name = "RULE")]
    rule: Option<Rule>,
    /// Start of the sequence in each new tick (snowflake): zero, random, random(N) or rolling (see `snowmint serve
    /// --help`). Do not use zero if ids are rare and `id % n` picks a shard. Without it the start of the service
    #[arg(long, value_name = "START")]
    sequence_start: Option<Start>,
    /// Mode (segment): cached (from memory: fast, increasing on each node) or direct (from the store each time:
    /// increasing over all nodes)
    #[arg(long, value_name = "MODE")]
    mode: Option<ModeWord>,
    /// Smallest number (segment); raises a counter that is below it
    #[arg(long, value_name = "N")]
    start: Option<u64>,
    /// Largest number (segment)
    #[arg(long, value_name = "N")]
    maximum: Option<u64>,
    /// Smallest and first size of a reservation (segment)
    #[arg(long, value_name = "N")]
    size_min: Option<u64>,
    /// Largest size of a reservation (segment)
    #[arg(long, value_name = "N")]
    size_max: Option<u64>,
}

/// What makes a namespace what it is, and cannot be changed afterwards.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Pinned {
    /// Scheme: snowflake, segment, uuid7, uuid4, ulid or objectid
    #[arg(long, value_name = "SCHEME")]
    pub(super) scheme: Option<String>,
    /// Layout (snowflake): a name (see `snowmint layouts`) or its fields (see `snowmint layout --help`)
    #[arg(long, value_name = "SPEC|NAME")]
    layout: Option<Layout>,
    /// Stripe (segment, in the store of the service): only numbers that are I modulo N, such as 1/2
    #[arg(long, value_name = "I/N")]
    stripe: Option<Stripe>,
    /// Of segment: where numbers are reserved instead of the store of the service: the stripe and the URL of a store, or
    /// the URL of a counter of another system; once for each
    #[arg(long = "source", value_name = "SOURCE")]
    sources: Vec<String>,
    /// Reset period (segment): daily, monthly or yearly, in UTC. The text form must contain the date
    #[arg(long, value_name = "PERIOD")]
    reset: Option<Reset>,
}

impl Pinned {
    /// Whether anything was given.
    pub(super) const fn is_given(&self) -> bool {
        self.scheme.is_some()
            || self.layout.is_some()
            || self.stripe.is_some()
            || !self.sources.is_empty()
            || self.reset.is_some()
    }

    /// Whether something of segments was given.
    pub(super) const fn is_of_segment(&self) -> bool {
        self.stripe.is_some() || !self.sources.is_empty() || self.reset.is_some()
    }

    /// The definition of a namespace of `scheme`.
    pub(super) fn define(&self, scheme: &str, safe: &Safe) -> Result<Definition, DefinitionError> {
        // Read here and not by the flag: its error would repeat a password.
        let sources: Result<Vec<CounterSource>, _> =
            self.sources.iter().map(|source| source.parse()).collect();
        let sources = sources.map_err(|error| DefinitionError::Sources(format!("--source: {error}")))?;
        let fields = Fields {
            scheme: scheme.to_owned(),
            layout: self.layout,
            stripe: self.stripe,
            sources: Some(sources).filter(|sources| !sources.is_empty()),
            reset: self.reset,
            ..Fields::default()
        };
        safe.over(fields).define(&Layout::TWITTER)
    }
}

impl Safe {
    /// Whether anything was given.
    pub(super) const fn is_given(&self) -> bool {
        self.text.is_some()
            || self.rule.is_some()
            || self.sequence_start.is_some()
            || self.mode.is_some()
            || self.start.is_some()
            || self.maximum.is_some()
            || self.size_min.is_some()
            || self.size_max.is_some()
    }

    /// Whether something of segments was given.
    pub(super) const fn is_of_segment(&self) -> bool {
        self.mode.is_some()
            || self.start.is_some()
            || self.maximum.is_some()
            || self.size_min.is_some()
            || self.size_max.is_some()
    }

    /// A definition with what was given instead of what it has.
    pub(super) fn change(&self, definition: &Definition, text: Text) -> Result<Definition, DefinitionError> {
        let mut fields = self.over(Fields::from(definition));
        if text == Text::Plain {
            fields.text = None;
        }
        fields.define(&Layout::TWITTER)
    }

    fn over(&self, fields: Fields) -> Fields {
        Fields {
            text: self.text.clone().or(fields.text),
            rule: self.rule.or(fields.rule),
            sequence_start: self.sequence_start.or(fields.sequence_start),
            mode: self.mode.or(fields.mode),
            start: self.start.or(fields.start),
            maximum: self.maximum.or(fields.maximum),
            size_min: self.size_min.or(fields.size_min),
            size_max: self.size_max.or(fields.size_max),
            ..fields
        }
    }
}

/// What becomes of a text form that nobody gave another for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    Kept,
    Plain,
}
