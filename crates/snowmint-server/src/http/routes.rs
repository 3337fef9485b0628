//! The table of paths, and the route of a request: its path with its parameters. Nothing is guessed. An
//! unknown parameter is an error: a misspelt `count` would otherwise be a different request.

use std::borrow::Cow;
use std::time::Duration;

use hyper::{Method, Uri};
use snowmint::error::Snippet;

use crate::http::admin;
use crate::http::request::{decode, first_value, parameter, parameters};
use crate::http::response::{IdsFormat, Problem};
use crate::limits::MAX_WAIT;
use crate::mint::InspectBy;
use crate::status::ErrorKind;

/// The OpenAPI document of this interface.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

/// The default count.
const ONE: Cow<'static, [u8]> = Cow::Borrowed(b"1");

/// A path of this interface.
pub(super) struct PathSpec {
    /// The path as the OpenAPI document and the spans write it.
    pub(super) pattern: &'static str,
    /// The length of what all paths of the pattern begin with.
    fixed: usize,
    /// How a request takes ids; `None` if it takes none.
    draw: Option<DrawSpec>,
    /// Returns the route of a request, from what stands for the placeholder and from the query.
    parse: for<'a> fn(&'a str, Option<&'a str>) -> Result<Route<'a>, Problem>,
}

/// Where a request for ids says what it is for.
#[derive(Clone, Copy)]
struct DrawSpec {
    /// The parameter that is the namespace; `None` if the placeholder of the path is.
    namespace: Option<&'static str>,
    /// The parameter that is the count; `None` if it is always 1.
    count: Option<&'static str>,
}

const IN_PATH: DrawSpec = DrawSpec { namespace: None, count: None };
const COUNTED: DrawSpec = DrawSpec { count: Some("count"), ..IN_PATH };
const OF_TINYID: DrawSpec = DrawSpec { namespace: Some("bizType"), count: Some("batchSize") };

/// Every path besides those of the admin API, the most frequent first.
static PATHS: [PathSpec; 16] = [
    PathSpec::of("/v1/ids/{namespace}", Some(COUNTED), |namespace, query| {
        let [count, format, wait] = parameters(query, ["count", "format", "wait"], "/v1/ids")?;
        let format = format.as_deref().map(parse_format).transpose();
        ids(namespace, count, format, wait.as_deref())
    }),
    PathSpec::of("/v1/ranges/{namespace}", Some(COUNTED), |namespace, query| {
        let [count, wait] = parameters(query, ["count", "wait"], "/v1/ranges")?;
        ids(namespace, count, Ok(Some(IdsFormat::Ranges)), wait.as_deref())
    }),
    PathSpec::of("/v1/inspect/{id}", None, |id, query| {
        Ok(Route::Inspect { id: decode(id)?, by: inspect_param(query, "/v1/inspect")? })
    }),
    PathSpec::of("/v1/readings/{id}", None, |id, query| {
        Ok(Route::Readings { id: decode(id)?, by: inspect_param(query, "/v1/readings")? })
    }),
    PathSpec::of("/v1/layouts", None, |_, query| {
        let [] = parameters(query, [], "/v1/layouts")?;
        Ok(Route::Layouts)
    }),
    PathSpec::of("/v1/layout", None, |_, query| {
        let [spec] = parameters(query, ["spec"], "/v1/layout")?;
        Ok(Route::Layout { spec })
    }),
    PathSpec::of("/v1/server", None, |_, query| {
        let [namespace] = parameters(query, ["namespace"], "/v1/server")?;
        Ok(Route::Server { namespace })
    }),
    // Leaf and TinyID ignore further parameters, and their clients may send some.
    PathSpec::of("/api/segment/get/{key}", Some(IN_PATH), |key, _| {
        Ok(Route::Leaf { mode: LeafMode::Segment, key: decode(key)? })
    }),
    PathSpec::of("/api/snowflake/get/{key}", Some(IN_PATH), |key, _| {
        Ok(Route::Leaf { mode: LeafMode::Snowflake, key: decode(key)? })
    }),
    PathSpec::of("/decodeSnowflakeId", None, |_, query| {
        Ok(Route::LeafDecode { id: first_value(query, "snowflakeId")?.unwrap_or_default() })
    }),
    PathSpec::of("/tinyid/id/nextId", Some(OF_TINYID), |_, query| tinyid(TinyIdForm::Json, query)),
    PathSpec::of("/tinyid/id/nextIdSimple", Some(OF_TINYID), |_, query| tinyid(TinyIdForm::Simple, query)),
    // Probes and scrapers may add parameters.
    PathSpec::of("/healthz", None, |_, _| Ok(Route::Health)),
    PathSpec::of("/readyz", None, |_, _| Ok(Route::Ready)),
    PathSpec::of("/metrics", None, |_, _| Ok(Route::Metrics)),
    PathSpec::of("/openapi.json", None, |_, _| Ok(Route::OpenApi)),
];

/// The route of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// Ids, also as ranges.
    Ids {
        namespace: Cow<'a, [u8]>,
        /// The `count` parameter; by default 1.
        count: Cow<'a, [u8]>,
        /// What the path or the `format` parameter says, which takes precedence over `Accept`.
        format: Option<IdsFormat>,
        /// How long the request may wait for its ids.
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

impl PathSpec {
    const fn of(
        pattern: &'static str,
        draw: Option<DrawSpec>,
        parse: for<'a> fn(&'a str, Option<&'a str>) -> Result<Route<'a>, Problem>,
    ) -> Self {
        let mut fixed = 0;
        while fixed < pattern.len() && pattern.as_bytes()[fixed] != b'{' {
            fixed += 1;
        }
        Self { pattern, fixed, draw, parse }
    }

    /// Returns the entry of a path.
    pub(super) fn find(path: &str) -> Option<&'static Self> {
        PATHS.iter().find(|spec| spec.placeholder(path).is_some())
    }

    /// Returns what stands for the placeholder in a path of this pattern: one segment, or nothing if the
    /// pattern has none.
    fn placeholder<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix(&self.pattern[..self.fixed])?;
        (rest.is_empty() != self.has_placeholder() && !rest.contains('/')).then_some(rest)
    }

    const fn has_placeholder(&self) -> bool {
        self.fixed < self.pattern.len()
    }

    /// Returns `true` if a request takes ids.
    pub(super) const fn takes_ids(&self) -> bool {
        self.draw.is_some()
    }

    /// Returns the route of a request to a path of this pattern.
    pub(super) fn route<'a>(
        &self,
        method: &Method,
        path: &'a str,
        query: Option<&'a str>,
    ) -> Result<Route<'a>, Problem> {
        let placeholder = self.placeholder(path).unwrap_or_default();
        (self.parse)(placeholder, query).or_else(|problem| {
            // A method that the path never takes is reported before an invalid query.
            (self.parse)(placeholder, None)?;
            self.check_method(method)?;
            Err(problem)
        })
    }

    /// Checks the method: GET and HEAD for all paths, and POST for paths that take ids.
    pub(super) fn check_method(&self, method: &Method) -> Result<(), Problem> {
        match *method {
            Method::GET | Method::HEAD => Ok(()),
            Method::POST if self.takes_ids() => Ok(()),
            ref method => Err(Problem::bad_method(
                method,
                if self.takes_ids() { "GET, HEAD, POST" } else { "GET, HEAD" },
            )),
        }
    }

    /// Returns the namespace and the count that a request names, for its record: as they are written, also in
    /// an invalid request.
    pub(super) fn drawn<'a>(&self, uri: &'a Uri) -> (Option<&'a str>, Option<u64>) {
        let Some(draw) = self.draw else { return (None, None) };
        let query = uri.query().unwrap_or_default();
        let parameter =
            |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let count = draw.count.and_then(parameter).map_or(Some(1), |count| count.parse().ok());
        (draw.namespace.map_or_else(|| self.placeholder(uri.path()), parameter), count)
    }
}

/// Returns the problem of an unknown path.
#[cold]
pub(super) fn unknown(path: &str) -> Problem {
    let probes_at = PATHS.iter().position(|spec| spec.pattern == "/healthz").unwrap_or(PATHS.len());
    let (others, probes) = PATHS.split_at(probes_at);
    let patterns = |specs: &'static [PathSpec]| specs.iter().map(|spec| spec.pattern);
    let known: Vec<_> = patterns(others).chain([admin::PATHS.as_str()]).chain(patterns(probes)).collect();
    let detail = format!("unknown path {}: expected {}", Snippet::of(path), known.join(", "));
    Problem::new(ErrorKind::Unknown, detail)
}

fn ids<'a>(
    namespace: &'a str,
    count: Option<Cow<'a, [u8]>>,
    format: Result<Option<IdsFormat>, Problem>,
    wait: Option<&[u8]>,
) -> Result<Route<'a>, Problem> {
    Ok(Route::Ids {
        namespace: decode(namespace)?,
        count: count.unwrap_or(ONE),
        format: format?,
        wait: wait.map_or(Ok(MAX_WAIT), parse_wait)?,
    })
}

fn tinyid(form: TinyIdForm, query: Option<&str>) -> Result<Route<'_>, Problem> {
    let namespace = first_value(query, "bizType")?.unwrap_or_default();
    let (count, token) = (first_value(query, "batchSize")?, first_value(query, "token")?);
    Ok(Route::TinyId { form, namespace, count, token })
}

/// Parses the parameter of a request that decodes an id.
fn inspect_param<'a>(query: Option<&'a str>, path: &str) -> Result<InspectParam<'a>, Problem> {
    Ok(match parameter(query, &["namespace", "layout"], path)? {
        None => InspectParam::Anything,
        Some(("namespace", name)) => InspectParam::Namespace(name),
        Some((_, layout)) => InspectParam::Layout(layout),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn route<'a>(path: &'a str, query: Option<&'a str>) -> Result<Route<'a>, Problem> {
        PathSpec::find(path).ok_or_else(|| unknown(path))?.route(&Method::GET, path, query)
    }

    fn ids<'a>(namespace: &'a str, count: &'a str) -> Route<'a> {
        let (namespace, count) = (namespace.as_bytes().into(), count.as_bytes().into());
        Route::Ids { namespace, count, format: None, wait: MAX_WAIT }
    }

    fn text_within(ms: u64) -> Route<'static> {
        let wait = Duration::from_millis(ms);
        Route::Ids { namespace: b"a".into(), count: ONE, format: Some(IdsFormat::Text), wait }
    }

    fn ranges<'a>(namespace: &'a str, count: &'a str, ms: u64) -> Route<'a> {
        let (namespace, count) = (namespace.as_bytes().into(), count.as_bytes().into());
        Route::Ids { namespace, count, format: Some(IdsFormat::Ranges), wait: Duration::from_millis(ms) }
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
            ("/v1/ranges/a", Some("count=7&wait=1"), ranges("a", "7", 1000)),
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

    /// Goal: the OpenAPI document has exactly the paths that exist, and POST where a path takes ids. A
    /// black-box test checks the answers of a running server against it.
    #[test]
    fn each_path_is_documented() {
        let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        let documented = document["paths"].as_object().unwrap();
        let mut paths: Vec<&str> = documented.keys().map(String::as_str).collect();
        let mut known: Vec<&str> =
            PATHS.iter().map(|spec| spec.pattern).chain(admin::PATHS.split(", ")).collect();
        paths.sort_unstable();
        known.sort_unstable();
        assert_eq!(paths, known);
        for spec in &PATHS {
            let operations = &documented[spec.pattern];
            assert_eq!(operations.get("post").is_some(), spec.takes_ids(), "{}", spec.pattern);
            assert!(operations.get("get").is_some(), "{}", spec.pattern);
            let sample =
                format!("{}{}", &spec.pattern[..spec.fixed], &"1"[..usize::from(spec.has_placeholder())]);
            assert!(route(&sample, None).is_ok(), "{sample}");
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
}
