//! Whether a layout still has timestamps: none left is refused, few years left are worth a warning.

use snowmint::Layout;

use crate::exit::Failure;
use crate::instants::date;

/// Checks that ids can be made now; gives a warning when that ends within a few years.
pub(crate) fn check(layout: &Layout, now_unix_ms: u64) -> Result<Option<String>, Failure> {
    if layout.left_at(now_unix_ms).is_zero() {
        return Err(Failure::flag(
            "--layout",
            format!(
                "layout `{layout}` ended on {}: its ids can be read, but no new ones made; choose another layout, see \
                 `snowmint layouts`",
                date(layout.ends_at_unix_ms())
            ),
        ));
    }
    if now_unix_ms < layout.epoch_unix_ms() {
        return Err(Failure::flag(
            "--layout",
            format!(
                "layout `{layout}` begins on {}, later than now ({}): choose an epoch in the past, or correct the clock",
                date(layout.epoch_unix_ms()),
                date(now_unix_ms)
            ),
        ));
    }
    Ok(layout.expiry_warning(now_unix_ms).map(|warning| warning.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_timestamps_now_is_accepted() {
        let layout: Layout = "time:31@1s worker:20 sequence:12 epoch:2024-01-01".parse().unwrap();
        let (begins, ends) = (layout.epoch_unix_ms(), layout.ends_at_unix_ms());
        assert!(check(&layout, begins - 1).is_err());
        assert_eq!(check(&layout, begins).unwrap(), None);
        // 5 average Gregorian years.
        assert_eq!(check(&layout, ends - 157_784_760_000).unwrap(), None);
        assert!(check(&layout, ends - 157_784_760_000 + 1).unwrap().is_some());
        let warning = check(&layout, ends - 1).unwrap().unwrap();
        assert!(warning.contains("2092-01-19, in 0.0 years"), "{warning}");
        assert!(matches!(check(&layout, ends), Err(Failure::Usage(_))));
    }
}
