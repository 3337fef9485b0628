//! What a request asks for: path and query to a checked route, nothing guessed.
//! An unknown parameter is refused: a misspelt `count` would otherwise be a different request.

use std::borrow::Cow;

use snowmint::error::Snippet;

use crate::http::problem::Problem;
use crate::mint::InspectBy;
use crate::status::Kind;

/// The paths there are, for the error that a path is not among them.
const PATHS: &str = "/v1/ids/{namespace}, /v1/inspect/{id}, /api/segment/get/{key}, /api/snowflake/get/{key}, \
                     /healthz, /readyz and /metrics";

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Ids {
        namespace: Cow<'a, [u8]>,
        /// As given; 1 when it was not.
        count: Cow<'a, [u8]>,
    },
    Inspect {
        id: Cow<'a, [u8]>,
        by: By<'a>,
    },
    /// As Leaf serves ids, one at a time.
    Leaf {
        mode: LeafMode,
        key: Cow<'a, [u8]>,
    },
    Health,
    Ready,
    Metrics,
}

/// By what an id is to be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum By<'a> {
    Anything,
    Namespace(Cow<'a, [u8]>),
    Layout(Cow<'a, [u8]>),
}

impl By<'_> {
    pub(super) fn as_ref(&self) -> InspectBy<'_> {
        match self {
            Self::Anything => InspectBy::Anything,
            Self::Namespace(name) => InspectBy::Namespace(name),
            Self::Layout(layout) => InspectBy::Layout(layout),
        }
    }
}

impl Route<'_> {
    /// Whether ids are used up by asking here.
    pub(super) const fn draws(&self) -> bool {
        matches!(self, Self::Ids { .. } | Self::Leaf { .. })
    }
}

/// Which of Leaf's two modes is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeafMode {
    Segment,
    Snowflake,
}

/// Reads path and query.
pub(super) fn route<'a>(path: &'a str, query: Option<&'a str>) -> Result<Route<'a>, Problem> {
    if let Some(namespace) = path.strip_prefix("/v1/ids/").and_then(segment) {
        let count =
            parameter(query, &["count"], "/v1/ids")?.map_or(Cow::Borrowed(&b"1"[..]), |(_, count)| count);
        return Ok(Route::Ids { namespace: decode(namespace)?, count });
    }
    if let Some(id) = path.strip_prefix("/v1/inspect/").and_then(segment) {
        let by = match parameter(query, &["namespace", "layout"], "/v1/inspect")? {
            None => By::Anything,
            Some(("namespace", name)) => By::Namespace(name),
            Some((_, layout)) => By::Layout(layout),
        };
        return Ok(Route::Inspect { id: decode(id)?, by });
    }
    for (prefix, mode) in
        [("/api/segment/get/", LeafMode::Segment), ("/api/snowflake/get/", LeafMode::Snowflake)]
    {
        // Leaf looks at no parameter, and its clients may send some.
        if let Some(key) = path.strip_prefix(prefix).and_then(segment) {
            return Ok(Route::Leaf { mode, key: decode(key)? });
        }
    }
    // Probes and scrapers may add what they like.
    match path {
        "/healthz" => Ok(Route::Health),
        "/readyz" => Ok(Route::Ready),
        "/metrics" => Ok(Route::Metrics),
        _ => Err(Problem::new(
            Kind::Unknown,
            format!("there is no path {}: there are {PATHS}", Snippet::of(path)),
        )),
    }
}

/// The rest of a path, where it is one segment.
fn segment(rest: &str) -> Option<&str> {
    (!rest.is_empty() && !rest.contains('/')).then_some(rest)
}

/// A parameter of a query: its name, and its value decoded.
type Parameter<'a> = (&'static str, Cow<'a, [u8]>);

/// The one parameter that a request has, of those that its path takes.
fn parameter<'a>(
    query: Option<&'a str>,
    known: &[&'static str],
    path: &str,
) -> Result<Option<Parameter<'a>>, Problem> {
    let mut found = None;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let bad = |what: &str, takes: &str| {
            Problem::new(
                Kind::BadRequest,
                format!("{what} query parameter {}: {path} takes {takes}", Snippet::of(name)),
            )
        };
        let decoded = decode(name)?;
        let Some(name) = known.iter().find(|known| *decoded == *known.as_bytes()) else {
            return Err(bad("unknown", &format!("`{}` only", known.join("` or `"))));
        };
        match found.replace((*name, decode_value(value)?)) {
            None => {}
            Some((before, _)) if before == *name => return Err(bad("repeated", "it once")),
            Some((before, _)) => return Err(bad("surplus", &format!("either `{before}` or it"))),
        }
    }
    Ok(found)
}

/// Undoes the encoding of a query, where `+` stands for a blank.
fn decode_value(text: &str) -> Result<Cow<'_, [u8]>, Problem> {
    if text.contains('+') {
        return decode(&text.replace('+', " ")).map(|decoded| Cow::Owned(decoded.into_owned()));
    }
    decode(text)
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Result<Cow<'_, [u8]>, Problem> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text.as_bytes()));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        if *byte != b'%' {
            decoded.push(*byte);
            rest = after;
            continue;
        }
        let pair = after.get(..2).filter(|pair| pair.iter().all(u8::is_ascii_hexdigit));
        let value = pair
            .and_then(|pair| std::str::from_utf8(pair).ok())
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let Some(value) = value else {
            let detail = format!("{} has a `%` without two hexadecimal digits behind it", Snippet::of(text));
            return Err(Problem::new(Kind::BadRequest, detail));
        };
        decoded.push(value);
        rest = &after[2..];
    }
    Ok(Cow::Owned(decoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids<'a>(namespace: &'a str, count: &'a str) -> Route<'a> {
        Route::Ids { namespace: namespace.as_bytes().into(), count: count.as_bytes().into() }
    }

    #[test]
    fn paths_and_parameters() {
        for (path, query, wanted) in [
            ("/v1/ids/default", None, ids("default", "1")),
            ("/v1/ids/a%2Db", Some("count=5"), ids("a-b", "5")),
            ("/v1/ids/default", Some(""), ids("default", "1")),
            ("/v1/ids/default", Some("count="), ids("default", "")),
            ("/v1/ids/default", Some("c%6Funt=%31&"), ids("default", "1")),
            ("/v1/inspect/12", None, Route::Inspect { id: b"12".into(), by: By::Anything }),
            (
                "/v1/inspect/ORD%2F1",
                Some("namespace=orders"),
                Route::Inspect { id: b"ORD/1".into(), by: By::Namespace(b"orders".into()) },
            ),
            (
                "/v1/inspect/12",
                Some("layout=time:41+worker%3A10%20sequence:12"),
                Route::Inspect { id: b"12".into(), by: By::Layout(b"time:41 worker:10 sequence:12".into()) },
            ),
            (
                "/api/segment/get/order",
                Some("t=1"),
                Route::Leaf { mode: LeafMode::Segment, key: b"order".into() },
            ),
            ("/api/snowflake/get/a%2Db", None, Route::Leaf { mode: LeafMode::Snowflake, key: b"a-b".into() }),
            ("/healthz", Some("probe=1"), Route::Health),
            ("/readyz", None, Route::Ready),
            ("/metrics", None, Route::Metrics),
        ] {
            assert_eq!(route(path, query).unwrap(), wanted, "{path} {query:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (path, query, kind, words) in [
            ("/", None, Kind::Unknown, "there is no path `/`"),
            ("/v1/ids/", None, Kind::Unknown, "/v1/ids/{namespace}"),
            ("/v1/ids/a/b", None, Kind::Unknown, "there are"),
            ("/v1/ids/default/", None, Kind::Unknown, "there are"),
            ("/V1/ids/default", None, Kind::Unknown, "there are"),
            ("/v1/ids/a%", None, Kind::BadRequest, "two hexadecimal digits"),
            ("/v1/ids/a%+1", None, Kind::BadRequest, "two hexadecimal digits"),
            (
                "/v1/ids/default",
                Some("cuont=5"),
                Kind::BadRequest,
                "unknown query parameter `cuont`: /v1/ids takes `count` only",
            ),
            (
                "/v1/ids/default",
                Some("count=5&count=5"),
                Kind::BadRequest,
                "repeated query parameter `count`",
            ),
            (
                "/v1/inspect/1",
                Some("x"),
                Kind::BadRequest,
                "unknown query parameter `x`: /v1/inspect takes `namespace` or `layout` only",
            ),
            (
                "/v1/inspect/1",
                Some("namespace=a&layout=twitter"),
                Kind::BadRequest,
                "surplus query parameter `layout`: /v1/inspect takes either `namespace` or it",
            ),
            (
                "/v1/inspect/1",
                Some("layout=a&layout=b"),
                Kind::BadRequest,
                "repeated query parameter `layout`: /v1/inspect takes it once",
            ),
        ] {
            let problem = route(path, query).unwrap_err();
            assert_eq!(problem.kind, kind, "{path} {query:?}");
            assert!(problem.detail.contains(words), "{path} {query:?}: {}", problem.detail);
        }
    }
}
