//! The answers of the API server, and the meaning of a failed call for a record.
//! A kind that says "nothing was written" needs proof: the server said so, or there was no connection.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::Effect;
use crate::net::https::date_unix_ms;
use crate::net::trust;
use crate::{StoreError, StoreErrorKind};

/// The reason why a call got no answer.
#[derive(Debug)]
pub(super) enum KubernetesFailure {
    /// The call was not sent.
    NotSent(String),
    /// The call was sent, or may have been, and no answer came within this time.
    NoAnswer(Duration),
    /// The connection broke during the call.
    Broken(String),
}

const REACH: &str = "check that the API server is reachable from here";

pub(super) fn store_error(
    store: &str,
    operation: &'static str,
    effect: Effect,
    failure: &KubernetesFailure,
) -> StoreError {
    let (kind, text) = match failure {
        KubernetesFailure::NotSent(why) => match trust::untrusted(why, "ca") {
            Some(text) => (StoreErrorKind::Other, text),
            None => (StoreErrorKind::Unavailable, format!("{why}; {REACH}")),
        },
        KubernetesFailure::NoAnswer(waited) => {
            (effect.unanswered(), format!("no answer within {} s; {REACH}", waited.as_secs()))
        }
        KubernetesFailure::Broken(why) => (effect.unanswered(), format!("{why}; {REACH}")),
    };
    StoreError::new(kind, operation, store, text)
}

/// Returns the error for an answer that is neither a success nor a conflict.
pub(super) fn refused(
    store: &str,
    operation: &'static str,
    effect: Effect,
    answer: &ApiAnswer,
) -> StoreError {
    let ApiStatus { reason, message, .. } = answer.failure();
    let mut said = answer.status.to_string();
    for part in [reason, message.clone()] {
        if !part.is_empty() {
            said = format!("{said}: {part}");
        }
    }
    let (kind, advice) = meaning(effect, answer.status, &message);
    let (kind, state) = match answer.server {
        ServerState::Starting => {
            (StoreErrorKind::Unavailable, "the API server is not ready, retry; if that does not help, ")
        }
        ServerState::Unknown => (kind, ""),
    };
    StoreError::new(kind, operation, store, format!("the API server answered \"{said}\"; {state}{advice}"))
}

/// Returns the kind and the advice for a status. From 500 on a status proves nothing: etcd behind the server
/// may have timed out.
fn meaning(effect: Effect, status: u16, message: &str) -> (StoreErrorKind, &'static str) {
    match status {
        401 => (StoreErrorKind::Other, "token or certificate rejected: check token_file= or cert="),
        403 if message.contains("exceeded quota") => {
            (StoreErrorKind::Full, "raise the quota of leases in the namespace")
        }
        403 if message.contains("is being terminated") => {
            (StoreErrorKind::ReadOnly, "the namespace is being deleted: use another one")
        }
        403 => {
            let kind =
                if effect == Effect::Writes { StoreErrorKind::ReadOnly } else { StoreErrorKind::Other };
            (kind, "grant the account the verbs get, list, create and patch on leases.coordination.k8s.io")
        }
        404 => (StoreErrorKind::Other, "check that the namespace exists and that this is an API server"),
        // A quota that another call changed at the same time, or too many calls.
        409 | 429 => (StoreErrorKind::Unavailable, "retry"),
        500.. => (effect.unanswered(), "check the API server and its etcd"),
        _ => (StoreErrorKind::Other, "check that this is an API server that supports such calls"),
    }
}

/// An answer of the server.
#[derive(Debug)]
pub(super) struct ApiAnswer {
    pub(super) status: u16,
    pub(super) date: Option<String>,
    /// How long the server asks to wait before the next call.
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Bytes,
    pub(super) server: ServerState,
}

/// What is known about the server of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ServerState {
    /// It was not asked, or is ready.
    Unknown,
    /// It is not ready.
    Starting,
}

/// The body of a failure: `meta/v1` Status.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ApiStatus {
    pub(super) reason: String,
    pub(super) message: String,
    details: StatusDetails,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusDetails {
    /// The resource, despite the name: `leases`.
    kind: String,
    name: String,
}

impl ApiAnswer {
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_slice(&self.body)
            .map_err(|error| format!("invalid answer, expected one of an API server: {error}"))
    }

    /// Returns the server's description of a failure; empty if the answer is not from an API server.
    pub(super) fn failure(&self) -> ApiStatus {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns whether it has this reason and is about one Lease, not about a namespace, a quota, or an
    /// unknown path.
    pub(super) fn is_about_a_lease(&self, reason: &str) -> bool {
        let ApiStatus { reason: said, details, .. } = self.failure();
        said == reason && details.kind == "leases" && !details.name.is_empty()
    }

    /// Returns the server's time, by the `Date`.
    pub(super) fn unix_ms(&self) -> Option<u64> {
        date_unix_ms(self.date.as_ref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_decides_a_write() {
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

    fn answer(body: &'static str) -> ApiAnswer {
        let date = Some("Thu, 01 Jan 1970 00:00:07 GMT".to_owned());
        let body = Bytes::from_static(body.as_bytes());
        ApiAnswer { status: 404, date, retry_after: None, body, server: ServerState::Unknown }
    }

    #[test]
    fn only_a_lease_is_a_lease() {
        let lease = r#"{"kind":"Status","reason":"NotFound","details":{"name":"x","kind":"leases"}}"#;
        assert!(answer(lease).is_about_a_lease("NotFound"));
        assert!(!answer(lease).is_about_a_lease("Conflict"));
        for other in [
            "",
            "404 page not found",
            r#"{"kind":"Status","reason":"NotFound","details":{"name":"x","kind":"namespaces"}}"#,
            r#"{"kind":"Status","reason":"NotFound","details":{}}"#,
            r#"{"kind":"Status","reason":"NotFound"}"#,
        ] {
            assert!(!answer(other).is_about_a_lease("NotFound"), "{other}");
        }
    }

    #[test]
    fn an_answer_tells_the_time() {
        assert_eq!(answer("").unix_ms(), Some(7500));
        assert_eq!(ApiAnswer { date: None, ..answer("") }.unix_ms(), None);
    }
}
