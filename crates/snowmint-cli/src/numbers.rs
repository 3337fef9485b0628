//! Numbers for people: thousands apart, rates and years with as many digits as they deserve.

use snowmint::Layout;
use snowmint::utc::MS_PER_YEAR;

/// `4194304000` as `4,194,304,000`.
pub(crate) fn thousands(number: impl Into<u128>) -> String {
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

/// Ids a second, with a word for layouts that make fewer than one.
pub(crate) fn rate(ids_per_second: impl Into<u128>) -> String {
    match ids_per_second.into() {
        0 => "less than 1".to_owned(),
        rate => thousands(rate),
    }
}

/// Tenths of a year from `now_unix_ms` until the layout's time runs out; 0 once it has.
pub(crate) fn tenths_of_years_left(layout: &Layout, now_unix_ms: u64) -> u64 {
    let tenths = layout.left_at(now_unix_ms).as_millis() / u128::from(MS_PER_YEAR / 10);
    u64::try_from(tenths).unwrap_or(u64::MAX)
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
}
