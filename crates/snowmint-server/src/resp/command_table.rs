//! The table of commands: the name, the number of arguments and the flags of each, as `COMMAND` shows them.

use crate::resp::reply::{self, Version};

/// The flag of commands that need no token, as Redis names it.
pub(super) const NO_AUTH: &str = "no_auth";

/// The commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandName {
    IdNext,
    IdRange,
    IdInspect,
    Incr,
    IncrBy,
    Ping,
    Echo,
    Hello,
    Client,
    Command,
    Info,
    Config,
    Select,
    Auth,
    Reset,
    Quit,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

/// The properties of a command.
#[derive(Debug)]
pub(super) struct CommandSpec {
    pub(super) name: CommandName,
    /// The name in lower case, as Redis writes it in errors.
    pub(super) text: &'static str,
    /// The number of arguments including the name; negative for a minimum, as in Redis.
    pub(super) arity: i8,
    pub(super) flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
}

const fn spec(
    name: CommandName,
    text: &'static str,
    arity: i8,
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
) -> CommandSpec {
    CommandSpec { name, text, arity, flags, group, summary }
}

/// Every command, the most frequent first: for so few, comparing is faster than hashing.
pub(super) static COMMANDS: [CommandSpec; 21] = [
    spec(
        CommandName::IdNext,
        "id.next",
        -2,
        &["write", "fast"],
        "ids",
        "ID.NEXT namespace [COUNT n] [INTEGER]: new ids",
    ),
    spec(
        CommandName::IdRange,
        "id.range",
        4,
        &["write", "fast"],
        "ids",
        "ID.RANGE namespace COUNT n: new ids as ranges of first, count and step",
    ),
    spec(
        CommandName::Incr,
        "incr",
        2,
        &["write", "fast"],
        "ids",
        "INCR namespace: the next number of a segment namespace",
    ),
    spec(
        CommandName::IncrBy,
        "incrby",
        3,
        &["write", "fast"],
        "ids",
        "INCRBY namespace n: n consecutive numbers; answers the last",
    ),
    spec(
        CommandName::IdInspect,
        "id.inspect",
        -2,
        &["readonly", "fast"],
        "ids",
        "ID.INSPECT id [NAMESPACE name | LAYOUT spec]: the fields of an id",
    ),
    spec(CommandName::Ping, "ping", -1, &["fast"], "connection", "Answers, as Redis does"),
    spec(CommandName::Echo, "echo", 2, &["fast"], "connection", "Repeats a text"),
    spec(
        CommandName::Hello,
        "hello",
        -1,
        &["noscript", "fast", NO_AUTH],
        "connection",
        "Chooses RESP2 or RESP3",
    ),
    spec(CommandName::Client, "client", -2, &["noscript"], "connection", "Names this connection"),
    spec(CommandName::Command, "command", -1, &["loading"], "server", "Lists the commands"),
    spec(CommandName::Info, "info", -1, &["loading"], "server", "State of the server and its lease"),
    spec(
        CommandName::Config,
        "config",
        -2,
        &["admin"],
        "server",
        "CONFIG GET pattern: for tools that need it",
    ),
    spec(CommandName::Select, "select", 2, &["fast"], "connection", "There is only database 0"),
    spec(
        CommandName::Auth,
        "auth",
        -2,
        &["noscript", "fast", NO_AUTH],
        "connection",
        "AUTH [user] token: authenticates this connection",
    ),
    spec(
        CommandName::Reset,
        "reset",
        1,
        &["noscript", "fast", NO_AUTH],
        "connection",
        "Resets the settings of this connection",
    ),
    spec(CommandName::Quit, "quit", -1, &["fast", NO_AUTH], "connection", "Closes this connection"),
    spec(
        CommandName::Multi,
        "multi",
        1,
        &["noscript", "fast"],
        "transactions",
        "Queues the commands up to EXEC",
    ),
    spec(CommandName::Exec, "exec", 1, &["noscript"], "transactions", "Runs the queued commands"),
    spec(
        CommandName::Discard,
        "discard",
        1,
        &["noscript", "fast"],
        "transactions",
        "Drops the queued commands",
    ),
    spec(
        CommandName::Watch,
        "watch",
        -2,
        &["noscript", "fast"],
        "transactions",
        "Not supported: nothing to watch",
    ),
    spec(CommandName::Unwatch, "unwatch", 1, &["noscript", "fast"], "transactions", "Answers, as Redis does"),
];

/// Finds a command by its name, ignoring case.
pub(super) fn find_command(name: &[u8]) -> Option<&'static CommandSpec> {
    COMMANDS.iter().find(|spec| name.eq_ignore_ascii_case(spec.text.as_bytes()))
}

impl CommandSpec {
    /// Returns `true` if the command takes this number of arguments, including the name.
    pub(super) fn takes(&self, args: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { args >= wanted } else { args == wanted }
    }

    /// Returns how a command that Redis lacks is written; errors of the others are those of Redis.
    pub(super) fn usage(&self) -> Option<&'static str> {
        self.text.starts_with("id.").then(|| self.summary.split_once(": ").map(|(usage, _)| usage)).flatten()
    }

    /// Writes the entry of `COMMAND` and `COMMAND INFO`: name, arity and flags.
    pub(super) fn write_info(&self, out: &mut Vec<u8>) {
        reply::array(out, 10);
        reply::bulk(out, self.text.as_bytes());
        if self.arity < 0 {
            out.extend_from_slice(format!(":{}\r\n", self.arity).as_bytes());
        } else {
            reply::integer(out, u64::from(self.arity.unsigned_abs()));
        }
        reply::array(out, self.flags.len());
        for flag in self.flags {
            reply::simple(out, flag);
        }
        // First key, last key, step: a namespace is not a key.
        for _ in 0..3 {
            reply::integer(out, 0);
        }
        // Access categories, tips, key specifications, subcommands.
        for _ in 0..4 {
            reply::array(out, 0);
        }
    }

    /// Writes the entry of `COMMAND DOCS`.
    pub(super) fn write_docs(&self, out: &mut Vec<u8>, version: Version) {
        reply::bulk(out, self.text.as_bytes());
        let docs =
            [("summary", self.summary), ("since", "0.1.0"), ("group", self.group), ("complexity", "O(N)")];
        reply::map(out, version, docs.len());
        for (key, value) in docs {
            reply::bulk(out, key.as_bytes());
            reply::bulk(out, value.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case_and_each_once() {
        for spec in &COMMANDS {
            assert_eq!(find_command(spec.text.to_uppercase().as_bytes()).unwrap().name, spec.name);
            assert_eq!(spec.text, spec.text.to_lowercase());
        }
        assert!(find_command(b"id.nex").is_none() && find_command(b"").is_none());
    }

    #[test]
    fn arity_is_counted_as_redis_does() {
        let takes = |name: &[u8], args| find_command(name).unwrap().takes(args);
        assert!(!takes(b"id.next", 1) && takes(b"id.next", 2) && takes(b"id.next", 9));
        assert!(!takes(b"echo", 1) && takes(b"echo", 2) && !takes(b"echo", 3));
    }
}
