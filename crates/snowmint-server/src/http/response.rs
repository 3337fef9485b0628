//! Responses: ids as JSON or text, values as JSON, and failures as problem documents (RFC 9457). Many ids are
//! sent in chunks that are made when the socket takes them: 100,000 ids are 2 MB of text, and a client that
//! reads slowly must not make us hold them.

use std::fmt;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::Stream;
use hyper::body::{Frame, SizeHint};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Method, Response, StatusCode};
use serde::Serialize;

use crate::admin::node_admin::TokenScope;
use crate::limits::http::{CHUNK, WHOLE_BODY_IDS};
use crate::limits::unread::{LONG, SMALL};
use crate::load::answer_memory::{ConnectionAnswers, Full, Held};
use crate::metrics::Rendering;
use crate::mint::{Entry, IdRange, Ids, MintError, Namespace};
use crate::status::ErrorKind;

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// The bytes of an entry besides its id: quotes and a comma.
const AROUND_ID: usize = 3;
/// Room for one id more before the first one, and for two that `chunk` keeps free after the last.
const SPARE_IDS: usize = 3;
/// The longest text of one range with its comma.
const MAX_RANGE_TEXT: usize = 96;

/// The format of ids in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdsFormat {
    Json,
    /// One id a line.
    Text,
    /// Runs of consecutive ids, as JSON.
    Ranges,
    /// Numbers in TinyID's document.
    TinyId,
    /// Numbers with commas.
    TinyIdSimple,
}

impl IdsFormat {
    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Json | Self::Ranges => JSON,
            Self::TinyId => "application/json;charset=UTF-8",
            Self::Text | Self::TinyIdSimple => TEXT,
        }
    }

    const fn begin(self) -> &'static [u8] {
        match self {
            Self::Json => b"{\"ids\":[",
            Self::Ranges => b"{\"ranges\":[",
            Self::TinyId => b"{\"data\":[",
            Self::Text | Self::TinyIdSimple => b"",
        }
    }

    /// The text around each plain number after the first.
    const fn further(self) -> Option<Entry> {
        match self {
            Self::Json => Some(Entry::Between(",\"", "\"")),
            Self::Text => Some(Entry::Between("", "\n")),
            Self::TinyId | Self::TinyIdSimple => Some(Entry::Between(",", "")),
            Self::Ranges => None,
        }
    }

    const fn end(self) -> &'static [u8] {
        match self {
            Self::Json | Self::Ranges => b"]}",
            Self::TinyId => b"],\"code\":200,\"message\":\"\"}",
            Self::Text | Self::TinyIdSimple => b"",
        }
    }
}

/// The body of a response.
#[derive(Debug)]
pub(super) enum Body {
    /// The whole body, until it is sent.
    Whole(Option<Bytes>),
    /// The same, with bytes that need no more memory: they are a part of the program, few, or hold their
    /// memory already.
    Held(Option<Bytes>),
    /// Ids that are written in chunks.
    Ids(Box<IdChunks>),
    /// Metrics that are copied in chunks.
    Metrics(Box<MetricsChunks>),
    /// Events, as they happen.
    Events(EventStream),
}

/// The body of a stream of events.
pub(super) struct EventStream(pub(super) Pin<Box<dyn Stream<Item = Bytes> + Send>>);

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventStream")
    }
}

/// Writes ids in chunks.
#[derive(Debug)]
pub(super) struct IdChunks {
    ids: Ids,
    format: IdsFormat,
    begun: bool,
    ended: bool,
    /// The longest text of one id or range.
    longest: usize,
    /// The first chunk, if it is written already.
    first: Option<Vec<u8>>,
    /// The memory of the chunks; `None` until it is known.
    held: Option<Arc<Held>>,
}

/// Copies metrics in chunks.
#[derive(Debug)]
pub(super) struct MetricsChunks {
    rendering: Arc<Rendering>,
    sent: usize,
    /// The memory of the chunks.
    held: Arc<Held>,
}

impl Body {
    /// Returns `true` if the body is sent as one piece, without a wait between its parts.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_) | Self::Held(_))
    }

    /// Returns a body that is a part of the program.
    pub(super) fn constant(text: &'static str) -> Self {
        Self::Held(Some(Bytes::from_static(text.as_bytes())).filter(|bytes| !bytes.is_empty()))
    }

    /// Returns a body of metrics.
    pub(super) fn metrics(rendering: Arc<Rendering>, answers: &ConnectionAnswers) -> Result<Self, Full> {
        let held = Arc::new(answers.hold(LONG)?);
        Ok(Self::Metrics(Box::new(MetricsChunks { rendering, sent: 0, held })))
    }

    /// Holds memory for a body of this many ids, before they are drawn. Many ids are sent in chunks.
    pub(super) fn hold_ids(
        answers: &ConnectionAnswers,
        namespace: &Namespace,
        count: usize,
    ) -> Result<Option<Held>, Full> {
        if count > WHOLE_BODY_IDS {
            return answers.hold(LONG).map(Some);
        }
        Self::hold_all_ids(answers, namespace, count)
    }

    /// Holds memory for a body of this many ids that is made at once.
    pub(super) fn hold_all_ids(
        answers: &ConnectionAnswers,
        namespace: &Namespace,
        count: usize,
    ) -> Result<Option<Held>, Full> {
        let room = (count + SPARE_IDS) * (namespace.longest_text() + AROUND_ID);
        (room > SMALL).then(|| answers.hold(room)).transpose()
    }

    /// Returns the body with the memory that was held for it.
    pub(super) fn holding(self, held: Option<Held>) -> Self {
        match (self, held) {
            (Self::Ids(mut chunks), Some(held)) => {
                chunks.held = Some(Arc::new(held));
                Self::Ids(chunks)
            }
            (Self::Whole(Some(bytes)), Some(mut held)) if bytes.len() > SMALL => {
                held.resize(bytes.len());
                Self::Held(Some(Arc::new(held).of(bytes)))
            }
            (Self::Whole(bytes), _) => Self::Held(bytes),
            (body, _) => body,
        }
    }

    /// Returns the body with memory for its bytes, if it has none yet.
    pub(super) fn bounded(self, answers: &ConnectionAnswers, refusal: Refusal) -> Result<Self, Full> {
        let held = match &self {
            Self::Whole(Some(bytes)) if bytes.len() > SMALL => Some(match refusal {
                Refusal::Possible => answers.hold(bytes.len())?,
                Refusal::TooLate => answers.hold_anyway(bytes.len()),
            }),
            _ => None,
        };
        Ok(self.holding(held))
    }

    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()).filter(|bytes| !bytes.is_empty()))
    }

    /// Returns a body of these ids.
    pub(super) fn ids(ids: Ids, format: IdsFormat) -> io::Result<Self> {
        let few = ids.len() <= WHOLE_BODY_IDS;
        let longest = match format {
            IdsFormat::Ranges => MAX_RANGE_TEXT,
            _ => ids.longest_text() + AROUND_ID,
        };
        let mut chunks =
            IdChunks { ids, format, begun: false, ended: false, longest, first: None, held: None };
        if few || format == IdsFormat::Ranges {
            let room = match format {
                // Millions of ids may be a few ranges.
                IdsFormat::Ranges => CHUNK,
                _ => (chunks.ids.len() + SPARE_IDS) * longest,
            };
            let mut first = chunks.chunk(room)?;
            if chunks.ended {
                // A client may leave a hundred answers unread.
                if format == IdsFormat::Ranges {
                    first.shrink_to_fit();
                }
                return Ok(Self::whole(first));
            }
            chunks.first = Some(first);
        }
        Ok(Self::Ids(Box::new(chunks)))
    }

    /// Returns the whole body of these ids at once.
    pub(super) fn all_ids(ids: Ids, format: IdsFormat) -> io::Result<Bytes> {
        match Self::ids(ids, format)? {
            Self::Whole(bytes) | Self::Held(bytes) => Ok(bytes.unwrap_or_default()),
            // Ids are never sent as these.
            Self::Metrics(_) | Self::Events(_) => Ok(Bytes::new()),
            Self::Ids(mut chunks) => {
                let mut all = Vec::new();
                while !chunks.ended || chunks.first.is_some() {
                    all.append(&mut chunks.chunk(CHUNK)?);
                }
                // Without unused room, since it is kept for a while.
                Ok(all.into_boxed_slice().into())
            }
        }
    }
}

impl IdChunks {
    /// Returns the next chunk: as many ids as surely fit into `room` bytes.
    fn chunk(&mut self, room: usize) -> io::Result<Vec<u8>> {
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        // For a few ids, room for the rest of the document.
        let mut out = Vec::with_capacity(room + Entry::SPARE);
        if !self.begun {
            out.extend_from_slice(self.format.begin());
        }
        while out.len() + 2 * self.longest <= room || self.ids.len() == 0 {
            if self.write_numbers(&mut out, room) > 0 {
                continue;
            }
            if !self.write_next(&mut out) {
                self.ended = true;
                break;
            }
            self.begun = true;
        }
        if self.ended && self.ids.len() > 0 {
            return Err(io::Error::other("the system has no more randomness"));
        }
        if self.ended {
            out.extend_from_slice(self.format.end());
        }
        Ok(out)
    }

    /// Writes the plain numbers after the first that surely fit into `room` bytes. Returns their number.
    fn write_numbers(&mut self, out: &mut Vec<u8>, room: usize) -> usize {
        let fit = (room.saturating_sub(out.len()) / self.longest).saturating_sub(1);
        match self.format.further() {
            Some(entry) if self.begun => self.ids.write_numbers(out, fit, entry),
            _ => 0,
        }
    }

    /// Writes the next id or range. Returns `false` after the last.
    fn write_next(&mut self, out: &mut Vec<u8>) -> bool {
        let comma: &[u8] = if self.begun { b"," } else { b"" };
        if self.format == IdsFormat::Ranges {
            let Some(IdRange { first, count, step }) = self.ids.next_range() else { return false };
            out.extend_from_slice(comma);
            // Writing to a `Vec` never fails.
            let _ = write!(out, "{{\"first\":\"{first}\",\"count\":{count},\"step\":\"{step}\"}}");
            return true;
        }
        let Some(id) = self.ids.next() else { return false };
        match self.format {
            IdsFormat::Text => {
                self.ids.write(id, out);
                out.push(b'\n');
            }
            IdsFormat::TinyId | IdsFormat::TinyIdSimple => {
                out.extend_from_slice(comma);
                self.ids.write(id, out);
            }
            IdsFormat::Json | IdsFormat::Ranges => {
                out.extend_from_slice(if self.begun { b",\"" } else { b"\"" });
                self.ids.write(id, out);
                out.push(b'"');
            }
        }
        true
    }
}

impl MetricsChunks {
    fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.sent == self.rendering.len() {
            return None;
        }
        let Some(piece) = self.rendering.piece(self.sent, CHUNK) else {
            return Some(Err(io::Error::other("the client reads the metrics too slowly")));
        };
        self.sent += piece.len();
        Some(Ok(Arc::clone(&self.held).of(piece)))
    }
}

/// Whether a request may fail because its answer is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Possible,
    /// The request has changed something.
    TooLate,
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(match self.get_mut() {
            // A client of HTTP/2 that reads nothing makes us hold no more than it has asked for.
            Self::Whole(Some(bytes)) | Self::Held(Some(bytes)) if bytes.len() > CHUNK => {
                Some(Ok(Frame::data(bytes.split_to(CHUNK))))
            }
            Self::Whole(bytes) | Self::Held(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            Self::Ids(chunks) if chunks.ended => None,
            Self::Ids(chunks) => Some(chunks.chunk(CHUNK).map(|chunk| {
                Frame::data(match &chunks.held {
                    Some(held) => Arc::clone(held).of(chunk),
                    None => chunk.into(),
                })
            })),
            Self::Metrics(chunks) => chunks.next().map(|chunk| chunk.map(Frame::data)),
            Self::Events(events) => {
                return events
                    .0
                    .as_mut()
                    .poll_next(cx)
                    .map(|event| event.map(|event| Ok(Frame::data(event))));
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) | Self::Held(bytes) => bytes.is_none(),
            Self::Ids(chunks) => chunks.ended,
            Self::Metrics(chunks) => chunks.sent == chunks.rendering.len(),
            Self::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) | Self::Held(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Self::Metrics(chunks) => SizeHint::with_exact((chunks.rendering.len() - chunks.sent) as u64),
            Self::Ids(_) | Self::Events(_) => SizeHint::default(),
        }
    }
}

pub(super) fn json(value: &impl Serialize) -> Result<Response<Body>, Problem> {
    Ok(json_text(serde_json::to_vec(value).map_err(|error| failure(&error))?))
}

/// Returns the response with a JSON document.
pub(super) fn json_text(mut document: Vec<u8>) -> Response<Body> {
    if document.len() > SMALL {
        // It may wait for its client for long.
        document.shrink_to_fit();
    }
    ok(JSON, Body::whole(document))
}

/// Writing into memory does not fail. If it did, the client would get this error and not half an answer.
#[cold]
pub(super) fn failure(error: &dyn std::error::Error) -> Problem {
    Problem::new(ErrorKind::NotReady, format!("cannot write the answer: {error}"))
}

pub(super) fn ok(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A failed request, as a problem document.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) kind: ErrorKind,
    pub(super) detail: String,
    /// The rejected value.
    value: Option<String>,
    /// The maximum.
    limit: Option<usize>,
    pub(super) retry_after: Option<Duration>,
    /// The invalid setting or field.
    pub(super) setting: Option<&'static str>,
    /// The scope that the token must have.
    token_scope: Option<TokenScope>,
    /// The methods that the path supports.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    setting: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_namespaces: Option<&'a str>,
}

impl Problem {
    pub(super) const fn new(kind: ErrorKind, detail: String) -> Self {
        Self {
            kind,
            detail,
            value: None,
            limit: None,
            retry_after: None,
            setting: None,
            token_scope: None,
            allow: None,
        }
    }

    /// Sets the time after which a retry may help.
    pub(super) fn retry_after(self, after: Duration) -> Self {
        Self { retry_after: Some(after), ..self }
    }

    /// Returns the problem of an unsupported method.
    pub(super) fn bad_method(method: &Method, allow: &'static str) -> Self {
        let detail = format!("method {method} not allowed: expected one of {allow}");
        Self { allow: Some(allow), ..Self::new(ErrorKind::BadMethod, detail) }
    }

    /// Returns the problem that the connection limit is reached.
    pub(super) fn too_many_clients(limit: usize) -> Self {
        let detail = format!(
            "connection limit ({limit}) reached: retry later, or raise --max-connections on the server"
        );
        let retry_after = Some(Duration::from_secs(1));
        Self { limit: Some(limit), retry_after, ..Self::new(ErrorKind::TooManyClients, detail) }
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
            setting: self.setting,
            token_namespaces: self.token_scope.filter(|scope| *scope == TokenScope::All).map(|_| "*"),
        };
        // Strings and numbers always serialize.
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = ok("application/problem+json", Body::whole(body));
        *response.status_mut() =
            StatusCode::from_u16(status.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        if self.kind == ErrorKind::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"snowmint\""));
        }
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

/// A failed request, with its answer in the format of its path.
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    /// Boxed, since most requests succeed.
    pub(super) response: Box<Response<Body>>,
}

impl Failure {
    pub(super) fn new(kind: ErrorKind, response: Response<Body>) -> Self {
        Self { kind, response: Box::new(response) }
    }
}

impl<P: Into<Problem>> From<P> for Failure {
    fn from(problem: P) -> Self {
        let problem = problem.into();
        Self::new(problem.kind, problem.response())
    }
}

impl From<Full> for Problem {
    fn from(full: Full) -> Self {
        Self::new(Full::KIND, full.to_string()).retry_after(Full::RETRY_AFTER)
    }
}

impl From<MintError> for Problem {
    fn from(error: MintError) -> Self {
        let mut problem = Self::new(error.kind(), error.answer());
        problem.retry_after = error.retry_after();
        problem.token_scope = matches!(error, MintError::NotForAll { .. }).then_some(TokenScope::All);
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use hyper::body::Body as _;

    use super::*;
    use crate::testing;

    async fn text(body: Body) -> String {
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    async fn ids(count: usize) -> Ids {
        let mut connection = testing::mint().connection_state();
        let (namespace, handles) = connection.find(b"default").unwrap();
        namespace.take(handles, count).await.unwrap()
    }

    /// Goal: the same document whether whole or in pieces, at both sides of the bound between them.
    #[tokio::test]
    async fn every_count_gives_one_well_formed_document() {
        for count in [1, 2, WHOLE_BODY_IDS, WHOLE_BODY_IDS + 1, 5000] {
            let body = Body::ids(ids(count).await, IdsFormat::Json).unwrap();
            assert_eq!(body.size_hint().exact().is_some(), count <= WHOLE_BODY_IDS);
            let document: serde_json::Value = serde_json::from_str(&text(body).await).unwrap();
            let listed = document["ids"].as_array().unwrap();
            assert_eq!(listed.len(), count);
            assert!(
                listed.iter().all(serde_json::Value::is_string),
                "a number would lose digits in JavaScript"
            );

            let lines = text(Body::ids(ids(count).await, IdsFormat::Text).unwrap()).await;
            assert!(lines.ends_with('\n'));
            let lines: Vec<u64> = lines.lines().map(|line| line.parse().unwrap()).collect();
            assert_eq!(lines.len(), count);
            assert!(lines.is_sorted_by(|a, b| a < b));
        }
    }

    #[tokio::test]
    async fn no_chunk_is_larger_than_its_limit() {
        let mut body = Body::ids(ids(5000).await, IdsFormat::Json).unwrap();
        let mut chunks = 0;
        while let Some(frame) = body.frame().await {
            let chunk = frame.unwrap().into_data().unwrap();
            assert!(!chunk.is_empty() && chunk.len() <= CHUNK);
            chunks += 1;
        }
        assert!(chunks > 5000 * 21 / CHUNK);
    }
}
