//! Definitions as settings: a flat list in flags, in records and in a TOML file of namespaces.
//!
//! A setting of another scheme is rejected when the settings are read. A file is accepted as a whole or not at all.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use snowmint::error::Snippet;
use snowmint::{Layout, Rule, Start};
use snowmint_store::MAX_NUMBER;
use toml::Spanned;

use super::NamespaceName;
use super::counter_source::CounterSource;
use super::definition::{Definition, DefinitionError, NumberSource, Scheme, SegmentScheme, SizeBounds};
use super::text_form::TextForm;
use crate::segment::{Mode, Reset, Stripe};

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
    /// `snowflake`, `segment`, `uuid7`, `uuid4`, `ulid` or `objectid`.
    pub scheme: String,
    /// The layout (snowflake); `None` for the service's layout.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// What to do when the clock goes back (snowflake); `None` for the service's rule.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// Where the sequence of a new tick starts (snowflake): `zero`, `random`, `random(100)` or `rolling`; `None` for the
    /// service's setting.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub sequence_start: Option<Start>,
    /// `cached` or `direct` (segment).
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The stripe in the service's own store, such as `1/2` (segment).
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub stripe: Option<Stripe>,
    /// Other stores, each with its stripe, or counters of other systems (segment).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<CounterSource>>,
    /// The smallest number (segment).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// The greatest number (segment).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<u64>,
    /// `daily`, `monthly` or `yearly`, if numbers restart (segment).
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub reset: Option<Reset>,
    /// The size of the first segment and the smallest one (segment).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_min: Option<u64>,
    /// The largest size of a segment (segment).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_max: Option<u64>,
    /// The series of numbers, one more each time the namespace started over (segment).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<u32>,
    /// How ids are written, such as `ORD-{date}-{number:6}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextForm>,
}

impl Fields {
    /// Returns the definition; `layout` is for a snowflake namespace without one.
    ///
    /// # Errors
    ///
    /// [`DefinitionError`] with the setting that is invalid or does not fit the others.
    pub fn define(self, layout: &Layout) -> Result<Definition, DefinitionError> {
        let definition = self.define_pinned(layout)?;
        if let Scheme::Segment(segment) = &definition.scheme {
            segment.sources_disjoint(None)?;
        }
        Ok(definition)
    }

    /// Returns the definition of a record. It accepts sources that overlap, so that the namespace can be listed and dropped;
    /// no node serves it.
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
}

/// The largest file, in bytes.
const MAX_BYTES: usize = 4 << 20;
/// The most namespaces of a file, and the most that are created for unknown names.
pub const MAX_NAMESPACES: usize = 10_000;

/// A TOML file of namespaces: one table for each, and what happens to unknown names.
///
/// # Examples
///
/// ```
/// use snowmint::Layout;
/// use snowmint_cluster::namespace::NamespaceFile;
/// let file = NamespaceFile::parse(
///     r#"
///     [namespaces.orders]
///     scheme = "segment"
///     reset = "daily"
///     text = "ORD-{date}-{number:6}"
///     "#,
///     &Layout::TWITTER,
/// )?;
/// assert_eq!(file.namespaces.len(), 1);
/// let error = NamespaceFile::parse("[namespaces.orders]\nscheme = \"segment\"\nstripe = \"3/2\"", &Layout::TWITTER).unwrap_err();
/// assert!(error.to_string().starts_with("line 3: "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceFile {
    /// The namespaces by name.
    pub namespaces: BTreeMap<NamespaceName, Definition>,
    /// What is created for an unknown name; `None` if it is rejected.
    pub auto_create: Option<AutoCreate>,
}

/// The namespace that is created when an unknown name is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoCreate {
    /// Its definition.
    pub definition: Definition,
    /// The most namespaces of a store; further unknown names are rejected.
    pub at_most: usize,
}

/// An invalid file of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", .line.map_or_else(String::new, |line| format!("line {line}: ")))]
pub struct NamespaceFileError {
    /// The line, from 1, if it is known.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    namespaces: BTreeMap<Spanned<String>, Spanned<Fields>>,
    auto_create: Option<Spanned<AutoCreateFields>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AutoCreateFields {
    like: String,
    at_most: usize,
}

impl NamespaceFile {
    /// Parses a file; `layout` is for snowflake namespaces without one.
    ///
    /// # Errors
    ///
    /// [`NamespaceFileError`] with the first invalid line.
    pub fn parse(text: &str, layout: &Layout) -> Result<Self, NamespaceFileError> {
        if text.len() > MAX_BYTES {
            let message = format!("invalid length {}: expected at most {MAX_BYTES} bytes", text.len());
            return Err(NamespaceFileError { line: None, message });
        }
        let at = |span: Option<Range<usize>>, message: String| NamespaceFileError {
            line: span.map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count()),
            message,
        };
        let document: Document =
            toml::from_str(text).map_err(|error| at(error.span(), error.message().to_owned()))?;
        let mut namespaces = BTreeMap::new();
        for (name, fields) in document.namespaces {
            let span = name.span();
            let refused = |error: &dyn std::error::Error| at(Some(span.clone()), error.to_string());
            let name = NamespaceName::new(name.get_ref()).map_err(|error| refused(&error))?;
            let definition = fields.into_inner().define(layout).map_err(|error| refused(&error))?;
            namespaces.insert(name, definition);
        }
        if namespaces.len() > MAX_NAMESPACES {
            let message = format!(
                "invalid number of namespaces {}: expected at most {MAX_NAMESPACES}",
                namespaces.len()
            );
            return Err(at(None, message));
        }
        let auto_create = document.auto_create.map(|fields| {
            let span = fields.span();
            fields.into_inner().resolve(&namespaces).map_err(|message| at(Some(span), message))
        });
        Ok(Self { auto_create: auto_create.transpose()?, namespaces })
    }
}

impl AutoCreateFields {
    fn resolve(self, namespaces: &BTreeMap<NamespaceName, Definition>) -> Result<AutoCreate, String> {
        if !(1..=MAX_NAMESPACES).contains(&self.at_most) {
            return Err(format!("invalid at_most {}: expected 1 to {MAX_NAMESPACES}", self.at_most));
        }
        let like = namespaces.iter().find(|(name, _)| name.as_str() == self.like);
        let Some((_, definition)) = like else {
            return Err(format!(
                "unknown namespace {} in `like`: expected one of this file",
                Snippet::of(&self.like)
            ));
        };
        Ok(AutoCreate { definition: definition.clone(), at_most: self.at_most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NamespaceFile, String> {
        NamespaceFile::parse(text, &Layout::TWITTER).map_err(|error| error.to_string())
    }

    #[test]
    fn every_setting_is_read() {
        let file = parse(
            "[namespaces.users]\nscheme = 'snowflake'\nsequence_start = 'rolling'\n\n[namespaces.\"a.b\"]\nscheme = 'segment'\nstripe = '1/2'\n\n\
             [namespaces.keys]\nscheme = 'uuid7'\n\n[auto_create]\nlike = 'a.b'\nat_most = 100\n",
        )
        .unwrap();
        let shown: Vec<_> =
            file.namespaces.iter().map(|(name, definition)| format!("{name}: {definition}")).collect();
        assert_eq!(shown[0], "a.b: segment cached, stripe 1/2");
        assert_eq!(shown[1], "keys: uuid7");
        assert!(shown[2].starts_with("users: snowflake time:41@1ms"));
        assert!(shown[2].ends_with(", sequence start rolling"), "{}", shown[2]);
        assert_eq!(file.auto_create.unwrap().at_most, 100);
        assert_eq!(parse(""), Ok(NamespaceFile::default()));
    }

    #[test]
    fn an_error_names_its_line() {
        let tail = "\n[namespaces.b]\nscheme = 'uuid7'\n";
        for (text, wanted) in [
            ("[namespaces.a]\nscheme = 'segment'\nstripe = '3/2'", "line 3: invalid stripe 3/2"),
            ("[namespaces.a]\nscheme = 'segment'\nsteps = 5", "line 3: unknown field `steps`"),
            ("[namespaces.a]\nscheme = 'flake'", "line 1: unknown scheme `flake`: expected snowflake"),
            (
                "\n\n[namespaces.a]\nscheme = 'uuid7'\nstart = 5",
                "line 3: invalid setting `start` for scheme uuid7",
            ),
            (
                "[namespaces.a]\nscheme = 'segment'\nsequence_start = 'random'",
                "line 1: invalid setting `sequence_start` for scheme segment: it belongs to snowflake",
            ),
            (
                "[namespaces.a]\nscheme = 'snowflake'\nsequence_start = 'random(0)'",
                "line 3: invalid sequence start `random(0)`",
            ),
            ("[namespaces.a]\nscheme = 'segment'\nsize_min = 0", "line 1: invalid segment sizes 0 to"),
            (
                "[namespaces.a]\nscheme = 'segment'\nstart = 5\nmaximum = 4",
                "line 1: invalid range of numbers 5 to 4",
            ),
            ("[namespaces.a]\nscheme = 'segment'\nreset = 'weekly'", "line 3: invalid reset period `weekly`"),
            ("[namespaces.a]\nscheme = 'segment'\nreset = 'daily'", "add {date}"),
            ("[namespaces.a]\nscheme = 'segment'\nmode = 'fast'", "line 3: invalid mode `fast`"),
            (
                "[namespaces.a]\nscheme = 'segment'\nmode = 'direct'\nsources = ['1/2 mysql://a/i', '2/2 mysql://b/i']",
                "has one source",
            ),
            (
                "[namespaces.a]\nscheme = 'segment'\nsources = ['mysql://u:p@a/i']",
                "line 3: the URL of a source has a password",
            ),
            (
                "[namespaces.a]\nscheme = 'snowflake'\ntext = '{id}'",
                "line 1: invalid text form `{id}`: ids of this scheme are numbers",
            ),
            ("[namespaces.\"a b\"]\nscheme = 'uuid7'", "line 1: invalid namespace name `a b`"),
            ("[namespaces.a]", "line 1: missing field `scheme`"),
            ("namespaces = 5", "line 2: cannot extend value"),
            ("[namespace.a]\nscheme = 'uuid7'", "line 1: unknown field `namespace`"),
            ("[namespaces.a\n", "line 1: "),
            ("[auto_create]\nlike = 'x'\nat_most = 5", "line 1: unknown namespace `x` in `like`"),
        ] {
            let error = parse(&format!("{text}{tail}")).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
