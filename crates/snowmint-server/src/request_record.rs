//! The record of a request: its line in the access log, and its span. The handler that has just parsed a
//! request fills it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "otlp")]
use hyper::header::HOST;
#[cfg(feature = "otlp")]
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Request};
use tokio::time::Instant;

use crate::access::Identity;
use crate::access::secret::TokenName;
use crate::protocol::Protocol;
use crate::state::ServerState;
#[cfg(feature = "otlp")]
use crate::status::ErrorKind;
#[cfg(feature = "otlp")]
use crate::telemetry::access_log::OK;
use crate::telemetry::access_log::{self, CANCELLED, LoggedRequest, RequestName};
use crate::telemetry::caller::CallerNames;
#[cfg(feature = "otlp")]
use crate::telemetry::otlp::{ActiveSpan, KeyValue, SpanOutcome, Tracer};

/// Returns `true` if requests are logged, or some of those without a caller's span are traced. If they are
/// not, the check costs one or two loads.
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

/// What kind of request is recorded: each has other attributes in its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// A request of HTTP, with the pattern of its path; empty if there is no such path.
    Http(&'static str),
    /// A call of gRPC.
    Grpc,
    /// A command or a call of another protocol. An unknown one does not name its span: a client's text would
    /// make a name of its own for each request.
    Command {
        /// Whether the protocol has such a command.
        is_known: bool,
    },
}

/// The record of a request: the handlers fill it while they answer. When it is dropped, it writes the
/// access-log line and the span of the request: after the answer, or when the client leaves before it. Most
/// requests have neither, and an empty record.
#[derive(Default)]
pub(crate) struct RequestRecord(Option<Box<Recorded>>);

/// A request that is logged or traced.
struct Recorded {
    kind: RequestKind,
    protocol: Protocol,
    /// The method and path, or the command.
    request: String,
    names: CallerNames,
    began: Instant,
    /// How long the answer took; `None` if it is counted when the record is written.
    took: Option<Duration>,
    /// The token with which the request was answered; `None` without a valid one.
    token: Option<TokenName>,
    namespace: Option<String>,
    /// The number of requested ids, if the request was for ids.
    count: Option<u64>,
    /// [`OK`], [`CANCELLED`], or the code of the failure in this protocol.
    outcome: Cow<'static, str>,
    /// The status of HTTP or gRPC.
    code: Option<u64>,
    /// The number of equal requests that were answered together.
    times: usize,
    is_logged: bool,
    #[cfg(feature = "otlp")]
    span: Option<SpanSource>,
    #[cfg(feature = "otlp")]
    address: Address,
}

/// The address to which the client sent a request.
#[cfg(feature = "otlp")]
#[derive(Default)]
struct Address {
    /// `http`, `https`, or nothing if the protocol has no URLs.
    scheme: &'static str,
    /// 1.1 or 2.
    version: &'static str,
    host: String,
    port: Option<u16>,
}

/// Where the span of a request comes from.
#[cfg(feature = "otlp")]
enum SpanSource {
    /// Its headers, or the sample ratio, which were looked at when it began.
    Begun(Box<ActiveSpan>),
    /// The sample ratio, once it is answered.
    Sampled(Arc<ServerState>),
}

impl RequestRecord {
    /// Begins the record of a request over HTTP or gRPC, whose headers may name the caller's span.
    #[inline]
    #[cfg_attr(not(feature = "otlp"), expect(unused_variables, reason = "only spans need them"))]
    pub(crate) fn begin(
        server: &ServerState,
        protocol: Protocol,
        headers: &HeaderMap,
        began: Instant,
        request: impl FnOnce() -> (RequestKind, String),
    ) -> Self {
        #[cfg(feature = "otlp")]
        if let Some(span) = server.tracer.as_ref().and_then(|tracer| tracer.begin(headers, began)) {
            let mut recorded = Recorded::new(protocol, request(), began);
            recorded.span = Some(SpanSource::Begun(span));
            return Self(Some(recorded));
        }
        Self::of_line(protocol, began, request)
    }

    /// Begins the record of a request that has no span.
    #[inline]
    pub(crate) fn of_line(
        protocol: Protocol,
        began: Instant,
        request: impl FnOnce() -> (RequestKind, String),
    ) -> Self {
        Self(access_log::is_on().then(|| Recorded::new(protocol, request(), began)))
    }

    /// Begins the record of a command, or of a call without headers. Of these, the sample ratio alone decides
    /// which have a span.
    #[cold]
    #[cfg_attr(not(feature = "otlp"), expect(unused_variables, reason = "only spans need it"))]
    pub(crate) fn of_command(
        server: &Arc<ServerState>,
        protocol: Protocol,
        request: (RequestKind, String),
        began: Instant,
    ) -> Self {
        #[cfg_attr(not(feature = "otlp"), expect(unused_mut, reason = "only spans need it"))]
        let mut recorded = Recorded::new(protocol, request, began);
        #[cfg(feature = "otlp")]
        if is_traced(server) {
            recorded.span = Some(SpanSource::Sampled(Arc::clone(server)));
        }
        Self(Some(recorded))
    }

    /// Returns `true` if nothing is written of the request.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Records the token of the client.
    #[inline]
    pub(crate) fn sent_by(&mut self, identity: &Identity) {
        if let Some(recorded) = &mut self.0
            && recorded.token.as_ref() != identity.token_name()
        {
            recorded.token = identity.token_name().cloned();
        }
    }

    /// Records to which address the client sent the request. Only a span has it.
    #[inline]
    #[cfg_attr(not(feature = "otlp"), expect(unused_variables, reason = "only spans need them"))]
    pub(crate) fn addressed_to<B>(&mut self, request: &Request<B>, scheme: &'static str) {
        #[cfg(feature = "otlp")]
        if let Some(recorded) = &mut self.0
            && recorded.span.is_some()
        {
            recorded.address = Address::of(request, scheme);
        }
    }

    /// Records what the caller calls the request.
    #[inline]
    pub(crate) fn named(&mut self, names: &CallerNames) {
        if let Some(recorded) = &mut self.0 {
            recorded.names = names.clone();
        }
    }

    /// Records that the caller calls the request as it calls another.
    pub(crate) fn named_as(&mut self, other: &Self) {
        if let Some(other) = &other.0 {
            self.named(&other.names);
        }
    }

    /// Records which ids the request is for.
    #[inline]
    pub(crate) fn asks(&mut self, namespace: Option<&str>, count: Option<u64>) {
        if let Some(recorded) = &mut self.0 {
            (recorded.namespace, recorded.count) = (namespace.map(str::to_owned), count);
        }
    }

    /// Records the outcome: [`OK`], or the code of the failure in this protocol.
    #[inline]
    pub(crate) fn ended(&mut self, outcome: impl Into<Cow<'static, str>>) {
        if let Some(recorded) = &mut self.0 {
            recorded.outcome = outcome.into();
        }
    }

    /// Records the outcome, and the status of HTTP or gRPC.
    #[inline]
    pub(crate) fn ended_with(&mut self, outcome: impl Into<Cow<'static, str>>, code: u64) {
        if let Some(recorded) = &mut self.0 {
            recorded.outcome = outcome.into();
            recorded.code = Some(code);
        }
    }

    /// Records how many equal requests were answered together.
    #[inline]
    pub(crate) fn repeated(&mut self, times: usize) {
        if let Some(recorded) = &mut self.0 {
            recorded.times = times;
        }
    }

    /// Records that the request was not run, with the outcome.
    pub(crate) fn not_run(&mut self, outcome: &'static str) {
        if let Some(recorded) = &mut self.0 {
            (recorded.outcome, recorded.took) = (Cow::Borrowed(outcome), Some(Duration::ZERO));
        }
    }

    /// Writes nothing.
    pub(crate) fn omit(mut self) {
        self.repeated(0);
    }

    /// Takes the span for a stream, whose requests have lines of their own.
    pub(crate) fn take_span(&mut self) -> Self {
        let mut taken = self.0.take();
        if let Some(recorded) = &mut taken {
            recorded.is_logged = false;
        }
        Self(taken)
    }
}

impl Recorded {
    #[cold]
    fn new(protocol: Protocol, (kind, request): (RequestKind, String), began: Instant) -> Box<Self> {
        Box::new(Self {
            kind,
            protocol,
            request,
            names: CallerNames::default(),
            began,
            took: None,
            token: None,
            namespace: None,
            count: None,
            outcome: Cow::Borrowed(CANCELLED),
            code: (kind == RequestKind::Grpc).then_some(GRPC_CANCELLED),
            times: 1,
            is_logged: access_log::is_on(),
            #[cfg(feature = "otlp")]
            span: None,
            #[cfg(feature = "otlp")]
            address: Address::default(),
        })
    }

    fn log(&self) {
        LoggedRequest {
            protocol: self.protocol,
            token: self.token.as_ref().map(TokenName::as_str),
            request: match (self.kind, self.request.split_once(' ')) {
                (RequestKind::Http(_), Some((method, path))) => RequestName::Http { method, path },
                _ => RequestName::Other(&self.request),
            },
            names: &self.names,
            namespace: self.namespace.as_deref(),
            count: self.count,
            outcome: &self.outcome,
            status: self.code,
            took: self.took.unwrap_or_else(|| self.began.elapsed()),
        }
        .log();
    }

    /// Ends the span of the request, if it has one.
    #[cfg(feature = "otlp")]
    #[cold]
    fn trace(&self) {
        match &self.span {
            Some(SpanSource::Begun(span)) => self.describe(span),
            Some(SpanSource::Sampled(server)) => {
                if let Some(span) = server.tracer.as_ref().and_then(|tracer| tracer.begin_root(self.began)) {
                    self.describe(&span);
                }
            }
            None => {}
        }
    }

    /// Ends a span, with names and attributes by the semantic conventions of OpenTelemetry, and of Snowmint
    /// for what these do not name.
    #[cfg(feature = "otlp")]
    fn describe(&self, span: &ActiveSpan) {
        let (name, mut attributes, is_error) = match self.kind {
            RequestKind::Http(route) => self.of_http(route),
            RequestKind::Grpc => self.of_grpc(),
            RequestKind::Command { is_known } => {
                let protocol = self.protocol.name();
                let mut attributes = vec![KeyValue::text("network.protocol.name", protocol)];
                if self.outcome != OK {
                    attributes.push(KeyValue::text("error.type", &self.outcome));
                }
                let name = if is_known { &*self.request } else { protocol };
                (name.to_owned(), attributes, failed_here(&self.outcome))
            }
        };
        let Address { host, port, .. } = &self.address;
        if !host.is_empty() {
            attributes.push(KeyValue::text("server.address", host));
            attributes.extend(port.map(|port| KeyValue::number("server.port", port.into())));
        }
        let namespace = self.namespace.as_deref();
        attributes.extend(namespace.map(|namespace| KeyValue::text("snowmint.namespace", namespace)));
        attributes.extend(self.count.map(|count| KeyValue::number("snowmint.count", count)));
        let outcome = if is_error { SpanOutcome::Error } else { SpanOutcome::Unset };
        span.end(&name, attributes, outcome);
    }

    /// Returns name and attributes of the span of an HTTP request, and whether it failed here.
    #[cfg(feature = "otlp")]
    fn of_http(&self, route: &str) -> (String, Vec<KeyValue>, bool) {
        let (method, path) = self.request.split_once(' ').unwrap_or((&self.request, ""));
        let (shown, known) = if HTTP_METHODS.contains(&method) { (method, method) } else { ("HTTP", OTHER) };
        let mut attributes = vec![
            KeyValue::text("http.request.method", known),
            KeyValue::text("url.scheme", self.address.scheme),
            KeyValue::text("url.path", path),
            KeyValue::text("network.protocol.version", self.address.version),
        ];
        if known == OTHER {
            attributes.push(KeyValue::text("http.request.method_original", method));
        }
        if !route.is_empty() {
            attributes.push(KeyValue::text("http.route", route));
        }
        attributes.extend(self.code.map(|code| KeyValue::number("http.response.status_code", code)));
        let is_error = self.code.is_some_and(|code| code >= 500);
        // A status below 500 is no error of the server.
        if is_error || self.code.is_none() {
            attributes.push(KeyValue::text("error.type", &self.outcome));
        }
        (format!("{shown} {route}").trim_end().to_owned(), attributes, is_error)
    }

    /// Returns name and attributes of the span of a gRPC call, and whether it failed here.
    #[cfg(feature = "otlp")]
    fn of_grpc(&self) -> (String, Vec<KeyValue>, bool) {
        let called = self.request.trim_start_matches('/');
        let status = self.code.and_then(|code| GRPC_STATUSES.get(usize::try_from(code).ok()?).copied());
        let status = status.unwrap_or("UNKNOWN");
        let mut attributes = vec![
            KeyValue::text("rpc.system.name", "grpc"),
            KeyValue::text("rpc.response.status_code", status),
        ];
        // A name that the service does not know would make a name of its own for each call.
        let name = if status == "UNIMPLEMENTED" {
            attributes.push(KeyValue::text("rpc.method", OTHER));
            attributes.push(KeyValue::text("rpc.method_original", called));
            "grpc"
        } else {
            attributes.push(KeyValue::text("rpc.method", called));
            called
        };
        let is_error = GRPC_FAULTS.contains(&status);
        if is_error {
            attributes.push(KeyValue::text("error.type", status));
        }
        (name.to_owned(), attributes, is_error)
    }
}

#[cfg(feature = "otlp")]
impl Address {
    fn of<B>(request: &Request<B>, scheme: &'static str) -> Self {
        let version = if request.version() >= hyper::Version::HTTP_2 { "2" } else { "1.1" };
        let header = || request.headers().get(HOST)?.to_str().ok()?.parse().ok();
        let authority: Option<Authority> = request.uri().authority().cloned().or_else(header);
        let (host, port) = authority.map_or_else(Default::default, |authority| {
            let host = authority.host().trim_start_matches('[').trim_end_matches(']');
            (host.to_owned(), authority.port_u16())
        });
        Self { scheme, version, host, port }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        for _ in 0..self.times {
            #[cfg(feature = "otlp")]
            self.trace();
            if self.is_logged {
                self.log();
            }
        }
    }
}

/// The status of a call of gRPC that its client cancelled.
const GRPC_CANCELLED: u64 = 1;

/// What the conventions of OpenTelemetry call a method that is not known.
#[cfg(feature = "otlp")]
const OTHER: &str = "_OTHER";

/// The methods that the conventions of OpenTelemetry know. A client may send any word.
#[cfg(feature = "otlp")]
const HTTP_METHODS: [&str; 10] =
    ["GET", "POST", "HEAD", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"];

/// The names of the statuses of gRPC, by number.
#[cfg(feature = "otlp")]
const GRPC_STATUSES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The statuses of gRPC that are faults of the server, as the conventions of OpenTelemetry list them.
#[cfg(feature = "otlp")]
const GRPC_FAULTS: [&str; 6] =
    ["UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"];

/// Returns `true` if only a fault of the server has this outcome, which is a name from the table of failures
/// or its RESP word.
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
