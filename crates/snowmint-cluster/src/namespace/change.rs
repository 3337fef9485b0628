//! Which definition may follow another in one namespace: what would produce duplicates may not.

use super::definition::{Definition, NumberSource, Scheme, SegmentScheme};
use super::name::NamespaceName;
use super::text_form::TextForm;
use super::text_form::overlap::{Periods, Plain, can_meet};

/// A change that could produce duplicates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "namespace {name} is pinned to `{pinned}`, wanted is `{wanted}`: with another {what} ids could be equal to earlier ones; \
     go on with what is pinned, or take a new namespace"
)]
pub struct ChangeError {
    /// The namespace.
    pub name: NamespaceName,
    /// What the store says.
    pub pinned: String,
    /// What was wanted.
    pub wanted: String,
    /// What may not change.
    pub what: &'static str,
}

/// A text form that could write an id as an earlier one was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "namespace {name} cannot change its text form to `{wanted}`: a new id could get the text of an earlier id, written as \
     `{earlier}`; change only the width of its number, or begin it with a literal that no earlier text begins with, such as \
     `B-`, or take a new namespace"
)]
pub struct TextChangeError {
    /// The namespace.
    pub name: NamespaceName,
    /// The form that earlier ids have.
    pub earlier: String,
    /// The form that was wanted.
    pub wanted: String,
}

impl Definition {
    /// Whether ids may be written as in `wanted` where earlier ones are written as here. Ids count as made from the moment
    /// a namespace is there: nobody can say that there are none.
    ///
    /// # Errors
    ///
    /// [`TextChangeError`] with both forms, unless no text can stand for two ids.
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

    /// Whether a namespace that is so defined may go on as `wanted`.
    ///
    /// Another scheme, layout, stripe, source or reset may not follow; how a source is reached (its user, but for PostgreSQL, TLS,
    /// files and time limits), mode, sizes, start, maximum, rule and sequence start
    /// may: a counter only ever goes up, whatever the start, and another sequence start takes a worker of its own. Whether
    /// another text form may, says its record, which knows all earlier ones.
    ///
    /// # Errors
    ///
    /// [`ChangeError`] with both as text.
    pub fn may_become(&self, wanted: &Self, name: &NamespaceName) -> Result<(), ChangeError> {
        match self.scheme.differs(&wanted.scheme) {
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
            (Self::Snowflake { layout, .. }, Self::Snowflake { layout: other, .. }) => {
                (layout != other).then_some("layout")
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
        ]
        .into_iter()
        .find_map(|(what, differs)| differs.then_some(what))
    }
}

impl NumberSource {
    /// Whether both count in the same places, however those are reached.
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

#[cfg(test)]
mod tests {
    use snowmint::Layout;

    use super::super::fields::Fields;
    use super::*;

    fn defined(toml: &str) -> Definition {
        toml::from_str::<Fields>(toml).unwrap().define(&Layout::TWITTER).unwrap()
    }

    /// Goal: each setting is either safe to change or refused. Method: one change at a time, from one base a scheme.
    #[test]
    fn what_could_make_equal_ids_may_not_change() {
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
            ("1/2 mysql://h/i", "1/2 mariadb://h/i?password_file=/p", true),
            ("1/2 mysql://h/i", "2/2 mysql://h/i", false),
            // Each user may have a table of its own there, by `search_path`.
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
}
