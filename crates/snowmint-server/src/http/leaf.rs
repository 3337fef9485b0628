//! Leaf's two paths, `/api/segment/get/{key}` and `/api/snowflake/get/{key}`: its clients work as they are.
//! An id is decimal text. A failure is 500 with Leaf's document; never `0` with 200, which Leaf gives for a mode that
//! is off and callers take for an id.

use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use snowmint_cluster::namespace::Scheme;

use crate::http::answer::{TEXT, find, ok};
use crate::http::body::Body;
use crate::http::request::LeafMode;
use crate::mint::{Caller, MintError, Minted};
use crate::server::Server;
use crate::status::Kind;

/// What Leaf's server says when something is wrong: the error document of the framework it runs on.
#[derive(Serialize)]
struct Document<'a> {
    timestamp: u64,
    status: u16,
    error: &'a str,
    exception: &'a str,
    message: String,
    path: &'a str,
    /// Leaf's own codes say little; this is why.
    detail: String,
}

/// A failure, to be told as Leaf tells it.
#[derive(Debug)]
pub(super) struct LeafFailure {
    error: MintError,
    mode: LeafMode,
    unix_ms: u64,
    path: String,
}

/// Answers as Leaf.
pub(super) async fn answer<B>(
    server: &Server,
    caller: &mut Caller,
    mode: LeafMode,
    key: &[u8],
    request: &Request<B>,
) -> Result<Response<Body>, LeafFailure> {
    if request.method() == Method::HEAD {
        return Ok(ok(TEXT, Body::whole("")));
    }
    match take(server, caller, mode, key).await {
        Ok(text) => Ok(ok(TEXT, Body::whole(text))),
        Err(error) => {
            let path = request.uri().path().to_owned();
            Err(LeafFailure { error, mode, unix_ms: server.clock.unix_ms(), path })
        }
    }
}

async fn take(
    server: &Server,
    caller: &mut Caller,
    mode: LeafMode,
    key: &[u8],
) -> Result<Vec<u8>, MintError> {
    let namespace = find(server, caller, key, true).await?;
    let fits = match (mode, &namespace.definition().scheme) {
        (LeafMode::Segment, Scheme::Segment(_)) | (LeafMode::Snowflake, Scheme::Snowflake { .. }) => {
            namespace.definition().is_plain_number()
        }
        _ => false,
    };
    if !fits {
        return Err(wrong_scheme(namespace.name().as_str(), mode));
    }
    let mut ids = namespace.take(caller.callers(), 1).await?;
    let mut text = Vec::new();
    if let Some(id @ Minted::Number(_)) = ids.next() {
        ids.write(id, &mut text);
        namespace.add_issued(1);
    }
    Ok(text)
}

/// To Leaf's clients a key of another mode does not exist.
fn wrong_scheme(name: &str, mode: LeafMode) -> MintError {
    let what = match mode {
        LeafMode::Segment => "a segment namespace of plain numbers",
        LeafMode::Snowflake => "a snowflake namespace of plain numbers",
    };
    MintError::WrongScheme { name: snowmint::error::Snippet::of(name), what }
}

impl LeafFailure {
    pub(super) const fn kind(&self) -> Kind {
        self.error.kind()
    }

    pub(super) fn response(&self) -> Response<Body> {
        let document = Document {
            timestamp: self.unix_ms,
            status: 500,
            error: "Internal Server Error",
            exception: "com.sankuai.inf.leaf.server.exception.LeafServerException",
            message: format!("Result{{id={}, status=EXCEPTION}}", code(self.mode, self.kind())),
            path: &self.path,
            detail: self.error.to_string(),
        };
        // Strings and numbers always have a JSON form.
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = Response::new(Body::whole(body));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json;charset=UTF-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// Leaf's code of a failure. Segments: -1 not initialised, -2 no such key, -3 no segment is ready. Snowflake: -1 the
/// clock stayed behind, -3 it is too far behind.
const fn code(mode: LeafMode, kind: Kind) -> i8 {
    match (mode, kind) {
        (LeafMode::Segment, Kind::NotReady | Kind::Busy | Kind::NumbersEnded)
        | (LeafMode::Snowflake, Kind::ClockBehind) => -3,
        (
            LeafMode::Segment,
            Kind::UnknownNamespace | Kind::BadNamespace | Kind::TooManyNamespaces | Kind::WrongScheme,
        ) => -2,
        _ => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_leaf() {
        for (mode, kind, wanted) in [
            (LeafMode::Segment, Kind::UnknownNamespace, -2),
            (LeafMode::Segment, Kind::WrongScheme, -2),
            (LeafMode::Segment, Kind::NotReady, -3),
            (LeafMode::Snowflake, Kind::ClockBehind, -3),
            (LeafMode::Snowflake, Kind::NotReady, -1),
        ] {
            assert_eq!(code(mode, kind), wanted, "{mode:?} {kind:?}");
        }
    }
}
