//! What a failed call on ZooKeeper means for a record, and what an operator can do about it.
//! A kind that says "nothing was written" is given only where the server, or the want of a session, says so.

use std::time::Duration;

use zookeeper_client::Error;

use crate::error::Effect;
use crate::{StoreError, StoreErrorKind};

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was not sent.
    NoSession(String),
    /// It was sent, and no answer came in this time.
    NoAnswer(Duration),
    /// It was sent, and this came back, from the server or from the connection.
    Error(Error),
}

pub(super) fn store_error(
    store: &str,
    operation: &'static str,
    effect: Effect,
    failure: &Failure,
) -> StoreError {
    let text = match failure {
        Failure::NoSession(why) => format!("{why}; see that ZooKeeper runs and can be reached from here"),
        Failure::NoAnswer(waited) => {
            format!("no answer in {} s; see that a majority of its servers runs", waited.as_secs())
        }
        Failure::Error(error) => format!("ZooKeeper's client says \"{error}\"; {}", advice(error)),
    };
    StoreError::new(kind(effect, failure), operation, store, text)
}

/// Whether the session or its connection failed, so that another one may do better.
pub(super) fn is_about_the_session(error: &Error) -> bool {
    matches!(
        error,
        Error::ConnectionLoss
            | Error::Timeout
            | Error::SessionExpired
            | Error::SessionMoved
            | Error::ClientClosed
            | Error::NoHosts
            | Error::AuthFailed
            | Error::NotReadOnly
            | Error::Throttled
            | Error::UnmarshalError { .. }
            | Error::UnexpectedError(_)
            | Error::Custom(_)
    )
}

fn kind(effect: Effect, failure: &Failure) -> StoreErrorKind {
    match failure {
        Failure::NoSession(_) => StoreErrorKind::Unavailable,
        Failure::NoAnswer(_) => effect.unanswered(),
        Failure::Error(error) => match error {
            // A server that says one of these has refused the call.
            Error::SessionMoved | Error::NotReadOnly | Error::Throttled => StoreErrorKind::Unavailable,
            // Reads write too, to the znode that makes them up to date.
            Error::NoAuth => StoreErrorKind::ReadOnly,
            Error::QuotaExceeded => StoreErrorKind::Full,
            Error::InvalidAcl
            | Error::BadArguments(_)
            | Error::NoNode
            | Error::NodeExists
            | Error::BadVersion
            | Error::NoChildrenForEphemerals
            | Error::MarshallingError
            | Error::Unimplemented => StoreErrorKind::Other,
            _ => effect.unanswered(),
        },
    }
}

fn advice(error: &Error) -> &'static str {
    match error {
        Error::NoAuth => "name the user, with the password, to whom the path belongs, or change its ACL",
        Error::QuotaExceeded => "raise the quota of the path",
        Error::InvalidAcl | Error::AuthFailed => "check user and password",
        _ => "see that a majority of ZooKeeper's servers runs and can be reached from here",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no error that leaves a write open passes for "nothing was written".
    #[test]
    fn what_no_server_refused_is_unknown() {
        let open = [
            Error::ConnectionLoss,
            Error::Timeout,
            Error::SessionExpired,
            Error::ClientClosed,
            Error::UnexpectedError("?".to_owned()),
            Error::UnexpectedErrorCode(-122),
        ];
        for error in open {
            let failure = Failure::Error(error);
            assert_eq!(kind(Effect::Writes, &failure), StoreErrorKind::OutcomeUnknown, "{failure:?}");
            assert_eq!(kind(Effect::Reads, &failure), StoreErrorKind::Unavailable, "{failure:?}");
        }
        let kind = |effect, failure| kind(effect, &failure);
        assert_eq!(kind(Effect::Writes, Failure::NoAnswer(Duration::ZERO)), StoreErrorKind::OutcomeUnknown);
        assert_eq!(kind(Effect::Writes, Failure::NoSession(String::new())), StoreErrorKind::Unavailable);
        assert_eq!(kind(Effect::Writes, Failure::Error(Error::NoAuth)), StoreErrorKind::ReadOnly);
        assert_eq!(kind(Effect::Writes, Failure::Error(Error::Throttled)), StoreErrorKind::Unavailable);
    }
}
