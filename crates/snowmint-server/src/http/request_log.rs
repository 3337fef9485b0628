//! Writes the access-log line and the span of an answered request.

use hyper::{Method, Request, StatusCode, Uri};
use tokio::time::Instant;

use crate::access::Identity;
use crate::access::secret::TokenName;
use crate::access_log::{self, CANCELLED, LoggedRequest, OK};
use crate::http::Serving;
#[cfg(feature = "otlp")]
use crate::otlp::{ActiveSpan, KeyValue, SpanOutcome};
use crate::protocol::Protocol;

/// The access-log line of a request, and its span. Both are written when this is dropped: after the answer, or when the client
/// leaves before it.
pub(super) struct RequestLine {
    protocol: Protocol,
    method: Method,
    uri: Uri,
    began: Instant,
    /// `None` until the client has sent a valid one.
    token: Option<TokenName>,
    /// `None` until it is answered.
    pub(super) status: Option<StatusCode>,
    is_logged: bool,
    #[cfg(feature = "otlp")]
    span: Option<Box<ActiveSpan>>,
}

impl RequestLine {
    /// Returns `None` for a request that has neither, as most have.
    #[inline]
    pub(super) fn begin<B>(serving: &Serving<'_>, request: &Request<B>, began: Instant) -> Option<Box<Self>> {
        let is_logged = access_log::is_on();
        #[cfg(feature = "otlp")]
        {
            let tracer = serving.server.tracer.as_ref();
            let span = tracer.and_then(|tracer| tracer.begin(request.headers(), began));
            if !is_logged && span.is_none() {
                return None;
            }
            let mut line = Self::new(serving.protocol(), request, began, is_logged);
            line.span = span;
            Some(line)
        }
        #[cfg(not(feature = "otlp"))]
        is_logged.then(|| Self::new(serving.protocol(), request, began, is_logged))
    }

    #[cold]
    fn new<B>(protocol: Protocol, request: &Request<B>, began: Instant, is_logged: bool) -> Box<Self> {
        Box::new(Self {
            protocol,
            method: request.method().clone(),
            uri: request.uri().clone(),
            began,
            token: None,
            status: None,
            is_logged,
            #[cfg(feature = "otlp")]
            span: None,
        })
    }

    /// Records the token of the client.
    #[cold]
    pub(super) fn sent_by(&mut self, identity: &Identity) {
        self.token = identity.token_name().cloned();
    }

    fn outcome(&self) -> &str {
        match &self.status {
            None => CANCELLED,
            Some(status) if status.is_success() => OK,
            Some(status) => status.as_str(),
        }
    }

    #[cfg(feature = "otlp")]
    #[cold]
    fn trace(&self, span: &ActiveSpan, asked: &Asked<'_>) {
        let Asked { route, namespace, count } = *asked;
        let mut attributes = vec![
            KeyValue::text("http.request.method", self.method.as_str()),
            KeyValue::text("url.path", self.uri.path()),
        ];
        if !route.is_empty() {
            attributes.push(KeyValue::text("http.route", route));
        }
        attributes.extend(namespace.map(|namespace| KeyValue::text("snowmint.namespace", namespace)));
        attributes.extend(count.map(|count| KeyValue::number("snowmint.count", count)));
        if let Some(status) = self.status {
            attributes.push(KeyValue::number("http.response.status_code", status.as_u16().into()));
        }
        if self.outcome() != OK {
            attributes.push(KeyValue::text("error.type", self.outcome()));
        }
        let is_error = self.status.is_some_and(|status| status.is_server_error());
        let outcome = if is_error { SpanOutcome::Error } else { SpanOutcome::Unset };
        let name = format!("{} {route}", self.method);
        span.end(name.trim_end(), attributes, outcome);
    }
}

impl Drop for RequestLine {
    /// The query stays out, since it may have a token.
    fn drop(&mut self) {
        let asked = Asked::by(&self.uri);
        #[cfg(feature = "otlp")]
        if let Some(span) = &self.span {
            self.trace(span, &asked);
        }
        if self.is_logged {
            LoggedRequest {
                protocol: self.protocol,
                token: self.token.as_ref().map(TokenName::as_str),
                request: &format!("{} {}", self.method, self.uri.path()),
                namespace: asked.namespace,
                count: asked.count,
                outcome: self.outcome(),
                took: self.began.elapsed(),
            }
            .log();
        }
    }
}

/// What a request asks for.
#[derive(Clone, Copy)]
struct Asked<'a> {
    /// The path, with placeholders for what differs from request to request; empty if there is no such path.
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "only spans have it"))]
    route: &'static str,
    namespace: Option<&'a str>,
    count: Option<u64>,
}

impl<'a> Asked<'a> {
    fn by(uri: &'a Uri) -> Self {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let parameter =
            |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let number = |name: &str| parameter(name).map_or(Some(1), |count| count.parse().ok());
        match *path.split('/').skip(1).collect::<Vec<_>>() {
            ["v1", "ids", name] => Self::ids("/v1/ids/{namespace}", name, number("count")),
            ["v1", "ranges", name] => Self::ids("/v1/ranges/{namespace}", name, number("count")),
            ["v1", "inspect", _] => Self::of("/v1/inspect/{id}"),
            ["v1", "admin", ..] => Self::of("/v1/admin"),
            ["api", "segment", "get", name] => Self::ids("/api/segment/get/{key}", name, Some(1)),
            ["api", "snowflake", "get", name] => Self::ids("/api/snowflake/get/{key}", name, Some(1)),
            ["tinyid", "id", form] => {
                let simple = form == "nextIdSimple";
                let route = if simple { "/tinyid/id/nextIdSimple" } else { "/tinyid/id/nextId" };
                Self { namespace: parameter("bizType"), count: number("batchSize"), ..Self::of(route) }
            }
            ["decodeSnowflakeId"] => Self::of("/decodeSnowflakeId"),
            ["healthz"] => Self::of("/healthz"),
            ["readyz"] => Self::of("/readyz"),
            ["metrics"] => Self::of("/metrics"),
            ["openapi.json"] => Self::of("/openapi.json"),
            _ => Self::of(""),
        }
    }

    const fn of(route: &'static str) -> Self {
        Self { route, namespace: None, count: None }
    }

    const fn ids(route: &'static str, namespace: &'a str, count: Option<u64>) -> Self {
        Self { route, namespace: Some(namespace), count }
    }
}
