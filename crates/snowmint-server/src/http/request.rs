//! Requests: checks the host, parses path and query into a route, and reads the preferred format from `Accept`.
//! Nothing is guessed. An unknown parameter is an error: a misspelt `count` would otherwise be a different request.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use hyper::header::{ACCEPT, HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Request, Version};
use percent_encoding::percent_decode_str;
use snowmint::error::Snippet;

use crate::http::response::{IdsFormat, Problem};
use crate::limits::MAX_WAIT;
use crate::metrics::Exposition;
use crate::mint::InspectBy;
use crate::settings::AllowedHosts;
use crate::status::ErrorKind;

/// The OpenAPI document of this interface.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

/// The existing paths, as the OpenAPI document writes them.
const PATHS: [&str; 27] = [
    "/v1/ids/{namespace}",
    "/v1/ranges/{namespace}",
    "/v1/inspect/{id}",
    "/v1/readings/{id}",
    "/v1/layouts",
    "/v1/layout",
    "/v1/server",
    "/api/segment/get/{key}",
    "/api/snowflake/get/{key}",
    "/decodeSnowflakeId",
    "/tinyid/id/nextId",
    "/tinyid/id/nextIdSimple",
    "/v1/admin/namespaces",
    "/v1/admin/namespaces/{namespace}",
    "/v1/admin/workers",
    "/v1/admin/workers/{worker}/release",
    "/v1/admin/doctor",
    "/v1/admin/store",
    "/v1/admin/drain",
    "/v1/admin/log-level",
    "/v1/admin/audit",
    "/v1/admin/fleet",
    "/v1/admin/events",
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
];

/// The default count.
const ONE: Cow<'static, [u8]> = Cow::Borrowed(b"1");

/// The route of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Ids {
        namespace: Cow<'a, [u8]>,
        /// The `count` parameter; by default 1.
        count: Cow<'a, [u8]>,
        /// The `format` parameter, which takes precedence over `Accept`.
        format: Option<IdsFormat>,
        /// How long the request may wait for its ids.
        wait: Duration,
    },
    /// Ids as ranges.
    Ranges {
        namespace: Cow<'a, [u8]>,
        count: Cow<'a, [u8]>,
        wait: Duration,
    },
    /// Ids as TinyID answers.
    TinyId {
        form: TinyIdForm,
        /// The `bizType` parameter: the namespace.
        namespace: Cow<'a, [u8]>,
        /// The `batchSize` parameter.
        count: Option<Cow<'a, [u8]>>,
        /// The `token` parameter.
        token: Option<Cow<'a, [u8]>>,
    },
    /// The fields of an id, as Leaf answers.
    LeafDecode {
        id: Cow<'a, [u8]>,
    },
    Inspect {
        id: Cow<'a, [u8]>,
        by: InspectParam<'a>,
    },
    /// Every reading of an id, with its bits and text forms.
    Readings {
        id: Cow<'a, [u8]>,
        by: InspectParam<'a>,
    },
    /// The named layouts.
    Layouts,
    /// The properties of a layout.
    Layout {
        spec: Option<Cow<'a, [u8]>>,
    },
    /// What this server serves; with a namespace, that one of its namespaces.
    Server {
        namespace: Option<Cow<'a, [u8]>>,
    },
    /// One id, as Leaf answers.
    Leaf {
        mode: LeafMode,
        key: Cow<'a, [u8]>,
    },
    Health,
    Ready,
    Metrics,
    /// The OpenAPI document.
    OpenApi,
}

/// The parameter of an inspect request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InspectParam<'a> {
    Anything,
    Namespace(Cow<'a, [u8]>),
    Layout(Cow<'a, [u8]>),
}

impl InspectParam<'_> {
    pub(super) fn as_ref(&self) -> InspectBy<'_> {
        match self {
            Self::Anything => InspectBy::Anything,
            Self::Namespace(name) => InspectBy::Namespace(name),
            Self::Layout(layout) => InspectBy::Layout(layout),
        }
    }
}

impl Route<'_> {
    /// Returns `true` if the route takes ids.
    pub(super) const fn takes_ids(&self) -> bool {
        matches!(self, Self::Ids { .. } | Self::Ranges { .. } | Self::Leaf { .. } | Self::TinyId { .. })
    }
}

/// Leaf's two modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeafMode {
    Segment,
    Snowflake,
}

/// TinyID's two forms of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TinyIdForm {
    Json,
    Simple,
}

/// Parses path and query.
pub(super) fn route<'a>(path: &'a str, query: Option<&'a str>) -> Result<Route<'a>, Problem> {
    if let Some(namespace) = path.strip_prefix("/v1/ids/").and_then(segment) {
        let [count, format, wait] = parameters(query, ["count", "format", "wait"], "/v1/ids")?;
        return Ok(Route::Ids {
            namespace: decode(namespace)?,
            count: count.unwrap_or(ONE),
            format: format.as_deref().map(parse_format).transpose()?,
            wait: wait.as_deref().map_or(Ok(MAX_WAIT), parse_wait)?,
        });
    }
    if let Some(namespace) = path.strip_prefix("/v1/ranges/").and_then(segment) {
        let [count, wait] = parameters(query, ["count", "wait"], "/v1/ranges")?;
        return Ok(Route::Ranges {
            namespace: decode(namespace)?,
            count: count.unwrap_or(ONE),
            wait: wait.as_deref().map_or(Ok(MAX_WAIT), parse_wait)?,
        });
    }
    if let Some(id) = path.strip_prefix("/v1/inspect/").and_then(segment) {
        return Ok(Route::Inspect { id: decode(id)?, by: inspect_param(query, "/v1/inspect")? });
    }
    if let Some(id) = path.strip_prefix("/v1/readings/").and_then(segment) {
        return Ok(Route::Readings { id: decode(id)?, by: inspect_param(query, "/v1/readings")? });
    }
    for (prefix, mode) in
        [("/api/segment/get/", LeafMode::Segment), ("/api/snowflake/get/", LeafMode::Snowflake)]
    {
        // Leaf ignores parameters, and its clients may send some.
        if let Some(key) = path.strip_prefix(prefix).and_then(segment) {
            return Ok(Route::Leaf { mode, key: decode(key)? });
        }
    }
    for (tinyid, form) in
        [("/tinyid/id/nextId", TinyIdForm::Json), ("/tinyid/id/nextIdSimple", TinyIdForm::Simple)]
    {
        if path == tinyid {
            // Like TinyID, this path takes further parameters.
            let namespace = first_value(query, "bizType")?.unwrap_or_default();
            let (count, token) = (first_value(query, "batchSize")?, first_value(query, "token")?);
            return Ok(Route::TinyId { form, namespace, count, token });
        }
    }
    // Probes and scrapers may add parameters.
    match path {
        "/v1/layouts" => {
            let [] = parameters(query, [], path)?;
            Ok(Route::Layouts)
        }
        "/v1/server" => {
            let [namespace] = parameters(query, ["namespace"], path)?;
            Ok(Route::Server { namespace })
        }
        "/v1/layout" => {
            let [spec] = parameters(query, ["spec"], path)?;
            Ok(Route::Layout { spec })
        }
        "/decodeSnowflakeId" => {
            Ok(Route::LeafDecode { id: first_value(query, "snowflakeId")?.unwrap_or_default() })
        }
        "/healthz" => Ok(Route::Health),
        "/readyz" => Ok(Route::Ready),
        "/metrics" => Ok(Route::Metrics),
        "/openapi.json" => Ok(Route::OpenApi),
        _ => Err(Problem::new(
            ErrorKind::Unknown,
            format!("unknown path {}: expected {}", Snippet::of(path), PATHS.join(", ")),
        )),
    }
}

/// Parses the parameter of a request that decodes an id.
fn inspect_param<'a>(query: Option<&'a str>, path: &str) -> Result<InspectParam<'a>, Problem> {
    Ok(match parameter(query, &["namespace", "layout"], path)? {
        None => InspectParam::Anything,
        Some(("namespace", name)) => InspectParam::Namespace(name),
        Some((_, layout)) => InspectParam::Layout(layout),
    })
}

/// Returns the rest of a path if it is one segment.
fn segment(rest: &str) -> Option<&str> {
    (!rest.is_empty() && !rest.contains('/')).then_some(rest)
}

/// A query parameter: its name and its decoded value.
type Parameter<'a> = (&'static str, Cow<'a, [u8]>);

/// Returns the parameter of a request. A path takes one of the known parameters at most.
fn parameter<'a>(
    query: Option<&'a str>,
    known: &[&'static str],
    path: &str,
) -> Result<Option<Parameter<'a>>, Problem> {
    let mut found = None;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (index, value) = known_parameter(pair, known, path)?;
        let name = known[index];
        match found.replace((name, value)) {
            None => {}
            Some((before, _)) if before == name => {
                return Err(bad_parameter("repeated", pair, path, "it once"));
            }
            Some((before, _)) => {
                return Err(bad_parameter("surplus", pair, path, &format!("either `{before}` or it")));
            }
        }
    }
    Ok(found)
}

/// Returns the parameters of a request, each of which it may have once.
pub(super) fn parameters<'a, const N: usize>(
    query: Option<&'a str>,
    known: [&'static str; N],
    path: &str,
) -> Result<[Option<Cow<'a, [u8]>>; N], Problem> {
    let mut found = [const { None }; N];
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (index, value) = known_parameter(pair, &known, path)?;
        if found[index].replace(value).is_some() {
            return Err(bad_parameter("repeated", pair, path, "it once"));
        }
    }
    Ok(found)
}

/// Returns the parameters of a request by name, each of which it may have once.
pub(super) fn parameter_map<'a>(
    query: Option<&'a str>,
    known: &[&'static str],
    path: &str,
) -> Result<BTreeMap<&'static str, Cow<'a, [u8]>>, Problem> {
    let mut found = BTreeMap::new();
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (index, value) = known_parameter(pair, known, path)?;
        if found.insert(known[index], value).is_some() {
            return Err(bad_parameter("repeated", pair, path, "it once"));
        }
    }
    Ok(found)
}

/// Returns the first value of a parameter, for paths that ignore all others.
fn first_value<'a>(query: Option<&'a str>, name: &str) -> Result<Option<Cow<'a, [u8]>>, Problem> {
    let mut pairs =
        query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| decode_value(value)).transpose()
}

/// Returns the index of a parameter in `known`, and its decoded value.
fn known_parameter<'a>(
    pair: &'a str,
    known: &[&'static str],
    path: &str,
) -> Result<(usize, Cow<'a, [u8]>), Problem> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let name = decode(name)?;
    let Some(index) = known.iter().position(|known| *name == *known.as_bytes()) else {
        let takes = match known {
            [] => "none".to_owned(),
            [first @ .., last] if !first.is_empty() => format!("`{}` or `{last}` only", first.join("`, `")),
            _ => format!("`{}` only", known.join("`")),
        };
        return Err(bad_parameter("unknown", pair, path, &takes));
    };
    Ok((index, decode_value(value)?))
}

#[cold]
fn bad_parameter(what: &str, pair: &str, path: &str, takes: &str) -> Problem {
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    let detail = format!("{what} query parameter {}: {path} takes {takes}", Snippet::of(name));
    Problem::new(ErrorKind::BadRequest, detail)
}

fn parse_format(text: &[u8]) -> Result<IdsFormat, Problem> {
    match text {
        b"json" => Ok(IdsFormat::Json),
        b"text" => Ok(IdsFormat::Text),
        _ => {
            let text = Snippet::of(&String::from_utf8_lossy(text));
            let detail = format!("invalid format {text}: expected json or text");
            Err(Problem::new(ErrorKind::BadRequest, detail))
        }
    }
}

/// Parses seconds, such as `10` or `0.5`.
fn parse_wait(text: &[u8]) -> Result<Duration, Problem> {
    let seconds = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    let parsed = seconds
        .filter(|seconds| (0.0..=MAX_WAIT.as_secs_f64()).contains(seconds))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    parsed.ok_or_else(|| {
        let text = Snippet::of(&String::from_utf8_lossy(text));
        let limit = MAX_WAIT.as_secs();
        let detail = format!("invalid wait {text}: expected seconds from 0 to {limit}, such as 0.5");
        Problem::new(ErrorKind::BadRequest, detail)
    })
}

/// Decodes a query value, in which `+` is a space.
fn decode_value(text: &str) -> Result<Cow<'_, [u8]>, Problem> {
    if text.contains('+') {
        return decode(&text.replace('+', " ")).map(|decoded| Cow::Owned(decoded.into_owned()));
    }
    decode(text)
}

/// Decodes percent-encoding.
pub(super) fn decode(text: &str) -> Result<Cow<'_, [u8]>, Problem> {
    // Almost no text has an escape.
    if !text.contains('%') {
        return Ok(text.as_bytes().into());
    }
    let mut after_percents = text.as_bytes().split(|byte| *byte == b'%').skip(1);
    let is_valid = after_percents
        .all(|rest| matches!(rest, [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit()));
    if !is_valid {
        let text = Snippet::of(text);
        let detail = format!("invalid percent-encoding in {text}: expected two hexadecimal digits after `%`");
        return Err(Problem::new(ErrorKind::BadRequest, detail));
    }
    Ok(percent_decode_str(text).into())
}

/// The first allowed host that the client of a connection named. Clients name the same one each time, and checking it each time
/// would take longer than making an id.
#[derive(Debug, Default)]
pub(super) struct KnownHost(OnceLock<Box<[u8]>>);

impl KnownHost {
    /// Longer hosts are checked each time, since a known host is held as long as the connection.
    const MAX: usize = 64;

    fn is(&self, host: &[u8]) -> bool {
        self.0.get().is_some_and(|known| **known == *host)
    }

    fn keep(&self, host: &[u8]) {
        if host.len() <= Self::MAX {
            // Another one may be kept already.
            let _ = self.0.set(host.into());
        }
    }
}

/// Checks that a request names its host once (RFC 9112, RFC 9113), and that it is this server.
pub(super) fn check_host<B>(
    allowed: &AllowedHosts,
    known: &KnownHost,
    request: &Request<B>,
) -> Result<(), Problem> {
    let bad = |what: &str| {
        Problem::new(
            ErrorKind::BadRequest,
            format!("{what}: expected one Host header, such as localhost:8080"),
        )
    };
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => return Err(bad("repeated Host header")),
        // HTTP/2 names it in `:authority`, which is a part of the URI here.
        (None, _) if request.version() >= Version::HTTP_2 && request.uri().authority().is_some() => None,
        (None, _) if request.version() >= Version::HTTP_11 => return Err(bad("missing Host header")),
        (host, _) => host,
    };
    // The absolute form, as sent to proxies, names the host itself and takes precedence.
    if let Some(authority) = request.uri().authority() {
        return check_name(allowed, authority.host());
    }
    match host.map(HeaderValue::as_bytes) {
        None | Some(b"") => Ok(()),
        Some(bytes) if known.is(bytes) => Ok(()),
        Some(bytes) => match Authority::try_from(bytes) {
            Ok(authority) if !authority.as_str().contains('@') => {
                check_name(allowed, authority.host())?;
                known.keep(bytes);
                Ok(())
            }
            _ => Err(bad("invalid Host header")),
        },
    }
}

fn check_name(allowed: &AllowedHosts, host: &str) -> Result<(), Problem> {
    if allowed.allow(host) {
        return Ok(());
    }
    let detail = format!(
        "host {} not allowed: use localhost or 127.0.0.1 on the machine of this server, or add the host to --allowed-hosts",
        Snippet::of(host)
    );
    Err(Problem::new(ErrorKind::UnknownHost, detail))
}

/// Returns the format that the `Accept` headers prefer; by default JSON.
pub(super) fn ids_format(headers: &HeaderMap) -> IdsFormat {
    if prefers(headers, ["application", "text"], ["json", "plain"]) {
        IdsFormat::Text
    } else {
        IdsFormat::Json
    }
}

/// Returns the metrics format that the `Accept` headers prefer; by default text, which every tool reads.
pub(super) fn exposition(headers: &HeaderMap) -> Exposition {
    if prefers(headers, ["text", "application"], ["plain", "openmetrics-text"]) {
        Exposition::OpenMetrics
    } else {
        Exposition::Text
    }
}

/// Returns `true` if the second of two media types is preferred. If a client accepts neither, the first is sent, as RFC 9110
/// allows.
fn prefers(headers: &HeaderMap, types: [&str; 2], subtypes: [&str; 2]) -> bool {
    let mut weights = [Weight::default(), Weight::default()];
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let thousandths =
            parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q="))).map_or(1000, quality);
        let Some((kind, subtype)) = name.split_once('/') else { continue };
        for (which, weight) in weights.iter_mut().enumerate() {
            match (kind, subtype) {
                (kind, subtype) if kind == types[which] && subtype == subtypes[which] => {
                    weight.offer(3, thousandths);
                }
                (kind, "*") if kind == types[which] => weight.offer(2, thousandths),
                ("*", "*") => weight.offer(1, thousandths),
                _ => {}
            }
        }
    }
    weights[1].thousandths > weights[0].thousandths
}

/// The weight of a media type, from the most specific range that matches it.
#[derive(Default)]
struct Weight {
    specific: u8,
    thousandths: u16,
}

impl Weight {
    fn offer(&mut self, specific: u8, thousandths: u16) {
        if specific > self.specific {
            *self = Self { specific, thousandths };
        }
    }
}

/// Parses `0.8` as 800; an invalid weight counts as 1.
fn quality(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{fraction:0<3}");
    match (whole, digits.parse::<u16>()) {
        ("0", Ok(thousandths)) if digits.len() == 3 => thousandths,
        _ => 1000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids<'a>(namespace: &'a str, count: &'a str) -> Route<'a> {
        let (namespace, count) = (namespace.as_bytes().into(), count.as_bytes().into());
        Route::Ids { namespace, count, format: None, wait: MAX_WAIT }
    }

    fn text_within(ms: u64) -> Route<'static> {
        let wait = Duration::from_millis(ms);
        Route::Ids { namespace: b"a".into(), count: ONE, format: Some(IdsFormat::Text), wait }
    }

    fn tinyid<'a>(
        form: TinyIdForm,
        namespace: &'a str,
        count: Option<&'a str>,
        token: Option<&'a str>,
    ) -> Route<'a> {
        let [count, token] = [count, token].map(|text| text.map(|text| text.as_bytes().into()));
        Route::TinyId { form, namespace: namespace.as_bytes().into(), count, token }
    }

    #[test]
    fn paths_and_parameters() {
        for (path, query, wanted) in [
            ("/v1/ids/default", None, ids("default", "1")),
            ("/v1/ids/a%2Db", Some("count=5"), ids("a-b", "5")),
            ("/v1/ids/default", Some(""), ids("default", "1")),
            ("/v1/ids/default", Some("count="), ids("default", "")),
            ("/v1/ids/default", Some("c%6Funt=%31&"), ids("default", "1")),
            ("/v1/ids/a", Some("format=text&wait=0"), text_within(0)),
            ("/v1/ids/a", Some("wait=10&format=te%78t"), text_within(10_000)),
            ("/v1/ids/a", Some("wait=2.05&format=text"), text_within(2_050)),
            (
                "/v1/ranges/a",
                Some("count=7&wait=1"),
                Route::Ranges { namespace: b"a".into(), count: b"7".into(), wait: Duration::from_secs(1) },
            ),
            (
                "/tinyid/id/nextId",
                Some("bizType=a&token=t&x=y"),
                tinyid(TinyIdForm::Json, "a", None, Some("t")),
            ),
            (
                "/tinyid/id/nextIdSimple",
                Some("batchSize=3&bizType=a%2Db"),
                tinyid(TinyIdForm::Simple, "a-b", Some("3"), None),
            ),
            ("/decodeSnowflakeId", Some("snowflakeId=5"), Route::LeafDecode { id: b"5".into() }),
            ("/v1/inspect/12", None, Route::Inspect { id: b"12".into(), by: InspectParam::Anything }),
            (
                "/v1/inspect/ORD%2F1",
                Some("namespace=orders"),
                Route::Inspect { id: b"ORD/1".into(), by: InspectParam::Namespace(b"orders".into()) },
            ),
            (
                "/v1/inspect/12",
                Some("layout=time:41+worker%3A10%20sequence:12"),
                Route::Inspect {
                    id: b"12".into(),
                    by: InspectParam::Layout(b"time:41 worker:10 sequence:12".into()),
                },
            ),
            (
                "/api/segment/get/order",
                Some("t=1"),
                Route::Leaf { mode: LeafMode::Segment, key: b"order".into() },
            ),
            ("/api/snowflake/get/a%2Db", None, Route::Leaf { mode: LeafMode::Snowflake, key: b"a-b".into() }),
            ("/v1/readings/12", None, Route::Readings { id: b"12".into(), by: InspectParam::Anything }),
            ("/v1/layouts", None, Route::Layouts),
            ("/v1/layout", Some("spec=tw%69tter"), Route::Layout { spec: Some(b"twitter".into()) }),
            ("/v1/server", None, Route::Server { namespace: None }),
            ("/v1/server", Some("namespace=a%62"), Route::Server { namespace: Some(b"ab".into()) }),
            ("/healthz", Some("probe=1"), Route::Health),
            ("/readyz", None, Route::Ready),
            ("/metrics", None, Route::Metrics),
        ] {
            assert_eq!(route(path, query).unwrap(), wanted, "{path} {query:?}");
        }
    }

    /// Goal: the OpenAPI document has exactly the paths that exist, and POST where a path takes ids. A black-box test checks the
    /// answers of a running server against it.
    #[test]
    fn each_path_is_documented() {
        let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        let documented = document["paths"].as_object().unwrap();
        let mut paths: Vec<&str> = documented.keys().map(String::as_str).collect();
        let mut known = PATHS;
        paths.sort_unstable();
        known.sort_unstable();
        assert_eq!(paths, known);
        for (path, operations) in documented.iter().filter(|(path, _)| !super::super::admin::is_admin(path)) {
            let (begin, rest) = path.split_once('{').unwrap_or((path, ""));
            let sample = if rest.is_empty() { begin.to_owned() } else { format!("{begin}1") };
            let route = route(&sample, None).unwrap();
            assert_eq!(operations.get("post").is_some(), route.takes_ids(), "{path}");
            assert!(operations.get("get").is_some(), "{path}");
        }
    }

    #[test]
    fn errors_name_what_is_wrong() {
        for (path, query, kind, words) in [
            ("/", None, ErrorKind::Unknown, "unknown path `/`"),
            ("/v1/ids/", None, ErrorKind::Unknown, "/v1/ids/{namespace}"),
            ("/v1/ids/a/b", None, ErrorKind::Unknown, "expected /v1/ids/{namespace}"),
            ("/v1/ids/default/", None, ErrorKind::Unknown, "expected /v1/ids/{namespace}"),
            ("/V1/ids/default", None, ErrorKind::Unknown, "expected /v1/ids/{namespace}"),
            ("/v1/ids/a%", None, ErrorKind::BadRequest, "two hexadecimal digits"),
            ("/v1/ids/a%+1", None, ErrorKind::BadRequest, "two hexadecimal digits"),
            ("/v1/ids/%%41", None, ErrorKind::BadRequest, "two hexadecimal digits"),
            ("/v1/ids/a", Some("count=%4"), ErrorKind::BadRequest, "two hexadecimal digits"),
            (
                "/v1/ids/default",
                Some("cuont=5"),
                ErrorKind::BadRequest,
                "unknown query parameter `cuont`: /v1/ids takes `count`, `format` or `wait` only",
            ),
            (
                "/v1/ids/default",
                Some("count=5&count=5"),
                ErrorKind::BadRequest,
                "repeated query parameter `count`",
            ),
            (
                "/v1/ids/a",
                Some("format=xml"),
                ErrorKind::BadRequest,
                "invalid format `xml`: expected json or text",
            ),
            (
                "/v1/ids/a",
                Some("wait=11"),
                ErrorKind::BadRequest,
                "invalid wait `11`: expected seconds from 0 to 10",
            ),
            ("/v1/ids/a", Some("wait=10.001"), ErrorKind::BadRequest, "expected seconds from 0 to 10"),
            ("/v1/ids/a", Some("wait=-1"), ErrorKind::BadRequest, "invalid wait `-1`"),
            ("/v1/ids/a", Some("wait="), ErrorKind::BadRequest, "such as 0.5"),
            ("/v1/ids/a", Some("wait=1s"), ErrorKind::BadRequest, "such as 0.5"),
            ("/v1/ids/a", Some("wait=18446744073709551615"), ErrorKind::BadRequest, "such as 0.5"),
            ("/v1/ids/a", Some("wait=nan"), ErrorKind::BadRequest, "such as 0.5"),
            ("/v1/ids/a", Some("wait=inf"), ErrorKind::BadRequest, "such as 0.5"),
            ("/v1/ids/a", Some("wait=1&wait=1"), ErrorKind::BadRequest, "repeated query parameter `wait`"),
            (
                "/v1/ranges/a",
                Some("format=text"),
                ErrorKind::BadRequest,
                "unknown query parameter `format`: /v1/ranges takes `count` or `wait` only",
            ),
            (
                "/v1/inspect/1",
                Some("x"),
                ErrorKind::BadRequest,
                "unknown query parameter `x`: /v1/inspect takes `namespace` or `layout` only",
            ),
            (
                "/v1/inspect/1",
                Some("namespace=a&layout=twitter"),
                ErrorKind::BadRequest,
                "surplus query parameter `layout`: /v1/inspect takes either `namespace` or it",
            ),
            ("/v1/layouts", Some("x=1"), ErrorKind::BadRequest, "unknown query parameter `x`"),
            (
                "/v1/inspect/1",
                Some("layout=a&layout=b"),
                ErrorKind::BadRequest,
                "repeated query parameter `layout`: /v1/inspect takes it once",
            ),
        ] {
            let problem = route(path, query).unwrap_err();
            assert_eq!(problem.kind, kind, "{path} {query:?}");
            assert!(problem.detail.contains(words), "{path} {query:?}: {}", problem.detail);
        }
    }

    /// Goal: a request with the host name of an attacker is rejected; requests of people and tools on this machine are not. Method:
    /// all on one connection, which knows the first host from then on.
    #[test]
    fn names_of_this_machine_are_allowed_and_others_are_not() {
        let (allowed, known) = (AllowedHosts::new(["ids.example.com"]).unwrap(), KnownHost::default());
        for (host, wanted) in [
            ("localhost", None),
            ("localhost:8080", None),
            ("LOCALHOST", None),
            ("a.localhost:80", None),
            ("127.0.0.1:8080", None),
            ("10.1.2.3", None),
            ("[::1]:8080", None),
            ("[::1]", None),
            ("", None),
            ("localhost", None),
            ("ids.example.com:8443", None),
            ("evil.example", Some(ErrorKind::UnknownHost)),
            ("evil.example:8080", Some(ErrorKind::UnknownHost)),
            ("localhost.evil.example", Some(ErrorKind::UnknownHost)),
            ("127.0.0.1.evil.example", Some(ErrorKind::UnknownHost)),
            ("xlocalhost", Some(ErrorKind::UnknownHost)),
            ("localhost@evil.example", Some(ErrorKind::BadRequest)),
            ("a b", Some(ErrorKind::BadRequest)),
            ("a/b", Some(ErrorKind::BadRequest)),
        ] {
            let request = Request::builder().uri("/x").header(HOST, host).body(()).unwrap();
            assert_eq!(check_host(&allowed, &known, &request).err().map(|it| it.kind), wanted, "{host}");
        }
        let absolute =
            Request::builder().uri("http://evil.example/x").header(HOST, "localhost").body(()).unwrap();
        assert_eq!(check_host(&allowed, &known, &absolute).unwrap_err().kind, ErrorKind::UnknownHost);
    }

    /// Goal: on loopback, only hosts that browsers trust as loopback are allowed: for them alone, a browser
    /// says that a page of another site sent the request. Others that lead to the listener need
    /// --allowed-hosts.
    #[test]
    fn on_loopback_only_loopback_hosts_are_allowed() {
        let named = AllowedHosts::new(["ids.example.com", "192.0.2.1", "2001:db8::1"]).unwrap().on_loopback();
        let known = KnownHost::default();
        for (host, is_allowed) in [
            ("localhost:8080", true),
            ("a.localhost:80", true),
            ("127.0.0.1:8080", true),
            ("127.9.9.9", true),
            ("[::1]:8080", true),
            ("ids.example.com", true),
            ("192.0.2.1:80", true),
            ("[2001:db8::1]:80", true),
            ("", true),
            ("0.0.0.0:8080", false),
            ("0:8080", false),
            ("127.1:8080", false),
            ("[::]:8080", false),
            ("[::ffff:127.0.0.1]:8080", false),
            ("[::ffff:7f00:1]:8080", false),
            ("192.0.2.2", false),
            ("localhost.:8080", false),
            ("a.localhost.", false),
            ("evil.example", false),
        ] {
            let request = Request::builder().uri("/x").header(HOST, host).body(()).unwrap();
            let checked = check_host(&named, &known, &request);
            assert_eq!(
                checked.err().map(|it| it.kind),
                (!is_allowed).then_some(ErrorKind::UnknownHost),
                "{host}"
            );
            if host.is_empty() {
                continue;
            }
            let uri = format!("http://{host}/x");
            let request = Request::builder().uri(uri).version(Version::HTTP_2).body(()).unwrap();
            let checked = check_host(&named, &known, &request);
            assert_eq!(
                checked.err().map(|it| it.kind),
                (!is_allowed).then_some(ErrorKind::UnknownHost),
                "{host}"
            );
        }
    }

    #[test]
    fn http_1_1_needs_one_host() {
        let request = |version, hosts: &[&str]| {
            let request = Request::builder().uri("/x").version(version);
            hosts.iter().fold(request, |request, host| request.header(HOST, *host)).body(()).unwrap()
        };
        let known = KnownHost::default();
        for (version, hosts, is_bad) in [
            (Version::HTTP_11, &["a"][..], false),
            (Version::HTTP_11, &[], true),
            (Version::HTTP_10, &[], false),
            (Version::HTTP_11, &["a", "a"], true),
            (Version::HTTP_10, &["a", "b"], true),
            (Version::HTTP_2, &[], true),
            (Version::HTTP_2, &["a"], false),
            (Version::HTTP_2, &["a", "a"], true),
        ] {
            let checked = check_host(&AllowedHosts::Any, &known, &request(version, hosts));
            assert_eq!(
                checked.err().map(|it| it.kind),
                is_bad.then_some(ErrorKind::BadRequest),
                "{version:?} {hosts:?}"
            );
        }
    }

    #[test]
    fn http_2_has_its_host_in_the_uri() {
        let (allowed, known) = (AllowedHosts::new(["ids.example.com"]).unwrap(), KnownHost::default());
        for (uri, wanted) in [
            ("http://ids.example.com/x", None),
            ("http://127.0.0.1:8080/x", None),
            ("http://evil.example/x", Some(ErrorKind::UnknownHost)),
        ] {
            let request = Request::builder().uri(uri).version(Version::HTTP_2).body(()).unwrap();
            assert_eq!(check_host(&allowed, &known, &request).err().map(|it| it.kind), wanted, "{uri}");
        }
    }

    #[test]
    fn json_unless_text_is_preferred() {
        for (accept, wanted) in [
            ("", IdsFormat::Json),
            ("*/*", IdsFormat::Json),
            ("application/json", IdsFormat::Json),
            ("text/plain", IdsFormat::Text),
            ("Text/Plain; charset=utf-8", IdsFormat::Text),
            ("text/*", IdsFormat::Text),
            ("text/html", IdsFormat::Json),
            ("text/plain, */*", IdsFormat::Json),
            ("text/plain, */*;q=0.1", IdsFormat::Text),
            ("text/plain;q=0.5, application/json;q=0.4", IdsFormat::Text),
            ("text/plain;q=0.5, application/json", IdsFormat::Json),
            ("text/plain;q=0, */*", IdsFormat::Json),
            ("text/plain;q=x", IdsFormat::Text),
            (",;,", IdsFormat::Json),
        ] {
            assert_eq!(ids_format(&accepting(accept)), wanted, "{accept}");
        }
        assert_eq!(ids_format(&HeaderMap::new()), IdsFormat::Json);
    }

    /// Goal: each version of Prometheus gets the format it prefers; people and other tools get text.
    #[test]
    fn metrics_are_text_unless_openmetrics_is_preferred() {
        for (accept, wanted) in [
            ("", Exposition::Text),
            ("*/*", Exposition::Text),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Exposition::Text),
            ("text/plain;version=0.0.4;q=1,*/*;q=0.1", Exposition::Text),
            ("application/openmetrics-text", Exposition::OpenMetrics),
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Exposition::OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                 text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                Exposition::OpenMetrics,
            ),
            ("application/openmetrics-text;q=0.2,text/plain;q=0.3", Exposition::Text),
        ] {
            assert_eq!(exposition(&accepting(accept)), wanted, "{accept}");
        }
    }

    fn accepting(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        headers
    }
}
