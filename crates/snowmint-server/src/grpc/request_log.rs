//! Writes the access-log line and the span of an answered call.

use bytes::Bytes;
use tokio::time::Instant;
#[cfg(feature = "otlp")]
use tonic::Code;

use super::{decode, messages};
use crate::access::Identity;
use crate::access::secret::TokenName;
use crate::access_log::{self, CANCELLED, LoggedRequest, OK};
#[cfg(feature = "otlp")]
use crate::otlp::{ActiveSpan, KeyValue, SpanOutcome};
use crate::protocol::Protocol;
use crate::status::ErrorKind;

/// The access-log line of a call, or of a request of a stream, and the span of a call. Both are written when this is dropped.
pub(super) struct CallLine {
    pub(super) began: Instant,
    /// `None` for a call that has neither, as most have.
    call: Option<Box<ObservedCall>>,
}

struct ObservedCall {
    protocol: Protocol,
    path: String,
    /// `None` without a valid one.
    token: Option<TokenName>,
    drawn: Option<messages::NextRequest>,
    outcome: CallOutcome,
    is_logged: bool,
    #[cfg(feature = "otlp")]
    span: Option<Box<ActiveSpan>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallOutcome {
    /// The client left before it was answered.
    Cancelled,
    Ok,
    Failed(ErrorKind),
}

impl ObservedCall {
    const fn new(protocol: Protocol, path: String, is_logged: bool) -> Self {
        Self {
            protocol,
            path,
            token: None,
            drawn: None,
            outcome: CallOutcome::Cancelled,
            is_logged,
            #[cfg(feature = "otlp")]
            span: None,
        }
    }

    const fn outcome(&self) -> &'static str {
        match self.outcome {
            CallOutcome::Cancelled => CANCELLED,
            CallOutcome::Ok => OK,
            CallOutcome::Failed(kind) => kind.status().name,
        }
    }

    #[cfg(feature = "otlp")]
    #[cold]
    fn trace(&self, span: &ActiveSpan) {
        let name = self.path.trim_start_matches('/');
        let mut attributes = vec![KeyValue::text("rpc.system", "grpc")];
        if let Some((service, method)) = name.rsplit_once('/') {
            attributes.push(KeyValue::text("rpc.service", service));
            attributes.push(KeyValue::text("rpc.method", method));
        }
        if let Some(request) = &self.drawn {
            attributes.push(KeyValue::text("snowmint.namespace", &request.namespace));
            attributes.push(KeyValue::number("snowmint.count", request.count.map_or(1, u64::from)));
        }
        let code = match self.outcome {
            CallOutcome::Cancelled => Code::Cancelled,
            CallOutcome::Ok => Code::Ok,
            CallOutcome::Failed(kind) => kind.status().grpc,
        };
        attributes.push(KeyValue::number("rpc.grpc.status_code", u64::try_from(code as i32).unwrap_or(0)));
        if self.outcome != CallOutcome::Ok {
            attributes.push(KeyValue::text("error.type", self.outcome()));
        }
        // Faults of the server, as the conventions of OpenTelemetry list them.
        let is_error = matches!(
            code,
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        );
        let outcome = if is_error { SpanOutcome::Error } else { SpanOutcome::Unset };
        span.end(name, attributes, outcome);
    }
}

impl CallLine {
    #[inline]
    pub(super) fn of(protocol: Protocol, began: Instant, path: impl FnOnce() -> String) -> Self {
        let call = || Box::new(ObservedCall::new(protocol, path(), true));
        Self { began, call: access_log::is_on().then(call) }
    }

    /// Gives the call a span.
    #[cfg(feature = "otlp")]
    #[cold]
    pub(super) fn traced(mut self, span: Box<ActiveSpan>, protocol: Protocol, path: &str) -> Self {
        let untraced = || Box::new(ObservedCall::new(protocol, path.to_owned(), false));
        self.call.get_or_insert_with(untraced).span = Some(span);
        self
    }

    /// Records the token of the client.
    #[inline]
    pub(super) fn sent_by(&mut self, identity: &Identity) {
        if let Some(call) = &mut self.call {
            call.token = identity.token_name().cloned();
        }
    }

    /// Records which ids the message requests.
    #[inline]
    pub(super) fn draws(&mut self, message: &Bytes) {
        if let Some(call) = &mut self.call {
            call.drawn = decode(message).ok();
        }
    }

    /// Records the outcome.
    #[inline]
    pub(super) fn set(&mut self, failed: Option<ErrorKind>) {
        if let Some(call) = &mut self.call {
            call.outcome = failed.map_or(CallOutcome::Ok, CallOutcome::Failed);
        }
    }

    /// Writes the line and the span.
    pub(super) fn end(mut self, failed: Option<ErrorKind>) {
        self.set(failed);
    }

    /// Writes nothing.
    pub(super) fn omit(mut self) {
        self.call = None;
    }

    /// Takes the span for a stream, whose requests have lines of their own.
    pub(super) fn of_stream(&mut self) -> Self {
        let mut call = self.call.take();
        if let Some(call) = &mut call {
            call.is_logged = false;
        }
        Self { began: self.began, call }
    }
}

impl Drop for CallLine {
    fn drop(&mut self) {
        let Some(call) = &self.call else { return };
        #[cfg(feature = "otlp")]
        if let Some(span) = &call.span {
            call.trace(span);
        }
        if call.is_logged {
            LoggedRequest {
                protocol: call.protocol,
                token: call.token.as_ref().map(TokenName::as_str),
                request: &call.path,
                namespace: call.drawn.as_ref().map(|request| request.namespace.as_str()),
                count: call.drawn.as_ref().map(|request| request.count.map_or(1, u64::from)),
                outcome: call.outcome(),
                took: self.began.elapsed(),
            }
            .log();
        }
    }
}
