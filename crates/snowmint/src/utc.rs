//! Instants as text: milliseconds since 1970 to RFC 3339 in UTC and back.
//! It covers what epochs and ids need: no leap seconds, and no time zones except a fixed offset in the input.

use core::fmt;
#[cfg(feature = "std")]
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::snippet::Snippet;

const MS_PER_DAY: u64 = 86_400_000;

/// Milliseconds of the average Gregorian year, 365.2425 days.
pub const MS_PER_YEAR: u64 = 31_556_952_000;

/// The end of the year 1970, in unix milliseconds.
pub(crate) const END_OF_1970: u64 = 365 * MS_PER_DAY;

/// The last instant that RFC 3339 can represent, 9999-12-31T23:59:59.999Z, in unix milliseconds.
pub const MAX_UNIX_MS: u64 = 253_402_300_799_999;

/// An instant in unix milliseconds, shown as `2010-11-04T01:42:54.657Z`.
///
/// Years after 9999 are written with as many digits as they have. It converts from and to
/// [`SystemTime`] (feature `std`).
///
/// ```
/// assert_eq!(snowmint::utc::Utc(1_288_834_974_657).to_string(), "2010-11-04T01:42:54.657Z");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utc(pub u64);

#[cfg(feature = "std")]
impl From<SystemTime> for Utc {
    /// Cuts the time to whole milliseconds; a time before 1970 becomes 1970.
    ///
    /// ```
    /// use snowmint::utc::Utc;
    /// use std::time::{Duration, UNIX_EPOCH};
    /// assert_eq!(Utc::from(UNIX_EPOCH + Duration::from_micros(1_500)), Utc(1));
    /// ```
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(feature = "std")]
impl From<Utc> for SystemTime {
    /// A time that the system cannot represent (on Windows after the year 30827) becomes the end of the year
    /// 9999.
    fn from(utc: Utc) -> Self {
        let at = |unix_ms| UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms));
        at(utc.0).or_else(|| at(MAX_UNIX_MS)).unwrap_or(UNIX_EPOCH)
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0 % MS_PER_DAY;
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        write!(f, "{}T{hour:02}:{minute:02}:{second:02}.{:03}Z", UtcDate(self.0), ms % 1000)
    }
}

/// The day of an instant in unix milliseconds, shown as `2010-11-04`.
///
/// ```
/// assert_eq!(snowmint::utc::UtcDate(1_288_834_974_657).to_string(), "2010-11-04");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UtcDate(pub u64);

impl fmt::Display for UtcDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0 / MS_PER_DAY);
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

/// Why a text is not a valid instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UtcError {
    /// The text does not have the form `2010-11-04T01:42:54.657Z` or `2010-11-04`, or is not a real date.
    Malformed {
        /// The input.
        text: Snippet,
    },
    /// The text has only four digits: most likely a year, which as unix milliseconds would lie in 1970.
    Year {
        /// The input.
        text: Snippet,
    },
    /// The number lies in 1970 as unix milliseconds: most likely it is unix seconds.
    Seconds {
        /// The number.
        number: u64,
    },
    /// The instant is before 1970 or after 9999.
    OutOfRange {
        /// The input.
        text: Snippet,
    },
}

impl fmt::Display for UtcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { text } => write!(
                f,
                "invalid instant {text}: expected 2010-11-04T01:42:54.657Z, 2010-11-04 or unix milliseconds"
            ),
            Self::Year { text } => write!(
                f,
                "ambiguous instant {text}: write 2024-01-01 for the start of a year, or add a leading 0 for unix milliseconds"
            ),
            Self::Seconds { number } => write!(
                f,
                "ambiguous instant {number}: it is {} in unix milliseconds and {} in unix seconds: write the date, or add a leading 0 \
                 for unix milliseconds",
                Utc(*number),
                Utc(number.saturating_mul(1000))
            ),
            Self::OutOfRange { text } => {
                write!(f, "instant {text} is out of range: expected 1970-01-01 to 9999-12-31")
            }
        }
    }
}

impl core::error::Error for UtcError {}

/// Parses an instant: RFC 3339 (`2010-11-04T01:42:54.657Z`, or an offset such as `+08:00`), a date, or unix
/// milliseconds.
///
/// It rejects fractions of a millisecond instead of cutting them. It also rejects numbers that lie in 1970 as
/// milliseconds: four digits may be a year, more may be unix seconds. With a leading 0 they are milliseconds.
///
/// # Errors
///
/// [`UtcError`] if the text is none of these, is not a real date, or lies outside 1970 to 9999.
pub fn parse(text: &str) -> Result<u64, UtcError> {
    let malformed = UtcError::Malformed { text: Snippet::of(text) };
    let out_of_range = UtcError::OutOfRange { text: Snippet::of(text) };
    if text.len() == 4 && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(UtcError::Year { text: Snippet::of(text) });
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let number = text.parse().ok().filter(|ms| *ms <= MAX_UNIX_MS).ok_or(out_of_range)?;
        if text.len() > 4 && !text.starts_with('0') && number < END_OF_1970 {
            return Err(UtcError::Seconds { number });
        }
        return Ok(number);
    }
    let mut reader = UtcReader { rest: text.as_bytes() };
    let ms = reader.instant().ok_or(malformed)?;
    u64::try_from(ms).ok().filter(|ms| *ms <= MAX_UNIX_MS).ok_or(out_of_range)
}

struct UtcReader<'a> {
    rest: &'a [u8],
}

impl UtcReader<'_> {
    fn instant(&mut self) -> Option<i64> {
        let (year, month, day) = (self.digits(4)?, self.after(b'-', 2)?, self.after(b'-', 2)?);
        let days = days_from_civil(year, month, day)?;
        let date_ms = days.checked_mul(MS_PER_DAY.cast_signed())?;
        if self.rest.is_empty() {
            return Some(date_ms);
        }
        if !(self.take(b'T') || self.take(b't') || self.take(b' ')) {
            return None;
        }
        let (hour, minute, second) = (self.digits(2)?, self.after(b':', 2)?, self.after(b':', 2)?);
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let fraction = self.fraction()?;
        let offset = self.offset_minutes()?;
        let time_ms = ((hour * 60 + minute) * 60 + second) * 1000 + fraction;
        self.rest.is_empty().then(|| date_ms + time_ms - offset * 60_000)
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.rest.first() == Some(&byte);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        digits.iter().try_fold(0, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
    }

    fn after(&mut self, separator: u8, count: usize) -> Option<i64> {
        if self.take(separator) { self.digits(count) } else { None }
    }

    fn fraction(&mut self) -> Option<i64> {
        if !self.take(b'.') {
            return Some(0);
        }
        let len = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if !(1..=3).contains(&len) {
            return None;
        }
        let scale = [100, 10, 1][len - 1];
        self.digits(len).map(|n| n * scale)
    }

    fn offset_minutes(&mut self) -> Option<i64> {
        if self.take(b'Z') || self.take(b'z') {
            return Some(0);
        }
        let sign = if self.take(b'+') {
            1
        } else if self.take(b'-') {
            -1
        } else {
            return None;
        };
        let (hours, minutes) = (self.digits(2)?, self.after(b':', 2)?);
        (hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
    }
}

/// Converts days since 1970-01-01 to year, month and day of the proleptic Gregorian calendar.
///
/// # Source
///
/// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`, for days after 1970.
const fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// Returns the year that contains an instant.
#[cfg(feature = "std")]
pub(crate) const fn year(unix_ms: u64) -> u64 {
    civil_from_days(unix_ms / MS_PER_DAY).0
}

/// Returns the first millisecond of a year, 1970 or later.
#[cfg(feature = "std")]
pub(crate) const fn start_of_year(year: u64) -> u64 {
    let before = year - 1;
    let days = before * 365 + before / 4 - before / 100 + before / 400;
    // The days before 1970, counted from year 1.
    (days - 719_162) * MS_PER_DAY
}

/// The inverse of [`civil_from_days`]; `None` for an invalid date.
fn days_from_civil(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in_month = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days_in_month).contains(&day) {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants_both_ways() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_288_834_974_657, "2010-11-04T01:42:54.657Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (MAX_UNIX_MS, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Utc(ms).to_string(), text);
            assert_eq!(parse(text), Ok(ms));
        }
    }

    #[test]
    fn every_day_until_2400_reads_back() {
        for day in (0..157_000).step_by(if cfg!(miri) { 5003 } else { 1 }) {
            let ms = day * MS_PER_DAY;
            assert_eq!(parse(&Utc(ms).to_string()), Ok(ms));
        }
    }

    #[test]
    fn short_forms_and_offsets() {
        assert_eq!(parse("2016-05-20T00:00:00+08:00"), Ok(1_463_673_600_000));
        assert_eq!(parse("2016-05-19T16:00:00.0Z"), Ok(1_463_673_600_000));
        assert_eq!(parse("2015-01-01"), Ok(1_420_070_400_000));
        assert_eq!(parse("1420070400000"), Ok(1_420_070_400_000));
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        for bad in [
            "",
            "x",
            "2010-13-01",
            "2010-02-29",
            "2010-1-1",
            "2010-11-04T24:00:00Z",
            "2010-11-04T01:42:54",
            "2010-11-04T01:42:54.Z",
            "2010-11-04T01:42:54.6571Z",
            "2010-11-04T01:42:54Zx",
            "-2010-01-01",
        ] {
            assert!(matches!(parse(bad), Err(UtcError::Malformed { .. })), "{bad}");
        }
        for far in ["1969-12-31", "253402300800000", "99999999999999999999999"] {
            assert!(matches!(parse(far), Err(UtcError::OutOfRange { .. })), "{far}");
        }
    }

    #[test]
    fn a_bare_year_is_not_taken_for_milliseconds() {
        for year in ["1970", "2024", "9999", "1000"] {
            assert!(matches!(parse(year), Err(UtcError::Year { .. })), "{year}");
        }
        assert_eq!((parse("0"), parse("999"), parse("02024")), (Ok(0), Ok(999), Ok(2024)));
        assert_eq!(parse("0010000"), Ok(10_000));
    }

    /// Goal: unix seconds are not taken for milliseconds: the error shows the instant in both units. Method:
    /// the borders of 1970, and numbers that people use as an epoch.
    #[test]
    fn unix_seconds_are_not_taken_for_milliseconds() {
        for number in [10_000, 1_288_834_974, 1_704_067_200, END_OF_1970 - 1] {
            assert_eq!(parse(&number.to_string()), Err(UtcError::Seconds { number }), "{number}");
            assert_eq!(parse(&format!("0{number}")), Ok(number));
        }
        assert_eq!(parse(&END_OF_1970.to_string()), Ok(END_OF_1970));
        assert_eq!(
            parse("1704067200").unwrap_err().to_string(),
            "ambiguous instant 1704067200: it is 1970-01-20T17:21:07.200Z in unix milliseconds and 2024-01-01T00:00:00.000Z in \
             unix seconds: write the date, or add a leading 0 for unix milliseconds"
        );
    }

    #[test]
    fn years_beyond_four_digits_are_shown() {
        assert_eq!(Utc(MAX_UNIX_MS + 1).to_string(), "10000-01-01T00:00:00.000Z");
    }
}
