//! What the caller of a request over HTTP or gRPC calls it: the id in `x-request-id`, and the trace in
//! `traceparent` (W3C trace context). The answer repeats both headers, and the access log shows them, so that
//! one search finds a request in the logs of all services. The answer also repeats `snowmint-request`, by
//! which a client recognizes it: gateways replace `x-request-id`.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::telemetry::trace_context;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The client's own name of a request: clients/SPEC.md, R6.
const CLIENT_ID: HeaderName = HeaderName::from_static("snowmint-request");
const TRACE: HeaderName = HeaderName::from_static("traceparent");

/// Bytes of a request id; a longer one counts as none.
const MAX_ID: usize = 128;

/// The names that the caller gave a request. Invalid ones count as none.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerNames {
    request_id: Option<HeaderValue>,
    client_id: Option<HeaderValue>,
    trace: Option<HeaderValue>,
}

impl CallerNames {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let one = |name: &HeaderName, is_valid: fn(&str) -> bool| {
            let mut all = headers.get_all(name).iter();
            let (value, None) = (all.next()?, all.next()) else { return None };
            value.to_str().is_ok_and(is_valid).then(|| value.clone())
        };
        Self {
            request_id: one(&REQUEST_ID, is_id),
            client_id: one(&CLIENT_ID, is_id),
            trace: one(&TRACE, |text| trace_context::parse(text).is_some()),
        }
    }

    /// Returns the id of the request.
    pub(crate) fn request_id(&self) -> Option<&str> {
        self.request_id.as_ref()?.to_str().ok()
    }

    /// Returns the id of the trace, 32 hexadecimal digits.
    pub(crate) fn trace_id(&self) -> Option<&str> {
        self.trace.as_ref()?.to_str().ok()?.split('-').nth(1)
    }

    /// Repeats the names in the headers of an answer.
    pub(crate) fn mark(self, headers: &mut HeaderMap) {
        for (name, value) in [(REQUEST_ID, self.request_id), (CLIENT_ID, self.client_id), (TRACE, self.trace)]
        {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
    }
}

/// Visible ASCII alone, so that no id forges a line of the log.
fn is_id(text: &str) -> bool {
    (1..=MAX_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn names(headers: &[(&'static str, &str)]) -> CallerNames {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        });
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| {
            map.append(name, value);
        });
        CallerNames::of(&map)
    }

    #[test]
    fn valid_names_are_repeated() {
        let names =
            names(&[("x-request-id", "req-7"), ("snowmint-request", "7f-1"), ("traceparent", TRACEPARENT)]);
        assert_eq!(names.request_id(), Some("req-7"));
        assert_eq!(names.trace_id(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        let mut answer = HeaderMap::new();
        names.mark(&mut answer);
        assert_eq!(
            (&answer["x-request-id"], &answer["snowmint-request"], &answer["traceparent"]),
            (&"req-7".parse().unwrap(), &"7f-1".parse().unwrap(), &TRACEPARENT.parse().unwrap())
        );
    }

    #[test]
    fn invalid_names_count_as_none() {
        for id in ["", "two words", "caf\u{e9}", "tab\tbed", &"a".repeat(129)] {
            assert_eq!(names(&[("x-request-id", id)]).request_id(), None, "{id:?}");
        }
        assert_eq!(names(&[("x-request-id", "a"), ("x-request-id", "b")]).request_id(), None);
        assert_eq!(names(&[("x-request-id", &"a".repeat(128))]).request_id().map(str::len), Some(128));
        for trace in ["", "nonsense", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
            assert_eq!(names(&[("traceparent", trace)]).trace_id(), None, "{trace:?}");
        }
        let mut answer = HeaderMap::new();
        names(&[("x-request-id", "two words"), ("traceparent", "x")]).mark(&mut answer);
        assert!(answer.is_empty());
    }
}
