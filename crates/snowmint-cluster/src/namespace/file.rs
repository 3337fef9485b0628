//! The TOML file of namespaces: one table for each, and what happens to unknown names. It is accepted as a
//! whole or not at all.

use std::collections::BTreeMap;

use serde::Deserialize;
use snowmint::Layout;
use snowmint::error::Snippet;
use toml::Spanned;
use toml::de::{DeTable, Deserializer, Error as TomlError};

use super::definition::Definition;
use super::hide::{HideError, HideKeys};
use super::logins::Logins;
use super::record::Fields;
use super::{ConfigTextError, MAX_NAMESPACES, NamespaceName};

/// The largest file, in bytes.
const MAX_BYTES: usize = 4 << 20;

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
    /// The logins for sources of any namespace.
    pub logins: Logins,
}

/// The namespace that is created when an unknown name is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoCreate {
    /// Its definition.
    pub definition: Definition,
    /// The maximum number of namespaces in a store; further unknown names are rejected.
    pub at_most: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTables {
    #[serde(default)]
    namespaces: BTreeMap<Spanned<String>, Spanned<Fields>>,
    auto_create: Option<Spanned<AutoCreateFields>>,
    #[serde(default)]
    logins: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AutoCreateFields {
    like: String,
    at_most: usize,
}

impl NamespaceFile {
    /// Returns the file with the check values of all hide keys.
    ///
    /// # Errors
    ///
    /// The namespace whose key is missing or differs from the stated one, and the reason.
    pub fn with_hide_checks(self, keys: &HideKeys) -> Result<Self, (NamespaceName, HideError)> {
        let checked = |(name, definition): (NamespaceName, Definition)| {
            let definition = definition.with_hide_check(keys).map_err(|error| (name.clone(), error))?;
            Ok((name, definition))
        };
        let namespaces: BTreeMap<_, _> =
            self.namespaces.into_iter().map(checked).collect::<Result<_, _>>()?;
        // Its definition is that of one of the namespaces in the file.
        let auto_create = self.auto_create.map(|auto_create| AutoCreate {
            definition: auto_create
                .definition
                .clone()
                .with_hide_check(keys)
                .unwrap_or(auto_create.definition),
            ..auto_create
        });
        Ok(Self { namespaces, auto_create, logins: self.logins })
    }

    /// Parses a file; `layout` is for snowflake namespaces without one.
    ///
    /// # Errors
    ///
    /// [`ConfigTextError`] with the first invalid line.
    pub fn parse(text: &str, layout: &Layout) -> Result<Self, ConfigTextError> {
        check_length(text)?;
        let table = DeTable::parse(text).map_err(|error| error_in(text, &error))?;
        Self::of_table(table.into_inner(), text, layout)
    }

    /// Reads the table of a file that was parsed, or the tables of namespaces in a larger file. `text` is the
    /// whole file: errors name its lines.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse).
    pub fn of_table(table: DeTable<'_>, text: &str, layout: &Layout) -> Result<Self, ConfigTextError> {
        let at = |span, message| ConfigTextError::at(text, span, message);
        check_length(text)?;
        let document = FileTables::deserialize(Deserializer::from(Spanned::new(0..text.len(), table)))
            .map_err(|error| error_in(text, &error))?;
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
        let logins = Logins::of_table(document.logins).map_err(|(span, message)| at(Some(span), message))?;
        Ok(Self { auto_create: auto_create.transpose()?, namespaces, logins })
    }
}

fn check_length(text: &str) -> Result<(), ConfigTextError> {
    if text.len() <= MAX_BYTES {
        return Ok(());
    }
    let message = format!("invalid length {}: expected at most {MAX_BYTES} bytes", text.len());
    Err(ConfigTextError::at(text, None, message))
}

fn error_in(text: &str, error: &TomlError) -> ConfigTextError {
    ConfigTextError::at(text, error.span(), error.message().to_owned())
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
                "[namespaces.a]\nscheme = 'segment'\ntext = '{date}{number}'\ntime_zone = 'CST 8'",
                "line 4: invalid time zone `CST 8`: expected UTC or a name",
            ),
            (
                "[namespaces.a]\nscheme = 'segment'\ntext = '{date}{number}'\ntime_zone = 'Asia/Shangai'",
                "line 1: unknown time zone Asia/Shangai",
            ),
            (
                "[namespaces.a]\nscheme = 'segment'\nmode = 'direct'\nsources = ['1/2 mysql://a/i', '2/2 mysql://b/i']",
                "has one source",
            ),
            (
                "[namespaces.a]\nscheme = 'segment'\nsources = ['mysql://u:p@a/i']",
                "line 3: the URL of a source has a password",
            ),
            (
                "[namespaces.a]\nscheme = 'segment'\nowner = \"a\\nb\"",
                "line 1: invalid owner `a\\nb`: expected at most 128 characters without control characters",
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
