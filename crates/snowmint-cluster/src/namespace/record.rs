//! A namespace as the store holds it: `namespaces/<name>` with its definition as JSON.
//! A namespace that was dropped leaves its record, so that its numbers do not begin again by accident.

use serde::Deserialize as _;
use serde_json::{Map, Value};
use snowmint::Layout;
use snowmint::utc::{self, Utc};
use snowmint_store::{Key, KeyError};

use super::change::TextChangeError;
use super::definition::Definition;
use super::fields::Fields;
use super::name::NamespaceName;
use super::numbers::Numbers;
use super::text_form::TextForm;

/// What the keys of all records begin with.
pub(super) const PREFIX: &str = "namespaces/";
const EVERYWHERE: &str = "everywhere";
const DROPPED: &str = "dropped";
const EARLIER_TEXTS: &str = "earlier_texts";
const NUMBERS: &str = "numbers";

/// What a store holds of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceRecord {
    /// What it is.
    pub definition: Definition,
    /// Which nodes serve it.
    pub reach: Reach,
    /// When it was dropped, in unix milliseconds; `None` for one that is there.
    pub dropped_unix_ms: Option<u64>,
    /// The text forms that it had before; `None` among them for ids without one. Ids are written so somewhere.
    pub earlier_texts: Vec<Option<TextForm>>,
    /// Which numbers each of its sources gives, in their order, as they were first found; `None` for one that was not
    /// used yet, and for one whose stripe says it.
    pub numbers: Vec<Option<Numbers>>,
}

/// Which nodes serve a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those that name it in a flag or a file: the record only holds what it is pinned to.
    Named,
    /// Every node of this store: it was added to the store.
    Everywhere,
}

impl NamespaceRecord {
    /// A namespace that is there.
    pub const fn new(definition: Definition, reach: Reach) -> Self {
        Self { definition, reach, dropped_unix_ms: None, earlier_texts: Vec::new(), numbers: Vec::new() }
    }

    /// Whether ids may be written as in `wanted` from now on.
    ///
    /// # Errors
    ///
    /// [`TextChangeError`] where a text could come again, in the form that it has or in one that it had.
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

    /// The record with another definition, which may follow the one it has; the text form it had is kept in mind.
    ///
    /// # Errors
    ///
    /// As for [`may_be_written_as`](Self::may_be_written_as).
    pub(super) fn redefined(self, wanted: Definition, name: &NamespaceName) -> Result<Self, TextChangeError> {
        self.may_be_written_as(&wanted, name)?;
        let Self { definition, reach, dropped_unix_ms, mut earlier_texts, numbers } = self;
        if definition.text != wanted.text && !earlier_texts.contains(&definition.text) {
            earlier_texts.push(definition.text);
        }
        Ok(Self { definition: wanted, reach, dropped_unix_ms, earlier_texts, numbers })
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut value = serde_json::to_value(Fields::from(&self.definition))?;
        if let Value::Object(fields) = &mut value {
            if self.reach == Reach::Everywhere {
                fields.insert(EVERYWHERE.to_owned(), Value::Bool(true));
            }
            if !self.earlier_texts.is_empty() {
                fields.insert(EARLIER_TEXTS.to_owned(), serde_json::to_value(&self.earlier_texts)?);
            }
            if !self.numbers.is_empty() {
                fields.insert(NUMBERS.to_owned(), serde_json::to_value(&self.numbers)?);
            }
            if let Some(unix_ms) = self.dropped_unix_ms {
                fields.insert(DROPPED.to_owned(), Value::String(Utc(unix_ms).to_string()));
            }
        }
        serde_json::to_vec(&value)
    }

    /// Reads a record, also one of a version that only pinned layouts; the reason where it cannot be read.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let mut fields: Map<String, Value> =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let reach = match fields.remove(EVERYWHERE) {
            Some(Value::Bool(true)) => Reach::Everywhere,
            _ => Reach::Named,
        };
        let dropped_unix_ms = match fields.remove(DROPPED) {
            None => None,
            Some(when) => {
                Some(utc::parse(when.as_str().unwrap_or_default()).map_err(|error| error.to_string())?)
            }
        };
        let earlier_texts = match fields.remove(EARLIER_TEXTS) {
            None => Vec::new(),
            Some(texts) => serde_json::from_value(texts).map_err(|error| error.to_string())?,
        };
        let numbers = match fields.remove(NUMBERS) {
            None => Vec::new(),
            Some(numbers) => serde_json::from_value(numbers).map_err(|error| error.to_string())?,
        };
        let snowflake = fields.get("scheme").and_then(Value::as_str) == Some("snowflake");
        if snowflake && !fields.contains_key("layout") {
            return Err("it pins no layout".to_owned());
        }
        let fields = Fields::deserialize(Value::Object(fields)).map_err(|error| error.to_string())?;
        // A snowflake record always names its own layout, so this one is never taken.
        let definition = fields.define_pinned(&Layout::TWITTER).map_err(|error| error.to_string())?;
        Ok(Self { definition, reach, dropped_unix_ms, earlier_texts, numbers })
    }
}

pub(super) fn key(name: &NamespaceName) -> Result<Key, KeyError> {
    Key::new(format!("{PREFIX}{name}"))
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
            "scheme = 'ulid'\ntext = 'usr_{id}'",
        ] {
            let definition = toml::from_str::<Fields>(toml).unwrap().define(&Layout::TWITTER).unwrap();
            for (reach, dropped_unix_ms) in
                [(Reach::Named, None), (Reach::Everywhere, Some(1_795_219_200_000))]
            {
                let earlier_texts = vec![None, "A{number}".parse().ok()];
                let numbers = vec![None, serde_json::from_str(r#"{"remainder":1,"delta":2}"#).unwrap()];
                let definition = definition.clone();
                let record = NamespaceRecord { definition, reach, dropped_unix_ms, earlier_texts, numbers };
                assert_eq!(NamespaceRecord::from_bytes(&record.to_bytes().unwrap()), Ok(record), "{toml}");
            }
        }
    }

    /// Goal: what earlier versions wrote stays readable, and is written the same way.
    #[test]
    fn a_pin_of_an_earlier_version_is_read() {
        let pin = br#"{"layout":"time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z","scheme":"snowflake"}"#;
        let record = NamespaceRecord::from_bytes(pin).unwrap();
        assert_eq!(record.definition, Definition::snowflake(Layout::TWITTER));
        assert_eq!((record.reach, record.dropped_unix_ms), (Reach::Named, None));
        let written: Value = serde_json::from_slice(&record.to_bytes().unwrap()).unwrap();
        assert_eq!(written, serde_json::from_slice::<Value>(pin).unwrap());
    }

    #[test]
    fn what_cannot_be_understood_is_not_guessed() {
        for (bad, words) in [
            ("", "EOF"),
            ("[]", "invalid type"),
            (r#"{"scheme":"snowflake"}"#, "pins no layout"),
            (r#"{"scheme":"later"}"#, "there is no scheme `later`"),
            (r#"{"scheme":"segment","shuffle":"x"}"#, "unknown field `shuffle`"),
            (r#"{"scheme":"segment","stripe":"3/2"}"#, "no stripe 3 of 2"),
            (r#"{"scheme":"segment","sequence_start":"zero"}"#, "no meaning for scheme segment"),
            (r#"{"scheme":"segment","dropped":"yesterday"}"#, "is not an instant"),
            (r#"{"scheme":"segment","numbers":[{"remainder":2,"delta":2}]}"#, "invalid remainder 2"),
        ] {
            let error = NamespaceRecord::from_bytes(bad.as_bytes()).unwrap_err();
            assert!(error.contains(words), "{bad}: {error}");
        }
    }
}
