//! The console: a page for browsers at `/` and `/console`, with its script, styles and icon, all of it in the
//! binary.
//!
//! The page holds no data. It requests everything that it shows from the same paths as every client, with the
//! token that its user enters. Its content security policy allows no other origin and no inline script, and
//! forbids turning text into markup: names of namespaces and holders are untrusted.

use std::sync::LazyLock;

use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_NONE_MATCH, LOCATION, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use sha2::{Digest as _, Sha256};

use crate::http::Serving;
use crate::http::response::{Body, Problem};
use crate::status::ErrorKind;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the console.
struct File {
    path: &'static str,
    kind: &'static str,
    content: &'static str,
    /// Changes with the content.
    tag: LazyLock<HeaderValue>,
}

macro_rules! file {
    ($path:literal, $kind:expr, $source:literal) => {{
        const CONTENT: &str = include_str!(concat!("../../console/", $source));
        File { path: $path, kind: $kind, content: CONTENT, tag: LazyLock::new(|| tag_of(CONTENT)) }
    }};
}

static FILES: [File; 12] = [
    file!("/console", HTML, "index.html"),
    file!("/console/style.css", "text/css; charset=utf-8", "style.css"),
    file!("/console/icon.svg", "image/svg+xml", "icon.svg"),
    file!("/console/theme.js", SCRIPT, "theme.js"),
    file!("/console/main.js", SCRIPT, "main.js"),
    file!("/console/page.js", SCRIPT, "page.js"),
    file!("/console/inspect.js", SCRIPT, "inspect.js"),
    file!("/console/design.js", SCRIPT, "design.js"),
    file!("/console/fleet.js", SCRIPT, "fleet.js"),
    file!("/console/events.js", SCRIPT, "events.js"),
    file!("/console/plots.js", SCRIPT, "plots.js"),
    file!("/console/draw.js", SCRIPT, "draw.js"),
];

fn tag_of(content: &str) -> HeaderValue {
    let digest = Sha256::digest(content);
    let number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    // Hexadecimal digits are valid in a header.
    HeaderValue::try_from(format!("\"{number:016x}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Answers a request for the console; `None` for every other request.
pub(super) fn answer<B>(
    serving: &Serving<'_>,
    request: &Request<B>,
) -> Option<Result<Response<Body>, Problem>> {
    let path = request.uri().path();
    if path != "/" && !path.starts_with("/console") || !serving.server.settings.console {
        return None;
    }
    let shown = if path == "/" && accepts_html(request.headers()) { "/console" } else { path };
    if shown == "/console/" {
        return Some(serving.check_admission().map(|()| moved("../console")));
    }
    if shown == "/" {
        let detail = "unknown path `/`: it is the console, for browsers; ids are at /v1/ids/{namespace}, such as /v1/ids/default, and \
                      /openapi.json describes every path";
        let unknown = Problem::new(ErrorKind::Unknown, detail.to_owned());
        return Some(serving.check_admission().and(Err(unknown)));
    }
    let file = FILES.iter().find(|file| file.path == shown)?;
    let checked = serving.check_admission().and_then(|()| match *request.method() {
        Method::GET | Method::HEAD => Ok(()),
        ref method => Err(Problem::bad_method(method, "GET, HEAD")),
    });
    Some(checked.map(|()| file.answer(request.headers())))
}

/// A browser that opens a page accepts HTML; API clients, curl and probes do not say so.
fn accepts_html(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| {
        value.split(',').any(|range| range.split(';').next().unwrap_or_default().trim() == "text/html")
    })
}

fn moved(to: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::whole(""));
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    response
}

impl File {
    fn answer(&self, headers: &HeaderMap) -> Response<Body> {
        let is_same = headers.get_all(IF_NONE_MATCH).iter().any(|value| *value == *self.tag);
        let body = if is_same { "" } else { self.content };
        let mut response = Response::new(Body::constant(body));
        if is_same {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        for (name, value) in [
            (CONTENT_TYPE, self.kind),
            // A browser asks for each file whether it has changed: another version of the server may answer
            // the next time.
            (CACHE_CONTROL, "no-cache"),
            (VARY, "Accept"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert(ETAG, self.tag.clone());
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the first load stays small, nothing is loaded from elsewhere, and no text becomes markup. The
    /// browser enforces the policy too; here the cause is named.
    #[test]
    fn files_are_small_and_name_no_other_site() {
        let all: usize = FILES.iter().map(|file| file.content.len()).sum();
        assert!(all < 100_000, "{all} bytes");
        for file in &FILES {
            for word in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!file.content.contains(word), "{} has {word}", file.path);
            }
            for address in ["src=\"http", "href=\"http", "url(http", "from 'http", "fetch('http"] {
                assert!(!file.content.contains(address), "{} has {address}", file.path);
            }
        }
        let html = FILES[0].content;
        assert!(
            !html.contains("style=\"") && !html.contains("onclick") && !html.contains("<style"),
            "the policy forbids it"
        );
    }

    #[test]
    fn only_browsers_get_the_page_at_the_root() {
        for (accept, wanted) in [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            ("application/json, text/html;q=0.5", true),
            ("*/*", false),
            ("application/json", false),
            ("text/*", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(accepts_html(&headers), wanted, "{accept}");
        }
        assert!(!accepts_html(&HeaderMap::new()));
    }
}
