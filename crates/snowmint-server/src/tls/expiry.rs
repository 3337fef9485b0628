//! When a certificate expires, read from the certificate itself, and the log line about it.

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use snowmint::utc::{self, Utc};
use tokio::time::Instant;

/// How long before its end a certificate is reported.
const NOTICE_MS: u64 = 14 * DAY_MS;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Interval between two log lines about one certificate.
const LOG_INTERVAL: Duration = Duration::from_hours(24);
/// Interval between two checks of the certificate in use.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_mins(1);

/// Returns when the first certificate of a chain expires, in unix milliseconds; `None` if no certificate
/// says.
pub(super) fn of_chain(chain: &[CertificateDer<'_>]) -> Option<u64> {
    chain.iter().filter_map(|certificate| not_after(certificate)).min()
}

/// The log of a certificate that expires: a line a day.
#[derive(Debug, Default)]
pub(super) struct ExpiryLog {
    /// When the last line was written, and for which end.
    last: Option<(Instant, u64)>,
}

impl ExpiryLog {
    /// Logs that the certificate has expired, or expires soon, unless that was logged within a day.
    pub(super) fn look(
        &mut self,
        certificate: &std::path::Path,
        expires_unix_ms: Option<u64>,
        now_unix_ms: u64,
    ) {
        let Some(expires_unix_ms) = expires_unix_ms else { return };
        let is_due = expires_unix_ms < now_unix_ms.saturating_add(NOTICE_MS);
        // A replaced certificate has another end.
        let was_logged = |(at, of): (Instant, u64)| of == expires_unix_ms && at.elapsed() < LOG_INTERVAL;
        if !is_due || self.last.is_some_and(was_logged) {
            return;
        }
        self.last = Some((Instant::now(), expires_unix_ms));
        let (certificate, expires) = (certificate.display(), Utc(expires_unix_ms));
        if let Some(left_ms) = expires_unix_ms.checked_sub(now_unix_ms) {
            tracing::warn!(
                %certificate, %expires, days_left = left_ms / DAY_MS,
                "TLS certificate expires soon: replace the file, and it is loaded by itself"
            );
        } else {
            tracing::warn!(
                %certificate, %expires,
                "TLS certificate has expired: clients reject it; replace the file, and it is loaded by itself"
            );
        }
    }
}

/// The tags of the encoding.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// Reads the end of a certificate's validity, in unix milliseconds.
///
/// # Source
///
/// RFC 5280, section 4.1. The fields before it are the version, which may be missing, the serial number, the
/// algorithm of the signature, the issuer and the start of the validity.
fn not_after(certificate: &[u8]) -> Option<u64> {
    let certificate = element(certificate).and_then(|(tag, it, _)| (tag == SEQUENCE).then_some(it))?;
    let mut fields = element(certificate).and_then(|(tag, it, _)| (tag == SEQUENCE).then_some(it))?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    for wanted in [INTEGER, SEQUENCE, SEQUENCE] {
        let (tag, _, rest) = element(fields)?;
        fields = (tag == wanted).then_some(rest)?;
    }
    let (SEQUENCE, validity, _) = element(fields)? else { return None };
    let (_, _, end) = element(validity)?;
    let (tag, text, _) = element(end)?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        // Two digits of the year: 1950 to 2049.
        UTC_TIME if text.len() == 12 => {
            let (year, rest) = text.split_at_checked(2)?;
            let century = if year < "50" { "20" } else { "19" };
            (format!("{century}{year}"), rest)
        }
        GENERALIZED_TIME if text.len() == 14 => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.to_owned(), rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2);
    let (month, day, hour) = (part(0)?, part(2)?, part(4)?);
    utc::parse(&format!("{year}-{month}-{day}T{hour}:{}:{}Z", part(6)?, part(8)?)).ok()
}

/// Splits off the first element: its tag, its content, and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // The number of bytes of the length; a certificate has less than 2^32.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let len = content.len();
        let head = match len {
            0..0x80 => vec![tag, u8::try_from(len).unwrap()],
            _ => vec![tag, 0x82, u8::try_from(len >> 8).unwrap(), u8::try_from(len & 0xff).unwrap()],
        };
        [&head, content].concat()
    }

    fn certificate(version: bool, tag: u8, end: &str) -> Vec<u8> {
        let validity = [der(UTC_TIME, b"260101000000Z"), der(tag, end.as_bytes())].concat();
        let mut fields = if version { der(VERSION, &der(INTEGER, &[2])) } else { Vec::new() };
        for field in [der(INTEGER, &[7; 20]), der(SEQUENCE, &[]), der(SEQUENCE, &[5; 300])] {
            fields.extend(field);
        }
        fields.extend(der(SEQUENCE, &validity));
        // The subject and the rest.
        fields.extend(der(SEQUENCE, &[9; 200]));
        der(SEQUENCE, &[der(SEQUENCE, &fields), der(SEQUENCE, &[1])].concat())
    }

    #[test]
    fn the_end_of_the_validity_is_read() {
        for (version, tag, end, wanted) in [
            (true, UTC_TIME, "261231235959Z", "2026-12-31T23:59:59Z"),
            (false, UTC_TIME, "491231235959Z", "2049-12-31T23:59:59Z"),
            (true, GENERALIZED_TIME, "20500101000000Z", "2050-01-01T00:00:00Z"),
            (true, GENERALIZED_TIME, "99991231235959Z", "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(
                not_after(&certificate(version, tag, end)),
                Some(utc::parse(wanted).unwrap()),
                "{end}"
            );
        }
        for (tag, end) in [(UTC_TIME, "261331235959Z"), (UTC_TIME, "2612312359Z"), (INTEGER, "261231235959Z")]
        {
            assert_eq!(not_after(&certificate(true, tag, end)), None, "{end}");
        }
        let whole = certificate(true, UTC_TIME, "261231235959Z");
        for len in 0..whole.len() {
            assert_eq!(not_after(&whole[..len]), None, "cut at {len}");
        }
        let (early, late) =
            (certificate(true, UTC_TIME, "270101000000Z"), certificate(true, UTC_TIME, "280101000000Z"));
        let chain = [late, early.clone(), vec![0]].map(CertificateDer::from);
        assert_eq!(of_chain(&chain), not_after(&early));
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_that_expires_soon_is_logged_once_a_day() {
        let (mut log, path) = (ExpiryLog::default(), std::path::Path::new("cert.pem"));
        let mut logs = |expires: Option<u64>, now| {
            let before = log.last;
            log.look(path, expires, now);
            log.last != before
        };
        let now = 1_800_000_000_000;
        assert!(!logs(None, now) && !logs(Some(now + NOTICE_MS), now));
        assert!(logs(Some(now + NOTICE_MS - 1), now));
        tokio::time::advance(Duration::from_secs(24 * 60 * 60 - 1)).await;
        assert!(!logs(Some(now + NOTICE_MS - 1), now + NOTICE_MS), "once a day");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(logs(Some(now + NOTICE_MS - 1), now + NOTICE_MS), "after its end too");
        assert!(logs(Some(now + 1), now), "another certificate");
    }
}
