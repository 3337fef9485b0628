//! Which form the client wants, of the two that a path has.
//! Only the preference between them is read; who accepts neither gets the first, as RFC 9110 allows.

use hyper::HeaderMap;
use hyper::header::ACCEPT;

/// How ids are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    /// One a line.
    Text,
}

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposition {
    /// Prometheus' own text form.
    Text,
    OpenMetrics,
}

/// The form that the `Accept` headers prefer: JSON, unless that is plain text.
pub(super) fn form(headers: &HeaderMap) -> Form {
    if prefers(headers, ["application", "text"], ["json", "plain"]) { Form::Text } else { Form::Json }
}

/// The form of metrics that they prefer: text, as every reader knows it, unless that is `OpenMetrics`.
pub(super) fn exposition(headers: &HeaderMap) -> Exposition {
    if prefers(headers, ["text", "application"], ["plain", "openmetrics-text"]) {
        Exposition::OpenMetrics
    } else {
        Exposition::Text
    }
}

/// Whether the second of two media types is preferred, given by their types and subtypes.
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

/// The weight of a form: the most specific range that names it decides.
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

/// `0.8` as 800; what is no weight counts as none given.
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

    #[test]
    fn json_unless_text_is_preferred() {
        for (accept, wanted) in [
            ("", Form::Json),
            ("*/*", Form::Json),
            ("application/json", Form::Json),
            ("text/plain", Form::Text),
            ("Text/Plain; charset=utf-8", Form::Text),
            ("text/*", Form::Text),
            ("text/html", Form::Json),
            ("text/plain, */*", Form::Json),
            ("text/plain, */*;q=0.1", Form::Text),
            ("text/plain;q=0.5, application/json;q=0.4", Form::Text),
            ("text/plain;q=0.5, application/json", Form::Json),
            ("text/plain;q=0, */*", Form::Json),
            ("text/plain;q=x", Form::Text),
            (",;,", Form::Json),
        ] {
            assert_eq!(form(&accepting(accept)), wanted, "{accept}");
        }
        assert_eq!(form(&HeaderMap::new()), Form::Json);
    }

    /// Goal: Prometheus gets what it prefers, of each version as it asks; people and other tools get text.
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
