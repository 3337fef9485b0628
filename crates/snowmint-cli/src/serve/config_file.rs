//! The configuration file of `snowmint serve`.
//!
//! A key is the name of a flag of `serve` with `_` for `-`. So the file needs no separate list of keys: it accepts the flags'
//! values. Its values become the defaults of the flags, below environment and command line. The tables `namespaces`,
//! `auto_create` and `logins` are those of a namespace file, and the tables `tokens` those of a tokens file.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, Resettable};
use clap::{Arg, ArgAction, Args as _, Command};
use snowmint::error::Snippet;
use toml::{Spanned, Value};

use super::args::Args;
use super::logging::{AccessLog, Filter};
use crate::error::Failure;

/// A configuration file whose keys and values were checked, each by its flag.
pub(crate) struct ConfigFile {
    /// The values by key, in the form that the flag accepts.
    pub(crate) values: BTreeMap<String, Vec<String>>,
    pub(crate) has_namespaces: bool,
    pub(crate) has_tokens: bool,
}

impl ConfigFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("--config: cannot read {shown}: {error}")))?;
        Self::parse(&text).map_err(|why| Failure::usage(format!("{shown}: {why}")))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let flags = flags();
        let (mut values, mut has_namespaces, mut has_tokens) = (BTreeMap::new(), false, false);
        for (spanned, value) in document(text)? {
            let key = spanned.get_ref();
            let at = |why: String| format!("line {}: {why}", line_of(text, spanned.span().start));
            let value = value.into_inner();
            if is_of_namespaces(key, &value) {
                has_namespaces = true;
                continue;
            }
            if key == TOKENS && value.is_table() {
                token_tables(text)?;
                has_tokens = true;
                continue;
            }
            let Some(flag) = flags.iter().find(|flag| flag.get_id() == key.as_str()) else {
                return Err(at(unknown(key, &flags)));
            };
            let texts = texts(flag, key, value).map_err(at)?;
            check_value(flag, key, &texts).map_err(at)?;
            values.insert(key.clone(), texts);
        }
        Ok(Self { values, has_namespaces, has_tokens })
    }

    /// Makes the node read its namespaces from this file, at the start and at each SIGHUP: tables may be added later.
    pub(crate) fn give_namespaces(&self, args: &mut Args, path: PathBuf) -> Result<(), Failure> {
        match &args.namespaces_file {
            Some(other) if self.has_namespaces => Err(Failure::usage(format!(
                "namespaces are defined both in {} and in {} (--namespaces-file): keep them in one file",
                path.display(),
                other.display()
            ))),
            Some(_) => Ok(()),
            None => {
                args.from_config.namespaces = Some(path);
                Ok(())
            }
        }
    }

    /// Makes the node read its tokens from this file, if it has some. Otherwise the node only watches whether the file gets some,
    /// which need a restart.
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
                *of = Some(path);
                Ok(())
            }
        }
    }

    /// Makes the values the defaults of the flags.
    pub(crate) fn apply(&self, command: Command) -> Command {
        self.values.iter().fold(command, |command, (key, texts)| {
            // The command keeps its defaults for the life of the process.
            let texts: Vec<&'static str> = texts.iter().map(|text| &*text.clone().leak()).collect();
            command.mut_arg(key, |flag| flag.default_values(texts))
        })
    }
}

/// Reads the namespace tables of a configuration file.
pub(crate) fn namespaces_of(path: &Path) -> io::Result<String> {
    namespace_tables(&std::fs::read_to_string(path)?).map_err(io::Error::other)
}

/// Reads the token tables of a configuration file.
pub(crate) fn tokens_of(path: &Path) -> io::Result<String> {
    token_tables(&std::fs::read_to_string(path)?).map_err(io::Error::other)
}

/// Returns the text with every line blanked except those of the tables `tokens`, so that line numbers stay the same.
pub(crate) fn token_tables(text: &str) -> Result<String, String> {
    // An invalid file has no tables to read, which is not the same as having none.
    let whole = document(text)?;
    let Some((key, all)) = whole.iter().find(|(key, _)| key.get_ref() == TOKENS) else {
        return Ok(String::new());
    };
    let tables = lines_of_tokens(text, Kept::Tokens);
    // A line in a text may look like the header of a table.
    let is_same = document(&tables).is_ok_and(|kept| {
        let mut kept = kept.iter();
        let found = kept.next().is_some_and(|(key, value)| {
            key.get_ref() == TOKENS && value.get_ref().to_string() == all.get_ref().to_string()
        });
        found && kept.next().is_none()
    });
    if is_same {
        return Ok(tables);
    }
    let line = line_of(text, key.span().start);
    Err(format!("line {line}: invalid tokens: write each as a table [tokens.NAME], with each key on a line"))
}

/// The lines to keep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Tokens,
    Others,
}

/// Blanks either the lines of the tables `tokens`, or all others.
fn lines_of_tokens(text: &str, keep: Kept) -> String {
    let mut section = Kept::Others;
    let mut kept = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if let Some(header) = line.trim_start().strip_prefix('[') {
            let name = header.trim_start_matches(['[', ' ', '\t']).strip_prefix(TOKENS).unwrap_or_default();
            let is_tokens = name.trim_start().starts_with(['.', ']']);
            section = if is_tokens { Kept::Tokens } else { Kept::Others };
        }
        if section == keep {
            kept.push_str(line);
        } else if line.ends_with('\n') {
            kept.push('\n');
        }
    }
    kept
}

/// Returns the text with every key blanked except the namespace tables, so that line numbers stay the same.
fn namespace_tables(text: &str) -> Result<String, String> {
    let without_tokens;
    let text = if document(text)?.iter().any(|(key, _)| key.get_ref() == TOKENS) {
        token_tables(text)?;
        without_tokens = lines_of_tokens(text, Kept::Others);
        &*without_tokens
    } else {
        text
    };
    let document = document(text)?;
    let mut blanked = text.as_bytes().to_vec();
    for (key, value) in
        document.iter().filter(|(key, value)| !is_of_namespaces(key.get_ref(), value.get_ref()))
    {
        // The keys of such a table may be on other lines, where they would belong to the table before them. No flag accepts a
        // table.
        if has_table(value.get_ref()) {
            let line = line_of(text, key.span().start);
            return Err(format!("line {line}: unexpected table {}", Snippet::of(key.get_ref())));
        }
        // A key begins its line.
        let start = text[..key.span().start].rfind('\n').map_or(0, |newline| newline + 1);
        let kept = blanked[start..value.span().end].iter_mut().filter(|byte| **byte != b'\n');
        kept.for_each(|byte| *byte = b' ');
    }
    String::from_utf8(blanked).map_err(|error| error.to_string())
}

/// Checks that a file is read, or rejected with one of its lines, and that its namespace tables keep their values and lines. For
/// fuzzing.
///
/// # Panics
///
/// The check failed.
pub fn check_text(text: &str) {
    let lines = text.matches('\n').count();
    let read = ConfigFile::parse(text);
    if let Err(why) = &read {
        let line = why.strip_prefix("line ").and_then(|rest| rest.split(':').next()?.parse().ok());
        assert!(line.is_some_and(|line: usize| (1..=lines + 1).contains(&line)), "{why}");
    }
    // A reload reads a changed file for its namespaces even if another key is invalid.
    match namespace_tables(text) {
        Ok(tables) => {
            let shown = |text: &str| {
                let mut document = document(text).unwrap_or_default();
                document.retain(|key, value| is_of_namespaces(key.get_ref(), value.get_ref()));
                // Compared as text, since a NaN float does not equal itself.
                let of = |(key, value): (&Spanned<String>, &Spanned<Value>)| {
                    (key.get_ref().clone(), value.get_ref().to_string(), line_of(text, key.span().start))
                };
                document.iter().map(of).collect::<Vec<_>>()
            };
            let kept = shown(text);
            assert_eq!(shown(&tables), kept, "{tables:?}");
            assert_eq!(document(&tables).map(|it| it.len()), Ok(kept.len()), "{tables:?}");
            assert_eq!(tables.matches('\n').count(), lines);
        }
        Err(why) => assert!(read.is_err(), "{why}"),
    }
}

/// Returns `true` for a table, and for an array with one.
fn has_table(value: &Value) -> bool {
    match value {
        Value::Table(_) => true,
        Value::Array(values) => values.iter().any(has_table),
        _ => false,
    }
}

/// Reads the log level from a configuration file.
pub(super) fn log_of(path: &Path) -> Result<Filter, String> {
    setting(path, "log")?.unwrap_or_else(|| "info".to_owned()).parse().map_err(ToOwned::to_owned)
}

/// Reads from a configuration file whether to log each request.
pub(super) fn access_log_of(path: &Path) -> Result<AccessLog, String> {
    setting(path, "access_log").map(|value| AccessLog::from(value.as_deref() == Some("true")))
}

/// Reads one setting, which has one value, from a configuration file.
fn setting(path: &Path, key: &str) -> Result<Option<String>, String> {
    let in_file = |why: String| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| in_file(error.to_string()))?;
    let mut file = ConfigFile::parse(&text).map_err(in_file)?;
    Ok(file.values.remove(key).map(|texts| texts.concat()))
}

/// The error for a file with both forms of `namespaces`, which TOML forbids.
const NAMES_AND_TABLES: &str = "`namespaces` is a list of names above, and a table here: remove the list, and write each of its \
                                names as a table too, such as [namespaces.orders] with scheme = \"snowflake\"";

type Document = BTreeMap<Spanned<String>, Spanned<Value>>;

fn document(text: &str) -> Result<Document, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| match error.span() {
        Some(span) => {
            let (line, why) = (line_of(text, span.start), error.message());
            let source = text.lines().nth(line - 1).unwrap_or_default().trim_start();
            let is_table = source.starts_with("[namespaces.") || source.starts_with("namespaces.");
            if is_table && why.starts_with("cannot extend value of type") {
                format!("line {line}: {NAMES_AND_TABLES}")
            } else {
                format!("line {line}: {why}")
            }
        }
        None => error.message().to_owned(),
    })
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text[..at.min(text.len())].matches('\n').count()
}

const NAMESPACE_KEYS: [&str; 3] = ["namespaces", "auto_create", "logins"];
/// The key of the tables of a tokens file.
const TOKENS: &str = "tokens";

/// Returns `true` for the tables of a namespace file. `namespaces` may also be a list of names, as for its flag.
fn is_of_namespaces(key: &str, value: &Value) -> bool {
    NAMESPACE_KEYS.contains(&key) && value.is_table()
}

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

    /// Goal: a mistake elsewhere in the file revokes no token. Method: a file that is no TOML, one whose tables cannot be told from
    /// a text, and one without tokens.
    #[test]
    fn the_token_tables_are_those_of_a_valid_file() {
        let valid = "http = 'off'\n[tokens.a]\nsha256 = 'x'\n[namespaces.n]\nscheme = 'ulid'\n[tokens.b]\nrate = '1/s'\n";
        let kept = "\n[tokens.a]\nsha256 = 'x'\n\n\n[tokens.b]\nrate = '1/s'\n";
        assert_eq!(token_tables(valid).as_deref(), Ok(kept));
        assert_eq!(token_tables("http = 'off'\n").as_deref(), Ok(""));
        for invalid in [
            format!("{valid}http ="),
            format!("{valid}rule = \"\"\"\n[http]\n\"\"\"\n"),
            "tokens = 'tokens.toml'".to_owned(),
        ] {
            assert!(token_tables(&invalid).unwrap_err().starts_with("line "), "{invalid}");
        }
    }

    #[test]
    fn the_namespace_tables_keep_their_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snowmint.toml");
        std::fs::write(
            &path,
            "http = 'off' # why\nrule = '''\nreject'''\n\n[namespaces.a]\nscheme = 'uuid7'\n",
        )
        .unwrap();
        let text = namespaces_of(&path).unwrap();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines, ["# why", "", "", "", "[namespaces.a]", "scheme = 'uuid7'"]);
    }

    /// Goal: the keys of a table that is not a namespace do not become settings of the namespace before it.
    #[test]
    fn another_table_is_refused_and_changes_no_namespace() {
        for (text, wanted) in [
            ("[namespaces.a]\nscheme = 'segment'\n[htpp]\nmaximum = 5\n", "line 3: unexpected table `htpp`"),
            ("[[http]]\nx = 1\n[namespaces.a]\nscheme = 'uuid7'\n", "line 1: unexpected table `http`"),
            ("http.host = 'a'\n", "line 1: unexpected table `http`"),
        ] {
            assert_eq!(namespace_tables(text), Err(wanted.to_owned()), "{text}");
            check_text(text);
        }
    }
}
