//! The access log: one line for each request, with the target `snowmint::access`. It is off unless the log
//! filter enables this target.
//!
//! A line contains no query, no header but the names of [`CallerNames`], and no argument that may be a
//! secret. It shows the name of a token, never its text.
//!
//! The line of a small answer is written when the answer is made, before it is sent, so `ok` says that the
//! server did its part: the ids count as issued. To write it after the send would hold back the lines of a
//! whole pipeline, and prove no more: a sent answer may still be lost on its way. If the answers of a
//! pipeline cannot be sent, one more line says so: [`unsent`].

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use snowmint::foreign::{Most, shown};
use tracing::Level;

use crate::protocol::Protocol;
use crate::telemetry::caller::CallerNames;

tokio::task_local! {
    /// The client of the connection that this task serves.
    static PEER: Peer;
}

/// Returns `true` if requests are logged. If they are not, the check costs one or two loads.
#[inline]
pub(crate) fn is_on() -> bool {
    tracing::enabled!(target: "snowmint::access", Level::INFO)
}

/// Serves the connection of a client. All its requests are answered inside this future.
pub(crate) fn of_client<F: Future>(peer: Peer, serving: F) -> impl Future<Output = F::Output> {
    PEER.scope(peer, serving)
}

/// The address of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    /// A process of this machine, on a Unix socket.
    Unix,
    /// The client has already disconnected.
    Gone,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

/// Returns the address of the client that this task serves, as the audit log names it.
pub(crate) fn client() -> String {
    match peer() {
        Peer::Tcp(address) => address.ip().to_string(),
        Peer::Unix => "unix socket".to_owned(),
        Peer::Gone => "unknown".to_owned(),
    }
}

/// Returns the start of a client's text, without control characters and secrets: clients may send any text
/// before they are authenticated, and a token in place of a name.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    shown(text, Most::Name)
}

/// The outcome of a request that succeeded.
pub(crate) const OK: &str = "ok";

/// The outcome of a request whose client left before the answer.
pub(crate) const CANCELLED: &str = "cancelled";

/// Logs input that is not a complete request: it is unreadable or incomplete, or its client was rejected at
/// once.
pub(crate) fn refused(protocol: Protocol, outcome: &str) {
    if is_on() {
        let (token, namespace, count, status, took) = (None, None, None, None, Duration::ZERO);
        let (request, names) = (RequestName::Other("-"), &CallerNames::default());
        LoggedRequest { protocol, token, request, names, namespace, count, outcome, status, took }.log();
    }
}

/// Logs that the answers to the newest `requests` lines of a connection could not be sent.
#[cold]
pub(crate) fn unsent(protocol: Protocol, token: Option<&str>, requests: u64) {
    if requests > 0 && is_on() {
        tracing::info!(
            target: "snowmint::access",
            protocol = protocol.name(),
            peer = peer().to_string(),
            token,
            request = "-",
            requests,
            outcome = "unsent",
            "answers not sent"
        );
    }
}

fn peer() -> Peer {
    PEER.try_with(|peer| *peer).unwrap_or(Peer::Gone)
}

/// What a client asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestName<'a> {
    Http {
        method: &'a str,
        path: &'a str,
    },
    /// The command, or the call.
    Other(&'a str),
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedRequest<'a> {
    pub(crate) protocol: Protocol,
    /// The name of the token with which the request was answered; `None` without a valid one.
    pub(crate) token: Option<&'a str>,
    pub(crate) request: RequestName<'a>,
    /// What the caller calls it.
    pub(crate) names: &'a CallerNames,
    pub(crate) namespace: Option<&'a str>,
    /// The number of requested ids, if the request was for ids.
    pub(crate) count: Option<u64>,
    /// [`OK`], [`CANCELLED`], or the code of the failure in this protocol.
    pub(crate) outcome: &'a str,
    /// The status of HTTP or gRPC.
    pub(crate) status: Option<u64>,
    pub(crate) took: Duration,
}

impl LoggedRequest<'_> {
    /// Writes the line.
    #[cold]
    pub(crate) fn log(&self) {
        let Self { protocol, token, request, names, namespace, count, outcome, status, took } = *self;
        let (request, method, path) = match request {
            RequestName::Http { method, path } => (None, Some(shortened(method)), Some(shortened(path))),
            RequestName::Other(name) => (Some(shortened(name)), None, None),
        };
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        tracing::info!(
            target: "snowmint::access",
            protocol = protocol.name(),
            peer = peer().to_string(),
            token,
            request = request.as_deref(),
            method = method.as_deref(),
            path = path.as_deref(),
            request_id = names.request_id(),
            trace_id = names.trace_id(),
            namespace = namespace.map(shortened).as_deref(),
            count,
            outcome,
            status,
            duration_us = us,
            "request"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_texts_are_shortened_and_at_a_character() {
        assert_eq!(shortened("DELETE /v1/admin/namespaces/orders"), "DELETE /v1/admin/namespaces/orders");
        assert_eq!(shortened(&"a".repeat(16 * 1024)), format!("{}… (16384 bytes)", "a".repeat(200)));
        let secret = "Ab9".repeat(17);
        let line = format!("GET /v1/ids/smt_ops_{secret}\n");
        assert_eq!(shortened(&line), "GET /v1/ids/smt_ops_Ab9A…\\n");
    }
}
