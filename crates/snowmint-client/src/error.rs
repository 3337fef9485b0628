//! Errors of calls for ids, and of building a client.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The longest `Retry-After` that is honoured. [`ClientError::retry_after`] documents it.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(1);

/// Why a client returned no ids.
#[derive(Clone, Debug)]
pub struct ClientError(Arc<ErrorDetails>);

#[derive(Debug)]
struct ErrorDetails {
    kind: ErrorKind,
    namespace: String,
    server: Option<Arc<str>>,
    status: Option<u16>,
    retry_after: Option<Duration>,
    detail: String,
}

/// The kind of an error, and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No server returned ids within the timeout. Retry later; check that a server is running and reachable.
    Unavailable,
    /// The token has used up its quota of ids. Retry later, or raise the quota.
    OverQuota,
    /// The server requires a token, or rejected the given one (401). Do not retry.
    Unauthorized,
    /// The token does not allow this namespace (403). Do not retry.
    Forbidden,
    /// The server does not have this namespace (404). Its text says how to create it. Do not retry.
    UnknownNamespace,
    /// The client trusts no server's certificate, or the servers rejected the client's. Do not retry.
    InvalidCertificate,
    /// The ids of the server are of another store than those before, or than the one set with
    /// [`ClientBuilder::store`](crate::ClientBuilder::store): together they may have duplicates, so they were
    /// dropped. Correct the servers. Do not retry.
    AnotherStore,
    /// The server rejected the request for another reason, for instance because the namespace's ids are not
    /// plain numbers. Do not retry.
    Rejected,
    /// The namespace name is invalid.
    InvalidNamespace,
    /// The count is 0 or too large.
    InvalidCount,
    /// This process is a forked child of the one that built the client. Build a client in each process.
    Forked,
    /// The background thread of the client has ended. Build a new client.
    Closed,
}

impl ClientError {
    fn new(kind: ErrorKind, namespace: &str, detail: String) -> Self {
        let namespace = namespace.to_owned();
        Self(Arc::new(ErrorDetails {
            kind,
            namespace,
            server: None,
            status: None,
            retry_after: None,
            detail,
        }))
    }

    /// Returns the kind of error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns whether the same call may succeed later.
    pub fn is_temporary(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Unavailable | ErrorKind::OverQuota)
    }

    /// Returns the URL of the server that rejected the request, or that failed last.
    pub fn server(&self) -> Option<&str> {
        self.0.server.as_deref()
    }

    /// Returns the HTTP status of the server's answer, if there was one.
    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// Returns how long to wait before a retry, if a server said so. At most 1 min.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    pub(crate) fn forked(namespace: &str) -> Self {
        Self::new(ErrorKind::Forked, namespace, String::new())
    }

    pub(crate) fn closed(namespace: &str) -> Self {
        Self::new(ErrorKind::Closed, namespace, String::new())
    }

    pub(crate) fn invalid_namespace(namespace: &str) -> Self {
        Self::new(ErrorKind::InvalidNamespace, namespace, String::new())
    }

    pub(crate) fn invalid_count(namespace: &str, count: usize, limit: u64) -> Self {
        Self::new(ErrorKind::InvalidCount, namespace, format!("invalid count {count}: expected 1 to {limit}"))
    }

    /// Returns the error for callers that waited until their timeout.
    pub(crate) fn timed_out(namespace: &str, timeout: Duration, last: Option<&RequestFailure>) -> Self {
        let Some(last) = last else {
            let detail = format!("no ids of namespace `{namespace}` within {timeout:?}: no server answered");
            return Self::new(ErrorKind::Unavailable, namespace, detail);
        };
        let detail = format!("no ids of namespace `{namespace}` within {timeout:?}: {}", last.text());
        Self::of_failure(namespace, last, detail)
    }

    /// Returns the error of a server that rejected the request.
    pub(crate) fn rejected(namespace: &str, failure: &RequestFailure) -> Self {
        Self::of_failure(namespace, failure, failure.text())
    }

    fn of_failure(namespace: &str, failure: &RequestFailure, detail: String) -> Self {
        let &RequestFailure { ref server, kind, status, retry, .. } = failure;
        let (namespace, server) = (namespace.to_owned(), Some(Arc::clone(server)));
        let retry_after = if let Retry::After(after) = retry { Some(after.get()) } else { None };
        Self(Arc::new(ErrorDetails { kind, namespace, server, status, retry_after, detail }))
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorDetails { kind, namespace, detail, .. } = &*self.0;
        match kind {
            ErrorKind::InvalidNamespace => write!(
                f,
                "invalid namespace name {}: expected 1 to 64 letters, digits, `.`, `_`, `-` or `:`",
                snowmint::error::Snippet::of(namespace)
            ),
            // The server says what to do.
            ErrorKind::InvalidCount
            | ErrorKind::OverQuota
            | ErrorKind::Rejected
            | ErrorKind::UnknownNamespace => f.write_str(detail),
            ErrorKind::Forked => {
                f.write_str("this client belongs to the parent process: build a new client after the fork")
            }
            ErrorKind::Closed => {
                f.write_str("the background thread of this client has ended: build a new client")
            }
            ErrorKind::InvalidCertificate => write!(
                f,
                "{detail}; check the certificates of the servers, and those set with ClientBuilder::ca_file and \
                 ClientBuilder::client_certificate"
            ),
            ErrorKind::AnotherStore => {
                write!(
                    f,
                    "{detail}; its ids were dropped: correct the list of servers, or the store of that server"
                )
            }
            ErrorKind::Unavailable => write!(f, "{detail}; check that a server runs and can be reached"),
            ErrorKind::Unauthorized => write!(f, "{detail}; set a valid token with ClientBuilder::token"),
            ErrorKind::Forbidden => {
                write!(f, "{detail}; use a token with the right `mint` for `{namespace}`")
            }
        }
    }
}

impl std::error::Error for ClientError {}

/// One failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestFailure {
    pub(crate) server: Arc<str>,
    /// The kind that the caller gets if no later request succeeds.
    pub(crate) kind: ErrorKind,
    pub(crate) status: Option<u16>,
    pub(crate) detail: String,
    pub(crate) retry: Retry,
    pub(crate) about: FailureScope,
}

impl RequestFailure {
    fn text(&self) -> String {
        format!("{}: {}", self.server, self.detail)
    }

    /// Returns whether a quota refuses the request, and its next ids come only after a deadline.
    pub(crate) fn is_over_quota_beyond(&self, deadline: Instant) -> bool {
        let later = matches!(self.retry, Retry::After(after) if Instant::now() + after.get() > deadline);
        self.kind == ErrorKind::OverQuota && later
    }
}

/// Which requests a failure affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureScope {
    /// Requests for every namespace: the failure concerns the server, the connection or the token.
    Server,
    /// Requests for this namespace only: the server may return ids of others.
    Namespace,
}

/// Whether and where to retry a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Do not retry: every server would answer the same.
    Never,
    /// Retry at another server, or later at the same one.
    Elsewhere,
    /// Retry at another server, or later at the same one. The same error returns until somebody replaces a
    /// certificate.
    OtherCertificate,
    /// Retry at another server, or later at the same one. The same error returns until its store is the one
    /// of this client.
    OtherStore,
    /// Retry at another server, or at the same one after this time.
    After(RetryAfter),
    /// Retry with fewer ids.
    Fewer,
}

/// How long a server asked to wait before a retry, at most [`LONGEST_RETRY_AFTER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryAfter(Duration);

impl RetryAfter {
    /// Returns the given time, or the maximum if it is longer.
    pub(crate) fn capped(asked: Duration) -> Self {
        Self(asked.min(LONGEST_RETRY_AFTER))
    }

    pub(crate) const fn get(self) -> Duration {
        self.0
    }
}

/// Why a client cannot be built. [`Chain`](snowmint::error::Chain) displays it with its cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No server was set.
    #[error("no server: name one with ClientBuilder::server, such as http://localhost:8080")]
    NoServer,
    /// The URL of a server is invalid.
    #[error("invalid server URL {url}: {why}")]
    InvalidServer {
        /// The URL, without a password.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The token has characters that a header cannot contain. The error does not contain the token.
    #[error("invalid token: expected visible ASCII characters")]
    InvalidToken,
    /// A setting is out of range.
    #[error("invalid {setting} {value}: expected {expected}")]
    InvalidSetting {
        /// The builder method.
        setting: &'static str,
        /// The value.
        value: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// A file is unreadable or invalid.
    #[error("cannot use {} for TLS", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// This build has no TLS.
    #[error("cannot use {url} without TLS: enable the feature `tls`")]
    NoTls {
        /// The URL of the server.
        url: String,
    },
    /// TLS setup failed.
    #[error("cannot set up TLS")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The background thread did not start.
    #[error("cannot start the background thread")]
    Thread(#[source] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no error asks callers to wait for more than 1 min, whatever the server asked for. Method: both
    /// ways in which a failure becomes an error, with times up to the longest one.
    #[test]
    fn retry_after_is_at_most_a_minute() {
        let minute = Duration::from_mins(1);
        for (asked, expected) in [
            (Duration::ZERO, Duration::ZERO),
            (Duration::from_secs(59), Duration::from_secs(59)),
            (minute, minute),
            (minute + Duration::from_nanos(1), minute),
            (Duration::from_hours(24), minute),
            (Duration::MAX, minute),
        ] {
            let failure = failure(Retry::After(RetryAfter::capped(asked)));
            let late = ClientError::timed_out("a", Duration::from_secs(5), Some(&failure));
            let rejected = ClientError::rejected("a", &failure);
            assert_eq!([late, rejected].map(|error| error.retry_after()), [Some(expected); 2], "{asked:?}");
        }
        for retry in
            [Retry::Never, Retry::Elsewhere, Retry::OtherCertificate, Retry::OtherStore, Retry::Fewer]
        {
            assert_eq!(ClientError::rejected("a", &failure(retry)).retry_after(), None, "{retry:?}");
        }
    }

    fn failure(retry: Retry) -> RequestFailure {
        RequestFailure {
            server: "http://localhost:8080".into(),
            kind: ErrorKind::Unavailable,
            status: Some(503),
            detail: "status 503".to_owned(),
            retry,
            about: FailureScope::Server,
        }
    }
}
