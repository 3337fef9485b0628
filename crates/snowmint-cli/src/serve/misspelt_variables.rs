//! Environment variables that look like a setting but are none: the setting that was meant has its default.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use strsim::osa_distance;

use crate::error::Failure;

/// The beginning of all variables.
const PREFIX: &str = "SNOWMINT_";
/// Variables that no flag names.
const OTHERS: [&str; 1] = ["SNOWMINT_STORE_PASSWORD"];
const STORE: &str = "SNOWMINT_STORE";
const DATA: &str = "SNOWMINT_DATA";
/// Settings whose default on one node makes duplicates: another store, or without a store the worker of
/// another node.
const REFUSED: [&str; 4] = [STORE, DATA, "SNOWMINT_DATACENTER", "SNOWMINT_WORKER"];
/// Endings of variables that people try, and the variable that they mean.
#[rustfmt::skip]
const TRIED: [(&[&str], &str); 9] = [
    (&["STORE_URL", "STORE_URI", "STORE_DSN", "DATABASE", "DATABASE_URL", "DB", "DB_URL", "DSN", "REDIS_URL",
       "POSTGRES_URL", "MYSQL_URL", "ETCD", "ETCD_ENDPOINTS", "ZOOKEEPER"], STORE),
    (&["DATA_DIR", "DATADIR", "DATA_DIRECTORY", "DATA_PATH"], DATA),
    (&["DATACENTER_ID", "DATACENTERID", "DATA_CENTER", "DATA_CENTER_ID", "DC", "DC_ID", "REGION",
       "REGION_ID"], "SNOWMINT_DATACENTER"),
    (&["WORKER_ID", "WORKERID", "NODE_ID", "NODEID", "MACHINE_ID"], "SNOWMINT_WORKER"),
    (&["EPOCH"], "SNOWMINT_LAYOUT"),
    (&["HOST", "PORT", "ADDR", "ADDRESS", "BIND", "LISTEN", "LISTEN_ADDR", "HTTP_PORT", "HTTP_ADDR"],
     "SNOWMINT_HTTP"),
    (&["REDIS_PORT", "RESP_PORT"], "SNOWMINT_RESP"),
    (&["GRPC_PORT"], "SNOWMINT_GRPC"),
    (&["LOG_LEVEL"], "SNOWMINT_LOG"),
];
/// Endings of the values and names that Kubernetes sets for the ports of a service.
const TRANSPORTS: [&str; 3] = ["tcp", "udp", "sctp"];

/// Refuses a variable that nothing reads if it means a setting that this command has and that is not set.
pub(crate) fn refuse(
    parser: &Command,
    matches: &ArgMatches,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<(), Failure> {
    let unset = unset_variables(parser, matches);
    for name in unknown(&known(parser), variables) {
        let Some(meant) = tried(&name).filter(|meant| REFUSED.contains(meant) && unset.contains(*meant))
        else {
            continue;
        };
        // The data directory is for the default store, and nodes on one store lease different workers.
        if meant == STORE || unset.contains(STORE) {
            return Err(Failure::usage(format!(
                "unknown environment variable {name}: did you mean {meant}? It is not set, and with its default, nodes could make \
                 duplicates; rename the variable, or remove it"
            )));
        }
    }
    Ok(())
}

/// Returns the variables of this command's flags that have their default; none if the command works through a
/// node.
fn unset_variables(parser: &Command, matches: &ArgMatches) -> BTreeSet<String> {
    let (mut command, mut matches) = (parser, matches);
    let mut unset = BTreeSet::new();
    loop {
        for flag in command.get_arguments() {
            match (flag.get_env(), is_set(matches, flag)) {
                (None, true) if flag.get_id() == "server" => return BTreeSet::new(),
                (Some(variable), false) => {
                    unset.insert(variable.to_string_lossy().into_owned());
                }
                _ => {}
            }
        }
        let below = matches.subcommand().and_then(|(name, it)| Some((command.find_subcommand(name)?, it)));
        let Some(below) = below else { return unset };
        (command, matches) = below;
    }
}

/// Returns whether a flag, a variable or the configuration file sets a value other than the default.
fn is_set(matches: &ArgMatches, flag: &Arg) -> bool {
    let id = flag.get_id().as_str();
    match matches.try_contains_id(id).is_ok().then(|| matches.value_source(id)).flatten() {
        None => false,
        // The values of a configuration file are defaults too.
        Some(ValueSource::DefaultValue) => {
            let given = matches.get_raw(id).into_iter().flatten();
            !given.eq(flag.get_default_values().iter().map(clap::builder::OsStr::as_os_str))
        }
        Some(_) => true,
    }
}

/// Returns a warning for each variable that nothing reads, with the setting that was probably meant.
pub(super) fn warnings(
    parser: &Command,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<String> {
    let known = known(parser);
    let (mut warnings, mut others) = (Vec::new(), Vec::new());
    for name in unknown(&known, variables) {
        match tried(&name).or_else(|| likely(&name, &known)) {
            Some(meant) => warnings
                .push(format!("environment variable {name} is unknown and ignored: did you mean {meant}?")),
            None => others.push(name),
        }
    }
    warnings.sort();
    if !others.is_empty() {
        others.sort();
        let others = others.join(", ");
        warnings.push(format!(
            "unknown environment variables, which are ignored: {others}; `snowmint serve --help` lists those that exist"
        ));
    }
    warnings
}

/// Returns the names that nothing reads. What Kubernetes sets in every pod beside a service `snowmint` is
/// left out.
fn unknown(
    known: &BTreeSet<String>,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = String> {
    variables.filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let is_ours = name.to_ascii_uppercase().starts_with(PREFIX) && !known.contains(&name);
        (is_ours && !is_of_kubernetes(&name, &value.to_string_lossy())).then_some(name)
    })
}

/// Returns whether Kubernetes sets such a variable: `X_SERVICE_HOST`, `X_SERVICE_PORT_HTTP`,
/// `X_PORT_80_TCP_ADDR`, or `X_PORT` with the URL of a port.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let is_url = TRANSPORTS.iter().any(|transport| value.starts_with(&format!("{transport}://")));
    let of_port = name.split("_PORT_").skip(1).any(|rest| {
        let mut words = rest.split('_');
        let is_number = words.next().is_some_and(|port| port.parse::<u16>().is_ok());
        is_number && words.next().is_some_and(|word| TRANSPORTS.contains(&&*word.to_ascii_lowercase()))
    });
    of_port
        || name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && is_url)
}

/// Returns the variable that is meant by one that people try.
fn tried(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_uppercase();
    let ending = name.strip_prefix(PREFIX)?;
    TRIED.iter().find(|(tried, _)| tried.contains(&ending)).map(|(_, meant)| *meant)
}

/// Returns the known variable whose name is closest, if it is close.
fn likely<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a str> {
    let name = name.to_ascii_uppercase();
    let ending = name.strip_prefix(PREFIX)?;
    let likely = known
        .iter()
        .filter_map(|known| Some((osa_distance(ending, known.strip_prefix(PREFIX)?), known)))
        .filter(|(typos, known)| *typos <= allowed_typos(known.len() - PREFIX.len()))
        .min_by_key(|(typos, _)| *typos);
    likely.map(|(_, known)| known.as_str())
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
    use clap::CommandFactory as _;

    use super::*;
    use crate::command_line::Cli;

    fn with(names: &[&str], value: &str) -> Vec<(OsString, OsString)> {
        names.iter().map(|name| (OsString::from(name), value.into())).collect()
    }

    fn warned(names: &[&str]) -> Vec<String> {
        warnings(&Cli::command(), with(names, "x").into_iter())
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
            ("SNOWMINT_STORE_URL", "SNOWMINT_STORE"),
            ("SNOWMINT_REGION", "SNOWMINT_DATACENTER"),
            ("SNOWMINT_PORT", "SNOWMINT_HTTP"),
            ("SNOWMINT_EPOCH", "SNOWMINT_LAYOUT"),
        ] {
            assert_eq!(
                warned(&[name]),
                [format!("environment variable {name} is unknown and ignored: did you mean {meant}?")]
            );
        }
        assert_eq!(
            warned(&["SNOWMINT_VERSION", "SNOWMINT_HOME", "PATH"]),
            [
                "unknown environment variables, which are ignored: SNOWMINT_HOME, SNOWMINT_VERSION; `snowmint serve --help` lists \
              those that exist"
            ]
        );
    }

    /// Goal: a variable that means the store or the worker is refused if that is not set otherwise, by the
    /// commands that have the setting. Method: each way to set one.
    #[test]
    fn a_variable_that_means_the_store_or_the_worker_is_refused() {
        let refused = |line: &[&str], name: &str| {
            let matches = Cli::command().try_get_matches_from([&["snowmint"], line].concat()).unwrap();
            refuse(&Cli::command(), &matches, with(&[name], "x").into_iter()).is_err()
        };
        for (line, name, wanted) in [
            (&["serve"][..], "SNOWMINT_STORE_URL", true),
            (&["serve"], "SNOWMINT_DATACENTER_ID", true),
            (&["serve"], "SNOWMINT_REGION", true),
            (&["serve"], "SNOWMINT_WORKER_ID", true),
            (&["serve"], "SNOWMINT_DATA_DIR", true),
            (&["serve"], "SNOWMINT_LOG_LEVEL", false),
            (&["serve"], "SNOWMINT_STOER", false),
            (&["serve", "--store", "redis://h"], "SNOWMINT_STORE_URL", false),
            (&["serve", "--store", "redis://h"], "SNOWMINT_DATA_DIR", false),
            (&["serve", "--store", "redis://h"], "SNOWMINT_NODE_ID", false),
            (&["serve", "--store", "redis://h"], "SNOWMINT_REGION", false),
            (&["serve", "--worker", "3"], "SNOWMINT_WORKER_ID", false),
            (&["serve", "--worker", "3"], "SNOWMINT_DATACENTER_ID", true),
            (&["ns", "list"], "SNOWMINT_STORE_URL", true),
            (&["ns", "list", "--store", "redis://h"], "SNOWMINT_STORE_URL", false),
            (&["ns", "list", "--server", "http://h:1"], "SNOWMINT_STORE_URL", false),
            (&["ns", "list"], "SNOWMINT_WORKER_ID", false),
            (&["layouts"], "SNOWMINT_STORE_URL", false),
        ] {
            assert_eq!(refused(line, name), wanted, "{line:?} {name}");
        }
    }

    /// Goal: no false alarm in a cluster. Method: what Kubernetes sets for services `snowmint`,
    /// `snowmint-http` and `snowmint-store`, with a named port, and the settings themselves.
    #[test]
    fn other_variables_are_left_alone() {
        let names: Vec<String> = known(&Cli::command()).into_iter().collect();
        assert!(names.len() > 40 && names.contains(&"SNOWMINT_TOKEN".to_owned()), "{names:?}");
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        assert_eq!(warned(&names), [""; 0]);
        let mut of_pod = Vec::new();
        for service in ["SNOWMINT", "SNOWMINT_HTTP", "SNOWMINT_STORE", "SNOWMINT_HEADLESS"] {
            for (ending, value) in [
                ("PORT", "tcp://10.0.0.9:8080"),
                ("SERVICE_HOST", "10.0.0.9"),
                ("SERVICE_PORT", "8080"),
                ("SERVICE_PORT_HTTP", "8080"),
                ("SERVICE_PORT_RESP", "6380"),
                ("PORT_8080_TCP", "tcp://10.0.0.9:8080"),
                ("PORT_8080_TCP_ADDR", "10.0.0.9"),
                ("PORT_8080_TCP_PORT", "8080"),
                ("PORT_8080_TCP_PROTO", "tcp"),
            ] {
                of_pod.push((OsString::from(format!("{service}_{ending}")), OsString::from(value)));
            }
        }
        assert_eq!(warnings(&Cli::command(), of_pod.clone().into_iter()), [""; 0]);
        let matches = Cli::command().try_get_matches_from(["snowmint", "serve"]).unwrap();
        assert!(refuse(&Cli::command(), &matches, of_pod.into_iter()).is_ok());
    }
}
