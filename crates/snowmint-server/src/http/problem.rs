//! Failures as problem documents, RFC 9457: type, title and status from the one table, detail from the failure.
//! Members beyond those say what was given and what is allowed, where that helps a program.

use std::time::Duration;

use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Response, StatusCode};
use serde::Serialize;

use crate::http::body::Body;
use crate::mint::MintError;
use crate::status::Kind;

/// What went wrong with one request.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) kind: Kind,
    pub(super) detail: String,
    /// What was given, and the most that may be.
    value: Option<String>,
    limit: Option<usize>,
    retry_after: Option<Duration>,
    /// The methods there are.
    allow: Option<&'static str>,
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
}

impl Problem {
    pub(super) const fn new(kind: Kind, detail: String) -> Self {
        Self { kind, detail, value: None, limit: None, retry_after: None, allow: None }
    }

    /// The path exists, not for this method.
    pub(super) fn bad_method(method: &Method, allow: &'static str) -> Self {
        let detail = format!("method {method} is not allowed here: use one of {allow}");
        Self { allow: Some(allow), ..Self::new(Kind::BadMethod, detail) }
    }

    /// As many connections are open as there may be.
    pub(super) fn too_many_clients(limit: usize) -> Self {
        let detail = format!(
            "connection limit ({limit}) reached: retry later, or raise --max-connections on the server"
        );
        let retry_after = Some(Duration::from_secs(1));
        Self { limit: Some(limit), retry_after, ..Self::new(Kind::TooManyClients, detail) }
    }

    pub(super) fn response(&self) -> Response<Body> {
        let status = self.kind.status();
        let document = Document {
            r#type: format!("urn:snowmint:{}", status.name),
            title: status.title,
            status: status.http,
            detail: &self.detail,
            value: self.value.as_deref(),
            limit: self.limit,
        };
        // Strings and numbers always have a JSON form.
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = Response::new(Body::whole(body));
        *response.status_mut() =
            StatusCode::from_u16(status.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if let Some(after) = self.retry_after {
            let seconds = after.as_millis().div_ceil(1000).max(1);
            headers.insert(RETRY_AFTER, HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX)));
        }
        response
    }
}

impl From<MintError> for Problem {
    fn from(error: MintError) -> Self {
        let mut problem = Self::new(error.kind(), error.to_string());
        problem.retry_after = error.retry_after();
        (problem.value, problem.limit) = match &error {
            MintError::BadCount { value, limit } => (Some(value.as_str().to_owned()), Some(*limit)),
            MintError::UnknownNamespace { name, .. } | MintError::BadNamespace { name } => {
                (Some(name.as_str().to_owned()), None)
            }
            MintError::BadId { text, .. }
            | MintError::NotOfNamespace { text, .. }
            | MintError::BadLayout { layout: text, .. } => (Some(text.as_str().to_owned()), None),
            _ => (None, None),
        };
        problem
    }
}
