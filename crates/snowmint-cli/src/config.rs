//! `snowmint config`: checks, prints and describes the configuration file of `snowmint serve`.

use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args as _, Command, FromArgMatches as _, Subcommand};
use serde_json::{Map, json};
use snowmint::{Clock as _, WallClock};
use toml::Value;

use crate::error::{Failure, report};
use crate::output::Output;
use crate::serve::config_file::{ConfigFile, flags, is_boolean};
use crate::{open_store, serve};

const EXAMPLES: &str = "\
Examples:
  snowmint config print --window 20s > snowmint.toml
      A file with every setting in effect, to start from.
  snowmint config check snowmint.toml
  snowmint serve --config snowmint.toml
      Flags win over environment variables, these over the file.

A file (TOML). A key is a flag of `snowmint serve` with _ for -; the tables
are those of --namespaces-file and --tokens-file, and SIGHUP reads them again:
  store = \"etcd://10.0.0.1:2379\"
  http = \"127.0.0.1:9090\"
  log_format = \"json\"

  [namespaces.orders]
  scheme = \"segment\"
  text = \"ORD-{number:6}\"

  [tokens.orders-service]
  sha256 = \"...\"
  namespaces = [\"orders\"]";

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
            print.map_or(Ok(()), |matches| print_settings(matches, named.as_ref()))
        }
        ConfigCommand::Schema => {
            let mut out = Output::new();
            let schema = serde_json::to_string_pretty(&schema()).map_err(Failure::runtime)?;
            out.line(&schema)?;
            out.flush()
        }
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
    file.give_tokens(&mut args, path.to_owned())?;
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

/// Prints every setting as a line of TOML, with its origin, and the tables of the file. Leaves out passwords.
fn print_settings(matches: &ArgMatches, file: Option<&ConfigFile>) -> Result<(), Failure> {
    let mut out = Output::new();
    let has_tables = file.is_some_and(|file| file.has_namespaces);
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
        let value = match texts.collect::<Vec<_>>() {
            _ if is_boolean(&flag) => Value::Boolean(matches.get_flag(key)),
            texts if flag.get_value_delimiter().is_some() => {
                let texts = texts.iter().flat_map(|text| text.split(','));
                Value::Array(texts.map(|text| Value::String(public(key, text))).collect())
            }
            texts => Value::String(public(key, &texts.concat())),
        };
        // A file has names or tables, not both: as a comment, the default leaves room for tables.
        let is_default = matches
            .get_raw(key)
            .is_some_and(|texts| texts.eq(flag.get_default_values().iter().map(|it| &**it)));
        let comment = if key == "namespaces" && (has_tables || is_default) { "# " } else { "" };
        out.line(&format!("{comment}{key} = {value}  # {origin}"))?;
    }
    let lines = file.into_iter().flat_map(|file| file.tables.lines());
    for line in lines.filter(|line| !line.trim().is_empty()) {
        // `serve` refuses a source with a password, but it is printed before it is checked.
        out.line(&public_line(line))?;
    }
    out.flush()
}

/// Returns the value of a setting without a user and password, if it is a URL.
fn public(key: &str, value: &str) -> String {
    // A store may be mistyped.
    if key == "store" || value.contains("://") {
        open_store::without_credentials(value)
    } else {
        value.to_owned()
    }
}

/// Returns a line of TOML whose strings are [`public`].
fn public_line(line: &str) -> String {
    let (mut shown, mut rest) = (String::new(), line);
    while let Some(begin) = rest.find(['"', '\'']) {
        let (before, text) = rest.split_at(begin + 1);
        let quote = &before[begin..];
        shown.push_str(before);
        let Some((text, after)) = text.split_once(quote) else { return shown + &public("", text) };
        shown.push_str(&public("", text));
        shown.push_str(quote);
        rest = after;
    }
    shown + rest
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
    // As for namespaces: a list for the flag, or a table.
    if let Some(logins) = properties.get_mut("logins") {
        logins["type"] = json!(["string", "object"]);
        logins["additionalProperties"] = json!({"type": "string"});
    }
    properties.insert(
        "tokens".to_owned(),
        json!({
            "type": "object",
            "description": "Tokens by name, as `snowmint token create` writes them to a tokens file",
            "additionalProperties": {"type": "object", "required": ["sha256", "namespaces"]},
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

    /// Goal: no part of a password is printed, also if it has the other kind of quotes.
    #[test]
    fn lines_of_toml_show_no_password() {
        for (line, shown) in [
            (
                r#"sources = ["1/2 mysql://u:pa'ss@a/i", '2/2 mysql://u:p"s@b/i']"#,
                r#"sources = ["1/2 mysql://a/i", '2/2 mysql://b/i']"#,
            ),
            (r#"text = "a@b" # why"#, r#"text = "a@b" # why"#),
            (r#"x = "mysql://u:p@h"#, r#"x = "mysql://h"#),
        ] {
            assert_eq!(public_line(line), shown);
        }
    }

    #[test]
    fn every_flag_is_a_key_of_the_schema() {
        let schema = schema();
        for flag in flags() {
            assert!(schema["properties"][flag.get_id().as_str()].is_object(), "{flag:?}");
        }
    }
}
