//! A text of a namespace, taken apart by its text form and its scheme.

use snowmint::Id;
use snowmint::codec::ParseIdError;
use snowmint::inspect::Decoded;
use snowmint::layout::SplitError;
use snowmint::scheme::SchemeError;

use super::definition::{Definition, Scheme};
use super::text_form::TextForm;

/// Why a text is not an id of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// Its ids are written in another form.
    #[error("its ids are written as {template}")]
    Form {
        /// The text form, without the characters of an alphabet.
        template: String,
    },
    /// Its ids are decimal numbers.
    #[error(transparent)]
    Number(#[from] ParseIdError),
    /// The number has bits that the layout does not have.
    #[error(transparent)]
    Layout(#[from] SplitError),
    /// Its ids have the text of their scheme.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
}

impl Definition {
    /// Takes a text of this namespace apart, and names the text form of its number or id, such as `base62`. The text may
    /// also be in a form that the namespace had before: `earlier`, as its record lists them.
    ///
    /// No text stands for two ids: a form that could write one text twice was refused when it was set.
    ///
    /// # Errors
    ///
    /// [`InspectError`] for what is no text of this namespace, in the words of its present form.
    pub fn inspect(
        &self,
        text: &str,
        earlier: &[Option<TextForm>],
    ) -> Result<(Decoded, &'static str), InspectError> {
        self.inspect_as(self.text.as_ref(), text).or_else(|error| {
            let read = earlier.iter().find_map(|form| self.inspect_as(form.as_ref(), text).ok());
            read.ok_or(error)
        })
    }

    fn inspect_as(
        &self,
        form: Option<&TextForm>,
        text: &str,
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
        match &self.scheme {
            Scheme::Snowflake { layout, .. } => Ok((Decoded::by_layout(id, *layout)?, form)),
            _ => Ok((Decoded::Number(id), form)),
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

    /// Goal: ids of every scheme are read in every text form, present and earlier. Method: one definition of each kind.
    #[test]
    fn texts_of_every_scheme_are_taken_apart() {
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
            let (decoded, read_as) = defined(toml).inspect(text, &earlier).unwrap();
            assert_eq!((&*decoded.name(), read_as), (name, form), "{toml} {text}");
            assert_eq!(decoded.values()[0], ("id", snowmint::inspect::Value::Text(id.to_owned())), "{text}");
        }
    }

    #[test]
    fn what_is_no_text_of_the_namespace_is_told_with_its_form() {
        for (toml, text, words) in [
            ("scheme = 'snowflake'", "x", "not a digit of a decimal id"),
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
            let error = defined(toml).inspect(text, &[]).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("zyx"), "{toml} {text}: {error}");
        }
    }
}
