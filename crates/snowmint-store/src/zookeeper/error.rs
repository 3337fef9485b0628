//! What a failed call on ZooKeeper means for a record, and what an operator can do about it.
//! A kind that says "nothing was written" is given only if the server, or the lack of a session, says so.

use std::time::Duration;

use zookeeper_client::Error;

use super::fence::EnsembleOrigin;
use crate::error::Effect;
use crate::{StoreError, StoreErrorKind};

/// Why a call failed.
#[derive(Debug)]
pub(super) enum ZooKeeperFailure {
    /// The call was not sent.
    NoSession(String),
    /// The call was not sent: the host belongs to another ensemble than before.
    AnotherEnsemble { hosts: String, origin: EnsembleOrigin, known: EnsembleOrigin },
    /// The call was sent, and no answer came within this time.
    NoAnswer(Duration),
    /// The call was sent, and the server or the connection failed it.
    Error(Error),
}

pub(super) fn store_error(
    store: &str,
    operation: &'static str,
    effect: Effect,
    failure: &ZooKeeperFailure,
) -> StoreError {
    let text = match failure {
        ZooKeeperFailure::NoSession(why) => {
            format!("{why}; check that ZooKeeper runs and is reachable from here")
        }
        ZooKeeperFailure::AnotherEnsemble { hosts, origin, known } => format!(
            "at {hosts} is another ensemble than before, which would be a second store: its fence was {origin}, the one before was \
             {known}. Name the servers of one ensemble. If the path was deleted or the ensemble replaced, recover the store \
             (`snowmint store recover --help`) and restart the nodes"
        ),
        ZooKeeperFailure::NoAnswer(waited) => {
            format!("no answer within {} s; check that a majority of the servers runs", waited.as_secs())
        }
        ZooKeeperFailure::Error(error) => format!("ZooKeeper client error \"{error}\"; {}", advice(error)),
    };
    StoreError::new(kind(effect, failure), operation, store, text)
}

/// Whether the session or its connection failed, so that another session may succeed.
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

fn kind(effect: Effect, failure: &ZooKeeperFailure) -> StoreErrorKind {
    match failure {
        ZooKeeperFailure::NoSession(_) => StoreErrorKind::Unavailable,
        ZooKeeperFailure::AnotherEnsemble { .. } => StoreErrorKind::SplitBrain,
        ZooKeeperFailure::NoAnswer(_) => effect.unanswered(),
        ZooKeeperFailure::Error(error) => match error {
            // With one of these, a server has refused the call.
            Error::SessionMoved | Error::NotReadOnly | Error::Throttled => StoreErrorKind::Unavailable,
            // Reads write too, to the fence.
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
        Error::NoAuth => "use the user, with the password, that owns the path, or change its ACL",
        Error::QuotaExceeded => "raise the quota of the path",
        Error::InvalidAcl | Error::AuthFailed => "check user and password",
        _ => "check that a majority of the ZooKeeper servers runs and is reachable from here",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no error that leaves a write undecided counts as "nothing was written".
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
            let failure = ZooKeeperFailure::Error(error);
            assert_eq!(kind(Effect::Writes, &failure), StoreErrorKind::OutcomeUnknown, "{failure:?}");
            assert_eq!(kind(Effect::Reads, &failure), StoreErrorKind::Unavailable, "{failure:?}");
        }
        let kind = |effect, failure| kind(effect, &failure);
        assert_eq!(
            kind(Effect::Writes, ZooKeeperFailure::NoAnswer(Duration::ZERO)),
            StoreErrorKind::OutcomeUnknown
        );
        assert_eq!(
            kind(Effect::Writes, ZooKeeperFailure::NoSession(String::new())),
            StoreErrorKind::Unavailable
        );
        assert_eq!(kind(Effect::Writes, ZooKeeperFailure::Error(Error::NoAuth)), StoreErrorKind::ReadOnly);
        assert_eq!(
            kind(Effect::Writes, ZooKeeperFailure::Error(Error::Throttled)),
            StoreErrorKind::Unavailable
        );
    }
}
