//! Hide keys: the key that hides the ids of a namespace, and the keys that a node has.
//!
//! A namespace with a hide key serves each id as another number, by [`Hider`]'s permutation of all 63-bit
//! numbers, so that an id reveals neither when it was made nor how many ids came before it. One key never
//! maps two ids to the same number. Two keys can, so all ids of a namespace are hidden under one key: the
//! record holds a check value of the key, and a node without exactly that key does not serve the namespace.
//! Keys themselves are never written to a store.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use snowmint::error::Snippet;
use snowmint::hide::Hider;
use toml::Spanned;

use super::{ConfigTextError, Definition, NamespaceName, Scheme};

/// The length of a key in hex digits.
const KEY_DIGITS: usize = 32;

/// The name of a hide key: 1 to 64 letters, digits, `.`, `_`, `-` or `:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HideKeyName(NamespaceName);

/// An invalid name of a hide key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid name of a hide key {name}: expected 1 to 64 letters, digits, `.`, `_`, `-` or `:`")]
pub struct HideKeyNameError {
    name: Snippet,
}

impl HideKeyName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl FromStr for HideKeyName {
    type Err = HideKeyNameError;

    fn from_str(name: &str) -> Result<Self, HideKeyNameError> {
        NamespaceName::new(name).map(Self).map_err(|_| HideKeyNameError { name: Snippet::of(name) })
    }
}

impl fmt::Display for HideKeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The check value of a hide key, in 16 hex digits: two keys with the same check value are the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HideCheck([u8; 8]);

/// A text that is not a check value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid check value {text}: expected 16 hex digits")]
pub struct HideCheckError {
    text: Snippet,
}

impl FromStr for HideCheck {
    type Err = HideCheckError;

    fn from_str(text: &str) -> Result<Self, HideCheckError> {
        hex(text).map(Self).ok_or_else(|| HideCheckError { text: Snippet::of(text) })
    }
}

impl fmt::Display for HideCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// How the ids of a namespace are hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hide {
    /// The name of the key.
    pub key: HideKeyName,
    /// The check value of the key; `None` in flags and files, until [`Definition::with_hide_check`] has found
    /// the key.
    pub check: Option<HideCheck>,
}

impl fmt::Display for Hide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hidden by key {}", self.key)?;
        match self.check {
            Some(check) => write!(f, " ({check})"),
            None => Ok(()),
        }
    }
}

/// Why the ids of a namespace cannot be hidden.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HideError {
    /// This process does not have the key.
    #[error("hide key {key} is missing: add it to the file of --hide-keys-file")]
    NoKey {
        /// The name of the key.
        key: HideKeyName,
    },
    /// The key of this name differs from the namespace's key.
    #[error(
        "hide key {key} (check value {found}) is not the key that this namespace was created with (check value {expected}): ids \
         hidden under two keys could be duplicates; restore the original key in the file of --hide-keys-file"
    )]
    OtherKey {
        /// The name of the key.
        key: HideKeyName,
        /// The check value in the definition.
        expected: HideCheck,
        /// The check value of the key of this process.
        found: HideCheck,
    },
    /// The definition has no check value yet.
    #[error(
        "hide key {key} was not checked: define this namespace where the key is known, with --hide-keys-file"
    )]
    Unchecked {
        /// The name of the key.
        key: HideKeyName,
    },
}

/// The hide keys of a process, by name.
#[derive(Clone, Default)]
pub struct HideKeys(BTreeMap<HideKeyName, Hider>);

impl HideKeys {
    /// Parses a TOML file with one line for each key: its name, and 32 hex digits in quotes.
    ///
    /// # Errors
    ///
    /// [`ConfigTextError`] with the first invalid line. It never shows a key.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint_cluster::namespace::HideKeys;
    /// assert!(HideKeys::parse("public = '00112233445566778899aabbccddeeff'").is_ok());
    /// let error = HideKeys::parse("public = '0011'").unwrap_err().to_string();
    /// assert_eq!(error, "line 1: invalid hide key public: expected 32 hex digits, found 4 characters");
    /// ```
    pub fn parse(text: &str) -> Result<Self, ConfigTextError> {
        let at = |span, message| ConfigTextError::at(text, span, message);
        let invalid_line =
            |span| at(span, "invalid line: expected a name, `=` and 32 hex digits in quotes".to_owned());
        let document: BTreeMap<Spanned<String>, Spanned<toml::Value>> =
            toml::from_str(text).map_err(|error| invalid_line(error.span()))?;
        let mut keys = BTreeMap::new();
        for (name, key) in document {
            let span = Some(name.span());
            let bytes = hex(key.get_ref().as_str().unwrap_or_default());
            let parsed: Result<HideKeyName, HideKeyNameError> = name.get_ref().parse();
            // A key in the wrong place, or most of a key: an error with this name would show it.
            if (bytes.is_none() || parsed.is_err()) && may_hold_key(name.get_ref()) {
                return Err(invalid_line(span));
            }
            let name = parsed.map_err(|error| at(span.clone(), error.to_string()))?;
            let bytes = bytes.ok_or_else(|| {
                let digits = key.get_ref().as_str().unwrap_or_default();
                let found = digits.chars().count();
                let other = if found == KEY_DIGITS {
                    "other characters".to_owned()
                } else {
                    format!("{found} characters")
                };
                at(span, format!("invalid hide key {name}: expected {KEY_DIGITS} hex digits, found {other}"))
            })?;
            keys.insert(name, Hider::new(&bytes));
        }
        Ok(Self(keys))
    }

    /// Returns a new random key in hex digits, for a file of keys.
    ///
    /// # Errors
    ///
    /// The operating system's error if it has no random numbers.
    pub fn new_key() -> Result<String, getrandom::Error> {
        let mut key = [0; KEY_DIGITS / 2];
        getrandom::fill(&mut key)?;
        Ok(format!("{:032x}", u128::from_be_bytes(key)))
    }

    /// Returns the hider of a key.
    ///
    /// # Errors
    ///
    /// [`HideError::NoKey`].
    pub fn key(&self, name: &HideKeyName) -> Result<&Hider, HideError> {
        self.0.get(name).ok_or_else(|| HideError::NoKey { key: name.clone() })
    }

    /// Returns the check value of a key.
    ///
    /// # Errors
    ///
    /// [`HideError::NoKey`].
    pub fn check_value(&self, name: &HideKeyName) -> Result<HideCheck, HideError> {
        self.key(name).map(|hider| HideCheck(hider.check_value()))
    }

    /// Returns the hider of a namespace.
    ///
    /// # Errors
    ///
    /// [`HideError`] if this process does not have the key that the namespace was created with.
    pub fn hider(&self, hide: &Hide) -> Result<&Hider, HideError> {
        let hider = self.key(&hide.key)?;
        let (key, found) = (hide.key.clone(), HideCheck(hider.check_value()));
        match hide.check {
            None => Err(HideError::Unchecked { key }),
            Some(expected) if expected != found => Err(HideError::OtherKey { key, expected, found }),
            Some(_) => Ok(hider),
        }
    }
}

impl fmt::Debug for HideKeys {
    /// Prints the names of the keys, and never the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys().map(HideKeyName::as_str)).finish()
    }
}

impl Definition {
    /// Returns the definition with the check value of its hide key; unchanged without a hide key.
    ///
    /// # Errors
    ///
    /// [`HideError`] if the key is missing, or differs from the earlier one.
    pub fn with_hide_check(mut self, keys: &HideKeys) -> Result<Self, HideError> {
        if let Some(hide) = self.scheme.hide_mut() {
            let found = keys.check_value(&hide.key)?;
            hide.check.get_or_insert(found);
            keys.hider(hide)?;
        }
        Ok(self)
    }

    /// Checks that the hide key, if there is one, was found.
    pub(super) fn check_hide(&self) -> Result<(), HideError> {
        match self.scheme.hide() {
            Some(Hide { key, check: None }) => Err(HideError::Unchecked { key: key.clone() }),
            _ => Ok(()),
        }
    }
}

impl Scheme {
    /// Returns how its ids are hidden, if they are.
    pub const fn hide(&self) -> Option<&Hide> {
        match self {
            Self::Snowflake { hide, .. } => hide.as_ref(),
            Self::Segment(segment) => segment.hide.as_ref(),
            Self::Wide(_) => None,
        }
    }

    const fn hide_mut(&mut self) -> Option<&mut Hide> {
        match self {
            Self::Snowflake { hide, .. } => hide.as_mut(),
            Self::Segment(segment) => segment.hide.as_mut(),
            Self::Wide(_) => None,
        }
    }
}

/// Returns `true` if a text has half as many hex digits as a key, wherever they are: keys also come with
/// dashes, or cut short.
fn may_hold_key(text: &str) -> bool {
    text.chars().filter(char::is_ascii_hexdigit).count() >= KEY_DIGITS / 2
}

/// Reads exactly `N` bytes in hex digits; 16 at most.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    // `from_str_radix` would accept a sign.
    let has_digits = text.len() == 2 * N && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = u128::from_str_radix(text, 16).ok().filter(|_| has_digits)?;
    value.to_be_bytes()[16 - N..].try_into().ok()
}

#[cfg(test)]
mod tests {
    use snowmint::{Id, Layout};

    use super::*;
    use crate::namespace::Fields;

    const ONE: &str = "public = '00112233445566778899aabbccddeeff'";
    const OTHER: &str = "public = '00112233445566778899aabbccddeefe'";

    fn keys(text: &str) -> HideKeys {
        HideKeys::parse(text).unwrap()
    }

    fn defined(toml: &str) -> Definition {
        toml::from_str::<Fields>(toml).unwrap().define(&Layout::TWITTER).unwrap()
    }

    #[test]
    fn a_file_of_keys_is_read_and_no_error_shows_a_key() {
        let all = keys(&format!("# keys\n{ONE}\n\"a:b\" = 'FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF'\n"));
        assert_eq!(format!("{all:?}"), r#"{"a:b", "public"}"#);
        assert!(all.key(&"a:b".parse().unwrap()).is_ok());
        assert!(format!("{:?}", keys("")).is_empty() || keys("").key(&"public".parse().unwrap()).is_err());
        for (bad, words) in [
            (
                "a = '00112233445566778899aabbccddeefg'",
                "line 1: invalid hide key a: expected 32 hex digits, found other",
            ),
            (
                "\nb = '00112233445566778899aabbccddeeff00'",
                "line 2: invalid hide key b: expected 32 hex digits, found 34",
            ),
            ("c = 5", "line 1: invalid hide key c"),
            ("'d e' = '00112233445566778899aabbccddeeff'", "invalid name of a hide key `d e`"),
            ("e = 00112233445566778899aabbccddeeff", "line 1: invalid line"),
            ("f = '00112233445566778899aabbccddeeff", "line 1: invalid line"),
            // A key in the place of the name, and quotes around both.
            ("# g\n00112233445566778899aabbccddeeff = 'g'", "line 2: invalid line"),
            ("'h = 00112233445566778899aabbccddeeff' = ''", "line 1: invalid line"),
            ("00112233445566778899aabbccddeef = 'public'", "line 1: invalid line"),
            ("00112233-4455-6677-8899-aabbccddeeff = 'public'", "line 1: invalid line"),
            (
                "'00112233445566778899aabbccddeeff old' = '00112233445566778899aabbccddeeff'",
                "line 1: invalid line",
            ),
        ] {
            let error = HideKeys::parse(bad).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("8899"), "{bad}: {error}");
        }
        let [one, other] = [HideKeys::new_key().unwrap(), HideKeys::new_key().unwrap()];
        assert!(one != other && HideKeys::parse(&format!("k = '{one}'")).is_ok());
    }

    /// Goal: only the key that a namespace was created with hides its ids. Method: its own key, another key
    /// of the same name, no key, and a definition that was never checked.
    #[test]
    fn a_namespace_is_served_with_its_own_key_alone() {
        let wanted = defined("scheme = 'segment'\nhide = 'public'");
        let checked = wanted.clone().with_hide_check(&keys(ONE)).unwrap();
        let hide = checked.scheme.hide().unwrap();
        assert!(keys(ONE).hider(hide).is_ok());
        assert!(matches!(keys(OTHER).hider(hide), Err(HideError::OtherKey { .. })));
        assert!(matches!(keys("").hider(hide), Err(HideError::NoKey { .. })));
        assert!(matches!(keys(ONE).hider(wanted.scheme.hide().unwrap()), Err(HideError::Unchecked { .. })));
        assert!(wanted.check_hide().is_err() && checked.check_hide().is_ok());
        assert!(matches!(checked.clone().with_hide_check(&keys(OTHER)), Err(HideError::OtherKey { .. })));
        assert_eq!(checked.clone().with_hide_check(&keys(ONE)), Ok(checked.clone()));
        assert!(checked.to_string().contains(", hidden by key public ("), "{checked}");
        let plain = defined("scheme = 'uuid7'");
        assert_eq!(plain.clone().with_hide_check(&keys("")), Ok(plain));
    }

    /// Goal: the key of a namespace is fixed at its creation. Method: each change of it.
    #[test]
    fn the_key_of_a_namespace_does_not_change() {
        let name = NamespaceName::new("n").unwrap();
        for scheme in ["segment", "snowflake"] {
            let plain = defined(&format!("scheme = '{scheme}'"));
            let hidden = |file: &str| {
                defined(&format!("scheme = '{scheme}'\nhide = 'public'"))
                    .with_hide_check(&keys(file))
                    .unwrap()
            };
            for (one, other) in
                [(plain.clone(), hidden(ONE)), (hidden(ONE), plain.clone()), (hidden(ONE), hidden(OTHER))]
            {
                assert_eq!(one.may_become(&other, &name).unwrap_err().what, "hide key", "{scheme}");
            }
            assert!(hidden(ONE).may_become(&hidden(ONE), &name).is_ok());
        }
    }

    #[test]
    fn what_cannot_be_hidden_is_refused() {
        for (toml, words) in [
            ("scheme = 'uuid7'\nhide = 'public'", "invalid setting `hide` for scheme uuid7"),
            ("scheme = 'segment'\nreset = 'daily'\ntext = '{date}{number}'\nhide = 'public'", "each period"),
            ("scheme = 'snowflake'\ntext = '{yyyy}-{number}'\nhide = 'public'", "the date"),
            ("scheme = 'segment'\nhide_check = '0011223344556677'", "`hide_check` needs `hide`"),
        ] {
            let error =
                toml::from_str::<Fields>(toml).unwrap().define(&Layout::TWITTER).unwrap_err().to_string();
            assert!(error.contains(words), "{toml}: {error}");
        }
    }

    #[test]
    fn a_hidden_id_is_read_with_its_key_alone() {
        let definition = defined("scheme = 'segment'\ntext = 'T-{base62}'\nhide = 'public'");
        let keys = keys(ONE);
        let hider = keys.key(&"public".parse().unwrap()).unwrap();
        let mut text = Vec::new();
        definition.text.as_ref().unwrap().write_number(hider.hide(Id::new(42).unwrap()).get(), 0, &mut text);
        let text = String::from_utf8(text).unwrap();
        let (decoded, form) = definition.inspect(&text, &[], Some(hider)).unwrap();
        assert_eq!(
            (decoded.values()[0].1.clone(), form),
            (snowmint::inspect::Value::Text("42".to_owned()), "base62")
        );
        let error = definition.inspect(&text, &[], None).unwrap_err().to_string();
        assert_eq!(
            error,
            "its ids are hidden by key public, which is missing here: add it to the file of --hide-keys-file"
        );
    }
}
