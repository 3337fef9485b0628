//! Which form the client wants: JSON, unless it prefers plain text.
//! Only the preference between the two is read; who accepts neither gets JSON all the same, as RFC 9110 allows.

use hyper::HeaderMap;
use hyper::header::ACCEPT;

/// How ids are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    /// One a line.
    Text,
}

/// The form that the `Accept` headers prefer.
pub(super) fn form(headers: &HeaderMap) -> Form {
    let (mut json, mut text) = (Weight::default(), Weight::default());
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let thousandths =
            parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q="))).map_or(1000, quality);
        match &*name {
            "application/json" => json.offer(3, thousandths),
            "application/*" => json.offer(2, thousandths),
            "text/plain" => text.offer(3, thousandths),
            "text/*" => text.offer(2, thousandths),
            "*/*" => {
                json.offer(1, thousandths);
                text.offer(1, thousandths);
            }
            _ => {}
        }
    }
    if text.thousandths > json.thousandths { Form::Text } else { Form::Json }
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
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(form(&headers), wanted, "{accept}");
        }
        assert_eq!(form(&HeaderMap::new()), Form::Json);
    }
}
