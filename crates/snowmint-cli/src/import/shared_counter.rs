//! The URL of one counter of another system, for a namespace that draws from it side by side with that
//! system.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use snowmint_cluster::namespace::CounterSource;

/// What a value of a query does not keep as it is.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b':')
    .remove(b'/')
    .remove(b'{')
    .remove(b'}');

/// Returns the source of a counter from the URL of a survey, which names all counters or one.
pub(super) fn source(url: &str, counter: &str) -> Result<CounterSource, String> {
    let parameter = match url.split(':').next() {
        Some("leaf") => "tag",
        Some("tinyid") => "biz_type",
        Some("redis-counter") => "counter",
        // A table is one counter, which the URL names already.
        _ => {
            return url.parse().map_err(|error: <CounterSource as std::str::FromStr>::Err| error.to_string());
        }
    };
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let others = query.split('&').filter(|it| !it.is_empty() && it.split('=').next() != Some(parameter));
    let which = format!("{parameter}={}", utf8_percent_encode(counter, ENCODED));
    let query: Vec<&str> = others.chain([&*which]).collect();
    let url = format!("{base}?{}", query.join("&"));
    url.parse().map_err(|error: <CounterSource as std::str::FromStr>::Err| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_names_one_counter_and_keeps_the_rest_of_the_url() {
        for (url, counter, expected) in [
            ("leaf:mysql://u@db/leaf", "order", "leaf:mysql://u@db/leaf?tag=order"),
            (
                "leaf:mysql://u@db/leaf?ssl-mode=REQUIRED&tag=x",
                "a&b",
                "leaf:mysql://u@db/leaf?ssl-mode=REQUIRED&tag=a%26b",
            ),
            ("tinyid:mysql://u@db/t", "pay/refund", "tinyid:mysql://u@db/t?biz_type=pay/refund"),
            ("redis-counter:redis://c/0?counter=*", "{a}.n", "redis-counter:redis://c/0?counter={a}.n"),
            ("tickets:mysql://u@db/t?stub=b", "Tickets64", "tickets:mysql://u@db/t?stub=b"),
        ] {
            assert_eq!(source(url, counter).unwrap().to_string(), expected);
        }
        assert!(source("leaf:mysql://u@db/leaf", &"a".repeat(600)).is_err());
    }
}
