//! Words from other tools that this command does not have: each error names the equivalent here.
//! Words with one clear meaning are aliases, defined next to their command or flag.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ColorChoice, CommandFactory as _};
use snowmint_admin::url_without_credentials::without_credentials;
use snowmint_cluster::NamespaceName;

use crate::numbers::whole;
use crate::{Cli, argv};

/// The names of `serve`.
pub(crate) const SERVE: [&str; 4] = ["serve", "server", "start", "run"];

/// Unknown flags, and the replacement for each: on `serve`, and on other commands.
const FLAGS: [(&[&str], &str, &str); 7] = [
    (
        &["--port", "-p", "--http-port"],
        "use --http 127.0.0.1:PORT for HTTP and gRPC, --resp 127.0.0.1:PORT for the Redis protocol",
        "name the server by its URL, as in --server http://HOST:PORT, or the store by --store URL",
    ),
    (
        &["--host", "--bind", "-b", "--listen", "--addr", "--address"],
        "use --http HOST:PORT for HTTP and gRPC, --resp HOST:PORT for the Redis protocol",
        "name the server by its URL, as in --server http://HOST:PORT, or the store by --store URL",
    ),
    (
        &["-v", "-vv", "-vvv", "--verbose", "--debug", "-d"],
        "use --log debug for more log lines; `snowmint version` prints the version",
        "only serve has log lines (--log LEVEL); `snowmint version` prints the version",
    ),
    (
        &["-q", "--quiet", "--silent"],
        "use --log warn, or --log off",
        "only serve has log lines (--log LEVEL)",
    ),
    (
        &["-o", "--output", "--format=json"],
        "use --log-format json for log lines",
        "use --json for JSON, or redirect standard output to a file",
    ),
    (
        &["--redis", "--redis-port"],
        "use --resp HOST:PORT to speak the Redis protocol, --store redis://HOST to keep leases in a Redis",
        "use --store redis://HOST",
    ),
    (
        &["--epoch", "--worker-bits", "--sequence-bits", "--node-bits"],
        "name it in the layout, as in --layout 'time:41 worker:10 sequence:12 epoch:2026-01-01'",
        "name it in the layout, as in 'time:41 worker:10 sequence:12 epoch:2026-01-01'",
    ),
];

/// Flags of other systems that name a worker or a datacenter, for commands that have these.
const OF_NODE: [(&[&str], &str, &str); 2] = [
    (
        &["--node", "--node-id", "--machine", "--machine-id", "--instance-id", "--worker-id"],
        "worker",
        "did you mean --worker? Without it, a node takes any free worker",
    ),
    (
        &["--region", "--region-id", "--dc", "--dc-id", "--data-center", "--datacenter-id"],
        "datacenter",
        "did you mean --datacenter?",
    ),
];

/// Names of `ns set`, and the flags of `ns add` whose settings it cannot change.
const NS: [&str; 3] = ["ns", "namespace", "namespaces"];
const SET: [&str; 4] = ["set", "update", "change", "edit"];
const FIXED: [&str; 5] = ["--scheme", "--layout", "--stripe", "--reset", "--hide"];

/// The names of `bench`, whose flags differ from those of store commands.
const BENCH: [&str; 2] = ["bench", "benchmark"];
/// Unknown flags of `bench`, and the replacement for each.
const BENCH_FLAGS: [(&[&str], &str); 3] = [
    (
        &[
            "--port",
            "-p",
            "--http-port",
            "--host",
            "--bind",
            "-b",
            "--listen",
            "--addr",
            "--address",
            "--server",
            "--redis",
            "--redis-port",
            "--resp",
            "--http",
        ],
        "name the server by its URL, as in `snowmint bench http://HOST:PORT` or `snowmint bench redis://HOST:PORT`",
    ),
    (&["-d", "-t", "--time"], "use --duration TIME, such as --duration 10s"),
    (&["-v", "-vv", "-vvv", "--verbose", "--debug", "-q", "--quiet", "--silent"], "bench has no log lines"),
];

/// Unknown subcommands, and the replacement for each.
const COMMANDS: [(&[&str], &str); 6] = [
    (&["init", "migrate", "schema"], "`snowmint store init` prepares a store"),
    (
        &["status", "ping", "top"],
        "`snowmint doctor` checks a store, `snowmint health` a node, `snowmint workers` lists workers",
    ),
    (&["list", "ls"], "`snowmint ns list`, `snowmint workers` and `snowmint layouts` list"),
    (
        &["stop", "kill", "restart", "reload"],
        "send SIGTERM to `snowmint serve` to stop it, SIGHUP to read its files again",
    ),
    (
        &["add", "create", "drop", "rm", "delete"],
        "`snowmint ns add|drop` changes namespaces, `snowmint token create|revoke` tokens",
    ),
    (&["encode", "decimal", "hex", "base62"], "`snowmint convert --to FORM` writes ids in another text form"),
];

/// Returns the advice for a word that this command does not have but that people type by habit.
pub(crate) fn advice(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let flag = text(ContextKind::InvalidArg)?;
            let words = argv::words();
            let command = words.get(1).cloned().unwrap_or_default();
            if NS.contains(&command.as_str())
                && words.iter().any(|word| SET.contains(&word.as_str()))
                && let Some(setting) = FIXED.iter().find(|fixed| **fixed == flag)
            {
                let setting = &setting[2..];
                return Some(format!(
                    "unknown flag {flag}: the {setting} of a namespace is fixed, because a change could produce duplicates; add a \
                     namespace of another name with it (`snowmint ns add NAME {flag} ...`)"
                ));
            }
            let of_node =
                OF_NODE.iter().find(|(flags, known, _)| flags.contains(&flag) && has(&command, known));
            if let Some((_, _, advice)) = of_node {
                return Some(format!("unknown flag {flag}: {advice}"));
            }
            if BENCH.contains(&command.as_str())
                && let Some((_, advice)) = BENCH_FLAGS.iter().find(|(flags, _)| flags.contains(&flag))
            {
                return Some(format!("unknown flag {flag}: {advice}"));
            }
            let is_serve = SERVE.contains(&command.as_str());
            let (_, of_serve, of_others) = FLAGS.iter().find(|(flags, ..)| flags.contains(&flag))?;
            Some(format!("unknown flag {flag}: {}", if is_serve { of_serve } else { of_others }))
        }
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand)?;
            // Each subcommand has its own words.
            argv::words().get(1).filter(|first| *first == word)?;
            let (_, advice) = COMMANDS.iter().find(|(words, _)| words.contains(&word))?;
            Some(format!("unknown command {word}: {advice}; see --help"))
        }
        _ => None,
    }
}

/// Returns whether a command has a flag.
fn has(command: &str, flag: &str) -> bool {
    let parser = Cli::command();
    let command = parser.find_subcommand(command);
    command.is_some_and(|command| command.get_arguments().any(|it| it.get_long() == Some(flag)))
}

/// The names of `new`.
const NEW: [&str; 5] = ["new", "generate", "gen", "next", "mint"];
/// Beginnings of the URLs of nodes.
const NODES: [&str; 2] = ["http://", "https://"];

/// Returns the advice for a word whose meaning is clear, but that belongs to a flag.
pub(crate) fn flag_of(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument || word.starts_with('-') {
        return None;
    }
    let command = std::env::args_os().nth(1)?.into_string().ok()?;
    flag_of_word(&command, word)
}

fn flag_of_word(command: &str, word: &str) -> Option<String> {
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
    } else if SERVE.contains(&command) && word.parse::<u16>().is_ok() {
        format!(
            "use --http 127.0.0.1:{word} for HTTP and gRPC, --resp 127.0.0.1:{word} for the Redis protocol"
        )
    } else {
        return None;
    };
    Some(format!("unexpected argument {shown}: {advice}"))
}

/// Returns the colour of help, which is printed before `--color` is parsed.
pub(crate) fn colour_of_help() -> ColorChoice {
    let words = argv::words();
    let named = words.iter().enumerate().rev().find_map(|(at, word)| {
        let rest = word.strip_prefix("--color").or_else(|| word.strip_prefix("--colour"))?;
        if rest.is_empty() { words.get(at + 1).map(String::as_str) } else { rest.strip_prefix('=') }
    });
    match named {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no advice hides a word that works. Method: try the words of every command.
    #[test]
    fn no_word_of_advice_is_a_word_of_the_command() {
        let command = Cli::command();
        for (words, _) in COMMANDS {
            for word in words {
                let named = command
                    .get_subcommands()
                    .find(|it| it.get_name() == *word || it.get_all_aliases().any(|alias| alias == *word));
                assert!(named.is_none(), "{word}");
            }
        }
    }
}
