//! The configuration file of `snowmint serve`.
//!
//! A key is the name of a flag of `serve` with `_` for `-`. So the file needs no separate list of keys: it
//! accepts the flags' values. Its values become the defaults of the flags, below environment and command
//! line. The tables `namespaces`, `auto_create` and `logins` are those of a namespace file, and the tables
//! `tokens` those of a tokens file.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, Resettable};
use clap::{Arg, ArgAction, Args as _, Command};
use serde::Deserialize as _;
use snowmint::Layout;
use snowmint::error::Snippet;
use snowmint_cluster::namespace::{ConfigTextError, NamespaceFile};
use snowmint_server::access::{TokenRows, TokensSource, file as tokens_file};
use snowmint_server::namespace_sync::NamespaceSource;
use toml::de::{DeString, DeTable, DeValue, Error as TomlError, ValueDeserializer};
use toml::{Spanned, Value};

use super::args::Args;
use crate::error::Failure;

/// A configuration file whose keys and values were checked, each by its flag.
pub struct ConfigFile {
    /// The values by key, in the form that the flag accepts.
    pub(crate) values: BTreeMap<String, Vec<String>>,
    pub(crate) has_namespaces: bool,
    has_tokens: bool,
    /// The lines of the tables of namespaces and tokens, with the comments around them.
    pub(crate) tables: String,
}

impl ConfigFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("--config: cannot read {shown}: {error}")))?;
        Self::parse(&text).map_err(|why| Failure::usage(format!("{shown}: {why}")))
    }

    /// Reads a file. The tables of namespaces and tokens are checked by their readers.
    ///
    /// # Errors
    ///
    /// The line, the key and the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let flags = flags();
        let document = ConfigTables::parse(text).map_err(|error| error.to_string())?;
        let (has_namespaces, has_tokens) = (!document.namespaces.is_empty(), !document.tokens.is_empty());
        let token_lines = document.token_lines()?;
        let tables = if has_namespaces { document.without_settings() } else { token_lines };
        let mut values = BTreeMap::new();
        for (spanned, value) in document.settings {
            let key = spanned.get_ref();
            let at = |why: String| error_at(text, spanned.span().start, why).to_string();
            let Some(flag) = flags.iter().find(|flag| flag.get_id() == &**key) else {
                return Err(at(unknown(key, &flags)));
            };
            let value = Value::deserialize(ValueDeserializer::from(value))
                .map_err(|error| syntax(text, &error).to_string())?;
            let texts = texts(flag, key, value).map_err(at)?;
            check_value(flag, key, &texts).map_err(at)?;
            values.insert(key.to_string(), texts);
        }
        Ok(Self { values, has_namespaces, has_tokens, tables })
    }

    /// Makes the node read its namespaces from this file, at the start and at each SIGHUP: tables may be
    /// added later.
    pub(crate) fn give_namespaces(&self, args: &mut Args, path: PathBuf) -> Result<(), Failure> {
        match &args.namespaces_file {
            Some(other) if self.has_namespaces => Err(Failure::usage(format!(
                "namespaces are defined both in {} and in {} (--namespaces-file): keep them in one file",
                path.display(),
                other.display()
            ))),
            Some(_) => Ok(()),
            None => {
                args.from_config.namespaces = Some(NamespaceSource { path, parse: namespaces_in });
                Ok(())
            }
        }
    }

    /// Makes the node read its tokens from this file, if it has some. Otherwise the node only watches whether
    /// the file gets some, which need a restart.
    pub(crate) fn give_tokens(&self, args: &mut Args, path: PathBuf) -> Result<(), Failure> {
        match &args.tokens_file {
            Some(_) if !self.has_tokens => Ok(()),
            Some(other) => Err(Failure::usage(format!(
                "tokens are defined both in {} and in {} (--tokens-file): keep them in one file",
                path.display(),
                other.display()
            ))),
            None => {
                let from = &mut args.from_config;
                let of = if self.has_tokens { &mut from.tokens } else { &mut from.first_tokens };
                *of = Some(TokensSource::ConfigFile { path, lines: token_lines_in, rows: tokens_in });
                Ok(())
            }
        }
    }

    /// Makes the values the defaults of the flags.
    pub(crate) fn apply(&self, command: Command) -> Command {
        self.values
            .iter()
            .fold(command, |command, (key, texts)| command.mut_arg(key, |flag| flag.default_values(texts)))
    }
}

/// The keys of a file, by their readers.
struct ConfigTables<'t> {
    text: &'t str,
    /// The keys that are flags, or unknown.
    settings: Vec<(Spanned<DeString<'t>>, Spanned<DeValue<'t>>)>,
    /// The tables of a namespace file. `namespaces` may also be a list of names, as for its flag.
    namespaces: DeTable<'t>,
    /// The tables of a tokens file.
    tokens: DeTable<'t>,
}

impl<'t> ConfigTables<'t> {
    fn parse(text: &'t str) -> Result<Self, ConfigTextError> {
        let whole = DeTable::parse(text).map_err(|error| syntax(text, &error))?;
        let mut document =
            Self { text, settings: Vec::new(), namespaces: DeTable::new(), tokens: DeTable::new() };
        for (key, value) in whole.into_inner() {
            let is_table = value.get_ref().is_table();
            if is_table && NAMESPACE_KEYS.contains(&&**key.get_ref()) {
                document.namespaces.insert(key, value);
            } else if is_table && key.get_ref() == TOKENS {
                document.tokens.insert(key, value);
            } else {
                document.settings.push((key, value));
            }
        }
        Ok(document)
    }

    /// Returns the text without the keys that are flags, each with its value. The comments stay.
    fn without_settings(&self) -> String {
        let mut spans: Vec<_> =
            self.settings.iter().map(|(key, value)| (key.span().start, value.span().end)).collect();
        spans.sort_unstable();
        let (mut rest, mut at) = (String::new(), 0);
        for (start, end) in spans {
            // The span of a table may overlap others: no flag accepts it, and such a file is rejected.
            rest += self.text.get(at..start).unwrap_or_default();
            at = at.max(end);
        }
        rest + &self.text[at..]
    }

    /// Returns the lines of the tables `tokens`: a node compares them when it reads the file again.
    fn token_lines(&self) -> Result<String, String> {
        let mut is_of_tokens = false;
        let mut lines = String::new();
        for line in self.text.split_inclusive('\n') {
            if let Some(header) = line.trim_start().strip_prefix('[') {
                let name = header.trim_start_matches(['[', ' ', '\t']).strip_prefix(TOKENS);
                is_of_tokens = name.is_some_and(|rest| rest.trim_start().starts_with(['.', ']']));
            }
            if is_of_tokens {
                lines += line;
            }
        }
        let Some((key, value)) = self.tokens.iter().next() else { return Ok(String::new()) };
        let whole = Value::deserialize(ValueDeserializer::from(value.clone()))
            .map_err(|error| syntax(self.text, &error).to_string())?;
        // A line in a text may look like the header of a table. Compared as text, since NaN does not equal
        // itself.
        let alone = toml::from_str::<toml::Table>(&lines).unwrap_or_default();
        let is_same = alone.get(TOKENS).is_some_and(|alone| alone.to_string() == whole.to_string());
        if is_same && alone.len() == 1 {
            return Ok(lines);
        }
        let why = "invalid tokens: write each as a table [tokens.NAME], with each key on a line";
        Err(error_at(self.text, key.span().start, why.to_owned()).to_string())
    }
}

/// Reads the namespaces of a configuration file.
///
/// # Errors
///
/// The line and the reason: also for an unknown table, which may be meant as one of these.
pub fn namespaces_in(text: &str, layout: &Layout) -> Result<NamespaceFile, ConfigTextError> {
    let document = ConfigTables::parse(text)?;
    // No flag accepts a table.
    if let Some((key, _)) = document.settings.iter().find(|(_, value)| has_table(value.get_ref())) {
        let why = format!("unexpected table {}", Snippet::of(key.get_ref()));
        return Err(error_at(text, key.span().start, why));
    }
    NamespaceFile::of_table(document.namespaces, text, layout)
}

/// Reads the tokens of a configuration file.
///
/// # Errors
///
/// The line and the reason.
pub fn tokens_in(text: &str) -> Result<TokenRows, String> {
    let document = ConfigTables::parse(text).map_err(|error| error.to_string())?;
    tokens_file::of_table(document.tokens, text)
}

/// Returns the lines of the tables of tokens in a configuration file.
///
/// # Errors
///
/// The line and the reason. An invalid file has no tables to read, which is not the same as having none.
pub fn token_lines_in(text: &str) -> Result<String, String> {
    ConfigTables::parse(text).map_err(|error| error.to_string())?.token_lines()
}

/// Returns `true` for a table, and for an array with one.
fn has_table(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(values) => values.iter().any(|value| has_table(value.get_ref())),
        _ => false,
    }
}

/// Reads one setting, which has one value, from a configuration file.
pub(crate) fn setting(path: &Path, key: &str) -> Result<Option<String>, String> {
    let in_file = |why: String| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| in_file(error.to_string()))?;
    let mut file = ConfigFile::parse(&text).map_err(in_file)?;
    Ok(file.values.remove(key).map(|texts| texts.concat()))
}

/// The error for a file with both forms of `namespaces`, which TOML forbids.
const NAMES_AND_TABLES: &str = "`namespaces` is a list of names above, and a table here: remove the list, and write each of its \
                                names as a table too, such as [namespaces.orders] with scheme = \"snowflake\"";

fn syntax(text: &str, error: &TomlError) -> ConfigTextError {
    let message = error.message().to_owned();
    let Some(span) = error.span() else { return ConfigTextError { line: None, message } };
    let error = error_at(text, span.start, message);
    let source = text.lines().nth(error.line.unwrap_or_default() - 1).unwrap_or_default().trim_start();
    let is_table = source.starts_with("[namespaces.") || source.starts_with("namespaces.");
    if is_table && error.message.starts_with("cannot extend value of type") {
        return ConfigTextError { message: NAMES_AND_TABLES.to_owned(), ..error };
    }
    error
}

fn error_at(text: &str, at: usize, message: String) -> ConfigTextError {
    let line = 1 + text[..at.min(text.len())].matches('\n').count();
    ConfigTextError { line: Some(line), message }
}

const NAMESPACE_KEYS: [&str; 3] = ["namespaces", "auto_create", "logins"];
/// The key of the tables of a tokens file.
const TOKENS: &str = "tokens";

/// Flags that a file cannot set: `config` names the file itself, `no_console` is a short form of `console =
/// false`, and `help` is no setting.
const NOT_IN_A_FILE: [&str; 3] = ["config", "no_console", "help"];

/// The flags that a file may set.
pub(crate) fn flags() -> Vec<Arg> {
    let command = Args::augment_args(Command::new("serve"));
    command.get_arguments().filter(|flag| !NOT_IN_A_FILE.contains(&flag.get_id().as_str())).cloned().collect()
}

/// Returns `true` for a flag that takes true or false, with a value or without one.
pub(crate) fn is_boolean(flag: &Arg) -> bool {
    // Other words, such as `yes`, are accepted but hidden.
    let values = flag.get_possible_values();
    let shown = values.iter().filter(|value| !value.is_hide_set()).map(PossibleValue::get_name);
    matches!(flag.get_action(), ArgAction::SetTrue) || shown.eq(["true", "false"])
}

fn unknown(key: &str, flags: &[Arg]) -> String {
    let known = flags.iter().map(|flag| flag.get_id().as_str()).chain(NAMESPACE_KEYS).chain([TOKENS]);
    // A text in place of tables: the flag takes the name of a file.
    let nearest =
        if key == TOKENS { Some("tokens_file") } else { snowmint_admin::nearest::nearest(key, known) };
    let hint = nearest.map_or_else(
        || "`snowmint config schema` lists the keys".to_owned(),
        |known| format!("did you mean `{known}`?"),
    );
    format!("unknown key {}: {hint}", Snippet::of(key))
}

/// Returns the value in the form that its flag accepts.
fn texts(flag: &Arg, key: &str, value: Value) -> Result<Vec<String>, String> {
    let is_switch = is_boolean(flag);
    let expected = match (is_switch, flag.get_value_delimiter()) {
        (true, _) => "true or false",
        (false, Some(_)) => "a text, or an array of texts",
        (false, None) => "a text or a number",
    };
    match value {
        Value::Boolean(value) if is_switch => Ok(vec![value.to_string()]),
        Value::String(text) if !is_switch => Ok(match flag.get_value_delimiter() {
            Some(delimiter) => text.split(delimiter).map(str::to_owned).collect(),
            None => vec![text],
        }),
        Value::Integer(number) if !is_switch => Ok(vec![number.to_string()]),
        Value::Float(number) if !is_switch => Ok(vec![number.to_string()]),
        Value::Array(values) if flag.get_value_delimiter().is_some() => {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            values.iter().map(text).collect::<Option<_>>().filter(|texts: &Vec<_>| !texts.is_empty())
        }
        .ok_or_else(|| format!("invalid value of `{key}`: expected {expected}")),
        other => Err(format!("invalid value of `{key}`: {} is not {expected}", other.type_str())),
    }
}

/// Parses the values as the flag does.
fn check_value(flag: &Arg, key: &str, texts: &[String]) -> Result<(), String> {
    if matches!(flag.get_action(), ArgAction::SetTrue) {
        return Ok(());
    }
    let command = Command::new("serve").arg(flag.clone().env(Resettable::Reset));
    let flag = format!("--{}", key.replace('_', "-"));
    for text in texts {
        let parsed = command.clone().try_get_matches_from(["serve", &format!("{flag}={text}")]);
        if let Err(error) = parsed {
            let why = error.source().map_or_else(|| expected_values(&error), ToString::to_string);
            return Err(format!("invalid value {} of `{key}`: {why}", Snippet::of(text)));
        }
    }
    Ok(())
}

/// Returns the expected values from a clap error.
fn expected_values(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ContextValue};
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(known)) => format!("expected {}", known.join(" or ")),
        _ => "see `snowmint serve --help`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, String> {
        ConfigFile::parse(text)
    }

    #[test]
    fn a_key_is_a_flag() {
        let file = parse(
            "http = 'off'\nmax_connections = 50\nstart_without_store = true\nnamespaces = ['a', 'b']\n\
             allowed_hosts = 'x.example,y.example'\nlog_format = 'json'\n",
        )
        .unwrap();
        assert_eq!(file.values["namespaces"], ["a", "b"]);
        assert_eq!(file.values["allowed_hosts"], ["x.example", "y.example"]);
        assert_eq!((&*file.values["max_connections"], file.has_namespaces), (&["50".to_owned()][..], false));
        assert!(parse("[namespaces.a]\nscheme = 'uuid7'\n").unwrap().has_namespaces);
    }

    #[test]
    fn errors_name_the_line_the_key_and_the_remedy() {
        for (text, wanted) in [
            ("\nhtpp = 'off'", "line 2: unknown key `htpp`: did you mean `http`?"),
            ("log-format = 'json'", "line 1: unknown key `log-format`: did you mean `log_format`?"),
            ("[[x]]\ny = 1", "line 1: unknown key `x`: `snowmint config schema` lists the keys"),
            ("tokens = 'tokens.toml'", "line 1: unknown key `tokens`: did you mean `tokens_file`?"),
            (
                "\ntokens = {a = {sha256 = 'x'}}",
                "line 2: invalid tokens: write each as a table [tokens.NAME]",
            ),
            (
                "namespaces = ['a']\n[namespaces.b]\nscheme = 'segment'",
                "line 2: `namespaces` is a list of names above, and a table here: remove the list",
            ),
            ("zzz = 1", "line 1: unknown key `zzz`: `snowmint config schema` lists the keys"),
            ("config = 'other.toml'", "unknown key `config`"),
            (
                "window = 10",
                "line 1: invalid value `10` of `window`: expected a time from 500ms to 24h, such as 10s",
            ),
            ("log_format = 'xml'", "invalid value `xml` of `log_format`: expected text or json"),
            ("http = true", "invalid value of `http`: boolean is not a text or a number"),
            (
                "start_without_store = 'yes'",
                "invalid value of `start_without_store`: string is not true or false",
            ),
            ("namespaces = []", "invalid value of `namespaces`: expected a text, or an array of texts"),
            ("namespaces = ['a b']", "line 1: invalid value `a b` of `namespaces`: "),
            ("[http]\nport = 1", "line 1: invalid value of `http`: table is not a text or a number"),
            ("http = 'off'\nhttp = 'off'", "line 2: "),
            ("http = ", "line 1: "),
        ] {
            let Err(error) = parse(text) else { panic!("{text}") };
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    /// Goal: a mistake elsewhere in the file revokes no token. Method: a file that is no TOML, one whose
    /// tables cannot be told from a text, and one without tokens.
    #[test]
    fn the_token_tables_are_those_of_a_valid_file() {
        let valid = "http = 'off'\n[tokens.a]\nsha256 = 'x'\n[namespaces.n]\nscheme = 'ulid'\n[tokens.b]\nrate = '1/s'\n";
        let kept = "[tokens.a]\nsha256 = 'x'\n[tokens.b]\nrate = '1/s'\n";
        assert_eq!(token_lines_in(valid).as_deref(), Ok(kept));
        assert_eq!(token_lines_in("http = 'off'\n").as_deref(), Ok(""));
        for invalid in [format!("{valid}http ="), format!("{valid}rule = \"\"\"\n[http]\n\"\"\"\n")] {
            assert!(token_lines_in(&invalid).unwrap_err().starts_with("line "), "{invalid}");
        }
        assert!(parse("tokens = 'tokens.toml'").is_err());
    }

    #[test]
    fn errors_of_namespaces_name_the_lines_of_the_file() {
        let text = "http = 'off' # why\nrule = '''\nreject'''\n\n[namespaces.a]\nscheme = 'uuid7'\n";
        assert_eq!(namespaces_in(text, &Layout::TWITTER).unwrap().namespaces.len(), 1);
        let error = namespaces_in(&text.replace("scheme", "schema"), &Layout::TWITTER).unwrap_err();
        assert_eq!(error.line, Some(6), "{error}");
        let printed = parse(text).unwrap().tables;
        let lines: Vec<_> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(lines, ["# why", "[namespaces.a]", "scheme = 'uuid7'"]);
    }

    /// Goal: the keys of a table that is not a namespace do not become settings of the namespace before it.
    #[test]
    fn another_table_is_refused_and_changes_no_namespace() {
        for (text, wanted) in [
            ("[namespaces.a]\nscheme = 'segment'\n[htpp]\nmaximum = 5\n", "line 3: unexpected table `htpp`"),
            ("[[http]]\nx = 1\n[namespaces.a]\nscheme = 'uuid7'\n", "line 1: unexpected table `http`"),
            ("http.host = 'a'\n", "line 1: unexpected table `http`"),
        ] {
            assert_eq!(namespaces_in(text, &Layout::TWITTER).unwrap_err().to_string(), wanted, "{text}");
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
