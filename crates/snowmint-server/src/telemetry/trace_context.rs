//! W3C trace context: reads `traceparent` and `tracestate` of a request.
//!
//! # Source
//!
//! <https://www.w3.org/TR/trace-context/>, sections 3.2 and 3.3: an invalid header counts as none.

#[cfg(feature = "otlp")]
use hyper::header::HeaderMap;

/// Bytes of a `tracestate` that is passed on; the standard requires at least 512.
#[cfg(feature = "otlp")]
const MAX_STATE: usize = 512;

/// The span of the caller.
#[cfg(feature = "otlp")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    /// Whether the caller records its spans.
    pub(super) is_sampled: bool,
    pub(super) state: String,
}

#[cfg(feature = "otlp")]
impl Parent {
    /// Returns the caller's span; `None` if the headers name none.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut all = headers.get_all("traceparent").iter();
        let (parent, None) = (all.next()?, all.next()) else { return None };
        let (trace_id, span_id, is_sampled) = parse(parent.to_str().ok()?)?;
        let states: Vec<_> = headers.get_all("tracestate").iter().filter_map(|it| it.to_str().ok()).collect();
        let mut state = states.join(",");
        if state.len() > MAX_STATE {
            state.clear();
        }
        Some(Self { trace_id, span_id, is_sampled, state })
    }
}

/// Parses `00-<trace id>-<span id>-<flags>`. Later versions may have more behind it.
pub(super) fn parse(text: &str) -> Option<([u8; 16], [u8; 8], bool)> {
    let mut parts = text.split('-');
    let [version] = hex(parts.next()?)?;
    let (trace_id, span_id) = (hex(parts.next()?)?, hex(parts.next()?)?);
    let [flags] = hex(parts.next()?)?;
    let is_known = version == 0 && parts.next().is_none();
    let is_later = (1..255).contains(&version);
    let is_valid = (is_known || is_later) && trace_id != [0; 16] && span_id != [0; 8];
    is_valid.then_some((trace_id, span_id, flags & 1 == 1))
}

/// Parses lower-case hexadecimal digits, two for each byte.
fn hex<const LEN: usize>(text: &str) -> Option<[u8; LEN]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * LEN {
        return None;
    }
    let mut bytes = [0; LEN];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
#[cfg(feature = "otlp")]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn of(parents: &[&str], states: &[&str]) -> Option<Parent> {
        let mut headers = HeaderMap::new();
        for (name, values) in [("traceparent", parents), ("tracestate", states)] {
            for value in values {
                headers.append(name, value.parse().unwrap());
            }
        }
        Parent::of(&headers)
    }

    #[test]
    fn the_parent_is_that_of_the_standard() {
        let parent = of(&[&format!("00-{TRACE}-{SPAN}-01")], &["a=1", "b=2"]).unwrap();
        assert_eq!((parent.trace_id[0], parent.trace_id[15]), (0x4b, 0x36));
        assert_eq!((parent.span_id[1], parent.span_id[7]), (0xf0, 0xb7));
        assert_eq!((parent.is_sampled, parent.state.as_str()), (true, "a=1,b=2"));
        assert!(!of(&[&format!("00-{TRACE}-{SPAN}-02")], &[]).unwrap().is_sampled);
        assert!(of(&[&format!("cc-{TRACE}-{SPAN}-01-more")], &[]).unwrap().is_sampled, "a later version");
        assert_eq!(of(&[&format!("00-{TRACE}-{SPAN}-01")], &[&"x".repeat(513)]).unwrap().state, "");
    }

    #[test]
    fn an_invalid_parent_is_none() {
        let zeros = |len| "0".repeat(len);
        for text in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", zeros(32)),
            format!("00-{TRACE}-{}-01", zeros(16)),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}0-{SPAN}-01"),
        ] {
            assert_eq!(of(&[&text], &[]), None, "{text}");
        }
        let valid = format!("00-{TRACE}-{SPAN}-01");
        assert_eq!(of(&[&valid, &valid], &[]), None, "two of them");
        assert_eq!(of(&[], &["a=1"]), None);
    }
}
