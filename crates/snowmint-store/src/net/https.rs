//! The HTTP client of the stores that answer HTTP, and the time in their answers.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;

/// How far the middle of a second is from any instant in it: a `Date` has whole seconds.
pub(crate) const DATE_ERROR: Duration = Duration::from_millis(500);

/// A client for `http://` and `https://`, with a pool of connections.
pub(crate) type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Makes a client. `connect_within` limits connecting, without TLS.
pub(crate) fn client(tls: ClientConfig, connect_within: Duration) -> HttpsClient {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(Some(connect_within));
    http.set_nodelay(true);
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .build(https.wrap_connector(http))
}

/// Returns the time of a `Date` in Unix milliseconds: the middle of its second, which is at most
/// [`DATE_ERROR`] off.
pub(crate) fn date_unix_ms(date: &str) -> Option<u64> {
    let since = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs() * 1000 + 500)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_taken_in_the_middle_of_its_second() {
        assert_eq!(date_unix_ms("Thu, 01 Jan 1970 00:00:07 GMT"), Some(7500));
        assert_eq!(date_unix_ms("soon"), None);
    }
}
