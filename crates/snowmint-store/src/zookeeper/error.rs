//! What a failed call on ZooKeeper means for a record, and what an operator can do about it.
//! A kind that says "nothing was written" is given only if the server, or the lack of a session, says so.

use std::time::Duration;

use super::origin::EnsembleOrigin;
use super::wire::ErrorCode;
use crate::error::Effect;
use crate::net::HostRefusal;
use crate::{StoreError, StoreErrorKind};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ZooKeeperFailure {
    /// The call was not sent: there is no session.
    #[error("{}", .0.text)]
    NoSession(HostRefusal),
    /// The call was not sent: the session ended just before.
    #[error("the session ended")]
    NotSent,
    /// The call was not sent: the host belongs to another ensemble than before.
    #[error(
        "at {host} is another ensemble than before, which would be a second store: its fence was {origin}, the one \
         before was {known}"
    )]
    AnotherEnsemble { host: String, origin: EnsembleOrigin, known: EnsembleOrigin },
    /// The call was sent, and no answer came within this time.
    #[error("no answer within {} s", .0.as_secs())]
    NoAnswer(Duration),
    /// The call was sent, and its session ended, or its answer is invalid.
    #[error("{0}")]
    Lost(String),
    /// The call was sent, and the server refused it.
    #[error("ZooKeeper says \"{0}\"")]
    Refused(ErrorCode),
}

impl ZooKeeperFailure {
    /// Whether a later try may succeed although nobody changes anything.
    pub(super) const fn may_pass(&self) -> bool {
        match self {
            Self::NotSent | Self::NoAnswer(_) | Self::Lost(_) => true,
            Self::NoSession(refusal) => matches!(refusal.kind, StoreErrorKind::Unavailable),
            Self::Refused(_) => self.is_about_the_session(),
            Self::AnotherEnsemble { .. } => false,
        }
    }

    /// Whether the session failed, so that another one may succeed.
    pub(super) const fn is_about_the_session(&self) -> bool {
        match self {
            Self::NotSent | Self::NoAnswer(_) | Self::Lost(_) => true,
            Self::Refused(code) => matches!(
                code,
                ErrorCode::ConnectionLoss
                    | ErrorCode::OperationTimeout
                    | ErrorCode::SessionExpired
                    | ErrorCode::SessionMoved
                    | ErrorCode::AuthFailed
                    | ErrorCode::NotReadOnly
                    | ErrorCode::Throttled
            ),
            Self::NoSession(_) | Self::AnotherEnsemble { .. } => false,
        }
    }
}

pub(super) fn store_error(
    store: &str,
    operation: &'static str,
    effect: Effect,
    failure: &ZooKeeperFailure,
) -> StoreError {
    let advice = advice(failure).map_or_else(String::new, |advice| format!("; {advice}"));
    StoreError::new(kind(effect, failure), operation, store, format!("{failure}{advice}"))
}

fn kind(effect: Effect, failure: &ZooKeeperFailure) -> StoreErrorKind {
    match failure {
        ZooKeeperFailure::NoSession(refusal) => refusal.kind,
        ZooKeeperFailure::NotSent => StoreErrorKind::Unavailable,
        ZooKeeperFailure::AnotherEnsemble { .. } => StoreErrorKind::SplitBrain,
        ZooKeeperFailure::NoAnswer(_) | ZooKeeperFailure::Lost(_) => effect.unanswered(),
        ZooKeeperFailure::Refused(code) => match code {
            // With one of these, a server has refused the call.
            ErrorCode::SessionMoved | ErrorCode::NotReadOnly | ErrorCode::Throttled => {
                StoreErrorKind::Unavailable
            }
            // Reads write too, to the fence.
            ErrorCode::NoAuth => StoreErrorKind::ReadOnly,
            ErrorCode::QuotaExceeded => StoreErrorKind::Full,
            ErrorCode::InvalidAcl
            | ErrorCode::BadArguments
            | ErrorCode::NoNode
            | ErrorCode::NodeExists
            | ErrorCode::BadVersion
            | ErrorCode::NoChildrenForEphemerals
            | ErrorCode::MarshallingError
            | ErrorCode::Unimplemented => StoreErrorKind::Other,
            ErrorCode::ConnectionLoss
            | ErrorCode::OperationTimeout
            | ErrorCode::SessionExpired
            | ErrorCode::AuthFailed
            | ErrorCode::RequestTimeout
            | ErrorCode::Other(_) => effect.unanswered(),
        },
    }
}

fn advice(failure: &ZooKeeperFailure) -> Option<&'static str> {
    Some(match failure {
        // The text of any other kind says what to do.
        ZooKeeperFailure::NoSession(refusal) if refusal.kind != StoreErrorKind::Unavailable => return None,
        ZooKeeperFailure::NoSession(_) => "check that ZooKeeper runs and is reachable from here",
        ZooKeeperFailure::AnotherEnsemble { .. } => {
            "name the servers of one ensemble; if the path was deleted or the ensemble replaced, recover the store \
             (`snowmint store recover --help`) and restart the nodes"
        }
        ZooKeeperFailure::Refused(ErrorCode::NoAuth) => {
            "use the user, with the password, that owns the path, or change its ACL"
        }
        ZooKeeperFailure::Refused(ErrorCode::QuotaExceeded) => "raise the quota of the path",
        ZooKeeperFailure::Refused(ErrorCode::InvalidAcl | ErrorCode::AuthFailed) => "check user and password",
        ZooKeeperFailure::NotSent
        | ZooKeeperFailure::NoAnswer(_)
        | ZooKeeperFailure::Lost(_)
        | ZooKeeperFailure::Refused(_) => {
            "check that a majority of the ZooKeeper servers runs and is reachable from here"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no error that leaves a write undecided counts as "nothing was written".
    #[test]
    fn what_no_server_refused_is_unknown() {
        let open = [
            ZooKeeperFailure::NoAnswer(Duration::ZERO),
            ZooKeeperFailure::Lost("broken pipe".to_owned()),
            ZooKeeperFailure::Refused(ErrorCode::ConnectionLoss),
            ZooKeeperFailure::Refused(ErrorCode::OperationTimeout),
            ZooKeeperFailure::Refused(ErrorCode::SessionExpired),
            ZooKeeperFailure::Refused(ErrorCode::RequestTimeout),
            ZooKeeperFailure::Refused(ErrorCode::Other(-1)),
        ];
        for failure in open {
            assert_eq!(kind(Effect::Writes, &failure), StoreErrorKind::OutcomeUnknown, "{failure:?}");
            assert_eq!(kind(Effect::Reads, &failure), StoreErrorKind::Unavailable, "{failure:?}");
        }
        let unavailable = || HostRefusal::new(StoreErrorKind::Unavailable, "refused");
        for (failure, wanted) in [
            (ZooKeeperFailure::NoSession(unavailable()), StoreErrorKind::Unavailable),
            (ZooKeeperFailure::NotSent, StoreErrorKind::Unavailable),
            (ZooKeeperFailure::Refused(ErrorCode::NoAuth), StoreErrorKind::ReadOnly),
            (ZooKeeperFailure::Refused(ErrorCode::Throttled), StoreErrorKind::Unavailable),
        ] {
            assert_eq!(kind(Effect::Writes, &failure), wanted, "{failure:?}");
        }
    }
}
