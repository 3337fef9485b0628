//! The meaning of a failed etcd call for a record, and advice for the operator.
//! A kind that says "nothing was written" needs proof: etcd said so, or there was no connection.

use std::time::Duration;

use tonic::{Code, Status};

use crate::error::Effect;
use crate::net::trust;
use crate::{StoreError, StoreErrorKind};

/// The reason why a call failed.
#[derive(Debug)]
pub(super) enum EtcdFailure {
    /// The call was not sent.
    NoConnection(String),
    /// The call was not sent: the connection ended during the TLS handshake, as with a server without TLS.
    NoHandshake(String),
    /// The call was not sent: the client does not trust the certificate of any member that answered.
    Untrusted(String),
    /// The user could not be authenticated, so the call was not sent.
    Login(Box<Status>),
    /// These two members of the URL belong to different clusters.
    TwoClusters(String, String),
    /// The call was sent, and no answer came within this time.
    NoAnswer(Duration),
    /// The call was sent, and etcd answered with this status.
    Status(Box<Status>),
    /// The call was sent, and the connection failed. In TLS 1.3 a server asks for a certificate only after
    /// the first request, and the client library hides that reason, as it hides an alert to a client without
    /// TLS.
    Broken(String, EtcdProtocol),
}

impl EtcdFailure {
    /// Returns the failure for a connection that could not be opened.
    pub(super) fn to_connect(failed: &[String], protocol: EtcdProtocol) -> Self {
        let why = failed.join("; ");
        let mut untrusted = failed.iter().map(|why| trust::untrusted(why, "ca"));
        if let Some(Some(text)) = untrusted.next()
            && untrusted.all(|it| it.is_some())
        {
            return Self::Untrusted(text);
        }
        // A server without TLS answers in plain text, closes the connection, or resets it because of unread
        // data.
        let ends = ["InvalidContentType", "tls handshake eof", "Connection reset", "Broken pipe"];
        match protocol {
            EtcdProtocol::Tls | EtcdProtocol::TlsWithCertificate
                if ends.iter().any(|it| why.contains(it)) =>
            {
                Self::NoHandshake(why)
            }
            _ => Self::NoConnection(why),
        }
    }
}

/// The protocol between this client and the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EtcdProtocol {
    Plain,
    Tls,
    TlsWithCertificate,
}

pub(super) fn store_error(
    store: &str,
    operation: &'static str,
    effect: Effect,
    failure: &EtcdFailure,
) -> StoreError {
    let kind = kind(effect, failure);
    StoreError::new(kind, operation, store, text(effect, failure))
}

/// Returns the error for a write that happened, but whose answer is invalid.
pub(super) fn written_without_revision(store: &str, operation: &'static str, revision: i64) -> StoreError {
    let found = format!("etcd answered a write with revision {revision}, expected at least 1");
    StoreError::new(StoreErrorKind::OutcomeUnknown, operation, store, found)
}

fn kind(effect: Effect, failure: &EtcdFailure) -> StoreErrorKind {
    match failure {
        EtcdFailure::NoConnection(_) | EtcdFailure::NoHandshake(_) => StoreErrorKind::Unavailable,
        EtcdFailure::TwoClusters(..) | EtcdFailure::Untrusted(_) => StoreErrorKind::Other,
        EtcdFailure::Login(status) => of_status(Effect::Reads, status).unwrap_or(StoreErrorKind::Unavailable),
        EtcdFailure::NoAnswer(_) | EtcdFailure::Broken(..) => effect.unanswered(),
        EtcdFailure::Status(status) => of_status(effect, status).unwrap_or(effect.unanswered()),
    }
}

/// Returns the kind that etcd's answer proves, or `None` if the call may or may not have taken effect.
///
/// `Unavailable` from etcd proves nothing: "request timed out" and "leader changed" come after the write was
/// proposed.
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

fn text(effect: Effect, failure: &EtcdFailure) -> String {
    match failure {
        EtcdFailure::NoConnection(why) => format!("{why}; check that etcd runs and is reachable from here"),
        EtcdFailure::NoHandshake(why) => format!(
            "{why}; if etcd uses no TLS there, use etcd:// without tls=, ca=, cert= and key=; \
             otherwise check that it runs and is reachable from here"
        ),
        EtcdFailure::Untrusted(why) => why.clone(),
        EtcdFailure::TwoClusters(one, other) => format!(
            "{one} and {other} are members of different clusters, which would be two stores; name the members of one cluster"
        ),
        EtcdFailure::NoAnswer(waited) => {
            format!("no answer within {} s; check that a majority of the etcd members runs", waited.as_secs())
        }
        EtcdFailure::Login(status) if is_learner(status) => {
            format!("etcd says \"{}\"; {LEARNER}", status.message())
        }
        EtcdFailure::Login(status) => {
            format!("etcd rejected the login: \"{}\"; check user and password", status.message())
        }
        EtcdFailure::Broken(why, EtcdProtocol::Plain) => {
            format!("{why}; if etcd accepts only TLS, use etcds:// and ca=; otherwise check that it runs")
        }
        EtcdFailure::Broken(why, EtcdProtocol::Tls) => {
            format!(
                "{why}; if etcd requires a client certificate, add cert= and key=; otherwise check that it runs"
            )
        }
        EtcdFailure::Broken(why, EtcdProtocol::TlsWithCertificate) => {
            format!(
                "{why}; check that a majority of the etcd members runs, and that they trust the certificate of cert="
            )
        }
        EtcdFailure::Status(status) => {
            format!("etcd says \"{}\"; {}", status.message(), advice(effect, status))
        }
    }
}

/// A learner receives all writes, but does not vote, and answers no reads that must be current.
const LEARNER: &str =
    "this member is a learner: name the voting members too, or promote it (`etcdctl member promote`)";

fn is_learner(status: &Status) -> bool {
    status.message().contains("not supported for learner")
}

fn advice(effect: Effect, status: &Status) -> &'static str {
    if is_learner(status) {
        return LEARNER;
    }
    match (status.code(), of_status(effect, status)) {
        (_, Some(StoreErrorKind::Full)) => {
            "compact and defragment it or raise --quota-backend-bytes, then `etcdctl alarm disarm`"
        }
        (Code::PermissionDenied, _) => {
            "grant the role of the user read and write access to all keys with the prefix"
        }
        (Code::Unauthenticated | Code::InvalidArgument, _) => "use a user and a password that etcd knows",
        _ => "check that a majority of the etcd members runs and is reachable from here",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a client that uses TLS with a server without TLS gets that hint, however the system reports the
    /// end of the handshake.
    #[test]
    fn a_handshake_that_ends_is_not_a_server_that_is_away() {
        let reset = "127.0.0.1:2379: transport error: Connection reset by peer (os error 104)";
        let refused = "127.0.0.1:2379: transport error: tcp connect error: Connection refused (os error 111)";
        let said = |why: &str, protocol| {
            text(Effect::Writes, &EtcdFailure::to_connect(&[why.to_owned()], protocol))
                .contains("uses no TLS")
        };
        assert!(said(reset, EtcdProtocol::Tls) && said(reset, EtcdProtocol::TlsWithCertificate));
        assert!(!said(reset, EtcdProtocol::Plain) && !said(refused, EtcdProtocol::Tls));
    }

    /// Goal: an untrusted certificate is no outage, unless another member may answer.
    #[test]
    fn an_untrusted_certificate_is_not_a_server_that_is_away() {
        let untrusted = "h1:2379: transport error: invalid peer certificate: UnknownIssuer".to_owned();
        let away =
            "h2:2379: transport error: tcp connect error: Connection refused (os error 111)".to_owned();
        let failure = EtcdFailure::to_connect(&[untrusted.clone(), untrusted.clone()], EtcdProtocol::Tls);
        assert_eq!(kind(Effect::Writes, &failure), StoreErrorKind::Other);
        assert!(text(Effect::Writes, &failure).contains("name its file with ca="), "{failure:?}");
        let failure = EtcdFailure::to_connect(&[untrusted, away], EtcdProtocol::Tls);
        assert_eq!(kind(Effect::Writes, &failure), StoreErrorKind::Unavailable);
        assert_eq!(
            kind(Effect::Writes, &EtcdFailure::to_connect(&[], EtcdProtocol::Tls)),
            StoreErrorKind::Unavailable
        );
    }

    /// Goal: a learner is not taken for a wrong password, nor for a lost majority.
    #[test]
    fn a_learner_is_named() {
        let status = || Box::new(Status::unavailable("etcdserver: rpc not supported for learner"));
        for failure in [EtcdFailure::Login(status()), EtcdFailure::Status(status())] {
            assert_eq!(kind(Effect::Reads, &failure), StoreErrorKind::Unavailable);
            let said = text(Effect::Reads, &failure);
            assert!(said.contains("member promote") && !said.contains("password"), "{said}");
        }
    }

    /// Goal: no status that leaves the outcome of a write unknown counts as "nothing was written".
    #[test]
    fn what_etcd_does_not_decide_is_unknown() {
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
            let failure = EtcdFailure::Status(Box::new(status));
            assert_eq!(kind(Effect::Writes, &failure), StoreErrorKind::OutcomeUnknown, "{failure:?}");
            assert_eq!(kind(Effect::Reads, &failure), StoreErrorKind::Unavailable, "{failure:?}");
        }
        assert_eq!(
            kind(Effect::Writes, &EtcdFailure::NoAnswer(Duration::ZERO)),
            StoreErrorKind::OutcomeUnknown
        );
        assert_eq!(
            kind(Effect::Writes, &EtcdFailure::NoConnection(String::new())),
            StoreErrorKind::Unavailable
        );
    }

    #[test]
    fn what_etcd_refuses_is_decided() {
        let settled = [
            (Status::resource_exhausted("etcdserver: mvcc: database space exceeded"), StoreErrorKind::Full),
            (Status::resource_exhausted("etcdserver: too many requests"), StoreErrorKind::Unavailable),
            (Status::permission_denied("etcdserver: permission denied"), StoreErrorKind::ReadOnly),
            (Status::unauthenticated("etcdserver: invalid auth token"), StoreErrorKind::Other),
            (Status::invalid_argument("etcdserver: request is too large"), StoreErrorKind::Other),
        ];
        for (status, wanted) in settled {
            assert_eq!(kind(Effect::Writes, &EtcdFailure::Status(Box::new(status))), wanted);
        }
    }
}
