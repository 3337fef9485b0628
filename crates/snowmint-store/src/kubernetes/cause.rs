//! What a failed call on the API server means for a record, and what an operator can do about it.
//! A kind that says "nothing was written" is given only where the server, or the want of a connection, says so.

use std::time::Duration;

use super::answer::{Answer, Status};
use crate::effect::Effect;
use crate::{StoreError, StoreErrorKind};

/// Why there is no answer to a call.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was not sent.
    NotSent(String),
    /// It was sent, or may have been, and no answer came in this time.
    NoAnswer(Duration),
    /// The connection broke on the way.
    Broken(String),
}

const REACH: &str = "see that the API server can be reached from here";

pub(super) fn store_error(
    store: &str,
    operation: &'static str,
    effect: Effect,
    failure: &Failure,
) -> StoreError {
    let (kind, text) = match failure {
        Failure::NotSent(why) => (StoreErrorKind::Unavailable, format!("{why}; {REACH}")),
        Failure::NoAnswer(waited) => (effect.lost(), format!("no answer in {} s; {REACH}", waited.as_secs())),
        Failure::Broken(why) => (effect.lost(), format!("{why}; {REACH}")),
    };
    StoreError::new(kind, operation, store, text)
}

/// An answer that is neither a success nor a conflict.
pub(super) fn refused(store: &str, operation: &'static str, effect: Effect, answer: &Answer) -> StoreError {
    let Status { reason, message, .. } = answer.failure();
    let mut said = answer.status.to_string();
    for part in [reason, message.clone()] {
        if !part.is_empty() {
            said = format!("{said}: {part}");
        }
    }
    let (kind, advice) = meaning(effect, answer.status, &message);
    StoreError::new(kind, operation, store, format!("the API server answers \"{said}\"; {advice}"))
}

/// What a status settles. Those from 500 on settle nothing: a time-out of etcd behind the server is one of them.
fn meaning(effect: Effect, status: u16, message: &str) -> (StoreErrorKind, &'static str) {
    match status {
        401 => {
            (StoreErrorKind::Other, "the token or certificate is not accepted: look at token_file= or cert=")
        }
        403 if message.contains("exceeded quota") => {
            (StoreErrorKind::Full, "raise the namespace's quota of leases")
        }
        403 => {
            let kind =
                if effect == Effect::Writes { StoreErrorKind::ReadOnly } else { StoreErrorKind::Other };
            (kind, "grant the account the verbs get, list, create and patch on leases.coordination.k8s.io")
        }
        404 => (StoreErrorKind::Other, "see that the namespace exists and that this is an API server"),
        // Of a quota that was counted at the same instant, or of too many calls.
        409 | 429 => (StoreErrorKind::Unavailable, "try again"),
        500.. => (effect.lost(), "see that the API server and its etcd are well"),
        _ => (StoreErrorKind::Other, "see that this is an API server that takes such calls"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_settles_a_write() {
        let kind = |status, message| meaning(Effect::Writes, status, message).0;
        for open in [500, 502, 503, 504] {
            assert_eq!(kind(open, "etcdserver: request timed out"), StoreErrorKind::OutcomeUnknown);
            assert_eq!(meaning(Effect::Reads, open, "").0, StoreErrorKind::Unavailable);
        }
        assert_eq!(kind(403, "leases is forbidden"), StoreErrorKind::ReadOnly);
        assert_eq!(kind(403, "exceeded quota: small"), StoreErrorKind::Full);
        assert_eq!(kind(429, ""), StoreErrorKind::Unavailable);
        assert_eq!(kind(422, ""), StoreErrorKind::Other);
        assert_eq!(meaning(Effect::Reads, 403, "").0, StoreErrorKind::Other);
    }
}
