//! Begins the record of a request.

use hyper::{Request, Uri};
use tokio::time::Instant;

use crate::http::Serving;
use crate::request_record::{RequestKind, RequestRecord};

/// Begins the record of a request. The query stays out, since it may have a token.
#[inline]
pub(super) fn begin<B>(serving: &Serving<'_>, request: &Request<B>, began: Instant) -> RequestRecord {
    let text = || {
        let route = Asked::by(request.uri()).route;
        (RequestKind::Http(route), format!("{} {}", request.method(), request.uri().path()))
    };
    let (server, protocol) = (serving.server, serving.protocol());
    let mut record = RequestRecord::begin(server, protocol, request.headers(), began, text);
    if !record.is_empty() {
        let Asked { namespace, count, .. } = Asked::by(request.uri());
        record.asks(namespace, count);
    }
    record
}

/// What a request asks for.
#[derive(Clone, Copy)]
struct Asked<'a> {
    /// The path, with placeholders for what differs from request to request; empty if there is no such path.
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
