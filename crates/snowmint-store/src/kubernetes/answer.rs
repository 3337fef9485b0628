//! What the API server answered: a status, a body, and the time.

use std::time::UNIX_EPOCH;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// An answer of the server.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) date: Option<String>,
    pub(super) body: Bytes,
}

/// The body of an answer that is no success: `meta/v1` Status.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) reason: String,
    pub(super) message: String,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    /// The resource, in spite of its name: `leases`.
    kind: String,
    name: String,
}

impl Answer {
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_slice(&self.body)
            .map_err(|error| format!("the answer is not what an API server says: {error}"))
    }

    /// What the server says of a failure; empty where something else than an API server says it.
    pub(super) fn failure(&self) -> Status {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Whether it gives this reason, and for one Lease: not for a namespace, a quota, or a path that is unknown.
    pub(super) fn is_about_a_lease(&self, reason: &str) -> bool {
        let Status { reason: said, details, .. } = self.failure();
        said == reason && details.kind == "leases" && !details.name.is_empty()
    }

    /// The server's time, half a second later than the `Date`, which is cut to whole seconds.
    pub(super) fn unix_ms(&self) -> Option<u64> {
        let date = httpdate::parse_http_date(self.date.as_ref()?).ok()?;
        let since = date.duration_since(UNIX_EPOCH).ok()?;
        Some(since.as_secs() * 1000 + 500)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &'static str) -> Answer {
        let date = Some("Thu, 01 Jan 1970 00:00:07 GMT".to_owned());
        Answer { status: 404, date, body: Bytes::from_static(body.as_bytes()) }
    }

    #[test]
    fn only_a_lease_is_a_lease() {
        let lease = r#"{"kind":"Status","reason":"NotFound","details":{"name":"x","kind":"leases"}}"#;
        assert!(answer(lease).is_about_a_lease("NotFound"));
        assert!(!answer(lease).is_about_a_lease("Conflict"));
        for other in [
            "",
            "404 page not found",
            r#"{"kind":"Status","reason":"NotFound","details":{"name":"x","kind":"namespaces"}}"#,
            r#"{"kind":"Status","reason":"NotFound","details":{}}"#,
            r#"{"kind":"Status","reason":"NotFound"}"#,
        ] {
            assert!(!answer(other).is_about_a_lease("NotFound"), "{other}");
        }
    }

    #[test]
    fn the_date_is_taken_in_the_middle_of_its_second() {
        assert_eq!(answer("").unix_ms(), Some(7500));
        assert_eq!(Answer { date: Some("soon".to_owned()), ..answer("") }.unix_ms(), None);
        assert_eq!(Answer { date: None, ..answer("") }.unix_ms(), None);
    }
}
