//! Errors for words that clap does not know, but whose meaning is clear: each names the flag or command to
//! use.

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use snowmint_admin::url_without_credentials::without_credentials;
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::{Fields, Setting, SettingKind};

use crate::numbers::whole;
use crate::{Cli, argv};

/// The names of `ns set`.
const NS: [&str; 3] = ["ns", "namespace", "namespaces"];
const SET: [&str; 4] = ["set", "update", "change", "edit"];
/// The names of `new`.
const NEW: [&str; 5] = ["new", "generate", "gen", "next", "mint"];
/// Beginnings of the URLs of nodes.
const NODES: [&str; 2] = ["http://", "https://"];

/// Returns the advice for an unknown flag or value of a command.
pub(crate) fn advice(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let words = argv::words();
    let command = words.get(1)?;
    if !word.starts_with('-') {
        return on_value(command, word);
    }
    let sets = NS.contains(&command.as_str()) && words.iter().any(|word| SET.contains(&word.as_str()));
    let fixed = Fields::SETTINGS.iter().filter(|it| it.kind == SettingKind::Fixed && it.value_name.is_some());
    let setting = fixed.map(Setting::flag).find(|flag| sets && word.strip_prefix("--") == Some(flag))?;
    Some(format!(
        "unknown flag --{setting}: the {setting} of a namespace is fixed, because a change could produce duplicates; add a \
         namespace of another name with it (`snowmint ns add NAME --{setting} ...`)"
    ))
}

/// Returns the advice for a value that belongs to a flag.
fn on_value(command: &str, word: &str) -> Option<String> {
    let shown = without_credentials(word);
    let is_of_node = NODES.iter().any(|scheme| word.starts_with(scheme));
    let advice = if is_of_node && has(command, "server") {
        format!("name the node by --server {shown}")
    } else if !is_of_node && word.contains("://") && has(command, "store") {
        "name the store by --store URL".to_owned()
    } else if NEW.contains(&command) && whole(word).is_some() {
        format!("the number of ids is a flag: -n {word}")
    } else if NEW.contains(&command) && word.parse::<NamespaceName>().is_ok() {
        format!("ids of a namespace come from a running node: curl http://127.0.0.1:8080/v1/ids/{word}")
    } else if argv::SERVE.contains(&command) && word.parse::<u16>().is_ok() {
        format!(
            "use --http 127.0.0.1:{word} for HTTP and gRPC, --resp 127.0.0.1:{word} for the Redis protocol"
        )
    } else {
        return None;
    };
    Some(format!("unexpected argument {shown}: {advice}"))
}

/// Returns whether a command has a flag.
fn has(command: &str, flag: &str) -> bool {
    let parser = Cli::command();
    let command = parser.find_subcommand(command);
    command.is_some_and(|command| command.get_arguments().any(|it| it.get_long() == Some(flag)))
}
