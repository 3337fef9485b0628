//! Writes the access-log line and the span of an answered request over RESP or Thrift. These protocols carry no trace
//! context, so the sample ratio alone decides which requests have a span.

use tokio::time::Instant;

use crate::access_log::{self, LoggedRequest};
#[cfg(feature = "otlp")]
use crate::access_log::{CANCELLED, OK};
#[cfg(feature = "otlp")]
use crate::otlp::{KeyValue, SpanOutcome, Tracer};
use crate::state::ServerState;
#[cfg(feature = "otlp")]
use crate::status::ErrorKind;

/// Returns `true` if requests are logged, or some of them traced. If they are not, the check costs one or two loads.
#[inline]
pub(crate) fn is_observed(server: &ServerState) -> bool {
    is_traced(server) || access_log::is_on()
}

#[cfg(feature = "otlp")]
#[inline]
fn is_traced(server: &ServerState) -> bool {
    server.tracer.as_ref().is_some_and(Tracer::samples)
}

#[cfg(not(feature = "otlp"))]
#[inline]
const fn is_traced(_server: &ServerState) -> bool {
    false
}

/// Writes the line of a request if requests are logged, and its span if it has one. `operation` is the command or method, or
/// `None` if it is unknown: a client's text would create a span name of its own for each request.
#[cold]
#[cfg_attr(not(feature = "otlp"), expect(unused_variables, reason = "only spans need them"))]
pub(crate) fn answered(
    server: &ServerState,
    request: &LoggedRequest<'_>,
    operation: Option<&str>,
    began: Instant,
) {
    if access_log::is_on() {
        request.log();
    }
    #[cfg(feature = "otlp")]
    if let Some(span) = server.tracer.as_ref().and_then(|tracer| tracer.begin_root(began)) {
        let protocol = request.protocol.name();
        let mut attributes = vec![KeyValue::text("network.protocol.name", protocol)];
        attributes.extend(request.namespace.map(|namespace| KeyValue::text("snowmint.namespace", namespace)));
        attributes.extend(request.count.map(|count| KeyValue::number("snowmint.count", count)));
        if request.outcome != OK {
            attributes.push(KeyValue::text("error.type", request.outcome));
        }
        let outcome = if failed_here(request.outcome) { SpanOutcome::Error } else { SpanOutcome::Unset };
        span.end(operation.unwrap_or(protocol), attributes, outcome);
    }
}

/// Returns `true` if only a fault of the server has this outcome, which is a name from the table of failures or its RESP word.
#[cfg(feature = "otlp")]
fn failed_here(outcome: &str) -> bool {
    if [OK, CANCELLED].contains(&outcome) {
        return false;
    }
    let rows = ErrorKind::ALL.map(ErrorKind::status);
    let mut meant = rows.iter().filter(|row| row.name == outcome || row.resp == outcome).peekable();
    meant.peek().is_some() && meant.all(|row| row.http >= 500)
}

#[cfg(all(test, feature = "otlp"))]
mod tests {
    use super::*;

    #[test]
    fn only_faults_of_the_server_fail_a_span() {
        for outcome in ["NOTREADY", "not-ready", "CLOCKBEHIND", "busy", "numbers-ended", "NUMBERSENDED"] {
            assert!(failed_here(outcome), "{outcome}");
        }
        // `TRYAGAIN` also answers a client beyond its quota.
        for outcome in [OK, CANCELLED, "ERR", "TRYAGAIN", "over-quota", "NONAMESPACE", "EXECABORT", ""] {
            assert!(!failed_here(outcome), "{outcome}");
        }
    }
}
