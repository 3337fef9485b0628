//! Which commands there are: one table for finding them, checking their arity, and telling clients of them.
//! Looked up in order, the few that are asked often first: comparing beats hashing at this size.

use crate::resp::reply::{self, Version};

/// A command by what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    IdNext,
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

/// What is to be known of a command.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) name: Name,
    /// In lower case, as Redis writes it in errors.
    pub(super) text: &'static str,
    /// Arguments with the name; negative for "at least", as Redis counts.
    pub(super) arity: i8,
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
}

const fn spec(
    name: Name,
    text: &'static str,
    arity: i8,
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
) -> Spec {
    Spec { name, text, arity, flags, group, summary }
}

/// Every command.
pub(super) static TABLE: [Spec; 20] = [
    spec(
        Name::IdNext,
        "id.next",
        -2,
        &["write", "fast"],
        "ids",
        "ID.NEXT namespace [COUNT n] [INTEGER]: new ids",
    ),
    spec(
        Name::Incr,
        "incr",
        2,
        &["write", "fast"],
        "ids",
        "INCR namespace: the next number of a segment namespace",
    ),
    spec(
        Name::IncrBy,
        "incrby",
        3,
        &["write", "fast"],
        "ids",
        "INCRBY namespace n: n numbers in a row; answers the last",
    ),
    spec(
        Name::IdInspect,
        "id.inspect",
        -2,
        &["readonly", "fast"],
        "ids",
        "ID.INSPECT id [NAMESPACE name | LAYOUT spec]: what an id says",
    ),
    spec(Name::Ping, "ping", -1, &["fast"], "connection", "Answers, as Redis does"),
    spec(Name::Echo, "echo", 2, &["fast"], "connection", "Repeats a text"),
    spec(Name::Hello, "hello", -1, &["noscript", "fast"], "connection", "Chooses RESP2 or RESP3"),
    spec(Name::Client, "client", -2, &["noscript"], "connection", "Names this connection"),
    spec(Name::Command, "command", -1, &["loading"], "server", "Lists the commands"),
    spec(Name::Info, "info", -1, &["loading"], "server", "How the server and its lease stand"),
    spec(Name::Config, "config", -2, &["admin"], "server", "CONFIG GET pattern: for tools that ask"),
    spec(Name::Select, "select", 2, &["fast"], "connection", "There is only database 0"),
    spec(Name::Auth, "auth", -2, &["noscript", "fast"], "connection", "There are no passwords"),
    spec(Name::Reset, "reset", 1, &["noscript", "fast"], "connection", "Forgets what this connection chose"),
    spec(Name::Quit, "quit", -1, &["fast"], "connection", "Closes this connection"),
    spec(Name::Multi, "multi", 1, &["noscript", "fast"], "transactions", "Queues the commands up to EXEC"),
    spec(Name::Exec, "exec", 1, &["noscript"], "transactions", "Does the queued commands in a row"),
    spec(Name::Discard, "discard", 1, &["noscript", "fast"], "transactions", "Drops the queued commands"),
    spec(Name::Watch, "watch", -2, &["noscript", "fast"], "transactions", "Not supported: nothing to watch"),
    spec(Name::Unwatch, "unwatch", 1, &["noscript", "fast"], "transactions", "Answers, as Redis does"),
];

/// Finds a command by its name, in any case.
pub(super) fn find(name: &[u8]) -> Option<&'static Spec> {
    TABLE.iter().find(|spec| name.eq_ignore_ascii_case(spec.text.as_bytes()))
}

impl Spec {
    /// Whether so many arguments, the name included, can be right.
    pub(super) fn takes(&self, args: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { args >= wanted } else { args == wanted }
    }

    /// What `COMMAND` and `COMMAND INFO` answer: name, arity, flags, and no keys.
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
        // Positions of the first and last key and the step between keys: a namespace is no key.
        for _ in 0..3 {
            reply::integer(out, 0);
        }
        // Access categories, tips, key specifications, subcommands.
        for _ in 0..4 {
            reply::array(out, 0);
        }
    }

    /// What `COMMAND DOCS` answers for it.
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
        for spec in &TABLE {
            assert_eq!(find(spec.text.to_uppercase().as_bytes()).unwrap().name, spec.name);
            assert_eq!(spec.text, spec.text.to_lowercase());
        }
        assert!(find(b"id.nex").is_none() && find(b"").is_none());
    }

    #[test]
    fn arity_is_counted_as_redis_does() {
        let takes = |name: &[u8], args| find(name).unwrap().takes(args);
        assert!(!takes(b"id.next", 1) && takes(b"id.next", 2) && takes(b"id.next", 9));
        assert!(!takes(b"echo", 1) && takes(b"echo", 2) && !takes(b"echo", 3));
    }
}
