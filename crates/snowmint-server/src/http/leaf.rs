//! Leaf's paths `/api/segment/get/{key}`, `/api/snowflake/get/{key}` and `/decodeSnowflakeId`, for unchanged
//! Leaf clients. An id is decimal text. A failure is 500 with Leaf's error document. It is never `0` with
//! 200, which Leaf answers for a mode that is off, and which clients take for an id.

use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use snowmint::codec::ParseIdError;
use snowmint::error::Snippet;
use snowmint::field::Field;
use snowmint::utc::Utc;
use snowmint::{Id, Parts};
use snowmint_cluster::namespace::Scheme;

use crate::access::Identity;
use crate::access::mint_access::MintAccess;
use crate::http::response::{Body, Failure, Problem, TEXT, json, ok};
use crate::http::routes::LeafMode;
use crate::limits::MAX_WAIT;
use crate::mint::{Mint, MintError, Minted, Namespace};
use crate::state::ServerState;
use crate::status::ErrorKind;

/// The error document of Leaf's server, as its framework writes it.
#[derive(Serialize)]
struct Document<'a> {
    timestamp: u64,
    status: u16,
    error: &'a str,
    exception: &'a str,
    message: String,
    path: &'a str,
    /// The reason, which Leaf's codes do not give.
    detail: String,
}

/// The fields of an id, as Leaf writes them: texts.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DecodedDocument {
    timestamp: String,
    sequence_id: String,
    worker_id: String,
}

/// Leaf's answer for a text that is not an id.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UndecodedDocument {
    error_msg: String,
}

/// Answers a request as Leaf does.
pub(super) async fn answer<B>(
    server: &ServerState,
    client: &MintAccess,
    identity: &Identity,
    mode: LeafMode,
    key: &[u8],
    request: &Request<B>,
) -> Result<Response<Body>, Failure> {
    if request.method() == Method::HEAD {
        return Ok(ok(TEXT, Body::whole("")));
    }
    match take(server, client, identity, mode, key).await {
        Ok(text) => Ok(ok(TEXT, Body::whole(text))),
        Err(error) => {
            let unix_ms = server.settings.clock.unix_ms();
            Err(failure(&error, mode, unix_ms, request.uri().path()))
        }
    }
}

/// Answers `/decodeSnowflakeId`: decodes an id by the layout of this service. Leaf's worker is datacenter and
/// worker together; its time is in the time zone of its server, here in UTC.
pub(super) fn decoded(mint: &Mint, id: &[u8]) -> Result<Response<Body>, Problem> {
    let layout = mint.layout();
    let text = String::from_utf8_lossy(id);
    let decode = || -> Result<Parts, String> {
        let id: Id = text.trim().parse().map_err(|error: ParseIdError| error.to_string())?;
        layout.split(id).map_err(|error| error.to_string())
    };
    match decode() {
        Ok(parts) => {
            let unix_ms = layout.unix_ms(parts.timestamp);
            let utc = Utc(unix_ms).to_string().replace('T', " ");
            let worker =
                u64::from(parts.datacenter.0) << layout.width(Field::Worker) | u64::from(parts.worker.0);
            json(&DecodedDocument {
                timestamp: format!("{unix_ms}({})", utc.trim_end_matches('Z')),
                sequence_id: parts.sequence.0.to_string(),
                worker_id: worker.to_string(),
            })
        }
        Err(why) => {
            json(&UndecodedDocument { error_msg: format!("invalid id {}: {why}", Snippet::of(&text)) })
        }
    }
}

async fn take(
    server: &ServerState,
    client: &MintAccess,
    identity: &Identity,
    mode: LeafMode,
    key: &[u8],
) -> Result<Vec<u8>, MintError> {
    let namespace = client.find_or_create(&server.mint, identity, key, true).await?;
    let fits = match (mode, &namespace.definition().scheme) {
        (LeafMode::Segment, Scheme::Segment(_)) | (LeafMode::Snowflake, Scheme::Snowflake { .. }) => {
            namespace.definition().is_plain_number()
        }
        _ => false,
    };
    if !fits {
        return Err(wrong_scheme(namespace.name().as_str(), mode));
    }
    let mut ids = client.take(identity, &namespace, 1, MAX_WAIT, Namespace::try_take).await?;
    let mut text = Vec::new();
    if let Some(id @ Minted::Number(_)) = ids.next() {
        ids.write(id, &mut text);
    }
    Ok(text)
}

/// Returns the error for a key of another mode.
fn wrong_scheme(name: &str, mode: LeafMode) -> MintError {
    let what = match mode {
        LeafMode::Segment => "a segment namespace of plain numbers",
        LeafMode::Snowflake => "a snowflake namespace of plain numbers",
    };
    MintError::WrongScheme { name: Snippet::of(name), what }
}

/// Returns a failure in the format of Leaf.
fn failure(error: &MintError, mode: LeafMode, unix_ms: u64, path: &str) -> Failure {
    let kind = error.kind();
    let document = Document {
        timestamp: unix_ms,
        status: 500,
        error: "Internal Server Error",
        exception: "com.sankuai.inf.leaf.server.exception.LeafServerException",
        message: format!("Result{{id={}, status=EXCEPTION}}", code(mode, kind)),
        path,
        detail: error.answer(),
    };
    // Strings and numbers always serialize.
    let mut response =
        ok("application/json;charset=UTF-8", Body::whole(serde_json::to_vec(&document).unwrap_or_default()));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    Failure::new(kind, response)
}

/// Returns Leaf's code for a failure. Segment: -1 not initialised, -2 unknown key, -3 no segment ready.
/// Snowflake: -1 the clock stayed behind, -3 the clock is too far behind.
const fn code(mode: LeafMode, kind: ErrorKind) -> i8 {
    match (mode, kind) {
        (LeafMode::Segment, ErrorKind::NotReady | ErrorKind::Busy | ErrorKind::NumbersEnded)
        | (LeafMode::Snowflake, ErrorKind::ClockBehind) => -3,
        (
            LeafMode::Segment,
            ErrorKind::UnknownNamespace
            | ErrorKind::BadNamespace
            | ErrorKind::TooManyNamespaces
            | ErrorKind::WrongScheme,
        ) => -2,
        _ => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_match_leaf() {
        for (mode, kind, wanted) in [
            (LeafMode::Segment, ErrorKind::UnknownNamespace, -2),
            (LeafMode::Segment, ErrorKind::WrongScheme, -2),
            (LeafMode::Segment, ErrorKind::NotReady, -3),
            (LeafMode::Snowflake, ErrorKind::ClockBehind, -3),
            (LeafMode::Snowflake, ErrorKind::NotReady, -1),
        ] {
            assert_eq!(code(mode, kind), wanted, "{mode:?} {kind:?}");
        }
    }
}
