//! The meaning of a Redis error or a broken connection for a record, and advice for the operator.
//! A script that was refused has written nothing, since the server checks its first write.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

use crate::StoreErrorKind;
use crate::error::{Effect, chain};
use crate::net::{HostRefusal, trust};

/// The reason why a call failed.
#[derive(Debug)]
pub(super) enum RedisFailure {
    /// The call was not sent.
    NotSent(HostRefusal),
    /// The server refused the call.
    Refused(ServerError),
    /// The call was sent, and the connection broke.
    Broken(RedisError),
    /// The call was sent, and no answer came in time.
    Late(Duration),
    /// The call was executed, but too few replicas confirmed it.
    NotConfirmed(String),
    /// The call was sent, and the answer is invalid.
    InvalidAnswer(String),
}

/// The meaning of each refusal, by its first word, with advice. Older servers put the word inside the text of
/// a failed script.
const REFUSALS: &[(&str, StoreErrorKind, &str)] = &[
    ("READONLY", StoreErrorKind::ReadOnly, "use the primary, or name several hosts, separated by commas"),
    ("OOM", StoreErrorKind::Full, "raise maxmemory of the server, or free memory"),
    ("MISCONF", StoreErrorKind::ReadOnly, "the server fails to write to its disk; see its log"),
    (
        "NOREPLICAS",
        StoreErrorKind::Unavailable,
        "the server has fewer replicas than its min-replicas-to-write",
    ),
    ("NOAUTH", StoreErrorKind::Other, "add user and password to the URL, or use password_file="),
    ("WRONGPASS", StoreErrorKind::Other, "check user and password"),
    ("NOPERM", StoreErrorKind::Other, "grant the user the rights that `snowmint store init --dry-run` shows"),
    (
        "WRONGTYPE",
        StoreErrorKind::Corrupt,
        "another program uses names under this prefix; use another prefix=",
    ),
    ("LOADING", StoreErrorKind::Unavailable, "the server is loading its data"),
    ("BUSY", StoreErrorKind::Unavailable, "a script of another program runs too long"),
    ("MASTERDOWN", StoreErrorKind::Unavailable, "this replica has lost its primary"),
    ("CLUSTERDOWN", StoreErrorKind::Unavailable, "see `redis-cli cluster info`"),
    (
        "TRYAGAIN",
        StoreErrorKind::Unavailable,
        "the cluster is moving these keys; if that lasts, see `redis-cli --cluster check`",
    ),
    ("ASK", StoreErrorKind::Unavailable, "the cluster is moving these keys"),
    ("MOVED", StoreErrorKind::Unavailable, "the cluster has moved these keys"),
    (
        "CROSSSLOT",
        StoreErrorKind::Other,
        "these keys are in several slots, or a proxy separates keys that share a hash tag",
    ),
];

/// Returns the kind and the text of a failed call.
pub(super) fn meaning(effect: Effect, failure: RedisFailure) -> (StoreErrorKind, String) {
    match failure {
        RedisFailure::NotSent(HostRefusal { kind, text }) => (kind, text),
        RedisFailure::Refused(said) => refused(&said, effect),
        RedisFailure::Broken(error) => (effect.unanswered(), chain(&error)),
        RedisFailure::Late(limit) => {
            (effect.unanswered(), format!("no answer within {} ms", limit.as_millis()))
        }
        RedisFailure::NotConfirmed(why) => (effect.unanswered(), why),
        RedisFailure::InvalidAnswer(found) if effect == Effect::Reads => (StoreErrorKind::Corrupt, found),
        RedisFailure::InvalidAnswer(found) => (StoreErrorKind::OutcomeUnknown, found),
    }
}

/// Turns a connect error into the reason why there is no connection.
pub(super) fn refusal(error: &RedisError) -> HostRefusal {
    let text = chain(error);
    let kind = match error.kind() {
        ErrorKind::AuthenticationFailed => {
            return HostRefusal::new(StoreErrorKind::Other, format!("{text}; check user and password"));
        }
        ErrorKind::InvalidClientConfig => StoreErrorKind::Other,
        ErrorKind::Io => match trust::untrusted(&text, "ca") {
            Some(text) => return HostRefusal::new(StoreErrorKind::Other, text),
            None => StoreErrorKind::Unavailable,
        },
        _ => match known(error.code().unwrap_or_default(), &text) {
            Some((kind, advice)) => {
                return HostRefusal::new(kind, format!("Redis error \"{text}\"; {advice}"));
            }
            None => StoreErrorKind::Other,
        },
    };
    HostRefusal::new(kind, text)
}

/// Returns whether another server, or this one after a restart, may answer differently.
pub(super) fn is_about_the_server(said: &ServerError) -> bool {
    let text = said.details().unwrap_or_default();
    matches!(said.kind(), Some(ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading))
        || ["READONLY", "NOREPLICAS", "CLUSTERDOWN"].iter().any(|word| has_word(said.code(), text, word))
}

fn refused(said: &ServerError, effect: Effect) -> (StoreErrorKind, String) {
    let details = said.details().unwrap_or_default();
    let text = format!("Redis error \"{} {details}\"", said.code()).replace('\n', " ");
    match known(said.code(), details) {
        Some((kind, advice)) => (kind, format!("{text}; {advice}")),
        // A proxy may be in between, or the script may have run halfway: the outcome is unknown.
        None if effect == Effect::Writes => (StoreErrorKind::OutcomeUnknown, text),
        None => (StoreErrorKind::Other, text),
    }
}

fn known(code: &str, details: &str) -> Option<(StoreErrorKind, &'static str)> {
    let found = REFUSALS.iter().find(|(word, ..)| has_word(code, details, word));
    found.map(|(_, kind, advice)| (*kind, *advice))
}

fn has_word(code: &str, details: &str, word: &str) -> bool {
    code == word || details.contains(&format!("-{word} ")) || details.starts_with(&format!("{word} "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_known_also_inside_the_text_of_older_servers() {
        let kind = |code, details| known(code, details).map(|it| it.0);
        assert_eq!(kind("OOM", "command not allowed"), Some(StoreErrorKind::Full));
        let old =
            "Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write";
        assert_eq!(kind("ERR", old), Some(StoreErrorKind::ReadOnly));
        assert_eq!(kind("ERR", "unknown command"), None);
    }
}
