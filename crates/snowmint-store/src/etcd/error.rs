//! What a failed call on etcd means for a record, and what an operator can do about it.
//! A kind that says "nothing was written" is given only where etcd, or the want of a connection, says so for certain.

use std::time::Duration;

use tonic::{Code, Status};

use crate::error::Effect;
use crate::{StoreError, StoreErrorKind};

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was not sent.
    NoConnection(String),
    /// The user could not be authenticated, so the call was not sent.
    Login(Box<Status>),
    /// It was sent, and no answer came in this time.
    NoAnswer(Duration),
    /// It was sent, and this came back from etcd.
    Status(Box<Status>),
    /// It was sent, and the connection failed. TLS 1.3 tells a client that its certificate is wanted only after it has sent
    /// its first request, and that reason does not come through; nor does an alert to a client that speaks no TLS.
    Broken(String, Speaks),
}

/// What is spoken with the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Speaks {
    Plain,
    Tls,
    TlsWithCertificate,
}

pub(super) fn store_error(
    store: &str,
    operation: &'static str,
    effect: Effect,
    failure: &Failure,
) -> StoreError {
    let kind = kind(effect, failure);
    StoreError::new(kind, operation, store, text(effect, failure))
}

/// A write that happened, with an answer that makes no sense.
pub(super) fn written_without_revision(store: &str, operation: &'static str, revision: i64) -> StoreError {
    let found = format!("etcd answers a write with revision {revision}");
    StoreError::new(StoreErrorKind::OutcomeUnknown, operation, store, found)
}

fn kind(effect: Effect, failure: &Failure) -> StoreErrorKind {
    match failure {
        Failure::NoConnection(_) => StoreErrorKind::Unavailable,
        Failure::Login(status) => of_status(Effect::Reads, status).unwrap_or(StoreErrorKind::Unavailable),
        Failure::NoAnswer(_) | Failure::Broken(..) => effect.unanswered(),
        Failure::Status(status) => of_status(effect, status).unwrap_or(effect.unanswered()),
    }
}

/// What etcd's own answer settles: `None` where the call may or may not have taken effect.
///
/// `Unavailable` from etcd settles nothing: "request timed out" and "leader changed" come after the write was proposed.
fn of_status(effect: Effect, status: &Status) -> Option<StoreErrorKind> {
    match status.code() {
        Code::ResourceExhausted if status.message().contains("database space exceeded") => {
            Some(StoreErrorKind::Full)
        }
        Code::ResourceExhausted if status.message().contains("too many requests") => {
            Some(StoreErrorKind::Unavailable)
        }
        Code::PermissionDenied if effect == Effect::Writes => Some(StoreErrorKind::ReadOnly),
        Code::PermissionDenied
        | Code::InvalidArgument
        | Code::Unauthenticated
        | Code::FailedPrecondition
        | Code::NotFound
        | Code::OutOfRange
        | Code::Unimplemented => Some(StoreErrorKind::Other),
        _ => None,
    }
}

fn text(effect: Effect, failure: &Failure) -> String {
    match failure {
        Failure::NoConnection(why)
            if ["InvalidContentType", "tls handshake eof"].iter().any(|it| why.contains(it)) =>
        {
            format!("{why}; if etcd speaks no TLS there, say etcd:// without tls=, ca=, cert= and key=")
        }
        Failure::NoConnection(why) => format!("{why}; see that etcd runs and can be reached from here"),
        Failure::NoAnswer(waited) => {
            format!("no answer in {} s; see that a majority of etcd's members runs", waited.as_secs())
        }
        Failure::Login(status) => {
            format!("etcd says \"{}\" to user and password; check both", status.message())
        }
        Failure::Broken(why, Speaks::Plain) => {
            format!(
                "{why}; if etcd takes clients over TLS alone, say etcds:// and ca=; else see that it runs"
            )
        }
        Failure::Broken(why, Speaks::Tls) => {
            format!("{why}; if etcd wants a client certificate, say cert= and key=; else see that it runs")
        }
        Failure::Broken(why, Speaks::TlsWithCertificate) => {
            format!(
                "{why}; see that a majority of etcd's members runs, and that it trusts the certificate of cert="
            )
        }
        Failure::Status(status) => format!("etcd says \"{}\"; {}", status.message(), advice(effect, status)),
    }
}

fn advice(effect: Effect, status: &Status) -> &'static str {
    match (status.code(), of_status(effect, status)) {
        (_, Some(StoreErrorKind::Full)) => {
            "compact and defragment it or raise --quota-backend-bytes, then `etcdctl alarm disarm`"
        }
        (Code::PermissionDenied, _) => "grant the user's role to read and write all keys with the prefix",
        (Code::Unauthenticated | Code::InvalidArgument, _) => "name a user and a password that etcd knows",
        _ => "see that a majority of etcd's members runs and can be reached from here",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no status that leaves a write open passes for "nothing was written".
    #[test]
    fn what_etcd_does_not_settle_is_unknown() {
        let open = [
            Status::unavailable("etcdserver: request timed out"),
            Status::unavailable("etcdserver: leader changed"),
            Status::unknown("transport error"),
            Status::internal("h2 protocol error"),
            Status::cancelled("dropped"),
            Status::deadline_exceeded("late"),
            Status::resource_exhausted("grpc: received message larger than max"),
            Status::data_loss("?"),
        ];
        for status in open {
            let failure = Failure::Status(Box::new(status));
            assert_eq!(kind(Effect::Writes, &failure), StoreErrorKind::OutcomeUnknown, "{failure:?}");
            assert_eq!(kind(Effect::Reads, &failure), StoreErrorKind::Unavailable, "{failure:?}");
        }
        assert_eq!(kind(Effect::Writes, &Failure::NoAnswer(Duration::ZERO)), StoreErrorKind::OutcomeUnknown);
        assert_eq!(kind(Effect::Writes, &Failure::NoConnection(String::new())), StoreErrorKind::Unavailable);
    }

    #[test]
    fn what_etcd_refuses_is_settled() {
        let settled = [
            (Status::resource_exhausted("etcdserver: mvcc: database space exceeded"), StoreErrorKind::Full),
            (Status::resource_exhausted("etcdserver: too many requests"), StoreErrorKind::Unavailable),
            (Status::permission_denied("etcdserver: permission denied"), StoreErrorKind::ReadOnly),
            (Status::unauthenticated("etcdserver: invalid auth token"), StoreErrorKind::Other),
            (Status::invalid_argument("etcdserver: request is too large"), StoreErrorKind::Other),
        ];
        for (status, wanted) in settled {
            assert_eq!(kind(Effect::Writes, &Failure::Status(Box::new(status))), wanted);
        }
    }
}
