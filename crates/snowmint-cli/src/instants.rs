//! Instants for people: the local time, how long ago, the date alone.

use jiff::tz::TimeZone;
use snowmint::utc::{MS_PER_YEAR, UtcDate};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Twelfths and wholes of the average Gregorian year.
const MONTH: u64 = YEAR / 12;
const YEAR: u64 = MS_PER_YEAR;

/// `2080-07-10`, in UTC.
pub(crate) fn date(unix_ms: u64) -> String {
    UtcDate(unix_ms).to_string()
}

/// `2022-06-28T18:07:40.105+02:00 Europe/Berlin`, in the zone of this machine or of `TZ`.
pub(crate) fn local(unix_ms: u64) -> String {
    let Ok(zone) = TimeZone::try_system() else {
        return "unknown: neither TZ nor the system names a time zone".to_owned();
    };
    let instant = i64::try_from(unix_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let Some(instant) = instant else {
        return "beyond the year 9999".to_owned();
    };
    let name = zone.iana_name().unwrap_or_default().to_owned();
    let text = instant.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string();
    format!("{text} {name}").trim_end().to_owned()
}

/// `4 years ago`, `in 3 days` or `just now`.
pub(crate) fn age(unix_ms: u64, now_unix_ms: u64) -> String {
    let distance = unix_ms.abs_diff(now_unix_ms);
    let units = [
        (YEAR, "year"),
        (MONTH, "month"),
        (DAY, "day"),
        (HOUR, "hour"),
        (MINUTE, "minute"),
        (SECOND, "second"),
    ];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| distance >= *unit) else {
        return "just now".to_owned();
    };
    let count = distance / unit;
    let plural = if count == 1 { "" } else { "s" };
    let count = crate::numbers::thousands(count);
    if unix_ms < now_unix_ms {
        format!("{count} {name}{plural} ago")
    } else {
        format!("in {count} {name}{plural}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_unit_that_fits_is_named() {
        for (from, now, text) in [
            (1000, 1999, "just now"),
            (1000, 2000, "1 second ago"),
            (0, 4 * YEAR + 11 * MONTH, "4 years ago"),
            (3 * DAY, 0, "in 3 days"),
            (0, 59 * MINUTE, "59 minutes ago"),
            (0, 2000 * YEAR, "2,000 years ago"),
        ] {
            assert_eq!(age(from, now), text);
        }
    }
}
