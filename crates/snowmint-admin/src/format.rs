//! Numbers and times for people.

use snowmint::utc::{MS_PER_YEAR, UtcDate};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = MS_PER_YEAR;
const MONTH: u64 = YEAR / 12;

/// Formats `4194304000` as `4,194,304,000`.
pub fn thousands(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.char_indices() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Formats an instant as `2080-07-10`, in UTC.
pub fn date(unix_ms: u64) -> String {
    UtcDate(unix_ms).to_string()
}

/// Formats an instant as `4 years ago`, `in 3 days` or `just now`.
pub fn age(unix_ms: u64, now_unix_ms: u64) -> String {
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
    let count = thousands(count);
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
    fn thousands_are_apart() {
        for (number, shown) in [
            (0_u64, "0"),
            (999, "999"),
            (1000, "1,000"),
            (4_194_304_000, "4,194,304,000"),
            (123_456, "123,456"),
        ] {
            assert_eq!(thousands(number), shown);
        }
    }

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
