//! Environment variables that look like a misspelt setting: the setting that was meant has its default.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::{Command, CommandFactory as _};
use strsim::osa_distance;

use crate::Cli;

/// The beginning of all variables.
const PREFIX: &str = "SNOWMINT_";
/// Variables that no flag names.
const OTHERS: [&str; 1] = ["SNOWMINT_STORE_PASSWORD"];

/// Returns a warning for each variable whose name is close to that of a setting.
///
/// Other names that begin with `SNOWMINT_` are left alone: Kubernetes sets `SNOWMINT_SERVICE_HOST` and the like in every pod
/// beside a service `snowmint`.
pub(super) fn misspelt(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let known = known(&Cli::command());
    let mut warnings = Vec::new();
    for name in names.filter_map(|name| name.into_string().ok()) {
        let Some(ending) = name.to_ascii_uppercase().strip_prefix(PREFIX).map(str::to_owned) else {
            continue;
        };
        if known.contains(&name) {
            continue;
        }
        let likely = known
            .iter()
            .filter_map(|known| Some((osa_distance(&ending, known.strip_prefix(PREFIX)?), known)))
            .filter(|(typos, known)| *typos <= allowed_typos(known.len() - PREFIX.len()))
            .min_by_key(|(typos, _)| *typos);
        if let Some((_, known)) = likely {
            warnings
                .push(format!("environment variable {name} is unknown and ignored: did you mean {known}?"));
        }
    }
    warnings.sort();
    warnings
}

/// Returns how many letters of a name of this length may be wrong, missing or swapped.
fn allowed_typos(length: usize) -> usize {
    if length < 5 { 1 } else { 2 }
}

/// Returns the variables of a command and its subcommands.
fn known(command: &Command) -> BTreeSet<String> {
    let of_flags = command.get_arguments().filter_map(|flag| flag.get_env());
    let of_flags = of_flags.map(|name| name.to_string_lossy().into_owned());
    let of_commands = command.get_subcommands().flat_map(known);
    of_flags.chain(of_commands).chain(OTHERS.map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(names: &[&str]) -> Vec<String> {
        misspelt(names.iter().map(OsString::from))
    }

    #[test]
    fn a_misspelt_setting_is_named_with_the_one_that_was_meant() {
        for (name, meant) in [
            ("SNOWMINT_STOER", "SNOWMINT_STORE"),
            ("SNOWMINT_STORE_PASWORD", "SNOWMINT_STORE_PASSWORD"),
            ("SNOWMINT_TOKEN_FILE", "SNOWMINT_TOKENS_FILE"),
            ("SNOWMINT_NAMESPACE", "SNOWMINT_NAMESPACES"),
            ("SNOWMINT_HTPT", "SNOWMINT_HTTP"),
            ("SNOWMINT_MAX_CONECTIONS", "SNOWMINT_MAX_CONNECTIONS"),
            ("snowmint_store", "SNOWMINT_STORE"),
        ] {
            assert_eq!(
                warnings(&[name]),
                [format!("environment variable {name} is unknown and ignored: did you mean {meant}?")]
            );
        }
    }

    /// Goal: no false alarm in a cluster. Method: what Kubernetes sets for services `snowmint`, `snowmint-http` and
    /// `snowmint-store`, with a named port, and the settings themselves.
    #[test]
    fn other_variables_are_left_alone() {
        let mut names: Vec<String> = known(&Cli::command()).into_iter().collect();
        assert!(names.len() > 40 && names.contains(&"SNOWMINT_TOKEN".to_owned()), "{names:?}");
        for service in ["SNOWMINT", "SNOWMINT_HTTP", "SNOWMINT_STORE", "SNOWMINT_HEADLESS"] {
            for ending in [
                "PORT",
                "SERVICE_HOST",
                "SERVICE_PORT",
                "SERVICE_PORT_HTTP",
                "SERVICE_PORT_RESP",
                "PORT_8080_TCP",
                "PORT_8080_TCP_ADDR",
                "PORT_8080_TCP_PORT",
                "PORT_8080_TCP_PROTO",
            ] {
                names.push(format!("{service}_{ending}"));
            }
        }
        names.extend(["SNOWMINT_VERSION", "SNOWMINT_HOME", "SNOWMINT_IMAGE", "PATH"].map(str::to_owned));
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        assert_eq!(warnings(&names), [""; 0]);
    }
}
