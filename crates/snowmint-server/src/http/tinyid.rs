//! TinyID's paths `/tinyid/id/nextId` and `/tinyid/id/nextIdSimple`, for unchanged TinyID clients. Both
//! always answer 200: the first with TinyID's document, which has a code, the second with an empty text if
//! there are no ids. The parameter `token` is a token of this server, if it has tokens.

use hyper::Response;
use serde::Serialize;
use snowmint::error::Snippet;

use crate::access::{Identity, Right};
use crate::http::Serving;
use crate::http::response::{self, Body, Failure, IdsFormat, ok};
use crate::http::routes::TinyIdForm;
use crate::limits::{MAX_COUNT, MAX_WAIT};
use crate::load::answer_memory::Full;
use crate::mint::{MintError, Namespace};
use crate::status::ErrorKind;

/// TinyID's code and message for a token that is wrong, or is not for this type.
const TOKEN_ERROR: (u16, &str) = (5, "token is error");
/// TinyID's code for every other failure.
const SYSTEM_ERROR: u16 = 6;

/// TinyID's document of a failure.
#[derive(Serialize)]
struct Document<'a> {
    data: Option<()>,
    code: u16,
    message: &'a str,
}

/// Answers a request as TinyID does.
pub(super) async fn answer(
    serving: &Serving<'_>,
    identity: &Identity,
    form: TinyIdForm,
    name: &[u8],
    count: Option<&[u8]>,
    head: bool,
) -> Result<Response<Body>, Failure> {
    let format = match form {
        TinyIdForm::Json => IdsFormat::TinyId,
        TinyIdForm::Simple => IdsFormat::TinyIdSimple,
    };
    let failed = |error: MintError| failure(form, error.kind(), &error.answer());
    identity.may(Right::Mint, name).map_err(failed)?;
    if head {
        return Ok(ok(format.media_type(), Body::whole("")));
    }
    let count = batch_size(count).map_err(failed)?;
    let (mint, client) = (&serving.server.mint, &serving.client);
    let namespace = client.find_or_create(mint, identity, name, true).await.map_err(failed)?;
    if namespace.why_no_numbers().is_some() {
        let name = Snippet::of(namespace.name().as_str());
        return Err(failed(MintError::WrongScheme { name, what: "a namespace of plain numbers" }));
    }
    let full = |full: Full| failure(form, Full::KIND, &full.to_string());
    let held_bytes = Body::hold_ids(&serving.peer.answers, &namespace, count).map_err(full)?;
    let ids =
        client.take(identity, &namespace, count, MAX_WAIT, Namespace::try_take).await.map_err(failed)?;
    let body = Body::ids(ids, format).map_err(|error| {
        let problem = response::failure(&error);
        failure(form, problem.kind, &problem.detail)
    })?;
    Ok(ok(format.media_type(), body.holding(held_bytes)))
}

/// Reads `batchSize` as TinyID does: 1 by default and for numbers below it, [`MAX_COUNT`] for numbers above
/// it.
fn batch_size(text: Option<&[u8]>) -> Result<usize, MintError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(1) };
    let text = String::from_utf8_lossy(text);
    let (sign, digits) = text.strip_prefix('-').map_or((1, &*text), |digits| (-1, digits));
    if digits.is_empty() || digits.len() > 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(MintError::BadCount { value: Snippet::of(&text), limit: MAX_COUNT });
    }
    // Twenty digits fit.
    let number = sign * digits.parse::<i128>().unwrap_or(i128::MAX);
    Ok(usize::try_from(number.clamp(1, MAX_COUNT as i128)).unwrap_or(MAX_COUNT))
}

/// Returns a failure in the format of TinyID.
pub(super) fn failure(form: TinyIdForm, kind: ErrorKind, message: &str) -> Failure {
    let (format, body) = match form {
        TinyIdForm::Json => {
            let (code, message) = match kind {
                ErrorKind::Unauthorized | ErrorKind::Forbidden => TOKEN_ERROR,
                _ => (SYSTEM_ERROR, message),
            };
            // Strings and numbers always serialize.
            let document = serde_json::to_vec(&Document { data: None, code, message }).unwrap_or_default();
            (IdsFormat::TinyId, document)
        }
        TinyIdForm::Simple => (IdsFormat::TinyIdSimple, Vec::new()),
    };
    Failure::new(kind, ok(format.media_type(), Body::whole(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_sizes_are_read_as_tinyid_does() {
        for (text, wanted) in [
            (None, Some(1)),
            (Some(""), Some(1)),
            (Some("7"), Some(7)),
            (Some("0"), Some(1)),
            (Some("-5"), Some(1)),
            (Some("100001"), Some(MAX_COUNT)),
            (Some("99999999999999999999"), Some(MAX_COUNT)),
            (Some("x"), None),
            (Some("-"), None),
            (Some("1.5"), None),
        ] {
            assert_eq!(batch_size(text.map(str::as_bytes)).ok(), wanted, "{text:?}");
        }
    }
}
