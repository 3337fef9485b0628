//! Instants as people type them: a date, an instant, Unix milliseconds, `1 day`, `2h ago`, `now`, `today`,
//! `yesterday`.

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use snowmint::utc::{self, UtcError};

const MS_PER_DAY: u64 = 86_400_000;
/// Smaller numbers are taken for Unix seconds or a date without dashes: as Unix milliseconds this is in March
/// 1973.
const FIRST_MS: u64 = 100_000_000_000;
const EXPECTED: &str = "expected an instant such as 2026-11-22T08:00:00Z, a date such as 2026-11-22 (UTC), a time before now such \
                        as '1 day' or '2h ago', or now, today or yesterday (UTC)";

/// An instant, or a time before now.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// In Unix milliseconds.
    At(u64),
    /// This long before now, in calendar units: a month has its actual number of days.
    Ago(Span),
    /// This many days before the start of today, UTC.
    DaysBefore(u64),
}

/// Parses `--since`, `--until` and the like.
pub(crate) fn parse(text: &str) -> Result<When, String> {
    let text = text.trim();
    match text.to_ascii_lowercase().as_str() {
        "now" => return Ok(When::Ago(Span::new())),
        "today" => return Ok(When::DaysBefore(0)),
        "yesterday" => return Ok(When::DaysBefore(1)),
        _ => {}
    }
    if text.starts_with('+') {
        return Err(format!("a time counts back from now, without a sign: {EXPECTED}"));
    }
    // 0 is 1970 in both units.
    if text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse().is_ok_and(|ms: u64| (1..FIRST_MS).contains(&ms))
    {
        return Err(
            "too small for unix milliseconds: multiply unix seconds by 1000, or write a date such as \
                    2026-11-22"
                .to_owned(),
        );
    }
    match utc::parse(text) {
        Ok(unix_ms) => Ok(When::At(unix_ms)),
        Err(UtcError::Malformed { .. }) => match text.parse::<Span>() {
            // `1 day`, `1 day ago` and `-1d` mean the same, since ids of the future do not exist.
            Ok(span) => Ok(When::Ago(span.abs())),
            Err(_) => Err(completed(text).map_or_else(
                || EXPECTED.to_owned(),
                |whole| format!("a time needs its seconds and an offset: write {whole}"),
            )),
        },
        Err(error) => Err(error.to_string()),
    }
}

/// Returns an instant whose seconds or offset are missing, with `:00` and `Z` added.
fn completed(text: &str) -> Option<String> {
    const MINUTES: usize = "2026-11-22T08:00".len();
    let (to_minutes, rest) = text.split_at_checked(MINUTES)?;
    let with_seconds = if rest.starts_with(':') { text.to_owned() } else { format!("{to_minutes}:00{rest}") };
    let with_offset = format!("{with_seconds}Z");
    [with_seconds, with_offset].into_iter().find(|whole| utc::parse(whole).is_ok())
}

impl When {
    /// Returns the instant in Unix milliseconds; `None` before 1970.
    pub(crate) fn unix_ms(self, now_unix_ms: u64) -> Option<u64> {
        match self {
            Self::At(unix_ms) => Some(unix_ms),
            Self::Ago(span) => {
                let now = Timestamp::from_millisecond(i64::try_from(now_unix_ms).ok()?).ok()?;
                let then = now.to_zoned_datetime(TimeZone::UTC).checked_sub(span).ok()?;
                u64::try_from(then.timestamp().as_millisecond()).ok()
            }
            Self::DaysBefore(days) => {
                (now_unix_ms / MS_PER_DAY).checked_sub(days).map(|day| day * MS_PER_DAY)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowmint::utc::Utc;

    #[test]
    fn instants_are_read_as_people_type_them() {
        let now = utc::parse("2026-03-31T08:30:00Z").unwrap();
        for (text, wanted) in [
            ("2026-01-02", "2026-01-02T00:00:00.000Z"),
            ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05.000Z"),
            ("1700000000000", "2023-11-14T22:13:20.000Z"),
            ("now", "2026-03-31T08:30:00.000Z"),
            ("Today", "2026-03-31T00:00:00.000Z"),
            ("yesterday", "2026-03-30T00:00:00.000Z"),
            ("1 day", "2026-03-30T08:30:00.000Z"),
            ("1d", "2026-03-30T08:30:00.000Z"),
            ("2h ago", "2026-03-31T06:30:00.000Z"),
            ("2 hours 30 minutes ago", "2026-03-31T06:00:00.000Z"),
            ("1 week", "2026-03-24T08:30:00.000Z"),
            ("1 month", "2026-02-28T08:30:00.000Z"),
            ("500ms", "2026-03-31T08:29:59.500Z"),
            ("-1d", "2026-03-30T08:30:00.000Z"),
            ("0", "1970-01-01T00:00:00.000Z"),
        ] {
            let found = parse(text).map(|when| Utc(when.unix_ms(now).unwrap()).to_string());
            assert_eq!(found.as_deref(), Ok(wanted), "{text}");
        }
        for text in ["", "soon", "2026-13-01", "day", "10 years 5", "2026-01-01T00:00:00"] {
            let found = parse(text);
            assert!(found.is_err(), "{text}: {found:?}");
        }
        // Future times and Unix seconds are rejected.
        for (text, wanted) in [
            ("2026-11-01T08:00+01:00", "write 2026-11-01T08:00:00+01:00"),
            ("2026-11-01T08:00Z", "write 2026-11-01T08:00:00Z"),
            ("2026-11-01T08:00", "write 2026-11-01T08:00:00Z"),
            ("2026-11-01 08:00:30", "write 2026-11-01 08:00:30Z"),
            ("2026-13-01T08:00", "expected an instant"),
            ("+1 day", "counts back"),
            ("+1700000000000", "counts back"),
            ("1700000000", "by 1000"),
            ("20261122", "a date such as"),
            ("2026", "a date such as"),
            ("99999999999", "by 1000"),
        ] {
            let found = parse(text);
            assert!(found.as_ref().is_err_and(|why| why.contains(wanted)), "{text}: {found:?}");
        }
        assert_eq!(parse("100 years").map(|when| when.unix_ms(now)), Ok(None), "before 1970");
    }
}
