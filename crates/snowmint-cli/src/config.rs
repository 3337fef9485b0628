//! The configuration file of `snowmint serve`, and `snowmint config`, which checks, prints and describes it.
//!
//! A key is the name of a flag of `serve` with `_` for `-`. So the file needs no separate list of keys: it accepts the flags'
//! values. Its values become the defaults of the flags, below environment and command line. The tables `namespaces` and
//! `auto_create` are those of a namespace file.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, Resettable};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, CommandFactory, FromArgMatches as _, Subcommand};
use serde_json::{Map, json};
use snowmint::error::Snippet;
use snowmint::{Clock as _, WallClock};
use toml::{Spanned, Value};

use crate::error::{Failure, report};
use crate::habits;
use crate::human::Output;
use crate::serve::logging::{AccessLog, Filter};
use crate::{Cli, connect, serve};

const EXAMPLES: &str = "\
Examples:
  snowmint config print --window 20s > snowmint.toml
      A file with every setting in effect, to start from.
  snowmint config check snowmint.toml
  snowmint serve --config snowmint.toml
      Flags win over environment variables, these over the file.

A file (TOML). A key is a flag of `snowmint serve` with _ for -; the tables
are those of --namespaces-file, and SIGHUP reads them again:
  store = \"etcd://10.0.0.1:2379\"
  http = \"127.0.0.1:9090\"
  log_format = \"json\"

  [namespaces.orders]
  scheme = \"segment\"
  text = \"ORD-{number:6}\"";

/// Check, print or describe the configuration file of `snowmint serve`
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.", arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check a file without serving; environment variables are not considered
    Check {
        /// The file
        #[arg(value_name = "FILE", env = "SNOWMINT_CONFIG")]
        file: PathBuf,
        /// Print one JSON object: file, settings, namespaces and warnings
        #[arg(long, help_heading = "Output")]
        json: bool,
    },
    /// Print the settings in effect and where each comes from, as a file; takes the flags of `snowmint serve`
    Print(Box<serve::Args>),
    /// Print the JSON Schema of the file, for editors
    Schema,
}

impl Args {
    /// The flags of `serve`, if the subcommand takes them.
    pub(crate) fn serve_args(&self) -> Option<&serve::Args> {
        if let ConfigCommand::Print(args) = &self.command { Some(args) } else { None }
    }

    pub(crate) fn serve_args_mut(&mut self) -> Option<&mut serve::Args> {
        if let ConfigCommand::Print(args) = &mut self.command { Some(args) } else { None }
    }
}

pub(crate) fn run(args: &Args, matches: &ArgMatches) -> Result<(), Failure> {
    match &args.command {
        ConfigCommand::Check { file, json } => check(file, *json),
        ConfigCommand::Print(args) => {
            let named = args.config.as_deref().map(ConfigFile::read).transpose()?;
            let print = matches.subcommand_matches("config").and_then(|it| it.subcommand_matches("print"));
            // The arguments were parsed from these matches.
            let tables = args.config_namespaces.as_deref().map(namespaces_of).transpose();
            let tables = tables
                .map_err(Failure::runtime)?
                .filter(|_| named.as_ref().is_some_and(|it| it.has_namespaces));
            print.map_or(Ok(()), |matches| print_settings(matches, named.as_ref(), tables.as_deref()))
        }
        ConfigCommand::Schema => {
            let mut out = Output::new();
            let schema = serde_json::to_string_pretty(&schema()).map_err(Failure::runtime)?;
            out.line(&schema)?;
            out.flush()
        }
    }
}

/// Parses the command line. If `serve` has a configuration file, its values are the defaults.
pub(crate) fn parse_command_line() -> Result<(Cli, ArgMatches), clap::Error> {
    parse(Cli::command().color(habits::colour_of_help()))
}

/// Parses the command line again, with the values of its configuration file.
pub(crate) fn with_file(cli: Cli, matches: ArgMatches) -> Result<(Cli, ArgMatches), Failure> {
    let Some(path) = cli.serve_args().and_then(|args| args.config.clone()) else { return Ok((cli, matches)) };
    let file = ConfigFile::read(&path)?;
    let command = Cli::command()
        .mut_subcommand("serve", |serve| file.apply(serve))
        .mut_subcommand("config", |config| config.mut_subcommand("print", |print| file.apply(print)));
    let (mut cli, matches) = parse(command).map_err(|error| match crate::error::explain(&error) {
        Err(failure) => failure,
        Ok(()) => Failure::Reported,
    })?;
    let serve = matches.subcommand_matches("serve");
    let from_file = |key| {
        let source = serve.and_then(|serve| serve.value_source(key));
        (source == Some(ValueSource::DefaultValue)).then(|| path.clone())
    };
    let (log, access_log) = (from_file("log"), from_file("access_log"));
    if let Some(args) = cli.serve_args_mut() {
        (args.config_log, args.config_access_log) = (log, access_log);
        file.give_namespaces(args, path)?;
    }
    Ok((cli, matches))
}

fn parse(mut command: Command) -> Result<(Cli, ArgMatches), clap::Error> {
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok((cli, matches))
}

/// Reads the namespace tables of a configuration file.
pub(crate) fn namespaces_of(path: &Path) -> io::Result<String> {
    namespace_tables(&std::fs::read_to_string(path)?).map_err(io::Error::other)
}

/// Returns the text with every key blanked except the namespace tables, so that line numbers stay the same.
fn namespace_tables(text: &str) -> Result<String, String> {
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
pub(crate) fn log_of(path: &Path) -> Result<Filter, String> {
    setting(path, "log")?.unwrap_or_else(|| "info".to_owned()).parse().map_err(ToOwned::to_owned)
}

/// Reads from a configuration file whether to log each request.
pub(crate) fn access_log_of(path: &Path) -> Result<AccessLog, String> {
    setting(path, "access_log").map(|value| AccessLog::from(value.as_deref() == Some("true")))
}

/// Reads one setting, which has one value, from a configuration file.
fn setting(path: &Path, key: &str) -> Result<Option<String>, String> {
    let in_file = |why: String| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| in_file(error.to_string()))?;
    let mut file = ConfigFile::parse(&text).map_err(in_file)?;
    Ok(file.values.remove(key).map(|texts| texts.concat()))
}

type Document = BTreeMap<Spanned<String>, Spanned<Value>>;

fn document(text: &str) -> Result<Document, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| match error.span() {
        Some(span) => format!("line {}: {}", line_of(text, span.start), error.message()),
        None => error.message().to_owned(),
    })
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text[..at.min(text.len())].matches('\n').count()
}

const NAMESPACE_KEYS: [&str; 2] = ["namespaces", "auto_create"];

/// Returns `true` for the tables of a namespace file. `namespaces` may also be a list of names, as for its flag.
fn is_of_namespaces(key: &str, value: &Value) -> bool {
    NAMESPACE_KEYS.contains(&key) && value.is_table()
}

/// A configuration file whose keys and values were checked, each by its flag.
struct ConfigFile {
    /// The values by key, in the form that the flag accepts.
    values: BTreeMap<String, Vec<String>>,
    has_namespaces: bool,
}

impl ConfigFile {
    fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("--config: cannot read {shown}: {error}")))?;
        Self::parse(&text).map_err(|why| Failure::usage(format!("{shown}: {why}")))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let flags = flags();
        let (mut values, mut has_namespaces) = (BTreeMap::new(), false);
        for (spanned, value) in document(text)? {
            let key = spanned.get_ref();
            let at = |why: String| format!("line {}: {why}", line_of(text, spanned.span().start));
            let value = value.into_inner();
            if is_of_namespaces(key, &value) {
                has_namespaces = true;
                continue;
            }
            let Some(flag) = flags.iter().find(|flag| flag.get_id() == key.as_str()) else {
                return Err(at(unknown(key, &flags)));
            };
            let texts = texts(flag, key, value).map_err(at)?;
            check_value(flag, key, &texts).map_err(at)?;
            values.insert(key.clone(), texts);
        }
        Ok(Self { values, has_namespaces })
    }

    /// Makes the node read its namespaces from this file, at the start and at each SIGHUP: tables may be added later.
    fn give_namespaces(&self, args: &mut serve::Args, path: PathBuf) -> Result<(), Failure> {
        match &args.namespaces_file {
            Some(other) if self.has_namespaces => Err(Failure::usage(format!(
                "namespaces are defined both in {} and in {} (--namespaces-file): keep them in one file",
                path.display(),
                other.display()
            ))),
            Some(_) => Ok(()),
            None => {
                args.config_namespaces = Some(path);
                Ok(())
            }
        }
    }

    /// Makes the values the defaults of the flags.
    fn apply(&self, command: Command) -> Command {
        self.values.iter().fold(command, |command, (key, texts)| {
            // The command keeps its defaults for the life of the process.
            let texts: Vec<&'static str> = texts.iter().map(|text| &*text.clone().leak()).collect();
            command.mut_arg(key, |flag| flag.default_values(texts))
        })
    }
}

/// Flags that a file cannot set: the one that names the file, and a short form of `console`.
const NOT_IN_A_FILE: [&str; 2] = ["config", "no_console"];

/// The flags that a file may set.
fn flags() -> Vec<Arg> {
    let command = serve::Args::augment_args(Command::new("serve"));
    command.get_arguments().filter(|flag| !NOT_IN_A_FILE.contains(&flag.get_id().as_str())).cloned().collect()
}

/// Returns `true` for a flag that takes true or false, with a value or without one.
fn is_boolean(flag: &Arg) -> bool {
    // Other words, such as `yes`, are accepted but hidden.
    let values = flag.get_possible_values();
    let shown = values.iter().filter(|value| !value.is_hide_set()).map(PossibleValue::get_name);
    matches!(flag.get_action(), ArgAction::SetTrue) || shown.eq(["true", "false"])
}

fn unknown(key: &str, flags: &[Arg]) -> String {
    let known = flags.iter().map(|flag| flag.get_id().as_str()).chain(NAMESPACE_KEYS);
    let nearest = snowmint_server::access::file::nearest(key, known);
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

fn check(path: &Path, json: bool) -> Result<(), Failure> {
    let file = ConfigFile::read(path)?;
    let without_env =
        serve::Args::augment_args(Command::new("serve")).mut_args(|flag| flag.env(Resettable::Reset));
    let parsed = file.apply(without_env).try_get_matches_from(["serve"]);
    let mut args = parsed
        .and_then(|matches| serve::Args::from_arg_matches(&matches))
        // Each value was parsed before.
        .map_err(|error| Failure::usage(error.to_string()))?;
    file.give_namespaces(&mut args, path.to_owned())?;
    let checked = serve::check(args, WallClock.unix_ms())?;
    for warning in &checked.warnings {
        report("warning", warning);
    }
    let mut out = Output::new();
    if json {
        out.json(&json!({
            "file": path.display().to_string(),
            "settings": file.values.len(),
            "namespaces": checked.namespaces,
            "warnings": checked.warnings,
        }))?;
        return out.flush();
    }
    out.line(&format!(
        "{}: valid; settings: {}, namespaces: {}",
        path.display(),
        file.values.len(),
        checked.namespaces
    ))?;
    out.flush()
}

/// Prints every setting as a line of TOML, with its origin, and the `tables` of namespaces. Leaves out passwords.
fn print_settings(
    matches: &ArgMatches,
    file: Option<&ConfigFile>,
    tables: Option<&str>,
) -> Result<(), Failure> {
    let mut out = Output::new();
    for flag in flags() {
        let key = flag.get_id().as_str();
        let origin = match matches.value_source(key) {
            Some(ValueSource::CommandLine) => "flag",
            Some(ValueSource::EnvVariable) => "environment",
            Some(_) if file.is_some_and(|file| file.values.contains_key(key)) => "file",
            Some(_) => "default",
            None => {
                out.line(&format!("# {key} =  # not set"))?;
                continue;
            }
        };
        let texts = matches.get_raw(key).into_iter().flatten().map(|text| text.to_string_lossy());
        let texts =
            texts.map(|text| if key == "store" { connect::without_credentials(&text) } else { text.into() });
        let value = match texts.collect::<Vec<String>>() {
            _ if is_boolean(&flag) => Value::Boolean(matches.get_flag(key)),
            texts if flag.get_value_delimiter().is_some() => {
                let texts = texts.iter().flat_map(|text| text.split(','));
                Value::Array(texts.map(|text| Value::String(text.to_owned())).collect())
            }
            texts => Value::String(texts.concat()),
        };
        // A file has names or tables, not both.
        let comment = if key == "namespaces" && tables.is_some() { "# " } else { "" };
        out.line(&format!("{comment}{key} = {value}  # {origin}"))?;
    }
    for line in tables.unwrap_or_default().lines().filter(|line| !line.trim().is_empty()) {
        out.line(line)?;
    }
    out.flush()
}

fn schema() -> serde_json::Value {
    let mut properties = Map::new();
    for flag in flags() {
        let is_list = flag.get_value_delimiter().is_some();
        let known: Vec<_> = flag.get_possible_values().iter().map(|it| it.get_name().to_owned()).collect();
        let mut schema = if is_boolean(&flag) {
            json!({"type": "boolean"})
        } else if is_list {
            json!({"type": ["array", "string"], "items": {"type": "string"}})
        } else if known.is_empty() {
            json!({"type": ["string", "integer"]})
        } else {
            json!({"enum": known})
        };
        if let Some(help) = flag.get_long_help().or(flag.get_help()) {
            schema["description"] = help.to_string().into();
        }
        let defaults: Vec<_> = flag.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
        if !defaults.is_empty() && !matches!(flag.get_action(), ArgAction::SetTrue) {
            schema["default"] = match &*defaults.concat() {
                text if is_boolean(&flag) => json!(text == "true"),
                _ if is_list => json!(defaults),
                text => json!(text),
            };
        }
        properties.insert(flag.get_id().to_string(), schema);
    }
    // The value is a list of names, or a table of definitions.
    if let Some(names) = properties.get_mut("namespaces") {
        names["type"] = json!(["array", "string", "object"]);
        names["additionalProperties"] = json!({"type": "object", "required": ["scheme"]});
    }
    properties.insert(
        "auto_create".to_owned(),
        json!({
            "type": "object",
            "description": "The namespace that is created for an unknown name: like another one, up to a number",
            "properties": {"like": {"type": "string"}, "at_most": {"type": "integer"}},
            "required": ["like", "at_most"],
            "additionalProperties": false,
        }),
    );
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of snowmint serve",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, String> {
        ConfigFile::parse(text)
    }

    #[test]
    fn a_key_is_a_flag_and_every_flag_is_a_key() {
        let file = parse(
            "http = 'off'\nmax_connections = 50\nstart_without_store = true\nnamespaces = ['a', 'b']\n\
             allowed_hosts = 'x.example,y.example'\nlog_format = 'json'\n",
        )
        .unwrap();
        assert_eq!(file.values["namespaces"], ["a", "b"]);
        assert_eq!(file.values["allowed_hosts"], ["x.example", "y.example"]);
        assert_eq!((&*file.values["max_connections"], file.has_namespaces), (&["50".to_owned()][..], false));
        assert!(parse("[namespaces.a]\nscheme = 'uuid7'\n").unwrap().has_namespaces);
        let schema = schema();
        for flag in flags() {
            assert!(schema["properties"][flag.get_id().as_str()].is_object(), "{flag:?}");
        }
    }

    #[test]
    fn errors_name_the_line_the_key_and_the_remedy() {
        for (text, wanted) in [
            ("\nhtpp = 'off'", "line 2: unknown key `htpp`: did you mean `http`?"),
            ("log-format = 'json'", "line 1: unknown key `log-format`: did you mean `log_format`?"),
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
