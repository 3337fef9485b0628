//! One request to one server, and the checks of its answer. An answer is used as a whole or not at all: one
//! invalid id makes it invalid.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{AUTHORIZATION, DATE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::connect::capture_connection;
use serde::Deserialize;
use snowmint::error::Chain;
use snowmint::foreign::{Most, shown};
use snowmint::{Clock as _, Id, WallClock};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::buffer::BufferedRange;
use crate::connect::Connections;
use crate::error::{BuildError, ErrorKind, FailureScope, RequestFailure, Retry, RetryAfter};

/// Limits in bytes: an answer without its ranges, one range, an error. All are more than a server sends.
const LONGEST_FRAME: usize = 1024;
const LONGEST_RANGE: usize = 128;
const LONGEST_ERROR: usize = 16 * 1024;

/// The header with the identity of the store behind an answer.
const STORE: &str = "snowmint-store";
/// The id of a request. Its answer repeats it.
const REQUEST_ID: &str = "snowmint-request";

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdServer {
    /// Scheme, host, port, and the path before `/v1` if there is one, without a trailing `/`.
    pub(crate) url: Arc<str>,
    pub(crate) has_tls: bool,
}

impl IdServer {
    /// Parses a URL, such as `https://ids-1:8080`.
    pub(crate) fn parse(url: &str) -> Result<Self, BuildError> {
        let refused = |shown: &str, why| Err(BuildError::InvalidServer { url: shown.to_owned(), why });
        let Ok(uri) = url.parse::<Uri>() else {
            // The text may contain a password.
            return refused("", "expected http://HOST:PORT or https://HOST:PORT");
        };
        let Some(authority) = uri.authority() else {
            return refused(url, "expected http://HOST:PORT or https://HOST:PORT");
        };
        if authority.as_str().contains('@') {
            let host = authority.host();
            return refused(host, "expected no user and password: set a token with ClientBuilder::token");
        }
        if uri.query().is_some() {
            return refused(url, "expected no query");
        }
        let has_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return refused(url, "expected http:// or https://"),
        };
        Ok(Self { url: url.trim_end_matches('/').into(), has_tls })
    }

    fn failure(&self, kind: ErrorKind, status: Option<u16>, detail: String, retry: Retry) -> RequestFailure {
        RequestFailure {
            server: Arc::clone(&self.url),
            kind,
            status,
            detail,
            retry,
            about: FailureScope::Server,
        }
    }

    /// Returns the failure of a server that did not answer in time.
    pub(crate) fn timed_out(&self, limit: Duration) -> RequestFailure {
        self.unavailable(format!("no answer within {limit:?}"))
    }

    /// Returns the failure of a server that gets no request because of an earlier `Retry-After`.
    pub(crate) fn closed(&self) -> RequestFailure {
        self.unavailable("server asked to retry later (Retry-After)".to_owned())
    }

    /// Returns the failure of a server whose ids are of another store than this client's.
    pub(crate) fn of_another_store(&self, detail: String) -> RequestFailure {
        self.failure(ErrorKind::AnotherStore, Some(StatusCode::OK.as_u16()), detail, Retry::OtherStore)
    }

    /// Returns the failure of a connection or request.
    fn unsent(&self, error: &(dyn Error + 'static)) -> RequestFailure {
        let detail = Chain(error).to_string();
        if is_about_certificates(error) {
            return self.failure(ErrorKind::InvalidCertificate, None, detail, Retry::OtherCertificate);
        }
        self.unavailable(detail)
    }

    fn unavailable(&self, detail: String) -> RequestFailure {
        self.failure(ErrorKind::Unavailable, None, detail, Retry::Elsewhere)
    }

    fn invalid(&self, why: &dyn std::fmt::Display) -> RequestFailure {
        self.unavailable(format!("invalid answer: {why}"))
    }
}

/// The token that authorizes a client.
#[derive(Clone)]
pub(crate) enum ClientToken {
    Fixed(HeaderValue),
    /// A file that is read for each request, since it may be replaced at any time.
    File(TokenFile),
}

#[derive(Clone)]
pub(crate) struct TokenFile {
    path: PathBuf,
    /// Held during a read. If the file system hangs, one thread waits for it, not one for each request.
    reading: Arc<Mutex<()>>,
}

impl TokenFile {
    /// Reads the file on another thread: this one keeps the time limits of all calls.
    async fn read(&self, within: Duration) -> io::Result<String> {
        let read = async {
            let (path, reading) = (self.path.clone(), Arc::clone(&self.reading).lock_owned().await);
            let read = move || {
                let _reading = reading;
                std::fs::read_to_string(path)
            };
            spawn_blocking(read).await.map_err(io::Error::other)?
        };
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("not read within {within:?}"));
        timeout(within, read).await.unwrap_or_else(|_| Err(late()))
    }
}

impl std::fmt::Debug for ClientToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed(_) => f.write_str("Token"),
            Self::File(file) => f.debug_tuple("TokenFile").field(&file.path).finish(),
        }
    }
}

impl ClientToken {
    /// Returns the header value of a token.
    pub(crate) fn parse(token: &str) -> Option<HeaderValue> {
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let mut header = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// A token that is in this file.
    pub(crate) fn in_file(path: PathBuf) -> Self {
        Self::File(TokenFile { path, reading: Arc::default() })
    }

    async fn header(&self, server: &IdServer, within: Duration) -> Result<HeaderValue, RequestFailure> {
        let file = match self {
            Self::Fixed(header) => return Ok(header.clone()),
            Self::File(file) => file,
        };
        let refused = |why: &dyn std::fmt::Display| {
            let detail = format!("token file {}: {why}", file.path.display());
            server.failure(ErrorKind::Unauthorized, None, detail, Retry::Never)
        };
        let text = file.read(within).await.map_err(|error| refused(&error))?;
        Self::parse(&text).ok_or_else(|| refused(&"expected one token of visible ASCII characters"))
    }
}

/// The token of a request, which no error contains.
struct HiddenToken(Option<String>);

impl HiddenToken {
    fn of(authorization: Option<&HeaderValue>) -> Self {
        let text = authorization.and_then(|header| header.to_str().ok()?.strip_prefix("Bearer "));
        Self(text.map(str::to_owned))
    }

    /// Returns a text of others without the token.
    fn in_text(&self, text: &str) -> String {
        self.0.as_ref().map_or_else(|| text.to_owned(), |token| text.replace(&**token, "(token)"))
    }
}

/// The ids of an answer, and the identity of the store behind them, unless the server did not name it.
#[derive(Debug)]
pub(crate) struct ReceivedIds {
    pub(crate) ranges: Vec<BufferedRange>,
    pub(crate) store: Option<String>,
}

/// The namespace and the number of ids to request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) count: u64,
}

impl IdServer {
    /// Requests ids. The server may take up to `wait` to make them.
    pub(crate) async fn request(
        &self,
        connections: &Connections,
        token: Option<&ClientToken>,
        ask: Ask<'_>,
        wait: Duration,
    ) -> Result<ReceivedIds, RequestFailure> {
        let authorization = match token {
            Some(token) => Some(token.header(self, wait).await?),
            None => None,
        };
        // A server or a proxy may repeat the token anywhere.
        let hidden = HiddenToken::of(authorization.as_ref());
        let received =
            self.send(connections, self.to_send(authorization, ask, wait)?, ask.count, &hidden).await;
        received.map_err(|failure| RequestFailure { detail: hidden.in_text(&failure.detail), ..failure })
    }

    async fn send(
        &self,
        connections: &Connections,
        mut request: Request<Empty<Bytes>>,
        count: u64,
        hidden: &HiddenToken,
    ) -> Result<ReceivedIds, RequestFailure> {
        let id = request.headers()[REQUEST_ID].clone();
        let connection = capture_connection(&mut request);
        let sent = connections.request(request).await;
        let response = sent.map_err(|error| self.unsent(&error))?;
        if response.headers().get(REQUEST_ID).is_some_and(|answered| *answered != id) {
            if let Some(connection) = &*connection.connection_metadata() {
                connection.poison();
            }
            return Err(self.invalid(&"it belongs to another request"));
        }
        if response.status() != StatusCode::OK {
            return Err(self.refusal(response, hidden).await);
        }
        let store = response.headers().get(STORE).and_then(|it| it.to_str().ok()).map(str::to_owned);
        if store.as_ref().is_some_and(|store| hidden.in_text(store) != *store) {
            // It becomes part of errors, and callers may log it.
            return Err(self.invalid(&"its store contains the token"));
        }
        let ranges = usize::try_from(count).unwrap_or(usize::MAX);
        let limit = ranges.saturating_mul(LONGEST_RANGE).saturating_add(LONGEST_FRAME);
        let body = Limited::new(response.into_body(), limit).collect().await;
        let body = body.map_err(|error| self.unavailable(format!("broken answer: {}", Chain(&*error))))?;
        let ranges = parse(&body.to_bytes(), count).map_err(|why| self.invalid(&why))?;
        Ok(ReceivedIds { ranges, store })
    }

    /// Uses POST, so that no cache between client and server answers, and no proxy sends the request twice.
    fn to_send(
        &self,
        authorization: Option<HeaderValue>,
        Ask { namespace, count }: Ask<'_>,
        wait: Duration,
    ) -> Result<Request<Empty<Bytes>>, RequestFailure> {
        let wait = wait.as_secs_f64();
        let uri = format!("{}/v1/ranges/{namespace}?count={count}&wait={wait:.3}", self.url);
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(USER_AGENT, concat!("snowmint-client/", env!("CARGO_PKG_VERSION")))
            .header(REQUEST_ID, new_request_id());
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let built = request.body(Empty::new());
        built.map_err(|error| self.failure(ErrorKind::Rejected, None, error.to_string(), Retry::Never))
    }

    /// Reads why a server returned no ids.
    async fn refusal(
        &self,
        response: Response<hyper::body::Incoming>,
        hidden: &HiddenToken,
    ) -> RequestFailure {
        let status = response.status();
        let retry_after = retry_after(response.headers());
        let body = Limited::new(response.into_body(), LONGEST_ERROR).collect().await;
        // Without a readable body, the status alone is the error.
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let problem: ProblemBody = serde_json::from_slice(&body).unwrap_or_default();
        let name = problem.r#type.strip_prefix("urn:snowmint:").unwrap_or_default();
        let (kind, retry) = meaning(status, name, retry_after);
        let text = if problem.detail.is_empty() {
            status.canonical_reason().unwrap_or("unexpected status").to_owned()
        } else {
            // Before it is shortened, which may leave a part of the token.
            shown(&hidden.in_text(&problem.detail), Most::Message).into_owned()
        };
        let detail = format!("status {}: {text}", status.as_u16());
        RequestFailure {
            about: about(status, name),
            ..self.failure(kind, Some(status.as_u16()), detail, retry)
        }
    }
}

/// Returns a text that no other request has, of this process or another one: a proxy that sends an answer
/// twice would otherwise answer the next request with it.
fn new_request_id() -> String {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| getrandom::u64().unwrap_or_default());
    static SENT: AtomicU64 = AtomicU64::new(0);
    // A forked child has the number of its parent.
    format!("{:016x}-{}-{}", *PROCESS, std::process::id(), SENT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the server's `Retry-After`: in seconds, or as a date, which proxies send. A date is compared with
/// the `Date` of the answer, so the clocks need not agree.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let at = date(text)?;
    let now = headers.get(DATE).and_then(|it| date(it.to_str().ok()?));
    let now = now.unwrap_or_else(|| SystemTime::UNIX_EPOCH + Duration::from_millis(WallClock.unix_ms()));
    Some(at.duration_since(now).unwrap_or_default())
}

/// Returns whether a connection failed because one side does not trust the other's certificate.
#[cfg(feature = "tls")]
fn is_about_certificates(error: &(dyn Error + 'static)) -> bool {
    use rustls::{AlertDescription as Alert, Error as Tls};
    let mut cause = Some(error);
    while let Some(error) = cause {
        // The source of an I/O error skips the error inside it, which may itself be an I/O error.
        let mut tls = error.downcast_ref::<Tls>();
        let mut outer = error.downcast_ref::<io::Error>();
        while let (None, Some(inner)) = (tls, outer.and_then(io::Error::get_ref)) {
            tls = inner.downcast_ref();
            outer = inner.downcast_ref();
        }
        if let Some(tls) = tls {
            return matches!(
                tls,
                Tls::InvalidCertificate(_)
                    | Tls::NoCertificatesPresented
                    | Tls::AlertReceived(
                        Alert::BadCertificate
                            | Alert::UnsupportedCertificate
                            | Alert::CertificateRevoked
                            | Alert::CertificateExpired
                            | Alert::CertificateUnknown
                            | Alert::UnknownCA
                            | Alert::AccessDenied
                            | Alert::CertificateRequired
                    )
            );
        }
        cause = error.source();
    }
    false
}

#[cfg(not(feature = "tls"))]
fn is_about_certificates(_: &(dyn Error + 'static)) -> bool {
    false
}

/// Returns what a status means for the caller, and whether to retry. `name` is the last part of Snowmint's
/// problem type.
fn meaning(status: StatusCode, name: &str, retry_after: Option<Duration>) -> (ErrorKind, Retry) {
    let later = retry_after.map_or(Retry::Elsewhere, |after| Retry::After(RetryAfter::capped(after)));
    match (status.as_u16(), name) {
        (_, "busy") => (ErrorKind::Unavailable, Retry::Fewer),
        // The count exceeds the token's quota.
        (400, "bad-count") => (ErrorKind::Rejected, Retry::Fewer),
        (_, "layout-ended" | "numbers-ended" | "too-many-namespaces" | "cross-site") => {
            (ErrorKind::Rejected, Retry::Never)
        }
        (401, _) => (ErrorKind::Unauthorized, Retry::Never),
        (403, _) => (ErrorKind::Forbidden, Retry::Never),
        (404, "unknown-namespace") => (ErrorKind::UnknownNamespace, Retry::Never),
        (408 | 500..=599, _) => (ErrorKind::Unavailable, later),
        (429, _) => (ErrorKind::OverQuota, later),
        _ => (ErrorKind::Rejected, Retry::Never),
    }
}

/// Returns which requests an error status affects. `name` is the last part of Snowmint's problem type; a
/// proxy sends none.
fn about(status: StatusCode, name: &str) -> FailureScope {
    // A quota (429) belongs to the token. An unknown problem type of a later server counts for the namespace:
    // if it concerns the server, each namespace finds out with its own request. The opposite mistake would
    // stop namespaces that work.
    if status.is_server_error() && !["", "too-many-clients"].contains(&name) {
        FailureScope::Namespace
    } else {
        FailureScope::Server
    }
}

/// A problem document (RFC 9457); only the fields used here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProblemBody {
    r#type: String,
    detail: String,
}

#[derive(Deserialize)]
struct AnswerBody {
    ranges: Vec<RangeText>,
}

#[derive(Deserialize)]
struct RangeText {
    first: String,
    count: u64,
    step: String,
}

/// Reads an answer that must have exactly `count` ids.
fn parse(body: &[u8], count: u64) -> Result<Vec<BufferedRange>, String> {
    let answer: AnswerBody = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let number = |text: &str| {
        // `parse` would accept a sign.
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let mut ranges = Vec::with_capacity(answer.ranges.len());
    let mut sum: u64 = 0;
    for RangeText { first, count, step } in answer.ranges {
        let range = number(&first)
            .zip(number(&step))
            .and_then(|(first, step)| BufferedRange::new(first, count, step));
        let Some(range) = range else {
            let [first, step] = [&first, &step].map(|text| snowmint::error::Snippet::of(text));
            return Err(format!(
                "range of {count} ids from {first} by {step}: expected ids from 0 to 2^63 - 1"
            ));
        };
        sum = sum.saturating_add(count);
        ranges.push(range);
    }
    if sum != count {
        return Err(format!("{sum} ids: expected {count}"));
    }
    Ok(ranges)
}

/// Returns what an error answer means: the kind, `never`, `fewer` or `elsewhere` for whether to retry, and
/// whether it concerns the `server` or the `namespace`. For the table of errors that clients in other
/// languages share.
#[doc(hidden)]
pub fn error_meaning(status: u16, name: &str) -> Option<(ErrorKind, &'static str, &'static str)> {
    let status = StatusCode::from_u16(status).ok()?;
    let (kind, retry) = meaning(status, name, None);
    let retry = match retry {
        Retry::Never => "never",
        Retry::Fewer => "fewer",
        Retry::Elsewhere | Retry::OtherCertificate | Retry::OtherStore | Retry::After(_) => "elsewhere",
    };
    let concerns = match about(status, name) {
        FailureScope::Server => "server",
        FailureScope::Namespace => "namespace",
    };
    Some((kind, retry, concerns))
}

/// Reads an answer, for fuzzing. Returns the first id, last id and number of ids of each range.
#[doc(hidden)]
pub fn read_answer(body: &[u8], count: u64) -> Option<Vec<(Id, Id, u64)>> {
    let ends = |range: BufferedRange| Some((range.ids().next()?, range.ids().last()?, range.count()));
    parse(body, count).ok()?.into_iter().map(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(ranges: &str) -> Vec<u8> {
        format!(r#"{{"ranges":[{ranges}]}}"#).into_bytes()
    }

    #[test]
    fn an_answer_is_read_exactly() {
        let many = r#"{"first":"9007199254740993","count":3,"step":"1"},{"first":"9223372036854775807","count":1,"step":"5"}"#;
        let ranges = parse(&body(many), 4).unwrap();
        let ids: Vec<_> = ranges.into_iter().flat_map(BufferedRange::ids).map(Id::get).collect();
        assert_eq!(
            ids,
            [9_007_199_254_740_993, 9_007_199_254_740_994, 9_007_199_254_740_995, i64::MAX as u64]
        );
        // A later server may send more fields.
        let more = br#"{"ranges":[{"first":"5","count":1,"step":"1","scheme":"x"}],"until":7}"#;
        assert_eq!(parse(more, 1).unwrap().len(), 1);
    }

    #[test]
    fn an_invalid_answer_is_rejected_as_a_whole() {
        let good = r#"{"first":"1","count":1,"step":"1"}"#;
        assert!(parse(&body(good), 1).is_ok());
        let cases = [
            (String::new(), 1, "0 ids: expected 1"),
            (format!("{good},{good}"), 1, "2 ids: expected 1"),
            (format!("{good},{good}"), 3, "2 ids: expected 3"),
            (r#"{"first":1,"count":1,"step":"1"}"#.to_owned(), 1, "invalid type"),
            (r#"{"first":"1","count":"1","step":"1"}"#.to_owned(), 1, "invalid type"),
            (r#"{"first":"1","count":1}"#.to_owned(), 1, "missing field"),
            (r#"{"first":"+1","count":1,"step":"1"}"#.to_owned(), 1, "+1"),
            (r#"{"first":"1e3","count":1,"step":"1"}"#.to_owned(), 1, "1e3"),
            (r#"{"first":"","count":1,"step":"1"}"#.to_owned(), 1, "expected ids"),
            (r#"{"first":"9223372036854775808","count":1,"step":"1"}"#.to_owned(), 1, "expected ids"),
            (r#"{"first":"99999999999999999999","count":1,"step":"1"}"#.to_owned(), 1, "expected ids"),
            (r#"{"first":"9223372036854775807","count":2,"step":"1"}"#.to_owned(), 2, "expected ids"),
            (r#"{"first":"2","count":4,"step":"6148914691236517205"}"#.to_owned(), 4, "expected ids"),
            (r#"{"first":"1","count":2,"step":"0"}"#.to_owned(), 2, "expected ids"),
            (format!(r#"{good},{{"first":"2","count":0,"step":"1"}}"#), 1, "expected ids"),
        ];
        for (ranges, count, said) in cases {
            let error = parse(&body(&ranges), count).unwrap_err();
            assert!(error.contains(said), "{ranges}: {error}");
        }
        let whole = body(good);
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut], 1).is_err(), "cut after {cut} bytes");
        }
    }

    #[test]
    fn each_status_is_retried_or_not() {
        use ErrorKind as Kind;
        let after = Some(Duration::from_secs(2));
        let later = Retry::After(RetryAfter::capped(Duration::from_secs(2)));
        let table = [
            (503, "not-ready", after, Kind::Unavailable, later),
            (503, "too-many-clients", None, Kind::Unavailable, Retry::Elsewhere),
            (503, "busy", after, Kind::Unavailable, Retry::Fewer),
            (400, "bad-count", None, Kind::Rejected, Retry::Fewer),
            (502, "", None, Kind::Unavailable, Retry::Elsewhere),
            (500, "", None, Kind::Unavailable, Retry::Elsewhere),
            (408, "", None, Kind::Unavailable, Retry::Elsewhere),
            (429, "over-quota", after, Kind::OverQuota, later),
            (500, "numbers-ended", None, Kind::Rejected, Retry::Never),
            (500, "layout-ended", None, Kind::Rejected, Retry::Never),
            (401, "unauthorized", after, Kind::Unauthorized, Retry::Never),
            (403, "forbidden", None, Kind::Forbidden, Retry::Never),
            (404, "unknown-namespace", None, Kind::UnknownNamespace, Retry::Never),
            (404, "", None, Kind::Rejected, Retry::Never),
            (400, "wrong-scheme", None, Kind::Rejected, Retry::Never),
            (301, "", None, Kind::Rejected, Retry::Never),
            (421, "unknown-host", None, Kind::Rejected, Retry::Never),
        ];
        for (status, name, retry_after, kind, retry) in table {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(meaning(status, name, retry_after), (kind, retry), "{status} {name}");
        }
    }

    #[test]
    fn only_snowmint_s_own_failures_are_about_a_namespace() {
        let table = [
            (503, "not-ready", FailureScope::Namespace),
            (503, "clock-behind", FailureScope::Namespace),
            (504, "expired", FailureScope::Namespace),
            (503, "of-a-later-version", FailureScope::Namespace),
            (503, "too-many-clients", FailureScope::Server),
            (429, "over-quota", FailureScope::Server),
            (429, "", FailureScope::Server),
            (408, "", FailureScope::Server),
            (500, "", FailureScope::Server),
            (502, "", FailureScope::Server),
            (503, "", FailureScope::Server),
        ];
        for (status, name, what) in table {
            assert_eq!(about(StatusCode::from_u16(status).unwrap(), name), what, "{status} {name}");
        }
    }

    #[test]
    fn a_retry_may_be_due_after_seconds_or_at_a_date() {
        let after = |pairs: &[(hyper::header::HeaderName, &str)]| {
            retry_after(&pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect())
        };
        let (seconds, noon) = (Duration::from_secs, "Sun, 06 Nov 1994 12:00:00 GMT");
        assert_eq!(after(&[(RETRY_AFTER, "120")]), Some(seconds(120)));
        assert_eq!(after(&[]), None);
        assert_eq!(after(&[(RETRY_AFTER, "soon")]), None);
        assert_eq!(after(&[(RETRY_AFTER, "Sun, 06 Nov 1994 12:01:30 GMT"), (DATE, noon)]), Some(seconds(90)));
        assert_eq!(after(&[(RETRY_AFTER, "Sun, 06 Nov 1994 11:00:00 GMT"), (DATE, noon)]), Some(seconds(0)));
        // Without a `Date` in the answer, it counts from now.
        assert_eq!(after(&[(RETRY_AFTER, noon)]), Some(seconds(0)));
        let later = after(&[(RETRY_AFTER, "Mon, 01 Jan 2300 00:00:00 GMT")]);
        assert!(later > Some(Duration::from_hours(24 * 365 * 100)), "{later:?}");
    }

    #[test]
    fn the_request_is_sent_as_the_server_expects_it() {
        let server = IdServer::parse("https://gateway:8443/ids/").unwrap();
        let token = ClientToken::parse(" sm_secret\n").unwrap();
        let ask = Ask { namespace: "a.b:c-1", count: 50 };
        let request = server.to_send(Some(token.clone()), ask, Duration::from_millis(1500)).unwrap();
        assert_eq!(
            request.uri().to_string(),
            "https://gateway:8443/ids/v1/ranges/a.b:c-1?count=50&wait=1.500"
        );
        assert_eq!(request.headers()[AUTHORIZATION], "Bearer sm_secret");
        assert!(!format!("{request:?} {token:?}").contains("sm_secret"));
        for invalid in ["", " ", "a b", "a\nb", "é"] {
            assert_eq!(ClientToken::parse(invalid), None, "{invalid:?}");
        }
    }

    #[test]
    fn a_server_is_a_url_without_secrets() {
        for good in ["http://localhost:8080", "https://[::1]:8080/", "http://10.0.0.1/base"] {
            assert_eq!(&*IdServer::parse(good).unwrap().url, good.trim_end_matches('/'));
        }
        for bad in
            ["", "localhost:8080", "/x", "redis://h:1", "http://h:1/?a=b", "http://u:hunter2@h:1", "http://"]
        {
            let error = IdServer::parse(bad).unwrap_err().to_string();
            assert!(error.contains("expected") && !error.contains("hunter2"), "{error}");
        }
    }
}
